"""`perdure sessions fork` and `tree`: fork a session at an entry, and draw which session was forked from which."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from .perdure_home import build_session_not_found, run_with_session, run_with_store, store_option
from .session_choice import resolve_session, session_argument
from .terminal_output import TerminalOutput, line_width, to_ascii_json, to_one_line

if TYPE_CHECKING:
    from perdure.core.store import SessionInfo, Store
    from perdure.runtime.session import Session


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
    from perdure.runtime.stored_session import iterate_sessions

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
