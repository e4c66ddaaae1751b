"""Where the command line keeps things: sessions, and verdicts that hold for ever. Above: the commands. Below: stores.

All of it lies in one folder, `~/.perdure` or what PERDURE_HOME names, which its owner alone can read.
"""

# ruff: noqa: PTH100, PTH111, PTH118 - pathlib would cost every start milliseconds
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from perdure.core.error import SessionNotFound

if TYPE_CHECKING:
    from perdure.core.event import QuestionAsked
    from perdure.core.store import Store
    from perdure.session import Session

T = TypeVar("T")

VARIABLE: Final = "PERDURE_HOME"

store_option = click.option(
    "--store", metavar="sqlite:PATH", help="Where sessions are kept.  [default: sessions.db in ~/.perdure]"
)


def home_file(name: str) -> str:
    """The path of one of our files."""
    home = os.path.expanduser(os.environ.get(VARIABLE) or "~/.perdure")
    return os.path.join(os.path.abspath(home), name)


def store_spec(given: str | None) -> str:
    """The store that is asked for, or the one in our folder."""
    return given or f"sqlite:{home_file('sessions.db')}"


def use_store(given: str | None, work: "Callable[[Store], Awaitable[T]]") -> T:
    """Do something with a store, and close it."""
    import asyncio

    from perdure.stores import open_store

    async def main() -> T:
        store = open_store(store_spec(given))
        try:
            return await work(store)
        finally:
            await store.aclose()

    return asyncio.run(main())


def use_session(given: str | None, session_id: str, work: "Callable[[Session], Awaitable[T]]") -> T:
    """Do something with a session that is there, and close its store. No model is asked by that."""

    async def with_session(store: "Store") -> T:
        from perdure.agent import Agent

        session = Agent("demo", store=store).session(session_id)
        if await session.info() is None:
            raise no_session(session_id)
        return await work(session)

    return use_store(given, with_session)


def no_session(session_id: str) -> SessionNotFound:
    """The error for a name that no session has."""
    return SessionNotFound(f"there is no session {session_id!r}; `perdure sessions list` shows those that there are")


def how_to_answer(session_id: str, question: "QuestionAsked") -> str:
    """What to type."""
    import shlex

    choices = {"permission": "yes|no", "settlement": "retry|skip|TEXT"}.get(question.about, "VALUE")
    return f"answer it with: perdure answer {shlex.quote(session_id)} {question.ask_id} {choices}"


# -- verdicts that hold for ever ---------------------------------------------------------------------------------------


def grants_file() -> str:
    """Where a `GrantFile` keeps them: a line of JSON for each. Deleting its line takes one back."""
    return home_file("grants.jsonl")
