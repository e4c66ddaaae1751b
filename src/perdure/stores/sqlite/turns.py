"""How soon a waiting thread gets its turn, while a store is open. Above: `writer.py`. Below: the interpreter.

A thread that has waited for the disk has to wait once more, for whoever computes beside it to let go; by default that
is five milliseconds, each time, and a commit consists of several calls.
"""

import sys
import threading
from typing import Final

SECONDS: Final = 0.0005
"""While a store is open. What it costs is measured beside what it saves."""

_lock = threading.Lock()
_open: set[object] = set()
_before: list[float] = []


def hurry(store: object) -> None:
    """Shorten the turns for a store that is opened; an interval that is shorter already stays."""
    with _lock:
        if not _open and sys.getswitchinterval() > SECONDS:
            _before.append(sys.getswitchinterval())
            sys.setswitchinterval(SECONDS)
        _open.add(store)


def relax(store: object) -> None:
    """The store is closed. After the last one the interval is what it was, unless somebody has set another."""
    with _lock:
        _open.discard(store)
        if not _open and _before:
            before = _before.pop()
            if abs(sys.getswitchinterval() - SECONDS) < SECONDS / 100:
                sys.setswitchinterval(before)
