"""A store that keeps a book of what it was asked for and what it acknowledged. `account.py` draws the conclusions.

For the tests that take power and disks away from stores. Above: the tests. Below: any `Store`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from perdure.events import Entry
from perdure.stores import InterruptedSession, Lease, NonBlockingAppendStore, Post, SessionInfo, Store


class Appended(NamedTuple):
    """Entries for the end of a log."""

    session_id: str
    entries: tuple[Entry, ...]
    sync: bool


class Posted(NamedTuple):
    """A post for whoever drives the session."""

    session_id: str
    post: Post


class Forked(NamedTuple):
    """A session that begins as another."""

    session_id: str
    new_id: str
    at: int | None


class Redacted(NamedTuple):
    """An entry in the place of another one, here and in forks."""

    session_id: str
    entry: Entry


class Deleted(NamedTuple):
    """A session that is to be gone."""

    session_id: str


Wish: TypeAlias = Appended | Posted | Forked | Redacted | Deleted


class Record(NamedTuple):
    """A line of the book."""

    wish: Wish
    is_done: bool
    """Whether the store has acknowledged it; else it has only been asked for it."""


class Witness:
    """Stands before a store. A `Store`, and `NonBlockingAppendStore`."""

    def __init__(self, store: Store, book: list[Record], *, weak: bool = False) -> None:
        self.store = store
        self.book = book
        self._weak = weak
        """A bug, for the test of the test: barriers are none."""

    async def acquire(self, session_id: str, **options: Any) -> Lease:
        return await self.store.acquire(session_id, **options)

    async def release(self, lease: Lease) -> None:
        await self.store.release(lease)

    async def holds(self, lease: Lease) -> bool:
        return await self.store.holds(lease)

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        with self._noted(Appended(lease.session_id, tuple(entries), sync)):
            await self.store.append(lease, entries, sync=sync and not self._weak)

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        if not isinstance(self.store, NonBlockingAppendStore):
            return False
        wish = Appended(lease.session_id, tuple(entries), sync)
        self.book.append(Record(wish, is_done=False))
        is_done = self.store.append_now(lease, entries, sync=sync and not self._weak)
        if is_done:
            self.book.append(Record(wish, is_done=True))
        return is_done

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        return await self.store.read(session_id, after=after)

    async def posts(self, session_id: str) -> list[Post]:
        return await self.store.posts(session_id)

    async def list_interrupted(self, **options: Any) -> list[InterruptedSession]:
        return await self.store.list_interrupted(**options)

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        return await self.store.list(prefix=prefix, limit=limit, offset=offset)

    async def info(self, session_id: str) -> SessionInfo | None:
        return await self.store.info(session_id)

    async def delete(self, session_id: str) -> None:
        with self._noted(Deleted(session_id)):
            await self.store.delete(session_id)

    async def post(self, session_id: str, post: Post) -> bool:
        with self._noted(Posted(session_id, post)):
            return await self.store.post(session_id, post)

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        with self._noted(Forked(session_id, new_id, at)):
            await self.store.fork(session_id, new_id, at=at)

    async def redact(self, lease: Lease, entry: Entry) -> None:
        with self._noted(Redacted(lease.session_id, entry)):
            await self.store.redact(lease, entry)

    async def aclose(self) -> None:
        await self.store.aclose()

    @contextmanager
    def _noted(self, wish: Wish) -> Iterator[None]:
        self.book.append(Record(wish, is_done=False))
        yield
        self.book.append(Record(wish, is_done=True))
