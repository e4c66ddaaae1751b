"""Substitutes for clock, store and model stream in a replay: they return what was recorded."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from msgspec.structs import replace

from perdure._core.log.store import Lease
from perdure._core.values import error as errors
from perdure._core.values.clock import Timer
from perdure._core.values.error import AllModelsFailed, ModelError
from perdure._core.values.event import (
    CitationAdded,
    Entry,
    FailedOver,
    ModelEvent,
    ReplyDiscarded,
    RetryScheduled,
    SessionConfigured,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReported,
)
from perdure._core.values.message import Citation, Message, Text, Thinking, ToolCall
from perdure._stores.memory import MemoryStore

from .comparison import LogComparer


class RecordedClock:
    """Clock of a replay: it shows the recorded time of the current event, and never waits."""

    def __init__(self, check: LogComparer) -> None:
        self._check = check
        self._timers: dict[Timer, Callable[[], object]] = {}

    def now(self) -> float:
        """Return the recorded time of the current event."""
        return self._check.at

    monotonic = now

    async def sleep(self, seconds: float) -> None:  # noqa: ARG002 - as of every clock
        """Return at once, after other tasks had a chance to run."""
        await asyncio.sleep(0)

    def call_later(self, seconds: float, action: Callable[[], object]) -> Timer:
        """Call `action` after `seconds` of real time, or when `fire_timers` is called."""
        timer = asyncio.get_running_loop().call_later(seconds, action)
        self._timers[timer] = action
        return timer

    def fire_timers(self) -> None:
        """Call the actions of all pending timers now, to repeat a recorded timeout."""
        timers, self._timers = self._timers, {}
        for timer, action in timers.items():
            if not timer.cancelled():  # type: ignore[attr-defined] # it is a timer of asyncio
                timer.cancel()
                action()


class ComparingStore(MemoryStore):
    """Store of a replay: it accepts entries that match the recorded log, and stops the replay at any other."""

    def __init__(self, check: LogComparer) -> None:
        super().__init__()
        self._check = check

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Append entries that match the log; raise `ReplayStopped` otherwise."""
        self.append_now(lease, entries, sync=sync)

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        """Append synchronously, with the same comparison as `append`."""
        for entry in entries:
            self._check.compare_event(entry.event)
        return super().append_now(lease, entries, sync=sync)

    async def load_entries(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Create a session from recorded entries, leaving out changes of the model."""
        lease = await self.acquire(session_id)
        super().append_now(lease, [_without_model(entry) for entry in entries], sync=False)
        await self.release(lease)


def _without_model(entry: Entry) -> Entry:
    event = entry.event
    if not isinstance(event, SessionConfigured) or "model" not in event.changes:
        return entry
    changes = {name: value for name, value in event.changes.items() if name != "model"}
    return replace(entry, event=replace(event, changes=changes))


def build_discarded_deltas(discarded: ReplyDiscarded) -> list[ModelEvent]:
    """Build the stream events of a recorded reply that was discarded by a retry or failover."""
    return [] if discarded.partial is None else build_reply_deltas(discarded.partial)


def build_reply_deltas(reply: Message) -> list[ModelEvent]:
    """Build the stream events by which a model would send this recorded reply."""
    told: list[ModelEvent] = []
    for place, part in enumerate(reply.parts):
        match part:
            case Text(text=text):
                told.append(TextDelta(text))
            case Thinking():
                told.append(
                    ThinkingDelta(part.text, part.signature, part.data, part.details, place, is_item=part.is_item)
                )
            case ToolCall():
                told.append(ToolCallDelta(part.call_id, part.name, part.arguments, part.signature, place))
            case Citation():
                told.append(CitationAdded(part))
            case _:
                continue
    if reply.usage is not None:
        told.append(UsageReported(reply.usage))
    return told


def build_retry_event(discarded: ReplyDiscarded) -> ModelEvent:
    """Build the stream event of a retry or failover, after which the reply so far is discarded."""
    if discarded.reason == "FailedOver":
        return FailedOver("", "", "", "as recorded")
    return RetryScheduled(1, 1, 0.0, "", "as recorded")


def build_recorded_error(kind: str, text: str) -> ModelError:
    """Build a `ModelError` of the recorded kind and text, so that the replayed run ends as the recorded one did."""
    known: Any = getattr(errors, kind, None)
    ours = isinstance(known, type) and issubclass(known, ModelError) and known is not AllModelsFailed
    made: type[ModelError] = cast("Any", known) if ours else type(kind, (ModelError,), {})
    return made(text)
