"""What is wrong with a configuration file, and on which line. Above: everything in this folder. Below: `core`."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from perdure.core.error import ConfigError

MOST_FAULTS: Final = 50
"""That are told of one file."""


class Fault(Struct, frozen=True):
    """One thing that is wrong."""

    line: int
    """Where, from 1; 0 when it is the file as a whole."""
    message: str
    """What, and what to do."""


class BadConfig(ConfigError):
    """A configuration file cannot be used. The message has a line for each fault: `file:line: what, and what to do`."""

    def __init__(self, path: str, faults: Iterable[Fault]) -> None:
        self.path = path
        """The file, as it was named."""
        self.faults = tuple(sorted(faults, key=lambda fault: fault.line)[:MOST_FAULTS])
        """What was found, in the order of the file; no more of it than helps anybody."""
        super().__init__("\n".join(f"{place(path, each.line)}: {each.message}" for each in self.faults))

    def __reduce__(self) -> tuple[type["BadConfig"], tuple[object, ...]]:
        """Made anew from its parts, when it is copied or sent to another process."""
        return type(self), (self.path, self.faults)


def place(path: str, line: int) -> str:
    """A file and a line of it, as editors and terminals know them."""
    shown = path if path.isprintable() else repr(path)
    return f"{shown}:{line}" if line else shown
