"""Read untrusted text files within bounds.

A path in a project may be anything: a pipe without a writer, a device, a terabyte, bytes that are not text. So only
regular files are opened, without blocking, and no more is read than is needed.
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
_UNSEEN: Final = re.compile(  # but not NUL, which no text file has, nor the joiners that some scripts need
    "[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)


class UnreadableFile(ConfigError):
    """A file cannot be read; the message has its path and the reason."""


class FileHead(NamedTuple):
    """The first bytes of a file, and the size of the whole file."""

    data: bytes
    size: int
    """Size of the whole file, in bytes."""

    @property
    def is_truncated(self) -> bool:
        """True if the file has more bytes."""
        return self.size > len(self.data)


def read_file_head(path: str, max_bytes: int) -> FileHead:
    """Read at most `max_bytes` from the start of a regular file. Raise `UnreadableFile` if it is missing or not
    regular.
    """
    try:
        _check_regular_file(path, os.stat(path))  # opening a device may do something already
        descriptor = os.open(path, os.O_RDONLY | _WITHOUT_WAITING)
        try:
            _check_regular_file(path, status := os.fstat(descriptor))
            data = _read_bytes(descriptor, max_bytes)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:  # a ValueError for a path that no file system takes
        if isinstance(error, UnreadableFile):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableFile(f"{path!r} cannot be read: {reason}") from error
    return FileHead(data, max(status.st_size, len(data)))


def read_text_file(path: str, max_bytes: int) -> str:
    """Read a UTF-8 file, with all line ends as newlines. Raise `UnreadableFile` if it is too long or not UTF-8."""
    found = read_file_head(path, max_bytes)
    if found.is_truncated:
        raise UnreadableFile(f"{path!r} has {found.size:,} bytes, and the limit is {max_bytes:,}: make it shorter")
    try:
        text = found.data.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        line = found.data.count(b"\n", 0, error.start) + 1
        raise UnreadableFile(f"{path!r} is not UTF-8 on line {line}: save it as UTF-8") from error
    return text.replace("\r\n", "\n")


def decode_leniently(found: FileHead) -> tuple[str, bool]:
    """Decode the bytes as text; the second value is True if invalid ones were replaced by U+FFFD."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")
    data, whole = (
        found.data.removeprefix(_BOM),
        not found.is_truncated,
    )  # a character may be cut in two; its half is left out
    try:
        text, broken = decoder().decode(data, whole), False
    except UnicodeDecodeError:
        text, broken = decoder("replace").decode(data, whole), True
    usable = text.replace("\r\n", "\n").replace("\0", "\ufffd")
    return usable, broken or "\0" in text


def strip_invisible_characters(text: str) -> str:
    """Remove escape sequences and invisible characters from a text. Lines are kept.

    Escape sequences act on terminals, overrides change the reading direction, and tag characters give a model text that
    no reviewer of the file can see.
    """
    return _UNSEEN.sub("", _ESCAPES.sub("", text))


def is_path_below(path: str, folder: str) -> bool:
    """Return True if a path is inside a folder, both with links resolved."""
    try:
        return os.path.commonpath([path, folder]) == folder
    except ValueError:  # on different drives
        return False


def _check_regular_file(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise UnreadableFile(f"{path!r} is {kind}: name a file of text")


def _read_bytes(descriptor: int, most_bytes: int) -> bytes:
    """Read up to this many bytes; a single `os.read` may return fewer."""
    parts: list[bytes] = []
    while most_bytes > 0 and (part := os.read(descriptor, min(most_bytes, 1 << 20))):
        parts.append(part)
        most_bytes -= len(part)
    return b"".join(parts)
