"""Wait until the data of an open file is on the disk."""

import os
import sys


def sync_data(descriptor: int) -> None:
    """Block until written data would survive a power failure."""
    if sys.platform == "darwin":  # where a sync ends at the drive's own memory
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)
