"""Split HTML into text, start tags and end tags, in time that grows linearly with its length.

`html.parser` of the standard library takes quadratic time for some broken pages (CVE-2025-6069), and the pages here are
those of strangers. Where a browser would take the rest of a page for a tag, a comment or a script, so does this.
"""

import html
import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

_NAME = re.compile(r"[^\s/>]+")
_SPACE = re.compile(r"[\s/]*")
_ATTRIBUTE = re.compile(r"=?[^\s/>=]*")
_EQUALS = re.compile(r"\s*=\s*")
_UNQUOTED = re.compile(r"[^\s>]*")
_RAW_ENDS = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "title", "textarea", "xmp", "iframe", "noembed", "noframes")
}
"""Elements whose content is not HTML, and the end of each."""
_DECODED_RAW = frozenset({"title", "textarea"})


class HtmlToken(NamedTuple):
    """A piece of an HTML page: text, a start tag or an end tag."""

    kind: Literal["text", "start", "end"]
    value: str
    """The decoded text, or the name of the tag in lower case."""
    attributes: Mapping[str, str] = {}
    """The attributes of a start tag, by lower-case name; of one that is there twice, the first."""
    position: int = 0
    """The position after it in the page."""


def read_html_tokens(page: str) -> Iterator[HtmlToken]:
    """Yield the text and the tags of a page in order. Comments, declarations and scripts are left out."""
    position = 0
    while position < len(page):
        begin = page.find("<", position)
        if begin != position:
            end = len(page) if begin < 0 else begin
            yield HtmlToken("text", html.unescape(page[position:end]), position=end)
            position = end
            continue
        following = page[begin + 1 : begin + 2]
        if following.isalpha() and following.isascii():
            tag, position = _read_start_tag(page, begin)
            if tag is None:
                return
            yield tag
            if tag.value in _RAW_ENDS:
                content, position = _read_raw_content(page, tag)
                yield content
        elif following == "/" and page[begin + 2 : begin + 3].isalpha():
            position = _find_after(page, ">", begin)
            name = _NAME.match(page, begin + 2)
            yield HtmlToken("end", name[0].lower() if name else "", position=position)
        elif following and following in "!?/":
            is_comment = page.startswith("<!--", begin)
            position = _find_after(page, "-->" if is_comment else ">", begin + 2)
        else:
            position += 1
            yield HtmlToken("text", "<", position=position)


def _read_start_tag(page: str, begin: int) -> tuple[HtmlToken | None, int]:
    """Parse a start tag; `None` if the page ends in it."""
    name = _NAME.match(page, begin + 1)
    attributes: dict[str, str] = {}
    position = name.end() if name else begin + 1
    while True:
        position = _skip(_SPACE, page, position)
        if position >= len(page):
            return None, position
        if page[position] == ">":
            return HtmlToken("start", name[0].lower() if name else "", attributes, position + 1), position + 1
        end = _skip(_ATTRIBUTE, page, position)
        key, position = page[position:end].lower(), end
        value = ""
        if (equals := _EQUALS.match(page, position)) is not None:
            read = _read_value(page, equals.end())
            if read is None:
                return None, len(page)
            value, position = read
        attributes.setdefault(key, html.unescape(value))


def _read_value(page: str, position: int) -> tuple[str, int] | None:
    """Return the value of an attribute and the position after it; `None` if its quote is not closed."""
    quote = page[position : position + 1]
    if quote and quote in "\"'":
        end = page.find(quote, position + 1)
        return None if end < 0 else (page[position + 1 : end], end + 1)
    end = _skip(_UNQUOTED, page, position)
    return page[position:end], end


def _read_raw_content(page: str, tag: HtmlToken) -> tuple[HtmlToken, int]:
    """Return the content of an element that is not HTML as text, empty unless people see it."""
    found = _RAW_ENDS[tag.value].search(page, tag.position)
    end = found.start() if found else len(page)
    text = html.unescape(page[tag.position : end]) if tag.value in _DECODED_RAW else ""
    return HtmlToken("text", text, position=end), end


def _skip(pattern: re.Pattern[str], page: str, position: int) -> int:
    found = pattern.match(page, position)
    return found.end() if found else position


def _find_after(page: str, end: str, position: int) -> int:
    """Return the position after the next `end`; that of the end of the page if there is none."""
    found = page.find(end, position)
    return len(page) if found < 0 else found + len(end)
