"""Whole copies of an SQLite file. Above: `file.py`, `upkeep.py`. Below: the file system.

A copy appears under its name whole or not at all, and what has that name already is left as it is.
"""

# pathlib would cost every start milliseconds:
# ruff: noqa: PTH104, PTH105, PTH108, PTH120, PTH123
import contextlib
import os
from collections.abc import Generator

from perdure.core.error import ConfigError

from .connection import Connection


def copy_to(connection: Connection, path: str, *, replace: bool = False) -> None:
    """Write all that a database holds to a file of its own, without gaps."""
    with unfinished(path, replace=replace) as place:
        connection.execute("VACUUM INTO ?", (place,))


@contextlib.contextmanager
def unfinished(path: str, *, replace: bool = False) -> Generator[str]:
    """The place of an empty file, for its owner alone, that gets the name `path` when the block is done."""
    if not replace and os.path.lexists(path):
        raise ConfigError(f"{path!r} exists already, and has been left as it is: choose another path")
    place = f"{path}.{os.getpid()}.unfinished"
    os.close(os.open(place, os.O_CREAT | os.O_TRUNC | os.O_RDWR, 0o600))
    try:
        yield place
        _publish(place, path, replace=replace)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)


def _publish(place: str, path: str, *, replace: bool) -> None:
    with open(place, "rb+") as file:
        os.fsync(file.fileno())
    if replace:
        os.replace(place, path)
    else:
        try:
            os.link(place, path)  # which, unlike a rename, replaces nothing
        except FileExistsError:
            raise ConfigError(
                f"{path!r} has come into being, and has been left as it is: choose another path"
            ) from None
        except OSError:
            os.rename(place, path)  # where a file can have but one name
    if hasattr(os, "O_DIRECTORY"):  # a name lasts only if its folder does
        descriptor = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
