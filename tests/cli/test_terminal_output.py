"""What appears on a terminal cannot act on it."""

import errno
import fcntl
import io
import json
import os
import pty
import struct
import sys
import termios
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure._cli.terminal.output import (
    MAX_COMBINING_MARKS,
    OutputFailed,
    TerminalOutput,
    can_ask_user,
    discard_output,
    escape_controls,
    indent_lines,
    is_terminal,
    line_width,
    measure_terminal,
    repair_standard_streams,
    report_error,
    to_ascii_json,
    to_one_line,
    uses_cursor,
    uses_styles,
    warn,
)

HOSTILE = st.text(
    st.one_of(
        st.characters(),
        st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "Mn", "Me"]),
        st.sampled_from("\x1b[]0;\x07\x08\r\n\t\x7f\x9b\x9d\u202e\u2066\u200d"),
    )
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text,\n\tindented", "plain text,\n\tindented"),
        ("Grüße, 你好, שלום", "Grüße, 你好, שלום"),
        ("\x1b[2J", "␛[2J"),
        ("\x1b]52;c;cm0=\x07", "␛]52;c;cm0=␇"),
        ("safe\rover", "safe␍over"),
        ("ab\b\bcd", "ab␈␈cd"),
        ("\x00\x7f", "␀␡"),
        ("\x9b31m\x9d0;t\x9c", r"\x9b31m\x9d0;t\x9c"),
        ("gpj.\u202eexe", r"gpj.\u202eexe"),
        ("\u2066hidden\u2069", r"\u2066hidden\u2069"),
        ("a\U000e0041b", r"a\U000e0041b"),
        ("\ud800", r"\ud800"),
        ("👩\u200d🚀 ख\u200cग", "👩\u200d🚀 ख\u200cग"),
        ("é" + "\u0301" * 5, "é" + "\u0301" * 5),
        ("\u0301" * 8, "\u0301" * 8),
        ("e" + "\u0301" * 9 + "f", "e" + "\u0301" * MAX_COMBINING_MARKS + "…f"),
        ("e" + "\u0301" * 10_000 + "f", "e" + "\u0301" * MAX_COMBINING_MARKS + "…f"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text, shown):
    assert escape_controls(text) == shown


@given(HOSTILE)
@example("\x1b[31m\x9b\u202e\ud800")
def test_nothing_that_a_terminal_obeys_is_left(text):
    shown = escape_controls(text)
    assert {character for character in shown if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}} <= {
        *"\n\t\u200c\u200d"
    }
    shown.encode()


@given(HOSTILE)
def test_showing_twice_changes_nothing(text):
    assert escape_controls(escape_controls(text)) == escape_controls(text)
    assert to_one_line(to_one_line(text)) == to_one_line(text)


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_ordinary_text_is_left_alone(text):
    assert escape_controls(text) == text


@given(HOSTILE, st.text())
def test_pieces_are_shown_like_the_whole(one, other):
    """A stream may be cut anywhere, an escape sequence included; only a tower of marks may be counted anew."""
    if not any(unicodedata.category(character) in {"Mn", "Me"} for character in one + other):
        assert escape_controls(one) + escape_controls(other) == escape_controls(one + other)


@given(HOSTILE)
def test_one_line_is_one_line_without_anything_out_of_sight(text):
    line = to_one_line(text)
    assert line.isprintable()
    assert len(line.splitlines()) <= 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("rm a\nrm b", "rm a␊rm b"),
        ("a\tb", "a␉b"),
        ("no\u00a0break", r"no\xa0break"),
        ("zero\u200bwidth\u200d", r"zero\u200bwidth\u200d"),
        ("filler\u3164\u2800\ufe0f", r"filler\u3164\u2800\ufe0f"),
    ],
)
def test_a_line_shows_what_could_hide_in_it(text, line):
    assert to_one_line(text) == line


@pytest.mark.parametrize(("most", "line"), [(None, "abcdef"), (6, "abcdef"), (5, "abcd…"), (1, "…"), (0, "…")])
def test_a_line_that_is_cut_says_so(most, line):
    assert to_one_line("abcdef", most) == line


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_json_in_ascii_means_the_same(value):
    line = to_ascii_json(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


# -- the output of a command -------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A stream of a terminal, of which the size is not known."""

    shown = ""
    """What was flushed, and is on the screen."""

    def isatty(self):
        return True

    def flush(self):
        self.shown = self.getvalue()


class Closed(Terminal):
    """A stream that takes nothing any more."""

    def __init__(self, error):
        super().__init__()
        self._error = error

    def write(self, text):
        raise self._error


@pytest.fixture
def streams(monkeypatch):
    """Give standard output and standard error other streams, and return them: terminals unless others are given."""

    def give(output=None, errors=None):
        pair = output or Terminal(), errors or Terminal()
        monkeypatch.setattr(sys, "stdout", pair[0])
        monkeypatch.setattr(sys, "stderr", pair[1])
        return pair

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return give


def test_an_answer_goes_to_standard_output_and_notes_begin_a_line_of_their_own(streams):
    output, errors = streams()
    screen = TerminalOutput()
    assert (screen.is_quiet, screen.is_at_line_start) == (False, True)
    screen.end_line()
    screen.write("half\x1b")
    assert not screen.is_at_line_start
    screen.write("")
    assert not screen.is_at_line_start
    screen.note("one\ntwo\x1b")
    assert screen.is_at_line_start
    screen.write("end\n")
    assert screen.is_at_line_start
    screen.end_line()
    screen.note_rows("| row\n| row")
    screen.write_question("sure? ")
    assert output.shown == "half␛\nend\n"
    assert errors.shown == "\x1b[2mone\n  two␛\x1b[0m\n\x1b[2m| row\n| row\x1b[0m\nsure? "


def test_a_note_does_not_break_an_answer_that_goes_into_a_file(streams):
    output, errors = streams(output=io.StringIO(), errors=io.StringIO())
    screen = TerminalOutput()
    screen.write("half")
    screen.note("note")
    screen.write(" and half")
    screen.end_line()
    assert (output.getvalue(), errors.getvalue()) == ("half and half\n", "note\n")


def test_a_quiet_command_writes_no_notes_and_asks_and_warns_all_the_same(streams):
    output, errors = streams()
    screen = TerminalOutput(quiet=True)
    assert screen.is_quiet
    screen.write("half")
    screen.note("note")
    screen.note_rows("rows")
    screen.write_question("sure? ")
    warn("one\ntwo\x07")
    report_error("one\ntwo\x07")
    assert output.getvalue() == "half"
    assert errors.getvalue() == "sure? warning: one\n  two␇\nerror: one\n  two␇\n"


def test_raw_text_is_written_as_it_is(streams):
    output, _ = streams()
    TerminalOutput(raw=True).write("a\x1b[1m")
    assert output.getvalue() == "a\x1b[1m"


@pytest.mark.parametrize(
    ("error", "is_broken_pipe"),
    [(BrokenPipeError(errno.EPIPE, "Broken pipe"), True), (OSError(errno.ENOSPC, "No space left on device"), False)],
)
def test_output_that_cannot_be_written_is_an_error_that_says_why(streams, error, is_broken_pipe):
    streams(output=Closed(error))
    screen = TerminalOutput()
    with pytest.raises(OutputFailed) as raised:
        screen.write("x")
    assert str(raised.value) == f"standard output cannot be written: {error.strerror}; check where it goes"
    assert raised.value.is_broken_pipe is is_broken_pipe
    assert screen.is_at_line_start


@pytest.mark.parametrize("error", [OSError(errno.EIO, "gone"), ValueError("closed")])
def test_a_closed_standard_error_stops_nothing(streams, error):
    streams(errors=Closed(error))
    TerminalOutput().note("x")
    warn("x")


@pytest.mark.parametrize(
    ("environment", "styled", "moved"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": "unknown"}, True, False),
        ({"TERM": ""}, True, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, False, True),
    ],
)
def test_styles_and_the_cursor_are_used_where_a_terminal_has_them(streams, monkeypatch, environment, styled, moved):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    streams()
    assert (uses_styles(), uses_cursor()) == (styled, moved)
    streams(errors=io.StringIO())
    assert (uses_styles(), uses_cursor()) == (False, False)


@pytest.mark.parametrize("file", ["stdin", "stdout", "stderr"])
def test_a_user_is_asked_at_a_terminal_only(streams, monkeypatch, file):
    streams()
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert can_ask_user()
    assert is_terminal()
    monkeypatch.setattr(sys, file, io.StringIO())
    assert can_ask_user() is (file == "stdout")
    assert not is_terminal()


@pytest.mark.parametrize(
    ("columns", "lines", "size"),
    [
        ("97", "31", (97, 31)),
        ("1", "10000", (1, 10_000)),
        ("10001", "0", (80, 24)),
        ("", "-3", (80, 24)),
        ("x", "²", (80, 24)),
    ],
)
def test_a_terminal_that_does_not_say_its_size_has_that_of_the_environment(monkeypatch, columns, lines, size):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", lines)
    assert measure_terminal(Terminal()) == size
    assert line_width(Terminal()) == max(size[0], 20) - 1
    assert line_width(io.StringIO()) is None


def test_the_terminal_itself_is_asked_first(monkeypatch):
    monkeypatch.setenv("COLUMNS", "97")
    monkeypatch.setenv("LINES", "31")
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "wb", 0), os.fdopen(theirs, "w") as stream:
        fcntl.ioctl(stream, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 34, 0, 0))
        assert measure_terminal(stream) == (34, 12)
        fcntl.ioctl(stream, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 34, 0, 0))
        assert measure_terminal(stream) == (34, 31)


def test_further_lines_are_indented():
    assert indent_lines("a\nb\n\nc") == "a\n  b\n  \n  c"


def test_streams_that_were_closed_are_usable_and_write_characters_that_they_lack_as_escapes(monkeypatch):
    before = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdin", before)
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    free = os.dup(0)
    os.close(free)
    repair_standard_streams()
    again = os.dup(0)
    os.close(again)
    assert again == free  # it has left nothing open
    assert (sys.stdin is before, before.errors) == (True, "strict")
    assert (sys.stdout.fileno(), sys.stdout.mode, sys.stdout.encoding) == (1, "w", "utf-8")
    assert sys.stdout.errors == sys.stderr.errors == "backslashreplace"
    monkeypatch.setattr(sys, "stdin", None)
    repair_standard_streams()
    assert (sys.stdin.fileno(), sys.stdin.mode) == (0, "r")


def test_a_stream_that_is_no_file_is_left_as_it_is(monkeypatch, streams):
    output, errors = streams()
    repair_standard_streams()
    assert (sys.stdout, sys.stderr) == (output, errors)
    discard_output()
    output.write("x")
    assert output.getvalue() == "x"


def test_discarded_output_goes_nowhere(monkeypatch, tmp_path):
    with (tmp_path / "output").open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        free = os.dup(0)
        os.close(free)
        discard_output()
        again = os.dup(0)
        os.close(again)
        stream.write("lost")
        stream.flush()
    assert again == free
    assert (tmp_path / "output").read_text() == ""
