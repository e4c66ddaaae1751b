"""A store with somebody who hears of each entry. Above: whoever wants to follow sessions. Below: any store.

    store = listened(open_store("sqlite:sessions.db"), lambda session_id, entries: index(session_id, entries))

The listener is called where the entries are appended, in their order and after they are stored: it should be quick,
and hand over what takes time.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, Unpack

from perdure.core.error import ConfigError
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

Listener: TypeAlias = Callable[[str, Sequence[Entry]], object]
"""Called with the id of a session and the entries that have been added to it."""

_log: Final = logging.getLogger("perdure")


def listened(store: Store, listener: Listener) -> Store:
    """The same store, which calls `listener(session_id, entries)` after each append that has added something.

    Each entry is told once while a lease is out, also when its append is repeated. What the listener raises is logged,
    and the append has succeeded all the same. Entries that others add, in other processes, are not heard of.

    It is `Immediate`, `Searchable` and `Maintained` exactly when `store` is. Closing it closes `store`.
    """
    from inspect import iscoroutinefunction

    if not callable(listener) or iscoroutinefunction(listener):
        raise ConfigError(f"{listener!r} cannot listen: pass a plain function of a session id and a list of entries")
    return matching(Listened, store, _EXTRAS)(store, listener)


class Listened:
    """A store with a listener. `listened` makes one that can do what the store can."""

    def __init__(self, store: Store, listener: Listener) -> None:
        self._store: Any = store
        self._listener = listener
        self._told: dict[str, int] = {}
        """The number of the last entry that was told, for each session that is being driven."""

    def __repr__(self) -> str:
        return f"listened({self._store!r}, {self._listener!r})"

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        """The lease of a session."""
        lease: Lease = await self._store.acquire(session_id, take_over=take_over)
        self._told.pop(session_id, None)
        return lease

    async def release(self, lease: Lease) -> None:
        """Give the lease back."""
        await self._store.release(lease)

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Add entries, and tell the listener."""
        await self._store.append(lease, entries, sync=sync)
        self._tell(lease, entries)

    async def redact(self, lease: Lease, entry: Entry) -> None:
        """Put `entry` in the place of the one with its number. Nobody is told: there is no new entry."""
        await self._store.redact(lease, entry)

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """The entries numbered above `after`, in order."""
        entries: list[Entry] = await self._store.read(session_id, after=after)
        return entries

    async def post(self, session_id: str, post: Post) -> bool:
        """Keep a post until the session's driver takes it."""
        is_new: bool = await self._store.post(session_id, post)
        return is_new

    async def posts(self, session_id: str) -> list[Post]:
        """The posts that nobody has taken."""
        posts: list[Post] = await self._store.posts(session_id)
        return posts

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Sessions whose id begins with `prefix`, the most recently used first."""
        found: list[SessionInfo] = await self._store.list(prefix=prefix, limit=limit, offset=offset)
        return found

    async def info(self, session_id: str) -> SessionInfo | None:
        """The line of one session in the list."""
        info: SessionInfo | None = await self._store.info(session_id)
        return info

    async def delete(self, session_id: str) -> None:
        """Forget a session."""
        await self._store.delete(session_id)
        self._told.pop(session_id, None)

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        """Make a session that begins with entries of another one. Nobody is told: there is no new entry."""
        await self._store.fork(session_id, new_id, at=at)

    async def aclose(self) -> None:
        """Close the store."""
        await self._store.aclose()

    def _tell(self, lease: Lease, entries: Sequence[Entry]) -> None:
        session_id = lease.session_id
        told = self._told.get(session_id, 0)
        new = [entry for entry in entries if entry.seq > told]
        if not new:
            return
        self._told[session_id] = new[-1].seq
        try:
            self._listener(session_id, new)
        except Exception:  # noqa: BLE001 - whatever it is, the entries are stored
            _log.exception("the listener of session %r failed; what it was told of is stored", session_id)


class _Immediate(Listened):
    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        """As `append`, at once; or `False`, and nothing was done."""
        done: bool = self._store.append_now(lease, entries, sync=sync)
        if done:
            self._tell(lease, entries)
        return done


class _Foldable(Listened):
    async def events(self, session_id: str, *, after: int = 0) -> tuple[list[Event], int]:
        """The events of the entries numbered above `after`, and the number of the last of them."""
        events: tuple[list[Event], int] = await self._store.events(session_id, after=after)
        return events


class _Searchable(Listened):
    async def search(self, query: str, **narrowed: Unpack[Narrowed]) -> list[Hit]:
        """What people, models and tools have said, the best hits first."""
        hits: list[Hit] = await self._store.search(query, **narrowed)
        return hits


class _Maintained(Listened):
    async def size(self) -> StoreSize:
        """What the store takes."""
        size: StoreSize = await self._store.size()
        return size

    async def vacuum(self) -> None:
        """Give back what is not used."""
        await self._store.vacuum()

    async def backup(self, path: str) -> None:
        """Write all of it to a new place."""
        await self._store.backup(path)


_EXTRAS: Final[Mapping[type, type[Listened]]] = {
    Foldable: _Foldable,
    Immediate: _Immediate,
    Searchable: _Searchable,
    Maintained: _Maintained,
}
