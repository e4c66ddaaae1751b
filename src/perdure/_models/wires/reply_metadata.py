"""Parse metadata that providers send with a reply: the served model, the cost, other candidates. No I/O."""

from collections.abc import Iterable, Mapping
from typing import Any

from perdure._core.model.protocol import assemble_reply
from perdure._core.values.event import ModelEvent, ReplyFinished
from perdure._core.values.message import is_cost

from .lenient_json import as_dict, as_list


class CandidateCollector:
    """Collects the stream events of alternative replies (candidates after the first), by candidate index."""

    __slots__ = ("_events", "_finish_reasons")

    def __init__(self) -> None:
        self._events: dict[int, list[ModelEvent]] = {}
        self._finish_reasons: dict[int, str] = {}

    def add(self, index: int, events: Iterable[ModelEvent], finish_reason: object = None) -> None:
        """Add a piece of the candidate with this index."""
        self._events.setdefault(index, []).extend(events)
        if finish_reason is not None:
            self._finish_reasons[index] = str(finish_reason)

    def build(self) -> list[dict[str, Any]]:
        """Return the candidates in the order of their indexes."""
        return [self._build_candidate(index) for index in sorted(self._events)]

    def _build_candidate(self, index: int) -> dict[str, Any]:
        message = assemble_reply(self._events[index], ReplyFinished())
        calls = [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls]
        candidate: dict[str, Any] = {"text": message.text}
        if calls:
            candidate["tool_calls"] = calls
        if index in self._finish_reasons:
            candidate["finish_reason"] = self._finish_reasons[index]
        return candidate


def drop_empty_fields(**fields: Any) -> dict[str, Any]:
    """Return the given keyword arguments without those that are None or empty."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def get_served_model(served: Any, requested: str) -> str:
    """Return the name of the model that answered, if it is not the requested one; else an empty string."""
    return served if isinstance(served, str) and served.rpartition("/")[2] != requested.rpartition("/")[2] else ""


def has_content_filter_hit(filters: Any) -> bool:
    """Return True if a provider's content filter results contain anything filtered, detected or blocked."""
    named = as_dict(filters).items()
    is_found = any((name in _FINDINGS and value is True) or has_content_filter_hit(value) for name, value in named)
    return is_found or any(map(has_content_filter_hit, as_list(filters)))


_FINDINGS = frozenset({"filtered", "detected", "blocked"})


_TICKS_PER_USD = 10**10
_TOTALS = ("total_cost", "usd")


def parse_reported_cost(usage: Mapping[str, Any]) -> float | None:
    """Return the cost that a usage object reports, in US dollars; `None` if it reports none.

    A request that is billed to a key of the user at another provider costs what that provider charges, as well.
    """
    ticks = usage.get("cost_in_usd_ticks")
    if is_cost(ticks) and ticks:  # 0 where another company serves the model, and bills it itself
        return float(ticks) / _TICKS_PER_USD
    cost = parse_cost(usage.get("cost"))
    if cost is not None and usage.get("is_byok") is True:
        return cost + (parse_cost(as_dict(usage.get("cost_details")).get("upstream_inference_cost")) or 0.0)
    return cost


def parse_cost(cost: Any) -> float | None:
    """Return a cost in US dollars from a number, a text or an object with a total; `None` for anything else."""
    if isinstance(cost, dict):
        cost = next((total for name in _TOTALS if (total := as_dict(cost).get(name)) is not None), None)
    if isinstance(cost, str):
        try:
            cost = float(cost)
        except ValueError:
            return None
    return float(cost) if is_cost(cost) else None
