"""Pursue, resume and stop goals: the functions that run the engine of a goal in the goal's session."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure._core.log.store import Store
from perdure._core.model.protocol import model_info
from perdure._core.run.outcome import Outcome
from perdure._core.run.run import Run
from perdure._core.run.stop import Limits
from perdure._core.values import checks
from perdure._core.values.clock import Clock, new_id
from perdure._core.values.error import SessionExists, UsageError
from perdure._core.watch import Watcher
from perdure._runtime.agent.agent import Agent
from perdure._runtime.session.session import Session
from perdure._stores import open_store
from perdure._work.judging.graders.grader import GRADE_SECONDS, AnyGrader, to_grader

from .engine import GoalEngine, GoalRoles
from .events import GoalStarted, build_goal_prompt
from .goal import Goal
from .record import GOAL_PREFIX, GoalRecord, fold_goal, read_goal
from .roles import build_checker, build_planner

ID_CHARACTERS = 8
"""Random characters of a new goal's id."""


def new_goal_id() -> str:
    """Return an id for a new goal, such as `goal-9f2c41aa`."""
    return f"{GOAL_PREFIX}{new_id()[-ID_CHARACTERS:]}"


async def pursue_goal(
    goal: Goal | str,
    maker: "Agent[Any]",
    *,
    checker: "Agent[Any] | None" = None,
    grader: AnyGrader | None = None,
    grade_seconds: float = GRADE_SECONDS,
    goal_id: str = "",
    store: Store | str | None = None,
    workdir: str = "",
    branch: str = "",
    details: Mapping[str, Any] | None = None,
    watchers: Sequence[Watcher] = (),
) -> GoalRecord:
    """Pursue a new goal: a maker works and a checker judges, in fresh sessions, until the goal is achieved.

    Return its record also if it was not achieved: `record.status` says why. Every step is stored, so that `resume_goal`
    continues after a crash. Cancelling this call pauses the goal.

    Args:
        goal: The objective, or a `Goal` with its limits.
        maker: The agent that does the work, with its tools, permissions and limits for one iteration.
        checker: The agent that judges it; by default one like the maker. Of either, the checker gets the tools alone
            that only read (`effect="read"`).
        grader: A grader that has to pass too, such as `command_grader(["pytest"])`. It may run again after a crash.
        grade_seconds: The time that the grader may take.
        goal_id: The id of the goal and of its session; by default a new one, such as `goal-9f2c41aa`.
        store: Where it is stored; by default in the maker's store.
        workdir: The folder in which the maker works, for the record.
        branch: The git branch of that folder, for the record.
        details: Values of yours, for the record.
        watchers: Functions that get every event of the goal's session.
    """
    wanted = Goal(goal) if isinstance(goal, str) else goal
    if not isinstance(wanted, Goal):
        checks.raise_config_error("pursue_goal", "goal", wanted, "give text, or a Goal(…)")
    roles = build_roles(maker, checker, grader, grade_seconds)
    goal_id = goal_id or new_goal_id()
    if "/" in goal_id or not goal_id.startswith(GOAL_PREFIX):
        checks.raise_config_error("pursue_goal", "goal_id", goal_id, f"begin it with {GOAL_PREFIX!r}, without /")
    _check_budgets(wanted, roles)
    session = open_goal_session(goal_id, maker, store, watchers)
    if await session.info() is not None:
        raise SessionExists(f"there is a goal {goal_id!r} already: resume_goal() continues it")
    prompt = build_goal_prompt(wanted.objective, GoalStarted(wanted, workdir, branch, details or {}))
    outcome = await session.run(prompt, input_id="goal", engine=GoalEngine(wanted, roles))
    return await _build_record(session, outcome)


async def resume_goal(
    goal_id: str,
    maker: "Agent[Any]",
    *,
    checker: "Agent[Any] | None" = None,
    grader: AnyGrader | None = None,
    grade_seconds: float = GRADE_SECONDS,
    store: Store | str | None = None,
    watchers: Sequence[Watcher] = (),
    max_iterations: int | None = None,
    token_budget: int | None = None,
    max_cost_usd: float | None = None,
    max_seconds: float | None = None,
) -> GoalRecord:
    """Continue a goal that was paused, cut off by a crash, or ended at a limit. An achieved goal is returned as it is.

    The checklist and all that was done are in the log. A goal that ended gets its iterations anew; budgets are totals,
    so one that is used up has to be raised. The other arguments are those of `pursue_goal`. Raises `SessionNotFound` if
    there is no such goal, and `SessionBusy` while another process pursues it.
    """
    roles = build_roles(maker, checker, grader, grade_seconds)
    session = open_goal_session(goal_id, maker, store, watchers)
    record = await read_goal(goal_id, session.store)
    is_interrupted = (await session.read_state()).is_interrupted
    if record.goal is None or (record.status == "achieved" and not is_interrupted):
        return record
    given = {
        "max_iterations": max_iterations,
        "token_budget": token_budget,
        "max_cost_usd": max_cost_usd,
        "max_seconds": max_seconds,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    wanted = msgspec.structs.replace(record.goal, **changes)
    _check_budgets(wanted, roles)
    engine = GoalEngine(wanted, roles)
    if is_interrupted and not changes:
        try:
            outcome = await session.resume(engine=engine, unpark=True)
        except UsageError:
            if (await session.read_state()).is_interrupted:
                raise
            return await read_goal(goal_id, session.store)  # it ended while this call waited for its turn
    else:
        prompt = build_goal_prompt(
            "Continue with the goal.", GoalStarted(wanted, record.workdir, record.branch, record.details)
        )
        outcome = await session.run(prompt, engine=engine)
    return await _build_record(session, outcome)


async def stop_goal(goal_id: str, store: Store | str) -> bool:
    """Stop the pursuit of a goal, in this or another process: the goal is paused, and can be resumed.

    Return False if it is not being pursued. Raises `SessionNotFound` if there is no such goal.
    """
    opened = open_store(store)
    record = await read_goal(goal_id, opened)
    session = open_goal_session(goal_id, Agent("demo"), opened)
    if record.status == "paused" and record.reason == "interrupted":
        await session.resume(engine=_end_stopped, unpark=True)  # no process would receive the cancel
        return True
    return record.status == "running" and await session.cancel("now")


def build_roles(
    maker: "Agent[Any]", checker: "Agent[Any] | None", grader: AnyGrader | None, grade_seconds: float
) -> GoalRoles:
    """Return maker, planner, checker and grader of a goal. Raises `ConfigError` if an argument has the wrong type."""
    for name, agent in (("maker", maker), ("checker", checker)):
        if not isinstance(agent, Agent) and not (name == "checker" and agent is None):
            checks.raise_config_error("pursue_goal", name, agent, "give an Agent(…)")
    checks.require_number("pursue_goal", "grade_seconds", grade_seconds)
    judge = maker if checker is None else checker
    return GoalRoles(
        maker=maker,
        planner=build_planner(judge),
        checker=build_checker(judge),
        grader=None if grader is None else to_grader(grader),
        grade_seconds=grade_seconds,
    )


def _check_budgets(goal: Goal, roles: GoalRoles) -> None:
    """Raise `ConfigError` if the goal has a budget and an agent too, or one in money and a model has no price."""
    has_budget = goal.token_budget is not None or goal.max_cost_usd is not None
    for agent in (roles.maker, roles.checker):
        info = model_info(agent.model)
        if goal.max_cost_usd is not None and info.price is None and not agent.role:  # a role may have another model
            advice = f"it needs a model whose price is known, and {info.name!r} has none: give a token_budget instead"
            checks.raise_config_error("Goal", "max_cost_usd", goal.max_cost_usd, advice)
        if has_budget and agent.budget is not None:
            advice = "it is replaced by that of the goal: leave out Agent(budget=…), or the budget of the Goal"
            checks.raise_config_error("pursue_goal", "maker.budget", agent.budget, advice)


def open_goal_session(
    goal_id: str, maker: "Agent[Any]", store: Store | str | None, watchers: Sequence[Watcher] = ()
) -> "Session[Any]":
    """Return the session whose log stores the progress of a goal; its agent has no tools."""
    checks.require_text("resume_goal", "goal_id", goal_id, non_empty=True)
    clock: Clock = maker.clock
    agent: Agent[Any] = Agent(
        maker.model,
        name="goal",
        store=maker.store if store is None else store,
        limits=Limits(max_turns=None),
        clock=clock,
        watchers=watchers,
        guardrails=(),
    )
    return agent.session(goal_id)


async def _build_record(session: "Session[Any]", outcome: Outcome[Any]) -> GoalRecord:
    """Return the record of a goal after a pursuit. Raises the error of the engine itself, if it had one."""
    record = fold_goal(session.session_id, await session.store.read(session.session_id))
    if record.goal is None:
        if outcome.error is not None:
            raise outcome.error
        raise UsageError(f"the goal did not begin: its run ended as {outcome.status} ({outcome.reason})")
    return record


async def _end_stopped(run: Run) -> Outcome[Any]:
    """Engine that ends a run that was cut off, as if it had been cancelled."""
    return run.outcome("cancelled", "stopped")
