"""`perdure schedule`: list, add and remove schedules, serve them, run or cancel one, and list past firings."""

import asyncio
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from perdure._cli.home import store_option
from perdure._cli.run.command import add_agent_options, take_agent_options
from perdure._cli.terminal.amounts import parse_duration
from perdure._cli.terminal.output import TerminalOutput, line_width, to_ascii_json, to_one_line
from perdure._core.values.error import PerdureError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from perdure._cli.run.options import AgentOptions
    from perdure._cli.terminal.signals import SignalHandler
    from perdure._work.schedules.firing import Firing, ScheduleJournalRecord
    from perdure._work.schedules.schedule import Schedule
    from perdure._work.schedules.scheduler import Scheduler
    from perdure._work.schedules.stored import ScheduleStatus

T = TypeVar("T")

_FAILED = 1
"""Exit code when a run that was waited for has failed."""


def complete_schedule_name(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of schedules that begin with a text, for the completion of shells."""
    given = {name: context.params[name] for name in ("config", "no_config", "store") if context.params.get(name)}
    with contextlib.suppress(PerdureError, OSError):
        names = _use_schedules(take_agent_options(given), _list_names)
        return [each for each in names if each.startswith(incomplete)]
    return []


_json_option = click.option("--json", "as_json", is_flag=True, help="Print each row as a line of JSON.")
_name_argument = click.argument("name", shell_complete=complete_schedule_name)
_yes_option = click.option(
    "--yes", is_flag=True, help="Allow every tool call; otherwise those that need it are denied."
)
_allow_option = click.option(
    "--allow", multiple=True, metavar="TOOL[(TARGET)]", help="Allow such calls, as in --allow 'bash(git *)'."
)
_model_option = click.option(
    "--model", "-m", metavar="PROVIDER:MODEL", help="Model to ask.  [default: PERDURE_MODEL, or see perdure run -h]"
)


def _add_store_options(command: Any) -> Any:
    """Decorate a command with the options that choose the configuration file and the store."""
    command = store_option(command)
    command = click.option("--no-config", is_flag=True, help="Ignore perdure.toml.")(command)
    return click.option("--config", metavar="PATH", help="Configuration file.  [default: perdure.toml, here or above]")(
        command
    )


@click.group(invoke_without_command=True)
@click.pass_context
def schedule(context: click.Context) -> None:
    """Run the agent by schedule or by trigger, unattended.

    Schedules are in perdure.toml, as [[schedule]], or were added to the store. perdure schedule serve runs them, and
    several of these processes may serve one store. Nobody is asked: calls that need approval are denied.
    """
    if context.invoked_subcommand is None:
        TerminalOutput().write(context.get_help() + "\n")


@schedule.command("list")
@_json_option
@_add_store_options
def list_schedules(*, as_json: bool, **options: Any) -> None:
    """List the schedules, when each is due next, and how its last firing ended."""

    async def collect(scheduler: "Scheduler") -> "list[ScheduleStatus]":
        return await scheduler.list_status()

    found, screen = _use_schedules(take_agent_options(options), collect), TerminalOutput()
    width = max((len(each.schedule.name) for each in found), default=0)
    for each in found:
        if as_json:
            _write_json(screen, _status_to_json(each))
        else:
            screen.write(to_one_line(_format_status(each, width), line_width(sys.stdout)) + "\n")
    if not found and not as_json:
        screen.note("there is no schedule here; add one: perdure schedule add NAME --every 1h --prompt TEXT")


@schedule.command()
@click.argument("name")
@click.option("--every", metavar="TIME", default="", help="Interval: 30s, 5m, 12h, 1d or 1w.")
@click.option("--at", metavar="MOMENT", default="", help="One moment, as in 2026-11-18T09:00+01:00.")
@click.option("--cron", metavar="FIELDS", default="", help="Cron expression with five fields, as in '0 9 * * 1-5'.")
@click.option("--timezone", metavar="ZONE", default="", help="Time zone of --cron and --at.  [default: UTC for --cron]")
@click.option("--prompt", "-p", metavar="TEXT", default="", help="Prompt of each run.")
@click.option("--skill", metavar="NAME", default="", help="Skill that each run begins with, instead of --prompt.")
@click.option("--session", "-s", metavar="ID", default="", help="Session of the runs.  [default: the name]")
@click.option("--new-session", is_flag=True, help="Use a session of its own for each run.")
@click.option("--role", metavar="NAME", default="", help="Role of the agent.")
@click.option(
    "--timeout", callback=parse_duration, metavar="TIME", default="1h", show_default=True, help="Longest run."
)
@click.option(
    "--retries", type=click.IntRange(min=0), default=0, help="Times to try a failed run without effects again."
)
@click.option("--late", callback=parse_duration, metavar="TIME", help="How late a run may begin.  [default: 1m]")
@_json_option
@_add_store_options
def add(name: str, *, role: str, as_json: bool, timeout: float, late: float | None, **options: Any) -> None:
    """Add schedule NAME to the store, in place of an older one. Without a time it runs only when it is triggered."""
    from perdure._config.schedules import build_schedule
    from perdure._config.tables import ScheduleTable

    wish = take_agent_options(options)
    made = build_schedule(ScheduleTable(name=name, role=role, timeout_seconds=timeout, late_seconds=late, **options))

    async def store(scheduler: "Scheduler") -> None:
        await scheduler.add(made)

    _use_schedules(wish, store)
    _print_result(made.name, f"schedule {name!r} is added: {made.describe_timing()}", as_json=as_json)
    if not as_json:
        TerminalOutput().note("it runs while this command does: perdure schedule serve")


@schedule.command()
@_name_argument
@_json_option
@_add_store_options
def remove(name: str, *, as_json: bool, **options: Any) -> None:
    """Remove schedule NAME from the store. Its history and its sessions stay."""

    async def work(scheduler: "Scheduler") -> bool:
        return await scheduler.remove(name)

    if not _use_schedules(take_agent_options(options), work):
        raise UsageError(f"there is no schedule {name!r} in the store; see perdure schedule list")
    _print_result(name, f"schedule {name!r} is removed", as_json=as_json)


@schedule.command()
@_name_argument
@_json_option
@_add_store_options
@click.pass_context
def cancel(context: click.Context, /, name: str, *, as_json: bool, **options: Any) -> None:
    """Cancel the run of schedule NAME, in whatever process it is. Finished work is kept.

    The exit code is 1 if there is no run. A firing that waits for its session, or to be tried again, ends as well. The
    schedule itself stays.
    """

    async def work(scheduler: "Scheduler") -> bool:
        return await scheduler.cancel(name)

    asked = _use_schedules(take_agent_options(options), work)
    text = "is being cancelled" if asked else "has no active run"
    _print_result(name, f"schedule {name!r} {text}", as_json=as_json, cancelled=asked)
    context.exit(int(not asked))


@schedule.command()
@click.argument("name", required=False, default="", shell_complete=complete_schedule_name)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Number of firings.")
@_json_option
@_add_store_options
def history(name: str, *, limit: int, as_json: bool, **options: Any) -> None:
    """List the firings of schedule NAME, or of all, the newest first: how each ended, and which calls were denied."""

    async def collect(scheduler: "Scheduler") -> "list[Firing]":
        found = await scheduler.history(name, limit=limit)
        if name and not found:  # that of a schedule which was removed stays
            await scheduler.find_schedule(name)
        return found

    found, screen = _use_schedules(take_agent_options(options), collect), TerminalOutput()
    for each in found:
        if as_json:
            _write_json(screen, each)
        else:
            screen.write(to_one_line(_format_firing(each), line_width(sys.stdout)) + "\n")
    if not found and not as_json:
        screen.note("no schedule has been fired yet")


@schedule.command("run-now")
@_name_argument
@click.argument("text", metavar="[INPUT]", required=False)
@click.option("--no-wait", is_flag=True, help="Leave the run to perdure schedule serve, and do not wait for it.")
@click.option("--trusted", is_flag=True, help="INPUT is yours: it is not labelled as written by others.")
@_yes_option
@_allow_option
@_model_option
@_json_option
@add_agent_options
@store_option
@click.pass_context
def run_now(context: click.Context, /, name: str, text: str | None, **options: Any) -> None:
    """Trigger schedule NAME, with INPUT added to its prompt, and wait until the run is over.

    It runs in this process, unless another one serves the store and is quicker. The exit code is 1 if it fails.
    """
    no_wait, yes, as_json = options.pop("no_wait"), options.pop("yes"), options.pop("as_json")
    labels = () if options.pop("trusted") and text is not None else None

    async def work(scheduler: "Scheduler") -> "Firing":
        if not no_wait:
            return await scheduler.run_now(name, text, labels=labels)
        found = await scheduler.find_firing(name, await scheduler.trigger(name, text, labels=labels))
        assert found is not None  # noqa: S101 - it was stored
        return found

    wish = take_agent_options(options)
    firing = _use_schedules(wish, work) if no_wait else asyncio.run(_with_agent(wish, work, yes=yes))
    screen = TerminalOutput()
    if as_json:
        _write_json(screen, firing)
    else:
        screen.write(to_one_line(_format_firing(firing), line_width(sys.stdout)) + "\n")
    context.exit(_FAILED if firing.status in {"failed", "cancelled"} else 0)


@schedule.command()
@click.option("--once", is_flag=True, help="Run what is due now, and end.")
@click.option(
    "--most-at-once", type=click.IntRange(min=1), default=4, show_default=True, help="Schedules that run at a time."
)
@click.option("--quiet", "-q", is_flag=True, help="Print only errors.")
@_yes_option
@_allow_option
@_model_option
@_json_option
@add_agent_options
@store_option
@click.pass_context
def serve(context: click.Context, /, *, once: bool, most_at_once: int, quiet: bool, **options: Any) -> None:
    """Run the schedules when they are due or triggered, until the process is stopped, and print what happens.

    A run that another process has left, because it was killed, is continued. Firings that no process has served in time
    are missed, and not made up for. A due time is skipped while the run before it is not over. SIGTERM leaves the runs
    in progress for the next process.
    """
    yes, as_json = options.pop("yes"), options.pop("as_json")
    wish, screen = take_agent_options(options), TerminalOutput(quiet=quiet)

    async def work(scheduler: "Scheduler") -> None:
        if not (once or await scheduler.list_schedules()):
            screen.note("there is no schedule yet; those that are added will be served")
        async with contextlib.aclosing(scheduler.serve(once=once)) as records:
            await _print_records(records, screen, as_json=as_json, quiet=quiet)

    context.exit(asyncio.run(_with_agent(wish, work, yes=yes, most_at_once=most_at_once)) or 0)


async def _print_records(
    records: "AsyncGenerator[ScheduleJournalRecord]", screen: TerminalOutput, *, as_json: bool, quiet: bool
) -> None:
    async for record in records:
        if as_json:
            _write_json(screen, record)
        elif not quiet:
            from perdure._work.schedules.timing import format_moment

            screen.write(to_one_line(f"{format_moment(int(record.at))} {record.describe()}") + "\n")


# -- schedules and the agent -------------------------------------------------------------------------------------------


def _use_schedules(wish: "AgentOptions", work: "Callable[[Scheduler], Awaitable[T]]") -> T:
    """Call `work` with the schedules of the configuration and the store, and return its result. No model is asked."""
    from perdure._cli.run.assembly import resolve_store
    from perdure._runtime.agent.agent import Agent
    from perdure._stores import open_store
    from perdure._work.schedules.scheduler import Scheduler

    own = _read_schedules(wish)

    async def main() -> T:
        store = open_store(resolve_store(wish))
        try:
            return await work(Scheduler(Agent("demo", store=store), own))
        finally:
            await store.aclose()

    return asyncio.run(main())


async def _with_agent(
    wish: "AgentOptions", work: "Callable[[Scheduler], Awaitable[T]]", *, yes: bool, most_at_once: int = 4
) -> T:
    """Call `work` with a scheduler of the agent of the command line, until it is done or the process is stopped."""
    from perdure._cli.run.assembly import collect_agent_parts
    from perdure._cli.terminal.signals import SignalHandler

    screen = TerminalOutput()
    equipment = collect_agent_parts(wish)
    built = equipment.build_agent(permission=equipment.build_gate(None, yes=yes))
    with SignalHandler(screen.note) as interrupts:
        async with interrupts.wrap_agent(built) as agent:
            from perdure._work.schedules.scheduler import Scheduler

            scheduler = Scheduler(agent, _read_schedules(wish), most_at_once=most_at_once)
            try:
                result = await _run_until_interrupted(work(scheduler), interrupts)
            finally:
                await scheduler.store.aclose()
        interrupts.exit_with(interrupts.exit_code)
        return result


async def _run_until_interrupted(work: "Awaitable[T]", interrupts: "SignalHandler") -> T:
    """Await work; Ctrl-C cancels it."""
    working = asyncio.ensure_future(work)

    async def cancel() -> None:
        working.cancel()

    interrupts.on_interrupt(cancel)
    await asyncio.wait((working,))
    if working.cancelled():
        raise KeyboardInterrupt
    return working.result()


def _read_schedules(wish: "AgentOptions") -> "list[Schedule]":
    from perdure._cli.run.trusted_config import read_config

    config = read_config(wish, os.curdir)
    return [] if config is None else config.build_schedules()


async def _list_names(scheduler: "Scheduler") -> list[str]:
    return [each.name for each in await scheduler.list_schedules()]


# -- on the screen -----------------------------------------------------------------------------------------------------


def _status_to_json(status: "ScheduleStatus") -> dict[str, Any]:
    import msgspec

    encoded: dict[str, Any] = msgspec.to_builtins(status)
    return {**encoded, "timing": status.schedule.describe_timing()}


def _format_status(status: "ScheduleStatus", width: int) -> str:
    from perdure._work.schedules.timing import format_moment

    due = "" if status.next_due is None else f"  next {format_moment(status.next_due)}"
    state = "" if status.last is None else f"  last {status.last.status}"
    state = "  running" if status.running is not None else state
    waiting = f"  {status.pending} triggered" if status.pending else ""
    return f"{status.schedule.name:{width}}  {status.schedule.describe_timing()}{due}{state}{waiting}"


def _format_firing(firing: "Firing") -> str:
    from perdure._work.schedules.timing import format_moment

    facts = [f"x{firing.count}" if firing.count > 1 else "", f"({firing.reason})" if firing.reason else ""]
    facts += [f"session {firing.session_id}" if firing.session_id else ""]
    facts += [f"resumed {firing.resumed}x" if firing.resumed else ""]
    facts += [f"denied: {', '.join(firing.denied)}" if firing.denied else ""]
    facts += [f"unknown: {', '.join(firing.unknown_effects)}" if firing.unknown_effects else ""]
    shown = " ".join([each for each in facts if each])
    return f"{format_moment(int(firing.started_at))}  {firing.schedule}  {firing.firing_id}  {firing.status} {shown}"


def _print_result(name: str, text: str, *, as_json: bool, **facts: Any) -> None:
    screen = TerminalOutput()
    if as_json:
        _write_json(screen, {"name": name, **facts})
    else:
        screen.note(to_one_line(text))


def _write_json(screen: TerminalOutput, row: Any) -> None:
    import msgspec

    screen.write(to_ascii_json(msgspec.json.encode(row)) + "\n")
