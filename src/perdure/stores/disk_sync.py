"""Sync an open file: wait until its data is on the disk."""

import errno
import os
import sys
from typing import Final

_UNSUPPORTED: Final = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY})


def sync_data(descriptor: int) -> None:
    """Block until all data written to an open file is on the disk, so that it survives a power failure."""
    if sys.platform == "darwin":  # where a sync ends at the drive's own memory
        import fcntl

        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:  # after a real error a second sync could succeed though data is lost
                raise
            os.fsync(descriptor)  # all that this file system can do, and what SQLite does there
    else:
        os.fdatasync(descriptor)
