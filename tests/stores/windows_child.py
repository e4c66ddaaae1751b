"""A driver of an SQLite store where there is what Windows has: no fcntl, no forks, no `/proc`, and msvcrt.

python -m tests.stores.windows_child PATH
"""

import asyncio
import fcntl
import os
import socket
import sys
import types
from typing import Any

LK_UNLCK, LK_NBLCK = 0, 2


def lock(descriptor: int, mode: int, size: int) -> None:
    """As `msvcrt.locking`: no two have a byte locked, and one who cannot have it at once is forbidden it."""
    assert size == 1
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN if mode == LK_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(13, "Permission denied") from None


def unlink(path: Any) -> None:
    """As on Windows, where a file that somebody has open cannot be removed."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        lock(descriptor, LK_NBLCK, 1)
    finally:
        os.close(descriptor)
    remove(path)


remove = os.unlink


def become_windows() -> None:
    """Take away what Windows lacks; it must happen before anything of ours is imported."""
    sys.modules["fcntl"] = None  # type: ignore[assignment]
    msvcrt = types.ModuleType("msvcrt")
    vars(msvcrt).update(locking=lock, LK_UNLCK=LK_UNLCK, LK_NBLCK=LK_NBLCK)
    sys.modules["msvcrt"] = msvcrt
    vars(os)["unlink"] = unlink
    for name in ("register_at_fork", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "fork", "getuid"):
        vars(os).pop(name, None)


async def drive(path: str) -> None:
    """Try to drive a session, tell how it went, and hold it until stdin ends."""
    from perdure import SessionBusy
    from perdure._stores import lease_holder
    from perdure.stores import SqliteStore

    vars(lease_holder)["get_process_start_time"] = lambda _: ""
    vars(lease_holder)["_machine_id"] = socket.gethostname
    store = SqliteStore(path)
    try:
        await store.acquire("s")
    except SessionBusy as error:
        print(error, flush=True)  # noqa: T201
    else:
        print("driving", flush=True)  # noqa: T201
        sys.stdin.read()
    await store.aclose()


if __name__ == "__main__":
    become_windows()
    asyncio.run(drive(sys.argv[1]))
