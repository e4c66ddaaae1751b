"""`windlass sessions`: what is kept. Above: `main.py`. Below: stores."""

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from .home import no_session, store_option, use_store
from .screen import Screen, json_line, line_width, one_line, visible

if TYPE_CHECKING:
    from windlass.core.fold import State
    from windlass.core.message import Message
    from windlass.core.store import SessionInfo


@click.group()
def sessions() -> None:
    """List, show and remove the sessions that are kept."""


@sessions.command("list")
@click.option("--prefix", default="", help="Only sessions whose id begins like this.")
@click.option("--limit", default=20, type=click.IntRange(min=1, max=1_000_000), help="How many.  [default: 20]")
@click.option("--json", "as_json", is_flag=True, help="Write each session as a line of JSON.")
@store_option
def list_sessions(prefix: str, limit: int, *, as_json: bool, store: str | None) -> None:
    """List sessions, the most recently used first."""
    import msgspec

    listed = use_store(store, lambda store: store.list(prefix=prefix, limit=limit + 1))
    found = [info for info in listed if info.entries]  # not those that were interrupted before anything was said
    screen = Screen()
    for info in found[:limit]:
        screen.say((json_line(msgspec.json.encode(info)) if as_json else _row(info)) + "\n")
    if not found and not as_json:
        like = f" that begins with {prefix!r}" if prefix else ""
        screen.note(f'there is no session{like}; windlass run "…" begins one')
    if len(listed) > limit:
        screen.note(f"there are more; --limit {limit * 2} shows more of them")


def _row(info: "SessionInfo") -> str:
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.updated_at))
    row = f"{one_line(info.session_id):32}  {used}  {info.entries:5} entries  {one_line(info.title)}"
    return one_line(row, line_width(sys.stdout))


@sessions.command()
@click.argument("session_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Write each entry of the log as a line of JSON.")
@store_option
def show(session_id: str, *, as_json: bool, store: str | None) -> None:
    """Show what was said and done in session ID."""
    from windlass.core.codec import encode_entry
    from windlass.core.fold import fold

    entries = use_store(store, lambda store: store.read(session_id))
    if not entries:
        raise no_session(session_id)
    screen = Screen()
    if as_json:
        for entry in entries:
            screen.say(json_line(encode_entry(entry)) + "\n")
        return
    state = fold(entries)
    for line in _transcript(state):
        screen.say(line + "\n")
    if state.interrupted:
        screen.note(f"the last run was cut off; finish it with: windlass resume {session_id}")


def _transcript(state: "State") -> Iterator[str]:
    """What was said and done, line by line, calls that have no result yet included."""
    for message in state.messages:
        yield from _told(message)
    if state.reply is not None:
        yield from _told(state.reply)
        for result in state.results.values():
            yield f"  {result.name} {result.status}: {_indented(result.text)}"


def _told(message: "Message") -> Iterator[str]:
    from windlass.core.message import Text, Thinking, ToolCall, ToolResult, flatten

    if message.role != "tool":
        yield f"{message.role}{_in_brackets(message.origin or message.model)}:"
    for part in message.parts:
        match part:
            case Text(text=text):
                yield f"  {_indented(text)}"
            case Thinking(text=text):
                yield f"  [thinking] {_indented(text)}"
            case ToolCall(name=name, arguments=arguments):
                yield f"  call {name} {one_line(arguments)}"
            case ToolResult(name=name, status=status):
                yield f"  {name} {status}: {_indented(part.text)}"
            case _:
                yield f"  {flatten((part,))}"


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _indented(text: str) -> str:
    return text.strip().replace("\n", "\n  ")


@sessions.command()
@click.argument("session_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@click.pass_context
def rm(context: click.Context, /, session_id: str, *, yes: bool, store: str | None) -> None:
    """Remove session ID for good. One that is not there is no error."""
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("nobody can be asked here; say --yes to remove the session")
        if not click.confirm(visible(f"Remove session {session_id!r} for good?"), err=True):
            context.exit(1)
    use_store(store, lambda store: store.delete(session_id))
    Screen().note(f"session {session_id} is not there any more")
