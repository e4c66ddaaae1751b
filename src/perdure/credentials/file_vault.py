"""A vault that reads secrets from a file which only its owner can read.

The file is a JSON object of texts, or lines of `NAME=value`. It is read again when it has changed. A file that others
can read, a link, or a special file is refused. It is never changed in place: a new file with the mode 0600 replaces the
old one.
"""

import contextlib
import os
import re
import stat
from collections.abc import Generator
from typing import Any, NoReturn

import msgspec

from perdure.core import argument_checks
from perdure.core.error import ConfigError
from perdure.files.perdure_home import expand_user_path
from perdure.files.runtime_files import trust_runtime_file

from .isinstance_without_narrowing import is_a
from .secret import Secret, check_secret_name, check_secret_value

_LARGEST = 2**20
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z0-9_.-]+)\s*=(.*)")
_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z0-9_./+:@%^,-][A-Za-z0-9_./+:@%^,=-]*")
_PRIVATE = 0o600
_OTHERS = 0o077
_IS_POSIX = os.name == "posix"


class FileVault:
    """A vault with the secrets in a file that only its owner can read (mode 0600). A missing file is an empty vault."""

    __slots__ = ("__weakref__", "_path", "_read", "_version")

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        if not is_a(path, (str, os.PathLike)) or not os.fspath(path):
            argument_checks.raise_config_error("FileVault", "path", path, "give the path of a file")
        self._path: str = expand_user_path(os.fspath(path))
        self._version: tuple[int, ...] | None = None
        self._read: dict[str, Secret] = {}
        trust_runtime_file(self, self._path, "file")

    def __repr__(self) -> str:
        return f"FileVault({self._path!r})"

    def resolve(self, name: str) -> str | None:
        """Return the secret of that name from the file as it is now; `None` if there is none."""
        secret = self._read_secrets().get(name)
        return None if secret is None else secret.reveal()

    def names(self) -> list[str]:
        """Return the names of all secrets in the file."""
        return list(self._read_secrets())

    def set(self, name: str, value: str | Secret) -> None:
        """Write a secret to the file, or change it. Creates the file if there is none."""
        check_secret_name("FileVault.set", name)
        plain = check_secret_value(name, value)
        with self._lock_folder():
            text = self._read_text()
            if _is_json(text, self._path):
                document = {**_parse_json(text, self._path), name: plain}
                self._replace_file(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
            else:
                lines = _remove_entry(text, name)
                self._replace_file("".join([*lines, f"{name}={_quote_value(plain)}\n"]))

    def remove(self, name: str) -> bool:
        """Remove a secret from the file; return True if there was one."""
        with self._lock_folder():
            if name not in self.names():
                return False
            text = self._read_text()
            if _is_json(text, self._path):
                document = _parse_json(text, self._path)
                document.pop(name)
                self._replace_file(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
            else:
                self._replace_file("".join(_remove_entry(text, name)))
            return True

    # -- reading -------------------------------------------------------------------------------------------------------

    def _read_secrets(self) -> dict[str, Secret]:
        with self._open_checked() as file:
            version = None if file is None else _get_file_version(os.fstat(file))
            if version is None or version != self._version:
                text = "" if file is None else _read_content(file, self._path)
                values = _parse_json(text, self._path) if _is_json(text, self._path) else _parse_lines(text)
                self._read = {name: Secret(value) for name, value in values.items()}
                self._version = version
        return self._read

    def _read_text(self) -> str:
        with self._open_checked() as file:
            return "" if file is None else _read_content(file, self._path)

    @contextlib.contextmanager
    def _open_checked(self) -> Generator[int | None]:
        """Open the file, and check it afterwards, so that it cannot be swapped in between."""
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        if os.path.islink(self._path):  # noqa: PTH114 - as above
            self._raise_bad_file("is a link", "give the path of the file that it leads to")
        try:
            file = os.open(self._path, flags)
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            self._raise_bad_file(f"cannot be opened ({error.strerror})", "make it a file of yours that you can read")
        try:
            self._check_file(os.fstat(file))
            yield file
        finally:
            os.close(file)

    def _check_file(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            self._raise_bad_file("is no ordinary file", "give the path of a file")
        if _IS_POSIX and found.st_mode & _OTHERS:
            mode = stat.S_IMODE(found.st_mode)
            self._raise_bad_file(f"can be used by others (mode {mode:04o})", f"run: chmod 600 {self._path}")
        if _IS_POSIX and found.st_uid not in {os.geteuid(), 0}:
            self._raise_bad_file(f"belongs to another user (uid {found.st_uid})", "make it yours with chown")

    # -- writing -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _lock_folder(self) -> Generator[None]:
        """Lock the folder against other writers, also of other processes; that needs no lock file."""
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

    def _replace_file(self, text: str) -> None:
        """Replace the file atomically: write a new one beside it, sync it to the disk, and rename it."""
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

    def _raise_bad_file(self, problem: str, advice: str) -> NoReturn:
        message = f"the vault {self._path!r} {problem}; {advice}"
        raise ConfigError(message)


def _get_file_version(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _read_content(file: int, path: str) -> str:
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


def _parse_json(text: str, path: str) -> dict[str, str]:
    if not text.strip():
        return {}
    problem = "is no JSON object of texts"
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError):  # whose message may quote a value
        raise ConfigError(f'the vault {path!r} {problem}; write {{"name": "value", …}}') from None


def _parse_lines(text: str) -> dict[str, str]:
    return {found[1]: _unquote_value(found[2].strip()) for line in text.splitlines() if (found := _match_entry(line))}


def _match_entry(line: str) -> re.Match[str] | None:
    """Match a line with a value; others are comments."""
    return None if line.lstrip().startswith("#") else _LINE.fullmatch(line)


def _remove_entry(text: str, name: str) -> list[str]:
    """Return the lines of the file, with comments, without the line of that name."""
    lines = [f"{line}\n" for line in text.splitlines()]
    return [line for line in lines if (found := _match_entry(line[:-1])) is None or found[1] != name]


def _unquote_value(written: str) -> str:
    if len(written) > 1 and written[0] == written[-1] == '"':
        with contextlib.suppress(msgspec.DecodeError):
            decoded: Any = msgspec.json.decode(written)
            return str(decoded)
    if len(written) > 1 and written[0] == written[-1] and written[0] in "\"'":
        return written[1:-1]
    return written


def _quote_value(value: str) -> str:
    """Quote a value so that it fits on one line."""
    return value if _NEEDS_NO_QUOTES.fullmatch(value) else msgspec.json.encode(value).decode()
