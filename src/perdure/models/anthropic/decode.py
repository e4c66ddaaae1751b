"""An answer of this wire, as events. Pure. Above: the wire. Below: `net/sse.py`, `usage.py`, `refusal`.

A stream tells a message block by block: each begins, grows by deltas, and ends. What a model thinks, says and calls is
passed on as it comes; a block of any other kind is kept until it is whole and passed on as it is, so that it can go
back to its author. An answer that was not streamed tells the same blocks at once.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.error import ModelError, ReplyCutOff
from perdure.core.event import (
    ModelEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReported,
)
from perdure.core.message import StopReason
from perdure.core.plain import excerpt
from perdure.models.profile import Profile
from perdure.models.refusal import classified
from perdure.models.untrusted import mapping, mappings, parsed, text
from perdure.net.sse import SseReader

from .usage import Count

STOPS: Mapping[str, StopReason] = {
    "end_turn": StopReason.STOP,
    "stop_sequence": StopReason.STOP,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "pause_turn": StopReason.LENGTH,  # tools of the provider took too long; the turn is not over
    "refusal": StopReason.CONTENT_FILTER,
}

_DONE = b"[DONE]"


class _Delta(Struct, gc=False):
    """What a block grows by."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(Struct, gc=False):
    """An event of the stream: of every kind, since they have little in common and one shape is read fastest."""

    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    content_block: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None


_decode_event = msgspec.json.Decoder(_Event).decode
_encode = msgspec.json.Encoder().encode


class _Block:
    """A block that has begun and is more than words."""

    __slots__ = ("block", "is_call", "number", "pieces")

    def __init__(self, block: dict[str, Any], number: int) -> None:
        self.block = block
        self.number = number
        """Which block of the reply it is."""
        self.is_call = block.get("type") == "tool_use"
        self.pieces: list[str] = []
        """Of its input, which comes as text."""


class MessagesDecoder:
    """One answer."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._reader = SseReader()
        self._whole: list[bytes] | None = None
        """The pieces of an answer that is not streamed."""
        self._begun = False
        self._blocks: dict[int, _Block] = {}
        """Those that have begun and not ended, by their index."""
        self._number = -1
        """Of the last block that began."""
        self._count = Count()
        self._stop: str | None = None
        self._is_over = False

    @property
    def done(self) -> bool:
        """Whether the last word has been said."""
        return self._is_over

    def feed(self, data: bytes) -> list[ModelEvent]:
        """More bytes: what they say."""
        if not self._begun:
            self._begin_answer(data)
        if self._whole is not None:
            self._whole.append(data)
            return []
        events: list[ModelEvent] = []
        for name, told in self._reader.feed(data):
            self._take(name, told, events)
        return events

    def end(self) -> list[ModelEvent]:
        """The bytes are over: what is left to say, a `ReplyFinished` last."""
        events: list[ModelEvent] = []
        if self._whole is not None:
            self._take_whole(b"".join(self._whole), events)
        else:
            for name, told in self._reader.rest():
                if _is_json(told):  # else it was torn
                    self._take(name, told, events)
        if not self._is_over:
            raise ReplyCutOff(
                f"the answer of {self._profile.provider} ended before the model had finished; asking again may help"
            )
        for index in list(self._blocks):
            self._end_block(index, events)
        profile = self._profile
        stop = STOPS.get(self._stop or "")
        usage = self._count.usage
        events.append(ReplyFinished(stop=stop, usage=usage, model=profile.model, provider=profile.provider))
        return events

    def _begin_answer(self, data: bytes) -> None:
        """The first byte tells a stream from a whole answer; labels are not to be trusted."""
        start = data.lstrip()
        if start:
            self._begun = True
            self._whole = [] if start.startswith((b"{", b"[")) else None

    # -- events --------------------------------------------------------------------------------------------------------

    def _take(self, name: str, told: bytes, events: list[ModelEvent]) -> None:
        try:
            event = _decode_event(told)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if told == _DONE:
                return
            event = self._read_leniently(told)
        kind = event.type or name
        if kind == "content_block_delta":
            if event.delta is not None:
                self._grow(event.index, event.delta, told, events)
        elif kind == "content_block_start":
            self._begin_block(event.index, event.content_block or {}, events)
        elif kind == "content_block_stop":
            self._end_block(event.index, events)
        elif kind == "message_start":
            self._begin_message(event.message or {}, events)
        elif kind == "message_delta":
            self._take_message_delta(event, events)
        elif kind == "message_stop":
            self._is_over = True
        elif kind == "error":
            raise self._error(told)

    def _read_leniently(self, told: bytes) -> _Event:
        """An event with something in it that should not be there, without it."""
        try:
            raw: Any = parsed(told)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            shown = excerpt(told.decode("utf-8", "replace"), 200)
            raise ReplyCutOff(f"{self._profile.provider} said {shown} in a stream; asking again may help") from None
        kept: dict[str, Any] = _fitting(raw, _Event)
        if isinstance(kept.get("delta"), dict):
            kept["delta"] = _fitting(kept["delta"], _Delta)
        return msgspec.convert(kept, _Event)

    def _error(self, told: bytes) -> ModelError:
        return classified(0, {}, told, self._profile.provider)

    def _begin_message(self, message: dict[str, Any], events: list[ModelEvent]) -> None:
        self._count.add(message.get("usage"), last=False)
        self._report(events)
        self._take_content(message.get("content"), events)

    def _take_message_delta(self, event: _Event, events: list[ModelEvent]) -> None:
        self._count.add(event.usage, last=True)
        if event.delta is not None and event.delta.stop_reason:
            self._stop = event.delta.stop_reason
            self._is_over = True
        self._report(events)

    def _report(self, events: list[ModelEvent]) -> None:
        usage = self._count.usage
        if usage is not None:
            events.append(UsageReported(usage=usage))

    # -- blocks --------------------------------------------------------------------------------------------------------

    def _begin_block(self, index: int, block: dict[str, Any], events: list[ModelEvent]) -> None:
        """Also tells what a block holds from its beginning on: all of it, in an answer that is whole."""
        self._end_block(index, events)  # one that was never ended
        self._number += 1
        number = self._number
        match block.get("type"):
            case "text":
                if words := text(block.get("text")):
                    events.append(TextDelta(text=words))
            case "thinking":
                self._blocks[index] = _Block(block, number)
                thought, signature = text(block.get("thinking")), text(block.get("signature"))
                if thought or signature:
                    events.append(ThinkingDelta(text=thought, signature=signature, index=number))
            case "redacted_thinking":
                events.append(ThinkingDelta(data=text(block.get("data")), index=number))
            case "tool_use":
                self._blocks[index] = _Block(block, number)
                call_id, name = text(block.get("id")), text(block.get("name"))
                events.append(ToolCallDelta(call_id=call_id, name=name, index=number))
            case _:
                self._blocks[index] = _Block(block, number)

    def _grow(self, index: int, delta: _Delta, told: bytes, events: list[ModelEvent]) -> None:
        block = self._blocks.get(index)
        if block is None:
            if delta.text:
                events.append(TextDelta(text=delta.text))
        elif block.is_call:
            if delta.partial_json:
                block.pieces.append("")
                events.append(ToolCallDelta(arguments=delta.partial_json, index=block.number))
        elif block.block.get("type") == "thinking":
            if delta.thinking or delta.signature:
                thought = ThinkingDelta(text=delta.thinking, signature=delta.signature, index=block.number)
                events.append(thought)
        elif delta.type == "input_json_delta":
            block.pieces.append(delta.partial_json)
        else:
            _grow_unknown(block.block, mapping(parsed(told).get("delta")))

    def _end_block(self, index: int, events: list[ModelEvent]) -> None:
        block = self._blocks.pop(index, None)
        if block is None or block.block.get("type") == "thinking":
            return
        if block.is_call:
            if not block.pieces:  # nothing is told of a tool that takes nothing
                given = _encode(block.block.get("input") or {}).decode()
                events.append(ToolCallDelta(arguments=given, index=block.number))
            return
        if block.pieces:
            block.block["input"] = _input("".join(block.pieces))
        if block.block:
            events.append(ThinkingDelta(details=block.block, index=block.number))

    def _take_content(self, content: Any, events: list[ModelEvent]) -> None:
        """Blocks that are told at once."""
        for block in mappings(content):
            self._begin_block(-1, block, events)
            self._end_block(-1, events)

    # -- an answer that was not streamed -------------------------------------------------------------------------------

    def _take_whole(self, body: bytes, events: list[ModelEvent]) -> None:
        try:
            message: Any = parsed(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return  # it was torn
        told = mapping(message)
        if not isinstance(told.get("content"), list):
            raise self._error(body)
        self._count.add(told.get("usage"), last=True)
        self._take_content(told["content"], events)
        self._stop = text(told.get("stop_reason"))
        self._is_over = True


def _is_json(told: bytes) -> bool:
    try:
        parsed(told)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _fitting(raw: Any, shape: type[Struct]) -> dict[str, Any]:
    """The fields of a shape that hold what they should."""
    kept: dict[str, Any] = {}
    for field in msgspec.structs.fields(shape):
        value = mapping(raw).get(field.name)
        wanted = dict if field.name == "delta" else field.type
        try:
            kept[field.name] = msgspec.convert(value, wanted)
        except msgspec.ValidationError:
            continue
    return kept


def _grow_unknown(block: dict[str, Any], delta: dict[str, Any]) -> None:
    """Texts and lists grow, anything else is replaced."""
    for name, value in delta.items():
        before: Any = block.get(name)
        if name != "type":
            block[name] = before + value if type(before) is type(value) and type(value) in {str, list} else value


def _input(told: str) -> Any:
    """What a tool of the provider was given; text that is no JSON is kept as it is."""
    try:
        return parsed(told) if told else {}
    except msgspec.DecodeError:
        return {"_raw": told}
