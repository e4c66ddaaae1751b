"""Decode responses of the Messages API (Anthropic) into model events. No I/O."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from perdure._core.values.error import ModelError, ReplyCutOff
from perdure._core.values.event import (
    CitationAdded,
    ModelEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReported,
)
from perdure._core.values.jsonable import convert, short_repr
from perdure._core.values.message import Citation, Precision, StopReason, Usage
from perdure._io.http.sse import SseParser
from perdure._models.endpoint.profile import Profile
from perdure._models.provider_errors.classify import classify_error
from perdure._models.wires.lenient_json import as_count, as_dict, as_dicts, as_text, parse_lenient_json
from perdure._models.wires.reply_metadata import drop_empty_fields, get_served_model

_FRESH = "input_tokens"
_WRITTEN = "cache_creation_input_tokens"
_READ = "cache_read_input_tokens"
_OUTPUT = "output_tokens"


class UsageAccumulator:
    """Accumulator of the token counts in one response of the Messages API; later numbers replace earlier ones."""

    __slots__ = ("_told", "is_complete")

    def __init__(self) -> None:
        self._told: dict[str, Any] = {}
        self.is_complete = False
        """True if the number of output tokens is final."""

    def add(self, usage: Any, *, last: bool) -> None:
        """Merge newer token counts. A missing or null number leaves the earlier one."""
        told = as_dict(usage)
        self._told |= {name: value for name, value in told.items() if value is not None}
        self.is_complete = self.is_complete or (last and _OUTPUT in told)

    @property
    def service_tier(self) -> str:
        """Service tier that was used; empty if the provider does not report it."""
        return as_text(self._told.get("service_tier"))

    @property
    def usage(self) -> Usage | None:
        """Token counts so far; None if all are zero."""
        told = self._told
        # The provider may have compacted the conversation itself; the totals do not include the tokens of that.
        rounds = [told, *[each for each in as_dicts(told.get("iterations")) if each.get("type") == "compaction"]]
        fresh, written, read, output = (
            sum([as_count(each.get(name)) for each in rounds]) for name in (_FRESH, _WRITTEN, _READ, _OUTPUT)
        )
        taken = fresh + written + read
        if not taken + output:
            return None
        thought = as_count(as_dict(told.get("output_tokens_details")).get("thinking_tokens"))
        precision: Precision = "exact" if self.is_complete and taken else "partial"
        return Usage(taken, output, read, written, thought, precision)


STOP_REASONS: Mapping[str, StopReason] = {
    "end_turn": StopReason.STOP,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "pause_turn": StopReason.PAUSE,
    "refusal": StopReason.CONTENT_FILTER,
}

_DONE = b"[DONE]"


class _Delta(Struct, gc=False):
    """An increment of a content block, as the stream sends it."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    citation: dict[str, Any] | None = None
    stop_reason: str | None = None


class _Event(Struct, gc=False):
    """A server-sent event of any type; one struct for all types decodes fastest."""

    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    content_block: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None


_decode_event = msgspec.json.Decoder(_Event).decode
_encode = msgspec.json.Encoder().encode


class _OpenBlock:
    """A content block, other than plain text, that has started but not ended."""

    __slots__ = ("block", "is_call", "number", "pieces")

    def __init__(self, block: dict[str, Any], number: int) -> None:
        self.block = block
        self.number = number
        """Position of the block in the reply."""
        self.is_call = block.get("type") == "tool_use"
        self.pieces: list[str] = []
        """Pieces of its input, which is streamed as text."""


class AnthropicDecoder:
    """Decoder of one response of the Messages API, streamed or whole, into model events."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._reader = SseParser()
        self._whole: list[bytes] | None = None
        """The pieces of a response that is not streamed."""
        self._begun = False
        self._blocks: dict[int, _OpenBlock] = {}
        """Blocks that have started and not stopped, by index."""
        self._number = -1
        """Position of the last block that started."""
        self._text_length = 0
        self._text_start = 0
        """Where the text block that is being received starts in the reply's text."""
        self._cited: list[dict[str, Any]] = []
        """Citations of that block, which are emitted at its end: only then is their passage known."""
        self._served_model = ""
        self._count = UsageAccumulator()
        self._stop: str | None = None
        self._is_over = False

    @property
    def done(self) -> bool:
        """True once the stream has sent its last event."""
        return self._is_over

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Decode more bytes and return the events in them."""
        if not self._begun:
            self._detect_format(data)
        if self._whole is not None:
            self._whole.append(data)
            return []
        events: list[ModelEvent] = []
        for name, told in self._reader.feed(data):
            self._decode_event(name, told, events)
        return events

    def end(self) -> list[ModelEvent]:
        """Return the remaining events, `ReplyFinished` last. Raise `ReplyCutOff` if the message is not finished."""
        events: list[ModelEvent] = []
        if self._whole is not None:
            self._decode_body(b"".join(self._whole), events)
        else:
            for name, told in self._reader.flush():
                if _is_json(told):  # otherwise it was cut off
                    self._decode_event(name, told, events)
        if not self._is_over:
            raise ReplyCutOff(
                f"the answer of {self._profile.provider} ended before the model had finished; asking again may help"
            )
        for index in list(self._blocks):
            self._finish_block(index, events)
        self._emit_citations(events)
        profile = self._profile
        finished = ReplyFinished(
            stop=STOP_REASONS.get(self._stop or ""),
            usage=self._count.usage,
            model=profile.model,
            provider=profile.provider,
            metadata=drop_empty_fields(served_model=self._served_model, service_tier=self._count.service_tier),
        )
        return [*events, finished]

    def _detect_format(self, data: bytes) -> None:
        """Detect by the first byte if the response is streamed; content types are not reliable."""
        start = data.lstrip()
        if start:
            self._begun = True
            self._whole = [] if start.startswith((b"{", b"[")) else None

    # -- events --------------------------------------------------------------------------------------------------------

    def _decode_event(self, name: str, told: bytes, events: list[ModelEvent]) -> None:
        try:
            event = _decode_event(told)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if told == _DONE:
                return
            event = self._parse_leniently(told)
        kind = event.type or name
        if kind == "content_block_delta":
            if event.delta is not None:
                self._extend_block(event.index, event.delta, told, events)
        elif kind == "content_block_start":
            self._start_block(event.index, event.content_block or {}, events)
        elif kind == "content_block_stop":
            self._finish_block(event.index, events)
        elif kind == "message_start":
            self._start_message(event.message or {}, events)
        elif kind == "message_delta":
            self._decode_message_delta(event, events)
        elif kind == "message_stop":
            self._is_over = True
        elif kind == "error" and not self._is_over:  # after the stop reason it changes nothing
            raise self._classify_error(told)

    def _parse_leniently(self, told: bytes) -> _Event:
        """Parse a server-sent event, leaving out the fields whose values have the wrong type."""
        try:
            raw: Any = parse_lenient_json(told)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            shown = short_repr(told.decode("utf-8", "replace"), 200)
            message = f"{self._profile.provider} sent an event that is not JSON, {shown}; asking again may help"
            raise ReplyCutOff(message) from None
        kept: dict[str, Any] = _keep_valid_fields(raw, _Event)
        if isinstance(kept.get("delta"), dict):
            kept["delta"] = _keep_valid_fields(kept["delta"], _Delta)
        return convert(kept, _Event)

    def _classify_error(self, told: bytes) -> ModelError:
        return classify_error(0, {}, told, self._profile.provider)

    def _start_message(self, message: dict[str, Any], events: list[ModelEvent]) -> None:
        self._count.add(message.get("usage"), last=False)
        self._served_model = get_served_model(message.get("model"), self._profile.model)
        self._report_usage(events)
        self._decode_content(message.get("content"), events)

    def _decode_message_delta(self, event: _Event, events: list[ModelEvent]) -> None:
        self._count.add(event.usage, last=True)
        if event.delta is not None and event.delta.stop_reason:
            self._stop = event.delta.stop_reason
            self._is_over = True
        self._report_usage(events)

    def _report_usage(self, events: list[ModelEvent]) -> None:
        usage = self._count.usage
        if usage is not None:
            events.append(UsageReported(usage=usage))

    # -- blocks --------------------------------------------------------------------------------------------------------

    def _start_block(self, index: int, block: dict[str, Any], events: list[ModelEvent]) -> None:
        """Start a block and emit the content that it starts with; in a whole response, that is all of its content."""
        self._finish_block(index, events)  # one that was never ended
        self._number += 1
        number = self._number
        match block.get("type"):
            case "text":
                self._text_start = self._text_length
                self._cited += as_dicts(block.get("citations"))
                self._add_text(as_text(block.get("text")), events)
            case "thinking":
                self._blocks[index] = _OpenBlock(block, number)
                thought, signature = as_text(block.get("thinking")), as_text(block.get("signature"))
                if thought or signature:
                    events.append(ThinkingDelta(text=thought, signature=signature, index=number))
            case "redacted_thinking":
                events.append(ThinkingDelta(data=as_text(block.get("data")), index=number))
            case "tool_use":
                self._blocks[index] = _OpenBlock(block, number)
                call_id, name = as_text(block.get("id")), as_text(block.get("name"))
                events.append(ToolCallDelta(call_id=call_id, name=name, index=number))
            case _:
                self._blocks[index] = _OpenBlock(block, number)

    def _extend_block(self, index: int, delta: _Delta, told: bytes, events: list[ModelEvent]) -> None:
        block = self._blocks.get(index)
        if block is None:
            self._add_text(delta.text, events)
            if delta.citation:
                self._cited.append(delta.citation)
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
            _extend_unknown_block(block.block, as_dict(parse_lenient_json(told).get("delta")))

    def _add_text(self, text: str, events: list[ModelEvent]) -> None:
        if text:
            self._text_length += len(text)
            events.append(TextDelta(text=text))

    def _emit_citations(self, events: list[ModelEvent]) -> None:
        """Emit the citations of the text block that has ended."""
        start, end = self._text_start, self._text_length
        events.extend([CitationAdded(build_citation(told, start, end)) for told in self._cited])
        self._cited.clear()

    def _finish_block(self, index: int, events: list[ModelEvent]) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            self._emit_citations(events)
            return
        if block.block.get("type") == "thinking":
            return
        if block.is_call:
            if not block.pieces:  # no input is streamed for a tool without parameters
                given = _encode(block.block.get("input") or {}).decode()
                events.append(ToolCallDelta(arguments=given, index=block.number))
            return
        if block.pieces:
            block.block["input"] = _parse_input("".join(block.pieces))
        if block.block:
            events.append(ThinkingDelta(details=block.block, index=block.number, is_item=True))

    def _decode_content(self, content: Any, events: list[ModelEvent]) -> None:
        """Emit the events of content blocks that were received complete."""
        for block in as_dicts(content):
            self._start_block(-1, block, events)
            self._finish_block(-1, events)

    # -- a response that is not streamed -------------------------------------------------------------------------------

    def _decode_body(self, body: bytes, events: list[ModelEvent]) -> None:
        try:
            message: Any = parse_lenient_json(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return  # it was cut off
        told = as_dict(message)
        if not isinstance(told.get("content"), list):
            raise self._classify_error(body)
        self._count.add(told.get("usage"), last=True)
        self._served_model = get_served_model(told.get("model"), self._profile.model)
        self._decode_content(told["content"], events)
        self._stop = as_text(told.get("stop_reason"))
        self._is_over = True


def build_citation(citation_json: dict[str, Any], start: int, end: int) -> Citation:
    """Build a `Citation` from Anthropic's JSON, for the text of the reply from `start` to `end`."""
    title = as_text(citation_json.get("title")) or as_text(citation_json.get("document_title"))
    place = (
        as_text(citation_json.get("url"))
        or as_text(citation_json.get("source"))
        or as_text(citation_json.get("file_id"))
        or title
    )
    if not place and type(citation_json.get("document_index")) is int:
        place = f"document {citation_json['document_index'] + 1}"
    return Citation(place, title, as_text(citation_json.get("cited_text")), start, end, citation_json)


def _is_json(told: bytes) -> bool:
    try:
        parse_lenient_json(told)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _keep_valid_fields(raw: Any, shape: type[Struct]) -> dict[str, Any]:
    """Return the fields of a struct type that have valid values."""
    kept: dict[str, Any] = {}
    for field in msgspec.structs.fields(shape):
        value = as_dict(raw).get(field.name)
        wanted = dict if field.name == "delta" else field.type
        try:
            kept[field.name] = convert(value, wanted)
        except msgspec.ValidationError:
            continue
    return kept


def _extend_unknown_block(block: dict[str, Any], delta: dict[str, Any]) -> None:
    """Merge a delta into a block of an unknown type: texts and lists grow, other values are replaced."""
    for name, value in delta.items():
        before: Any = block.get(name)
        if name != "type":
            block[name] = before + value if type(before) is type(value) and type(value) in {str, list} else value


def _parse_input(told: str) -> Any:
    """Parse the input of a tool that the provider runs; text that is not JSON is wrapped in an object."""
    try:
        return parse_lenient_json(told) if told else {}
    except msgspec.DecodeError:
        return {"_raw": told}
