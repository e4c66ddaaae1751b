"""Database jobs of an SQLite store's writer: run several in one transaction, sync its log, and resolve futures."""

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import apsw

from perdure._stores.files import sync_data
from perdure._stores.sqlite.driver import Connection

if TYPE_CHECKING:
    from perdure._stores.sqlite.log import EncodedAppend


CAN_SYNC_WAL: Final = sys.platform != "win32"
"""False where an open file cannot be deleted, as SQLite does with its log."""
QUICK_SECONDS: Final = 0.0005
"""A sync that takes no longer is quick: an event loop may wait for it."""
STALL_SECONDS: Final = 0.005
"""A sync that takes longer has delayed whatever else the event loop had to do."""
QUICK_SYNCS: Final = 2
"""The number of quick syncs in a row after which the next one is expected to be quick."""
MAX_QUICK_SYNCS: Final = 4096
"""The same after many stalls, each of which makes it sixteen times as many."""
TRUSTED_SYNCS: Final = 1000
"""The number of syncs in a row, all expected to be quick, and quick, after which stalls are forgotten."""


class SyncSpeedPredictor:
    """Predicts if the next disk sync will be quick, from how long the last ones took."""

    __slots__ = ("_quick_in_row", "_wanted")

    def __init__(self) -> None:
        self._quick_in_row = 0
        self._wanted = QUICK_SYNCS

    @property
    def is_quick(self) -> bool:
        """True if the next sync will probably be quick."""
        return self._quick_in_row >= self._wanted

    def record(self, seconds: float) -> None:
        """Take note of how long a sync took."""
        if seconds <= QUICK_SECONDS:
            self._quick_in_row += 1
            if self._quick_in_row == self._wanted + TRUSTED_SYNCS:
                self._wanted = QUICK_SYNCS
            return
        if seconds > STALL_SECONDS and self.is_quick:
            self._wanted = min(self._wanted * 16, MAX_QUICK_SYNCS)
        self._quick_in_row = 0


class WalSync:
    """SQLite's write-ahead log, open for syncing to the disk; after a sync, all commits in it survive a power failure.

    The name of a new log must have been synced before: SQLite does so at its own first sync of it.
    """

    def __init__(self, path: str, vfs: str | None) -> None:
        """Open the log of the database at `path`. Raises `OSError` or `apsw.Error`."""
        self._descriptor = -1
        self._file: Any = None
        self._pace = SyncSpeedPredictor()
        if vfs is None:
            self._descriptor = os.open(f"{path}-wal", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        else:
            self._file = apsw.VFSFile(vfs, f"{path}-wal", [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_WAL, 0])

    @property
    def is_quick(self) -> bool:
        """True if the next sync will probably take no longer than handing it to a thread."""
        return self._pace.is_quick

    def sync(self) -> None:
        """Block until all commits in the log would survive a power failure. Raises `apsw.Error`."""
        began = time.perf_counter()
        if self._file is not None:
            self._file.xSync(apsw.SQLITE_SYNC_FULL)
        else:
            try:
                sync_data(self._descriptor)
            except OSError as error:
                raise apsw.IOError(str(error)) from error
        self._pace.record(time.perf_counter() - began)

    def close(self) -> None:
        """Close the log. An error is ignored: nothing is acknowledged by closing it."""
        with contextlib.suppress(OSError, apsw.Error):
            if self._file is not None:
                self._file.xClose()
            else:
                os.close(self._descriptor)


T = TypeVar("T")

MAX_TELLINGS: Final = 20
"""How often an event loop is told once more that a job has ended: one that has stopped for good hears nothing."""
Job: TypeAlias = Callable[[Connection], T]
"""Function that reads or changes the database over a connection that no other thread uses meanwhile."""


class WriterJob(Generic[T]):
    """A database job in the queue of the writer, with its future and its result."""

    __slots__ = (
        "append",
        "error",
        "future",
        "is_done",
        "job",
        "joins",
        "loop",
        "prepare",
        "result",
        "sync",
        "tellings",
        "wal",
    )

    def __init__(self, job: Job[T], *, sync: bool, joins: bool, loop: asyncio.AbstractEventLoop | None) -> None:
        self.job = job
        self.sync = sync
        """True if it must survive a power failure."""
        self.joins = joins
        """True if it may share a transaction. The job may then run again, and must change nothing but the database."""
        self.loop = loop
        """The event loop of its future; `None` for a future of a thread."""
        self.future: asyncio.Future[T] | Future[T] = Future() if loop is None else loop.create_future()
        self.append: EncodedAppend | None = None
        """The entries to append, if that is all that the job does."""
        self.prepare: Callable[[Connection], Job[T]] | None = None
        """Function that is called before the transaction begins, and returns the job: for work that takes long."""
        self.wal: WalSync | None = None
        """The write-ahead log in which the job has been committed already; it waits only for the disk."""
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done = False
        self.tellings = 0
        """How often its event loop was told of its end once more."""

    @property
    def is_settled(self) -> bool:
        """True if the job has succeeded or failed."""
        return self.is_done or self.error is not None

    def resolve_future(self) -> None:
        """Set the job's result or error on its future, unless it was cancelled. Call it on the thread of the future's
        event loop.
        """
        try:
            if self.error is not None:
                self.future.set_exception(self.error)
            else:
                self.future.set_result(self.result)
        except (asyncio.InvalidStateError, InvalidStateError):
            return

    def can_be_told_again(self) -> bool:
        """True if its event loop may not have heard that it has ended, and is not known to have gone."""
        return self.loop is not None and not self.loop.is_closed() and self.tellings < MAX_TELLINGS

    def tell_again(self) -> None:
        """Tell its event loop once more that it has ended, from another thread."""
        self.tellings += 1
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just been closed
                self.loop.call_soon_threadsafe(self.resolve_future)


def run_jobs(connection: Connection, works: Iterable[WriterJob[Any]]) -> None:
    """Run all jobs in one transaction. If a job raises, it fails alone, and the others are run again without it.

    Raises database errors of the transaction as a whole: then nothing has been done.
    """
    left = [work for work in works if work.error is None]
    while left:
        failed = _run_until_failure(connection, left)
        if failed is None:
            for work in left:
                work.is_done = True
            return
        left.remove(failed)


def _run_until_failure(connection: Connection, works: Sequence[WriterJob[Any]]) -> WriterJob[Any] | None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        for work in works:
            try:
                work.result = work.job(connection)
            except Exception as error:  # noqa: BLE001 - raised to the caller of this job
                work.error = error
                return work
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return None


def fail_jobs(works: Iterable[WriterJob[Any]], error: Exception) -> None:
    """Set this error as the result of all jobs that are not done."""
    for work in works:
        if not work.is_settled:
            work.error = error


SLICE_LENGTH = 16
"""Number of futures that are resolved in one iteration of an event loop."""


class BatchedFutureResolver:
    """Queue of the finished jobs of one event loop, whose futures are resolved a few at a time, in order."""

    __slots__ = ("_is_scheduled", "_lock", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[WriterJob[Any]] = deque()
        self._is_scheduled = False
        """True if the event loop is going to call `_resolve_slice`."""
        self._lock = threading.Lock()

    def add(self, works: Iterable[WriterJob[Any]], loop: asyncio.AbstractEventLoop) -> None:
        """Add finished jobs, from any thread."""
        with self._lock:
            self._waiting.extend(works)
            if self._is_scheduled:
                return
            self._is_scheduled = True
        try:
            loop.call_soon_threadsafe(self._resolve_slice, loop)
        except RuntimeError:
            return  # the loop is closed: nothing waits any more

    def add_on_loop(self, works: Iterable[WriterJob[Any]], loop: asyncio.AbstractEventLoop) -> None:
        """Add finished jobs, from the thread of the event loop, and resolve the first of them immediately."""
        with self._lock:
            self._waiting.extend(works)
            if self._is_scheduled:
                return
            self._is_scheduled = True
        self._resolve_slice(loop)

    def _resolve_slice(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._waiting
        for _ in range(min(len(waiting), SLICE_LENGTH)):
            waiting.popleft().resolve_future()
        with self._lock:
            self._is_scheduled = bool(waiting)
        if self._is_scheduled:
            loop.call_soon(self._resolve_slice, loop)  # after the tasks that were just woken


_slices_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, BatchedFutureResolver] = WeakKeyDictionary()
_lock = threading.Lock()


def get_future_resolver(loop: asyncio.AbstractEventLoop) -> BatchedFutureResolver:
    """Return the `BatchedFutureResolver` of an event loop, which resolves the futures of finished jobs in batches.

    All SQLite files of the process share it.
    """
    with _lock:
        found = _slices_by_loop.get(loop)
        if found is None:
            found = _slices_by_loop[loop] = BatchedFutureResolver()
        return found


def resolve_futures(works: Sequence[WriterJob[Any]]) -> None:
    """Set the results of all jobs on their futures, from a thread other than that of their event loops."""
    if len(works) == 1 and works[0].loop is not None:
        get_future_resolver(works[0].loop).add(works, works[0].loop)
        return
    loops: dict[asyncio.AbstractEventLoop, list[WriterJob[Any]]] = {}
    for work in works:
        if work.loop is None:
            work.resolve_future()
        else:
            loops.setdefault(work.loop, []).append(work)
    for loop, done in loops.items():
        get_future_resolver(loop).add(done, loop)
