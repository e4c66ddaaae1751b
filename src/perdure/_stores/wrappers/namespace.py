"""Use the sessions whose ids begin with one prefix, such as those of one tenant, as a separate store.

    store = open_store("sqlite:sessions.db")
    acme = namespaced(store, "acme")            # its session "s" is the session "acme/s" of the other
    inside = namespaced(acme, "support")        # and here "acme/support/s"

Code that has only the part reads, lists, searches, posts to and forks nothing outside of it. Closing it releases its
leases, and does not close the underlying store, which others may be using.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Unpack

import msgspec

from perdure._core.log.reserved_ids import check_part_not_reserved
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
from perdure._core.values.binding import identify_store
from perdure._core.values.clock import new_id
from perdure._core.values.error import ConfigError, PerdureError
from perdure._core.values.event import Entry
from perdure._core.values.event_class import Event
from perdure._stores.checks import check_page, check_session_id

from .class_choice import choose_wrapper_class

_SEPARATOR: Final = "/"


def namespaced(store: Store, prefix: str) -> Store:
    """Return a store that has only the sessions whose ids begin with `prefix/`; its own ids omit that prefix.

    It is `NonBlockingAppendStore`, `SearchableStore` and `MaintainableStore` exactly when `store` is. `size` lists the
    sessions of the part; its other numbers, `vacuum` and `backup` are those of the whole store. Raises `ConfigError`
    for a prefix with a slash: the sessions of a user `a/b` would be among those of the user `a`.
    """
    check_session_id(prefix, what="a prefix")
    if not prefix:
        raise ConfigError(f"a namespace must have a name, and {prefix!r} is none: pass one, such as 'acme'")
    if _SEPARATOR in prefix:
        raise ConfigError(
            f"namespaced(…, {prefix!r}): pass a name without slashes, because 'a/b' would have sessions of 'a'; for a "
            "part of a part, namespaced(namespaced(store, 'a'), 'b')"
        )
    check_part_not_reserved(prefix)
    return _open_part(store, prefix)


def _open_part(store: Store, prefix: str) -> Store:
    return choose_wrapper_class(NamespacedStore, store, _EXTRAS)(store, prefix.rstrip(_SEPARATOR) + _SEPARATOR)


class SubagentSessionLocation(NamedTuple):
    """Store and id of a subagent's session: a namespace of the parent's store, named by the parent's session id."""

    store: Store
    """The part of the parent's store that is under the parent's id."""
    session_id: str
    """The session's id in that part."""


def derive_subagent_session(store: Store, parent_id: str, name: str, *, durable: bool) -> SubagentSessionLocation:
    """Return the store and id of the session of subagent `name`: a part of `store`, under the id of the parent session.

    With `durable` it is the same each time, and the subagent continues its session; else it is a new one each time.
    """
    check_session_id(parent_id)
    check_session_id(name, what="the name of a subagent")
    if not name or _SEPARATOR in name:
        raise ConfigError(f"{name!r} is no name of a subagent: pass one without slashes, such as 'reviewer'")
    check_part_not_reserved(name, "a subagent")
    return SubagentSessionLocation(_open_part(store, parent_id), name if durable else f"{name}-{new_id()}")


class NamespacedStore:
    """A store that has only the sessions of another store under one id prefix. Create it with `namespaced`."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store: Any = store
        self._prefix = prefix
        self._leases: dict[str, Lease] = {}
        """The leases of the underlying store that were acquired here, by session id in this part."""

    @property
    def identity(self) -> str:
        """The identity of the store and the prefix, which approvals of tool calls are bound to."""
        return f"{identify_store(self._store)}/{self._prefix}"

    def locate_session(self, session_id: str) -> SessionPlace:
        """Return the key of a session in the underlying store, which all objects for that store share."""
        return get_process_wide_session_key(self._store, self._prefix + session_id)

    @property
    def is_process_local(self) -> bool:
        """True if no other process can write to the underlying store."""
        return getattr(self._store, "is_process_local", False)

    def __repr__(self) -> str:
        return f"namespaced({self._store!r}, {self._prefix.removesuffix(_SEPARATOR)!r})"

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        """Acquire the lease of a session under the prefix: the exclusive right to append to its log."""
        with self._outer_id(session_id) as outer:
            lease = await self._store.acquire(outer, take_over=take_over)
        self._leases[session_id] = lease
        return Lease(session_id, lease.fence)

    async def release(self, lease: Lease) -> None:
        """Release a lease; one that was lost already is not an error."""
        outer = self._outer_lease(lease)
        if self._leases.get(lease.session_id) == outer:
            del self._leases[lease.session_id]
        await self._store.release(outer)

    async def holds(self, lease: Lease) -> bool:
        """Return True if the lease is still valid."""
        is_valid: bool = await self._store.holds(self._outer_lease(lease))
        return is_valid

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Append entries to a session's log, all or none; their numbers must follow its last entry."""
        try:
            await self._store.append(self._outer_lease(lease), entries, sync=sync)
        except PerdureError as error:
            self._restore_inner_id(lease.session_id, error)
            raise

    async def redact(self, lease: Lease, entry: Entry) -> None:
        """Replace a stored entry: the one that has the same number as `entry`."""
        with self._outer_id(lease.session_id):
            await self._store.redact(self._outer_lease(lease), entry)

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """Return the entries numbered above `after`, in order."""
        with self._outer_id(session_id) as outer:
            entries: list[Entry] = await self._store.read(outer, after=after)
        return entries

    async def post(self, session_id: str, post: Post) -> bool:
        """Store a post: a message to a session, kept until the process that runs the session takes it."""
        with self._outer_id(session_id) as outer:
            is_new: bool = await self._store.post(outer, post)
        return is_new

    async def posts(self, session_id: str) -> list[Post]:
        """Return the posts (messages to a session) that the process running it has not taken yet."""
        with self._outer_id(session_id) as outer:
            posts: list[Post] = await self._store.posts(outer)
        return posts

    async def list_interrupted(
        self, *, prefix: str = "", include_posts: bool = False, now: float | None = None
    ) -> list[InterruptedSession]:
        """Return the sessions under the prefix whose last run can continue and that no process runs."""
        check_session_id(prefix, what="a prefix")
        found = await self._store.list_interrupted(prefix=self._prefix + prefix, include_posts=include_posts, now=now)
        return [msgspec.structs.replace(each, session_id=each.session_id.removeprefix(self._prefix)) for each in found]

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Return a page of the sessions under the prefix, the most recently used first."""
        check_page(prefix, limit, offset)
        found = await self._store.list(prefix=self._prefix + prefix, limit=limit, offset=offset)
        return [self._to_inner_info(info) for info in found]

    async def info(self, session_id: str) -> SessionInfo | None:
        """Return title, times and entry count of one session under the prefix."""
        with self._outer_id(session_id) as outer:
            info = await self._store.info(outer)
        return None if info is None else self._to_inner_info(info)

    async def delete(self, session_id: str) -> None:
        """Delete a session under the prefix."""
        with self._outer_id(session_id) as outer:
            await self._store.delete(outer)

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        """Create a session under the prefix that starts with the entries of another one under it."""
        with self._outer_id(new_id) as new, self._outer_id(session_id) as outer:
            await self._store.fork(outer, new, at=at)

    async def aclose(self) -> None:
        """Release the leases that were acquired here. The underlying store stays open."""
        leases, self._leases = self._leases, {}
        for lease in leases.values():
            await self._store.release(lease)

    def _outer_lease(self, lease: Lease) -> Lease:
        return Lease(self._prefix + lease.session_id, lease.fence)

    @contextmanager
    def _outer_id(self, session_id: str) -> Generator[str, None, None]:
        """Context manager: yield the id in the underlying store, and use the caller's id in errors raised there."""
        check_session_id(session_id)
        try:
            yield self._prefix + session_id
        except PerdureError as error:
            self._restore_inner_id(session_id, error)
            raise

    def _restore_inner_id(self, session_id: str, error: PerdureError) -> None:
        outer, known = repr(self._prefix + session_id), repr(session_id)
        error.args = tuple(arg.replace(outer, known) if isinstance(arg, str) else arg for arg in error.args)

    def _to_inner_info(self, info: SessionInfo) -> SessionInfo:
        is_ours = info.parent.startswith(self._prefix)
        return msgspec.structs.replace(
            info,
            session_id=info.session_id.removeprefix(self._prefix),
            parent=info.parent.removeprefix(self._prefix) if is_ours else "",
        )


class _ForkListing(NamespacedStore):
    async def forks(self, session_id: str) -> list[SessionInfo]:
        """Return the sessions under the prefix that were forked from this one."""
        with self._outer_id(session_id) as outer:
            found = await self._store.forks(outer)
        return [self._to_inner_info(info) for info in found if info.session_id.startswith(self._prefix)]


class _Immediate(NamespacedStore):
    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        """Append entries without waiting. If that is not possible, store nothing and return False."""
        try:
            done: bool = self._store.append_now(self._outer_lease(lease), entries, sync=sync)
        except PerdureError as error:
            self._restore_inner_id(lease.session_id, error)
            raise
        return done


class _Foldable(NamespacedStore):
    async def events(self, session_id: str, *, after: int = 0) -> tuple[list[Event], int]:
        """Return the events numbered above `after`, and the number of the last entry."""
        with self._outer_id(session_id) as outer:
            events: tuple[list[Event], int] = await self._store.events(outer, after=after)
        return events


class _Searchable(NamespacedStore):
    async def search(self, query: str, **narrowed: Unpack[SearchOptions]) -> list[Hit]:
        """Search the text in the sessions under the prefix, the best hits first."""
        session_id, prefix = narrowed.get("session_id", ""), narrowed.get("prefix", "")
        here: SearchOptions = {
            **narrowed,
            "session_id": self._prefix + session_id if session_id else "",
            "prefix": self._prefix + prefix,
        }
        hits: list[Hit] = await self._store.search(query, **here)
        return [msgspec.structs.replace(hit, session_id=hit.session_id.removeprefix(self._prefix)) for hit in hits]


class _Maintained(NamespacedStore):
    async def size(self) -> StoreSize:
        """Return the bytes that the whole store takes, and the size of each session under the prefix."""
        size: StoreSize = await self._store.size()
        sessions = {
            session_id.removeprefix(self._prefix): count
            for session_id, count in size.sessions.items()
            if session_id.startswith(self._prefix)
        }
        return msgspec.structs.replace(size, sessions=sessions)

    async def vacuum(self) -> None:
        """Free unused space of the whole store."""
        await self._store.vacuum()

    async def backup(self, path: str) -> None:
        """Write a copy of the whole store to a new path, including sessions outside the prefix."""
        await self._store.backup(path)


_EXTRAS: Final[Mapping[type, type[NamespacedStore]]] = {
    EventReadingStore: _Foldable,
    ForkListingStore: _ForkListing,
    NonBlockingAppendStore: _Immediate,
    SearchableStore: _Searchable,
    MaintainableStore: _Maintained,
}
