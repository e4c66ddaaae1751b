"""`perdure trace`: show what happened in a session: as a tree, as JSON, or as a web page."""

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from perdure._cli.home import build_session_not_found, run_with_store, store_option
from perdure._cli.terminal.output import TerminalOutput, line_width, to_ascii_json

from .choice import find_last_session, find_session

if TYPE_CHECKING:
    from perdure._core.log.store import Store
    from perdure._tracing.view.trace import Trace

_WIDE: Final = 160
"""Columns of the tree when it is not printed at a terminal."""
_MOST_BYTES: Final = 500_000_000


@click.command()
@click.argument("session_id", metavar="[ID|FILE]", required=False)
@click.option("--last", is_flag=True, help="The last session of this project.")
@click.option("--json", "as_json", is_flag=True, help="Print the trace as one JSON document.")
@click.option("--jsonl", "as_lines", is_flag=True, help="Print each entry as a line of JSON.")
@click.option("--html", metavar="FILE", help="Write one self-contained web page there; - for standard output.")
@click.option("--compare", metavar="ID|FILE", help="With --html: a second session, beside the first.")
@click.option("--trajectory", is_flag=True, help="Print each turn: the reply, and the results of its calls.")
@click.option("--context", "disclosure", is_flag=True, help="Print what entered the context when, and why.")
@click.option("--curl", is_flag=True, help="Print the raw requests of a trace file as curl commands.")
@store_option
def trace(session_id: str | None, *, last: bool, html: str | None, compare: str | None, **options: Any) -> None:
    """Show what happened in session ID: its runs, turns and calls with times, retries, tokens and cost.

    Any stored session can be traced. FILE is a trace that perdure run --trace or a Tracer wrote: it has retries,
    failovers and progress too, which sessions do not store.

    The page of --html has a waterfall, the messages, the calls, tokens and cost by turn, the context over time and the
    prompt cache. It requests nothing, and shows all text as text. It contains the whole conversation: share it with
    care.
    """
    if (session_id is None) != last:
        raise click.UsageError("name one session or file, or use --last; perdure sessions list lists sessions")
    forms = [name for name in ("as_json", "as_lines", "trajectory", "disclosure", "curl") if options[name]]
    if len(forms) + (html is not None) > 1:
        raise click.UsageError(
            "the options --json, --jsonl, --html, --trajectory, --context and --curl exclude each other"
        )
    if compare is not None and html is None:
        raise click.UsageError("--compare needs --html FILE: two traces are shown side by side on a page")
    found = _load_trace(session_id, options["store"])
    if html is not None:
        _write_page(found, None if compare is None else _load_trace(compare, options["store"]), html)
    else:
        _print_trace(found, forms[0] if forms else "")


def _load_trace(given: str | None, store: str | None) -> "Trace":
    """Return the trace in a file, or that of a stored session. Raises `SessionNotFound`."""
    if given is not None and os.path.isfile(given):  # noqa: PTH113 - pathlib would cost every start milliseconds
        return _read_file(given)

    async def read(opened: "Store") -> "Trace":
        from perdure._core.values.error import SessionNotFound
        from perdure._tracing.view.trace import trace_session

        name = await find_last_session(opened) if given is None else await find_session(opened, given)
        try:
            return await trace_session(opened, name)
        except SessionNotFound:
            raise build_session_not_found(name, store) from None

    return run_with_store(store, read)


def _read_file(path: str) -> "Trace":
    from perdure._tracing.view.trace import read_trace

    with open(path, "rb") as file:  # noqa: PTH123 - as above
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise click.UsageError(f"{path!r} has more than {_MOST_BYTES:,} bytes; trace fewer runs into one file")
    return read_trace(data)


def _write_page(found: "Trace", compare: "Trace | None", target: str) -> None:
    page = found.to_html(compare)
    if target == "-":
        TerminalOutput(raw=True).write(page)
        return
    from perdure._cli.run.trace import write_private_file

    write_private_file(target, page)
    TerminalOutput().note(f"{target} is written; open it in a browser")


def _print_trace(found: "Trace", form: str) -> None:
    import msgspec

    screen = TerminalOutput()
    if form == "as_json":
        screen.write(to_ascii_json(msgspec.json.encode(found.to_json())) + "\n")
    elif form == "as_lines":
        for line in found.to_jsonl().encode().splitlines():
            screen.write(to_ascii_json(line) + "\n")
    elif form == "curl":
        if not (commands := found.curls()):
            screen.note("this trace has no raw requests: perdure run --trace FILE collects them, of models behind HTTP")
        for command in commands:
            screen.write(command + "\n\n")
    elif form == "trajectory":
        screen.write(found.format_trajectory())
    elif form == "disclosure":
        screen.write(found.format_disclosure())
    else:
        screen.write(found.format_tree(width=line_width(sys.stdout) or _WIDE))
