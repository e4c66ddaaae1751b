"""The history of typed prompts: a file in `~/.perdure` that only its owner can read."""

# ruff: noqa: PTH103, PTH120 - pathlib would cost every start milliseconds
import os
from typing import BinaryIO, Final

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

MAX_BYTES: Final = 1_000_000
"""Size of the file from which on its older half is dropped at the next start."""


def open_input_history(path: str) -> History:
    """Open the history of typed prompts, in a file that only its owner can read; in memory if that cannot be used."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "rb+") as file:
            os.fchmod(descriptor, 0o600)
            _drop_older_half(file)
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


def _drop_older_half(file: BinaryIO) -> None:
    """Keep the later half of a history that has grown too long."""
    data = file.read()
    if len(data) <= MAX_BYTES:
        return
    start = data.find(b"\n# ", len(data) // 2)
    file.seek(0)
    file.write(data[start:] if start >= 0 else b"")
    file.truncate()
