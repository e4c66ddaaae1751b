"""`Grader`: the protocol of graders, plain functions as graders, and the function that calls a grader."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

from msgspec.structs import replace

from perdure.core import argument_checks
from perdure.core.jsonable import error_message, short_repr
from perdure.core.run_function_types import get_engine_name
from perdure.core.thread_pool import THREAD_POOL

from .evidence import Evidence
from .grade import PASSING_SCORE, Grade, build_failed_grade, is_score

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
        argument_checks.require_callable("function_grader", "function", function)
        argument_checks.require_text("function_grader", "name", name)
        self._function = function
        self.name = name or get_engine_name(cast("Any", function)).strip("<>")

    async def grade(self, evidence: Evidence) -> Grade:
        """Call the function, on a thread if it is a plain one, and return its grade."""
        if argument_checks.is_async_function(self._function):
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
        argument_checks.raise_config_error("to_grader", "given", given, advice)
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
    argument_checks.require_number("grade_evidence", "timeout_seconds", timeout_seconds)
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
