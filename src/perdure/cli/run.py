"""`perdure run`: an agent answers a prompt. Above: `main.py`. Below: `drive.py`."""

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from .home import store_option
from .screen import Screen

if TYPE_CHECKING:
    from .order import Wish

MOST_BYTES: Final = 10_000_000
"""Of a prompt from standard input."""


def showing_options(command: Any) -> Any:
    """The options of every command that shows a run."""
    for option in (
        click.option("--yes", is_flag=True, help="Allow every call without asking."),
        click.option("--later", is_flag=True, help="Where nobody can be asked, leave questions open: perdure answer."),
        click.option("--raw", is_flag=True, help="Write the answer as it comes, control characters included."),
        click.option("--quiet", "-q", is_flag=True, help="Write the answer and errors, nothing else."),
        click.option("--json", "as_json", is_flag=True, help="Write each event as a line of JSON."),
        store_option,
    ):
        command = option(command)
    return command


def agent_options(command: Any) -> Any:
    """The options of every command that makes the agent of `perdure run`."""
    for option in (
        click.option(
            "--context/--no-context",
            default=None,
            help="Tell the agent about the project, with skills and more tools; see perdure run -h.",
        ),
        click.option("--config", metavar="PATH", help="The configuration.  [default: perdure.toml, here or above]"),
    ):
        command = option(command)
    return command


def wish_of(options: dict[str, Any]) -> "Wish":
    """What was said about the agent, taken out of the options of a command."""
    from .order import Wish

    return Wish(**{name: options.pop(name) for name in Wish.__struct_fields__ if name in options})


@click.command()
@click.argument("prompt", required=False)
@click.option("--session", "-s", "session_id", metavar="ID", help="Go on with this session, or begin it.")
@click.option("--model", "-m", metavar="PROVIDER:MODEL", help="Who answers.  [default: PERDURE_MODEL, or see below]")
@click.option("--instructions", "-i", metavar="TEXT", help="What the model is told before the conversation.")
@click.option("--role", metavar="NAME", help="Who the agent is: a file NAME.md in the folder roles.")
@click.option("--max-turns", type=click.IntRange(min=1), metavar="N", help="End after so many replies.")
@click.option("--resume", is_flag=True, help="First finish the session's last run, if it was cut off.")
@agent_options
@showing_options
@click.pass_context
def run(context: click.Context, /, *, prompt: str | None, **options: Any) -> None:
    """Let an agent answer PROMPT, and keep the conversation.

    Without PROMPT, or when it is "-", the prompt is read from standard input. The agent can tell the time, calculate,
    and read text files below the working folder; to write one it asks at the terminal, and is denied where nobody can
    be asked.

    Without --model and PERDURE_MODEL, whoever the role or perdure.toml names answers; else the first provider whose
    key is set, such as ANTHROPIC_API_KEY; without any key, a small model that runs in this process, or else a
    demonstration that only matches words.

    In a project the agent is told what AGENTS.md or CLAUDE.md says, here and above up to the root of the repository,
    and which skills there are: yours, and those of the project that you trust (perdure skills). It has a list of tasks
    and a page of notes, can look things up in a long conversation, and reads long results in parts. Models that run in
    this process have little room: for local and demo all this is left out, unless --context or --config is given.

    In PROMPT, /NAME loads a skill and @PATH attaches a file below the working folder. Long conversations are summed up
    for the model; the session keeps everything.

    perdure.toml, here or above up to the root of the repository, may say more. Before you trust it (perdure config
    trust) it is not used if it would run, redirect or allow anything. Options win over it.

    The answer goes to standard output with control characters shown, not sent; see --raw. The exit code is 0 when the
    run is done, 3 when it ended at a limit or waits for an answer, 130 after Ctrl-C. SIGTERM and SIGHUP end the run in
    good order, with code 0: tools get ten seconds, and what was finished is kept.
    """
    from .drive import carry_out
    from .order import Order

    if options["resume"] and options["session_id"] is None:
        raise click.UsageError("--resume needs to know the session; name it with --session")
    only_resume = options["resume"] and prompt is None
    wish = wish_of(options)
    context.exit(carry_out(Order(prompt=None if only_resume else _prompt(prompt), wish=wish, **options)))


def _prompt(given: str | None) -> str:
    """The prompt, from the command line or from standard input."""
    if given is not None and given != "-":
        return given
    if given is None and sys.stdin.isatty():
        raise click.UsageError('there is no prompt; write it as perdure run "…", or pipe it in')
    if sys.stdin.isatty():
        Screen().note("write the prompt; Ctrl-D on a line of its own ends it")
    data = _typed() if sys.stdin.isatty() and os.name == "posix" else sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise click.UsageError(f"the prompt has more than {MOST_BYTES:,} bytes; let the agent read a file instead")
    try:
        text = data.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"standard input is not UTF-8 text ({error.reason} at byte {error.start})") from error
    if not text.strip():
        raise click.UsageError('there is no prompt on standard input; write it as perdure run "…", or pipe it in')
    return text


def _typed() -> bytes:
    """What is written at a terminal, up to Ctrl-D.

    Ctrl-C in the moment before a read begins would be noticed only at the next key. So what is waited for is a pipe as
    well, into which the arrival of a signal is written.
    """
    import select
    import signal

    told, tell = os.pipe()
    os.set_blocking(tell, False)
    before, typed = signal.set_wakeup_fd(tell), b""
    try:
        while len(typed) <= MOST_BYTES:
            ready, _, _ = select.select([sys.stdin.fileno(), told], [], [])
            if told in ready:
                os.read(told, 1)  # its handler has run by now: whoever is still here goes on
            elif line := os.read(sys.stdin.fileno(), 4096):
                typed += line
            else:
                break
    finally:
        signal.set_wakeup_fd(before)
        os.close(told)
        os.close(tell)
    return typed
