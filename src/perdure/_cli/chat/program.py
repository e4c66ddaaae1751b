"""The chat program: connects input, conversation, questions and slash commands until the user leaves."""

import asyncio
import base64
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from perdure._cli.run.assembly import AgentParts
from perdure._cli.run.options import RunCommandOptions
from perdure._cli.run.session import describe_danger
from perdure._cli.sessions.choice import shorten_id
from perdure._cli.terminal.frame import wrap_text
from perdure._cli.terminal.input import LineReader
from perdure._cli.terminal.log import redirect_warnings
from perdure._cli.terminal.output import TerminalOutput, escape_controls, measure_terminal, to_one_line
from perdure._cli.terminal.signals import SignalHandler
from perdure._core.values.error import PerdureError
from perdure._core.values.event import ToolFinished
from perdure._core.values.event_class import Event
from perdure._core.values.message import Message
from perdure._io.home.paths import get_home_file_path
from perdure._runtime.agent.agent import Agent
from perdure._runtime.session.session import Session

from .chat import Chat, prepare_chat
from .commands import COMMANDS, ChatCommands
from .completion import ChatCompleter, open_input_history
from .conversation import ChatConversation
from .input import ChatInputArea
from .rows import SPINNER, build_note_rows, format_status
from .view import WindowScreen


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


HISTORY: Final = "chat_history"
"""Name of the file in `~/.perdure` with the prompts that were typed."""
_TICK_SECONDS: Final = 0.25
_SHOWN_PROMPTS: Final = 2
"""Prompts of a stored conversation that are shown, with their answers, when it is opened."""


def run_chat(options: RunCommandOptions) -> int:
    """Run the chat at the terminal until the user leaves, and return the exit code."""
    logging.getLogger().addHandler(logging.NullHandler())  # for other libraries: what matters of ours is shown
    return asyncio.run(_run_with_signals(options))


async def _run_with_signals(options: RunCommandOptions) -> int:
    prepared = await prepare_chat(options)
    with SignalHandler(lambda _: None) as interrupts:
        program = ChatProgram(*prepared, interrupts)
        async with interrupts.wrap_agent(program.build_agent()) as agent:
            return interrupts.exit_with(await program.run(agent))


class ChatProgram(Chat):
    """The chat at a terminal: connects the input area, the conversation, questions and slash commands."""

    def __init__(self, options: RunCommandOptions, parts: AgentParts, interrupts: SignalHandler) -> None:
        self._interrupts = interrupts
        self._commands: ChatCommands | None = None
        self._completer = ChatCompleter(COMMANDS, self._list_skills, self._list_arguments)
        self.window = ChatInputArea(
            self._completer, open_input_history(get_home_file_path(HISTORY)), self._format_status
        )
        self.screen = ChatTerminalOutput(self.window)
        self.view = WindowScreen(self.window, self.screen.note)
        super().__init__(options, parts, self.screen, ChatAnswerReader(self.window, self.screen), self.view)
        self._conversation: ChatConversation | None = None
        self._is_open = asyncio.Event()
        """Set once the first session is open: what is typed before waits for it."""
        self._ticks = 0
        self._working: set[asyncio.Task[None]] = set()

    @property
    def conversation(self) -> ChatConversation:
        """The conversation, once `run` has begun it."""
        assert self._conversation is not None  # noqa: S101 - `run` sets it first
        return self._conversation

    @property
    def is_running(self) -> bool:
        """True while a run is in progress, or waits for an answer."""
        return self.conversation.is_running

    async def run(self, agent: Agent[Any]) -> int:
        """Show the chat until the user leaves or the process is asked to end, and return the exit code."""
        conversation = ChatConversation(agent, self._parts, self._options, self._show, self.screen.note)
        self._conversation = conversation
        self.agent, self.session, self.overrides = agent, conversation.session, conversation.overrides
        conversation.on_session_changed = lambda: self._connect_questions(conversation.session)
        conversation.on_status_changed = self.window.redraw
        self._commands = ChatCommands(self)
        window = self.window
        window.on_submit, window.on_escape, window.on_unfold = self._submit, self._escape, self._unfold
        window.is_busy = lambda: conversation.is_running
        shown = asyncio.ensure_future(window.run())
        background = [asyncio.ensure_future(self._tick()), asyncio.ensure_future(self._close_on_signal())]
        try:
            with redirect_warnings(self._build_warning_output()):
                await self._begin()
                await shown
        finally:
            for task in (*background, *self._working):
                task.cancel()
            await self._leave()
        return 0

    def _build_warning_output(self) -> Callable[[str], None]:
        """Return a function that prints a warning of the library above the input, from any thread."""
        loop, own = asyncio.get_running_loop(), threading.get_ident()

        def show(text: str) -> None:
            if threading.get_ident() == own:
                self.screen.note(f"warning: {text}")
            else:
                loop.call_soon_threadsafe(self.screen.note, f"warning: {text}")

        return show

    async def _begin(self) -> None:
        """Print the heading and the notes, open the session, and go on with a run that was cut off."""
        model = self._parts.choice
        self.screen.note(f"model {model.model}{f': {model.reason}' if model.reason else ''}")
        for each in self._parts.notes:
            self.screen.note(to_one_line(each))
        if self._options.yes or self._options.yolo:
            self.screen.note(f"every tool call is made without asking{describe_danger(self._parts)}")
        self.screen.note("type a prompt; /help lists the commands, Esc cancels, Ctrl-C twice leaves")
        await self.open_session(self.conversation.session)
        self._is_open.set()
        self.window.redraw()

    async def open_session(self, session: Session[Any]) -> None:
        """Make a session the current one: show the end of its conversation, and go on with an open run."""
        await self.conversation.open(session)
        messages = await session.messages()
        if messages:
            self.screen.note(f"session {shorten_id(session.session_id)}, {len(messages)} messages; the last of them:")
            self.view.show_stored(_get_last_prompts(messages))
        if (reply := (await session.read_state()).unsettled_reply) is not None:  # its calls have no results yet
            self.view.show_stored([reply])
        await self.resume()

    async def resume(self, *, unpark: bool = False) -> bool:
        """Go on with the run of the session that was cut off, its questions included; return False if there is none."""
        self._expect_questions(await self.conversation.session.read_state())
        try:
            is_resumed = await self.conversation.resume(unpark=unpark)
        except PerdureError as error:
            self.screen.note(f"its last run was cut off, and is not continued: {error}")
            return False
        if is_resumed:
            self.screen.note("its last run was cut off: it goes on now; Esc cancels it")
        return is_resumed

    async def _leave(self) -> None:
        """Leave a run in progress for the next process, and say how to go on."""
        conversation = self.conversation
        was_running = conversation.is_running
        if was_running:
            self._interrupts.begin_shutdown()
        self._cancel_questions()
        await conversation.close()
        await self._name_next_command("its run is not finished; " if was_running else "")

    # -- events --------------------------------------------------------------------------------------------------------

    async def _show(self, event: Event) -> None:
        self.view.show(event, await self._load_diff(event))
        self._ask_about(event)

    async def _load_diff(self, event: Event) -> str:
        """Return the change that a call has made to a file, as a diff; empty if it made none, or it is not known."""
        if not isinstance(event, ToolFinished) or event.path or event.name not in {"edit", "write"}:
            return ""
        if event.result.is_error or self._parts.store.startswith("memory:"):
            return ""
        from perdure._cli.sessions.files import build_diff, open_file_history

        history = open_file_history(self.conversation.session, self._parts.store)
        changes = [each for each in await history.changes(event.run_id) if each.call_id == event.call_id]
        return "".join([await build_diff(history, each) for each in changes])

    # -- commands ------------------------------------------------------------------------------------------------------

    def print_rows(self, rows: Sequence[str]) -> None:
        """Print rows that are sanitised and framed already."""
        self.window.print_rows(rows)

    def show_command(self, text: str) -> None:
        """Print a command above the input, which is empty now."""
        self.view.show_prompt(text)

    def show_result(self, number: int | None) -> bool:
        """Print a tool result in full: that of this number, or the last one; return False if there is none."""
        return self.view.unfold_card(number)

    def offer_prompt(self, text: str) -> None:
        """Put a prompt into the input."""
        self.window.set_input(text)

    def copy_text(self, text: str) -> None:
        """Copy a text to the clipboard of the terminal, by the sequence OSC 52."""
        self.window.write_raw(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07")

    def close(self) -> None:
        """Leave the chat."""
        self.window.close()

    # -- keys ----------------------------------------------------------------------------------------------------------

    def _submit(self, text: str) -> None:
        self.start(self._handle(text))

    def start(self, work: Any) -> None:
        """Run a coroutine of the chat beside the window."""
        task = asyncio.ensure_future(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _handle(self, text: str) -> None:
        """Handle what was typed: a command, a steering message, or a prompt."""
        text = text.strip("\n")
        if not text.strip():
            return
        await self._is_open.wait()
        try:
            if self._commands is not None and await self._commands.call(text):
                return
            is_steering = self.conversation.can_be_steered
            self.view.show_prompt(text, "the model gets it before its next turn" if is_steering else "")
            if is_steering:
                self.view.typed.append(text)
            await self.conversation.send(text)
        except PerdureError as error:
            self.screen.note(f"error: {error}")

    def _escape(self) -> None:
        self.start(self._cancel())

    async def _cancel(self) -> None:
        await self.conversation.cancel()

    def _unfold(self) -> None:
        if not self.view.unfold_card():
            self.screen.note("there is no tool call to show yet")

    # -- the status line -----------------------------------------------------------------------------------------------

    def _format_status(self) -> str:
        conversation = self._conversation
        if conversation is None or not (self._is_open.is_set() or conversation.is_running):
            return "starting"
        state = "ready"
        if conversation.is_running:
            turned = SPINNER[self._ticks % len(SPINNER)]
            state = f"{turned} waiting for {self.view.waiting_for or 'the model'}"
        if self.keyboard.lock.locked():
            state = "waiting for your answer"
        model = conversation.overrides.get("model", self._parts.choice.model)
        return format_status(
            state=state,
            model=model if isinstance(model, str) else self._parts.choice.model,
            session=shorten_id(conversation.session.session_id),
            usage=conversation.usage,
            columns=self.window.columns,
        )

    async def _tick(self) -> None:
        """Turn the spinner while a run is in progress."""
        while True:
            if self.conversation.is_running:
                self._ticks += 1
                self.window.redraw()
            await asyncio.sleep(_TICK_SECONDS)

    async def _close_on_signal(self) -> None:
        await self._interrupts.wait_for_shutdown()
        self.window.close()

    # -- completion ----------------------------------------------------------------------------------------------------

    def _list_skills(self) -> dict[str, str]:
        skills = None if self._conversation is None else self._conversation.agent.all_skills()
        return {} if skills is None else {name: skills.get(name).description for name in skills.names}

    def _list_arguments(self, command: str) -> Sequence[str]:
        return [] if self._commands is None else self._commands.list_arguments(command)


def _get_last_prompts(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the end of a conversation: the last prompts, and everything after the first of them."""
    prompts = [place for place, each in enumerate(messages) if each.role == "user" and not each.origin]
    return messages[prompts[-_SHOWN_PROMPTS] if len(prompts) >= _SHOWN_PROMPTS else 0 :]
