"""Logs in a folder, one file of readable lines per session. Above: `open_store`. Below: `folder.py`.

The folder is made at first use. Other stores, threads and processes may use it too. What waits for the disk or reads
much is done by a few threads.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, TypeAlias, TypeVar

from perdure.core import faults
from perdure.core.clock import SYSTEM_CLOCK, Clock
from perdure.core.error import Fenced, StoreError
from perdure.core.event import Entry
from perdure.core.store import Lease, Post, SessionInfo, StoreSize, uninterrupted
from perdure.stores.listing import check_count, check_page, check_session_id
from perdure.stores.place import checked_path
from perdure.stores.refusal import check_post

from .access import store_error
from .folder import Folder
from .log import FileLog, fenced
from .upkeep import backup, size_of, vacuum

T = TypeVar("T")
_Infos: TypeAlias = list[SessionInfo]

_THREADS: Final = 4


class FileStore:
    """Keeps each session in a file of its own. A `Store`, `Maintained`, and `Immediate` for what needs no sync."""

    def __init__(self, folder: str | os.PathLike[str], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path = checked_path(folder)
        self._clock = clock
        self._logs: dict[str, FileLog] = {}
        self._folder = Folder(self._path, clock, self._driven_here)
        self._pid = 0
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    def __repr__(self) -> str:
        return f"FileStore({self._path!r})"

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        """The lease of a session, which is made if it is new. A damaged file is repaired, and a warning says so.

        Raises `SessionBusy` naming the process that holds it. It is free as soon as that process has ended, and cannot
        be taken from it before: with `take_over` that is `Unsupported`.
        """
        check_session_id(session_id)
        log, cancelled = await uninterrupted(self._work(partial(self._acquire, session_id, take_over=take_over)))
        if cancelled:
            await uninterrupted(self.release(log.lease))
            raise asyncio.CancelledError
        return log.lease

    async def release(self, lease: Lease) -> None:
        """Give the lease back; one that was lost already is not an error."""
        log = self._logs.get(lease.session_id)
        if log is not None and log.lease == lease:
            self._check_process()
            del self._logs[lease.session_id]
            await _to_the_end(self._work(partial(self._folder.release, log)))

    async def redact(self, lease: Lease, entry: Entry) -> None:
        """Put `entry` in the place of the one with its number, and erase that one.

        What a fork shares is redacted in the session that holds it, for all. Raises `SessionBusy` when somebody else is
        driving that one.
        """
        await _to_the_end(self._work(partial(self._folder.redact, self._driven(lease), entry)))

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Add entries, numbered from the log's end, all or none."""
        if not self.append_now(lease, entries, sync=sync):
            await self._work(partial(self._driven(lease).append, entries, sync=sync))
            faults.point("store.append.after_commit")

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        """As `append`; `False` for a barrier, and while one is under way."""
        if not entries:
            return True
        if sync or not self._driven(lease).append_now(entries):
            return False
        faults.point("store.append.after_commit")
        return True

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """The entries numbered above `after`, in order; none for a session that is not there.

        What is damaged is left out, and a warning says so.
        """
        check_session_id(session_id)
        check_count("after", after)
        log = self._logs.get(session_id)
        if log is not None and after >= log.head:
            self._check_process()
            return []
        return await self._work(partial(self._folder.read, session_id, after))

    async def post(self, session_id: str, post: Post) -> bool:
        """Keep a post until the session's driver takes it; `False` when one of this id was there already."""
        check_session_id(session_id)
        check_post(post)
        return await self._work(partial(self._folder.post, session_id, post))

    async def posts(self, session_id: str) -> list[Post]:
        """The posts that nobody has taken, in the order in which they came."""
        check_session_id(session_id)
        return await self._work(partial(self._folder.posts, session_id))

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Sessions whose id begins with `prefix` and that hold something, the most recently used first."""
        check_page(prefix, limit, offset)
        found = await self._work(partial(self._list, prefix))
        return found[offset : offset + limit]

    async def info(self, session_id: str) -> SessionInfo | None:
        """The line of one session in the list; `None` when there is none, or it holds nothing."""
        check_session_id(session_id)
        return await self._work(partial(self._info, session_id))

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        """Make a session that begins with the first `at` entries of another, and is read through its file."""
        check_session_id(session_id)
        check_session_id(new_id)
        await _to_the_end(self._work(partial(self._folder.fork, session_id, new_id, at)))

    async def delete(self, session_id: str) -> None:
        """Erase a session, but for what its forks share; one that is not there is not an error.

        Raises `SessionBusy` while it is being driven.
        """
        check_session_id(session_id)
        await _to_the_end(self._work(partial(self._folder.delete, session_id)))

    async def size(self) -> StoreSize:
        """What it takes: all files in the folder that are its own."""
        return await self._work(partial(size_of, self._folder, self._clock.now()))

    async def vacuum(self) -> None:
        """Remove what was left or set aside more than a day ago, posts that were taken, and what no fork needs."""
        await _to_the_end(self._work(partial(vacuum, self._folder, self._clock.now())))

    async def backup(self, path: str) -> None:
        """Copy all sessions to a new folder, which appears when it is complete."""
        await _to_the_end(self._work(partial(backup, self._folder, checked_path(path))))

    async def aclose(self) -> None:
        """Give back the leases that are out, and let go of the files. The next use opens them again."""
        is_ours, self._pid = self._pid == os.getpid(), 0
        logs, self._logs = self._logs, {}
        threads, self._threads = self._threads, None
        if threads is None or not is_ours:  # nothing was opened, or by the process of which we are a fork
            self._lock = threading.Lock()
            return
        closing = threads.submit(self._release_all, list(logs.values()))
        threads.shutdown(wait=False)  # they end after this, their last job
        await _to_the_end(asyncio.wrap_future(closing))

    # -- what is done by a thread --------------------------------------------------------------------------------------

    def _acquire(self, session_id: str, *, take_over: bool) -> FileLog:
        log = self._logs[session_id] = self._folder.acquire(session_id, take_over=take_over)
        return log

    def _list(self, prefix: str) -> "_Infos":
        self._folder.check()
        return self._folder.catalogue.list(prefix)

    def _info(self, session_id: str) -> SessionInfo | None:
        self._folder.check()
        return self._folder.catalogue.info(session_id)

    def _release_all(self, logs: Sequence[FileLog]) -> None:
        for log in logs:
            self._folder.release(log)

    # -- how it gets there ---------------------------------------------------------------------------------------------

    def _work(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        """Have a job done by a thread.

        No task, but a future: when an event loop is closed all its tasks are cancelled, and this goes on.
        """
        self._check_process()
        return asyncio.wrap_future(self._submit(partial(self._perform, job)))

    def _submit(self, work: Callable[[], T]) -> "Future[T]":
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, "perdure-file")
            return self._threads.submit(work)

    def _perform(self, job: Callable[[], T]) -> T:
        try:
            return job()
        except OSError as error:
            raise store_error(error, str(error.filename or self._path)) from error

    def _driven_here(self, session_id: str) -> FileLog | None:
        """The log of a session that is driven through this store."""
        return self._logs.get(session_id)

    def _driven(self, lease: Lease) -> FileLog:
        """The log of a lease that is still good."""
        log = self._logs.get(lease.session_id)
        if log is None or log.lease.fence != lease.fence:
            raise Fenced(fenced(lease))
        self._check_process()
        return log

    def _check_process(self) -> None:
        """Refuse to go on in a forked child, where the files are closed and the locks are not ours."""
        pid = os.getpid()
        if self._pid == pid:
            return
        if self._pid:
            raise StoreError(
                f"the store {self._path!r} was opened by process {self._pid}, of which this one, {pid}, is a fork: "
                "make a new store object here"
            )
        self._pid = pid


async def _to_the_end(work: Awaitable[None]) -> None:
    """Await what must not be left undone, and only then obey a cancel."""
    _, cancelled = await uninterrupted(work)
    if cancelled:
        raise asyncio.CancelledError
