"""Delivery of events to one watcher (a function that receives events), in a separate task or thread.

An async watcher gets a task; a plain function gets a daemon thread, so that one that sleeps or writes to a blocked pipe
delays neither the event loop nor the end of the process. An async watcher that blocks the event loop gets a tenth of
its time at most: after each such call it rests, and misses events if it falls too far behind. A watcher that only
collects events, such as a tracer, is called at once instead: see `DirectWatcherFeed`.
"""

import asyncio
import concurrent.futures
import contextvars
import functools
import inspect
import logging
import threading
import types
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterator
from time import perf_counter
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from .bounded_buffer import Buffer, BufferStats
from .error import ConfigError

T = TypeVar("T")

Watcher: TypeAlias = Callable[[T], None] | Callable[[T], Awaitable[None]]
"""A function that is called with each event in order, one at a time. A watcher that raises is not called again."""

_log = logging.getLogger("perdure")

_EVENTS_PER_TURN: Final = 64
"""An async watcher that never awaits would occupy the event loop until its buffer is empty; after this many events,
others run.
"""

_BLOCKING_SECONDS: Final = 0.05
"""An async watcher that keeps the event loop for longer than this in one step is made to rest."""
_REST_FACTOR: Final = 9
"""The rest of such a watcher, as a multiple of the time that it kept the event loop."""
_MAX_REST_SECONDS: Final = 10.0

_JOIN_SECONDS: Final = 1.0
"""The time to wait for a thread that has reported its end; it needs microseconds."""


class WatcherFeed(ABC, Generic[T]):
    """Abstract base class of feeds, which deliver events to one watcher: in a task, on a thread, or directly.

    Use it on the event loop's thread, unless a method says otherwise.
    """

    push: Callable[[T], object]
    """Queues an event for the watcher, and starts its task or thread at the first one. Never waits, never raises.

    It may be an attribute: that of a feed whose task runs is the method of its buffer, which saves a call.
    """

    def __init__(self, name: str, buffer: Buffer[T], ended: "FeedEnded[T]") -> None:
        self.name = name
        self.lagging = False
        """True if waiting for it has timed out; until it catches up, it is not waited for again."""
        self._buffer = buffer
        self._ended = ended
        self._retired = False
        self._settled: asyncio.Future[None] | None = None
        # The watcher runs in the context in which it was added, not in that of the first publisher.
        self._context = contextvars.copy_context()

    @abstractmethod
    def retire(self) -> None:
        """Make the watcher's current call the last one. The watcher itself may call this, on its own thread."""

    @abstractmethod
    def stop(self) -> asyncio.Future[None] | None:
        """Stop the watcher, cancelling its current call if possible. Returns a future of its end, or None if not
        needed.
        """

    @abstractmethod
    def when_settled(self) -> asyncio.Future[None] | None:
        """Return a future that is done when all pushed events have been handled; None if they have been already."""

    @property
    def stats(self) -> BufferStats:
        """The counters of the events pushed so far."""
        return self._buffer.stats

    def _settled_future(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        if self._settled is None or self._settled.get_loop() is not loop:
            self._settled = loop.create_future()
        return self._settled

    def _mark_settled(self) -> None:
        self.lagging = False
        if self._settled is not None:
            self._settled.set_result(None)
            self._settled = None

    def _log_failure(self, error: BaseException) -> None:
        _log.error("the watcher %r raised %r and gets no more events", self.name, error, exc_info=error)


FeedEnded: TypeAlias = Callable[[WatcherFeed[T], BaseException | None], None]
"""Callback for the event loop when a feed has called its watcher for the last time, with the error if that was the
reason.
"""


class AsyncWatcherFeed(WatcherFeed[T]):
    """Feed that calls an async watcher with each event, in an asyncio task of its own."""

    def __init__(
        self, name: str, watcher: Callable[[T], Awaitable[None]], buffer: Buffer[T], ended: FeedEnded[T]
    ) -> None:
        super().__init__(name, buffer, ended)
        self.push = self._start
        self._watcher = watcher
        self._task: asyncio.Task[None] | None = None
        self._handling = False
        self._is_timed = False
        """True once a call has taken long; only then is it measured whether it blocks the event loop."""
        self._has_blocked = False

    def _start(self, event: T) -> None:
        """Start the task for the first event, and for the first one after the task was cancelled from outside, as at
        the end of its event loop.
        """
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(), name=f"perdure watcher {self.name}", context=self._context)
        self.push = self._buffer.push
        self.push(event)

    def retire(self) -> None:
        self._retired = True
        self.push = self._buffer.push  # which refuses events from now on
        self._buffer.close()
        if self._task is None:
            self._ended(self, None)

    def stop(self) -> asyncio.Future[None] | None:
        self.retire()
        if self._task is None or self._task is asyncio.current_task():
            return None
        if self._handling:  # else it waits for an event, and ends with the next turn of the event loop
            self._task.cancel()
        return self._task

    def when_settled(self) -> asyncio.Future[None] | None:
        idle = not self._handling and not len(self._buffer)
        if idle or self._task is None or self._task is asyncio.current_task():  # a watcher cannot wait for itself
            return None
        return self._settled_future()

    async def _run(self) -> None:
        error: BaseException | None = None
        try:
            await self._watch()
        except (GeneratorExit, KeyboardInterrupt):
            raise
        except asyncio.CancelledError as cancelled:
            if cast("asyncio.Task[None]", asyncio.current_task()).cancelling():
                raise
            error = cancelled  # this task was not cancelled: the watcher raised it by itself
        except BaseException as raised:  # noqa: BLE001 - an error of a watcher must not reach others
            error = raised
        finally:
            self._task = None
            self._handling = False
            self._mark_settled()
            if error is not None:
                self._retired = True
                self._log_failure(error)
            if self._retired:
                self._ended(self, error)
            else:
                self.push = self._start

    async def _watch(self) -> None:
        handled = 0
        buffer, watcher, is_timed = self._buffer, self._watcher, self._is_timed
        async for first in buffer:
            event = first
            self._handling = True
            began = perf_counter()
            while not self._retired:
                if is_timed:
                    await self._call_timed(event)
                else:
                    await watcher(event)
                    ended = perf_counter()
                    if ended - began > _BLOCKING_SECONDS:
                        self._is_timed = is_timed = True
                    began = ended
                handled += 1
                if not handled % _EVENTS_PER_TURN:
                    await asyncio.sleep(0)
                    began = perf_counter()
                if buffer.is_empty:
                    break
                event = buffer.get_nowait()
            self._handling = False
            if self._retired:
                return
            self._mark_settled()

    async def _call_timed(self, event: T) -> None:
        """Call the watcher; pause afterwards if it blocked the event loop."""
        blocked = await _measure_longest_step(self._watcher(event))
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


class ThreadWatcherFeed(WatcherFeed[T]):
    """Passes events to a watcher that is a plain function, on a thread of its own.

    `_lock` protects state shared with the event loop.
    """

    def __init__(self, name: str, watcher: Callable[[T], object], buffer: Buffer[T], ended: FeedEnded[T]) -> None:
        super().__init__(name, buffer, ended)
        self._watcher = watcher
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Reentrant, because a signal handler may publish while its own thread is publishing.
        self._lock = threading.RLock()
        self._asleep = False
        self._wake = threading.Lock()  # released only between waking the thread and its going on
        self._wake.acquire()
        self._awaiting: concurrent.futures.Future[None] | None = None

    def push(self, event: T) -> None:
        if self._thread is None and not self._retired:
            self._start()
        with self._lock:
            self._buffer.push(event)
            self._wake_thread()

    def retire(self) -> None:
        with self._lock:
            self._retired = True
            self._wake_thread()
        if self._thread is None:
            self._ended(self, None)

    def stop(self) -> asyncio.Future[None] | None:
        abandoned = self._thread is None or (self.lagging and self._awaiting is None)
        end = None if abandoned else self._settled_future()
        self.retire()
        if (
            awaiting := self._awaiting
        ) is not None:  # read once here: one that is awaited later is cancelled in `_await`
            awaiting.cancel()
        return end

    def when_settled(self) -> asyncio.Future[None] | None:
        with self._lock:
            return None if self._thread is None or self._asleep else self._settled_future()

    @property
    def stats(self) -> BufferStats:
        with self._lock:
            return super().stats

    def _settled_future(self) -> asyncio.Future[None]:
        self._loop = asyncio.get_running_loop()
        return super()._settled_future()

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        thread = threading.Thread(
            target=self._context.run, args=(self._run,), name=f"perdure watcher {self.name}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the system cannot start another thread
            self._retired = True
            self._log_failure(error)
            self._ended(self, error)
        else:
            self._thread = thread

    def _wake_thread(self) -> None:
        if self._asleep:
            self._asleep = False
            self._wake.release()

    def _report_settled(self) -> None:
        with self._lock:
            if self._asleep:  # else more was pushed meanwhile, and the thread will report again
                self._mark_settled()

    def _finish(self, error: BaseException | None) -> None:
        cast("threading.Thread", self._thread).join(_JOIN_SECONDS)
        self._mark_settled()
        self._ended(self, error)

    # -- on the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for event in self._events():
                result = self._watcher(event)
                if result is not None and inspect.isawaitable(result):
                    self._await(result)
        except BaseException as raised:  # noqa: BLE001 - an error of a watcher must not reach others
            if not (self._retired and isinstance(raised, concurrent.futures.CancelledError)):
                error = raised
                self._log_failure(error)
        self._retired = True
        self._call_on_loop(self._finish, error)

    def _events(self) -> Iterator[T]:
        while self._sleep_until_needed():
            with self._lock:
                event = self._buffer.get_nowait()
            yield event

    def _sleep_until_needed(self) -> bool:
        """Wait until there is an event and return True, or until the feed is retired and return False."""
        with self._lock:
            self._asleep = not self._retired and not len(self._buffer)
            asleep, awaited = self._asleep, self._settled is not None
        if asleep:
            if awaited:
                self._call_on_loop(self._report_settled)
            self._wake.acquire()
        return not self._retired

    def _await(self, awaitable: Awaitable[object]) -> None:
        """Await the awaitable that a plain function returned, such as a lambda around an async call."""
        loop = cast("asyncio.AbstractEventLoop", self._loop)
        self._awaiting = awaiting = asyncio.run_coroutine_threadsafe(_wrap_awaitable(awaitable), loop)
        if self._retired:  # `stop` was called before `_awaiting` was set
            awaiting.cancel()
        try:
            awaiting.result()
        finally:
            self._awaiting = None

    def _call_on_loop(self, report: Callable[..., None], *args: BaseException | None) -> None:
        try:
            cast("asyncio.AbstractEventLoop", self._loop).call_soon_threadsafe(report, *args)
        except RuntimeError:
            return  # the loop is closed


class DirectWatcherFeed(WatcherFeed[T]):
    """Feed that calls a watcher directly, without a task or thread, because it only collects events, as a tracer does.

    A watcher is a collector if it has a method `collect_event(event)`. The method is called instead of the watcher. It
    has to return within microseconds, as by appending to a bounded list: no task or thread is woken for it, so that it
    costs a fraction of any other watcher, and it gets each event in the order of everything else that it sees.
    """

    def __init__(self, name: str, collect: Callable[[T], object], buffer: Buffer[T], ended: FeedEnded[T]) -> None:
        super().__init__(name, buffer, ended)
        self._collect = collect
        self._pushed = 0

    def push(self, event: T) -> None:
        if self._retired:
            return
        self._pushed += 1
        try:
            self._collect(event)
        except Exception as error:  # noqa: BLE001 - an error of a watcher must not reach the publisher
            self._retired = True
            self._log_failure(error)
            self._ended(self, error)

    def retire(self) -> None:
        self._retired = True
        self._ended(self, None)

    def stop(self) -> asyncio.Future[None] | None:
        self.retire()
        return None

    def when_settled(self) -> asyncio.Future[None] | None:
        return None

    @property
    def stats(self) -> BufferStats:
        count = self._pushed
        return BufferStats(
            pushed=count, delivered=count, dropped=0, merged=0, buffered=0, refused=0, high_water=min(count, 1)
        )


def make_feed(watcher: Watcher[T], name: str | None, buffer: Buffer[T], ended: FeedEnded[T]) -> WatcherFeed[T]:
    """Make the feed that calls a watcher: directly if it only collects events, else in a task or on a thread.

    The default name is that of the function.
    """
    if not callable(watcher):
        raise ConfigError(f"a watcher is {watcher!r}; give a function that takes an event")
    known_as = str(name or getattr(watcher, "__qualname__", type(watcher).__qualname__))
    if callable(collect := getattr(watcher, "collect_event", None)):
        return DirectWatcherFeed(known_as, collect, buffer, ended)
    if inspect.iscoroutinefunction(watcher) or inspect.iscoroutinefunction(type(watcher).__call__):
        return AsyncWatcherFeed(known_as, cast("Callable[[T], Awaitable[None]]", watcher), buffer, ended)
    return ThreadWatcherFeed(known_as, watcher, buffer, ended)


async def _wrap_awaitable(awaitable: Awaitable[Any]) -> None:
    await awaitable
