"""Describe as text how an event in a replay differs from the recorded event."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from perdure._core.log.codec import encode_event
from perdure._core.model.protocol import Request
from perdure._core.values.engine_event import GuardrailTripped
from perdure._core.values.event import (
    Compacted,
    CompactionStarted,
    MessageAdded,
    ModelRequested,
    PermissionDecided,
    ReplyDiscarded,
    RunEnded,
    ToolFinished,
    ToolsChanged,
    ToolStarted,
    ViewChanged,
)
from perdure._core.values.event_class import Event
from perdure._core.values.message import Message, Text, Thinking, ToolCall, ToolResult, parts_to_text
from perdure._runtime.transfer import PromptPrefix

DifferenceKind: TypeAlias = Literal["request", "message", "view", "call", "permission", "reply", "ending"]
"""Kind of a difference: the model request, an added message, how much of the conversation is sent, a call or its
result, a permission, the model's reply, the end of the run.
"""

NOTHING = "(nothing)"
"""Text for a missing event, at the end of the log or of the replay."""


class Divergence(Struct, frozen=True):
    """The first difference between a replay and the recorded log: where it is, and both sides as text."""

    seq: int
    """Entry number in the log; one past the last when the log had ended."""
    about: DifferenceKind
    what: str
    """The difference in one sentence."""
    recorded: str
    """The recorded event, as text."""
    now: str
    """The current event, as text."""

    @property
    def diff(self) -> str:
        """Unified diff: `-` was recorded, `+` happens now."""
        import difflib

        lines = difflib.unified_diff(self.recorded.splitlines(), self.now.splitlines(), "recorded", "now", lineterm="")
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"entry {self.seq}: {self.what}\n{self.diff}"


def get_difference_kind(event: Event) -> DifferenceKind:
    """Return which kind of difference a replay reports if this event deviates, such as `request` or `call`."""
    match event:
        case ModelRequested() | ToolsChanged():
            return "request"
        case ToolStarted() | ToolFinished():
            return "call"
        case PermissionDecided():
            return "permission"
        case ReplyDiscarded():
            return "reply"
        case RunEnded():
            return "ending"
        case CompactionStarted() | Compacted() | ViewChanged():
            return "view"
        case MessageAdded(message=Message(role="assistant")):
            return "reply"
        case _:
            return "message"


def describe_event(event: Event | None, arguments: Mapping[str, str]) -> str:
    """Return a log event as text for a comparison, one line for each property that can differ in a replay.

    `arguments` are those of the tool calls, by call id.
    """
    return NOTHING if event is None else "\n".join(_lines(event, arguments))


def _lines(event: Event, arguments: Mapping[str, str]) -> Iterator[str]:
    match event:
        case ModelRequested():
            again = f", attempt {event.attempt}" if event.attempt > 1 else ""
            yield f"request of turn {event.turn}{again}, of {event.messages} messages"
        case MessageAdded(message=message):
            yield from format_message_lines(message)
        case ToolStarted(name=name, call_id=call_id):
            yield f"call {name} {arguments.get(call_id, '')}".rstrip()
        case ToolFinished(result=result):
            yield from format_result_lines(result)
        case PermissionDecided():
            verdict = "allowed" if event.allow else "denied"
            yield f"call of {event.tool} on {event.target}: {verdict}"
            yield from _indent(event.reason)
        case RunEnded():
            yield f"the run ends: {event.status}{_parenthesise(event.reason)}"
            yield from _indent(event.error)
        case ReplyDiscarded():
            yield f"the reply is discarded: {event.reason}"
        case GuardrailTripped():
            yield f"the guardrail {event.guardrail} trips: {event.action}"
        case ToolsChanged():
            yield f"tools are added: {', '.join(event.added)}"
        case _:
            yield from _view_lines(event)


def _view_lines(event: Event) -> Iterator[str]:
    """Yield lines about which part of the conversation the model is sent."""
    match event:
        case CompactionStarted():
            yield f"the conversation is summed up{_parenthesise(event.cause)}"
        case Compacted():
            yield f"a summary stands for the first {event.upto} messages:"
            yield from _indent(event.summary.text)
        case ViewChanged(upto=upto) if upto:
            yield f"results in the first {upto} messages are sent in their short form"
        case _:
            yield encode_event(event).decode()


def describe_difference(then: Event | None, now: Event) -> tuple[DifferenceKind, str]:
    """Return the kind of the difference between a recorded event and the current one, and a sentence about it."""
    for kind, lost in _MISSING_NOW.items():
        if isinstance(then, kind) and not isinstance(now, kind):
            return get_difference_kind(then), lost
    if isinstance(then, PermissionDecided):
        return "permission", f"the call of {then.tool!r} is not denied any more"
    if isinstance(now, PermissionDecided):
        return "permission", f"the call of {now.tool!r} is denied now"
    if isinstance(now, ToolStarted | ToolFinished):
        return "call", f"the call of {now.name!r} {_CALL_DIFFERENCES.get((type(then), type(now)), 'was another one')}"
    if isinstance(now, ModelRequested) and (then is None or isinstance(then, RunEnded)):
        return "request", "the model is asked once more than recorded"
    if isinstance(now, RunEnded):
        return "ending", "the run ends otherwise" if isinstance(then, RunEnded) else "the run ends here now"
    if isinstance(then, MessageAdded) and isinstance(now, MessageAdded):
        return get_difference_kind(now), "another message is added to the conversation"
    return get_difference_kind(now), "something else happens"


_MISSING_NOW: Mapping[type[Event], str] = {
    CompactionStarted: "the conversation is not summed up here any more",
    Compacted: "the conversation is not summed up here any more",
    ViewChanged: "older results are not sent in their short form any more",
    ToolsChanged: "tools that were added are not added any more",
}
"""Sentences for events that were recorded and are missing now."""

_CALL_DIFFERENCES: Mapping[tuple[type, type], str] = {
    (ToolStarted, ToolFinished): "is not made any more",
    (ToolFinished, ToolStarted): "is made now",
    (ToolFinished, ToolFinished): "ends otherwise",
}
"""Sentences about a call that differs, by the types of the recorded and the current event."""


def format_instructions_and_tools(prefix: PromptPrefix) -> Iterator[str]:
    """Yield the instructions and tools of a model request as lines of text, for a diff."""
    yield "instructions:"
    yield from _indent(prefix.instructions)
    for tool in prefix.tools:
        yield f"tool {tool.name}:"
        yield from _indent(tool.description)
        yield from _indent(msgspec.json.format(msgspec.json.encode(tool.parameters, order="sorted")).decode())


def get_prompt_prefix(request: Request) -> PromptPrefix:
    """Return the instructions and tools of a model request: the part that providers cache."""
    return PromptPrefix(request.instructions, tuple(request.tools))


def format_conversation_lines(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the messages of a conversation as lines of text, for a diff."""
    for message in messages:
        yield from format_message_lines(message)


def format_message_lines(message: Message) -> Iterator[str]:
    """Yield a message as lines of text, part by part, for a diff."""
    if message.role != "tool":
        yield f"{message.role}{_parenthesise(message.origin)}:"
    for part in message.parts:
        match part:
            case Text(text=text):
                yield from _indent(text)
            case Thinking(text=text):
                yield from _indent(f"[thinking] {text}")
            case ToolCall(name=name, arguments=arguments):
                yield f"  call {name} {arguments}"
            case ToolResult():
                yield from format_result_lines(part)
            case _:
                yield from _indent(parts_to_text((part,)))


def format_result_lines(result: ToolResult) -> Iterator[str]:
    """Yield a tool result as lines of text, for a diff."""
    yield f"result of {result.name}: {result.status}"
    yield from _indent(result.text)


def to_sorted_json(value: Any) -> str:
    """Return a value as JSON on one line, with sorted keys."""
    return msgspec.json.encode(value, order="sorted").decode()


def _indent(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]


def _parenthesise(text: str) -> str:
    return f" ({text})" if text else ""
