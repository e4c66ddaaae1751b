"""Choose a session on the command line: by id, id prefix or title, or the last one of the project.

The project of a session is in the metadata of its prompts. Sessions that other programs made have none.
"""

import os
import re
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from perdure._cli.home import resolve_store_spec, run_with_store
from perdure._cli.terminal.output import to_one_line

if TYPE_CHECKING:
    from perdure._core.log.store import SessionInfo, Store

MIN_PREFIX: Final = 4
"""Fewest characters of an id that name a session."""
SHORT_ID: Final = 12
"""Characters of a generated id that are shown: those that say when it was made, to the millisecond."""
MOST_SEARCHED: Final = 1000
"""Number of sessions, the latest first, among which those of a project are looked for."""

_GENERATED: Final = re.compile(r"[0-9a-f]{32}")
_MOST_SHOWN: Final = 5
_MOST_SEARCHED_BY_PREFIX: Final = 100


def session_argument(metavar: str = "ID", *, can_be_last: bool = True) -> Callable[[Any], Any]:
    """Decorate a click command with an argument `session_id`, which the command gets as a full id.

    `can_be_last` adds the option `--last`, for the last session of the project.
    """

    def decorate(command: Any) -> Any:
        @wraps(command)
        def run_resolved(*args: Any, session_id: str | None, last: bool = False, **options: Any) -> Any:
            if can_be_last and (session_id is None) != last:
                raise click.UsageError(
                    "name one session, or use --last for the last one of this project; perdure sessions list lists them"
                )
            return command(*args, session_id=resolve_session(session_id, options), **options)

        if can_be_last:
            run_resolved = click.option("--last", is_flag=True, help="The last session of this project.")(run_resolved)
        shown = f"[{metavar}]" if can_be_last else metavar
        return click.argument("session_id", metavar=shown, required=not can_be_last)(run_resolved)

    return decorate


def resolve_session(given: str | None, options: dict[str, Any]) -> str:
    """Return the full id of the session that `given` names; for `None`, of the last session of the project.

    If there is no such session, `given` is returned unchanged.

    `options` are those of the command: they say which store is meant. Raises `UsageError` if several sessions fit.
    """

    async def find(store: "Store") -> str:
        return await find_session(store, given) if given is not None else await find_last_session(store)

    return run_with_store(_get_store(options), find)


def expand_session_id(given: str | None, options: dict[str, Any]) -> str | None:
    """Return the session id to use for a new run: `given`, expanded if it is the beginning of a generated id.

    Any other id is the name of a new session, even if that of another session begins with it.
    """
    if given is None or len(given) < MIN_PREFIX or not re.fullmatch(r"[0-9a-f]+", given):
        return given

    async def find(store: "Store") -> str:
        if await store.info(given) is not None:
            return given
        found = await _list_by_prefix(store, given)
        return _get_only(given, [each for each in found if _GENERATED.fullmatch(each.session_id)])

    return run_with_store(_get_store(options), find)


async def find_session(store: "Store", given: str) -> str:
    """Return the id of the session with this id, id prefix or title; `given` unchanged if there is none."""
    from perdure._runtime.session.stored import iterate_sessions

    if not given or await store.info(given) is not None:
        return given
    found = await _list_by_prefix(store, given) if len(given) >= MIN_PREFIX else []
    if not found:
        found = [each async for each in iterate_sessions(store) if each.title == given]
    return _get_only(given, found)


async def _list_by_prefix(store: "Store", given: str) -> "list[SessionInfo]":
    from perdure._core.log.reserved_ids import is_listed

    found = await store.list(prefix=given, limit=_MOST_SEARCHED_BY_PREFIX)
    return [each for each in found if is_listed(store, each.session_id)][: _MOST_SHOWN + 1]


def _get_only(given: str, found: "list[SessionInfo]") -> str:
    if len(found) > 1:
        names = ", ".join([to_one_line(each.session_id) for each in found[:_MOST_SHOWN]])
        more = " and more" if len(found) > _MOST_SHOWN else ""
        raise click.UsageError(f"{given!r} fits several sessions: {names}{more}; write more of the id")
    return found[0].session_id if found else given


async def find_last_session(store: "Store") -> str:
    """Return the id of the last session of the project. Raises `UsageError` if there is none."""
    from perdure._runtime.session.stored import iterate_sessions

    here, searched = get_project_path(), 0
    async for info in iterate_sessions(store):
        searched += 1
        if await read_project(store, info.session_id) == here:
            return info.session_id
        if searched == MOST_SEARCHED:
            break
    raise click.UsageError("there is no session of this project yet; perdure sessions list --all lists those of others")


def get_project_path() -> str:
    """Return the path of the project: the root of the repository around the working folder, or that folder itself."""
    from perdure._context.project import Project
    from perdure._core.values.error import ConfigError

    try:
        return os.path.realpath(Project(os.curdir).root)
    except (ConfigError, OSError):  # it was deleted meanwhile
        return ""


async def read_project(store: "Store", session_id: str) -> str:
    """Return the project path stored with the session's last prompt from the command line; empty if none."""
    from perdure._cli.run.options import METADATA
    from perdure._core.log.store import read_events
    from perdure._core.values.event import MessageAdded

    events, _ = await read_events(store, session_id)
    for event in reversed(events):
        if isinstance(event, MessageAdded) and isinstance(event.message.metadata.get(METADATA), dict):
            project: Any = event.message.metadata[METADATA].get("project")
            return project if isinstance(project, str) else ""
    return ""


def shorten_id(session_id: str) -> str:
    """Return the beginning of a generated id, which is enough to name the session; any other id as it is."""
    return session_id[:SHORT_ID] if _GENERATED.fullmatch(session_id) else session_id


def _get_store(options: dict[str, Any]) -> str:
    """Return the store that a command uses: of `--store`, or, for a command with an agent, of its configuration."""
    given: str | None = options.get("store")
    if given or "config" not in options:
        return resolve_store_spec(given)
    from perdure._cli.run.assembly import resolve_store
    from perdure._cli.run.options import AgentOptions

    return resolve_store(AgentOptions(config=options["config"], no_config=options["no_config"]))
