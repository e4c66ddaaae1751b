"""Check request bodies offline against the rules of chat completions providers. No I/O.

`get_message_rules` returns the rules about the order of messages, which are checked while they are encoded; `lint`
checks a complete body.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, cast

from msgspec import Struct

from perdure._models.endpoint.memo import Item, ProviderRuleError
from perdure._models.endpoint.profile import Profile
from perdure._models.wires.openai_features import get_openai_model_features

from .dialect import REASONING_CONTENT, ChatDialect, get_dialect
from .messages import is_reasoning_needed
from .reply_fields import REASONING_DETAILS_FIELD
from .settings import can_think_with_tools

MAX_TOOLS = 128
_is_tool_name = re.compile(r"[A-Za-z0-9_.-]{1,64}").fullmatch
_is_nine_letter_id = re.compile(r"[A-Za-z0-9]{9}").fullmatch
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_CAPABILITY_BY_ITEM_TYPE = {"image_url": "images", "input_audio": "audio", "file": "documents", "video_url": "video"}
"""Capability (a field of `Profile`) that each type of content item needs."""
_REASONING_FIELDS = (REASONING_CONTENT, REASONING_DETAILS_FIELD, "reasoning")


class ChatRulesState(Struct, frozen=True):
    """State of the order check after a chat message: the last role, and tool calls without a result."""

    open: tuple[str, ...] = ()
    """Ids of calls that have no result yet."""
    last: str = ""
    """Role of the last message."""


_START = ChatRulesState()
_AFTER_RESULTS = ChatRulesState((), "tool")


class ChatMessageRules:
    """Rules about the order of chat messages, checked one message at a time."""

    def __init__(self, dialect: ChatDialect) -> None:
        self._dialect = dialect

    def begin(self) -> ChatRulesState:
        """Return the state before the first message."""
        return _START

    def step(self, state: ChatRulesState, item: Item) -> ChatRulesState:
        """Return the state after one more message. Raise `ProviderRuleError` if the message breaks a rule."""
        role = item.get("role")
        if role not in _ROLES:
            raise ProviderRuleError(f"a message has the role {role!r}; there are {', '.join(sorted(_ROLES))}")
        if role == "tool":
            return _check_result(state, item)
        if state.open:
            raise ProviderRuleError(f"the call {state.open[0]!r} has no result before the next message, of {role!r}")
        if role == "assistant":
            return ChatRulesState(self._check_calls(item), role)
        if role == "user" and _is_empty_content(item.get("content")):
            raise ProviderRuleError("a message of the user has no content")
        return ChatRulesState((), role)

    def end(self, state: ChatRulesState) -> None:
        """Raise `ProviderRuleError` if the conversation must not end in this state."""
        if state.open:
            raise ProviderRuleError(f"the call {state.open[0]!r} has no result")
        if self._dialect.ends_with_question and state.last == "assistant":
            raise ProviderRuleError("the last message has to be of the user, or a result; it is of the assistant")

    def _check_calls(self, item: Item) -> tuple[str, ...]:
        """Check the calls of an assistant message and return their ids."""
        calls = _as_objects(item.get("tool_calls"))
        if not calls:
            if _is_empty_content(item.get("content")) and not (item.get("function_call") or item.get("refusal")):
                raise ProviderRuleError("a message of the assistant has neither content nor calls")
            return ()
        ids = [str(call.get("id") or "") for call in calls]
        for call, call_id in zip(calls, ids, strict=True):
            self._check_call(call, call_id)
        if len(set(ids)) < len(ids):
            raise ProviderRuleError(f"two calls of a message have the same id: {', '.join(map(repr, ids))}")
        return tuple(ids)

    def _check_call(self, call: Mapping[str, Any], call_id: str) -> None:
        function = _as_object(call.get("function"))
        name = function.get("name")
        if not call_id:
            raise ProviderRuleError(f"a call of {name!r} has no id")
        if self._dialect.nine_letter_ids and not _is_nine_letter_id(call_id):
            raise ProviderRuleError(f"the id of a call is {call_id!r}; it has to be nine letters and digits")
        if not isinstance(name, str) or not name:
            raise ProviderRuleError(f"the call {call_id!r} names no tool")
        if not isinstance(function.get("arguments"), str):
            raise ProviderRuleError(f"the arguments of the call {call_id!r} are not text; give JSON as text")


@cache
def get_message_rules(dialect_name: str) -> ChatMessageRules:
    """Return the rules about the order of messages for this provider dialect."""
    return ChatMessageRules(get_dialect(dialect_name))


def _check_result(state: ChatRulesState, item: Item) -> ChatRulesState:
    call_id = item.get("tool_call_id")
    if call_id not in state.open:
        waiting = ", ".join(map(repr, state.open)) or "none"
        raise ProviderRuleError(
            f"a result is for the call {call_id!r}, which the message before has not; waiting: {waiting}"
        )
    if item.get("content") is None:
        raise ProviderRuleError(f"the result of the call {call_id!r} has no content")
    if len(state.open) == 1:
        return _AFTER_RESULTS
    return ChatRulesState(tuple([each for each in state.open if each != call_id]), "tool")


# -- a whole body ------------------------------------------------------------------------------------------------------


def lint(body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
    """Return a sentence for each rule of the provider that a request body breaks."""
    return [
        *_lint_messages(body, profile),
        *_lint_reasoning(body, profile),
        *_lint_tools(body),
        *_lint_tool_choice(body),
        *_lint_response_format(body),
        *_lint_settings(body, profile),
    ]


def _lint_messages(body: Mapping[str, Any], profile: Profile) -> Iterator[str]:
    messages = _as_objects(body.get("messages"))
    if not messages:
        yield "there are no messages"
    rules = get_message_rules(profile.dialect)
    state = rules.begin()
    try:
        for item in messages:
            state = rules.step(state, item)
        rules.end(state)
    except ProviderRuleError as broken:
        yield str(broken)
    kinds = {str(item.get("type")) for each in messages for item in _as_objects(each.get("content"))}
    for kind in sorted(kinds & _CAPABILITY_BY_ITEM_TYPE.keys()):
        if not getattr(profile, _CAPABILITY_BY_ITEM_TYPE[kind]):
            yield f"there is an item {kind!r}, and {profile.model!r} takes no {_CAPABILITY_BY_ITEM_TYPE[kind]}"


def _lint_reasoning(body: Mapping[str, Any], profile: Profile) -> Iterator[str]:
    is_off = _as_object(body.get("thinking")).get("type") == "disabled"
    if is_off or not is_reasoning_needed(profile, get_dialect(profile.dialect)):
        return
    for place, item in enumerate(_as_objects(body.get("messages"))):
        if item.get("tool_calls") and not any(item.get(field) for field in _REASONING_FIELDS):
            yield f"messages[{place}] has calls and no {REASONING_CONTENT!r}, which {profile.model!r} needs"


def _lint_tools(body: Mapping[str, Any]) -> Iterator[str]:
    tools = [tool for tool in _as_objects(body.get("tools")) if tool.get("type") == "function"]
    functions = [_as_object(tool.get("function")) for tool in tools]
    names = [function.get("name") for function in functions]
    if len(names) > MAX_TOOLS:
        yield f"there are {len(names)} tools; {MAX_TOOLS} are allowed"
    for name in names:
        if not isinstance(name, str) or not _is_tool_name(name):
            yield f"a tool is named {name!r}; use up to 64 letters, digits, '_' and '-'"
    for name in sorted({str(name) for name in names if names.count(name) > 1}):
        yield f"two tools are named {name!r}"
    for function in functions:
        schema = _as_object(function.get("parameters"))
        if schema and schema.get("type") not in ("object", None):
            yield f"the parameters of {function.get('name')!r} are {schema.get('type')!r}; they have to be an object"


def _lint_tool_choice(body: Mapping[str, Any]) -> Iterator[str]:
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not body.get("tools"):
        yield f"tool_choice is {choice!r}, and there are no tools"
    if isinstance(choice, str):
        if choice not in ("auto", "none", "required", "any"):
            yield f"tool_choice is {choice!r}; use 'auto', 'none', 'required', or an object that names a tool"
        return
    chosen = _as_object(choice)
    name = _as_object(chosen.get("function")).get("name", chosen.get("name"))
    names = [_as_object(tool.get("function")).get("name") for tool in _as_objects(body.get("tools"))]
    if name is not None and name not in names:
        yield f"tool_choice names {name!r}, which is not a tool of this request"


def _lint_response_format(body: Mapping[str, Any]) -> Iterator[str]:
    given = body.get("response_format")
    if given is None:
        return
    wanted = _as_object(given)
    if wanted.get("type") not in ("text", "json_object", "json_schema"):
        yield f"response_format has the type {wanted.get('type')!r}; use 'text', 'json_object' or 'json_schema'"
    if wanted.get("type") == "json_schema":
        schema = _as_object(wanted.get("json_schema"))
        name = schema.get("name")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            yield f"response_format names its schema {name!r}; use up to 64 letters, digits, '_' and '-'"
        if not _as_object(schema.get("schema")):
            yield "response_format has no schema"


def _lint_settings(body: Mapping[str, Any], profile: Profile) -> Iterator[str]:
    if not body.get("model") and get_dialect(profile.dialect).model_in_body:
        yield "no model is named"
    if body.get("stream_options") is not None and not body.get("stream"):
        yield "stream_options is only allowed together with stream"
    dialect = get_dialect(profile.dialect)
    features = get_openai_model_features(profile.model)
    effort = body.get("reasoning_effort") or ("high" if features.thinks_unasked else "none")
    if body.get("tools") and not can_think_with_tools(profile, dialect) and effort != "none":
        yield f"{profile.model!r} takes functions with reasoning_effort 'none' only; it thinks in Responses"
    if dialect.has_openai_limits and features.sampling == "never":
        for name in ("temperature", "top_p"):
            if body.get(name) not in (None, 1):
                yield f"{name} is {body[name]!r}, and {profile.model!r} takes none"
    if {"max_tokens", "max_completion_tokens"} <= body.keys():
        yield "max_tokens and max_completion_tokens exclude each other"


def _is_empty_content(content: Any) -> bool:
    return content is None or content in ("", [])


def _as_object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _as_objects(value: Any) -> list[Mapping[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, (list, tuple)) else []
    return [each for each in items if isinstance(each, Mapping)]
