"""Waiting for a child run: that of a subagent, or a private run of an engine."""

import asyncio
from typing import Any

from perdure._core.log.store import wait_despite_cancel
from perdure._core.values.error import ToolError

from .outcome import Outcome
from .run import Run


async def wait_for_child_run(child: Run, task: "asyncio.Task[Outcome[Any]]") -> Outcome[Any]:
    """Wait for a child run in its separate asyncio task, so that a timeout of the child ends only the child.

    A cancel of the parent cancels the child first, and is raised once the child has ended.
    """
    cancelled = False
    while not task.done() and not child.abandoned.done():
        try:
            await asyncio.wait((task, child.abandoned), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            cancelled = True
            child.interrupt("cancelled")
    if not task.done():
        task.add_done_callback(_retrieve_exception)  # it may end later
        raise ToolError("the subagent was cancelled and did not end; it may still be running")
    if cancelled:
        await wait_despite_cancel((task,))
        raise asyncio.CancelledError
    return task.result()


def _retrieve_exception(task: "asyncio.Task[Any]") -> None:
    """Retrieve the exception of a finished task, so that asyncio does not warn about it."""
    _ = task.cancelled() or task.exception()
