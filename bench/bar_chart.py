"""Draw horizontal bars as SVG: readable in light and dark, without fonts or scripts of others.

The picture brings its own background, so that it can be read on any page; where a viewer prefers dark, it is dark.
The scale is logarithmic when the values differ by more than a factor of twenty, and says so.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH = 760
LABELS = 150
"""Width of the names on the left."""
VALUES = 150
"""Width of the figures on the right of the longest bar."""
BAR, GAP, GROUP_GAP, TOP = 15, 3, 11, 62
LEGEND = 22

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .note { font-size: 12px; fill: #59636e }
  .page { fill: #ffffff; stroke: #d1d9e0 }
  .b0 { fill: #0b6e80 } .b1 { fill: #7fbcc7 } .own .b0 { fill: #b3500b } .own .b1 { fill: #e6a878 }
  .own text { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .note { fill: #9198a1 } .page { fill: #15191f; stroke: #3d444d }
    .b0 { fill: #4fb3c6 } .b1 { fill: #2b6672 } .own .b0 { fill: #f0883e } .own .b1 { fill: #8a5224 }
  }
"""


class Bars(NamedTuple):
    """The bars of one name: a value for each series; `None` where there is none."""

    name: str
    values: Sequence[float | None]
    is_own: bool = False
    """Drawn in another colour."""


class Chart(NamedTuple):
    """A picture of bars."""

    title: str
    unit: str
    series: Sequence[str]
    bars: Sequence[Bars]
    description: str
    """For people who do not see it."""


def measure_lengths(chart: Chart) -> tuple[bool, list[list[float]]]:
    """Return True for a logarithmic scale, and the lengths of the bars from 0 to 1; 0 for a missing one."""
    known = [value for bars in chart.bars for value in bars.values if value]
    least, most = min(known), max(known)
    is_logarithmic = most > 20 * least
    if not is_logarithmic:
        return False, [[(value or 0) / most for value in bars.values] for bars in chart.bars]
    floor = math.log(least / 2)
    span = math.log(most) - floor
    return True, [[(math.log(value) - floor) / span if value else 0.0 for value in bars.values] for bars in chart.bars]


def write_value(value: float | None, unit: str) -> str:
    """Return a figure as text."""
    if value is None:
        return "has none"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"


def draw_group(bars: Bars, lengths: Sequence[float], unit: str, top: int) -> list[str]:
    """Return the elements of one name."""
    height = len(bars.values) * (BAR + GAP)
    middle = top + height / 2 + 2
    lines = [
        f'<g class="{"own" if bars.is_own else "other"}">',
        f'<text x="{LABELS - 10}" y="{middle:.0f}" text-anchor="end">{escape(bars.name)}</text>',
    ]
    for at, (value, length) in enumerate(zip(bars.values, lengths, strict=True)):
        y, width = top + at * (BAR + GAP), length * (WIDTH - LABELS - VALUES)
        if value is not None:
            lines.append(f'<rect class="b{at}" x="{LABELS}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>')
        lines.append(f'<text class="note" x="{LABELS + width + 6:.1f}" y="{y + 12}">{write_value(value, unit)}</text>')
    return [*lines, "</g>"]


def draw_chart(chart: Chart) -> str:
    """Return the picture as SVG."""
    is_logarithmic, lengths = measure_lengths(chart)
    top = TOP + (LEGEND if len(chart.series) > 1 else 0)
    body: list[str] = []
    for bars, each in zip(chart.bars, lengths, strict=True):
        body += draw_group(bars, each, chart.unit, top)
        top += len(bars.values) * (BAR + GAP) + GROUP_GAP
    note = f"{chart.unit}, less is better; {'logarithmic' if is_logarithmic else 'linear'} scale"
    legend: list[str] = []
    if len(chart.series) > 1:
        x = LABELS
        for at, name in enumerate(chart.series):
            legend.append(f'<rect class="b{at}" x="{x}" y="{TOP}" width="12" height="12" rx="2"/>')
            legend.append(f'<text class="note" x="{x + 18}" y="{TOP + 11}">{escape(name)}</text>')
            x += 40 + 7 * len(name)
    height = top + 8
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    parts = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(chart.title)}</title>',
        f'<desc id="desc">{escape(chart.description)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        f'<text class="title" x="20" y="30">{escape(chart.title)}</text>',
        f'<text class="note" x="20" y="49">{escape(note)}</text>',
        *legend,
        *body,
        "</svg>\n",
    )
    return "\n".join(parts)
