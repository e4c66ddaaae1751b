"""What the tests of the Responses wire say to it: bodies that we send, streams that it gets."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perdure import Message, Settings
from perdure._models.wires.openai_responses import WIRE
from perdure.events import ModelEvent, ReplyFinished
from perdure.models import EncodingMemo, Profile, Request, ToolSpec, assemble_reply

GOLDEN = Path(__file__).parent / "golden"
PROFILE = Profile(provider="openai", model="gpt-9", documents=True)
WEATHER = ToolSpec(
    "weather",
    "The weather of a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def body(
    messages: Sequence[Message], profile: Profile = PROFILE, memo: EncodingMemo | None = None, **fields: Any
) -> Any:
    """What is sent for a conversation. Settings are given by their names."""
    settings = {name: fields.pop(name) for name in [*fields] if name in Settings.__struct_fields__}
    request = Request(messages=messages, settings=Settings(**settings), **fields)
    return msgspec.json.decode(WIRE.encode(request, profile, memo or EncodingMemo()).body)


def items(messages: Sequence[Message], profile: Profile = PROFILE, **fields: Any) -> Any:
    """The items that are sent for a conversation."""
    return body(messages, profile, **fields)["input"]


def stream(*events: Any) -> bytes:
    """A stream of these events; a text is an event as it is."""
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return "".join([f"data: {text}\n\n" for text in texts]).encode()


def event(kind: str, index: int | None = 0, **fields: Any) -> dict[str, Any]:
    """An event of the item at this place; at none of them for `None`."""
    place = {} if index is None else {"output_index": index}
    return {"type": f"response.{kind}", **place, **fields}


def completed(*output: Any, status: str = "completed", **fields: Any) -> dict[str, Any]:
    """The last event of a stream."""
    return {"type": f"response.{status}", "response": {"status": status, "output": [*output], **fields}}


def heard(data: bytes | Iterable[bytes], profile: Profile = PROFILE) -> list[ModelEvent]:
    """What an answer says, to its end."""
    decoder = WIRE.decoder(profile, "")
    events: list[ModelEvent] = []
    for piece in [data] if isinstance(data, bytes) else data:
        events += decoder.feed(piece)
    return [*events, *decoder.end()]


def reply(data: bytes, profile: Profile = PROFILE) -> Message:
    """The message of an answer."""
    events = heard(data, profile)
    assert isinstance(events[-1], ReplyFinished)
    return assemble_reply(events[:-1], events[-1])
