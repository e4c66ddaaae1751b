"""Files of stores: check their paths, create them for their owner alone, and sync them to the disk."""

# ruff: noqa: PTH100, PTH102, PTH106, PTH110, PTH112, PTH116, PTH118, PTH120, PTH123

import contextlib
import errno
import os
import re
import stat
import sys
from typing import Final

from perdure._core.values.error import ConfigError

_UNSUPPORTED: Final = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY})


def sync_data(descriptor: int) -> None:
    """Block until all data written to an open file is on the disk, so that it survives a power failure."""
    if sys.platform == "darwin":  # where a sync ends at the drive's own memory
        import fcntl

        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:  # after a real error a second sync could succeed though data is lost
                raise
            os.fsync(descriptor)  # all that this file system can do, and what SQLite does there
    else:
        os.fdatasync(descriptor)


# pathlib would cost every start milliseconds:


_NETWORK: Final = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs"}
    | {"nfs4", "ocfs2", "orangefs", "smb2", "smb3", "smbfs"}
    | {f"fuse.{name}" for name in ("ceph", "davfs", "gcsfuse", "glusterfs", "mount-s3", "rclone", "s3fs", "sshfs")}
)


def make_path_absolute(path: str | os.PathLike[str]) -> str:
    """Return the absolute form of a path; raise `ConfigError` if it cannot be a path. Does not access the disk."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""  # pyright: ignore[reportUnnecessaryIsInstance]
    if not text.strip() or "\0" in text:
        raise ConfigError(f"{path!r} is no path of a file: pass the path at which the sessions are to be kept")
    if text == ":memory:":
        raise ConfigError("':memory:' is no path of a file: pass one, or use the store 'memory:' if nothing is to last")
    return os.path.abspath(text)


def check_file_path(path: str) -> None:
    """Raise `ConfigError` unless a store's file can be at this path: a regular file on a local disk."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        mode = stat.S_IFREG  # it does not exist, or is not accessible: opening it will fail
    if stat.S_ISDIR(mode):
        inside = os.path.join(path, "sessions.db")
        raise ConfigError(f"{path!r} is a folder: pass the path of a file, such as {inside!r}")
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path!r} is not a regular file: choose another path")
    _check_local(path)


def check_folder_path(path: str) -> None:
    """Raise `ConfigError` unless a store's folder can be at this path, on a local disk."""
    if os.path.exists(path) and not os.path.isdir(path):
        raise ConfigError(f"{path!r} is a file: pass the path of a folder, which is made if it is new")
    _check_local(path)


def _check_local(path: str) -> None:
    if kind := find_network_file_system(path):
        raise ConfigError(
            f"{path!r} lies on a network file system ({kind}), where writes of several processes cannot be kept "
            "apart: choose a path on a local disk"
        )


def create_file(path: str) -> None:
    """Create an empty file and its folder, readable by their owner alone, unless they exist.

    Raises `ConfigError` if the parent of the folder does not exist.

    An existing file is not opened: closing it again would drop locks that this process may have on it.
    """
    if os.path.exists(path):
        return
    create_folder(os.path.dirname(path))
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return  # another process was quicker


def create_folder(folder: str) -> None:
    """Create a folder unless it exists, readable by its owner alone. Raises `ConfigError` if its parent does not exist.

    A first start makes the folder for its data; a path whose folders are all missing is more likely misspelt.
    """
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    if not os.path.isdir(parent):
        raise ConfigError(
            f"{folder!r} cannot be made, because there is no folder {parent!r}: create it, or correct the path"
        )
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return
    if hasattr(os, "O_DIRECTORY"):  # a file lasts only if the folders above it do
        descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # who finds it there would take it for one that lasts
            raise
        finally:
            os.close(descriptor)


def find_network_file_system(path: str) -> str:
    """Return the type of network file system that a path is on; empty if it is local or unknown."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            mounts = file.read()
    except OSError:
        return ""
    kind = file_system_type_at(os.path.realpath(path), mounts)
    return kind if kind in _NETWORK else ""


def file_system_type_at(path: str, mounts: str) -> str:
    """Return the type of file system at an absolute path, given the content of /proc/self/mounts."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:  # noqa: PLR2004 - device, place, kind and more
            continue
        place = _unescape_mount_point(fields[1])
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= len(best):  # of two at the same place, the later one covers the earlier
            best, kind = place, fields[2]
    return kind


def _unescape_mount_point(place: str) -> str:
    """Decode a mount point, in which the kernel writes blanks and backslashes as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), place)
