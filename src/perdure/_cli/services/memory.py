"""`perdure memory`: list, search, add, pin, forget, export and import what agents remember across sessions."""

import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar

import click

from perdure._cli.sessions.transfer import STREAM, read_file, write_file_atomically
from perdure._cli.terminal.output import TerminalOutput, line_width, to_ascii_json, to_one_line
from perdure._core.values.error import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure._work.memory.long_term import LongTermMemory
    from perdure._work.memory.record import MemoryRecord

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")

_json_option = click.option("--json", "as_json", is_flag=True, help="Print each memory as a line of JSON.")
_tag_option = click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only memories with this tag.")
_kind_option = click.option("--kind", type=click.Choice(["fact", "entity", "episode"]), help="Only of this kind.")


def _scope_options(command: F) -> F:
    """Add the options that say whose memories are meant, and in which file."""
    for option in (
        click.option("--project", default="", help="Project that the memories are about.  [default: none]"),
        click.option("--user", default="", help="User whose memories these are.  [default: none]"),
        click.option("--file", metavar="PATH", help="File of memories.  [default: memory.db in ~/.perdure]"),
    ):
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@click.pass_context
def memory(context: click.Context) -> None:
    """List, search and change what agents remember across sessions.

    An agent has a memory if its perdure.toml has a table [memory]. Memories belong to a user, a project, both or
    neither; --user and --project say which.
    """
    if context.invoked_subcommand is None:
        TerminalOutput().write(context.get_help() + "\n")


@memory.command("list")
@_tag_option
@_kind_option
@click.option("--pinned", is_flag=True, help="Only pinned memories, in the order in which they are sent.")
@click.option("--limit", default=50, type=click.IntRange(min=1, max=1_000), help="Number of memories.  [default: 50]")
@click.option("--offset", default=0, type=click.IntRange(min=0), help="Number of memories to skip.")
@_json_option
@_scope_options
def list_memories(
    *, tags: tuple[str, ...], kind: str | None, pinned: bool, limit: int, offset: int, as_json: bool, **place: Any
) -> None:
    """List memories, the latest first."""

    async def find(opened: "LongTermMemory") -> "list[MemoryRecord]":
        if pinned:
            return (await opened.list_pinned())[offset : offset + limit]
        return await opened.list_memories(tags=tags, kind=kind or "", limit=limit, offset=offset)

    found = _use_memory(place, find)
    _print_memories(found, as_json=as_json)
    if len(found) == limit:
        TerminalOutput().note(f"there may be more; --offset {offset + limit} shows the next ones")


@memory.command()
@click.argument("query", metavar="QUERY…", nargs=-1, required=True)
@_tag_option
@_kind_option
@click.option("--limit", default=10, type=click.IntRange(min=1, max=100), help="Number of memories.  [default: 10]")
@_json_option
@_scope_options
def search(
    query: tuple[str, ...], *, tags: tuple[str, ...], kind: str | None, limit: int, as_json: bool, **place: Any
) -> None:
    """Search memories as an agent recalls them: by text and by age. QUERY is text without operators."""
    import msgspec

    hits = _use_memory(place, lambda opened: opened.recall(" ".join(query), limit=limit, tags=tags, kind=kind or ""))
    if as_json:
        for hit in hits:
            TerminalOutput().write(to_ascii_json(msgspec.json.encode(hit)) + "\n")
        return
    _print_memories([hit.memory for hit in hits], as_json=False)


@memory.command()
@click.argument("text", metavar="TEXT…", nargs=-1, required=True)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag to find it by.")
@click.option("--pin", "pinned", is_flag=True, help="Pin it, so that it is in every request.")
@_json_option
@_scope_options
def add(text: tuple[str, ...], *, tags: tuple[str, ...], pinned: bool, as_json: bool, **place: Any) -> None:
    """Add TEXT as a memory of your own, and print its id."""

    async def store(opened: "LongTermMemory") -> "MemoryRecord":
        stored = await opened.remember(" ".join(text), tags=tags, sources=("person",))
        return (await opened.pin(stored.id) or stored) if pinned else stored

    stored = _use_memory(place, store)
    if as_json:
        _print_memories([stored], as_json=True)
    else:
        TerminalOutput().write(f"{stored.id}\n")


@memory.command()
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON.")
@_scope_options
def forget(ids: tuple[str, ...], *, as_json: bool, **place: Any) -> None:
    """Delete memories, and erase their bytes from the file."""
    import msgspec

    async def delete(opened: "LongTermMemory") -> list[str]:
        return [each for each in ids if not await opened.forget(each)]

    missing = _use_memory(place, delete)
    done = [each for each in ids if each not in missing]
    if as_json:
        TerminalOutput().write(to_ascii_json(msgspec.json.encode({"forgotten": done, "unknown": missing})) + "\n")
    else:
        TerminalOutput().note(f"{len(done)} forgotten")
    if missing:
        raise _build_unknown_error(missing[0])


@memory.command()
@click.argument("memory_id", metavar="ID")
@_json_option
@_scope_options
def pin(memory_id: str, *, as_json: bool, **place: Any) -> None:
    """Pin a memory, so that it is in every request of agents that have this memory."""
    _change_pin(memory_id, place, pinned=True, as_json=as_json)


@memory.command()
@click.argument("memory_id", metavar="ID")
@_json_option
@_scope_options
def unpin(memory_id: str, *, as_json: bool, **place: Any) -> None:
    """Unpin a memory: it is kept, and sent only when it is recalled."""
    _change_pin(memory_id, place, pinned=False, as_json=as_json)


@memory.command()
@click.option("--output", "-o", metavar="FILE", default=STREAM, help="File; - is standard output.  [default: -]")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON, with --output.")
@_scope_options
def export(*, output: str, force: bool, as_json: bool, **place: Any) -> None:
    """Export all memories as lines of JSON for `perdure memory import`."""
    import msgspec

    async def collect(opened: "LongTermMemory") -> list[bytes]:
        return [line async for line in opened.export()]

    lines = _use_memory(place, collect)
    screen = TerminalOutput()
    if output == STREAM:
        for line in lines:
            screen.write(to_ascii_json(line.rstrip()) + "\n")
        return
    write_file_atomically(output, b"".join(lines), replace=force)
    if as_json:
        screen.write(to_ascii_json(msgspec.json.encode({"file": output, "memories": len(lines)})) + "\n")
    else:
        screen.note(to_one_line(f"{len(lines)} memories are exported to {output}"))


@memory.command("import")
@click.argument("file_to_import", metavar="FILE")
@click.option("--trusted", is_flag=True, help="Without the label `imported`: only for a file of your own.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON.")
@_scope_options
def import_(file_to_import: str, *, trusted: bool, as_json: bool, **place: Any) -> None:
    """Import memories that `perdure memory export` wrote. FILE may be -, for standard input.

    Those that are there already are left as they are. Imported memories have the label `imported`: they count as text
    that anybody may have written, and cannot be pinned.
    """
    import msgspec

    data = sys.stdin.buffer.read() if file_to_import == STREAM else read_file(file_to_import)
    report = _use_memory(place, lambda opened: opened.import_lines(data.split(b"\n"), trusted=trusted))
    screen = TerminalOutput()
    if as_json:
        screen.write(to_ascii_json(msgspec.json.encode(report)) + "\n")
    else:
        screen.note(f"{report.added} memories are imported; {report.known} were there already")


def _use_memory(place: dict[str, Any], work: "Callable[[LongTermMemory], Awaitable[T]]") -> T:
    """Open the memory that the options name, run `work(memory)`, close it, and return the result."""
    import asyncio

    from perdure._work.memory.database import get_default_memory_path
    from perdure._work.memory.long_term import LongTermMemory

    async def main() -> T:
        path = place["file"] or get_default_memory_path()
        async with LongTermMemory(path, user=place["user"], project=place["project"]) as opened:
            return await work(opened)

    return asyncio.run(main())


def _change_pin(memory_id: str, place: dict[str, Any], *, pinned: bool, as_json: bool) -> None:
    changed = _use_memory(place, lambda opened: opened.pin(memory_id, pinned=pinned))
    if changed is None:
        raise _build_unknown_error(memory_id)
    _print_memories([changed], as_json=as_json)


def _build_unknown_error(memory_id: str) -> UsageError:
    return UsageError(
        f"there is no memory {memory_id!r} of this user and project; `perdure memory list` lists them, and --user and "
        "--project name others"
    )


def _print_memories(records: "list[MemoryRecord]", *, as_json: bool) -> None:
    import msgspec

    screen = TerminalOutput()
    for record in records:
        row = to_ascii_json(msgspec.json.encode(record)) if as_json else _format_memory(record)
        screen.write(row + "\n")
    if not records and not as_json:
        screen.note("nothing was found")


def _format_memory(record: "MemoryRecord") -> str:
    try:
        at = time.strftime("%Y-%m-%d", time.localtime(record.at))
    except (ValueError, OverflowError, OSError):  # no date of this machine
        at = "unknown   "
    marks = [*(["pinned"] if record.pinned else []), *record.labels, *[f"#{tag}" for tag in record.tags]]
    name = f"{record.name}: " if record.name and record.name != record.text else ""
    row = f"{record.id}  {at}  {' '.join([*marks, ''])}{name}{record.text}"
    return to_one_line(row, line_width(sys.stdout))
