"""What a model answers, as events. Pure. Above: the wire. Below: `chunk.py`, `calls.py`, `details.py`, `usage.py`.

A reply is finished when its provider has said why it stopped, or `[DONE]`. Whatever ends before is cut off.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from perdure.core.error import ModelError, ProviderDown, ReplyCutOff
from perdure.core.event import ModelEvent, ReplyFinished, TextDelta, ThinkingDelta, UsageReported
from perdure.core.message import Message, Part, StopReason, Thinking, Usage
from perdure.core.model import assemble
from perdure.core.plain import excerpt
from perdure.models.profile import Profile
from perdure.models.refusal import classified
from perdure.net.sse import SseReader

from .calls import Calls
from .chunk import CallPiece, Choice, Chunk, Delta, object_of, read
from .details import DETAILS, Details
from .dialect import dialect_of
from .usage import usage_of

_STOPS: Mapping[str, StopReason] = {
    "stop": StopReason.STOP,
    "eos": StopReason.STOP,
    "end_turn": StopReason.STOP,
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
_FAILURES = frozenset({"error", "network_error", "insufficient_system_resource"})
"""Reasons to stop that are none: the provider broke down."""


class ChatDecoder:
    """One answer, streamed or whole: its first byte tells which."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._waits = dialect_of(profile.dialect).ends_with_done
        self._reader = SseReader()
        self._whole: list[bytes] | None = None
        """The pieces of an answer that is not streamed."""
        self._begun = False
        self._said: list[ModelEvent] = []
        self._calls = Calls()
        self._details = Details()
        self._spoken: list[str] = []
        self._refused = False
        self._finish: str | None = None
        self._done = False
        self._usage: Usage | None = None
        self._usage_is_last = False
        """Whether the counts came when everything else had been said."""
        self._failed: ModelError | None = None

    @property
    def done(self) -> bool:
        """Whether the last word has been said."""
        return self._done

    def feed(self, data: bytes) -> Sequence[ModelEvent]:
        """More bytes: what they say."""
        if not self._begun:
            self._begin(data)
        if self._whole is not None:
            self._whole.append(data)
            return ()
        if self._failed is not None:
            raise self._failed
        events = self._told(self._reader.feed(data))
        self._said += events
        return events

    def end(self) -> Sequence[ModelEvent]:
        """The bytes are over: what is left to say."""
        if self._failed is not None:
            raise self._failed
        events: list[ModelEvent] = []
        if self._whole is not None:
            self._read_whole(b"".join(self._whole), events)
        else:
            events += self._told(self._reader.rest(), torn=True)
        if self._failed is not None:
            raise self._failed
        self._check_finished()
        if self._spoken:
            events.append(TextDelta(f"[audio: {''.join(self._spoken)}]"))
        self._said += events
        return [*events, self._finished()]

    def _begin(self, data: bytes) -> None:
        start = data.lstrip()
        if start:
            self._begun = True
            if start[:1] == b"{":
                self._whole = []

    # -- a stream ------------------------------------------------------------------------------------------------------

    def _told(self, read_events: Sequence[tuple[str, bytes]], *, torn: bool = False) -> list[ModelEvent]:
        """What some events of the stream say. An error is raised after what was said before it."""
        events: list[ModelEvent] = []
        try:
            for name, data in read_events:
                self._take(name, data, events, torn=torn)
        except ModelError as error:
            if not events:
                raise
            self._failed = error
        return events

    def _take(self, name: str, data: bytes, events: list[ModelEvent], *, torn: bool) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        chunk = read(data)
        if chunk is None:
            if not torn and data.strip():
                provider = self._profile.provider
                raise ProviderDown(f"{provider} sent a chunk that is no JSON object: {excerpt(data)}. Try again.")
            return
        if chunk.error or name == "error":
            raise self._error(chunk, data)
        if chunk.choices:
            self._choose(chunk.choices, events)
        if chunk.usage is not None or chunk.x_groq is not None:
            self._count(chunk, events)

    def _choose(self, choices: Sequence[Choice], events: list[ModelEvent]) -> None:
        """The first answer, of as many as there are."""
        for choice in choices:
            if choice.index:
                continue
            delta = choice.delta
            if delta is None:
                delta = choice.message if not (self._said or events) else None
            if delta is not None:
                before = len(events)
                self._hear(delta, events)
                if self._finish is not None and len(events) > before:
                    self._finish = None  # it was told too early: there is more
            if choice.finish_reason is not None:
                self._finish = choice.finish_reason
                self._usage_is_last = False

    def _hear(self, delta: Delta, events: list[ModelEvent]) -> None:
        thought = delta.reasoning_content or delta.reasoning or delta.thinking
        if delta.reasoning_details:
            shown = self._details.add(delta.reasoning_details)
            thought = thought or shown
        if thought:
            events.append(ThinkingDelta(thought))
        if delta.content:
            events.append(TextDelta(delta.content))
        if delta.tool_calls:
            events += self._calls.add(delta.tool_calls)
        if delta.items or delta.refusal or delta.function_call or delta.audio:
            self._hear_more(delta, events)

    def _hear_more(self, delta: Delta, events: list[ModelEvent]) -> None:
        """What few servers say."""
        for kind, words in delta.items:
            if words:
                events.append(ThinkingDelta(words) if kind == "thinking" else TextDelta(words))
        if delta.refusal:
            self._refused = True
            events.append(TextDelta(delta.refusal))
        if delta.function_call:
            events += self._calls.add([CallPiece(delta.function_call, index=0)])
        if delta.audio and isinstance(spoken := delta.audio.get("transcript"), str):
            self._spoken.append(spoken)  # sound itself has no place in a transcript

    def _count(self, chunk: Chunk, events: list[ModelEvent]) -> None:
        said = chunk.usage or object_of((chunk.x_groq or {}).get("usage"))
        usage = usage_of(said) if said else None
        if usage is None:
            return
        self._usage_is_last = self._finish is not None
        if usage != self._usage:
            self._usage = usage
            events.append(UsageReported(usage))

    # -- a whole answer ------------------------------------------------------------------------------------------------

    def _read_whole(self, data: bytes, events: list[ModelEvent]) -> None:
        chunk = read(data)
        if chunk is None:
            raise ReplyCutOff(f"the answer of {self._profile.provider} is no whole JSON object: {excerpt(data)}")
        if chunk.error:
            raise self._error(chunk, data)
        for choice in chunk.choices or ():
            if not choice.index:
                message = choice.message or choice.delta or Delta()
                blocks, message.reasoning_details = message.reasoning_details, None
                shown = self._details.keep(blocks or ())
                message.reasoning = message.reasoning or shown
                self._hear(message, events)
                self._finish = choice.finish_reason
                break
        if chunk.usage is not None:
            self._count(chunk, events)
        self._done = chunk.choices is not None
        self._usage_is_last = True

    # -- the end -------------------------------------------------------------------------------------------------------

    def _error(self, chunk: Chunk, data: bytes) -> ModelError:
        code = (object_of(chunk.error) or {}).get("code")
        return classified(code if isinstance(code, int) else 0, {}, data, self._profile.provider)

    def _check_finished(self) -> None:
        provider = self._profile.provider
        if self._finish in _FAILURES:
            raise ProviderDown(f"{provider} stopped in the middle of its answer: {self._finish!r}. Try again.")
        is_told = self._finish is not None and (self._done or not self._waits)
        if not is_told and not (self._done and self._calls.whole):
            raise ReplyCutOff(f"the answer of {provider} ended before the model said why it stopped. Try again.")

    def _finished(self) -> ReplyFinished:
        usage = self._usage
        if usage is not None and not (self._usage_is_last or self._finish is None):
            usage = replace(usage, precision="partial")
        profile = self._profile
        finished = ReplyFinished(self._stop(), usage, profile.model, profile.provider)
        blocks = self._details.blocks()
        return replace(finished, message=self._with(blocks, finished)) if blocks else finished

    def _stop(self) -> StopReason | None:
        stop = _STOPS.get((self._finish or "").lower())
        if self._refused:
            return StopReason.CONTENT_FILTER
        if stop in (StopReason.STOP, StopReason.TOOL_USE):
            return StopReason.TOOL_USE if len(self._calls) else StopReason.STOP
        return stop

    def _with(self, blocks: Sequence[Mapping[str, object]], finished: ReplyFinished) -> Message:
        """The reply with its blocks of reasoning, which no delta could tell: they were not whole before the end."""
        message = assemble(self._said, finished)
        details = {DETAILS: list(blocks)}
        parts: list[Part] = list(message.parts)
        for place, part in enumerate(parts):
            if type(part) is Thinking:
                parts[place] = replace(part, details=details)
                break
        else:
            parts.insert(0, Thinking(provider=finished.provider, model=finished.model, details=details))
        return replace(message, parts=tuple(parts))
