"""`CaseResult`: how one run of an evaluation case ended, with its grades, cost and latency."""

import itertools
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.run.outcome import Outcome
from perdure._core.tools.wrappers import shorten_text
from perdure._core.values.event import Entry, RunResumed
from perdure._core.values.jsonable import error_message
from perdure._work.judging.graders.grader import Grade

from .dataset import Case

MAX_TEXT: Final = 20_000
"""Characters of an answer, an error or a feedback that a result has."""

CaseVerdict: TypeAlias = Literal["passed", "failed", "error"]
"""All graders passed; one did not; or there was nothing to grade, or no judgement."""


class CaseResult(Struct, frozen=True, kw_only=True):
    """The result of one run of an evaluation case by one agent: its verdict, grades, cost and latency."""

    case_id: str
    agent: str
    """Name of the agent in the evaluation."""
    repetition: int = 1
    """Number of the run of the same case, from 1."""
    verdict: CaseVerdict
    score: float = 0.0
    """Mean of the scores of the graders, from 0 to 1; 0 for an error."""
    status: str = ""
    """How the run ended: `done`, `limit`, `failed`, …; `raised` if it did not begin."""
    reason: str = ""
    """Reason of the status, such as `timeout`, `max_turns` or `budget`."""
    error: str = ""
    """What went wrong, for the verdict `error`."""
    text: str = ""
    """The answer, shortened."""
    grades: tuple[Grade, ...] = ()
    cost_usd: float | None = None
    """Cost of the run as its own report has it; `None` if that is not known."""
    grading_cost_usd: float = 0.0
    """Cost of the graders."""
    latency_seconds: float = 0.0
    """Time of the run by the clock of its agent, without the time between a crash and the next process."""
    input_tokens: int = 0
    output_tokens: int = 0
    turns: int = 0
    tool_calls: int = 0
    session_id: str = ""
    """The session of the run, for `perdure trace`."""
    digest: str = ""
    """Hash of the case and its graders: only results with the same one are compared."""
    finished_at: float = 0.0
    """When the result was there, in seconds since 1970."""

    @property
    def passed(self) -> bool:
        """True if all graders passed."""
        return self.verdict == "passed"

    def without_texts(self) -> "CaseResult":
        """Return the result without the texts of the answer and the feedback, for comparisons."""
        return replace(self, text="", error="", grades=())


def build_result(cell: dict[str, Any], case: Case, outcome: Outcome[Any], grades: Sequence[Grade]) -> CaseResult:
    """Build the `CaseResult` of a run that has ended, from its outcome and grades; without grades, it is an error.

    `cell` has the fields that identify the result, such as the agent and the repetition.
    """
    failures = [each for each in grades if not each.is_judged]
    error = ""
    if not grades:
        error = describe_missing_answer(outcome)
    elif failures:
        error = "; ".join([each.feedback for each in failures])
    passed = bool(grades) and all(each.passed for each in grades)
    return CaseResult(
        **cell,
        case_id=case.id,
        verdict="error" if error else "passed" if passed else "failed",
        score=0.0 if error else sum([each.score for each in grades]) / len(grades),
        status=outcome.status,
        reason=outcome.reason,
        error=shorten_text(error, MAX_TEXT),
        text=shorten_text(outcome.text, MAX_TEXT),
        grades=tuple([_shorten_grade(each) for each in grades]),
        cost_usd=outcome.cost_usd,
        grading_cost_usd=sum([each.cost_usd or 0.0 for each in grades]),
        latency_seconds=measure_latency(outcome.entries),
        input_tokens=outcome.usage.input_tokens,
        output_tokens=outcome.usage.output_tokens,
        turns=outcome.turns,
        tool_calls=len(outcome.tool_calls),
    )


def _shorten_grade(grade: Grade) -> Grade:
    """Return a grade whose feedback, and that of its parts, is not too long to be stored."""
    parts = tuple([_shorten_grade(each) for each in grade.parts])
    failure = grade.failure
    if failure is not None:
        failure = replace(failure, message=shorten_text(failure.message, MAX_TEXT))
    return replace(grade, feedback=shorten_text(grade.feedback, MAX_TEXT), parts=parts, failure=failure)


def build_raised_result(cell: dict[str, Any], case: Case, error: Exception) -> CaseResult:
    """Build the result of a case whose run raised an error, instead of ending with an outcome."""
    return CaseResult(
        **cell,
        case_id=case.id,
        verdict="error",
        status="raised",
        reason=type(error).__name__,
        error=shorten_text(error_message(error), MAX_TEXT),
    )


def describe_missing_answer(outcome: Outcome[Any]) -> str:
    """Return a text that says why a run ended without an answer to grade."""
    if outcome.error is not None:
        return error_message(outcome.error)
    if outcome.status == "waiting" and outcome.questions:
        return f"the run waits for an answer: {outcome.questions[0].text}"
    return f"the run ended as {outcome.status!r}{f': {outcome.reason}' if outcome.reason else ''}"


def measure_latency(entries: Sequence[Entry]) -> float:
    """Return the seconds from the first to the last log entry of a run, without the time between a crash and resume."""
    if not entries:
        return 0.0
    total = entries[-1].at - entries[0].at
    for before, entry in itertools.pairwise(entries):
        if isinstance(entry.event, RunResumed):
            total -= entry.at - before.at
    return max(total, 0.0)
