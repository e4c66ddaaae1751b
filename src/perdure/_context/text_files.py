"""Read text files up to a size: decode their bytes, normalize line ends, and strip invisible characters.

Invalid bytes are refused (`decode_strictly`) or replaced (`decode_leniently`).
"""

# ruff: noqa: PTH118 - a Path would cost every start milliseconds
import os
import re
from typing import Final

from perdure._io.files.confined_folder import ConfinedFolder, FileRefused
from perdure._io.files.head import FileHead, UnreadableFile, read_file_head

_BOM: Final = b"\xef\xbb\xbf"
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
_UNSEEN: Final = re.compile(  # but not NUL, which no text file has, nor the joiners that some scripts need
    "[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def read_text_file(path: str, max_bytes: int) -> str:
    """Read a UTF-8 text file that the user named or trusts, with all line ends as newlines.

    Raises `UnreadableFile` if it is too long or not UTF-8.
    """
    found = read_file_head(path, max_bytes)
    if found.is_truncated:
        raise UnreadableFile(f"{path!r} has {found.size:,} bytes, and the limit is {max_bytes:,}: make it shorter")
    return decode_strictly(path, found.data)


def read_confined_text(folder: ConfinedFolder, path: str, max_bytes: int) -> str:
    """Read a UTF-8 text file inside a confined folder, with all line ends as newlines.

    Raises `UnreadableFile` with its path and the reason, also if it leads out of the folder.
    """
    shown = os.path.join(folder.root, path)
    try:
        data = folder.read_whole(path, max_bytes)
    except FileRefused as error:
        raise UnreadableFile(f"{shown!r} cannot be read: {error}") from error
    return decode_strictly(shown, data)


def decode_strictly(path: str, data: bytes) -> str:
    """Decode UTF-8, with all line ends as newlines. Raise `UnreadableFile`, with the line, for anything else."""
    try:
        text = data.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UnreadableFile(f"{path!r} is not UTF-8 on line {line}: save it as UTF-8") from error
    return text.replace("\r\n", "\n")


def decode_leniently(found: FileHead) -> tuple[str, bool]:
    """Decode the start of a file as UTF-8; return the text, and True if invalid bytes had to be replaced.

    They are replaced by U+FFFD, and so are NUL characters.
    """
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
    """Remove escape sequences and invisible characters from a text; line breaks are kept.

    Escape sequences act on terminals, overrides change the reading direction, and tag characters give a model text that
    no reviewer of the file can see.
    """
    return _UNSEEN.sub("", _ESCAPES.sub("", text))
