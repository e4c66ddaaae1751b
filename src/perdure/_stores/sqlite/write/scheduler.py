"""Schedule all reads and writes of one SQLite file within a process.

The writer's lock protects the connection. Writes that need not wait are done on the caller's thread: one append at once
(`append_now`), or all of the same iteration of an event loop together (`append`). Everything else (syncs, waiting for
other processes) is done by one thread, in order; appends that queue up meanwhile share a transaction, and a sync. Of
an append that is alone and has to be synced, only the sync is done by the thread, and not even that while the disk is
quick.

A caller's thread may be the main thread, where the handler of a signal can raise between any two calls. So nothing is
done there that needs more than one statement, which SQLite commits by itself: no transaction can be left open. What an
interrupt keeps an event loop from hearing, the writer's thread tells it again.
"""

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice, takewhile
from typing import Any, Final, TypeVar, cast
from weakref import WeakSet

import apsw

from perdure._core.log.store import Lease
from perdure._core.values.error import StoreError
from perdure._stores.sqlite.connections import ReadThread, WriteConnection
from perdure._stores.sqlite.driver import Connection
from perdure._stores.sqlite.file_system import ReadOnlyStoreError
from perdure._stores.sqlite.format.merging import prepare_merges
from perdure._stores.sqlite.log import EncodedAppend, StateBetweenAppends, append_entries
from perdure._stores.sqlite.search.thread import SearchThread
from perdure._stores.threads import DirectWriteLock, StoreThreads, follow_thread

from .jobs import Job, WriterJob, fail_jobs, get_future_resolver, resolve_futures, run_jobs
from .process_leases import ProcessLeases
from .single_append import append_in_one_statement

T = TypeVar("T")

MAX_SYNCS_NOW: Final = 64
"""The number of appends in a row that their callers sync themselves. A run that never waits for anything else would
otherwise keep all other tasks, and its own cancel, from the event loop."""


class FileScheduler:
    """The scheduler of all reads and writes of one SQLite file, shared by all stores of this process that use the
    file.
    """

    def __init__(self, path: str, vfs: str | None = None) -> None:
        self.path = path
        self.leases = ProcessLeases(path)
        """The leases of this process."""
        self.notes = StateBetweenAppends()
        """Used by jobs only."""
        self._users: WeakSet[object] = WeakSet()
        self.process_id = os.getpid()
        """The process that opened the file."""
        self._lock = DirectWriteLock()
        self._access = WriteConnection(path, vfs, self._ask_for_checkpoint)
        self._reader = ReadThread(path, vfs, self._ensure_open)
        self.indexer = SearchThread(path, vfs, self.submit)
        """Must be notified of appends, and removes deleted text from the index."""
        self._thread_lock = threading.RLock()
        self._thread: StoreThreads | None = None
        self._waiting: deque[WriterJob[Any]] = deque()
        self._draining = threading.Lock()
        self._is_checkpoint_due = False
        self._untold: list[WriterJob[Any]] = []
        """The jobs that the writer's thread has finished last, of which an event loop may not have heard yet."""
        self._gathered: dict[asyncio.AbstractEventLoop, list[WriterJob[Any]]] = {}
        self._is_shared = False
        """True if the last transaction of the writer's thread was one for several jobs."""
        self._syncs_now = 0
        """The number of appends that their callers have synced since one was queued."""
        self._direct_session = ""
        """The session whose writes are made on its own thread, until it is released or another one writes as well."""
        self._leased_session = ""
        """The session whose lease was acquired by `acquire_now`, until it is released: the file was there then."""

    @property
    def is_inherited(self) -> bool:
        """True in a forked child of the process that opened the file, where the object must not be used."""
        return self.process_id != os.getpid()

    def check_process(self) -> None:
        """Raise `StoreError` in a forked child, since the locks on the file belong to the parent process."""
        if self.is_inherited:
            raise StoreError(
                f"the store {self.path!r} was opened by process {self.process_id}, of which this one, {os.getpid()}, "
                "is a fork: make a new store object here"
            )

    def add_user(self, user: object) -> None:
        """Keep the file open until `user` is removed."""
        self._users.add(user)

    async def remove_user(self, user: object) -> None:
        """Remove `user`, and close the file if it was the last user. The file is opened again when needed."""
        self._users.discard(user)
        if not self._users:
            await self.indexer.aclose()
            await follow_thread(self._get_or_start_thread().submit(self._close))

    # -- what is asked for ---------------------------------------------------------------------------------------------

    def can_write_now(self, session_id: str) -> bool:
        """Return True if a session can probably write without waiting.

        When several sessions write in the same iteration of an event loop, all but the first are better written
        together.
        """
        if self._waiting or self._gathered or not self._lock.is_free:
            return False
        if self._direct_session in ("", session_id):
            return True
        self.end_direct_writes_soon()
        return False

    def can_sync_now(self) -> bool:
        """Return True if a sync will probably be so quick that the event loop can wait for it.

        Not while sessions share their transactions: then one sync serves many. Nor after `MAX_SYNCS_NOW` of them.
        """
        wal = self._access.wal
        if wal is None or not wal.is_quick or self._is_shared or self._syncs_now >= MAX_SYNCS_NOW:
            return False
        return self._access.is_open

    def append_now(self, new: EncodedAppend, *, sync: bool = False) -> bool:
        """Append immediately in a separate transaction, for a session that `can_write_now`. If that would have to wait
        after all, or needs more than one statement, do nothing and return False.

        With `sync`, for which `can_sync_now` is to be asked first, block until the append is on the disk.
        """
        if not self._lock.is_free:
            return False
        with self._lock.moment:
            connection, wal = self._get_connection_now(), self._access.wal if sync else None
            if connection is None or (sync and wal is None):
                return False
            try:
                if not append_in_one_statement((new,), self.notes, connection):
                    return False
                self._direct_session = new.lease.session_id
                if self.notes.merge_due:
                    self._enqueue_merges()
            except apsw.BusyError:
                return False
            except apsw.Error as error:
                raise self._access.to_store_error(error) from error
            if wal is not None:
                self._syncs_now += 1
                self._access.sync_wal(wal)
        return True

    def _get_connection_now(self) -> Connection | None:
        """Return the connection, for who has entered the lock for a moment; `None` if a thread has it."""
        return self._access.get_if_idle() if self._lock.is_free_for_this_write else None

    def run_now(self, session_id: str, job: Job[T]) -> T | None:
        """Run a job of one statement at once, and return its result. If that would have to wait, do nothing and return
        `None`.
        """
        if not self.can_write_now(session_id):
            return None
        with self._lock.moment:
            is_in_place = self._leased_session == session_id or self._access.is_open
            connection = self._get_connection_now() if is_in_place else None
            if connection is None:
                return None
            try:
                result = job(connection)
                self._direct_session = session_id
            except apsw.BusyError:
                return None
            except apsw.Error as error:
                raise self._access.to_store_error(error) from error
        return result

    def acquire_now(self, session_id: str, job: Job[Lease | None]) -> Lease | None:
        """Run a job that acquires a lease, like `run_now`, after looking up that the file is in its place.

        That is not looked up again by `run_now` for this session, until `check_file_again`.
        """
        self.check_file_again()
        lease = self.run_now(session_id, job)
        if lease is not None:
            self._leased_session = session_id
        return lease

    def check_file_again(self) -> None:
        """Let `run_now` look up again that the file is in its place: a lease has ended."""
        self._leased_session = ""

    def end_direct_writes_soon(self) -> None:
        """Let any session write directly from the next iteration of the event loop on."""
        asyncio.get_running_loop().call_soon(self.end_direct_writes)

    def end_direct_writes(self) -> None:
        """Let any session write directly."""
        self._direct_session = ""

    def append(self, new: EncodedAppend, *, sync: bool) -> "asyncio.Future[None]":
        """Queue an append for a transaction that it shares with others, and return its future.

        With `sync` it survives a power failure, and so does everything before it.
        """
        loop = asyncio.get_running_loop()
        work = WriterJob(partial(append_entries, new, self.notes), sync=sync, joins=True, loop=loop)
        work.append = new
        self._syncs_now = 0
        if sync:
            self._commit_if_alone(work, new)
        if work.is_settled:
            work.resolve_future()
        elif sync or self._waiting or not self._lock.is_free:
            self._enqueue((work,))
        else:
            self._gathered.setdefault(loop, []).append(work)
            loop.call_soon(self._write_gathered, loop)  # each time: an interrupt may have kept the loop from it before
        return cast("asyncio.Future[None]", work.future)

    def prepare_and_write(self, prepare: Callable[[Connection], Job[T]]) -> "asyncio.Future[T]":
        """Queue a job for its own transaction, and return its future. `prepare` returns the job; it is called before
        the transaction begins.
        """
        work = WriterJob[T](cast("Job[T]", None), sync=False, joins=False, loop=asyncio.get_running_loop())
        work.prepare = prepare
        self._enqueue((work,))
        return cast("asyncio.Future[T]", work.future)

    def write(self, job: Job[T], *, sync: bool = False) -> "asyncio.Future[T]":
        """Queue a job for its own transaction, and return its future. With `sync`, the result survives a power
        failure.

        A future and not a task: when an event loop is closed all its tasks are cancelled, and this job continues.
        """
        work = WriterJob(job, sync=sync, joins=False, loop=asyncio.get_running_loop())
        self._enqueue((work,))
        return cast("asyncio.Future[T]", work.future)

    def submit(self, job: Job[T], *, sync: bool = False) -> "Future[T]":
        """Queue a job for its own transaction, from any thread, and return its future."""
        work = WriterJob(job, sync=sync, joins=False, loop=None)
        self._enqueue((work,))
        return cast("Future[T]", work.future)

    async def read(self, job: Job[T]) -> T:
        """Run a job that only reads, while others may write, and return its result."""
        work = WriterJob(job, sync=False, joins=False, loop=asyncio.get_running_loop())
        reading = self._reader.submit(job)
        reading.add_done_callback(partial(_settle_read, work))
        try:
            return await cast("asyncio.Future[T]", work.future)
        finally:
            reading.cancel()  # only if the caller was cancelled first, and then there is no need to read

    def run_alone(self, job: Job[T]) -> "asyncio.Future[T]":
        """Run a job outside of any transaction, while no other thread of this process writes; return its future."""
        return follow_thread(self._get_or_start_thread().submit(partial(self._run_job_alone, job)))

    def erase_remains(self, texts: Collection[str] = ()) -> "asyncio.Future[None]":
        """Remove all traces of deleted and overwritten data from SQLite's write-ahead log, and copies of these texts
        from the unused space of pages; wait for the disk.
        """
        return self.run_alone(partial(self._access.erase_remains, texts))

    # -- how it is done ------------------------------------------------------------------------------------------------

    def _commit_if_alone(self, work: WriterJob[Any], new: EncodedAppend) -> None:
        """Commit an append on the caller's thread, so that only the wait for the disk is left to the writer's.

        Do nothing if that is not possible, or would take long, or if sessions share their transactions at the moment:
        then one sync serves many.
        """
        wal = self._access.wal
        if wal is None or new.texts or self._is_shared or not self._access.is_open:
            return
        try:
            if self.can_write_now(new.lease.session_id) and self.append_now(new):
                work.joins, work.wal = False, wal
        except Exception as error:  # noqa: BLE001 - raised to the caller
            work.error = error

    def _write_gathered(self, loop: asyncio.AbstractEventLoop) -> None:
        works = self._gathered.pop(loop, [])
        self._direct_session = ""
        try:
            if works and not self._waiting and self._lock.is_free:
                with self._lock.moment:
                    self._append_if_idle(works)
        finally:
            self._enqueue([work for work in works if not work.is_settled])
            get_future_resolver(loop).add_on_loop([work for work in works if work.is_settled], loop)

    def _append_if_idle(self, works: Sequence[WriterJob[Any]]) -> None:
        """Append at once, in one statement, if that is possible and the file is idle."""
        connection = self._get_connection_now()
        if connection is None:
            return
        try:
            if append_in_one_statement([work.append for work in works if work.append], self.notes, connection):
                for work in works:
                    work.is_done = True
        except apsw.BusyError:
            return
        except apsw.Error as error:
            fail_jobs(works, error)
        self._translate_errors(works)

    def _enqueue(self, works: Sequence[WriterJob[Any]]) -> None:
        """Queue jobs for the writer thread."""
        if not works:
            return
        with self._thread_lock:
            self._waiting.extend(works)
            self._start_draining()

    def _ask_for_checkpoint(self) -> None:
        with self._thread_lock:
            self._is_checkpoint_due = True
            self._start_draining()

    def _start_draining(self) -> None:
        # Also if it is busy, and will find the job anyway: an interrupt may have kept an earlier caller from this.
        self._get_or_start_thread().call(self._drain)

    def _get_or_start_thread(self) -> StoreThreads:
        with self._thread_lock:
            if self._thread is None:
                self._thread = StoreThreads("perdure-sqlite", check=self._tell_again)
            return self._thread

    def _drain(self) -> None:
        """Run all queued jobs. A job stays in the queue until it is done, so that no later one overtakes it."""
        with self._draining:  # the thread before this one may still have something in its queue
            while self._waiting or self._is_checkpoint_due:
                self._drain_once()

    def _drain_once(self) -> None:
        works = self._next_jobs()
        if works:
            with self._lock.hold():
                self._run_jobs(works)
            with self._thread_lock:
                for _ in works:
                    self._waiting.popleft()
            self._untold = [*[work for work in self._untold if not work.future.done()], *works]
            resolve_futures(works)  # the last thing, if nothing is queued: the event loop needs the GIL now
        if self._is_checkpoint_due:
            self._is_checkpoint_due = False
            with self._lock.hold():
                self._access.checkpoint()

    def _tell_again(self) -> bool:
        """Tell event loops once more of finished jobs, if an interrupt has kept them from hearing; called on the
        writer's thread, a while after its last job. Return True if there may be more to tell.
        """
        self._untold = [work for work in self._untold if not work.future.done() and work.can_be_told_again()]
        for work in self._untold:
            work.tell_again()
        return bool(self._untold)

    def _next_jobs(self) -> list[WriterJob[Any]]:
        """Return the next jobs to run: one that needs its own transaction, or all before the next such job."""
        with self._thread_lock:
            return list(takewhile(lambda work: work.joins, self._waiting)) or list(islice(self._waiting, 1))

    def _run_jobs(self, works: Sequence[WriterJob[Any]]) -> None:
        try:
            if (wal := works[0].wal) is not None:
                self._access.sync_wal(wal)
                works[0].is_done = True
                return
            self._is_shared = len(works) > 1
            with self._access.use_with_timeout() as connection:
                self._access.set_sync(connection, every_commit=any(work.sync for work in works))
                self._run_shortly(connection, works)
            if any(work.sync and work.is_done and work.append is not None for work in works):
                self._access.open_wal()
        except Exception as error:  # noqa: BLE001 - raised to the callers
            fail_jobs(works, error)
        self._translate_errors(works)

    def _run_shortly(self, connection: Connection, works: Sequence[WriterJob[Any]]) -> None:
        """Run jobs in one transaction that is as short as possible, with all preparation before it."""
        for work in works:
            if work.prepare is not None:
                work.job = work.prepare(connection)
        appends = [work.append for work in works if work.append is not None]
        if len(appends) == len(works) and append_in_one_statement(appends, self.notes, connection):
            for work in works:
                work.is_done = True
            return
        run_jobs(connection, works)

    def _translate_errors(self, works: Sequence[WriterJob[Any]]) -> None:
        for work in works:
            if isinstance(work.error, apsw.Error):
                work.error = self._access.to_store_error(work.error)
        self._enqueue_merges()

    def _enqueue_merges(self) -> None:
        due = self.notes.merge_due
        if due:
            self.notes.merge_due = set()
            work = WriterJob[None](cast("Job[None]", None), sync=False, joins=False, loop=None)
            work.prepare = partial(prepare_merges, due)
            self._enqueue([work])

    def _run_job_alone(self, job: Job[T]) -> T:
        with self._lock.hold(), self._access.use_with_timeout() as connection:
            self._access.set_sync(connection, every_commit=True)
            return job(connection)

    def _ensure_open(self) -> None:
        if not self._access.is_open:
            with self._lock.hold(), contextlib.suppress(ReadOnlyStoreError):  # it is read as it is
                self._access.get_or_open()

    def _close(self) -> None:
        with self._thread_lock:
            if self._users or self._waiting or self._thread is None:
                return
            thread, self._thread = self._thread, None
        thread.end()  # after this, its last job
        self._reader.close()
        with self._lock.hold():
            self.notes = StateBetweenAppends()
            self._access.close()
            self.leases.lock.close()


def _settle_read(work: WriterJob[T], reading: "Future[T]") -> None:
    """Pass the result of a read from the reader thread to the future of the task that waits for it."""
    if not reading.cancelled():
        work.error = reading.exception()
        work.result = None if work.error is not None else reading.result()
        resolve_futures((work,))


_WRITERS: dict[tuple[int, str, str | None], FileScheduler] = {}


def get_file_scheduler(path: str, vfs: str | None) -> FileScheduler:
    """Return the scheduler of a file in this process, created if needed. A forked child gets a new one."""
    key = (os.getpid(), os.path.realpath(path), vfs)
    return _WRITERS.get(key) or _WRITERS.setdefault(key, FileScheduler(key[1], vfs))
