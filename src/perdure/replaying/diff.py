"""Where a replay leaves the record: what was recorded, what happens now, and the difference in words.

Above: `replay.py`. Below: `core`. Pure: events in, text out.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from perdure.core.codec import encode_event
from perdure.core.event import (
    Compacted,
    CompactionStarted,
    Event,
    GuardrailTripped,
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
from perdure.core.message import Message, Text, Thinking, ToolCall, ToolResult, flatten
from perdure.core.model import Request
from perdure.transfer import Prefix

About: TypeAlias = Literal["request", "message", "view", "call", "permission", "reply", "ending"]
"""What differs: what a model is asked; what it is told beside; how much of the conversation it is sent; a call or its
result; who allows it; what a model has said; how a run ends."""

NOTHING = "(nothing)"
"""Stands for an end: of the record, or of what happens now."""


class Divergence(Struct, frozen=True):
    """The first place where what happens now is not what was recorded."""

    seq: int
    """The entry of the recorded log; the one after its last when the record was over."""
    about: About
    what: str
    """The difference in a sentence."""
    recorded: str
    """What the log has, in words."""
    now: str
    """What happens today, in words."""

    @property
    def diff(self) -> str:
        """Both, line by line: `-` was recorded, `+` happens now."""
        import difflib

        lines = difflib.unified_diff(self.recorded.splitlines(), self.now.splitlines(), "recorded", "now", lineterm="")
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"entry {self.seq}: {self.what}\n{self.diff}"


def about(event: Event) -> About:
    """What an event is about."""
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


def told(event: Event | None, arguments: Mapping[str, str]) -> str:
    """An event in words, a line for each thing that can differ. `arguments` are those of the calls, by id."""
    return NOTHING if event is None else "\n".join(_lines(event, arguments))


def _lines(event: Event, arguments: Mapping[str, str]) -> Iterator[str]:
    match event:
        case ModelRequested():
            again = f", attempt {event.attempt}" if event.attempt > 1 else ""
            yield f"request of turn {event.turn}{again}, of {event.messages} messages"
        case MessageAdded(message=message):
            yield from message_lines(message)
        case ToolStarted(name=name, call_id=call_id):
            yield f"call {name} {arguments.get(call_id, '')}".rstrip()
        case ToolFinished(result=result):
            yield from result_lines(result)
        case PermissionDecided():
            verdict = "allowed" if event.allow else "denied"
            yield f"call of {event.tool} on {event.target}: {verdict}"
            yield from _indented(event.reason)
        case RunEnded():
            yield f"the run ends: {event.status}{_in_brackets(event.reason)}"
            yield from _indented(event.error)
        case ReplyDiscarded():
            yield f"the reply is discarded: {event.reason}"
        case GuardrailTripped():
            yield f"the guardrail {event.guardrail} trips: {event.action}"
        case ToolsChanged():
            yield f"tools are added: {', '.join(event.added)}"
        case _:
            yield from _view_lines(event)


def _view_lines(event: Event) -> Iterator[str]:
    """How much of the conversation the model is sent from here on."""
    match event:
        case CompactionStarted():
            yield f"the conversation is summed up{_in_brackets(event.cause)}"
        case Compacted():
            yield f"a summary stands for the first {event.upto} messages:"
            yield from _indented(event.summary.text)
        case ViewChanged(upto=upto) if upto:
            yield f"results in the first {upto} messages are sent in their short form"
        case _:
            yield encode_event(event).decode()


def difference(then: Event | None, now: Event) -> tuple[About, str]:
    """What differs, and the difference in a sentence."""
    for kind, lost in _LOST.items():
        if isinstance(then, kind) and not isinstance(now, kind):
            return about(then), lost
    if isinstance(then, PermissionDecided):
        return "permission", f"the call of {then.tool!r} is not denied any more"
    if isinstance(now, PermissionDecided):
        return "permission", f"the call of {now.tool!r} is denied now"
    if isinstance(now, ToolStarted | ToolFinished):
        return "call", f"the call of {now.name!r} {_HOW.get((type(then), type(now)), 'was another one')}"
    if isinstance(now, ModelRequested) and (then is None or isinstance(then, RunEnded)):
        return "request", "the model is asked once more than recorded"
    if isinstance(now, RunEnded):
        return "ending", "the run ends otherwise" if isinstance(then, RunEnded) else "the run ends here now"
    if isinstance(then, MessageAdded) and isinstance(now, MessageAdded):
        return about(now), "another message is added to the conversation"
    return about(now), "something else happens"


_LOST: Mapping[type[Event], str] = {
    CompactionStarted: "the conversation is not summed up here any more",
    Compacted: "the conversation is not summed up here any more",
    ViewChanged: "older results are not sent in their short form any more",
    ToolsChanged: "tools that were added are not added any more",
}
"""What is missing now, by what was recorded."""

_HOW: Mapping[tuple[type, type], str] = {
    (ToolStarted, ToolFinished): "is not made any more",
    (ToolFinished, ToolStarted): "is made now",
    (ToolFinished, ToolFinished): "ends otherwise",
}
"""How a call differs, by what was recorded and what happens now."""


def prefix_lines(prefix: Prefix) -> Iterator[str]:
    """Instructions and tools, as they are told to a model."""
    yield "instructions:"
    yield from _indented(prefix.instructions)
    for tool in prefix.tools:
        yield f"tool {tool.name}:"
        yield from _indented(tool.description)
        yield from _indented(msgspec.json.format(msgspec.json.encode(tool.parameters, order="sorted")).decode())


def prefix_of(request: Request) -> Prefix:
    """What a request tells before the conversation."""
    return Prefix(request.instructions, tuple(request.tools))


def conversation_lines(messages: Sequence[Message]) -> Iterator[str]:
    """Messages, one after the other."""
    for message in messages:
        yield from message_lines(message)


def message_lines(message: Message) -> Iterator[str]:
    """A message, part by part."""
    if message.role != "tool":
        yield f"{message.role}{_in_brackets(message.origin)}:"
    for part in message.parts:
        match part:
            case Text(text=text):
                yield from _indented(text)
            case Thinking(text=text):
                yield from _indented(f"[thinking] {text}")
            case ToolCall(name=name, arguments=arguments):
                yield f"  call {name} {arguments}"
            case ToolResult():
                yield from result_lines(part)
            case _:
                yield from _indented(flatten((part,)))


def result_lines(result: ToolResult) -> Iterator[str]:
    """What became of a call."""
    yield f"result of {result.name}: {result.status}"
    yield from _indented(result.text)


def as_json(value: Any) -> str:
    """A value on one line, its keys in order."""
    return msgspec.json.encode(value, order="sorted").decode()


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""
