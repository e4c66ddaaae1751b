"""Watching: a `Fanout` passes each event to watchers (functions) and subscriptions (async iterators).

Each has a feed, a buffer of its own, so none delays the publisher or another one. In one that falls behind, deltas are
merged into larger ones; then it loses the oldest events, and `Lagged` says so. An async watcher is called in a task, a
plain function on a daemon thread, so that one that sleeps or writes to a blocked pipe delays neither the event loop nor
the end of the process. A watcher that raises is removed, and `WatcherDropped` tells the others. Only a subscription
with backpressure can slow the publisher, and only where the publisher waits for `wait_for_room`.

Everything here is for the thread of one event loop, except that a watcher may remove itself from the thread it runs on.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import inspect
import logging
import threading
import types
from collections.abc import Awaitable, Callable, Generator, Sequence
from time import perf_counter
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
from msgspec.structs import replace

from .buffer import Buffer, BufferStats, PushResult
from .values.clock import Clock
from .values.error import ConfigError
from .values.event import Entry, Lagged, TextDelta, ThinkingDelta, ToolCallDelta, WatcherDropped
from .values.event_class import Event
from .values.jsonable import error_message

Watcher: TypeAlias = Callable[[Entry], None] | Callable[[Entry], Awaitable[None]]
"""A function that is called with each event in order, one at a time. A watcher that raises is not called again."""

MAX_MERGED_CHARACTERS: Final = 64 * 1024
"""Length up to which queued deltas are merged."""

_EVENTS_PER_TURN: Final = 64
"""After this many events of an async watcher that never awaits, others run."""
_BLOCKING_SECONDS: Final = 0.05
"""An async watcher that keeps the event loop for longer than this in one step is made to rest."""
_REST_FACTOR: Final = 9
"""The rest of such a watcher, as a multiple of the time that it kept the event loop."""
_MAX_REST_SECONDS: Final = 10.0
_JOIN_SECONDS: Final = 1.0
"""The time to wait for a thread that has reported its end; it needs microseconds."""

_log = logging.getLogger("perdure")


class WatcherStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of the events that one watcher received, and its state."""

    name: str
    lagging: bool
    """True if waiting for it has timed out, and it has not caught up since."""
    events: BufferStats
    """The counters of the events that it was given."""


class Fanout:
    """Publisher that passes each event to all watchers and subscriptions."""

    def __init__(self, clock: Clock, *, capacity: int = 1024) -> None:
        """Make a publisher that has no watchers yet; `capacity` is the number of events that wait for each of them."""
        self.capacity = capacity
        self._clock = clock
        self.receivers: tuple[Subscription, ...] = ()
        """The subscriptions, and the feeds of the watchers. Replaced, never changed: publishers for which a call per
        event is too much iterate over it, and call `push` of each, while others are added and removed."""
        self.is_watched = False
        """True if there is a watcher or subscription."""
        self.has_backpressure = False
        """True if there is a subscription with backpressure: the publisher should `await wait_for_room()`."""
        self._closed = False

    def publish(self, entry: Entry) -> None:
        """Pass an event to all watchers and subscriptions, without waiting. No error of a watcher is raised.

        Raises `RuntimeError` without a running event loop if a watcher's task or thread would have to begin.
        """
        for receiver in self.receivers:
            receiver.push(entry)

    def add_watcher(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` with each event from now on; the returned function removes it.

        An async function is called in a task of its own, a plain one on its own thread; both start with the first
        event. A watcher that was removed is not called again; a call in progress is not cut short.
        """
        return self._add(_make_feed(watcher, self)).close

    def subscribe(self, *, backpressure: bool = False, owner: object = None) -> "Subscription":
        """Return an async iterator over the events from now on. Close it when done, above all one with backpressure.

        - `backpressure`: the publisher waits (where it calls `wait_for_room`) while as many events are unread as the
          capacity says. As many again are then buffered for publishers that are past that point.
        - `owner`: the object with which the subscription ends; see `close_subscriptions`.
        """
        return self._add(Subscription(self, owner, backpressure=backpressure))

    def close_subscriptions(self, owner: object) -> None:
        """Close the subscriptions of one owner; their buffered events can still be read."""
        for receiver in self.receivers:
            if receiver.owner is owner:
                receiver.close()

    async def wait_for_room(self) -> None:
        """Wait while a subscription with backpressure is full, until half of it has been read."""
        for receiver in self.receivers:
            await receiver.wait_for_room()

    @property
    def stats(self) -> tuple[WatcherStats, ...]:
        """The stats of each watcher, in the order in which they were added."""
        return tuple(WatcherStats(name=feed.name, lagging=feed.lagging, events=feed.stats) for feed in self._feeds)

    async def drain(self, timeout_seconds: float) -> None:
        """Wait until every watcher has handled the published events, at most this long.

        A watcher that is late is not waited for again before it has caught up. Subscriptions are not waited for.
        """
        for _ in range(2):  # once more, for the report of a watcher that was dropped meanwhile
            waited_for = {
                settled: feed
                for feed in self._feeds
                if not feed.lagging and (settled := feed.when_settled()) is not None
            }
            if not waited_for:
                return
            _, late = await asyncio.wait(waited_for, timeout=timeout_seconds)
            for settled in late:
                waited_for[settled].lagging = True

    async def aclose(self, timeout_seconds: float = 1.0) -> None:
        """Publish nothing more, wait at most this long until watchers have handled their events, then stop them.

        Subscriptions still deliver their buffered events, then end. A plain function that does not return is left
        behind on its thread, which does not keep the process from ending.
        """
        self._closed = True
        for receiver in self.receivers:
            if not isinstance(receiver, _WatcherFeed):
                receiver.close()
        try:
            await self.drain(timeout_seconds)
        finally:
            ends = [end for feed in self._feeds if (end := feed.stop()) is not None]
            self._set_receivers(())
        if ends:
            await asyncio.wait(ends, timeout=timeout_seconds)

    def forget(self, receiver: "Subscription") -> None:
        """Pass no more events to a receiver that has ended."""
        self._set_receivers([other for other in self.receivers if other is not receiver])

    def report_dropped(self, name: str, error: BaseException) -> None:
        """Log that a watcher has raised and was removed, and tell the others."""
        _log.error("the watcher %r raised %r and gets no more events", name, error, exc_info=error)
        dropped = WatcherDropped(name, f"{type(error).__name__}: {error_message(error)}")
        self.publish(Entry(0, self._clock.now(), dropped))

    @property
    def _feeds(self) -> "list[_WatcherFeed]":
        return [each for each in self.receivers if isinstance(each, _WatcherFeed)]

    def _add(self, receiver: "S") -> "S":
        if self._closed:
            receiver.close()
        else:
            self._set_receivers([*self.receivers, receiver])
        return receiver

    def _set_receivers(self, receivers: "Sequence[Subscription]") -> None:
        self.receivers = tuple(receivers)
        self.is_watched = bool(receivers)
        self.has_backpressure = any(each.has_backpressure for each in receivers)


class Subscription(Buffer[Entry]):
    """Async iterator over the events published since it was made: a buffer of them. `close` it when done."""

    def __init__(self, fanout: Fanout, owner: object = None, *, backpressure: bool = False) -> None:
        capacity = fanout.capacity * 2 if backpressure else fanout.capacity
        super().__init__(capacity, "coalesce", coalesce=merge_deltas, lagged=_build_lag_marker)
        self.owner = owner
        self.has_backpressure = backpressure
        self._fanout = fanout

    def close(self) -> None:
        """Accept no more events; those in the buffer can still be read, then iteration ends."""
        super().close()
        self._forget()

    def _forget(self) -> None:
        self._fanout.forget(self)

    async def wait_for_room(self) -> None:
        """Wait, if as many events are unread as the capacity says, until half of them have been read."""
        if self.has_backpressure and len(self) >= self._fanout.capacity:
            await self._writers.wait_until(lambda: self.closed or len(self) <= self._fanout.capacity // 2)


S = TypeVar("S", bound=Subscription)


class _WatcherFeed(Subscription):
    """The events that wait for a watcher, which is called with them by a subclass."""

    _runner: Any = None
    """The task or thread that calls the watcher, while there is one."""

    def __init__(self, fanout: Fanout, name: str, watcher: Callable[[Entry], Any]) -> None:
        super().__init__(fanout)
        self.name = name
        self.lagging = False
        """True if waiting for it has timed out; until it catches up, it is not waited for again."""
        self._watcher = watcher
        self._reader_waits = True
        # The watcher runs in the context in which it was added, not in that of the first publisher.
        self._context = contextvars.copy_context()

    def _forget(self) -> None:
        if self._runner is None:  # else when the watcher has returned from its last call
            super()._forget()

    def stop(self) -> "asyncio.Future[Any] | None":
        """Close it, and cancel the watcher's current call if possible. Return what to wait for, if anything."""
        if unhandled := len(self):
            _log.warning("the watcher %r was still busy at the end: it missed %d events", self.name, unhandled)
        self.close()
        return None

    def when_settled(self) -> "asyncio.Future[Any] | None":
        """Return a future that is done when all pushed events have been handled; None if they have been already."""
        return None

    def _end(self, error: BaseException | None) -> None:
        """Go out of use, as the watcher was called for the last time."""
        self._runner = None
        self.close()
        if error is not None:
            self._fanout.report_dropped(self.name, error)


class _CollectorFeed(_WatcherFeed):
    """Feed that calls a watcher at once, without a task or thread, as it only collects events: a tracer does.

    Such a watcher has a method `collect_event(event)`, which is called instead of it, and has to return within
    microseconds. It costs a fraction of any other watcher, and gets each event in the order of all else that it sees.
    """

    def push(self, item: Entry) -> PushResult:
        if self.closed:
            return "closed"
        self._pushed += 1
        try:
            self._watcher(item)
        except Exception as error:  # noqa: BLE001 - an error of a watcher must not reach the publisher
            self._end(error)
        return "kept"


@types.coroutine
def _measure_longest_step(awaitable: Awaitable[None]) -> Generator[Any, Any, float]:
    """Await the awaitable, and return the longest time in seconds that it ran without yielding to the event loop."""
    steps = _wrap_awaitable(awaitable)
    longest = 0.0
    resume: Callable[[], Any] = functools.partial(steps.send, None)
    while True:
        began = perf_counter()
        try:
            waited_for = resume()
        except StopIteration:
            return max(longest, perf_counter() - began)
        longest = max(longest, perf_counter() - began)
        try:
            resume = functools.partial(steps.send, (yield waited_for))
        except BaseException as error:  # noqa: BLE001 - a cancel, for the watcher to handle
            resume = functools.partial(steps.throw, error)


class _TaskFeed(_WatcherFeed):
    """Feed that calls an async watcher in a task, which begins when there are events and ends when there are none."""

    _runner: "asyncio.Task[BaseException | None] | None" = None
    _is_timed = False
    """True once a call has taken long; only then is it measured whether it blocks the event loop."""
    _has_blocked = False

    def stop(self) -> "asyncio.Future[Any] | None":
        super().stop()
        if (task := self.when_settled()) is not None:
            task.cancel()
        return task

    def when_settled(self) -> "asyncio.Future[Any] | None":
        return None if self._runner is asyncio.current_task() else self._runner  # a watcher cannot wait for itself

    def _wake_reader(self) -> None:
        """Begin the task, for the first event since the last one ended."""
        if not self.closed:
            loop = asyncio.get_running_loop()  # raises if there is none, before anything has changed
            self._reader_waits = False
            # not `loop.create_task`, which may be told to call the watcher at once, inside of the publisher
            self._runner = asyncio.Task(
                self._run(), loop=loop, name=f"perdure watcher {self.name}", context=self._context
            )
            self._runner.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: "asyncio.Task[BaseException | None]") -> None:
        is_cut_short = task.cancelled() or task.exception() is not None
        error = None if is_cut_short else task.result()
        self._runner = None
        self.lagging = False
        self._reader_waits = True
        if error is not None or self.closed:
            self._end(error)
        elif len(self) and not is_cut_short:  # else the event loop may be about to end: the next event tries again
            self._wake_reader()

    async def _run(self) -> BaseException | None:
        """Call the watcher with each event until there is none; return the error that it raised, if it did."""
        try:
            await self._handle_events()
        except (GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # an error of a watcher must not reach others
            task = cast("asyncio.Task[Any]", asyncio.current_task())
            if isinstance(error, asyncio.CancelledError) and task.cancelling():
                raise  # else the watcher raised it by itself
            return error
        return None

    async def _handle_events(self) -> None:
        handled, began = 0, perf_counter()
        items, watcher, is_timed = self._items, self._watcher, self._is_timed
        while items and not self._closed:
            entry = self._take()
            if is_timed:
                await self._call_timed(entry)
            else:
                await watcher(entry)
                ended = perf_counter()
                if ended - began > _BLOCKING_SECONDS:
                    self._is_timed = is_timed = True
                began = ended
            handled += 1
            if not handled % _EVENTS_PER_TURN:
                await asyncio.sleep(0)
                began = perf_counter()

    async def _call_timed(self, entry: Entry) -> None:
        """Call the watcher; pause afterwards if it blocked the event loop."""
        blocked = await _measure_longest_step(self._watcher(entry))
        if blocked <= _BLOCKING_SECONDS:
            return
        if not self._has_blocked:
            self._has_blocked = True
            _log.warning(
                "the async watcher %r kept the event loop for %.0f ms, and is called less often for it: "
                "make it await, or make it a plain function, which gets a thread",
                self.name,
                blocked * 1000,
            )
        await asyncio.sleep(min(blocked * _REST_FACTOR, _MAX_REST_SECONDS))


class _ThreadFeed(_WatcherFeed):
    """Feed that calls a plain function on a thread of its own. `_lock` protects what the event loop uses, too."""

    _runner: "threading.Thread | None" = None
    _loop: asyncio.AbstractEventLoop
    _settled: "asyncio.Future[None] | None" = None
    _awaiting: "concurrent.futures.Future[None] | None" = None
    """The call in progress, if its result is awaited on the event loop."""
    _is_stopped = False

    def __init__(self, fanout: Fanout, name: str, watcher: Callable[[Entry], Any]) -> None:
        super().__init__(fanout, name, watcher)
        # Reentrant, because a signal handler may publish while its own thread is publishing.
        self._lock = threading.RLock()
        self._wake = threading.Lock()  # released only between waking the thread and its going on
        self._wake.acquire()

    def push(self, item: Entry) -> PushResult:
        with self._lock:
            return super().push(item)

    def close(self) -> None:  # also called by the watcher, on its thread
        with self._lock:
            super().close()

    def stop(self) -> "asyncio.Future[Any] | None":
        is_abandoned = self.lagging and self._awaiting is None
        super().stop()
        self._is_stopped = True
        if (awaiting := self._awaiting) is not None:  # read once here: a later one is cancelled in `_await`
            awaiting.cancel()
        return None if is_abandoned else self.when_settled()

    def when_settled(self) -> "asyncio.Future[Any] | None":
        with self._lock:
            if self._reader_waits or self._runner is None:
                return None
            self._settled = self._settled or self._loop.create_future()
            return self._settled

    def _settle(self) -> None:
        """Tell those who wait that the thread has nothing to do."""
        self.lagging = False
        if self._settled is not None:
            self._settled.set_result(None)
            self._settled = None

    def _settle_if_idle(self) -> None:
        """Do so, unless an event has come since the thread said that it has nothing to do."""
        if self._reader_waits:
            self._settle()

    def _wake_reader(self) -> None:
        """Wake the thread; start it, for the first event."""
        if self._runner is not None:
            self._reader_waits = False
            self._wake.release()
        elif not self.closed:
            self._start_thread()

    def _start_thread(self) -> None:
        self._loop = asyncio.get_running_loop()  # raises if there is none, before anything has changed
        self._reader_waits = False
        name = f"perdure watcher {self.name}"
        thread = threading.Thread(target=self._context.run, args=(self._run,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system cannot start another thread
            self._end(error)
        else:
            self._runner = thread

    def _finish(self, error: BaseException | None) -> None:
        cast("threading.Thread", self._runner).join(_JOIN_SECONDS)
        self._settle()
        self._end(error)

    def _run(self) -> None:
        """Call the watcher with each event, on the thread, as the methods below are."""
        error: BaseException | None = None
        try:
            while (entry := self._wait_for_event()) is not None:
                result = self._watcher(entry)
                if result is not None and inspect.isawaitable(result):
                    self._await(result)
        except BaseException as raised:  # noqa: BLE001 - an error of a watcher must not reach others
            if not (self._is_stopped and isinstance(raised, concurrent.futures.CancelledError)):
                error = raised
        self._call_on_loop(self._finish, error)

    def _wait_for_event(self) -> Entry | None:
        """Return the next event when there is one, or None when the watcher was removed."""
        while True:
            with self._lock:
                if self._closed:
                    return None
                if self._items:
                    return self._take()
                self._reader_waits = True
                if self._settled is not None:
                    self._call_on_loop(self._settle_if_idle)
            self._wake.acquire()

    def _await(self, awaitable: Awaitable[object]) -> None:
        """Await the awaitable that a plain function returned, such as a lambda around an async call."""
        self._awaiting = awaiting = asyncio.run_coroutine_threadsafe(_wrap_awaitable(awaitable), self._loop)
        if self._is_stopped:  # before `_awaiting` was set
            awaiting.cancel()
        try:
            awaiting.result()
        finally:
            self._awaiting = None

    def _call_on_loop(self, report: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(report, *args)


def _make_feed(watcher: Watcher, fanout: Fanout) -> _WatcherFeed:
    """Make the feed that calls a watcher: directly if it only collects events, else in a task or on a thread."""
    if not callable(watcher):
        raise ConfigError(f"a watcher is {watcher!r}; give a function that takes an event")
    name = str(getattr(watcher, "__qualname__", type(watcher).__qualname__))
    if callable(collect := getattr(watcher, "collect_event", None)):
        return _CollectorFeed(fanout, name, collect)
    is_async = inspect.iscoroutinefunction(watcher) or inspect.iscoroutinefunction(type(watcher).__call__)
    return (_TaskFeed if is_async else _ThreadFeed)(fanout, name, watcher)


async def _wrap_awaitable(awaitable: Awaitable[Any]) -> None:
    await awaitable


def merge_deltas(earlier: Entry, later: Entry) -> Entry | None:
    """Merge two consecutive stream events of the same text or tool call into one; `None` if they cannot be merged."""
    one, two = earlier.event, later.event
    merged: Event
    if type(one) is not type(two) or one.run_id != two.run_id or one.path != two.path:
        return None
    if isinstance(one, TextDelta) and isinstance(two, TextDelta):
        text, merged = one.text, replace(one, text=one.text + two.text)
    elif isinstance(one, ThinkingDelta) and isinstance(two, ThinkingDelta):
        if one.index != two.index or any(each.signature or each.data or each.details for each in (one, two)):
            return None
        text, merged = one.text, replace(one, text=one.text + two.text)
    elif isinstance(one, ToolCallDelta) and isinstance(two, ToolCallDelta):
        if one.index != two.index or two.call_id not in {"", one.call_id}:
            return None
        text, name, signature = one.arguments, one.name + two.name, one.signature + two.signature
        merged = replace(one, name=name, arguments=text + two.arguments, signature=signature)
    else:
        return None
    return Entry(0, later.at, merged) if len(text) <= MAX_MERGED_CHARACTERS else None


def _build_lag_marker(lost: Entry, marker: Entry | None) -> Entry:
    """Build the event that tells a slow watcher how many events it missed."""
    before = cast("Lagged", marker.event) if marker is not None else Lagged(0)
    after = lost.seq - 1 if before.after is None and lost.seq else before.after
    return Entry(0, lost.at, Lagged(before.missed + 1, after))
