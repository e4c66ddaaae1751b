"""A folder of file snapshots: the contents of files before and after changes, each stored under its digest.

The same content is stored once, and its file has the time at which it was last stored: what was stored just now is not
removed as unused before the log names it. A content is checked against its digest when it is read: what another process
has changed or cut off is refused. Only the owner can read the folder.
"""

# ruff: noqa: PTH101, PTH103, PTH105, PTH108, PTH110, PTH118 - a Path would cost every start milliseconds
import contextlib
import os
import re
import secrets
from collections.abc import Callable, Collection, Generator
from typing import Final

from msgspec import Struct

from perdure.core.error import ConfigError

from .file_head import UnreadableFile, read_file_head
from .jail import MOST_READ_BYTES, compute_digest
from .perdure_home import expand_user_path
from .private_file import lock_folder
from .runtime_files import trust_runtime_file

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class RemovedSnapshots(Struct, frozen=True):
    """Number and total size of the file snapshots that were deleted."""

    count: int = 0
    size_bytes: int = 0


class SnapshotFolder:
    """A folder that stores contents of files by digest; a `FileSnapshotBackend` for the file tools."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Name the folder; it is made at the first use."""
        self.folder: str = os.path.abspath(expand_user_path(os.fspath(folder)))  # noqa: PTH100
        """Absolute path of the folder."""
        trust_runtime_file(self, self.folder, "folder")

    def save(self, data: bytes) -> str:
        """Store a content, and return its digest. Raises `ConfigError` if it cannot be written."""
        digest = compute_digest(data)
        place = self._place_of(digest)
        beside = f"{place}.{secrets.token_hex(8)}"
        try:
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)  # noqa: PTH120
            os.chmod(self.folder, 0o700)
            with lock_folder(self.folder):
                if os.path.exists(place):
                    os.utime(place)
                    return digest
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
        if compute_digest(found.data) != digest:
            raise ConfigError(f"the snapshot {digest[:12]} in {self.folder!r} is damaged, and is not used")
        return found.data

    def prune(self, older_than_seconds: float, now: float) -> int:
        """Delete contents that were stored before, and return their number: changes that need them cannot be undone."""
        return self._remove(lambda _: True, now - older_than_seconds).count

    def has_stored_before(self, time: float) -> bool:
        """Return True if there is a content that was last stored before a time, in seconds since 1970."""
        return any(found.st_mtime < time for _, _, found in self._list_files())

    def remove_unused(self, digests: Collection[str], *, stored_before: float) -> RemovedSnapshots:
        """Delete the contents with other digests than these that were last stored before a time.

        What another process stores meanwhile is kept. What a process has left that died while it stored is removed.
        """
        return self._remove(lambda digest: digest not in digests, stored_before)

    def _remove(self, is_unused: "Callable[[str], bool]", stored_before: float) -> RemovedSnapshots:
        count = size_bytes = 0
        for digest, place, found in self._list_files():
            if found.st_mtime >= stored_before or not is_unused(digest):
                continue
            with contextlib.suppress(OSError), lock_folder(self.folder):
                found = os.stat(place, follow_symlinks=False)  # noqa: PLW2901, PTH116 - it may have been stored again
                if found.st_mtime < stored_before:
                    os.unlink(place)
                    count, size_bytes = count + 1, size_bytes + found.st_size
        return RemovedSnapshots(count, size_bytes)

    def _list_files(self) -> "Generator[tuple[str, str, os.stat_result]]":
        """Yield the digest, the path and the state of each file; those that are half written have no true digest."""
        for folder, _, names in os.walk(self.folder):
            for name in names:
                place = os.path.join(folder, name)
                with contextlib.suppress(OSError):
                    yield os.path.basename(folder) + name, place, os.stat(place, follow_symlinks=False)  # noqa: PTH116, PTH119

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
