"""Graders that combine other graders: all of them have to pass, or at least one of them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from perdure._core.values import checks
from perdure._core.values.message import Usage, merge_labels

from .grader import (
    GRADE_SECONDS,
    AnyGrader,
    Evidence,
    Grade,
    Grader,
    GraderFailure,
    get_grader_name,
    grade_evidence,
    to_grader,
)


class CombinedGrader:
    """A grader that calls several others at the same time; their grades are the parts of its grade."""

    def __init__(self, name: str, graders: Sequence[Any], *, is_all: bool, timeout_seconds: float) -> None:
        call = "all_of" if is_all else "any_of"
        if not graders:
            checks.raise_config_error(call, "graders", graders, "give at least one grader")
        checks.require_text(call, "name", name)
        checks.require_number(call, "timeout_seconds", timeout_seconds)
        self._graders = [to_grader(each) for each in graders]
        self._is_all = is_all
        self._timeout_seconds = timeout_seconds
        listed = ", ".join([get_grader_name(each) for each in self._graders])
        self.name = name or f"{call}({listed})"

    async def grade(self, evidence: Evidence) -> Grade:
        """Return the grade of all graders together; one that fails is a part that did not pass.

        If the grade depends on those that failed, there is no judgement: it has a failure, too.
        """
        graded = [grade_evidence(each, evidence, timeout_seconds=self._timeout_seconds) for each in self._graders]
        parts = tuple(await asyncio.gather(*graded))
        passed = (all if self._is_all else any)(each.passed for each in parts)
        failures = [each.failure for each in parts if each.failure is not None]
        rejected = [each for each in parts if not each.passed and each.is_judged]
        is_judged = passed or not failures or (self._is_all and bool(rejected))
        listed = rejected if is_judged else [each for each in parts if not each.passed]
        scores = [each.score for each in parts]
        costs = [each.cost_usd for each in parts if each.usage != Usage()]
        return Grade(
            passed=passed,
            score=sum(scores) / len(scores) if self._is_all else max(scores),
            feedback=""
            if passed
            else "\n".join([f"- {each.grader}: {each.feedback or 'not passed'}" for each in listed]),
            grader=self.name,
            parts=parts,
            failure=None if is_judged else _join_failures(failures),
            usage=sum([each.usage for each in parts], Usage()),
            labels=merge_labels(*[each.labels for each in parts]),
            cost_usd=None if None in costs or not costs else sum([each or 0.0 for each in costs]),
        )

    def __repr__(self) -> str:
        return f"CombinedGrader({self.name!r})"


def _join_failures(failures: Sequence[GraderFailure]) -> GraderFailure:
    first = failures[0]
    return GraderFailure(first.kind, "; ".join([each.message for each in failures]), first.error)


def all_of(*graders: AnyGrader, name: str = "", timeout_seconds: float = GRADE_SECONDS) -> Grader:
    """Make a grader that passes if all the given graders pass. Its score is the mean of their scores."""
    return CombinedGrader(name, graders, is_all=True, timeout_seconds=timeout_seconds)


def any_of(*graders: AnyGrader, name: str = "", timeout_seconds: float = GRADE_SECONDS) -> Grader:
    """Make a grader that passes if at least one of the given graders passes. Its score is the best of their scores."""
    return CombinedGrader(name, graders, is_all=False, timeout_seconds=timeout_seconds)
