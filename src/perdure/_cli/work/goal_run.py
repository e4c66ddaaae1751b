"""Run `perdure goal start` and `resume`: build the agents, print the steps, handle signals, return the exit code."""

# ruff: noqa: PTH109 - pathlib would cost every start milliseconds

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._cli.run.assembly import AgentParts, check_sandbox_for_yolo, collect_agent_parts, resolve_store
from perdure._cli.run.folder_trust import check_folder_trust
from perdure._cli.run.options import AgentOptions
from perdure._cli.run.project import describe_missing_sandbox
from perdure._cli.run.trusted_config import read_config
from perdure._cli.terminal.output import TerminalOutput, can_ask_user, escape_controls, to_one_line, warn
from perdure._cli.terminal.signals import SignalHandler
from perdure._core.run.stop import Limits, merge_limits
from perdure._core.values.error import ConfigError
from perdure._core.values.event import Entry
from perdure._runtime.agent.agent import Agent
from perdure._stores import open_store
from perdure._work.goals.events import (
    GoalEnded,
    GoalPlanned,
    IterationStarted,
    MakerFinished,
    VerdictGiven,
    WorkGraded,
    parse_goal_event,
)
from perdure._work.goals.goal import Goal
from perdure._work.goals.pursuit import new_goal_id, pursue_goal, resume_goal
from perdure._work.goals.record import GoalRecord, read_goal
from perdure._work.goals.worktree import prepare_worktree
from perdure._work.judging.graders.command import command_grader
from perdure._work.judging.graders.grader import Grader

from .goal_text import EXIT_CODES, encode_goal, format_goal

_PURPOSE: Final = "goal"
_SIGNATURE: Final = "signature"


def sign_details(goal_id: str, workdir: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details to store with a goal, with a signature for its id and folder."""
    from perdure._io.home.keys import load_runtime_key

    signature = load_runtime_key().sign(_PURPOSE, _build_message(goal_id, workdir, details))
    return {**details, _SIGNATURE: signature}


def check_details(record: "GoalRecord") -> None:
    """Raise `ConfigError` unless this runtime has signed what is stored with a goal."""
    from perdure._io.home.keys import KEY_VARIABLE, load_runtime_key

    details = dict(record.details)
    signature = details.pop(_SIGNATURE, None)
    message = _build_message(record.goal_id, record.workdir, details)
    if not isinstance(signature, str) or not load_runtime_key().is_signed(_PURPOSE, message, signature):
        raise ConfigError(
            f"the folder and the options of goal {record.goal_id} were not stored by this runtime: by another program, "
            f"or one with another key ({KEY_VARIABLE}); start a new goal"
        )


def _build_message(goal_id: str, workdir: str, details: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode([goal_id, workdir, dict(details)], order="deterministic")


_STORED_OPTIONS: Final = ("model", "role", "coding", "context", "config", "no_config")
"""Options that choose the agent and are stored with a goal; approvals are not among them, and are given again."""
MOST_REPORT_CHARACTERS: Final = 200
"""Characters of a report or a summary that a line about a step shows."""


class GoalCommandOptions(Struct, frozen=True, kw_only=True):
    """All options of one `perdure goal start` or `perdure goal resume` command."""

    objective: str = ""
    """The objective of a new goal; empty to resume one."""
    goal_id: str = ""
    """The goal to resume; empty for a new one."""
    agent: AgentOptions = AgentOptions()
    items: tuple[str, ...] = ()
    grade_command: str | None = None
    worktree: bool = False
    checker_model: str | None = None
    max_turns: int | None = None
    """Replies of the maker in an iteration."""
    no_progress: int | None = None
    max_iterations: int | None = None
    budget_tokens: int | None = None
    budget_cost: float | None = None
    budget_seconds: float | None = None
    yes: bool = False
    yolo: bool = False
    as_json: bool = False
    quiet: bool = False

    def build_goal(self) -> Goal:
        """Return the goal that the options describe."""
        given: dict[str, Any] = {
            "items": self.items,
            "max_iterations": self.max_iterations,
            "no_progress_limit": self.no_progress,
            "token_budget": self.budget_tokens,
            "max_cost_usd": self.budget_cost,
            "max_seconds": self.budget_seconds,
        }
        return Goal(self.objective, **{name: value for name, value in given.items() if value is not None})

    def build_details(self) -> dict[str, Any]:
        """Return the options that are stored with the goal, for `perdure goal resume`."""
        given = {name: getattr(self.agent, name) for name in _STORED_OPTIONS}
        given |= {name: getattr(self, name) for name in ("grade_command", "checker_model", "max_turns")}
        given["no_config"] = given["no_config"] or None
        return {"command_line": {name: value for name, value in given.items() if value is not None}}


def run_goal_command(options: GoalCommandOptions) -> int:
    """Pursue or resume a goal as the options say, print its steps, and return the exit code."""
    return asyncio.run(_run_with_signals(options))


async def _run_with_signals(options: GoalCommandOptions) -> int:
    screen = TerminalOutput(quiet=options.quiet or options.as_json)
    with SignalHandler(screen.note) as interrupts:
        record = await (_resume if options.goal_id else _start)(options, _Terminal(screen, interrupts))
        _print_record(record, options)
        code = interrupts.exit_code if interrupts.is_interrupted else EXIT_CODES[record.status]
        return interrupts.exit_with(code)


class _Terminal(NamedTuple):
    """The terminal of the command: its output and its signals."""

    screen: TerminalOutput
    interrupts: SignalHandler


async def _start(options: GoalCommandOptions, terminal: _Terminal) -> GoalRecord:
    wanted, goal_id, here = options.build_goal(), new_goal_id(), os.getcwd()
    branch = ""
    options = replace(options, agent=_fix_config(options.agent, here))
    if options.worktree:
        if options.agent.coding is False:
            raise ConfigError("--worktree is for an agent with tools for files: leave out --no-coding")
        here, branch = prepare_worktree(here, goal_id)
        options = replace(options, agent=replace(options.agent, coding=True))
        terminal.screen.note(f"worktree {here} on branch {branch}")

    async def pursue(maker: "Agent[Any]", checker: "Agent[Any] | None", grader: Grader | None) -> GoalRecord:
        terminal.screen.note(f"goal {goal_id}; stop it with: perdure goal stop {goal_id}")
        return await pursue_goal(
            wanted,
            maker,
            checker=checker,
            grader=grader,
            goal_id=goal_id,
            workdir=here,
            branch=branch,
            details=sign_details(goal_id, here, options.build_details()),
            watchers=[_StepPrinter(terminal.screen)],
        )

    return await _pursue_with_agents(options, here, goal_id, pursue, terminal)


async def _resume(options: GoalCommandOptions, terminal: _Terminal) -> GoalRecord:
    store = open_store(resolve_store(options.agent))
    record = await read_goal(options.goal_id, store)
    await store.aclose()
    check_details(record)
    options = _restore_options(options, record)
    here = record.workdir or os.getcwd()
    if record.branch:
        repository = here.rpartition("/.perdure/worktrees/")[0]  # the last one: a goal may begin in a worktree
        here, _ = prepare_worktree(repository, record.goal_id)
    if not os.path.isdir(here):  # noqa: ASYNC240, PTH112 - once, before anything begins
        raise ConfigError(f"the folder of goal {record.goal_id} is gone: {here!r}; make it again, or start a new goal")

    async def pursue(maker: "Agent[Any]", checker: "Agent[Any] | None", grader: Grader | None) -> GoalRecord:
        return await resume_goal(
            record.goal_id,
            maker,
            checker=checker,
            grader=grader,
            watchers=[_StepPrinter(terminal.screen)],
            max_iterations=options.max_iterations,
            token_budget=options.budget_tokens,
            max_cost_usd=options.budget_cost,
            max_seconds=options.budget_seconds,
        )

    return await _pursue_with_agents(options, here, record.goal_id, pursue, terminal)


async def _pursue_with_agents(
    options: GoalCommandOptions, here: str, goal_id: str, pursue: Any, terminal: _Terminal
) -> GoalRecord:
    """Build the agents of a goal, and pursue it until it ends or a signal stops it; return its record."""
    parts = collect_agent_parts(options.agent, here)
    for note in parts.notes:
        terminal.screen.note(to_one_line(note))
    _warn_about_approvals(options, parts)
    grader = None if options.grade_command is None else _build_grader(options, options.grade_command, here)
    async with terminal.interrupts.wrap_agent(_build_maker(options, parts)) as maker:
        checker = None if options.checker_model is None else maker.replace(model=options.checker_model)
        task = asyncio.ensure_future(pursue(maker, checker, grader))

        async def cancel() -> None:
            task.cancel()

        terminal.interrupts.on_interrupt(cancel)
        await asyncio.wait((task,))
        if task.cancelled():
            return await read_goal(goal_id, maker.store)
        record: GoalRecord = task.result()
        return record


def _build_grader(options: GoalCommandOptions, command: str, here: str) -> Grader:
    """Build the grader that runs a command after each iteration. Without a sandbox, a person has to agree first.

    The command is the user's, but what it runs, such as tests, is what the agents wrote.
    """
    from perdure._tools.sandbox.bubblewrap import find_bubblewrap

    problem = find_bubblewrap()[1]
    if problem and not options.yes:
        risk = f"there is no sandbox ({problem}), so it can do what you can, and it runs what the agents wrote"
        if not can_ask_user():
            raise ConfigError(f"--grade-command {command!r}: {risk}; allow it with --yes, or install the sandbox")
        if not click.confirm(escape_controls(f"Run {command!r} after each iteration? Mind: {risk}."), err=True):
            raise ConfigError("the command of the grader may not run, so nothing was done; leave out --grade-command")
    return command_grader(command, cwd=here, trusted=check_folder_trust(here, []))


def _build_maker(options: GoalCommandOptions, parts: AgentParts) -> "Agent[Any]":
    """Build the agent that does the work. A call that needs an approval pauses the goal."""
    gate = parts.build_gate(None, yes=options.yes or options.yolo, wait=True)
    limits = parts.options.get("limits", Limits())
    if options.max_turns is not None:
        limits = merge_limits(limits, Limits(max_turns=options.max_turns))
    return parts.build_agent(permission=gate, answer_timeout_seconds=0.0, limits=limits)


def _warn_about_approvals(options: GoalCommandOptions, parts: AgentParts) -> None:
    if options.yolo:
        check_sandbox_for_yolo(parts.options["extensions"])
    elif options.yes:
        risk = describe_missing_sandbox(parts.options["extensions"])
        danger = f", commands too, and they run without a sandbox: {risk}" if risk else ""
        warn(f"--yes: every tool call is made without asking{danger}")


def _fix_config(options: AgentOptions, here: str) -> AgentOptions:
    """Return the options with the path of the configuration file, which a worktree would have elsewhere, untrusted."""
    config = read_config(options, here)
    return options if config is None else replace(options, config=os.path.abspath(config.path))  # noqa: PTH100 - as above


def _restore_options(options: GoalCommandOptions, record: GoalRecord) -> GoalCommandOptions:
    """Return the options of `resume`, with those that were not given taken from the start of the goal."""
    found = record.details.get("command_line")
    stored = dict(cast("dict[str, Any]", found)) if isinstance(found, dict) else {}
    own = {name: stored.pop(name) for name in ("grade_command", "checker_model", "max_turns") if name in stored}
    known = {name: value for name, value in stored.items() if name in _STORED_OPTIONS}
    given = {name: value for name in known if (value := getattr(options.agent, name)) not in {None, False}}
    if options.grade_command is not None:
        own["grade_command"] = options.grade_command
    return replace(options, agent=replace(options.agent, **{**known, **given}), **own)


class _StepPrinter:
    """A watcher that prints a line for each step of a goal."""

    def __init__(self, screen: TerminalOutput) -> None:
        self._screen = screen

    def __call__(self, entry: Entry) -> None:
        """Print the step that an entry of the goal's session stores."""
        line = _describe_step(entry)
        if line:
            self._screen.note(to_one_line(line))


def _describe_step(entry: Entry) -> str:
    """Return a line about a step of a goal; empty for other entries."""
    match parse_goal_event(entry.event):
        case GoalPlanned(items=items):
            return f"checklist: {'; '.join([f'{each.id}. {each.title}' for each in items])}"
        case IterationStarted(iteration=number):
            return f"iteration {number}: the maker works"
        case MakerFinished() as made:
            return f"iteration {made.iteration}: the maker {made.status}: {made.report[:MOST_REPORT_CHARACTERS]}"
        case WorkGraded() as graded:
            judged = "passed" if graded.grade.passed else "not passed"
            return f"iteration {graded.iteration}: {graded.grade.grader}: {judged} (score {graded.grade.score:.2f})"
        case VerdictGiven() as verdict:
            done = sum([each.done for each in verdict.items])
            counted = f"{done} of {len(verdict.items)} items are done (score {verdict.score:.2f})"
            return f"iteration {verdict.iteration}: {counted}: {verdict.summary[:MOST_REPORT_CHARACTERS]}"
        case GoalEnded() as ended:
            return f"the goal is {ended.status}"
        case _:
            return ""


def _print_record(record: GoalRecord, options: GoalCommandOptions) -> None:
    """Print the record of a goal at the end of the command."""
    screen = TerminalOutput()
    screen.write(encode_goal(record) if options.as_json else escape_controls(format_goal(record)))
