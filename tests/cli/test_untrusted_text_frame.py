"""Rows that nothing in a text can imitate."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure._cli.terminal.frame import (
    LABEL_MARK,
    MIN_WIDTH,
    MORE_MARK,
    PLAIN_WIDTH,
    VALUE_MARK,
    UntrustedTextFrame,
    make_frame,
    measure_text,
    quote_text,
    quote_unless_plain,
    split_pages,
    wrap_text,
    wrap_words,
)
from perdure._cli.terminal.output import measure_terminal
from tests.security.emulator import draw_rows

NASTY = st.sampled_from(
    [
        *"\x00\x07\x08\x0b\x0c\r\n\t\x1b\x7f\x85\x9b\xa0\xad",
        *"\u0300\u034f\u0489\u05d0\u0627\u0660\u1160\u115f\u180e\u200b\u200d\u200e\u200f\u2028\u2029\u202a\u202e",
        *"\u2066\u2069\u2800\u3000\u3164\ufe0f\ufeff\uff5c\uffa0\U0001f600\U0001f3fb\U000e0041\u4e00\uac00│|:\\{}\"'",
        "\x1b[2J",
        "\x1b[1A",
        "\x1b]0;x\x07",
        " " * 200,
        "\n| tool: ",
        "\nAllow this call? (1 of 1, 5 rows)\n",
        "\\{3 blanks}",
        "\ud800",
    ]
)
TEXTS = st.lists(st.one_of(NASTY, st.text(max_size=8)), max_size=25).map("".join)
WIDTHS = st.sampled_from([20, 21, 40, 80, 133])

ESCAPE = re.compile(r"\\\{([^}]*)\}|\\(.)")


def unescape(shown: str) -> str:
    """What a row means, as its reader would work it out."""

    def decode(found: re.Match[str]) -> str:
        name, letter = found.groups()
        if letter is not None:
            return {"n": "\n", "r": "\r"}.get(letter, letter)
        if name.startswith("U+"):
            return chr(int(name.replace("U+", "0x"), 0))
        number, _, what = name.partition(" ") if " " in name else ("1", "", name)
        return {"blank": " ", "blanks": " ", "tab": "\t", "tabs": "\t"}[what] * int(number.replace(",", ""))

    return ESCAPE.sub(decode, shown)


@given(TEXTS)
def test_a_quoted_text_is_one_printable_line_from_which_the_text_can_be_told(text):
    shown = quote_text(text)
    assert shown.isprintable()
    assert unescape(shown[1:-1]) == text


@given(TEXTS, WIDTHS)
def test_every_row_on_the_screen_begins_with_a_mark_and_is_one_row(text, width):
    frame = UntrustedTextFrame(width)
    frame.add_value("target", text)
    frame.add_value("tool", "x")
    drawn = draw_rows("".join([f"{row}\r\n" for row in frame.rows]), width)
    assert len(drawn) == len(frame.rows)
    assert all(row.startswith((LABEL_MARK, VALUE_MARK.rstrip(), MORE_MARK)) for row in drawn)
    labels = [row for row in drawn if row.startswith(LABEL_MARK)]
    assert labels[0].startswith("| target: ")
    assert labels[-1] == '| tool: "x"'
    assert len(labels) == 2


@given(st.lists(TEXTS.map(lambda text: text.replace("\n", "")), min_size=2, max_size=5), WIDTHS)
def test_the_lines_of_a_text_stand_under_their_numbers_and_can_be_told(lines, width):
    frame = UntrustedTextFrame(width)
    frame.add_text("text", "\n".join([*lines, ""]))
    rows = [row for row in frame.rows if row.startswith(VALUE_MARK)]
    assert [int(row[2]) for row in rows if row[2] != " "] == list(range(1, len(lines) + 1))
    joined = "".join([row[4:] if row[2] == " " else f"\n{row[4:]}" for row in rows])
    meant = [re.sub(r"\\\{([^}]*)\}", lambda found: unescape(found[0]), line) for line in joined.split("\n")[1:]]
    assert meant == lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", '"plain text"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("a\\b", '"a\\\\b"'),
        ("a\nb\tc\r", '"a\\nb\\{tab}c\\r"'),
        ("a" + " " * 118 + "b", '"a\\{118 blanks}b"'),
        ("a   b", '"a   b"'),
        ("\t\t", '"\\{2 tabs}"'),
        ("\x1b[2J", '"\\{U+001B}[2J"'),
        ("a\u202eb", '"a\\{U+202E}b"'),
        ("שלום", '"\\{U+05E9}\\{U+05DC}\\{U+05D5}\\{U+05DD}"'),
        ("zero\u200bwidth", '"zero\\{U+200B}width"'),
        ("cafe\u0301", '"cafe\u0301"'),
        ("\u0301x", '"\\{U+0301}x"'),
        ("x" + "\u0301" * 6, '"x' + "\u0301" * 4 + "\\{U+0301}\\{U+0301}" + '"'),
        ("ye\u0301" + "x" + "\u0301" * 4, '"ye\u0301x' + "\u0301" * 4 + '"'),
        ("\\{3 blanks}", '"\\\\{3 blanks}"'),
        ("日本", '"日本"'),
        ("", '""'),
    ],
)
def test_what_could_mislead_is_named(text, shown):
    assert quote_text(text) == shown


@pytest.mark.parametrize(("most", "shown"), [(None, '"abc"'), (4, '"abc"'), (3, '"abc"'), (2, '"ab"…'), (0, '""…')])
def test_a_quoted_text_that_is_cut_says_so(most, shown):
    assert quote_text("abc", most) == shown


def test_a_name_needs_no_quotes_unless_it_could_mislead():
    assert quote_unless_plain("openai:gpt-5.1/mini") == "openai:gpt-5.1/mini"
    assert quote_unless_plain("two words") == '"two words"'
    assert quote_unless_plain("") == '""'
    assert quote_unless_plain("x" * 100) == "x" * 100
    assert quote_unless_plain("x" * 101) == f'"{"x" * 101}"'


def test_a_text_shows_its_lines_with_indentation_and_trailing_blanks():
    frame = UntrustedTextFrame(80)
    frame.add_value("text", "def f():\n    return '\\d'\n  \n\tx  \nend")
    assert frame.rows == [
        "| text: 5 lines, 36 characters, without a line break at the end",
        ": 1 def f():",
        ": 2     return '\\d'",
        ": 3 \\{2 blanks}",
        ": 4 \\{tab}x\\{2 blanks}",
        ": 5 end",
    ]


def test_a_line_cannot_imitate_an_escape_and_has_its_indentation_up_to_16_blanks():
    frame = UntrustedTextFrame(80)
    frame.add_text("text", f"a\\{{3 blanks}}\n{' ' * 16}b{' ' * 8}c\n{' ' * 17}b{' ' * 9}c\n")
    assert frame.rows == [
        "| text: 3 lines, 69 characters",
        ": 1 a\\{U+005C}{3 blanks}",
        ": 2                 b        c",
        ": 3 \\{17 blanks}b\\{9 blanks}c",
    ]


def test_a_single_line_is_one_line_and_the_numbers_of_many_stand_below_each_other():
    frame = UntrustedTextFrame(25)
    frame.add_text("a", "x\n")
    frame.add_text("b", "1\n" * 9 + "y" * 20)
    frame.add_label("label " + "z" * 20)
    assert frame.rows == [
        "| a: 1 line, 2 character",
        "|+s",
        ": 1 x",
        "| b: 10 lines, 38 charac",
        "|+ters, without a line b",
        "|+reak at the end",
        *[f":  {number} 1" for number in range(1, 10)],
        ": 10 " + "y" * 19,
        ":    y",
        "| label " + "z" * 16,
        "|+zzzz",
    ]


def test_a_blank_at_which_a_row_ends_is_seen_on_the_next():
    for text in ("x" * 12 + " y", "x" * 13 + " y"):
        frame = UntrustedTextFrame(24)
        frame.add_value("label", text)
        assert frame.rows[1].startswith(":  y")


def test_wide_characters_count_twice_and_a_long_escape_is_cut():
    frame = UntrustedTextFrame(20)
    frame.add_value("a", "日" * 20 + " " * 1_234_567)
    assert max(map(len, frame.rows)) <= 19
    assert len(draw_rows("\r\n".join(frame.rows), 20)) == len(frame.rows)
    assert '\\{1,234,567 blanks}" (has characters outside ASCII)' in "".join([row[2:] for row in frame.rows])


def test_a_character_has_its_width_and_the_larger_one_where_terminals_differ():
    assert [measure_text(each) for each in ("a", "č", "日", "č日", "é", "\U0001f600")] == [1, 1, 2, 3, 2, 2]


def test_a_stream_that_cannot_write_a_character_gets_its_number():
    frame = UntrustedTextFrame(80, "ascii")
    frame.add_value("a", "é日")
    assert frame.rows == ['| a: "\\{U+00E9}\\{U+65E5}" (has characters outside ASCII)']


def test_where_there_is_no_terminal_rows_have_a_fixed_width(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    frame = make_frame(stream)
    frame.add_value("a", "x" * 200)
    assert max(map(len, frame.rows)) == PLAIN_WIDTH - 1
    monkeypatch.setenv("COLUMNS", "97")
    monkeypatch.setenv("LINES", "31")
    assert measure_terminal(stream) == (97, 31)
    for nonsense in ("", "0", "-3", "x", "²", "99999999"):
        monkeypatch.setenv("COLUMNS", nonsense)
        assert measure_terminal(stream).columns == PLAIN_WIDTH + 1


def test_a_frame_is_never_narrower_than_it_can_be_read():
    frame = UntrustedTextFrame(3)
    frame.add_value("a", "x" * 100)
    assert max(map(len, frame.rows)) == MIN_WIDTH - 1


def test_rows_are_split_into_pages_that_fit():
    rows = [str(number) for number in range(45)]
    assert [len(page) for page in split_pages(rows, 24)] == [19, 19, 7]
    assert [len(page) for page in split_pages(rows[:12], 3)] == [5, 5, 2]
    assert split_pages([], 24) == [[]]


def test_words_of_ours_are_wrapped_at_blanks():
    frame = UntrustedTextFrame(40)
    frame.add_words("input: 3,600 tokens, of which 2,700 from the cache")
    frame.add_words("rule 1: " + "x" * 50)
    assert frame.rows == [
        "| input: 3,600 tokens, of which 2,700",
        "|+ from the cache",
        "| rule 1:",
        "|+ " + "x" * 36,
        "|+ " + "x" * 14,
    ]


def test_blanks_between_words_are_kept_within_a_row():
    assert wrap_words("restored  notes.txt", 40) == ["restored  notes.txt"]


@pytest.mark.parametrize(
    ("line", "width", "taken", "rows"),
    [
        ("abcdef", None, 0, ["abcdef"]),
        ("日" * 9, None, 2, ["日" * 9]),
        ("abcdef", 6, 0, ["abcdef"]),
        ("abcdef", 5, 0, ["abcde", "f"]),
        ("abcdef", 6, 1, ["abcde", "f"]),
        ("abcdef", 1, 5, ["a", "b", "c", "d", "e", "f"]),
        ("日本語", 4, 0, ["日本", "語"]),
        ("日本語", 5, 0, ["日本", "語"]),
        ("日本語", 6, 1, ["日本", "語"]),
        ("日本", 1, 0, ["日", "本"]),
        ("a\tb", 9, 0, ["a\t", "b"]),
        ("a\tb", 10, 0, ["a\tb"]),
        ("č" * 3, 3, 0, ["č" * 3]),
        ("", 3, 0, [""]),
    ],
)
def test_a_line_is_cut_where_the_terminal_would_begin_a_new_row(line, width, taken, rows):
    assert wrap_text(line, width, taken) == rows
    if not taken:
        assert wrap_text(line, width) == rows


@pytest.mark.parametrize(
    ("line", "width", "taken", "rows"),
    [
        ("aa bb cc", 5, 0, ["aa bb", "cc"]),
        ("aa bb cc", 5, 1, ["aa", "bb", "cc"]),
        ("aaaaaaa b", 3, 0, ["aaa", "aaa", "a b"]),
        ("a bbbbbbb c", 4, 1, ["a", "bbb", "bbb", "b c"]),
        ("日 本", 5, 0, ["日 本"]),
        ("日 本", 4, 0, ["日", "本"]),
    ],
)
def test_words_are_wrapped_and_a_word_that_is_too_wide_is_cut(line, width, taken, rows):
    assert wrap_words(line, width, taken) == rows
    if not taken:
        assert wrap_words(line, width) == rows
