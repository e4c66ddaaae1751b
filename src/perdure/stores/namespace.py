"""A part of a store as a store of its own. Above: whoever shares one store. Below: any store.

    store = open_store("sqlite:sessions.db")
    acme = namespaced(store, "acme")            # its session "s" is the session "acme/s" of the other
    inside = namespaced(acme, "support")        # and here "acme/support/s"

Whoever has only the part reads, lists, searches, posts to and forks nothing outside of it. It is closed without the
store around it, which others may be using: its leases are given back, and that is all.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Unpack

import msgspec

from perdure.core.clock import new_id
from perdure.core.error import ConfigError, PerdureError
from perdure.core.event import Entry, Event
from perdure.core.store import (
    Foldable,
    Hit,
    Immediate,
    Lease,
    Maintained,
    Narrowed,
    Post,
    Searchable,
    SessionInfo,
    Store,
    StoreSize,
)

from .capability import matching
from .listing import check_page, check_session_id

_SEPARATOR: Final = "/"


def namespaced(store: Store, prefix: str) -> Store:
    """The sessions of `store` whose ids begin with `prefix` and a slash, which here they do without.

    It is `Immediate`, `Searchable` and `Maintained` exactly when `store` is. `size` counts the sessions of the part in
    a store whose other numbers are those of the whole; `vacuum` and `backup` are of the whole.
    """
    check_session_id(prefix, what="a prefix")
    if not prefix.strip(_SEPARATOR):
        raise ConfigError(f"a namespace must have a name, and {prefix!r} is none: pass one, such as 'acme'")
    return matching(Namespaced, store, _EXTRAS)(store, prefix.rstrip(_SEPARATOR) + _SEPARATOR)


class Derived(NamedTuple):
    """Where the session of a subagent is kept."""

    store: Store
    """The part of the parent's store that is under the parent's id."""
    session_id: str
    """The session in there."""


def derived(store: Store, parent_id: str, name: str, *, durable: bool) -> Derived:
    """A place for the session of the subagent `name` of a session: that of `parent_id` and a slash before its own id.

    With `durable` it is the same each time, and the subagent goes on where it was; else it is a new one each time.
    """
    check_session_id(parent_id)
    check_session_id(name, what="the name of a subagent")
    if not name or _SEPARATOR in name:
        raise ConfigError(f"{name!r} is no name of a subagent: pass one without slashes, such as 'reviewer'")
    return Derived(namespaced(store, parent_id), name if durable else f"{name}-{new_id()}")


class Namespaced:
    """A part of a store. `namespaced` makes one that can do what the store can."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store: Any = store
        self._prefix = prefix
        self._leases: dict[str, Lease] = {}
        """Those that are out: the leases of the store around, by our own ids."""

    def __repr__(self) -> str:
        return f"namespaced({self._store!r}, {self._prefix.removesuffix(_SEPARATOR)!r})"

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        """The lease of a session of this part."""
        with self._speaking_of(session_id) as outer:
            lease = await self._store.acquire(outer, take_over=take_over)
        self._leases[session_id] = lease
        return Lease(session_id, lease.fence)

    async def release(self, lease: Lease) -> None:
        """Give the lease back; one that was lost already is not an error."""
        outer = self._outer(lease)
        if self._leases.get(lease.session_id) == outer:
            del self._leases[lease.session_id]
        await self._store.release(outer)

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Add entries, numbered from the log's end, all or none."""
        try:
            await self._store.append(self._outer(lease), entries, sync=sync)
        except PerdureError as error:
            self._speak_of(lease.session_id, error)
            raise

    async def redact(self, lease: Lease, entry: Entry) -> None:
        """Put `entry` in the place of the one with its number."""
        with self._speaking_of(lease.session_id):
            await self._store.redact(self._outer(lease), entry)

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """The entries numbered above `after`, in order."""
        with self._speaking_of(session_id) as outer:
            entries: list[Entry] = await self._store.read(outer, after=after)
        return entries

    async def post(self, session_id: str, post: Post) -> bool:
        """Keep a post until the session's driver takes it."""
        with self._speaking_of(session_id) as outer:
            is_new: bool = await self._store.post(outer, post)
        return is_new

    async def posts(self, session_id: str) -> list[Post]:
        """The posts that nobody has taken."""
        with self._speaking_of(session_id) as outer:
            posts: list[Post] = await self._store.posts(outer)
        return posts

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """The sessions of this part, the most recently used first."""
        check_page(prefix, limit, offset)
        found = await self._store.list(prefix=self._prefix + prefix, limit=limit, offset=offset)
        return [self._inner_info(info) for info in found]

    async def info(self, session_id: str) -> SessionInfo | None:
        """The line of one session in the list."""
        with self._speaking_of(session_id) as outer:
            info = await self._store.info(outer)
        return None if info is None else self._inner_info(info)

    async def delete(self, session_id: str) -> None:
        """Forget a session of this part."""
        with self._speaking_of(session_id) as outer:
            await self._store.delete(outer)

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        """Make a session of this part that begins with entries of another one in it."""
        with self._speaking_of(new_id) as new, self._speaking_of(session_id) as outer:
            await self._store.fork(outer, new, at=at)

    async def aclose(self) -> None:
        """Give back the leases that were taken here. The store around stays open, for others."""
        leases, self._leases = self._leases, {}
        for lease in leases.values():
            await self._store.release(lease)

    def _outer(self, lease: Lease) -> Lease:
        return Lease(self._prefix + lease.session_id, lease.fence)

    @contextmanager
    def _speaking_of(self, session_id: str) -> Generator[str, None, None]:
        """The id in the store around. What goes wrong there is told with the id that the caller knows."""
        check_session_id(session_id)
        try:
            yield self._prefix + session_id
        except PerdureError as error:
            self._speak_of(session_id, error)
            raise

    def _speak_of(self, session_id: str, error: PerdureError) -> None:
        outer, known = repr(self._prefix + session_id), repr(session_id)
        error.args = tuple(arg.replace(outer, known) if isinstance(arg, str) else arg for arg in error.args)

    def _inner_info(self, info: SessionInfo) -> SessionInfo:
        is_ours = info.parent.startswith(self._prefix)
        return msgspec.structs.replace(
            info,
            session_id=info.session_id.removeprefix(self._prefix),
            parent=info.parent.removeprefix(self._prefix) if is_ours else "",
        )


class _Immediate(Namespaced):
    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        """As `append`, at once; or `False`, and nothing was done."""
        try:
            done: bool = self._store.append_now(self._outer(lease), entries, sync=sync)
        except PerdureError as error:
            self._speak_of(lease.session_id, error)
            raise
        return done


class _Foldable(Namespaced):
    async def events(self, session_id: str, *, after: int = 0) -> tuple[list[Event], int]:
        """The events of the entries numbered above `after`, and the number of the last of them."""
        with self._speaking_of(session_id) as outer:
            events: tuple[list[Event], int] = await self._store.events(outer, after=after)
        return events


class _Searchable(Namespaced):
    async def search(self, query: str, **narrowed: Unpack[Narrowed]) -> list[Hit]:
        """What was said in the sessions of this part, the best hits first."""
        session_id, prefix = narrowed.get("session_id", ""), narrowed.get("prefix", "")
        here: Narrowed = {
            **narrowed,
            "session_id": self._prefix + session_id if session_id else "",
            "prefix": self._prefix + prefix,
        }
        hits: list[Hit] = await self._store.search(query, **here)
        return [msgspec.structs.replace(hit, session_id=hit.session_id.removeprefix(self._prefix)) for hit in hits]


class _Maintained(Namespaced):
    async def size(self) -> StoreSize:
        """What the whole store takes, and each session of this part."""
        size: StoreSize = await self._store.size()
        sessions = {
            session_id.removeprefix(self._prefix): count
            for session_id, count in size.sessions.items()
            if session_id.startswith(self._prefix)
        }
        return msgspec.structs.replace(size, sessions=sessions)

    async def vacuum(self) -> None:
        """Give back what is not used in the whole store."""
        await self._store.vacuum()

    async def backup(self, path: str) -> None:
        """Write the whole store to a new place, with the parts of others."""
        await self._store.backup(path)


_EXTRAS: Final[Mapping[type, type[Namespaced]]] = {
    Foldable: _Foldable,
    Immediate: _Immediate,
    Searchable: _Searchable,
    Maintained: _Maintained,
}
