"""Resolve the futures of finished database jobs a few at a time, so that the event loop is not blocked.

Each future wakes a task. After a commit for a thousand sessions, an event loop that was told of all of them at once
would run a thousand tasks before it looks at a timer or a socket again.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from .writer_jobs import WriterJob

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
