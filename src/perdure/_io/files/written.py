"""The files that tools of this process have written, by what tells each one from any other, until it is changed again.

A command in the background may run while a person lets a tool write AGENTS.md. What the command has made under such a
name is set aside when it ends; what the person has agreed to is not.
"""

import os
from collections import OrderedDict
from typing import Final

_MOST: Final = 10_000
_written: OrderedDict[tuple[int, int], int] = OrderedDict()
"""By device and inode: the time of the last change, which every change, also of the name, makes another."""


def note_written_file(status: os.stat_result) -> None:
    """Note that a tool has written a file, as it is now."""
    _written[status.st_dev, status.st_ino] = status.st_ctime_ns
    _written.move_to_end((status.st_dev, status.st_ino))
    if len(_written) > _MOST:
        _written.popitem(last=False)


def is_as_tools_wrote_it(status: os.stat_result) -> bool:
    """Return True if a tool has written a file, and nothing has changed it since."""
    return _written.get((status.st_dev, status.st_ino)) == status.st_ctime_ns
