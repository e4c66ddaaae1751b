"""`RunStream`, a run as an async iterator of its events, and the merging of events for slow readers."""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from perdure._core.run.outcome import Outcome
from perdure._core.run.spec import CancelMode
from perdure._core.values.error import UsageError
from perdure._core.values.event import (
    Entry,
    Lagged,
    ReplyDiscarded,
    SessionOpened,
    TextDelta,
    ToolCallDelta,
    TurnStarted,
    WatcherDropped,
)
from perdure._core.values.event_class import Event
from perdure._core.watch import Subscription
from perdure._runtime.agent.output import ANSWER_TOOL, Output
from perdure._runtime.agent.partial_json import PartialJsonParser

if TYPE_CHECKING:  # a protocol costs time at each start

    class StreamSource(Protocol):
        """Protocol of the session that a `RunStream` reads its events from."""

        def subscribe(self, *, backpressure: bool = False) -> Subscription:
            """Subscribe to the events of the session from now on."""
            ...

        def find_resumed_run(self, run_id: str) -> str:
            """Return the id of the run that was resumed instead of starting run `run_id`; empty if there is none."""
            ...

        def find_run_of_input(self, input_id: str) -> str:
            """Return the id of the run in progress that answers the prompt with this `input_id`; empty if none does."""
            ...

        async def read_run(self, run_id: str) -> Sequence[Entry]:
            """Return the stored entries of one run."""
            ...


if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    T = TypeVarWithDefault("T", default=Any)
else:
    T = TypeVar("T")

_ABOUT_READERS = (Lagged, WatcherDropped)
"""The events that concern all who follow a session, whichever run it has."""

_running_tasks: "set[asyncio.Future[Outcome[Any]]]" = set()
"""Runs started by a stream, kept alive here: the event loop has only weak references to tasks."""


class RunStream(Generic[T]):
    """The events of one run as an async iterator, and its outcome.

    The run begins when the iteration does, or when the outcome is awaited. The stream need not be read to its end.
    """

    def __init__(
        self,
        run_id: str,
        begin: Callable[[], Awaitable[Outcome[T]]],
        stop: Callable[[CancelMode], bool],
        source: "StreamSource",
        *,
        backpressure: bool = False,
        input_id: str = "",
        output: Output[T] | None = None,
    ) -> None:
        self._requested_run_id = run_id
        self.run_id = run_id
        """The id of the run. If an earlier run is continued or shown, its id, once the first event was read."""
        self._begin = begin
        self._stop = stop
        self._source = source
        self._backpressure = backpressure
        self._input_id = input_id
        self._output = output
        self._task: asyncio.Future[Outcome[T]] | None = None
        self._is_iterated = False
        self._has_begun = False
        """True once an event of the run was yielded."""
        self._last_stored_seq = 0
        """The number of the last entry that was read from the log, and not received as it happened."""
        self._lost_after: int | None = None
        """The number of the last stored entry before some that this reader was too slow for; `None` if it has all."""

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._iterate(with_numbers=False)

    def entries(self) -> AsyncGenerator[Entry]:
        """Iterate over the entries of the run: each event with its number in the log, which is 0 if it is not stored.

        A reader that is too slow misses deltas (`Lagged` counts them), but no stored entry: those are read from
        the log.

        `session.watch(after=entry.seq)` continues after an entry, as for a reader who comes back.
        """
        return self._iterate(with_numbers=True)

    async def partials(self) -> AsyncIterator[Any]:
        """Yield the structured output while it is being written: JSON values, each more complete than the one before.

        They are not validated; `outcome().value` is. After a reply is discarded, the next one starts from nothing.
        """
        if self._output is None:
            message = "this run has no output type: give one, as in stream(…, output=Plan)"
            raise UsageError(message)
        parser, in_output_tool = PartialJsonParser(), False
        async for event in self:
            if event.path:
                continue  # an event of a subagent
            match event:
                case TextDelta(text=text):
                    changed = parser.feed(text)
                case ToolCallDelta(name=name, arguments=arguments):
                    if name:
                        parser, in_output_tool = PartialJsonParser(), name == ANSWER_TOOL
                    changed = in_output_tool and parser.feed(arguments)
                case TurnStarted() | ReplyDiscarded():
                    parser, in_output_tool, changed = PartialJsonParser(), False, False
                case _:
                    changed = False
            if changed:
                yield self._output.unbox_partial_answer(parser.value)

    async def outcome(self) -> Outcome[T]:
        """Wait for the end of the run and return its outcome. Cancelling this call does not cancel the run."""
        return await asyncio.shield(self._ensure_started())

    async def cancel(self, mode: CancelMode = "now") -> bool:
        """Stop the run, also one that is still queued. Return True if there was a run to stop."""
        return self._task is not None and not self._task.done() and self._stop(mode)

    def _ensure_started(self) -> "asyncio.Future[Outcome[T]]":
        """Return the task of the run; start it if it was not started."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._begin())
            _running_tasks.add(self._task)
            self._task.add_done_callback(_running_tasks.discard)
        return self._task

    def _iterate(self, *, with_numbers: bool) -> AsyncGenerator[Any]:
        if self._is_iterated:
            message = "this stream was read already: read a stored session's events again with session.watch()"
            raise UsageError(message)
        self._is_iterated = True
        return self._follow_run(with_numbers=with_numbers)

    async def _follow_run(self, *, with_numbers: bool) -> AsyncGenerator[Any]:
        """Start the run, and yield its entries; without numbers, only their events."""
        subscription = self._source.subscribe(backpressure=self._backpressure)
        answering = self._source.find_run_of_input(self._input_id) if self._task is None else ""
        task = self._ensure_started()
        task.add_done_callback(lambda _: subscription.close())
        try:
            if answering:  # the same prompt is being answered already: its events so far, then those to come
                for stored in await self._read_earlier_entries(answering):
                    yield stored if with_numbers else stored.event
            async for first in subscription:
                entry = first
                while True:
                    event = entry.event
                    is_ours = event.run_id == self.run_id or self._is_in_run(event)
                    if is_ours and (not self._has_begun or self._lost_after is not None):
                        for stored in await self._read_entries_before(entry):
                            yield stored if with_numbers else stored.event
                    elif isinstance(event, Lagged) and self._lost_after is None:
                        self._lost_after = event.after
                    if not 0 < entry.seq <= self._last_stored_seq if is_ours else isinstance(event, _ABOUT_READERS):
                        yield entry if with_numbers else event
                    if not len(subscription):
                        break
                    entry = subscription.get_nowait()
            for stored in [*await self._read_lost_entries(math.inf), *await self._read_answered_run(task)]:
                yield stored if with_numbers else stored.event
        finally:
            subscription.close()

    async def _read_earlier_entries(self, run_id: str, upto: float = math.inf) -> Sequence[Entry]:
        """Return the stored entries of a run that this stream did not begin, up to a number; it shows that run now."""
        self.run_id, self._has_begun = run_id, True
        found = [entry for entry in await self._source.read_run(run_id) if entry.seq <= upto]
        self._last_stored_seq = found[-1].seq if found else 0
        return found

    async def _read_answered_run(self, task: "asyncio.Future[Outcome[T]]") -> Sequence[Entry]:
        """Return the entries of the run that has answered the same prompt before; none if this stream's run did."""
        if not task.done():
            return ()
        run_id = task.result().run_id  # raises an error that ended the run before it could be stored
        is_shown = self._has_begun or run_id in {"", self.run_id}
        return () if is_shown else await self._read_earlier_entries(run_id)

    async def _read_entries_before(self, entry: Entry) -> Sequence[Entry]:
        """Return the entries that a run stored before this one, the first that the stream gets of it.

        There are some if the prompt was sent before, and its run is resumed. Later, return the entries that this reader
        was too slow for, once a stored one arrives.
        """
        is_first, self._has_begun = not self._has_begun, True
        if is_first and self._input_id and self.run_id != self._requested_run_id:
            self._lost_after = None
            event = entry.event
            head = event.entries if isinstance(event, SessionOpened) else entry.seq - 1
            return await self._read_earlier_entries(self.run_id, head if head >= 0 else math.inf)
        return await self._read_lost_entries(entry.seq) if entry.seq else ()

    async def _read_lost_entries(self, before: float) -> Sequence[Entry]:
        """Return the stored entries of the run, up to a number, that were dropped because this reader was too slow."""
        if (after := self._lost_after) is None:
            return ()
        self._lost_after = None
        after = max(after, self._last_stored_seq)
        return [entry for entry in await self._source.read_run(self.run_id) if after < entry.seq < before]

    def _is_in_run(self, event: Event) -> bool:
        """Return True if an event belongs to the run of this stream, or to a subagent of it."""
        run_id = event.run_id.partition("/")[0]  # the id of a child run begins with its parent's
        if run_id == self.run_id:
            return True
        if not run_id or run_id != self._source.find_resumed_run(self._requested_run_id):
            return False
        self.run_id = run_id  # a run that was interrupted is resumed in place of a new one
        return True
