"""Open files so that only their owner can read them, also files that existed before with other permissions."""

import contextlib
import os
import stat
from typing import Final

_PRIVATE: Final = 0o600


def open_private_file(path: str, flags: int) -> int:
    """Open a file so that only its owner can read it; pass it to `open` as the argument `opener`.

    The permissions of a file that is there already are taken from everybody else, before anything is written. Pipes and
    devices, such as `/dev/stdout`, keep theirs.
    """
    descriptor = os.open(path, flags, _PRIVATE)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) and stat.S_IMODE(mode) & ~_PRIVATE:
        with contextlib.suppress(OSError):  # the file of somebody else, which we may write to
            os.fchmod(descriptor, _PRIVATE)
    return descriptor
