"""A file with permission decisions (grants) that are remembered for ever, shared by several processes.

The file has a line of JSON for each grant. It is read again when it has changed, and never changed in place: a new
file, readable by its owner alone, replaces the old one under a lock. A file with a line that cannot be parsed is left
as it is, and an error is raised: a denial could be in it.
"""

# ruff: noqa: PTH103, PTH105, PTH108, PTH111, PTH116, PTH120 - pathlib would cost every start milliseconds
import contextlib
import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator

import msgspec

from perdure.core import argument_checks
from perdure.core.error import StoreError
from perdure.core.permissions import Grant, Grants

_PRIVATE = 0o600
_OTHERS_WRITE = 0o022
_IS_POSIX = os.name == "posix"


class GrantFile(Grants):
    """Grants (remembered permission decisions); those that are valid forever are stored in a file."""

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        """Use this file; it is created, for its owner alone, when there is a grant to store."""
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            argument_checks.raise_config_error("GrantFile", "path", path, "give the path of a file")
        super().__init__()
        self.path: str = os.path.expanduser(os.fspath(path))
        self._kept: dict[str, Grant] = {}
        self._version: tuple[int, ...] | None = None
        self._reload_if_changed()

    def remember(self, grant: Grant) -> None:
        """Add a grant; it replaces an older one for the same calls. One of scope `forever` is on the disk when this
        returns.
        """
        if isinstance(grant, Grant) and grant.holds_in_all_sessions:
            self._update_file(lambda kept: kept | {grant.grant_id: grant})
        else:
            super().remember(grant)

    def restore(self, grant: Grant) -> None:
        """Add a grant from a session's log, unless its scope is `forever`: those are only read from the file."""
        if grant.scope != "forever":
            super().restore(grant)

    def revoke(self, grant_id: str) -> bool:
        """Revoke a grant, in the file too; `False` when there is none of that id."""
        return self._remove_from_file(grant_id) or super().revoke(grant_id)

    def forget(self, grant_id: str, session_id: str = "") -> None:
        """Remove a grant after its revocation was found in a session's log, from the file too."""
        if not self._remove_from_file(grant_id):
            super().forget(grant_id, session_id)

    def __iter__(self) -> Iterator[Grant]:
        self._reload_if_changed()
        return iter([*self._kept.values(), *super().__iter__()])

    def __repr__(self) -> str:
        return f"GrantFile({self.path!r})"

    # -- the file ------------------------------------------------------------------------------------------------------

    def _remove_from_file(self, grant_id: str) -> bool:
        """Remove a grant from the file; return `False` when there is none of that id."""
        self._reload_if_changed()
        if grant_id not in self._kept:
            return False
        self._update_file(lambda kept: {name: grant for name, grant in kept.items() if name != grant_id})
        return True

    def _reload_if_changed(self) -> None:
        """Read the file again if it has changed."""
        with self._convert_os_errors("read"):
            try:
                found = os.stat(self.path)
            except FileNotFoundError:
                self._kept, self._version = {}, None
                return
            if _IS_POSIX and found.st_mode & _OTHERS_WRITE:
                mode = stat.S_IMODE(found.st_mode)
                raise StoreError(
                    f"the grants in {self.path!r} can be changed by others (mode {mode:04o}): chmod 600 them"
                )
            version = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if version != self._version:
                with open(self.path, "rb") as file:  # noqa: PTH123 - as above
                    self._kept = _parse_grants(self.path, file.read().splitlines())
                self._version = version

    def _update_file(self, change: Callable[[dict[str, Grant]], dict[str, Grant]]) -> None:
        """Apply a change to the grants of the file, under the lock."""
        with self._convert_os_errors("written"):
            os.makedirs(os.path.dirname(self.path) or ".", mode=0o700, exist_ok=True)
            with self._lock_folder():
                self._reload_if_changed()
                self._replace_file(change(self._kept).values())
            self._version = None
            self._reload_if_changed()

    @contextlib.contextmanager
    def _lock_folder(self) -> Generator[None]:
        """Lock the folder against other writers, also of other processes. This needs no lock file."""
        if not _IS_POSIX:
            yield
            return
        import fcntl

        folder = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _replace_file(self, grants: Iterable[Grant]) -> None:
        import secrets

        beside = f"{self.path}.{secrets.token_hex(8)}.new"
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
        try:
            with os.fdopen(file, "wb") as opened:
                opened.writelines([_encode_grant(each) for each in grants])
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(beside, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise

    @contextlib.contextmanager
    def _convert_os_errors(self, done: str) -> Generator[None]:
        """Context manager: convert an `OSError` to a `StoreError` that names the file."""
        try:
            yield
        except OSError as error:
            message = (
                f"the grants in {self.path!r} cannot be {done}: {error.strerror}; check the disk and the permissions"
            )
            raise StoreError(message) from error


def _encode_grant(grant: Grant) -> bytes:
    """Encode a grant as a line of the file, always with what it covers."""
    return msgspec.json.encode({**msgspec.to_builtins(grant), "covers": grant.covers}) + b"\n"


def _decode_grant(line: bytes) -> Grant | None:
    """Decode a line of the file; `None` for a permission of an older version, which is not bound to a tool."""
    grant = msgspec.json.decode(line, type=Grant)
    if "covers" in msgspec.json.decode(line):
        return grant
    return None if grant.allow else msgspec.structs.replace(grant, covers="target")


def _parse_grants(path: str, lines: Iterable[bytes]) -> dict[str, Grant]:
    grants: dict[str, Grant] = {}
    for number, line in enumerate(lines, 1):
        try:
            grant = _decode_grant(line) if line.strip() else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            message = f"line {number} of the grants in {path!r} cannot be parsed ({error}): correct it, or delete it"
            raise StoreError(message) from error
        if grant is not None and grant.scope == "forever":
            grants[grant.grant_id] = grant
    return grants
