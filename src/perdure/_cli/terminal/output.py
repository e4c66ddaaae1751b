"""Write to the terminal, with control characters from models, tools and files made visible.

Such text may contain escape sequences that move the cursor, change the title, fill the clipboard or turn the reading
direction. `escape_controls` shows such characters instead of sending them, also into files and pipes, which end up on
terminals too. Answers go to standard output, everything else to standard error.
"""

import os
import re
import sys
import unicodedata
from io import TextIOWrapper
from typing import Final, NamedTuple, TextIO

import click

MAX_COMBINING_MARKS: Final = 8
"""Combining marks kept on one letter; more are cut off. No script in use needs as many."""

MIN_COLUMNS: Final = 20
"""Smallest width that lines are cut to, however narrow the terminal."""

DEFAULT_COLUMNS: Final = 80
"""Columns of a terminal that does not say how many it has."""

_STANDARD_ERROR: Final = 2
_HARMLESS: Final = re.compile(r"[ -~\n\t]*")
_JOINERS: Final = "\u200c\u200d"
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_BLANK: Final = re.compile(  # letters and marks that show nothing, though Unicode calls them printable
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def escape_controls(text: str) -> str:
    """Replace each control character that a terminal would obey by a visible one, such as `␛` for an escape.

    Line feeds and tabs are kept, and so are the joiners that emoji and some scripts need.
    """
    if _HARMLESS.fullmatch(text):
        return text
    shown = "".join([_escape_character(character) for character in text])
    return shown if shown.isascii() else _cut_combining_marks(shown)


def to_one_line(text: str, most: int | None = None) -> str:
    """Return text as one line, with line breaks and control characters made visible; cut to `most` characters."""
    line = "".join([_escape_unprintable(character) for character in escape_controls(text)])
    return line if most is None or len(line) <= most else f"{line[: max(most - 1, 0)]}…"


def _escape_character(character: str) -> str:
    if character in "\n\t" or character in _JOINERS or unicodedata.category(character) not in _INVISIBLE:
        return character
    return _name_character(character)


def _escape_unprintable(character: str) -> str:
    return (
        character if character.isprintable() and not is_invisible_character(character) else _name_character(character)
    )


def is_invisible_character(character: str) -> bool:
    """Return True if a terminal draws nothing for the character, though Unicode calls it printable."""
    return _BLANK.match(character) is not None


def _name_character(character: str) -> str:
    """Return the Unicode symbol of a control character, or the escape code of any other character."""
    code = ord(character)
    if code < 0x20:  # noqa: PLR2004 - their pictures are in the same order
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else character.encode("unicode_escape").decode()  # noqa: PLR2004 - delete


def _cut_combining_marks(text: str) -> str:
    """Cut long runs of combining marks, which would cover the lines above."""
    kept: list[str] = []
    height = 0
    for character in text:
        height = height + 1 if unicodedata.category(character) in {"Mn", "Me"} else 0
        if height <= MAX_COMBINING_MARKS:
            kept.append(character)
        elif height == MAX_COMBINING_MARKS + 1:
            kept.append("…")
    return "".join(kept)


def indent_lines(text: str) -> str:
    """Indent all lines of a text but the first, so that they look like a continuation."""
    return text.replace("\n", "\n  ")


def to_ascii_json(data: bytes) -> str:
    """Return JSON with all non-ASCII characters escaped, which is safe for every terminal and encoding."""
    return "".join([_escape_json_character(character) for character in data.decode()])


def _escape_json_character(character: str) -> str:
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be")
    return "".join([f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2)])


class OutputFailed(Exception):
    """Raised when standard output cannot be written to: the disk is full, or the reader of the pipe has closed it."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"standard output cannot be written: {cause.strerror}; check where it goes")
        self.is_broken_pipe = isinstance(cause, BrokenPipeError)
        """True if the reader closed the pipe, as in `perdure … | head -1`."""


class TerminalOutput:
    """Writes a command's output to the terminal: answers to standard output, the rest to standard error."""

    def __init__(self, *, raw: bool = False, quiet: bool = False) -> None:
        self._raw = raw
        self._quiet = quiet
        self._at_line_start = True

    @property
    def is_quiet(self) -> bool:
        """True if notes are not written."""
        return self._quiet

    @property
    def is_at_line_start(self) -> bool:
        """True unless the last text on standard output did not end its line."""
        return self._at_line_start

    def write(self, text: str) -> None:
        """Write text to standard output and flush it. Raises `OutputFailed`."""
        if not text:
            return
        try:
            _write(sys.stdout, text if self._raw else escape_controls(text))
        except OSError as error:
            raise OutputFailed(error) from error
        self._at_line_start = text.endswith("\n")

    def end_line(self) -> None:
        """End the current line on standard output, if it has not ended."""
        if not self._at_line_start:
            self.write("\n")

    def note(self, text: str) -> None:
        """Write a line to standard error, unless the command is quiet. Further lines are indented."""
        self.note_rows(indent_lines(text))

    def note_rows(self, text: str) -> None:
        """Write rows that are framed already to standard error, unless the command is quiet."""
        if self._quiet:
            return
        if not self._at_line_start and sys.stdout.isatty():  # in the middle of an answer on the same terminal
            self.end_line()
        _write_error(_dim(escape_controls(text)))

    def write_question(self, text: str) -> None:
        """Write a question for the user to standard error, in full and without a line break."""
        _write_error(text, end="")


def warn(text: str) -> None:
    """Write a warning to standard error, even if the command is quiet."""
    _write_error(f"warning: {indent_lines(escape_controls(text))}")


def report_error(text: str) -> None:
    """Write an error to standard error: what went wrong, and what to do."""
    _write_error(f"error: {indent_lines(escape_controls(text))}")


def can_ask_user() -> bool:
    """Return True if the user can be asked: standard input and standard error are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def is_terminal() -> bool:
    """Return True if standard input, output and error are all a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()


class TerminalSize(NamedTuple):
    """Columns and rows of a terminal."""

    columns: int
    rows: int


def measure_terminal(stream: TextIO) -> TerminalSize:
    """Return the size of the terminal behind a stream; where it is unknown, COLUMNS and LINES, or 80 by 24.

    The terminal is asked first: with a wrong COLUMNS, it would cut rows in other places than we do.
    """
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        columns = rows = 0
    return TerminalSize(columns or _read_number("COLUMNS", DEFAULT_COLUMNS), rows or _read_number("LINES", 24))


def _read_number(variable: str, otherwise: int) -> int:
    given = os.environ.get(variable, "")
    return int(given) if given.isascii() and given.isdecimal() and 0 < int(given) <= 10_000 else otherwise  # noqa: PLR2004


def line_width(stream: TextIO) -> int | None:
    """Return the number of characters that fit on a line of the terminal; `None` if the stream is not a terminal."""
    if not stream.isatty():
        return None
    return max(measure_terminal(stream).columns, MIN_COLUMNS) - 1


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()


def _write_error(text: str, end: str = "\n") -> None:
    try:
        _write(sys.stderr, text + end)
    except (OSError, ValueError):
        return  # standard error is closed: that is no reason to stop


def uses_styles() -> bool:
    """Return True if text on standard error may have colours and styles: it is a terminal, and NO_COLOR is not set."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and "NO_COLOR" not in os.environ


def uses_cursor() -> bool:
    """Return True if a row on standard error can be redrawn: it is a terminal that can move its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in {"", "dumb", "unknown"}


def _dim(text: str) -> str:
    return click.style(text, dim=True) if uses_styles() else text


# -- the streams themselves --------------------------------------------------------------------------------------------


def repair_standard_streams() -> None:
    """Make standard input, output and error usable, even if the process was started with one of them closed.

    The number of a closed stream would be reused by the next file that is opened, and output would end up in that file.
    Characters that a stream's encoding lacks are written as escape codes.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        continue
    os.close(descriptor)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False))
        elif number and isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Redirect standard output to the null device, so that Python does not fail at exit on output it cannot write."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)
