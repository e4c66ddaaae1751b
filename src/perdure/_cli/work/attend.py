"""`perdure attend`: a worker that continues sessions which were cut off, or got an answer or a message."""

import asyncio
from typing import TYPE_CHECKING, Any

import click

from perdure._cli.home import store_option
from perdure._cli.run.command import add_agent_options, take_agent_options

if TYPE_CHECKING:
    from perdure._cli.run.options import AgentOptions
    from perdure._cli.terminal.signals import SignalHandler
    from perdure._core.run.outcome import Outcome


@click.command()
@click.option("--prefix", metavar="TEXT", default="", help="Continue only sessions whose id begins with this.")
@click.option(
    "--most-at-once", type=click.IntRange(min=1), default=4, show_default=True, help="Sessions to continue at a time."
)
@click.option("--once", is_flag=True, help="End when no session is left that can be continued now.")
@click.option("--yes", is_flag=True, help="Allow every tool call without asking.")
@click.option("--quiet", "-q", is_flag=True, help="Print only errors.")
@click.option("--json", "as_json", is_flag=True, help="Print each run that ends as a line of JSON.")
@add_agent_options
@store_option
@click.pass_context
def attend(context: click.Context, /, *, prefix: str, most_at_once: int, once: bool, **options: Any) -> None:
    """Continue the sessions of the store whose runs were cut off, or that got an answer or a message.

    It runs until it is stopped, and prints a line for each run that ends. Each session is continued with the agent of
    its last run, as by perdure resume. Questions stay open for perdure answer. Sessions that another process drives are
    left to it, and so are sessions whose last run another program began. Parked runs stay parked. Several of these
    commands may serve one store.
    """
    yes, quiet, as_json = options.pop("yes"), options.pop("quiet"), options.pop("as_json")
    printer = _OutcomePrinter(quiet=quiet, as_json=as_json)
    wish = take_agent_options(options)
    context.exit(asyncio.run(_attend(wish, prefix, most_at_once, printer, once=once, yes=yes)))


async def _attend(
    options: "AgentOptions", prefix: str, most_at_once: int, printer: "_OutcomePrinter", *, once: bool, yes: bool
) -> int:
    """Continue sessions until the process gets a signal to end, and return the exit code."""
    from perdure._cli.run.assembly import resolve_store
    from perdure._cli.terminal.signals import SignalHandler
    from perdure._core.values.clock import SYSTEM_CLOCK
    from perdure._runtime.resume.worker import ResumeWorker
    from perdure._stores import open_store

    store = open_store(resolve_store(options))
    with SignalHandler(printer.screen.note) as interrupts:
        sessions = _CommandSessions(options, interrupts, store, yes=yes)
        worker = ResumeWorker(store, sessions.attend, SYSTEM_CLOCK, prefix=prefix, most_at_once=most_at_once)
        printing = asyncio.ensure_future(_print_outcomes(worker.run(once=once), printer))

        async def cancel() -> None:
            printing.cancel()

        async def stop_gently() -> None:
            await interrupts.wait_for_shutdown()  # which ends the runs in progress
            worker.stop()

        interrupts.on_interrupt(cancel)
        stopping = asyncio.ensure_future(stop_gently())
        await asyncio.wait((printing,))
        stopping.cancel()
        await store.aclose()
        if not printing.cancelled():
            printing.result()
        return interrupts.exit_with(interrupts.exit_code)


async def _print_outcomes(outcomes: Any, printer: "_OutcomePrinter") -> None:
    """Print a line for each outcome, until the worker ends."""
    from contextlib import aclosing

    async with aclosing(outcomes) as found:
        async for outcome in found:
            printer.print_outcome(outcome)


class _OutcomePrinter:
    """Prints how runs have ended: as notes, or as lines of JSON."""

    def __init__(self, *, quiet: bool, as_json: bool) -> None:
        from perdure._cli.terminal.output import TerminalOutput

        self.screen = TerminalOutput(quiet=quiet or as_json)
        self._as_json = as_json

    def print_outcome(self, outcome: "Outcome[Any]") -> None:
        from perdure._cli.terminal.output import report_error, to_one_line

        if self._as_json:
            self._print_json(outcome)
            return
        reason = f" ({outcome.reason})" if outcome.reason else ""
        line = to_one_line(f"session {outcome.session_id}: {outcome.status}{reason}")
        if outcome.error is not None:
            report_error(to_one_line(f"{line}: {outcome.error}"))
        else:
            self.screen.note(line)

    def _print_json(self, outcome: "Outcome[Any]") -> None:
        import msgspec

        from perdure._cli.terminal.output import to_ascii_json

        names = ("session_id", "run_id", "status", "reason", "turns", "cost_usd")
        row = {name: getattr(outcome, name) for name in names}
        row["error"] = None if outcome.error is None else f"{type(outcome.error).__name__}: {outcome.error}"
        self.screen.write(to_ascii_json(msgspec.json.encode(row)) + "\n")


class _CommandSessions:
    """The sessions of the command line, each continued with the agent options of its last run."""

    def __init__(self, options: "AgentOptions", interrupts: "SignalHandler", store: Any, *, yes: bool) -> None:
        self._options = options
        self._interrupts = interrupts
        self._store = store
        self._yes = yes

    async def attend(self, session_id: str) -> "Outcome[Any] | None":
        """Continue a session if there is a reason to, and return the outcome; `None` if there is none.

        The session of a background agent is continued by the session that gave the task. A session whose last run
        another program began is left to that program, even if a message has come for a new run.
        """
        from perdure._cli.run.assembly import collect_agent_parts
        from perdure._cli.run.options import fill_missing_options, is_last_run_from_cli
        from perdure._cli.sessions.resume_check import find_parent_session, find_resume_problem
        from perdure._core.log.fold import fold_entries
        from perdure._runtime.resume.resumer import SessionResumer

        state = fold_entries(await self._store.read(session_id))
        session_id, state = await find_parent_session(self._store, session_id, state)
        if self._interrupts.is_interrupted or not is_last_run_from_cli(state):
            return None
        equipment = collect_agent_parts(fill_missing_options(self._options, state))
        gate = equipment.build_gate(None, yes=self._yes, wait=not self._yes)
        built = equipment.build_agent(permission=gate, answer_timeout_seconds=0.0)
        async with self._interrupts.wrap_agent(built) as agent:
            if find_resume_problem(agent, state) is not None:
                return None
            return await SessionResumer(agent, self._store, {}).attend(session_id)
