"""`until`: an engine that repeats a run's work in the same session until a grader passes it."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.run.answers import FallbackAnswer, add_fallback_answer
from perdure._core.run.costs import count_spending_beside
from perdure._core.run.loop import react
from perdure._core.run.outcome import Outcome
from perdure._core.run.run import Run
from perdure._core.run.spec import Engine, call_engine, get_engine_name
from perdure._core.values import checks
from perdure._core.values.event import Custom, Entry, MessageAdded
from perdure._core.values.jsonable import convert, to_jsonable
from perdure._core.values.message import Usage, user
from perdure._engines.private_run import NEXT_ROUND_ORIGIN, find_work_index
from perdure._runtime.agent.output import ANSWER_TOOL
from perdure._work.judging.graders.grader import GRADE_SECONDS, AnyGrader, Evidence, Grade, grade_evidence, to_grader

GRADE_EVENT: Final = "grade"
"""Name of the custom event that stores a grade."""
GRADE_ORIGIN: Final = NEXT_ROUND_ORIGIN
"""Origin of the message with which the next round begins."""
MAX_ROUNDS: Final = 5
_COUNTED_KEY: Final = "perdure:counted_grades"


class GradeGiven(Struct, frozen=True, omit_defaults=True):
    """Data of the event that stores a grade in the log: the grade of one round of a run with the engine `until`."""

    round: int
    grade: Grade
    run_id: str = ""
    at: float = 0.0
    """Time in seconds since 1970."""


class UntilEngine:
    """Engine that repeats the work of another engine, in the same run and session, until a grader passes the answer."""

    def __init__(self, grader: Any, engine: Engine, max_rounds: int, timeout_seconds: float) -> None:
        self._grader = to_grader(grader)
        self._engine = engine
        self._max_rounds = max_rounds
        self._timeout_seconds = timeout_seconds
        self.name = f"until({get_engine_name(engine)})"

    async def __call__(self, run: Run) -> Outcome[Any]:
        """Work and grade in turns, until the grade passes, the rounds are used up, or the run ends otherwise."""
        add_fallback_answer(run, _find_graded_answer)
        grades = list_grades(run.entries, run.path)
        _count_earlier_grades(run, grades)
        is_graded = _ends_with_grade(run.entries)
        while True:
            outcome = await call_engine(self._engine, run)
            if not _has_answer(outcome) or run.is_interrupted:
                return outcome
            if is_graded:  # a crash came between the last grade and the end of the run
                return self._find_ending(run, grades, outcome) or outcome
            number = len(grades) + 1
            evidence = _build_evidence(run, outcome, number)
            grade = await grade_evidence(self._grader, evidence, timeout_seconds=self._timeout_seconds)
            grades.append(GradeGiven(number, grade, run.run_id))
            _count_grade(run, grade)
            ending = self._find_ending(run, grades, outcome)
            event = Custom(GRADE_EVENT, to_jsonable(msgspec.to_builtins(replace(grades[-1], run_id=""))))
            if ending is not None:
                await run.emit(run.stamp_event(event))
                return replace(ending, usage=run.usage, cost_usd=run.cost_usd)
            feedback = user(grade.feedback or _get_goal(run), origin=GRADE_ORIGIN, labels=grade.labels)
            await run.emit(run.stamp_event(event), run.stamp_event(MessageAdded(feedback)))

    def _find_ending(self, run: Run, grades: Sequence[GradeGiven], outcome: Outcome[Any]) -> Outcome[Any] | None:
        """Return the outcome with which the run ends after a grade; `None` if another round begins."""
        grade = grades[-1].grade
        if grade.passed:
            return outcome
        if not grade.is_judged:
            return run.outcome("stopped", "grader_failed")
        if limit := run.find_reached_limit():
            return run.outcome("limit", limit)
        return run.outcome("stopped", "max_rounds") if len(grades) >= self._max_rounds else None


def until(
    grader: AnyGrader,
    *,
    max_rounds: int = MAX_ROUNDS,
    engine: Engine = react,
    timeout_seconds: float = GRADE_SECONDS,
) -> Engine:
    """Make an engine that repeats the work until a grader passes it: `agent.run(goal, engine=until(grader))`.

    All rounds are one run in one session: the feedback of the grader is the next message, and the limits of the run
    hold for all of them together. Each grade is an event in the log, which `read_grades` reads. A run whose last grade
    did not pass ends as `stopped`, with the reason `max_rounds`; if the grader itself failed, with `grader_failed`. A
    round that ends without an answer, such as at a limit, leaves the answer of the round before. The tokens and the
    cost of a model that grades are added to the outcome, and count for the limits.

    Args:
        grader: A grader, or a function that gets the evidence of a round.
        max_rounds: The most rounds.
        engine: The engine that works in each round.
        timeout_seconds: The time that the grader may take in a round.
    """
    checks.require_int("until", "max_rounds", max_rounds, 1)
    checks.require_callable("until", "engine", engine)
    checks.require_number("until", "timeout_seconds", timeout_seconds)
    return UntilEngine(grader, engine, max_rounds, timeout_seconds)


def list_grades(entries: Sequence[Entry], path: str = "") -> list[GradeGiven]:
    """Return the grades stored in log entries of a run or of a whole session, in order; of a subagent, by its path."""
    found: list[GradeGiven] = []
    for entry in entries:
        event = entry.event
        if isinstance(event, Custom) and event.name == GRADE_EVENT and event.path == path:
            try:
                given = convert(event.data, GradeGiven)
            except (msgspec.ValidationError, ValueError):  # an event of that name of another program
                continue
            found.append(replace(given, run_id=event.run_id, at=entry.at))
    return found


def _ends_with_grade(entries: Sequence[Entry]) -> bool:
    """Return True if no message follows the last grade: then it was the last one of the run."""
    kinds = [each.event for each in entries if isinstance(each.event, (Custom, MessageAdded))]
    last = kinds[-1] if kinds else None
    return isinstance(last, Custom) and last.name == GRADE_EVENT


async def read_grades(session: Any) -> list[GradeGiven]:
    """Return the grades stored in a session, of all its runs with the engine `until`, in order."""
    return list_grades(await session.store.read(session.session_id))


def _has_answer(outcome: Outcome[Any]) -> bool:
    """Return True if the run would end with an answer that can be graded."""
    return outcome.status == "done" or (outcome.status == "stopped" and outcome.reason == "terminated")


def _build_evidence(run: Run, outcome: Outcome[Any], number: int) -> Evidence:
    """Return the evidence of a round. The answer of an answer tool is its arguments."""
    evidence = Evidence.from_outcome(outcome, goal=_get_goal(run), round=number)
    answers = [each for each in evidence.tool_calls if each.name == ANSWER_TOOL]
    if answers and not outcome.text:
        return replace(evidence, answer=answers[-1].arguments, status="done")
    return evidence


def _find_graded_answer(run: Run) -> FallbackAnswer | None:
    """Return the answer of the last round that was graded, for a run that ends in the next one without an answer."""
    index = find_work_index(run)
    if index == run.state.first_message_index:
        return None
    reply = next(each for each in reversed(run.messages[:index]) if each.role == "assistant")
    answers = [each.arguments for each in reply.tool_calls if each.name == ANSWER_TOOL]
    text = answers[0] if answers else reply.text
    return FallbackAnswer(text, index) if text else None


def _get_goal(run: Run) -> str:
    """Return the prompt of the run."""
    messages = run.messages[run.state.first_message_index :]
    return next((each.text for each in messages if each.role == "user"), "")


def _count_earlier_grades(run: Run, grades: Sequence[GradeGiven]) -> None:
    """Count the grades that a run had before it was resumed; once, whatever engines work inside of others."""
    if _COUNTED_KEY not in run.scratch:
        run.scratch[_COUNTED_KEY] = True
        for each in grades:
            _count_grade(run, each.grade)


def _count_grade(run: Run, grade: Grade) -> None:
    """Add what a grade has cost to the run: it counts for the limits, and is in the outcome however the run ends."""
    if grade.usage != Usage():
        count_spending_beside(run, grade.usage, grade.cost_usd)
