"""Check request bodies and the order of their items offline against the rules of the Responses API. No I/O."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from perdure._core.values.jsonable import short_repr
from perdure._models.endpoint.memo import Item, ProviderRuleError
from perdure._models.endpoint.profile import Profile
from perdure._models.schemas.lint import find_violations
from perdure._models.wires.lenient_json import as_dict, as_dicts
from perdure._models.wires.openai_features import get_openai_model_features

from .dialect import MAX_CACHE_KEY_LENGTH, ResponsesDialect, get_dialect

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


_is_name = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
_NAME_RULE = "is not 1 to 64 letters, digits, '_' or '-'"
_ENCRYPTED = "reasoning.encrypted_content"


def lint(body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
    """Return a sentence for each rule of the Responses API that a request body breaks."""
    dialect = get_dialect(profile)
    return [
        *_lint_input(body, dialect),
        *_lint_tools(body),
        *_lint_tool_choice(body),
        *_lint_response_format(body),
        *_lint_settings(body, dialect),
        *_lint_sampling(body, profile),
    ]


def _lint_input(body: Mapping[str, Any], dialect: ResponsesDialect) -> Iterator[str]:
    given = body.get("input")
    if isinstance(given, str) and given:
        return
    items = as_dicts(given)
    yield from _lint_item_order(items, dialect, kept=bool(body.get("previous_response_id") or body.get("conversation")))
    yield from _lint_repeated(
        [each.get("call_id") for each in items if each.get("type") in INPUT_FIELD_BY_CALL_TYPE], "call_id"
    )
    yield from _lint_repeated([each.get("id") for each in items], "id")
    if body.get("store") is False:
        yield from _lint_unstored_items(items)


def _lint_item_order(items: Sequence[Mapping[str, Any]], dialect: ResponsesDialect, *, kept: bool) -> Iterator[str]:
    """Check the order of items. `kept`: the provider has the start of the conversation, and with it the calls of the
    first results.
    """
    rules = ResponsesMessageRules(dialect)
    state = rules.begin()
    try:
        for item in items:
            if not (kept and item.get("type") in CALL_TYPE_BY_RESULT_TYPE):
                state = rules.step(state, item)
        rules.end(state)
    except ProviderRuleError as broken:
        yield str(broken)


def _lint_repeated(names: Sequence[Any], what: str) -> Iterator[str]:
    told = [name for name in names if isinstance(name, str)]
    for name in sorted({name for name in told if told.count(name) > 1}):
        yield f"the {what} {name!r} is used more than once"


def _lint_unstored_items(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Find items without content, which a provider that stores nothing cannot look up."""
    for item in items:
        kind = item.get("type")
        is_bare = kind == "reasoning" and not (item.get("encrypted_content") or item.get("content"))
        if is_bare or kind == "item_reference":
            yield f"the {kind} {item.get('id')!r} is empty, and a provider that stores nothing cannot look it up"


def _lint_tools(body: Mapping[str, Any]) -> Iterator[str]:
    tools = _get_client_tools(body)
    for tool in tools:
        name = tool.get("name")
        if not isinstance(name, str) or not _is_name(name):
            yield f"the name of a tool, {name!r}, {_NAME_RULE}"
        if tool.get("parameters") is not None:
            yield from _lint_schema(tool["parameters"], f"the tool {name!r}", strict=tool.get("strict") is True)
    yield from _lint_repeated([tool.get("name") for tool in tools], "tool")


def _lint_tool_choice(body: Mapping[str, Any]) -> Iterator[str]:
    choice = body.get("tool_choice")
    if as_dict(choice).get("type") == "function":
        name = as_dict(choice).get("name")
        if name not in [tool.get("name") for tool in _get_client_tools(body)]:
            yield f"tool_choice names {name!r}, and there is no such tool"
    if choice == "required" and not as_dicts(body.get("tools")):
        yield "tool_choice is 'required', and there are no tools"


def _get_client_tools(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tools that the client runs, not the provider's own, whose rules are unknown."""
    return [tool for tool in as_dicts(body.get("tools")) if tool.get("type") in {"function", "custom"}]


def _lint_response_format(body: Mapping[str, Any]) -> Iterator[str]:
    form = as_dict(as_dict(body.get("text")).get("format"))
    if form.get("type") == "json_schema":
        name = form.get("name")
        if not isinstance(name, str) or not _is_name(name):
            yield f"the name of the output, {name!r}, {_NAME_RULE}"
        yield from _lint_schema(form.get("schema"), "the output", strict=form.get("strict") is True)


def _lint_schema(given: Any, what: str, *, strict: bool) -> Iterator[str]:
    schema = {word: value for word, value in as_dict(given).items() if word != "$schema"}  # accepted and ignored
    for violation in find_violations(schema, "openai_strict" if strict else "plain"):
        yield f"{what} has a schema that is refused: {violation}"


def _lint_sampling(body: Mapping[str, Any], profile: Profile) -> Iterator[str]:
    if get_openai_model_features(profile.model).sampling == "never":
        for name in ("temperature", "top_p"):
            if body.get(name) not in (None, 1):
                yield f"{name} is {body[name]!r}, and {profile.model!r} takes none"


def _lint_settings(body: Mapping[str, Any], dialect: ResponsesDialect) -> Iterator[str]:
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield f"there is no model: {body.get('model')!r}"
    untaken = {
        "max_output_tokens": not dialect.output_limit,
        "temperature": not dialect.sampling,
        "top_p": not dialect.sampling,
        "reasoning": not dialect.reasoning,
    }
    for name, is_refused in untaken.items():
        if is_refused and body.get(name) is not None:
            yield f"{name} is not accepted here, and is {body[name]!r}"
    if not dialect.encrypted and _ENCRYPTED in (body.get("include") or ()):
        yield f"include asks for {_ENCRYPTED!r}, which this provider does not return"
    most = body.get("max_output_tokens")
    if isinstance(most, int) and most < dialect.least_output:
        yield f"max_output_tokens is {most}, and must be at least {dialect.least_output}"
    if dialect.always_streams and (body.get("stream") is not True or body.get("store") is not False):
        yield "this endpoint only streams, and stores nothing: stream must be true, and store false"
    if dialect.default_instructions and not isinstance(body.get("instructions"), str):
        yield "this endpoint requires instructions"
    if len(body.get("prompt_cache_key") or "") > MAX_CACHE_KEY_LENGTH:
        yield f"prompt_cache_key is longer than {MAX_CACHE_KEY_LENGTH} characters"
