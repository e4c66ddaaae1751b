"""An answer of this wire, as events. Pure. Above: the wire. Below: `eventstream.py`, `refusal`.

A stream tells a message block by block, of which words and thoughts need not begin. A block of a tool that the
provider runs is kept until it is whole and passed on as it is, so that it can go back to its author. An answer that
was not streamed tells the same blocks at once.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.error import ReplyCutOff
from perdure.core.event import ModelEvent, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta, UsageReported
from perdure.core.message import StopReason, Usage
from perdure.models.profile import Profile
from perdure.models.refusal import classified
from perdure.models.untrusted import count, mapping, mappings, parsed, text

from .eventstream import EventStreamReader, Frame

STOPS: Mapping[str, StopReason] = {
    "end_turn": StopReason.STOP,
    "stop_sequence": StopReason.STOP,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "guardrail_intervened": StopReason.CONTENT_FILTER,
    "content_filtered": StopReason.CONTENT_FILTER,
}


class _Delta(Struct, gc=False):
    text: str = ""


class _TextEvent(Struct, gc=False):
    """What nearly every event is."""

    delta: _Delta
    contentBlockIndex: int = 0  # noqa: N815 - the wire's name


_decode_text = msgspec.json.Decoder(_TextEvent).decode
_encode = msgspec.json.Encoder().encode


class _Block:
    """A call that has begun, or a block of a tool that the provider runs."""

    __slots__ = ("block", "is_call", "number", "pieces")

    def __init__(self, block: dict[str, Any], number: int) -> None:
        self.block = block
        self.number = number
        """Which block of the reply it is."""
        used = mapping(block.get("toolUse"))
        self.is_call = bool(used) and used.get("type", "tool_use") == "tool_use"  # else it is run by the provider
        self.pieces: list[str] = []
        """Of its input, which comes as text."""


class ConverseDecoder:
    """One answer."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._reader: EventStreamReader | None = None
        self._whole: list[bytes] | None = None
        """The pieces of an answer that is not streamed."""
        self._blocks: dict[int, _Block] = {}
        self._usage: Usage | None = None
        self._stop = ""
        self._is_over = False

    done = False
    """Nothing that is said is sure to be the last."""

    def feed(self, data: bytes) -> list[ModelEvent]:
        """More bytes: what they say."""
        if self._whole is not None:
            self._whole.append(data)
            return []
        if self._reader is None:  # the first byte tells: a stream begins with the length of its first message
            start = data.lstrip()
            if start.startswith(b"{"):
                self._whole = [data]
            if not start or self._whole is not None:
                return []
            self._reader = EventStreamReader()
        events: list[ModelEvent] = []
        for frame in self._reader.feed(data):
            self._take(frame, events)
        return events

    def end(self) -> list[ModelEvent]:
        """The bytes are over: what is left to say, a `ReplyFinished` last."""
        events: list[ModelEvent] = []
        if self._whole is not None:
            self._take_whole(b"".join(self._whole), events)
        if not self._is_over:
            raise ReplyCutOff(
                f"the answer of {self._profile.provider} ended before the model had finished; asking again may help"
            )
        for index in list(self._blocks):
            self._end_block(index, events)
        profile, stop = self._profile, STOPS.get(self._stop)
        events.append(ReplyFinished(stop=stop, usage=self._usage, model=profile.model, provider=profile.provider))
        return events

    # -- events --------------------------------------------------------------------------------------------------------

    def _take(self, frame: Frame, events: list[ModelEvent]) -> None:
        if frame.kind != "event":
            raise classified(0, {"x-amzn-errortype": frame.name}, frame.payload, self._profile.provider)
        if frame.name == "contentBlockDelta" and not self._blocks and b'"text"' in frame.payload:
            try:
                told = _decode_text(frame.payload)
            except msgspec.DecodeError:
                pass
            else:
                if told.delta.text:
                    events.append(TextDelta(text=told.delta.text))
                    return
        self._take_untyped(frame, events)

    def _take_untyped(self, frame: Frame, events: list[ModelEvent]) -> None:
        try:
            told = mapping(parsed(frame.payload or b"{}"))
        except msgspec.DecodeError:
            raise ReplyCutOff(f"{self._profile.provider} sent a {frame.name!r} that is no JSON") from None
        index = count(told.get("contentBlockIndex"))
        match frame.name:
            case "contentBlockDelta":
                self._grow(index, mapping(told.get("delta")), events)
            case "contentBlockStart":
                self._begin_block(index, mapping(told.get("start")), events)
            case "contentBlockStop":
                self._end_block(index, events)
            case "messageStop":
                self._stop = text(told.get("stopReason"))
                self._is_over = True
            case "metadata":
                self._count(told.get("usage"))
                if self._usage is not None:
                    events.append(UsageReported(usage=self._usage))
            case _:
                pass

    def _count(self, usage: Any) -> None:
        """What was read is told in three numbers, of which none includes another."""
        told = mapping(usage)
        read, written = count(told.get("cacheReadInputTokens")), count(told.get("cacheWriteInputTokens"))
        taken, output = count(told.get("inputTokens")) + read + written, count(told.get("outputTokens"))
        if taken or output:
            is_complete = taken and "outputTokens" in told
            self._usage = Usage(taken, output, read, written, precision="exact" if is_complete else "partial")

    # -- blocks --------------------------------------------------------------------------------------------------------

    def _begin_block(self, index: int, start: dict[str, Any], events: list[ModelEvent]) -> None:
        if not start:
            return
        self._end_block(index, events)  # one that was never ended
        block = self._blocks[index] = _Block(start, index)
        if block.is_call:
            used = mapping(start["toolUse"])
            call_id, name = text(used.get("toolUseId")), text(used.get("name"))
            events.append(ToolCallDelta(call_id=call_id, name=name, index=index))

    def _grow(self, index: int, delta: dict[str, Any], events: list[ModelEvent]) -> None:
        if "reasoningContent" in delta:
            _think(mapping(delta["reasoningContent"]), index, events)
        elif said := text(delta.get("text")):
            events.append(TextDelta(text=said))
        block = self._blocks.get(index)
        if block is None:
            return
        piece = text(mapping(delta.get("toolUse")).get("input"))
        if piece:
            block.pieces.append(piece)
            if block.is_call:
                events.append(ToolCallDelta(arguments=piece, index=index))
        if "toolResult" in delta and "toolResult" in block.block:
            result = block.block["toolResult"]
            result["content"] = [*result.get("content", []), *mappings(delta["toolResult"])]

    def _end_block(self, index: int, events: list[ModelEvent]) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            return
        if block.is_call:
            if not block.pieces:  # nothing is told of a tool that takes nothing
                given = _encode(mapping(mapping(block.block["toolUse"]).get("input"))).decode()
                events.append(ToolCallDelta(arguments=given, index=block.number))
            return
        if block.pieces:
            block.block["toolUse"]["input"] = _input("".join(block.pieces))
        events.append(ThinkingDelta(details=block.block, index=block.number))

    # -- an answer that was not streamed -------------------------------------------------------------------------------

    def _take_whole(self, body: bytes, events: list[ModelEvent]) -> None:
        try:
            told = mapping(parsed(body))
        except msgspec.DecodeError:
            return  # it was torn
        message = mapping(mapping(told.get("output")).get("message"))
        if not isinstance(message.get("content"), list):
            raise classified(0, {}, body, self._profile.provider)
        for index, block in enumerate(mappings(message["content"])):
            self._take_block(index, block, events)
        self._count(told.get("usage"))
        self._stop = text(told.get("stopReason"))
        self._is_over = True

    def _take_block(self, index: int, block: dict[str, Any], events: list[ModelEvent]) -> None:
        if "text" in block:
            _say([block], events)
        elif "reasoningContent" in block:
            thought = mapping(block["reasoningContent"])
            _think(mapping(thought.get("reasoningText")) or thought, index, events)
        elif "citationsContent" in block:
            _say(mappings(mapping(block["citationsContent"]).get("content")), events)
        else:
            self._begin_block(index, block, events)
            self._end_block(index, events)


def _say(blocks: list[dict[str, Any]], events: list[ModelEvent]) -> None:
    events.extend([TextDelta(text=said) for block in blocks if (said := text(block.get("text")))])


def _think(told: dict[str, Any], index: int, events: list[ModelEvent]) -> None:
    thought, signature, data = (text(told.get(name)) for name in ("text", "signature", "redactedContent"))
    if thought or signature or data:
        events.append(ThinkingDelta(text=thought, signature=signature, data=data, index=index))


def _input(told: str) -> Any:
    """What a tool of the provider was given; text that is no JSON is kept as it is."""
    try:
        return parsed(told)
    except msgspec.DecodeError:
        return {"_raw": told}
