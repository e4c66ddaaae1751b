"""The keys with which the runtime signs what it stores and seals approvals, and the record of revoked seals."""

# ruff: noqa: PTH103, PTH108, PTH120 - pathlib would cost every start milliseconds

import contextlib
import hashlib
import hmac
import logging
import os
import secrets
from collections.abc import Collection, Iterable
from typing import Final

from perdure._core.values.error import ConfigError

from .decision_file import DecisionFile, FileVersion
from .paths import get_home_file_path

KEY_VARIABLE: Final = "PERDURE_GRANT_KEY"
_KEY_FILE: Final = "grant-key"
_LEAST_BYTES: Final = 32
_MAX_BYTES: Final = 4096


class RuntimeKey:
    """A secret key, from which each purpose has a key of its own: a signature for one is none for another."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, purpose: str, message: bytes) -> str:
        """Return the signature of a message for a purpose, in hexadecimal digits."""
        own = hmac.digest(self._secret, purpose.encode(), "sha256")
        return hmac.digest(own, message, "sha256").hex()

    def is_signed(self, purpose: str, message: bytes, signature: str) -> bool:
        """Return True if a signature is that of a message for a purpose; compared in constant time."""
        expected = self.sign(purpose, message).encode()
        return hmac.compare_digest(expected, signature.encode("utf-8", "surrogatepass"))

    @property
    def fingerprint(self) -> str:
        """A few digits by which two keys can be told apart, and from which neither can be computed."""
        return hashlib.sha256(b"fingerprint\0" + self._secret).hexdigest()[:12]


def build_process_key() -> RuntimeKey:
    """Return a key that only this process has, for what it keeps in memory."""
    return _PROCESS_KEY


_PROCESS_KEY: Final = RuntimeKey(secrets.token_bytes(_LEAST_BYTES))


def find_runtime_key() -> RuntimeKey | None:
    """Return the key of the user; `None` if none was made yet. Raises `ConfigError` if it cannot be used."""
    if not os.environ.get(KEY_VARIABLE) and not os.path.lexists(get_home_file_path(_KEY_FILE)):
        return None
    return load_runtime_key()


def load_runtime_key() -> RuntimeKey:
    """Return the key of the user, which is made where there is none. Raises `ConfigError` if it cannot be used."""
    if given := os.environ.get(KEY_VARIABLE):
        return RuntimeKey(_check_length(given.encode("utf-8", "surrogateescape"), KEY_VARIABLE))
    path = get_home_file_path(_KEY_FILE)
    try:
        if not os.path.lexists(path):
            _make_key_file(path)
        file = DecisionFile(path, "the key of the runtime", bytes.strip, is_secret=True, max_bytes=_MAX_BYTES)
        return RuntimeKey(_check_length(file.load(), path))
    except OSError as error:
        raise ConfigError(
            f"the key of the runtime, {path}, cannot be read or made ({error.strerror or error}): make the folder "
            f"writable, or set {KEY_VARIABLE} to {_LEAST_BYTES} or more random characters"
        ) from error


def _make_key_file(path: str) -> None:
    """Make a file with a new key. Of several processes that do so at once, all use the key of the first one."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    beside = f"{path}.{secrets.token_hex(8)}"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_hex(_LEAST_BYTES).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)  # unlike a rename, it replaces nothing
    finally:
        os.unlink(beside)


def _check_length(key: bytes, place: str) -> bytes:
    if len(key) < _LEAST_BYTES:
        raise ConfigError(f"the key in {place} has fewer than {_LEAST_BYTES} characters: give a longer one")
    return key


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
