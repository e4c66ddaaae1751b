"""The rules of the Responses wire about its items, looked at one by one. Pure. Above: `encode.py`, `lint.py`.
Below: `dialect.py`, `memo.py`.
"""

from typing import Any

from msgspec import Struct

from perdure.core.plain import excerpt
from perdure.models.memo import BrokenRule, Item
from perdure.models.untrusted import mappings

from .dialect import Dialect

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""The calls that we answer, and where their input is."""
OUTPUTS = {f"{kind}_output": kind for kind in CALLS}
"""The results, and which calls they answer."""

_ROLES = frozenset({"user", "assistant", "system", "developer"})
_READ = frozenset({"input_text", "input_image", "input_file", "input_audio"})
_WRITTEN = frozenset({"output_text", "refusal"})
_MOST_SHOWN = 80


class _State(Struct, frozen=True):
    """Where a conversation stands."""

    open: tuple[tuple[str, str], ...] = ()
    """The calls that have no result yet: the kind and the name of each."""
    thought: bool = False
    """Whether reasoning waits for the item that it belongs to."""
    begun: bool = True


_BEGINNING = _State(begun=False)


class Rules:
    """The order of items, and what must be in each."""

    def __init__(self, dialect: Dialect) -> None:
        self._longest_id = dialect.longest_id

    def begin(self) -> _State:
        """Before the first item."""
        return _BEGINNING

    def step(self, state: _State, item: Item) -> _State:
        """After one more item."""
        kind = item.get("type") or ("message" if "role" in item else "")
        if kind in OUTPUTS:
            return self._after_result(state, item, OUTPUTS[kind])
        if kind == "message":
            return _after_message(state, item)
        if kind in CALLS:
            return _State((*state.open, self._call(state, item, kind)))
        if kind == "reasoning":
            if not isinstance(item.get("summary"), list):
                raise _broken(f"reasoning has no list of summaries: {_shown(item)}")
            return _State(state.open, thought=True)
        if not kind:
            raise _broken(f"the item {_shown(item)} has no type")
        return _State(state.open)  # something of the provider's own, which goes back as it came

    def end(self, state: _State) -> None:
        """After the last item."""
        if not state.begun:
            raise _broken("there is nothing in the conversation: say something")
        if state.thought:
            raise _broken("the conversation ends with reasoning, without the item that it belongs to")
        if state.open:
            raise _broken(f"the calls {_names(state)} have no result")

    def _call(self, state: _State, item: Item, kind: str) -> tuple[str, str]:
        name = self._call_id(item)
        given = item.get(CALLS[kind])
        if not isinstance(item.get("name"), str) or not item["name"]:
            raise _broken(f"the call {name!r} names no tool")
        if not isinstance(given, str):
            raise _broken(f"the {CALLS[kind]} of the call {name!r} must be text, and not {excerpt(given)}")
        if name in _names(state):
            raise _broken(f"two calls that wait for their results have the same name, {name!r}")
        return kind, name

    def _after_result(self, state: _State, item: Item, kind: str) -> _State:
        name = self._call_id(item)
        output = item.get("output")
        if state.thought:
            raise _broken(f"the result of {name!r} follows reasoning, which belongs to another item")
        if (kind, name) not in state.open:
            raise _broken(f"the result of {name!r} answers none of the calls that wait for one, {_names(state)}")
        if not isinstance(output, str) and not mappings(output):
            raise _broken(f"the result of {name!r} must be text or a list of contents, and not {excerpt(output)}")
        return _State(tuple([each for each in state.open if each != (kind, name)]))

    def _call_id(self, item: Item) -> str:
        name = item.get("call_id")
        if not isinstance(name, str) or not 0 < len(name) <= self._longest_id:
            raise _broken(f"the name of a call is text of 1 to {self._longest_id} characters, and not {excerpt(name)}")
        return name


def _after_message(state: _State, item: Item) -> _State:
    role = item.get("role")
    if role not in _ROLES:
        raise _broken(f"the role {role!r} is none of {sorted(_ROLES)}")
    if role != "assistant":
        if state.thought:
            raise _broken(f"reasoning is followed by a message of the {role}, and not by what it belongs to")
        if state.open:
            raise _broken(f"a message of the {role} comes before the results of {_names(state)}")
    _check_content(item.get("content"), role)
    return _State(state.open)


def _check_content(content: Any, role: str) -> None:
    if isinstance(content, str):
        return
    if not mappings(content):
        raise _broken(f"a message of the {role} has no content: {excerpt(content)}")
    allowed = _WRITTEN if role == "assistant" else _READ
    for each in mappings(content):
        kind = each.get("type")
        if kind not in allowed:
            raise _broken(f"a message of the {role} holds {kind!r}: it may hold {', '.join(sorted(allowed))}")


def _names(state: _State) -> list[str]:
    return [name for _, name in state.open]


def _shown(item: Item) -> str:
    return excerpt(dict(item), _MOST_SHOWN)


def _broken(what: str) -> BrokenRule:
    return BrokenRule(f"the conversation would be refused: {what}")
