"""Recognize files that are hard links to secrets of the user: the key in `.ssh` under another name is still a secret.

A path does not tell which other names its file has. So the secrets in the home folder are known by their inodes.
"""

# ruff: noqa: PTH111, PTH118 - before every command, where pathlib would cost time
import contextlib
import os
import stat
import threading
import time
from collections.abc import Iterator
from typing import Final

from .sensitive_names import SENSITIVE_NAMES, BlockedNames

_MOST_ENTRIES: Final = 5_000
"""Files and folders of the home that are looked at."""
_SECONDS: Final = 5.0
"""How long it is remembered what the secrets of the home are."""
_NAMES: Final = BlockedNames(SENSITIVE_NAMES)
_lock: Final = threading.Lock()
_known: dict[str, tuple[float, frozenset[tuple[int, int]]]] = {}


def is_link_to_secret(status: os.stat_result) -> bool:
    """Return True for a file that has another name, which is that of a secret in the user's home folder."""
    has_names = stat.S_ISREG(status.st_mode) and status.st_nlink > 1
    return has_names and (status.st_dev, status.st_ino) in list_linked_secrets()


def list_linked_secrets() -> frozenset[tuple[int, int]]:
    """Return device and inode of the secrets in the home folder that have other names."""
    home = os.path.expanduser("~")
    with _lock:
        since, found = _known.get(home, (-_SECONDS, frozenset()))
        now = time.monotonic()
        if now - since >= _SECONDS:
            found = frozenset(_find_linked(home))
            _known.clear()
            _known[home] = now, found
        return found


def _find_linked(home: str) -> Iterator[tuple[int, int]]:
    waiting: list[tuple[str, tuple[str, ...], bool]] = [
        (home, (), False),
        (os.path.join(home, ".config"), (".config",), False),
    ]
    left = _MOST_ENTRIES
    while waiting and left > 0:
        folder, above, is_secret = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for each in entries:
                left -= 1
                if each.is_symlink():
                    continue
                is_folder = each.is_dir(follow_symlinks=False)
                if not is_secret and not _NAMES.find((*above, each.name), is_folder=is_folder):
                    continue
                if is_folder:
                    waiting.append((each.path, (), True))
                    continue
                status = each.stat(follow_symlinks=False)
                if status.st_nlink > 1:
                    yield status.st_dev, status.st_ino
