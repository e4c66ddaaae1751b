"""The chat in plain lines, for terminals that cannot move their cursor: one prompt after another, nothing is redrawn.

Answers and tool calls are printed as by `perdure run`. Ctrl-C cancels the run, and leaves at the prompt. The commands
are those of the chat in a window.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from perdure.core.error import PerdureError, UsageError
from perdure.core.event import Event
from perdure.core.message import Message, user
from perdure.core.permission_rule import Rule
from perdure.runtime.agent import Agent
from perdure.runtime.session import Session

from .agent_assembly import AgentParts, check_sandbox_for_yolo, collect_agent_parts
from .chat.chat_commands import ChatCommands
from .chat.chat_conversation import keep_partial_reply
from .event_printer import TerminalScreen
from .line_input import LineReader
from .perdure_home import format_session_arguments
from .permission_prompt import TerminalPermissionPrompt
from .project_context import describe_unused_skills
from .resume_check import check_can_resume
from .run_options import RunCommandOptions
from .run_session import StartRun, can_ask_permission, restore_agent_options, show_run
from .session_choice import get_project_path, shorten_id
from .signals import SignalHandler
from .terminal_output import TerminalOutput, report_error, to_one_line
from .tool_question_prompt import TerminalQuestions

PROMPT = "> "
KEYS: Final = {"Ctrl-C": "cancel the run; at the prompt, leave", "Ctrl-D": "leave"}
"""The keys of this chat, and what each does."""
_WITHOUT: Final = frozenset({"copy"})
"""Commands that need a terminal which understands control sequences."""
_HELP: Final = "type a prompt; /help lists the commands, Ctrl-C cancels the run, Ctrl-D leaves"


def run_plain_chat(options: RunCommandOptions) -> int:
    """Run the chat in plain lines until the user leaves, and return the exit code."""
    logging.getLogger().addHandler(logging.NullHandler())
    return asyncio.run(_chat(options))


async def _chat(options: RunCommandOptions) -> int:
    wish = (
        options.agent if options.session_id is None else await restore_agent_options(options.agent, options.session_id)
    )
    options = replace(options, agent=wish)
    parts = collect_agent_parts(wish)
    if options.yolo:
        check_sandbox_for_yolo(parts.options["extensions"])
    screen, keyboard = TerminalOutput(), LineReader()
    question = TerminalPermissionPrompt(screen, keyboard)
    gate = parts.build_gate(question, yes=options.yes or options.yolo)
    agent = parts.build_agent(permission=gate, answer_timeout_seconds=float("inf"))
    async with agent:
        chat = PlainChat(agent, parts, options, screen, question=question, keyboard=keyboard)
        await chat.run()
        if not parts.store.startswith("memory:") and await chat.session.info() is not None:
            named = format_session_arguments(shorten_id(chat.session.session_id), wish.store)
            screen.note(f"go on with: perdure --session {named}")
    return 0


class PlainChat:
    """Reads prompts and commands from the terminal, and prints the events of the runs that answer them."""

    def __init__(
        self, agent: Agent[Any], parts: AgentParts, options: RunCommandOptions, screen: TerminalOutput, *,
        keyboard: LineReader, question: TerminalPermissionPrompt,
    ) -> None:  # fmt: skip
        self.agent = agent
        self.session: Session[Any] = agent.session(options.session_id)
        self.overrides = parts.build_overrides(options)
        """Options of the next run, such as its model and role."""
        self._parts = parts
        self._options = options
        self._screen = screen
        self._keyboard = keyboard
        self._question = question
        self._view = TerminalScreen(screen, tells_end=True)
        self._questions = TerminalQuestions(self.session.display, keyboard, screen)
        self._commands = ChatCommands(self, KEYS, without=_WITHOUT)
        self._is_open = True

    @property
    def is_running(self) -> bool:
        """True while a run is in progress: never while a command is typed."""
        return False

    @property
    def last_answer(self) -> str:
        """The text of the last complete reply."""
        return self._view.last_answer

    @property
    def store(self) -> str:
        """The store of the sessions."""
        return self._parts.store

    @property
    def model_name(self) -> str:
        """Name of the model that was chosen at the start."""
        return self._parts.choice.model

    @property
    def rules(self) -> Sequence[Rule]:
        """The permission rules of the configuration and of the command line."""
        return self._parts.list_rules()

    async def run(self) -> None:
        """Answer prompts until the input ends, or the user leaves."""
        self.note(f"model {self._parts.choice.model}: {self._parts.choice.reason or 'you named it'}")
        for each in self._parts.notes:
            self.note(to_one_line(each))
        self.note(_HELP)
        await self.open_session(self.session)
        while self._is_open and (line := await self.ask(PROMPT)) is not None:
            if line.strip():
                await self._handle(line)
        self._questions.cancel_all()

    async def _handle(self, line: str) -> None:
        try:
            if not await self._commands.call(line):
                await self._answer(line)
        except PerdureError as error:
            report_error(str(error))

    async def _answer(self, text: str) -> None:
        prompt = user(text, metadata=self._options.agent.build_prompt_metadata(get_project_path()))
        for each in describe_unused_skills(text, ".", self.agent.all_skills()) if "/" in text else ():
            self.note(each)
        await self._perform(lambda: self.session.run(prompt, **self.overrides))

    async def _perform(self, start: StartRun) -> None:
        """Show a run while Ctrl-C cancels it."""
        with SignalHandler(self._screen.note) as interrupts:
            outcome = await show_run(self.session, start, self._show, interrupts)
        await keep_partial_reply(self.session, outcome)

    def _show(self, event: Event) -> None:
        self._view.show(event)
        self._questions(event)
        if can_ask_permission(event):
            self._question.allow_asking(event)

    # -- for the commands ----------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Print a note of the chat itself."""
        self._screen.note(text)

    def print_rows(self, rows: Sequence[str]) -> None:
        """Print rows that are sanitised and framed already."""
        self._screen.note_rows("\n".join(rows))

    def show_command(self, text: str) -> None:
        """Print nothing: the terminal shows what is typed."""

    def show_result(self, number: int | None) -> bool:
        """Print a tool result in full: that of this number, or the last one; return False if there is none."""
        call = self._view.find_call(number)
        if call is None:
            return False
        result = call.result
        self.note(to_one_line(f"tool {result.name} {result.status}:"))
        self._screen.note_rows("\n".join([f"    {to_one_line(line)}" for line in result.text.split("\n")]))
        return True

    def offer_prompt(self, text: str) -> None:
        """Print the prompt: there is no input to put it into."""
        if text:
            self.note(f"the prompt that was left out: {text}")

    def copy_text(self, text: str) -> None:
        """Raise `UsageError`: such a terminal has no clipboard."""
        raise UsageError(f"{len(text):,} characters cannot be copied: the terminal understands no control sequences")

    async def ask(self, question: str) -> str | None:
        """Print a question, and return the typed line; `None` at the end of the input."""
        async with self._keyboard.lock:
            self._screen.write_question(question)
            return await self._keyboard.read_line()

    async def open_session(self, session: Session[Any]) -> None:
        """Make a session the current one: print its last prompt and answer, and go on with an open run."""
        self._questions.cancel_all()
        self.session = session
        self._questions = TerminalQuestions(session.display, self._keyboard, self._screen)
        messages = await session.messages()
        if messages:
            self.note(f"session {shorten_id(session.session_id)}, {len(messages)} messages; the last of them:")
            self._print_last(messages)
        await self.resume()

    def _print_last(self, messages: Sequence[Message]) -> None:
        prompts = [each for each in messages if each.role == "user" and not each.origin]
        answers = [each for each in messages if each.role == "assistant" and each.text]
        for each in prompts[-1:]:
            self.note(to_one_line(f"{PROMPT}{each.original_text or each.text}"))
        for each in answers[-1:]:
            self._view.last_answer = each.text
            self._screen.write(f"{each.text}\n")

    async def resume(self, *, unpark: bool = False) -> bool:
        """Go on with the run of the session that was cut off; return False if there is none."""
        session = self.session
        state = await session.read_state()
        if state.run is None or not (state.is_interrupted or (unpark and state.is_parked)):
            return False
        try:
            await check_can_resume(self.agent, session.store, session.session_id, state, self._options.agent.store)
        except PerdureError as error:
            report_error(str(error))
            return False
        self.note("its last run was cut off: it goes on now")
        await self._perform(lambda: session.resume(unpark=unpark))
        return True

    def close(self) -> None:
        """Leave the chat after this command."""
        self._is_open = False
