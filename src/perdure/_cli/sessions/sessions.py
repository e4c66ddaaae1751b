"""`perdure sessions`: list, rename, remove and fork sessions, and draw their tree."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from perdure._cli.home import build_session_not_found, run_with_session, run_with_store, store_option
from perdure._cli.terminal.output import TerminalOutput, escape_controls, line_width, to_ascii_json, to_one_line

from .choice import MOST_SEARCHED, get_project_path, read_project, resolve_session, session_argument, shorten_id
from .prune import du, prune, remove_unused_snapshots
from .show import show
from .transfer import export, import_

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from perdure._core.log.store import SessionInfo, Store
    from perdure._runtime.session.session import Session


@click.command()
@session_argument(can_be_last=False)
@click.argument("new_id", metavar="[NEW_ID]", required=False)
@click.option("--at", type=click.IntRange(min=1), metavar="SEQ", help="Copy only the entries up to this number.")
@click.option("--json", "as_json", is_flag=True, help="Print the new session as a line of JSON.")
@store_option
def fork(session_id: str, new_id: str | None, *, at: int | None, as_json: bool, store: str | None) -> None:
    """Copy session ID into a new session, and print the new id. Without --at, all entries are copied.

    `perdure sessions show ID --json` shows the numbers of the entries.
    """
    import msgspec

    async def make(session: "Session") -> "SessionInfo | None":
        return await (await session.fork(new_id, at=at)).info()

    info = run_with_session(store, session_id, make)
    if info is None:
        raise build_session_not_found(session_id, store)
    screen = TerminalOutput()
    screen.write((to_ascii_json(msgspec.json.encode(info)) if as_json else to_one_line(info.session_id)) + "\n")
    name = to_one_line(info.session_id)
    screen.note(f'session {name} begins with {info.entries} entries; go on with: perdure run -s {name} "…"')


@click.command()
@click.argument("session_id", metavar="[ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print each session as a line of JSON, with its depth.")
@store_option
def tree(session_id: str | None, *, as_json: bool, store: str | None) -> None:
    """Draw which sessions were forked from which: all of them, or the tree of session ID."""
    import msgspec

    if session_id is not None:
        session_id = resolve_session(session_id, {"store": store})
    infos = run_with_store(store, _list_all)
    forks = _group_by_parent(infos)
    roots = forks.get("", []) if session_id is None else [_find_root(session_id, infos, store)]
    screen = TerminalOutput()
    for depth, margin, info in _walk_tree(roots, forks):
        if as_json:
            node = {**msgspec.to_builtins(info), "depth": depth}
            screen.write(to_ascii_json(msgspec.json.encode(node)) + "\n")
        else:
            mark = " *" if info.session_id == session_id else ""
            screen.write(_format_node(margin, info, mark) + "\n")


async def _list_all(store: "Store") -> "list[SessionInfo]":
    from perdure._runtime.session.stored import iterate_sessions

    return [each async for each in iterate_sessions(store)]


def _group_by_parent(infos: "Sequence[SessionInfo]") -> "dict[str, list[SessionInfo]]":
    forks: dict[str, list[SessionInfo]] = {}
    for info in infos:
        forks.setdefault(info.parent, []).append(info)
    return forks


def _find_root(session_id: str, infos: "Sequence[SessionInfo]", store: str | None) -> "SessionInfo":
    """Return the session that this one was originally forked from."""
    known = {each.session_id: each for each in infos}
    if session_id not in known:
        raise build_session_not_found(session_id, store)
    info = known[session_id]
    while info.parent in known:
        info = known[info.parent]
    return info


def _walk_tree(
    roots: "Sequence[SessionInfo]", forks: "Mapping[str, Sequence[SessionInfo]]"
) -> "Iterator[tuple[int, str, SessionInfo]]":
    """Yield each session with its depth and tree prefix. Not recursive, as forks can be nested deeply."""
    waiting = [(0, "", "", each) for each in reversed(roots)]
    while waiting:
        depth, margin, elbow, info = waiting.pop()
        yield depth, margin + elbow, info
        below = forks.get(info.session_id, ())
        deeper = margin + {"": "", "├─ ": "│  ", "└─ ": "   "}[elbow]
        elbows = ["└─ ", *["├─ "] * (len(below) - 1)]
        waiting += [(depth + 1, deeper, each, one) for each, one in zip(elbows, reversed(below), strict=False)]


def _format_node(margin: str, info: "SessionInfo", mark: str) -> str:
    at = f" at {info.at}" if info.parent else ""
    row = f"{margin}{to_one_line(info.session_id)}{mark}{at}  {info.entries} entries  {to_one_line(info.title)}"
    return to_one_line(row, line_width(sys.stdout))


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
    from perdure._runtime.session.stored import iterate_sessions

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
    from perdure._runtime.session.stored import iterate_sessions

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
        from perdure._core.log.reserved_ids import check_not_reserved
        from perdure._runtime.maintenance import list_snapshot_digests

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
