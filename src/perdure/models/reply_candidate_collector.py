"""Collect the alternative replies in a provider's response (all candidates but the first). No I/O.

They become metadata of the message: each as a dict with its `text`, its `tool_calls` and the `finish_reason`.
"""

from collections.abc import Iterable
from typing import Any

from perdure.core.event import ModelEvent, ReplyFinished
from perdure.core.model import assemble_reply


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
