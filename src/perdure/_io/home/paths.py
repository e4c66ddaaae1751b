"""The folder of what the runtime keeps for a user: `~/.perdure` or PERDURE_HOME; and files for the user alone."""

# ruff: noqa: PTH105, PTH108, PTH111, PTH117, PTH118, PTH120, PTH123 - pathlib would cost every start milliseconds

import contextlib
import os
import stat
from collections.abc import Generator
from typing import Final

from perdure._core.values.clock import new_id
from perdure._core.values.error import ConfigError

HOME_VARIABLE: Final = "PERDURE_HOME"
_USUAL: Final = "~/.perdure"


def get_perdure_home() -> str:
    """Return the absolute path of the user's folder of the runtime: PERDURE_HOME, or else `~/.perdure`.

    Raises `ConfigError` if PERDURE_HOME is a relative path, which would lead into every project, and if there is no
    home folder.
    """
    given = os.environ.get(HOME_VARIABLE)
    path = os.path.expanduser(given or _USUAL)
    if os.path.isabs(path):
        return os.path.normpath(path)
    if given and not given.startswith("~"):
        raise ConfigError(
            f"PERDURE_HOME is {given!r}, a relative path: set it to an absolute one, such as /srv/perdure"
        )
    raise ConfigError(
        "there is no home folder: HOME is not an absolute path, or is not set and the system does not know this user; "
        "set PERDURE_HOME to the absolute path of a folder of your own"
    )


def get_user_home() -> str:
    """Return the absolute path of the user's home folder; without one, a path at which nothing can be.

    A relative one would lead into the working folder, whose files would count as the user's own.
    """
    return os.path.expanduser("~") if has_user_home() else os.devnull


def has_user_home() -> bool:
    """Return False if HOME is a relative path, or is not set and the system does not know the user."""
    return os.path.isabs(os.path.expanduser("~"))


def expand_user_path(path: str) -> str:
    """Return a path with `~` at its beginning replaced by the home folder.

    Raises `ConfigError` if there is none: `~` would be a folder in the working folder, which a repository can bring.
    """
    found = os.path.expanduser(path)
    if (path == "~" or path.startswith("~/")) and not os.path.isabs(found):
        raise ConfigError(
            f"{path!r} is in the home folder, and there is none: HOME is not an absolute path, or is not set and the "
            "system does not know this user; give an absolute path"
        )
    return found


def get_user_folder(variable: str, usual: str, home: str = "") -> str:
    """Return a folder of the user, such as that of settings: what a variable names, if that is absolute, or `usual`.

    `usual` is relative to the home folder.
    """
    given = os.environ.get(variable, "")
    return given if os.path.isabs(given) else os.path.join(home or get_user_home(), usual)


def get_home_file_path(name: str) -> str:
    """Return the absolute path of the file `name` in the user's folder of the runtime. Raises `ConfigError`."""
    return os.path.join(get_perdure_home(), name)


_PRIVATE: Final = 0o600
_IS_POSIX: Final = os.name == "posix"
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def open_private_file(path: str, flags: int) -> int:
    """Open a file so that only its owner can read it; pass it to `open` as the argument `opener`.

    The permissions of a file that is there already are taken from everybody else, before anything is written. Pipes and
    devices, such as `/dev/stdout`, keep theirs.
    """
    descriptor = os.open(path, flags, _PRIVATE)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) and stat.S_IMODE(mode) & ~_PRIVATE:
        with contextlib.suppress(OSError):  # the file of somebody else, which we may write to
            os.fchmod(descriptor, _PRIVATE)
    return descriptor


def replace_private_file(path: str, content: bytes, mode: int = _PRIVATE) -> None:
    """Replace a file, or a link, in one step, and wait until it is on the disk: readers see the old one or the new one.

    Only its owner can read it, unless `mode` has other permissions.
    """
    beside = f"{path}.{new_id()}"
    descriptor = os.open(beside, _NEW, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    _sync_folder(os.path.dirname(path) or os.curdir)


def _sync_folder(folder: str) -> None:
    """Wait until the new name is on the disk. A file system that cannot do that keeps what it has."""
    if not _IS_POSIX:
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def lock_folder(folder: str) -> Generator[None]:
    """Keep other threads and processes that do the same out of a folder during a block; that needs no lock file.

    Windows has no such locks: there, nobody is kept out.
    """
    if not _IS_POSIX:
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
