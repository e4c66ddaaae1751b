"""Import of a conversation from a host program: check its messages, and build the events that store it in a log.

A transcript is what `outcome.messages` has: each reply with tool calls is followed by the results of all its calls. The
results may be in one message, or in one for each, as other systems write them.
"""

from collections.abc import Iterator, Sequence
from typing import NoReturn, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from perdure._core.log.fold import State
from perdure._core.model.protocol import sanitize_reply
from perdure._core.model.size_limit import check_content_size
from perdure._core.values.error import ConfigError
from perdure._core.values.event import MessageAdded, ToolFinished
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import convert, short_repr, to_jsonable
from perdure._core.values.message import (
    RESULT_TYPES,
    Message,
    Part,
    ResultPart,
    Status,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    sanitize_part,
)
from perdure._runtime.agent.overrides import to_user_message

SYSTEM_ORIGIN = "system"
"""Origin of a system message, which is stored as a user's words: instructions are not part of the messages."""

_Exchange: TypeAlias = tuple[Message, tuple[ToolResult, ...]]
"""A message, and the results of its tool calls."""


def split_prompt_from_transcript(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Split a conversation into its history and the prompt: the user's messages at its end.

    The prompt is empty if the conversation ends with the results of tool calls, which the model then answers. Raises
    `ConfigError` if it ends with words of the assistant, or is not valid.
    """
    check_transcript(messages)
    if messages[-1].role == "assistant":
        message = "the conversation ends with the assistant's words: add a user's message for it to answer"
        raise ConfigError(message)
    if messages[-1].role != "user":
        return tuple(messages), ()
    return tuple(messages[:-1]), (to_user_message(messages[-1]),)


def check_transcript(messages: object) -> None:
    """Raise `ConfigError` unless this is a list of messages in which every tool call has exactly one result."""
    if isinstance(messages, str) or not isinstance(messages, Sequence) or not messages:
        message = f"{short_repr(messages)} is no conversation: give a list of messages, such as [user(…), assistant(…)]"
        raise ConfigError(message)
    for _ in _group_messages(cast("Sequence[Message]", messages)):
        pass


def build_transcript_events(messages: Sequence[Message], state: State) -> list[Event]:
    """Build the events that add a conversation to a session's log.

    Call ids that the session has used before are replaced, in the calls and in their results.
    """
    used, events = set(state.call_ids), list[Event]()
    for message, results in _group_messages(messages):
        if message.role != "assistant":
            events.append(MessageAdded(message))
            continue
        reply = sanitize_reply(message, used)
        events.append(MessageAdded(reply))
        for call, result in zip(reply.tool_calls, results, strict=True):
            used.add(call.call_id)
            given = replace(result, call_id=call.call_id, name=call.name)
            events.append(ToolFinished(call.call_id, call.name, given))
    return events


def _group_messages(messages: Sequence[Message]) -> Iterator[_Exchange]:
    """Yield each message of a transcript, validated, with the results of its calls in the order of the calls."""
    place = 0
    while place < len(messages):
        message, first = _validate_message(place, messages[place]), place
        place += 1
        results: list[ToolResult] = []
        while place < len(messages) and getattr(messages[place], "role", "") == "tool":
            results += _validate_results(place, messages[place])
            place += 1
        for parts in (message.parts, *[(result,) for result in results]):
            check_content_size(parts, f"message {first}")
        yield message, _sort_results(first, message.tool_calls, results)


def _validate_message(place: int, message: object) -> Message:
    """Return a message of a user or an assistant in the form that is stored. Raises `ConfigError`."""
    if not isinstance(message, Message):
        _fail(place, f"is {short_repr(message)}: give messages, such as user(…) or assistant(…)")
    if message.role == "tool":
        _fail(place, "has results of no calls: put them after the reply that made the calls")
    if message.role == "assistant":
        return _validate_reply(place, message)
    try:
        origin = SYSTEM_ORIGIN if message.role == "system" else ""
        return to_user_message(replace(message, role="user", origin=message.origin or origin))
    except ConfigError as error:
        _fail(place, f"cannot be stored: {error}")


def _validate_reply(place: int, message: Message) -> Message:
    """Return an assistant's message in the form that is stored, without its usage, which this session has not spent."""
    parts = message.parts
    if not parts or not all(isinstance(part, (*RESULT_TYPES, Thinking, ToolCall)) for part in parts):
        _fail(place, "has to consist of text, thinking, media and tool calls, at least one of them")
    try:
        plain = replace(message, metadata=to_jsonable(message.metadata), usage=None)
        return convert(msgspec.to_builtins(plain), Message)
    except (msgspec.ValidationError, TypeError, UnicodeError) as error:
        _fail(place, f"cannot be stored: {error}")


def _validate_results(place: int, message: object) -> list[ToolResult]:
    parts: Sequence[Part] = message.parts if isinstance(message, Message) else ()
    results = [_validate_result(place, part) for part in parts if isinstance(part, ToolResult)]
    if not results or len(results) < len(parts):
        _fail(place, "has to consist of results of tools: make it with tool_message([ToolResult(…)])")
    return results


def _validate_result(place: int, result: ToolResult) -> ToolResult:
    content: list[ResultPart] = []
    for part in result.content:
        sanitized = sanitize_part(part) if isinstance(part, RESULT_TYPES) else None
        if sanitized is None:
            _fail(place, f"has a result with {short_repr(part)}: give parts such as Text(…)")
        content.append(sanitized)
    try:
        status, render = Status(result.status), to_jsonable(result.render)
        return replace(result, content=tuple(content), status=status, render=render, terminate=False)
    except ValueError:
        _fail(place, f"has a result with the status {result.status!r}: use one of {', '.join(Status)}")


def _sort_results(place: int, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> tuple[ToolResult, ...]:
    """Return the results in the order of the calls. Raises `ConfigError` unless each call has exactly one."""
    by_call = {result.call_id: result for result in results}
    called = [call.call_id for call in calls]
    if len(set(called)) < len(called):
        _fail(place, f"has two calls with one id ({', '.join(map(repr, called))}): give each its own")
    if missing := [call_id for call_id in called if call_id not in by_call]:
        names = ", ".join(map(repr, missing))
        _fail(place, f"has calls without results ({names}): add tool_message([ToolResult(call_id, name, …)]) after it")
    if len(results) > len(called):
        _fail(place, f"has {len(called)} calls, and {len(results)} results follow it: give one result for each call")
    return tuple([by_call[call_id] for call_id in called])


def to_assistant_message(message: Message, origin: str) -> Message:
    """Validate an assistant's message from a host program, and convert it to the form that the log stores.

    Raises `ConfigError` for anything but words, such as tool calls.
    """
    if not message.text.strip() or not all(isinstance(part, Text) for part in message.parts):
        advice = "an assistant's message can be sent if it is text; session.import_messages takes calls and results"
        raise ConfigError(advice)
    return sanitize_reply(replace(_validate_reply(0, message), origin=message.origin or origin, stop=None))


def _fail(place: int, problem: str) -> NoReturn:
    raise ConfigError(f"message {place} of the conversation {problem}")
