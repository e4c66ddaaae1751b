"""The input area at the bottom of a chat: the input, completions, the status line, and text that still streams.

It is redrawn in place. Everything else is printed above it once, and scrolls away into the terminal's own scrollback.
Questions have an input of their own: an answer is only taken while the row with the cursor begins with the question.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from perdure._cli.terminal.output import measure_terminal, to_one_line, uses_styles

from .rows import build_note_rows, cut_row

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History

PROMPT: Final = "> "
"""Begins the row in which prompts are typed."""
MAX_INPUT_ROWS: Final = 8
MAX_COMPLETIONS: Final = 6
_ESCAPE_SECONDS: Final = 0.1
"""Time in which the rest of a key's escape sequence arrives, also over a slow line."""
_REDRAW_SECONDS: Final = 0.03


class ChatInputArea:
    """Draws the input area of the chat, and calls its handlers for keys."""

    def __init__(self, completer: "Completer", history: "History", get_status: Callable[[], str]) -> None:
        self.on_submit: Callable[[str], None] = lambda _: None
        """Called with a prompt that was typed."""
        self.on_escape: Callable[[], None] = lambda: None
        """Called for Esc."""
        self.on_unfold: Callable[[], None] = lambda: None
        """Called for Ctrl-O."""
        self.is_busy: Callable[[], bool] = lambda: False
        """Returns True while a run is in progress: then Esc is handled at once."""
        self._get_status = get_status
        self._live: Sequence[str] = ()
        self._question = ""
        self._answer: asyncio.Future[str | None] | None = None
        self._leaves_at_interrupt = False
        self._input = Buffer(
            completer=completer, complete_while_typing=True, history=history, multiline=True, name="input"
        )
        self._answer_input = Buffer(multiline=False, name="answer")
        self._output = Vt100_Output.from_pty(sys.stdout)
        self._output.enable_cpr = False  # nothing is asked of the terminal: over a slow line its reply would be typed
        self._app: Application[None] = Application(
            layout=self._build_layout(),
            key_bindings=self._build_keys(),
            output=self._output,
            style=Style.from_dict({"status": "fg:ansibrightblack", "chosen": "reverse"}) if uses_styles() else None,
            color_depth=None if uses_styles() else ColorDepth.DEPTH_1_BIT,
            erase_when_done=True,
            min_redraw_interval=_REDRAW_SECONDS,
        )
        self._app.ttimeoutlen = _ESCAPE_SECONDS

    @property
    def columns(self) -> int:
        """Columns of the terminal."""
        return measure_terminal(sys.stdout).columns

    async def run(self) -> None:
        """Show the input until `close` is called."""
        await self._app.run_async(handle_sigint=False, set_exception_handler=False)

    def close(self) -> None:
        """End `run`, and erase the input from the terminal."""
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def print_rows(self, rows: Sequence[str]) -> None:
        """Print rows above the input, for good. They must be sanitised, and no wider than the terminal."""
        if self._app.is_running:
            self._app.renderer.erase(leave_alternate_screen=False)
        self._output.write_raw("".join([f"{row}\r\n" for row in rows]))
        self._output.flush()
        self._app.invalidate()

    def write_raw(self, text: str) -> None:
        """Send a control sequence of ours to the terminal."""
        self._output.write_raw(text)
        self._output.flush()

    def show_live(self, rows: Sequence[str]) -> None:
        """Show rows that may still change above the input; of more than fit, the last ones."""
        most = max(measure_terminal(sys.stdout).rows - MAX_INPUT_ROWS - 3, 3)
        self._live = rows[-most:]
        self._app.invalidate()

    def redraw(self) -> None:
        """Draw the status line anew."""
        self._app.invalidate()

    def set_input(self, text: str) -> None:
        """Put a text into the input, for the user to change and send."""
        self._input.text = text
        self._input.cursor_position = len(text)

    async def read_answer(self, question: str) -> str | None:
        """Ask a question in a row of its own, and return the typed line; `None` for Ctrl-D.

        What is typed into the input before is not taken for an answer, and stays there.
        """
        self._answer = asyncio.get_running_loop().create_future()
        self._question = question
        self._answer_input.reset()
        self._app.layout.focus(self._answer_input)
        self._app.renderer.erase(leave_alternate_screen=False)  # so that a longer screen of before does not stay
        self._app.invalidate()
        try:
            return await self._answer
        finally:
            self._answer, self._question = None, ""
            self._app.layout.focus(self._input)
            self._app.invalidate()

    # -- drawing -------------------------------------------------------------------------------------------------------

    def _build_layout(self) -> Layout:
        is_asking = Condition(lambda: self._answer is not None)
        live = Window(FormattedTextControl(lambda: ANSI("\n".join(self._live))), dont_extend_height=True)
        typed = Window(
            BufferControl(self._input),
            get_line_prefix=lambda line, wrapped: PROMPT if line == wrapped == 0 else " " * len(PROMPT),
            wrap_lines=True, height=Dimension(min=1, max=MAX_INPUT_ROWS), dont_extend_height=True,
        )  # fmt: skip
        answer = Window(
            BufferControl(self._answer_input),
            get_line_prefix=lambda _, wrapped: "" if wrapped else self._question,
            wrap_lines=True, height=Dimension(min=1, max=MAX_INPUT_ROWS), dont_extend_height=True,
        )  # fmt: skip
        offers = Window(FormattedTextControl(self._format_completions), dont_extend_height=True)
        status = Window(FormattedTextControl(self._format_status), height=1, style="class:status")
        return Layout(
            HSplit([
                ConditionalContainer(live, Condition(lambda: bool(self._live))),
                ConditionalContainer(answer, is_asking),
                ConditionalContainer(typed, ~is_asking),
                ConditionalContainer(offers, Condition(self._has_completions)),
                status,
            ]),
            focused_element=typed,
        )  # fmt: skip

    def _has_completions(self) -> bool:
        return self._answer is None and self._input.complete_state is not None

    def _format_completions(self) -> StyleAndTextTuples:
        state = self._input.complete_state
        if state is None:
            return []
        chosen = state.complete_index or 0
        first = max(0, min(chosen - MAX_COMPLETIONS + 1, len(state.completions) - MAX_COMPLETIONS))
        rows: StyleAndTextTuples = []
        for place, each in enumerate(state.completions[first : first + MAX_COMPLETIONS], first):
            mark = "* " if place == state.complete_index else "  "
            about = f"  {each.display_meta_text}" if each.display_meta_text else ""
            row = cut_row(f"{mark}{to_one_line(each.display_text + about)}", self.columns)
            rows += [("class:chosen" if mark == "* " else "", row), ("", "\n")]
        return rows[:-1]

    def _format_status(self) -> str:
        return cut_row(self._get_status(), self.columns)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def _build_keys(self) -> KeyBindings:
        keys = KeyBindings()
        asking, typing = has_focus(self._answer_input), has_focus(self._input)
        busy = Condition(lambda: bool(self.is_busy()))  # it is set later
        keys.add("enter", filter=typing)(self._submit)
        keys.add("enter", filter=asking)(self._give_answer)
        keys.add("c-j", filter=typing)(_begin_line)
        keys.add("escape", "enter", filter=typing)(_begin_line)
        keys.add("escape", filter=busy, eager=True)(_ignoring_event(self._call_on_escape))
        keys.add("tab", filter=typing)(self._complete)
        keys.add("c-o")(_ignoring_event(self._call_on_unfold))
        keys.add("c-c", eager=True)(self._interrupt)
        keys.add("c-d", filter=asking)(_ignoring_event(lambda: self._resolve_answer(None)))
        keys.add("c-d", filter=typing & Condition(lambda: not self._input.text))(_ignoring_event(self.close))
        self._input.on_text_changed += self._forget_interrupt
        self._answer_input.on_text_changed += self._forget_interrupt
        return keys

    def _submit(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # the chosen completion is in the text already
            return
        text = buffer.text
        if text.strip():
            buffer.append_to_history()
        buffer.reset()
        self.on_submit(text)

    def _complete(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None:
            buffer.complete_next()
        else:
            buffer.start_completion(select_first=True)

    def _give_answer(self, event: KeyPressEvent) -> None:
        text = event.current_buffer.text
        event.current_buffer.reset()
        self._resolve_answer(text)

    def _resolve_answer(self, text: str | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(text)

    def _call_on_escape(self) -> None:
        self.on_escape()

    def _call_on_unfold(self) -> None:
        self.on_unfold()

    def _interrupt(self, event: KeyPressEvent) -> None:
        """Handle Ctrl-C: the first clears what is typed and says how to leave, the second leaves."""
        if self._leaves_at_interrupt:
            self.close()
            return
        event.current_buffer.reset()
        self._leaves_at_interrupt = True
        self.print_rows(build_note_rows("press Ctrl-C once more to leave; Esc cancels the run", self.columns))

    def _forget_interrupt(self, buffer: Buffer) -> None:
        if buffer.text:
            self._leaves_at_interrupt = False


def _begin_line(event: KeyPressEvent) -> None:
    event.current_buffer.insert_text("\n")


def _ignoring_event(work: Callable[[], None]) -> Callable[[KeyPressEvent], None]:
    """Return a handler for a key that calls a function without the event."""

    def handle(_: KeyPressEvent) -> None:
        work()

    return handle
