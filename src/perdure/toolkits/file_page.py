"""Format pages of text files for the tool `read`, decode text, and detect image types."""

from typing import Final

from perdure.core.error import ToolError

MOST_LINES: Final = 2_000
"""The most lines of a page."""
MOST_BYTES: Final = 80 * 1024
"""The most bytes of a page."""
_IMAGE_BEGINNINGS: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def detect_image_type(data: bytes) -> str:
    """Return the media type of an image by its first bytes; empty if it is not an image that models accept."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begin, kind in _IMAGE_BEGINNINGS.items() if data.startswith(begin)), "")


def decode_text(data: bytes, path: str) -> str:
    """Decode the content of a text file for an edit. Raises `ToolError` unless it is UTF-8 text."""
    if b"\0" in data:
        raise ToolError(f"{path!r} is not a text file")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ToolError(f"{path!r} is not UTF-8 text (byte {error.start}), and is not edited") from error


def format_page(data: bytes, path: str, offset: int, limit: int, max_bytes: int, *, line_numbers: bool) -> str:
    """Format a page of lines from a text file, with a note if there are more. Raises `ToolError` if it is not text."""
    if b"\0" in data:
        raise ToolError(f"{path!r} is not a text file")
    if offset < 1 or limit < 1:
        raise ToolError(f"offset={offset}, limit={limit}: lines are counted from 1, and a page has at least one")
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()  # the end of the last line, and no line
    total = len(lines)
    if offset > max(total, 1):
        return f"[The file has {total:,} lines; there is none at offset {offset:,}.]"
    page = _take_lines(lines[offset - 1 : offset - 1 + min(limit, MOST_LINES)], max_bytes)
    last = offset + len(page) - 1
    shown = [f"{number}: {line}" for number, line in enumerate(page, offset)] if line_numbers else page
    notes: list[str] = []
    if page and len(page[-1]) < len(lines[last - 1]):
        notes.append(f"[Line {last} is cut off: it has {len(lines[last - 1]):,} characters.]")
    if offset > 1 or last < total:
        more = f" Use offset={last + 1} to continue." if last < total else ""
        notes.append(f"[Showing lines {offset}-{last} of {total}.{more}]")
    if "\ufffd" in text and b"\xef\xbf\xbd" not in data:
        notes.append("[The file is not UTF-8: \ufffd stands for bytes that are no text.]")
    return "\n".join([*shown, *notes]) or "(empty file)"


def _take_lines(lines: list[str], max_bytes: int) -> list[str]:
    """Return as many whole lines as fit; of a first line that does not fit, its beginning."""
    taken: list[str] = []
    left = max_bytes
    for line in lines:
        size = len(line.encode("utf-8", "replace")) + 1
        if size > left:
            break
        taken.append(line)
        left -= size
    return taken if taken or not lines else [lines[0].encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")]
