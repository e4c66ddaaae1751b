"""`perdure sessions export` and `import`: write a session to a JSON file, and create a session from one.

A file is written whole or not at all, and replaces another only with --force.
"""

# ruff: noqa: PTH105, PTH108, PTH123 - pathlib would cost every start milliseconds
import contextlib
import os
import stat
import sys
from typing import TYPE_CHECKING, Any

import click

from perdure._cli.home import run_with_session, run_with_store, store_option
from perdure._cli.terminal.output import TerminalOutput, to_ascii_json, to_one_line
from perdure._core.values.error import ConfigError

from .choice import session_argument

if TYPE_CHECKING:
    from perdure._core.log.store import Store
    from perdure._runtime.transfer import ImportReport

STREAM = "-"
"""File name that means standard input or standard output."""


@click.command()
@session_argument()
@click.option("--output", "-o", metavar="FILE", default=STREAM, help="File; - is standard output.  [default: -]")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON, with --output.")
@store_option
def export(session_id: str, *, output: str, force: bool, as_json: bool, store: str | None) -> None:
    """Export session ID as a JSON document for `perdure sessions import`.

    The document contains the whole conversation.
    """
    import msgspec

    from perdure._runtime.transfer import export_session

    document = run_with_session(store, session_id, lambda session: export_session(session.store, session_id))
    data = msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
    screen = TerminalOutput()
    if output == STREAM:
        _print_json(data)
        return
    write_file_atomically(output, data, replace=force)
    if as_json:
        done = {"session_id": session_id, "file": output, "entries": len(document["entries"]), "bytes": len(data)}
        screen.write(to_ascii_json(msgspec.json.encode(done)) + "\n")
    else:
        entries = len(document["entries"])
        screen.note(
            to_one_line(f"session {session_id} is exported to {output}: {entries} entries, {len(data):,} bytes")
        )


@click.command("import")
@click.argument("file")
@click.option("--as", "name", metavar="ID", help="Id of the new session.  [default: its original id]")
@click.option("--trusted", is_flag=True, help="Import everything: only for a file that nobody else could change.")
@click.option("--json", "as_json", is_flag=True, help="Print the new session as a line of JSON.")
@store_option
def import_(file: str, *, name: str | None, trusted: bool, as_json: bool, store: str | None) -> None:
    """Import a session from a document written by `perdure sessions export`, and print its id.

    FILE may be -, for standard input. An existing session is never replaced. The conversation is imported; grants,
    decisions, settings, questions, inbox items and jobs are dropped, and what was dropped is printed.
    """
    import msgspec

    from perdure._runtime.transfer import import_session

    data = sys.stdin.buffer.read() if file == STREAM else read_file(file)

    async def make(opened: "Store") -> "tuple[ImportReport, dict[str, Any]]":
        report = await import_session(opened, data, session_id=name, trusted=trusted, by=_get_user_name())
        return report, msgspec.to_builtins(await opened.info(report.session_id))

    report, info = run_with_store(store, make)
    info["imported"] = msgspec.to_builtins(report)
    screen = TerminalOutput()
    screen.write((to_ascii_json(msgspec.json.encode(info)) if as_json else to_one_line(report.session_id)) + "\n")
    for kind, count in sorted(report.dropped.items()):
        screen.note(to_one_line(f"dropped {count} {kind}"))
    for note in report.notes:
        screen.note(to_one_line(note))
    made = report.session_id
    screen.note(to_one_line(f"session {made} is imported; show it with: perdure sessions show {made}"))


def _get_user_name() -> str:
    """Return the name of the user of this process; empty if the system knows none."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


def write_file_atomically(path: str, data: bytes, *, replace: bool) -> None:
    """Write a file atomically, synced to disk and readable by its owner only.

    Raises `ConfigError` if it exists and `replace` is False, or if it is a link or no regular file.
    """
    _check_free(path, replace=replace)
    unfinished = f"{path}.{os.urandom(8).hex()}.unfinished"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)  # never a file that another made
    descriptor = os.open(unfinished, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(unfinished, path)
        else:
            os.link(unfinished, path)  # unlike a rename, it replaces nothing
    except FileExistsError:
        raise ConfigError(f"{path!r} was created meanwhile, and is not replaced: name another file") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished)


def _check_free(path: str, *, replace: bool) -> None:
    """Raise `ConfigError` if something at `path` must not be replaced."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:  # there is none; if it is another problem, opening the file says so
        return
    if not replace:
        raise ConfigError(f"{path!r} exists already: name another file, or use --force")
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path!r} is a link or no regular file, and is not replaced: name another file")


def _print_json(data: bytes) -> None:
    """Print JSON in ASCII only, so that a terminal cannot obey anything in it."""
    TerminalOutput(raw=True).write("\n".join([to_ascii_json(line) for line in data.splitlines()]) + "\n")


def read_file(path: str) -> bytes:
    """Return the content of a file that the user names. Raises `ConfigError` if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{path!r} cannot be read: {error.strerror}; name a file that export wrote") from error
