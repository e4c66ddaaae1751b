"""Graders of functions, and how a grader is called: every result is a grade, and a failing grader loses nothing."""

import asyncio
import functools
import threading
from typing import Any

import msgspec
import pytest

from perdure import ConfigError, Usage
from perdure.evals import Evidence, Grade, Grader, all_of, any_of, function_grader, grade_evidence, to_grader
from tests.grading.failures import failure_of

EVIDENCE = Evidence(goal="Sail home.", answer="We are home.")


@pytest.mark.parametrize(
    ("judgement", "passed", "score"),
    [
        (True, True, 1.0),
        (False, False, 0.0),
        (0.5, False, 0.5),
        (1, True, 1.0),
        (Grade(passed=True, score=0.8), True, 0.8),
    ],
)
async def test_a_plain_or_async_function_may_return_a_bool_a_score_or_a_grade(judgement, passed, score):
    async def later(_evidence):
        return judgement

    for function in (lambda _: judgement, later, functools.partial(lambda _a, _b: judgement, 1)):
        grade = await grade_evidence(function, EVIDENCE)
        assert (grade.passed, grade.score, grade.is_judged) == (passed, score, True)


def test_a_name_that_is_no_text_is_refused():
    name: Any = 5
    with pytest.raises(ConfigError) as error:
        function_grader(lambda _: True, name=name)
    assert str(error.value) == "function_grader(name=5): give text"


async def test_a_grade_has_the_name_of_its_function_unless_it_has_its_own():
    def is_home(evidence):
        return "home" in evidence.answer

    assert (await grade_evidence(is_home, EVIDENCE)).grader == "is_home"
    assert (await grade_evidence(function_grader(is_home, name="home"), EVIDENCE)).grader == "home"
    assert (await grade_evidence(lambda _: Grade(passed=True, grader="own"), EVIDENCE)).grader == "own"


async def test_a_grader_that_raises_is_a_grade_with_the_error_and_not_an_exception():
    def capsize(_evidence):
        raise RuntimeError("the boat is full of water")

    grade = await grade_evidence(capsize, EVIDENCE)
    assert not grade.passed
    assert not grade.is_judged
    assert (failure_of(grade).kind, failure_of(grade).error) == ("raised", "RuntimeError")
    assert "full of water" in grade.feedback


async def test_a_timeout_error_of_the_grader_itself_is_no_timeout_of_ours():
    def expire(_evidence):
        raise TimeoutError("the harbour did not answer")

    assert failure_of(await grade_evidence(expire, EVIDENCE)).kind == "raised"


async def test_a_grader_that_takes_too_long_is_a_grade_with_a_timeout():
    async def wait_for_ever(_evidence):
        await asyncio.Event().wait()

    grade = await grade_evidence(wait_for_ever, EVIDENCE, timeout_seconds=0.01)
    assert (grade.passed, failure_of(grade).kind) == (False, "timeout")


async def test_the_cancel_of_a_caller_is_not_swallowed():
    begun = asyncio.Event()

    async def wait_for_ever(_evidence):
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(grade_evidence(wait_for_ever, EVIDENCE))
    await asyncio.wait_for(begun.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()], ids=repr)
async def test_a_grader_that_exits_or_is_cancelled_by_itself_is_a_grade(error):
    def leave(_evidence):
        raise error

    async def leave_later(_evidence):
        raise error

    for function in (leave, leave_later):
        grade = await grade_evidence(function, EVIDENCE)
        assert (failure_of(grade).kind, failure_of(grade).error) == ("raised", type(error).__name__)


async def test_feedback_that_cannot_be_encoded_is_mended():
    grade = await grade_evidence(lambda _: Grade(passed=False, feedback="a\ud800b", grader="\udc80"), EVIDENCE)
    assert (grade.feedback, grade.grader) == ("a\ufffdb", "\ufffd")


@pytest.mark.parametrize(
    "judgement", ["yes", None, 2, -0.5, 10**400, float("nan"), {"passed": True}], ids=lambda value: str(value)[:9]
)
async def test_a_result_that_is_no_judgement_is_reported_as_the_graders_failure(judgement):
    grade = await grade_evidence(lambda _: judgement, EVIDENCE)
    assert (grade.passed, failure_of(grade).kind) == (False, "invalid")
    assert "return a Grade" in grade.feedback


@pytest.mark.parametrize("given", [None, "a grader", 3, Grade])
async def test_what_is_no_grader_is_refused_at_once(given):
    with pytest.raises(ConfigError, match="give a function"):
        await grade_evidence(given, EVIDENCE)


@pytest.mark.parametrize(
    "score", [2, -0.1, -1.0, 10**400, float("nan"), float("inf"), True], ids=lambda score: str(score)[:9]
)
def test_a_score_outside_of_0_to_1_is_refused(score):
    with pytest.raises(ConfigError, match="from 0 to 1"):
        Grade(passed=True, score=score)


async def test_an_object_with_an_async_grade_is_a_grader():
    class Harbour:
        name = "harbour"

        async def grade(self, evidence):
            return Grade(passed=evidence.round == 2)

    assert isinstance(to_grader(Harbour()), Grader)
    grade = await grade_evidence(Harbour(), Evidence(round=2))
    assert (grade.passed, grade.grader) == (True, "harbour")


def test_a_grade_survives_json():
    grade = Grade(passed=False, score=0.25, feedback="more", grader="a", parts=(Grade(passed=True, grader="b"),))
    assert msgspec.json.decode(msgspec.json.encode(grade), type=Grade) == grade


async def test_all_of_needs_every_grader_and_has_the_mean_score_and_the_feedback_of_those_that_failed():
    grade = await grade_evidence(all_of(lambda _: True, function_grader(lambda _: 0.5, name="half")), EVIDENCE)
    assert (grade.passed, grade.score) == (False, 0.75)
    assert grade.feedback == "- half: not passed"
    assert [each.score for each in grade.parts] == [1.0, 0.5]
    assert (await grade_evidence(all_of(lambda _: True, lambda _: 1.0), EVIDENCE)).passed


async def test_any_of_needs_one_grader_and_a_failing_one_is_a_part_that_did_not_pass():
    def capsize(_evidence):
        raise RuntimeError("full of water")

    grade = await grade_evidence(any_of(capsize, lambda _: True), EVIDENCE)
    assert (grade.passed, grade.score, grade.feedback) == (True, 1.0, "")
    assert failure_of(grade.parts[0]).kind == "raised"
    assert not (await grade_evidence(any_of(capsize, lambda _: False), EVIDENCE)).passed


async def test_a_combination_that_depends_on_a_grader_that_failed_is_no_judgement():
    def capsize(_evidence):
        raise RuntimeError("full of water")

    for undecided in (all_of(capsize, lambda _: True), any_of(capsize, lambda _: False), all_of(all_of(capsize))):
        grade = await grade_evidence(undecided, EVIDENCE)
        assert not grade.passed
        assert (failure_of(grade).kind, failure_of(grade).error) == ("raised", "RuntimeError")
        assert "full of water" in failure_of(grade).message
    rejected = await grade_evidence(all_of(capsize, function_grader(lambda _: False, name="no")), EVIDENCE)
    assert (rejected.is_judged, rejected.feedback) == (True, "- no: not passed")  # a failure is no feedback


def spending(tokens, cost_usd):
    usage = Usage(input_tokens=tokens)
    return lambda _evidence: Grade(passed=True, usage=usage, cost_usd=cost_usd)


@pytest.mark.parametrize(
    ("parts", "cost_usd"),
    [
        ([spending(10, 0.5), spending(20, 0.25), spending(0, None)], 0.75),
        ([spending(10, 0.5), spending(20, None)], None),
        ([spending(0, None)], None),
    ],
)
async def test_a_combination_counts_the_tokens_of_its_parts_and_their_cost_if_all_of_it_is_known(parts, cost_usd):
    grade = await grade_evidence(all_of(*parts), EVIDENCE)
    assert grade.cost_usd == cost_usd
    assert grade.usage.input_tokens == sum(each(None).usage.input_tokens for each in parts)


async def test_a_combination_has_the_name_of_its_parts_unless_it_has_its_own():
    named = function_grader(lambda _: False, name="no")
    assert (await grade_evidence(any_of(named, named), EVIDENCE)).grader == "any_of(no, no)"
    assert (await grade_evidence(all_of(named, name="both"), EVIDENCE)).grader == "both"


async def test_a_part_that_takes_too_long_is_a_timeout_of_that_part_alone():
    async def wait_for_ever(_evidence):
        await asyncio.Event().wait()

    async def pass_at_once(_evidence):
        return True

    grade = await grade_evidence(any_of(wait_for_ever, pass_at_once, timeout_seconds=0.01), EVIDENCE)
    assert grade.passed
    assert failure_of(grade.parts[0]).kind == "timeout"


def test_a_combination_of_no_graders_is_refused():
    for combine in (all_of, any_of):
        with pytest.raises(ConfigError, match="at least one grader"):
            combine()


def grader_of(name, **fields):
    return function_grader(lambda _: Grade(grader=name, **fields), name=name)


async def test_a_combination_has_the_whole_grade_of_its_parts():
    good = grader_of("good", passed=True, score=0.8)
    poor = grader_of("poor", passed=False, score=0.2, feedback="too short")
    bare = grader_of("bare", passed=False, score=0.5)
    parts = tuple([await grade_evidence(each, EVIDENCE) for each in (good, poor, bare)])
    assert await grade_evidence(all_of(good, poor, bare), EVIDENCE) == Grade(
        passed=False,
        score=0.5,
        feedback="- poor: too short\n- bare: not passed",
        grader="all_of(good, poor, bare)",
        parts=parts,
    )
    assert await grade_evidence(any_of(good, poor, bare, name="one"), EVIDENCE) == Grade(
        passed=True, score=0.8, grader="one", parts=parts
    )
    assert await grade_evidence(any_of(poor, bare, name="one"), EVIDENCE) == Grade(
        passed=False,
        score=0.5,
        feedback="- poor: too short\n- bare: not passed",
        grader="one",
        parts=parts[1:],
    )


async def test_failures_of_several_parts_are_told_together():
    def sink(_evidence):
        raise RuntimeError("full of water")

    def burn(_evidence):
        raise ValueError("on fire")

    grade = await grade_evidence(all_of(sink, burn, grader_of("good", passed=True)), EVIDENCE)
    failure = failure_of(grade)
    assert (failure.kind, failure.message, failure.error) == ("raised", "full of water; on fire", "RuntimeError")
    assert grade.feedback.splitlines() == [
        "- sink: the grader 'sink' could not judge this: full of water",
        "- burn: the grader 'burn' could not judge this: on fire",
    ]
    assert (await grade_evidence(any_of(sink, grader_of("poor", passed=False)), EVIDENCE)).is_judged is False
    assert (await grade_evidence(any_of(sink, grader_of("good", passed=True)), EVIDENCE)).is_judged is True


@pytest.mark.parametrize("options", [{"name": 5}, {"timeout_seconds": -1}])
def test_wrong_options_of_a_combination_are_named(options):
    for combine in (all_of, any_of):
        with pytest.raises(ConfigError) as error:
            combine(lambda _: True, **options)
        [(name, value)] = options.items()
        assert str(error.value).startswith(f"{combine.__name__}({name}={value}): ")


async def test_a_plain_function_grades_on_a_thread_and_an_async_one_in_the_loop() -> None:
    def grade_plainly(_evidence: Evidence) -> bool:
        return threading.current_thread() is not threading.main_thread()

    async def grade_in_loop(_evidence: Evidence) -> bool:
        return threading.current_thread() is threading.main_thread()

    assert (await grade_evidence(grade_plainly, EVIDENCE)).passed
    assert (await grade_evidence(grade_in_loop, EVIDENCE)).passed
