"""The chat in plain lines, for terminals that cannot move their cursor: one prompt after another, nothing is redrawn.

Answers and tool calls are printed as by `perdure run`. Ctrl-C cancels the run, and leaves at the prompt. The commands
are those of the chat in a window.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from perdure._cli.run.assembly import AgentParts
from perdure._cli.run.options import RunCommandOptions
from perdure._cli.run.project import describe_unused_skills
from perdure._cli.run.session import StartRun, show_run
from perdure._cli.sessions.choice import get_project_path, shorten_id
from perdure._cli.sessions.resume_check import check_can_resume
from perdure._cli.terminal.input import LineReader
from perdure._cli.terminal.output import TerminalOutput, report_error, to_one_line
from perdure._cli.terminal.printer import TerminalScreen
from perdure._cli.terminal.signals import SignalHandler
from perdure._core.values.error import PerdureError, UsageError
from perdure._core.values.event_class import Event
from perdure._core.values.message import Message, user
from perdure._runtime.agent.agent import Agent
from perdure._runtime.session.session import Session

from .chat import Chat, prepare_chat
from .commands import ChatCommands
from .conversation import keep_partial_reply

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
    chat = PlainChat(*await prepare_chat(options))
    async with chat.build_agent() as agent:
        await chat.run(agent)
    return 0


class PlainChat(Chat):
    """Reads prompts and commands from the terminal, and prints the events of the runs that answer them."""

    def __init__(self, options: RunCommandOptions, parts: AgentParts) -> None:
        output = TerminalOutput()
        super().__init__(options, parts, output, LineReader(), TerminalScreen(output, tells_end=True))
        self._commands = ChatCommands(self, KEYS, without=_WITHOUT)
        self._is_open = True

    async def run(self, agent: Agent[Any]) -> None:
        """Answer prompts until the input ends, or the user leaves."""
        self.agent = agent
        self.overrides = self._parts.build_overrides(self._options)
        self.note(f"model {self._parts.choice.model}: {self._parts.choice.reason or 'you named it'}")
        for each in self._parts.notes:
            self.note(to_one_line(each))
        self.note(_HELP)
        await self.open_session(agent.session(self._options.session_id))
        while self._is_open and (line := await self.ask(PROMPT)) is not None:
            if line.strip():
                await self._handle(line)
        self._cancel_questions()
        await self._name_next_command()

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
        with SignalHandler(self._output.note) as interrupts:
            outcome = await show_run(self.session, start, self._show, interrupts)
        await keep_partial_reply(self.session, outcome)

    def _show(self, event: Event) -> None:
        self._view.show(event)
        self._ask_about(event)

    # -- for the commands ----------------------------------------------------------------------------------------------

    def print_rows(self, rows: Sequence[str]) -> None:
        """Print rows that are sanitised and framed already."""
        self._output.note_rows("\n".join(rows))

    def show_command(self, text: str) -> None:
        """Print nothing: the terminal shows what is typed."""

    def show_result(self, number: int | None) -> bool:
        """Print a tool result in full: that of this number, or the last one; return False if there is none."""
        call = self._view.find_call(number)
        if call is None:
            return False
        result = call.result
        self.note(to_one_line(f"tool {result.name} {result.status}:"))
        self._output.note_rows("\n".join([f"    {to_one_line(line)}" for line in result.text.split("\n")]))
        return True

    def offer_prompt(self, text: str) -> None:
        """Print the prompt: there is no input to put it into."""
        if text:
            self.note(f"the prompt that was left out: {text}")

    def copy_text(self, text: str) -> None:
        """Raise `UsageError`: such a terminal has no clipboard."""
        raise UsageError(f"{len(text):,} characters cannot be copied: the terminal understands no control sequences")

    async def open_session(self, session: Session[Any]) -> None:
        """Make a session the current one: print its last prompt and answer, and go on with an open run."""
        self._connect_questions(session)
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
            self._output.write(f"{each.text}\n")

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
        self._expect_questions(state)
        self.note("its last run was cut off: it goes on now")
        await self._perform(lambda: session.resume(unpark=unpark))
        return True

    def close(self) -> None:
        """Leave the chat after this command."""
        self._is_open = False
