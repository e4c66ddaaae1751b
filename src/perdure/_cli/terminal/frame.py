r"""Frame untrusted text: each row begins with a mark, so that nothing in the text can imitate the program's own output.

A value that is to be approved may try to look like something else: with line breaks, with padding that makes the
terminal begin a new row, with characters that a terminal draws as nothing, in two columns, over the one before, or from
right to left. Here every row is cut before the terminal would do it, and begins with `| ` (a row of ours), `|+` (more
of a row of ours) or `: ` (more of a value). What cannot be shown as it is becomes an escape `\{…}`, which a text cannot
contain.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TextIO

from .output import DEFAULT_COLUMNS, is_invisible_character, measure_terminal

LABEL_MARK: Final = "| "
"""Begins a row that the command line wrote: a label, and the value after it."""
VALUE_MARK: Final = ": "
"""Begins a row that has only more of a value."""
MORE_MARK: Final = "|+"
"""Begins a row that has more of a label."""
MIN_WIDTH: Final = 20
"""Columns that a terminal needs: in fewer, a row could not be read."""
PLAIN_WIDTH: Final = DEFAULT_COLUMNS - 1
"""Columns of a row where there is no terminal: in a file, or for another program."""

_MAX_BLANKS: Final = 3
"""Blanks in a row that a quoted value shows; of more it says how many they are."""
_MAX_BLANKS_OF_TEXT: Final = 8
_MAX_INDENT: Final = 16
_MAX_MARKS: Final = 4
"""Combining marks shown on one letter; further ones are escaped."""
_FIRST_WIDE: Final = 0x1100
"""From this character on, terminals disagree about widths: each counts as two columns."""

_PLAIN: Final = re.compile(r"[!-~]+(?: {1,3}[!-~]+)*")
_PLAIN_LINE: Final = re.compile(r"(?: {0,16}[!-~]+(?: {1,8}[!-~]+)*)?")
_PIECES: Final = re.compile(r" +|\t+|[^ \t]")


class MeasuredText(NamedTuple):
    """A piece of text with its width in columns, kept together on one row if it fits.

    Such a piece is a letter with its combining marks, or an escape.
    """

    text: str
    width: int


def quote_text(text: str, most: int | None = None) -> str:
    """Return text in double quotes on one line, with misleading characters escaped.

    Of a text with more than `most` characters, the rest is left out, and `…` follows the quotes.
    """
    cut = most is not None and len(text) > most
    shown = "".join([cell.text for cell in _escape_quoted(text[:most])])
    return f'"{shown}"{"…" if cut else ""}'


def quote_unless_plain(text: str) -> str:
    """Quote a name unless it has only letters, digits and `_`, `-`, `.`, `/` or `:`."""
    return text if re.fullmatch(r"[A-Za-z0-9_./:-]{1,100}", text) else quote_text(text)


class UntrustedTextFrame:
    """Builds the rows of untrusted text, each with a mark in front and none wider than the terminal."""

    def __init__(self, width: int, encoding: str = "utf-8") -> None:
        self._width = max(width, MIN_WIDTH) - 1  # in the last column some terminals begin a new row
        self._encoding = encoding
        self.rows: list[str] = []
        """The rows so far, without line breaks."""

    def add_label(self, text: str) -> None:
        """Add trusted text of the program. Names in it have to be escaped already."""
        self._add_cells(_cells_of(text), LABEL_MARK, MORE_MARK)

    def add_words(self, text: str) -> None:
        """Add trusted text of the program, wrapped at blanks. Names in it have to be escaped already."""
        first, *rest = wrap_words(text, self._width, len(MORE_MARK) + 1)
        self.rows += [LABEL_MARK + first, *[f"{MORE_MARK} {row}" for row in rest]]

    def add_value(self, label: str, text: str) -> None:
        """Add a label and an untrusted text: in quotes, or line by line if it has several lines."""
        if "\n" in text:
            self.add_text(label, text)
            return
        cells = [*_cells_of(f'{label}: "'), *_escape_quoted(text, self._encoding), *_cells_of(f'"{_remark(text)}')]
        self._add_cells(cells, LABEL_MARK, VALUE_MARK)

    def add_text(self, label: str, text: str) -> None:
        """Add a label and, below it, the numbered lines of an untrusted text."""
        lines = text.split("\n")
        ends = lines[-1] == ""
        lines = lines[:-1] if ends else lines
        count = f"{len(lines):,} line{'s' if len(lines) > 1 else ''}, {len(text):,} characters"
        self.add_label(f"{label}: {count}{'' if ends else ', without a line break at the end'}{_remark(text)}")
        room = len(str(len(lines)))
        for number, line in enumerate(lines, 1):
            head = f"{VALUE_MARK}{number:>{room}} "
            if _PLAIN_LINE.fullmatch(line) and "\\{" not in line and len(head) + len(line) <= self._width:
                self.rows.append(head + line)
            else:
                self._add_cells(_escape_line(line, self._encoding), head, f"{VALUE_MARK}{' ' * room} ")

    def _add_cells(self, cells: Sequence[MeasuredText], first: str, rest: str) -> None:
        row, left = [first], self._width - len(first)
        room = self._width - len(rest)
        for cell in [part for each in cells for part in (_cells_of(each.text) if each.width > room else [each])]:
            if cell.width > left:
                carried: list[str] = []
                while len(row) > 1 and row[-1] == " ":  # blanks at the end of a row would not be seen
                    carried.append(row.pop())
                self.rows.append("".join(row))
                row, left = [rest, *carried], room - len(carried)
            row.append(cell.text)
            left -= cell.width
        self.rows.append("".join(row))


def make_frame(stream: TextIO) -> UntrustedTextFrame:
    """Make a frame as wide as the terminal behind a stream; for a file, `PLAIN_WIDTH` columns."""
    width = measure_terminal(stream).columns if stream.isatty() else PLAIN_WIDTH
    return UntrustedTextFrame(width, stream.encoding or "ascii")


def wrap_text(line: str, width: int | None, taken: int = 0) -> list[str]:
    """Wrap a line into rows of at most `width` columns, including `taken` columns in front of each row.

    If `width` is `None`, the line is not cut.

    Control characters have to be escaped already. A tab counts as eight columns.
    """
    if width is None or (line.isascii() and "\t" not in line and len(line) + taken <= width):
        return [line]
    rows: list[str] = []
    row, room = "", max(width - taken, 1)
    for character in line:
        columns = 8 if character == "\t" else _measure(character)
        if columns > room and row:
            rows.append(row)
            row, room = "", max(width - taken, 1)
        row += character
        room -= columns
    return [*rows, row]


def wrap_words(line: str, width: int, taken: int = 0) -> list[str]:
    """Wrap a line at blanks into rows of at most `width` columns, including `taken` columns in front of each row.

    A word that is wider than a row is cut.
    """
    rows: list[str] = []
    first, *words = line.split(" ")
    *cut, row = wrap_text(first, width, taken)
    rows += cut
    for word in words:
        if measure_text(f"{row} {word}") + taken <= width:
            row = f"{row} {word}"
            continue
        *cut, rest = wrap_text(word, width, taken)
        rows += [row, *cut]
        row = rest
    return [*rows, row]


def measure_text(text: str) -> int:
    """Return the columns that a text may take: where terminals differ about a character, the larger width."""
    return len(text) if text.isascii() else sum(map(_measure, text))


def split_pages(rows: Sequence[str], height: int) -> list[Sequence[str]]:
    """Split rows into pages for a terminal with `height` rows, leaving room for a question."""
    size = max(height - 5, 5)
    return [rows[at : at + size] for at in range(0, len(rows), size)] or [rows]


# -- what a character looks like ---------------------------------------------------------------------------------------


def _cells_of(text: str) -> list[MeasuredText]:
    """Split escaped text into cells, the pieces that are never split."""
    return [MeasuredText(character, _measure(character)) for character in text]


def _escape_quoted(text: str, encoding: str = "utf-8") -> list[MeasuredText]:
    if _PLAIN.fullmatch(text) and '"' not in text and "\\" not in text:
        return [MeasuredText(character, 1) for character in text]
    return list(_escape_pieces(text, encoding, _MAX_BLANKS, {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}))


def _escape_line(line: str, encoding: str) -> list[MeasuredText]:
    """Escape a line of untrusted text; a backslash is kept unless it looks like the beginning of an escape."""
    body = line.lstrip(" ")
    indent = len(line) - len(body)
    trailing = len(body) - len(body.rstrip(" "))
    start = [MeasuredText(" ", 1)] * indent if indent <= _MAX_INDENT and body else _name_blanks(indent)
    middle = _escape_pieces(body[: len(body) - trailing], encoding, _MAX_BLANKS_OF_TEXT, {})
    return [*start, *middle, *_name_blanks(trailing)]


def _escape_pieces(text: str, encoding: str, most_blanks: int, escapes: dict[str, str]) -> Iterator[MeasuredText]:
    letter, marks = "", 0
    for found in _PIECES.finditer(text):
        piece = found[0]
        if letter and marks < _MAX_MARKS and _is_mark(piece) and _is_shown(piece, encoding):
            letter, marks = letter + piece, marks + 1
            continue
        if letter:
            yield MeasuredText(letter, sum(map(_measure, letter)))
            letter, marks = "", 0
        if piece[0] == " ":
            yield from _name_blanks(len(piece)) if len(piece) > most_blanks else [MeasuredText(" ", 1)] * len(piece)
        elif piece[0] == "\t":
            yield from _escape(f"{len(piece)} tabs" if len(piece) > 1 else "tab")
        elif piece in escapes:
            yield MeasuredText(escapes[piece], len(escapes[piece]))
        elif piece == "\\" and text.startswith("{", found.end()):
            yield from _escape("U+005C")
        elif _is_mark(piece) or not _is_shown(piece, encoding):  # a mark without a letter
            yield from _escape(f"U+{ord(piece):04X}")
        else:
            letter = piece
    if letter:
        yield MeasuredText(letter, sum(map(_measure, letter)))


def _name_blanks(count: int) -> list[MeasuredText]:
    return _escape(f"{count:,} blank{'s' if count > 1 else ''}") if count else []


def _escape(what: str) -> list[MeasuredText]:
    text = f"\\{{{what}}}"
    return [MeasuredText(text, len(text))]


def _is_mark(character: str) -> bool:
    """Return True if the character is a combining mark, drawn onto the character before it."""
    return unicodedata.category(character[0]) in {"Mn", "Mc", "Me"}


def _is_shown(character: str, encoding: str) -> bool:
    """Return True if a terminal shows the character, visibly and in its place."""
    if character.isascii():
        return character.isprintable()
    if not character.isprintable() or is_invisible_character(character):
        return False
    if unicodedata.bidirectional(character) in {"R", "AL", "AN"}:  # some terminals turn the whole row around
        return False
    try:
        character.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _measure(character: str) -> int:
    """Return the width of a character in columns; where terminals differ, the larger one."""
    if character.isascii():
        return 1
    narrow = ord(character) < _FIRST_WIDE and unicodedata.east_asian_width(character) in {"N", "Na", "H"}
    return 1 if narrow else 2


def _remark(text: str) -> str:
    """Return a remark on letters that may look like others, such as Cyrillic ones; empty for ASCII."""
    return "" if text.isascii() else " (has characters outside ASCII)"
