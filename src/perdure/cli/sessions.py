"""`perdure sessions`: list, rename and remove sessions.

`sessions_show.py` shows one, `sessions_forks.py` forks and draws trees, `sessions_transfer.py` exports and imports,
`sessions_size_and_prune.py` measures and prunes.
"""

import sys
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from .perdure_home import run_with_session, run_with_store, store_option
from .session_choice import MOST_SEARCHED, get_project_path, read_project, session_argument, shorten_id
from .sessions_forks import fork, tree
from .sessions_show import show
from .sessions_size_and_prune import du, prune, remove_unused_snapshots
from .sessions_transfer import export, import_
from .terminal_output import TerminalOutput, escape_controls, line_width, to_ascii_json, to_one_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from perdure.core.store import SessionInfo, Store

_ID_WIDTH: Final = 16
"""Columns of an id in a list; longer ones are written in full."""


@click.group(invoke_without_command=True)
@click.pass_context
def sessions(context: click.Context) -> None:
    """List, show, fork, export, import and remove sessions."""
    if context.invoked_subcommand is None:
        TerminalOutput().write(context.get_help() + "\n")


@sessions.command("list")
@click.option("--prefix", default="", help="Only sessions whose id begins with this.")
@click.option("--limit", default=20, type=click.IntRange(min=1, max=1_000_000), help="How many to list.  [default: 20]")
@click.option("--offset", default=0, type=click.IntRange(min=0, max=1_000_000_000), help="Number of sessions to skip.")
@click.option("--all", "of_all_projects", is_flag=True, help="Also the sessions of other projects.")
@click.option("--json", "as_json", is_flag=True, help="Print each session as a line of JSON.")
@store_option
def list_sessions(**options: Any) -> None:
    """List sessions, the most recently used first.

    In a project, these are the sessions of perdure run there, and sessions that other programs made; --all lists every
    session. The beginning of an id is enough to name a session, and so is its title.
    """
    import msgspec

    screen, as_json = TerminalOutput(), options.pop("as_json")
    page = run_with_store(options.pop("store"), lambda store: _find_page(store, **options))
    for info in page.infos:
        screen.write((to_ascii_json(msgspec.json.encode(info)) if as_json else _format_session(info)) + "\n")
    if as_json:
        return
    prefix, limit, offset = options["prefix"], options["limit"], options["offset"]
    others = f"; {page.others} of other projects: --all" if page.others else ""
    if not page.infos:
        like = f" that begins with {prefix!r}" if prefix else ""
        advice = "--offset is too large" if offset else 'perdure run "…" creates one'
        screen.note(f"there is no {'more ' if offset else ''}session{like}; {advice}{others}")
    elif page.has_more:
        screen.note(
            f"there are more; --offset {offset + limit} shows the next ones, --limit {limit * 2} more at once{others}"
        )
    elif page.others:
        screen.note(f"not shown: {others[2:]}")


class _SessionPage(NamedTuple):
    """The sessions to list, and how many are not listed."""

    infos: "list[SessionInfo]"
    has_more: bool
    others: int
    """Number of sessions of other projects that were left out."""


async def _find_page(store: "Store", *, prefix: str, limit: int, offset: int, of_all_projects: bool) -> _SessionPage:
    """Return the sessions to list. Those of a project are looked for among the latest ones."""
    if of_all_projects:
        every = [each async for each in _iterate_some(store, prefix, offset + limit + 1)]
        return _SessionPage(every[offset : offset + limit], len(every) > offset + limit, 0)
    from perdure.runtime.stored_session import iterate_sessions

    here, searched = get_project_path(), 0
    ours: list[SessionInfo] = []
    async for info in iterate_sessions(store, prefix=prefix):
        searched += 1
        if await read_project(store, info.session_id) in {here, ""}:
            ours.append(info)
        if len(ours) > offset + limit or searched == MOST_SEARCHED:
            break
    return _SessionPage(ours[offset : offset + limit], len(ours) > offset + limit, searched - len(ours))


async def _iterate_some(store: "Store", prefix: str, most: int) -> "AsyncIterator[SessionInfo]":
    """Yield the first sessions of a store, without those of the runtime."""
    from perdure.runtime.stored_session import iterate_sessions

    left = most
    async for info in iterate_sessions(store, prefix=prefix):
        yield info
        left -= 1
        if not left:
            return


def _format_session(info: "SessionInfo") -> str:
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.updated_at))
    origin = f"(fork of {to_one_line(info.parent)} at {info.at}) " if info.parent else ""
    name = to_one_line(shorten_id(info.session_id))
    row = f"{name:{_ID_WIDTH}}  {used}  {info.entries:5} entries  {origin}{to_one_line(info.title)}"
    return to_one_line(row, line_width(sys.stdout))


@sessions.command()
@session_argument(can_be_last=False)
@click.argument("title")
@click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON.")
@store_option
def rename(session_id: str, title: str, *, as_json: bool, store: str | None) -> None:
    """Give session ID a title, shown in lists instead of its first prompt."""
    import msgspec

    run_with_session(store, session_id, lambda session: session.rename(title))
    if as_json:
        TerminalOutput().write(to_ascii_json(msgspec.json.encode({"session_id": session_id, "title": title})) + "\n")
    else:
        TerminalOutput().note(to_one_line(f"session {session_id} is now titled {title!r}"))


@sessions.command()
@session_argument(can_be_last=False)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON.")
@store_option
@click.pass_context
def rm(context: click.Context, /, session_id: str, *, yes: bool, as_json: bool, store: str | None) -> None:
    """Delete session ID permanently; no error if it does not exist. Forks keep the entries they share with it.

    Contents of files that only this session needed for an undo are deleted too, unless they were stored in the last
    hour: perdure sessions prune deletes those later.
    """
    import msgspec

    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("there is no terminal to ask at; use --yes to remove the session")
        if not click.confirm(escape_controls(f"Remove session {session_id!r} permanently?"), err=True):
            context.exit(1)

    async def remove(opened: "Store") -> tuple[bool, bool]:
        from perdure.core.reserved_session_ids import check_not_reserved
        from perdure.store_maintenance import list_snapshot_digests

        check_not_reserved(session_id, opened)
        was_there = await opened.info(session_id) is not None
        has_snapshots = was_there and bool(await list_snapshot_digests(opened, session_id))
        await opened.delete(session_id)
        return was_there, has_snapshots

    removed, had_snapshots = run_with_store(store, remove)
    if as_json:
        TerminalOutput().write(
            to_ascii_json(msgspec.json.encode({"session_id": session_id, "removed": removed})) + "\n"
        )
    else:
        TerminalOutput().note(to_one_line(f"session {session_id} {'is removed' if removed else 'does not exist'}"))
    if had_snapshots:
        remove_unused_snapshots(store, TerminalOutput(quiet=as_json))


for command in (show, fork, tree, export, import_, du, prune):
    sessions.add_command(command)
