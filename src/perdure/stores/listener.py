"""Wrap a store so that a function is called for each entry that is appended through it.

    store = listened(open_store("sqlite:sessions.db"), lambda session_id, entries: index(session_id, entries))

The listener is called where the entries are appended, in their order and after they are stored: it should be quick, and
delegate work that takes time.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, Unpack

from perdure.core.binding import identify_store
from perdure.core.error import ConfigError
from perdure.core.event import Entry, Event
from perdure.core.store import (
    EventStore,
    ForkListingStore,
    Hit,
    ImmediateStore,
    InterruptedSession,
    Lease,
    MaintainableStore,
    Post,
    SearchableStore,
    SearchOptions,
    SessionInfo,
    Store,
    StoreSize,
)

from .wrapper_protocols import choose_wrapper_class

Listener: TypeAlias = Callable[[str, Sequence[Entry]], object]
"""Called with the id of a session and the entries that were appended to it."""

_log: Final = logging.getLogger("perdure")


def listened(store: Store, listener: Listener) -> Store:
    """Wrap a store so that it calls `listener(session_id, entries)` after each append that has added entries.

    Each entry is passed once per lease, also when its append is repeated. An exception of the listener is logged, and
    the append has succeeded all the same. Entries that other processes append are not passed.

    The wrapper is `ImmediateStore`, `SearchableStore` and `MaintainableStore` exactly when `store` is. Closing it
    closes `store`.
    """
    from inspect import iscoroutinefunction

    if not callable(listener) or iscoroutinefunction(listener):
        raise ConfigError(f"{listener!r} cannot listen: pass a plain function of a session id and a list of entries")
    return choose_wrapper_class(ListenedStore, store, _EXTRAS)(store, listener)


class ListenedStore:
    """A store wrapper that passes all appended entries to a listener function. Create it with `listened`."""

    def __init__(self, store: Store, listener: Listener) -> None:
        self._store: Any = store
        self._listener = listener
        self._last_passed: dict[str, int] = {}
        """The number of the last entry that was passed to the listener, for each session that is being driven."""

    @property
    def identity(self) -> str:
        """The identity of the store inside, which approvals of tool calls are bound to."""
        return identify_store(self._store)

    def __repr__(self) -> str:
        return f"listened({self._store!r}, {self._listener!r})"

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        """Acquire the lease of a session: the exclusive right to append to its log."""
        lease: Lease = await self._store.acquire(session_id, take_over=take_over)
        self._last_passed.pop(session_id, None)
        return lease

    async def release(self, lease: Lease) -> None:
        """Release a lease."""
        await self._store.release(lease)

    async def holds(self, lease: Lease) -> bool:
        """Return True if the lease is still valid."""
        is_valid: bool = await self._store.holds(lease)
        return is_valid

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Append entries to a session's log, and call the listener with those that are new."""
        await self._store.append(lease, entries, sync=sync)
        self._call_listener(lease, entries)

    async def redact(self, lease: Lease, entry: Entry) -> None:
        """Replace the stored entry that has the same number as `entry`. The listener is not called."""
        await self._store.redact(lease, entry)

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """Return the entries numbered above `after`, in order."""
        entries: list[Entry] = await self._store.read(session_id, after=after)
        return entries

    async def post(self, session_id: str, post: Post) -> bool:
        """Store a post: a message to a session, kept until the process that runs the session takes it."""
        is_new: bool = await self._store.post(session_id, post)
        return is_new

    async def posts(self, session_id: str) -> list[Post]:
        """Return the posts (messages to a session) that the process running it has not taken yet."""
        posts: list[Post] = await self._store.posts(session_id)
        return posts

    async def interrupted(
        self, *, prefix: str = "", include_posts: bool = False, now: float | None = None
    ) -> list[InterruptedSession]:
        """Return the sessions whose last run can continue and that are not driven."""
        found: list[InterruptedSession] = await self._store.interrupted(
            prefix=prefix, include_posts=include_posts, now=now
        )
        return found

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Return a page of sessions whose id begins with `prefix`, the most recently used first."""
        found: list[SessionInfo] = await self._store.list(prefix=prefix, limit=limit, offset=offset)
        return found

    async def info(self, session_id: str) -> SessionInfo | None:
        """Return title, times and entry count of one session."""
        info: SessionInfo | None = await self._store.info(session_id)
        return info

    async def delete(self, session_id: str) -> None:
        """Delete a session."""
        await self._store.delete(session_id)
        self._last_passed.pop(session_id, None)

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        """Create a session that starts with the entries of another. The listener is not called."""
        await self._store.fork(session_id, new_id, at=at)

    async def aclose(self) -> None:
        """Close the wrapped store."""
        await self._store.aclose()

    def _call_listener(self, lease: Lease, entries: Sequence[Entry]) -> None:
        session_id = lease.session_id
        told = self._last_passed.get(session_id, 0)
        new = [entry for entry in entries if entry.seq > told]
        if not new:
            return
        self._last_passed[session_id] = new[-1].seq
        try:
            self._listener(session_id, new)
        except Exception:  # noqa: BLE001 - whatever it is, the entries are stored
            _log.exception("the listener of session %r failed; the entries are stored", session_id)


class _ForkListing(ListenedStore):
    async def forks(self, session_id: str) -> list[SessionInfo]:
        """Return the sessions that were forked from this one."""
        found: list[SessionInfo] = await self._store.forks(session_id)
        return found


class _Immediate(ListenedStore):
    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        """Append entries without waiting. If that is not possible, store nothing and return False."""
        done: bool = self._store.append_now(lease, entries, sync=sync)
        if done:
            self._call_listener(lease, entries)
        return done


class _Foldable(ListenedStore):
    async def events(self, session_id: str, *, after: int = 0) -> tuple[list[Event], int]:
        """Return the events numbered above `after`, and the number of the last entry."""
        events: tuple[list[Event], int] = await self._store.events(session_id, after=after)
        return events


class _Searchable(ListenedStore):
    async def search(self, query: str, **narrowed: Unpack[SearchOptions]) -> list[Hit]:
        """Search the text of users, models and tools, the best hits first."""
        hits: list[Hit] = await self._store.search(query, **narrowed)
        return hits


class _Maintained(ListenedStore):
    async def size(self) -> StoreSize:
        """Return the bytes that the store takes."""
        size: StoreSize = await self._store.size()
        return size

    async def vacuum(self) -> None:
        """Free unused space."""
        await self._store.vacuum()

    async def backup(self, path: str) -> None:
        """Write a copy of the store to a new path."""
        await self._store.backup(path)


_EXTRAS: Final[Mapping[type, type[ListenedStore]]] = {
    EventStore: _Foldable,
    ForkListingStore: _ForkListing,
    ImmediateStore: _Immediate,
    SearchableStore: _Searchable,
    MaintainableStore: _Maintained,
}
