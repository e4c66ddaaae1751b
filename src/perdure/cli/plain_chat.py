"""The chat in plain lines, for terminals that cannot move their cursor: one prompt after another, nothing is redrawn.

Answers and tool calls are printed as by `perdure run`. Ctrl-C cancels the run, and leaves at the prompt.
"""

import asyncio
import logging
from typing import Any

from msgspec.structs import replace

from perdure.core.error import PerdureError
from perdure.core.event import Event
from perdure.core.message import user
from perdure.runtime.session import Session

from .agent_assembly import AgentParts, check_sandbox_for_yolo, collect_agent_parts
from .event_printer import TextEventPrinter
from .line_input import LineReader
from .permission_prompt import TerminalPermissionPrompt
from .project_context import describe_unused_skills
from .resume_check import check_can_resume
from .run_options import CommandOptions
from .run_session import StartRun, can_ask_permission, restore_agent_options, show_run
from .session_choice import get_project_path, shorten_id
from .signals import SignalHandler
from .terminal_output import TerminalOutput, report_error, to_one_line
from .tool_questions import TerminalQuestions

PROMPT = "> "
_HELP = (
    "type a prompt; /quit or Ctrl-D leaves, Ctrl-C cancels the run; the other commands need a terminal with a cursor"
)


def run_plain_chat(order: CommandOptions) -> int:
    """Run the chat in plain lines until the user leaves, and return the exit code."""
    logging.getLogger().addHandler(logging.NullHandler())
    return asyncio.run(_chat(order))


async def _chat(order: CommandOptions) -> int:
    wish = order.agent if order.session_id is None else await restore_agent_options(order.agent, order.session_id)
    order = replace(order, agent=wish)
    parts = collect_agent_parts(wish)
    if order.yolo:
        check_sandbox_for_yolo(parts.options["extensions"])
    screen, keyboard = TerminalOutput(), LineReader()
    question = TerminalPermissionPrompt(screen, keyboard)
    gate = parts.build_gate(question, yes=order.yes or order.yolo)
    agent = parts.build_agent(permission=gate, answer_timeout_seconds=float("inf"))
    async with agent:
        session = agent.session(order.session_id)
        chat = _PlainChat(session, parts, order, screen, question=question, keyboard=keyboard)
        await chat.run()
    if not parts.store.startswith("memory:"):
        screen.note(f"go on with: perdure --session {shorten_id(session.session_id)}")
    return 0


class _PlainChat:
    """Reads prompts from the terminal, and prints the events of the runs that answer them."""

    def __init__(
        self, session: Session[Any], parts: AgentParts, order: CommandOptions, screen: TerminalOutput, *,
        keyboard: LineReader, question: TerminalPermissionPrompt,
    ) -> None:  # fmt: skip
        self._session = session
        self._parts = parts
        self._order = order
        self._screen = screen
        self._keyboard = keyboard
        self._question = question
        self._print = TextEventPrinter(screen)
        self._questions = TerminalQuestions(session.display, keyboard, screen)

    async def run(self) -> None:
        """Answer prompts until the input ends."""
        self._screen.note(f"model {self._parts.choice.model}: {self._parts.choice.reason or 'you named it'}")
        for each in self._parts.notes:
            self._screen.note(to_one_line(each))
        self._screen.note(_HELP)
        await self._resume()
        while (line := await self._read_prompt()) is not None and line.strip() not in {"/quit", "/exit", "/q"}:
            if line.strip() == "/help":
                self._screen.note(_HELP)
            elif line.strip():
                await self._answer(line)
        self._questions.cancel_all()

    async def _read_prompt(self) -> str | None:
        async with self._keyboard.lock:
            self._screen.write_question(PROMPT)
            return await self._keyboard.read_line()

    async def _resume(self) -> None:
        session = self._session
        state = await session.read_state()
        if state.run is None or not state.is_interrupted:
            return
        try:
            await check_can_resume(session.agent, session.store, session.session_id, state, self._order.agent.store)
        except PerdureError as error:
            report_error(str(error))
            return
        self._screen.note("its last run was cut off: it goes on now")
        await self._perform(session.resume)

    async def _answer(self, text: str) -> None:
        prompt = user(text, metadata=self._order.agent.build_prompt_metadata(get_project_path()))
        try:
            for each in describe_unused_skills(text, ".", self._session.agent.all_skills()) if "/" in text else ():
                self._screen.note(each)
        except PerdureError as error:
            report_error(str(error))
            return
        await self._perform(lambda: self._session.run(prompt, **self._parts.build_overrides(self._order)))

    async def _perform(self, start: StartRun) -> None:
        """Show a run while Ctrl-C cancels it, and print its error if it fails."""
        try:
            with SignalHandler(self._screen.note) as interrupts:
                outcome = await show_run(self._session, start, self._show, interrupts)
            if outcome is not None and outcome.error is not None:
                report_error(str(outcome.error))
        except PerdureError as error:
            report_error(str(error))

    def _show(self, event: Event) -> None:
        self._print(event)
        self._questions(event)
        if can_ask_permission(event):
            self._question.allow_asking(event)
