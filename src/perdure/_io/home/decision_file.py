"""A private file with what a user has decided, or entrusts to the runtime: grants, pins, trust, secrets, logins.

Nobody else may have written it, and nobody else may read one with secrets. It is checked each time it is read: what is
damaged, a link, or the file of another user does not count as empty, but is refused with what to do. It is never
changed in place: a new file replaces it, while its folder is locked against other processes.
"""

# ruff: noqa: PTH103, PTH120 - pathlib would cost every start milliseconds
import contextlib
import os
import stat
import threading
from collections.abc import Callable, Generator
from typing import Final, Generic, NamedTuple, NoReturn, TypeVar

import msgspec

from perdure._core.values.error import ConfigError, PerdureError

from .paths import lock_folder, replace_private_file

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_READ: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_IS_POSIX: Final = os.name == "posix"
MAX_DECISION_BYTES: Final = 64 * 1024 * 1024
"""Limit on the size of a file, unless a smaller one is given."""


_Content = TypeVar("_Content")


class FileVersion(NamedTuple):
    """What changes when the file does."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class DecisionFile(Generic[_Content]):
    """A private file with what a user has decided: checked when it is read, and replaced as a whole under a lock."""

    def __init__(
        self, path: str, title: str, decode: Callable[[bytes], _Content], *,
        repair: str = "correct it, or delete it", is_secret: bool = False, error: type[PerdureError] = ConfigError,
        max_bytes: int = MAX_DECISION_BYTES,
    ) -> None:  # fmt: skip
        """Use the file at this path, which need not exist.

        Args:
            path: Path of the file.
            title: What it is, for messages, such as `the grant file`.
            decode: Function that makes a value of its content; of no bytes if there is no file.
            repair: What the user can do about a damaged file.
            is_secret: Whether others may not even read it.
            error: Class of the errors that are raised.
            max_bytes: Limit on its size.
        """
        self.path = path
        self._title = title
        self._decode = decode
        self._repair = repair
        self._is_secret = is_secret
        self._error = error
        self._max_bytes = max_bytes
        self._changing = threading.Lock()

    # -- reading -------------------------------------------------------------------------------------------------------

    def find_version(self) -> FileVersion | None:
        """Return what changes with the file, after checking it; `None` if there is none."""
        with self._convert_os_errors("read"):
            try:
                found = os.lstat(self.path)
            except FileNotFoundError:
                return None
        self._check(found)
        return FileVersion(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def load(self) -> _Content:
        """Return the decoded content. An empty file is one that is covered while a command runs: it is not there."""
        content = self.read()
        try:
            return self._decode(content)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # the text of one may have a secret in it
            problem = "" if self._is_secret else f" ({error})"
            self._refuse(f"cannot be parsed{problem}", self._repair, None if self._is_secret else error)

    def read(self) -> bytes:
        """Return the content of the file; no bytes if there is none."""
        if self.find_version() is None:
            return b""
        with self._convert_os_errors("read"):
            try:
                descriptor = os.open(self.path, _READ)
            except FileNotFoundError:
                return b""
            try:
                self._check(os.fstat(descriptor))  # another file may have taken its place
                with open(descriptor, "rb", closefd=False) as file:
                    content = file.read(self._max_bytes + 1)
            finally:
                os.close(descriptor)
        if len(content) > self._max_bytes:
            self._refuse(f"has more than {self._max_bytes} bytes", self._repair)
        return content

    def _check(self, found: os.stat_result) -> None:
        """Raise an error if the file is none, or if anybody else may have written it, or may read a secret."""
        if stat.S_ISLNK(found.st_mode):
            self._refuse("is a link", "give the path of the file that it leads to, or move it away")
        if not stat.S_ISREG(found.st_mode):
            self._refuse("is no regular file", "move it away")
        if not _IS_POSIX:
            return
        if found.st_uid not in {0, os.geteuid()}:
            self._refuse(f"belongs to another user (uid {found.st_uid})", "make it yours with chown, and check it")
        if found.st_mode & (_OTHERS if self._is_secret else _OTHERS_WRITE):
            mode = stat.S_IMODE(found.st_mode)
            if self._is_secret:
                self._refuse(f"can be used by others (mode {mode:04o})", "chmod 600 it, and renew what is in it")
            self._refuse(f"can be changed by others (mode {mode:04o})", "chmod 600 it, and check its content")

    # -- writing -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def lock(self) -> Generator[None]:
        """Keep other threads and processes from changing the file during a block; its folder is made if there is none.

        What the block reads is what `replace` replaces.
        """
        with self._changing, contextlib.ExitStack() as stack:
            with self._convert_os_errors("written"):
                folder = os.path.dirname(self.path) or os.curdir
                os.makedirs(folder, mode=0o700, exist_ok=True)
                stack.enter_context(lock_folder(folder))
            yield

    def replace(self, content: bytes) -> None:
        """Replace the file by one with this content, which is on the disk when this returns; call it under the lock."""
        with self._convert_os_errors("written"):
            replace_private_file(self.path, content)

    @contextlib.contextmanager
    def _convert_os_errors(self, done: str) -> Generator[None]:
        try:
            yield
        except OSError as error:
            problem = f"cannot be {done}: {error.strerror or error}; check the disk and the permissions"
            raise self._error(f"{self._title} {self.path!r} {problem}") from error

    def _refuse(self, problem: str, repair: str, cause: BaseException | None = None) -> NoReturn:
        raise self._error(f"{self._title} {self.path!r} {problem}, so it is not used: {repair}") from cause
