"""Where the log is kept: the seam to a store, and the driver's end of it. Above: sessions. Below: `event.py`.

One driver grows a log. Each append is one compare-and-set: it names the entry it follows and the fence of its lease,
and is refused when either is stale, so that a driver which was paused and replaced stops at its next append.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from .clock import Clock, new_id
from .error import Fenced
from .event import Entry, Event

T = TypeVar("T")


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
        """Sessions whose id begins with `prefix`, the most recently used first."""
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

    __slots__ = ("_clock", "_immediate", "_retired", "_writer", "head", "lease", "store")

    def __init__(self, store: Store, lease: Lease, head: int, clock: Clock) -> None:
        self.store = store
        self.lease = lease
        self.head = head
        """The number of the last entry."""
        self._clock = clock
        self._immediate = store.append_now if isinstance(store, Immediate) else None
        self._writer = new_id()[-16:]
        self._retired = False

    def taken_over(self) -> "Log":
        """The same log in other hands. Whoever still holds this one finds itself fenced."""
        self._retired = True
        return Log(self.store, self.lease, self.head, self._clock)

    def append_now(self, events: Sequence[Event], *, sync: bool) -> list[Entry] | None:
        """Store events without waiting; `None` when that is not possible, and then nothing was done."""
        if self._immediate is None:
            return None
        entries = self._numbered(events)
        if not self._immediate(self.lease, entries, sync=sync):
            return None
        self.head = entries[-1].seq
        return entries

    async def append(self, events: Sequence[Event], *, sync: bool) -> tuple[list[Entry], bool]:
        """Store events; also says whether a cancel came meanwhile. The entries are stored in either case."""
        entries = self._numbered(events)
        _, cancelled = await uninterrupted(self.store.append(self.lease, entries, sync=sync))
        self.head += len(entries)
        return entries, cancelled

    def _numbered(self, events: Sequence[Event]) -> list[Entry]:
        if self._retired:
            message = f"this run of session {self.lease.session_id!r} was ended from outside: nothing more can be added"
            raise Fenced(message)
        at, head, writer = self._clock.now(), self.head, self._writer
        if len(events) == 1:
            return [Entry(head + 1, at, events[0], f"{writer}-{head + 1}")]
        return [Entry(head + place, at, event, f"{writer}-{head + place}") for place, event in enumerate(events, 1)]


async def uninterrupted(work: Awaitable[T]) -> tuple[T, bool]:
    """Await `work` to its end, however often we are cancelled meanwhile; says whether we were.

    The caller puts its own affairs in order first, and then raises the `CancelledError` that it owes.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            cancelled = True
    return task.result(), cancelled
