"""The processes that a command has started: find them, wait until one has ended, and end them."""

# ruff: noqa: PTH208 - before every command, where pathlib would cost time

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_POLL_SECONDS: Final = 0.02
_Waiting = tuple["subprocess.Popen[bytes]", asyncio.AbstractEventLoop, "asyncio.Future[None]"]


async def wait_for_exit(process: "subprocess.Popen[bytes]") -> None:
    """Wait until a process has ended."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    pidfd = _open_process_descriptor(process.pid)
    if pidfd is None:
        _poller.add(process, loop, ended)
        await ended
        return
    try:
        try:
            loop.add_reader(pidfd, _settle, ended)
        except (OSError, NotImplementedError):  # a loop that cannot watch it
            _poller.add(process, loop, ended)
        await ended
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
    process.wait()


def _open_process_descriptor(pid: int) -> int | None:
    """Return a descriptor of a process; `None` where the system has none, such as Linux before 5.3, or forbids it."""
    open_pidfd = getattr(os, "pidfd_open", None)
    try:
        return None if open_pidfd is None else int(open_pidfd(pid))
    except OSError:
        return None


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class _ExitPoller:
    """A thread that looks at all processes that are waited for; it ends when there are none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._thread: threading.Thread | None = None

    def add(
        self,
        process: "subprocess.Popen[bytes]",
        loop: asyncio.AbstractEventLoop,
        ended: "asyncio.Future[None]",
    ) -> None:
        """Settle a future of an event loop when the process has ended."""
        with self._lock:
            self._waiting.append((process, loop, ended))
            if self._thread is None or not self._thread.is_alive():  # a forked child has none
                self._thread = threading.Thread(target=self._run, name="perdure-process-exit", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                self._waiting = [each for each in self._waiting if not _has_told_end(*each)]
                if not self._waiting:
                    self._thread = None
                    return
            time.sleep(_POLL_SECONDS)


def _has_told_end(
    process: "subprocess.Popen[bytes]", loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[None]"
) -> bool:
    """Tell the event loop if the process has ended; return True if there is nothing more to tell."""
    if ended.done():
        return True
    if process.poll() is None:
        return loop.is_closed()
    with contextlib.suppress(RuntimeError):  # the loop has just been closed
        loop.call_soon_threadsafe(_settle, ended)
    return True


_poller = _ExitPoller()


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
