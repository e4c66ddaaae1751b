"""File with the logins to MCP servers: OAuth tokens by server name, readable only by its owner."""

# ruff: noqa: PTH100, PTH103, PTH111, PTH119, PTH120 - as in `pin_file`
import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import msgspec
from msgspec import Struct

from perdure.core.error import ConfigError
from perdure.files.atomic_file import open_atomic_file
from perdure.files.perdure_home import get_home_file_path
from perdure.files.runtime_files import trust_runtime_file

_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_FOR_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
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
        trust_runtime_file(self, self.path, "file")

    def load(self) -> dict[str, StoredLogin]:
        """Return the logins by server. Raises `ConfigError` if the file is damaged, or others can read it."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"the logins to MCP servers cannot be read: {error}") from error
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise ConfigError(f"{self.path!r} is not a file: move it away, and log in again")
            if mode & _FOR_OTHERS:
                raise ConfigError(f"others can use {self.path!r}, so it is not used: chmod 600 it, and log in again")
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(_MAX_FILE_BYTES)
        finally:
            os.close(descriptor)
        if not data:  # it is not there yet, and is covered while a command runs
            return {}
        try:
            return msgspec.json.decode(data, type=dict[str, StoredLogin])
        except msgspec.MsgspecError:  # whose text could have a token in it
            raise ConfigError(
                f"{self.path!r} cannot be parsed, so it is not used: delete it, and log in again"
            ) from None

    def get(self, name: str) -> StoredLogin | None:
        """Return the login to a server, or `None`."""
        return self.load().get(name)

    def store(self, name: str, login: StoredLogin) -> None:
        """Store the login to a server, in place of an older one."""
        with self.lock():
            self._write({**self.load(), name: login})

    def remove(self, name: str) -> bool:
        """Remove the login to a server; return False if there is none."""
        with self.lock():
            logins = self.load()
            if logins.pop(name, None) is None:
                return False
            self._write(logins)
            return True

    def exchange(self, name: str, old: StoredLogin, new: StoredLogin | None) -> bool:
        """Store another login, or none, in place of `old`; return False if the stored one is not `old` any more."""
        with self.lock():
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

    @contextmanager
    def lock(self) -> Generator[None]:
        """Keep other processes from changing the file during a block."""
        import fcntl  # which Windows does not have

        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        descriptor = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _write(self, logins: dict[str, StoredLogin]) -> None:
        folder = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            with open_atomic_file(folder, os.path.basename(self.path)) as file:
                os.fchmod(file.descriptor, 0o600)
                data = memoryview(msgspec.json.encode(logins))
                while data:
                    data = data[os.write(file.descriptor, data) :]
                os.fsync(file.descriptor)
                file.replace()
            os.fsync(folder)
        finally:
            os.close(folder)


def _try_lock(fcntl: Any, descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
