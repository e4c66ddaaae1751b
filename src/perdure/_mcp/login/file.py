"""File with the logins to MCP servers: OAuth tokens by server name, readable only by its owner."""

# ruff: noqa: PTH100, PTH103, PTH111, PTH120 - as in `pin_file`
import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from msgspec import Struct

from perdure._io.home.decision_file import DecisionFile
from perdure._io.home.paths import get_home_file_path
from perdure._io.home.runtime_files import trust_runtime_file

_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
REFRESH_SECONDS: Final = 60.0
"""How long to wait for another process that refreshes a token."""
_SECONDS_BETWEEN_TRIES: Final = 0.02


def get_default_logins_path() -> str:
    """Return the path of the file with the logins to MCP servers, in `~/.perdure` or the folder in PERDURE_HOME."""
    return get_home_file_path("mcp_logins.json")


class StoredLogin(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Stored login to one MCP server: its OAuth tokens, and what is needed to refresh them."""

    url: str
    """The URL of the server that the tokens are for; they are sent to no other."""
    resource: str
    issuer: str
    token_endpoint: str
    client_id: str
    client_secret: str = ""
    access_token: str
    refresh_token: str = ""
    expires_at: float = 0.0
    """Time at which the access token expires, in seconds since 1970; 0 if that is not known."""
    scope: str = ""

    def __repr__(self) -> str:
        return f"StoredLogin({self.url!r})"


class LoginFile:
    """File with the logins to MCP servers (OAuth tokens) by server name, readable only by its owner."""

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        self.path: str = os.path.abspath(os.path.expanduser(os.fspath(path)))
        """The file."""
        self._file = DecisionFile(
            self.path,
            "the login file of MCP servers",
            _decode_logins,
            repair="delete it, and log in again",
            is_secret=True,
            max_bytes=_MAX_FILE_BYTES,
        )
        trust_runtime_file(self, self.path, "file")

    def load(self) -> dict[str, StoredLogin]:
        """Return the logins by server. Raises `ConfigError` if the file is damaged, or others can read it."""
        return self._file.load()

    def get(self, name: str) -> StoredLogin | None:
        """Return the login to a server, or `None`."""
        return self.load().get(name)

    def store(self, name: str, login: StoredLogin) -> None:
        """Store the login to a server, in place of an older one."""
        with self._file.lock():
            self._write({**self.load(), name: login})

    def remove(self, name: str) -> bool:
        """Remove the login to a server; return False if there is none."""
        with self._file.lock():
            logins = self.load()
            if logins.pop(name, None) is None:
                return False
            self._write(logins)
            return True

    def exchange(self, name: str, old: StoredLogin, new: StoredLogin | None) -> bool:
        """Store another login, or none, in place of `old`; return False if the stored one is not `old` any more."""
        with self._file.lock():
            logins = self.load()
            if logins.pop(name, None) != old:
                return False
            self._write(logins if new is None else {**logins, name: new})
            return True

    @asynccontextmanager
    async def lock_refresh(self) -> AsyncGenerator[None]:
        """Keep other tasks and processes from refreshing a token during a block: a refresh token can be used once.

        One that takes longer than any request is not waited for.
        """
        import fcntl  # which Windows does not have

        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        descriptor = os.open(f"{self.path}.refresh.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_SECONDS):
                    while not _try_lock(fcntl, descriptor):  # noqa: ASYNC110 - a lock of the file system has no event
                        await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
            yield
        finally:
            os.close(descriptor)

    def _write(self, logins: dict[str, StoredLogin]) -> None:
        self._file.replace(msgspec.json.encode(logins))


def _decode_logins(content: bytes) -> dict[str, StoredLogin]:
    return msgspec.json.decode(content, type=dict[str, StoredLogin]) if content else {}


def _try_lock(fcntl: Any, descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
