"""Print text and ask questions while a chat window is open: text appears above the input row, answers are typed there.

So the chat asks for permission, and shows the questions of tools, with the same code as `perdure run`.
"""

import sys
from typing import TYPE_CHECKING

from perdure.cli.line_input import LineReader
from perdure.cli.terminal_output import TerminalOutput, escape_controls, measure_terminal
from perdure.cli.untrusted_text_frame import wrap_text

from .note_wrapping import build_note_rows

if TYPE_CHECKING:
    from .chat_input_area import ChatInputArea


class ChatTerminalOutput(TerminalOutput):
    """Terminal output in a chat: prints rows above the input, and keeps a question for the row with the cursor."""

    def __init__(self, window: "ChatInputArea") -> None:
        super().__init__()
        self._window = window
        self.question = ""
        """The text after the last line break: the question that `ChatAnswerReader` asks next."""

    def write(self, text: str) -> None:
        """Print text above the input, with control characters made visible."""
        self.note_rows(text.rstrip("\n"))

    def end_line(self) -> None:
        """Print an empty row: the rows above are complete, and what follows has nothing to do with them."""
        self._window.print_rows([""])

    def note(self, text: str) -> None:
        """Print a note of the chat: its rows are wrapped, and all but the first are indented."""
        self._window.print_rows(build_note_rows(text, measure_terminal(sys.stdout).columns))

    def note_rows(self, text: str) -> None:
        """Print rows that are framed already."""
        self._window.print_rows(escape_controls(text).split("\n"))

    def write_question(self, text: str) -> None:
        """Print the complete rows of a question, and keep the rest of it for the row with the cursor."""
        *rows, self.question = f"{self.question}{text}".split("\n")
        if rows:
            self._window.print_rows(rows)


class ChatAnswerReader(LineReader):
    """Reads the user's answers to questions from the input row of a chat window."""

    def __init__(self, window: "ChatInputArea", screen: ChatTerminalOutput) -> None:
        super().__init__()
        self._window = window
        self._screen = screen

    async def read_line(self) -> str | None:
        """Wait for the answer to the question that was written last; `None` for Ctrl-D. It is printed with it."""
        question, self._screen.question = self._screen.question, ""
        line = await self._window.read_answer(question)
        width = measure_terminal(sys.stdout).columns - 1
        first, *rest = wrap_text(escape_controls(f"{question}{line or ''}"), width - 2)
        self._window.print_rows([first, *[f"  {row}" for row in rest]])
        return line
