"""`Figure`, one line of the table, and how the table is laid out."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

HEAD = ("figure", "now", "goal")


class Figure(NamedTuple):
    """What was measured: its name, its value, and what it should be."""

    name: str
    now: str
    goal: str = ""
    """Empty if it is only told."""
    names: Sequence[str] = ()
    """The names behind the figure, which `--names` lists."""


def count(number: int) -> str:
    """Return a number as it is read."""
    return f"{number:,}"


def share(part: int, whole: int) -> str:
    """Return a share in percent, and what it is a share of."""
    return f"{100 * part / whole:.0f} % ({part:,} of {whole:,})" if whole else "-"


def format_table(figures: Iterable[Figure]) -> str:
    """Return the figures as lines of columns."""
    rows = [HEAD, *[(each.name, each.now, each.goal) for each in figures]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-+-".join("-" * width for width in widths), *lines[1:]])


def format_names(figures: Iterable[Figure]) -> str:
    """Return the names behind the figures, a paragraph for each figure that has some."""
    paragraphs = [[f"{each.name}:", *[f"  {name}" for name in each.names]] for each in figures if each.names]
    return "\n".join(line for paragraph in paragraphs for line in ["", *paragraph])
