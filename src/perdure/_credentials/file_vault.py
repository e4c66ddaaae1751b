"""A vault that reads secrets from a file which only its owner can read.

The file is a JSON object of texts, or lines of `NAME=value`. It is read again when it has changed. A file that others
can read, a link, or a special file is refused. It is never changed in place: a new file with the mode 0600 replaces the
old one.
"""

import contextlib
import os
import re
from typing import Any

import msgspec

from perdure._core.values import checks
from perdure._io.home.decision_file import DecisionFile, FileVersion
from perdure._io.home.paths import expand_user_path
from perdure._io.home.runtime_files import trust_runtime_file

from .secret import Secret, check_secret_name, check_secret_value, is_a

_MAX_BYTES = 2**20
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z0-9_.-]+)\s*=(.*)")
_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z0-9_./+:@%^,-][A-Za-z0-9_./+:@%^,=-]*")


class FileVault:
    """A vault with the secrets in a file that only its owner can read (mode 0600). A missing file is an empty vault."""

    __slots__ = ("__weakref__", "_file", "_path", "_secrets", "_version")

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        if not is_a(path, (str, os.PathLike)) or not os.fspath(path):
            checks.raise_config_error("FileVault", "path", path, "give the path of a file")
        self._path: str = expand_user_path(os.fspath(path))
        self._file = DecisionFile(
            self._path,
            "the vault",
            _decode,
            repair='write credentials alone into it, as UTF-8: lines of NAME=value, or {"name": "value", …}',
            is_secret=True,
            max_bytes=_MAX_BYTES,
        )
        self._version: FileVersion | None = None
        self._secrets: dict[str, Secret] = {}
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
        with self._file.lock():
            self._replace_entry(name, plain)

    def remove(self, name: str) -> bool:
        """Remove a secret from the file; return True if there was one."""
        with self._file.lock():
            if name not in self.names():
                return False
            self._replace_entry(name, None)
            return True

    def _read_secrets(self) -> dict[str, Secret]:
        """Return the secrets of the file, which is read again if it has changed."""
        version = self._file.find_version()
        if version is None or version != self._version:
            _, values = self._file.load()
            self._secrets, self._version = {each: Secret(value) for each, value in values.items()}, version
        return self._secrets

    def _replace_entry(self, name: str, value: str | None) -> None:
        """Write a secret to the file, in place of that of its name, or remove that; called under the lock."""
        text, values = self._file.load()
        if text.lstrip().startswith("{") or (not text.strip() and self._path.endswith(".json")):
            values.pop(name, None)
            document = values if value is None else {**values, name: value}
            content = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
        else:
            entry = [] if value is None else [f"{name}={_quote_value(value)}\n"]
            content = "".join([*_remove_entry(text, name), *entry]).encode()
        self._file.replace(content)


def _decode(content: bytes) -> tuple[str, dict[str, str]]:
    """Return the text of the file, and the values in it by name."""
    text = content.decode("utf-8-sig")
    if text.lstrip().startswith("{"):
        return text, msgspec.json.decode(text, type=dict[str, str])
    matches = [_match_entry(line) for line in text.splitlines()]
    return text, {found[1]: _unquote_value(found[2].strip()) for found in matches if found is not None}


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
