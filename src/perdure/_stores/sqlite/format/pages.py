"""The pages of an SQLite file: their checksums, and the unused space in them where copies of rows remain."""

# ruff: noqa: PTH118, PTH120

import os
import threading
from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, cast

import apsw

from perdure._stores.sqlite.driver import Connection

# pathlib would cost every start milliseconds:


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


_PAGES_AT_ONCE: Final = 16
_ONE_BYTE: Final = 65_536
"""What the two bytes of a page's header stand for if they are 0."""
_HEADER_BYTES: Final = {2: 12, 5: 12, 10: 8, 13: 8}
"""The size of the header of a page with rows, by its first byte. Other pages have no gap."""
_FILE_HEADER: Final = 100
_WINDOW: Final = 12
_STRIDE: Final = 4


class PageGap(NamedTuple):
    """A gap that is not empty: its place in the file, and its bytes."""

    offset: int
    data: bytes


def read_gaps(path: str, vfs: str | None) -> list[PageGap]:
    """Return the gaps of a database file that are not empty."""
    with _open_file(path, vfs, apsw.SQLITE_OPEN_READONLY) as file:
        return list(_find_gaps(file))


def clear_gaps(path: str) -> None:
    """Overwrite the gaps of a database file without checksums, while no other process writes.

    Only unused bytes are written: a loss of power meanwhile cannot damage a page.
    """
    with _open_file(path, None, apsw.SQLITE_OPEN_READWRITE) as file:
        gaps = list(_find_gaps(file))
        for gap in gaps:
            file.xWrite(bytes(len(gap.data)), gap.offset)
        if gaps:
            file.xSync(apsw.SQLITE_SYNC_FULL)


def contains_texts(gaps: Collection[PageGap], texts: Iterable[str]) -> bool:
    """Return True if a gap contains a part of one of these texts, of fifteen bytes or more (or a shorter one whole)."""
    if not gaps:
        return False
    windows = {
        gap.data[place : place + _WINDOW] for gap in gaps for place in range(0, len(gap.data) - _WINDOW + 1, _STRIDE)
    }
    for text in texts:
        data = text.encode(errors="surrogatepass")
        if len(data) < _WINDOW + _STRIDE - 1:
            if data and any(data in gap.data for gap in gaps):
                return True
        elif any(data[place : place + _WINDOW] in windows for place in range(len(data) - _WINDOW + 1)):
            return True
    return False


@contextmanager
def _open_file(path: str, vfs: str | None, access: int) -> Generator[Any]:
    """Open a database file beside SQLite's own connections; opening it otherwise would drop their locks."""
    file = apsw.VFSFile(vfs or "", path, [access | apsw.SQLITE_OPEN_MAIN_DB, 0])
    try:
        yield file
    finally:
        file.xClose()


def _find_gaps(file: Any) -> Generator[PageGap]:
    size = file.xFileSize()
    if size < _FILE_HEADER:
        return
    header = file.xRead(_FILE_HEADER, 0)
    page_size = int.from_bytes(header[16:18]) if int.from_bytes(header[16:18]) > 1 else _ONE_BYTE
    length = page_size * _PAGES_AT_ONCE
    for start in range(0, size, length):
        chunk = file.xRead(min(length, size - start), start)
        for offset in range(0, len(chunk), page_size):
            begin = offset + (0 if start + offset else _FILE_HEADER)
            room = _HEADER_BYTES.get(chunk[begin])
            if room is None:
                continue
            cells = int.from_bytes(chunk[begin + 3 : begin + 5])
            first = begin + room + 2 * cells
            last = offset + (int.from_bytes(chunk[begin + 5 : begin + 7]) or _ONE_BYTE)
            if first < last <= offset + page_size and any(data := chunk[first:last]):
                yield PageGap(start + first, data)


def is_wal_empty(path: str) -> bool:
    """Return True if everything is in the database file."""
    try:
        return os.stat(f"{path}-wal").st_size == 0  # noqa: PTH116 - as in the store
    except OSError:
        return True
