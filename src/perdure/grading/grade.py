"""`Grade`: the judgement of a grader, with score and feedback; or the failure of a grader that could not judge."""

from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from perdure.core import argument_checks
from perdure.core.jsonable import replace_surrogates
from perdure.core.message import Usage, check_labels

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
        argument_checks.require_bool("Grade", "passed", self.passed)
        argument_checks.require_text("Grade", "feedback", self.feedback)
        argument_checks.require_text("Grade", "grader", self.grader)
        msgspec.structs.force_setattr(self, "labels", check_labels(self.labels))
        msgspec.structs.force_setattr(self, "feedback", replace_surrogates(self.feedback))  # so that it can be stored
        msgspec.structs.force_setattr(self, "grader", replace_surrogates(self.grader))
        if self.score is _NO_SCORE:
            msgspec.structs.force_setattr(self, "score", 1.0 if self.passed else 0.0)
        elif isinstance(self.score, bool) or not is_score(self.score):
            argument_checks.raise_config_error("Grade", "score", self.score, "give a number from 0 to 1")
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
