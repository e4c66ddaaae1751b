"""Fan-out of events to watchers (functions) and subscriptions (async iterators), which do not delay the publisher.

A watcher is a function that is called with each event; a subscription is an async iterator over them. Each has its own
bounded buffer. One that falls far behind gets events merged where they merge; then it loses the oldest, and a marker
reports the gap. A watcher that raises is dropped and reported. Only a subscription with backpressure can slow the
publisher, and only where the publisher waits for `wait_for_room`.

Everything here is for the thread of one event loop, except that a watcher may remove itself from the thread it runs on.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec

from .bounded_buffer import Buffer, BufferStats, OverflowPolicy, check_capacity
from .watcher_feed import Watcher, WatcherFeed, make_feed

T = TypeVar("T")
U = TypeVar("U")

_log = logging.getLogger("perdure")


class WatcherStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of the events that one watcher received, and its state."""

    name: str
    lagging: bool
    """True if waiting for it has timed out, and it has not caught up since."""
    events: BufferStats
    """The counters of the events that it was given."""


class Fanout(Generic[T]):
    """Publisher that passes each event to all watchers and subscriptions."""

    def __init__(
        self,
        *,
        capacity: int = 1024,
        coalesce: Callable[[T, T], T | None] | None = None,
        lagged: Callable[[T, T | None], T | None] | None = None,
        on_dropped: Callable[[str, BaseException], T | None] | None = None,
    ) -> None:
        """Make a publisher that has no watchers yet.

        - `capacity`: how many events wait for each watcher, and for a subscription that does not set its own.
        - `coalesce`, `lagged`: how events merge, and how a gap is marked; see `Buffer`.
        - `on_dropped`: called on the event loop with the name and the error of each watcher that raised. The event that
          it returns, if any, is published to the others.
        """
        check_capacity(capacity)
        self._capacity = capacity
        self._coalesce = None if coalesce is None else _MergeUntilError(coalesce)
        self._lagged = None if lagged is None else _MergeUntilError(lagged)
        self._on_dropped = on_dropped
        self.receivers: tuple[WatcherFeed[T] | Subscription[T], ...] = ()
        """The watchers and subscriptions. A publisher for which a call per event is too much calls `push` of each.

        The tuple is replaced, never changed: publishers iterate over it while watchers are added and removed.
        """
        self.is_watched = False
        """True if there is a watcher or subscription. A plain attribute, for publishers that read it for every
        event."""
        self.is_congested = False
        """True if a subscription with backpressure is full: the publisher should then `await wait_for_room()`."""
        self._receivers_lock = threading.Lock()
        self._feeds: dict[WatcherFeed[T], None] = {}
        self._subscriptions: dict[Subscription[T], object] = {}
        """The subscriptions, each with its owner."""
        self._full: set[Subscription[T]] = set()
        """The subscriptions for which the publisher has to wait."""
        self._relieved: asyncio.Event | None = None
        """Set when no subscription is full any more; `None` before the first one was."""
        self._closed = False

    def publish(self, event: T) -> None:
        """Pass an event to all watchers and subscriptions, without waiting. Never raises. Call it on the event loop's
        thread.
        """
        for receiver in self.receivers:
            receiver.push(event)

    def add_watcher(self, watcher: Watcher[T], *, name: str | None = None) -> Callable[[], None]:
        """Call `watcher` with each event from now on; the returned function removes it.

        An async function is called in its own task, a plain one on its own thread; both start with the first event. A
        watcher that was removed is not called again; a call in progress is not cut short.
        """
        feed = make_feed(watcher, name, self._new_buffer(self._capacity), self._on_feed_ended)

        def remove() -> None:
            if self._remove_receiver(feed):
                feed.retire()

        if not self._closed:
            self._feeds[feed] = None
            self._add_receiver(feed)
        return remove

    def subscribe(
        self, *, backpressure: bool = False, capacity: int | None = None, owner: object = None
    ) -> "Subscription[T]":
        """Return an async iterator over the events from now on. Close it when done, above all one with backpressure.

        - `backpressure`: the publisher waits (where it calls `wait_for_room`) while `capacity` events are unread. Up to
          the
          fan-out's own capacity more are then buffered for publishers that are past that point.
        - `capacity`: how many events wait; by default the fan-out's own capacity.
        - `owner`: the object with which the subscription ends; see `close_subscriptions`.
        """
        check_capacity(capacity)
        limit = self._capacity if capacity is None else capacity
        if backpressure:
            buffer = self._new_buffer(limit + self._capacity)
            subscription: Subscription[T] = _BackpressureSubscription(
                buffer, self._unsubscribe, self._mark_full, self._mark_read, limit
            )
        else:
            subscription = Subscription(self._new_buffer(limit), self._unsubscribe)
        if self._closed:
            subscription.close()
        else:
            self._subscriptions[subscription] = owner
            self._add_receiver(subscription)
        return subscription

    def close_subscriptions(self, owner: object) -> None:
        """Close the subscriptions of one owner; their buffered events can still be read."""
        for subscription in [each for each, owned_by in self._subscriptions.items() if owned_by is owner]:
            subscription.close()

    async def wait_for_room(self) -> None:
        """Wait until no subscription with backpressure is full; each has room again when half of it has been read."""
        while self._relieved is not None and self._full:
            await self._relieved.wait()

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
        if not (self._feeds or self._subscriptions):
            return
        self.receivers = ()
        self.is_watched = False
        for subscription in tuple(self._subscriptions):
            subscription.close()
        try:
            await self.drain(timeout_seconds)
        finally:
            ends = self._stop_feeds()
        if ends:
            await asyncio.sleep(0)  # the tasks of watchers that had nothing to do end meanwhile
        if busy := [end for end in ends if not end.done()]:
            await asyncio.wait(busy, timeout=timeout_seconds)

    def _stop_feeds(self) -> list[asyncio.Future[None]]:
        ends: list[asyncio.Future[None]] = []
        for feed in tuple(self._feeds):
            if unhandled := feed.stats.buffered:
                _log.warning("the watcher %r was still busy at the end: it missed %d events", feed.name, unhandled)
            if (end := feed.stop()) is not None:
                ends.append(end)
        return ends

    def _new_buffer(self, capacity: int) -> Buffer[T]:
        overflow: OverflowPolicy = "drop_oldest" if self._coalesce is None else "coalesce"
        return Buffer(capacity, overflow, coalesce=self._coalesce, lagged=self._lagged)

    def _add_receiver(self, receiver: "WatcherFeed[T] | Subscription[T]") -> None:
        with self._receivers_lock:
            self.receivers = (*self.receivers, receiver)
            self.is_watched = True

    def _remove_receiver(self, receiver: "WatcherFeed[T] | Subscription[T]") -> bool:
        """Remove a watcher or subscription; return True if it was still there."""
        with self._receivers_lock:
            before = self.receivers
            self.receivers = tuple([other for other in before if other is not receiver])
            self.is_watched = bool(self.receivers)
            return len(self.receivers) < len(before)

    def _mark_full(self, subscription: "Subscription[T]") -> None:
        """Record that the publisher has to wait for a subscription with backpressure."""
        if not self._full:
            self._relieved = asyncio.Event()  # a new one, as an event belongs to the loop that first waited for it
        self._full.add(subscription)
        self.is_congested = True

    def _mark_read(self, subscription: "Subscription[T]") -> None:
        """Record that the publisher no longer has to wait for a subscription with backpressure."""
        self._full.discard(subscription)
        if not self._full and self._relieved is not None:
            self.is_congested = False
            self._relieved.set()

    def _unsubscribe(self, subscription: "Subscription[T]") -> None:
        self._remove_receiver(subscription)
        self._subscriptions.pop(subscription, None)

    def _on_feed_ended(self, feed: WatcherFeed[T], error: BaseException | None) -> None:
        self._feeds.pop(feed, None)
        self._remove_receiver(feed)
        if error is None or self._on_dropped is None:
            return
        try:
            report = self._on_dropped(feed.name, error)
        except Exception:  # noqa: BLE001 - the callback must not break the others either
            _log.exception("reporting the dropped watcher %r failed", feed.name)
            return
        if report is not None:
            self.publish(report)


class Subscription(Generic[T]):
    """Async iterator over the events published since it was made. `close` it when done."""

    def __init__(self, buffer: Buffer[T], closed: "Callable[[Subscription[T]], None]") -> None:
        self._buffer = buffer
        self._closed = closed

    def __aiter__(self) -> "Subscription[T]":
        return self

    def __anext__(self) -> Awaitable[T]:
        return self._buffer.get()

    def __len__(self) -> int:
        """Return the number of events that wait to be read."""
        return len(self._buffer)

    def get_nowait(self) -> T:
        """Return the next buffered event without waiting; raises `asyncio.QueueEmpty` if there is none."""
        return self._buffer.get_nowait()

    def push(self, event: T) -> None:
        """Add an event to the buffer. Only the publisher calls this."""
        self._buffer.push(event)

    def close(self) -> None:
        """Accept no more events; those in the buffer can still be read, then iteration ends."""
        self._closed(self)
        self._buffer.close()

    @property
    def stats(self) -> BufferStats:
        """The counters of the events that this subscription was given."""
        return self._buffer.stats


class _BackpressureSubscription(Subscription[T]):
    """A subscription that makes the publisher wait from the moment it is full until half of it has been read."""

    def __init__(
        self,
        buffer: Buffer[T],
        closed: Callable[[Subscription[T]], None],
        mark_full: Callable[[Subscription[T]], None],
        mark_read: Callable[[Subscription[T]], None],
        full_at: int,
    ) -> None:
        super().__init__(buffer, closed)
        self._mark_full = mark_full
        self._mark_read = mark_read
        self._full_at = full_at

    async def __anext__(self) -> T:
        event = await self._buffer.get()
        self._make_room()
        return event

    def get_nowait(self) -> T:
        event = self._buffer.get_nowait()
        self._make_room()
        return event

    def _make_room(self) -> None:
        if len(self._buffer) <= self._full_at // 2:
            self._mark_read(self)

    def push(self, event: T) -> None:
        self._buffer.push(event)
        if len(self._buffer) >= self._full_at:
            self._mark_full(self)

    def close(self) -> None:
        super().close()
        self._mark_read(self)


class _MergeUntilError(Generic[T, U]):
    """A merge function that, once it has raised, merges nothing more instead of raising again."""

    __slots__ = ("_is_broken", "_merge")

    def __init__(self, merge: Callable[[T, U], T | None]) -> None:
        self._merge = merge
        self._is_broken = False

    def __call__(self, first: T, second: U) -> T | None:
        if self._is_broken:
            return None
        try:
            return self._merge(first, second)
        except Exception:  # noqa: BLE001 - see above
            self._is_broken = True
            _log.exception("merging events with %r failed; it is not tried again", self._merge)
            return None
