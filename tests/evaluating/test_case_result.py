"""Results of cases: what a run and its grades become, and why there was nothing to grade."""

import msgspec
import pytest

from perdure import Outcome, Usage
from perdure._work.judging.evals.case import (
    MAX_TEXT,
    build_raised_result,
    build_result,
    describe_missing_answer,
    measure_latency,
)
from perdure._work.judging.graders.grader import build_failed_grade
from perdure.evals import Case, CaseResult, Grade
from perdure.events import Entry, QuestionAsked, RunEnded, RunResumed, RunStarted

CELL = {"agent": "one", "repetition": 2, "session_id": "s", "digest": "d"}
CASE = Case(id="c", prompt="Where?", expected="Oslo")
GOOD = Grade(passed=True, score=1.0, grader="a", cost_usd=0.25)
POOR = Grade(passed=False, score=0.5, grader="b", feedback="no", cost_usd=None)
BROKEN = build_failed_grade("c", "raised", "no judge", "RuntimeError")


def ended(text="Oslo", **fields):
    entries = [Entry(1, 10.0, RunStarted("one")), Entry(2, 12.5, RunEnded("done"))]
    usual = {"status": "done", "usage": Usage(10, 5), "cost_usd": 0.5, "turns": 3, "entries": entries}
    return Outcome(**{**usual, "text": text, **fields})


def test_a_result_has_what_the_run_and_its_graders_have_found():
    assert build_result(CELL, CASE, ended(), [GOOD, POOR]) == CaseResult(
        case_id="c",
        agent="one",
        repetition=2,
        verdict="failed",
        score=0.75,
        status="done",
        text="Oslo",
        grades=(GOOD, POOR),
        cost_usd=0.5,
        grading_cost_usd=0.25,
        latency_seconds=2.5,
        input_tokens=10,
        output_tokens=5,
        turns=3,
        session_id="s",
        digest="d",
    )


@pytest.mark.parametrize(
    ("grades", "verdict", "score"),
    [
        ([GOOD], "passed", 1.0),
        ([GOOD, GOOD], "passed", 1.0),
        ([POOR], "failed", 0.5),
        ([GOOD, BROKEN], "error", 0.0),
        ([], "error", 0.0),
    ],
)
def test_a_case_has_passed_when_every_grader_has_passed_it(grades, verdict, score):
    result = build_result(CELL, CASE, ended(), grades)
    assert (result.verdict, result.score, result.passed) == (verdict, score, verdict == "passed")
    assert bool(result.error) == (verdict == "error")


def test_all_graders_that_could_not_judge_are_named():
    result = build_result(CELL, CASE, ended(), [BROKEN, GOOD, BROKEN])
    assert result.error == f"{BROKEN.feedback}; {BROKEN.feedback}"


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (ended(status="failed", reason="RuntimeError", error=RuntimeError("it broke")), "it broke"),
        (ended(status="limit", reason="timeout"), "the run ended as 'limit': timeout"),
        (ended(status="cancelled", reason=""), "the run ended as 'cancelled'"),
        (ended(status="waiting", reason="question"), "the run ended as 'waiting': question"),
    ],
)
def test_a_run_without_an_answer_says_why(outcome, why):
    assert describe_missing_answer(outcome) == why
    assert build_result(CELL, CASE, outcome, []).error == why


def test_a_run_that_did_not_begin_is_a_result_with_its_error():
    assert build_raised_result(CELL, CASE, ValueError("no schema")) == CaseResult(
        case_id="c",
        agent="one",
        repetition=2,
        verdict="error",
        status="raised",
        reason="ValueError",
        error="no schema",
        session_id="s",
        digest="d",
    )


def test_texts_are_shortened_and_left_out_of_comparisons():
    long = "x" * (MAX_TEXT + 1)
    deep = Grade(passed=False, score=0.0, grader="all", parts=(Grade(passed=False, score=0.0, feedback=long),))
    broken = build_failed_grade("c", "raised", long, "RuntimeError")
    result = build_result(CELL, CASE, ended(long), [deep, broken])
    assert broken.failure is not None
    kept = result.grades[1].failure
    assert kept is not None
    texts = [result.text, result.error, result.grades[0].parts[0].feedback, kept.message]
    assert ["[… 1 characters left out …]" in each for each in texts[:1] + texts[2:]] == [True] * 3
    assert MAX_TEXT < len(result.error) < MAX_TEXT + 100
    bare = result.without_texts()
    assert (bare.text, bare.error, bare.grades, bare.verdict, bare.cost_usd) == ("", "", (), "error", 0.5)


def test_a_result_has_nothing_that_it_is_not_given():
    result = CaseResult(case_id="c", agent="one", verdict="error")
    assert msgspec.to_builtins(result) == {
        "case_id": "c",
        "agent": "one",
        "repetition": 1,
        "verdict": "error",
        "score": 0.0,
        "status": "",
        "reason": "",
        "error": "",
        "text": "",
        "grades": (),
        "cost_usd": None,
        "grading_cost_usd": 0.0,
        "latency_seconds": 0.0,
        "input_tokens": 0,
        "output_tokens": 0,
        "turns": 0,
        "tool_calls": 0,
        "session_id": "",
        "digest": "",
        "finished_at": 0.0,
    }


def test_a_run_that_waits_for_a_person_says_what_was_asked():
    asked = (QuestionAsked("q", "permission", "May I?"),)
    assert describe_missing_answer(ended(status="waiting", reason="question", questions=asked)) == (
        "the run waits for an answer: May I?"
    )
    assert describe_missing_answer(ended(status="limit", reason="timeout", questions=asked)) == (
        "the run ended as 'limit': timeout"
    )


def test_the_latency_of_a_run_is_that_of_its_entries_without_the_time_that_it_lay():
    started, ending = RunStarted("one"), RunEnded("done")
    assert measure_latency([]) == 0.0
    assert measure_latency([Entry(1, 10.0, started)]) == 0.0
    assert measure_latency([Entry(1, 10.0, started), Entry(2, 9.0, ending)]) == 0.0
    assert measure_latency([Entry(1, 10.0, started), Entry(2, 10.25, ending)]) == 0.25
    lay = [Entry(1, 10.0, started), Entry(2, 11.0, RunResumed()), Entry(3, 11.5, RunResumed()), Entry(4, 13.0, ending)]
    assert measure_latency(lay) == 1.5
