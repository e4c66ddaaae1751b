"""The key with which remembered approvals are sealed, and the record of seals that were revoked.

The key is made when the first approval is stored. Without one that can be relied on no stored approval counts, which is
logged, and is no error. What was revoked is recorded beside the key, out of reach of whoever can write to a store.
"""

# ruff: noqa: PTH103, PTH120 - pathlib would cost every start milliseconds
import logging
import os
import stat
from collections.abc import Collection, Iterable
from typing import Final

from perdure.core.error import ConfigError

from .perdure_home import get_home_file_path
from .runtime_key import RuntimeKey, find_runtime_key, load_runtime_key

REVOKED_FILE: Final = "revoked-grants"
_MOST_REVOKED_BYTES: Final = 64 * 1024 * 1024
_PRIVATE: Final = 0o600
_OTHERS: Final = 0o077
_IS_POSIX: Final = os.name == "posix"
_READ: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_MOST_WARNINGS: Final = 1000

logger = logging.getLogger("perdure")
_Version = tuple[str, int, int, int, int]
_revoked: tuple[_Version, frozenset[str]] | None = None
_warned: set[str] = set()


class _UnusableError(Exception):
    """Raised for a file that cannot be relied on."""


def warn_once(message: str) -> None:
    """Log a warning, unless this process has logged the same one."""
    if message not in _warned and len(_warned) < _MOST_WARNINGS:
        _warned.add(message)
        logger.warning("%s", message)


def find_grant_key() -> RuntimeKey | None:
    """Return the key; `None` if there is none, or none that can be relied on. The latter is logged once."""
    try:
        return find_runtime_key()
    except ConfigError as error:
        warn_once(f"remembered approvals do not count, and are asked about again: {error}")
        return None


def make_grant_key() -> RuntimeKey | None:
    """Return the key, and make one if there is none; `None` if it cannot be made, or not be relied on."""
    try:
        return load_runtime_key()
    except ConfigError as error:
        warn_once(f"this approval holds in this process alone, for it cannot be sealed: {error}")
        return None


def record_revoked_seals(seals: Collection[str]) -> None:
    """Record that approvals with these seals were revoked, so that nobody can put them back into a store."""
    if not seals:
        return
    try:
        path = get_home_file_path(REVOKED_FILE)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(path, flags, _PRIVATE)
        try:
            os.write(descriptor, "".join([f"{each}\n" for each in seals]).encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except (ConfigError, OSError) as error:
        warn_once(f"a revoked approval is recorded in its store alone, for this machine's record fails: {error}")


def find_revoked_seals(seals: Iterable[str]) -> set[str]:
    """Return those of these seals that were revoked on this machine; all of them if the record cannot be read."""
    global _revoked  # noqa: PLW0603 - as above
    wanted = set(seals)
    try:
        path = get_home_file_path(REVOKED_FILE)
        version = _look_at(path)
        if version is None:
            return set()
        if _revoked is None or _revoked[0] != version:
            lines = _read_private(path, _MOST_REVOKED_BYTES).decode("ascii", "replace").splitlines()
            _revoked = version, frozenset(lines)
        return wanted & _revoked[1]
    except ConfigError:  # there is no home, and so no record
        return set()
    except _UnusableError as error:
        warn_once(f"remembered approvals do not count, and are asked about again: {error}")
        return wanted


def _look_at(path: str) -> _Version | None:
    """Return what changes with a file; `None` if there is none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _UnusableError(f"{path} cannot be read ({error.strerror})") from error
    return path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns + found.st_ctime_ns


def _read_private(path: str, most_bytes: int) -> bytes:
    """Read a file that only its owner can access. Raises `_UnusableError` for any other."""
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        raise _UnusableError(f"{path} cannot be read ({error.strerror})") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _UnusableError(f"{path} is no file: move it away")
        if _IS_POSIX and found.st_uid not in {0, os.geteuid()}:
            raise _UnusableError(f"{path} belongs to another user: move it away")
        if _IS_POSIX and found.st_mode & _OTHERS:
            raise _UnusableError(f"others can access {path}: remove it, and a new one is made")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most_bytes)
    except OSError as error:
        raise _UnusableError(f"{path} cannot be read ({error.strerror})") from error
    finally:
        os.close(descriptor)
