"""A folder that stores the contents of files before and after changes, each under its digest.

The same content is stored once. A content is checked against its digest when it is read: what another process has
changed or cut off is refused. Only the owner can read the folder.
"""

# ruff: noqa: PTH101, PTH103, PTH105, PTH108, PTH110, PTH111, PTH118 - a Path would cost every start milliseconds
import contextlib
import os
import re
import secrets
from typing import Final

from perdure.core.error import ConfigError

from .file_head import UnreadableFile, read_file_head
from .jail import MOST_READ_BYTES, digest_of

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class SnapshotFolder:
    """A folder that stores contents of files by digest; a `SnapshotBackend` for the file tools."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Name the folder; it is made at the first use."""
        self.folder: str = os.path.abspath(os.path.expanduser(os.fspath(folder)))  # noqa: PTH100
        """Absolute path of the folder."""

    def save(self, data: bytes) -> str:
        """Store a content, and return its digest. Raises `ConfigError` if it cannot be written."""
        digest = digest_of(data)
        place = self._place_of(digest)
        if os.path.exists(place):
            return digest
        beside = f"{place}.{secrets.token_hex(8)}"
        try:
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)  # noqa: PTH120
            os.chmod(self.folder, 0o700)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
            with os.fdopen(os.open(beside, flags, 0o600), "wb") as file:
                file.write(data)
            os.replace(beside, place)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise ConfigError(f"a snapshot cannot be stored in {self.folder!r}: {error.strerror}") from error
        return digest

    def load(self, digest: str) -> bytes:
        """Return a content. Raises `ConfigError` if it is not there, or is not what was stored."""
        try:
            found = read_file_head(self._place_of(digest), MOST_READ_BYTES)
        except UnreadableFile as error:
            raise ConfigError(_describe_missing(self.folder, digest)) from error
        if digest_of(found.data) != digest:
            raise ConfigError(f"the snapshot {digest[:12]} in {self.folder!r} is damaged, and is not used")
        return found.data

    def prune(self, older_than_seconds: float, now: float) -> int:
        """Delete contents that were stored before, and return their number: changes that need them cannot be undone."""
        count = 0
        for folder, _, names in os.walk(self.folder):
            for name in names:
                place = os.path.join(folder, name)
                with contextlib.suppress(OSError):
                    if os.stat(place, follow_symlinks=False).st_mtime < now - older_than_seconds:  # noqa: PTH116
                        os.unlink(place)
                        count += 1
        return count

    def _place_of(self, digest: str) -> str:
        if not _DIGEST.fullmatch(digest):
            raise ConfigError(f"{digest!r} is no digest of a snapshot")
        return os.path.join(self.folder, digest[:2], digest[2:])


def _describe_missing(folder: str, digest: str) -> str:
    """Return the message about a content that is not there: it was pruned, or the tools had another folder."""
    return (
        f"the content {digest[:12]} is not in the snapshots of {folder!r}: it was removed, or the tools stored it in "
        f"another folder; name that one: SnapshotFolder(…), or --snapshots on the command line"
    )
