"""Slots as plain text."""

import pytest

from perdure.cli.slot_text import LONGEST, slot_text


@pytest.mark.parametrize(
    ("renderer", "data", "text"),
    [
        ("text", {"text": "one\ntwo\n"}, "| one\n| two"),
        ("markdown", {"text": "# one"}, "| # one"),
        ("table", {"columns": ["a", "longer"], "rows": [[1, None], ["two", True]]}, None),
        ("progress", {"label": "copying", "done": 1, "total": 3}, "| copying: 1 of 3 (33%)"),
        ("progress", {"label": "copying", "done": 7, "total": None}, "| copying: 7"),
        ("image", {"data": "…", "alt": "a cat", "url": ""}, "| [image] a cat"),
        ("map", {"at": [1, 2]}, '| map: {"at":[1,2]}'),
        ("text", None, "| "),
    ],
)
def test_each_kind_has_a_plain_form(renderer, data, text):
    table = "| a    longer\n| ---  ------\n| 1    null\n| two  true"
    assert slot_text(renderer, data) == (table if text is None else text)


def test_nothing_in_a_slot_can_act_on_the_terminal_or_pretend_to_be_a_question():
    shown = slot_text("text", {"text": "\x1b[2J\rMay this be done?\nMay this be done?\u202e"})
    assert shown == "| ␛[2J␍May this be done?\n| May this be done?\\u202e"
    cells = slot_text("table", {"columns": ["a\nb"], "rows": [["\x1b\n" * 100]]})
    assert len(cells.split("\n")) == 3
    assert "\x1b" not in cells


def test_a_slot_that_is_too_long_says_how_much_is_missing():
    assert slot_text("text", {"text": "x" * (LONGEST + 1234)}).endswith("\n| … and 1,234 characters more")
