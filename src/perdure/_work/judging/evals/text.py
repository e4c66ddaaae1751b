"""Format an evaluation report as text: a table of the agents, and the cases that did not pass or that changed."""

import time
from collections.abc import Iterator, Sequence
from typing import Final

from .case import CaseResult
from .report import AgentSummary, CaseChange, EvaluationReport

MAX_LISTED: Final = 20
"""Cases that are listed below the table."""
_MINUTE: Final = 60.0
_CENT: Final = 0.01


def format_report(report: EvaluationReport, *, width: int = 100) -> str:
    """Return an evaluation report as text: a table of the agents, then regressions, failures and improvements."""
    rows: list[tuple[str, ...]] = [("agent", "passed", "score", "cost", "median", "p95", "errors", "before")]
    before = {each.agent: each for each in report.comparison.summaries} if report.comparison else {}
    rows += [_format_row(each, before.get(each.agent)) for each in report.summaries]
    lines = [*_format_columns(rows), *_list_changes("regressions", report.regressions, width)]
    lines += _list_failures(report, width)
    if report.comparison is not None:
        lines += _list_changes("improvements", report.comparison.improvements, width)
    return "\n".join([line.rstrip() for line in lines]) + "\n"


def _format_row(summary: AgentSummary, before: AgentSummary | None) -> tuple[str, ...]:
    return (
        _to_line(summary.agent),
        f"{summary.passed}/{summary.runs}",
        f"{summary.mean_score:.2f}",
        format_cost(summary.cost_usd) + ("+?" if summary.cost_usd is not None and summary.unknown_costs else ""),
        format_seconds(summary.latency_median_seconds),
        format_seconds(summary.latency_p95_seconds),
        str(summary.errors or "-"),
        "-" if before is None else f"{before.passed}/{before.runs}",
    )


def _format_columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows of a table: the first column to the left, the others to the right."""
    widths = [max([len(row[place]) for row in rows]) for place in range(len(rows[0]))]
    for row in rows:
        rest = [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), *rest])


def _list_failures(report: EvaluationReport, width: int) -> Iterator[str]:
    failed = [each for each in report.results if not each.passed]
    yield from _list_lines("not passed", [_describe_failure(each) for each in failed], width)


def _list_changes(title: str, changes: Sequence[CaseChange], width: int) -> Iterator[str]:
    described = [
        f"{each.case_id} ({each.agent}): passed {each.pass_rate_before:.0%} before, {each.pass_rate:.0%} now"
        for each in changes
    ]
    yield from _list_lines(title, described, width)


def _list_lines(title: str, described: Sequence[str], width: int) -> Iterator[str]:
    if not described:
        return
    yield ""
    yield f"{title} ({len(described)})"
    for each in described[:MAX_LISTED]:
        line = f"  {_to_line(each)}"
        yield line if len(line) <= width else f"{line[: width - 1]}…"
    if len(described) > MAX_LISTED:
        yield f"  … and {len(described) - MAX_LISTED} more"


def _describe_failure(result: CaseResult) -> str:
    number = f" #{result.repetition}" if result.repetition > 1 else ""
    return f"{result.case_id} ({result.agent}{number}): {describe_failure_reason(result)}"


def describe_failure_reason(result: CaseResult) -> str:
    """Return why a case did not pass: the error, or the feedback of the graders."""
    if result.verdict == "error":
        return f"error: {result.error}"
    failed = [each for each in result.grades if not each.passed]
    return "; ".join([each.feedback or f"{each.grader}: not passed" for each in failed])


def format_cost(cost_usd: float | None) -> str:
    """Return a cost in dollars as text, with as many digits as it needs; `-` if the cost is not known."""
    if cost_usd is None:
        return "-"
    return f"${cost_usd:.2f}" if cost_usd >= _CENT or not cost_usd else f"${cost_usd:.2g}"


def format_seconds(seconds: float) -> str:
    """Return a duration as text in minutes, seconds or milliseconds, whichever suits it."""
    if seconds >= _MINUTE:
        return f"{seconds / _MINUTE:.1f} min"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def format_utc_time(seconds: float) -> str:
    """Return a moment (seconds since 1970) as date and time of day in UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _to_line(text: str) -> str:
    return " ".join(text.split())
