"""Plots of an evaluation report as inline SVG: results, scores, latency, cost, tags, history. All text is escaped."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from perdure._tracing.view.page_parts import escape_text

from .case import CaseResult
from .report import AgentSummary, EvaluationReport
from .text import format_cost, format_seconds, format_utc_time

WIDTH: Final = 420
"""Width of a plot, in units of its own."""
COLOURS: Final = 6
"""Colours of agents, which are used again for further ones."""
MAX_TAGS: Final = 12
"""Tags that a plot shows: those of most cases."""
_LABEL: Final = 118
_VALUE: Final = 64
_BAR: Final = WIDTH - _LABEL - _VALUE
_ROW: Final = 26
_MAX_LABEL: Final = 18
_LOG_FROM: Final = 40.0
"""Ratio of the slowest to the median from which latencies are on a logarithmic axis."""
_MAX_COLUMNS: Final = 24


def plot_results(summaries: Sequence[AgentSummary]) -> str:
    """Return an SVG plot with a bar for each agent: the runs that passed, failed, and ended in an error."""
    rows: list[str] = []
    for place, each in enumerate(summaries):
        y, x = place * _ROW, float(_LABEL)
        rows.append(_label(each.agent, y))
        for name, count in (("passed", each.passed), ("failed", each.failed), ("error", each.errors)):
            width = _BAR * count / each.runs
            rows.append(_rect((x, y + 5, width, 15), f"v-{name}", f"{each.agent}: {count} {name}") if count else "")
            x += width
        rows.append(_value(f"{each.passed}/{each.runs}", y))
    return _svg(rows, len(summaries) * _ROW, "runs that passed, failed or ended in an error, by agent")


def plot_scores(report: EvaluationReport) -> str:
    """Return an SVG plot with a square for each case and agent, coloured by the mean score of the repetitions."""
    scores: dict[tuple[str, str], list[float]] = {}
    for each in report.results:
        scores.setdefault((each.agent, each.case_id), []).append(each.score)
    ids = [case.id for case in report.cases]
    lines = max(math.ceil(len(ids) / _MAX_COLUMNS), 1)
    columns = max(math.ceil(len(ids) / lines), 1)
    size = min((WIDTH - _LABEL) / columns, 18.0)
    rows: list[str] = []
    y = 0.0
    for summary in report.summaries:
        rows.append(_label(summary.agent, y + size / 2 - 13))
        for place, case_id in enumerate(ids):
            found = scores.get((summary.agent, case_id), [])
            if not found:
                continue
            mean = sum(found) / len(found)
            x, below = _LABEL + place % columns * size, y + place // columns * size
            level = min(int(mean * 5), 4) if mean < 1 else 5
            rows.append(_rect((x, below, size - 1, size - 1), f"s{level}", f"{case_id} ({summary.agent}): {mean:.2f}"))
        y += max(lines * size, 20) + 6
    return _svg(rows, y, "score of each case, by agent")


def plot_latencies(report: EvaluationReport) -> str:
    """Return an SVG plot with a dot for each run on an axis of seconds, and the median of each agent."""
    times = [each.latency_seconds for each in report.results]
    axis = _Axis(times)
    rows = [*axis.draw(len(report.summaries) * _ROW)]
    for place, summary in enumerate(report.summaries):
        y = place * _ROW
        rows.append(_label(summary.agent, y))
        rows += [_dot(axis.find(each.latency_seconds), y + 12.5, place, each) for each in _of(report, summary.agent)]
        x = axis.find(summary.latency_median_seconds)
        rows.append(f'<path class="median" d="M{x:.1f} {y + 3}v19"><title>median {_text(summary)}</title></path>')
        rows.append(_value(format_seconds(summary.latency_median_seconds), y))
    return _svg(rows, len(report.summaries) * _ROW + 16, "latency of each run, by agent")


def plot_costs(summaries: Sequence[AgentSummary]) -> str:
    """Return an SVG plot with a bar for each agent: the cost of its runs, and of grading them."""
    most = max([(each.cost_usd or 0.0) + each.grading_cost_usd for each in summaries], default=0.0) or 1.0
    rows: list[str] = []
    for place, each in enumerate(summaries):
        y, width = place * _ROW, _BAR * (each.cost_usd or 0.0) / most
        rows.append(_label(each.agent, y))
        rows.append(_rect((_LABEL, y + 5, width, 15), f"a{place % COLOURS}", f"runs: {format_cost(each.cost_usd)}"))
        grading = f"grading: {format_cost(each.grading_cost_usd)}"
        rows.append(_rect((_LABEL + width, y + 5, _BAR * each.grading_cost_usd / most, 15), "grading", grading))
        rows.append(_value(format_cost(each.cost_usd), y))
    return _svg(rows, len(summaries) * _ROW, "cost by agent")


def plot_tags(report: EvaluationReport) -> str:
    """Return an SVG plot of each agent's pass rate by tag, for the most frequent tags; empty without tags."""
    rates = report.summarize_tags()
    sizes = {tag: len([case for case in report.cases if tag in case.tags]) for tag in rates}
    shown = sorted(rates, key=lambda tag: (-sizes[tag], tag))[:MAX_TAGS]
    places = {each.agent: place for place, each in enumerate(report.summaries)}
    rows: list[str] = []
    y, height = 0.0, 9.0
    for tag in shown:
        block = max(len(rates[tag]) * height, 14.0)
        rows.append(_label(f"{tag} ({sizes[tag]})", y + block / 2 - 13))
        for place, (agent, rate) in enumerate(rates[tag].items()):
            top = y + place * height
            rows.append(_rect((_LABEL, top, _BAR, height - 2), "rest", ""))
            rows.append(
                _rect((_LABEL, top, _BAR * rate, height - 2), f"a{places[agent] % COLOURS}", f"{agent}: {rate:.0%}")
            )
            rows.append(_value(f"{rate:.0%}", top + height / 2 - 14, "small"))
        y += block + 7
    return _svg(rows, y, "fraction that passed, by tag") if shown else ""


def plot_history(report: EvaluationReport) -> str:
    """Return an SVG plot of pass rates over the evaluations of a dataset, a line per agent; empty for the first one."""
    if not report.history:
        return ""
    points = [*[(each.started_at, each.summaries) for each in report.history], (report.started_at, report.summaries)]
    height, right = 96.0, WIDTH - 16.0
    rows: list[str] = []
    for rate in (0.0, 0.5, 1.0):
        level = _level(rate, height)
        rows.append(f'<path class="grid" d="M36 {level:.1f}H{right}"/>')
        rows.append(f'<text class="axis end" x="30" y="{level + 3:.1f}">{rate:.0%}</text>')
    step = (right - 44) / max(len(points) - 1, 1)
    for place, summary in enumerate(report.summaries):
        line = [
            (44 + step * number, _level(each.pass_rate, height), f"{format_utc_time(at)}: {each.pass_rate:.0%}")
            for number, (at, summaries) in enumerate(points)
            for each in summaries
            if each.agent == summary.agent
        ]
        colour = f"a{place % COLOURS}"
        path = " ".join([f"{x:.1f},{y:.1f}" for x, y, _ in line])
        rows.append(f'<polyline class="line {colour}" points="{path}"/>')
        rows += [
            f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{escape_text(f"{summary.agent}, {at}")}'
            "</title></circle>"
            for x, y, at in line
        ]
    rows.append(f'<text class="axis" x="44" y="{height + 12}">{escape_text(format_utc_time(points[0][0]))}</text>')
    rows.append(
        f'<text class="axis end" x="{right}" y="{height + 12}">{escape_text(format_utc_time(points[-1][0]))}</text>'
    )
    return _svg(rows, height + 16, "fraction that passed, over the evaluations of this dataset")


# -- parts -------------------------------------------------------------------------------------------------------------


class _Axis:
    """An axis of seconds below a plot, linear or logarithmic."""

    def __init__(self, times: Sequence[float]) -> None:
        ordered = sorted([each for each in times if each > 0]) or [1.0]
        self._most, self._least = ordered[-1], ordered[0]
        self._is_log = self._most > _LOG_FROM * ordered[len(ordered) // 2]

    def find(self, seconds: float) -> float:
        """Return the place of a time on the axis."""
        if not self._is_log:
            return _LABEL + _BAR * min(seconds / self._most, 1.0)
        whole = math.log(self._most / self._least)
        return _LABEL + _BAR * min(max(math.log(max(seconds, self._least) / self._least) / whole, 0.0), 1.0)

    def draw(self, height: float) -> Iterable[str]:
        low = self._least if self._is_log else 0.0
        yield f'<path class="grid" d="M{_LABEL} {height}H{_LABEL + _BAR}"/>'
        yield f'<text class="axis" x="{_LABEL}" y="{height + 13}">{escape_text(format_seconds(low))}</text>'
        end = f"{format_seconds(self._most)}{', logarithmic' if self._is_log else ''}"
        yield f'<text class="axis end" x="{_LABEL + _BAR}" y="{height + 13}">{escape_text(end)}</text>'


def _of(report: EvaluationReport, agent: str) -> list[CaseResult]:
    return [each for each in report.results if each.agent == agent]


def _text(summary: AgentSummary) -> str:
    return escape_text(format_seconds(summary.latency_median_seconds))


def _dot(x: float, y: float, place: int, result: CaseResult) -> str:
    title = escape_text(f"{result.case_id} ({result.agent}): {format_seconds(result.latency_seconds)}")
    return f'<circle class="dot a{place % COLOURS}" cx="{x:.1f}" cy="{y}" r="3.5"><title>{title}</title></circle>'


def _level(rate: float, height: float) -> float:
    return 8 + (height - 12) * (1 - rate)


def _label(text: str, y: float) -> str:
    shown = text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 1]}…"
    return f'<text class="label" x="0" y="{y + 17:.1f}">{escape_text(shown)}<title>{escape_text(text)}</title></text>'


def _value(text: str, y: float, more: str = "") -> str:
    return f'<text class="value {more}" x="{WIDTH}" y="{y + 17:.1f}">{escape_text(text)}</text>'


def _rect(place: tuple[float, float, float, float], name: str, title: str) -> str:
    """Return a rectangle at (x, y) with a width and a height, of a class, with a text that is shown when pointed at."""
    x, y, width, height = place
    told = f"<title>{escape_text(title)}</title>" if title else ""
    size = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}"'
    return f'<rect class="{name}" {size} rx="2">{told}</rect>'


def _svg(rows: Iterable[str], height: float, label: str) -> str:
    inside = "".join(rows)
    return (
        f'<svg viewBox="0 0 {WIDTH} {max(height, 1):.0f}" role="img" aria-label="{escape_text(label)}">{inside}</svg>'
    )
