"""What people have allowed or denied for ever, in a file that several processes share. Above: gates. Below: `core`.

A line of JSON for each grant. The file is read again when it has changed, and never changed in place: what is written
is a new file, for its owner alone, which takes the place of the old one while no other process writes. A file with a
line that cannot be understood is left as it is, and said to be so: a denial could be in it.
"""

# ruff: noqa: PTH103, PTH105, PTH108, PTH111, PTH116, PTH120 - pathlib would cost every start milliseconds
import contextlib
import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator

import msgspec

from perdure.core import check
from perdure.core.error import StoreError
from perdure.core.permission import Grant, Grants

_PRIVATE = 0o600
_OTHERS_WRITE = 0o022
_IS_POSIX = os.name == "posix"


class GrantFile(Grants):
    """Grants, of which those that hold for ever are kept in a file. The others are in the log of their session."""

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        """Use this file; it is made, for its owner alone, when there is something to keep."""
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            check.refuse("GrantFile", "path", path, "give the path of a file")
        super().__init__()
        self.path: str = os.path.expanduser(os.fspath(path))
        self._kept: dict[str, Grant] = {}
        self._version: tuple[int, ...] | None = None
        self._read()

    def remember(self, grant: Grant) -> None:
        """Keep it; it replaces an older one for the same thing. One that holds for ever is on the disk after this."""
        if isinstance(grant, Grant) and grant.scope == "forever":
            self._change(lambda kept: kept | {grant.grant_id: grant})
        else:
            super().remember(grant)

    def restore(self, grant: Grant) -> None:
        """Take up again what a session's log remembers. What holds for ever is what the file says, and no log."""
        if grant.scope != "forever":
            super().restore(grant)

    def revoke(self, grant_id: str) -> bool:
        """Take one back, in the file too; `False` when there is none of that name."""
        self._read()
        if grant_id not in self._kept:
            return super().revoke(grant_id)
        self._change(lambda kept: {name: grant for name, grant in kept.items() if name != grant_id})
        return True

    def forget(self, grant_id: str) -> None:
        """Hold no more to what was taken back in a log, also in the file."""
        self.revoke(grant_id)

    def __iter__(self) -> Iterator[Grant]:
        self._read()
        return iter([*self._kept.values(), *super().__iter__()])

    def __repr__(self) -> str:
        return f"GrantFile({self.path!r})"

    # -- the file ------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Know what the file says now."""
        with self._told("read"):
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
                    self._kept = _parsed(self.path, file.read().splitlines())
                self._version = version

    def _change(self, change: Callable[[dict[str, Grant]], dict[str, Grant]]) -> None:
        """Change what the file says, from what it says when nobody else writes."""
        with self._told("written"):
            os.makedirs(os.path.dirname(self.path) or ".", mode=0o700, exist_ok=True)
            with self._alone():
                self._read()
                self._replace(change(self._kept).values())
            self._version = None
            self._read()

    @contextlib.contextmanager
    def _alone(self) -> Generator[None]:
        """One writer at a time, also of several processes: the folder is locked, which needs no file beside it."""
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

    def _replace(self, grants: Iterable[Grant]) -> None:
        import secrets

        beside = f"{self.path}.{secrets.token_hex(8)}.new"
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
        try:
            with os.fdopen(file, "wb") as opened:
                opened.writelines([msgspec.json.encode(each) + b"\n" for each in grants])
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(beside, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise

    @contextlib.contextmanager
    def _told(self, done: str) -> Generator[None]:
        try:
            yield
        except OSError as error:
            message = (
                f"the grants in {self.path!r} cannot be {done}: {error.strerror}; check the disk and the permissions"
            )
            raise StoreError(message) from error


def _parsed(path: str, lines: Iterable[bytes]) -> dict[str, Grant]:
    grants: dict[str, Grant] = {}
    for number, line in enumerate(lines, 1):
        try:
            grant = msgspec.json.decode(line, type=Grant) if line.strip() else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            message = f"line {number} of the grants in {path!r} cannot be understood ({error}): mend it, or delete it"
            raise StoreError(message) from error
        if grant is not None and grant.scope == "forever":
            grants[grant.grant_id] = grant
    return grants
