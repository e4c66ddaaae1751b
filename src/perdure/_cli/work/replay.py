"""`perdure replay`: run a stored session again, offline, and compare it with the log."""

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from perdure._cli.home import build_session_not_found, store_option
from perdure._cli.run.command import add_agent_options, take_agent_options
from perdure._cli.sessions.choice import session_argument
from perdure._cli.terminal.output import TerminalOutput, escape_controls, to_ascii_json, to_one_line

if TYPE_CHECKING:
    from perdure._cli.run.options import AgentOptions
    from perdure._core.run.outcome import Outcome
    from perdure._runtime.agent.agent import Agent
    from perdure._work.replay.differences import Divergence
    from perdure._work.replay.replay import ReplayReport

DIVERGED = 1
"""Exit code when the replay differs from the log."""


@click.command()
@session_argument()
@click.option("--from", "from_seq", type=click.IntRange(min=1), metavar="SEQ", help="Continue live after this entry.")
@click.option("--prompt", "-p", metavar="TEXT", help="With --from: the prompt, instead of finishing the run.")
@click.option("--model", "-m", metavar="PROVIDER:MODEL", help="With --from: the model to ask.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON.")
@add_agent_options
@store_option
@click.pass_context
def replay(context: click.Context, /, session_id: str, **options: Any) -> None:
    """Run session ID again, offline, and show the first difference from its log.

    The model's replies and the results of tools come from the log, and nothing has side effects. The exit code is 0 if
    everything happens as recorded, and 1 if not.

    With --from, the session is replayed up to that entry and then continues live, in a fork: the run that is cut there
    is finished, or --prompt is answered.

    The agent is that of perdure run, assembled from the files as they are now: a changed AGENTS.md or skill is a
    difference.
    """
    import asyncio

    for name in ("prompt", "model"):
        if options[name] is not None and options["from_seq"] is None:
            raise click.UsageError(f"--{name} applies to the live part only; use --from to say where that begins")
    wish = take_agent_options(options)
    context.exit(asyncio.run(_replay(session_id, wish, **options)))


async def _replay(
    session_id: str, wish: "AgentOptions", *, from_seq: int | None, prompt: str | None, as_json: bool
) -> int:
    from perdure._cli.run.assembly import resolve_store
    from perdure._cli.run.session import restore_agent_options
    from perdure._core.log.reserved_ids import check_not_reserved
    from perdure._runtime.agent.overrides import Overrides
    from perdure._work.replay.replay import replay as replay_session

    screen = TerminalOutput(quiet=as_json)
    options = await restore_agent_options(wish, session_id)
    agent = _build_agent(screen, options, as_json=as_json)
    overrides = Overrides() if wish.model is None else Overrides(model=wish.model)
    async with agent:
        check_not_reserved(session_id, agent.store)
        if not await agent.store.read(session_id):
            raise build_session_not_found(session_id, resolve_store(options))
        replayed = await replay_session(agent, session_id, from_seq=from_seq, prompt=prompt, **overrides)
    if as_json:
        screen.write(to_ascii_json(_to_json(replayed)) + "\n")
    else:
        _print_result(screen, replayed)
    if replayed.branch is not None:
        return _outcome_exit_code(replayed.branch)
    return 0 if replayed.agrees else DIVERGED


def _build_agent(screen: TerminalOutput, wish: "AgentOptions", *, as_json: bool) -> "Agent[Any]":
    """Build the agent of `perdure run`, with a watcher that prints its live part."""
    from perdure._cli.run.assembly import collect_agent_parts
    from perdure._cli.terminal.input import LineReader
    from perdure._cli.terminal.output import can_ask_user
    from perdure._cli.terminal.permission import TerminalPermissionPrompt
    from perdure._cli.terminal.printer import TerminalScreen
    from perdure._core.values.event import Entry
    from perdure._core.values.event_class import QuestionAsked

    question = TerminalPermissionPrompt(screen, LineReader()) if can_ask_user() else None
    shown = TerminalScreen(screen)

    async def show(entry: Entry) -> None:
        shown.show(entry.event)
        if question is not None and isinstance(entry.event, QuestionAsked):
            question.allow_asking(entry.event)

    equipment = collect_agent_parts(wish)
    for each in equipment.notes:
        screen.note(to_one_line(each))
    return equipment.build_agent(
        permission=equipment.build_gate(question),
        watchers=() if as_json else (show,),
    )


def _outcome_exit_code(outcome: "Outcome[Any]") -> int:
    from perdure._cli.run.session import ENDED_EARLY
    from perdure._core.values.error import PerdureError

    if outcome.error is not None:
        return outcome.error.exit_code if isinstance(outcome.error, PerdureError) else PerdureError.exit_code
    return 0 if outcome.status in {"done", "stopped"} else ENDED_EARLY


def _to_json(replayed: "ReplayReport") -> bytes:
    import msgspec

    divergence, branch = replayed.divergence, replayed.branch
    return msgspec.json.encode(
        {
            "session_id": replayed.session_id,
            "agrees": replayed.agrees,
            "runs": replayed.runs,
            "turns": replayed.turns,
            "skipped": replayed.skipped,
            "divergence": divergence and {**msgspec.structs.asdict(divergence), "diff": divergence.diff},
            "branch": branch
            and {
                "session_id": branch.session_id,
                "status": branch.status,
                "reason": branch.reason,
                "text": branch.text,
            },
        }
    )


def _print_result(screen: TerminalOutput, replayed: "ReplayReport") -> None:
    name = replayed.session_id
    if replayed.skipped:
        screen.note(f"{_format_count(replayed.skipped, 'call')} without a model could not be replayed")
    if replayed.divergence is not None:
        _print_divergence(screen, name, replayed.divergence)
    elif replayed.branch is None:
        turns, runs = _format_count(replayed.turns, "turn"), _format_count(replayed.runs, "run")
        screen.write(f"session {name} does the same as recorded: {turns} in {runs}\n")
    if replayed.branch is not None:
        screen.end_line()
        fork = replayed.branch.session_id
        screen.note(f'session {fork}; go on with: perdure run --session {fork} "…"')


def _print_divergence(screen: TerminalOutput, name: str, divergence: "Divergence") -> None:
    screen.end_line()
    screen.write(f"session {name} differs from the log at entry {divergence.seq}: {divergence.what}\n")
    coloured = TerminalOutput(raw=True)
    for line in divergence.diff.splitlines():
        coloured.write(_colour_line(escape_controls(line)) + "\n")


def _colour_line(line: str) -> str:
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb" or "NO_COLOR" in os.environ:
        return line
    colour = {"-": "red", "+": "green", "@": "cyan"}.get(line[:1])
    return line if colour is None else click.style(line, fg=colour)


def _format_count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
