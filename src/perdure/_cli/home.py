"""Files of the `perdure` command in `~/.perdure` (sessions, grants, trusted files), and helpers to open its store.

PERDURE_HOME names another folder. Only its owner can read it.
"""

# ruff: noqa: PTH100, PTH103, PTH111, PTH112, PTH120 - pathlib would cost every start milliseconds
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from perdure._core.values.error import ConfigError, SessionNotFound
from perdure._io.home.paths import get_home_file_path

from .terminal.frame import quote_text

if TYPE_CHECKING:
    from perdure._core.log.store import Store
    from perdure._core.values.event_class import QuestionAsked
    from perdure._runtime.session.session import Session

T = TypeVar("T")

MAX_QUESTION: Final = 200
"""Characters of a question that a line about it shows."""

store_option = click.option(
    "--store", metavar="sqlite:PATH", help="Store of the sessions.  [default: sessions.db in ~/.perdure]"
)


def snapshots_path(store: str) -> str:
    """Return the absolute path of the folder with the file snapshots of the sessions in a store.

    Each store has its own, so that what its sessions do not need any more can be removed. `store` is as in `--store`.
    """
    if store == _get_usual_store():
        return get_home_file_path("snapshots")
    from hashlib import sha256

    kind, _, path = store.partition(":")
    if kind in {"sqlite", "file"}:
        store = f"{kind}:{os.path.realpath(os.path.expanduser(path))}"
    return get_home_file_path(f"snapshots-{sha256(store.encode()).hexdigest()[:16]}")


def _get_usual_store(file: str = "sessions.db") -> str:
    return f"sqlite:{get_home_file_path(file)}"


def resolve_store_spec(given: str | None, file: str = "sessions.db") -> str:
    """Return the store of the option `--store`; if it was not given, the SQLite store `file` in `~/.perdure`."""
    usual = _get_usual_store(file)
    if given and given != usual:
        check_store_folder(given)
    else:  # it is made at its first use, and may be in a new home
        with contextlib.suppress(OSError):  # then the store says which folder it needs
            os.makedirs(os.path.dirname(os.path.dirname(get_home_file_path(file))), mode=0o700, exist_ok=True)
    return given or usual


def check_store_folder(store: str) -> None:
    """Raise `ConfigError` if the folder around a store that the user named does not exist: it may be misspelt."""
    kind, _, path = store.partition(":")
    folder = os.path.dirname(os.path.abspath(os.path.expanduser(path)))
    if kind in {"sqlite", "file"} and path and not os.path.isdir(folder):
        raise ConfigError(f"{store!r}: there is no folder {folder!r}; create it, or choose another path")


def run_with_store(given: str | None, work: "Callable[[Store], Awaitable[T]]") -> T:
    """Open the store of `--store`, run `work(store)` in a new event loop, close the store, and return the result."""
    import asyncio

    from perdure._stores import open_store

    async def main() -> T:
        store = open_store(resolve_store_spec(given))
        try:
            return await work(store)
        finally:
            await store.aclose()

    return asyncio.run(main())


def run_with_session(given: str | None, session_id: str, work: "Callable[[Session], Awaitable[T]]") -> T:
    """Open the store, run `work(session)` with an existing session, and return the result. Raises `SessionNotFound`."""

    async def with_session(store: "Store") -> T:
        from perdure._runtime.agent.agent import Agent

        session = Agent("demo", store=store).session(session_id)
        if await session.info() is None:
            raise build_session_not_found(session_id, given)
        return await work(session)

    return run_with_store(given, with_session)


def build_session_not_found(session_id: str, store: str | None) -> SessionNotFound:
    """Build the `SessionNotFound` error that names the store, as in `--store`, and says how to list its sessions."""
    import shlex

    searched = store or _get_usual_store()
    option = "" if searched == _get_usual_store() else f" --store {shlex.quote(searched)}"
    return SessionNotFound(
        f"there is no session {session_id!r} in {searched}; `perdure sessions list --all{option}` lists those that are "
        "there, and --store sqlite:PATH names another store"
    )


def describe_open_question(session_id: str, question: "QuestionAsked", store: str | None) -> str:
    """Return a line about an open question, with the commands that show it in full and answer it."""
    text = quote_text(question.text, MAX_QUESTION)
    return f"a question is open: {text}; {format_answer_commands(session_id, question, store)}"


def format_answer_commands(session_id: str, question: "QuestionAsked", store: str | None) -> str:
    """Return the hint that names the commands which show an open question and answer it."""
    choices = {"permission": "yes|no", "settlement": "retry|skip|TEXT"}.get(question.about, "VALUE")
    shows = f"perdure questions {format_session_arguments(session_id, store)} shows all of it; "
    named = format_session_arguments(session_id, store, question.ask_id)
    return f"{shows}answer it with: perdure answer {named} {choices}"


def format_session_arguments(session_id: str, store: str | None, *more: str) -> str:
    """Return shell-quoted arguments for a command about a session: its id, `more`, and `--store` if one was named."""
    import shlex

    return shlex.join([session_id, *more, *([] if store is None else ["--store", store])])


# -- permanent grants ---------------------------------------------------------------------------------------


def grants_path() -> str:
    """Return the path of the file of permanent permission grants, one per line. Deleting a line revokes its grant."""
    return get_home_file_path("grants.jsonl")
