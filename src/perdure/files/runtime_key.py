"""The key with which the runtime signs what it stores where others can write, and so recognizes it later.

It is the file `grant-key` of the folder of the runtime, which commands and tools cannot read: whoever cannot read
it can forge nothing. Processes that share a store share the key: `PERDURE_GRANT_KEY` has it for several machines.
"""

# ruff: noqa: PTH103, PTH108, PTH120 - pathlib would cost every start milliseconds
import contextlib
import hashlib
import hmac
import os
import secrets
from typing import Final

from perdure.core.error import ConfigError

from .decision_file import DecisionFile
from .perdure_home import get_home_file_path

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
