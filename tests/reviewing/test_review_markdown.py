"""A review as a page of Markdown."""

from perdure.evals import FailedReviewer, Finding, Review, ReviewedFinding, render_review


def test_a_page_has_every_finding_with_its_place_agreement_and_fix():
    worst = Finding("critical", "a.py", "a `lock`\nleaks", "It is never released.", "Release it.", 3, "a test passes")
    rest = Finding("note", "b.py", "a name", "It is unclear.", "Rename it.")
    review = Review(
        base="main",
        commit="0123456789abcdef",
        models=("x", "y"),
        summaries=("Good work.\n\nMostly.",),
        findings=(ReviewedFinding(worst, ("x", "y")), ReviewedFinding(rest, ("x",), 0.5, is_changed_file=False)),
        left_out=(ReviewedFinding(rest, ("y",)),),
        failed=(FailedReviewer("z", "it is\ndown"),),
    )
    assert render_review(review) == (
        "# Review of 0123456789ab against main\n\n"
        "1 critical, 1 note. Reviewed by x, y.\n\n"
        "> Good work.\n>\n> Mostly.\n\n"
        "## 1. critical: a 'lock' leaks\n\n"
        "`a.py:3` (2 of 2 models)\n\n"
        "It is never released.\n\n"
        "**Fix.** Release it.\n\n"
        "**Done when** a test passes\n\n"
        "## 2. note: a name\n\n"
        "`b.py` (1 of 2 models, not changed by this branch)\n\n"
        "It is unclear.\n\n"
        "**Fix.** Rename it.\n\n"
        "## Left out\n\n"
        "Too few models report these, or their files do not exist:\n\n"
        "- note `b.py` a name\n\n"
        "## Models without a review\n\n"
        "- z: it is down\n"
    )


def test_a_page_without_findings_says_so():
    assert "No findings. Reviewed by no model." in render_review(Review(base="main", commit="1", models=()))


def test_findings_are_counted_from_a_severity_up():
    found = [ReviewedFinding(Finding(each, "a", "t", "p", "f"), ("m",)) for each in ("critical", "minor", "note")]
    review = Review(base="main", commit="1", models=("m",), findings=tuple(found))
    assert [review.count_at_least(each) for each in ("critical", "major", "minor", "note")] == [1, 1, 2, 3]
