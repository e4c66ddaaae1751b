"""Linux system calls that Python lacks: `openat2`, which opens a path below a folder, and `statx`, for birth times."""

import ctypes
import errno
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


_SYSCALL_NUMBER: Final = 437  # the same on every architecture of Linux
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_NO_SYMLINKS: Final = 0x04
_RESOLVE_BENEATH: Final = 0x08
_RESOLVE: Final = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
_ATTEMPTS: Final = 64
"""The kernel answers EAGAIN when something on the way was renamed meanwhile; then it is asked again."""


class _OpenHow(ctypes.Structure):
    """The C struct `open_how` that the call takes."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_in_one_step(folder: int, path: str, flags: int, mode: int = 0) -> int:
    """Open a relative path below an open folder with `openat2`, refusing links; return its file descriptor.

    Raises `OSError`: `ELOOP` for a link, `EXDEV` for a path that leaves the folder, `ENOSYS` without the call.
    """
    if _libc is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    how = _OpenHow(flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, _RESOLVE)
    name = os.fsencode(path)
    for _ in range(_ATTEMPTS):
        descriptor = _libc.syscall(_SYSCALL_NUMBER, folder, name, ctypes.byref(how), ctypes.sizeof(how))
        if descriptor >= 0:
            return int(descriptor)
        code = ctypes.get_errno()
        if code not in {errno.EAGAIN, errno.EINTR}:
            raise OSError(code, os.strerror(code), path)
    raise OSError(errno.EAGAIN, "the folders on the way keep changing", path)


def is_available() -> bool:
    """Return True if the kernel has `openat2`, and lets this process use it."""
    if _libc is None:
        return False
    here = os.open(os.sep, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.close(open_in_one_step(here, os.curdir, os.O_RDONLY | os.O_DIRECTORY))
    except OSError:  # ENOSYS of an old kernel, EPERM of a sandbox that does not know the call
        return False
    finally:
        os.close(here)
    return True
