"""Sync SQLite's write-ahead log to the disk, separately from the commits that were written to it.

A commit takes microseconds and can be made where it is asked for. The wait for the disk needs a thread, unless the disk
is so quick that handing the sync over would take as long. SQLite has no locks on the log, so another descriptor of it
does no harm.
"""

import contextlib
import os
import sys
import time
from typing import Any, Final

import apsw

from perdure.stores.disk_sync import sync_data

CAN_SYNC_WAL: Final = sys.platform != "win32"
"""False where an open file cannot be deleted, as SQLite does with its log."""
QUICK_SECONDS: Final = 0.0005
"""A sync that takes no longer is quick: an event loop may wait for it."""
STALL_SECONDS: Final = 0.005
"""A sync that takes longer has delayed whatever else the event loop had to do."""
QUICK_SYNCS: Final = 2
"""The number of quick syncs in a row after which the next one is expected to be quick."""
MAX_QUICK_SYNCS: Final = 4096
"""The same after many stalls, each of which makes it sixteen times as many."""
TRUSTED_SYNCS: Final = 1000
"""The number of syncs in a row, all expected to be quick, and quick, after which stalls are forgotten."""


class SyncSpeedPredictor:
    """Predicts if the next disk sync will be quick, from how long the last ones took."""

    __slots__ = ("_quick_in_row", "_wanted")

    def __init__(self) -> None:
        self._quick_in_row = 0
        self._wanted = QUICK_SYNCS

    @property
    def is_quick(self) -> bool:
        """True if the next sync will probably be quick."""
        return self._quick_in_row >= self._wanted

    def record(self, seconds: float) -> None:
        """Take note of how long a sync took."""
        if seconds <= QUICK_SECONDS:
            self._quick_in_row += 1
            if self._quick_in_row == self._wanted + TRUSTED_SYNCS:
                self._wanted = QUICK_SYNCS
            return
        if seconds > STALL_SECONDS and self.is_quick:
            self._wanted = min(self._wanted * 16, MAX_QUICK_SYNCS)
        self._quick_in_row = 0


class WalSync:
    """SQLite's write-ahead log, open for syncing to the disk; after a sync, all commits in it survive a power failure.

    The name of a new log must have been synced before: SQLite does so at its own first sync of it.
    """

    def __init__(self, path: str, vfs: str | None) -> None:
        """Open the log of the database at `path`. Raises `OSError` or `apsw.Error`."""
        self._descriptor = -1
        self._file: Any = None
        self._pace = SyncSpeedPredictor()
        if vfs is None:
            self._descriptor = os.open(f"{path}-wal", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        else:
            self._file = apsw.VFSFile(vfs, f"{path}-wal", [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_WAL, 0])

    @property
    def is_quick(self) -> bool:
        """True if the next sync will probably take no longer than handing it to a thread."""
        return self._pace.is_quick

    def sync(self) -> None:
        """Block until all commits in the log would survive a power failure. Raises `apsw.Error`."""
        began = time.perf_counter()
        if self._file is not None:
            self._file.xSync(apsw.SQLITE_SYNC_FULL)
        else:
            try:
                sync_data(self._descriptor)
            except OSError as error:
                raise apsw.IOError(str(error)) from error
        self._pace.record(time.perf_counter() - began)

    def close(self) -> None:
        """Close the log. An error is ignored: nothing is acknowledged by closing it."""
        with contextlib.suppress(OSError, apsw.Error):
            if self._file is not None:
                self._file.xClose()
            else:
                os.close(self._descriptor)
