"""Decode the response of a Gemini `generateContent` call into model events. No I/O.

A stream has no end marker: a response is finished when a chunk had a `finishReason` and the bytes are over. The first
candidate is the reply; further ones are kept as metadata.
"""

from collections.abc import Iterator
from typing import Any, NoReturn

from perdure._core.values.error import BadRequest, ContentRefused, ProviderDown, ReplyCutOff
from perdure._core.values.event import ModelEvent, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta, UsageReported
from perdure._core.values.jsonable import short_repr
from perdure._core.values.message import StopReason, Usage
from perdure._models.endpoint.profile import Profile
from perdure._models.provider_errors.classify import classify_error
from perdure._models.wires.lenient_json import as_dict
from perdure._models.wires.reply_metadata import (
    CandidateCollector,
    drop_empty_fields,
    get_served_model,
    has_content_filter_hit,
)

from .chunks import (
    ABSENT,
    Candidate,
    ChunkPart,
    GeminiCallPiece,
    GeminiChunk,
    PromptFeedback,
    ResponseSplitter,
    TokenCounts,
    get_raw_parts,
    parse_chunk,
)
from .reply import GeminiReplyBuilder, PartialCallBuilder, list_citations, strip_json_whitespace

_FILTERED = StopReason.CONTENT_FILTER
_STOP_REASONS: dict[str | int, StopReason] = {
    "STOP": StopReason.STOP,
    "MAX_TOKENS": StopReason.LENGTH,
    "SAFETY": _FILTERED,
    "RECITATION": _FILTERED,
    "LANGUAGE": _FILTERED,
    "BLOCKLIST": _FILTERED,
    "PROHIBITED_CONTENT": _FILTERED,
    "SPII": _FILTERED,
    "MODEL_ARMOR": _FILTERED,
    "IMAGE_SAFETY": _FILTERED,
    "IMAGE_PROHIBITED_CONTENT": _FILTERED,
    "IMAGE_RECITATION": _FILTERED,
    1: StopReason.STOP,
    2: StopReason.LENGTH,
    3: _FILTERED,
    4: _FILTERED,
}
"""Stop reason by finish reason. For any other finish reason the parts decide."""
_BROKEN_FINISH_REASONS = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"})
"""Finish reasons of output that the provider could not parse and left out: the reply is cut off and worth a retry. It
is not an empty reply, since text may have been sent before.
"""
_UNEXPECTED_CALL_REASONS = frozenset({"UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"})
"""Finish reasons for calls that were not allowed. The calls are in the reply: the loop answers an unknown one with an
error, from which the model learns more than from a retry. Without calls, the reply counts as broken.
"""

_CHUNKS_PER_USAGE_REPORT = 32
"""Number of chunks between two usage reports: every chunk has the usage, and it is rarely needed."""


class GeminiDecoder:
    """Decoder of one response of the Gemini API, streamed or whole, into model events."""

    __slots__ = (
        "_candidate",
        "_candidates",
        "_chunks",
        "_counts",
        "_counts_at_end",
        "_frames",
        "_metadata",
        "_partial",
        "_profile",
        "_reply",
        "_served_model",
    )

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._frames = ResponseSplitter()
        self._reply = GeminiReplyBuilder(profile)
        self._partial: PartialCallBuilder | None = None
        self._candidate: Candidate | None = None
        """The candidate that had the finish reason."""
        self._counts: TokenCounts | None = None
        self._counts_at_end = False
        """True if the token counts were sent with the finish reason, or later."""
        self._chunks = 0
        self._metadata: dict[str, Any] = {}
        """Sources, citations and other facts about the reply, for display."""
        self._candidates: CandidateCollector | None = None
        self._served_model: str | None = None

    done = False
    """Always False: the API has no event that is sure to be the last."""

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Decode more bytes and return the events in them."""
        events: list[ModelEvent] = []
        for chunk in self._frames.feed(data):
            self._decode_chunk(chunk, events)
        return events

    def end(self) -> Iterator[ModelEvent]:
        """Yield the remaining events, `ReplyFinished` last. Raise `ReplyCutOff` if the reply is not finished."""
        events: list[ModelEvent] = []
        for data in self._frames.flush():
            if parse_chunk(data) is None:
                self._raise_cut_off("in the middle of a chunk")
            self._decode_chunk(data, events)
        if self._candidate is None and not (self._frames.is_single_object and self._reply.has_parts):
            if (usage := self._build_usage(exact=False)) is not None:
                yield UsageReported(usage=usage)
            self._raise_cut_off("before it was finished")
        stop = self._get_stop_reason(events)
        self._add_citations(events)
        yield from events
        yield ReplyFinished(
            stop=stop,
            usage=self._build_usage(exact=self._counts_at_end),
            model=self._profile.model,
            provider=self._profile.provider,
            message=self._reply.build_message(),
            metadata=self._build_metadata(),
        )

    def _decode_chunk(self, data: bytes, events: list[ModelEvent]) -> None:
        """Decode one chunk, and append its events to `events`."""
        chunk = parse_chunk(data)
        if chunk is None:
            if data.strip() == b"[DONE]":  # sent by gateways
                return
            raise ProviderDown(f"{self._profile.provider} sent a chunk that is not a JSON object: {short_repr(data)}")
        if chunk.error is not ABSENT and bytes(chunk.error) != b"null":
            if self._candidate is not None:
                return  # after the finish reason it changes nothing
            raise classify_error(0, {}, data, self._profile.provider)
        candidate = _get_first_candidate(chunk)
        if candidate is not None:
            if candidate.content is not None and candidate.content.parts:
                self._decode_parts(candidate.content.parts, data, events)
            self._record_metadata(candidate)
        elif chunk.prompt_feedback is not None and not self._reply.has_parts:
            self._check_feedback(chunk.prompt_feedback)
        if chunk.usage_metadata is not None:
            self._report_usage(chunk.usage_metadata, events)
        self._served_model = chunk.model_version or self._served_model
        if chunk.candidates is not None and (len(chunk.candidates) > 1 or candidate is None):
            self._add_further_candidates(chunk.candidates)

    def _decode_parts(self, parts: list[ChunkPart], data: bytes, events: list[ModelEvent]) -> None:
        reply = self._reply
        for place, part in enumerate(parts):
            signature = part.thought_signature or ""
            if part.text is not None:
                (reply.add_thought if part.thought else reply.add_text)(part.text, signature, events)
            elif part.function_call is not None:
                self._decode_call(part.function_call, signature, events)
            elif part.inline_data is not None:
                reply.add_media(part.inline_data, signature, events)
            else:
                raw = get_raw_parts(data)
                if place < len(raw) and raw[place]:
                    reply.add_opaque_part({"part": raw[place]}, "", events)

    def _decode_call(self, call: GeminiCallPiece, signature: str, events: list[ModelEvent]) -> None:
        """Decode a function call, or a piece of one: a piece with neither a name nor `willContinue` is the last."""
        if call.name:
            self._finish_call(events)
        if call.name and not call.will_continue and not call.partial_args:
            self._reply.add_call(call.name, call.id or "", strip_json_whitespace(call.args), signature, events)
            return
        if call.name:
            self._partial = PartialCallBuilder(call.name, call.id or "", signature, strip_json_whitespace(call.args))
        if self._partial is None:
            return
        self._partial.signature = self._partial.signature or signature
        for piece in call.partial_args or ():
            self._partial.add_piece(piece)
        if not call.will_continue:
            self._finish_call(events)

    def _finish_call(self, events: list[ModelEvent]) -> None:
        """Emit the function call that was streamed in pieces. Its last piece may be missing: any other part ends it
        too.
        """
        partial, self._partial = self._partial, None
        if partial is not None:
            self._reply.add_call(partial.name, partial.call_id, partial.arguments, partial.signature, events)

    def _record_metadata(self, candidate: Candidate) -> None:
        """Record the finish reason and metadata of a candidate."""
        if candidate.finish_reason is not None:
            self._candidate = candidate
        metadata = self._metadata
        if candidate.grounding_metadata:
            metadata["grounding"] = candidate.grounding_metadata
        if candidate.citation_metadata:
            metadata["citations"] = candidate.citation_metadata
        if candidate.url_context_metadata:
            metadata["url_context"] = candidate.url_context_metadata
        if candidate.avg_logprobs is not None or candidate.logprobs_result:
            average = {} if candidate.avg_logprobs is None else {"average": candidate.avg_logprobs}
            metadata["logprobs"] = {**average, **(candidate.logprobs_result or {})}
        if candidate.safety_ratings and has_content_filter_hit(candidate.safety_ratings):
            metadata["guardrail_trace"] = candidate.safety_ratings

    def _add_further_candidates(self, candidates: list[Candidate]) -> None:
        """Collect the pieces of all candidates but the first."""
        self._candidates = self._candidates or CandidateCollector()
        for candidate in candidates:
            if not candidate.index:
                continue
            events: list[ModelEvent] = []
            for place, part in enumerate((candidate.content and candidate.content.parts) or ()):
                if part.text is not None:
                    events.append(ThinkingDelta(part.text) if part.thought else TextDelta(part.text))
                elif part.function_call is not None and part.function_call.name:
                    call = part.function_call
                    arguments = strip_json_whitespace(call.args)
                    events.append(ToolCallDelta(call.id or f"{place}", call.name or "", arguments, index=place))
            self._candidates.add(candidate.index, events, candidate.finish_reason)

    def _add_citations(self, events: list[ModelEvent]) -> None:
        grounding, recitations = (as_dict(self._metadata.get(name)) for name in ("grounding", "citations"))
        if grounding or recitations:
            self._reply.add_citations(list_citations(grounding, recitations, self._reply.text), events)

    def _build_metadata(self) -> dict[str, Any]:
        counts = self._counts
        tier = None if counts is None else counts.service_tier or counts.traffic_type
        return self._metadata | drop_empty_fields(
            served_model=get_served_model(self._served_model, self._profile.model),
            service_tier=tier,
            candidates=self._candidates.build() if self._candidates else None,
        )

    def _check_feedback(self, feedback: PromptFeedback) -> None:
        """Raise `ContentRefused` if the prompt was blocked: there is no reply then, and a retry would not get one."""
        if feedback.block_reason:
            words = f": {feedback.block_reason_message}" if feedback.block_reason_message else ""
            raise ContentRefused(f"{self._profile.provider} refused the prompt ({feedback.block_reason!r}){words}")

    def _report_usage(self, counts: TokenCounts, events: list[ModelEvent]) -> None:
        if counts.prompt_token_count is None and counts.candidates_token_count is None:
            return  # the first counts of Vertex have only the billing type
        self._counts = counts
        self._counts_at_end = self._candidate is not None
        if self._chunks % _CHUNKS_PER_USAGE_REPORT == 0 and (usage := self._build_usage(exact=False)) is not None:
            events.append(UsageReported(usage=usage))
        self._chunks += 1

    def _get_stop_reason(self, events: list[ModelEvent]) -> StopReason | None:
        """Return the reason why the reply ended. Raise its error if it ended in a failure."""
        reason = None if self._candidate is None else self._candidate.finish_reason
        stop = None if reason is None else _STOP_REASONS.get(reason)
        if stop is not StopReason.LENGTH:
            self._finish_call(events)  # in a reply that got too long, the rest is an incomplete call
        if reason in _BROKEN_FINISH_REASONS or (reason in _UNEXPECTED_CALL_REASONS and not self._reply.has_calls):
            self._raise_cut_off(f"by the provider ({reason})")
        if reason == "MISSING_THOUGHT_SIGNATURE":
            raise BadRequest(f"{self._profile.provider} missed the signature of a call ({self._get_finish_message()})")
        return StopReason.TOOL_USE if self._reply.has_calls and stop is StopReason.STOP else stop

    def _raise_cut_off(self, where: str) -> NoReturn:
        said = self._get_finish_message()
        raise ReplyCutOff(f"the answer of {self._profile.provider} ended {where}{f': {said}' if said else ''}")

    def _get_finish_message(self) -> str:
        return short_repr(self._candidate.finish_message) if self._candidate and self._candidate.finish_message else ""

    def _build_usage(self, *, exact: bool) -> Usage | None:
        """Build the usage from the latest counts. Tokens read by the provider's tools count as input."""
        counts = self._counts
        if counts is None:
            return None
        thoughts = counts.thoughts_token_count or 0
        written = (counts.candidates_token_count or 0) + thoughts
        asked = counts.prompt_token_count
        if asked is None and counts.total_token_count:
            asked = max(counts.total_token_count - written, 0)
        elif asked is not None:
            asked += counts.tool_use_prompt_token_count or 0
        return Usage(
            asked or 0,
            written,
            counts.cached_content_token_count or 0,
            reasoning_tokens=thoughts,
            precision="exact" if exact and asked is not None else "partial",
        )


def _get_first_candidate(chunk: GeminiChunk) -> Candidate | None:
    """Return the first candidate of a chunk; candidates may be sent in separate chunks."""
    for candidate in chunk.candidates or ():
        if not candidate.index:
            return candidate
    return None
