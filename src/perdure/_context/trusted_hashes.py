"""A file that lists the files and folders that a user has trusted, with the hash of their content.

Trust is bound to a digest: when one byte changes, it is asked for again.
"""

# ruff: noqa: PTH100, PTH111, PTH116, PTH119, PTH120 - pathlib would cost every start milliseconds
import os
import stat
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from perdure._core.values.error import ConfigError
from perdure._io.home.decision_file import DecisionFile
from perdure._io.home.runtime_files import trust_runtime_file

_MAX_BYTES: Final = 16 * 1024 * 1024
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
    """A file that lists what the user has trusted.

    Reading it fails if it is damaged, or a link, or if others can write to it.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        """The file."""
        self._file = DecisionFile(self.path, "the trust file", _decode_trusted, max_bytes=_MAX_BYTES)
        trust_runtime_file(self, self.path, "file")

    def load_trusted(self) -> tuple[TrustedItem, ...]:
        """Return all trusted items. Raise `ConfigError` if the file cannot be used."""
        self._check_folder()
        return self._file.load()

    def add_trusted(self, agreed: TrustedItem) -> None:
        """Trust an item with its current content, in place of earlier content."""
        with self._file.lock():
            self._store([*[each for each in self.load_trusted() if each.path != agreed.path], agreed])

    def remove_trusted(self, path: str) -> bool:
        """Revoke trust for any content at this path. Return False if there was none."""
        with self._file.lock():
            agreed = self.load_trusted()
            left = [each for each in agreed if each.path != path]
            if len(left) < len(agreed):
                self._store(left)
            return len(left) < len(agreed)

    def _check_folder(self) -> None:
        """Raise `ConfigError` if another user could replace the file, whoever has written it."""
        folder = os.path.dirname(self.path)
        if os.name == "posix" and os.path.lexists(self.path) and os.stat(folder).st_mode & _OTHERS_WRITE:
            raise ConfigError(
                f"others can write to {folder!r}, so {os.path.basename(self.path)} in it is not used: chmod 700 it, "
                "and check the file"
            )

    def _store(self, agreed: Sequence[TrustedItem]) -> None:
        self._file.replace(msgspec.json.format(msgspec.json.encode(_File(tuple(agreed))), indent=2) + b"\n")


def _decode_trusted(content: bytes) -> tuple[TrustedItem, ...]:
    return msgspec.json.decode(content, type=_File).trusted if content else ()
