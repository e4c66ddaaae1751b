"""The figures as a table, as text under it, and as JSON."""

import json
import os
import platform
from collections.abc import Sequence

from .measure import Figure

HEADER = "| figure | measured | budget | ratio | verdict |"
RULE = "|---|---|---|---|---|"


def row(figure: Figure) -> str:
    """One line of the table."""
    cells = (figure.name, measured(figure), budget(figure), ratio(figure), figure.verdict)
    return f"| {' | '.join(cells)} |"


def measured(figure: Figure) -> str:
    """The value, and what else is known about it."""
    value = quantity(figure.value, figure.unit)
    return f"{value} ({figure.detail})" if figure.detail else value


def budget(figure: Figure) -> str:
    """What it may be."""
    return "-" if figure.budget is None else f"{figure.budget:g} {figure.unit}".rstrip()


def ratio(figure: Figure) -> str:
    """How many times that of what it is compared with."""
    return "-" if figure.ratio is None else f"{quantity(figure.ratio, 'x')} {figure.compared_to}"


def quantity(value: float, unit: str) -> str:
    """A value with as many digits as it deserves."""
    digits = 0 if not unit or abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {unit}".rstrip()


def conditions() -> str:
    """Where and with what was measured."""
    return f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} processors"


def explanations(figures: Sequence[Figure]) -> list[str]:
    """A line for each figure."""
    return [f"- {figure.name}: {figure.explanation}." for figure in figures]


def as_json(figures: Sequence[Figure]) -> str:
    """Everything, for programs."""
    told = [{**figure._asdict(), "verdict": figure.verdict} for figure in figures]
    return json.dumps({"conditions": conditions(), "figures": told}, indent=2) + "\n"
