"""Handle Ctrl-C, SIGTERM and SIGHUP during a run: the first signal ends the run cleanly, the second ends the process.

Ctrl-C cancels the run at once. SIGTERM and a closed terminal (SIGHUP) end the whole process: that is a `Shutdown`,
which gives tools ten seconds, and it is no failure.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self

from perdure._runtime.agent.agent import Agent
from perdure._runtime.shutdown import LAST_SECONDS, SIGNALS, TOOL_SECONDS, Shutdown, SignalHandlers

SPARE_SECONDS: Final = 0.5
"""Time allowed for storing finished work after a signal. After it the process ends, even if its event loop is stuck."""


class SignalHandler:
    """Ends a run cleanly on Ctrl-C, SIGTERM or SIGHUP. A context manager, for the main thread."""

    def __init__(self, print_note: Callable[[str], None]) -> None:
        """Create the handler; `print_note` prints a message for the user who interrupted."""
        self._tell = print_note
        self._shutdown = Shutdown(signals=())
        self._signals = SignalHandlers((signal.SIGINT, *SIGNALS), self._handle_signal, at_once=self._set_deadline)
        self._stop: Callable[[], Awaitable[None]] | None = None
        self._stopping: asyncio.Future[None] | None = None
        self._deadline: threading.Timer | None = None

    @property
    def is_interrupted(self) -> bool:
        """True after a signal: no new run may begin."""
        return bool(self._signals.number)

    @property
    def is_shutdown(self) -> bool:
        """True if the signal ends the whole process, not only the run."""
        return self.is_interrupted and self._signals.number != signal.SIGINT

    @property
    def exit_code(self) -> int:
        """Exit code after a signal: 128 plus its number, as in shells; 0 for signals that request a shutdown."""
        return 128 + self._signals.number if self.is_interrupted and not self.is_shutdown else 0

    def wrap_agent(self, agent: Agent[Any]) -> Agent[Any]:
        """Return a copy of the agent whose runs end on shutdown."""
        return self._shutdown.wrap_agent(agent)

    async def wait_for_shutdown(self) -> None:
        """Wait until a signal asks the process to shut down."""
        await self._shutdown.wait()

    def begin_shutdown(self) -> None:
        """End all runs as a signal would: they are left for the next process to resume."""
        self._shutdown.begin()

    def on_interrupt(self, stop: Callable[[], Awaitable[None]]) -> None:
        """Register `stop` to be called on Ctrl-C; call it now if Ctrl-C was already pressed."""
        self._stop = stop
        if self.is_interrupted and not self.is_shutdown:
            self._handle_signal(self._signals.number)

    def exit_with(self, code: int) -> int:
        """Return `code`; after a shutdown signal, exit the process with it instead. Call it when everything is stored.

        The interpreter would wait for a tool that ignores its cancellation.
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

    def _handle_signal(self, number: int) -> None:
        if number != signal.SIGINT:
            self._shutdown.begin()
            self._tell(f"shutting down: tools get {TOOL_SECONDS:.0f} seconds; a second signal quits at once")
        elif self._stop is not None and self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop())
            self._tell("cancelling the run; interrupt once more to quit at once")

    def _set_deadline(self, number: int) -> None:
        """Start a timer thread that ends the process even if the event loop is stuck."""
        if number != signal.SIGINT:
            seconds = TOOL_SECONDS + LAST_SECONDS + SPARE_SECONDS
            self._deadline = threading.Timer(seconds, os._exit, (128 + number,))
            self._deadline.daemon = True
            self._deadline.start()
