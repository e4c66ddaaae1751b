"""Read the files that a configuration names, each once, and hash them all together.

Trust in a configuration is trust in everything that it names, where it lies: the digest covers the file, its place, and
the content of each file behind it. What is hashed is what is used, as no file is read a second time.
"""

# ruff: noqa: PTH111, PTH118 - a Path would cost milliseconds, and adds nothing here
import hashlib
import os
from collections.abc import Mapping
from typing import Final

from perdure.context.skills.skill_files_and_hashes import combine_hashes, hash_files
from perdure.core.error import ConfigError
from perdure.files.confined_folder import ConfinedFolder, FileRefused
from perdure.files.file_head import FileHead, read_file_head
from perdure.files.sensitive_names import SENSITIVE_NAMES

UNREADABLE: Final = "cannot be read"
"""Stands for the digest of a file that cannot be read."""


def compute_trust_digest(place: str, digests: Mapping[str, str]) -> str:
    """Compute the digest under which a configuration file is trusted, from its path and the digests of its files."""
    return combine_hashes({"": os.path.realpath(os.path.expanduser(place)), **digests})


class ReferencedFiles:
    """The files that a configuration file names, each read once, and their digests.

    Unless the configuration is trusted, they must be inside its folder.
    """

    def __init__(self, folder: str, *, is_trusted: bool) -> None:
        self.digests: dict[str, str] = {}
        """SHA-256 of each file that was read, by its path with links resolved."""
        self._folder = folder
        self._is_trusted = is_trusted

    def resolve(self, named: str) -> str:
        """Return the path of a file or folder that the configuration names, with links resolved."""
        return os.path.realpath(os.path.join(self._folder, os.path.expanduser(named)))

    def read_file(self, named: str, max_bytes: int) -> bytes:
        """Read a file that the configuration names. Raises `ConfigError`, also if it is too large."""
        path = self.resolve(named)
        if self._is_trusted:
            found = read_file_head(path, max_bytes)
            self._record(path, found)
        else:
            found = self._confine().read_head(path, max_bytes)
        if found.is_truncated:
            raise FileRefused(f"{path!r} has {found.size:,} bytes, and the limit is {max_bytes:,}: make it shorter")
        return found.data

    def open_folder(self, named: str) -> ConfinedFolder:
        """Open a folder that the configuration names; files read from it are recorded. Raises `FileRefused`."""
        path = self.resolve(named)
        return ConfinedFolder(path, on_read=self._record) if self._is_trusted else self._confine().enter(path)

    def record_file(self, named: str, max_bytes: int) -> None:
        """Record the current hash of a file that is read elsewhere."""
        path = self.resolve(named)
        try:
            self._record(path, read_file_head(path, max_bytes))
        except ConfigError:
            self.digests[path] = UNREADABLE

    def record_skills(self, named: str) -> None:
        """Record the current hash of all files of a folder with skills."""
        path = self.resolve(named)
        self.digests[path] = hash_skills(path)

    def _confine(self) -> ConfinedFolder:
        return ConfinedFolder(self._folder, blocked=SENSITIVE_NAMES, on_read=self._record)

    def _record(self, path: str, found: FileHead) -> None:
        self.digests[path] = hashlib.sha256(found.data).hexdigest()


def hash_skills(folder: str) -> str:
    """Return a hash of all files in a folder with skills, and of their names."""
    try:
        return combine_hashes(hash_files(folder))
    except (OSError, ConfigError):
        return UNREADABLE
