"""`perdure goal`: pursue a goal with a maker and a checker, resume it, list goals, show one, and stop one."""

from typing import TYPE_CHECKING, Any

import click

from perdure._cli.home import resolve_store_spec, run_with_store, store_option
from perdure._cli.run.command import add_agent_options, take_agent_options
from perdure._cli.sessions.choice import MIN_PREFIX
from perdure._cli.terminal.output import TerminalOutput, escape_controls, to_ascii_json

from .goal_text import encode_goal, format_goal, format_goal_row

if TYPE_CHECKING:
    from perdure._core.log.store import Store
    from perdure._work.goals.record import GoalRecord

_json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON.")


def _add_limit_options(command: Any) -> Any:
    """Decorate a click command with the limits of a goal."""
    positive, above_zero = click.IntRange(min=1), click.FloatRange(min=0, min_open=True)
    for option in (
        click.option("--budget-seconds", type=above_zero, metavar="S", help="Time of the goal, without pauses."),
        click.option("--budget-cost", type=above_zero, metavar="USD", help="Dollars of all agents together."),
        click.option("--budget-tokens", type=positive, metavar="N", help="Tokens of all agents together."),
        click.option("--max-iterations", type=positive, metavar="N", help="Iterations at most.  [default: 10]"),
    ):
        command = option(command)
    return command


def _add_approval_options(command: Any) -> Any:
    """Decorate a click command with the options that decide about tool calls and the output."""
    for option in (
        click.option("--quiet", "-q", is_flag=True, help="Print only the result and errors."),
        _json_option,
        click.option("--yolo", is_flag=True, help="Like --yes, but only if commands run in a sandbox."),
        click.option("--yes", is_flag=True, help="Allow every tool call without asking."),
        click.option(
            "--allow", multiple=True, metavar="TOOL[(TARGET)]", help="Allow such calls, as in --allow 'bash(git *)'."
        ),
    ):
        command = option(command)
    return command


@click.group()
def goal() -> None:
    """Pursue a goal until a checker has found every item of its checklist done."""


@goal.command()
@click.argument("objective")
@click.option("--item", "items", multiple=True, metavar="TEXT", help="Item of the checklist, instead of a plan.")
@click.option("--grade-command", metavar="COMMAND", help="Command that has to exit with 0, such as 'pytest -q'.")
@click.option("--worktree", is_flag=True, help="Work in a git worktree of its own, on the branch goal/ID.")
@click.option("--checker-model", metavar="PROVIDER:MODEL", help="Model of the checker.  [default: that of the maker]")
@click.option("--max-turns", type=click.IntRange(min=1), metavar="N", help="Replies of the maker in an iteration.")
@click.option(
    "--no-progress", type=click.IntRange(min=1), metavar="N", help="Iterations without progress.  [default: 2]"
)
@_add_limit_options
@click.option("--model", "-m", metavar="PROVIDER:MODEL", help="Model of the maker.  [default: as for perdure run]")
@click.option("--role", metavar="NAME", help="Role of the maker: NAME.md in the folder roles.")
@add_agent_options
@_add_approval_options
@store_option
@click.pass_context
def start(context: click.Context, /, objective: str, **options: Any) -> None:
    r"""Pursue OBJECTIVE: plan a checklist, then let a maker work and a checker judge, in turns.

    Each works in a fresh session. The checker has only tools that read, and an item is done only with evidence. It ends
    when every item is done and --grade-command succeeds; at a limit; or as blocked, after iterations that brought no
    progress. Every step is stored: after a crash or a limit, perdure goal resume continues.

    Tool calls that need an approval pause the goal until perdure answer and perdure goal resume; --allow, --yes and
    --yolo allow them. With --worktree, nothing in your working folder changes: review the branch goal/ID, and merge it.

    Exit codes: 0 achieved, 1 errored, 2 blocked, 3 max_iterations, 4 budget_limited, 5 paused, 130 after Ctrl-C.
    """
    from .goal_run import GoalCommandOptions, run_goal_command

    agent, as_json, quiet = _take_common_options(options)
    context.exit(
        run_goal_command(GoalCommandOptions(objective=objective, agent=agent, as_json=as_json, quiet=quiet, **options))
    )


@goal.command()
@click.argument("goal_id", metavar="[ID]", required=False)
@_add_limit_options
@click.option("--grade-command", metavar="COMMAND", help="Another command than the one that was given before.")
@click.option("--model", "-m", metavar="PROVIDER:MODEL", help="Another model of the maker.")
@_add_approval_options
@store_option
@click.pass_context
def resume(context: click.Context, /, goal_id: str | None, **options: Any) -> None:
    r"""Continue goal ID, or the newest that is not achieved: after a crash, a pause, an error, or at a limit.

    The agent, the grade command and the worktree are those of perdure goal start, and so are the limits; iterations are
    counted anew, and a budget that is used up has to be raised. Approvals have to be given again. The beginning of an
    id is enough.

    Exit codes are those of perdure goal start.
    """
    from perdure._cli.run.assembly import resolve_store
    from perdure._cli.run.options import AgentOptions

    from .goal_run import GoalCommandOptions, run_goal_command

    store = resolve_store(AgentOptions(store=options["store"]))
    record = run_with_store(store, lambda opened: _find_goal(opened, goal_id, unfinished=True))
    agent, as_json, quiet = _take_common_options(options)
    context.exit(
        run_goal_command(
            GoalCommandOptions(goal_id=record.goal_id, agent=agent, as_json=as_json, quiet=quiet, **options)
        )
    )


@goal.command("list")
@click.option("--limit", default=20, type=click.IntRange(min=1), help="How many to list.  [default: 20]")
@click.option("--json", "as_json", is_flag=True, help="Print each goal as a line of JSON.")
@store_option
def list_(*, limit: int, as_json: bool, store: str | None) -> None:
    """List goals, the most recently changed first, with their status, items and scores."""
    from perdure._work.goals.record import list_goals

    screen = TerminalOutput()
    found = run_with_store(store, list_goals)
    for record in found[:limit]:
        screen.write(encode_goal(record) if as_json else format_goal_row(record))
    if not found and not as_json:
        screen.note('there is no goal; perdure goal start "…" begins one')
    elif len(found) > limit and not as_json:
        screen.note(f"there are {len(found) - limit} more; --limit {len(found)} shows them")


@goal.command()
@click.argument("goal_id", metavar="ID")
@click.option("--svg", metavar="PATH", help="Write a plot of the scores to this file.")
@_json_option
@store_option
def show(*, goal_id: str, svg: str | None, as_json: bool, store: str | None) -> None:
    """Show goal ID: its checklist with evidence, its iterations, and a plot of its scores."""
    from perdure._work.goals.plot import draw_score_svg

    record = run_with_store(store, lambda opened: _find_goal(opened, goal_id))
    screen = TerminalOutput()
    screen.write(encode_goal(record) if as_json else escape_controls(format_goal(record)))
    if svg is not None:
        from perdure._cli.sessions.transfer import write_file_atomically

        write_file_atomically(svg, draw_score_svg(record.scores, title=record.objective).encode(), replace=True)
        TerminalOutput(quiet=as_json).note(f"the plot is in {svg}")


@goal.command()
@click.argument("goal_id", metavar="ID")
@_json_option
@store_option
def stop(*, goal_id: str, as_json: bool, store: str | None) -> None:
    """Stop goal ID, also if another process pursues it. It is paused, and can be resumed."""
    import msgspec

    from perdure._work.goals.pursuit import stop_goal

    async def find_and_stop(opened: "Store") -> tuple[str, bool]:
        record = await _find_goal(opened, goal_id)
        return record.goal_id, await stop_goal(record.goal_id, opened)

    found, is_stopped = run_with_store(store, find_and_stop)
    if as_json:
        line = to_ascii_json(msgspec.json.encode({"goal_id": found, "stopped": is_stopped}))
        TerminalOutput().write(f"{line}\n")
    else:
        TerminalOutput().note(f"goal {found} {'is stopped' if is_stopped else 'is not being pursued'}")


def _take_common_options(options: dict[str, Any]) -> tuple[Any, bool, bool]:
    """Remove the options about the agent and the output from a command's options, and return them."""
    return take_agent_options(options), options.pop("as_json"), options.pop("quiet")


async def _find_goal(store: "Store", given: str | None, *, unfinished: bool = False) -> "GoalRecord":
    """Return the goal with this id or beginning of an id; without one, the newest that is not achieved.

    Raises `SessionNotFound` if there is none, and `UsageError` if several fit.
    """
    from perdure._core.log.reserved_ids import check_not_reserved
    from perdure._core.values.error import SessionNotFound
    from perdure._work.goals.record import list_goals, read_goal

    if given is not None:
        check_not_reserved(given, store)
    if given is not None and await store.info(given) is not None:
        return await read_goal(given, store)
    goals = await list_goals(store)
    if given is None:
        fitting = [each for each in goals if each.status not in {"achieved", "running"} or not unfinished][:1]
    else:
        fitting = [each for each in goals if each.goal_id.startswith(given) and len(given) >= MIN_PREFIX]
    if len(fitting) > 1:
        names = ", ".join([each.goal_id for each in fitting[:5]])
        raise click.UsageError(f"{given!r} fits several goals: {names}; write more of the id")
    if not fitting:
        named = "there is no goal that can be resumed" if given is None else f"there is no goal {given!r}"
        raise SessionNotFound(f"{named} in {resolve_store_spec(None)}; perdure goal list lists those that are there")
    return fitting[0]
