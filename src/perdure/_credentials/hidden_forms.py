"""Find secrets hidden in a text: obfuscated character by character, in dumps of bytes, or encoded repeatedly."""

import base64
import binascii
import re
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import unescape
from itertools import takewhile
from typing import Final, NamedTuple

from .forms import SecretFormFinder

MIN_LENGTH: Final = 8
"""Shorter values are not searched for in this way: parts of ordinary text would be taken for them."""
_MOST_LAYERS: Final = 4
"""Encodings, one in the other, that are taken off."""
_MOST_INFLATED: Final = 1_000_000
_MOST_DECODED: Final = 4_000_000
"""Bytes that are decoded of one text."""
_MOST_LINE: Final = 400
"""Characters of a line of a dump."""
_OCTAL_DIGITS: Final = 3
_LINE_LENGTHS: Final = frozenset({60, 64, 72, 76})
"""Lengths at which programs break encoded text."""
_RUN: Final = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,6}")
_LETTERS: Final = re.compile(r"[a-z].*[A-Z]|[A-Z].*[a-z]|^[A-Z2-7]+=*$|^[a-z2-7]+=*$|^[0-9A-Fa-f]+$", re.DOTALL)
"""What base64, base32 and hexadecimal have, and most long names in programs have not."""
_LINES: Final = re.compile(r"^[A-Za-z0-9+/]{16,}(?:\r?\n[A-Za-z0-9+/]+={0,6})+$", re.MULTILINE)
_BASE32: Final = re.compile(r"[A-Z2-7]+|[a-z2-7]+")
_HEX: Final = re.compile(r"[0-9A-Fa-f]+")
_DUMP_LINE: Final = re.compile(
    r"(?:[ \t]*(?P<offset>[0-9A-Fa-f]{6,16}(?P<colon>:?))(?=[ \t]|$))?(?P<cells>.*?)(?:[ \t]+(?:\|.*\||>.*<))?"
)
_POSSIBLE_DUMP: Final = re.compile(
    r"^(?:[ \t]{0,8}(?:0[xX])?[0-9A-Fa-f]{2,16}(?:[:, \t]|$)|(?:[ ]{3}\S|[ ]{2}\\\S|[ ][0-7]{3}|[ ]{4}(?! {8})){4})",
    re.MULTILINE,
)
_WORD: Final = r"(?:0[xX])?[0-9A-Fa-f]{2,16}"
_CELL: Final = r"[ \t]{3}\S|[ \t]{2}\\\S|[ \t][0-7]{3}|[ \t]{4}"
_BARE_CELLS: Final = re.compile(
    rf"[ \t]*{_WORD}(?:,?[ \t]+{_WORD}){{3,}},?[ \t]*|(?:{_CELL}){{4,}}|[ \t]*{_WORD}(?:, ?{_WORD})*,?"
)
_NUMBERS: Final = re.compile(r"[0-9A-Fa-f ]+")
_CHARACTER_CELL: Final = 4
"""Columns of a character in the output of `od -c`."""
_CONTROLS: Final = {
    "\\0": 0, "\\a": 7, "\\b": 8, "\\t": 9, "\\n": 10, "\\v": 11, "\\f": 12, "\\r": 13, "\\\\": 92,
}  # fmt: skip
_WORD_BYTES: Final = {(8, 3): 1, (8, 6): 2, (8, 11): 4, (2, 8): 1}
"""Bytes of a number, by its base and its digits."""
_TEXT_BYTES: Final = bytes(range(32, 127)) + b"\t\r\n"
_GZIP: Final = b"\x1f\x8b"
_ZLIB: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


class DumpedSecretFinder:
    """Finds secrets in dumps of bytes (`od`, `xxd`, `hexdump`), and in text with several encodings."""

    __slots__ = ("_finder", "_is_empty", "_plain")

    def __init__(self, names: Mapping[str, str]) -> None:
        """Build the pattern for these values, by value, with the name of each."""
        long = {value: name for value, name in names.items() if len(value) >= MIN_LENGTH}
        # Bytes are compared as latin-1, in which every byte is a character.
        self._finder = SecretFormFinder({value.encode().decode("latin-1"): name for value, name in long.items()})
        self._plain = SecretFormFinder(long)
        self._is_empty = not long

    def find_spans(self, text: str) -> list[tuple[int, int, str]]:
        """Return the start, the end and the name of each dump or encoded text that contains a secret."""
        if self._is_empty or len(text) < MIN_LENGTH:
            return []
        return [*self._find_backwards(text), *self._find_encoded(text), *self._find_dumped(text)]

    def _find(self, data: bytes) -> str:
        """Return the name of a secret in some bytes, or in them backwards; empty if there is none."""
        text = data.decode("latin-1")
        turned = data.decode(errors="replace")[::-1].encode().decode("latin-1")
        for each in (text, text[::-1], turned):
            for _, _, name in self._finder.find_spans(each)[:1]:
                return name
        return ""

    def _find_backwards(self, text: str) -> Iterator[tuple[int, int, str]]:
        for start, end, name in self._plain.find_spans(text[::-1]):
            yield len(text) - end, len(text) - start, name

    def _find_encoded(self, text: str) -> Iterator[tuple[int, int, str]]:
        left = _MOST_DECODED
        ends: list[int] = []
        for pattern in (_RUN, _LINES):
            for found in pattern.finditer(text):
                if _LETTERS.search(found[0]) is None:
                    continue
                if any(found.start() < end <= found.end() for end in ends) and not _is_block(found[0]):
                    continue  # a part of it has the secret, and the next line may be something else
                written = found[0].encode()
                for data in (written, written[::-1]):
                    name, spent = self._find_in_layers(data, left)
                    left -= spent
                    if name:
                        yield found.start(), found.end(), name
                        ends.append(found.end())
                        break
                    if left <= 0:
                        return

    def _find_in_layers(self, data: bytes, left: int) -> tuple[str, int]:
        """Return the name of a secret below the encodings of some text, and how many bytes were decoded."""
        waiting, spent = [data], 0
        for _ in range(_MOST_LAYERS):
            decoded = [each for encoded in waiting for each in _decode(encoded) if _is_plausible(each)]
            spent += sum(map(len, decoded))
            for each in decoded:
                if name := self._find(each):
                    return name, spent
            waiting = [each for each in decoded if len(each) >= MIN_LENGTH]
            if not waiting or spent >= left:
                break
        return "", spent

    def _find_dumped(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield the positions of dumps in lines that contain a secret."""
        for start, end, lines in _list_dumps(text):
            for data in _read_dump(lines):
                if name := self._find(data):
                    yield start, end, name
                    break


def _decode(data: bytes) -> Iterator[bytes]:
    """Yield what some bytes may be an encoding of."""
    for header, window in ((_GZIP, 31), *[(each, 15) for each in _ZLIB]):
        if data.startswith(header):
            try:
                yield zlib.decompressobj(window).decompress(data, _MOST_INFLATED)
            except zlib.error:
                return
    if not data.isascii():
        return
    text = "".join(data.decode("ascii").split())
    bare = text.rstrip("=")
    if _HEX.fullmatch(bare) and len(bare) % 2 == 0:
        yield bytes.fromhex(bare)
    if _BASE32.fullmatch(bare):
        yield from _try(base64.b32decode, (bare + "=" * (-len(bare) % 8)).upper())
    plain = bare.replace("-", "+").replace("_", "/")
    if re.fullmatch(r"[A-Za-z0-9+/]+", plain):
        for skipped in range(4):  # it may begin in the middle of something longer
            rest = plain[skipped:]
            yield from _try(base64.b64decode, rest[: len(rest) - (len(rest) % 4 == 1)] + "=" * (-len(rest) % 4))


def _is_plausible(data: bytes) -> bool:
    """Return True for bytes that may be text, or compressed: what is no encoding decodes to any bytes."""
    if data.startswith((_GZIP, *_ZLIB)):
        return True
    return len(data) >= MIN_LENGTH and len(data.translate(None, _TEXT_BYTES)) * 3 <= len(data) * 2


def _is_block(text: str) -> bool:
    """Return True for lines of one length, as programs break a long encoded text."""
    lengths = [len(line) for line in text.splitlines()]
    return len(lengths) > 1 and (lengths[0] == lengths[1] or lengths[0] in _LINE_LENGTHS)


def _try(decode: Callable[[str], bytes], text: str) -> Iterator[bytes]:
    try:
        yield decode(text)
    except (ValueError, binascii.Error):
        return


def _list_dumps(text: str) -> Iterator[tuple[int, int, Sequence[re.Match[str]]]]:
    """Yield where consecutive lines look like a dump, and these lines."""
    at = start = 0
    lines: list[re.Match[str]] = []
    if _POSSIBLE_DUMP.search(text) is None:
        return
    for line in [*text.splitlines(keepends=True), ""]:
        is_possible = len(line) <= _MOST_LINE and _POSSIBLE_DUMP.match(line) is not None
        found = _DUMP_LINE.fullmatch(line.rstrip("\r\n")) if is_possible else None
        if found is not None and not (found["offset"] or _BARE_CELLS.fullmatch(found["cells"])):
            found = None
        if lines and found is None:
            yield start, start + len(text[start:at].rstrip("\r\n")), lines
            lines = []
        if found is not None:
            start = start if lines else at
            lines.append(found)
        at += len(line)


def _read_dump(lines: Sequence[re.Match[str]]) -> Iterator[bytes]:
    """Yield the bytes that the lines of a dump may stand for."""
    yield b"".join([_read_characters(each["cells"]) for each in lines])
    has_offsets = any(each["offset"] and each["cells"].strip() for each in lines)
    words = [word for each in lines for word in (_split_cells(each) or ([] if has_offsets else [each["offset"] or ""]))]
    if all(len(word) % 2 == 0 and _HEX.fullmatch(word) for word in words):
        pieces = [bytes.fromhex(word) for word in words]
        yield b"".join(pieces)
        yield b"".join([piece[::-1] for piece in pieces])  # words of a processor that begins with the last byte
    for (base, digits), size in _WORD_BYTES.items():
        yield _read_numbers([word for word in words if len(word) == digits], base, size)
    for size in (1, 2, 4):
        yield _read_numbers(words, 10, size)


def _split_cells(line: re.Match[str]) -> list[str]:
    """Return the numbers in a line of a dump, without the text that `xxd` shows behind them, after two blanks."""
    cells = line["cells"].replace(",", " ")
    if line["colon"]:
        pieces = re.split(r"[ \t]{2,}", cells.strip())
        numbers = takewhile(_NUMBERS.fullmatch, pieces[: max(1, len(pieces) - 1)])
        cells = " ".join(numbers)
    return [word[2:] if word[:2] in {"0x", "0X"} else word for word in cells.split()]


def _read_characters(cells: str) -> bytes:
    """Return the bytes of a line of `od -c`, in which each character has four columns."""
    found = bytearray()
    for start in range(0, len(cells), _CHARACTER_CELL):
        cell = cells[start : start + _CHARACTER_CELL].strip() or " "
        if cell in _CONTROLS:
            found.append(_CONTROLS[cell])
        elif len(cell) == _OCTAL_DIGITS and cell.isdigit():
            found += _read_numbers([cell], 8, 1)
        else:
            found += cell.encode()
    return bytes(found)


def _read_numbers(words: Sequence[str], base: int, size: int) -> bytes:
    """Return the bytes of some numbers; without those that are none, or too large."""
    found = bytearray()
    for word in words:
        try:
            found += int(word, base).to_bytes(size, "little")
        except (ValueError, OverflowError):
            continue
    return bytes(found)


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
