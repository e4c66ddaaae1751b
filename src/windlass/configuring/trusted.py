"""Which configuration files somebody has agreed to, by their content. Above: the command line. Below: a file of JSON.

Trust is bound to the SHA-256 of a file. When one byte of it changes, it is another file, and asked for again.
"""

# a Path would cost every start milliseconds:
# ruff: noqa: PTH100, PTH103, PTH105, PTH108, PTH111, PTH116, PTH120, PTH123
import contextlib
import os
import stat
from typing import Final

import msgspec
from msgspec import Struct

from windlass.context.text_file import Unreadable, read_beginning
from windlass.core import check
from windlass.core.clock import new_id
from windlass.core.error import ConfigError

_MOST_BYTES: Final = 16 * 1024 * 1024
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class _Entry(Struct, frozen=True):
    digest: str
    path: str
    """Where the file lay when it was trusted: for people, and to forget what it said before."""


class _File(Struct, frozen=True):
    trusted: tuple[_Entry, ...] = ()


class TrustedFiles:
    """Trust in configuration files, kept in a file that its owner alone can write to.

    It can be called with a digest, which is what `load_config(…, trusted=…)` does. A file that is damaged, or that
    others can write to, trusts nothing.
    """

    def __init__(self, path: str) -> None:
        check.text("TrustedFiles", "path", path, filled=True)
        self.path = os.path.abspath(os.path.expanduser(path))
        """The file."""

    def __call__(self, digest: str) -> bool:
        """Whether somebody has agreed to this content."""
        return any(each.digest == digest for each in self._entries())

    def trust(self, path: str, digest: str) -> None:
        """Agree to a file as it is now, in place of what it was before."""
        real = os.path.realpath(path)
        kept = [each for each in self._entries() if each.path != real and each.digest != digest]
        self._write([*kept, _Entry(digest, real)])

    def revoke(self, path: str, digest: str) -> bool:
        """Take it back, for this content and for any other that the file had; false when there was no trust."""
        entries = self._entries()
        real = os.path.realpath(path)
        left = [each for each in entries if each.path != real and each.digest != digest]
        if len(left) < len(entries):
            self._write(left)
        return len(left) < len(entries)

    def _entries(self) -> tuple[_Entry, ...]:
        if not os.path.lexists(self.path):
            return ()
        try:
            data = read_beginning(self.path, _MOST_BYTES).data
            mode = os.stat(self.path).st_mode
        except (Unreadable, OSError) as error:
            raise ConfigError(f"the file of trusted configurations cannot be read: {error}") from error
        if os.name == "posix" and mode & _OTHERS_WRITE:
            raise ConfigError(
                f"others can write to {self.path!r}, so it trusts nothing: chmod 600 it, and look into it"
            )
        try:
            return msgspec.json.decode(data, type=_File).trusted
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{self.path!r} cannot be understood ({error}), so it trusts nothing: delete it"
            ) from error

    def _write(self, entries: list[_Entry]) -> None:
        """Put another file in the place of the old one, at once: a reader sees one of them, and never a half."""
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        data = msgspec.json.format(msgspec.json.encode(_File(tuple(entries))), indent=2)
        beside = f"{self.path}.{new_id()}"
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(data + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise
