"""Who may write to an SQLite file, in this process, and when. Above: `store.py`. Below: `access.py`, which has
the connection, and `reader.py`, which has another one for what only reads.

Whoever holds the lock may use the connection. What need not wait is done where it is asked for: one append at once
(`write_now`), or all that come in the same turn of an event loop together (`append`). All else (what syncs, what waits
for another process) is done by one thread, in the order of asking; appends that have come meanwhile share a
transaction, and a sync.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice, takewhile
from typing import Any, TypeVar, cast
from weakref import WeakSet

import apsw

from perdure.core.error import StoreError
from perdure.core.store import Lease

from .access import Access
from .batch import Job, Work, fail, perform, tell_all
from .file import transact
from .log import Notes
from .merge import merge_each
from .reader import Reader
from .search_thread import Indexer

T = TypeVar("T")


class Writer:
    """Shared by all stores of this process that name the same file."""

    def __init__(self, path: str, vfs: str | None = None) -> None:
        self.path = path
        self.leases: set[Lease] = set()
        """Those that are out in this process."""
        self.notes = Notes()
        """Only jobs touch them."""
        self._users: WeakSet[object] = WeakSet()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._access = Access(path, vfs, self._ask_for_checkpoint)
        self._reader = Reader(path, vfs, self._make_sure)
        self.indexer = Indexer(path, vfs, self.submit)
        """Has to be told of what is appended, and asked to take out what goes."""
        self._thread_lock = threading.RLock()
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: deque[Work[Any]] = deque()
        self._is_draining = False
        self._is_checkpoint_due = False
        self._gathered: dict[asyncio.AbstractEventLoop, list[Work[Any]]] = {}
        self._served = ""
        """The session that has been served at once in this turn of the event loop."""

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a fork of the one that opened it: then it must not be touched."""
        return self._pid != os.getpid()

    def check_process(self) -> None:
        """Refuse to go on in a forked child, where the locks on the file are not ours."""
        if self.is_inherited:
            raise StoreError(
                f"the store {self.path!r} was opened by process {self._pid}, of which this one, {os.getpid()}, is a "
                "fork: make a new store object here"
            )

    def join(self, user: object) -> None:
        """Keep the file open for `user`."""
        self._users.add(user)

    async def leave(self, user: object) -> None:
        """`user` needs the file no more; the last one closes it. It is opened again when somebody needs it."""
        self._users.discard(user)
        if not self._users:
            await self.indexer.aclose()
            await asyncio.wrap_future(self._executor().submit(self._close))

    # -- what is asked for ---------------------------------------------------------------------------------------------

    def would_serve(self, whose: str) -> bool:
        """Whether a session need not wait with a write, as far as can be told at a glance.

        When several write in the same turn of an event loop, all but the first of them are better served together.
        """
        return self._served in ("", whose) and not (self._waiting or self._gathered or self._lock.locked())

    def write_now(self, job: Job[object], whose: str) -> bool:
        """Do the job in a transaction of its own, at once; or `False`, and nothing was done: it would have to wait."""
        if not (self.would_serve(whose) and self._lock.acquire(blocking=False)):
            return False
        try:
            connection = self._access.idle()
            if connection is None:
                return False
            transact(connection, job)
            self._serve(whose)
            self._see_to_what_is_due()
        except apsw.BusyError:
            return False
        except apsw.Error as error:
            raise self._access.explained(error) from error
        finally:
            self._lock.release()
        return True

    def _serve(self, whose: str) -> None:
        if not self._served:
            self._served = whose
            asyncio.get_running_loop().call_soon(self._serve_anybody)

    def _serve_anybody(self) -> None:
        self._served = ""

    def append(self, job: Job[None], *, sync: bool) -> "asyncio.Future[None]":
        """Do the job in a transaction together with others that come at the same time.

        With `sync` it survives the loss of power, and with it all before it. The job may be done again when another
        one has failed, so it must change nothing but the database.
        """
        loop = asyncio.get_running_loop()
        work = Work(job, sync=sync, joins=True, loop=loop)
        if sync or self._waiting or self._lock.locked():
            self._put((work,))
        elif (gathered := self._gathered.get(loop)) is not None:
            gathered.append(work)
        else:
            self._gathered[loop] = [work]
            loop.call_soon(self._write_gathered, loop)
        return cast("asyncio.Future[None]", work.future)

    def write(self, job: Job[T], *, sync: bool = False) -> "asyncio.Future[T]":
        """Do the job in a transaction of its own. With `sync` it survives the loss of power, and all before it.

        No task, but a future: when an event loop is closed all its tasks are cancelled, and this goes on.
        """
        work = Work(job, sync=sync, joins=False, loop=asyncio.get_running_loop())
        self._put((work,))
        return cast("asyncio.Future[T]", work.future)

    def submit(self, job: Job[T], *, sync: bool = False) -> "Future[T]":
        """As `write`, for other threads."""
        work = Work(job, sync=sync, joins=False, loop=None)
        self._put((work,))
        return cast("Future[T]", work.future)

    async def read(self, job: Job[T]) -> T:
        """Do a job that changes nothing, while others may write."""
        return await asyncio.wrap_future(self._reader.submit(job))

    def alone(self, job: Job[T]) -> "asyncio.Future[T]":
        """Do a job outside of any transaction, while nobody else in this process writes."""
        return asyncio.wrap_future(self._executor().submit(self._perform_alone, job))

    def erase_log(self) -> "asyncio.Future[None]":
        """Leave no byte of what was deleted or overwritten before; it survives the loss of power."""
        return self.alone(self._access.erase_log)

    # -- how it is done ------------------------------------------------------------------------------------------------

    def _write_gathered(self, loop: asyncio.AbstractEventLoop) -> None:
        works = self._gathered.pop(loop)
        self._served = ""
        if not self._waiting and self._lock.acquire(blocking=False):
            try:
                self._try(works)
            finally:
                self._lock.release()
        self._put([work for work in works if not work.is_settled])
        for work in works:
            if work.is_settled:
                work.tell()

    def _try(self, works: Sequence[Work[Any]]) -> None:
        """Do work at once, if it need not wait for anything."""
        connection = self._access.idle()
        if connection is None:
            return
        try:
            perform(connection, works)
        except apsw.BusyError:
            return
        except apsw.Error as error:
            fail(works, error)
        self._explain(works)

    def _put(self, works: Sequence[Work[Any]]) -> None:
        """Leave work to the thread."""
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
        if not self._is_draining:
            self._is_draining = True
            self._executor().submit(self._drain)

    def _executor(self) -> ThreadPoolExecutor:
        with self._thread_lock:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "perdure-sqlite")
            return self._thread

    def _drain(self) -> None:
        """Do all that is waiting. It waits until it is done, so that nobody is served before his turn."""
        while self._is_draining:
            works = self._next()
            if works:
                with self._lock:
                    self._perform(works)
                with self._thread_lock:
                    for _ in works:
                        self._waiting.popleft()
                tell_all(works)
            if self._is_checkpoint_due:
                self._is_checkpoint_due = False
                with self._lock:
                    self._access.checkpoint()

    def _next(self) -> list[Work[Any]]:
        """What is to be done next: one that goes alone, or all that come before such a one."""
        with self._thread_lock:
            works = list(takewhile(lambda work: work.joins, self._waiting)) or list(islice(self._waiting, 1))
            self._is_draining = bool(works) or self._is_checkpoint_due
            return works

    def _perform(self, works: Sequence[Work[Any]]) -> None:
        try:
            with self._access.patient() as connection:
                self._access.sync_with(connection, every_commit=any(work.sync for work in works))
                perform(connection, works)
        except Exception as error:  # noqa: BLE001 - told to whoever waits
            fail(works, error)
        self._explain(works)

    def _explain(self, works: Sequence[Work[Any]]) -> None:
        for work in works:
            if isinstance(work.error, apsw.Error):
                work.error = self._access.explained(work.error)
        self._see_to_what_is_due()

    def _see_to_what_is_due(self) -> None:
        due = self.notes.due
        if due:
            self.notes.due = set()
            self._put([Work(partial(merge_each, due), sync=False, joins=False, loop=None)])

    def _perform_alone(self, job: Job[T]) -> T:
        with self._lock, self._access.patient() as connection:
            self._access.sync_with(connection, every_commit=True)
            return job(connection)

    def _make_sure(self) -> None:
        if not self._access.is_open:
            with self._lock:
                self._access.opened()

    def _close(self) -> None:
        with self._thread_lock:
            if self._users or self._waiting or self._thread is None:
                return
            thread, self._thread = self._thread, None
        thread.shutdown(wait=False)  # ends after this, its last job
        self._reader.close()
        with self._lock:
            self.notes = Notes()
            self._access.close()


_WRITERS: dict[tuple[int, str, str | None], Writer] = {}


def writer_of(path: str, vfs: str | None) -> Writer:
    """The writer of this process for a file. A forked child has its own."""
    key = (os.getpid(), os.path.realpath(path), vfs)
    return _WRITERS.get(key) or _WRITERS.setdefault(key, Writer(key[1], vfs))
