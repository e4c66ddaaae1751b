"""Data classes of a code review: the findings of one model, and the review that merges those of several models."""

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

Severity: TypeAlias = Literal["critical", "major", "minor", "note"]
"""How bad a finding is: data loss or a security hole; wrong behaviour; a weakness; a remark."""

SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
"""All severities, the worst first."""


class Finding(Struct, frozen=True):
    """A problem in a reviewed git branch, as one model reports it: severity, location, description and fix."""

    severity: Severity
    file: str
    """The path of the file, relative to the folder of the review."""
    title: str
    """The problem in one line."""
    problem: str
    """What goes wrong, when, and why."""
    fix: str
    """What to change."""
    line: int | None = None
    """The line in the file as it is on the branch; `None` if the finding is about the whole file."""
    done_when: str = ""
    """How to see that it is fixed, such as a test that passes."""


class ModelReview(Struct, frozen=True):
    """A single model's review of a git branch: a summary and the findings."""

    summary: str
    """What the branch does and how good it is, in a few sentences."""
    findings: tuple[Finding, ...] = ()


class ReviewedFinding(Struct, frozen=True):
    """A finding with the models that report it; its file and line were looked up in the repository."""

    finding: Finding
    models: tuple[str, ...]
    """The models that report it."""
    agreement: float = 1.0
    """The part of the models that report it, from 0 to 1."""
    is_changed_file: bool = True
    """False if the branch does not change the file."""


class FailedReviewer(Struct, frozen=True):
    """A model that returned no review, and the reason."""

    model: str
    problem: str


class Review(Struct, frozen=True, kw_only=True):
    """The review of a git branch: the findings that enough models report, the worst first."""

    base: str
    """The branch or commit that it was compared with."""
    commit: str
    """The commit that was reviewed."""
    models: tuple[str, ...]
    """The models that reviewed it."""
    summaries: tuple[str, ...] = ()
    """What each of the models writes about the branch as a whole."""
    findings: tuple[ReviewedFinding, ...] = ()
    left_out: tuple[ReviewedFinding, ...] = ()
    """Findings that too few models report, or about files that do not exist."""
    failed: tuple[FailedReviewer, ...] = ()
    sessions: tuple[str, ...] = ()
    """The ids of the sessions in which the models worked."""
    cost_usd: float | None = None
    """The cost of all models, as far as it is known."""

    def count_at_least(self, severity: Severity) -> int:
        """Return the number of findings that are as bad as this, or worse."""
        worst = SEVERITIES.index(severity)
        return len([each for each in self.findings if SEVERITIES.index(each.finding.severity) <= worst])

    def to_json(self) -> dict[str, Any]:
        """Return the review as JSON values: the fields of this class."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def sort_findings(findings: Sequence[ReviewedFinding]) -> tuple[ReviewedFinding, ...]:
    """Return findings with the worst first, then by agreement, file and line."""
    return tuple(
        sorted(
            findings,
            key=lambda each: (
                SEVERITIES.index(each.finding.severity),
                -each.agreement,
                each.finding.file,
                each.finding.line or 0,
            ),
        )
    )
