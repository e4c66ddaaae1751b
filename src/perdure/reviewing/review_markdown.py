"""Render a code review as Markdown: the counts by severity, then each finding with its problem and fix.

What models write may be what the branch told them to write, so it is escaped.
"""

from collections.abc import Iterator

from .markdown_escaping import begins_with_code, escape_blocks, escape_line, show_controls
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
        yield f"## {number}. {finding.severity}: {escape_line(finding.title)}"
        yield ""
        yield f"`{_escape_code(format_location(each))}`{_describe_agreement(review, each)}"
        yield ""
        yield escape_blocks(finding.problem)
        yield ""
        yield _label("**Fix.**", finding.fix)
        if finding.done_when.strip():
            yield ""
            yield _label("**Done when**", finding.done_when)


def _render_rest(review: Review) -> Iterator[str]:
    if review.left_out:
        yield ""
        yield "## Left out"
        yield ""
        yield "Too few models report these, or their files do not exist:"
        yield ""
        for each in review.left_out:
            yield f"- {each.finding.severity} `{_escape_code(format_location(each))}` {escape_line(each.finding.title)}"
    if review.failed:
        yield ""
        yield "## Models without a review"
        yield ""
        for failed in review.failed:
            yield f"- {failed.model}: {escape_line(failed.problem)}"


def format_location(found: ReviewedFinding) -> str:
    """Return the location of a finding as `file:line`, or `file` if it has no line."""
    finding = found.finding
    return finding.file if finding.line is None else f"{finding.file}:{finding.line}"


def _describe_agreement(review: Review, each: ReviewedFinding) -> str:
    notes = [f"{len(each.models)} of {len(review.models)} models"] if len(review.models) > 1 else []
    if not each.is_changed_file:
        notes.append("not changed by this branch")
    return f" ({', '.join(notes)})" if notes else ""


def _label(label: str, text: str) -> str:
    escaped = escape_blocks(text)
    return f"{label}\n\n{escaped}" if begins_with_code(escaped) else f"{label} {escaped}"


def _escape_code(text: str) -> str:
    """Return text as one line for code between backticks."""
    return show_controls(" ".join(text.split())).replace("`", "'")


def _quote(text: str) -> str:
    return "\n".join([f"> {line}".rstrip() for line in escape_blocks(text).split("\n")])
