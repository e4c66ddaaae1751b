"""The unused space inside the pages of an SQLite file, where SQLite leaves copies of rows.

With `secure_delete` SQLite overwrites what it deletes. But when it moves rows from a full page to another one, copies
of them stay behind in the gap of the page, between the list of its rows and the rows, and later deletions do not reach
them. Nothing ever reads a gap.

A page is looked at where it lies in the file, so the write-ahead log has to be empty.
"""

import os
from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import apsw

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
