"""Bounded background writer: a thread writes items, such as lines of a trace, in batches; adding one never waits."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from msgspec import Struct

from perdure.core import argument_checks

T = TypeVar("T")

BATCH_SIZE: Final = 100
"""Most items that are written at once, unless the writer is given another number."""
MAX_QUEUE: Final = 10_000
"""Most items that wait, unless the writer is given another number."""
LINGER_SECONDS: Final = 0.05
"""Time that the thread waits for more items before it writes a batch that is not full."""

_LOGGER: Final = logging.getLogger("perdure")


class WriterStats(Struct, frozen=True, kw_only=True):
    """Counters of an `AsyncWriter`. Every added item is written, dropped, failed or queued."""

    added: int
    written: int
    dropped: int
    """Items that were added while the queue was full, or after the end."""
    failed: int
    """Items of batches whose writing raised an error."""
    queued: int


class AsyncWriter(Generic[T]):
    """Writes items in batches, in order, on a background thread. Adding an item never waits and never raises.

    If the queue is full, a new item is dropped and counted. An error of `write` is counted and logged once; the next
    batch is tried again.
    """

    def __init__(
        self, write: Callable[[Sequence[T]], object], *, batch_size: int = BATCH_SIZE, max_queue: int = MAX_QUEUE
    ) -> None:
        """Make a writer; its thread starts with the first item.

        Args:
            write: Plain function that writes a batch of items; it is called on the thread of the writer.
            batch_size: Most items in one batch.
            max_queue: Most items that wait to be written.
        """
        argument_checks.require_plain_function("AsyncWriter", "write", write)
        argument_checks.require_int("AsyncWriter", "batch_size", batch_size, 1)
        argument_checks.require_int("AsyncWriter", "max_queue", max_queue, 1)
        self._write = write
        self._batch_size = batch_size
        self._max_queue = max_queue
        self._queue: deque[T] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_idle = True
        self._is_flushing = False
        self._is_closed = False
        self._writing = 0
        self._written = self._dropped = self._failed = 0

    def add(self, item: T) -> bool:
        """Queue an item; return False if it was dropped. May be called on any thread."""
        count = len(self._queue)
        if self._is_closed or count >= self._max_queue:
            with self._changed:
                self._dropped += 1
            return False
        self._queue.append(item)
        # The lock is needed only to wake the thread, which marks itself as idle before it looks at the queue once more.
        if self._is_idle or count + 1 == self._batch_size:
            with self._changed:
                self._is_idle = False
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="perdure trace writer", daemon=True)
                    self._thread.start()
                self._changed.notify_all()
        return True

    @property
    def is_full(self) -> bool:
        """True if the next item would be dropped: a producer that can wait should await `wait_for_room()`."""
        return len(self._queue) >= self._max_queue

    async def wait_for_room(self) -> None:
        """Wait until half of the queue has been written."""
        await asyncio.to_thread(self._wait, lambda: len(self._queue) <= self._max_queue // 2)

    @property
    def stats(self) -> WriterStats:
        """The counters as they are now."""
        with self._changed:
            queued = len(self._queue) + self._writing
            return WriterStats(
                added=self._written + self._dropped + self._failed + queued,
                written=self._written,
                dropped=self._dropped,
                failed=self._failed,
                queued=queued,
            )

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait until everything queued is written; return False if that takes longer than the timeout."""
        return self._wait(lambda: not self._queue and not self._writing, timeout_seconds)

    async def flush_async(self, timeout_seconds: float | None = None) -> bool:
        """Wait as `flush` does, without blocking the event loop."""
        return await asyncio.to_thread(self.flush, timeout_seconds)

    def close(self, timeout_seconds: float | None = None) -> bool:
        """Accept no more items, and wait until those queued are written; return False after the timeout."""
        self._is_closed = True
        is_done = self.flush(timeout_seconds)
        with self._changed:
            self._changed.notify_all()
        return is_done

    def _wait(self, is_done: Callable[[], bool], timeout_seconds: float | None = None) -> bool:
        with self._changed:
            self._is_flushing = True
            self._changed.notify_all()
            try:
                return self._changed.wait_for(is_done, timeout_seconds)
            finally:
                self._is_flushing = False

    # -- on the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while batch := self._take_batch():
            try:
                self._write(batch)
            except Exception as error:  # noqa: BLE001 - an error of a writer must not reach a run
                self._count(failed=len(batch))
                if self._failed == len(batch):
                    _LOGGER.warning(
                        "a trace cannot be written (%s: %s); it is tried again", type(error).__name__, error
                    )
            else:
                self._count(written=len(batch))

    def _take_batch(self) -> list[T]:
        """Wait for items and return a batch of them; an empty one when the writer is closed."""
        with self._changed:
            while True:
                self._is_idle = True
                if self._queue:
                    break
                if self._is_closed:
                    return []
                self._changed.wait()
            self._is_idle = False
            if len(self._queue) < self._batch_size and not (self._is_flushing or self._is_closed):
                self._changed.wait(LINGER_SECONDS)
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), self._batch_size))]
            self._writing = len(batch)
            return batch

    def _count(self, *, written: int = 0, failed: int = 0) -> None:
        with self._changed:
            self._written += written
            self._failed += failed
            self._writing = 0
            self._changed.notify_all()
