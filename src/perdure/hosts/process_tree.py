"""Find and end the processes that a command has started."""

# ruff: noqa: PTH208 - before every command, where pathlib would cost time
import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path


def list_descendants(pid: int) -> list[int]:
    """Return the processes that descend from a process, the nearest first; empty where the system has no `/proc`."""
    children: dict[int, list[int]] = {}
    for child, parent in _list_parents():
        children.setdefault(parent, []).append(child)
    found, level = list[int](), [pid]
    while level:
        level = [each for parent in level for each in children.get(parent, ())]
        found += level
    return found


def _list_parents() -> Iterator[tuple[int, int]]:
    """Yield each process of the system with its parent."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = Path("/proc", name, "stat").read_bytes()
                yield int(name), int(stat[stat.rindex(b")") + 2 :].split()[1])


def signal_processes(pids: Sequence[int], number: signal.Signals) -> None:
    """Send the signal `number` to each of these processes that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
