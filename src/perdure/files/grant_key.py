"""The key with which remembered approvals are sealed, and the record of seals that were revoked.

The key is made when the first approval is stored. Without one that can be relied on no stored approval counts, which is
logged, and is no error. What was revoked is recorded beside the key, out of reach of whoever can write to a store.
"""

# ruff: noqa: PTH103, PTH120 - pathlib would cost every start milliseconds
import logging
import os
from collections.abc import Collection, Iterable
from typing import Final

from perdure.core.error import ConfigError

from .decision_file import DecisionFile, FileVersion
from .perdure_home import get_home_file_path
from .runtime_key import RuntimeKey, find_runtime_key, load_runtime_key

REVOKED_FILE: Final = "revoked-grants"
_PRIVATE: Final = 0o600
_MOST_WARNINGS: Final = 1000

logger = logging.getLogger("perdure")
_revoked: tuple[str, FileVersion, frozenset[str]] | None = None
_warned: set[str] = set()


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
    wanted = set(seals)
    try:
        path = get_home_file_path(REVOKED_FILE)
    except ConfigError:  # there is no home, and so no record
        return set()
    try:
        return wanted & _load_revoked_seals(path)
    except ConfigError as error:
        warn_once(f"remembered approvals do not count, and are asked about again: {error}")
        return wanted


def _load_revoked_seals(path: str) -> frozenset[str]:
    """Return the revoked seals, from the file if it has changed. Raises `ConfigError` if it cannot be relied on."""
    global _revoked  # noqa: PLW0603 - the file is asked about before every call
    file = DecisionFile(path, "the record of revoked approvals", _decode_seals, is_secret=True)
    version = file.find_version()
    if version is None:
        return frozenset()
    if _revoked is None or _revoked[:2] != (path, version):
        _revoked = path, version, file.load()
    return _revoked[2]


def _decode_seals(content: bytes) -> frozenset[str]:
    return frozenset(content.decode("ascii", "replace").splitlines())
