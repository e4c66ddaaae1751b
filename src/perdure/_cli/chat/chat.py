"""`Chat`: what the chat in a window and the one in plain lines have in common, and what slash commands act on."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from perdure._cli.home import format_session_arguments
from perdure._cli.run.assembly import AgentParts, check_sandbox_for_yolo, collect_agent_parts
from perdure._cli.run.options import RunCommandOptions
from perdure._cli.run.session import restore_agent_options
from perdure._cli.sessions.choice import shorten_id
from perdure._cli.terminal.input import LineReader
from perdure._cli.terminal.output import TerminalOutput
from perdure._cli.terminal.permission import TerminalPermissionPrompt
from perdure._cli.terminal.questions import TerminalQuestions
from perdure._cli.terminal.screen import Screen
from perdure._core.log.fold import State
from perdure._core.permission.rules import Rule
from perdure._core.values.event import RunResumed
from perdure._core.values.event_class import Event, QuestionAsked
from perdure._runtime.agent.agent import Agent
from perdure._runtime.agent.overrides import Overrides
from perdure._runtime.session.session import Session


async def prepare_chat(options: RunCommandOptions) -> tuple[RunCommandOptions, AgentParts]:
    """Return the options, completed with those of the session's last run, and the parts of the agent."""
    wish = options.agent
    if options.session_id is not None:
        wish = await restore_agent_options(wish, options.session_id)
    parts = collect_agent_parts(wish)
    if options.yolo:
        check_sandbox_for_yolo(parts.options["extensions"])
    return replace(options, agent=wish), parts


class Chat(ABC):
    """A chat at a terminal: shows a session on a screen, asks the questions of its runs, and takes slash commands."""

    agent: Agent[Any]
    """The agent, once the chat runs."""
    session: Session[Any]
    """The current session, once the chat runs."""
    overrides: Overrides[Any]
    """Options of the next run, such as its model and role; commands change them."""

    def __init__(
        self, options: RunCommandOptions, parts: AgentParts, output: TerminalOutput, keyboard: LineReader, view: Screen
    ) -> None:
        self.keyboard = keyboard
        self.permission = TerminalPermissionPrompt(output, keyboard)
        """The handler that asks for permission in the chat."""
        self._options = options
        self._parts = parts
        self._output = output
        self._view = view
        self._questions: TerminalQuestions | None = None
        self._resumed_with_permission_question = False

    def build_agent(self) -> Agent[Any]:
        """Build the agent, whose gate asks the user of the chat."""
        gate = self._parts.build_gate(self.permission, yes=self._options.yes or self._options.yolo)
        return self._parts.build_agent(permission=gate, answer_timeout_seconds=float("inf"))

    # -- for the commands ----------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """True while a run is in progress, or waits for an answer; in plain lines never while a command is typed."""
        return False

    @property
    def store(self) -> str:
        """The store of the sessions, such as `sqlite:PATH`."""
        return self._parts.store

    @property
    def model_name(self) -> str:
        """Name of the model that was chosen at the start."""
        return self._parts.choice.model

    @property
    def rules(self) -> Sequence[Rule]:
        """The permission rules of the configuration and of the command line."""
        return self._parts.list_rules()

    @property
    def last_answer(self) -> str:
        """The text of the last complete reply; empty without one."""
        return self._view.last_answer

    def note(self, text: str) -> None:
        """Print a note of the chat itself."""
        self._output.note(text)

    async def ask(self, question: str) -> str | None:
        """Ask the user a question, and return the typed line; `None` for the end of the input."""
        async with self.keyboard.lock:
            self._output.write_question(question)
            return await self.keyboard.read_line()

    @abstractmethod
    def print_rows(self, rows: Sequence[str]) -> None:
        """Print rows that are sanitised and framed already."""

    @abstractmethod
    def show_command(self, text: str) -> None:
        """Print a command that was typed, if the terminal has not done so."""

    @abstractmethod
    def show_result(self, number: int | None) -> bool:
        """Print a tool result in full: that of this number, or the last one; return False if there is none."""

    @abstractmethod
    def offer_prompt(self, text: str) -> None:
        """Offer a prompt that the user can change and send."""

    @abstractmethod
    def copy_text(self, text: str) -> None:
        """Copy a text to the clipboard of the terminal."""

    @abstractmethod
    async def open_session(self, session: Session[Any]) -> None:
        """Make a session the current one: show the end of its conversation, and go on with an open run."""

    @abstractmethod
    async def resume(self, *, unpark: bool = False) -> bool:
        """Go on with the run of the session that was cut off; return False if there is none."""

    @abstractmethod
    def close(self) -> None:
        """Leave the chat."""

    # -- questions, and the end ----------------------------------------------------------------------------------------

    def _connect_questions(self, session: Session[Any]) -> None:
        """Ask the questions of the tools of this session, and no longer those of the one before."""
        self._cancel_questions()
        self.session = session
        self._questions = TerminalQuestions(session.display, self.keyboard, self._output)

    def _cancel_questions(self) -> None:
        if self._questions is not None:
            self._questions.cancel_all()

    def _expect_questions(self, state: State) -> None:
        """Remember whether a run that is resumed asks for permission again, of which its log has no new event."""
        self._resumed_with_permission_question = any(each.about == "permission" for each in state.open_questions)

    def _ask_about(self, event: Event) -> None:
        """Ask what an event asks, now that all before it is on the screen."""
        if self._questions is not None:
            self._questions(event)
        if isinstance(event, QuestionAsked) and event.about == "permission":
            self.permission.allow_asking(event)
        elif isinstance(event, RunResumed) and self._resumed_with_permission_question:
            self._resumed_with_permission_question = False
            self.permission.allow_asking(event)

    async def _name_next_command(self, remark: str = "") -> None:
        """Print how to go on with the session, if it is stored."""
        if self.store.startswith("memory:") or await self.session.info() is None:
            return
        named = format_session_arguments(shorten_id(self.session.session_id), self._options.agent.store)
        TerminalOutput().note(f"{remark}go on with: perdure --session {named}")
