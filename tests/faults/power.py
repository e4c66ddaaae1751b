"""SQLite on a disk that loses power, or fails, when a test wants it to. Above: the tests. Below: `disk.py`, apsw.

SQLite's checksum VFS stands over it, as it stands over the system's own everywhere else. It keeps a pointer to what is
below it for ever, so there is one disk drive in a process, and it is never taken out.

A VFS hands everything on to the system's own, and tells the disk. Only shared memory and locks pass it by: neither
outlives the machine.
"""

import atexit
import functools
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw

from perdure._stores.sqlite.format.pages import replace_checksum_vfs
from tests.faults.disk import Broken, Disk, File, Resize, Write
from tests.seeds import chance

SYSTEM = apsw.vfs_names()[0]
NAME = "power"
"""What to give to a store as its `vfs`."""

_SYNCS_ITS_FOLDER = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
_ERRORS = {
    "open": apsw.SQLITE_CANTOPEN,
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "delete": apsw.SQLITE_IOERR_DELETE,
}


class Power(apsw.VFS):
    """Serves the folders that it was told about, and leaves all others alone."""

    def __init__(self) -> None:
        super().__init__(NAME, SYSTEM)
        self._disks: dict[str, Disk] = {}
        self._extension = ""
        """A copy of the checksum VFS that stands over this one alone."""

    @classmethod
    @functools.cache
    def get(cls) -> "Power":
        """The one of this process."""
        power = cls()
        (extension,) = (Path(apsw.__file__).parent / "sqlite_extra_binaries").glob("cksumvfs.*")
        folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder)
        power._extension = shutil.copy(extension, folder)
        return power

    def turn_on(self) -> None:
        """Serve connections that nobody gives it to, too."""
        replace_checksum_vfs(NAME, self._extension)
        apsw.set_default_vfs(NAME)

    def turn_off(self) -> None:
        """Leave them to the system."""
        apsw.set_default_vfs(SYSTEM)
        replace_checksum_vfs()

    def disk(self, folder: Path, images: Mapping[str, bytes] | None = None) -> Disk:
        """A disk in a new folder, with these files on it."""
        disk = self._disks[str(folder)] = Disk(folder, images)
        return disk

    def forget(self, disk: Disk) -> None:
        """It will not be used again."""
        del self._disks[str(disk.folder)]

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - apsw's name
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        disk = self._disk_of(path)
        if disk is None:
            return apsw.VFSFile(SYSTEM, name, flags)
        with disk.turn:
            attempt(disk, "open")
            return Followed(disk, Path(path).name, name, flags)

    def xDelete(self, path: str, sync_folder: bool) -> None:  # noqa: N802 - apsw's name
        disk = self._disk_of(path)
        if disk is None:
            super().xDelete(path, sync_folder)
            return
        with disk.turn:
            attempt(disk, "delete")
            super().xDelete(path, sync_folder)
            disk.delete(Path(path).name)
            if sync_folder:
                disk.sync_names()

    def excepthook(self, *_error: object) -> bool:
        """Where SQLite asks for no result, such as when a file is closed, an error of the disk says nothing."""
        return True

    def _disk_of(self, path: str | None) -> Disk | None:
        return self._disks.get(path.rpartition("/")[0]) if path else None


class Followed(apsw.VFSFile):
    """An open file, whose disk is told about everything."""

    def __init__(self, disk: Disk, ending: str, name: Any, flags: list[int]) -> None:
        super().__init__(SYSTEM, name, flags)
        self._disk = disk
        self._file: File = disk.file(ending)
        # Only with a file that may have been made here: who opens a log that is there does not sync its name.
        self._folder_is_synced = not (flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & _SYNCS_ITS_FOLDER)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - apsw's name
        with self._disk.turn:
            attempt(self._disk, "read")
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - apsw's name
        with self._disk.turn:
            try:
                self._disk.begin("write")
            except Broken as broken:
                self._write(bytes(data[: len(data) // 2]), offset)  # as far as it came
                raise failure(broken) from None
            self._write(bytes(data), offset)

    def _write(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._file.change(Write(offset, data))

    def xTruncate(self, size: int) -> None:  # noqa: N802 - apsw's name
        with self._disk.turn:
            attempt(self._disk, "truncate")
            super().xTruncate(size)
            self._file.change(Resize(size))

    def xSync(self, flags: int) -> None:  # noqa: N802 - apsw's name
        with self._disk.turn:
            try:
                self._disk.begin("sync")
            except Broken as broken:
                self._file.fail_to_sync(chance("failed sync", self._disk.operations))
                raise failure(broken) from None
            self._file.sync()
            if not self._folder_is_synced:  # as the system's own VFS does it for logs and journals
                self._disk.sync_names()
                self._folder_is_synced = True


def attempt(disk: Disk, kind: str) -> None:
    """Begin an operation that fails as a whole, if it does."""
    try:
        disk.begin(kind)
    except Broken as broken:
        raise failure(broken) from None


def failure(broken: Broken) -> Exception:
    """What makes SQLite fail in this way."""
    return apsw.exception_for(apsw.SQLITE_FULL if broken.full else _ERRORS[broken.kind])
