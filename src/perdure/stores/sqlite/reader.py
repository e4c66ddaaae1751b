"""The connection of a process that reads an SQLite file, on a thread of its own. Above: `writer.py`.
Below: `file.py`.

It sees the file at one moment, and nobody who writes has to wait for it.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import apsw

from .batch import Job
from .connection import Connection
from .file import connect_to_read, identity, store_error

T = TypeVar("T")


class Reader:
    """Does one job at a time."""

    def __init__(self, path: str, vfs: str | None, make_sure: Callable[[], None]) -> None:
        self._path = path
        self._vfs = vfs
        self._make_sure = make_sure
        """Called before the file is opened: sees to it that there is one, and that it is ours."""
        self._connection: Connection | None = None
        self._file = (0, 0)
        self._starting = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None

    def submit(self, job: Job[T]) -> "Future[T]":
        """Do a job that changes nothing."""
        with self._starting:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "perdure-sqlite-read")
            return self._thread.submit(self._perform, job)

    def close(self) -> None:
        """Let go of the file, and of the thread, when what it was asked for is done."""
        with self._starting:
            thread, self._thread = self._thread, None
            closing = thread.submit(self._drop) if thread is not None else None
        if thread is not None and closing is not None:
            thread.shutdown(wait=False)
            closing.result()

    def _perform(self, job: Job[T]) -> T:
        connection = self._opened()
        try:
            connection.execute("BEGIN")
            try:
                return job(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")
        except apsw.Error as error:
            self._drop()
            raise store_error(error, self._path) from error

    def _opened(self) -> Connection:
        connection = self._connection
        if connection is not None and identity(self._path) == self._file:
            return connection
        self._drop()
        self._make_sure()
        connection = self._connection = connect_to_read(self._path, self._vfs)
        self._file = identity(self._path)
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
