"""A thread that reads from an SQLite file over its own connection, without blocking writers.

Each job sees a snapshot of the file, and does not block writers.
"""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

import apsw

from perdure.stores.store_threads import StoreThreads

from .apsw_types import Connection
from .database_file import file_identity, open_read_only, to_store_error, transaction
from .read_only_media import get_file_version, is_read_only
from .writer_jobs import Job

T = TypeVar("T")


class ReadThread:
    """A thread with a read-only connection that runs one read job at a time."""

    def __init__(self, path: str, vfs: str | None, make_sure: Callable[[], None]) -> None:
        self._path = path
        self._vfs = vfs
        self._ensure_file = make_sure
        """Called before the file is opened: creates it if necessary, and checks its format."""
        self._connection: Connection | None = None
        self._file: tuple[int, ...] = (0, 0)
        self._is_read_only = False
        self._starting = threading.Lock()
        self._thread: StoreThreads | None = None

    def submit(self, job: Job[T]) -> "Future[T]":
        """Queue a job that only reads; it runs in a read transaction. Return its future."""
        with self._starting:
            if self._thread is None:
                self._thread = StoreThreads("perdure-sqlite-read")
            return self._thread.submit(partial(self._run_job, job))

    def close(self) -> None:
        """Finish the submitted jobs, then close the connection and end the thread."""
        with self._starting:
            thread, self._thread = self._thread, None
            closing = thread.submit(self._drop_connection) if thread is not None else None
        if thread is not None and closing is not None:
            thread.end()
            closing.result()

    def _run_job(self, job: Job[T]) -> T:
        connection = self._get_or_open()
        try:
            with transaction(connection, "BEGIN"):
                return job(connection)
        except apsw.Error as error:
            self._drop_connection()
            raise to_store_error(error, self._path) from error

    def _get_or_open(self) -> Connection:
        connection = self._connection
        if connection is not None and self._look_at_file() == self._file:
            return connection
        self._drop_connection()
        self._ensure_file()
        connection = self._connection = open_read_only(self._path, self._vfs)
        self._is_read_only = is_read_only(self._path)
        self._file = self._look_at_file()
        return connection

    def _look_at_file(self) -> tuple[int, ...]:
        """Return values that change when the file is replaced and the connection cannot be used any more."""
        return get_file_version(self._path) if self._is_read_only else file_identity(self._path)

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # Refused while another thread frees a cursor of it: then it is closed when it is freed itself.
            with contextlib.suppress(apsw.ThreadingViolationError):
                connection.close()
