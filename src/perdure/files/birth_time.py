"""The time when a file or folder was made, by which it differs from a later one with the same path and inode number."""

import ctypes
import os
import struct
import sys
from typing import Final

_FROM_HERE: Final = -100  # AT_FDCWD
_BIRTH_TIME: Final = 0x800  # STATX_BTIME
_SIZE: Final = 256
_MASK: Final = struct.Struct("=I")
_TIME: Final = struct.Struct("=qI")
_TIME_PLACE: Final = 80

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def read_birth_time_ns(path: str) -> int | None:
    """Return when a file or folder was made, links followed; `None` where the system does not tell.

    Nothing changes it: neither writing nor renaming. Python shows it on other systems than Linux, whose call `statx`
    has it. Raises `OSError`.
    """
    known: float | None = getattr(os.stat(path), "st_birthtime", None)  # noqa: PTH116 - as fast as can be
    if known is not None:
        return int(known * 1e9)
    call = getattr(_libc, "statx", None)  # which old C libraries do not have
    if call is None:
        return None
    found = ctypes.create_string_buffer(_SIZE)
    if call(_FROM_HERE, os.fsencode(path), 0, _BIRTH_TIME, found):
        return None
    (mask,) = _MASK.unpack_from(found, 0)
    seconds, nanoseconds = _TIME.unpack_from(found, _TIME_PLACE)
    return int(seconds * 1_000_000_000 + nanoseconds) if mask & _BIRTH_TIME else None
