"""What appears on a terminal cannot act on it."""

import json
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.cli.terminal_output import MAX_COMBINING_MARKS, escape_controls, to_ascii_json, to_one_line

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
