"""Threads of a store: they run queued functions in order, with less overhead than an executor, and end cleanly.

Every barrier of a run goes to such a thread and back. An executor makes a future with its own lock for each call, which
takes as long as the thread's own part of a small commit. And an executor whose `submit` is interrupted, because the
handler of a signal raises, may leave a thread behind that keeps the process from ending.
"""

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

T = TypeVar("T")

CHECK_SECONDS: Final = 0.5
"""How long a thread is idle before it looks whether everybody has heard of what it has done."""


class StoreThreads:
    """Threads of a store: they run queued functions in order until they are ended.

    Functions queued before `end` are still run.
    """

    def __init__(self, name: str, count: int = 1, check: Callable[[], bool] | None = None) -> None:
        """Start the first thread; up to `count` are started when they are needed. A while after its last function,
        a thread calls `check`, again and again as long as that returns True.
        """
        self._name = name
        self._count = count
        self._check = check
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._start_thread()
        atexit.register(self._join)

    def call(self, function: Callable[[], object]) -> None:
        """Queue a function, which must not raise."""
        self._queue.put(function)
        if len(self._threads) < self._count and not self._queue.empty():
            self._start_thread()

    def submit(self, function: Callable[[], T]) -> "Future[T]":
        """Queue a function, and return the future of its result."""
        future: Future[T] = Future()

        def set_result() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:  # noqa: BLE001 - raised to the caller
                    future.set_exception(error)

        self.call(set_result)
        return future

    def end(self) -> None:
        """End the threads after the functions that are queued; do not wait for them."""
        for _ in self._threads:
            self._queue.put(None)
        atexit.unregister(self._join)

    def _start_thread(self) -> None:
        # A daemon, because others are joined before the functions of `atexit` are called; `_join` is one of those.
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        is_check_due, check = False, self._check
        while True:
            try:
                function = self._queue.get(timeout=CHECK_SECONDS if is_check_due else None)
            except Empty:
                is_check_due = check is not None and check()
                continue
            if function is None:
                return
            function()
            is_check_due = check is not None

    def _join(self) -> None:
        """Finish what is queued before the interpreter ends."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            if thread.ident is not None:  # an interrupt may have kept it from being started
                thread.join()
