"""Render display slots (what a tool shows the user: text, tables, progress) as plain text for the terminal.

Slots contain text from tools, so each row begins with a mark: nothing in a slot can imitate a question.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from perdure._core.values.jsonable import to_text

from .frame import wrap_text
from .output import escape_controls, line_width, to_one_line

MAX_CHARACTERS: Final = 20_000
"""Characters shown of one slot; of a longer one, the number of further characters is printed."""
MAX_CELL: Final = 60
"""Characters shown of a table cell."""
_MARK: Final = "> "
"""Begins each row of a slot. The rows of a question have other marks."""


def render_slot(renderer: str, data: Any) -> str:
    """Render what a tool shows in a display slot as text for the terminal, with a mark in front of each row."""
    text = escape_controls(_render_data(renderer, data))
    rest = len(text) - MAX_CHARACTERS
    if rest > 0:
        text = f"{text[:MAX_CHARACTERS]}\n… and {rest:,} characters more"
    width = line_width(sys.stderr)
    return "\n".join([_MARK + row for line in text.split("\n") for row in wrap_text(line, width, len(_MARK))])


def _render_data(renderer: str, data: Any) -> str:
    fields = cast("Mapping[str, Any]", data if isinstance(data, Mapping) else {})
    match renderer:
        case "text" | "markdown":
            return str(fields.get("text", "")).rstrip("\n")
        case "table":
            return _render_table(fields.get("columns", ()), fields.get("rows", ()))
        case "progress":
            return _render_progress(str(fields.get("label", "")), fields.get("done", 0), fields.get("total"))
        case "image":
            return f"[image] {fields.get('alt', '')} {fields.get('url', '')}".rstrip()
        case _:
            return f"{renderer}: {to_text(data)}"


def _render_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [[to_one_line(to_text(cell), MAX_CELL) for cell in row] for row in (columns, *rows)]
    widths = [max(len(row[place]) for row in lines) for place in range(len(columns))]
    head, *body = ["  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]) for row in lines]
    return "\n".join([each.rstrip() for each in (head, "  ".join(["-" * width for width in widths]), *body)])


def _render_progress(label: str, done: float, total: float | None) -> str:
    if not total:
        return f"{label}: {done:g}"
    return f"{label}: {done:g} of {total:g} ({done / total:.0%})"
