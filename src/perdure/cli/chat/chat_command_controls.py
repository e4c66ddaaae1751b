"""`ChatCommandControls`: the protocol by which slash commands act on a chat, in a window or in plain lines."""

from collections.abc import Sequence
from typing import Any, Protocol

from perdure.core.permission_rule import Rule
from perdure.runtime.agent import Agent
from perdure.runtime.overrides import Overrides
from perdure.runtime.session import Session


class ChatCommandControls(Protocol):
    """Protocol of a chat, in a window or in plain lines, with the members that slash commands such as `/model` use."""

    @property
    def agent(self) -> Agent[Any]:
        """The agent of the chat."""
        ...

    @property
    def session(self) -> Session[Any]:
        """The current session."""
        ...

    @property
    def overrides(self) -> Overrides[Any]:
        """Options of the next run, such as its model and role; commands change them."""
        ...

    @property
    def is_running(self) -> bool:
        """True while a run is in progress, or waits for an answer."""
        ...

    @property
    def store(self) -> str:
        """The store of the sessions, such as `sqlite:PATH`."""
        ...

    @property
    def model_name(self) -> str:
        """Name of the model that was chosen at the start."""
        ...

    @property
    def rules(self) -> Sequence[Rule]:
        """The permission rules of the configuration and of the command line."""
        ...

    @property
    def last_answer(self) -> str:
        """The text of the last complete reply; empty without one."""
        ...

    def note(self, text: str) -> None:
        """Print a note of the chat itself."""
        ...

    def print_rows(self, rows: Sequence[str]) -> None:
        """Print rows that are sanitised and framed already."""
        ...

    def show_command(self, text: str) -> None:
        """Print a command that was typed, if the terminal has not done so."""
        ...

    def show_result(self, number: int | None) -> bool:
        """Print a tool result in full: that of this number, or the last one; return False if there is none."""
        ...

    def offer_prompt(self, text: str) -> None:
        """Offer a prompt that the user can change and send."""
        ...

    def copy_text(self, text: str) -> None:
        """Copy a text to the clipboard of the terminal."""
        ...

    async def ask(self, question: str) -> str | None:
        """Ask the user a question, and return the typed line; `None` for the end of the input."""
        ...

    async def open_session(self, session: Session[Any]) -> None:
        """Make a session the current one: show the end of its conversation, and go on with an open run."""
        ...

    async def resume(self, *, unpark: bool = False) -> bool:
        """Go on with the run of the session that was cut off; return False if there is none."""
        ...

    def close(self) -> None:
        """Leave the chat."""
        ...
