"""Threads for tools that are plain functions. Above: `tool.py`. Below: the standard library.

They are daemons: a function that never returns cannot keep the process from ending. A call whose caller has gone
(timed out, cancelled) gives its place to the next one, though its thread goes on until the function returns.
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

LIMIT = 32
"""Functions that run at the same time; more of them wait for a place."""
IDLE_SECONDS = 10.0
"""How long a thread waits for more work before it ends."""


class _Job(Struct, eq=False):
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    running: bool = False
    abandoned: bool = False


class Threads:
    """A small pool that never blocks the end of the process."""

    def __init__(self, limit: int = LIMIT, idle_seconds: float = IDLE_SECONDS) -> None:
        self._limit = limit
        self._idle_seconds = idle_seconds
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget all threads and jobs, in a process that was forked: they did not come along."""
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._waiting: deque[_Job] = deque()
        self._idle = 0
        self._busy = 0

    async def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call `function` on a thread, with the caller's context variables."""
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
            del job, value  # or the error would hold this frame, and the frame the error

    def _submit(self, job: _Job) -> None:
        with self._lock:
            self._waiting.append(job)
            self._make_room()

    def _make_room(self) -> None:
        """Wake an idle thread for the job that came last, or start one if there is none to spare."""
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
                    with contextlib.suppress(RuntimeError):  # no more threads: it waits for one of those there are
                        self._make_room()

    def _work(self) -> None:
        while job := self._next():
            outcome = _attempt(job.work)
            with self._lock:
                job.running = False
                if job.abandoned:
                    return
            _deliver(job, outcome)
            del job, outcome  # whatever the caller holds must not live on in an idle thread

    def _next(self) -> _Job | None:
        """The next job, or nothing: then this thread has been idle for long enough, and ends."""
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


def _attempt(work: Callable[[], Any]) -> tuple[bool, Any]:
    try:
        return True, work()
    except BaseException as error:  # noqa: BLE001 - a thread must hand every error to the one who waits
        return False, error


def _deliver(job: _Job, outcome: tuple[bool, Any]) -> None:
    try:
        job.loop.call_soon_threadsafe(_settle, job.future, outcome)
    except RuntimeError:
        return  # the loop has been closed: nobody waits any more


def _settle(future: "asyncio.Future[Any]", outcome: tuple[bool, Any]) -> None:
    if not future.done():
        future.set_result(outcome)


THREADS = Threads()

# Where processes are not forked there is no such function, and making a dict does no harm.
getattr(os, "register_at_fork", dict)(after_in_child=THREADS.begin_anew)
