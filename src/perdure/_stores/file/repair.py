"""Repair a damaged session file. The caller, who is about to run the session, has locked it.

No byte is lost: bytes that are no entry are copied to the quarantine file before they are removed. Power may fail at
any point: the file is then still the old one, or already the new one.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Final

from perdure._stores.files import sync_data

from .disk import (
    TEMPORARY_SUFFIX,
    close_file,
    erase_replaced_file,
    erase_stale_temporary_files,
    make_unused_path,
    open_file,
    read_at,
    sync_folder,
    write_all,
)
from .layout import DamagedRange, SessionPaths, encode_line
from .scan import EncodedEntry, Header, SessionFileScan, encode_header

_CHUNK: Final = 1024 * 1024


def repair_file(descriptor: int, found: SessionFileScan, header: Header) -> int:
    """Repair a damaged session file; return its file descriptor, a new one if the file had to be replaced.

    Raises `OSError`.
    """
    place = found.place
    if found.damaged:
        _copy_to_quarantine(descriptor, found.damaged, place)
    if (end := found.truncate_at) is not None:
        os.ftruncate(descriptor, end)
        sync_data(descriptor)
        return descriptor
    new = rewrite_file(place, header, found.entries)
    close_file(descriptor)
    return new


def rewrite_file(place: SessionPaths, header: Header, entries: Sequence[EncodedEntry]) -> int:
    """Replace a session's file with a new one that has these entries; return its file descriptor.

    Raises `OSError`; the old file stays then, unless only the last sync of the folder failed.
    """
    erase_stale_temporary_files(place.log)
    descriptor, temporary = write_temporary(place, header, entries)
    rename_into_place(descriptor, temporary, place)
    try:
        sync_folder(os.path.dirname(place.log))  # noqa: PTH120 - a string
    except BaseException:
        close_file(descriptor)
        raise
    return descriptor


def rewrite_file_securely(place: SessionPaths, header: Header, entries: Sequence[EncodedEntry]) -> None:
    """Replace a session's file with one that has these entries, and overwrite the old one on disk.

    Raises `OSError`.
    """
    erase_stale_temporary_files(place.log)
    with erase_replaced_file(place.log):
        descriptor, temporary = write_temporary(place, header, entries)
        rename_into_place(descriptor, temporary, place)
        close_file(descriptor)
        sync_folder(os.path.dirname(place.log))  # noqa: PTH120 - a string


def write_temporary(place: SessionPaths, header: Header, entries: Sequence[EncodedEntry]) -> tuple[int, str]:
    """Write and sync a temporary file with these entries; return its descriptor and path. Raises `OSError`."""
    temporary = make_unused_path(place.log, TEMPORARY_SUFFIX)
    descriptor = open_file(temporary, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)
    try:
        for part in _encode_parts(place, header, entries):
            write_all(descriptor, part)
        sync_data(descriptor)
    except BaseException:
        _discard_temporary(descriptor, temporary)
        raise
    return descriptor, temporary


def rename_into_place(descriptor: int, temporary: str, place: SessionPaths) -> None:
    """Rename a finished temporary file to the name of a session's log.

    Does not sync the folder. If it raises, the temporary file is removed.
    """
    try:
        os.replace(temporary, place.log)  # noqa: PTH105 - of two strings
    except BaseException:
        _discard_temporary(descriptor, temporary)
        raise


def _discard_temporary(descriptor: int, temporary: str) -> None:
    close_file(descriptor)
    with contextlib.suppress(OSError):
        os.unlink(temporary)  # noqa: PTH108 - a string


def _encode_parts(place: SessionPaths, header: Header, entries: Sequence[EncodedEntry]) -> Iterator[bytes]:
    """Yield the content of a file in parts of about one chunk."""
    lines, size = [encode_header(header)], 0
    for entry in entries:
        lines.append(encode_line(entry.body, place.seed, has_more=entry.has_more))
        size += len(lines[-1])
        if size > _CHUNK:
            yield b"".join(lines)
            lines, size = [], 0
    yield b"".join(lines)


def _copy_to_quarantine(descriptor: int, bad: Sequence[DamagedRange], place: SessionPaths) -> None:
    """Append bad bytes to the quarantine file. Blocks of zeros become holes in it."""
    quarantine = open_file(place.quarantine, os.O_RDWR | os.O_CREAT)
    try:
        at = os.fstat(quarantine).st_size
        for damage in bad:
            title = f"-- {damage.end - damage.start} bytes from {damage.start} on:\n".encode()
            _write_at(quarantine, at, title)
            at += len(title)
            for start in range(damage.start, damage.end, _CHUNK):
                chunk = read_at(descriptor, start, min(_CHUNK, damage.end - start))
                if chunk.strip(b"\0"):
                    _write_at(quarantine, at, chunk)
                at += len(chunk)
            _write_at(quarantine, at, b"\n")
            at += 1
        os.fsync(quarantine)
    finally:
        close_file(quarantine)
    sync_folder(os.path.dirname(place.log))  # noqa: PTH120 - a string


def _write_at(descriptor: int, at: int, data: bytes) -> None:
    os.lseek(descriptor, at, os.SEEK_SET)
    write_all(descriptor, data)
