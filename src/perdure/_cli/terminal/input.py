"""Read typed lines from the terminal, for one question at a time.

A question that is answered elsewhere leaves its pending read behind, which cannot be cancelled: the next question
reuses it.
"""

import asyncio
import os
import sys
from typing import Any, Final

from perdure._core.tools.worker.threads import THREAD_POOL

_LONGEST: Final = 4096  # what a terminal hands over at once


class LineReader:
    """Reads lines from standard input in a thread, without blocking the event loop."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        """Lock that lets only one question be asked at a time."""
        self._reading: asyncio.Future[Any] | None = None

    async def read_line(self) -> str | None:
        """Wait for the next typed line, and return it; `None` at the end of the input."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(THREAD_POOL.run(os.read, (sys.stdin.fileno(), _LONGEST), {}))
        data: bytes = await asyncio.shield(self._reading)
        self._reading = None
        return data.decode(errors="replace").rstrip("\r\n") if data else None

    def discard_typed(self) -> None:
        """Discard what was typed before the question appeared, so that it is not taken for an answer."""
        try:
            import termios
        except ImportError:  # not on Windows
            return
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
