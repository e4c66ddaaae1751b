"""A bounded FIFO buffer between tasks of one event loop; it counts the items that it takes, delivers, drops and merges.

A buffer belongs to one event loop. Threads may share one only through the methods that never wait (`push`,
`get_nowait`, `take_all`, `stats`), and under their own lock.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, Literal, TypeVar, cast, get_args

import msgspec

from .error import ConfigError

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

    __slots__ = (
        "_capacity",
        "_closed",
        "_coalesce",
        "_dropped",
        "_getters",
        "_high_water",
        "_items",
        "_lagged",
        "_limit",
        "_marker",
        "_merged",
        "_overflow",
        "_pushed",
        "_putters",
        "_refused",
    )

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
        self._getters = _WaitQueue()
        self._putters = _WaitQueue()
        self._closed = False
        self._marker: T | None = None
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
        if self._getters.waiting:
            self._getters.grant()
        return "kept"

    def push_all(self, items: Iterable[T]) -> PushReport[T]:
        """Add items without waiting; return what happened to each, and which older items were dropped for them."""
        older = len(self._items)
        joined: list[T] = []  # to an item that was there before
        accepted: list[list[T]] = []  # each with those that were joined to it
        evicted: list[T] = []
        refused: list[T] = []
        blocked: list[T] = []
        for item in items:
            oldest = self._items[0] if self._items else None
            result = self.push(item)
            if result == "displaced":
                evicted.append(cast("T", oldest))
                if older:
                    older -= 1
                else:
                    del accepted[0]
            if result in {"kept", "displaced"}:
                accepted.append([item])
            else:
                last = accepted[-1] if accepted else joined
                {"merged": last, "refused": blocked}.get(result, refused).append(item)
        return PushReport(
            accepted=(*joined, *[item for group in accepted for item in group]),
            evicted=tuple(evicted),
            refused=tuple(refused),
            blocked=tuple(blocked),
        )

    async def put(self, item: T) -> PushResult:
        """Add an item; under the policy `block`, wait for room first. Waiting callers are served in order of arrival.

        A cancelled `put` has not put its item. One that waits when the buffer is closed returns `closed`.
        """
        room = len(self._items) < self._capacity and not self._putters.granted
        if self._overflow != "block" or self._closed or room:
            return self.push(item)
        await self._putters.wait()
        if self._closed:
            return self.push(item)
        self._append(item)
        while self._putters.waiting and len(self._items) + self._putters.granted < self._capacity:
            self._putters.grant()  # another task waited behind this one, and there was room for both
        return "kept"

    async def get(self) -> T:
        """Take the oldest item, or wait for one. Waiting callers are served in order of arrival. `anext(buffer)` is the
        same.

        A cancelled `get` has taken nothing. When the buffer is closed and empty, raises `StopAsyncIteration`.
        """
        while len(self._items) <= self._getters.granted:
            if self._closed:
                raise StopAsyncIteration
            await self._getters.wait()
        return self._take()

    __anext__ = get

    def __aiter__(self) -> "Buffer[T]":
        return self

    def get_nowait(self) -> T:
        """Take the oldest item without waiting; raise `asyncio.QueueEmpty` if all items are promised to waiting
        tasks.
        """
        items = self._items
        if len(items) <= self._getters.granted:
            raise asyncio.QueueEmpty
        if self._marker is None and not self._putters.waiting:
            return items.popleft()  # nearly always
        return self._take()

    @property
    def is_empty(self) -> bool:
        """True if there is no item in the buffer. Quicker than `len`."""
        return not self._items

    def take_all(self) -> list[T]:
        """Take all items, oldest first, except those that waiting tasks are about to take."""
        taken: list[T] = []
        while len(self._items) > self._getters.granted:
            taken.append(self._take())
        return taken

    def close(self) -> None:
        """Accept no more items. Items in the buffer are still delivered, then iteration ends; a waiting `put` returns
        `closed`.
        """
        self._closed = True
        self._limit = 0
        self._getters.dismiss()
        self._putters.dismiss()

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
        return f"<Buffer {len(self._items)} {bound}, {self._overflow}{', closed' if self._closed else ''}>"

    def _append(self, item: T) -> None:
        self._items.append(item)
        self._pushed += 1
        self._high_water = max(self._high_water, len(self._items))
        if self._getters.waiting:
            self._getters.grant()

    def _push_or_refuse(self, item: T) -> PushResult:
        """Add an item to a buffer that is full or closed, or whose policy is `block`."""
        if self._closed:
            self._refused += 1
            return "closed"
        if self._overflow == "block":
            if len(self._items) < self._capacity and not self._putters.granted:
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
            self._getters.grant()  # the item that woke this consumer stays, for the next
            return marker
        item = self._items.popleft()
        if self._putters.waiting:
            self._putters.grant()
        return item


class _WaitQueue:
    """First-in, first-out queue of the tasks that wait for an item, or for room for one.

    An item is granted to a task by waking it; until that task runs, the item is promised to it, and no other task may
    take the last one. So a woken task always finds an item, and a task that is cancelled at any moment has taken
    nothing: its grant goes to the next in line.
    """

    __slots__ = ("granted", "waiting")

    def __init__(self) -> None:
        self.granted = 0
        self.waiting: deque[asyncio.Future[bool]] = deque()

    async def wait(self) -> None:
        """Wait until this task is granted an item (or room for one), or all tasks are dismissed."""
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn in self.waiting:
                self.waiting.remove(turn)
            elif not turn.cancelled() and turn.result():
                self.granted -= 1
                self.grant()
            raise
        if turn.result():
            self.granted -= 1

    def grant(self) -> None:
        """Wake the task that has waited longest, if any task waits."""
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                self.granted += 1
                turn.set_result(True)
                return

    def dismiss(self) -> None:
        """Wake all tasks without granting anything."""
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                turn.set_result(False)


def check_capacity(capacity: object) -> None:
    """Raise `ConfigError` unless the capacity of a buffer is a whole number from 1 on, or `None` for no bound."""
    if capacity is None or (isinstance(capacity, int) and not isinstance(capacity, bool) and capacity >= 1):
        return
    raise ConfigError(f"a buffer's capacity is {capacity!r}; give a whole number from 1 on, or None for no bound")


def _check_policy(overflow: object, coalesce: object, lagged: object) -> None:
    if overflow not in _OVERFLOWS:
        raise ConfigError(f"a buffer's overflow policy is {overflow!r}; give one of {', '.join(_OVERFLOWS)}")
    if overflow == "coalesce" and coalesce is None:
        raise ConfigError("a buffer with the overflow policy 'coalesce' needs a function that merges: give coalesce=")
    if overflow != "coalesce" and coalesce is not None:
        raise ConfigError(f"a buffer with the overflow policy {overflow!r} merges nothing; leave out coalesce=")
    if overflow not in ("drop_oldest", "coalesce") and lagged is not None:
        raise ConfigError(f"a buffer with the overflow policy {overflow!r} drops no older items; leave out lagged=")
