"""A plugin of pytest that prints where a test hangs, also where no signal gets through: in C code that keeps the lock.

pytest has one too, which starts a thread for each test and waits for its end: with many thousand tests on a loaded
machine that takes minutes.
"""

import faulthandler
import os
import time

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

HUNG_SECONDS = 260.0
"""After so long the stacks of all threads are printed; a test may take four minutes."""
AGAIN_SECONDS = 5.0
"""The watch is started anew no more often than this."""


class HangWatch:
    """Prints the stacks of all threads when tests have made no progress for long."""

    def __init__(self, stderr: int) -> None:
        self._stderr = stderr
        self._started = float("-inf")

    def pytest_runtest_logstart(self) -> None:
        """Start the watch anew if it was started a while ago."""
        now = time.monotonic()
        if now >= self._started + AGAIN_SECONDS:
            self._started = now
            faulthandler.dump_traceback_later(HUNG_SECONDS, file=self._stderr)

    def pytest_sessionfinish(self) -> None:
        """End the watch."""
        faulthandler.cancel_dump_traceback_later()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Watch, unless the longest form of each search is asked for, which may take any time."""
    stderr = session.config.stash.get(fault_handler_stderr_fd_key, None)
    if stderr is not None and os.environ.get("PERDURE_SEARCH") != "long":
        session.config.pluginmanager.register(HangWatch(stderr))
