"""Thread pool for tools that are plain (not async) functions.

They are daemons: a function that never returns cannot keep the process from ending. A call whose caller is gone (timed
out, cancelled) frees its slot for the next one, though its thread goes on until the function returns.
"""

import asyncio
import contextlib
import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import Struct

MAX_THREADS = 32
"""The number of functions that run at the same time; more of them wait."""
IDLE_SECONDS = 10.0
"""The time that a thread waits for more work before it ends."""


class _Job(Struct, eq=False):
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    running: bool = False
    abandoned: bool = False


class ThreadPool:
    """A thread pool whose threads never delay the end of the process."""

    def __init__(self, limit: int = MAX_THREADS, idle_seconds: float = IDLE_SECONDS) -> None:
        self._limit = limit
        self._idle_seconds = idle_seconds
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Forget all threads and jobs in a forked process, where they do not exist."""
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._waiting: deque[_Job] = deque()
        self._idle = 0
        self._busy = 0

    async def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call `function` on a thread of the pool, with the caller's context variables, and return its result."""
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        job = _Job(lambda: context.run(function, *args, **kwargs), loop, loop.create_future())
        try:
            self._submit(job)
            succeeded, value = await job.future
        finally:
            if not job.future.done() or job.future.cancelled():
                self._abandon(job)
        if succeeded:
            return value
        try:
            raise value
        finally:
            del job, value  # or the error would refer to this frame, and the frame to the error

    def _submit(self, job: _Job) -> None:
        with self._lock:
            self._waiting.append(job)
            self._wake_or_start_thread()

    def _wake_or_start_thread(self) -> None:
        """Wake an idle thread for the last job, or start one if none is free and the limit allows it."""
        if len(self._waiting) <= self._idle:
            self._wake.notify()
        elif self._busy + self._idle < self._limit:
            threading.Thread(target=self._work, name="perdure-tool", daemon=True).start()
            self._busy += 1

    def _abandon(self, job: _Job) -> None:
        with self._lock:
            if job in self._waiting:
                self._waiting.remove(job)
            elif job.running:
                job.abandoned = True
                self._busy -= 1
                if self._waiting:
                    with contextlib.suppress(
                        RuntimeError
                    ):  # no thread can be started: the job waits for an existing one
                        self._wake_or_start_thread()

    def _work(self) -> None:
        while job := self._next_job():
            outcome = _call_safely(job.work)
            with self._lock:
                job.running = False
                if job.abandoned:
                    return
            _deliver_result(job, outcome)
            del job, outcome  # an idle thread must not keep objects of the caller alive

    def _next_job(self) -> _Job | None:
        """Return the next job, or `None` when this thread has been idle for long enough to end."""
        with self._lock:
            while not self._waiting:
                self._busy -= 1
                self._idle += 1
                notified = self._wake.wait(timeout=self._idle_seconds)
                self._idle -= 1
                if not notified and not self._waiting:
                    return None
                self._busy += 1
            job = self._waiting.popleft()
            job.running = True
            return job


def _call_safely(work: Callable[[], Any]) -> tuple[bool, Any]:
    try:
        return True, work()
    except BaseException as error:  # noqa: BLE001 - every error must reach the caller
        return False, error


def _deliver_result(job: _Job, outcome: tuple[bool, Any]) -> None:
    try:
        job.loop.call_soon_threadsafe(_set_result, job.future, outcome)
    except RuntimeError:
        return  # the loop is closed: no task waits any more


def _set_result(future: "asyncio.Future[Any]", outcome: tuple[bool, Any]) -> None:
    if not future.done():
        future.set_result(outcome)


THREAD_POOL = ThreadPool()

# Without fork there is no such function, and making a dict does no harm.
getattr(os, "register_at_fork", dict)(after_in_child=THREAD_POOL.reset_after_fork)
