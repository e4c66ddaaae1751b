"""What somebody has agreed to, by its content, in a file. Above: trust in skills and in configurations. Below: `core`.

Trust is bound to a digest. When one byte changes it is something else, and asked for again.
"""

# ruff: noqa: PTH100, PTH103, PTH105, PTH108, PTH111, PTH120, PTH123 - pathlib would cost every start milliseconds
import contextlib
import os
import stat
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from perdure.core.clock import new_id
from perdure.core.error import ConfigError

from .text_file import Unreadable, read_beginning

_MOST_BYTES: Final = 16 * 1024 * 1024
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class Agreed(Struct, frozen=True, omit_defaults=True):
    """Something that was agreed to."""

    digest: str
    """Of its content."""
    path: str
    """Where it lay then: for people, and to forget what it said before."""
    name: str = ""
    """What it was called."""


class _File(Struct, frozen=True):
    trusted: tuple[Agreed, ...] = ()


class TrustFile:
    """A file that its owner alone can read and write. One that is damaged, or that others can write to, is an error."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        """The file."""

    def agreed(self) -> tuple[Agreed, ...]:
        """All that was agreed to. Raises `ConfigError`."""
        if not os.path.lexists(self.path):
            return ()
        try:
            data = read_beginning(self.path, _MOST_BYTES).data
            mode = os.stat(self.path).st_mode  # noqa: PTH116
        except (Unreadable, OSError) as error:
            raise ConfigError(f"the file of what is trusted cannot be read: {error}") from error
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

    def add(self, agreed: Agreed) -> None:
        """Agree to something as it is now, in place of what it was before."""
        kept = [each for each in self.agreed() if each.path != agreed.path and each.digest != agreed.digest]
        self._write([*kept, agreed])

    def remove(self, path: str, digest: str) -> bool:
        """Take it back, for this content and for any other that lay there; `False` when there was no trust."""
        agreed = self.agreed()
        left = [each for each in agreed if each.path != path and each.digest != digest]
        if len(left) < len(agreed):
            self._write(left)
        return len(left) < len(agreed)

    def _write(self, agreed: Sequence[Agreed]) -> None:
        """Put another file in the place of the old one, at once: a reader sees one of them, and never a half."""
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        data = msgspec.json.format(msgspec.json.encode(_File(tuple(agreed))), indent=2)
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
