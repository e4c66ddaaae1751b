"""The status line: what is left out where there is little room."""

import pytest

from perdure.cli.chat.status_text import format_status, format_usage, shorten_count
from perdure.core.message import Usage
from perdure.runtime.session_report import SessionUsage

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
