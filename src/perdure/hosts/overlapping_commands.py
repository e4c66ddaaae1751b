"""Judge what a command leaves also by the folder as it was before commands that ran beside it.

Of two commands that run at once, one may hide what the other has made until that one has ended, and was looked at. To
the one that stays it was there from the start. So a command takes over from each one that ends beside it what was in
the folder before that one, if it began earlier.
"""

import threading
from collections.abc import Sequence
from typing import Final, NamedTuple
from weakref import WeakSet

from .trusted_files import TrustedFiles


class FolderBefore(NamedTuple):
    """A moment before a command, and the files that other programs trusted then."""

    since_ns: int
    files: TrustedFiles


class CommandSpan:
    """The time of a running command, and what was in its folders before it."""

    def __init__(self, folders: Sequence[str], before: FolderBefore) -> None:
        """Begin with what was there before the command itself."""
        self.folders = tuple(folders)
        self.before = before
        self.earliest = before
        """What was there before the first of the commands that have ended beside it, or before itself."""
        with _lock:
            _running.add(self)

    def end(self) -> list[FolderBefore]:
        """End the command; return by what its folders are to be judged now.

        To be called before anybody looks at them: what another command hides during that look is then for that one.
        """
        with _lock:
            _running.discard(self)
            for each in _running:
                if each.folders == self.folders and self.earliest.since_ns < each.earliest.since_ns:
                    each.earliest = self.earliest
        return [self.before] if self.earliest is self.before else [self.before, self.earliest]


_lock: Final = threading.Lock()
_running: Final = WeakSet[CommandSpan]()
