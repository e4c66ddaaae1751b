"""`SqliteStore`: all sessions in one SQLite file.

Each method is one transaction. The file is opened at first use, and then shared by the stores, threads and event loops
of this process, and with other processes. `write/scheduler.py` schedules access to the file.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

from perdure._core.log.store import (
    Hit,
    InterruptedSession,
    Lease,
    Post,
    SearchOptions,
    SessionInfo,
    SessionPlace,
    StoreSize,
    run_to_completion,
)
from perdure._core.values import faults
from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._core.values.error import StoreError
from perdure._core.values.event import Entry
from perdure._core.values.event_class import Event
from perdure._io.home.runtime_files import trust_runtime_file
from perdure._stores.checks import check_count, check_page, check_post, check_session_id
from perdure._stores.files import make_path_absolute
from perdure._stores.texts import has_large_content

from .driver import Connection
from .interrupted import query_interrupted
from .log import EntryRange, encode_append_row, find_ranges, read_entries, read_events
from .write.erasure import ForkRequest, create_fork, delete_session, list_texts, redact_entry
from .write.leases import (
    acquire_free_lease,
    acquire_lease,
    add_post,
    encode_post_body,
    has_no_posts,
    is_lease_valid,
    plan_lease_release,
    read_pending_posts,
    try_release_lease,
)

if TYPE_CHECKING:
    from .write.scheduler import FileScheduler

_FIND: Final = "SELECT key, head FROM session WHERE tenant = '' AND id = ?"
_NEWER: Final = "SELECT 1 FROM session WHERE tenant = '' AND id = ? AND head > ?"
_INFO: Final = """
SELECT session.id, session.head, session.created_at, session.updated_at, session.title,
    coalesce(origin.id, ''), iif(origin.id IS NULL, 0, session.at)
FROM session LEFT JOIN session AS origin ON origin.key = session.parent
WHERE session.tenant = '' AND session.head > 0"""
_ONE: Final = f"{_INFO} AND session.id = ?"
_FORKS: Final = f"{_INFO} AND origin.tenant = '' AND origin.id = ? ORDER BY session.updated_at DESC, session.key DESC"
_LIST: Final = f"""{_INFO} AND session.id >= ?1 AND substr(session.id, 1, length(?1)) = ?1
ORDER BY session.updated_at DESC, session.key DESC LIMIT ?2 OFFSET ?3"""


class SqliteStore:
    """A store that keeps all sessions in one SQLite file, which several processes may share. It can be searched.

    A `Store`, `SearchableStore`, `MaintainableStore`, and `NonBlockingAppendStore` for appends without sync.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock = SYSTEM_CLOCK, vfs: str | None = None) -> None:
        """Create a store; `vfs` is for tests: the name of an SQLite VFS registered with apsw."""
        self._path = make_path_absolute(path)
        trust_runtime_file(self, self._path, "database")
        self._clock = clock
        self._vfs = vfs
        self._writer: FileScheduler | None = None
        self._leases: set[Lease] = set()

    @property
    def identity(self) -> str:
        """The identity of the store, which approvals of tool calls are bound to."""
        return f"sqlite:{self._path}"

    def locate_session(self, session_id: str) -> SessionPlace:
        """Return the key of a session, which all store objects for this file share."""
        return ("sqlite", self._path), session_id

    def __repr__(self) -> str:
        return f"SqliteStore({self._path!r})"

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        """Acquire the lease of a session (the exclusive right to append to its log); create the session if it is new.

        A lease of a dead process is taken over, and with `take_over` any lease. Raises `SessionBusy` naming the process
        that drives the session.
        """
        check_session_id(session_id)
        writer, now = self._get_writer(), self._clock.now()
        free = None
        if not take_over:
            free = writer.acquire_now(session_id, partial(acquire_free_lease, session_id, now, writer.leases))
        if free is not None:
            self._leases.add(free)
            return free
        job = partial(acquire_lease, session_id, now, writer.leases, take_over)
        lease, cancelled = await run_to_completion(writer.write(job, sync=take_over))
        self._leases.add(lease)
        if cancelled:
            await run_to_completion(self.release(lease))
            raise asyncio.CancelledError
        return lease

    async def release(self, lease: Lease) -> None:
        """Release a lease; one that was lost already is not an error."""
        if self._writer is None:
            return  # closing gave back all there were
        writer = self._get_writer()
        self._leases.discard(lease)
        try:
            is_released = writer.run_now(lease.session_id, partial(try_release_lease, lease, writer.notes))
        except BaseException:
            writer.leases.discard(lease)  # the disk has failed: it is not driven any more
            raise
        finally:
            writer.check_file_again()
        if is_released:
            writer.leases.discard(lease)
            writer.end_direct_writes()
        else:
            await _finish_before_cancel(self._release_lease(writer, lease))

    async def holds(self, lease: Lease) -> bool:
        """Return True if the lease is still valid: neither released nor taken over, by any process."""
        return await self._get_writer().read(partial(is_lease_valid, lease))

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Append entries to a session's log, all or none; their numbers must follow its last entry."""
        if entries:
            writer = self._get_writer()
            encode = partial(encode_append_row, lease, entries)
            encoded = await asyncio.to_thread(encode) if has_large_content(entries) else encode()
            await writer.append(encoded, sync=sync)
            writer.indexer.signal_append()
            faults.fault_point("store.append.after_commit")

    def append_soon(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> "asyncio.Future[None]":
        """Append entries in a transaction shared with other appends of the same moment; return its future."""
        if has_large_content(entries):
            return asyncio.ensure_future(self.append(lease, entries, sync=sync))
        writer = self._get_writer()
        stored = writer.append(encode_append_row(lease, entries), sync=sync)
        writer.indexer.signal_append()
        if faults.is_armed():
            stored.add_done_callback(lambda _: faults.fault_point("store.append.after_commit"))
        return stored

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        """Append entries without waiting. While the file is busy or not open, if they are very large, and with `sync`
        unless the disk is quick, store nothing and return False.
        """
        if not entries:
            return True
        writer = self._get_writer()
        if not writer.can_write_now(lease.session_id) or has_large_content(entries):
            return False
        if sync and not writer.can_sync_now():
            return False
        if not writer.append_now(encode_append_row(lease, entries), sync=sync):
            return False
        writer.indexer.signal_append()
        faults.fault_point("store.append.after_commit")
        return True

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """Return the entries numbered above `after`, in order; an empty list if there is no such session."""
        check_session_id(session_id)
        check_count("after", after)
        return await self._get_writer().read(partial(_read_entries, session_id, after))

    async def events(self, session_id: str, *, after: int = 0) -> "tuple[list[Event], int]":
        """Return the events of the entries numbered above `after`, and the number of the last entry. Faster than
        `read`.
        """
        check_session_id(session_id)
        check_count("after", after)
        writer = self._get_writer()
        if writer.run_now(session_id, partial(_is_read, session_id, after)):
            return [], after
        return await writer.read(partial(_read_events, session_id, after))

    async def post(self, session_id: str, post: Post) -> bool:
        """Store a post (a message to a session) until the process that runs the session takes it. Return False if a
        post with this id was stored before.
        """
        check_session_id(session_id)
        check_post(post)
        return await self._get_writer().write(
            partial(add_post, session_id, post, encode_post_body(post.body)), sync=True
        )

    async def posts(self, session_id: str) -> list[Post]:
        """Return the posts (messages to a session) that the process running it has not taken yet, oldest first."""
        check_session_id(session_id)
        writer = self._get_writer()
        if writer.run_now(session_id, partial(has_no_posts, session_id)):
            return []
        return await writer.read(partial(read_pending_posts, session_id))

    async def info(self, session_id: str) -> SessionInfo | None:
        """Return title, times and entry count of a session; `None` if it does not exist or has no entries."""
        check_session_id(session_id)
        found = await self._get_writer().read(partial(_query_infos, _ONE, (session_id,)))
        return found[0] if found else None

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        """Create a session that starts with the first `at` entries of another (by default all of them)."""
        check_session_id(session_id)
        check_session_id(new_id)
        writer = self._get_writer()
        job = partial(create_fork, ForkRequest(session_id, new_id, at, self._clock.now()), writer.leases)
        await _finish_before_cancel(writer.write(job, sync=True))

    async def redact(self, lease: Lease, entry: Entry) -> None:
        """Replace the entry that has the same number as `entry`, also in forks, and leave no byte of the old one in
        the file.
        """
        await _finish_before_cancel(
            self._run_erasing_job(lease.session_id, entry.seq, partial(redact_entry, lease, entry))
        )

    async def delete(self, session_id: str) -> None:
        """Delete a session, and leave no byte of it in the file except for entries that its forks share. Raises
        `SessionBusy` while a process runs it.
        """
        check_session_id(session_id)
        await _finish_before_cancel(
            self._run_erasing_job(session_id, None, partial(delete_session, session_id, self._get_writer().leases))
        )

    async def search(self, query: str, **narrowed: Unpack[SearchOptions]) -> list[Hit]:
        """Search the text of users, models and tools, the best hits first; everything that was appended is found.

        With `syntax="query"` the query is an FTS5 query.
        """
        from perdure._stores.checks import validate_search

        question = validate_search(query, narrowed)
        return await self._get_writer().indexer.run_with_index(lambda search: search.search(question))

    async def forks(self, session_id: str) -> list[SessionInfo]:
        """Return the non-empty sessions that were forked from this one, the most recently used first."""
        check_session_id(session_id)
        return await self._get_writer().read(partial(_query_infos, _FORKS, (session_id,)))

    async def list_interrupted(
        self, *, prefix: str = "", include_posts: bool = False, now: float | None = None
    ) -> list[InterruptedSession]:
        """Return the sessions whose last run can continue and that no living process drives, the longest idle first.

        One query on an index of the sessions whose run is not over.
        """
        check_session_id(prefix, what="a prefix")
        writer, at = self._get_writer(), self._clock.now() if now is None else now
        return await writer.read(partial(query_interrupted, prefix, include_posts, at, writer.leases))

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Return a page of non-empty sessions whose id begins with `prefix`, the most recently used first."""
        check_page(prefix, limit, offset)
        return await self._get_writer().read(partial(_query_infos, _LIST, (prefix, limit, offset)))

    async def size(self) -> StoreSize:
        """Return how many bytes the files of the store take, in total and for each session."""
        from .maintenance import measure_database
        from .search.index import measure_search_index

        return await self._get_writer().read(partial(measure_database, self._path, measure_search_index(self._path)))

    async def vacuum(self) -> None:
        """Shrink the store's files to their minimum size."""
        from .maintenance import vacuum_database

        writer = self._get_writer()
        await _finish_before_cancel(writer.run_alone(vacuum_database))
        await _finish_before_cancel(writer.indexer.run_with_index(lambda search: search.vacuum()))
        await _finish_before_cancel(writer.erase_remains())

    async def backup(self, path: str) -> None:
        """Write a copy of the store to a new file, while it may be in use. It appears complete or not at all."""
        from .maintenance import back_up_database

        target = make_path_absolute(path)
        await self._get_writer().read(lambda _: None)  # it may have to be made
        await _finish_before_cancel(asyncio.to_thread(back_up_database, self._path, self._vfs, target))

    async def aclose(self) -> None:
        """Release all leases and close the file. The next use opens it again."""
        writer, self._writer = self._writer, None
        if writer is None or writer.is_inherited:
            return
        leases, self._leases = self._leases, set()
        writer.check_file_again()
        try:
            for lease in leases:
                await _finish_before_cancel(self._release_lease(writer, lease))
        finally:
            writer.leases -= leases
            await _finish_before_cancel(writer.remove_user(self))

    async def _release_lease(self, writer: "FileScheduler", lease: Lease) -> None:
        try:
            await writer.prepare_and_write(partial(plan_lease_release, lease, writer.notes))
        finally:
            writer.leases.discard(lease)  # also when the disk has failed: it is not driven any more

    async def _run_erasing_job(self, session_id: str, seq: int | None, job: Callable[[Connection], None]) -> None:
        writer = self._get_writer()
        texts = await writer.read(partial(list_texts, session_id, seq))
        try:
            await writer.indexer.run_with_index(lambda search: search.run_erasing_job(session_id, seq, job))
        except StoreError:
            with suppress(StoreError):  # the text may have left the log before the index failed
                await writer.erase_remains(texts)
            raise
        await writer.erase_remains(texts)

    def _get_writer(self) -> "FileScheduler":
        writer = self._writer
        if writer is not None and writer.process_id == os.getpid():
            return writer
        if writer is None:
            from .write.scheduler import get_file_scheduler

            writer = self._writer = get_file_scheduler(self._path, self._vfs)
            writer.add_user(self)
        writer.check_process()
        return writer


async def _finish_before_cancel(work: Awaitable[None]) -> None:
    """Await work that must be finished, and raise a cancellation only afterwards."""
    _, cancelled = await run_to_completion(work)
    if cancelled:
        raise asyncio.CancelledError


def _read_entries(session_id: str, after: int, connection: Connection) -> "list[Entry]":
    wanted = _find_wanted_ranges(session_id, after, connection)
    return [entry for each in wanted for entry in read_entries(connection, each, session_id)]


def _read_events(session_id: str, after: int, connection: Connection) -> "tuple[list[Event], int]":
    wanted = _find_wanted_ranges(session_id, after, connection)
    events = [event for each in wanted for event in read_events(connection, each, session_id)]
    return events, wanted[-1].upto if wanted else after


def _is_read(session_id: str, after: int, connection: Connection) -> bool:
    """Return True if a session has no entries numbered above `after`."""
    return not connection.execute(_NEWER, (session_id, after)).get


def _find_wanted_ranges(session_id: str, after: int, connection: Connection) -> "list[EntryRange]":
    return [
        entry_range._replace(after=max(after, entry_range.after))
        for key, head in connection.execute(_FIND, (session_id,)).fetchall()
        for entry_range in find_ranges(connection, key, head)
        if entry_range.upto > after
    ]


def _query_infos(statement: str, values: tuple[str | int, ...], connection: Connection) -> "list[SessionInfo]":
    return [SessionInfo(*row) for row in connection.execute(statement, values).fetchall()]
