"""What providers of chat completions refuse, told offline. Pure. Above: `encode.py`, the wire, tests. Below: `memo.py`.

`rules_of` has the rules about the order of messages, checked as they are encoded; `lint` looks at a whole body.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, cast

from msgspec import Struct

from perdure.models.memo import BrokenRule, Item
from perdure.models.profile import Profile

from .dialect import Dialect, dialect_of

MOST_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}").fullmatch
_NINE = re.compile(r"[A-Za-z0-9]{9}").fullmatch
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_SEEN = {"image_url": "images", "input_audio": "audio", "file": "documents", "video_url": "video"}
"""What a model can look at, by the type of the item: the name of a field of `Profile`."""


class State(Struct, frozen=True):
    """Where a list of messages stands."""

    open: tuple[str, ...] = ()
    """The ids of calls that have no result yet."""
    last: str = ""
    """Who spoke last."""


_START = State()


class ChatRules:
    """The rules about the order of messages, step by step."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def begin(self) -> State:
        """Before the first message."""
        return _START

    def step(self, state: State, item: Item) -> State:
        """After one more message."""
        role = item.get("role")
        if role not in _ROLES:
            raise BrokenRule(f"a message has the role {role!r}; there are {', '.join(sorted(_ROLES))}")
        if role == "tool":
            return _answered(state, item)
        if state.open:
            raise BrokenRule(f"the call {state.open[0]!r} has no result before the next message, of {role!r}")
        if role == "assistant":
            return State(self._calls(item), role)
        if role == "user" and _is_empty(item.get("content")):
            raise BrokenRule("a message of the user has no content")
        return State((), role)

    def end(self, state: State) -> None:
        """After the last message."""
        if state.open:
            raise BrokenRule(f"the call {state.open[0]!r} has no result")
        if self._dialect.ends_with_question and state.last == "assistant":
            raise BrokenRule("the last message has to be of the user, or a result; it is of the assistant")

    def _calls(self, item: Item) -> tuple[str, ...]:
        """The ids of the calls in what a model said."""
        calls = _objects(item.get("tool_calls"))
        if not calls:
            if _is_empty(item.get("content")) and not (item.get("function_call") or item.get("refusal")):
                raise BrokenRule("a message of the assistant has neither content nor calls")
            return ()
        ids = [str(call.get("id") or "") for call in calls]
        for call, call_id in zip(calls, ids, strict=True):
            self._check_call(call, call_id)
        if len(set(ids)) < len(ids):
            raise BrokenRule(f"two calls of a message have the same id: {', '.join(map(repr, ids))}")
        return tuple(ids)

    def _check_call(self, call: Mapping[str, Any], call_id: str) -> None:
        function = _object(call.get("function"))
        name = function.get("name")
        if not call_id:
            raise BrokenRule(f"a call of {name!r} has no id")
        if self._dialect.nine_letter_ids and not _NINE(call_id):
            raise BrokenRule(f"the id of a call is {call_id!r}; it has to be nine letters and digits")
        if not isinstance(name, str) or not name:
            raise BrokenRule(f"the call {call_id!r} names no tool")
        if not isinstance(function.get("arguments"), str):
            raise BrokenRule(f"the arguments of the call {call_id!r} are no text; give JSON as text")


@cache
def rules_of(dialect_name: str) -> ChatRules:
    """The rules of a dialect."""
    return ChatRules(dialect_of(dialect_name))


def _answered(state: State, item: Item) -> State:
    call_id = item.get("tool_call_id")
    if call_id not in state.open:
        waiting = ", ".join(map(repr, state.open)) or "none"
        raise BrokenRule(f"a result is for the call {call_id!r}, which the message before has not; waiting: {waiting}")
    if item.get("content") is None:
        raise BrokenRule(f"the result of the call {call_id!r} has no content")
    return State(tuple([each for each in state.open if each != call_id]), "tool")


# -- a whole body ------------------------------------------------------------------------------------------------------


def lint(body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
    """Which rules a whole body breaks, each in a sentence."""
    return [*_messages(body, profile), *_tools(body), *_choice(body), *_format(body), *_settings(body, profile)]


def _messages(body: Mapping[str, Any], profile: Profile) -> Iterator[str]:
    messages = _objects(body.get("messages"))
    if not messages:
        yield "there are no messages"
    rules = rules_of(profile.dialect)
    state = rules.begin()
    try:
        for item in messages:
            state = rules.step(state, item)
        rules.end(state)
    except BrokenRule as broken:
        yield str(broken)
    kinds = {str(item.get("type")) for each in messages for item in _objects(each.get("content"))}
    for kind in sorted(kinds & _SEEN.keys()):
        if not getattr(profile, _SEEN[kind]):
            yield f"there is an item {kind!r}, and {profile.model!r} takes no {_SEEN[kind]}"


def _tools(body: Mapping[str, Any]) -> Iterator[str]:
    tools = [tool for tool in _objects(body.get("tools")) if tool.get("type") == "function"]
    functions = [_object(tool.get("function")) for tool in tools]
    names = [function.get("name") for function in functions]
    if len(names) > MOST_TOOLS:
        yield f"there are {len(names)} tools; {MOST_TOOLS} are allowed"
    for name in names:
        if not isinstance(name, str) or not _NAME(name):
            yield f"a tool is named {name!r}; use up to 64 letters, digits, '_' and '-'"
    for name in sorted({str(name) for name in names if names.count(name) > 1}):
        yield f"two tools are named {name!r}"
    for function in functions:
        schema = _object(function.get("parameters"))
        if schema and schema.get("type") not in ("object", None):
            yield f"the parameters of {function.get('name')!r} are {schema.get('type')!r}; they have to be an object"


def _choice(body: Mapping[str, Any]) -> Iterator[str]:
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not body.get("tools"):
        yield f"tool_choice is {choice!r}, and there are no tools"
    if isinstance(choice, str):
        if choice not in ("auto", "none", "required", "any"):
            yield f"tool_choice is {choice!r}; use 'auto', 'none', 'required', or an object that names a tool"
        return
    chosen = _object(choice)
    name = _object(chosen.get("function")).get("name", chosen.get("name"))
    names = [_object(tool.get("function")).get("name") for tool in _objects(body.get("tools"))]
    if name is not None and name not in names:
        yield f"tool_choice names {name!r}, which is no tool of this request"


def _format(body: Mapping[str, Any]) -> Iterator[str]:
    given = body.get("response_format")
    if given is None:
        return
    wanted = _object(given)
    if wanted.get("type") not in ("text", "json_object", "json_schema"):
        yield f"response_format has the type {wanted.get('type')!r}; use 'text', 'json_object' or 'json_schema'"
    if wanted.get("type") == "json_schema":
        schema = _object(wanted.get("json_schema"))
        name = schema.get("name")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            yield f"response_format names its schema {name!r}; use up to 64 letters, digits, '_' and '-'"
        if not _object(schema.get("schema")):
            yield "response_format has no schema"


def _settings(body: Mapping[str, Any], profile: Profile) -> Iterator[str]:
    if not body.get("model") and dialect_of(profile.dialect).model_in_body:
        yield "no model is named"
    if body.get("stream_options") is not None and not body.get("stream"):
        yield "stream_options are for streams, and none is asked for"
    if {"max_tokens", "max_completion_tokens"} <= body.keys():
        yield "max_tokens and max_completion_tokens exclude each other"


def _is_empty(content: Any) -> bool:
    return content is None or content in ("", [])


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, (list, tuple)) else []
    return [each for each in items if isinstance(each, Mapping)]
