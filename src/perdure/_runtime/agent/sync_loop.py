"""The event loop on a background thread that synchronous callers, such as `run_sync`, use.

All calls share one loop, so objects bound to a loop (connections, pools, locks) stay usable from one call to the next,
and from any number of threads.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from perdure._core.values.error import UsageError

T = TypeVar("T")

INTERRUPT_GRACE_SECONDS = 10.0
"""Seconds an interrupted call waits for its work to end cleanly."""


class _BackgroundLoop:
    """The event loop on a background thread, started at the first call.

    A forked child starts its own: threads do not survive a fork.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running background loop of this process; start it if there is none."""
        with self._lock:
            if self._loop is None or self._process != os.getpid():
                self._process = os.getpid()
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="perdure-loop", daemon=True).start()
            return self._loop


_background_loop = _BackgroundLoop()


def run_on_background_loop(work: Callable[[], Awaitable[T]]) -> T:
    """Run async work on the event loop of the background thread, and wait for its result.

    An interrupt (Ctrl-C) cancels the work, and is raised once the work has ended, or after `INTERRUPT_GRACE_SECONDS`.
    """
    if _is_inside_event_loop():
        raise UsageError(
            "run_sync does not work inside a running event loop, such as a notebook: use `await agent.run(…)`"
        )

    loop, ended = _background_loop.get_loop(), threading.Event()
    tasks: list[asyncio.Task[T]] = []
    unwanted = False

    async def coroutine() -> T:
        try:
            if unwanted:
                raise asyncio.CancelledError
            tasks.append(cast("asyncio.Task[T]", asyncio.current_task()))
            return await work()
        finally:
            ended.set()

    def stop() -> None:
        nonlocal unwanted
        unwanted = True
        for task in tasks:
            task.cancel()
        if not tasks:
            ended.set()

    try:
        return asyncio.run_coroutine_threadsafe(coroutine(), loop).result()
    except BaseException:  # an interrupt may occur at any moment, also before the work has started
        if not ended.is_set():
            loop.call_soon_threadsafe(stop)
            ended.wait(INTERRUPT_GRACE_SECONDS)
        raise


def _is_inside_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
