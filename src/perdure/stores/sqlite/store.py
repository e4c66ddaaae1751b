"""Logs in one SQLite file. Above: `open_store`. Below: `writer.py`, which says who may use the file when, and
`log.py`, `lease.py`, `post.py`, `tree.py`, which say what is done with it.

Each method is one transaction. The file is opened at first use, and then shared: by the stores, threads and event
loops of this process, and with other processes.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

from perdure.core import faults
from perdure.core.clock import SYSTEM_CLOCK, Clock
from perdure.core.event import Entry, Event
from perdure.core.store import Hit, Lease, Narrowed, Post, SessionInfo, StoreSize, uninterrupted
from perdure.stores.listing import check_count, check_page, check_session_id
from perdure.stores.place import checked_path
from perdure.stores.refusal import check_post

from .connection import Connection
from .lease import give_back, take
from .log import Stretch, addition, append, entries_in, events_in, lineage
from .post import add_post, encoded, waiting
from .tree import Forking, delete, fork, redact

if TYPE_CHECKING:
    from .writer import Writer

_FIND: Final = "SELECT key, head FROM session WHERE tenant = '' AND id = ?"
_INFO: Final = """
SELECT session.id, session.head, session.created_at, session.updated_at, session.title,
    coalesce(origin.id, ''), iif(origin.id IS NULL, 0, session.at)
FROM session LEFT JOIN session AS origin ON origin.key = session.parent
WHERE session.tenant = '' AND session.head > 0"""
_ONE: Final = f"{_INFO} AND session.id = ?"
_LIST: Final = f"""{_INFO} AND session.id >= ?1 AND substr(session.id, 1, length(?1)) = ?1
ORDER BY session.updated_at DESC, session.key DESC LIMIT ?2 OFFSET ?3"""


class SqliteStore:
    """Keeps sessions in a file. A `Store`, `Searchable`, `Maintained`, and `Immediate` for what needs no sync."""

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock = SYSTEM_CLOCK, vfs: str | None = None) -> None:
        """`vfs` is for tests: the name of another way for SQLite to reach its files, registered with apsw."""
        self._path = checked_path(path)
        self._clock = clock
        self._vfs = vfs
        self._writer: Writer | None = None
        self._leases: set[Lease] = set()

    def __repr__(self) -> str:
        return f"SqliteStore({self._path!r})"

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        """The lease of a session, which is made if it is new.

        One whose holder has died is taken over, and with `take_over` any. Raises `SessionBusy` naming the process that
        holds it.
        """
        check_session_id(session_id)
        writer = self._opened()
        job = partial(take, session_id, self._clock.now(), writer.leases, take_over)
        lease, cancelled = await uninterrupted(writer.write(job, sync=take_over))
        self._leases.add(lease)
        if cancelled:
            await uninterrupted(self.release(lease))
            raise asyncio.CancelledError
        return lease

    async def release(self, lease: Lease) -> None:
        """Give the lease back; one that was lost already is not an error."""
        if self._writer is None:
            return  # closing gave back all there were
        writer = self._opened()
        self._leases.discard(lease)
        await _to_the_end(self._give_back(writer, lease))

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Add entries, numbered from the log's end, all or none."""
        if entries:
            writer = self._opened()
            await writer.append(partial(append, addition(lease, entries), writer.notes), sync=sync)
            writer.indexer.noticed()
            faults.point("store.append.after_commit")

    def append_soon(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> "asyncio.Future[None]":
        """As `append`, which shares its transaction with whatever comes at the same time."""
        writer = self._opened()
        stored = writer.append(partial(append, addition(lease, entries), writer.notes), sync=sync)
        writer.indexer.noticed()
        if faults.is_armed():
            stored.add_done_callback(lambda _: faults.point("store.append.after_commit"))
        return stored

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        """As `append`; `False` for a barrier, and while the file is busy or not open yet."""
        if not entries:
            return True
        writer = self._opened()
        if sync or not writer.would_serve(lease.session_id):
            return False
        if not writer.write_now(partial(append, addition(lease, entries), writer.notes), lease.session_id):
            return False
        writer.indexer.noticed()
        faults.point("store.append.after_commit")
        return True

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """The entries numbered above `after`, in order; none for a session that is not there."""
        check_session_id(session_id)
        check_count("after", after)
        return await self._opened().read(partial(_read, session_id, after))

    async def events(self, session_id: str, *, after: int = 0) -> "tuple[list[Event], int]":
        """As `read`, without ids and times, and so in less time; and the number of the last entry."""
        check_session_id(session_id)
        check_count("after", after)
        return await self._opened().read(partial(_events, session_id, after))

    async def post(self, session_id: str, post: Post) -> bool:
        """Keep a post until the session's driver takes it; `False` when one of this id was there already."""
        check_session_id(session_id)
        check_post(post)
        return await self._opened().write(partial(add_post, session_id, post, encoded(post.body)), sync=True)

    async def posts(self, session_id: str) -> list[Post]:
        """The posts that nobody has taken, in the order in which they came."""
        check_session_id(session_id)
        return await self._opened().read(partial(waiting, session_id))

    async def info(self, session_id: str) -> SessionInfo | None:
        """The line of one session in the list; `None` when there is none, or it holds nothing."""
        check_session_id(session_id)
        found = await self._opened().read(partial(_infos, _ONE, (session_id,)))
        return found[0] if found else None

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        """Make a session that begins with the first `at` entries of another, which it shares with that one."""
        check_session_id(session_id)
        check_session_id(new_id)
        writer = self._opened()
        job = partial(fork, Forking(session_id, new_id, at, self._clock.now()), writer.leases)
        await _to_the_end(writer.write(job, sync=True))

    async def redact(self, lease: Lease, entry: Entry) -> None:
        """Put `entry` in the place of the one with its number, and leave no byte of that one, nor in forks."""
        await _to_the_end(self._erase(lease.session_id, entry.seq, partial(redact, lease, entry)))

    async def delete(self, session_id: str) -> None:
        """Forget a session, and leave no byte of it but what its forks share. Raises `SessionBusy` if it is driven."""
        check_session_id(session_id)
        await _to_the_end(self._erase(session_id, None, partial(delete, session_id, self._opened().leases)))

    async def search(self, query: str, **narrowed: Unpack[Narrowed]) -> list[Hit]:
        """What people, models and tools have said, the best hits first; everything that was appended is found.

        With `syntax="query"` the query is one of FTS5.
        """
        from perdure.stores.search_query import asked

        question = asked(query, narrowed)
        return await self._opened().indexer.ask(lambda search: search.search(question))

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Sessions whose id begins with `prefix`, the most recently used first."""
        check_page(prefix, limit, offset)
        return await self._opened().read(partial(_infos, _LIST, (prefix, limit, offset)))

    async def size(self) -> StoreSize:
        """What it takes."""
        from .search_file import search_bytes
        from .upkeep import size_of

        return await self._opened().read(partial(size_of, self._path, search_bytes(self._path)))

    async def vacuum(self) -> None:
        """Give back what is not used."""
        from .upkeep import vacuum

        writer = self._opened()
        await _to_the_end(writer.alone(vacuum))
        await _to_the_end(writer.indexer.ask(lambda search: search.vacuum()))
        await _to_the_end(writer.erase_log())

    async def backup(self, path: str) -> None:
        """Write all of it to a new file, in one piece, while it may be in use. It appears there whole or not at all."""
        from .upkeep import back_up

        target = checked_path(path)
        await self._opened().read(lambda _: None)  # it may have to be made
        await _to_the_end(asyncio.to_thread(back_up, self._path, self._vfs, target))

    async def aclose(self) -> None:
        """Give back the leases that are out, and let go of the file. The next use opens it again."""
        writer, self._writer = self._writer, None
        if writer is None or writer.is_inherited:
            return
        leases, self._leases = self._leases, set()
        try:
            for lease in leases:
                await _to_the_end(self._give_back(writer, lease))
        finally:
            writer.leases -= leases
            await _to_the_end(writer.leave(self))

    async def _give_back(self, writer: "Writer", lease: Lease) -> None:
        try:
            await writer.write(partial(give_back, lease, writer.notes))
        finally:
            writer.leases.discard(lease)  # also when the disk has failed: nobody drives it any more

    async def _erase(self, session_id: str, seq: int | None, job: Callable[[Connection], None]) -> None:
        writer = self._opened()
        await writer.indexer.ask(lambda search: search.erase(session_id, seq, job))
        await writer.erase_log()

    def _opened(self) -> "Writer":
        writer = self._writer
        if writer is None:
            from .writer import writer_of

            writer = self._writer = writer_of(self._path, self._vfs)
            writer.join(self)
        writer.check_process()
        return writer


async def _to_the_end(work: Awaitable[None]) -> None:
    """Await what must not be left undone, and only then obey a cancel."""
    _, cancelled = await uninterrupted(work)
    if cancelled:
        raise asyncio.CancelledError


def _read(session_id: str, after: int, connection: Connection) -> "list[Entry]":
    wanted = _stretches(session_id, after, connection)
    return [entry for each in wanted for entry in entries_in(connection, each, session_id)]


def _events(session_id: str, after: int, connection: Connection) -> "tuple[list[Event], int]":
    wanted = _stretches(session_id, after, connection)
    events = [event for each in wanted for event in events_in(connection, each, session_id)]
    return events, wanted[-1].upto if wanted else after


def _stretches(session_id: str, after: int, connection: Connection) -> "list[Stretch]":
    return [
        stretch._replace(after=max(after, stretch.after))
        for key, head in connection.execute(_FIND, (session_id,)).fetchall()
        for stretch in lineage(connection, key, head)
        if stretch.upto > after
    ]


def _infos(statement: str, values: tuple[str | int, ...], connection: Connection) -> "list[SessionInfo]":
    return [SessionInfo(*row) for row in connection.execute(statement, values).fetchall()]
