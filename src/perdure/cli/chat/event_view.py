"""Show the events of a session in the chat: streaming Markdown, tool cards, and notes about what delays a run."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from perdure.cli.display_slot_text import render_slot
from perdure.cli.event_printer import describe_early_end, format_event_notice
from perdure.cli.terminal_output import to_one_line
from perdure.cli.untrusted_text_frame import wrap_text
from perdure.core.event import (
    Event,
    MessageAdded,
    ModelRequested,
    QuestionAsked,
    ReplyDiscarded,
    RetryScheduled,
    RunEnded,
    RunWaiting,
    SlotOpened,
    SlotUpdated,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
)
from perdure.core.message import Message

from .chat_conversation import CUT_OFF
from .markdown_blocks import MarkdownBlockSplitter
from .note_wrapping import build_note_rows
from .tool_card import BODY_INDENT, ToolCard, build_card, describe_call

if TYPE_CHECKING:
    from .chat_input_area import ChatInputArea
    from .markdown_renderer import MarkdownRenderer

MAX_CARDS: Final = 100
"""Cards that can be unfolded: the last ones."""
_POSTED: Final = frozenset({"steering", "follow_up", "inbox"})

LoadDiff = Callable[[ToolFinished], Awaitable[str]]
"""Function that returns the change of a file that a call has made, as a unified diff; empty if it made none."""


class ChatEventView:
    """Shows the events of a session above the input of a chat, and tracks what the run waits for."""

    def __init__(self, window: "ChatInputArea", note: Callable[[str], None], load_diff: LoadDiff) -> None:
        self._window = window
        self._note = note
        self._load_diff = load_diff
        self._splitter = MarkdownBlockSplitter()
        self._streamed = False
        self._arguments: dict[str, str] = {}
        self._running: dict[str, str] = {}
        """The calls in progress, described, by call id."""
        self._renderers: dict[str, str] = {}
        self._after_card = False
        self.cards: list[ToolCard] = []
        """The last tool calls, for `/show`."""
        self.card_count = 0
        self.waiting_for = ""
        """What the run waits for, in a few words; empty without a run."""
        self.typed: list[str] = []
        """Messages that were typed here and are on the screen already: they are not shown again when they arrive."""
        self.last_answer = ""
        """The text of the last complete reply, for `/copy`."""

    async def show(self, event: Event) -> None:
        """Show an event. Those of subagents are not shown, except what they display to the user."""
        if isinstance(event, (SlotOpened, SlotUpdated)):
            self._show_slot(event)
        if event.path:
            return
        match event:
            case TextDelta(text=text):
                self._streamed = True
                self.waiting_for = "the model, which answers"
                self._add_text(text)
            case ThinkingDelta():
                self.waiting_for = "the model, which thinks"
            case ModelRequested(model=model):
                self.waiting_for = f"the model {to_one_line(model)}".rstrip()
            case MessageAdded(message=message):
                self._show_message(message)
            case ReplyDiscarded():
                self._show_discarded(event)
            case ToolStarted() | ToolProgress():
                self._show_running(event)
            case ToolFinished():
                await self._show_result(event)
            case _:
                self._show_state(event)

    def _show_state(self, event: Event) -> None:
        """Show how a run or a turn ended, and events that explain a delay."""
        if isinstance(event, RunEnded):
            self._finish_reply()
            self._running.clear()
            self.waiting_for = ""
            if ended := describe_early_end(event):
                self._note(ended)
        elif isinstance(event, RunWaiting):
            self.waiting_for = ""
        elif isinstance(event, QuestionAsked):
            self._after_card = False
        elif isinstance(event, TurnEnded):
            self.waiting_for = "the next turn"
        elif isinstance(event, RetryScheduled):
            self.waiting_for = f"the next attempt, after {to_one_line(event.error)}"
        if line := format_event_notice(event):
            self._note(to_one_line(line))

    def _show_discarded(self, event: ReplyDiscarded) -> None:
        if event.aside:  # it was no part of the conversation
            return
        self._finish_reply()
        if event.reason != "CancelledError":  # that it was cancelled is said at the end of the run
            self._note(to_one_line(f"the reply broke off ({event.reason})"))

    # -- messages ------------------------------------------------------------------------------------------------------

    def show_prompt(self, text: str, remark: str = "") -> None:
        """Print a prompt of the user above the input."""
        width = self._window.columns - 1
        lines = [row for line in text.split("\n") for row in wrap_text(to_one_line(line), width, 2)]
        rows = [("  " if place else "> ") + row for place, row in enumerate(lines)]
        self._print(["", *rows, *(build_note_rows(remark, self._window.columns) if remark else [])])

    def show_stored(self, messages: Sequence[Message]) -> None:
        """Print messages of a stored conversation, as they looked when they arrived; calls only by their headings."""
        for message in messages:
            self._show_message(message, is_stored=True)
            for result in message.tool_results:
                self._add_card(build_card(self.card_count + 1, result, self._arguments.get(result.call_id, ""), 0.0))

    def _show_message(self, message: Message, *, is_stored: bool = False) -> None:
        if message.role == "assistant":
            if message.text.endswith(CUT_OFF) and not is_stored:  # it is on the screen already
                return
            if not self._streamed:  # a model may send its whole reply at the end
                self._add_text(message.text)
            self._finish_reply()
            self.last_answer = message.text or self.last_answer
            self._arguments |= {call.call_id: call.arguments for call in message.tool_calls}
        elif message.role == "user":
            text = message.original_text or message.text
            if text in self.typed:
                self.typed.remove(text)
            elif is_stored or message.origin in _POSTED:
                self.show_prompt(text, "" if is_stored and not message.origin else "sent from elsewhere")

    def _add_text(self, text: str) -> None:
        for block in self._splitter.feed(text):
            self._print_block(block)
        self._window.show_live(self._render(self._splitter.tail) if self._splitter.tail.strip() else ())

    def _finish_reply(self) -> None:
        blocks = self._splitter.finish()
        self._window.show_live(())
        for block in blocks:
            self._print_block(block)
        self._streamed = False

    def _print_block(self, block: str) -> None:
        self._print(["", *self._render(block)])

    def _render(self, text: str) -> list[str]:
        return self._get_renderer().render_markdown(text)

    def _get_renderer(self) -> "MarkdownRenderer":
        from .markdown_renderer import MarkdownRenderer  # rich, at the first reply

        return MarkdownRenderer(self._window.columns)

    def _print(self, rows: Sequence[str]) -> None:
        self._after_card = False
        self._window.print_rows(rows)

    # -- tools ---------------------------------------------------------------------------------------------------------

    def _show_running(self, event: ToolStarted | ToolProgress) -> None:
        """Show which calls are in progress; of one that reports text, the last line."""
        about = describe_call(event.name, self._arguments.get(event.call_id, ""))
        if isinstance(event, ToolProgress) and isinstance(event.data, str):
            about = f"{about}: {event.data.strip().rsplit(chr(10), 1)[-1]}"
        self._running[event.call_id] = about
        self.waiting_for = "; ".join([to_one_line(each) for each in self._running.values()])
        self._window.redraw()

    async def _show_result(self, event: ToolFinished) -> None:
        self._running.pop(event.call_id, None)
        self.waiting_for = "; ".join([to_one_line(each) for each in self._running.values()]) or "the next turn"
        diff = await self._load_diff(event)
        arguments = self._arguments.get(event.call_id, "")
        self._add_card(build_card(self.card_count + 1, event.result, arguments, event.duration_seconds, diff))

    def _add_card(self, card: ToolCard) -> None:
        self.card_count += 1
        self.cards = [*self.cards[-MAX_CARDS + 1 :], card]
        head, tail, hidden = card.fold_rows()
        between = [f"{BODY_INDENT}… {hidden} more lines; /show {card.number} shows all"] if hidden else []
        rows = [card.format_heading(self._window.columns), *self._render_lines(card, head), *between]
        rows += self._render_lines(card, tail)
        self._window.print_rows(rows if self._after_card else ["", *rows])
        self._after_card = True

    def unfold_card(self, number: int | None = None) -> bool:
        """Print a card in full: that of this number, or the last one; return False if there is none."""
        found = [each for each in self.cards if number in {None, each.number}]
        if not found:
            return False
        card = found[-1]
        self._print(["", card.format_heading(self._window.columns), *self._render_lines(card, card.lines)])
        return True

    def _render_lines(self, card: ToolCard, lines: Sequence[str]) -> list[str]:
        renderer = self._get_renderer()
        return renderer.render_diff(lines, BODY_INDENT) if card.is_diff else renderer.render_lines(lines, BODY_INDENT)

    def _show_slot(self, event: SlotOpened | SlotUpdated) -> None:
        if isinstance(event, SlotOpened):
            self._renderers[event.slot_id] = event.renderer
        rows = render_slot(self._renderers.get(event.slot_id, ""), event.input).split("\n")
        width = self._window.columns - 1
        self._print([f"  {part}" for row in rows for part in wrap_text(row, width, 2)])
