"""A run as an async iterator: push in the core, pull at the edge. Above: callers. Below: `core/fanout.py`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .core.error import UsageError
from .core.event import (
    Entry,
    Event,
    Lagged,
    ReplyDiscarded,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    TurnStarted,
    WatcherDropped,
)
from .core.outcome import Outcome
from .core.plain import words_of
from .core.run import CancelMode
from .output import TOOL, Output
from .partial import PartialJson

if TYPE_CHECKING:
    from .session import Session

T = TypeVar("T")

MERGED_CHARACTERS = 64 * 1024
"""Deltas that wait are merged up to this length."""


_going: "set[asyncio.Future[Outcome[Any]]]" = set()
"""Runs that nobody may be looking at: the event loop alone would not keep them alive."""


class RunStream(Generic[T]):
    """The events of one run, and its outcome.

    The run begins when the iteration does, or when the outcome is asked for. It does not need to be watched to its end.
    """

    def __init__(
        self,
        session: "Session",
        run_id: str,
        begin: Callable[[], Awaitable[Outcome[T]]],
        stop: Callable[[CancelMode], bool],
        *,
        backpressure: bool,
        output: Output[T] | None = None,
    ) -> None:
        self.run_id = run_id
        self._session = session
        self._begin = begin
        self._stop = stop
        self._backpressure = backpressure
        self._output = output
        self._task: asyncio.Future[Outcome[T]] | None = None
        self._iterated = False

    def __aiter__(self) -> AsyncIterator[Event]:
        if self._iterated:
            message = "this stream has been read already: session.watch() tells a kept session's events again"
            raise UsageError(message)
        self._iterated = True
        return self._events()

    async def partials(self) -> AsyncIterator[Any]:
        """The output while it is being written: JSON values, each with more in it than the one before.

        They are not checked; `outcome().value` is. When a reply is thrown away, the next one begins anew.
        """
        if self._output is None:
            message = "this run was not asked for an output: give a type, as in stream(…, output=Plan)"
            raise UsageError(message)
        growing, taking = PartialJson(), False
        async for event in self:
            if event.path:
                continue  # what an agent says that works for this one
            match event:
                case TextDelta(text=text):
                    changed = growing.feed(text)
                case ToolCallDelta(name=name, arguments=arguments):
                    if name:
                        growing, taking = PartialJson(), name == TOOL
                    changed = taking and growing.feed(arguments)
                case TurnStarted() | ReplyDiscarded():
                    growing, taking, changed = PartialJson(), False, False
                case _:
                    changed = False
            if changed:
                yield self._output.unboxed(growing.value)

    async def outcome(self) -> Outcome[T]:
        """How the run ends. Waits for it; cancelling the waiting leaves the run alone."""
        return await asyncio.shield(self._started())

    async def cancel(self, mode: CancelMode = "now") -> bool:
        """Stop the run, also one that still waits for its turn. Says whether there was anything to stop."""
        return self._task is not None and not self._task.done() and self._stop(mode)

    def _started(self) -> "asyncio.Future[Outcome[T]]":
        if self._task is None:
            self._task = asyncio.ensure_future(self._begin())
            _going.add(self._task)
            self._task.add_done_callback(_going.discard)
        return self._task

    async def _events(self) -> AsyncIterator[Event]:
        subscription = self._session.subscribe(backpressure=self._backpressure)
        task = self._started()
        task.add_done_callback(lambda _: subscription.close())
        try:
            async for first in subscription:
                event = first.event
                while True:
                    run_id = event.run_id.partition("/")[0]  # of a run that carries out a call of another: after it
                    if run_id == self.run_id or isinstance(event, (Lagged, WatcherDropped)):
                        yield event
                    elif run_id == self._session.run_in_place_of(self.run_id):
                        self.run_id = run_id  # it had been asked for before, and goes on
                        yield event
                    if not len(subscription):
                        break
                    event = subscription.take().event
            if task.done():
                task.result()  # an error that ended it before it could be recorded is raised here
        finally:
            subscription.close()


def coalesce(earlier: Entry, later: Entry) -> Entry | None:
    """Two deltas of the same thing as one; anything else stays apart."""
    one, two = earlier.event, later.event
    if type(one) is not type(two) or one.run_id != two.run_id or one.path != two.path:
        return None
    merged: Event
    if isinstance(one, TextDelta) and isinstance(two, TextDelta):
        if _is_long(one.text):
            return None
        merged = TextDelta(one.text + two.text, run_id=one.run_id, path=one.path)
    elif isinstance(one, ThinkingDelta) and isinstance(two, ThinkingDelta):
        if one.index != two.index or one.signature or one.data or two.signature or two.data or _is_long(one.text):
            return None
        merged = ThinkingDelta(one.text + two.text, index=one.index, run_id=one.run_id, path=one.path)
    elif isinstance(one, ToolCallDelta) and isinstance(two, ToolCallDelta):
        if one.index != two.index or two.call_id not in {"", one.call_id} or _is_long(one.arguments):
            return None
        merged = ToolCallDelta(
            one.call_id,
            one.name + two.name,
            one.arguments + two.arguments,
            one.signature + two.signature,
            one.index,
            run_id=one.run_id,
            path=one.path,
        )
    else:
        return None
    return Entry(0, later.at, merged)


def _is_long(text: str) -> bool:
    return len(text) > MERGED_CHARACTERS


def lagged(lost: Entry, marker: Entry | None) -> Entry:
    """The marker that tells a watcher what it missed."""
    before = marker.event if marker is not None else None
    missed = before.missed if isinstance(before, Lagged) else 0
    after = before.after if isinstance(before, Lagged) else None
    if after is None and lost.seq:
        after = lost.seq - 1
    return Entry(0, lost.at, Lagged(missed + 1, after))


def watcher_dropped(name: str, error: BaseException) -> WatcherDropped:
    """What the other watchers are told about one that raised."""
    return WatcherDropped(name, f"{type(error).__name__}: {words_of(error)}")
