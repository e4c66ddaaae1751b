"""Shorten Python's thread switch interval while an SQLite store is open, so that its threads wait less for the GIL.

A thread that has waited for the disk has to wait again until another thread releases the GIL; by default that takes
five milliseconds, each time, and a commit consists of several calls.
"""

import sys
import threading
from typing import Final

SWITCH_SECONDS: Final = 0.0005
"""The switch interval while a store is open. The benchmarks measure both its cost and its gain."""

_lock = threading.Lock()
_open: set[object] = set()
_before: list[float] = []


def shorten_switch_interval(store: object) -> None:
    """Shorten the thread switch interval while `store` is open, unless it is already shorter."""
    with _lock:
        if not _open and sys.getswitchinterval() > SWITCH_SECONDS:
            _before.append(sys.getswitchinterval())
            sys.setswitchinterval(SWITCH_SECONDS)
        _open.add(store)


def restore_switch_interval(store: object) -> None:
    """Restore the thread switch interval after the last store was closed, unless other code changed it."""
    with _lock:
        _open.discard(store)
        if not _open and _before:
            before = _before.pop()
            if abs(sys.getswitchinterval() - SWITCH_SECONDS) < SWITCH_SECONDS / 100:
                sys.setswitchinterval(before)
