"""Credentials in a file of your own that nobody else can read. Above: callers. Below: `secret.py`.

The file is a JSON object of texts, or lines of `NAME=value`. It is read again when it has changed. One that others can
read, that is a link, or that is no ordinary file is refused. It is never changed in place: what is written is a new
file with the mode 0600, which takes the place of the old one.
"""

import contextlib
import os
import re
import stat
from collections.abc import Generator
from typing import Any, NoReturn

import msgspec

from perdure.core import check
from perdure.core.error import ConfigError

from .look import is_a
from .secret import Secret, check_name, checked

_LARGEST = 2**20
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z0-9_.-]+)\s*=(.*)")
_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z0-9_./+:@%^,-][A-Za-z0-9_./+:@%^,=-]*")
_PRIVATE = 0o600
_OTHERS = 0o077
_IS_POSIX = os.name == "posix"


class FileVault:
    """Credentials in a file with the mode 0600. A file that is not there holds none."""

    __slots__ = ("_path", "_read", "_version")

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        if not is_a(path, (str, os.PathLike)) or not os.fspath(path):
            check.refuse("FileVault", "path", path, "give the path of a file")
        self._path: str = os.path.expanduser(os.fspath(path))  # noqa: PTH111 - pathlib is slow to load
        self._version: tuple[int, ...] | None = None
        self._read: dict[str, Secret] = {}

    def __repr__(self) -> str:
        return f"FileVault({self._path!r})"

    def resolve(self, name: str) -> str | None:
        """The value of that name, as the file has it now."""
        secret = self._secrets().get(name)
        return None if secret is None else secret.reveal()

    def names(self) -> list[str]:
        """The names that the file has."""
        return list(self._secrets())

    def set(self, name: str, value: str | Secret) -> None:
        """Add a credential to the file, or give it another value. Makes the file if there is none."""
        check_name("FileVault.set", name)
        plain = checked(name, value)
        with self._alone():
            text = self._text()
            if _is_json(text, self._path):
                document = {**_parsed_json(text, self._path), name: plain}
                self._replace(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
            else:
                lines = _without(text, name)
                self._replace("".join([*lines, f"{name}={_quoted(plain)}\n"]))

    def remove(self, name: str) -> bool:
        """Take a credential out of the file; says whether there was one."""
        with self._alone():
            if name not in self.names():
                return False
            text = self._text()
            if _is_json(text, self._path):
                document = _parsed_json(text, self._path)
                document.pop(name)
                self._replace(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
            else:
                self._replace("".join(_without(text, name)))
            return True

    # -- reading -------------------------------------------------------------------------------------------------------

    def _secrets(self) -> dict[str, Secret]:
        with self._opened() as file:
            version = None if file is None else _version_of(os.fstat(file))
            if version is None or version != self._version:
                text = "" if file is None else _content(file, self._path)
                values = _parsed_json(text, self._path) if _is_json(text, self._path) else _parsed_lines(text)
                self._read = {name: Secret(value) for name, value in values.items()}
                self._version = version
        return self._read

    def _text(self) -> str:
        with self._opened() as file:
            return "" if file is None else _content(file, self._path)

    @contextlib.contextmanager
    def _opened(self) -> Generator[int | None]:
        """The file, checked after it was opened, so that nobody can put another one in its place in between."""
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        if os.path.islink(self._path):  # noqa: PTH114 - as above
            self._refuse("is a link", "give the path of the file that it leads to")
        try:
            file = os.open(self._path, flags)
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            self._refuse(f"cannot be opened ({error.strerror})", "make it a file of yours that you can read")
        try:
            self._check(os.fstat(file))
            yield file
        finally:
            os.close(file)

    def _check(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            self._refuse("is no ordinary file", "give the path of a file")
        if _IS_POSIX and found.st_mode & _OTHERS:
            mode = stat.S_IMODE(found.st_mode)
            self._refuse(f"can be used by others (mode {mode:04o})", f"run: chmod 600 {self._path}")
        if _IS_POSIX and found.st_uid not in {os.geteuid(), 0}:
            self._refuse(f"belongs to another user (uid {found.st_uid})", "make it yours with chown")

    # -- writing -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _alone(self) -> Generator[None]:
        """One writer at a time, also of several processes: the folder is locked, which needs no file beside it."""
        if not _IS_POSIX:
            yield
            return
        import fcntl

        folder = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    @property
    def _folder(self) -> str:
        return os.path.dirname(self._path) or "."  # noqa: PTH120 - as above

    def _replace(self, text: str) -> None:
        """Write another file beside the old one, and put it in its place when all of it is on the disk."""
        import secrets

        beside = f"{self._path}.{secrets.token_hex(8)}.new"
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), _PRIVATE)
        try:
            with os.fdopen(file, "w", encoding="utf-8", newline="") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(beside, self._path)  # noqa: PTH105 - as above
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)  # noqa: PTH108 - as above
            raise

    def _refuse(self, problem: str, advice: str) -> NoReturn:
        message = f"the vault {self._path!r} {problem}; {advice}"
        raise ConfigError(message)


def _version_of(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _content(file: int, path: str) -> str:
    data = b""
    while len(data) <= _LARGEST and (more := os.read(file, _LARGEST + 1)):
        data += more
    if len(data) > _LARGEST:
        raise ConfigError(
            f"the vault {path!r} has more than {_LARGEST} bytes; keep credentials in it, and nothing else"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"the vault {path!r} is not UTF-8; store it again as text") from None


def _is_json(text: str, path: str) -> bool:
    return text.lstrip().startswith("{") or (not text.strip() and path.endswith(".json"))


def _parsed_json(text: str, path: str) -> dict[str, str]:
    if not text.strip():
        return {}
    problem = "is no JSON object of texts"
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError):  # whose message may quote a value
        raise ConfigError(f'the vault {path!r} {problem}; write {{"name": "value", …}}') from None


def _parsed_lines(text: str) -> dict[str, str]:
    return {found[1]: _unquoted(found[2].strip()) for line in text.splitlines() if (found := _entry(line))}


def _entry(line: str) -> re.Match[str] | None:
    """A line that says a value; others are comments."""
    return None if line.lstrip().startswith("#") else _LINE.fullmatch(line)


def _without(text: str, name: str) -> list[str]:
    """The lines of the file, comments included, without the one of that name."""
    lines = [f"{line}\n" for line in text.splitlines()]
    return [line for line in lines if (found := _entry(line[:-1])) is None or found[1] != name]


def _unquoted(written: str) -> str:
    if len(written) > 1 and written[0] == written[-1] == '"':
        with contextlib.suppress(msgspec.DecodeError):
            decoded: Any = msgspec.json.decode(written)
            return str(decoded)
    if len(written) > 1 and written[0] == written[-1] and written[0] in "\"'":
        return written[1:-1]
    return written


def _quoted(value: str) -> str:
    """On one line, whatever is in it."""
    return value if _NEEDS_NO_QUOTES.fullmatch(value) else msgspec.json.encode(value).decode()
