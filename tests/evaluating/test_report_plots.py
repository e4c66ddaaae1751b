"""Plots of an evaluation: every shape is where its number says, and says which one it is."""

from xml.etree import ElementTree as ET

import pytest

from perdure._work.judging.evals.plots import (
    plot_costs,
    plot_history,
    plot_latencies,
    plot_results,
    plot_scores,
    plot_tags,
)
from tests.evaluating.sample_reports import failed, report, result

LONG = "a second agent of a long name"
REPORT = report(
    result("a", cost_usd=0.5, latency_seconds=1.0, grading_cost_usd=0.25),
    failed("b", latency_seconds=3.0, cost_usd=0.5),
    result("a", LONG, "error", cost_usd=None, latency_seconds=2.0),
    failed("b", LONG, latency_seconds=4.0, cost_usd=0.25),
    past=[[result("a"), failed("a", LONG)]],
)


def list_shapes(plot):
    """The shapes of a plot, one line each: the kind, its class, its numbers, and its text."""
    found = []
    for each in ET.fromstring(plot).iter():
        if each.tag != "title":
            title = [*each.iterfind("title")][:1]
            numbers = [value for name, value in each.items() if name not in {"class", "role", "rx"}]
            texts = [each.text, *[one.text for one in title]]
            found.append(" ".join([each.tag, *(each.get("class") or "").split(), *numbers, *filter(None, texts)]))
    return found


def test_the_results_of_each_agent_are_parts_of_a_bar():
    assert list_shapes(plot_results(REPORT.summaries)) == [
        "svg 0 0 420 52 runs that passed, failed or ended in an error, by agent",
        "text label 0 17.0 one one",
        "rect v-passed 118.0 5.0 119.0 15.0 one: 1 passed",
        "rect v-failed 237.0 5.0 119.0 15.0 one: 1 failed",
        "text value 420 17.0 1/2",
        "text label 0 43.0 a second agent of… a second agent of a long name",
        "rect v-failed 118.0 31.0 119.0 15.0 a second agent of a long name: 1 failed",
        "rect v-error 237.0 31.0 119.0 15.0 a second agent of a long name: 1 error",
        "text value 420 43.0 0/2",
    ]


def test_each_case_is_a_square_in_the_row_of_its_agent():
    assert list_shapes(plot_scores(REPORT)) == [
        "svg 0 0 420 52 score of each case, by agent",
        "text label 0 13.0 one one",
        "rect s5 118.0 0.0 17.0 17.0 a (one): 1.00",
        "rect s1 136.0 0.0 17.0 17.0 b (one): 0.25",
        "text label 0 39.0 a second agent of… a second agent of a long name",
        "rect s0 118.0 26.0 17.0 17.0 a (a second agent of a long name): 0.00",
        "rect s1 136.0 26.0 17.0 17.0 b (a second agent of a long name): 0.25",
    ]


def test_each_run_is_a_dot_at_its_latency_and_the_median_is_marked():
    assert list_shapes(plot_latencies(REPORT)) == [
        "svg 0 0 420 68 latency of each run, by agent",
        "path grid M118 52H356",
        "text axis 118 65 0 ms",
        "text axis end 356 65 4.0 s",
        "text label 0 17.0 one one",
        "circle dot a0 177.5 12.5 3.5 a (one): 1.0 s",
        "circle dot a0 296.5 12.5 3.5 b (one): 3.0 s",
        "path median M177.5 3v19 median 1.0 s",
        "text value 420 17.0 1.0 s",
        "text label 0 43.0 a second agent of… a second agent of a long name",
        "circle dot a1 237.0 38.5 3.5 a (a second agent of a long name): 2.0 s",
        "circle dot a1 356.0 38.5 3.5 b (a second agent of a long name): 4.0 s",
        "path median M237.0 29v19 median 2.0 s",
        "text value 420 43.0 2.0 s",
    ]


def test_the_cost_of_grading_follows_that_of_the_runs():
    assert list_shapes(plot_costs(REPORT.summaries)) == [
        "svg 0 0 420 52 cost by agent",
        "text label 0 17.0 one one",
        "rect a0 118.0 5.0 190.4 15.0 runs: $1.00",
        "rect grading 308.4 5.0 47.6 15.0 grading: $0.25",
        "text value 420 17.0 $1.00",
        "text label 0 43.0 a second agent of… a second agent of a long name",
        "rect a1 118.0 31.0 47.6 15.0 runs: $0.25",
        "rect grading 165.6 31.0 0.0 15.0 grading: $0.00",
        "text value 420 43.0 $0.25",
    ]


def test_each_tag_has_a_bar_for_each_agent():
    assert list_shapes(plot_tags(REPORT)) == [
        "svg 0 0 420 25 fraction that passed, by tag",
        "text label 0 13.0 tag (2) tag (2)",
        "rect rest 118.0 0.0 238.0 7.0",
        "rect a0 118.0 0.0 119.0 7.0 one: 50%",
        "text value small 420 7.5 50%",
        "rect rest 118.0 9.0 238.0 7.0",
        "rect a1 118.0 9.0 0.0 7.0 a second agent of a long name: 0%",
        "text value small 420 16.5 0%",
    ]


def test_earlier_evaluations_are_points_of_a_line_for_each_agent():
    assert list_shapes(plot_history(REPORT)) == [
        "svg 0 0 420 112 fraction that passed, over the evaluations of this dataset",
        "path grid M36 92.0H404.0",
        "text axis end 30 95.0 0%",
        "path grid M36 50.0H404.0",
        "text axis end 30 53.0 50%",
        "path grid M36 8.0H404.0",
        "text axis end 30 11.0 100%",
        "polyline line a0 44.0,8.0 404.0,50.0",
        "circle a0 44.0 8.0 3 one, 2023-11-05 22:13 UTC: 100%",
        "circle a0 404.0 50.0 3 one, 2023-11-14 22:13 UTC: 50%",
        "polyline line a1 44.0,92.0 404.0,92.0",
        "circle a1 44.0 92.0 3 a second agent of a long name, 2023-11-05 22:13 UTC: 0%",
        "circle a1 404.0 92.0 3 a second agent of a long name, 2023-11-14 22:13 UTC: 0%",
        "text axis 44 108.0 2023-11-05 22:13 UTC",
        "text axis end 404.0 108.0 2023-11-14 22:13 UTC",
    ]


def test_latencies_far_apart_are_at_their_logarithm():
    far = report(*[result(f"{each}", latency_seconds=each) for each in (0.1, 0.1, 0.0, 1.0, 100.0)])
    assert list_shapes(plot_latencies(far)) == [
        "svg 0 0 420 42 latency of each run, by agent",
        "path grid M118 26H356",
        "text axis 118 39 100 ms",
        "text axis end 356 39 1.7 min, logarithmic",
        "text label 0 17.0 one one",
        "circle dot a0 118.0 12.5 3.5 0.1 (one): 100 ms",
        "circle dot a0 118.0 12.5 3.5 0.1 (one): 100 ms",
        "circle dot a0 118.0 12.5 3.5 0.0 (one): 0 ms",
        "circle dot a0 197.3 12.5 3.5 1.0 (one): 1.0 s",
        "circle dot a0 356.0 12.5 3.5 100.0 (one): 1.7 min",
        "path median M118.0 3v19 median 100 ms",
        "text value 420 17.0 100 ms",
    ]


@pytest.mark.parametrize(("slowest", "end"), [(40.0, "40.0 s"), (40.5, "40.5 s, logarithmic")])
def test_an_axis_is_logarithmic_when_the_slowest_takes_more_than_40_times_the_median(slowest, end):
    made = report(*[result(f"{each}", latency_seconds=each) for each in (0.5, 1.0, slowest)])
    assert list_shapes(plot_latencies(made))[3] == f"text axis end 356 39 {end}"


def test_runs_that_took_no_time_are_at_the_beginning_of_an_axis_of_a_second():
    at_once = list_shapes(plot_latencies(report(result("a", latency_seconds=0.0))))
    assert at_once[2:4] == ["text axis 118 39 0 ms", "text axis end 356 39 1.0 s"]
    assert at_once[5] == "circle dot a0 118.0 12.5 3.5 a (one): 0 ms"


def test_more_than_24_cases_are_in_several_rows_with_a_colour_for_each_fifth_of_the_score():
    many = report(*[result(f"{number}", score=number / 25) for number in range(26)])
    shapes = list_shapes(plot_scores(many))
    assert len(shapes) == 28
    assert [shapes[0], *shapes[13:17]] == [
        "svg 0 0 420 42 score of each case, by agent",
        "rect s2 316.0 0.0 17.0 17.0 11 (one): 0.44",
        "rect s2 334.0 0.0 17.0 17.0 12 (one): 0.48",
        "rect s2 118.0 18.0 17.0 17.0 13 (one): 0.52",
        "rect s2 136.0 18.0 17.0 17.0 14 (one): 0.56",
    ]
    assert [each.split()[1] for each in shapes[2:]] == [*[f"s{fifth}" for fifth in range(5) for _ in range(5)], "s5"]


def test_the_12_tags_of_most_cases_are_shown():
    tags = tuple([f"t{number:02}" for number in range(14)])
    shown = list_shapes(plot_tags(report(result("a"), tags=tags)))
    assert [each.split()[4] for each in shown if each.startswith("text label")] == list(tags[:12])


def test_a_cost_that_is_not_known_has_no_bar():
    shapes = list_shapes(plot_costs(report(result("a", cost_usd=None), result("a", "two", cost_usd=None)).summaries))
    assert shapes == [
        "svg 0 0 420 52 cost by agent",
        "text label 0 17.0 one one",
        "rect a0 118.0 5.0 0.0 15.0 runs: -",
        "rect grading 118.0 5.0 0.0 15.0 grading: $0.00",
        "text value 420 17.0 -",
        "text label 0 43.0 two two",
        "rect a1 118.0 31.0 0.0 15.0 runs: -",
        "rect grading 118.0 31.0 0.0 15.0 grading: $0.00",
        "text value 420 43.0 -",
    ]


def test_a_seventh_agent_has_the_colour_of_the_first():
    shapes = list_shapes(plot_costs(report(*[result("a", f"agent {number}") for number in range(7)]).summaries))
    assert [each.split()[1] for each in shapes if "runs:" in each] == [*("a0", "a1", "a2", "a3", "a4", "a5"), "a0"]
