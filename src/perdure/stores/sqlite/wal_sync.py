"""Sync SQLite's write-ahead log to the disk, apart from the commits that are in it.

A commit takes microseconds and can be made where it is asked for; only the wait for the disk needs a thread. SQLite has
no locks on the log, so another descriptor of it does no harm.
"""

import contextlib
import os
import sys
from typing import Any, Final

import apsw

from perdure.stores.disk_sync import sync_data

CAN_SYNC_WAL: Final = sys.platform != "win32"
"""False where an open file cannot be deleted, as SQLite does with its log."""


class WalSync:
    """An open write-ahead log of SQLite's that can be synced, by which all commits in it survive a power failure.

    The name of a new log must have been synced before: SQLite does so at its own first sync of it.
    """

    def __init__(self, path: str, vfs: str | None) -> None:
        """Open the log of the database at `path`. Raises `OSError` or `apsw.Error`."""
        self._descriptor = -1
        self._file: Any = None
        if vfs is None:
            self._descriptor = os.open(f"{path}-wal", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        else:
            self._file = apsw.VFSFile(vfs, f"{path}-wal", [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_WAL, 0])

    def sync(self) -> None:
        """Block until all commits in the log would survive a power failure. Raises `apsw.Error`."""
        if self._file is not None:
            self._file.xSync(apsw.SQLITE_SYNC_FULL)
            return
        try:
            sync_data(self._descriptor)
        except OSError as error:
            raise apsw.IOError(str(error)) from error

    def close(self) -> None:
        """Close the log. An error is ignored: nothing is acknowledged by closing it."""
        with contextlib.suppress(OSError, apsw.Error):
            if self._file is not None:
                self._file.xClose()
            else:
                os.close(self._descriptor)
