"""A bounded FIFO buffer between tasks of one event loop; it counts the items that it takes, delivers, drops and merges.

A buffer belongs to one event loop. Threads may share one only through the methods that never wait (`push`,
`get_nowait`, `take_all`, `stats`), and under their own lock.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, Literal, Self, TypeVar, get_args

import msgspec

from .values.error import ConfigError

T = TypeVar("T")

OverflowPolicy = Literal["drop_oldest", "drop_newest", "block", "coalesce"]
"""The policy of a full buffer for one more item.

- `drop_oldest`: the item that has waited longest makes room.
- `drop_newest`: the incoming item is dropped.
- `block`: the incoming item stays with the caller: `push` refuses it, `put` waits for room.
- `coalesce`: the incoming item is merged into the last one; if they do not merge, as `drop_oldest`.
"""

PushResult = Literal["kept", "merged", "displaced", "dropped", "refused", "closed"]
"""The fate of a pushed item.

- `kept`: it is in the buffer.
- `merged`: it is in the buffer as a part of the item before it.
- `displaced`: it is in the buffer, and the oldest item was dropped for it.
- `dropped`: it was dropped.
- `refused`: the policy is `block`, and there is no room, or others wait for it: the caller still has the item and can
  `await put(item)`.
- `closed`: the buffer was closed and accepts no more items: the caller still has the item.
"""

_OVERFLOWS: Final = get_args(OverflowPolicy)


class BufferStats(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of a buffer. `pushed` is always the sum of `delivered`, `dropped`, `merged` and `buffered`."""

    pushed: int
    """Items that the buffer accepted."""
    delivered: int
    """Items that a consumer took."""
    dropped: int
    """Items that were displaced by newer ones or dropped on arrival."""
    merged: int
    """Items that became a part of the item before them."""
    buffered: int
    """Items in the buffer now."""
    refused: int
    """Items that stayed with the caller: `push` found the buffer full or closed, or `put` found it closed."""
    high_water: int
    """The most items that were ever in the buffer at once."""


class PushReport(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The result of pushing several items to a buffer: which were accepted, refused or blocked, and which were evicted.

    Each item is in one of the four.
    """

    accepted: tuple[T, ...] = ()
    """Items that are in the buffer, on their own or as a part of the one before them."""
    evicted: tuple[T, ...] = ()
    """Items that were dropped to make room: older ones, then those of this push that later ones displaced."""
    refused: tuple[T, ...] = ()
    """Items that were dropped on arrival (`drop_newest`), or came after the buffer was closed."""
    blocked: tuple[T, ...] = ()
    """Items for which there is no room under the policy `block`: the caller still has them, and should slow down."""


class Buffer(Generic[T]):
    """A first-in, first-out buffer of at most `capacity` items; `async for` takes them out in order."""

    def __init__(
        self,
        capacity: int | None,
        overflow: OverflowPolicy = "block",
        *,
        coalesce: Callable[[T, T], T | None] | None = None,
        lagged: Callable[[T, T | None], T | None] | None = None,
    ) -> None:
        """Make an empty buffer; `overflow` is the policy for an item that arrives when the buffer is full.

        - `capacity`: the most items in the buffer at once; `None` for no bound, when the producer is
          limited elsewhere.
        - `coalesce`: for the policy of that name, a pure function that merges an item into the one before it, or
          returns None where they must stay apart. It is called when the buffer is full: a consumer that keeps up gets
          each item as it was pushed, one that falls far behind gets fewer and larger ones, in the same order. Merged
          items grow, so it should return None where the result would be too large.
        - `lagged`: for policies that drop the oldest, makes the marker that informs a consumer of missed items. It is
          called as `lagged(lost, marker)` for each lost item, with the marker of those lost just before, if any.
          The marker is delivered in the place of the lost items and is in none of the counters; None for none.
        """
        check_capacity(capacity)
        _check_policy(overflow, coalesce, lagged)
        self._capacity = sys.maxsize if capacity is None else capacity
        self._limit = 0 if overflow == "block" else self._capacity
        """The number of items from which on `push` has to look closer: 0 if the buffer is closed, or tasks may wait for
        room in it."""
        self._overflow: OverflowPolicy = overflow
        self._coalesce = coalesce
        self._lagged = lagged
        self._items: deque[T] = deque()
        self._closed = False
        self._marker: T | None = None
        self._readers = _Line()
        """The tasks that wait in `get`. As many items are promised to them, oldest first."""
        self._writers = _Line()
        """The tasks that wait in `put`."""
        self._reader_waits = False
        """True if `_wake_reader` has to be called for the next item."""
        self._pushed = 0
        self._dropped = 0
        self._merged = 0
        self._refused = 0
        self._high_water = 0

    def push(self, item: T) -> PushResult:
        """Add an item without waiting, and return what happened to it: `kept`, `merged`, `dropped`, …"""
        items = self._items
        before = len(items)
        if before >= self._limit:
            return self._push_or_refuse(item)
        items.append(item)  # as `_append` does; most items pass here, and a call would cost them time
        self._pushed += 1
        if before >= self._high_water:
            self._high_water = before + 1
        if self._reader_waits:
            self._wake_reader()
        return "kept"

    def push_all(self, items: Iterable[T]) -> PushReport[T]:
        """Add items without waiting; return what happened to each, and which older items were dropped for them."""
        last = len(self._items) - 1  # the place of the last item, counted from the oldest one before this push
        placed: list[tuple[int, T]] = []
        evicted: list[T] = []
        refused: list[T] = []
        blocked: list[T] = []
        for item in items:
            oldest = next(iter(self._items), item)
            result = self.push(item)
            if result == "displaced":
                evicted.append(oldest)
            if result in {"kept", "displaced"}:
                last += 1
            if result in {"kept", "displaced", "merged"}:
                placed.append((last, item))
            else:
                (blocked if result == "refused" else refused).append(item)
        return PushReport(
            accepted=tuple([item for place, item in placed if place >= len(evicted)]),
            evicted=tuple(evicted),
            refused=tuple(refused),
            blocked=tuple(blocked),
        )

    async def put(self, item: T) -> PushResult:
        """Add an item; under the policy `block`, wait for room first. Waiting callers are served in order of arrival.

        A cancelled `put` has not put its item. One that waits when the buffer is closed returns `closed`.
        """
        if self._overflow == "block" and not (self._closed or self._has_room):
            await self._writers.wait_until(self._is_writable)
            if not self._closed:
                self._append(item)
                return "kept"
        return self.push(item)

    async def get(self) -> T:
        """Take the oldest item, or wait for one. Waiting callers are served in order of arrival. `anext(buffer)` is the
        same.

        A cancelled `get` has taken nothing. When the buffer is closed and empty, raises `StopAsyncIteration`.
        """
        if len(self._items) <= self._readers.length:
            await self._readers.wait_until(self._is_readable)
            if not self._items:
                raise StopAsyncIteration
        return self._take()

    __anext__ = get

    def __aiter__(self) -> Self:
        return self

    def get_nowait(self) -> T:
        """Take the oldest item without waiting; raise `asyncio.QueueEmpty` if all items are promised to waiting
        tasks.
        """
        if len(self._items) <= self._readers.length:
            raise asyncio.QueueEmpty
        return self._take()

    def take_all(self) -> list[T]:
        """Take all items, oldest first, except those that waiting tasks are about to take."""
        taken: list[T] = []
        while len(self._items) > self._readers.length:
            taken.append(self._take())
        return taken

    def close(self) -> None:
        """Accept no more items. Items in the buffer are still delivered, then iteration ends; a waiting `put` returns
        `closed`.
        """
        self._closed = True
        self._limit = 0
        if self._reader_waits:
            self._wake_reader()
        self._writers.serve()

    @property
    def closed(self) -> bool:
        """True once `close` was called; items may still be in the buffer."""
        return self._closed

    @property
    def stats(self) -> BufferStats:
        """The counters as they are now."""
        held = len(self._items)
        return BufferStats(
            pushed=self._pushed,
            delivered=self._pushed - self._dropped - self._merged - held,
            dropped=self._dropped,
            merged=self._merged,
            buffered=held,
            refused=self._refused,
            high_water=self._high_water,
        )

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        bound = "unbounded" if self._capacity == sys.maxsize else f"of {self._capacity}"
        state = f"{len(self._items)} {bound}, {self._overflow}{', closed' if self._closed else ''}"
        return f"<{type(self).__name__} {state}>"

    @property
    def _has_room(self) -> bool:
        """True if an item can be added before those of the tasks that wait in `put`."""
        return len(self._items) < self._capacity and not self._writers.length

    def _append(self, item: T) -> None:
        self._items.append(item)
        self._pushed += 1
        self._high_water = max(self._high_water, len(self._items))
        if self._reader_waits:
            self._wake_reader()

    def _push_or_refuse(self, item: T) -> PushResult:
        """Add an item to a buffer that is full or closed, or whose policy is `block`."""
        if self._closed:
            self._refused += 1
            return "closed"
        if self._overflow == "block":
            if self._has_room:
                self._append(item)
                return "kept"
            self._refused += 1
            return "refused"
        self._pushed += 1
        if self._coalesce is not None and (whole := self._coalesce(self._items[-1], item)) is not None:
            self._items[-1] = whole
            self._merged += 1
            return "merged"
        self._dropped += 1
        if self._overflow == "drop_newest":
            return "dropped"
        lost = self._items.popleft()
        self._items.append(item)
        if self._lagged is not None:
            self._marker = self._lagged(lost, self._marker)
        return "displaced"

    def _take(self) -> T:
        if self._marker is not None:
            marker, self._marker = self._marker, None
            return marker
        item = self._items.popleft()
        if self._writers.length:
            self._writers.serve()
        return item

    def _wake_reader(self) -> None:
        self._reader_waits = False
        self._readers.serve()

    def _is_readable(self) -> bool:
        """Return True if a reader can go on; else the next item wakes the first one."""
        self._reader_waits = not (self._items or self._closed)
        return not self._reader_waits

    def _is_writable(self) -> bool:
        """Return True if the first task that waits in `put` can go on."""
        return self._closed or len(self._items) < self._capacity


class _Line:
    """Tasks that wait for the same thing. They are served in the order in which they came, also if some are cancelled.

    Nothing is handed over to a task that is woken, so one that is cancelled just then has taken nothing.
    """

    def __init__(self) -> None:
        self.length = 0
        self._turns = asyncio.Lock()
        self._news = asyncio.Event()
        self.serve = self._news.set
        """Lets the first task look whether it can go on."""

    async def wait_until(self, is_due: Callable[[], bool]) -> None:
        """Wait for the tasks in front, and then until `is_due` is true: `serve` makes the first task look."""
        self.length += 1
        try:
            async with self._turns:
                while not is_due():
                    self._news.clear()
                    await self._news.wait()
        finally:
            self.length -= 1


def check_capacity(capacity: object) -> None:
    """Raise `ConfigError` unless the capacity of a buffer is a whole number from 1 on, or `None` for no bound."""
    if capacity is None or (isinstance(capacity, int) and not isinstance(capacity, bool) and capacity >= 1):
        return
    raise ConfigError(f"a buffer's capacity is {capacity!r}; give a whole number from 1 on, or None for no bound")


def _check_policy(overflow: object, coalesce: object, lagged: object) -> None:
    if overflow not in _OVERFLOWS:
        raise ConfigError(f"a buffer's overflow policy is {overflow!r}; give one of {', '.join(_OVERFLOWS)}")
    if (overflow == "coalesce") != (coalesce is not None):
        raise ConfigError(
            f"a buffer with the overflow policy {overflow!r} has coalesce={coalesce!r}: "
            "give a function that merges to the policy 'coalesce', and to no other"
        )
    if overflow not in ("drop_oldest", "coalesce") and lagged is not None:
        raise ConfigError(f"a buffer with the overflow policy {overflow!r} drops no older items; leave out lagged=")
