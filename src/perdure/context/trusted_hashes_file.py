"""A file that lists the files and folders that a user has trusted, with the hash of their content.

Trust is bound to a digest: when one byte changes, it is asked for again.
"""

# ruff: noqa: PTH100, PTH103, PTH105, PTH108, PTH111, PTH116, PTH119, PTH120, PTH123 - pathlib would cost every start milliseconds
import contextlib
import os
import stat
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from perdure.core.clock_and_ids import new_id
from perdure.core.error import ConfigError
from perdure.files.file_head import UnreadableFile, read_file_head
from perdure.files.runtime_files import trust_runtime_file

_MOST_BYTES: Final = 16 * 1024 * 1024
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class TrustedItem(Struct, frozen=True, omit_defaults=True):
    """A file or directory that the user has trusted, with the hash of its content."""

    digest: str
    """Digest of its content."""
    path: str
    """Its path at that time: for display, and to replace earlier trust."""
    name: str = ""
    """Its name at that time."""
    files: dict[str, str] = {}
    """Digest of each file that it covers, by path, to name those that have changed."""


class _File(Struct, frozen=True):
    trusted: tuple[TrustedItem, ...] = ()


class TrustFile:
    """A file that lists what the user has trusted. Reading it fails if it is damaged, or if others can write to it."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        """The file."""
        trust_runtime_file(self, self.path, "file")

    def load_trusted(self) -> tuple[TrustedItem, ...]:
        """Return all trusted items. Raise `ConfigError` if the file cannot be used."""
        if not os.path.lexists(self.path):
            return ()
        try:
            data = read_file_head(self.path, _MOST_BYTES).data
        except (UnreadableFile, OSError) as error:
            raise ConfigError(f"the trust file cannot be read: {error}") from error
        self._check_writers()
        if not data:  # it is not there yet, and is covered while a command runs
            return ()
        try:
            return msgspec.json.decode(data, type=_File).trusted
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path!r} cannot be parsed ({error}), so it is not used: delete it") from error

    def add_trusted(self, agreed: TrustedItem) -> None:
        """Trust an item with its current content, in place of earlier content."""
        kept = [each for each in self.load_trusted() if each.path != agreed.path]
        self._write_atomically([*kept, agreed])

    def remove_trusted(self, path: str) -> bool:
        """Revoke trust for any content at this path. Return False if there was none."""
        agreed = self.load_trusted()
        left = [each for each in agreed if each.path != path]
        if len(left) < len(agreed):
            self._write_atomically(left)
        return len(left) < len(agreed)

    def _check_writers(self) -> None:
        """Raise `ConfigError` if another user could have written the file, or could replace it."""
        if os.name != "posix":
            return
        found, folder = os.stat(self.path), os.path.dirname(self.path)
        if found.st_mode & _OTHERS_WRITE:
            raise ConfigError(
                f"others can write to {self.path!r}, so it is not used: chmod 600 it, and check its content"
            )
        if found.st_uid not in {0, os.geteuid()}:
            raise ConfigError(f"{self.path!r} belongs to another user, so it is not used: delete it")
        if os.stat(folder).st_mode & _OTHERS_WRITE:
            raise ConfigError(
                f"others can write to {folder!r}, so {os.path.basename(self.path)} in it is not used: chmod 700 it, "
                "and check the file"
            )

    def _write_atomically(self, agreed: Sequence[TrustedItem]) -> None:
        """Replace the file atomically: a reader sees the old or the new content, never a part."""
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
