"""Looks at a file that others may be writing to, replacing or erasing. Above: the file store. Below: the survey.

Nothing is waited for and nothing is changed: what looks damaged is looked at again when there is a better reason.
"""

import os
from collections.abc import Callable
from typing import Final

from .access import close_file, identity, open_file
from .lock import is_driven
from .name import Place
from .record import first_line
from .survey import Header, Survey, header_in, survey

Opened = Callable[[], tuple[int, int]]
"""Opens a file: its descriptor, and how many bytes of it count."""

_TRIES: Final = 20


def look(place: Place, synced: int | None = None, opened: Opened | None = None) -> Survey:
    """A survey of the file of a session; with `opened`, of one that this process drives. Raises `OSError`.

    Entries up to `synced` are known to have been on the disk; all of them, when it is not said.
    """
    found = Survey(place, 0, synced)
    for _ in range(_TRIES):
        try:
            descriptor, size = opened() if opened is not None else _open(place)
        except FileNotFoundError:
            return Survey(place, 0, synced)
        try:
            found = survey(descriptor, size, place, synced)
            if found.bad and opened is None:
                found = _look_again(descriptor, place, synced)
            elif not found.bad:
                return found
            if identity(place.log) == identity(descriptor):
                return found  # otherwise it has been replaced meanwhile, and its bytes were erased
        finally:
            close_file(descriptor)
    return found


def header_at(path: str) -> Header | None:
    """The header of a file; `None` when there is no such file, or it has none. Raises `OSError`."""
    for _ in range(_TRIES):
        try:
            descriptor = open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            header = header_in(first_line(descriptor, os.fstat(descriptor).st_size, 0), path)
            if header is not None or identity(path) == identity(descriptor):
                return header  # otherwise it has been replaced meanwhile, and its bytes were erased
        finally:
            close_file(descriptor)
    return None


def _open(place: Place) -> tuple[int, int]:
    descriptor = open_file(place.log, os.O_RDONLY)
    return descriptor, os.fstat(descriptor).st_size


def _look_again(descriptor: int, place: Place, synced: int | None) -> Survey:
    """Bad bytes at the end are the beginning of an append, while there is a driver."""
    is_growing = is_driven(place)
    found = survey(descriptor, os.fstat(descriptor).st_size, place, synced)
    if is_growing:
        found.ignore_tail()
    return found
