"""`perdure sessions fork` and `tree`: sessions that begin like others. Above: `sessions.py`. Below: sessions."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from .home import no_session, store_option, use_session, use_store
from .screen import Screen, json_line, line_width, one_line

if TYPE_CHECKING:
    from perdure.core.store import SessionInfo, Store
    from perdure.session import Session


@click.command()
@click.argument("session_id", metavar="ID")
@click.argument("new_id", metavar="[NEW_ID]", required=False)
@click.option("--at", type=click.IntRange(min=1), metavar="SEQ", help="Only the entries up to this number.")
@click.option("--json", "as_json", is_flag=True, help="Write the new session as a line of JSON.")
@store_option
def fork(session_id: str, new_id: str | None, *, at: int | None, as_json: bool, store: str | None) -> None:
    """Make another session that begins like session ID, and write its id.

    `perdure sessions show ID --json` tells the numbers of the entries.
    """
    import msgspec

    async def make(session: "Session") -> "SessionInfo | None":
        return await (await session.fork(new_id, at=at)).info()

    info = use_session(store, session_id, make)
    if info is None:
        raise no_session(session_id)
    screen = Screen()
    screen.say((json_line(msgspec.json.encode(info)) if as_json else one_line(info.session_id)) + "\n")
    name = one_line(info.session_id)
    screen.note(f'session {name} begins with {info.entries} entries; go on with: perdure run -s {name} "…"')


@click.command()
@click.argument("session_id", metavar="[ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Write each session as a line of JSON, with its depth.")
@store_option
def tree(session_id: str | None, *, as_json: bool, store: str | None) -> None:
    """Draw which sessions were forked from which: all of them, or the tree that session ID belongs to."""
    import msgspec

    infos = use_store(store, _all)
    forks = _by_parent(infos)
    roots = forks.get("", []) if session_id is None else [_root(session_id, infos)]
    screen = Screen()
    for depth, margin, info in _walk(roots, forks):
        if as_json:
            node = {**msgspec.to_builtins(info), "depth": depth}
            screen.say(json_line(msgspec.json.encode(node)) + "\n")
        else:
            mark = " *" if info.session_id == session_id else ""
            screen.say(_line(margin, info, mark) + "\n")


async def _all(store: "Store") -> "list[SessionInfo]":
    from perdure.keeping import every

    return [each async for each in every(store)]


def _by_parent(infos: "Sequence[SessionInfo]") -> "dict[str, list[SessionInfo]]":
    forks: dict[str, list[SessionInfo]] = {}
    for info in infos:
        forks.setdefault(info.parent, []).append(info)
    return forks


def _root(session_id: str, infos: "Sequence[SessionInfo]") -> "SessionInfo":
    """The session that this one goes back to."""
    known = {each.session_id: each for each in infos}
    if session_id not in known:
        raise no_session(session_id)
    info = known[session_id]
    while info.parent in known:
        info = known[info.parent]
    return info


def _walk(
    roots: "Sequence[SessionInfo]", forks: "Mapping[str, Sequence[SessionInfo]]"
) -> "Iterator[tuple[int, str, SessionInfo]]":
    """Each session with its depth and what is drawn in front of it. Forks of forks of forks may be many."""
    waiting = [(0, "", "", each) for each in reversed(roots)]
    while waiting:
        depth, margin, elbow, info = waiting.pop()
        yield depth, margin + elbow, info
        below = forks.get(info.session_id, ())
        deeper = margin + {"": "", "├─ ": "│  ", "└─ ": "   "}[elbow]
        elbows = ["└─ ", *["├─ "] * (len(below) - 1)]
        waiting += [(depth + 1, deeper, each, one) for each, one in zip(elbows, reversed(below), strict=False)]


def _line(margin: str, info: "SessionInfo", mark: str) -> str:
    at = f" at {info.at}" if info.parent else ""
    row = f"{margin}{one_line(info.session_id)}{mark}{at}  {info.entries} entries  {one_line(info.title)}"
    return one_line(row, line_width(sys.stdout))
