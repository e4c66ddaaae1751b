"""Open a path below an open folder in a single system call, Linux's `openat2`.

The kernel resolves the whole path itself and refuses any link and any way out, so that there is no moment between a
check and its use. Where the call does not exist (other systems, Linux before 5.6, some sandboxes), `is_available` is
false, and `beneath` walks the path name by name instead.
"""

import ctypes
import errno
import os
import sys
from typing import Final

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


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


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
