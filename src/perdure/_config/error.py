"""The error `BadConfig`, which lists the mistakes of a configuration file with their line numbers."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from perdure._core.values.error import ConfigError

MAX_FAULTS: Final = 50
"""Limit on the mistakes that are reported for one file."""


class ConfigFault(Struct, frozen=True):
    """A single mistake in a configuration file: its line and message."""

    line: int
    """Line number from 1; 0 for the file as a whole."""
    message: str
    """The error, and what to do."""


class BadConfig(ConfigError):
    """Raised when a configuration file cannot be used; has a line per mistake: `file:line: mistake; what to do`."""

    def __init__(self, path: str, faults: Iterable[ConfigFault]) -> None:
        self.path = path
        """The file, as the caller named it."""
        self.faults = tuple(sorted(faults, key=lambda fault: fault.line)[:MAX_FAULTS])
        """The errors, in the order of the file, up to `MAX_FAULTS`."""
        super().__init__("\n".join(f"{format_location(path, each.line)}: {each.message}" for each in self.faults))

    def __reduce__(self) -> tuple[type["BadConfig"], tuple[object, ...]]:
        """Rebuild the error from its parts when it is copied or pickled."""
        return type(self), (self.path, self.faults)


def format_location(path: str, line: int) -> str:
    """Return `path:line`, the form that editors and terminals turn into a link; only the path if `line` is 0."""
    shown = path if path.isprintable() else repr(path)
    return f"{shown}:{line}" if line else shown
