"""The table of an evaluation."""

import pytest

from perdure._work.judging.evals.text import format_cost, format_seconds, format_utc_time
from perdure.evals import Grade, format_report
from tests.evaluating.sample_reports import failed, report, result


def test_a_table_has_a_row_for_each_agent_and_lists_what_did_not_pass():
    now = [
        result("a"),
        failed("b", feedback="no\nnumber"),
        result("b", "two", "error", error="it broke", cost_usd=None),
    ]
    text = format_report(report(*now, before=[failed("a"), result("b")]))
    assert text.splitlines() == [
        "agent  passed  score   cost  median    p95  errors  before",
        "one       1/2   0.62  $0.02   1.0 s  1.0 s       -     1/2",
        "two       0/1   0.00      -   1.0 s  1.0 s       1       -",
        "",
        "regressions (1)",
        "  b (one): passed 100% before, 0% now",
        "",
        "not passed (2)",
        "  b (one): no number",
        "  b (two): error: it broke",
        "",
        "improvements (1)",
        "  a (one): passed 0% before, 100% now",
    ]


def test_long_lists_and_lines_are_cut():
    text = format_report(report(*[failed(f"case-{number}", feedback="x" * 300) for number in range(30)]), width=60)
    assert "  … and 10 more" in text
    assert max(len(line) for line in text.splitlines()) <= 70


def test_a_grader_without_feedback_is_named():
    assert "a (one #2): judge: not passed" in format_report(report(failed("a", feedback="", repetition=2)))


@pytest.mark.parametrize(
    ("cost", "shown"), [(None, "-"), (0.0, "$0.00"), (0.00012, "$0.00012"), (0.5, "$0.50"), (12.345, "$12.35")]
)
def test_costs_have_the_digits_that_they_need(cost, shown):
    assert format_cost(cost) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(0.0123, "12 ms"), (1.26, "1.3 s"), (90.0, "1.5 min")])
def test_times_have_a_unit_that_suits_them(seconds, shown):
    assert format_seconds(seconds) == shown


def test_a_time_of_day_is_in_utc():
    assert format_utc_time(1_700_000_000.0) == "2023-11-14 22:13 UTC"


def test_as_many_cases_are_listed_as_there_is_room_for():
    def listed(count: int) -> list[str]:
        return format_report(report(*[failed(f"case-{number}") for number in range(count)])).splitlines()[3:]

    assert listed(20) == ["not passed (20)", *[f"  case-{number} (one): it is wrong" for number in range(20)]]
    assert listed(21) == [
        "not passed (21)",
        *[f"  case-{number} (one): it is wrong" for number in range(20)],
        "  … and 1 more",
    ]


@pytest.mark.parametrize(("width", "shown"), [(22, "  a (one): it is wrong"), (21, "  a (one): it is wro…")])
def test_a_line_that_is_too_wide_ends_with_an_ellipsis(width, shown):
    assert format_report(report(failed("a")), width=width).splitlines()[-1] == shown


def test_a_cost_that_is_not_known_of_all_runs_is_marked_and_all_feedback_is_told():
    grades = tuple([Grade(passed=each == "c", score=0.0, feedback=each * 2, grader=each) for each in "abc"])
    text = format_report(report(result("a", cost_usd=None), result("b", verdict="failed", grades=grades)))
    assert text.splitlines() == [
        "agent  passed  score     cost  median    p95  errors  before",
        "one       1/2   0.62  $0.01+?   1.0 s  1.0 s       -       -",
        "",
        "not passed (1)",
        "  b (one): aa; bb",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.9994, "999 ms"), (1.0, "1.0 s"), (59.9, "59.9 s"), (60.0, "1.0 min")]
)
def test_a_time_changes_its_unit_at_a_second_and_at_a_minute(seconds, shown):
    assert format_seconds(seconds) == shown


@pytest.mark.parametrize(("cost", "shown"), [(0.01, "$0.01"), (0.0099, "$0.0099")])
def test_a_cost_below_a_cent_has_two_digits(cost, shown):
    assert format_cost(cost) == shown
