"""The ledger outside: what really happened, line by line, whoever dies. Above: `outside_world.py`, `outside_people.py`.

Each line is one write to the end of a file. Whoever is killed in the middle of that may leave a part of a line: it ends
with the next line, and stands for nothing, for nobody lived to do what it was about to say. Lines are not synced:
processes die here, and the machine does not.
"""

import os
import time
from pathlib import Path

import msgspec


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the ledger."""

    what: str
    """The kind of thing that happened."""
    session: str = ""
    name: str = ""
    """The id of what it happened to: the key of a call, a post, a question, an item, an input."""
    words: str = ""
    """What was said, done or answered."""
    fence: int = 0
    """For effects and leases: the fence of the lease."""
    at: float = 0.0
    """On the clock that all processes of the machine share, and that nobody sets."""
    wall: float = 0.0
    """On the clock of the log."""
    pid: int = 0


class Ledger:
    """A file that any process may add to."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1

    def note(self, what: str, session: str = "", name: str = "", words: str = "", fence: int = 0) -> None:
        """Add a line."""
        if self._file < 0:
            self._file = os.open(self._path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        note = Note(what, session, name, words, fence, time.monotonic(), time.time(), os.getpid())
        os.write(self._file, b"\n%b\n" % msgspec.json.encode(note))

    def read(self) -> list[Note]:
        """Return all lines."""
        path = Path(self._path)
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        return [note for line in lines if (note := _decoded(line)) is not None]


def _decoded(line: bytes) -> Note | None:
    try:
        return msgspec.json.decode(line, type=Note)
    except msgspec.DecodeError:
        return None
