"""Wrap a note that the chat prints into rows for the terminal, at blanks, with all rows but the first indented."""

from typing import Final

from perdure.cli.terminal_output import escape_controls, indent_lines
from perdure.cli.untrusted_text_frame import wrap_words

NOTE_MARK: Final = "- "
"""Begins a note of the chat."""


def build_note_rows(text: str, columns: int) -> list[str]:
    """Return a note as rows that fit into `columns` columns: the first begins with a mark, the others are indented."""
    width = columns - 1  # in the last column some terminals begin a new row
    lines = indent_lines(escape_controls(text)).expandtabs(4).split("\n")
    rows = [row for line in lines for row in wrap_words(line, width, len(NOTE_MARK))]
    return [(" " * len(NOTE_MARK) if place else NOTE_MARK) + row for place, row in enumerate(rows)]
