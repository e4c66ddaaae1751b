"""Show the events of a session in the chat: streaming Markdown, tool cards, and notes about what delays a run."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from perdure._cli.terminal.frame import wrap_text
from perdure._cli.terminal.output import to_one_line
from perdure._cli.terminal.screen import Screen, ShownCall
from perdure._core.values.event import ToolProgress, ToolStarted
from perdure._core.values.message import Message

from .rows import BODY_INDENT, ToolCard, build_card, build_note_rows, describe_call

if TYPE_CHECKING:
    from .input import ChatInputArea
    from .markdown import MarkdownRenderer


_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")


class MarkdownBlockSplitter:
    """Accumulates streamed Markdown, and returns each block once it is complete.

    A block ends at a blank line outside a code fence: paragraphs, lists, tables and code are never cut in two.
    """

    def __init__(self) -> None:
        self.tail = ""
        """The text after the last complete block."""
        self._scanned = 0
        """Characters of the tail that end with a line break and were looked at."""
        self._fence = ""
        """The fence of the code block that the scanned text is in; empty outside of one."""

    def feed(self, text: str) -> list[str]:
        """Add a piece of text, and return the blocks that it completed."""
        self.tail += text
        blocks: list[str] = []
        while (end := self.tail.find("\n", self._scanned)) >= 0:
            line = self.tail[self._scanned : end]
            if not self._fence and not line.strip():
                block, self.tail, self._scanned = self.tail[:end], self.tail[end + 1 :], 0
                blocks += [block] if block.strip() else []
                continue
            self._scan_fence(line)
            self._scanned = end + 1
        return blocks

    def finish(self) -> list[str]:
        """Return the rest of the text as a last block, and begin anew; nothing if there is none."""
        rest, self.tail, self._scanned, self._fence = self.tail, "", 0, ""
        return [rest] if rest.strip() else []

    def _scan_fence(self, line: str) -> None:
        found = _FENCE.match(line)
        if found is None:
            return
        if not self._fence:
            self._fence = found[1]
        elif found[1].startswith(self._fence) and not line[found.end() :].strip():
            self._fence = ""


_POSTED: Final = frozenset({"steering", "follow_up", "inbox"})


class WindowScreen(Screen):
    """Screen of a chat in a window: shows the events of a session above the input."""

    answering: ClassVar[str] = "the model, which answers"
    between_turns: ClassVar[str] = "the next turn"

    def __init__(self, window: "ChatInputArea", note: Callable[[str], None]) -> None:
        super().__init__()
        self._window = window
        self._note = note
        self._splitter = MarkdownBlockSplitter()
        self._after_card = False
        self.typed: list[str] = []
        """Messages that were typed here and are on the screen already: they are not shown again when they arrive."""

    def note(self, text: str) -> None:
        """Print a note."""
        self._note(to_one_line(text))

    def end_run(self, line: str) -> None:
        """Print why a run has ended early."""
        self._note(line)

    def begin_question(self) -> None:
        """Let the next card begin after an empty row: the question is above it."""
        self._after_card = False

    # -- messages ------------------------------------------------------------------------------------------------------

    def show_prompt(self, text: str, remark: str = "") -> None:
        """Print a prompt of the user above the input."""
        width = self._window.columns - 1
        lines = [row for line in text.split("\n") for row in wrap_text(to_one_line(line), width, 2)]
        rows = [("  " if place else "> ") + row for place, row in enumerate(lines)]
        self._print(["", *rows, *(build_note_rows(remark, self._window.columns) if remark else [])])

    def show_message(self, message: Message, *, is_stored: bool) -> None:
        """Print what others have sent; what was typed here is there already."""
        text = message.original_text or message.text
        if message.role != "user":
            return
        if text in self.typed:
            self.typed.remove(text)
        elif is_stored or message.origin in _POSTED:
            self.show_prompt(text, "" if is_stored and not message.origin else "sent from elsewhere")

    def add_text(self, text: str) -> None:
        """Print what is complete of a reply as Markdown, and show the rest until it is."""
        for block in self._splitter.feed(text):
            self._print_block(block)
        self._window.show_live(self._render(self._splitter.tail) if self._splitter.tail.strip() else ())

    def finish_reply(self, message: Message | None) -> None:  # noqa: ARG002 - it is on the screen
        """Print the rest of a reply."""
        blocks = self._splitter.finish()
        self._window.show_live(())
        for block in blocks:
            self._print_block(block)

    def _print_block(self, block: str) -> None:
        self._print(["", *self._render(block)])

    def _render(self, text: str) -> list[str]:
        return self._get_renderer().render_markdown(text)

    def _get_renderer(self) -> "MarkdownRenderer":
        from .markdown import MarkdownRenderer  # rich, at the first reply

        return MarkdownRenderer(self._window.columns)

    def _print(self, rows: Sequence[str]) -> None:
        self._after_card = False
        self._window.print_rows(rows)

    # -- tools ---------------------------------------------------------------------------------------------------------

    def show_running_call(self, event: ToolStarted | ToolProgress, arguments: str) -> str:
        """Show which calls are in progress; of one that reports text, the last line."""
        self._window.redraw()
        about = describe_call(event.name, arguments)
        if isinstance(event, ToolProgress) and isinstance(event.data, str):
            about = f"{about}: {event.data.strip().rsplit(chr(10), 1)[-1]}"
        return about

    def describe_running_calls(self, calls: Sequence[str]) -> str:
        """Return the calls, each with its most informative argument."""
        return "; ".join([to_one_line(each) for each in calls])

    def show_call(self, call: ShownCall) -> None:
        """Print a card of a call; a long result is folded."""
        card = _build_card(call)
        head, tail, hidden = card.fold_rows()
        between = [f"{BODY_INDENT}… {hidden} more lines; /show {card.number} shows all"] if hidden else []
        rows = [card.format_heading(self._window.columns), *self._render_lines(card, head), *between]
        rows += self._render_lines(card, tail)
        self._window.print_rows(rows if self._after_card else ["", *rows])
        self._after_card = True

    def unfold_card(self, number: int | None = None) -> bool:
        """Print a card in full: that of this number, or the last one; return False if there is none."""
        call = self.find_call(number)
        if call is None:
            return False
        card = _build_card(call)
        self._print(["", card.format_heading(self._window.columns), *self._render_lines(card, card.lines)])
        return True

    def _render_lines(self, card: ToolCard, lines: Sequence[str]) -> list[str]:
        renderer = self._get_renderer()
        return renderer.render_diff(lines, BODY_INDENT) if card.is_diff else renderer.render_lines(lines, BODY_INDENT)

    def show_slot(self, text: str) -> None:
        """Print the rows of a slot, wrapped."""
        width = self._window.columns - 1
        self._print([f"  {part}" for row in text.split("\n") for part in wrap_text(row, width, 2)])


def _build_card(call: ShownCall) -> ToolCard:
    return build_card(call.number, call.result, call.arguments, call.seconds, call.diff)
