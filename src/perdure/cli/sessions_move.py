"""`perdure sessions export` and `import`: sessions as files. Above: `sessions.py`. Below: `transfer.py`.

A document goes to a file whole or not at all, and never replaces another unless that is asked for.
"""

# ruff: noqa: PTH105, PTH108, PTH123 - pathlib would cost every start milliseconds
import contextlib
import os
import sys
from typing import TYPE_CHECKING

import click

from perdure.core.error import ConfigError

from .home import store_option, use_store
from .screen import Screen, json_line, one_line

if TYPE_CHECKING:
    from perdure.core.store import Store

STREAM = "-"
"""Means standard input or standard output."""


@click.command()
@click.argument("session_id", metavar="ID")
@click.option("--output", "-o", metavar="FILE", default=STREAM, help="Where to; - is standard output.  [default: -]")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Write what was done as a line of JSON, if it goes to a file.")
@store_option
def export(session_id: str, *, output: str, force: bool, as_json: bool, store: str | None) -> None:
    """Write session ID as a JSON document, which `perdure sessions import` reads.

    It holds everything that was said: whoever has the file has that too.
    """
    import msgspec

    from perdure.transfer import export_session

    document = use_store(store, lambda opened: export_session(opened, session_id))
    data = msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
    screen = Screen()
    if output == STREAM:
        _to_stream(data)
        return
    write_file(output, data, replace=force)
    if as_json:
        done = {"session_id": session_id, "file": output, "entries": len(document["entries"]), "bytes": len(data)}
        screen.say(json_line(msgspec.json.encode(done)) + "\n")
    else:
        entries = len(document["entries"])
        screen.note(one_line(f"session {session_id} is in {output}: {entries} entries, {len(data):,} bytes"))


@click.command("import")
@click.argument("file")
@click.option("--as", "name", metavar="ID", help="What to call it.  [default: as it was called]")
@click.option("--json", "as_json", is_flag=True, help="Write the new session as a line of JSON.")
@store_option
def import_(file: str, *, name: str | None, as_json: bool, store: str | None) -> None:
    """Make a session out of a document that `perdure sessions export` wrote, and write its id.

    FILE may be -, for standard input. A session that is there already is left as it is.
    """
    import msgspec

    from perdure.transfer import import_session

    data = sys.stdin.buffer.read() if file == STREAM else _read(file)

    async def make(opened: "Store") -> bytes:
        made = await import_session(opened, data, session_id=name)
        return msgspec.json.encode(await opened.info(made))

    info = use_store(store, make)
    made = str(msgspec.json.decode(info)["session_id"])
    screen = Screen()
    screen.say((json_line(info) if as_json else one_line(made)) + "\n")
    screen.note(one_line(f"session {made} is there; see it with: perdure sessions show {made}"))


def write_file(path: str, data: bytes, *, replace: bool) -> None:
    """Write a file that its owner alone can read: it is there whole, on the disk, or not at all."""
    if not replace and os.path.lexists(path):
        raise ConfigError(f"{path!r} exists already, and has been left as it is: name another file, or say --force")
    unfinished = f"{path}.{os.getpid()}.unfinished"
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(unfinished, path)
        else:
            os.link(unfinished, path)  # which, unlike a rename, replaces nothing
    except FileExistsError:
        raise ConfigError(f"{path!r} has come into being, and has been left as it is: name another file") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished)


def _to_stream(data: bytes) -> None:
    """JSON escapes what a terminal would obey, but for what lies above ASCII; so it is written in ASCII alone."""
    Screen(raw=True).say("\n".join([json_line(line) for line in data.splitlines()]) + "\n")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{path!r} cannot be read: {error.strerror}; name a file that export wrote") from error
