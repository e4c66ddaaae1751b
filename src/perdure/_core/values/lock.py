"""Locks by name: of the tasks of an event loop that name the same lock, one at a time goes on."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

_named_locks: "dict[tuple[Any, ...], asyncio.Future[None]]" = {}
"""The locks that are currently taken, by event loop and name."""


@asynccontextmanager
async def hold_named_lock(*name: Any) -> AsyncGenerator[None]:
    """Async context manager: hold the lock of this name on the current event loop."""
    loop = asyncio.get_running_loop()
    key = (id(loop), *name)
    while (before := _named_locks.get(key)) is not None:
        await asyncio.wait((before,))
    mine = _named_locks[key] = loop.create_future()
    try:
        yield
    finally:
        del _named_locks[key]
        mine.set_result(None)
