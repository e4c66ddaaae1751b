"""`perdure search`: full-text search in the messages of all sessions, or of one."""

import re
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from perdure._cli.home import run_with_store, store_option
from perdure._cli.terminal.output import TerminalOutput, line_width, to_ascii_json, to_one_line

if TYPE_CHECKING:
    from perdure._core.log.store import Hit, Store

_AGO: Final = re.compile(r"(\d{1,9})([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _parse_time(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    """Parse a time as seconds since 1970: an age (`90m`, `2d`), a date, or a date and time (click callback)."""
    if text is None:
        return None
    if ago := _AGO.fullmatch(text.strip()):
        return time.time() - int(ago[1]) * _SECONDS[ago[2]]
    from datetime import datetime

    try:
        return datetime.fromisoformat(text.strip()).timestamp()  # local time, unless it names a zone
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{text!r} is not a time; use 2d or 90m, 2026-03-01, or 2026-03-01T12:30") from None


@click.command()
@click.argument("query", metavar="QUERY…", nargs=-1, required=True)
@click.option("--session", "session_id", metavar="ID", default="", help="Only in this session.")
@click.option("--prefix", default="", help="Only in sessions whose id begins with this.")
@click.option("--role", type=click.Choice(["user", "assistant", "tool"]), help="Only messages of this role.")
@click.option("--since", callback=_parse_time, metavar="WHEN", help="Only since this time: 2d, 90m, 2026-03-01, …")
@click.option("--until", callback=_parse_time, metavar="WHEN", help="Only until this time.")
@click.option("--query-syntax", is_flag=True, help="Read QUERY in the query language of the store.")
@click.option("--limit", default=20, type=click.IntRange(min=1, max=100), help="Number of results.  [default: 20]")
@click.option("--offset", default=0, type=click.IntRange(min=0, max=1_000_000), help="Number of results to skip.")
@click.option("--json", "as_json", is_flag=True, help="Print each result as a line of JSON.")
@store_option
def search(
    query: tuple[str, ...],
    *,
    session_id: str,
    prefix: str,
    role: str | None,
    since: float | None,
    until: float | None,
    query_syntax: bool,
    limit: int,
    offset: int,
    as_json: bool,
    store: str | None,
) -> None:
    """Search the messages of users, models and tools.

    Every word of QUERY must occur, in any order; best matches first. --query-syntax allows the query language of the
    store, for SQLite for example: perdure search --query-syntax '"exit code" OR timeout*'
    """
    import msgspec

    async def find(opened: "Store") -> "list[Hit]":
        from perdure._runtime.session.stored import require_searchable_store

        from .choice import find_session

        return await require_searchable_store(opened).search(
            " ".join(query),
            syntax="query" if query_syntax else "words",
            session_id=await find_session(opened, session_id),
            prefix=prefix,
            role=role or "",
            since=since,
            until=until,
            limit=limit,
            offset=offset,
        )

    hits = run_with_store(store, find)
    screen = TerminalOutput()
    for hit in hits:
        screen.write((to_ascii_json(msgspec.json.encode(hit)) if as_json else _format_hit(hit)) + "\n")
    if not hits and not as_json:
        screen.note("nothing more was found" if offset else "nothing was found")
    if len(hits) == limit:
        screen.note(f"there may be more; --offset {offset + limit} shows the next ones")


def _format_hit(hit: "Hit") -> str:
    said = time.strftime("%Y-%m-%d %H:%M", time.localtime(hit.at))
    row = f"{to_one_line(hit.session_id)} {hit.seq}  {said}  {hit.role}: {to_one_line(hit.snippet)}"
    return to_one_line(row, line_width(sys.stdout))
