"""The background thread on which an SQLite store is indexed and searched.

An append only signals that there is something new. It is indexed after a quiet moment, or at the latest some time after
the first of it; a search indexes the rest first.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from perdure._stores.threads import follow_thread

if TYPE_CHECKING:
    from .log_reader import SubmitJob
    from .query import LogSearch

T = TypeVar("T")
IndexTask: TypeAlias = Callable[["LogSearch"], T]

QUIET_SECONDS: Final = 1.0
"""The time without appends after which indexing in the background begins."""
LATEST_SECONDS: Final = 30.0
"""The time after which it begins even if there are appends all the time."""

_log = logging.getLogger("perdure.stores")


class SearchThread:
    """A background thread that indexes and searches an SQLite store; the first append or search starts it."""

    def __init__(self, path: str, vfs: str | None, submit: "SubmitJob") -> None:
        self._make_search = partial(_make_search, path, vfs, submit)
        self._lock = threading.Lock()
        self._worker: _Worker | None = None

    def signal_append(self) -> None:
        """Notify the thread that there are new entries to index. Costs next to nothing."""
        worker = self._worker
        if worker is None or not worker.has_new_entries:
            with self._lock:
                self._get_or_start_worker().signal_append()
        else:
            worker.appends += 1

    async def run_with_index(self, work: "IndexTask[T]") -> T:
        """Run a function with the index on the search thread, as soon as the current batch is indexed."""
        future: Future[T] = Future()

        def perform() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work(worker.search))
                except BaseException as error:  # noqa: BLE001 - raised to the caller
                    future.set_exception(error)
                worker.plan_rewriting()

        with self._lock:
            worker = self._get_or_start_worker()
            worker.enqueue(perform)
        return await follow_thread(future)

    async def aclose(self) -> None:
        """End the thread and close its files. The object can be used again; the next search indexes the rest."""
        with self._lock:
            worker, self._worker = self._worker, None
            if worker is None:
                return
            worker.enqueue(None)  # its last
        await follow_thread(worker.closed)

    def _get_or_start_worker(self) -> "_Worker":
        if self._worker is None:
            self._worker = _Worker(self._make_search)
        return self._worker


class _Worker:
    """The search thread and its queue of functions."""

    def __init__(self, make_search: "Callable[[], LogSearch]") -> None:
        self.appends = 0
        """The approximate number of appends: only changes of it matter."""
        self.has_new_entries = False
        """True if the thread knows that there is something to index."""
        self.closed: Future[None] = Future()
        self._make_search = make_search
        self._search: LogSearch | None = None
        self._pause = IndexingDelay()
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon: it may be anywhere when the process ends, and the index is whole all the same.
        threading.Thread(target=self._run, name="perdure-search", daemon=True).start()

    @property
    def search(self) -> "LogSearch":
        """The `LogSearch` object, created on the thread when first needed, so that callers do not wait for it."""
        if self._search is None:
            self._search = self._make_search()
        return self._search

    def enqueue(self, work: Callable[[], None] | None) -> None:
        """Queue a function; `None` ends the thread."""
        self._queue.put(work)

    def signal_append(self) -> None:
        """Notify the thread that there are entries to index after a quiet moment."""
        self.appends += 1
        if not self.has_new_entries:
            self.has_new_entries = True
            self._queue.put(lambda: self._pause.start(self.appends))

    def plan_rewriting(self) -> None:
        """If removed texts may be left in the index, because another process has died, see to it in a quiet moment."""
        if self._search is not None and self._search.is_rewriting_due:
            self._pause.start(self.appends)

    def _run(self) -> None:
        """Run queued functions, and index entries while the queue is empty."""
        while True:
            try:
                work = self._queue.get(timeout=self._pause.remaining_seconds())
            except Empty:
                if self._pause.is_over(self.appends):
                    self._index_some()
                continue
            if work is None:
                break
            work()
        self._close()

    def _index_some(self) -> None:
        """Index a batch; the next one follows when the queue is empty."""
        self.has_new_entries = False  # later appends signal again
        try:
            if self.search.index_batch():
                self.has_new_entries = True
                return
        except Exception as error:  # noqa: BLE001 - a full disk, say: it is tried again at the next append
            _log.warning("the search index could not be brought up to date: %s", error)
        self._pause.stop()

    def _close(self) -> None:
        try:
            if self._search is not None:
                self._search.close()
        except Exception as error:  # noqa: BLE001 - nothing is lost, and the log must be closed all the same
            _log.warning("the search index could not be closed: %s", error)
        self.closed.set_result(None)


def _make_search(path: str, vfs: str | None, submit: "SubmitJob") -> "LogSearch":
    from .query import LogSearch

    return LogSearch(path, vfs, submit)


class IndexingDelay:
    """The delay between an append and its indexing for search, so that indexing runs in a quiet moment."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: float | None = None
        self._latest = 0.0
        self._appends = 0

    def start(self, appends: int) -> None:
        """Start waiting, unless already waiting; `appends` is the current count."""
        if self._until is None:
            self._appends = appends
            self._until = self._clock() + QUIET_SECONDS
            self._latest = self._clock() + LATEST_SECONDS

    def remaining_seconds(self) -> float | None:
        """Return the seconds until indexing may begin; `None` if there is nothing to index."""
        return None if self._until is None else max(self._until - self._clock(), 0)

    def is_over(self, appends: int) -> bool:
        """Return True if there was no append during the wait, or the latest time is reached; else extend the wait."""
        now = self._clock()
        if appends == self._appends or now >= self._latest:
            return True
        self._appends = appends
        self._until = min(now + QUIET_SECONDS, self._latest)
        return False

    def stop(self) -> None:
        """Stop waiting, because everything is indexed."""
        self._until = None
