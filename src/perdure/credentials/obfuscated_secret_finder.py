"""Find secrets that a text contains with each character encoded, with separators, or broken into lines.

Such texts are many: each character may be written in several ways. So the text is decoded instead, and searched for the
values themselves; what is found is replaced in the original. Cheap checks come first: most texts have none of these.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from html import unescape
from typing import Final, NamedTuple

from .secret_form_finder import SecretFormFinder

MIN_LENGTH: Final = 8
"""Shorter values are not searched for in this way: parts of ordinary text would be taken for them."""
_EDGE: Final = 6
"""A value with line breaks inside is found if this much of its beginning or of its end is in one piece."""
_FEWEST: Final = 4
"""Escapes in a row without which no value can be written in them: of fewer, each is in a form that is known."""
_ESCAPE: Final = (
    r"[%&\\](?:(?<=%)(?:25){0,8}[0-9A-Fa-f]{2}|(?<=&)#?[0-9A-Za-z]{2,8};"
    r"|(?<=\\)\\{0,3}(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}))"
)
_BREAK: Final = r"[ \t]*\\?\r?\n[ \t>|]*|(?:\\r)?\\n[ \t]*"
_TWO_ESCAPES: Final = re.compile(r"[%&\\][0-9A-Za-z#;]{2,24}[%&\\]")
_SOME_ESCAPES: Final = re.compile(f"(?:{_ESCAPE}){{{_FEWEST}}}")
_ESCAPES: Final = re.compile(f"(?P<escape>(?:{_ESCAPE})+)")
_ESCAPES_AND_BREAKS: Final = re.compile(f"(?P<escape>(?:{_ESCAPE})+)|(?P<break>{_BREAK})")
_ONE_ESCAPE: Final = re.compile(_ESCAPE)
_SEPARATORS: Final = (":", "-", " ", ",", ", ", ",0x", ", 0x", " 0x")
_BYTES_IN_HEX: Final = re.compile(r"(?:0[xX])?[0-9A-Fa-f]{2}(?:[:\-, \t\r\n]{1,3}(?:0[xX])?[0-9A-Fa-f]{2}){3,}")


class _Segment(NamedTuple):
    """A part of a decoded text, and its position in the original text."""

    decoded_at: int
    start: int
    end: int
    is_encoded: bool


class ObfuscatedSecretFinder:
    """Finds secrets in text whose characters are all escaped (such as `%41`), separated, or broken into lines."""

    __slots__ = ("_edges", "_finder", "_hex_starts")

    def __init__(self, names: Mapping[str, str]) -> None:
        """Build the patterns for these values, by value, with the name of each."""
        long = {value: name for value, name in names.items() if len(value) >= MIN_LENGTH}
        self._finder = SecretFormFinder(long)
        self._edges = sorted({edge for value in long for edge in (value[:_EDGE], value[-_EDGE:])})
        self._hex_starts = sorted({value.encode()[:_FEWEST].hex(" ") for value in long})

    def find_spans(self, text: str) -> list[tuple[int, int, str]]:
        """Return the start, the end and the name of each scattered secret in a text. They may overlap."""
        if not self._edges or len(text) < MIN_LENGTH:
            return []
        spans = list(self._find_hex(text)) if self._may_have_hex(text) else []
        has_breaks = ("\n" in text or "\\n" in text) and any(edge in text for edge in self._edges)
        has_escapes = ("%" in text or "&" in text or "\\" in text) and _has_escapes(text)
        if not has_breaks and not has_escapes:
            return spans
        decoded, segments = _decode_text(text, _ESCAPES_AND_BREAKS if has_breaks else _ESCAPES)
        for start, end, name in self._finder.find_spans(decoded):
            first, last = _locate_start(segments, start), _locate_end(segments, end)
            if last - first > end - start:  # what stands there as it is, is found with its surroundings
                spans.append((first, last, name))
        return spans

    def _may_have_hex(self, text: str) -> bool:
        """Return True if the text contains the beginning of a secret in hexadecimal, with or without separators."""
        text = text.lower()
        used = [each for each in _SEPARATORS if each in text]
        return any(start.replace(" ", each) in text for start in self._hex_starts for each in used)

    def replace_plain(self, text: str) -> str:
        """Replace the secrets that the text contains unencoded."""
        return self._finder.replace_forms(text)[0]

    def _find_hex(self, text: str) -> Iterable[tuple[int, int, str]]:
        """Yield the positions of hexadecimal bytes, with separators, that contain a secret."""
        for found in _BYTES_IN_HEX.finditer(text):
            digits = re.sub(r"0[xX]|[^0-9A-Fa-f]", "", found[0])
            for _, _, name in self._finder.find_spans(bytes.fromhex(digits).decode(errors="replace"))[:1]:
                yield found.start(), found.end(), name


def _has_escapes(text: str) -> bool:
    return _TWO_ESCAPES.search(text) is not None and _SOME_ESCAPES.search(text) is not None


def _decode_text(text: str, pattern: re.Pattern[str]) -> tuple[str, list[_Segment]]:
    """Decode escapes and remove line breaks; return the result, and the original position of each part."""
    pieces: list[str] = []
    segments: list[_Segment] = []
    size = at = 0

    def add(piece: str, start: int, end: int, *, is_encoded: bool) -> None:
        nonlocal size
        if piece:
            segments.append(_Segment(size, start, end, is_encoded))
            pieces.append(piece)
            size += len(piece)

    for found in pattern.finditer(text):
        add(text[at : found.start()], at, found.start(), is_encoded=False)
        if found.lastgroup == "escape":
            for piece, start, end in _decode_escapes(found[0]):
                add(piece, found.start() + start, found.start() + end, is_encoded=True)
        at = found.end()
    add(text[at:], at, len(text), is_encoded=False)
    return "".join(pieces), segments


def _decode_escapes(run: str) -> Iterable[tuple[str, int, int]]:
    """Decode consecutive escapes; yield each character with its position, joining the bytes of one character."""
    pending, since = b"", 0
    for found in _ONE_ESCAPE.finditer(run):
        escape = found[0]
        is_byte = escape[0] == "%" or escape[-3] == "x"
        if is_byte:
            since = since if pending else found.start()
            pending += bytes([int(escape[-2:], 16)])
            if not _is_incomplete(pending):
                yield pending.decode(errors="replace"), since, found.end()
                pending = b""
            continue
        if pending:
            yield pending.decode("latin-1"), since, found.start()
            pending = b""
        character = unescape(escape) if escape[0] == "&" else chr(int(escape[-4:], 16))
        yield character, found.start(), found.end()
    if pending:
        yield pending.decode("latin-1"), since, len(run)


def _is_incomplete(data: bytes) -> bool:
    """Return True if the bytes are the beginning of a character in UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return False


def _locate_start(segments: list[_Segment], place: int) -> int:
    segment = segments[bisect_right(segments, place, key=lambda each: each.decoded_at) - 1]
    return segment.start if segment.is_encoded else segment.start + place - segment.decoded_at


def _locate_end(segments: list[_Segment], place: int) -> int:
    segment = segments[bisect_right(segments, place - 1, key=lambda each: each.decoded_at) - 1]
    return segment.end if segment.is_encoded else segment.start + place - segment.decoded_at
