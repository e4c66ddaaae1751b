"""Notes of the chat are wrapped at words, and no row is wider than the terminal."""

import pytest

from perdure._cli.chat.rows import build_note_rows
from perdure._cli.terminal.frame import measure_text


def test_a_note_is_wrapped_at_words_and_indented():
    assert build_note_rows("press Ctrl-C once more to leave", 20) == ["- press Ctrl-C once", "  more to leave"]
    assert build_note_rows("one\ntwo", 20)[0] == "- one"


@pytest.mark.parametrize(
    "text",
    ["", " ", "a  b", "x" * 90, "日本語 " * 20, "a " + "日" * 40 + " b", "\x1b]52;c;QQ==\x07 " * 9, "a\tb " * 20],
)
@pytest.mark.parametrize("columns", [20, 40])
def test_no_row_is_wider_than_the_terminal_and_nothing_is_lost(text, columns):
    rows = build_note_rows(text, columns)
    assert all(measure_text(row) < columns for row in rows)
    assert "\x1b" not in "".join(rows)
    if "\x1b" not in text:
        assert "".join(rows).replace(" ", "").removeprefix("-") == "".join(text.split())
