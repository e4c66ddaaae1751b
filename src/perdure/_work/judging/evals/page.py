"""Render an evaluation report as one web page: plots, regressions, and each case with its answers and grades.

The page is self-contained, has no script, and requests nothing: its policy allows its own style alone, by its hash.
Answers of models, feedback and names are text that cannot become anything else.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from perdure._core.tools.wrappers import shorten_text
from perdure._core.values.jsonable import to_text
from perdure._tracing.view.page_parts import escape_text, fill_template, hash_source, read_theme

from .case import MAX_TEXT, CaseResult
from .plots import COLOURS, plot_costs, plot_history, plot_latencies, plot_results, plot_scores, plot_tags
from .report import AgentSummary, CaseChange, EvaluationReport, ReportedCaseDefinition
from .text import describe_failure_reason, format_cost, format_seconds, format_utc_time

LARGE: Final = 5_000_000
"""Characters of all answers from which each is cut."""
MAX_TEXT_WHEN_LARGE: Final = 2_000
_VERDICTS: Final = ("passed", "failed", "error")
_FOLDER: Final = Path(__file__).parent / "page"


def build_report_page(report: EvaluationReport) -> str:
    """Return an evaluation report as the HTML of one web page."""
    style = read_theme() + _read_part("page.css")
    parts = {
        "STYLE_HASH": hash_source(style),
        "STYLE": style,
        "TITLE": escape_text(f"evaluation of {report.dataset}"),
        "BODY": "\n".join([part for build in _PARTS for part in build(report)]),
    }
    return fill_template(_read_part("page.html"), parts)


@cache
def _read_part(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _build_head(report: EvaluationReport) -> Iterator[str]:
    took = format_seconds(max(report.finished_at - report.started_at, 0.0))
    about = f"{format_utc_time(report.started_at)}, {took}, evaluation {report.evaluation_id}"
    yield f"<header><h1>{escape_text(report.dataset)}</h1><span class=who>{escape_text(about)}</span></header>"
    costs = [each.cost_usd for each in report.summaries if each.cost_usd is not None]
    errors = sum([each.errors for each in report.summaries])
    grading = sum([each.grading_cost_usd for each in report.summaries])
    changes = report.comparison
    facts = [
        (f"{report.pass_rate:.0%}", "of the runs passed", "" if report.all_passed else "bad"),
        (f"{len(report.cases)}", "cases", ""),
        (f"{len(report.results)}", f"runs by {_count(len(report.summaries), 'agent')}", ""),
        (str(errors), "errors", "bad" if errors else ""),
        (format_cost(sum(costs) + grading if costs else None), "cost, with grading", ""),
        (
            "-" if changes is None else str(len(changes.regressions)),
            "regressions" if changes is not None else "nothing to compare with",
            "bad" if report.regressions else "",
        ),
    ]
    shown = [
        f'<div class="fact {more}"><b>{escape_text(value)}</b><span>{name}</span></div>' for value, name, more in facts
    ]
    yield f'<section class="card facts">{"".join(shown)}</section>'


def _build_plots(report: EvaluationReport) -> Iterator[str]:
    plots = [
        ("Results", plot_results(report.summaries), _legend([(f"v-{name}", name) for name in _VERDICTS])),
        ("Score of each case", plot_scores(report), _legend([("s0", "0"), ("s2", ""), ("s3", ""), ("s5", "1")])),
        ("Latency", plot_latencies(report), "one dot is one run"),
        ("Cost", plot_costs(report.summaries), _legend([("grading", "grading")])),
        ("Passed, by tag", plot_tags(report), _agent_legend(report.summaries)),
        ("Passed, over time", plot_history(report), _agent_legend(report.summaries)),
    ]
    shown = [
        f'<figure class="card chart"><figcaption class=head><h2>{name}</h2><span class=legend>{legend}</span>'
        f"</figcaption>{plot}</figure>"
        for name, plot, legend in plots
        if plot
    ]
    yield f"<section class=charts>{''.join(shown)}</section>"
    yield f'<section class="card pad">{_build_table(report)}</section>'


def _build_table(report: EvaluationReport) -> str:
    """Return the table of the agents, each with its figures before."""
    before = {each.agent: each for each in report.comparison.summaries} if report.comparison else {}
    rows = [_build_row(each, before.get(each.agent)) for each in report.summaries]
    names = ("passed", "score", "cost", "median", "p95", "tokens in", "tokens out", "errors")
    head = "".join([f"<th class=num>{name}</th>" for name in names])
    return f"<table><thead><tr><th>agent</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _build_row(now: AgentSummary, before: AgentSummary | None) -> str:
    then = now if before is None else before  # without an earlier evaluation, nothing has changed
    cells = [
        (f"{now.passed}/{now.runs}", _difference(now.pass_rate, then.pass_rate, "{:+.0%}")),
        (f"{now.mean_score:.2f}", _difference(now.mean_score, then.mean_score, "{:+.2f}")),
        (format_cost(now.cost_usd), _relative(now.cost_usd, then.cost_usd)),
        (
            format_seconds(now.latency_median_seconds),
            _relative(now.latency_median_seconds, then.latency_median_seconds),
        ),
        (format_seconds(now.latency_p95_seconds), _relative(now.latency_p95_seconds, then.latency_p95_seconds)),
        (f"{now.input_tokens:,}", ""),
        (f"{now.output_tokens:,}", ""),
        (str(now.errors), ""),
    ]
    inside = "".join([f"<td class=num>{escape_text(text)} {change}</td>" for text, change in cells])
    return f"<tr><td>{escape_text(now.agent)}</td>{inside}</tr>"


def _difference(now: float, before: float, form: str) -> str:
    """Return by how much a rate has changed, of which more is better."""
    if abs(now - before) < 0.005:  # noqa: PLR2004 - what would be shown as 0
        return ""
    return f'<span class="{"better" if now > before else "worse"}">{form.format(now - before)}</span>'


def _relative(now: float | None, before: float | None) -> str:
    """Return by how much a cost or a time has changed, of which less is better; small changes are left out."""
    if not now or not before or abs(now / before - 1) < 0.1:  # noqa: PLR2004 - a tenth
        return ""
    return f'<span class="{"better" if now < before else "worse"}">{now / before - 1:+.0%}</span>'


def _build_changes(report: EvaluationReport) -> Iterator[str]:
    compared = report.comparison
    if compared is None:
        return
    against = f"{compared.compared} compared with the evaluation of {format_utc_time(compared.baseline_at)}"
    lists = [
        f"<h2>{title}: {len(changes) or 'none'}</h2><ul>{''.join([_build_change(each) for each in changes])}</ul>"
        for title, changes in (("Regressions", compared.regressions), ("Improvements", compared.improvements))
    ]
    yield f'<section class="card pad changes"><p class=sub>{escape_text(against)}</p>{"".join(lists)}</section>'


def _build_change(change: CaseChange) -> str:
    name = "worse" if change.pass_rate < change.pass_rate_before else "better"
    rates = f"passed {change.pass_rate_before:.0%} → {change.pass_rate:.0%}"
    scores = f"score {change.score_before:.2f} → {change.score:.2f}"
    case = escape_text(change.case_id)
    change_text = f"<span class={name}>{rates}, {scores}</span>"
    return f'<li><a href="#case-{case}">{case}</a> ({escape_text(change.agent)}) {change_text}</li>'


def _build_cases(report: EvaluationReport) -> Iterator[str]:
    by_case: dict[str, list[CaseResult]] = {}
    for each in report.results:
        by_case.setdefault(each.case_id, []).append(each)
    regressed = {each.case_id for each in report.regressions}
    characters = sum([len(each.text) + len(each.error) for each in report.results])
    most = MAX_TEXT if characters <= LARGE else MAX_TEXT_WHEN_LARGE
    yield '<section class="card pad cases"><h2>Cases</h2><div class=filters>'
    for name, label in (("all", "all"), ("bad", "not passed"), ("regressed", "regressions")):
        checked = " checked" if name == "all" else ""
        yield f"<label><input type=radio name=show id=show-{name}{checked}>{label}</label>"
    yield "</div>"
    for case in report.cases:
        yield _build_case(case, by_case.get(case.id, []), most, is_regressed=case.id in regressed)
    yield "</section>"


def _build_case(case: ReportedCaseDefinition, results: Sequence[CaseResult], most: int, *, is_regressed: bool) -> str:
    names = ["passed" if all(each.passed for each in results) else "bad", *(["regressed"] if is_regressed else [])]
    chips = "".join([_build_chip(each) for each in results])
    tags = "".join([f"<span class=tag>{escape_text(tag)}</span>" for tag in case.tags])
    latency = format_seconds(sum([each.latency_seconds for each in results]) / max(len(results), 1))
    mark = '<span class="chip bad">regression</span>' if is_regressed else ""
    expected = "" if case.expected is None else _box("Expected", to_text(case.expected), most)
    shown = "".join([_build_result(each, most) for each in results])
    return (
        f'<details class="case {" ".join(names)}" id="case-{escape_text(case.id)}"><summary><span class=id>'
        f"{escape_text(case.id)}</span><span>{tags}</span><span>{mark}{chips}</span><span class=num>{latency}</span>"
        f"</summary><div class=inside>{_box('Prompt', case.prompt, most)}{expected}{shown}</div></details>"
    )


def _build_chip(result: CaseResult) -> str:
    kind = {"passed": "good", "failed": "bad", "error": "warn"}[result.verdict]
    text = "error" if result.verdict == "error" else f"{result.score:.2f}"
    title = f"{result.agent} #{result.repetition}: {result.verdict}"
    return f'<span class="chip {kind}" title="{escape_text(title)}">{text}</span>'


def _build_result(result: CaseResult, most: int) -> str:
    number = f" #{result.repetition}" if result.repetition > 1 else ""
    facts = [
        format_cost(result.cost_usd),
        format_seconds(result.latency_seconds),
        _count(result.turns, "turn"),
        _count(result.tool_calls, "call"),
        f"{result.input_tokens:,} + {result.output_tokens:,} tokens",
    ]
    grades = "".join(
        [
            f'<li><span class="chip {"good" if each.passed else "bad"}">{each.score:.2f}</span>'
            f"{escape_text(each.grader)} <span class=sub>{escape_text(shorten_text(each.feedback, most))}</span></li>"
            for each in result.grades
        ]
    )
    error = "" if result.verdict != "error" else _box("Error", describe_failure_reason(result), most)
    return (
        f"<article><h3>{escape_text(result.agent + number)} {_build_chip(result)}</h3>"
        f"<p class=sub>{escape_text(', '.join(facts))}; session {escape_text(result.session_id)}</p>"
        f"{_box('Answer', result.text, most) if result.text else ''}{error}<ul class=grades>{grades}</ul></article>"
    )


def _box(title: str, text: str, most: int) -> str:
    return f"<h4>{title}</h4><pre class=box>{escape_text(shorten_text(text, most))}</pre>"


def _legend(items: Sequence[tuple[str, str]]) -> str:
    return "".join(
        [
            f'<span><svg viewBox="0 0 9 9"><rect class="{name}" width="9" height="9" rx="2"/></svg>{text}</span>'
            for name, text in items
        ]
    )


def _agent_legend(summaries: Sequence[AgentSummary]) -> str:
    return _legend([(f"a{place % COLOURS}", escape_text(each.agent)) for place, each in enumerate(summaries)])


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


_PARTS: Final = (_build_head, _build_plots, _build_changes, _build_cases)
"""The parts of the page, from top to bottom."""
