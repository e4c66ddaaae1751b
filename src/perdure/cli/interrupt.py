"""Signals to a run at the command line: the first ends it in good order, the second ends the process.

Ctrl-C cancels the run at once. SIGTERM and a closed terminal (SIGHUP) mean that the whole process is to end: that is a
`Shutdown`, which gives tools ten seconds, and it is no failure.

Above: `drive.py`. Below: `shutdown.py`.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self

from perdure.agent import Agent
from perdure.shutdown import LAST_SECONDS, SIGNALS, TOOL_SECONDS, Shutdown, Signals

SPARE_SECONDS: Final = 0.5
"""How long it may take to store what was finished. Then the process ends, be its event loop stuck or not."""


class Interrupts:
    """Catches signals while a run is going on. A context manager, for the main thread."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` is given what somebody should know who has just interrupted."""
        self._tell = tell
        self._shutdown = Shutdown(signals=())
        self._signals = Signals((signal.SIGINT, *SIGNALS), self._pass_on, at_once=self._set_deadline)
        self._stop: Callable[[], Awaitable[None]] | None = None
        self._stopping: asyncio.Future[None] | None = None
        self._deadline: threading.Timer | None = None

    @property
    def came(self) -> bool:
        """Whether there was a signal: nothing new is to begin."""
        return bool(self._signals.number)

    @property
    def is_shutdown(self) -> bool:
        """Whether it is the whole process that is to end."""
        return self.came and self._signals.number != signal.SIGINT

    @property
    def exit_code(self) -> int:
        """128 and the number of the signal, as shells have it; 0 for one by which a process is told to end."""
        return 128 + self._signals.number if self.came and not self.is_shutdown else 0

    def covering(self, agent: Agent[Any]) -> Agent[Any]:
        """The agent, whose runs end with the process."""
        return self._shutdown.covering(agent)

    def on_first(self, stop: Callable[[], Awaitable[None]]) -> None:
        """Call `stop` when Ctrl-C comes, or now if it has come."""
        self._stop = stop
        if self.came and not self.is_shutdown:
            self._pass_on(self._signals.number)

    def leave(self, code: int) -> int:
        """The exit code, when all is stored and closed.

        A process that was told to end does so here: the interpreter would wait for a tool that ignores its cancel.
        """
        if self.is_shutdown:
            os._exit(code)
        return code

    def __enter__(self) -> Self:
        self._signals.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._signals.__exit__()
        if self._deadline is not None:
            self._deadline.cancel()

    def _pass_on(self, number: int) -> None:
        if number != signal.SIGINT:
            self._shutdown.begin()
            self._tell(f"told to end: tools get {TOOL_SECONDS:.0f} seconds; a second signal quits at once")
        elif self._stop is not None and self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop())
            self._tell("ending the run in good order; interrupt once more to quit at once")

    def _set_deadline(self, number: int) -> None:
        """On a thread of its own, which no stuck event loop can hold up."""
        if number != signal.SIGINT:
            seconds = TOOL_SECONDS + LAST_SECONDS + SPARE_SECONDS
            self._deadline = threading.Timer(seconds, os._exit, (128 + number,))
            self._deadline.daemon = True
            self._deadline.start()
