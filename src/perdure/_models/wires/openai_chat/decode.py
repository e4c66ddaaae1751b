"""Decode the response of a chat completions call into model events. No I/O.

A reply is finished once the provider has sent a finish reason or `[DONE]`. A response that ends earlier is cut off.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from perdure._core.model.protocol import assemble_reply
from perdure._core.values.error import ModelError, ProviderDown, ReplyCutOff
from perdure._core.values.event import CitationAdded, ModelEvent, ReplyFinished, TextDelta, ThinkingDelta, UsageReported
from perdure._core.values.jsonable import short_repr
from perdure._core.values.message import Message, Part, StopReason, Text, Thinking, Usage
from perdure._io.http.sse import SseParser
from perdure._models.endpoint.memo import encode_lossy_json
from perdure._models.endpoint.profile import Profile
from perdure._models.provider_errors.classify import classify_error

from .chunks import (
    ABSENT,
    ChatChoice,
    ChatChunk,
    ChatDelta,
    ToolCallPiece,
    as_dict_or_none,
    get_google_signature,
    parse_chunk,
)
from .dialect import get_dialect
from .reply import ReplyMetadataCollector, ToolCallAccumulator, parse_usage
from .reply_fields import REASONING_DETAILS_FIELD, ReasoningDetailsBuilder, parse_annotation

_STOP_REASONS: Mapping[str, StopReason] = {
    "stop": StopReason.STOP,
    "eos": StopReason.STOP,
    "end_turn": StopReason.STOP,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "tool_calls": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
    "length": StopReason.LENGTH,
    "max_tokens": StopReason.LENGTH,
    "model_length": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "content_filter": StopReason.CONTENT_FILTER,
    "refusal": StopReason.CONTENT_FILTER,
    "safety": StopReason.CONTENT_FILTER,
    "sensitive": StopReason.CONTENT_FILTER,
}
_COMPLETE = frozenset({StopReason.STOP, StopReason.TOOL_USE, StopReason.STOP_SEQUENCE})
"""Stop reasons of a reply whose calls are complete."""
_EXPLAINED = frozenset({StopReason.LENGTH, StopReason.CONTENT_FILTER})
"""Stop reasons that explain an error which is reported after them."""
_FAILURES = frozenset({"error", "network_error", "insufficient_system_resource"})
"""Finish reasons that mean the provider failed."""


class ChatDecoder:
    """Decoder of one chat completions response into model events; it detects whether the response is streamed."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._waits = get_dialect(profile.dialect).ends_with_done
        self._reader = SseParser()
        self._whole: list[bytes] | None = None
        """The pieces of a response that is not streamed."""
        self._begun = False
        self._said: list[ModelEvent] = []
        self._calls = ToolCallAccumulator()
        self._details = ReasoningDetailsBuilder()
        self._spoken: list[str] = []
        self._refused = False
        self._signature = ""
        """Gemini's signature of the whole message."""
        self._finish: str | None = None
        self._done = False
        self._usage: Usage | None = None
        self._usage_is_last = False
        """True if the usage was reported after everything else."""
        self._facts = ReplyMetadataCollector(profile.model)
        self._failed: ModelError | None = None

    @property
    def done(self) -> bool:
        """True once `[DONE]` was received."""
        return self._done

    def feed(self, data: bytes) -> Sequence[ModelEvent]:
        """Decode more bytes and return the events in them."""
        if not self._begun:
            self._detect_format(data)
        if self._whole is not None:
            self._whole.append(data)
            return ()
        if self._failed is not None:
            raise self._failed
        events = self._decode_events(self._reader.feed(data))
        self._said += events
        return events

    def end(self) -> Sequence[ModelEvent]:
        """Return the remaining events, `ReplyFinished` last. Raise `ReplyCutOff` if the reply is not finished."""
        if self._failed is not None:
            raise self._failed
        events: list[ModelEvent] = []
        if self._whole is not None:
            self._decode_body(b"".join(self._whole), events)
        else:
            events += self._decode_events(self._reader.flush(), torn=True)
        if self._failed is not None:
            raise self._failed
        self._check_finished()
        if self._spoken:
            events.append(TextDelta(f"[audio: {''.join(self._spoken)}]"))
        events += map(CitationAdded, self._facts.list_sources(self._said + events))
        self._said += events
        return [*events, self._build_reply_finished()]

    def _detect_format(self, data: bytes) -> None:
        start = data.lstrip()
        if start:
            self._begun = True
            if start[:1] == b"{":
                self._whole = []

    # -- a stream ------------------------------------------------------------------------------------------------------

    def _decode_events(self, read_events: Sequence[tuple[str, bytes]], *, torn: bool = False) -> list[ModelEvent]:
        """Decode server-sent events. An error after other events is raised by the next call, so that those are not
        lost.
        """
        events: list[ModelEvent] = []
        try:
            for name, data in read_events:
                self._decode_event(name, data, events, torn=torn)
        except ModelError as error:
            if not events:
                raise
            self._failed = error
        return events

    def _decode_event(self, name: str, data: bytes, events: list[ModelEvent], *, torn: bool) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        chunk = parse_chunk(data)
        if chunk is None:
            if not torn and data.strip():
                provider = self._profile.provider
                raise ProviderDown(f"{provider} sent a chunk that is not a JSON object: {short_repr(data)}. Try again.")
            return
        if chunk.choices:
            self._decode_choices(chunk.choices, events)
        if chunk.error or name == "error":
            self._raise_error(chunk.error, data)
        if chunk.usage is not None or chunk.x_groq is not None:
            self._report_usage(chunk, events)
        if chunk.prompt_filter_results is not ABSENT:
            self._facts.record_filters(chunk.prompt_filter_results)
        if self._finish is not None or chunk.usage is not None:
            self._facts.record_last_chunk(data)

    def _decode_choices(self, choices: Sequence[ChatChoice], events: list[ModelEvent]) -> None:
        """Decode the first choice; the others become metadata."""
        for choice in choices:
            if choice.index:
                self._facts.add_candidate(choice)
                continue
            if choice.logprobs is not None or choice.content_filter_results is not ABSENT:
                self._facts.record_choice(choice)
            delta = choice.delta
            if delta is None:
                delta = choice.message if not (self._said or events) else None
            if delta is not None:
                before = len(events)
                self._decode_delta(delta, events)
                if self._finish is not None and len(events) > before:
                    self._finish = None  # sent too early: there is more
            if choice.finish_reason is not None:
                self._finish = choice.finish_reason
                self._usage_is_last = False
            if choice.error:
                self._raise_error(choice.error, encode_lossy_json({"error": choice.error}))

    def _decode_delta(self, delta: ChatDelta, events: list[ModelEvent]) -> None:
        thought = delta.reasoning_content or delta.reasoning or delta.thinking
        if delta.reasoning_details:
            shown = self._details.add_pieces(delta.reasoning_details)
            thought = thought or shown
        if thought:
            events.append(ThinkingDelta(thought))
        if delta.content:
            events.append(TextDelta(delta.content))
        if delta.tool_calls:
            events += self._calls.add_pieces(delta.tool_calls)
        if delta.items or delta.refusal or delta.function_call or delta.audio or delta.extra_content:
            self._decode_rare_fields(delta, events)
        if delta.annotations or delta.provider_metadata:
            events += [CitationAdded(parse_annotation(each)) for each in delta.annotations or ()]
            self._facts.record_gateway(delta.provider_metadata or {})

    def _decode_rare_fields(self, delta: ChatDelta, events: list[ModelEvent]) -> None:
        """Decode the fields of a delta that only few servers send."""
        for kind, words in delta.items:
            if words:
                events.append(ThinkingDelta(words) if kind == "thinking" else TextDelta(words))
        if delta.refusal:
            self._refused = True
            events.append(TextDelta(delta.refusal))
        if delta.function_call:
            events += self._calls.add_pieces([ToolCallPiece(delta.function_call, index=0)])
        if delta.audio and isinstance(spoken := delta.audio.get("transcript"), str) and spoken:
            self._spoken.append(spoken)  # the transcript cannot store the audio itself
        if delta.extra_content and (signature := get_google_signature(delta.extra_content)):
            self._signature = signature

    def _report_usage(self, chunk: ChatChunk, events: list[ModelEvent]) -> None:
        said = chunk.usage or as_dict_or_none((chunk.x_groq or {}).get("usage"))
        usage = parse_usage(said) if said else None
        if usage is None:
            return
        self._usage_is_last = self._finish is not None
        if usage != self._usage:
            self._usage = usage
            events.append(UsageReported(usage))

    # -- a whole answer ------------------------------------------------------------------------------------------------

    def _decode_body(self, data: bytes, events: list[ModelEvent]) -> None:
        chunk = parse_chunk(data)
        if chunk is None:
            raise ReplyCutOff(
                f"the answer of {self._profile.provider} is not a complete JSON object: {short_repr(data)}"
            )
        for choice in chunk.choices or ():
            if choice.index:
                self._facts.add_candidate(choice)
            else:
                self._facts.record_choice(choice)
                message = choice.message or choice.delta or ChatDelta()
                blocks, message.reasoning_details = message.reasoning_details, None
                shown = self._details.add_blocks(blocks or ())
                message.reasoning = message.reasoning or shown
                self._decode_delta(message, events)
                self._finish = choice.finish_reason
                if choice.error:
                    self._raise_error(choice.error, encode_lossy_json({"error": choice.error}))
        if chunk.error:
            self._raise_error(chunk.error, data)
        if chunk.usage is not None:
            self._report_usage(chunk, events)
        if chunk.prompt_filter_results is not ABSENT:
            self._facts.record_filters(chunk.prompt_filter_results)
        self._facts.record_last_chunk(data)
        self._done = chunk.choices is not None
        self._usage_is_last = True

    # -- the end -------------------------------------------------------------------------------------------------------

    def _raise_error(self, error: Any, data: bytes) -> None:
        """Raise the error in a chunk or choice, unless the reply had already ended for a reason that explains it.

        A provider that cannot use what it has cut off reports an error after `length`.
        """
        if _STOP_REASONS.get((self._finish or "").lower()) in _EXPLAINED:
            self._done = True
            return
        code = (as_dict_or_none(error) or {}).get("code")
        raise classify_error(code if isinstance(code, int) else 0, {}, data, self._profile.provider)

    def _check_finished(self) -> None:
        provider = self._profile.provider
        if self._finish in _FAILURES:
            raise ProviderDown(f"{provider} stopped in the middle of its answer: {self._finish!r}. Try again.")
        is_told = self._finish is not None and (self._done or not self._waits)
        if not is_told and not (self._done and self._calls.has_complete_arguments):
            raise ReplyCutOff(f"the answer of {provider} ended without a finish reason. Try again.")

    def _build_reply_finished(self) -> ReplyFinished:
        usage = self._usage
        if usage is not None and not (self._usage_is_last or self._finish is None):
            usage = replace(usage, precision="partial")
        if usage is not None and usage.reported_usd is None:
            usage = replace(usage, reported_usd=self._facts.cost_usd)
        profile, facts = self._profile, self._facts.build_metadata()
        finished = ReplyFinished(self._get_stop_reason(), usage, profile.model, profile.provider, metadata=facts)
        blocks = self._details.build_blocks()
        if not blocks and not self._signature:
            return finished
        return replace(finished, message=self._build_message(blocks, finished))

    def _get_stop_reason(self) -> StopReason | None:
        stop = _STOP_REASONS.get((self._finish or "").lower())
        if self._refused:
            return StopReason.CONTENT_FILTER
        if len(self._calls) and stop in _COMPLETE:
            return StopReason.TOOL_USE
        return StopReason.STOP if stop is StopReason.TOOL_USE else stop

    def _build_message(self, blocks: Sequence[Mapping[str, object]], finished: ReplyFinished) -> Message:
        """Build the reply with its reasoning blocks and its signature, which no delta carries."""
        message = assemble_reply(self._said, finished)
        parts: list[Part] = list(message.parts)
        if blocks:
            _add_reasoning_blocks(parts, blocks, finished)
        if self._signature:
            _sign_text(parts, self._signature)
        return replace(message, parts=tuple(parts))


def _add_reasoning_blocks(parts: list[Part], blocks: Sequence[Mapping[str, object]], finished: ReplyFinished) -> None:
    """Add the reasoning blocks to the first thinking part of a reply, or put one before the others."""
    details = {REASONING_DETAILS_FIELD: list(blocks)}
    for place, part in enumerate(parts):
        if type(part) is Thinking:
            parts[place] = replace(part, details=details)
            return
    parts.insert(0, Thinking(provider=finished.provider, model=finished.model, details=details))


def _sign_text(parts: list[Part], signature: str) -> None:
    """Store the signature of a whole message in its last text part, or in an empty one."""
    for place in range(len(parts) - 1, -1, -1):
        part = parts[place]
        if type(part) is Text:
            parts[place] = replace(part, signature=signature)
            return
    parts.append(Text("", signature))
