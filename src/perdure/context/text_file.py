"""One text file of somebody's, read within bounds. Above: project files, skills, roles, prompts,
configuration. Below: `os`.

What lies in a project may be anything: a pipe that nobody writes to, a device, a terabyte, bytes that are no text. So
only regular files are opened, without waiting, and no more of them is read than is wanted.
"""

# ruff: noqa: PTH116 - a Path would cost every start milliseconds, and adds nothing here
import os
import re
import stat
from typing import Final, NamedTuple

from perdure.core.error import ConfigError

_WITHOUT_WAITING: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_BOM: Final = b"\xef\xbb\xbf"
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
_UNSEEN: Final = re.compile(  # but not NUL, which makes a file none of text, nor the joiners that some scripts need
    "[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)


class Unreadable(ConfigError):
    """A file cannot be read; the message names it and says why."""


class Beginning(NamedTuple):
    """As much of a file as was asked for."""

    data: bytes
    size: int
    """Of all of it, in bytes."""

    @property
    def cut(self) -> bool:
        """Whether there is more."""
        return self.size > len(self.data)


def read_beginning(path: str, most_bytes: int) -> Beginning:
    """The first bytes of a regular file. Raises `Unreadable` for whatever else is there, and when nothing is."""
    try:
        _check_kind(path, os.stat(path))  # opening a device may do something already
        descriptor = os.open(path, os.O_RDONLY | _WITHOUT_WAITING)
        try:
            _check_kind(path, status := os.fstat(descriptor))
            data = _read(descriptor, most_bytes)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:  # a ValueError for a path that no file system takes
        if isinstance(error, Unreadable):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreadable(f"{path!r} cannot be read: {reason}") from error
    return Beginning(data, max(status.st_size, len(data)))


def read_whole(path: str, most_bytes: int) -> str:
    """The text of a file, its lines ended by a newline alone. Raises `Unreadable` when it is too long, or no UTF-8."""
    found = read_beginning(path, most_bytes)
    if found.cut:
        raise Unreadable(f"{path!r} has {found.size:,} bytes, and {most_bytes:,} are the most: make it shorter")
    try:
        text = found.data.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        line = found.data.count(b"\n", 0, error.start) + 1
        raise Unreadable(f"{path!r} is no UTF-8 on line {line}: save it as UTF-8") from error
    return text.replace("\r\n", "\n")


def lenient_text(found: Beginning) -> tuple[str, bool]:
    """What was read as text, whatever it is, and whether something had to be replaced by U+FFFD."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")
    data, whole = found.data.removeprefix(_BOM), not found.cut  # a character may be cut in two; its half is left out
    try:
        text, broken = decoder().decode(data, whole), False
    except UnicodeDecodeError:
        text, broken = decoder("replace").decode(data, whole), True
    usable = text.replace("\r\n", "\n").replace("\0", "\ufffd")
    return usable, broken or "\0" in text


def seen(text: str) -> str:
    """The text without escape sequences and without characters that nobody sees. Lines stay as they are.

    Escape sequences act on terminals, overrides turn the reading direction, and tag characters say things to a model
    that no person who reviews the file can see.
    """
    return _UNSEEN.sub("", _ESCAPES.sub("", text))


def lies_below(path: str, folder: str) -> bool:
    """Whether a path is inside a folder, both with their links resolved."""
    try:
        return os.path.commonpath([path, folder]) == folder
    except ValueError:  # on another drive
        return False


def _check_kind(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise Unreadable(f"{path!r} is {kind}: name a file of text")


def _read(descriptor: int, most_bytes: int) -> bytes:
    """A single read may stop short of what is there."""
    parts: list[bytes] = []
    while most_bytes > 0 and (part := os.read(descriptor, min(most_bytes, 1 << 20))):
        parts.append(part)
        most_bytes -= len(part)
    return b"".join(parts)
