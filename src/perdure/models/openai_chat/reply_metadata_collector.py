"""Collect the metadata of a chat completions response: service tier, log probabilities, cost, sources, other choices.

They are no content. Most become metadata of the message, under the names of `reply_metadata.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.event import CitationAdded, ModelEvent, TextDelta, ThinkingDelta
from perdure.core.message import Citation
from perdure.models.mistyped_json_fields import as_dict, as_list, as_text
from perdure.models.reply_candidate_collector import CandidateCollector
from perdure.models.reply_metadata import drop_empty_fields, get_served_model, has_content_filter_hit
from perdure.models.reported_cost import parse_cost

from .annotations import parse_source_lists
from .chunk_structs import ABSENT, ChatChoice, parse_json_or_none
from .tool_call_accumulator import ToolCallAccumulator

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
