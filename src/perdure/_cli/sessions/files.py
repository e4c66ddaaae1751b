"""`perdure files changes`, `undo` and `redo`: the changes that a session has made to files."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from perdure._cli.home import resolve_store_spec, run_with_session, snapshots_path, store_option
from perdure._cli.terminal.output import TerminalOutput, escape_controls, to_ascii_json, to_one_line
from perdure._core.values.error import ConfigError

from .choice import session_argument

if TYPE_CHECKING:
    from perdure._runtime.session.session import Session
    from perdure._tools.files.history import FileChange, FileHistory, InterruptedRestore, RestoredFile, UntrackedCommand

T = TypeVar("T")

_CONFLICT: Final = 3


@click.group()
def files() -> None:
    """Show, undo and redo the changes that a session has made to files."""


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
    """List the changes that session ID has made to files, and what of its commands cannot be undone."""
    import msgspec

    async def read(history: "FileHistory") -> "tuple[list[FileChange], list[UntrackedCommand], list[str], str]":
        found = await history.changes(run_id)
        cut_off = describe_interrupted(await history.find_interrupted())
        diffs = [await build_diff(history, each) for each in found if diff]
        return found, await history.commands(run_id), diffs, cut_off

    changed, commands, diffs, cut_off = _use_history(store, session_id, None, read, snapshots)
    entries: list[FileChange | UntrackedCommand] = sorted([*changed, *commands], key=lambda each: each.seq)
    screen = TerminalOutput()
    if as_json:
        screen.write("".join([to_ascii_json(msgspec.json.encode(each)) + "\n" for each in entries]))
        return
    undone = {each.run_id for each in changed} - {each.run_id for each in changed if not each.undone}
    diff_of = {id(each): text for each, text in zip(changed, diffs, strict=False)}
    shown = None
    for entry in entries:
        if entry.run_id != shown:
            shown = entry.run_id
            screen.write(f"run {to_one_line(shown)}{' (undone)' if shown in undone else ''}\n")
        screen.write(f"  {entry.seq}  {_describe_entry(entry)}\n")
        screen.write(escape_controls(diff_of.get(id(entry), "")))
    if not changed:
        screen.note("no changes of files are recorded in this session")
    if cut_off:
        screen.note(cut_off)
    if commands:
        screen.note("commands have changed, or may have changed, files in a way that cannot be undone")


@files.command()
@session_argument()
@_add_restore_options
@click.pass_context
def undo(context: click.Context, /, session_id: str, **options: Any) -> None:
    """Restore the files that the last run of session ID changed to their content before that run.

    A file that was changed by others since is left as it is, and the exit code is 3; the next undo is about the same
    run again. Once all is restored, repeat the command to undo the run before. A note names what commands of the agent
    have changed and cannot be undone.
    """
    context.exit(_restore(session_id, "undo", **options))


@files.command()
@session_argument()
@_add_restore_options
@click.pass_context
def redo(context: click.Context, /, session_id: str, **options: Any) -> None:
    """Put back what the last undo in session ID has replaced."""
    context.exit(_restore(session_id, "redo", **options))


def _restore(
    session_id: str, way: str, *, run_id: str, dry_run: bool, overwrite: bool, workdir: str | None,
    snapshots: str | None, as_json: bool, store: str | None,
) -> int:  # fmt: skip
    import msgspec

    async def restore(history: "FileHistory") -> "tuple[list[RestoredFile], list[UntrackedCommand]]":
        work = history.undo if way == "undo" else history.redo
        done = await work(run_id, dry_run=dry_run, overwrite=overwrite)
        return done, await list_commands_since(history, done) if way == "undo" else []

    done, commands = _use_history(store, session_id, workdir, restore, snapshots)
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
    if commands:
        screen.note("commands have changed, or may have changed, files in a way that cannot be undone:")
    for command in commands:
        screen.note(f"  {describe_untracked(command)}")
    return _CONFLICT if _has_failed(done) else 0


def describe_untracked(command: "UntrackedCommand") -> str:
    """Return a command line, with what it has changed and cannot be undone, on one line."""
    return to_one_line(f"{command.line}  (not recorded: {'; '.join(command.not_recorded)})")


def describe_interrupted(found: "InterruptedRestore | None") -> str:
    """Return a note about an undo or redo that was cut off; empty if there is none."""
    if found is None:
        return ""
    done, total = len(found.restored), len(found.restored) + len(found.missing)
    other = "redo" if found.way == "undo" else "undo"
    return (
        f"an {found.way} of run {to_one_line(found.run_id)} was cut off after {done} of {total} files: {found.way} "
        f"finishes it, {other} takes it back"
    )


def _describe_entry(entry: "FileChange | UntrackedCommand") -> str:
    """Return what an entry says, on one line."""
    line = getattr(entry, "line", None)
    if line is not None:
        return f"command  {describe_untracked(cast('UntrackedCommand', entry))}"
    change = cast("FileChange", entry)
    is_there = change.after or change.kind == "folder"
    verb = "deleted" if change.before and not change.after else "changed" if change.before else "created"
    verb = verb if is_there or change.before else "changed"
    doubt = "" if change.certain else "  (its call was cut off: it, or others, have made this change)"
    return f"{verb}  {to_one_line(change.path)}{f'  by {to_one_line(change.command)}' if change.command else ''}{doubt}"


async def list_commands_since(history: "FileHistory", done: "Sequence[RestoredFile]") -> "list[UntrackedCommand]":
    """Return the commands of an undone run and of later runs that have changed something that cannot be undone."""
    run_id = done[0].run_id if done else ""
    first = min([each.seq for each in await history.changes(run_id)], default=0)
    return [each for each in await history.commands() if each.run_id == run_id or each.seq > first]


def _has_failed(done: "Sequence[RestoredFile]") -> bool:
    return any(each.status in {"conflict", "refused"} for each in done)


def _use_history(
    store: str | None, session_id: str, workdir: str | None, work: "Callable[[FileHistory], Awaitable[T]]",
    snapshots: str | None,
) -> T:  # fmt: skip
    async def with_history(session: "Session") -> T:
        return await work(open_file_history(session, resolve_store_spec(store), snapshots, workdir))

    return run_with_session(store, session_id, with_history)


def open_file_history(
    session: "Session[Any]", store: str, snapshots: str | None = None, workdir: str | None = None
) -> "FileHistory":
    """Return the file history of a session; saved contents are in the folder `snapshots`, or in that of its store."""
    from perdure._io.files.snapshots import SnapshotFolder
    from perdure._tools.files.history import FileHistory

    return FileHistory(session, SnapshotFolder(snapshots or snapshots_path(store)), workdir=workdir)


async def build_diff(history: "FileHistory", change: "FileChange") -> str:
    """Return a file change as a unified diff; if the saved contents no longer exist, a line that says so."""
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
