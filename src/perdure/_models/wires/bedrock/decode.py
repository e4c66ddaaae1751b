"""Decode the response of a Converse API call (Bedrock) into model events. No I/O.

A stream sends a message block by block; blocks of text and thinking may lack a start event. A block of a tool that the
provider runs is collected and emitted whole, so that it can be sent back to its author. A response that is not streamed
has the same blocks at once.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from perdure._core.values.error import ReplyCutOff
from perdure._core.values.event import (
    CitationAdded,
    ModelEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReported,
)
from perdure._core.values.message import Citation, StopReason, Usage
from perdure._models.endpoint.profile import Profile
from perdure._models.provider_errors.classify import classify_error
from perdure._models.wires.lenient_json import as_count, as_dict, as_dicts, as_text, parse_lenient_json
from perdure._models.wires.reply_metadata import drop_empty_fields, get_served_model

from .aws import EventStreamMessage, EventStreamParser

STOP_REASONS: Mapping[str, StopReason] = {
    "end_turn": StopReason.STOP,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "guardrail_intervened": StopReason.CONTENT_FILTER,
    "content_filtered": StopReason.CONTENT_FILTER,
}


class _Delta(Struct, gc=False):
    text: str = ""


class _TextEvent(Struct, gc=False):
    """Event with a piece of text, by far the most frequent event of a stream."""

    delta: _Delta
    contentBlockIndex: int = 0  # noqa: N815 - the wire's name


_decode_text = msgspec.json.Decoder(_TextEvent).decode
_encode = msgspec.json.Encoder().encode


class _OpenBlock:
    """Tool call, or block of a tool that the provider runs, that has started but not ended."""

    __slots__ = ("block", "is_call", "number", "pieces")

    def __init__(self, block: dict[str, Any], number: int) -> None:
        self.block = block
        self.number = number
        """Position of the block in the reply."""
        used = as_dict(block.get("toolUse"))
        self.is_call = bool(used) and used.get("type", "tool_use") == "tool_use"  # else it is run by the provider
        self.pieces: list[str] = []
        """Pieces of its input, which is streamed as text."""


class BedrockDecoder:
    """Decoder of one response of the Converse API, streamed or whole, into model events."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._reader: EventStreamParser | None = None
        self._whole: list[bytes] | None = None
        """The pieces of a response that is not streamed."""
        self._blocks: dict[int, _OpenBlock] = {}
        self._text_length = 0
        self._text_start = 0
        """Where the text block that is being received starts in the reply's text."""
        self._cited: list[dict[str, Any]] = []
        """Citations of that block, which are emitted at its end: only then is their passage known."""
        self._metadata: dict[str, Any] = {}
        self._usage: Usage | None = None
        self._stop = ""
        self._is_over = False

    done = False
    """Always False: the API has no event that is sure to be the last."""

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Decode more bytes and return the events in them."""
        if self._whole is not None:
            self._whole.append(data)
            return []
        if self._reader is None:  # by the first byte: a stream starts with the length of its first message
            start = data.lstrip()
            if start.startswith(b"{"):
                self._whole = [data]
            if not start or self._whole is not None:
                return []
            self._reader = EventStreamParser()
        events: list[ModelEvent] = []
        for frame in self._reader.feed(data):
            self._decode_event(frame, events)
        return events

    def end(self) -> list[ModelEvent]:
        """Return the remaining events, `ReplyFinished` last. Raise `ReplyCutOff` if the message is not finished."""
        events: list[ModelEvent] = []
        if self._whole is not None:
            self._decode_body(b"".join(self._whole), events)
        if not self._is_over:
            raise ReplyCutOff(
                f"the answer of {self._profile.provider} ended before the model had finished; asking again may help"
            )
        for index in list(self._blocks):
            self._finish_block(index, events)
        self._finish_text(events)
        profile, stop, told = self._profile, STOP_REASONS.get(self._stop), self._metadata
        return [*events, ReplyFinished(stop, self._usage, profile.model, profile.provider, metadata=told)]

    # -- events --------------------------------------------------------------------------------------------------------

    def _decode_event(self, frame: EventStreamMessage, events: list[ModelEvent]) -> None:
        if frame.kind != "event":
            if self._is_over:
                return  # after the stop reason it changes nothing
            raise classify_error(0, {"x-amzn-errortype": frame.name}, frame.payload, self._profile.provider)
        if frame.name == "contentBlockDelta" and not self._blocks and b'"text"' in frame.payload:
            try:
                told = _decode_text(frame.payload)
            except msgspec.DecodeError:
                pass
            else:
                if told.delta.text:
                    self._add_text(told.delta.text, events)
                    return
        self._decode_untyped_event(frame, events)

    def _decode_untyped_event(self, frame: EventStreamMessage, events: list[ModelEvent]) -> None:
        try:
            told = as_dict(parse_lenient_json(frame.payload or b"{}"))
        except msgspec.DecodeError:
            raise ReplyCutOff(f"{self._profile.provider} sent a {frame.name!r} that is not JSON") from None
        index = as_count(told.get("contentBlockIndex"))
        match frame.name:
            case "contentBlockDelta":
                self._extend_block(index, as_dict(told.get("delta")), events)
            case "contentBlockStart":
                self._start_block(index, as_dict(told.get("start")), events)
            case "contentBlockStop":
                self._finish_block(index, events)
            case "messageStop":
                self._stop = as_text(told.get("stopReason"))
                self._is_over = True
            case "metadata":
                self._record_usage(told.get("usage"))
                self._record_metadata(told)
                if self._usage is not None:
                    events.append(UsageReported(usage=self._usage))
            case _:
                pass

    def _record_usage(self, usage: Any) -> None:
        """Record the token counts. Input is reported in three numbers, none of which includes another."""
        told = as_dict(usage)
        read, written = as_count(told.get("cacheReadInputTokens")), as_count(told.get("cacheWriteInputTokens"))
        taken, output = as_count(told.get("inputTokens")) + read + written, as_count(told.get("outputTokens"))
        if taken or output:
            is_complete = taken and "outputTokens" in told
            self._usage = Usage(taken, output, read, written, precision="exact" if is_complete else "partial")

    def _record_metadata(self, told: dict[str, Any]) -> None:
        """Record what guardrails found, the tier of service, and the model that a router chose."""
        trace = as_dict(told.get("trace"))
        invoked = as_text(as_dict(trace.get("promptRouter")).get("invokedModelId"))
        self._metadata |= drop_empty_fields(
            guardrail_trace=as_dict(trace.get("guardrail")),
            service_tier=as_text(as_dict(told.get("serviceTier")).get("type")),
            served_model=get_served_model(invoked, self._profile.model),
        )

    # -- blocks --------------------------------------------------------------------------------------------------------

    def _start_block(self, index: int, start: dict[str, Any], events: list[ModelEvent]) -> None:
        if not start:
            return
        self._finish_block(index, events)  # one that was never ended
        block = self._blocks[index] = _OpenBlock(start, index)
        if block.is_call:
            used = as_dict(start["toolUse"])
            call_id, name = as_text(used.get("toolUseId")), as_text(used.get("name"))
            events.append(ToolCallDelta(call_id=call_id, name=name, index=index))

    def _extend_block(self, index: int, delta: dict[str, Any], events: list[ModelEvent]) -> None:
        if "reasoningContent" in delta:
            _append_thinking_delta(as_dict(delta["reasoningContent"]), index, events)
        elif said := as_text(delta.get("text")):
            self._add_text(said, events)
        elif cited := as_dict(delta.get("citation")):
            self._cited.append(cited)
        block = self._blocks.get(index)
        if block is None:
            return
        piece = as_text(as_dict(delta.get("toolUse")).get("input"))
        if piece:
            block.pieces.append(piece)
            if block.is_call:
                events.append(ToolCallDelta(arguments=piece, index=index))
        if "toolResult" in delta and "toolResult" in block.block:
            result = block.block["toolResult"]
            result["content"] = [*result.get("content", []), *as_dicts(delta["toolResult"])]

    def _add_text(self, text: str, events: list[ModelEvent]) -> None:
        self._text_length += len(text)
        events.append(TextDelta(text=text))

    def _finish_text(self, events: list[ModelEvent]) -> None:
        """Emit the citations of the text block that has ended."""
        start, end = self._text_start, self._text_length
        events.extend([CitationAdded(build_citation(told, start, end)) for told in self._cited if end > start])
        self._cited.clear()
        self._text_start = end

    def _finish_block(self, index: int, events: list[ModelEvent]) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            self._finish_text(events)
            return
        if block.is_call:
            if not block.pieces:  # no input is streamed for a tool without parameters
                given = _encode(as_dict(as_dict(block.block["toolUse"]).get("input"))).decode()
                events.append(ToolCallDelta(arguments=given, index=block.number))
            return
        if block.pieces:
            block.block["toolUse"]["input"] = _parse_input("".join(block.pieces))
        events.append(ThinkingDelta(details=block.block, index=block.number, is_item=True))

    # -- a response that is not streamed -------------------------------------------------------------------------------

    def _decode_body(self, body: bytes, events: list[ModelEvent]) -> None:
        try:
            told = as_dict(parse_lenient_json(body))
        except msgspec.DecodeError:
            return  # it was cut off
        message = as_dict(as_dict(told.get("output")).get("message"))
        if not isinstance(message.get("content"), list):
            raise classify_error(0, {}, body, self._profile.provider)
        for index, block in enumerate(as_dicts(message["content"])):
            self._decode_block(index, block, events)
        self._record_usage(told.get("usage"))
        self._record_metadata(told)
        self._stop = as_text(told.get("stopReason"))
        self._is_over = True

    def _decode_block(self, index: int, block: dict[str, Any], events: list[ModelEvent]) -> None:
        if "text" in block:
            self._add_blocks([block], events)
        elif "reasoningContent" in block:
            thought = as_dict(block["reasoningContent"])
            _append_thinking_delta(as_dict(thought.get("reasoningText")) or thought, index, events)
        elif "citationsContent" in block:
            cited = as_dict(block["citationsContent"])
            self._cited += as_dicts(cited.get("citations"))
            self._add_blocks(as_dicts(cited.get("content")), events)
        else:
            self._start_block(index, block, events)
            self._finish_block(index, events)

    def _add_blocks(self, blocks: list[dict[str, Any]], events: list[ModelEvent]) -> None:
        """Add blocks of text that were received complete."""
        for block in blocks:
            if said := as_text(block.get("text")):
                self._add_text(said, events)
        self._finish_text(events)


def build_citation(citation_json: dict[str, Any], start: int, end: int) -> Citation:
    """Build a `Citation` from Bedrock's JSON, for the text of the reply from `start` to `end`."""
    title = as_text(citation_json.get("title"))
    web = as_dict(as_dict(citation_json.get("location")).get("web"))
    source = as_text(web.get("url")) or as_text(citation_json.get("source")) or title
    quote = "".join([as_text(each.get("text")) for each in as_dicts(citation_json.get("sourceContent"))])
    return Citation(source, title, quote, start, end, citation_json)


def _append_thinking_delta(told: dict[str, Any], index: int, events: list[ModelEvent]) -> None:
    thought, signature, data = (as_text(told.get(name)) for name in ("text", "signature", "redactedContent"))
    if thought or signature or data:
        events.append(ThinkingDelta(text=thought, signature=signature, data=data, index=index))


def _parse_input(told: str) -> Any:
    """Parse the input of a tool that the provider runs; text that is not JSON is wrapped in an object."""
    try:
        return parse_lenient_json(told)
    except msgspec.DecodeError:
        return {"_raw": told}
