"""Graders of the answer's text and of its form."""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import ConfigError
from perdure._core.tools.worker.process import WORKERS
from perdure.evals import Evidence, Grade, Grader, contains, equals, grade_evidence, matches, schema_grader
from tests.grading.failures import failure_of

NOT_A_BOOL: Any = 1


@pytest.fixture(autouse=True)
def _no_worker_is_left():
    yield
    WORKERS.close()


@dataclass
class Voyage:
    port: str
    days: int


async def grade(grader, answer, **fields):
    return await grade_evidence(grader, Evidence(answer=answer, **fields))


async def test_equals_compares_the_answer_with_its_value_or_with_that_of_the_evidence():
    assert (await grade(equals("42"), " 42\n")).passed
    assert (await grade(equals(), "42", expected=42)).passed
    assert (await grade(equals("Bergen", ignore_case=True), "bergen")).passed
    refused = await grade(equals("Bergen"), "Oslo")
    assert not refused.passed
    assert refused.feedback == "the answer has to be 'Bergen', and is 'Oslo'"


async def test_equals_compares_a_typed_output():
    assert (await grade(equals(Voyage("Bergen", 3)), "", output=Voyage("Bergen", 3))).passed
    assert not (await grade(equals(Voyage("Bergen", 3)), "", output=Voyage("Bergen", 4))).passed


async def test_without_an_expected_value_the_grader_reports_that_it_needs_one():
    graded = await grade(equals(), "42")
    assert failure_of(graded).kind == "raised"
    assert "expected value" in graded.feedback


async def test_contains_scores_the_fraction_of_texts_that_the_answer_has():
    graded = await grade(contains("Bergen", "Oslo"), "from bergen to Rome")
    assert (graded.passed, graded.score) == (False, 0.5)
    assert graded.feedback == "the answer does not contain 'Oslo'"
    assert (await grade(contains(), "to Oslo", expected=["oslo"])).passed
    assert not (await grade(contains("oslo", ignore_case=False), "to Oslo")).passed


async def test_matches_searches_a_regular_expression():
    assert (await grade(matches(r"\d+ days"), "in 12 days")).passed
    assert not (await grade(matches(re.compile("^days")), "in 12 days")).passed


async def test_a_pattern_that_an_answer_lets_search_for_ever_is_ended_and_nothing_else_waits_for_it():
    hostile = matches("(a+)+$", timeout_seconds=0.5, name="letters")
    ended, other = await asyncio.gather(grade(hostile, "a" * 60 + "!"), grade(contains("b"), "abc"))
    assert other.passed
    assert failure_of(ended).kind == "timeout"
    assert "'(a+)+$': the search took longer than 0.5 seconds, and was ended; write a pattern with" in ended.feedback
    assert (await grade(matches("(a+)+$", timeout_seconds=float("inf")), "aaa")).passed


@pytest.mark.parametrize(
    "make",
    [
        lambda: matches("("),
        lambda: matches("a", timeout_seconds=-1),
        lambda: contains(""),
        lambda: equals(ignore_case=NOT_A_BOOL),
    ],
)
def test_invalid_options_are_refused_when_the_grader_is_made(make):
    with pytest.raises(ConfigError):
        make()


@pytest.mark.parametrize("answer", [
    '{"port": "Bergen", "days": 3}',
    'Here it is:\n```json\n{"port": "Bergen", "days": 3}\n```\nDone.',
    '<think>{"port": 1}</think>{"port": "Bergen", "days": 3,}',
    'The voyage {not json} is {"port": "Bergen", "days": 3} as asked.',
])  # fmt: skip
async def test_an_answer_that_fits_the_type_passes_also_with_text_around_it(answer):
    assert (await grade(schema_grader(Voyage), answer)).passed


async def test_an_answer_that_does_not_fit_the_type_says_why():
    graded = await grade(schema_grader(Voyage), '{"port": "Bergen"}')
    assert not graded.passed
    assert "days" in graded.feedback
    assert (await grade(schema_grader(Voyage), "no voyage")).feedback == "the answer is not JSON"


async def test_lists_schemas_and_typed_outputs_are_graded_too():
    assert (await grade(schema_grader(list[int]), "[1, 2]")).passed
    assert not (await grade(schema_grader(list[int]), '["a"]')).passed
    assert (await grade(schema_grader({"type": "object", "required": ["a"]}), '{"a": 1}')).passed
    assert (await grade(schema_grader(Voyage), "", output=Voyage("Bergen", 3))).passed


@pytest.mark.parametrize(
    ("answer", "passed"), [("3", True), ('{"value": 3}', True), ('"x"', False), ('{"other": 3}', False)]
)
async def test_a_bare_value_fits_its_type_also_in_the_object_in_which_models_return_it(answer, passed):
    assert (await grade(schema_grader(int), answer)).passed is passed


async def test_a_text_is_compared_with_the_answer_also_if_there_is_a_typed_output():
    assert (await grade(equals("three"), "three", output=3)).passed
    assert not (await grade(equals(4), "4", output=3)).passed


async def test_the_value_of_a_grader_comes_before_that_of_the_evidence():
    assert (await grade(equals("a"), "a", expected="b")).passed
    assert (await grade(contains("a"), "a", expected="b")).passed


def test_a_schema_grader_without_a_type_is_refused():
    with pytest.raises(ConfigError, match="give a type"):
        schema_grader(None)


@pytest.mark.parametrize("expected", ["", [], ["home", ""]])
async def test_an_empty_text_that_every_answer_contains_is_no_judgement(expected):
    grade = await grade_evidence(contains(), Evidence(answer="We are home.", expected=expected))
    assert not grade.passed
    assert "every answer contains that" in failure_of(grade).message


@pytest.mark.parametrize(
    ("grader", "evidence", "passed", "score", "feedback"),
    [
        (equals("a"), Evidence(answer=" a "), True, 1.0, ""),
        (equals("a"), Evidence(answer="A"), False, 0.0, "the answer has to be 'a', and is 'A'"),
        (equals(" A ", ignore_case=True), Evidence(answer="a"), True, 1.0, ""),
        (equals(3), Evidence(answer="3"), True, 1.0, ""),
        (equals(3), Evidence(answer="x", output=3), True, 1.0, ""),
        (equals(3), Evidence(answer="3", output=4), False, 0.0, "the answer has to be 3, and is '3'"),
        (contains("a", "B", "c"), Evidence(answer="bA"), False, 2 / 3, "the answer does not contain 'c'"),
        (contains("x", "y"), Evidence(answer="a"), False, 0.0, "the answer does not contain 'x', 'y'"),
        (contains(), Evidence(answer="12 3", expected=(1, "3")), True, 1.0, ""),
        (contains("A", ignore_case=False), Evidence(answer="a"), False, 0.0, "the answer does not contain 'A'"),
        (matches("b$"), Evidence(answer="ab"), True, 1.0, ""),
        (matches(re.compile("^b")), Evidence(answer="ab"), False, 0.0, "the answer does not match '^b'"),
        (schema_grader(Voyage), Evidence(answer="far away"), False, 0.0, "the answer is not JSON"),
        (schema_grader(int), Evidence(answer="{}", output=3), True, 1.0, ""),
    ],
)
async def test_a_grade_says_whether_it_passed_how_well_and_why_not(
    grader: Grader, evidence: Evidence, passed: bool, score: float, feedback: str
) -> None:
    graded = await grade_evidence(grader, evidence)
    assert graded == Grade(passed=passed, score=graded.score, feedback=feedback, grader=grader.name)
    assert graded.score == pytest.approx(score)


async def test_an_answer_that_does_not_fit_a_type_names_the_type_and_the_problem():
    graded = await grade(schema_grader(Voyage, name="form"), '{"port": 3, "days": 1}')
    assert (graded.passed, graded.score, graded.grader) == (False, 0.0, "form")
    assert graded.feedback.startswith("the answer does not fit Voyage: ")
    assert "port" in graded.feedback


async def test_a_value_that_nobody_expects_is_a_failure_of_the_grader():
    for grader in (equals(), contains()):
        failure = failure_of(await grade(grader, "42"))
        assert failure.message == "there is no expected value: give one to the grader, or to the case"
