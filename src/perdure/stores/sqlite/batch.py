"""Work for an SQLite connection, several pieces of it in one transaction. Above: `writer.py`. Below: apsw."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, Generic, TypeAlias, TypeVar

from .connection import Connection

T = TypeVar("T")
Job: TypeAlias = Callable[[Connection], T]
"""Something to do with a connection while nobody else uses it."""


class Work(Generic[T]):
    """A job, who waits for it, and how it ended."""

    __slots__ = ("error", "future", "is_done", "job", "joins", "loop", "result", "sync")

    def __init__(self, job: Job[T], *, sync: bool, joins: bool, loop: asyncio.AbstractEventLoop | None) -> None:
        self.job = job
        self.sync = sync
        """Whether it is to survive the loss of power."""
        self.joins = joins
        """Whether it may share a transaction. Its job may then be done again, and must change the database alone."""
        self.loop = loop
        """Whose future it is; `None` for one of a thread."""
        self.future: asyncio.Future[T] | Future[T] = Future() if loop is None else loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done = False

    @property
    def is_settled(self) -> bool:
        """Whether it is done or has failed."""
        return self.is_done or self.error is not None

    def tell(self) -> None:
        """Tell who waits, unless nobody does any more. A future of an event loop is told on its own thread."""
        with contextlib.suppress(asyncio.InvalidStateError, InvalidStateError):
            if self.error is not None:
                self.future.set_exception(self.error)
            else:
                self.future.set_result(self.result)


def perform(connection: Connection, works: Iterable[Work[Any]]) -> None:
    """Do all of it in one transaction. What raises an error fails alone, and the rest is done again without it.

    Raises what the database says about the transaction as a whole: then nothing has been done.
    """
    left = [work for work in works if work.error is None]
    while left:
        failed = _failed(connection, left)
        if failed is None:
            for work in left:
                work.is_done = True
            return
        left.remove(failed)


def _failed(connection: Connection, works: Sequence[Work[Any]]) -> Work[Any] | None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for work in works:
            try:
                work.result = work.job(connection)
            except Exception as error:  # noqa: BLE001 - told to whoever waits for this one
                work.error = error
                return work
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return None


def fail(works: Iterable[Work[Any]], error: Exception) -> None:
    """Let all that has not been done fail."""
    for work in works:
        if not work.is_settled:
            work.error = error


def tell_all(works: Sequence[Work[Any]]) -> None:
    """Tell everybody who waits, from a thread that is none of theirs."""
    loops: dict[asyncio.AbstractEventLoop, list[Work[Any]]] = {}
    for work in works:
        if work.loop is None:
            work.tell()
        else:
            loops.setdefault(work.loop, []).append(work)
    for loop, told in loops.items():
        try:
            loop.call_soon_threadsafe(_tell_each, told)
        except RuntimeError:
            continue  # the loop is closed: nobody waits any more


def _tell_each(works: Sequence[Work[Any]]) -> None:
    for work in works:
        work.tell()
