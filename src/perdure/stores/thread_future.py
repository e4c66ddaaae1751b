"""The future of a function that runs on a thread, of whose end the event loop hears even after an interrupt.

A thread tells the event loop by a callback. If the handler of a signal raises inside of it, asyncio drops the callback,
and whoever waits for the result would wait for ever. So the loop looks for itself now and then.
"""

import asyncio
from concurrent.futures import Future
from typing import Final, TypeVar

T = TypeVar("T")

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
