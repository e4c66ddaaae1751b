"""`perdure chat`, which is also `perdure` without a command: a chat with an agent at the terminal."""

import os
from typing import Any

import click

from perdure._cli.home import store_option
from perdure._cli.run.command import (
    add_agent_options,
    add_run_options,
    choose_session,
    offer_trust_at_terminal,
    split_tool_names,
    take_agent_options,
)
from perdure._cli.terminal.output import TerminalOutput, is_terminal

INSTALL = "pip install 'perdure[chat]'"
"""Command that installs what the chat in a window needs."""


@click.command()
@click.option("--session", "-s", "session_id", metavar="ID", help="Session to go on with or create.")
@click.option("--continue", "--last", "-c", "last", is_flag=True, help="Go on with the last session of this project.")
@click.option("--instructions", "-i", metavar="TEXT", help="System instructions.")
@add_run_options
@add_agent_options
@click.option("--yes", is_flag=True, help="Allow every tool call without asking.")
@click.option("--plain", is_flag=True, help="Print plain lines, as on a terminal that cannot move its cursor.")
@store_option
@click.pass_context
def chat(context: click.Context, /, *, last: bool, plain: bool, **options: Any) -> None:
    """Chat with an agent at the terminal; the default when `perdure` is called without a command.

    The agent is that of perdure run: it has its tools, project instructions, skills and permissions. Everything is
    saved as it happens: after a crash, or when you leave while it works, --continue goes on with the open run.

    Enter sends, Ctrl-J begins a new line, Esc cancels the run and keeps what was written, and what you type while the
    agent works steers it. /help lists the commands; @PATH attaches a file; Tab completes.
    """
    if last and options["session_id"] is not None:
        raise click.UsageError("--continue and --session exclude each other; give one of them")
    if not is_terminal():
        raise click.UsageError('the chat needs a terminal; use perdure run "…" in scripts')
    from perdure._cli.run.options import RunCommandOptions

    where = dict(options)
    options["tools"] = split_tool_names(options["tools"])
    wish = take_agent_options(options)
    offer_trust_at_terminal(wish)
    options["session_id"] = choose_session(options["session_id"], where, last=last)
    order = RunCommandOptions(agent=wish, **options)
    missing = list_missing_packages()
    if plain or missing or os.environ.get("TERM", "") in {"", "dumb", "unknown"}:
        from .plain import run_plain_chat

        if missing and not plain:
            TerminalOutput().note(f"this chat prints plain lines: for one in a window, {INSTALL}")
        context.exit(run_plain_chat(order))
    from .program import run_chat

    context.exit(run_chat(order))


def list_missing_packages() -> list[str]:
    """Return the names of the packages that the chat window needs and that are not installed."""
    from importlib.util import find_spec

    return [name for name in ("prompt_toolkit", "rich") if find_spec(name) is None]
