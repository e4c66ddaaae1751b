"""Database jobs in the queue of an SQLite store's writer, and running several of them in one transaction."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from .apsw_types import Connection

if TYPE_CHECKING:
    from .log import EncodedAppend
    from .wal_sync import WalSync

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
