"""Wait until a process has ended, on the event loop where the system has process descriptors, or on one thread.

asyncio's own threads are few, and name look-ups need them too: they are not kept waiting for commands.
"""

import asyncio
import contextlib
import os
import subprocess
import threading
import time
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
