"""What a replay runs with instead of the world: a clock and a store that know the record, and words that came to
nothing. Above: `tape.py`. Below: `check.py`, which compares.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from msgspec.structs import replace

from perdure.core import error as errors
from perdure.core.clock import Timer
from perdure.core.error import AllModelsFailed, ModelError
from perdure.core.event import (
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
from perdure.core.message import Text, Thinking, ToolCall
from perdure.core.store import Lease
from perdure.stores.memory import MemoryStore

from .check import Check


class RecordedClock:
    """Shows the time at which what happens now was recorded. Nobody waits by it."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._timers: dict[Timer, Callable[[], object]] = {}

    def now(self) -> float:
        """When this was recorded."""
        return self._check.at

    monotonic = now

    async def sleep(self, seconds: float) -> None:  # noqa: ARG002 - as of every clock
        """Let others run."""
        await asyncio.sleep(0)

    def call_later(self, seconds: float, action: Callable[[], object]) -> Timer:
        """Call `action` when that time has really passed, or the record says that it had."""
        timer = asyncio.get_running_loop().call_later(seconds, action)
        self._timers[timer] = action
        return timer

    def ring(self) -> None:
        """The time of everybody who waits is up."""
        timers, self._timers = self._timers, {}
        for timer, action in timers.items():
            if not timer.cancelled():  # type: ignore[attr-defined] # it is a timer of asyncio
                timer.cancel()
                action()


class ComparingStore(MemoryStore):
    """Takes what happens now, as long as it is what was recorded."""

    def __init__(self, check: Check) -> None:
        super().__init__()
        self._check = check

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Add entries that are as recorded; raises `Stopped` for others."""
        self.append_now(lease, entries, sync=sync)

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        """As `append`, at once."""
        for entry in entries:
            self._check.meet(entry.event)
        return super().append_now(lease, entries, sync=sync)

    async def hold(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Begin a session with what was recorded; the record answers, whichever model it was told to ask."""
        lease = await self.acquire(session_id)
        super().append_now(lease, [_without_model(entry) for entry in entries], sync=False)
        await self.release(lease)


def _without_model(entry: Entry) -> Entry:
    event = entry.event
    if not isinstance(event, SessionConfigured) or "model" not in event.changes:
        return entry
    changes = {name: value for name, value in event.changes.items() if name != "model"}
    return replace(entry, event=replace(event, changes=changes))


def deltas(discarded: ReplyDiscarded) -> list[ModelEvent]:
    """What had come of a reply."""
    told: list[ModelEvent] = []
    for place, part in enumerate(discarded.partial.parts if discarded.partial else ()):
        match part:
            case Text(text=text):
                told.append(TextDelta(text))
            case Thinking():
                told.append(ThinkingDelta(part.text, part.signature, part.data, part.details, place))
            case ToolCall():
                told.append(ToolCallDelta(part.call_id, part.name, part.arguments, part.signature, place))
            case _:
                continue
    if discarded.partial is not None and discarded.partial.usage is not None:
        told.append(UsageReported(discarded.partial.usage))
    return told


def begins_anew(discarded: ReplyDiscarded) -> ModelEvent:
    """What a model says that begins anew."""
    if discarded.reason == "FailedOver":
        return FailedOver("", "", "", "as recorded")
    return RetryScheduled(1, 1, 0.0, "", "as recorded")


def error_like(kind: str, text: str) -> ModelError:
    """An error like the one that ended the run."""
    known: Any = getattr(errors, kind, None)
    ours = isinstance(known, type) and issubclass(known, ModelError) and known is not AllModelsFailed
    made: type[ModelError] = cast("Any", known) if ours else type(kind, (ModelError,), {})
    return made(text)
