"""The status line: what is left out where there is little room."""

import pytest

from perdure import SessionUsage, Usage
from perdure._cli.chat.rows import (
    format_cost,
    format_status,
    format_usage,
    format_usage_briefly,
    shorten_count,
)

USED = SessionUsage(usage=Usage(12_345, 678, cache_read_tokens=6_000), turns=3, cost_usd=0.0123)


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (80, "ready | 12.3k in, 49% cached, 678 out $0.0123 | m:x | s1"),
        (55, "ready | 12.3k in, 49% cached, 678 out $0.0123 | m:x"),
        (50, "ready | 12.3k in, 49% cached, 678 out $0.0123"),
        (40, "ready | 12.3k/678 49% $0.0123"),
        (10, "ready"),
    ],
)
def test_what_matters_least_is_left_out(columns, line):
    assert format_status(state="ready", model="m:x", session="s1", usage=USED, columns=columns) == line


def test_nothing_is_said_of_nothing():
    assert format_usage(None) == ""
    assert format_usage(SessionUsage(usage=Usage(), turns=0, cost_usd=None)) == ""
    unknown = SessionUsage(usage=Usage(5, 6), turns=1, cost_usd=None)
    assert format_usage(unknown) == "5 in, 6 out"
    assert format_status(state="ready", model="m", session="s", usage=None, columns=7) == "ready"


def test_counts_are_short():
    assert [shorten_count(each) for each in (0, 999, 1000, 999_949, 2_500_000)] == [
        "0", "999", "1.0k", "999.9k", "2.5M",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("usage", "turns", "cost", "whole", "brief"),
    [
        (Usage(1, 2, cache_read_tokens=1), 1, None, "1 in, 100% cached, 2 out", "1/2 100%"),
        (Usage(0, 2, cache_read_tokens=1), 1, 0.0, "0 in, 100% cached, 2 out $0.00", "0/2 100% $0.00"),
        (Usage(1000, 2), 1, 1.0, "1.0k in, 2 out $1.00", "1.0k/2 $1.00"),
        (Usage(1000, 2), 0, 1.0, "", ""),
    ],
)
def test_usage_is_said_in_full_and_briefly(usage, turns, cost, whole, brief):
    used = SessionUsage(usage=usage, turns=turns, cost_usd=cost)
    assert (format_usage(used), format_usage_briefly(used)) == (whole, brief)


def test_of_nothing_nothing_is_said_briefly_either():
    assert format_usage_briefly(None) == ""


def test_a_cost_below_a_dollar_has_four_decimals():
    assert [format_cost(each) for each in (0.0, 0.00004, 0.99994, 1.0, 12.345)] == [
        "$0.00", "$0.0000", "$0.9999", "$1.00", "$12.35",
    ]  # fmt: skip


def test_a_line_has_to_be_narrower_than_the_terminal():
    for columns, line in ((17, "ready | m:x | s1"), (16, "ready | m:x"), (12, "ready | m:x"), (11, "ready")):
        assert format_status(state="ready", model="m:x", session="s1", usage=None, columns=columns) == line
    assert format_status(state="a", model="b\n", session="c\t", usage=None, columns=80) == "a | b␊ | c␉"
