"""Render a code review as Markdown: the counts by severity, then each finding with its problem and fix."""

from collections.abc import Iterator

from .review import SEVERITIES, Review, ReviewedFinding


def render_review(review: Review) -> str:
    """Return a review of a git branch as Markdown."""
    return "\n".join([*_render_head(review), *_render_findings(review), *_render_rest(review)]).rstrip() + "\n"


def _render_head(review: Review) -> Iterator[str]:
    yield f"# Review of {review.commit[:12]} against {review.base}"
    yield ""
    counts = [(each, len([one for one in review.findings if one.finding.severity == each])) for each in SEVERITIES]
    found = ", ".join([f"{count} {severity}" for severity, count in counts if count])
    yield f"{found or 'No findings'}. Reviewed by {', '.join(review.models) or 'no model'}."
    for summary in review.summaries:
        yield ""
        yield _quote(summary)


def _render_findings(review: Review) -> Iterator[str]:
    for number, each in enumerate(review.findings, 1):
        finding = each.finding
        yield ""
        yield f"## {number}. {finding.severity}: {_to_line(finding.title)}"
        yield ""
        yield f"`{_to_line(format_location(each))}`{_describe_agreement(review, each)}"
        yield ""
        yield finding.problem.strip()
        yield ""
        yield f"**Fix.** {finding.fix.strip()}"
        if finding.done_when.strip():
            yield ""
            yield f"**Done when** {finding.done_when.strip()}"


def _render_rest(review: Review) -> Iterator[str]:
    if review.left_out:
        yield ""
        yield "## Left out"
        yield ""
        yield "Too few models report these, or their files do not exist:"
        yield ""
        for each in review.left_out:
            yield f"- {each.finding.severity} `{_to_line(format_location(each))}` {_to_line(each.finding.title)}"
    if review.failed:
        yield ""
        yield "## Models without a review"
        yield ""
        for failed in review.failed:
            yield f"- {failed.model}: {_to_line(failed.problem)}"


def format_location(found: ReviewedFinding) -> str:
    """Return the location of a finding as `file:line`, or `file` if it has no line."""
    finding = found.finding
    return finding.file if finding.line is None else f"{finding.file}:{finding.line}"


def _describe_agreement(review: Review, each: ReviewedFinding) -> str:
    notes = [f"{len(each.models)} of {len(review.models)} models"] if len(review.models) > 1 else []
    if not each.is_changed_file:
        notes.append("not changed by this branch")
    return f" ({', '.join(notes)})" if notes else ""


def _to_line(text: str) -> str:
    return " ".join(text.split()).replace("`", "'")


def _quote(text: str) -> str:
    return "\n".join([f"> {line}".rstrip() for line in text.strip().splitlines()])
