"""Where the log is kept: the seam to a store, and the driver's end of it. Above: sessions. Below: `event.py`.

One driver grows a log. Each append is one compare-and-set: it names the entry it follows and the fence of its lease,
and is refused when either is stale, so that a driver which was paused and replaced stops at its next append.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from .clock import Clock, new_id
from .error import Fenced
from .event import Entry, Event

T = TypeVar("T")

_MOST_CANCELS = 10
"""Work that has been cancelled as often as this cancels itself."""


class Lease(Struct, frozen=True):
    """The right to drive a session."""

    session_id: str
    fence: int
    """Grows each time the session changes hands."""


class SessionInfo(Struct, frozen=True):
    """A line in the list of sessions."""

    session_id: str
    entries: int
    created_at: float
    updated_at: float
    title: str = ""
    """The beginning of the first message."""


class Store(Protocol):
    """Keeps the logs of sessions."""

    async def acquire(self, session_id: str) -> Lease:
        """The lease of a session, which is made if it is new. Raises `SessionBusy` naming who holds it."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give the lease back; one that was lost already is not an error."""

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Add entries, numbered from the log's end, all or none.

        When this returns they survive the death of this process, and with `sync` the loss of power, together with
        everything before them. Entries whose ids are there already are not added again. Raises `Conflict` or
        `Fenced`, and nothing has been written then.
        """

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """The entries numbered above `after`, in order; none for a session that is not there."""
        ...

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Sessions whose id begins with `prefix` and that hold something, the most recently used first."""
        ...

    async def delete(self, session_id: str) -> None:
        """Forget a session; one that is not there is not an error."""

    async def aclose(self) -> None:
        """Let go of files and connections."""


@runtime_checkable
class Immediate(Protocol):
    """A store that can often append without waiting. Saves the runtime from protecting a write against a cancel."""

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        """As `append`, at once; or `False`, and nothing was done: this one has to wait."""
        ...


class Log:
    """The driver's end of a session's log: numbers the entries and knows where it ends."""

    __slots__ = ("_clock", "_immediate", "_made", "_queued", "_retired", "_turn", "_writer", "head", "lease", "store")

    def __init__(self, store: Store, lease: Lease, head: int, clock: Clock) -> None:
        self.store = store
        self.lease = lease
        self.head = head
        """The number of the last entry."""
        self._clock = clock
        self._immediate = store.append_now if isinstance(store, Immediate) else None
        self._writer = new_id()[-16:]
        self._made = 0
        self._queued = 0
        self._turn = asyncio.Lock()
        self._retired = False

    async def taken_over(self) -> "Log":
        """The same log in other hands. Whoever still holds this one finds itself fenced."""
        async with self._turn:
            self._retired = True
            return Log(self.store, self.lease, self.head, self._clock)

    def append_now(self, events: Sequence[Event], *, sync: bool) -> list[Entry] | None:
        """Store events without waiting; `None` when that is not possible, and then nothing was done."""
        if self._immediate is None or self._queued:
            return None
        entries = self._numbered(events)
        if not self._immediate(self.lease, entries, sync=sync):
            return None
        self.head += len(entries)
        return entries

    async def append(self, events: Sequence[Event], *, sync: bool, stored: Callable[[Sequence[Entry]], None]) -> bool:
        """Store events when it is their turn, and call `stored` with the entries before the next ones are stored.

        Says whether a cancel came meanwhile; all that is done in either case.
        """
        self._queued += 1
        try:
            _, cancelled = await insisted(lambda: self._append(events, sync, stored))
        finally:
            self._queued -= 1
        return cancelled

    async def _append(self, events: Sequence[Event], sync: bool, stored: Callable[[Sequence[Entry]], None]) -> None:  # noqa: FBT001 - handed through
        async with self._turn:
            entries = self._numbered(events)
            await insisted(lambda: self.store.append(self.lease, entries, sync=sync))
            self.head += len(entries)
            stored(entries)

    def _numbered(self, events: Sequence[Event]) -> list[Entry]:
        if self._retired:
            message = f"this run of session {self.lease.session_id!r} was ended from outside: nothing more can be added"
            raise Fenced(message)
        # A name is never used for two entries, also when an append has failed: it may have been stored after all.
        at, head, writer, made = self._clock.now(), self.head, self._writer, self._made
        self._made = made + len(events)
        if len(events) == 1:
            return [Entry(head + 1, at, events[0], f"{writer}-{made + 1}")]
        return [Entry(head + place, at, event, f"{writer}-{made + place}") for place, event in enumerate(events, 1)]


async def insisted(work: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
    """As `uninterrupted`, for work that may be done twice: when it is itself cancelled, it is done again.

    That happens when an event loop is closed, for then each of its tasks is cancelled.
    """
    cancelled = False
    for _ in range(_MOST_CANCELS):
        try:
            result, interrupted = await uninterrupted(work())
        except asyncio.CancelledError:
            cancelled = True
            continue
        return result, cancelled or interrupted
    raise asyncio.CancelledError


async def uninterrupted(work: Awaitable[T]) -> tuple[T, bool]:
    """Await `work` to its end, however often we are cancelled meanwhile; says whether we were.

    The caller puts its own affairs in order first, and then raises the `CancelledError` that it owes.
    """
    task = asyncio.ensure_future(work)
    cancelled = await wait_through((task,))
    return task.result(), cancelled


async def wait_through(futures: Collection["asyncio.Future[Any]"]) -> bool:
    """Wait until all of them are done, however often we are cancelled meanwhile; says whether we were."""
    cancelled = False
    while waiting := [each for each in futures if not each.done()]:
        try:
            await asyncio.wait(waiting)
        except asyncio.CancelledError:
            cancelled = True
    return cancelled
