"""The asyncio task in which a run is performed: one that can be cancelled alone, and abandoned if it ignores that."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def begin_task(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start a task, and perform it at once as far as it need not wait, without a turn of the event loop.

    Python 3.11 cannot do that: there the task begins with the next turn of the loop. So it does on a loop whose program
    makes all tasks itself.
    """
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12) and loop.get_task_factory() is None:
        return asyncio.Task(work, loop=loop, eager_start=True)
    return loop.create_task(work)


def retrieve_exception(task: "asyncio.Future[Any]") -> None:
    """Mark a finished task's exception as retrieved, so that asyncio does not warn about it."""
    if not task.cancelled():
        task.exception()
