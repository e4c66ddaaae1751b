"""Async work for callers that are not: one event loop on a background thread, for the whole process.

Above: `run_sync`. Below: asyncio. One loop for all calls means that whatever is bound to a loop (connections, pools,
locks) stays usable from one call to the next, and from any number of threads.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from .core.error import UsageError

T = TypeVar("T")

PATIENCE_SECONDS = 10.0
"""How long an interrupted call waits for its work to end in good order."""


class _Background:
    """The loop and its thread. Made at the first call, and anew in a forked child: threads do not come along."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._process != os.getpid():
                self._process = os.getpid()
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="perdure-loop", daemon=True).start()
            return self._loop


_background = _Background()


def wait_for(work: Callable[[], Awaitable[T]]) -> T:
    """Do async work on the background loop and wait for it. An interrupt (Ctrl-C) cancels it, and lets it end first."""
    if _inside_a_loop():
        raise UsageError(
            "run_sync does not work inside a running event loop (a notebook, say): use `await agent.run(…)`"
        )

    loop, ended = _background.loop(), threading.Event()
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
    except BaseException:  # an interrupt may come at any moment, also before there is anything to wait for
        if not ended.is_set():
            loop.call_soon_threadsafe(stop)
            ended.wait(PATIENCE_SECONDS)
        raise


def _inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
