"""Render Markdown and diffs as rows for the terminal: styled, indented, and never wider than the terminal.

The text comes from models and tools. It is sanitised before it is parsed and again after, because Markdown can name
characters by number. Rows are cut by the widest width that a terminal may give a character, so that no row is continued
by the terminal in its first column, where only rows of ours begin.
"""

import io
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.style import Style

from perdure._cli.terminal.frame import measure_text, wrap_text
from perdure._cli.terminal.output import escape_controls, uses_styles

INDENT: Final = "  "
"""Begins each row of text from a model."""
_SYSTEMS: Final = {"standard": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}
_ADDED: Final = Style(color="green")
_REMOVED: Final = Style(color="red")


class _PlainHeading(Heading):
    """Heading at the left edge, without a box around it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console, options
        self.text.justify = "left"
        yield self.text


class _ChatMarkdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _PlainHeading}


class MarkdownRenderer:
    """Renders Markdown, diffs and plain lines as rows for a terminal with a given number of columns."""

    def __init__(self, columns: int) -> None:
        self._width = max(columns, 20) - 1  # in the last column some terminals begin a new row
        styled = uses_styles()
        self._console = Console(
            file=io.StringIO(), force_terminal=True, width=self._width - len(INDENT), legacy_windows=False,
            color_system="auto" if styled else None, no_color=not styled, highlight=False, emoji=False, markup=False,
        )  # fmt: skip
        self._system = _SYSTEMS.get(self._console.color_system or "") if styled else None

    def render_markdown(self, text: str) -> list[str]:
        """Return the rows of a Markdown text, indented, without empty rows around it."""
        source = _ChatMarkdown(escape_controls(text).expandtabs(4), hyperlinks=False, code_theme="ansi_dark")
        lines = self._console.render_lines(source, pad=False)
        while lines and not _get_text(lines[-1]).strip():
            lines.pop()
        while lines and not _get_text(lines[0]).strip():
            lines.pop(0)
        return [row for line in lines for row in self._fit(line)]

    def render_diff(self, lines: Iterable[str], indent: str) -> list[str]:
        """Return the rows of a unified diff: added lines and removed lines in their colours."""
        rows: list[str] = []
        for line in lines:
            style = _ADDED if line.startswith("+") else _REMOVED if line.startswith("-") else None
            wrapped = wrap_text(escape_controls(line).expandtabs(4), self._width, len(indent))
            rows += [indent + self._paint(row, style) for row in wrapped]
        return rows

    def render_lines(self, lines: Iterable[str], indent: str) -> list[str]:
        """Return the rows of plain untrusted lines."""
        shown = [escape_controls(line).expandtabs(4) for line in lines]
        return [indent + row for line in shown for row in wrap_text(line, self._width, len(indent))]

    def _fit(self, line: Sequence[Segment]) -> list[str]:
        """Return a rendered line as rows of which none is wider than the terminal, whatever widths it gives letters."""
        room = self._width - len(INDENT)
        cleaned = [(_replace_invisible(each.text), each.style) for each in line if not each.control]
        text = "".join([piece for piece, _ in cleaned])
        if not text.strip():
            return [""]
        if measure_text(text) > room:
            return [INDENT + row for row in wrap_text(text.rstrip(), self._width, len(INDENT))]
        return [INDENT + "".join([self._paint(piece, style) for piece, style in cleaned]).rstrip()]

    def _paint(self, text: str, style: Style | None) -> str:
        if self._system is None or style is None:
            return text
        return style.update_link(None).render(text, color_system=self._system)


def _get_text(line: Sequence[Segment]) -> str:
    return "".join([each.text for each in line])


def _replace_invisible(text: str) -> str:
    """Replace what is still a control character by a visible one of the same width: an entity may have named it."""
    return "".join(["\ufffd" if escape_controls(each) != each else each for each in text.replace("\n", "")])
