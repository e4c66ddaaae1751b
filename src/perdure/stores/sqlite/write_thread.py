"""The thread that writes to an SQLite store: it runs queued functions in order, with less overhead than an executor.

Every barrier of a run goes to this thread and back. An executor makes a future with its own lock for each call, which
takes as long as the thread's own part of a small commit.
"""

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class WriteThread:
    """Thread that writes to an SQLite store: it runs queued functions in order until it is ended.

    Functions queued before `end` are still run.
    """

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        # A daemon, because others are joined before the functions of `atexit` are called; `_join` is one of those.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        atexit.register(self._join)

    def call(self, function: Callable[[], object]) -> None:
        """Queue a function, which must not raise."""
        self._queue.put(function)

    def submit(self, function: Callable[[], T]) -> "Future[T]":
        """Queue a function, and return the future of its result."""
        future: Future[T] = Future()

        def set_result() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:  # noqa: BLE001 - raised to the caller
                    future.set_exception(error)

        self._queue.put(set_result)
        return future

    def end(self) -> None:
        """End the thread after the functions that are queued; do not wait for it."""
        self._queue.put(None)
        atexit.unregister(self._join)

    def _run(self) -> None:
        while (function := self._queue.get()) is not None:
            function()

    def _join(self) -> None:
        """Finish what is queued before the interpreter ends."""
        self._queue.put(None)
        self._thread.join()
