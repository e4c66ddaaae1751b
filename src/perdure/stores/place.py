"""Where a store's file may lie, and how it is made there. Above: stores in files. Below: the file system.

Nothing that lies at the path already is opened, let alone changed.
"""

# pathlib would cost every start milliseconds:
# ruff: noqa: PTH100, PTH102, PTH110, PTH112, PTH116, PTH118, PTH120, PTH123
import os
import re
import stat
from typing import Final

from perdure.core.error import ConfigError

_NETWORK: Final = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs"}
    | {"nfs4", "ocfs2", "orangefs", "smb2", "smb3", "smbfs"}
    | {f"fuse.{name}" for name in ("ceph", "davfs", "gcsfuse", "glusterfs", "mount-s3", "rclone", "s3fs", "sshfs")}
)


def checked_path(path: str | os.PathLike[str]) -> str:
    """The absolute form of a path that could be a file's. Looks at the words alone."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""  # pyright: ignore[reportUnnecessaryIsInstance]
    if not text.strip() or "\0" in text:
        raise ConfigError(f"{path!r} is no path of a file: pass the path at which the sessions are to be kept")
    if text == ":memory:":
        raise ConfigError("':memory:' is no path of a file: pass one, or use the store 'memory:' if nothing is to last")
    return os.path.abspath(text)


def check_place(path: str) -> None:
    """Refuse a path at which no file of ours can lie."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        mode = stat.S_IFREG  # nothing is there yet, or nothing that we may look at: opening it will tell
    if stat.S_ISDIR(mode):
        inside = os.path.join(path, "sessions.db")
        raise ConfigError(f"{path!r} is a folder: pass the path of a file, such as {inside!r}")
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path!r} is not a regular file: choose another path")
    _check_local(path)


def check_folder(path: str) -> None:
    """Refuse a path at which no folder of ours can lie."""
    if os.path.exists(path) and not os.path.isdir(path):
        raise ConfigError(f"{path!r} is a file: pass the path of a folder, which is made if it is new")
    _check_local(path)


def _check_local(path: str) -> None:
    if kind := network_file_system(path):
        raise ConfigError(
            f"{path!r} lies on a network file system ({kind}), where writes of several processes cannot be kept "
            "apart: choose a path on a local disk"
        )


def make_file(path: str) -> None:
    """Make the file if it is new, and its folder, for their owner alone.

    One that exists is not opened: closing it again would drop the locks that this process may hold on it.
    """
    if os.path.exists(path):
        return
    make_folder(os.path.dirname(path))
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return  # another process was quicker


def make_folder(folder: str) -> None:
    """Make a folder if it is new, and those above it, for their owner alone."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    make_folder(parent)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return
    if hasattr(os, "O_DIRECTORY"):  # a file lasts only if the folders above it do
        descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def network_file_system(path: str) -> str:
    """The kind of network file system on which a path lies or would lie; empty when it is local or cannot be told."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            mounts = file.read()
    except OSError:
        return ""
    kind = kind_at(os.path.realpath(path), mounts)
    return kind if kind in _NETWORK else ""


def kind_at(path: str, mounts: str) -> str:
    """The kind of file system at an absolute path, given the text of the system's table of mounts."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:  # noqa: PLR2004 - device, place, kind and more
            continue
        place = _unescaped(fields[1])
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= len(best):  # of two at the same place, the later one covers the earlier
            best, kind = place, fields[2]
    return kind


def _unescaped(place: str) -> str:
    """The kernel writes blanks and backslashes in the names of places as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), place)
