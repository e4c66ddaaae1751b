"""Summaries, comparisons, and reports as JSON."""

import msgspec
import pytest

from perdure import ConfigError
from perdure._work.judging.evals.case import measure_latency
from perdure._work.judging.evals.report import (
    ReportedCaseDefinition,
    build_reported_case,
    compare_results,
    find_quantile,
    summarize_agents,
)
from perdure.evals import AgentSummary, Case, CaseChange, Comparison, read_report
from perdure.events import Entry, RunEnded, RunResumed, RunStarted, TurnStarted
from tests.evaluating.sample_reports import failed, report, result


def test_a_summary_counts_verdicts_and_adds_costs():
    results = [
        result("a", cost_usd=0.5, latency_seconds=1.0, input_tokens=3),
        failed("b", cost_usd=0.25, latency_seconds=3.0, grading_cost_usd=0.125),
        result("c", verdict="error", cost_usd=None, latency_seconds=2.0),
    ]
    summary = summarize_agents(results)[0]
    assert (summary.runs, summary.passed, summary.failed, summary.errors) == (3, 1, 1, 1)
    assert (summary.cost_usd, summary.unknown_costs, summary.grading_cost_usd) == (0.75, 1, 0.125)
    assert (summary.latency_median_seconds, summary.latency_p95_seconds) == (2.0, 3.0)
    assert summary.mean_score == pytest.approx(1.25 / 3)
    assert summarize_agents([result("a", cost_usd=None)])[0].cost_usd is None


@pytest.mark.parametrize(
    ("values", "fraction", "expected"),
    [
        ([], 0.5, 0.0),
        ([7], 0.95, 7),
        ([1, 2], 0.5, 1),
        ([1, 2, 3], 0.5, 2),
        (range(1, 101), 0.95, 95),
        ([1, 2], 1.0, 2),
    ],
)
def test_a_quantile_is_one_of_the_values(values, fraction, expected):
    assert find_quantile(list(values), fraction) == expected


def test_a_case_that_passes_less_often_is_a_regression():
    before = [result("a"), result("a", repetition=2), result("b"), failed("c"), result("d")]
    now = [
        result("a"),
        failed("a", repetition=2),
        result("b"),
        result("c"),
        failed("d", digest="changed"),
        failed("new"),
    ]
    compared = compare_results(now, "e1", 5.0, before)
    assert (compared.baseline_id, compared.baseline_at, compared.compared) == ("e1", 5.0, 3)
    regression = compared.regressions[0]
    assert (regression.case_id, regression.pass_rate_before, regression.pass_rate) == ("a", 1.0, 0.5)
    assert (regression.score_before, regression.score) == (1.0, 0.625)
    assert [each.case_id for each in compared.regressions] == ["a"]
    assert [each.case_id for each in compared.improvements] == ["c"]


def test_another_agent_is_not_compared():
    compared = compare_results([failed("a", "new")], "e1", 5.0, [result("a", "old")])
    assert (compared.compared, compared.regressions, compared.summaries) == (0, (), ())


def test_latency_leaves_out_the_time_before_a_run_was_resumed():
    def entry(seq, at, event):
        return Entry(seq, at, event, f"e{seq}")

    whole = [entry(1, 10.0, RunStarted()), entry(2, 12.0, TurnStarted(1)), entry(3, 500.0, RunResumed())]
    whole.append(entry(4, 501.5, RunEnded("done")))
    assert measure_latency(whole) == 3.5
    assert measure_latency([]) == 0.0


def test_a_report_is_read_from_its_json():
    written = report(result("a"), failed("b"), before=[result("a"), result("b")], past=[[result("a")]])
    again = read_report(written.to_json())
    assert again == written
    assert again.summarize_tags() == {"tag": {"one": 0.5}}


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"\xff", '{"evaluation_id": 3}'])
def test_what_is_no_report_is_refused(data):
    with pytest.raises(ConfigError, match="perdure eval --json"):
        read_report(data)


def test_a_summary_has_everything_that_the_results_add_up_to():
    results = [
        result("a", latency_seconds=1.0, input_tokens=3, output_tokens=1),
        failed("b", latency_seconds=2.0, input_tokens=4, output_tokens=2, grading_cost_usd=0.5),
        result("a", "two", "error", cost_usd=None),
    ]
    assert summarize_agents(results) == (
        AgentSummary(
            agent="one",
            runs=2,
            passed=1,
            failed=1,
            pass_rate=0.5,
            mean_score=0.625,
            cost_usd=0.02,
            grading_cost_usd=0.5,
            latency_median_seconds=1.0,
            latency_p95_seconds=2.0,
            input_tokens=7,
            output_tokens=3,
        ),
        AgentSummary(
            agent="two",
            runs=1,
            errors=1,
            unknown_costs=1,
            latency_median_seconds=1.0,
            latency_p95_seconds=1.0,
        ),
    )
    assert msgspec.to_builtins(AgentSummary(agent="three")) == {
        "agent": "three",
        **dict.fromkeys(("runs", "passed", "failed", "errors"), 0),
        **dict.fromkeys(("pass_rate", "mean_score"), 0.0),
        "cost_usd": None,
        "unknown_costs": 0,
        **dict.fromkeys(("grading_cost_usd", "latency_median_seconds", "latency_p95_seconds"), 0.0),
        **dict.fromkeys(("input_tokens", "output_tokens"), 0),
    }


def test_a_report_of_nothing_has_passed_at_a_rate_of_zero():
    empty = report()
    assert (empty.pass_rate, empty.all_passed, empty.regressions, empty.summarize_tags()) == (0.0, True, (), {})


def test_a_report_shows_what_a_case_has():
    case = Case(id="c", prompt="Where?", expected={"a": (1, 2)}, tags=["t"])
    assert build_reported_case(case) == ReportedCaseDefinition(
        id="c", prompt="Where?", expected={"a": [1, 2]}, tags=("t",)
    )


def test_a_comparison_names_the_case_and_the_agent_of_each_change():
    compared = compare_results([failed("a", "two"), result("a")], "e1", 5.0, [result("a", "two"), failed("a")])
    assert compared == Comparison(
        baseline_id="e1",
        baseline_at=5.0,
        regressions=(
            CaseChange(case_id="a", agent="two", pass_rate_before=1.0, pass_rate=0.0, score_before=1.0, score=0.25),
        ),
        improvements=(
            CaseChange(case_id="a", agent="one", pass_rate_before=0.0, pass_rate=1.0, score_before=0.25, score=1.0),
        ),
        compared=2,
        summaries=summarize_agents([result("a", "two"), failed("a")]),
    )


def test_the_latency_that_95_of_100_runs_do_not_exceed_is_that_of_the_95th():
    (summary,) = summarize_agents([result(f"{number}", latency_seconds=float(number)) for number in range(1, 101)])
    assert (summary.latency_median_seconds, summary.latency_p95_seconds) == (50.0, 95.0)
