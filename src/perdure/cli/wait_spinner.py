"""A spinner on the terminal that names what a run waits for: the model, a tool call, or the next attempt."""

import asyncio
import sys
from typing import Final, Self

from perdure.core.event import (
    Event,
    ModelRequested,
    QuestionAsked,
    RetryScheduled,
    RunEnded,
    RunWaiting,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
)

from .terminal_output import TerminalOutput, line_width, to_one_line, uses_cursor

FIRST_SECONDS: Final = 1.0
"""Time without output after which the spinner appears."""
TICK_SECONDS: Final = 0.25
_FRAMES: Final = "-\\|/"
_CLEAR: Final = "\r\x1b[K"


class WaitSpinner:
    """Shows what a run waits for, in a row that is cleared before anything else is printed.

    A context manager. On anything but a terminal, and in quiet commands, it shows nothing.
    """

    def __init__(self, screen: TerminalOutput, *, is_enabled: bool) -> None:
        self._screen = screen
        self._is_enabled = is_enabled and uses_cursor()
        self._calls: dict[str, str] = {}
        self._waiting_for = ""
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
            self._screen.write_question(_CLEAR)

    def follow(self, event: Event) -> None:
        """Learn from an event what the run waits for now."""
        if event.path:
            return
        match event:
            case ModelRequested(model=model):
                self._waiting_for = f"the model {model}".rstrip()
            case ThinkingDelta():
                self._waiting_for = "the model, which thinks"
            case ToolStarted(call_id=call_id, name=name):
                self._calls[call_id] = name
                self._waiting_for = self._describe_calls()
            case ToolFinished(call_id=call_id):
                self._calls.pop(call_id, None)
                self._waiting_for = self._describe_calls()
            case RetryScheduled(error=error):
                self._waiting_for = f"the next attempt, after {error}"
            case QuestionAsked() | RunEnded() | RunWaiting():  # a person is asked, or nothing is waited for
                self._waiting_for = ""
            case _:
                pass

    def _describe_calls(self) -> str:
        return (
            f"{'tool' if len(self._calls) == 1 else 'tools'} {', '.join(self._calls.values())}" if self._calls else ""
        )

    async def _tick(self) -> None:
        frame = 0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._silent_seconds += TICK_SECONDS
            if not self._waiting_for or self._silent_seconds < FIRST_SECONDS or not self._screen.is_at_line_start:
                continue
            frame += 1
            text = f"{_FRAMES[frame % len(_FRAMES)]} waiting for {self._waiting_for}"
            self._is_shown = True
            self._screen.write_question(_CLEAR + to_one_line(text, line_width(sys.stderr)))
