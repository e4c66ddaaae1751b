"""Assemble from the chunks of a chat completions reply its tool calls, token counts and metadata. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.values.event import CitationAdded, ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta
from perdure._core.values.message import Citation, Precision, Usage
from perdure._models.wires.lenient_json import as_dict, as_list, as_text
from perdure._models.wires.reply_metadata import (
    CandidateCollector,
    drop_empty_fields,
    get_served_model,
    has_content_filter_hit,
    parse_cost,
    parse_reported_cost,
)

from .chunks import ABSENT, ChatChoice, FunctionPiece, ToolCallPiece, parse_json_or_none
from .reply_fields import parse_source_lists

_NO_FUNCTION = FunctionPiece()


class _PendingCall:
    __slots__ = ("arguments", "id", "name", "place")

    def __init__(self, place: int) -> None:
        self.place = place
        """Position of the call in the reply, counted by us."""
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


class ToolCallAccumulator:
    """Accumulator of the tool calls of one chat completions reply, which arrive in streamed pieces."""

    __slots__ = ("_calls", "_latest")

    def __init__(self) -> None:
        self._calls: list[_PendingCall] = []
        self._latest: dict[int | None, _PendingCall] = {}
        """The latest call with each index of the provider, and the latest of all under `None`."""

    def __len__(self) -> int:
        return len(self._calls)

    def add_pieces(self, pieces: Sequence[ToolCallPiece]) -> list[ToolCallDelta]:
        """Add streamed pieces of tool calls, and return a delta event for each piece that adds something."""
        deltas: list[ToolCallDelta] = []
        for piece in pieces:
            function = piece.function or _NO_FUNCTION
            if not (piece.id or function.name or piece.extra_content) and function.arguments:
                call = self._latest.get(piece.index)
                if call is not None and call.arguments:  # nearly every piece: more of the arguments
                    call.arguments.append(function.arguments)
                    deltas.append(ToolCallDelta("", "", function.arguments, index=call.place))
                    continue
            delta = self._add_piece(piece.index, piece.id or "", function.name or "", function.arguments or "")
            if piece.extra_content is not None and piece.signature:
                call = self._latest.get(piece.index)
                if call is not None:
                    delta = replace(delta or ToolCallDelta(index=call.place), signature=piece.signature)
            if delta is not None:
                deltas.append(delta)
        return deltas

    @property
    def has_complete_arguments(self) -> bool:
        """True if the arguments of every call are complete JSON, or empty."""
        return all(_has_json_arguments(call) or not "".join(call.arguments).strip() for call in self._calls)

    def _add_piece(self, index: int | None, call_id: str, name: str, arguments: str) -> ToolCallDelta | None:
        call = self._find_continued_call(index, call_id, name, arguments)
        if call is None:
            if not (call_id or name or arguments):
                return None
            call = _PendingCall(len(self._calls))
            self._calls.append(call)
            self._latest[index] = self._latest[None] = call
        if arguments == "null" and not call.arguments:  # some servers start with it, and send the arguments next
            arguments = ""
        new_id = "" if call.id else call_id
        new_name = "" if call.name else name
        if new_id:
            call.id = new_id
        if new_name:
            call.name = new_name
        if arguments:
            call.arguments.append(arguments)
        elif not (new_id or new_name):
            return None
        return ToolCallDelta(new_id, new_name, arguments, index=call.place)

    def _find_continued_call(self, index: int | None, call_id: str, name: str, arguments: str) -> _PendingCall | None:
        """Return the call that a piece continues, or None if the piece starts another call."""
        call = self._latest.get(index)
        if call is None or (call_id and call_id == call.id) or not name:
            return call
        if call_id and call.id:
            return None  # another id and a name: another call, whatever its index
        if index is None and call.name:
            return None  # each piece is a whole call
        begins = bool(call.name) and arguments.lstrip().startswith("{") and _has_json_arguments(call)
        return None if begins else call


def _has_json_arguments(call: _PendingCall) -> bool:
    try:
        msgspec.json.decode("".join(call.arguments))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


_TRUE = b"true"


class _UsageMetadata(Struct, gc=False):
    """Metadata in the usage of a response."""

    service_tier: Any = None


class _LastChunk(Struct, gc=False):
    """Metadata in one of the last chunks of a response."""

    model: Any = None
    provider: Any = None
    service_tier: Any = None
    usage: _UsageMetadata | None = None
    cost: Any = None
    citations: Any = None
    search_results: Any = None


_decode_last_chunk = msgspec.json.Decoder(_LastChunk).decode


def _parse_last_chunk(data: bytes) -> _LastChunk:
    """Parse the metadata of a chunk; whatever is not as it should be counts as absent."""
    try:
        return _decode_last_chunk(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # a ValidationError is one as well
        told = as_dict(parse_json_or_none(data))
    usage = _UsageMetadata(as_dict(told.get("usage")).get("service_tier"))
    fields = {name: told.get(name) for name in _LastChunk.__struct_fields__}
    return _LastChunk(**{**fields, "usage": usage})


class ReplyMetadataCollector:
    """Collector of the metadata in a chat completions response, such as cost, sources and log probabilities."""

    __slots__ = ("_calls", "_candidates", "_facts", "_filters", "_logprobs", "_model", "_sources", "cost_usd")

    def __init__(self, model: str) -> None:
        self._model = model
        self._facts: dict[str, Any] = {}
        self._logprobs: dict[str, list[Any]] = {}
        self._filters: list[Any] = []
        self._candidates: CandidateCollector | None = None
        self._calls: dict[int, ToolCallAccumulator] = {}
        self._sources: tuple[Any, Any] = (None, None)
        self.cost_usd: float | None = None
        """Cost reported outside of the usage."""

    def record_last_chunk(self, data: bytes) -> None:
        """Record the metadata in one of the last chunks of a stream, or in a whole response.

        It is parsed once more: typed fields would cost every chunk of a stream the time to decode them.
        """
        told = _parse_last_chunk(data)
        if told.provider and isinstance(told.provider, str):
            self._facts["served_by"] = told.provider
        if served := get_served_model(told.model, self._model):
            self._facts["served_model"] = served
        tier = told.service_tier or (told.usage.service_tier if told.usage is not None else None)
        if tier and isinstance(tier, str):
            self._facts["service_tier"] = tier
        if told.cost is not None:
            self.cost_usd = parse_cost(told.cost)
        if told.citations or told.search_results:
            self._sources = told.citations, told.search_results

    def record_choice(self, choice: ChatChoice) -> None:
        """Record the log probabilities and filter results that belong to a piece of the reply."""
        if choice.logprobs is not None:
            for name, tokens in as_dict(choice.logprobs).items():
                if tokens is not None:
                    self._logprobs.setdefault(name, []).extend(as_list(tokens))
        if choice.content_filter_results is not ABSENT:
            self.record_filters(choice.content_filter_results)

    def record_gateway(self, provider_metadata: Mapping[str, Any]) -> None:
        """Record the cost and the company that answered, from the metadata of Vercel's gateway."""
        gateway = as_dict(provider_metadata.get("gateway"))
        if gateway:
            self.cost_usd = parse_cost(gateway.get("cost"))
            self._facts |= drop_empty_fields(served_by=as_text(as_dict(gateway.get("routing")).get("finalProvider")))

    def add_candidate(self, choice: ChatChoice) -> None:
        """Add a piece of a choice other than the first."""
        index, piece = choice.index or 0, choice.delta or choice.message
        self._candidates = self._candidates or CandidateCollector()
        events: list[ModelEvent] = []
        if piece is not None:
            if thought := piece.reasoning_content or piece.reasoning or piece.thinking:
                events.append(ThinkingDelta(thought))
            if piece.content:
                events.append(TextDelta(piece.content))
            if piece.tool_calls:
                events += self._calls.setdefault(index, ToolCallAccumulator()).add_pieces(piece.tool_calls)
        self._candidates.add(index, events, choice.finish_reason)

    def list_sources(self, events: Sequence[ModelEvent]) -> list[Citation]:
        """Return the sources that are listed beside the reply, without those that its annotations cite."""
        if self._sources == (None, None):
            return []
        cited = {event.citation.source for event in events if type(event) is CitationAdded}
        return [each for each in parse_source_lists(*self._sources) if each.source not in cited]

    def build_metadata(self) -> dict[str, Any]:
        """Return the metadata of the message."""
        if not (self._facts or self._logprobs or self._filters or self._candidates):
            return {}
        candidates = self._candidates.build() if self._candidates else []
        collected = drop_empty_fields(logprobs=self._logprobs, candidates=candidates, guardrail_trace=self._filters)
        return {**self._facts, **collected}

    def record_filters(self, results: msgspec.Raw) -> None:
        """Record the results of content filters, unless they found nothing."""
        data = bytes(results)
        if _TRUE in data and has_content_filter_hit(found := parse_json_or_none(data)):
            self._filters.append(found)


_MAX_PLAUSIBLE_COUNT = 2**53
"""Upper bound of a plausible count."""
_CACHE_READ = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "num_cached_tokens", "cached_tokens")
_USUAL_COUNTS = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})
_THOUGHT = ("reasoning_tokens",)
_CACHE_WRITE = ("cache_creation_input_tokens", "cache_write_tokens")


def parse_usage(raw_usage: Mapping[str, Any]) -> Usage | None:
    """Parse the token counts in a response's usage object; `None` if it has neither input nor output tokens.

    If it has only one of them, the precision is `partial`.
    """
    read, written = (
        _get_first_count(raw_usage, "prompt_tokens", "input_tokens"),
        _get_first_count(raw_usage, "completion_tokens", "output_tokens"),
    )
    if read is None and written is None:
        return None
    precision: Precision = "partial" if read is None or written is None else "exact"
    read, written = read or 0, written or 0
    prompt, completion = (
        _get_object(raw_usage, "prompt_tokens_details"),
        _get_object(raw_usage, "completion_tokens_details"),
    )
    cached = stored = thought = 0
    if prompt or completion or not raw_usage.keys() <= _USUAL_COUNTS:
        cached = _get_first_count(prompt, "cached_tokens") or _get_first_count(raw_usage, *_CACHE_READ) or 0
        stored = _get_first_count(prompt, "cache_write_tokens") or _get_first_count(raw_usage, *_CACHE_WRITE) or 0
        thought = _get_first_count(completion, *_THOUGHT) or _get_first_count(raw_usage, *_THOUGHT) or 0
    total = _get_first_count(raw_usage, "total_tokens")
    if thought and total == read + written + thought:  # xAI does not include thinking in the output
        written += thought
    elif cached + stored and total == read + written + cached + stored:  # Anthropic does not count it as input
        read += cached + stored
    elif precision == "exact" and not thought and total is not None and total > read + written:
        thought = total - read - written  # Gemini counts its thinking in the total alone
        written += thought
    cached = min(cached, read)  # some providers report more than the input
    cost = parse_reported_cost(raw_usage)
    return Usage(read, written, cached, min(stored, read - cached), min(thought, written), precision, cost)


def _get_first_count(said: Mapping[str, Any], *names: str) -> int | None:
    """Return the value of the first of these fields that has a valid count."""
    for name in names:
        value = said.get(name)
        if isinstance(value, (int, float)) and 0 <= value < _MAX_PLAUSIBLE_COUNT:
            return int(value)
    return None


def _get_object(said: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = said.get(name)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
