"""Find the process that has an SQLite file locked for writing, for error messages; on Linux only.

The kernel's list of locks is read, since opening a file of the database would drop the locks of this process.
"""

# pathlib would cost every start milliseconds:
# ruff: noqa: PTH116, PTH123
import os
from typing import Final

_WRITE_LOCK: Final = "120"
"""The byte of SQLite's shared memory that whoever writes has locked."""


def describe_lock_holder(path: str) -> str:
    """Return a phrase that names the process which has the store at `path` locked for writing."""
    try:
        inode = str(os.stat(f"{path}-shm").st_ino)
        with open("/proc/locks", encoding="ascii") as file:
            locks = [line.split() for line in file if " WRITE " in line]
        pid = next(int(fields[4]) for fields in locks if _is_write_lock(fields, inode))
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except (OSError, StopIteration, ValueError, IndexError):
        return "another process"
    return f"process {pid}, which is stopped," if state in "tT" else f"process {pid}"


def _is_write_lock(fields: list[str], inode: str) -> bool:
    """Return True for a line like `1: POSIX ADVISORY WRITE 4711 08:01:1234 120 120` of this file."""
    return len(fields) == 8 and fields[5].rpartition(":")[2] == inode and fields[6] == _WRITE_LOCK  # noqa: PLR2004
