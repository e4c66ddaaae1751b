"""Answers of this wire, made by hand, and what a decoder makes of them."""

import json
from typing import Any

import msgspec

from perdure import Message
from perdure._models.wires.openai_chat import WIRE
from perdure.events import ModelEvent, ReplyFinished
from perdure.models import EncodingMemo, Profile, Request, assemble_reply

PROFILE = Profile(provider="openai", model="gpt-4.1", dialect="openai", documents=True, audio=True)


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **more}


def stream(*chunks: dict[str, Any] | str, done: bool = True) -> bytes:
    """A whole stream; a text stands for lines that are no chunk."""
    events = [each if isinstance(each, str) else f"data: {json.dumps(each)}" for each in chunks]
    return "".join([f"{event}\n\n" for event in [*events, *(["data: [DONE]"] if done else [])]]).encode()


def whole(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> bytes:
    """An answer that is not streamed."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return json.dumps({"object": "chat.completion", "choices": [choice], **more}).encode()


def heard(data: bytes, profile: Profile = PROFILE, size: int = 0) -> list[ModelEvent]:
    """The events of an answer, fed at once or in pieces of this size."""
    decoder = WIRE.decoder(profile, "text/event-stream")
    pieces = [data[place : place + size] for place in range(0, len(data), size)] if size else [data]
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return [*events, *decoder.end()]


def message_of(data: bytes, profile: Profile = PROFILE) -> Message:
    """The message of an answer; the same in whatever pieces it came."""
    messages: list[Message] = []
    for size in (0, 1, 7):
        events = heard(data, profile, size)
        assert isinstance(events[-1], ReplyFinished)
        messages.append(assemble_reply(events[:-1], events[-1]))
    assert messages[0] == messages[1] == messages[2]
    return messages[0]


def body_of(request: Request, profile: Profile = PROFILE) -> dict[str, Any]:
    """What is sent for a request, which is nothing that would be refused."""
    body: dict[str, Any] = msgspec.json.decode(WIRE.encode(request, profile, EncodingMemo()).body)
    assert WIRE.lint(body, profile) == []
    return body
