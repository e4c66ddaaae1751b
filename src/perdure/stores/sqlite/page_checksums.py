"""Page checksums of an SQLite file, by SQLite's own checksum VFS, which apsw's packages include.

Each page of a file with checksums ends with eight reserved bytes, in which the VFS stores a checksum of the rest
whenever it writes the page. It verifies the checksum whenever it reads the page, so that SQLite sees no changed byte of
a table or an index: the read fails with `SQLITE_IOERR_DATA`.

A file gets its checksums when it is created. All processes must write to it through the VFS.
"""

# pathlib would cost every start milliseconds:
# ruff: noqa: PTH118, PTH120
import os
import threading
from typing import Any, Final, cast

import apsw

from .apsw_types import Connection

RESERVED_BYTES: Final = 8
"""The bytes at the end of each page that the VFS needs."""
_EXTENSION: Final = "cksumvfs"
_VFS_NAME: Final = "cksmvfs"  # the extension registers itself under this name
_SYSTEM_VFS: Final = ("unix", "win32")

_loading: Final = threading.Lock()
_names: Final[dict[str | None, str | None]] = {}


def find_checksum_vfs(vfs: str | None = None) -> str | None:
    """Return the name of the VFS that adds checksums to files of `vfs`, by default the system's; `None` if there is
    none.
    """
    if vfs is None and None not in _names:
        with _loading:
            if None not in _names:
                _names[None] = _load_extension(_extension_path())
    return _names.get(vfs)


def replace_checksum_vfs(vfs: str | None = None, path: str = "") -> None:
    """Replace the checksum VFS by one over another VFS; without arguments, restore the default. For tests.

    `path` is a copy of the SQLite extension for this VFS alone.
    """
    if _VFS_NAME in apsw.vfs_names():
        apsw.unregister_vfs(_VFS_NAME)  # of two of the same name, the second does nothing
    _names.clear()
    _names[vfs] = _names[None] = _load_extension(path or _extension_path(), vfs)


def _extension_path() -> str:
    return os.path.join(os.path.dirname(apsw.__file__ or ""), "sqlite_extra_binaries", _EXTENSION)


def _load_extension(path: str, over: str | None = None) -> str | None:
    """Load SQLite's checksum VFS over another, by default the system's; return its name, or `None` if apsw lacks it."""
    names = apsw.vfs_names()
    below = over or next((name for name in _SYSTEM_VFS if name in names), names[0])
    connection = apsw.Connection(":memory:")
    try:
        if not hasattr(connection, "reserve_bytes"):
            return None
        # It stands over what is the default while it is loaded, and makes itself the default of the whole process.
        apsw.set_default_vfs(below)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1)
        connection.load_extension(path)
    except apsw.ExtensionLoadingError:
        return None
    finally:
        apsw.set_default_vfs(names[0])
        connection.close()
    return _VFS_NAME


def has_checksums(connection: Connection) -> bool:
    """Return True if the header of a database file reserves room for checksums on its pages."""
    read: Any = getattr(connection, "reserve_bytes", None)
    return read is not None and read("main") == RESERVED_BYTES


def reserve_checksum_space(connection: Connection) -> None:
    """Reserve room for page checksums in an empty file, or in any file at its next vacuum.

    Nothing is verified or stored over this connection: close it once the file has pages.
    """
    cast("Any", connection).reserve_bytes("main", RESERVED_BYTES)


def is_checksum_error(error: apsw.Error) -> bool:
    """Return True if an SQLite error means that the checksum of a page does not match."""
    return getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA


def write_checksums(path: str, vfs: str | None) -> None:
    """Write the checksum of every page of a file that no other connection uses.

    Needed after `VACUUM INTO`, which writes most pages before the header, where the VFS finds out about checksums.
    """
    name = find_checksum_vfs(vfs)
    for verify in (True, False):
        connection = cast("Connection", apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE, vfs=name))
        try:
            if verify and has_checksums(connection):
                continue
            connection.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off").fetchall()
            if verify:
                reserve_checksum_space(connection)
            else:
                connection.execute("PRAGMA checksum_verification = off").fetchall()
            connection.execute("VACUUM")
        finally:
            connection.close()
