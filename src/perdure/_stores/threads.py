"""Threads of a store that run queued functions in order; their futures, and the lock of a file they write to."""

import asyncio
import atexit
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Final, TypeVar


class DirectWriteLock:
    """Lock of a file for threads, which may have it for long, and for writes on the thread of an event loop.

    Such a write looks at `is_free` first, then enters `moment`, and does nothing unless `is_free_for_this_write`.
    """

    def __init__(self) -> None:
        self.moment = threading.Lock()
        """Entered, with `with` alone, for a write that does not wait for anything."""
        self.is_free_for_this_write = True
        """True, for who is in `moment`, if no thread has the lock."""
        self._threads = threading.Lock()

    @property
    def is_free(self) -> bool:
        """True if a write would probably not have to wait."""
        return self.is_free_for_this_write and not self.moment.locked()

    @contextmanager
    def hold(self) -> Generator[None]:
        """Context manager: have the lock on a thread that no signal handler interrupts: any but the main thread."""
        with self._threads:
            with self.moment:
                self.is_free_for_this_write = False
            try:
                yield
            finally:
                self.is_free_for_this_write = True


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


LOOK_SECONDS: Final = 0.5
"""How often the event loop looks whether a thread has finished without its hearing of it."""


def follow_thread(source: "Future[T]") -> "asyncio.Future[T]":
    """Return a future of the running event loop for the result of a thread."""
    loop = asyncio.get_running_loop()
    future = asyncio.wrap_future(source, loop=loop)
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        if future.done():
            return
        if not source.done():
            timer = loop.call_later(LOOK_SECONDS, look)
        elif (error := source.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(source.result())

    timer = loop.call_later(LOOK_SECONDS, look)
    future.add_done_callback(lambda _: timer.cancel())
    return future
