"""Where the log is kept: the seam to a store, and the driver's end of it. Above: sessions. Below: `event.py`.

One driver grows a log. Each append is one compare-and-set: it names the entry it follows and the fence of its lease,
and is refused when either is stale, so that a driver which was paused and replaced stops at its next append.

Everybody else posts. A post is kept until the driver writes an entry of the same id into the log: that entry *is* the
proof that it was taken, so it is taken once, in one transaction, whatever dies in between.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, cast, runtime_checkable

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
    """What it was called, or else the beginning of the first message."""
    parent: str = ""
    """The session it was forked from; empty when it was not, or when that one has been deleted."""
    at: int = 0
    """How many entries it shares with the session it was forked from."""


class Post(Struct, frozen=True):
    """Something for whoever drives a session, from anybody, at any time."""

    id: str
    """Names it: the same id posted twice is one post, also after it was taken."""
    kind: str
    """`steer`, `follow_up`, `cancel`, `answer`, `inbox`, …"""
    body: Any = None
    """What it says, as JSON values."""
    at: float = 0.0
    """When, in seconds since 1970."""

    def named(self, field: str) -> str:
        """The name that it gives there. Nothing, if it gives none: anybody can post anything."""
        name = cast("dict[str, Any]", self.body).get(field) if isinstance(self.body, dict) else None
        return name if isinstance(name, str) else ""


class Store(Protocol):
    """Keeps the logs of sessions."""

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        """The lease of a session, which is made if it is new. Raises `SessionBusy` naming who holds it.

        With `take_over` it is taken from whoever holds it, who is fenced from then on. A store that cannot do that
        (because the holder has a lock of the kernel, say) raises `Unsupported`.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Give the lease back; one that was lost already is not an error."""

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Add entries, numbered from the log's end, all or none.

        When this returns they survive the death of this process, and with `sync` the loss of power, together with
        everything before them. Entries whose ids are there already are not added again. A post whose id is that of an
        entry has been taken. Raises `Conflict` or `Fenced`, and nothing has been written then.
        """

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """The entries numbered above `after`, in order; none for a session that is not there."""
        ...

    async def info(self, session_id: str) -> SessionInfo | None:
        """The line of one session in the list; `None` when there is none, or it holds nothing."""
        ...

    async def delete(self, session_id: str) -> None:
        """Forget a session, and leave no byte of it; one that is not there is not an error.

        What its forks share with it stays, for them. Raises `SessionBusy` while it is being driven.
        """

    async def post(self, session_id: str, post: Post) -> bool:
        """Keep a post until the session's driver takes it; the session need not exist yet.

        It survives the loss of power when this returns. `False` when a post of this id was there already, be it
        waiting or taken: then nothing has changed.
        """
        ...

    async def posts(self, session_id: str) -> list[Post]:
        """The posts that nobody has taken, in the order in which they came."""
        ...

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        """Make a session that begins with the first `at` entries of another (all of them, when it is not said).

        Nothing is copied that can be shared. Posts stay with the original. Raises `SessionNotFound`, `SessionExists`
        when `new_id` holds something, and `ConfigError` when there are not that many entries.
        """

    async def redact(self, lease: Lease, entry: Entry) -> None:
        """Put `entry` in the place of the one with its number, and leave no byte of that one, nor in forks.

        Raises `Fenced`, and `Conflict` when there is no entry of this number.
        """

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Sessions whose id begins with `prefix` and that hold something, the most recently used first."""
        ...

    async def aclose(self) -> None:
        """Let go of files and connections."""


Syntax: TypeAlias = Literal["words", "query"]
"""How a search is written: plain words, all of which must occur; or the query language of the store."""


class Narrowed(TypedDict, total=False):
    """What a search can be narrowed to, and which of its hits are wanted."""

    syntax: Syntax
    """`words`, unless it is said."""
    session_id: str
    """One session."""
    prefix: str
    """Sessions whose id begins so."""
    role: str
    """What one of `user`, `assistant` and `tool` has said."""
    since: float | None
    """In seconds since 1970, as is `until`."""
    until: float | None
    limit: int
    """How many hits; 20, unless it is said, and 100 at most."""
    offset: int
    """How many of the best are left out."""


class Hit(Struct, frozen=True):
    """A place that a search has found."""

    session_id: str
    seq: int
    """The entry."""
    role: str
    """Who said it: `user`, `assistant` or `tool`."""
    snippet: str
    """The words around it; what matched stands between « and »."""
    score: float
    """Higher is better. For ordering only: it means nothing across stores."""
    at: float
    """When it was said, in seconds since 1970."""


@runtime_checkable
class Searchable(Protocol):
    """A store that can be searched."""

    async def search(self, query: str, **narrowed: Unpack[Narrowed]) -> list[Hit]:
        """What people, models and tools have said, the best hits first; everything that was appended is found.

        Raises `ConfigError` for a query that makes no sense.
        """
        ...


class StoreSize(Struct, frozen=True):
    """What a store takes."""

    total_bytes: int
    """On disk, with everything."""
    free_bytes: int
    """Of these, what `vacuum` would give back."""
    search_bytes: int
    """Of these, what the search index takes."""
    sessions: dict[str, int]
    """The bytes of each session's own entries, without what it shares with others."""


@runtime_checkable
class Maintained(Protocol):
    """A store that is looked after by hand."""

    async def size(self) -> StoreSize:
        """What it takes."""
        ...

    async def vacuum(self) -> None:
        """Give back what is not used."""

    async def backup(self, path: str) -> None:
        """Write all of it to a new place, while it may be in use; it appears there whole or not at all."""


@runtime_checkable
class Immediate(Protocol):
    """A store that can often append without waiting. Saves the runtime from protecting a write against a cancel."""

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        """As `append`, at once; or `False`, and nothing was done: this one has to wait."""
        ...


@runtime_checkable
class Grouped(Protocol):
    """A store that stores together what comes at the same time, from any session. Saves the runtime two tasks."""

    def append_soon(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> "asyncio.Future[None]":
        """As `append`, which has begun when this returns, and goes on when nobody waits for it any more."""
        ...


@runtime_checkable
class Foldable(Protocol):
    """A store that can give the events of a log alone, in less time than with their numbers, ids and times."""

    async def events(self, session_id: str, *, after: int = 0) -> tuple[list[Event], int]:
        """The events of the entries numbered above `after`, in order, and the number of the last of them."""
        ...


async def events_of(store: Store, session_id: str, *, after: int = 0) -> tuple[list[Event], int]:
    """The events of a log after some entry, for whoever folds them, and the number of the last entry.

    They are counted by nobody: after a damage, a log may have gaps.
    """
    if isinstance(store, Foldable):
        return await store.events(session_id, after=after)
    entries = await store.read(session_id, after=after)
    return [entry.event for entry in entries], entries[-1].seq if entries else after


class Log:
    """The driver's end of a session's log: numbers the entries and knows where it ends."""

    __slots__ = (
        "_clock",
        "_immediate",
        "_made",
        "_queued",
        "_retired",
        "_soon",
        "_turn",
        "_writer",
        "head",
        "lease",
        "store",
    )

    def __init__(self, store: Store, lease: Lease, head: int, clock: Clock) -> None:
        self.store = store
        self.lease = lease
        self.head = head
        """The number of the last entry."""
        self._clock = clock
        self._immediate = store.append_now if isinstance(store, Immediate) else None
        self._soon = store.append_soon if isinstance(store, Grouped) else None
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

    def append_now(self, events: Sequence[Event], *, sync: bool, names: Sequence[str] = ()) -> list[Entry] | None:
        """Store events without waiting; `None` when that is not possible, and then nothing was done.

        The first entries are called by `names`, if there are any: an entry that takes a post has the id of the post.
        """
        if self._immediate is None or self._queued:
            return None
        entries = self._numbered(events, names)
        if not self._immediate(self.lease, entries, sync=sync):
            return None
        self.head += len(entries)
        return entries

    async def append(
        self,
        events: Sequence[Event],
        *,
        sync: bool,
        stored: Callable[[Sequence[Entry]], None],
        names: Sequence[str] = (),
    ) -> bool:
        """Store events when it is their turn, and call `stored` with the entries before the next ones are stored.

        Says whether a cancel came meanwhile; all that is done in either case.
        """
        self._queued += 1
        try:
            if self._soon is not None and not self._turn.locked():
                return await self._append_soon(self._soon, events, sync, stored, names)
            _, cancelled = await insisted(lambda: self._append(events, sync, stored, names))
        finally:
            self._queued -= 1
        return cancelled

    async def _append_soon(
        self,
        soon: Callable[..., "asyncio.Future[None]"],
        events: Sequence[Event],
        sync: bool,  # noqa: FBT001 - handed through
        stored: Callable[[Sequence[Entry]], None],
        names: Sequence[str],
    ) -> bool:
        """As `_append`, without a task to protect it: nothing here can be cancelled but the waiting."""
        async with self._turn:  # it is free: this does not wait
            entries = self._numbered(events, names)
            cancelled = False
            try:
                await soon(self.lease, entries, sync=sync)
            except asyncio.CancelledError:
                # It goes on without us. Asked for once more, it adds nothing, and tells how it went.
                await insisted(lambda: self.store.append(self.lease, entries, sync=sync))
                cancelled = True
            self.head += len(entries)
            stored(entries)
            return cancelled

    async def _append(
        self,
        events: Sequence[Event],
        sync: bool,  # noqa: FBT001 - handed through
        stored: Callable[[Sequence[Entry]], None],
        names: Sequence[str],
    ) -> None:
        async with self._turn:
            entries = self._numbered(events, names)
            await insisted(lambda: self.store.append(self.lease, entries, sync=sync))
            self.head += len(entries)
            stored(entries)

    def _numbered(self, events: Sequence[Event], names: Sequence[str]) -> list[Entry]:
        if self._retired:
            message = f"this run of session {self.lease.session_id!r} was ended from outside: nothing more can be added"
            raise Fenced(message)
        # A name is never used for two entries, also when an append has failed: it may have been stored after all.
        at, head, writer, made = self._clock.now(), self.head, self._writer, self._made
        self._made = made + len(events)
        if len(events) == 1 and not names:
            return [Entry(head + 1, at, events[0], f"{writer}-{made + 1}")]
        called = [*names, *[f"{writer}-{made + place}" for place in range(len(names) + 1, len(events) + 1)]]
        return [Entry(head + place, at, event, called[place - 1]) for place, event in enumerate(events, 1)]


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
