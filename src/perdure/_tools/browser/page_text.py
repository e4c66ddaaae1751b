"""Text of a browser's page for the model, and of its elements for people, in which pages cannot imitate what is ours.

An opening bracket without a backslash in front of it is always ours: a reference, the address of a frame, a note.
In what a page has written, brackets and backslashes have a backslash in front of them, and so have quotes in names.
"""

from typing import Final

from perdure._tools.web.html_text import remove_invisible_characters
from perdure._tools.web.tools import cut_text

from .backend import BrowserElement, BrowserFrame, BrowserSnapshot

PAGE_BYTES: Final = 24 * 1024
"""The size of the text of a page that a call returns; the rest is read with `browser_snapshot(offset=…)`."""
_MOST_NAME_CHARACTERS: Final = 200
_MOST_URL_CHARACTERS: Final = 500  # longer than any host
_TEXT_ESCAPES: Final = str.maketrans({"\\": "\\\\", "[": "\\["})
_NAME_ESCAPES: Final = str.maketrans({"\\": "\\\\", "[": "\\[", '"': '\\"'})


def escape_page_text(text: str) -> str:
    """Return a text that a page has written so that it cannot look like a reference, a frame or a note of ours."""
    return text.translate(_TEXT_ESCAPES)


def format_browser_snapshot(snapshot: BrowserSnapshot, offset: int = 0, max_bytes: int = PAGE_BYTES) -> str:
    """Format a page: `"title" — url`, its text with `[ref] role "name"` for each element, and how to get the rest."""
    text = "\n\n".join(
        [_format_frame(each, is_page=place == 0) for place, each in enumerate(snapshot.frames) if each.text.strip()]
    )
    begin = _find_whole_begin(text, offset)
    shown = cut_text(text[begin:], max_bytes)
    end = begin + len(shown)
    title = _quote(snapshot.title) if snapshot.title.strip() else "(no title)"
    lines = [f"{title} — {escape_page_text(shorten_url(snapshot.url))}"]
    lines += [*[f"[{escape_page_text(shorten_page_text(each))}]" for each in snapshot.notes], ""]
    lines.append(shown.removesuffix("\n") if text else "(no text)")
    if begin or end < len(text):
        more = f" Use browser_snapshot(offset={end}) to continue." if end < len(text) else ""
        lines.append(f"[Showing characters {begin:,}-{end:,} of {len(text):,}.{more}]")
    if any(each.is_truncated for each in snapshot.frames):
        lines.append("[The page is larger than what is read of it: its end is missing.]")
    return "\n".join(lines).rstrip()


def _find_whole_begin(text: str, offset: int) -> int:
    """Return an offset that does not part a character from the backslash in front of it."""
    slashes = len(text[:offset]) - len(text[:offset].rstrip("\\"))
    return offset - slashes % 2


def _format_frame(frame: BrowserFrame, *, is_page: bool) -> str:
    """Format the text of a frame, below a line with its address unless it is the page itself."""
    text = remove_invisible_characters(frame.text).strip()
    return text if is_page else f"[frame {escape_page_text(shorten_url(frame.url))}]\n{text}"


def format_browser_element(element: BrowserElement) -> str:
    """Format an element: `[ref] role "name"`, its value, state and options."""
    parts = [f"[{element.ref}] {element.role} {_quote(element.name)}"]
    if element.value:
        parts.append(f"= {_quote(element.value)}")
    parts += [f"({each})" for each in element.state]
    if element.options:
        parts.append(f"options: {' | '.join(map(_quote, element.options))}")
    return " ".join(parts)


def describe_browser_element(element: BrowserElement) -> str:
    """Describe an element for a person who is asked: role, name, state, the text near it and where it leads."""
    parts = [element.role, _quote(element.name), *[f"({each})" for each in element.state]]
    if element.nearby:
        parts.append(f"near {_quote(element.nearby)}")
    if element.destination:
        parts.append(f"leads to {shorten_url(element.destination)}")
    if element.within:
        parts.append(f"in a frame of {shorten_url(element.within)}")
    return " ".join(parts)


def _quote(text: str) -> str:
    return f'"{shorten_page_text(text).translate(_NAME_ESCAPES)}"'


def shorten_page_text(text: str) -> str:
    """Return a text of others as one line without invisible characters, and not too long."""
    line = " ".join(remove_invisible_characters(text).split())
    return line if len(line) <= _MOST_NAME_CHARACTERS else f"{line[:_MOST_NAME_CHARACTERS]}…"


def shorten_url(url: str) -> str:
    """Return an address as one line without spaces, and not too long; the host is always shown in full."""
    line = "".join(remove_invisible_characters(url).split())
    return line if len(line) <= _MOST_URL_CHARACTERS else f"{line[:_MOST_URL_CHARACTERS]}…"
