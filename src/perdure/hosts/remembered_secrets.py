"""Remember the files of a working folder that are hidden from commands, so that a command cannot bring them to light.

Secrets are looked for by their names in the upper levels of a folder, up to a number of entries. A command could put
thousands of files in front of them, or move the folder that they are in further down, and the next one would see them.
So what was found before stays hidden, also where it has been moved to.
"""

import contextlib
import os
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_MOST_ENTRIES: Final = 1_000_000
_MOST_REMEMBERED: Final = 500
_lock: Final = threading.Lock()
_known: Final[dict[str, dict[int, str]]] = {}
"""By folder: the inodes of what is hidden, and the paths."""


def add_remembered_secrets(root: str, found: Sequence[str]) -> list[str]:
    """Return what was found in a folder, with what was found before the commands that have run there since."""
    with _lock:
        known = _known.setdefault(root, {})
        before = [*known.items()]
        moved = {inode: path.rpartition("/")[2] for inode, path in before if _read_inode(path) != inode}
        here = dict(_find_inodes(root, moved)) if moved else {}
        known.clear()
        kept = [here.get(inode, path) for inode, path in before] + [path for _, path in before]
        paths = [path for path in dict.fromkeys([*found, *kept]) if _read_inode(path)]
        for path in paths[:_MOST_REMEMBERED]:
            known[_read_inode(path)] = path
        return paths


def _read_inode(path: str) -> int:
    """Return the inode of a file or folder; 0 if there is none, or a link."""
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        return 0 if stat.S_ISLNK(found.st_mode) else found.st_ino
    return 0


def _find_inodes(root: str, wanted: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    """Yield where some files and folders are now, below a folder; they have their names still, as mounts have."""
    waiting, left = [root], _MOST_ENTRIES
    while waiting and left > 0:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for each in entries:
                left -= 1
                if wanted.get(each.inode()) == each.name and not each.is_symlink():
                    yield each.inode(), each.path
                elif each.is_dir(follow_symlinks=False):
                    waiting.append(each.path)
