"""Copy an SQLite file atomically: the copy gets its final name only when it is complete.

An existing file of that name is left as it is.
"""

# pathlib would cost every start milliseconds:
# ruff: noqa: PTH104, PTH108, PTH120, PTH123
import contextlib
import os
from collections.abc import Generator

from perdure.core.error import ConfigError


@contextlib.contextmanager
def rename_when_done(path: str) -> Generator[str]:
    """Context manager: yield a temporary path to write to; it is renamed to `path` if the block succeeds."""
    if os.path.lexists(path):
        raise ConfigError(f"{path!r} exists already, and has been left as it is: choose another path")
    place = f"{path}.{os.urandom(8).hex()}.unfinished"  # a name that no other process can have taken
    os.close(os.open(place, os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | os.O_RDWR, 0o600))
    try:
        yield place
        _publish(place, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)


def _publish(place: str, path: str) -> None:
    with open(place, "rb+") as file:
        os.fsync(file.fileno())
    try:
        os.link(place, path)  # which, unlike a rename, replaces nothing
    except FileExistsError:
        raise ConfigError(f"{path!r} has come into being, and has been left as it is: choose another path") from None
    except OSError:
        os.rename(place, path)  # where a file can have but one name
    if hasattr(os, "O_DIRECTORY"):  # a name lasts only if its folder does
        descriptor = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
