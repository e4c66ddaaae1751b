"""`perdure files changes`, `undo` and `redo`: the changes that the tools of a session have made to files."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from perdure.core.error import ConfigError

from .perdure_home import run_with_session, snapshots_path, store_option
from .session_choice import session_argument
from .terminal_output import TerminalOutput, escape_controls, to_ascii_json, to_one_line

if TYPE_CHECKING:
    from perdure.file_history import FileChange, FileHistory, RestoredFile
    from perdure.runtime.session import Session

T = TypeVar("T")

_CONFLICT: Final = 3


@click.group()
def files() -> None:
    """Show, undo and redo the changes that the tools of a session have made to files."""


_snapshots_option = click.option(
    "--snapshots",
    metavar="DIR",
    help="The folder with the contents, if the tools of the session had another.  [default: ~/.perdure/snapshots]",
)


def _add_restore_options(command: Any) -> Any:
    for option in (
        click.option("--run", "run_id", default="", metavar="RUN", help="The run.  [default: the last]"),
        click.option("--dry-run", is_flag=True, help="Only print what would be done."),
        click.option("--overwrite", is_flag=True, help="Restore also files that others have changed since."),
        click.option("--workdir", metavar="PATH", help="The working folder.  [default: the one in the log]"),
        _snapshots_option,
        click.option("--json", "as_json", is_flag=True, help="Print each file as a line of JSON."),
        store_option,
    ):
        command = option(command)
    return command


@files.command()
@session_argument()
@click.option("--run", "run_id", default="", metavar="RUN", help="Only the changes of this run.")
@click.option("--diff", is_flag=True, help="Print the changes as diffs.")
@_snapshots_option
@click.option("--json", "as_json", is_flag=True, help="Print each change as a line of JSON.")
@store_option
def changes(
    session_id: str, *, run_id: str, diff: bool, snapshots: str | None, as_json: bool, store: str | None
) -> None:
    """List the changes that the tools of session ID have made to files, by run."""
    import msgspec

    async def read(history: "FileHistory") -> "list[tuple[FileChange, str]]":
        found = await history.changes(run_id)
        return [(each, await _build_diff(history, each) if diff else "") for each in found]

    screen = TerminalOutput()
    shown = ""
    for change, text in _use_history(store, session_id, None, read, snapshots):
        if as_json:
            screen.write(to_ascii_json(msgspec.json.encode(change)) + "\n")
            continue
        if change.run_id != shown:
            shown = change.run_id
            screen.write(f"run {to_one_line(shown)}{' (undone)' if change.undone else ''}\n")
        verb = "changed" if change.before else "created"
        screen.write(f"  {change.seq}  {verb}  {to_one_line(change.path)}\n")
        screen.write(escape_controls(text))
    if not shown and not as_json:
        screen.note("the tools of this session have changed no files")


@files.command()
@session_argument()
@_add_restore_options
@click.pass_context
def undo(context: click.Context, /, session_id: str, **options: Any) -> None:
    """Restore the files that the last run of session ID changed to their content before that run.

    A file that was changed by others since is left as it is, and the exit code is 3. Repeat the command to undo the run
    before.
    """
    context.exit(_restore(session_id, "undo", **options))


@files.command()
@session_argument()
@_add_restore_options
@click.pass_context
def redo(context: click.Context, /, session_id: str, **options: Any) -> None:
    """Restore the contents of the files of session ID that the last undo replaced."""
    context.exit(_restore(session_id, "redo", **options))


def _restore(
    session_id: str, way: str, *, run_id: str, dry_run: bool, overwrite: bool, workdir: str | None,
    snapshots: str | None, as_json: bool, store: str | None,
) -> int:  # fmt: skip
    import msgspec

    async def restore(history: "FileHistory") -> "list[RestoredFile]":
        work = history.undo if way == "undo" else history.redo
        return await work(run_id, dry_run=dry_run, overwrite=overwrite)

    done = _use_history(store, session_id, workdir, restore, snapshots)
    screen = TerminalOutput()
    for each in done:
        if as_json:
            screen.write(to_ascii_json(msgspec.json.encode(each)) + "\n")
        else:
            status = "would be restored" if dry_run and each.status == "restored" else each.status
            reason = f": {to_one_line(each.reason)}" if each.reason else ""
            screen.write(f"{status}  {to_one_line(each.path)}{reason}\n")
    if not done:
        screen.note(f"there is nothing to {way}")
    return _CONFLICT if _has_failed(done) else 0


def _has_failed(done: "Sequence[RestoredFile]") -> bool:
    return any(each.status in {"conflict", "refused"} for each in done)


def _use_history(
    store: str | None, session_id: str, workdir: str | None, work: "Callable[[FileHistory], Awaitable[T]]",
    snapshots: str | None,
) -> T:  # fmt: skip
    async def with_history(session: "Session") -> T:
        from perdure.file_history import FileHistory
        from perdure.hosts import SnapshotFolder

        return await work(FileHistory(session, SnapshotFolder(snapshots or snapshots_path()), workdir=workdir))

    return run_with_session(store, session_id, with_history)


async def _build_diff(history: "FileHistory", change: "FileChange") -> str:
    import difflib

    try:
        before, after = [
            (await history.load(each)).decode("utf-8", "replace").splitlines(keepends=True)
            for each in (change.before, change.after)
        ]
    except ConfigError as error:
        return f"    no diff: {error}\n"
    lines = difflib.unified_diff(before, after, f"a/{change.path}", f"b/{change.path}")
    return "".join([each if each.endswith("\n") else f"{each}\n" for each in lines])
