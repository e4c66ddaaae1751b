"""A store wrapper that calls functions of the caller after appends, reads, deletions, forks and redactions.

    store = listened(open_store("sqlite:sessions.db"), lambda session_id, entries: index(session_id, entries))

A listener is called where the operation is, in the order of the operations and after they are done: it should be quick,
and delegate work that takes time. An async listener is awaited before the operation returns.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Final, TypeAlias, Unpack

from msgspec import Struct

from perdure._core.log.store import (
    EventReadingStore,
    ForkListingStore,
    Hit,
    InterruptedSession,
    Lease,
    MaintainableStore,
    NonBlockingAppendStore,
    Post,
    SearchableStore,
    SearchOptions,
    SessionInfo,
    SessionPlace,
    Store,
    StoreSize,
    get_process_wide_session_key,
)
from perdure._core.values import checks
from perdure._core.values.binding import identify_store
from perdure._core.values.event import Entry
from perdure._core.values.event_class import Event

from .class_choice import choose_wrapper_class

Listener: TypeAlias = Callable[[str, Sequence[Entry]], object]
"""Called with the id of a session and the entries that were appended to it, or read from it. Plain or async."""


class _Listeners(Struct, frozen=True):
    """The functions that are called after operations of a store."""

    on_append: Listener | None
    on_read: Listener | None
    on_delete: Callable[[str], object] | None
    on_fork: Callable[[str, str], object] | None
    on_redact: Callable[[str, Entry], object] | None


_log: Final = logging.getLogger("perdure")


def listened(
    store: Store,
    on_append: Listener | None = None,
    *,
    on_read: Listener | None = None,
    on_delete: Callable[[str], object] | None = None,
    on_fork: Callable[[str, str], object] | None = None,
    on_redact: Callable[[str, Entry], object] | None = None,
) -> Store:
    """Wrap a store so that it calls the given functions after it appends, reads, deletes, forks or redacts.

    The functions may be plain or async.

    `on_append(session_id, entries)` is called after each append that has added entries, with each entry once per lease,
    also when its append is repeated; `on_read(session_id, entries)` after a log was read; `on_delete(session_id)` after
    a session was deleted; `on_fork(session_id, new_id)` after one was forked; `on_redact(session_id, entry)` after the
    content of an entry was erased. An exception of a listener is logged, and the operation has succeeded all the same.
    What other processes do is not passed.

    The wrapper is `NonBlockingAppendStore`, `SearchableStore` and `MaintainableStore` exactly when `store` is. With an
    async `on_append` each append waits for it. Closing the wrapper closes `store`.
    """
    listeners = _Listeners(on_append, on_read, on_delete, on_fork, on_redact)
    for name in listeners.__struct_fields__:
        checks.require_callable_or_none("listened", name, getattr(listeners, name))
    if all(getattr(listeners, name) is None for name in listeners.__struct_fields__):
        checks.raise_config_error(
            "listened", "on_append", None, "give a function of a session id and a list of entries"
        )
    extras = {kind: made for kind, made in _EXTRAS.items() if on_read is None or kind is not EventReadingStore}
    return choose_wrapper_class(ListenedStore, store, extras)(store, listeners)


class ListenedStore:
    """A store wrapper that calls listener functions after operations such as appends. Create it with `listened`."""

    def __init__(self, store: Store, listeners: _Listeners) -> None:
        self._store: Any = store
        self._listeners = listeners
        self._last_passed: dict[str, int] = {}
        """The number of the last entry that was passed to the listener, for each session that is being driven."""
        call = getattr(listeners.on_append, "__call__", None)  # noqa: B004 - of an object that can be called
        self._waits = iscoroutinefunction(listeners.on_append) or iscoroutinefunction(call)
        """True if an append has to wait for its listener."""
        self._late: set[asyncio.Future[Any]] = set()
        """What a listener returned that turned out to be async only when it was called."""

    @property
    def identity(self) -> str:
        """The identity of the wrapped store, which approvals of tool calls are bound to."""
        return identify_store(self._store)

    def locate_session(self, session_id: str) -> SessionPlace:
        """Return the key of a session in the wrapped store, which all objects for that store share."""
        return get_process_wide_session_key(self._store, session_id)

    @property
    def is_process_local(self) -> bool:
        """True if no other process can write to the underlying store."""
        return getattr(self._store, "is_process_local", False)

    def __repr__(self) -> str:
        return f"listened({self._store!r})"

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
        if (answer := self._pass_entries(lease, entries)) is not None:
            await self._wait_for(lease.session_id, answer)

    async def redact(self, lease: Lease, entry: Entry) -> None:
        """Replace the stored entry that has the same number as `entry`."""
        await self._store.redact(lease, entry)
        await self._tell(lease.session_id, self._listeners.on_redact, lease.session_id, entry)

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """Return the entries numbered above `after`, in order."""
        entries: list[Entry] = await self._store.read(session_id, after=after)
        await self._tell(session_id, self._listeners.on_read, session_id, entries)
        return entries

    async def post(self, session_id: str, post: Post) -> bool:
        """Store a post: a message to a session, kept until the process that runs the session takes it."""
        is_new: bool = await self._store.post(session_id, post)
        return is_new

    async def posts(self, session_id: str) -> list[Post]:
        """Return the posts (messages to a session) that the process running it has not taken yet."""
        posts: list[Post] = await self._store.posts(session_id)
        return posts

    async def list_interrupted(
        self, *, prefix: str = "", include_posts: bool = False, now: float | None = None
    ) -> list[InterruptedSession]:
        """Return the sessions whose last run can continue and that are not driven."""
        found: list[InterruptedSession] = await self._store.list_interrupted(
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
        await self._tell(session_id, self._listeners.on_delete, session_id)

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        """Create a session that starts with the entries of another."""
        await self._store.fork(session_id, new_id, at=at)
        await self._tell(session_id, self._listeners.on_fork, session_id, new_id)

    async def aclose(self) -> None:
        """Close the wrapped store, after the listeners that are still at work."""
        if self._late:
            await asyncio.wait(self._late)
        await self._store.aclose()

    def _pass_entries(self, lease: Lease, entries: Sequence[Entry]) -> Awaitable[Any] | None:
        """Call the listener with the entries that it has not received yet; return what has to be awaited."""
        session_id = lease.session_id
        told = self._last_passed.get(session_id, 0)
        new = [entry for entry in entries if entry.seq > told]
        if not new or self._listeners.on_append is None:
            return None
        self._last_passed[session_id] = new[-1].seq
        return self._call(session_id, self._listeners.on_append, session_id, new)

    async def _tell(self, session_id: str, listener: Callable[..., object] | None, *told: object) -> None:
        """Call a listener, if there is one, and wait for it if it is async."""
        if listener is not None and (answer := self._call(session_id, listener, *told)) is not None:
            await self._wait_for(session_id, answer)

    def _call(self, session_id: str, listener: Callable[..., object], *told: object) -> Awaitable[Any] | None:
        try:
            answer = listener(*told)
        except Exception:  # noqa: BLE001 - whatever it is, the operation is done
            _log.exception("the listener of session %r failed; what it was told of is stored", session_id)
            return None
        return answer if isawaitable(answer) else None

    async def _wait_for(self, session_id: str, answer: Awaitable[Any]) -> None:
        try:
            await answer
        except Exception:  # noqa: BLE001 - whatever it is, the operation is done
            _log.exception("the listener of session %r failed; what it was told of is stored", session_id)

    def _wait_later(self, session_id: str, answer: Awaitable[Any]) -> None:
        """Let an awaitable that a plain listener returned finish on its own, and wait for it at the next append."""
        self._waits = True
        task = asyncio.ensure_future(self._wait_for(session_id, answer))
        self._late.add(task)
        task.add_done_callback(self._late.discard)


class _ForkListing(ListenedStore):
    async def forks(self, session_id: str) -> list[SessionInfo]:
        """Return the sessions that were forked from this one."""
        found: list[SessionInfo] = await self._store.forks(session_id)
        return found


class _Immediate(ListenedStore):
    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        """Append entries without waiting. If that is not possible, store nothing and return False."""
        if self._waits:
            return False
        done: bool = self._store.append_now(lease, entries, sync=sync)
        if done and (answer := self._pass_entries(lease, entries)) is not None:
            self._wait_later(lease.session_id, answer)
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
    EventReadingStore: _Foldable,
    ForkListingStore: _ForkListing,
    NonBlockingAppendStore: _Immediate,
    SearchableStore: _Searchable,
    MaintainableStore: _Maintained,
}
