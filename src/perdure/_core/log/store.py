"""Protocols of stores, which persist the logs of sessions, and `Log`, by which a running session appends to its log.

One driver appends to a log. Each append is one compare-and-set: it names the entry it follows and the fence of its
lease, and is refused when either is stale, so that a driver which was paused and replaced stops at its next append. It
begins no effect either: before each one the store has to confirm the lease, unless an append did so a moment ago.

Every other process posts. A post is kept until the driver writes an entry with the same id into the log: that entry
*is* the proof that it was consumed, so it is consumed once, in one transaction, whatever crashes in between.
"""

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, cast, runtime_checkable

from msgspec import Struct

from perdure._core.values.clock import Clock, new_id
from perdure._core.values.error import Fenced, StoreError
from perdure._core.values.event import Entry
from perdure._core.values.event_class import Event

from .status import RunProgress, mark_lost_entries

T = TypeVar("T")

CONFIRMED_SECONDS = 0.02
"""Seconds for which the store's confirmation of a lease counts.

Longer than an append usually takes, so that calls which begin right after their intents were stored need no other
confirmation; too short for a process to be stopped and another one to take over and go on.
"""

_MAX_CONFIRMATIONS = 9
"""Number of times that the store is asked to confirm a lease, if each answer arrives late.

Each answer may take twice as long as the one before it, the last one five seconds.
"""

_MAX_CANCELS = 10
"""Number of cancellations after which `restart_until_completed` gives up: work that fails so often cancels itself.
"""


class Lease(Struct, frozen=True):
    """The exclusive right of one process to run a session and append to its log."""

    session_id: str
    fence: int
    """Fencing token: increases each time the session changes drivers."""


class SessionInfo(Struct, frozen=True):
    """A session in a list of sessions: its id, title, number of entries and times."""

    session_id: str
    entries: int
    created_at: float
    updated_at: float
    title: str = ""
    """Title given to the session, or else the beginning of its first message."""
    parent: str = ""
    """Session it was forked from; empty when it was not, or when that one has been deleted."""
    at: int = 0
    """Number of entries it shares with the session it was forked from."""


class InterruptedSession(Struct, frozen=True):
    """A session that no process is running, with a run to continue or unread posts (stored messages to it)."""

    session_id: str
    progress: RunProgress
    """Progress of its last run. `over` only if it is listed for its posts."""
    entries: int
    """Number of entries in its log."""
    updated_at: float
    """Time of the last entry, in seconds since 1970; of the oldest post if there is no entry."""
    posts: int = 0
    """Number of posts. Those that were consumed just before a crash may still be counted."""
    due_at: float | None = None
    """When a waiting run continues without an answer; `None` if it waits without limit."""


class Post(Struct, frozen=True):
    """A stored message to a session (steering, an answer, a cancel) that any process may leave at any time."""

    id: str
    """Id of the post: the same id posted twice is one post, also after it was consumed."""
    kind: str
    """`steer`, `follow_up`, `cancel`, `answer`, `inbox`, …"""
    body: Any = None
    """Content, as JSON values."""
    at: float = 0.0
    """Time in seconds since 1970."""

    def text_field(self, field: str) -> str:
        """Return a field of the post's body as text; empty if it is missing or not text."""
        name = cast("dict[str, Any]", self.body).get(field) if isinstance(self.body, dict) else None
        return name if isinstance(name, str) else ""


class Store(Protocol):
    """Protocol of a store, which persists the logs of sessions."""

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        """Return the lease of a session, which is created if it is new. Raises `SessionBusy` if another process has it.

        With `take_over` the lease is taken from its present owner, which is fenced from then on. A store that cannot do
        that (because the owner has a kernel lock, say) raises `UnsupportedByStore`.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Release the lease; it is not an error if it was lost already."""

    async def holds(self, lease: Lease) -> bool:
        """Return True if the lease is still valid: neither released, nor expired, nor taken by another process.

        Asked before an effect begins, so the answer must be the present one, not one remembered from earlier.
        """
        ...

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Append entries to the log of the leased session, all or none; their numbers must follow its last entry.

        When this returns they survive the death of this process, and with `sync` the loss of power, together with
        everything before them. Entries whose ids are in the log already are not added again. A post with the id of an
        entry counts as consumed. Raises `Conflict` or `Fenced`, and nothing has been written then.
        """

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """Return the entries numbered above `after`, in order; none for a session that does not exist."""
        ...

    async def info(self, session_id: str) -> SessionInfo | None:
        """Return the list entry of one session; `None` when it does not exist or is empty."""
        ...

    async def delete(self, session_id: str) -> None:
        """Delete a session so that no byte of it remains; it is not an error if it does not exist.

        Entries shared with forks stay, for them. Raises `SessionBusy` while it is being driven.
        """

    async def post(self, session_id: str, post: Post) -> bool:
        """Store a post (a message to a session) until a run of the session consumes it; the session need not exist yet.

        It survives the loss of power when this returns. Return `False` when a post of this id existed already, waiting
        or consumed: then nothing has changed.
        """
        ...

    async def posts(self, session_id: str) -> list[Post]:
        """Return the posts to a session that no run has consumed, in order of arrival."""
        ...

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        """Create a session that begins with the first `at` entries of another session (by default all of them).

        Entries are shared rather than copied where possible. Posts stay with the original. Raises `SessionNotFound`,
        `SessionExists` when `new_id` is not empty, and `ConfigError` when there are not that many entries.
        """

    async def redact(self, lease: Lease, entry: Entry) -> None:
        """Replace the entry with the number of `entry`; no byte of the old content remains, not even in forks.

        Raises `Fenced`, and `Conflict` when there is no entry of this number.
        """

    async def list_interrupted(
        self, *, prefix: str = "", include_posts: bool = False, now: float | None = None
    ) -> list[InterruptedSession]:
        """Return the sessions whose last run can continue and that no living process drives, the longest idle first.

        These are runs that were cut off, tasks of background agents that have not begun, or whose end was not reported
        to the session that gave them, and waiting runs that have posts (perhaps an answer), or whose `due_at` has
        passed at the time `now`, by default that of the store. With `include_posts`, sessions whose last run is over
        and that have posts are listed too. A fork is listed only once a run was begun in it: the run it was cut from is
        that of the original session.

        The progress of the last run is recorded with each append (`find_last_run_progress`), so this reads no logs.
        """
        ...

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Return sessions that are not empty and whose id begins with `prefix`, the most recently used first."""
        ...

    async def aclose(self) -> None:
        """Close files and connections."""


SearchSyntax: TypeAlias = Literal["words", "query"]
"""Syntax of a search: plain words, all of which must occur; or the query language of the store."""


class SearchOptions(TypedDict, total=False):
    """Filters and paging of a search."""

    syntax: SearchSyntax
    """Syntax of the query; `words` by default."""
    session_id: str
    """Search this session only."""
    prefix: str
    """Search sessions whose id begins with this."""
    role: str
    """Search messages of one role: `user`, `assistant` or `tool`."""
    since: float | None
    """Time in seconds since 1970, as is `until`."""
    until: float | None
    limit: int
    """Number of hits; 20 by default, and 100 at most."""
    offset: int
    """Number of best hits to skip."""


class Hit(Struct, frozen=True):
    """A log entry found by a search."""

    session_id: str
    seq: int
    """Number of the entry."""
    role: str
    """Role of its author: `user`, `assistant` or `tool`."""
    snippet: str
    """Text around the match; the match is between « and »."""
    score: float
    """Rank: higher is better. Not comparable across stores."""
    at: float
    """Time of the entry, in seconds since 1970."""


@runtime_checkable
class SearchableStore(Protocol):
    """Protocol of a store with full-text search."""

    async def search(self, query: str, **narrowed: Unpack[SearchOptions]) -> list[Hit]:
        """Search messages and tool results for text, the best hits first; even the latest entries are found.

        Raises `ConfigError` for an invalid query.
        """
        ...


class StoreSize(Struct, frozen=True):
    """Disk space used by a store."""

    total_bytes: int
    """Total size on disk."""
    free_bytes: int
    """Bytes of these that `vacuum` would free."""
    search_bytes: int
    """Bytes of these used by the search index."""
    sessions: dict[str, int]
    """Bytes of each session's entries, without those it shares with others."""


@runtime_checkable
class MaintainableStore(Protocol):
    """Protocol of a store with maintenance operations: size, vacuum and backup."""

    async def size(self) -> StoreSize:
        """Return the disk space that the store uses."""
        ...

    async def vacuum(self) -> None:
        """Free unused disk space."""

    async def backup(self, path: str) -> None:
        """Write a copy of the store to a new path, while it may be in use; it appears there whole or not at all."""


@runtime_checkable
class NonBlockingAppendStore(Protocol):
    """Protocol of a store with a synchronous append (`append_now`), which returns False instead of waiting."""

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        """Append like `append`, but without waiting; return `False`, with nothing stored, if it would have to wait.

        With `sync` too: return `False` unless a sync is so quick that the event loop can wait for it.
        """
        ...


@runtime_checkable
class GroupCommitStore(Protocol):
    """Protocol of a store that writes the appends of many sessions in one commit, which is faster."""

    def append_soon(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> "asyncio.Future[None]":
        """Start an `append`, and return its future; it is completed even if the caller stops waiting."""
        ...


@runtime_checkable
class EventReadingStore(Protocol):
    """Protocol of a store that can return the events of a log without entry numbers, ids and times, which is faster."""

    async def events(self, session_id: str, *, after: int = 0) -> tuple[list[Event], int]:
        """Return the events of the entries numbered above `after`, in order, and the number of the last of them.

        In the place of entries that were lost to damage is an `EntriesLost`.
        """
        ...


@runtime_checkable
class ForkListingStore(Protocol):
    """Protocol of a store that can list the forks of one session without listing all sessions."""

    async def forks(self, session_id: str) -> list[SessionInfo]:
        """Return the non-empty sessions that were forked from this one, the most recently used first."""
        ...


class StoreFastPathFlags(NamedTuple):
    """Flags for the optional, faster operations that a class of stores supports."""

    appends_now: bool
    appends_in_groups: bool
    reads_events: bool


@cache
def detect_store_fast_paths(kind: type) -> StoreFastPathFlags:
    """Return which optional, faster operations a class of stores supports; cached, as protocol checks are slow."""
    return StoreFastPathFlags(
        issubclass(kind, NonBlockingAppendStore),
        issubclass(kind, GroupCommitStore),
        issubclass(kind, EventReadingStore),
    )


SessionPlace: TypeAlias = tuple[Hashable, str]
"""The innermost store of a session, in a form that is equal for all objects by which this process reaches it, and the
id of the session there. It may contain a password: it is never shown."""


@runtime_checkable
class SessionKeyStore(Protocol):
    """Protocol of a store that returns a key for a session, equal for all store objects that access this session."""

    def locate_session(self, session_id: str) -> SessionPlace:
        """Return a key of a session that is the same for all store objects through which this process reaches it."""
        ...


def get_process_wide_session_key(store: Store, session_id: str) -> SessionPlace:
    """Return a key for a session that is the same for all store objects through which this process reaches it."""
    locate: Callable[[str], SessionPlace] | None = getattr(store, "locate_session", None)
    return (id(store), session_id) if locate is None else locate(session_id)


def get_namespaced_session_id(store: Store, session_id: str) -> str:
    """Return the id that a session has in the underlying store, including the prefixes that namespaced stores add."""
    return get_process_wide_session_key(store, session_id)[1]


async def read_events(store: Store, session_id: str, *, after: int = 0) -> tuple[list[Event], int]:
    """Return the events of a log after entry number `after`, and the number of the last entry.

    The number is read, not counted: a damaged log may have gaps. In their place is an `EntriesLost`.
    """
    if detect_store_fast_paths(type(store)).reads_events:
        return await cast("EventReadingStore", store).events(session_id, after=after)
    entries = await store.read(session_id, after=after)
    return mark_lost_entries(entries, after), entries[-1].seq if entries else after


class EntryIdSource:
    """Source of ids for new log entries: a random beginning, followed by a number that is never used twice.

    A store compares consecutive ids of one stem quickly, so the runs of a session in one process share them.
    """

    __slots__ = ("given", "process_id", "stem")

    def __init__(self) -> None:
        self.process_id = os.getpid()
        """The process that may use them: a fork of it would give the same ids again."""
        self.stem = new_id()[-16:]
        self.given = 0
        """The number of the last id."""


class Log:
    """The log of one session, for the process that runs it: appends events as numbered entries."""

    __slots__ = (
        "_append_grouped",
        "_append_immediately",
        "_append_lock",
        "_clock",
        "_confirmed_at",
        "_confirmed_seconds",
        "_ids",
        "_is_retired",
        "_now",
        "_queued_appends",
        "head",
        "lease",
        "store",
    )

    def __init__(self, store: Store, lease: Lease, head: int, clock: Clock, ids: EntryIdSource | None = None) -> None:
        self.store = store
        self.lease = lease
        self.head = head
        """Number of the last entry."""
        self._clock = clock
        self._now = clock.now
        shortcuts = detect_store_fast_paths(type(store))
        self._append_immediately = cast("NonBlockingAppendStore", store).append_now if shortcuts.appends_now else None
        self._append_grouped = cast("GroupCommitStore", store).append_soon if shortcuts.appends_in_groups else None
        self._ids = ids if ids is not None and ids.process_id == os.getpid() else EntryIdSource()
        self._queued_appends = 0
        """Number of tasks that have the lock or wait for it. At 0, the lock is acquired without waiting."""
        self._append_lock = asyncio.Lock()
        self._is_retired = False
        self._confirmed_at = -math.inf
        """Time at which the last append that succeeded was begun: the lease was valid then."""
        self._confirmed_seconds = CONFIRMED_SECONDS
        """Seconds for which that counts: longer than usual while the store takes longer to answer."""

    async def hand_over(self) -> "Log":
        """Return a new `Log` object for the same log, and disable this one: its next append raises `Fenced`."""
        self._queued_appends += 1
        try:
            async with self._append_lock:
                self._is_retired = True
                return Log(self.store, self.lease, self.head, self._clock, self._ids)
        finally:
            self._queued_appends -= 1

    @property
    def is_lease_confirmed(self) -> bool:
        """True if the store has confirmed the lease recently, within the last `CONFIRMED_SECONDS`.

        A process that was stopped finds by the clock that the confirmation is old, and so does one whose machine slept.
        """
        return not self._is_retired and 0.0 <= self._now() - self._confirmed_at <= self._confirmed_seconds

    async def confirm_lease(self) -> None:
        """Raise `Fenced` if this process may no longer append; to be called right before each effect.

        The store is asked, unless it has confirmed the lease a moment ago. An answer that arrives late, because the
        process was stopped meanwhile, does not count. The store is asked again, and may take twice as long, because it
        may be the store or the machine that is slow. Raises `StoreError` if it is never in time.
        """
        if self.is_lease_confirmed:
            return
        seconds = CONFIRMED_SECONDS
        for _ in range(_MAX_CONFIRMATIONS):
            asked_at = self._now()
            if self._is_retired or not await self.store.holds(self.lease):
                message = f"session {self.lease.session_id!r} has changed hands: this driver may begin nothing any more"
                raise Fenced(message)
            self._confirmed_at, self._confirmed_seconds = asked_at, seconds
            if self.is_lease_confirmed:
                return
            seconds *= 2
        message = (
            f"the store takes too long to confirm the lease of session {self.lease.session_id!r}: no effect may begin; "
            "resume the session when the store or the machine is less busy"
        )
        raise StoreError(message)

    def append_now(
        self,
        events: Sequence[Event],
        sync: bool,  # noqa: FBT001 - keywords would double the cost of the call
        entry_ids: Sequence[str] = (),
    ) -> list[Entry] | None:
        """Append events without waiting; return `None`, with nothing stored, when that is not possible.

        The first entries get the ids in `entry_ids`, if there are any: an entry that consumes a post has the id of the
        post.
        """
        if self._append_immediately is None or self._queued_appends:
            return None
        entries = self._make_entries(events, entry_ids)
        if not self._append_immediately(self.lease, entries, sync=sync):
            self._ids.given -= len(entries)  # none of them was stored, so their ids are free
            return None
        if entries:  # as `_record_stored` does; most appends pass here, and a call would cost them time
            self.head += len(entries)
            self._confirmed_at, self._confirmed_seconds = entries[0].at, CONFIRMED_SECONDS
        return entries

    async def append(
        self,
        events: Sequence[Event],
        *,
        sync: bool,
        on_stored: Callable[[Sequence[Entry]], None],
        entry_ids: Sequence[str] = (),
    ) -> bool:
        """Append events after all earlier appends, and call `on_stored` with the entries before the next append.

        Return True if the caller was cancelled meanwhile; the append is complete in either case.
        """
        is_alone = not self._queued_appends
        self._queued_appends += 1
        try:
            if is_alone and self._append_grouped is not None:
                return await self._append_soon(self._append_grouped, events, sync, on_stored, entry_ids)
            _, cancelled = await restart_until_completed(lambda: self._append(events, sync, on_stored, entry_ids))
        finally:
            self._queued_appends -= 1
        return cancelled

    async def _append_soon(
        self,
        append_soon: Callable[..., "asyncio.Future[None]"],
        events: Sequence[Event],
        sync: bool,  # noqa: FBT001 - handed through
        on_stored: Callable[[Sequence[Entry]], None],
        entry_ids: Sequence[str],
    ) -> bool:
        """Append like `_append`, for a store that completes an append even if its caller is cancelled.

        Only for a caller that is alone: a cancel while it waits for the lock would drop the append. That the lock is
        free is not enough, for others may wait for it, and they come first.
        """
        async with self._append_lock:  # nobody has it or waits for it: this does not block
            entries = self._make_entries(events, entry_ids)
            cancelled = False
            try:
                await append_soon(self.lease, entries, sync=sync)
            except asyncio.CancelledError:
                # The append goes on without this task. Repeated, it adds nothing, and raises what the first one raised.
                await restart_until_completed(lambda: self.store.append(self.lease, entries, sync=sync))
                cancelled = True
            self._record_stored(entries)
            on_stored(entries)
            return cancelled

    async def _append(
        self,
        events: Sequence[Event],
        sync: bool,  # noqa: FBT001 - handed through
        on_stored: Callable[[Sequence[Entry]], None],
        entry_ids: Sequence[str],
    ) -> None:
        async with self._append_lock:
            entries = self._make_entries(events, entry_ids)
            await restart_until_completed(lambda: self.store.append(self.lease, entries, sync=sync))
            self._record_stored(entries)
            on_stored(entries)

    def _record_stored(self, entries: Sequence[Entry]) -> None:
        if entries:
            self.head += len(entries)
            self._confirmed_at = at = entries[0].at
            if 0.0 <= self._now() - at <= CONFIRMED_SECONDS:
                self._confirmed_seconds = CONFIRMED_SECONDS

    def _make_entries(self, events: Sequence[Event], entry_ids: Sequence[str]) -> list[Entry]:
        if self._is_retired:
            message = f"this run of session {self.lease.session_id!r} was taken over: no more entries can be appended"
            raise Fenced(message)
        # An id is never used for two entries, even after a failed append: it may have been stored after all.
        at, ids = self._now(), self._ids
        head, stem, given = self.head, ids.stem, ids.given
        ids.given = given + len(events)
        if not entry_ids:
            if len(events) == 1:  # nearly always, if anything watches the run
                return [Entry(head + 1, at, events[0], f"{stem}-{given + 1}")]
            return [Entry(head + place, at, event, f"{stem}-{given + place}") for place, event in enumerate(events, 1)]
        called = [*entry_ids, *[f"{stem}-{given + place}" for place in range(len(entry_ids) + 1, len(events) + 1)]]
        return [Entry(head + place, at, event, called[place - 1]) for place, event in enumerate(events, 1)]


async def restart_until_completed(work: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
    """Await `work()` to its end even if the caller is cancelled; call it again if the work itself is cancelled.

    That happens when an event loop is closed, for then each of its tasks is cancelled.
    """
    cancelled = False
    for _ in range(_MAX_CANCELS):
        try:
            result, interrupted = await run_to_completion(work())
        except asyncio.CancelledError:
            cancelled = True
            continue
        return result, cancelled or interrupted
    raise asyncio.CancelledError


async def finish_before_cancel(work: Callable[[], Awaitable[T]]) -> T:
    """Await repeatable work to its end even if the caller is cancelled, and raise the cancel only afterwards.

    If a cancel interrupts it, the work is started again, in a separate task. Most callers never need one.
    """
    try:
        return await work()
    except asyncio.CancelledError:
        await restart_until_completed(work)
        raise


async def run_to_completion(work: Awaitable[T]) -> tuple[T, bool]:
    """Await `work` to its end even if the caller is cancelled; return its result, and whether the caller was cancelled.

    The caller finishes its own bookkeeping first, and then raises the `CancelledError` that it owes.
    """
    task = asyncio.ensure_future(work)
    cancelled = await wait_despite_cancel((task,))
    return task.result(), cancelled


async def cancel_and_await_tasks(tasks: Collection["asyncio.Future[Any]"]) -> None:
    """Cancel asyncio tasks and wait until all have ended, even if the caller is cancelled meanwhile."""
    for task in tasks:
        task.cancel()
    if await wait_despite_cancel(tasks):
        raise asyncio.CancelledError


async def wait_despite_cancel(futures: Collection["asyncio.Future[Any]"]) -> bool:
    """Wait until all futures are done even if the caller is cancelled meanwhile; return True if it was cancelled."""
    cancelled = False
    while waiting := [each for each in futures if not each.done()]:
        try:
            await asyncio.wait(waiting)
        except asyncio.CancelledError:
            cancelled = True
    return cancelled


async def clear_pending_cancel() -> None:
    """Clear a cancel that was requested of the current asyncio task and has not been raised in it yet.

    asyncio drops the result of a task that returns before, as one does that has cancelled itself in its last step.
    """
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
