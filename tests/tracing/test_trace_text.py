import pytest

from perdure import Usage
from perdure.tracing.trace_text import cut_line, format_seconds, format_usage, format_usd
from tests.tracing.sample_traces import coding_session


def test_the_tree_has_turns_calls_retries_tokens_cost_and_times():
    lines = coding_session().live().format_tree(width=200).splitlines()
    assert lines[0] == "session 0197d2c4ab12 · anthropic:claude-sonnet-5"
    assert lines[1].startswith('└─ engineer "The test of the parser fails since yest…" · done · 24.64 s · 39,290 in')
    text = "\n".join(lines)
    for part in (
        "! retry_scheduled: attempt 1 of 4, again in 0.4 s: RateLimited: 429",
        "! failed_over: from claude-sonnet-5 to claude-opus-5",
        "turn 2 · 2.10 s · first after 500 ms · 5,480 in (5,210 cached), 143 out · $0.0047",
        '✗ bash {"command": "pytest -q tests/test_parser.py"} error · 2.40 s → FAILED',
        'progress: 3 reports, the last {"lines":42}',
        'historian "Which commit touched src/parser.py last?" · done',
        "denied: outside of the project",
    ):
        assert part in text
    assert all(len(line) <= 60 for line in coding_session().live().format_tree(width=60).splitlines())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12 ms"), (1.234, "1.23 s"), (75, "1 min 15 s"), (7_380, "2 h 03 min")],
)
def test_durations_are_readable(seconds, text):
    assert format_seconds(seconds) == text


def test_costs_and_tokens_are_readable():
    assert [format_usd(each) for each in (None, 0.00123, 12.3)] == ["", "$0.0012", "$12.30"]
    assert format_usage(Usage()) == ""
    assert format_usage(Usage(1_200, 5, precision="estimated")) == "1,200 in, 5 out estimated"
    assert cut_line("a\n  b" + "c" * 100, 10) == "a bcccccc…"
