"""Check the items (messages, calls, results) of a Responses API request, and their order. No I/O."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from perdure.core.jsonable import short_repr
from perdure.models.encoding_memo import Item, ProviderRuleError
from perdure.models.mistyped_json_fields import as_dicts

from .dialect import ResponsesDialect

INPUT_FIELD_BY_CALL_TYPE = {"function_call": "arguments", "custom_tool_call": "input"}
"""Types of calls that the client answers, and the field of their input."""
CALL_TYPE_BY_RESULT_TYPE = {f"{kind}_output": kind for kind in INPUT_FIELD_BY_CALL_TYPE}
"""Types of results, and the type of call that each one answers."""

_ROLES = frozenset({"user", "assistant", "system", "developer"})
_USER_CONTENT_TYPES = frozenset({"input_text", "input_image", "input_file", "input_audio"})
_ASSISTANT_CONTENT_TYPES = frozenset({"output_text", "refusal"})
_MOST_SHOWN = 80


@cache
def get_input_fields_by_call_type(dialect: ResponsesDialect) -> Mapping[str, str]:
    """Return the input field of each type of call that the client answers, such as `arguments` for `function_call`."""
    return {kind: field for kind, field in INPUT_FIELD_BY_CALL_TYPE.items() if kind not in dialect.provider_calls}


class _RulesState(Struct, frozen=True):
    """State of the check after an item: calls without a result, and reasoning that another item must follow."""

    open: tuple[tuple[str, str], ...] = ()
    """Calls that have no result yet: the type and id of each."""
    thought: bool = False
    """True if the last item is reasoning, which must be followed by the item that it belongs to."""
    begun: bool = True


_BEGINNING = _RulesState(begun=False)


class ResponsesMessageRules:
    """Rules of the Responses API about items (messages, calls, results): their order, and the fields of each."""

    def __init__(self, dialect: ResponsesDialect) -> None:
        self._longest_id = dialect.longest_id
        self._call_fields = get_input_fields_by_call_type(dialect)

    def begin(self) -> _RulesState:
        """Return the state before the first item."""
        return _BEGINNING

    def step(self, state: _RulesState, item: Item) -> _RulesState:
        """Return the state after one more item. Raise `ProviderRuleError` if the item breaks a rule."""
        kind = item.get("type") or ("message" if "role" in item else "")
        if kind in CALL_TYPE_BY_RESULT_TYPE:
            return self._step_result(state, item, CALL_TYPE_BY_RESULT_TYPE[kind])
        if kind == "message":
            return _step_message(state, item)
        if kind in self._call_fields:
            return _RulesState((*state.open, self._check_call(state, item, kind)))
        if kind == "reasoning":
            if not isinstance(item.get("summary"), list):
                raise _build_broken_rule(f"reasoning has no list of summaries: {_excerpt_item(item)}")
            return _RulesState(state.open, thought=True)
        if not kind:
            raise _build_broken_rule(f"the item {_excerpt_item(item)} has no type")
        return _RulesState(state.open)  # an item of the provider's own, sent back unchanged

    def end(self, state: _RulesState) -> None:
        """Raise `ProviderRuleError` if the conversation must not end in this state."""
        if not state.begun:
            raise _build_broken_rule("the conversation is empty: add a message")
        if state.thought:
            raise _build_broken_rule("the conversation ends with reasoning, without the item that it belongs to")
        if state.open:
            raise _build_broken_rule(f"the calls {_get_open_call_ids(state)} have no result")

    def _check_call(self, state: _RulesState, item: Item, kind: str) -> tuple[str, str]:
        name = self._get_call_id(item)
        given = item.get(INPUT_FIELD_BY_CALL_TYPE[kind])
        if not isinstance(item.get("name"), str) or not item["name"]:
            raise _build_broken_rule(f"the call {name!r} names no tool")
        if not isinstance(given, str):
            raise _build_broken_rule(
                f"the {INPUT_FIELD_BY_CALL_TYPE[kind]} of the call {name!r} must be text, and not {short_repr(given)}"
            )
        if name in _get_open_call_ids(state):
            raise _build_broken_rule(f"two calls without results have the same id, {name!r}")
        return kind, name

    def _step_result(self, state: _RulesState, item: Item, kind: str) -> _RulesState:
        name = self._get_call_id(item)
        output = item.get("output")
        if state.thought:
            raise _build_broken_rule(f"the result of {name!r} follows reasoning, which belongs to another item")
        if (kind, name) not in state.open:
            raise _build_broken_rule(
                f"the result of {name!r} answers none of the open calls, {_get_open_call_ids(state)}"
            )
        if not isinstance(output, str) and not as_dicts(output):
            raise _build_broken_rule(
                f"the result of {name!r} must be text or a list of content items, and not {short_repr(output)}"
            )
        return _RulesState(tuple([each for each in state.open if each != (kind, name)]))

    def _get_call_id(self, item: Item) -> str:
        name = item.get("call_id")
        if not isinstance(name, str) or not 0 < len(name) <= self._longest_id:
            raise _build_broken_rule(
                f"the id of a call is text of 1 to {self._longest_id} characters, and not {short_repr(name)}"
            )
        return name


def _step_message(state: _RulesState, item: Item) -> _RulesState:
    role = item.get("role")
    if role not in _ROLES:
        raise _build_broken_rule(f"the role {role!r} is none of {sorted(_ROLES)}")
    if role != "assistant":
        if state.thought:
            raise _build_broken_rule(f"reasoning is followed by a message of the {role}, and not by what it belongs to")
        if state.open:
            raise _build_broken_rule(f"a message of the {role} is before the results of {_get_open_call_ids(state)}")
    _check_content(item.get("content"), role)
    return _RulesState(state.open)


def _check_content(content: Any, role: str) -> None:
    if isinstance(content, str):
        return
    if not as_dicts(content):
        raise _build_broken_rule(f"a message of the {role} has no content: {short_repr(content)}")
    allowed = _ASSISTANT_CONTENT_TYPES if role == "assistant" else _USER_CONTENT_TYPES
    for each in as_dicts(content):
        kind = each.get("type")
        if kind not in allowed:
            raise _build_broken_rule(
                f"a message of the {role} has an item {kind!r}; allowed are {', '.join(sorted(allowed))}"
            )


def _get_open_call_ids(state: _RulesState) -> list[str]:
    return [name for _, name in state.open]


def _excerpt_item(item: Item) -> str:
    return short_repr(dict(item), _MOST_SHOWN)


def _build_broken_rule(what: str) -> ProviderRuleError:
    return ProviderRuleError(f"the conversation would be refused: {what}")
