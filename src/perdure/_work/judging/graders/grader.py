"""`Grader`: what it sees of a run, how it judges, and the function that calls it."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, cast, runtime_checkable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.log.past_runs import ToolCallRecord
from perdure._core.run.outcome import Outcome
from perdure._core.run.spec import get_engine_name
from perdure._core.tools.worker.threads import THREAD_POOL
from perdure._core.tools.wrappers import shorten_text
from perdure._core.values import checks
from perdure._core.values.jsonable import error_message, replace_surrogates, short_repr
from perdure._core.values.message import Message, Usage, check_labels

MOST_RESULT_CHARACTERS = 2_000
"""Characters of a tool result that `describe_tool_calls` shows."""
MOST_TOOL_CHARACTERS = 40_000
"""Characters of all tool calls that `describe_tool_calls` shows; the middle ones are left out first."""


class Evidence(Struct, frozen=True, kw_only=True):
    """The material that a grader judges: goal, answer, and what the agent did. `from_outcome` builds it from a run."""

    goal: str = ""
    """What was asked for: the prompt, or the objective of a goal."""
    answer: str = ""
    """The last text of the model."""
    output: Any = None
    """The validated output, if the run had to return a value of a type."""
    expected: Any = None
    """The right answer, if it is known, such as that of a case of a dataset."""
    status: str = "done"
    """How the run ended: `done`, `failed`, `limit`, …"""
    round: int = 1
    """Number of the attempt, from 1."""
    messages: Sequence[Message] = ()
    """Messages that the run added to the conversation."""
    tool_calls: Sequence[ToolCallRecord] = ()
    """Tool calls of the run, with their results."""
    details: Mapping[str, Any] = {}
    """Values of the caller, such as the other fields of a case, or the checklist of a goal."""

    @classmethod
    def from_outcome(
        cls,
        outcome: Outcome[Any],
        *,
        goal: str,
        expected: Any = None,
        round: int = 1,  # noqa: A002 - the clearest name
        details: Mapping[str, Any] | None = None,
    ) -> "Evidence":
        """Return the evidence of a run that has ended."""
        return cls(
            goal=goal,
            answer=outcome.text,
            output=outcome.output,
            expected=expected,
            status=outcome.status,
            round=round,
            messages=tuple(outcome.new_messages),
            tool_calls=tuple(outcome.tool_calls),
            details=details or {},
        )

    def describe_tool_calls(self) -> str:
        """Return the tool calls with their arguments and results as text, shortened; empty if there are none."""
        listed = [_describe_call(number, each) for number, each in enumerate(self.tool_calls, 1)]
        return shorten_text("\n".join(listed), MOST_TOOL_CHARACTERS)


def _describe_call(number: int, call: ToolCallRecord) -> str:
    """Return one tool call with its result as text."""
    status = "no result" if call.result is None else str(call.result.status)
    text = "" if call.result is None else shorten_text(call.result.text, MOST_RESULT_CHARACTERS)
    arguments = shorten_text(call.arguments, MOST_RESULT_CHARACTERS)
    return f"{number}. {call.name}({arguments}) -> {status}\n{text}".rstrip()


GraderFailureKind: TypeAlias = Literal["raised", "timeout", "invalid"]
"""The grader raised an error, took too long, or returned something that is not a grade."""

PASSING_SCORE: Final = 1.0
"""The score from which a number that a function returns counts as passed."""

_NO_SCORE: Final = float("-1")
"""The score of a grade that was given none: this object, and not the number, which is no score."""


class GraderFailure(Struct, frozen=True, omit_defaults=True):
    """The reason why a grader could not judge. It says nothing about the work that was to be graded."""

    kind: GraderFailureKind
    message: str
    """What happened."""
    error: str = ""
    """Name of the error class, if the grader raised one."""


class Grade(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The judgement of a grader: passed or not, a score from 0 to 1, and feedback for the next attempt."""

    passed: bool
    score: float = _NO_SCORE
    """From 0 to 1; without one, 1 if it passed and 0 if not."""
    feedback: str = ""
    """What is missing, for the model and for people."""
    grader: str = ""
    """Name of the grader."""
    parts: tuple["Grade", ...] = ()
    """Grades of which this one is composed."""
    failure: GraderFailure | None = None
    """Why there is no judgement, if the grader itself failed; then the work did not pass."""
    usage: Usage = Usage()
    """Tokens that the grader used."""
    cost_usd: float | None = None
    """Cost of these tokens; `None` if it is not known, or there are none."""
    labels: tuple[str, ...] = ()
    """Labels of the feedback: where its text is from, such as `untrusted`. The next attempt gets them with it."""

    def __post_init__(self) -> None:
        checks.require_bool("Grade", "passed", self.passed)
        checks.require_text("Grade", "feedback", self.feedback)
        checks.require_text("Grade", "grader", self.grader)
        msgspec.structs.force_setattr(self, "labels", check_labels(self.labels))
        msgspec.structs.force_setattr(self, "feedback", replace_surrogates(self.feedback))  # so that it can be stored
        msgspec.structs.force_setattr(self, "grader", replace_surrogates(self.grader))
        if self.score is _NO_SCORE:
            msgspec.structs.force_setattr(self, "score", 1.0 if self.passed else 0.0)
        elif isinstance(self.score, bool) or not is_score(self.score):
            checks.raise_config_error("Grade", "score", self.score, "give a number from 0 to 1")
        else:
            msgspec.structs.force_setattr(self, "score", float(self.score))

    @property
    def is_judged(self) -> bool:
        """True unless the grader itself failed."""
        return self.failure is None


def is_score(value: Any) -> bool:
    """Return True if the value is a finite number from 0 to 1."""
    return isinstance(value, (int, float)) and 0 <= value <= 1


def build_failed_grade(grader: str, kind: GraderFailureKind, message: str, error: str = "") -> Grade:
    """Build the grade for a grader that could not judge, with the reason."""
    return Grade(
        passed=False,
        feedback=f"the grader {grader!r} could not judge this: {message}",
        grader=grader,
        failure=GraderFailure(kind, message, error),
    )


GRADE_SECONDS: Final = 600.0
"""The default time that a grader may take."""

Judgement: TypeAlias = Grade | bool | float
"""Result of a grader function: a grade, passed or not, or a score from 0 to 1, of which 1 alone has passed."""

GraderFunction: TypeAlias = Callable[[Evidence], Judgement | Awaitable[Judgement]]
"""Function that grades, plain or async. A plain one runs on a thread."""


@runtime_checkable
class Grader(Protocol):
    """Protocol of a grader: it sees the evidence of a run, and returns a grade."""

    @property
    def name(self) -> str:
        """The name in grades and reports."""
        ...

    async def grade(self, evidence: Evidence) -> Grade:
        """Return the grade of this evidence."""
        ...


AnyGrader: TypeAlias = Grader | GraderFunction
"""A grader, or a function that is used as one."""


class FunctionGrader:
    """A grader that calls a function. A returned value that is no judgement is reported as the grader's failure."""

    def __init__(self, function: GraderFunction, name: str = "") -> None:
        checks.require_callable("function_grader", "function", function)
        checks.require_text("function_grader", "name", name)
        self._function = function
        self.name = name or get_engine_name(cast("Any", function)).strip("<>")

    async def grade(self, evidence: Evidence) -> Grade:
        """Call the function, on a thread if it is a plain one, and return its grade."""
        if checks.is_async_function(self._function):
            found: Any = self._function(evidence)
        else:
            found = await THREAD_POOL.run(self._function, (evidence,), {})
        return to_grade(await found if inspect.isawaitable(found) else found, self.name)

    def __repr__(self) -> str:
        return f"FunctionGrader({self.name!r})"


def function_grader(function: GraderFunction, *, name: str = "") -> Grader:
    """Make a grader of a function that gets the evidence, and returns a `Grade`, a bool, or a score from 0 to 1."""
    return FunctionGrader(function, name)


def to_grade(found: Any, name: str) -> Grade:
    """Convert what a grader has returned to a `Grade`; a value that is no judgement gives a failed grade."""
    if isinstance(found, Grade):
        return found if found.grader else replace(found, grader=name)
    if isinstance(found, bool):
        return Grade(passed=found, grader=name)
    if is_score(found):
        return Grade(passed=found >= PASSING_SCORE, score=float(found), grader=name)
    advice = "return a Grade(…), True or False, or a score from 0 to 1"
    return build_failed_grade(name, "invalid", f"it returned {short_repr(found)}: {advice}")


def to_grader(given: Any) -> Grader:
    """Return a grader for a grader or a function. Raises `ConfigError` for anything else."""
    if callable(getattr(given, "grade", None)) and not isinstance(given, type):
        return cast("Grader", given)
    if not callable(given) or isinstance(given, type):
        advice = "give a function, or an object with an async grade(evidence)"
        checks.raise_config_error("to_grader", "given", given, advice)
    return FunctionGrader(cast("GraderFunction", given))


def get_grader_name(grader: Any) -> str:
    """Return the name of a grader; if it has none, the name of its class."""
    name = getattr(grader, "name", "")
    return name if isinstance(name, str) and name else type(grader).__name__


async def grade_evidence(grader: AnyGrader, evidence: Evidence, *, timeout_seconds: float = GRADE_SECONDS) -> Grade:
    """Call a grader and return its grade. If it raises an error or takes too long, that is a failed grade.

    Only a cancel of the caller is raised. Raises `ConfigError` if the first argument is no grader.
    """
    chosen = to_grader(grader)
    name = get_grader_name(chosen)
    checks.require_number("grade_evidence", "timeout_seconds", timeout_seconds)
    limit = asyncio.timeout(timeout_seconds)
    try:
        async with limit:
            return to_grade(await chosen.grade(evidence), name)
    except TimeoutError as error:
        if limit.expired():
            return build_failed_grade(name, "timeout", f"it took longer than {timeout_seconds:g} seconds")
        return build_failed_grade(name, "raised", error_message(error), type(error).__name__)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        message = "it was cancelled, and not by its caller"
        return build_failed_grade(name, "raised", message, type(error).__name__)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an error of a grader must not lose the work that it grades
        return build_failed_grade(name, "raised", error_message(error), type(error).__name__)
