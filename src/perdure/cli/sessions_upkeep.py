"""`perdure sessions du` and `prune`: how much there is, and how it becomes less. Above: `sessions.py`.
Below: `upkeep.py`.
"""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from . import amount
from .home import store_option, use_store
from .screen import Screen, json_line, line_width, one_line

if TYPE_CHECKING:
    from perdure.core.store import SessionInfo, Store, StoreSize


@click.command()
@click.option("--limit", default=20, type=click.IntRange(min=0, max=1_000_000), help="Sessions to show.  [default: 20]")
@click.option("--json", "as_json", is_flag=True, help="Write everything as one line of JSON, in bytes.")
@store_option
def du(*, limit: int, as_json: bool, store: str | None) -> None:
    """Show what sessions take, the largest first, and what the store takes."""
    import msgspec

    async def measure(opened: "Store") -> "StoreSize":
        from perdure.upkeep import maintained

        return await maintained(opened).size()

    size = use_store(store, measure)
    screen = Screen()
    if as_json:
        screen.say(json_line(msgspec.json.encode(size)) + "\n")
        return
    largest = sorted(size.sessions.items(), key=lambda each: (-each[1], each[0]))
    for session_id, count in largest[:limit]:
        screen.say(_row(count, one_line(session_id)) + "\n")
    if len(largest) > limit:
        rest = sum(count for _, count in largest[limit:])
        screen.say(_row(rest, f"in {len(largest) - limit} more sessions") + "\n")
    screen.say(_row(sum(size.sessions.values()), f"sessions: {len(largest)}") + "\n")
    screen.say(_row(size.search_bytes, "search index") + "\n")
    screen.say(_row(size.free_bytes, "free: `perdure sessions prune` gives it back when it removes something") + "\n")
    screen.say(_row(size.total_bytes, "total, with what holds it together") + "\n")


def _row(count: int, what: str) -> str:
    return one_line(f"{amount.human_size(count):>9}  {what}", line_width(sys.stdout))


@click.command()
@click.option("--older-than", callback=amount.seconds, metavar="30d", help="Those that were not used for so long.")
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="All but the N that were used last.")
@click.option(
    "--max-bytes", callback=amount.size, metavar="1G", help="The oldest, until the others have no more bytes."
)
@click.option("--waiting-too", is_flag=True, help="Also those that wait for an answer.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Write each session that is removed as a line of JSON.")
@store_option
@click.pass_context
def prune(
    context: click.Context,
    /,
    *,
    older_than: float | None,
    keep: int | None,
    max_bytes: int | None,
    waiting_too: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    store: str | None,
) -> None:
    """Remove the sessions that were not used for longest, for good, and give back their room.

    Say which with --older-than, --keep and --max-bytes; with several of them, each removes its share. --max-bytes
    counts what `perdure sessions du` shows for each session. A session that somebody drives is never removed, and one
    that waits for an answer only with --waiting-too. Forks stay whole when the session they were forked from goes.
    """
    from perdure.upkeep import expendable, remove

    if older_than is None and keep is None and max_bytes is None:
        raise click.UsageError("there is nothing to go by; say at least one of --older-than, --keep and --max-bytes")

    async def choose(opened: "Store") -> "list[SessionInfo]":
        return await expendable(
            opened,
            older_than_seconds=older_than,
            keep=keep,
            max_bytes=max_bytes,
            waiting_too=waiting_too,
            now=time.time(),
        )

    chosen = use_store(store, choose)
    screen = Screen()
    if dry_run or not chosen:
        _list(screen, chosen, as_json=as_json)
        screen.note("nothing was removed" if dry_run else "there is nothing to remove")
        return
    if not yes:
        _confirm(context, screen, chosen)
    removed = use_store(store, lambda opened: remove(opened, chosen))
    _list(screen, removed, as_json=as_json)
    skipped = len(chosen) - len(removed)
    screen.note(f"removed {len(removed)} sessions{f'; {skipped} have been used meanwhile' if skipped else ''}")


def _confirm(context: click.Context, screen: Screen, chosen: "Sequence[SessionInfo]") -> None:
    """Ask the person at the terminal, who sees which they are."""
    if not sys.stdin.isatty():
        raise click.UsageError("nobody can be asked here; say --yes to remove the sessions, or --dry-run to see them")
    for info in chosen:
        screen.note(_line(info))
    if not click.confirm(f"Remove these {len(chosen)} sessions for good?", err=True):
        context.exit(1)


def _list(screen: Screen, infos: "Sequence[SessionInfo]", *, as_json: bool) -> None:
    import msgspec

    for info in infos:
        screen.say((json_line(msgspec.json.encode(info)) if as_json else _line(info)) + "\n")


def _line(info: "SessionInfo") -> str:
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.updated_at))
    return one_line(f"{one_line(info.session_id)}  {used}  {one_line(info.title)}", line_width(sys.stdout))
