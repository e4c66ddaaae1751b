"""The pictures of the comparison in docs/images."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.bar_chart import Bars, Chart, draw_chart
from bench.peers.comparison import ContestantFigures


class ComparisonPicture(NamedTuple):
    """A chart of one or two figures of each contestant."""

    file: str
    title: str
    unit: str
    scale: float
    keys: Mapping[str, str]
    """Figures, and what they are called."""


PICTURES = (
    ComparisonPicture(
        "bench-turns.svg",
        "CPU time of a streamed tool turn over HTTP",
        "ms",
        1e-3,
        {"early_us": "the 10th turn of a run", "late_us": "the 50th"},
    ),
    ComparisonPicture(
        "bench-runs.svg",
        "CPU time of a run with one tool turn in a new session",
        "ms",
        1e-3,
        {"kept_us": "conversation kept in memory", "stored_us": "on the disk"},
    ),
    ComparisonPicture(
        "bench-first.svg", "CPU time of a fresh process up to its first answer", "ms", 1.0, {"first_ms": ""}
    ),
)


def draw_picture(picture: ComparisonPicture, results: Sequence[ContestantFigures]) -> str:
    """Return one picture as SVG."""
    bars = [
        Bars(
            result.peer.name,
            [None if (value := result.figures.get(key)) is None else value * picture.scale for key in picture.keys],
            is_own=result.peer.name == "Perdure",
        )
        for result in results
    ]
    told = "; ".join(
        f"{each.name} {', '.join('none' if value is None else f'{value:.2f}' for value in each.values)}"
        for each in bars
    )
    return draw_chart(Chart(picture.title, picture.unit, list(picture.keys.values()), bars, f"{told} {picture.unit}."))
