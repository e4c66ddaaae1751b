"""Thread pool for tools that are plain (not async) functions.

They are daemons: a function that never returns cannot keep the process from ending. A call whose caller is gone (timed
out, cancelled) frees its slot for the next one, though its thread goes on until the function returns.

The pool is fair between sessions: a session has at most `MAX_SESSION_THREADS` of the threads, and sessions whose calls
wait take turns, whatever the number of their calls.
"""

import asyncio
import contextlib
import contextvars
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from types import CoroutineType
from typing import Any

from msgspec import Struct, field

from perdure._core.values import checks

MAX_THREADS = 32
"""The number of functions that run at the same time; more of them wait."""
MAX_SESSION_THREADS = 16
"""The number of functions of one session that run at the same time; below `MAX_THREADS`, so that others can run too."""
IDLE_SECONDS = 10.0
"""The time that a thread waits for more work before it ends."""


class _Job(Struct, eq=False):
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    session_id: str | None = None
    running: bool = False
    abandoned: bool = False


class _SessionQueue(Struct, eq=False):
    """The calls of one session: those that wait, oldest first, and the number of those that run."""

    limit: int
    waiting: OrderedDict[_Job, None] = field(default_factory=OrderedDict[_Job, None])
    running: int = 0

    @property
    def startable(self) -> int:
        """The number of waiting calls of this session that could run now, if there were threads for them."""
        return min(len(self.waiting), self.limit - self.running)


class ThreadPool:
    """A thread pool that is fair between sessions, and whose threads never delay the end of the process."""

    def __init__(
        self,
        limit: int = MAX_THREADS,
        idle_seconds: float = IDLE_SECONDS,
        session_limit: int = MAX_SESSION_THREADS,
    ) -> None:
        self._idle_seconds = idle_seconds
        self.set_limits(limit, session_limit)
        self.reset_after_fork()

    def set_limits(self, limit: int, session_limit: int) -> None:
        """Set how many functions run at the same time, in total and per session; later calls are affected."""
        self._limit = limit
        self._session_limit = session_limit

    def reset_after_fork(self) -> None:
        """Clear all threads and queued calls in a forked process, where the threads do not exist."""
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._queues: dict[str | None, _SessionQueue] = {}
        self._turns: OrderedDict[str | None, None] = OrderedDict()  # sessions with startable jobs, the next one first
        self._startable = 0
        self._idle = 0
        self._busy = 0

    @property
    def waiting_count(self) -> int:
        """The number of calls that wait for a thread."""
        return sum([len(queue.waiting) for queue in self._queues.values()])

    async def run(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        session_id: str | None = None,
    ) -> Any:
        """Call `function` on a thread of the pool, with the caller's context variables, and return its result.

        Calls of one session share its part of the threads; those without a session count as one that has no bound.
        """
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        job = _Job(lambda: context.run(function, *args, **kwargs), loop, loop.create_future(), session_id)
        try:
            self._submit(job)
            succeeded, value = await job.future
        except BaseException:
            if job.future.done() and not job.future.cancelled():
                _discard_result(job.future.result())
            else:
                self._abandon(job)
            raise
        if succeeded:
            return value
        try:
            raise value
        finally:
            del job, value  # or the error would refer to this frame, and the frame to the error

    def _submit(self, job: _Job) -> None:
        with self._lock:
            queue = self._queues.get(job.session_id)
            if queue is None:
                limit = self._limit if job.session_id is None else min(self._session_limit, self._limit)
                queue = self._queues[job.session_id] = _SessionQueue(limit)
            before = queue.startable
            queue.waiting[job] = None
            self._update_turn(job.session_id, queue, before)
            if queue.startable > before:
                self._wake_or_start_thread()

    def _update_turn(self, session_id: str | None, queue: _SessionQueue, before: int) -> None:
        """Add a session to the round-robin of sessions, or remove it, after its queue has changed."""
        startable = queue.startable
        self._startable += startable - before
        if not startable:
            self._turns.pop(session_id, None)
            if not queue.running and not queue.waiting:
                del self._queues[session_id]
        elif session_id not in self._turns:
            self._turns[session_id] = None

    def _wake_or_start_thread(self) -> None:
        """Wake an idle thread for the last job, or start one if none is free and the limit allows it."""
        if self._startable <= self._idle:
            self._wake.notify()
        elif self._busy + self._idle < self._limit:
            threading.Thread(target=self._work, name="perdure-tool", daemon=True).start()
            self._busy += 1

    def _abandon(self, job: _Job) -> None:
        with self._lock:
            if job.running:
                job.abandoned = True
                self._busy -= 1
                self._release(job)
                if self._startable:
                    with contextlib.suppress(
                        RuntimeError
                    ):  # no thread can be started: the job waits for an existing one
                        self._wake_or_start_thread()
            elif (queue := self._queues.get(job.session_id)) is not None and job in queue.waiting:
                before = queue.startable
                del queue.waiting[job]
                self._update_turn(job.session_id, queue, before)

    def _release(self, job: _Job) -> None:
        """Count a call as no longer running, so that the next one of its session may start."""
        queue = self._queues[job.session_id]
        before = queue.startable
        queue.running -= 1
        self._update_turn(job.session_id, queue, before)

    def _work(self) -> None:
        while job := self._next_job():
            outcome = _call_safely(job.work)
            with self._lock:
                job.running = False
                if job.abandoned:
                    _discard_result(outcome)
                    return
                self._release(job)
            _deliver_result(job, outcome)
            del job, outcome  # an idle thread must not keep objects of the caller alive

    def _next_job(self) -> _Job | None:
        """Return the next queued call; `None` when this thread has been idle long enough to end."""
        with self._lock:
            while not self._turns:
                self._busy -= 1
                self._idle += 1
                notified = self._wake.wait(timeout=self._idle_seconds)
                self._idle -= 1
                if not notified and not self._turns:
                    return None
                self._busy += 1
            session_id, _ = self._turns.popitem(last=False)
            queue = self._queues[session_id]
            before = queue.startable
            job, _ = queue.waiting.popitem(last=False)
            queue.running += 1
            self._update_turn(session_id, queue, before)  # at the end of the round, if it has more
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
    except RuntimeError:  # the loop is closed: no task waits any more
        _discard_result(outcome)


def _set_result(future: "asyncio.Future[Any]", outcome: tuple[bool, Any]) -> None:
    if future.done():
        _discard_result(outcome)
    else:
        future.set_result(outcome)


def _discard_result(outcome: tuple[bool, Any]) -> None:
    """Close the coroutine that a function returned, which no caller will await any more."""
    _, value = outcome
    if isinstance(value, CoroutineType):
        value.close()


THREAD_POOL = ThreadPool()


def set_tool_threads(total: int = MAX_THREADS, *, per_session: int = MAX_SESSION_THREADS) -> None:
    """Set how many plain functions (tools, commands) run at the same time in this process, and how many per session.

    Calls above these numbers wait, and sessions take turns. Keep `per_session` below `total`: then no session can keep
    the others from running.
    """
    checks.require_int("set_tool_threads", "total", total, 1)
    checks.require_int("set_tool_threads", "per_session", per_session, 1)
    THREAD_POOL.set_limits(total, per_session)


# Without fork there is no such function, and making a dict does no harm.
getattr(os, "register_at_fork", dict)(after_in_child=THREAD_POOL.reset_after_fork)
