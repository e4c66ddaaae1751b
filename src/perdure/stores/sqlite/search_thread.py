"""The thread on which an SQLite store is indexed and searched. Above: `store.py`. Below: `search.py`.

Appending only says that there is something new. It is indexed when nothing more has come for a moment, or at the latest
some time after the first of it; and whoever searches has the rest indexed first.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from .search import Search
    from .search_log import Submit

T = TypeVar("T")
Work: TypeAlias = Callable[["Search"], T]

QUIET_SECONDS: Final = 1.0
"""Nothing is indexed in the background before it has been quiet for as long."""
LATEST_SECONDS: Final = 30.0
"""Unless something has been waiting for as long."""

_log = logging.getLogger("perdure.stores")


class Indexer:
    """Works for one file. There is a thread from the first append or question on, until it is closed."""

    def __init__(self, path: str, vfs: str | None, submit: "Submit") -> None:
        self._make_search = partial(_make_search, path, vfs, submit)
        self._lock = threading.Lock()
        self._worker: _Worker | None = None

    def noticed(self) -> None:
        """Something was appended. Costs next to nothing."""
        worker = self._worker
        if worker is None or not worker.is_told:
            with self._lock:
                self._begun().tell()
        else:
            worker.appends += 1

    async def ask(self, work: "Work[T]") -> T:
        """Do something with the index, on the thread, as soon as the batch that is being indexed is done."""
        future: Future[T] = Future()

        def perform() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work(worker.search))
                except BaseException as error:  # noqa: BLE001 - whoever asked is told
                    future.set_exception(error)

        with self._lock:
            worker = self._begun()
            worker.put(perform)
        return await asyncio.wrap_future(future)

    async def aclose(self) -> None:
        """Let go of the files; what is not indexed yet will be when somebody searches. It may be used again."""
        with self._lock:
            worker, self._worker = self._worker, None
            if worker is None:
                return
            worker.put(None)  # its last
        await asyncio.wrap_future(worker.closed)

    def _begun(self) -> "_Worker":
        if self._worker is None:
            self._worker = _Worker(self._make_search)
        return self._worker


class _Worker:
    """The thread, and what is to be done on it."""

    def __init__(self, make_search: "Callable[[], Search]") -> None:
        self.appends = 0
        """How many there have been, more or less: it is only looked at whether it changes."""
        self.is_told = False
        """Whether it knows that there is something to index."""
        self.closed: Future[None] = Future()
        self._make_search = make_search
        self._search: Search | None = None
        self._pause = Pause()
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon: it may be anywhere when the process ends, and the index is whole all the same.
        threading.Thread(target=self._run, name="perdure-search", daemon=True).start()

    @property
    def search(self) -> "Search":
        """What the work is done with. Made when it is needed, on the thread, so that nobody waits for it."""
        if self._search is None:
            self._search = self._make_search()
        return self._search

    def put(self, work: Callable[[], None] | None) -> None:
        """Have something done, or nothing more."""
        self._queue.put(work)

    def tell(self) -> None:
        """There is something to index, when it is quiet."""
        self.appends += 1
        if not self.is_told:
            self.is_told = True
            self._queue.put(lambda: self._pause.begin(self.appends))

    def _run(self) -> None:
        """Do what is asked, and index in between."""
        while True:
            try:
                work = self._queue.get(timeout=self._pause.seconds())
            except Empty:
                if self._pause.is_over(self.appends):
                    self._index_some()
                continue
            if work is None:
                break
            work()
        self._close()

    def _index_some(self) -> None:
        """Index a batch; the next one comes when nothing else is asked for."""
        self.is_told = False  # what is appended from here on is told again
        try:
            if self.search.batch():
                self.is_told = True
                return
        except Exception as error:  # noqa: BLE001 - a full disk, say: it is tried again at the next append
            _log.warning("the search index could not be brought up to date: %s", error)
        self._pause.end()

    def _close(self) -> None:
        try:
            if self._search is not None:
                self._search.close()
        except Exception as error:  # noqa: BLE001 - nothing is lost, and the log must be closed all the same
            _log.warning("the search index could not be closed: %s", error)
        self.closed.set_result(None)


def _make_search(path: str, vfs: str | None, submit: "Submit") -> "Search":
    from .search import Search

    return Search(path, vfs, submit)


class Pause:
    """How long to wait before indexing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: float | None = None
        self._latest = 0.0
        self._appends = 0

    def begin(self, appends: int) -> None:
        """Something is new, the last of so many appends."""
        if self._until is None:
            self._appends = appends
            self._until = self._clock() + QUIET_SECONDS
            self._latest = self._clock() + LATEST_SECONDS

    def seconds(self) -> float | None:
        """How long that is from now; `None` when there is nothing to index."""
        return None if self._until is None else max(self._until - self._clock(), 0)

    def is_over(self, appends: int) -> bool:
        """Whether it has been quiet, or cannot wait any longer; else it goes on."""
        now = self._clock()
        if appends == self._appends or now >= self._latest:
            return True
        self._appends = appends
        self._until = min(now + QUIET_SECONDS, self._latest)
        return False

    def end(self) -> None:
        """All is indexed."""
        self._until = None
