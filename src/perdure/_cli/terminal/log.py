"""Print the warnings that Perdure logs: a line for each, once, so that nothing that goes wrong is hidden.

Programs decide themselves where logs go. A command has nobody else to tell: what it does not print, nobody hears of.
"""

import logging
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from .output import to_one_line, warn

MAX_WARNINGS: Final = 50
"""The most warnings that one command prints."""
MAX_CHARACTERS: Final = 1_000
"""Characters of one warning."""
_RUN_FIELD: Final = "run_id"
"""The field of records about a run."""


class WarningPrinter(logging.Handler):
    """Prints each warning of the library once, as one line without a traceback; also from other threads."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.show: Callable[[str], None] = warn
        """Prints the text of a warning."""
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning that was not printed before."""
        if record.levelno >= logging.ERROR and hasattr(record, _RUN_FIELD):
            return  # what a run failed with, which the command prints as its end
        text = format_warning(record)
        if text in self._seen or len(self._seen) > MAX_WARNINGS:
            return
        self._seen.add(text)
        is_last = len(self._seen) > MAX_WARNINGS
        self.show("further warnings are not shown; PERDURE_DEBUG=1 shows all" if is_last else text)


_PRINTERS: Final[list[WarningPrinter]] = []
"""The printers of the commands that are running, one inside another."""


@contextmanager
def print_library_warnings() -> Generator[None]:
    """Context manager: print the warnings of the library, while a command runs; with PERDURE_DEBUG, logs are shown."""
    if os.environ.get("PERDURE_DEBUG"):
        yield
        return
    printer, logger = WarningPrinter(), logging.getLogger("perdure")
    _PRINTERS.append(printer)
    logger.addHandler(printer)
    try:
        yield
    finally:
        logger.removeHandler(printer)
        _PRINTERS.remove(printer)


@contextmanager
def redirect_warnings(show: Callable[[str], None]) -> Generator[None]:
    """Context manager: print warnings with another function, which does not disturb what is on the screen."""
    if not _PRINTERS:
        yield
        return
    printer = _PRINTERS[-1]
    before, printer.show = printer.show, show
    try:
        yield
    finally:
        printer.show = before


def format_warning(record: logging.LogRecord) -> str:
    """Return the message of a log record as one line, with the error that it is about."""
    text = record.getMessage()
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and str(error) not in text:
        text = f"{text}: {type(error).__name__}: {error}"
    return to_one_line(text, MAX_CHARACTERS)
