"""What a person types, a line at a time. Above: `ask.py`, `prompt.py`. Below: standard input.

One question at a time has the keyboard. A question that is settled elsewhere leaves its read behind, which cannot be
taken back from the system: the next question goes on with it.
"""

import asyncio
import os
import sys
from typing import Any, Final

from perdure.core.thread import THREADS

_LONGEST: Final = 4096  # what a terminal hands over at once


class Keyboard:
    """Reads lines from the terminal without holding up anything else."""

    def __init__(self) -> None:
        self.alone = asyncio.Lock()
        """Whoever asks has it until there is an answer."""
        self._reading: asyncio.Future[Any] | None = None

    async def line(self) -> str | None:
        """The next line; `None` at the end of the input."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(THREADS.run(os.read, (sys.stdin.fileno(), _LONGEST), {}))
        data: bytes = await asyncio.shield(self._reading)
        self._reading = None
        return data.decode(errors="replace").rstrip("\r\n") if data else None

    def forget_typed(self) -> None:
        """What was typed before a question was there is no answer to it."""
        try:
            import termios
        except ImportError:  # not on Windows
            return
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
