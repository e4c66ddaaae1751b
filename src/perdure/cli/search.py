"""`perdure search`: find what was said, in all sessions or in one. Above: `main.py`. Below: stores."""

import re
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from .home import store_option, use_store
from .screen import Screen, json_line, line_width, one_line

if TYPE_CHECKING:
    from perdure.core.store import Hit, Store

_AGO: Final = re.compile(r"(\d{1,9})([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _moment(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    """The seconds since 1970 of how long ago it was (`90m`, `2d`), of a date, or of a date and a time."""
    if text is None:
        return None
    if ago := _AGO.fullmatch(text.strip()):
        return time.time() - int(ago[1]) * _SECONDS[ago[2]]
    from datetime import datetime

    try:
        return datetime.fromisoformat(text.strip()).timestamp()  # of this place, if it does not say
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{text!r} is no time; say 2d or 90m, 2026-03-01, or 2026-03-01T12:30") from None


@click.command()
@click.argument("query", metavar="QUERY…", nargs=-1, required=True)
@click.option("--session", "session_id", metavar="ID", default="", help="Only in this session.")
@click.option("--prefix", default="", help="Only in sessions whose id begins like this.")
@click.option("--role", type=click.Choice(["user", "assistant", "tool"]), help="Only what they said.")
@click.option("--since", callback=_moment, metavar="WHEN", help="Only since then: 2d, 90m, 2026-03-01, …")
@click.option("--until", callback=_moment, metavar="WHEN", help="Only until then.")
@click.option("--query-syntax", is_flag=True, help="QUERY is written in the query language of the store.")
@click.option("--limit", default=20, type=click.IntRange(min=1, max=100), help="How many.  [default: 20]")
@click.option("--offset", default=0, type=click.IntRange(min=0, max=1_000_000), help="Leave out as many of the best.")
@click.option("--json", "as_json", is_flag=True, help="Write each hit as a line of JSON.")
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
    """Find what people, models and tools have said.

    Every word of QUERY must occur, in any order; the best hits come first. With --query-syntax it may say more, in an
    SQLite store for instance: perdure search --query-syntax '"exit code" OR timeout*'
    """
    import msgspec

    async def find(opened: "Store") -> "list[Hit]":
        from perdure.keeping import searchable

        return await searchable(opened).search(
            " ".join(query),
            syntax="query" if query_syntax else "words",
            session_id=session_id,
            prefix=prefix,
            role=role or "",
            since=since,
            until=until,
            limit=limit,
            offset=offset,
        )

    hits = use_store(store, find)
    screen = Screen()
    for hit in hits:
        screen.say((json_line(msgspec.json.encode(hit)) if as_json else _row(hit)) + "\n")
    if not hits and not as_json:
        screen.note("nothing more was found" if offset else "nothing was found")
    if len(hits) == limit:
        screen.note(f"there may be more; --offset {offset + limit} shows the next ones")


def _row(hit: "Hit") -> str:
    said = time.strftime("%Y-%m-%d %H:%M", time.localtime(hit.at))
    row = f"{one_line(hit.session_id)} {hit.seq}  {said}  {hit.role}: {one_line(hit.snippet)}"
    return one_line(row, line_width(sys.stdout))
