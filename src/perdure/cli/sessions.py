"""`perdure sessions`: what is kept. Above: `main.py`. Below: stores, and a module for each kind of thing to do.

Here are the group, the list and what changes a single session; `sessions_show.py` shows one, `sessions_tree.py` forks
them and draws their tree, `sessions_move.py` exports and imports, `sessions_upkeep.py` measures and prunes.
"""

import sys
import time
from typing import TYPE_CHECKING

import click

from .home import store_option, use_session, use_store
from .screen import Screen, json_line, line_width, one_line, visible
from .sessions_move import export, import_
from .sessions_show import show
from .sessions_tree import fork, tree
from .sessions_upkeep import du, prune

if TYPE_CHECKING:
    from perdure.core.store import SessionInfo, Store


@click.group(invoke_without_command=True)
@click.pass_context
def sessions(context: click.Context) -> None:
    """List, show, fork, move and remove the sessions that are kept."""
    if context.invoked_subcommand is None:
        Screen().say(context.get_help() + "\n")


@sessions.command("list")
@click.option("--prefix", default="", help="Only sessions whose id begins like this.")
@click.option("--limit", default=20, type=click.IntRange(min=1, max=1_000_000), help="How many.  [default: 20]")
@click.option(
    "--offset", default=0, type=click.IntRange(min=0, max=1_000_000_000), help="Leave out as many of the first."
)
@click.option("--json", "as_json", is_flag=True, help="Write each session as a line of JSON.")
@store_option
def list_sessions(prefix: str, limit: int, offset: int, *, as_json: bool, store: str | None) -> None:
    """List sessions, the most recently used first."""
    import msgspec

    found = use_store(store, lambda store: store.list(prefix=prefix, limit=limit + 1, offset=offset))
    screen = Screen()
    for info in found[:limit]:
        screen.say((json_line(msgspec.json.encode(info)) if as_json else _row(info)) + "\n")
    if not found and not as_json:
        like = f" that begins with {prefix!r}" if prefix else ""
        advice = "--offset is too large" if offset else 'perdure run "…" begins one'
        screen.note(f"there is no {'more ' if offset else ''}session{like}; {advice}")
    if len(found) > limit:
        screen.note(f"there are more; --offset {offset + limit} shows the next ones, --limit {limit * 2} more at once")


def _row(info: "SessionInfo") -> str:
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.updated_at))
    origin = f"(fork of {one_line(info.parent)} at {info.at}) " if info.parent else ""
    row = f"{one_line(info.session_id):32}  {used}  {info.entries:5} entries  {origin}{one_line(info.title)}"
    return one_line(row, line_width(sys.stdout))


@sessions.command()
@click.argument("session_id", metavar="ID")
@click.argument("title")
@click.option("--json", "as_json", is_flag=True, help="Write what was done as a line of JSON.")
@store_option
def rename(session_id: str, title: str, *, as_json: bool, store: str | None) -> None:
    """Give session ID a title, which lists show instead of its first words."""
    import msgspec

    use_session(store, session_id, lambda session: session.rename(title))
    if as_json:
        Screen().say(json_line(msgspec.json.encode({"session_id": session_id, "title": title})) + "\n")
    else:
        Screen().note(one_line(f"session {session_id} is called {title!r} now"))


@sessions.command()
@click.argument("session_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Write what was done as a line of JSON.")
@store_option
@click.pass_context
def rm(context: click.Context, /, session_id: str, *, yes: bool, as_json: bool, store: str | None) -> None:
    """Remove session ID for good. One that is not there is no error. What its forks share with it stays, for them."""
    import msgspec

    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("nobody can be asked here; say --yes to remove the session")
        if not click.confirm(visible(f"Remove session {session_id!r} for good?"), err=True):
            context.exit(1)

    async def remove(store: "Store") -> bool:
        was_there = await store.info(session_id) is not None
        await store.delete(session_id)
        return was_there

    removed = use_store(store, remove)
    if as_json:
        Screen().say(json_line(msgspec.json.encode({"session_id": session_id, "removed": removed})) + "\n")
    else:
        Screen().note(one_line(f"session {session_id} is not there any more"))


for command in (show, fork, tree, export, import_, du, prune):
    sessions.add_command(command)
