"""`perdure run` and `perdure resume`: an agent answers a prompt, or finishes a run that was cut off."""

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from perdure._cli.home import store_option
from perdure._cli.sessions.choice import session_argument
from perdure._cli.terminal.output import TerminalOutput, can_ask_user

if TYPE_CHECKING:
    from .options import AgentOptions

MOST_BYTES: Final = 10_000_000
"""Limit on the size of a prompt that is read from standard input."""
_NOTE_AFTER_SECONDS: Final = 1.0
"""Time after which a note says that standard input is being read."""


def add_display_options(command: Any) -> Any:
    """Decorate a click command with the output, approval and store options of `perdure run` and `resume`.

    Such as `--quiet`, `--json`, `--yes` and `--store`.
    """
    for option in (
        click.option("--yes", is_flag=True, help="Allow every tool call without asking."),
        click.option("--later", is_flag=True, help="Without a terminal, leave questions open for perdure answer."),
        click.option("--raw", is_flag=True, help="Print the answer unchanged, control characters included."),
        click.option("--quiet", "-q", is_flag=True, help="Print only the answer and errors."),
        click.option("--json", "as_json", is_flag=True, help="Print each event as a line of JSON."),
        click.option("--trace", metavar="FILE", help="Write a trace there: .html, .json, or else lines of JSON."),
        store_option,
    ):
        command = option(command)
    return command


def add_agent_options(command: Any) -> Any:
    """Decorate a click command with the options that change how the agent is assembled, such as `--config`."""
    for option in (
        click.option(
            "--coding/--no-coding",
            default=None,
            help="Give the agent tools for files, search, git and commands.  [default: in a repository]",
        ),
        click.option(
            "--context/--no-context",
            default=None,
            help="Give the agent project instructions, skills and more tools; see perdure run -h.",
        ),
        click.option("--no-config", is_flag=True, help="Ignore perdure.toml."),
        click.option("--config", metavar="PATH", help="Configuration file.  [default: perdure.toml, here or above]"),
    ):
        command = option(command)
    return command


def complete_engine_name(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of engines that begin with a text, for the completion of shells."""
    from perdure._engines.registry import list_engine_names

    return [name for name in list_engine_names() if name.startswith(incomplete)]


def add_run_options(command: Any) -> Any:
    """Decorate a click command with the options of new runs: model, role, engine, tools, approvals and limits."""
    positive = click.IntRange(min=1)
    above_zero = click.FloatRange(min=0, min_open=True)
    for option in (
        click.option("--limit-tool-calls", type=positive, metavar="N", help="End the run after N tool calls."),
        click.option("--limit-seconds", type=above_zero, metavar="S", help="End the run after S seconds."),
        click.option("--limit-cost", type=above_zero, metavar="USD", help="End the run when it has cost this much."),
        click.option("--limit-tokens", type=positive, metavar="N", help="End the run after N tokens, in and out."),
        click.option(
            "--max-turns", "--limit-turns", "max_turns", type=positive, metavar="N",
            help="End the run after N replies of the model.",
        ),
        click.option("--yolo", is_flag=True, help="Like --yes, but only if commands run in a sandbox."),
        click.option(
            "--allow", multiple=True, metavar="TOOL[(TARGET)]",
            help="Allow such calls without asking, as in --allow 'bash(git *)'. Can be repeated.",
        ),
        click.option("--tools", metavar="NAMES", help='Offer only these tools, separated by commas; "" for none.'),
        click.option(
            "--engine", metavar="NAME", shell_complete=complete_engine_name,
            help="How turns and tool calls follow each other, such as planner or reflect.  [default: react]",
        ),
        click.option("--role", metavar="NAME", help="Role of the agent: NAME.md in the folder roles."),
        click.option(
            "--model", "-m", metavar="PROVIDER:MODEL", help="Model to ask.  [default: PERDURE_MODEL, or see above]"
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def split_tool_names(given: str | None) -> tuple[str, ...] | None:
    """Return the tool names in the comma-separated value of `--tools`; `None` if the option was not given."""
    return None if given is None else tuple([each.strip() for each in given.split(",") if each.strip()])


def take_agent_options(options: dict[str, Any]) -> "AgentOptions":
    """Remove the options about the agent from a command's `options`, and return them as `AgentOptions`."""
    from .options import AgentOptions

    return AgentOptions(**{name: options.pop(name) for name in AgentOptions.__struct_fields__ if name in options})


@click.command()
@click.argument("prompt", required=False)
@click.option("--session", "-s", "session_id", metavar="ID", help="Session to continue or create.")
@click.option("--continue", "--last", "-c", "last", is_flag=True, help="Continue the last session of this project.")
@click.option("--instructions", "-i", metavar="TEXT", help="System instructions for this run.")
@click.option("--schema", metavar="FILE|JSON", help="JSON Schema of the answer, which is printed as JSON.")
@add_run_options
@click.option("--resume", is_flag=True, help="First finish the last run of the session, if it was cut off.")
@add_agent_options
@add_display_options
@click.pass_context
def run(context: click.Context, /, *, prompt: str | None, **options: Any) -> None:
    """Run an agent on PROMPT and save the conversation.

    What is piped in is added below PROMPT, as in: cat app.py | perdure run "explain this". Without PROMPT, or if it is
    "-", the prompt is standard input. The agent can read the clock, calculate, and read text files below the working
    folder. It asks at the terminal before it writes a file; without a terminal, writing is denied. In a git repository,
    or with --coding, it can list, search and edit files, and use git; perdure files undo takes its changes back. With
    perdure[shell] it can run commands too, in a sandbox if the machine has one (see perdure doctor): those that only
    read run silently in the sandbox, and all others are asked about.

    Without --model and PERDURE_MODEL, the model is the one in the role or in perdure.toml; else that of the first
    provider whose key is set, such as ANTHROPIC_API_KEY; else a small model that runs in this process, if installed;
    else an offline demonstration that only matches keywords.

    In a project, the agent gets AGENTS.md or CLAUDE.md, from the working folder up to the root of the repository, and
    skills: yours, and those of the project that you trust (see perdure skills). It has a task list and notes, can
    search a long conversation, and reads long results in parts. The models "local" and "demo" have small context
    windows: for them all this is left out, unless --context or --config is given.

    In PROMPT, /NAME loads a skill and @PATH attaches a file below the working folder. Long conversations are summarised
    for the model; the session keeps everything.

    perdure.toml, in the working folder or above it in the repository, can set more. If it would run, redirect or allow
    anything, it needs your trust (perdure trust perdure.toml): at a terminal you are asked, otherwise the run does not
    start. Nor does it with a file that has errors. --no-config ignores the file. Options override it.

    The answer goes to standard output, with control characters made visible (see --raw). Exit codes: 0 when the run is
    done, 3 when it ended at a limit or waits for an answer, 130 after Ctrl-C. On SIGTERM and SIGHUP the run ends
    cleanly with code 0: tools get ten seconds, and finished work is kept.
    """
    from .options import RunCommandOptions
    from .session import run_session

    last = options.pop("last")
    options["tools"] = split_tool_names(options["tools"])
    options["schema"] = _read_schema(options["schema"])
    if last and options["session_id"] is not None:
        raise click.UsageError("--continue and --session exclude each other; give one of them")
    if options["resume"] and options["session_id"] is None and not last:
        raise click.UsageError("--resume needs a session; name it with --session, or use --continue")
    only_resume = options["resume"] and prompt is None
    where, wish = dict(options), take_agent_options(options)
    offer_trust_at_terminal(wish)
    options["session_id"] = choose_session(options["session_id"], where, last=last)
    context.exit(
        run_session(RunCommandOptions(prompt=None if only_resume else _read_prompt(prompt), agent=wish, **options))
    )


@click.command()
@session_argument()
@click.option("--unpark", is_flag=True, help="Continue a run that was parked after three crashes without progress.")
@add_agent_options
@add_display_options
@click.pass_context
def resume(context: click.Context, /, session_id: str, **options: Any) -> None:
    """Finish the last run of session ID, if it was cut off.

    Calls that had finished keep their results. Calls that had only started are repeated if that is harmless; for the
    others the model learns that their outcome is unknown. The agent is assembled as for that run, from the files as
    they are now.
    """
    from .options import RunCommandOptions
    from .session import run_session

    wish = take_agent_options(options)
    offer_trust_at_terminal(wish)
    context.exit(run_session(RunCommandOptions(session_id=session_id, resume=True, agent=wish, **options)))


def choose_session(given: str | None, options: dict[str, Any], *, last: bool) -> str | None:
    """Return the id of the session that `perdure run` continues, from its options; `None` for a new session."""
    if given is None and not last:
        return None
    from perdure._cli.sessions.choice import expand_session_id, resolve_session

    return resolve_session(None, options) if last else expand_session_id(given, options)


def offer_trust_at_terminal(options: "AgentOptions") -> None:
    """Ask the user whether to trust a configuration file that needs it; without a terminal, do nothing."""
    if can_ask_user():
        from .trusted_config import offer_trust

        offer_trust(options)


def _read_prompt(given: str | None) -> str:
    """Return the prompt: the argument `given` with what is piped in below it, or the text of standard input."""
    if given is not None and given != "-":
        piped = "" if sys.stdin.isatty() else _decode_input(_read_piped())
        return f"{given}\n\n{_fence_text(piped)}" if piped.strip() else given
    if given is None and sys.stdin.isatty():
        raise click.UsageError('there is no prompt; write it as perdure run "…", or pipe it in')
    if sys.stdin.isatty():
        TerminalOutput().note("type the prompt; end it with Ctrl-D on an empty line")
    text = _decode_input(_read_typed() if sys.stdin.isatty() and os.name == "posix" else _read_piped())
    if not text.strip():
        raise click.UsageError('there is no prompt on standard input; write it as perdure run "…", or pipe it in')
    return text


def _decode_input(data: bytes) -> str:
    """Return the text of standard input. Raises `UsageError` if it is too long, or not UTF-8."""
    if len(data) > MOST_BYTES:
        raise click.UsageError(f"the prompt has more than {MOST_BYTES:,} bytes; let the agent read a file instead")
    try:
        return data.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"standard input is not UTF-8 text ({error.reason} at byte {error.start})") from error


def _read_schema(given: str | None) -> dict[str, Any] | None:
    """Return the JSON Schema that `--schema` gives, as JSON or as the path of a file. Raises `UsageError`."""
    if given is None:
        return None
    import msgspec

    try:
        text = given if given.lstrip().startswith("{") else _read_file(given)
        schema = msgspec.json.decode(text, type=dict[str, Any])
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--schema {given!r} cannot be read: {error}; give JSON, or a file of it") from error
    except msgspec.ValidationError as error:
        raise click.UsageError(f"--schema {given!r} is no JSON Schema; give an object") from error
    except msgspec.DecodeError as error:
        raise click.UsageError(f"--schema {given!r} is not JSON: {error}") from error
    return schema


def _read_file(path: str) -> str:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib would cost every start milliseconds
        return file.read(MOST_BYTES)


def _fence_text(text: str) -> str:
    """Return piped text as a code block, so that `/name` and `@path` in it are not treated as directives."""
    import re

    fence = "`" * max(3, *[len(run) + 1 for run in re.findall(r"`+", text)], 3)
    return f"{fence}\n{text}\n{fence}"


def _read_piped() -> bytes:
    """Read standard input to its end; after a while, print a note that the program waits for it."""
    import threading

    waiting = threading.Timer(
        _NOTE_AFTER_SECONDS,
        lambda: TerminalOutput().note("reading standard input to its end; to run without it, add </dev/null"),
    )
    waiting.daemon = True
    waiting.start()
    try:
        return sys.stdin.buffer.read(MOST_BYTES + 1)
    finally:
        waiting.cancel()


def _read_typed() -> bytes:
    """Read what is typed at the terminal, up to Ctrl-D.

    Ctrl-C just before a read begins would be noticed only at the next key. So the wait also covers a pipe into which
    Python writes when a signal arrives.
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
                os.read(told, 1)  # the signal's handler has run by now, and did not raise
            elif line := os.read(sys.stdin.fileno(), 4096):
                typed += line
            else:
                break
    finally:
        signal.set_wakeup_fd(before)
        os.close(told)
        os.close(tell)
    return typed
