"""Plots of a goal's scores over its iterations: a line of bars for a terminal, and an SVG picture."""

from collections.abc import Sequence
from html import escape
from typing import Final

BARS: Final = "▁▂▃▄▅▆▇█"
"""The characters of a sparkline, from the lowest score to the highest."""
_WIDTH, _HEIGHT, _MARGIN = 640, 240, 36


def draw_sparkline(scores: Sequence[float]) -> str:
    """Return scores from 0 to 1 as a line of text, with one bar character for each."""
    top = len(BARS) - 1
    return "".join([BARS[round(min(1.0, max(0.0, each)) * top)] for each in scores])


def draw_score_svg(scores: Sequence[float], *, title: str = "") -> str:
    """Return scores from 0 to 1 as an SVG picture: a line over the iterations, with a dot and a label for each."""
    title = escape("".join([each if each.isprintable() else " " for each in title]))  # controls are no XML
    inner_width, inner_height = _WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN
    step = inner_width / max(1, len(scores) - 1)
    places = [
        (_MARGIN + number * step, _MARGIN + (1 - min(1.0, max(0.0, score))) * inner_height)
        for number, score in enumerate(scores)
    ]
    line = " ".join([f"{x:.1f},{y:.1f}" for x, y in places])
    dots = "".join(
        [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#2a6fdb">'
            f"<title>iteration {number}: {score:.2f}</title></circle>"
            f'<text x="{x:.1f}" y="{_HEIGHT - 12}" text-anchor="middle">{number}</text>'
            for number, ((x, y), score) in enumerate(zip(places, scores, strict=True), 1)
        ]
    )
    rules = "".join(
        [
            f'<line x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            f'<text x="{_MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
            for value in (0, 0.5, 1)
            for y in [_MARGIN + (1 - value) * inner_height]
        ]
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="11"><title>{title}</title>'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>'
        f'<text x="{_MARGIN}" y="18" font-size="13">{title}</text>{rules}'
        f'<polyline points="{line}" fill="none" stroke="#2a6fdb" stroke-width="2"/>{dots}</svg>\n'
    )
