"""A spinner on the terminal that names what a run waits for: the model, a tool call, or the next attempt."""

import asyncio
import sys
from collections.abc import Callable
from typing import Final, Self

from .output import TerminalOutput, line_width, to_one_line, uses_cursor

FIRST_SECONDS: Final = 1.0
"""Time without output after which the spinner appears."""
TICK_SECONDS: Final = 0.25
_FRAMES: Final = "-\\|/"
_CLEAR: Final = "\r\x1b[K"


class WaitSpinner:
    """Shows what a run waits for, in a row that is cleared before anything else is printed.

    A context manager. On anything but a terminal, and in quiet commands, it shows nothing.
    """

    def __init__(self, output: TerminalOutput, describe_wait: Callable[[], str], *, is_enabled: bool) -> None:
        """Show what `describe_wait` returns, unless that is empty."""
        self._output = output
        self._describe_wait = describe_wait
        self._is_enabled = is_enabled and uses_cursor()
        self._is_shown = False
        self._silent_seconds = 0.0
        self._ticking: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        if self._is_enabled:
            self._ticking = asyncio.ensure_future(self._tick())
        return self

    def __exit__(self, *_: object) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        self.clear()

    def clear(self) -> None:
        """Remove the spinner from the terminal, before something else is printed."""
        self._silent_seconds = 0.0
        if self._is_shown:
            self._is_shown = False
            self._output.write_question(_CLEAR)

    async def _tick(self) -> None:
        frame = 0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._silent_seconds += TICK_SECONDS
            waiting_for = self._describe_wait()
            if not waiting_for or self._silent_seconds < FIRST_SECONDS or not self._output.is_at_line_start:
                continue
            frame += 1
            text = f"{_FRAMES[frame % len(_FRAMES)]} waiting for {waiting_for}"
            self._is_shown = True
            self._output.write_question(_CLEAR + to_one_line(text, line_width(sys.stderr)))
