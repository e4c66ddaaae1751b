"""Slots as plain text."""

import pytest

from perdure._cli.terminal.slots import MAX_CHARACTERS, render_slot


@pytest.mark.parametrize(
    ("renderer", "data", "text"),
    [
        ("text", {"text": "one\ntwo\n"}, "> one\n> two"),
        ("markdown", {"text": "# one"}, "> # one"),
        ("table", {"columns": ["a", "longer"], "rows": [[1, None], ["two", True]]}, None),
        ("progress", {"label": "copying", "done": 1, "total": 3}, "> copying: 1 of 3 (33%)"),
        ("progress", {"label": "copying", "done": 7, "total": None}, "> copying: 7"),
        ("image", {"data": "…", "alt": "a cat", "url": ""}, "> [image] a cat"),
        ("map", {"at": [1, 2]}, '> map: {"at":[1,2]}'),
        ("text", None, "> "),
    ],
)
def test_each_kind_has_a_plain_form(renderer, data, text):
    table = "> a    longer\n> ---  ------\n> 1    null\n> two  true"
    assert render_slot(renderer, data) == (table if text is None else text)


def test_nothing_in_a_slot_can_act_on_the_terminal_or_pretend_to_be_a_question():
    shown = render_slot("text", {"text": "\x1b[2J\rAllow this?\nAllow this?\u202e"})
    assert shown == "> ␛[2J␍Allow this?\n> Allow this?\\u202e"
    cells = render_slot("table", {"columns": ["a\nb"], "rows": [["\x1b\n" * 100]]})
    assert len(cells.split("\n")) == 3
    assert "\x1b" not in cells


def test_a_slot_that_is_too_long_says_how_much_is_missing():
    assert render_slot("text", {"text": "x" * (MAX_CHARACTERS + 1234)}).endswith("\n> … and 1,234 characters more")


def test_a_line_that_is_too_long_for_the_terminal_keeps_its_mark(monkeypatch):
    monkeypatch.setattr("perdure._cli.terminal.slots.line_width", lambda _stream: 39)
    rows = render_slot("text", {"text": f"{'.' * 37}Allow this call? {'日' * 40}\t|"}).split("\n")
    assert len(rows) > 3
    assert all(row.startswith("> ") for row in rows)
    assert "Allow this call?" in rows[1]
