"""Tool cards: what a call says of itself in one row, and how a long result is folded."""

import pytest

from perdure import Status, Text, ToolResult
from perdure._cli.chat.rows import build_card, cut_row, describe_call


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"text": "long", "path": "a.py"}', "run a.py"),
        ('{"count": 3, "word": "x"}', "run x"),
        ('{"count": 3}', 'run {"count": 3}'),
        ("{}", "run"),
        ("", "run"),
        ("no JSON", "run no JSON"),
        ("[1]", "run [1]"),
    ],
)
def test_a_call_is_named_with_its_most_telling_argument(arguments, shown):
    assert describe_call("run", arguments) == shown


def test_a_hostile_name_is_quoted_and_a_heading_is_one_row():
    result = ToolResult("c", "a\n| tool: x", (Text("ok"),), Status.ERROR)
    heading = build_card(1, result, '{"path": "x\\ny"}', 2.4).format_heading(80)
    assert heading == '* "a\\n| tool: x" x␊y (error) (2 s)'
    assert cut_row("日" * 30, 20) == "日" * 8 + "…"


@pytest.mark.parametrize(
    ("length", "columns", "row"),
    [
        (29, 30, "x" * 29),
        (30, 30, "x" * 27 + "…"),
        (19, 20, "x" * 19),
        (20, 20, "x" * 17 + "…"),
        (20, 5, "x" * 17 + "…"),
        (0, 30, ""),
    ],
)
def test_a_row_that_does_not_fit_without_the_last_column_is_cut(length, columns, row):
    assert cut_row("x" * length, columns) == row


@pytest.mark.parametrize("status", [Status.DENIED, Status.CANCELLED_BEFORE_START])
@pytest.mark.parametrize("columns", [20, 40, 60])
def test_a_long_call_does_not_hide_how_it_ended(status, columns):
    result = ToolResult("c", "bash", (Text("no"),), status)
    heading = build_card(1, result, '{"command": "echo ' + "long " * 30 + '"}', 12.0).format_heading(columns)
    assert len(heading) < columns
    assert heading.startswith("* bash echo")
    if columns == 60 or (columns, status) == (40, Status.DENIED):
        assert heading.endswith(f"… ({status}) (12 s)")


@pytest.mark.parametrize(("count", "hidden"), [(0, 0), (9, 0), (10, 2), (500, 492)])
def test_a_long_result_shows_its_beginning_and_its_end(count, hidden):
    text = "".join([f"{number}\n" for number in range(count)])
    card = build_card(1, ToolResult("c", "run", (Text(text),)), "{}", 0.0)
    head, tail, left_out = card.fold_rows()
    assert left_out == hidden
    assert len(head) + len(tail) + left_out == count
    assert not hidden or (head[0], tail[-1]) == ("0", str(count - 1))


def test_a_diff_shows_its_beginning():
    diff = "".join([f"+{number}\n" for number in range(40)])
    card = build_card(1, ToolResult("c", "edit", (Text("edited"),)), "{}", 0.0, diff)
    assert (card.is_diff, [len(part) for part in card.fold_rows()[:2]], card.fold_rows()[2]) == (True, [16, 0], 24)
