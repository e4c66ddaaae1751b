"""Decode a fetched web page and convert it to text: detect its character set, convert HTML, refuse binary data."""

import codecs
import re
from typing import Final

from perdure.core.error import ToolError

from .html_text import convert_html, remove_invisible_characters

MOST_CHARACTERS: Final = 2_000_000
"""The most characters of a page that are converted."""
_BYTE_ORDER_MARKS: Final = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_DECLARED: Final = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w-]{1,40})""", re.IGNORECASE)
_XML_DECLARED: Final = re.compile(rb"""^\s*<\?xml[^>]{0,100}?encoding\s*=\s*["']([\w-]{1,40})""")
_HEAD_BYTES: Final = 1024
"""Where a page has to declare its character set."""
_CHARSETS: Final = re.compile(
    r"utf-8|utf-16(-[lb]e)?|ascii|cp125\d|cp(437|850|866|874|932|949|950)|iso8859-\d+|koi8-[ru]|mac-(roman|cyrillic)"
    r"|gb2312|gbk|gb18030|big5(hkscs)?|euc_(jp|kr)|shift_jis|iso2022_jp|hz"
)
"""Python's names of the character sets of web pages. Others are left out: some of Python's codecs are slow, or do more
than decode.
"""
_TEXT_TYPES: Final = re.compile(
    r"text/.+|application/(.+\+)?(json|xml|x?html|javascript|ecmascript|x-javascript|yaml|x-yaml|toml|x-sh|sql|rtf"
    r"|x-ndjson|jsonl|graphql|x-www-form-urlencoded)|image/svg\+xml|message/.+"
)
_HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})
_BINARY_BYTES: Final = frozenset({*range(9), *range(14, 27), *range(28, 32)})
"""Bytes that are in no text: control characters other than white space and escape."""


def read_page_text(body: bytes | str, content_type: str, url: str) -> str:
    """Return the text of a fetched page: the readable part of HTML, or all of any other text.

    Raises `ToolError` if it is binary.
    """
    kind = get_media_type(content_type)
    text = body if isinstance(body, str) else _decode_body(body, kind, content_type)
    text = text[:MOST_CHARACTERS]
    if kind in _HTML_TYPES or (not kind and _looks_like_html(text)):
        page = convert_html(text, url)
        is_titled = not page.title or page.text.lstrip("# ").startswith(page.title)
        return page.text if is_titled else f"# {page.title}\n\n{page.text}".rstrip()
    return remove_invisible_characters(text)


def get_media_type(content_type: str) -> str:
    """Return the media type of a `Content-Type` header in lower case, without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def find_charset(body: bytes, content_type: str) -> str:
    """Return the character set of a page by its byte order mark, its header, its own declaration, or its bytes."""
    for mark, name in _BYTE_ORDER_MARKS.items():
        if body.startswith(mark):
            return name
    head = body[:_HEAD_BYTES]
    header = re.search(r"charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", content_type, re.IGNORECASE)
    inside = _DECLARED.search(head) or _XML_DECLARED.search(head)
    for declared in (header[1] if header else "", inside[1].decode("ascii", "replace") if inside else ""):
        if declared and (known := _normalize_charset(declared)):
            return known
    try:
        codecs.getincrementaldecoder("utf-8")().decode(body)  # which accepts a character that is cut off at the end
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _normalize_charset(name: str) -> str:
    """Return Python's name of a character set, as browsers understand it; empty for one that pages do not have."""
    try:
        known = codecs.lookup(name).name
    except LookupError:
        return ""
    if _CHARSETS.fullmatch(known) is None:
        return ""
    return {"ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gbk", "gbk": "gb18030"}.get(known, known)


def _decode_body(body: bytes, kind: str, content_type: str) -> str:
    """Decode a body. Raises `ToolError` if its type or its bytes are not those of text."""
    if kind and _TEXT_TYPES.fullmatch(kind) is None and kind != "application/octet-stream":
        raise ToolError(f"it is {kind[:80]}, not text ({len(body):,} bytes)")
    charset = find_charset(body, content_type)
    if not charset.startswith("utf-16") and _BINARY_BYTES & {*body[:_HEAD_BYTES]}:
        raise ToolError(
            f"it is not text, although it is said to be {kind[:80] or 'nothing else'} ({len(body):,} bytes)"
        )
    return body.decode(charset, "replace").removeprefix("\ufeff")


def _looks_like_html(text: str) -> bool:
    return re.match(r"\s*<(!doctype html|html|head|body)\b", text, re.IGNORECASE) is not None
