"""Slots as plain text. Above: `report.py`, `prompt.py`, `reach.py`. Below: `screen.py`.

Tools say what is in a slot, so each line of it stands behind a mark: nothing in it can pretend to be a question.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from perdure.core.plain import to_text

from .screen import one_line, visible

LONGEST: Final = 20_000
"""Characters of one slot; of a longer one the number of the rest is told."""
WIDEST: Final = 60
"""Characters of one cell of a table."""
_MARK: Final = "| "


def slot_text(renderer: str, data: Any) -> str:
    """What a slot shows, a mark in front of each line."""
    text = visible(_plain(renderer, data))
    rest = len(text) - LONGEST
    if rest > 0:
        text = f"{text[:LONGEST]}\n… and {rest:,} characters more"
    return "\n".join([_MARK + line for line in text.split("\n")])


def _plain(renderer: str, data: Any) -> str:
    fields = cast("Mapping[str, Any]", data if isinstance(data, Mapping) else {})
    match renderer:
        case "text" | "markdown":
            return str(fields.get("text", "")).rstrip("\n")
        case "table":
            return _table(fields.get("columns", ()), fields.get("rows", ()))
        case "progress":
            return _progress(str(fields.get("label", "")), fields.get("done", 0), fields.get("total"))
        case "image":
            return f"[image] {fields.get('alt', '')} {fields.get('url', '')}".rstrip()
        case _:
            return f"{renderer}: {to_text(data)}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [[one_line(to_text(cell), WIDEST) for cell in row] for row in (columns, *rows)]
    widths = [max(len(row[place]) for row in lines) for place in range(len(columns))]
    head, *body = ["  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]) for row in lines]
    return "\n".join([each.rstrip() for each in (head, "  ".join(["-" * width for width in widths]), *body)])


def _progress(label: str, done: float, total: float | None) -> str:
    if not total:
        return f"{label}: {done:g}"
    return f"{label}: {done:g} of {total:g} ({done / total:.0%})"
