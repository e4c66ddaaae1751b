"""The bytes of an answer, as they come, as events. Above: the wire. Below: `framing.py`, `chunk.py`, `reply.py`.

There is no mark for the end of a stream: an answer is finished when a chunk has told why (`finishReason`) and the
bytes are over. Of several candidates only the first is read.
"""

from collections.abc import Iterator
from typing import NoReturn

from perdure.core.error import BadRequest, ProviderDown, Refused, ReplyCutOff
from perdure.core.event import ModelEvent, ReplyFinished, UsageReported
from perdure.core.message import StopReason, Usage
from perdure.core.plain import excerpt
from perdure.models.profile import Profile
from perdure.models.refusal import classified

from .chunk import ABSENT, Call, Candidate, Chunk, ChunkPart, Counts, Feedback, raw_parts, read
from .framing import Frames
from .partial import PartialCall
from .reply import Reply, compact

_FILTERED = StopReason.CONTENT_FILTER
_STOPS: dict[str | int, StopReason] = {
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
"""Any other reason means what the parts suggest."""
_BROKEN = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"})
"""The model has begun something that the provider could not read, and gives none of it: the answer is cut off, and
worth another try. Not an empty answer, since text may have come before."""
_UNEXPECTED = frozenset({"UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"})
"""The calls are there. The loop answers one that it does not know with an error, from which the model learns more than
from being asked again. Without calls it is as broken as the others."""

_REPORTS_EVERY = 32
"""Chunks from one report of the usage to the next: each chunk tells it, and hardly anybody needs it."""


class GeminiDecoder:
    """One answer."""

    __slots__ = ("_candidate", "_chunks", "_counts", "_counts_at_end", "_frames", "_partial", "_profile", "_reply")

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._frames = Frames()
        self._reply = Reply(profile)
        self._partial: PartialCall | None = None
        self._candidate: Candidate | None = None
        """The one that has told why the answer ends."""
        self._counts: Counts | None = None
        self._counts_at_end = False
        """Whether the tokens were told when the answer ended, or after that."""
        self._chunks = 0

    done = False
    """Nothing that is said is sure to be the last."""

    def feed(self, data: bytes) -> list[ModelEvent]:
        """More bytes."""
        events: list[ModelEvent] = []
        for chunk in self._frames.feed(data):
            self._take(chunk, events)
        return events

    def end(self) -> Iterator[ModelEvent]:
        """The bytes are over."""
        events: list[ModelEvent] = []
        for data in self._frames.rest():
            if read(data) is None:
                self._cut_off("in the middle of a chunk")
            self._take(data, events)
        if self._candidate is None and not (self._frames.is_whole and self._reply.is_begun):
            if (usage := self._usage(exact=False)) is not None:
                yield UsageReported(usage=usage)
            self._cut_off("before it was finished")
        stop = self._stop(events)
        yield from events
        yield ReplyFinished(
            stop=stop,
            usage=self._usage(exact=self._counts_at_end),
            model=self._profile.model,
            provider=self._profile.provider,
            message=self._reply.message(),
        )

    def _take(self, data: bytes, events: list[ModelEvent]) -> None:
        """One chunk."""
        chunk = read(data)
        if chunk is None:
            if data.strip() == b"[DONE]":  # said by gateways
                return
            raise ProviderDown(f"{self._profile.provider} sent a chunk that is no JSON object: {excerpt(data)}")
        if chunk.error is not ABSENT and bytes(chunk.error) != b"null":
            raise classified(0, {}, data, self._profile.provider)
        candidate = _first(chunk)
        if candidate is not None:
            if candidate.content is not None and candidate.content.parts:
                self._hear(candidate.content.parts, data, events)
            self._note(candidate)
        elif chunk.prompt_feedback is not None and not self._reply.is_begun:
            self._check_feedback(chunk.prompt_feedback)
        if chunk.usage_metadata is not None:
            self._count(chunk.usage_metadata, events)

    def _hear(self, parts: list[ChunkPart], data: bytes, events: list[ModelEvent]) -> None:
        reply = self._reply
        for place, part in enumerate(parts):
            signature = part.thought_signature or ""
            if part.text is not None:
                (reply.thought if part.thought else reply.text)(part.text, signature, events)
            elif part.function_call is not None:
                self._call(part.function_call, signature, events)
            elif part.inline_data is not None:
                reply.media(part.inline_data, signature, events)
            else:
                raw = raw_parts(data)
                if place < len(raw) and raw[place]:
                    reply.opaque({"part": raw[place]}, "", events)

    def _call(self, call: Call, signature: str, events: list[ModelEvent]) -> None:
        """A call, or a piece of one: a piece that says neither a name nor that there is more to come is the last."""
        if call.name:
            self._close(events)
        if call.name and not call.will_continue and not call.partial_args:
            self._reply.call(call.name, call.id or "", compact(call.args), signature, events)
            return
        if call.name:
            self._partial = PartialCall(call.name, call.id or "", signature, compact(call.args))
        if self._partial is None:
            return
        self._partial.signature = self._partial.signature or signature
        for piece in call.partial_args or ():
            self._partial.take(piece)
        if not call.will_continue:
            self._close(events)

    def _close(self, events: list[ModelEvent]) -> None:
        """The call that was coming is whole. Its last piece may be missing: what follows it says so as well."""
        partial, self._partial = self._partial, None
        if partial is not None:
            self._reply.call(partial.name, partial.call_id, partial.arguments, partial.signature, events)

    def _note(self, candidate: Candidate) -> None:
        """What is told beside the parts."""
        if candidate.finish_reason is not None:
            self._candidate = candidate
        metadata = self._reply.metadata
        if candidate.grounding_metadata:
            metadata["grounding"] = candidate.grounding_metadata
        if candidate.citation_metadata:
            metadata["citations"] = candidate.citation_metadata
        if candidate.url_context_metadata:
            metadata["url_context"] = candidate.url_context_metadata

    def _check_feedback(self, feedback: Feedback) -> None:
        """A prompt that is blocked gets no candidate; asking again gets none either."""
        if feedback.block_reason:
            words = f": {feedback.block_reason_message}" if feedback.block_reason_message else ""
            raise Refused(f"{self._profile.provider} refused the prompt ({feedback.block_reason!r}){words}")

    def _count(self, counts: Counts, events: list[ModelEvent]) -> None:
        if counts.prompt_token_count is None and counts.candidates_token_count is None:
            return  # Vertex tells at first only who pays
        self._counts = counts
        self._counts_at_end = self._candidate is not None
        if self._chunks % _REPORTS_EVERY == 0 and (usage := self._usage(exact=False)) is not None:
            events.append(UsageReported(usage=usage))
        self._chunks += 1

    def _stop(self, events: list[ModelEvent]) -> StopReason | None:
        """Why the answer ended. Raises when it ended in a way that is no answer."""
        reason = None if self._candidate is None else self._candidate.finish_reason
        stop = None if reason is None else _STOPS.get(reason)
        if stop is not StopReason.LENGTH:
            self._close(events)  # of an answer that got too long, what was still coming is half a call
        if reason in _BROKEN or (reason in _UNEXPECTED and not self._reply.has_calls):
            self._cut_off(f"by the provider ({reason})")
        if reason == "MISSING_THOUGHT_SIGNATURE":
            raise BadRequest(f"{self._profile.provider} missed the signature of a call ({self._said()})")
        return StopReason.TOOL_USE if self._reply.has_calls and stop is StopReason.STOP else stop

    def _cut_off(self, where: str) -> NoReturn:
        said = self._said()
        raise ReplyCutOff(f"the answer of {self._profile.provider} ended {where}{f': {said}' if said else ''}")

    def _said(self) -> str:
        return excerpt(self._candidate.finish_message) if self._candidate and self._candidate.finish_message else ""

    def _usage(self, *, exact: bool) -> Usage | None:
        """The tokens that were last told. What tools of the provider have read counts as input."""
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


def _first(chunk: Chunk) -> Candidate | None:
    """The first of the candidates, which may come in chunks of their own."""
    for candidate in chunk.candidates or ():
        if not candidate.index:
            return candidate
    return None
