"""`windlass run`: an agent answers a prompt. Above: `main.py`. Below: `drive.py`."""

import sys
from typing import Any, Final

import click

from .home import store_option
from .screen import Screen

MOST_BYTES: Final = 10_000_000
"""Of a prompt from standard input."""


def showing_options(command: Any) -> Any:
    """The options of every command that shows a run."""
    for option in (
        click.option("--yes", is_flag=True, help="Allow every call without asking."),
        click.option("--later", is_flag=True, help="Where nobody can be asked, leave questions open: windlass answer."),
        click.option("--raw", is_flag=True, help="Write the answer as it comes, control characters included."),
        click.option("--quiet", "-q", is_flag=True, help="Write the answer and errors, nothing else."),
        click.option("--json", "as_json", is_flag=True, help="Write each event as a line of JSON."),
        store_option,
    ):
        command = option(command)
    return command


@click.command()
@click.argument("prompt", required=False)
@click.option("--session", "-s", "session_id", metavar="ID", help="Go on with this session, or begin it.")
@click.option("--model", "-m", metavar="PROVIDER:MODEL", help="Who answers.  [default: WINDLASS_MODEL, or see below]")
@click.option("--instructions", "-i", metavar="TEXT", help="What the model is told before the conversation.")
@click.option("--max-turns", type=click.IntRange(min=1), metavar="N", help="End after so many replies.")
@click.option("--resume", is_flag=True, help="First finish the session's last run, if it was cut off.")
@showing_options
@click.pass_context
def run(
    context: click.Context,
    /,
    *,
    prompt: str | None,
    session_id: str | None,
    model: str | None,
    instructions: str | None,
    max_turns: int | None,
    **options: Any,
) -> None:
    """Let an agent answer PROMPT, and keep the conversation.

    Without PROMPT, or when it is "-", the prompt is read from standard input. The agent can tell the time, calculate,
    and read text files below the working folder; to write one it asks at the terminal, and is denied where nobody can
    be asked.

    Without --model and WINDLASS_MODEL, the first provider answers whose key is set, such as ANTHROPIC_API_KEY; without
    any key, a small model that runs in this process, or else a demonstration that only matches words.

    The answer goes to standard output with control characters shown, not sent; see --raw. The exit code is 0 when the
    run is done, 3 when it ended at a limit or waits for an answer, 130 after Ctrl-C. SIGTERM and SIGHUP end the run in
    good order, with code 0: tools get ten seconds, and what was finished is kept.
    """
    from windlass.core.stop import Limits
    from windlass.override import Overrides

    from .choice import chosen
    from .drive import Order, carry_out

    if options["resume"] and session_id is None:
        raise click.UsageError("--resume needs to know the session; name it with --session")
    choice = chosen(model)
    overrides = Overrides(model=choice.model)  # kept in the log, so that `resume` asks the same model
    if instructions is not None:
        overrides["instructions"] = instructions
    if max_turns is not None:
        overrides["limits"] = Limits(max_turns=max_turns)
    only_resume = options["resume"] and prompt is None
    said = None if only_resume else _prompt(prompt)
    order = Order(prompt=said, session_id=session_id, model=model, choice=choice, overrides=overrides, **options)
    context.exit(carry_out(order))


def _prompt(given: str | None) -> str:
    """The prompt, from the command line or from standard input."""
    if given is not None and given != "-":
        return given
    if given is None and sys.stdin.isatty():
        raise click.UsageError('there is no prompt; write it as windlass run "…", or pipe it in')
    if sys.stdin.isatty():
        Screen().note("write the prompt; Ctrl-D on a line of its own ends it")
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise click.UsageError(f"the prompt has more than {MOST_BYTES:,} bytes; let the agent read a file instead")
    try:
        text = data.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"standard input is not UTF-8 text ({error.reason} at byte {error.start})") from error
    if not text.strip():
        raise click.UsageError('there is no prompt on standard input; write it as windlass run "…", or pipe it in')
    return text
