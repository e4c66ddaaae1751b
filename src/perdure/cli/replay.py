"""`perdure replay`: run a kept session again, offline, and see whether it does the same. Above: `main.py`.
Below: `perdure.replaying.replay`.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from .home import no_session, store_option
from .run import agent_options, wish_of
from .screen import Screen, json_line, one_line, visible, warn

if TYPE_CHECKING:
    from perdure.agent import Agent
    from perdure.core.outcome import Outcome
    from perdure.replaying.replay import Divergence, Replayed

    from .order import Wish

DIVERGED = 1
"""The exit code when something else happens now."""


@click.command()
@click.argument("session_id", metavar="ID")
@click.option("--from", "from_seq", type=click.IntRange(min=1), metavar="SEQ", help="Go on live after this entry.")
@click.option("--prompt", "-p", metavar="TEXT", help="With --from: say this, instead of finishing the run.")
@click.option("--model", "-m", metavar="PROVIDER:MODEL", help="With --from: who answers.")
@click.option("--json", "as_json", is_flag=True, help="Write what came of it as a line of JSON.")
@agent_options
@store_option
@click.pass_context
def replay(context: click.Context, /, session_id: str, **options: Any) -> None:
    """Run session ID again, offline, and show where it does not do the same.

    The model's replies and the results of tools come from the log, and nothing has an effect. The exit code is 0 when
    everything happens as recorded, and 1 when something else happens: then the first difference is shown.

    With --from the session is replayed up to that entry. Then it goes on live, in a fork of its own: the run that is
    cut there is finished, or --prompt is answered.

    The agent is that of perdure run, made from the files that lie here now: where AGENTS.md or a skill has changed
    since, that is a difference.
    """
    import asyncio

    for name in ("prompt", "model"):
        if options[name] is not None and options["from_seq"] is None:
            raise click.UsageError(f"--{name} is for what happens live; say with --from where that begins")
    wish = wish_of(options)
    context.exit(asyncio.run(_perform(session_id, wish, **options)))


async def _perform(session_id: str, wish: "Wish", *, from_seq: int | None, prompt: str | None, as_json: bool) -> int:
    from perdure.override import Overrides
    from perdure.replaying.replay import replay as replay_session

    from .drive import wish_before

    screen = Screen(quiet=as_json)
    agent = _agent(screen, await wish_before(wish, session_id), as_json=as_json)
    overrides = Overrides() if wish.model is None else Overrides(model=wish.model)
    async with agent:
        if not await agent.store.read(session_id):
            raise no_session(session_id)
        replayed = await replay_session(agent, session_id, from_seq=from_seq, prompt=prompt, **overrides)
    if as_json:
        screen.say(json_line(_as_json(replayed)) + "\n")
    else:
        _tell(screen, replayed)
    if replayed.branch is not None:
        return _exit_code(replayed.branch)
    return 0 if replayed.agrees else DIVERGED


def _agent(screen: Screen, wish: "Wish", *, as_json: bool) -> "Agent[Any]":
    """The agent of `perdure run`, whose live part is shown as it happens."""
    from perdure.core.event import Entry, QuestionAsked

    from .ask import TerminalQuestion
    from .equipment import equip
    from .keyboard import Keyboard
    from .report import TextReport
    from .screen import can_ask

    question = TerminalQuestion(screen, Keyboard()) if can_ask() else None
    report = TextReport(screen)

    async def show(entry: Entry) -> None:
        report(entry.event)
        if question is not None and isinstance(entry.event, QuestionAsked):
            question.all_shown()

    equipment = equip(wish)
    for each in equipment.warnings:
        warn(one_line(each))
    for each in equipment.notes:
        screen.note(one_line(each))
    return equipment.agent(
        permission=equipment.gate(question),
        watchers=() if as_json else (show,),
    )


def _exit_code(outcome: "Outcome[Any]") -> int:
    from perdure.core.error import PerdureError

    from .drive import CUT_SHORT

    if outcome.error is not None:
        return outcome.error.exit_code if isinstance(outcome.error, PerdureError) else PerdureError.exit_code
    return 0 if outcome.status in {"done", "stopped"} else CUT_SHORT


def _as_json(replayed: "Replayed") -> bytes:
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


def _tell(screen: Screen, replayed: "Replayed") -> None:
    name = replayed.session_id
    if replayed.skipped:
        screen.note(f"{_counted(replayed.skipped, 'call')} without a model could not be replayed")
    if replayed.divergence is not None:
        _show(screen, name, replayed.divergence)
    elif replayed.branch is None:
        turns, runs = _counted(replayed.turns, "turn"), _counted(replayed.runs, "run")
        screen.say(f"session {name} does the same as recorded: {turns} in {runs}\n")
    if replayed.branch is not None:
        screen.end_line()
        fork = replayed.branch.session_id
        screen.note(f'session {fork}; go on with: perdure run --session {fork} "…"')


def _show(screen: Screen, name: str, divergence: "Divergence") -> None:
    screen.end_line()
    screen.say(f"session {name} does something else at entry {divergence.seq}: {divergence.what}\n")
    coloured = Screen(raw=True)
    for line in divergence.diff.splitlines():
        coloured.say(_coloured(visible(line)) + "\n")


def _coloured(line: str) -> str:
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb" or "NO_COLOR" in os.environ:
        return line
    colour = {"-": "red", "+": "green", "@": "cyan"}.get(line[:1])
    return line if colour is None else click.style(line, fg=colour)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
