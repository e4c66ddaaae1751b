"""A review as a value: its order, its counts, and its fields as JSON."""

import json

from perdure._work.judging.reviews.review import sort_findings
from perdure.evals import Finding, Review, ReviewedFinding, Severity


def found(severity: Severity, file: str = "a.py", line: int | None = 1, agreement: float = 1.0) -> ReviewedFinding:
    return ReviewedFinding(Finding(severity, file, "t", "p", "f", line), ("m",), agreement)


def test_findings_are_sorted_by_severity_then_agreement_then_file_then_line() -> None:
    expected = (
        found("critical", "z.py", 9, 0.5),
        found("major", "z.py", 9),
        found("major", "a.py", 1, 0.5),
        found("minor", "a.py", None),
        found("minor", "a.py", 2),
        found("minor", "b.py", 1),
        found("note"),
    )
    assert sort_findings(expected[::-1]) == expected


def test_a_review_is_its_fields_as_json() -> None:
    review = Review(base="main", commit="1", models=("m",), findings=(found("note"),), cost_usd=0.5)
    texts = {"file": "a.py", "title": "t", "problem": "p", "fix": "f", "done_when": ""}
    finding = {"severity": "note", "line": 1, **texts}
    assert json.loads(json.dumps(review.to_json())) == {
        "base": "main",
        "commit": "1",
        "models": ["m"],
        "summaries": [],
        "findings": [{"finding": finding, "models": ["m"], "agreement": 1.0, "is_changed_file": True}],
        "left_out": [],
        "failed": [],
        "sessions": [],
        "cost_usd": 0.5,
    }
