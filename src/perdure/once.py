"""One at a time, in this process. Above: `session.py`. Below: nothing."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

_busy: "dict[tuple[Any, ...], asyncio.Future[None]]" = {}
"""What somebody has for themselves now, by event loop and name."""


@asynccontextmanager
async def alone(*name: Any) -> AsyncGenerator[None]:
    """Have something of that name for oneself: whoever wants it meanwhile waits."""
    loop = asyncio.get_running_loop()
    key = (id(loop), *name)
    while (before := _busy.get(key)) is not None:
        await asyncio.wait((before,))
    mine = _busy[key] = loop.create_future()
    try:
        yield
    finally:
        del _busy[key]
        mine.set_result(None)
