"""Ctrl-C, SIGTERM and a closed terminal: the first ends the run in good order, the second ends the process.

Above: `drive.py`. Below: the signals of the system.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, Final, Self

_SIGNALS: Final = tuple([getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)])


class Interrupts:
    """Catches signals while a run is going on. A context manager, for the main thread.

    The handlers are Python's own, not the event loop's: a second Ctrl-C works even while the loop is stuck.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` is given what somebody should know who has just interrupted."""
        self._tell = tell
        self.exit_code = 0
        """128 and the number of the signal that came; 0 as long as none did."""
        self._loop = asyncio.get_running_loop()
        self._stop: Callable[[], Awaitable[None]] | None = None
        self._stopping: asyncio.Future[None] | None = None
        self._before: dict[int, Any] = {}

    def on_first(self, stop: Callable[[], Awaitable[None]]) -> None:
        """Call `stop` when a signal comes, or now if one has come."""
        self._stop = stop
        if self.exit_code:
            self._pass_on()

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as with nohup, and for jobs in the background
                self._before[number] = signal.signal(number, self._caught)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _caught(self, number: int, _: FrameType | None) -> None:
        if self.exit_code:
            os._exit(128 + number)
        self.exit_code = 128 + number
        self._loop.call_soon_threadsafe(self._pass_on)

    def _pass_on(self) -> None:
        if self._stop is not None:
            self._stopping = asyncio.ensure_future(self._stop())
            self._tell("ending the run in good order; interrupt once more to quit at once")
