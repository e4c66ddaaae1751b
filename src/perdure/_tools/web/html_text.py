"""Convert an HTML page to readable text in the style of Markdown, in time that grows linearly with its length."""

import html
import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple
from urllib.parse import urljoin

from msgspec import Struct

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


_BLOCKS: Final = frozenset(
    {
        *("address", "article", "blockquote", "body", "caption", "center", "dd", "details", "dialog", "div"),
        *("dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6"),
        *("header", "hr", "li", "main", "nav", "ol", "p", "pre", "search", "section", "summary", "table"),
        *("tbody", "tfoot", "thead", "tr", "ul"),
    }
)
_VOID: Final = frozenset(
    {
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"),
    }
)
_UNSEEN: Final = frozenset(
    {
        *("canvas", "datalist", "math", "object", "script", "select", "style", "svg", "template"),
    }
)
_AROUND: Final = frozenset({"aside", "footer", "nav"})
_HEADINGS: Final = {f"h{level}": "#" * level for level in range(1, 7)}
_END_TAG: Final = re.compile(r"</([a-zA-Z][^\s/>]*)")
_HIDDEN_STYLE: Final = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_LEAST_CHARACTERS: Final = 200
"""A page with less text than this is converted again, with its navigation, footer and sidebars."""
_MOST_DEPTH: Final = 6
_WITHOUT_SHAPE: Final = dict.fromkeys(
    [
        *[code for code in range(0x20) if code not in {0x09, 0x0A}],
        *range(0x7F, 0xA0),
        *[0xAD, 0x061C, 0x180E, 0x200B, 0x200E, 0x200F, 0xFEFF],
        *range(0x202A, 0x202F),
        *range(0x2060, 0x2070),
        *range(0xE0000, 0xE1000),
    ]
)
"""Characters that people do not see, and that can carry text to a model."""


class HtmlText(Struct, frozen=True):
    """The title and the readable text of an HTML page."""

    title: str
    text: str


def convert_html(page: str, url: str = "") -> HtmlText:
    """Convert an HTML page to readable text; links become absolute by the URL of the page."""
    found = _TextBuilder(page, url, _UNSEEN | _AROUND).build()
    if len(found.text) >= _LEAST_CHARACTERS:
        return found
    whole = _TextBuilder(page, url, _UNSEEN).build()
    return whole if len(whole.text) > len(found.text) else found


def remove_invisible_characters(text: str) -> str:
    """Remove invisible characters, except tabs, from a text, and convert all line ends to newlines."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_WITHOUT_SHAPE)


class _TextBuilder:
    """Builder of the text of one page, token by token."""

    def __init__(self, page: str, url: str, left_out: frozenset[str]) -> None:
        self._page = page
        self._url = url
        self._left_out = left_out
        self._last_ends = {found[1].lower(): found.end() for found in _END_TAG.finditer(page)}
        """Position of the last end tag of each name."""
        self._skipped = ""
        self._skipped_depth = 0
        self._lines: list[str] = []
        self._inline: list[str] = []
        self._prefix = ""
        self._lists: list[int | None] = []
        """For each list around: the number of its last item, or `None` if its items have none."""
        self._pre_depth = 0
        self._link: tuple[str, int] | None = None
        """The address of the open link, and where its text begins in `_inline`."""
        self._title: list[str] = []
        self._in_title = False

    def build(self) -> HtmlText:
        for token in read_html_tokens(self._page):
            if self._skipped:
                self._follow_skipped(token)
            elif token.kind == "text":
                self._add_text(token.value)
            elif token.kind == "start":
                self._open(token)
            else:
                self._close(token.value)
        self._end_block()
        text = re.sub(r"\n{3,}", "\n\n", remove_invisible_characters("\n".join(self._lines)))
        return HtmlText(_collapse(remove_invisible_characters("".join(self._title))), text.strip("\n"))

    # -- elements that are left out --------------------------------------------------------------------------------

    def _follow_skipped(self, token: HtmlToken) -> None:
        if token.value != self._skipped or token.kind == "text":
            return
        if token.kind == "start" and token.value == "p":  # a paragraph ends where the next one begins
            self._skipped = ""
            self._open(token)
            return
        self._skipped_depth += 1 if token.kind == "start" else -1
        if not self._skipped_depth:
            self._skipped = ""

    def _is_left_out(self, token: HtmlToken) -> bool:
        """Return True for an element that is not shown, if its end is known: else the rest of the page were lost."""
        name = token.value
        is_unseen = name in self._left_out or _is_hidden(token.attributes)
        return is_unseen and name not in _VOID and self._last_ends.get(name, 0) > token.position

    # -- tags ------------------------------------------------------------------------------------------------------

    def _open(self, token: HtmlToken) -> None:
        name, attributes = token.value, token.attributes
        if self._is_left_out(token):
            self._skipped, self._skipped_depth = name, 1
        elif name == "title":
            self._in_title = not self._title
        elif name == "base":
            self._url = self._resolve(attributes.get("href", "")) or self._url
        elif name == "a":
            self._end_link()
            self._link = self._resolve(attributes.get("href", "")), len(self._inline)
        elif name == "br":
            self._inline.append("\n")
        elif name == "img" and (alt := _collapse(attributes.get("alt", ""))):
            self._inline.append(f"[image: {alt}]")
        elif name in {"td", "th"} and self._inline:
            self._inline.append(" | ")
        elif name in _BLOCKS:
            self._open_block(name, attributes)

    def _open_block(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "pre":
            self._end_block()
            self._pre_depth += 1
            return
        is_marked = name in {"p", "div"} and bool(self._prefix) and not "".join(self._inline).strip()
        if not is_marked:  # `<li><p>`: the mark belongs to the text of the paragraph
            self._end_block()
        if name in _HEADINGS:
            self._lines.append("")
            self._prefix = f"{_HEADINGS[name]} "
        elif name in {"ul", "ol"}:
            start = attributes.get("start", "1")
            self._lists.append(None if name == "ul" else int(start) - 1 if start.isascii() and start.isdigit() else 0)
        elif name == "li":
            self._prefix = self._begin_item()
        elif name in {"p", "table", "blockquote", "section", "article"} and not is_marked:
            self._lines.append("")

    def _begin_item(self) -> str:
        """Return the mark in front of the next item of the innermost list."""
        mark = "-"
        if self._lists and (last := self._lists[-1]) is not None:
            self._lists[-1] = last + 1
            mark = f"{last + 1}."
        return f"{'  ' * (min(len(self._lists), _MOST_DEPTH) - 1)}{mark} "

    def _close(self, name: str) -> None:
        if name == "title":
            self._in_title = False
        elif name == "a":
            self._end_link()
        elif name in _BLOCKS:
            self._end_block()
            if name in {"ul", "ol"} and self._lists:
                self._lists.pop()
            elif name == "pre" and self._pre_depth:
                self._pre_depth -= 1
            if name in _HEADINGS or name in {"p", "ul", "ol", "table", "pre"}:
                self._lines.append("")

    # -- text ------------------------------------------------------------------------------------------------------

    def _add_text(self, text: str) -> None:
        if self._in_title:
            self._title.append(text)
        else:
            self._inline.append(text if self._pre_depth else text.replace("\n", " "))

    def _resolve(self, address: str) -> str:
        """Return the absolute form of an address in the page; empty for what is no page, or a part of this one."""
        address = address.strip()
        if not address or address.startswith("#"):
            return ""
        try:
            resolved = urljoin(self._url, address)
        except ValueError:
            return ""
        return resolved.replace(" ", "%20") if resolved.startswith(("http://", "https://")) else ""

    def _end_link(self) -> None:
        if self._link is None:
            return
        address, begin = self._link
        self._link = None
        text = _collapse("".join(self._inline[begin:]))
        if address and text:
            self._inline[begin:] = [f"[{text}]({address})"]

    def _end_block(self) -> None:
        """Append the text since the last block as lines. A link without any text yet is for the text of the next."""
        address, begin = self._link or ("", 0)
        is_link_empty = not "".join(self._inline[begin:]).strip()
        self._end_link()
        text, self._inline = "".join(self._inline), []
        self._link = (address, 0) if address and is_link_empty else None
        if self._pre_depth and text.strip():
            self._lines += ["```", *text.strip("\n").split("\n"), "```"]
            return
        shown = [line for each in text.split("\n") if (line := _collapse(each))]
        if shown:
            self._lines += [f"{self._prefix}{shown[0]}", *shown[1:]]
            self._prefix = ""


def _is_hidden(attributes: Mapping[str, str]) -> bool:
    return "hidden" in attributes or ("style" in attributes and _HIDDEN_STYLE.search(attributes["style"]) is not None)


def _collapse(text: str) -> str:
    return " ".join(text.split())
