"""What appears on a terminal: text that cannot act on it. Above: the commands. Below: the standard streams.

What models, tools and files say may hold escape sequences that move the cursor, change the title, fill the clipboard or
turn the reading direction. `visible` shows such characters instead of sending them, also into files and pipes, which
end up on terminals too. Answers go to standard output, everything about them to standard error.
"""

import os
import re
import sys
import unicodedata
from io import TextIOWrapper
from typing import Final, TextIO

import click

MARKS: Final = 8
"""Combining marks on one letter; what goes beyond them is cut off. No script that is in use needs as many."""

NARROWEST: Final = 40
"""Columns that a line is cut to at most, be the terminal as narrow as it may."""

_STANDARD_ERROR: Final = 2
_HARMLESS: Final = re.compile(r"[ -~\n\t]*")
_JOINERS: Final = "\u200c\u200d"
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_BLANK: Final = re.compile(  # letters and marks that show nothing, though Unicode calls them printable
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def visible(text: str) -> str:
    """The text with every character shown that a terminal would obey: `␛` for an escape, its number for an override.

    Line feeds and tabs are kept, and so are the joiners that emoji and some scripts are written with.
    """
    if _HARMLESS.fullmatch(text):
        return text
    shown = "".join([_shown(character) for character in text])
    return shown if shown.isascii() else _thinned(shown)


def one_line(text: str, most: int | None = None) -> str:
    """As `visible`, on one line and with nothing left out of sight; cut to `most` characters with a `…`."""
    line = "".join([_told(character) for character in visible(text)])
    return line if most is None or len(line) <= most else f"{line[: max(most - 1, 0)]}…"


def _shown(character: str) -> str:
    if character in "\n\t" or character in _JOINERS or unicodedata.category(character) not in _INVISIBLE:
        return character
    return _named(character)


def _told(character: str) -> str:
    return character if character.isprintable() and not _BLANK.match(character) else _named(character)


def _named(character: str) -> str:
    """The picture of a control character, or the number of any other."""
    code = ord(character)
    if code < 0x20:  # noqa: PLR2004 - the pictures of these stand in the same order
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else character.encode("unicode_escape").decode()  # noqa: PLR2004 - delete


def _thinned(text: str) -> str:
    """Cut towers of combining marks, which would cover the lines above."""
    kept: list[str] = []
    height = 0
    for character in text:
        height = height + 1 if unicodedata.category(character) in {"Mn", "Me"} else 0
        if height <= MARKS:
            kept.append(character)
        elif height == MARKS + 1:
            kept.append("…")
    return "".join(kept)


def json_line(data: bytes) -> str:
    """JSON in ASCII alone: it means the same, and no terminal and no encoding can stumble over it."""
    return "".join([_escaped(character) for character in data.decode()])


def _escaped(character: str) -> str:
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be")
    return "".join([f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2)])


class OutputFailed(Exception):
    """Standard output takes nothing more."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"standard output cannot be written: {cause.strerror}; check where it goes")
        self.nobody_reads = isinstance(cause, BrokenPipeError)
        """Whether the reader has simply seen enough, as in `perdure … | head -1`."""


class Screen:
    """Standard output and standard error of one command."""

    def __init__(self, *, raw: bool = False, quiet: bool = False) -> None:
        self._raw = raw
        self._quiet = quiet
        self._at_line_start = True

    def say(self, text: str) -> None:
        """Write a piece of an answer, at once."""
        if not text:
            return
        try:
            _write(sys.stdout, text if self._raw else visible(text))
        except OSError as error:
            raise OutputFailed(error) from error
        self._at_line_start = text.endswith("\n")

    def end_line(self) -> None:
        """End the line of an answer, if it has not ended."""
        if not self._at_line_start:
            self.say("\n")

    def note(self, text: str) -> None:
        """Tell something beside the answer, unless the command is to be quiet."""
        if self._quiet:
            return
        if not self._at_line_start and sys.stdout.isatty():  # in the middle of an answer on the same terminal
            self.end_line()
        _tell(_dimmed(visible(text)))

    def ask(self, text: str) -> None:
        """Put a question. It is shown in full, and stays on its line."""
        _tell(text, end="")


def warn(text: str) -> None:
    """Tell what somebody should know, be the command quiet or not."""
    _tell(f"warning: {visible(text)}")


def report_error(text: str) -> None:
    """Tell what went wrong, and what to do."""
    _tell(f"error: {visible(text)}")


def can_ask() -> bool:
    """Whether a person is there to be asked, and sees the question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def line_width(stream: TextIO) -> int | None:
    """How many characters a line may have that is not to wrap; any number where it is no terminal."""
    if not stream.isatty():
        return None
    import shutil

    return max(shutil.get_terminal_size().columns, NARROWEST) - 1


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()


def _tell(text: str, end: str = "\n") -> None:
    try:
        _write(sys.stderr, text + end)
    except (OSError, ValueError):
        return  # nobody reads it: that is no reason to stop


def _dimmed(text: str) -> str:
    plain = not sys.stderr.isatty() or os.environ.get("TERM") == "dumb" or "NO_COLOR" in os.environ
    return text if plain else click.style(text, dim=True)


# -- the streams themselves --------------------------------------------------------------------------------------------


def fill_streams() -> None:
    """Make all three streams usable, however the process was started.

    A stream that is closed would have its number given to the next file that is opened, and our words would end up in
    there. A character that the encoding of a stream lacks is written as its number.
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


def close_output() -> None:
    """Let go of standard output, where nobody reads any more: what still waits there would fail again at the end."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)
