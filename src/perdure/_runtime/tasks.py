"""Functions for asyncio tasks: start one eagerly, mark its exception as retrieved, sleep until a shutdown."""

import asyncio
import sys
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

from perdure._core.log.store import cancel_and_await_tasks
from perdure._core.run.spec import ShutdownSignal
from perdure._core.values.clock import Clock

T = TypeVar("T")

_NO_HANDLES: deque[Any] = deque()


MAX_READY_HANDLES = 64
"""Number of callbacks that wait for the event loop, above which a task is not begun at once on Python 3.11: finding its
first step among them would take longer."""


def start_task_eagerly(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start an asyncio task that runs at once up to its first wait, without waiting for the event loop.

    On a loop whose program makes all tasks itself, the task begins with the next turn of the loop.
    """
    loop = asyncio.get_running_loop()
    if loop.get_task_factory() is not None:
        return loop.create_task(work)
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    task = asyncio.Task(work, loop=loop)
    _perform_first_step(task, loop)
    return task


def _perform_first_step(task: "asyncio.Task[Any]", loop: asyncio.AbstractEventLoop) -> None:
    """Perform the first step of a new task now, as `eager_start` does from Python 3.12 on.

    A task of Python 3.11 has put its first step among the callbacks of its loop. It is taken from there, unless it is
    not found: on a loop of another kind, or when another thread has added a callback just now. The task then begins
    with the next turn of the loop.
    """
    ready: deque[Any] = getattr(loop, "_ready", _NO_HANDLES)
    if not 0 < len(ready) <= MAX_READY_HANDLES:
        return
    handle = ready[-1]
    if getattr(handle._callback, "__self__", None) is not task:  # noqa: SLF001 - there is no public way
        return
    ready.remove(handle)
    current = asyncio.current_task(loop)
    if current is not None:
        asyncio.tasks._leave_task(loop, current)  # noqa: SLF001 - documented, for whoever performs tasks
    try:
        handle._run()  # noqa: SLF001 - there is no public way
    finally:
        if current is not None:
            asyncio.tasks._enter_task(loop, current)  # noqa: SLF001 - as above


def mark_exception_retrieved(task: "asyncio.Future[Any]") -> None:
    """Mark the exception of a finished asyncio task as seen, so that asyncio does not warn about it."""
    if not task.cancelled():
        task.exception()


async def sleep_until_shutdown(clock: Clock, seconds: float, process_end: ShutdownSignal | None) -> None:
    """Sleep for some seconds, or until the process is asked to shut down if that is earlier."""
    if process_end is None:
        return await clock.sleep(seconds)
    timers = [asyncio.ensure_future(clock.sleep(seconds)), asyncio.ensure_future(process_end.wait())]
    try:
        await asyncio.wait(timers, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_await_tasks(timers)
