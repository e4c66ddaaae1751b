"""Files on a disk that loses power, or fails, when a test wants it to. Above: the tests. Below: `disk.py`, the system.

The functions of `os` that change files are replaced by some that also tell the disk. Whatever else changes a file there
is noticed by `Disk.check`.
"""

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.faults.disk import Broken, Disk, File, Resize, Write
from tests.seeds import chance

_real = {
    name: getattr(os, name)
    for name in (
        *("open", "close", "pread", "write", "pwrite", "ftruncate", "fsync", "fdatasync"),
        *("link", "rename", "replace", "unlink"),
    )
}


class Calls:
    """Follows the folders that it was told about, and leaves all other files alone."""

    def __init__(self) -> None:
        self._disks: dict[str, Disk] = {}
        self._open: dict[int, tuple[Disk, File | None]] = {}
        """The files behind descriptors; none behind that of a folder."""
        for name in _real:
            setattr(os, name, getattr(self, f"_{name}_"))

    def undo(self) -> None:
        """Leave everything to the system again."""
        for name, function in _real.items():
            setattr(os, name, function)

    def disk(self, folder: Path, images: Mapping[str, bytes] | None = None) -> Disk:
        """A disk in a new folder, with these files on it."""
        disk = self._disks[str(folder)] = Disk(folder, images)
        return disk

    def forget(self, disk: Disk) -> None:
        """It will not be used again."""
        del self._disks[str(disk.folder)]

    # -- files ---------------------------------------------------------------------------------------------------------

    def _open_(self, path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        disk, name = self._place(path)
        if disk is None:
            return _real["open"](path, flags, mode, **options)
        with disk.turn:
            attempt(disk, "open")
            descriptor = _real["open"](path, flags, mode, **options)
            file = disk.file(name) if name else None
            if file is not None and flags & os.O_TRUNC:
                file.change(Resize(0))
            self._open[descriptor] = (disk, file)
            return descriptor

    def _close_(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)
        _real["close"](descriptor)

    def _pread_(self, descriptor: int, count: int, offset: int) -> bytes:
        disk, _ = self._open.get(descriptor, (None, None))
        if disk is not None:
            with disk.turn:
                attempt(disk, "read")
        return _real["pread"](descriptor, count, offset)

    def _write_(self, descriptor: int, data: Any) -> int:
        def write(data: Any) -> tuple[int, int]:
            count = _real["write"](descriptor, data)
            return os.lseek(descriptor, 0, os.SEEK_CUR) - count, count

        return self._written(descriptor, data, write)

    def _pwrite_(self, descriptor: int, data: Any, offset: int) -> int:
        return self._written(descriptor, data, lambda data: (offset, _real["pwrite"](descriptor, data, offset)))

    def _written(self, descriptor: int, data: Any, write: Callable[[Any], tuple[int, int]]) -> int:
        disk, file = self._open.get(descriptor, (None, None))
        if disk is None or file is None:
            return write(data)[1]
        with disk.turn:
            broken = None
            try:
                disk.begin("write")
            except Broken as error:
                broken, data = error, data[: len(data) // 2]  # as far as it came
            offset, count = write(data)
            file.change(Write(offset, bytes(data[:count])))
            if broken is not None:
                raise failure(broken)
            return count

    def _ftruncate_(self, descriptor: int, size: int) -> None:
        disk, file = self._open.get(descriptor, (None, None))
        if disk is None or file is None:
            _real["ftruncate"](descriptor, size)
            return
        with disk.turn:
            attempt(disk, "truncate")
            _real["ftruncate"](descriptor, size)
            file.change(Resize(size))

    def _fsync_(self, descriptor: int) -> None:
        disk, file = self._open.get(descriptor, (None, None))
        if disk is None:
            _real["fsync"](descriptor)
            return
        with disk.turn:
            try:
                disk.begin("sync")
            except Broken as broken:
                if file is not None:
                    file.fail_to_sync(chance("failed sync", disk.operations))
                raise failure(broken) from None
            if file is None:
                disk.sync_names()
            else:
                file.sync()

    _fdatasync_ = _fsync_

    # -- names ---------------------------------------------------------------------------------------------------------

    def _rename_(self, path: Any, new: Any) -> None:
        self._renamed("rename", path, new)

    def _replace_(self, path: Any, new: Any) -> None:
        self._renamed("replace", path, new)

    def _link_(self, path: Any, new: Any, **options: Any) -> None:
        disk, name = self._place(path)
        if disk is None:
            _real["link"](path, new, **options)
            return
        with disk.turn:
            attempt(disk, "rename")
            _real["link"](path, new, **options)
            disk.link(name, self._place(new)[1])

    def _renamed(self, function: str, path: Any, new: Any) -> None:
        disk, name = self._place(path)
        if disk is None:
            _real[function](path, new)
            return
        with disk.turn:
            attempt(disk, "rename")
            _real[function](path, new)
            disk.rename(name, self._place(new)[1])

    def _unlink_(self, path: Any, **options: Any) -> None:
        disk, name = self._place(path)
        if disk is None:
            _real["unlink"](path, **options)
            return
        with disk.turn:
            attempt(disk, "delete")
            _real["unlink"](path, **options)
            disk.delete(name)

    def _place(self, path: Any) -> tuple[Disk | None, str]:
        """The disk on which something lies, and its name there; none for the folder itself."""
        text = os.fspath(path)
        if text in self._disks:
            return self._disks[text], ""
        folder, _, name = text.rpartition("/") if isinstance(text, str) else ("", "", "")
        return self._disks.get(folder), name


def attempt(disk: Disk, kind: str) -> None:
    """Begin an operation that fails as a whole, if it does."""
    try:
        disk.begin(kind)
    except Broken as broken:
        raise failure(broken) from None


def failure(broken: Broken) -> OSError:
    """What the system says of it."""
    number = errno.ENOSPC if broken.full else errno.EIO
    return OSError(number, os.strerror(number))
