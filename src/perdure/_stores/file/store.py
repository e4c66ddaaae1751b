"""`FileStore`: sessions in a folder, one file of readable lines per session.

The folder is created at first use. Other stores, threads and processes may use it too. Work that waits for the disk or
reads much is done by a few threads.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final, TypeAlias, TypeVar

from perdure._core.log.store import (
    InterruptedSession,
    Lease,
    Post,
    SessionInfo,
    SessionPlace,
    StoreSize,
    run_to_completion,
)
from perdure._core.values import faults
from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._core.values.error import Fenced, StoreError
from perdure._core.values.event import Entry
from perdure._core.values.event_class import Event
from perdure._io.home.runtime_files import trust_runtime_file
from perdure._stores.checks import check_count, check_page, check_post, check_session_id
from perdure._stores.files import make_path_absolute
from perdure._stores.texts import has_large_content
from perdure._stores.threads import StoreThreads, follow_thread

from .disk import to_store_error
from .folder import SessionsFolder
from .log_file import FileLog, build_fenced_message
from .maintenance import back_up_folder, measure_folder, vacuum_folder

T = TypeVar("T")
_Infos: TypeAlias = list[SessionInfo]

_THREADS: Final = 4


class FileStore:
    """A store that keeps each session in a separate file, all in one folder that several processes may share.

    A `Store`, `MaintainableStore`, and `NonBlockingAppendStore` for appends without sync.
    """

    def __init__(self, folder: str | os.PathLike[str], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path = make_path_absolute(folder)
        trust_runtime_file(self, self._path, "folder")
        self._clock = clock
        self._logs: dict[str, FileLog] = {}
        self._folder = SessionsFolder(self._path, clock, self._find_driven_log)
        self._pid = 0
        self._lock = threading.Lock()
        self._threads: StoreThreads | None = None

    @property
    def identity(self) -> str:
        """The identity of the store, which approvals of tool calls are bound to."""
        return f"file:{self._path}"

    def locate_session(self, session_id: str) -> SessionPlace:
        """Return the key of a session, which all store objects for this folder share."""
        return ("file", self._path), session_id

    def __repr__(self) -> str:
        return f"FileStore({self._path!r})"

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        """Acquire the lease of a session (the exclusive right to append to its log); create the session if it is new,
        repair its file if damaged.

        Raises `SessionBusy` naming the process that drives it. The session is free as soon as that process has ended,
        and cannot be taken from it before: `take_over` raises `UnsupportedByStore` then.
        """
        check_session_id(session_id)
        log, cancelled = await run_to_completion(
            self._run_on_thread(partial(self._acquire, session_id, take_over=take_over))
        )
        if cancelled:
            await run_to_completion(self.release(log.lease))
            raise asyncio.CancelledError
        return log.lease

    async def release(self, lease: Lease) -> None:
        """Release a lease; one that was lost already is not an error."""
        log = self._logs.get(lease.session_id)
        if log is not None and log.lease == lease:
            self._check_process()
            del self._logs[lease.session_id]
            await _finish_before_cancel(self._run_on_thread(partial(self._folder.release, log)))

    async def holds(self, lease: Lease) -> bool:
        """Return True if the lease is still valid: not released, and the lock that belongs to it is still there."""
        log = self._logs.get(lease.session_id)
        if log is None or log.lease != lease:
            return False
        self._check_process()
        return log.has_lock

    async def redact(self, lease: Lease, entry: Entry) -> None:
        """Replace the entry that has the same number as `entry`, and overwrite the old one on the disk.

        An entry that a fork shares is redacted in the session that owns it, for all. Raises `SessionBusy` if another
        process drives that session.
        """
        await _finish_before_cancel(self._run_on_thread(partial(self._folder.redact, self._log_of_lease(lease), entry)))

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Append entries to a session's log, all or none; their numbers must follow its last entry."""
        if not self.append_now(lease, entries, sync=sync):
            await self._run_on_thread(partial(self._log_of_lease(lease).append, entries, sync=sync))
            faults.fault_point("store.append.after_commit")

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        """Append entries without waiting. With `sync`, during another sync, or if they are very large, store nothing
        and return False.
        """
        if not entries:
            return True
        if sync or has_large_content(entries) or not self._log_of_lease(lease).append_now(entries):
            return False
        faults.fault_point("store.append.after_commit")
        return True

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """Return the entries numbered above `after`, in order; an empty list if there is no such session.

        Damaged entries are left out, with a warning in the log.
        """
        check_session_id(session_id)
        check_count("after", after)
        log = self._logs.get(session_id)
        if log is not None and after >= log.head:
            self._check_process()
            return []
        return await self._run_on_thread(partial(self._folder.read, session_id, after))

    async def events(self, session_id: str, *, after: int = 0) -> tuple[list[Event], int]:
        """Return the events of the entries numbered above `after`, and the number of the last entry.

        In the place of damaged entries is an `EntriesLost`.
        """
        check_session_id(session_id)
        check_count("after", after)
        log = self._logs.get(session_id)
        if log is not None and after >= log.head:
            self._check_process()
            return [], after
        return await self._run_on_thread(partial(self._folder.events, session_id, after))

    async def post(self, session_id: str, post: Post) -> bool:
        """Store a post (a message to a session) until the process that runs the session takes it. Return False if a
        post with this id was stored before.
        """
        check_session_id(session_id)
        check_post(post)
        return await self._run_on_thread(partial(self._folder.post, session_id, post))

    async def posts(self, session_id: str) -> list[Post]:
        """Return the posts (messages to a session) that the process running it has not taken yet, oldest first."""
        check_session_id(session_id)
        return await self._run_on_thread(partial(self._folder.posts, session_id))

    async def list_interrupted(
        self, *, prefix: str = "", include_posts: bool = False, now: float | None = None
    ) -> list[InterruptedSession]:
        """Return the sessions whose last run can continue and that no living process drives, the longest idle first.

        Reads the end of each file that has changed since the last call.
        """
        check_session_id(prefix, what="a prefix")
        at = self._clock.now() if now is None else now
        return await self._run_on_thread(
            partial(self._folder.find_interrupted, prefix, at, include_posts=include_posts)
        )

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Return a page of non-empty sessions whose id begins with `prefix`, the most recently used first."""
        check_page(prefix, limit, offset)
        found = await self._run_on_thread(partial(self._list, prefix))
        return found[offset : offset + limit]

    async def info(self, session_id: str) -> SessionInfo | None:
        """Return title, times and entry count of a session; `None` if it does not exist or has no entries."""
        check_session_id(session_id)
        return await self._run_on_thread(partial(self._info, session_id))

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        """Create a session that starts with the first `at` entries of another; they stay in that one's file."""
        check_session_id(session_id)
        check_session_id(new_id)
        await _finish_before_cancel(self._run_on_thread(partial(self._folder.fork, session_id, new_id, at)))

    async def delete(self, session_id: str) -> None:
        """Erase a session, except for entries that its forks share; one that does not exist is not an error.

        Raises `SessionBusy` while it is being driven.
        """
        check_session_id(session_id)
        await _finish_before_cancel(self._run_on_thread(partial(self._folder.delete, session_id)))

    async def size(self) -> StoreSize:
        """Return how many bytes the files of the store take, in total and for each session."""
        return await self._run_on_thread(partial(measure_folder, self._folder, self._clock.now()))

    async def vacuum(self) -> None:
        """Remove temporary and quarantine files older than a day, taken posts, and entries that no fork needs."""
        await _finish_before_cancel(self._run_on_thread(partial(vacuum_folder, self._folder, self._clock.now())))

    async def backup(self, path: str) -> None:
        """Copy all sessions to a new folder, which appears when it is complete."""
        await _finish_before_cancel(
            self._run_on_thread(partial(back_up_folder, self._folder, make_path_absolute(path)))
        )

    async def aclose(self) -> None:
        """Release all leases and close the files. The next use opens them again."""
        is_ours, self._pid = self._pid == os.getpid(), 0
        logs, self._logs = self._logs, {}
        threads, self._threads = self._threads, None
        if threads is None or not is_ours:  # nothing was opened, or by the process of which we are a fork
            self._lock = threading.Lock()
            return
        closing = threads.submit(partial(self._release_all, list(logs.values())))
        threads.end()  # they end after this, their last job
        await _finish_before_cancel(follow_thread(closing))

    # -- what is done by a thread --------------------------------------------------------------------------------------

    def _acquire(self, session_id: str, *, take_over: bool) -> FileLog:
        log = self._logs[session_id] = self._folder.acquire(session_id, take_over=take_over)
        return log

    def _list(self, prefix: str) -> "_Infos":
        self._folder.check_path()
        return self._folder.catalogue.list(prefix)

    def _info(self, session_id: str) -> SessionInfo | None:
        self._folder.check_path()
        return self._folder.catalogue.info(session_id)

    def _release_all(self, logs: Sequence[FileLog]) -> None:
        for log in logs:
            self._folder.release(log)

    # -- how it gets there ---------------------------------------------------------------------------------------------

    def _run_on_thread(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        """Run a job on a thread and return its future.

        A future and not a task: when an event loop is closed all its tasks are cancelled, and this job continues.
        """
        self._check_process()
        return follow_thread(self._submit(partial(self._run_job, job)))

    def _submit(self, work: Callable[[], T]) -> "Future[T]":
        with self._lock:
            if self._threads is None:
                self._threads = StoreThreads("perdure-file", _THREADS)
            return self._threads.submit(work)

    def _run_job(self, job: Callable[[], T]) -> T:
        try:
            return job()
        except OSError as error:
            raise to_store_error(error, str(error.filename or self._path)) from error

    def _find_driven_log(self, session_id: str) -> FileLog | None:
        """Return the open log of a session that runs in this process through this store; else `None`."""
        return self._logs.get(session_id)

    def _log_of_lease(self, lease: Lease) -> FileLog:
        """Return the open log of a lease. Raises `Fenced` if the lease is no longer valid."""
        log = self._logs.get(lease.session_id)
        if log is None or log.lease.fence != lease.fence:
            raise Fenced(build_fenced_message(lease))
        self._check_process()
        return log

    def _check_process(self) -> None:
        """Raise `StoreError` in a forked child, where the files are closed and the locks belong to the parent
        process.
        """
        pid = os.getpid()
        if self._pid == pid:
            return
        if self._pid:
            raise StoreError(
                f"the store {self._path!r} was opened by process {self._pid}, of which this one, {pid}, is a fork: "
                "make a new store object here"
            )
        self._pid = pid


async def _finish_before_cancel(work: Awaitable[None]) -> None:
    """Await work that must be finished, and raise a cancellation only afterwards."""
    _, cancelled = await run_to_completion(work)
    if cancelled:
        raise asyncio.CancelledError
