"""Find and end the processes that a command has started."""

# ruff: noqa: PTH208 - before every command, where pathlib would cost time
import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_ROUNDS: Final = 20


def list_descendants(pid: int) -> list[int]:
    """Return the processes that descend from a process, the nearest first; empty where the system has no `/proc`."""
    children: dict[int, list[int]] = {}
    for child, parent, _ in _list_processes():
        children.setdefault(parent, []).append(child)
    found, level = list[int](), [pid]
    while level:
        level = [each for parent in level for each in children.get(parent, ())]
        found += level
    return found


def _list_processes() -> Iterator[tuple[int, int, int]]:
    """Yield each process of the system with its parent and its session, but none that has ended."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = Path("/proc", name, "stat").read_bytes()
                state, parent, _, session = stat[stat.rindex(b")") + 2 :].split()[:4]
                if state not in {b"Z", b"X"}:
                    yield int(name), int(parent), int(session)


def kill_session(session: int) -> None:
    """Kill every process of a session (which the first process of a supervised command has begun), by `/proc`."""
    for _ in range(_ROUNDS):  # a process may start another one meanwhile
        members = [pid for pid, _, found in _list_processes() if found == session and pid != os.getpid()]
        if not members:
            return
        signal_processes(members, signal.SIGKILL)


def signal_processes(pids: Sequence[int], number: signal.Signals) -> None:
    """Send the signal `number` to each of these processes that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
