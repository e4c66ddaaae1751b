"""`RunStream`, a run as an async iterator of its events, and the merging of events for slow readers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, TypeVar

from perdure.core.error import UsageError
from perdure.core.event import (
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
from perdure.core.fanout import Subscription
from perdure.core.jsonable import error_message
from perdure.core.outcome import Outcome
from perdure.core.run import CancelMode

from .output import ANSWER_TOOL, Output
from .partial_json import PartialJsonParser

T = TypeVar("T")

MAX_MERGED_CHARACTERS = 64 * 1024
"""Length up to which queued deltas are merged."""


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
        *,
        subscribe: Callable[[], Subscription[Entry]],
        run_in_place_of: Callable[[str], str],
        output: Output[T] | None = None,
    ) -> None:
        self.run_id = run_id
        self._begin = begin
        self._stop = stop
        self._subscribe = subscribe
        self._run_in_place_of = run_in_place_of
        self._output = output
        self._task: asyncio.Future[Outcome[T]] | None = None
        self._is_iterated = False

    def __aiter__(self) -> AsyncIterator[Event]:
        if self._is_iterated:
            message = "this stream was read already: read a stored session's events again with session.watch()"
            raise UsageError(message)
        self._is_iterated = True
        return self._events()

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

    async def _events(self) -> AsyncIterator[Event]:
        subscription = self._subscribe()
        task = self._ensure_started()
        task.add_done_callback(lambda _: subscription.close())
        try:
            async for first in subscription:
                event = first.event
                while True:
                    run_id = event.run_id.partition("/")[0]  # the id of a child run begins with its parent's
                    if run_id == self.run_id or isinstance(event, (Lagged, WatcherDropped)):
                        yield event
                    elif run_id == self._run_in_place_of(self.run_id):
                        self.run_id = run_id  # this input had begun a run before, which is resumed
                        yield event
                    if not len(subscription):
                        break
                    event = subscription.get_nowait().event
            if task.done():
                task.result()  # raises an error that ended the run before it could be stored
        finally:
            subscription.close()


def merge_deltas(earlier: Entry, later: Entry) -> Entry | None:
    """Merge two adjacent pieces of the same text or call into one; return `None` if they cannot be merged."""
    one, two = earlier.event, later.event
    if type(one) is not type(two) or one.run_id != two.run_id or one.path != two.path:
        return None
    merged: Event
    if isinstance(one, TextDelta) and isinstance(two, TextDelta):
        if _is_too_long_to_merge(one.text):
            return None
        merged = TextDelta(one.text + two.text, run_id=one.run_id, path=one.path)
    elif isinstance(one, ThinkingDelta) and isinstance(two, ThinkingDelta):
        if (
            one.index != two.index
            or one.signature
            or one.data
            or two.signature
            or two.data
            or _is_too_long_to_merge(one.text)
        ):
            return None
        merged = ThinkingDelta(one.text + two.text, index=one.index, run_id=one.run_id, path=one.path)
    elif isinstance(one, ToolCallDelta) and isinstance(two, ToolCallDelta):
        if one.index != two.index or two.call_id not in {"", one.call_id} or _is_too_long_to_merge(one.arguments):
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


def _is_too_long_to_merge(text: str) -> bool:
    """Return True if a piece of text is too long to be merged with another."""
    return len(text) > MAX_MERGED_CHARACTERS


def build_lag_marker(lost_entry: Entry, marker: Entry | None) -> Entry:
    """Build the marker that reports to a slow watcher how many entries it missed."""
    before = marker.event if marker is not None else None
    missed = before.missed if isinstance(before, Lagged) else 0
    after = before.after if isinstance(before, Lagged) else None
    if after is None and lost_entry.seq:
        after = lost_entry.seq - 1
    return Entry(0, lost_entry.at, Lagged(missed + 1, after))


def build_watcher_dropped(name: str, error: BaseException) -> WatcherDropped:
    """Build the event that reports a watcher which was removed because it raised."""
    return WatcherDropped(name, f"{type(error).__name__}: {error_message(error)}")
