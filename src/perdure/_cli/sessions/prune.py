"""`perdure sessions du` and `prune`: show the size of sessions, and delete old ones."""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from perdure._cli.home import resolve_store_spec, run_with_store, snapshots_path, store_option
from perdure._cli.terminal import amounts as amount
from perdure._cli.terminal.output import TerminalOutput, line_width, to_ascii_json, to_one_line

if TYPE_CHECKING:
    from perdure._core.log.store import SessionInfo, Store, StoreSize


@click.command()
@click.option("--limit", default=20, type=click.IntRange(min=0, max=1_000_000), help="How many to list.  [default: 20]")
@click.option("--json", "as_json", is_flag=True, help="Print everything as one line of JSON, sizes in bytes.")
@store_option
def du(*, limit: int, as_json: bool, store: str | None) -> None:
    """Show the size of each session, largest first, and of the store."""
    import msgspec

    async def measure(opened: "Store") -> "StoreSize":
        from perdure._runtime.maintenance import require_maintainable_store

        return await require_maintainable_store(opened).size()

    size = run_with_store(store, measure)
    screen = TerminalOutput()
    if as_json:
        screen.write(to_ascii_json(msgspec.json.encode(size)) + "\n")
        return
    largest = sorted(size.sessions.items(), key=lambda each: (-each[1], each[0]))
    for session_id, count in largest[:limit]:
        screen.write(_format_size_row(count, to_one_line(session_id)) + "\n")
    if len(largest) > limit:
        rest = sum(count for _, count in largest[limit:])
        screen.write(_format_size_row(rest, f"in {len(largest) - limit} more sessions") + "\n")
    screen.write(_format_size_row(sum(size.sessions.values()), f"sessions: {len(largest)}") + "\n")
    screen.write(_format_size_row(size.search_bytes, "search index") + "\n")
    screen.write(
        _format_size_row(size.free_bytes, "free: given back when `perdure sessions prune` removes something") + "\n"
    )
    screen.write(_format_size_row(size.total_bytes, "total, including overhead") + "\n")


def _format_size_row(count: int, what: str) -> str:
    return to_one_line(f"{amount.format_size(count):>9}  {what}", line_width(sys.stdout))


@click.command()
@click.option(
    "--older-than", callback=amount.parse_duration, metavar="30d", help="Remove those not used for this long."
)
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Remove all but the N most recently used.")
@click.option(
    "--max-bytes",
    callback=amount.parse_size,
    metavar="1G",
    help="Remove the oldest until the rest fits this size.",
)
@click.option("--waiting-too", is_flag=True, help="Also remove sessions that wait for an answer.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, without removing it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print each removed session as a line of JSON.")
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
    """Delete the least recently used sessions permanently, and free their space.

    Choose them with --older-than, --keep and --max-bytes; if several are given, each applies. --max-bytes counts the
    sizes that `perdure sessions du` shows per session. A session with an active run is never deleted, and one that
    waits for an answer only with --waiting-too. Forks keep the entries they share with deleted sessions. Contents of
    files that no session needs for an undo any more are deleted too, unless they were stored in the last hour.
    """
    from perdure._runtime.maintenance import delete_sessions, list_expendable_sessions

    if older_than is None and keep is None and max_bytes is None:
        raise click.UsageError("there is no criterion; give at least one of --older-than, --keep and --max-bytes")

    async def choose(opened: "Store") -> "list[SessionInfo]":
        return await list_expendable_sessions(
            opened,
            older_than_seconds=older_than,
            keep=keep,
            max_bytes=max_bytes,
            waiting_too=waiting_too,
            now=time.time(),
        )

    chosen = run_with_store(store, choose)
    screen = TerminalOutput()
    if dry_run or not chosen:
        _print_sessions(screen, chosen, as_json=as_json)
        screen.note("nothing was removed" if dry_run else "there is nothing to remove")
        if not dry_run:
            remove_unused_snapshots(store, screen)
        return
    if not yes:
        _confirm_removal(context, screen, chosen)
    removed = run_with_store(store, lambda opened: delete_sessions(opened, chosen))
    _print_sessions(screen, removed, as_json=as_json)
    skipped = len(chosen) - len(removed)
    kept = f"; {skipped} {'was' if skipped == 1 else 'were'} used meanwhile and kept" if skipped else ""
    screen.note(f"removed {_count_sessions(len(removed))}{kept}")
    remove_unused_snapshots(store, screen)


def remove_unused_snapshots(store: str | None, screen: TerminalOutput) -> None:
    """Delete the file snapshots that no session of the store needs, and print their number and size if any."""
    from perdure._io.files.snapshots import SnapshotFolder
    from perdure._runtime.maintenance import prune_snapshots

    folder = snapshots_path(resolve_store_spec(store))
    removed = run_with_store(store, lambda opened: prune_snapshots(SnapshotFolder(folder), opened, now=time.time()))
    if removed.count:
        freed = amount.format_size(removed.size_bytes).strip()
        screen.note(f"removed {removed.count} contents of files that no session needs ({freed})")


def _confirm_removal(context: click.Context, screen: TerminalOutput, chosen: "Sequence[SessionInfo]") -> None:
    """List the sessions and ask at the terminal whether to delete them."""
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask at; use --yes to remove the sessions, or --dry-run")
    for info in chosen:
        screen.note(_format_session(info))
    if not click.confirm(f"Remove {_count_sessions(len(chosen))} permanently?", err=True):
        context.exit(1)


def _count_sessions(count: int) -> str:
    return f"{count} session{'' if count == 1 else 's'}"


def _print_sessions(screen: TerminalOutput, infos: "Sequence[SessionInfo]", *, as_json: bool) -> None:
    import msgspec

    for info in infos:
        screen.write((to_ascii_json(msgspec.json.encode(info)) if as_json else _format_session(info)) + "\n")


def _format_session(info: "SessionInfo") -> str:
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.updated_at))
    return to_one_line(f"{to_one_line(info.session_id)}  {used}  {to_one_line(info.title)}", line_width(sys.stdout))
