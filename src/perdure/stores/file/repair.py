"""Puts the file of a session in order again. Above: `log.py`, for a driver that holds the session's lock.

No byte is lost: what is no entry is set aside before it is taken out. Power may fail at any point: then the file is
still the old one, or the new one already.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Final

from .access import close_file, open_file, read_at, sync_data, sync_folder, write_all
from .erase import TEMPORARY, erasing, new_name, remove_leftovers
from .name import Place
from .record import Damage, line_of
from .survey import Header, Kept, Survey, header_line

_CHUNK: Final = 1024 * 1024


def repair(descriptor: int, found: Survey, header: Header) -> int:
    """The descriptor of the file in good order: the same, or that of a new file in its place. Raises `OSError`."""
    place = found.place
    if found.bad:
        _set_aside(descriptor, found.bad, place)
    if (end := found.torn_at) is not None:
        os.ftruncate(descriptor, end)
        sync_data(descriptor)
        return descriptor
    new = rewrite(place, header, found.entries)
    close_file(descriptor)
    return new


def rewrite(place: Place, header: Header, entries: Sequence[Kept]) -> int:
    """Put a new file in the place of a session's; its descriptor. Raises `OSError`, and no entry has changed then."""
    remove_leftovers(place.log)
    descriptor, temporary = prepare(place, header, entries)
    put_in_place(descriptor, temporary, place)
    try:
        sync_folder(os.path.dirname(place.log))  # noqa: PTH120 - a string
    except BaseException:
        close_file(descriptor)
        raise
    return descriptor


def rewrite_erasing(place: Place, header: Header, entries: Sequence[Kept]) -> None:
    """Put a new file in the place of another, and leave no byte of that one. Raises `OSError`."""
    remove_leftovers(place.log)
    with erasing(place.log):
        descriptor, temporary = prepare(place, header, entries)
        put_in_place(descriptor, temporary, place)
        close_file(descriptor)
        sync_folder(os.path.dirname(place.log))  # noqa: PTH120 - a string


def prepare(place: Place, header: Header, entries: Sequence[Kept]) -> tuple[int, str]:
    """A new file that is on the disk, and has not got its name yet: its descriptor and path. Raises `OSError`."""
    temporary = new_name(place.log, TEMPORARY)
    descriptor = open_file(temporary, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)
    try:
        for part in _parts(place, header, entries):
            write_all(descriptor, part)
        sync_data(descriptor)
    except BaseException:
        _abandon(descriptor, temporary)
        raise
    return descriptor, temporary


def put_in_place(descriptor: int, temporary: str, place: Place) -> None:
    """Give a prepared file its name, which lasts when the folder is synced. Raises `OSError`, and it is gone then."""
    try:
        os.replace(temporary, place.log)  # noqa: PTH105 - of two strings
    except BaseException:
        _abandon(descriptor, temporary)
        raise


def _abandon(descriptor: int, temporary: str) -> None:
    close_file(descriptor)
    with contextlib.suppress(OSError):
        os.unlink(temporary)  # noqa: PTH108 - a string


def _parts(place: Place, header: Header, entries: Sequence[Kept]) -> Iterator[bytes]:
    """The content of a file, in parts that are worth a write."""
    lines, size = [header_line(header)], 0
    for entry in entries:
        lines.append(line_of(entry.body, place.seed, has_more=entry.has_more))
        size += len(lines[-1])
        if size > _CHUNK:
            yield b"".join(lines)
            lines, size = [], 0
    yield b"".join(lines)


def _set_aside(descriptor: int, bad: Sequence[Damage], place: Place) -> None:
    """Copy bad bytes behind those that were set aside before. Blocks of zeros are left as holes."""
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
