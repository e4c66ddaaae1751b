"""`GoalEngine`: the engine that works on a goal until it is achieved; a checker judges its work."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.log.store import Store
from perdure._core.run.calling_run import enter_run, leave_run
from perdure._core.run.outcome import Outcome
from perdure._core.run.run import Run
from perdure._core.run.stop import Limits
from perdure._core.values.error import ShuttingDown
from perdure._core.values.event import MessageAdded
from perdure._core.values.jsonable import error_message
from perdure._core.values.message import Message, Text, merge_labels
from perdure._runtime.agent.agent import Agent
from perdure._work.judging.graders.grader import Evidence, Grade, Grader, grade_evidence

from .events import (
    GoalEnded,
    GoalFact,
    GoalPlanned,
    IterationStarted,
    MakerFinished,
    VerdictGiven,
    WorkGraded,
    build_goal_event,
)
from .goal import WHOLE, ChecklistItem, Goal, GoalStatus, build_checklist
from .record import GoalIteration, GoalRecord, fold_goal, measure_progress
from .replies import ChecklistVerdict, parse_plan, parse_verdict
from .roles import (
    WIND_DOWN_PROMPT,
    add_verdict_validator,
    build_checker_prompt,
    build_maker_prompt,
    build_planner_prompt,
    format_checklist,
    limit_seconds,
)
from .spending import GoalSpending

MIN_PERCENT_STEP: Final = 10
"""Percent by which an item has to pass its best value so far to count as progress."""
MIN_SCORE_STEP: Final = 0.01
"""Amount by which the grader's score has to pass its best value so far to count as progress."""


def is_progress(items: Iterable[ChecklistItem], score: float | None, before: Iterable[GoalIteration]) -> bool:
    """Return True if a checklist, or the grader's score, is better than in every iteration before.

    Counted are the ids of done items, the percentage of open ones and the score, each against its best value so far.
    Titles, summaries and the wording of evidence do not count, and neither does an item that is done, undone and done
    again. All of these values have an upper bound, so there is an end to progress, whatever a checker writes.
    """
    past = [*before]
    best = _find_best_values(past)
    for item in items:
        reached = WHOLE if item.done else item.progress
        known = best.get(item.id, 0)
        if (item.done and known < WHOLE) or reached >= known + MIN_PERCENT_STEP:
            return True
    scores = [each.grade.score for each in past if each.grade is not None and each.grade.is_judged]
    return score is not None and score >= max(scores, default=0.0) + MIN_SCORE_STEP


def _find_best_values(iterations: Iterable[GoalIteration]) -> dict[str, int]:
    """Return the highest percentage that each item ever had, by its id."""
    best: dict[str, int] = {}
    for iteration in iterations:
        for item in () if iteration.verdict is None else iteration.verdict.items:
            best[item.id] = max(best.get(item.id, 0), WHOLE if item.done else item.progress)
    return best


ROLE_INPUT: Final = "work"
"""Input id of the prompt of a role: sent again after a crash, it is answered once."""
PLAN_ROLE: Final = "plan"
CHECKER_ROLE: Final = "checker"
WIND_DOWN_SECONDS: Final = 120.0
"""The time that the last turn of a goal may take."""
BUDGET_REASON: Final = "budget"
NO_LOOK: Final = "the budget left the checker no turn in which it could look"
_FAILED: Final = frozenset({"cancelled", "failed", "parked"})
"""Ends of a maker's run after which it is tried again in a new session, when the goal is resumed."""
_NOT_ANSWERED: Final = _FAILED | {"limit"}
"""The same for a planner and a checker, of which only an answer is of use."""


class GoalRoles(Struct, frozen=True, kw_only=True, eq=False):
    """The agents that pursue a goal (maker, planner and checker), and the grader of their work."""

    maker: Any
    planner: Any
    checker: Any
    grader: Grader | None = None
    grade_seconds: float = 600.0


class GoalCannotContinue(Exception):
    """Raised when a goal cannot continue now, such as after a failed run of its maker; has the goal's new status."""

    def __init__(self, status: GoalStatus, reason: str, summary: str = "") -> None:
        super().__init__(reason)
        self.status: GoalStatus = status
        self.reason = reason
        self.summary = summary


class GoalEngine:
    """Engine that pursues a goal in iterations: a maker works, and a checker judges, until the goal is achieved.

    One object serves one pursuit.
    """

    name = "goal"

    def __init__(self, goal: Goal, roles: GoalRoles) -> None:
        self._goal = goal
        self._roles = roles
        self._record = GoalRecord(goal_id="")
        self._maker_outcome: Outcome[Any] | None = None

    async def __call__(self, run: Run) -> Outcome[Any]:
        """Pursue the goal from the step that the log has reached, and return the outcome of the run."""
        token = enter_run(None)  # the prompts of the roles say by themselves which text has which labels
        try:
            await self._open(run)
            await self._plan(run)
            while True:
                status, reason = self._find_end()
                if status is not None:
                    return await self._end(run, status, reason)
                await self._perform_iteration(run)
        except GoalCannotContinue as end:
            return await self._end(run, end.status, end.reason, end.summary)
        finally:
            leave_run(token)

    # -- the steps of a pursuit ----------------------------------------------------------------------------------------

    async def _open(self, run: Run) -> None:
        """Fold the log, and count what was used before."""
        entries = await run.log.store.read(run.session_id)
        record = fold_goal(run.session_id, entries)
        goal = self._goal if record.goal is None else record.goal
        self._goal, self._record = goal, replace(record, status="running", reason="")
        self._spending = GoalSpending(goal, record, run.log.store, run.clock)
        await self._spending.count_lost_seconds(entries)
        await self._spending.count_past(self._roles.maker)

    async def _plan(self, run: Run) -> None:
        """Make the checklist, unless there is one. Without a usable plan, the objective is the only item."""
        if self._record.items:
            return
        goal, is_fallback = self._goal, False
        items = build_checklist(goal.items)
        if not items:
            prompt = build_planner_prompt(goal.objective)
            outcome, _ = await self._run_role(self._roles.planner, PLAN_ROLE, prompt, _NOT_ANSWERED)
            items = parse_plan(outcome.text)
            if not items:
                self._raise_if_interrupted(outcome, "planner", may_fail=True)
            is_fallback = not items
        await self._store(run, GoalPlanned(items or build_checklist([goal.objective]), is_fallback))

    async def _perform_iteration(self, run: Run) -> None:
        """Let the maker work, the grader grade and the checker judge; steps that the log has already are left out."""
        iteration = self._record.open_iteration
        if iteration is None:
            self._maker_outcome = None
            await self._store(run, IterationStarted(len(self._record.iterations) + 1))
            iteration = self._record.iterations[-1]
        if iteration.maker is None:
            await self._let_maker_work(run, iteration)
        if self._roles.grader is not None and self._record.iterations[-1].grade is None:
            await self._grade_work(run, self._roles.grader, iteration.number)
        await self._let_checker_judge(run, self._record.iterations[-1])

    async def _let_maker_work(self, run: Run, iteration: GoalIteration) -> None:
        outcome, session_id = await self._ask_maker(iteration.number)
        if outcome.status not in {*_FAILED, "waiting"}:
            await self._store(run, MakerFinished(iteration.number, session_id, outcome.status, outcome.text))
        self._raise_if_interrupted(outcome, "maker")

    async def _ask_maker(self, number: int) -> tuple[Outcome[Any], str]:
        """Return the outcome of an iteration's maker: of its run now, or the stored one if it has ended before."""
        finished = [each for each in self._record.iterations if each.number < number]
        last = finished[-1] if finished else None
        labels = await self._collect_labels(last)
        prompt = build_maker_prompt(self._goal.objective, self._record.items, last, labels)
        outcome, session_id = await self._run_role(self._roles.maker, f"maker-{number}", prompt)
        self._maker_outcome = outcome
        return outcome, session_id

    async def _grade_work(self, run: Run, grader: Grader, number: int) -> None:
        outcome = self._maker_outcome or (await self._ask_maker(number))[0]
        evidence = Evidence.from_outcome(
            outcome,
            goal=self._goal.objective,
            round=number,
            details={"checklist": format_checklist(self._record.items), "workdir": self._record.workdir},
        )
        grade = await grade_evidence(grader, evidence, timeout_seconds=self._choose_grade_seconds())
        self._spending.count_grade(grade.usage, grade.cost_usd)
        await self._store(run, WorkGraded(number, grade))
        if self._goal.max_cost_usd is not None and grade.usage.total_tokens and grade.cost_usd is None:
            raise GoalCannotContinue(
                "errored", f"max_cost_usd needs known prices, and {grade.grader} has a model without"
            )

    def _choose_grade_seconds(self) -> float:
        remaining = self._spending.find_remaining_seconds()
        most = self._roles.grade_seconds
        return most if remaining is None else max(1.0, min(most, remaining))

    async def _let_checker_judge(self, run: Run, iteration: GoalIteration) -> None:
        items, number = self._record.items, iteration.number
        report = "" if iteration.maker is None else iteration.maker.report
        labels = await self._collect_labels(iteration)
        prompt = build_checker_prompt(self._goal.objective, items, report, iteration.grade, labels)
        checker = add_verdict_validator(self._roles.checker, items)
        outcome, session_id = await self._run_role(checker, f"{CHECKER_ROLE}-{number}", prompt, _NOT_ANSWERED)
        verdict = (
            parse_verdict(outcome.text, items)
            if self._could_look(outcome)
            else ChecklistVerdict(items, summary=NO_LOOK)
        )
        if not verdict.is_readable or outcome.status != "done":
            self._raise_if_interrupted(outcome, "checker")
        summary = verdict.summary if verdict.is_readable else "the checker returned no verdict that could be read"
        grade = iteration.grade
        usage, cost_usd = await self._spending.measure_usage(self._roles.maker)
        given = VerdictGiven(
            number,
            session_id,
            verdict.items,
            verdict.done,
            summary,
            is_progress(verdict.items, None if grade is None else grade.score, self._record.iterations[:-1]),
            measure_progress(verdict.items) if grade is None else grade.score,
            usage,
            cost_usd,
        )
        done = sum([each.done for each in verdict.items])
        text = f"Iteration {number}: {done} of {len(verdict.items)} items are done. {summary}".strip()
        judged = merge_labels(labels, await self._read_labels(session_id))
        await self._store(run, given, Message("assistant", (Text(text),), labels=judged))

    def _could_look(self, outcome: Outcome[Any]) -> bool:
        """Return False if the checker had tools, but the budget left it only the last turn, in which it has none."""
        has_tools = bool(self._roles.checker.limits.allowed_tools)
        return outcome.reason != BUDGET_REASON or bool(outcome.tool_calls) or not has_tools

    # -- how it ends ---------------------------------------------------------------------------------------------------

    def _find_end(self) -> tuple[GoalStatus | None, str]:
        """Return the status with which the pursuit ends before another iteration, and its reason; `None` to go on."""
        record, last = self._record, self._record.iterations[-1] if self._record.iterations else None
        if record.open_iteration is not None:
            return None, ""
        if last is not None and last.verdict is not None and _is_achieved(record, last.verdict, last.grade):
            return "achieved", ""
        if limit := self._spending.find_reached_limit():
            return "budget_limited", limit
        if record.count_without_progress() >= self._goal.no_progress_limit:
            return "blocked", f"{self._goal.no_progress_limit} iterations without progress"
        if len(record.iterations) - record.first_iteration + 1 >= self._goal.max_iterations:
            return "max_iterations", f"{self._goal.max_iterations} iterations"
        return None, ""

    async def _end(self, run: Run, status: GoalStatus, reason: str, summary: str = "") -> Outcome[Any]:
        """Store how the pursuit ended, and return the outcome of the run."""
        if status == "budget_limited" and not summary:
            summary = await self._wind_down()
        summary = summary or self._describe_state()
        usage, cost_usd = await self._spending.measure_usage(self._roles.maker)
        text = f"The goal is {status}{f' ({reason})' if reason else ''}. {summary}".strip()
        recent = self._record.iterations[-2:] or [None]  # of the last one, the maker may not have begun
        labels = merge_labels(*[await self._collect_labels(each) for each in recent])
        answer = Message("assistant", (Text(text),), labels=labels)
        await self._store(run, GoalEnded(status, reason, summary, usage, cost_usd), answer)
        outcome = run.outcome(*_OUTCOMES.get(status, ("stopped", status)))
        return replace(outcome, usage=usage, cost_usd=cost_usd)

    async def _wind_down(self) -> str:
        """Give the last maker a turn without tools to say what is done and what is left, if the budget allows it."""
        finished = [each.maker for each in self._record.iterations if each.maker is not None]
        if not finished:
            return ""
        session_id = finished[-1].session_id
        self._spending.forget_session(session_id)
        limits = Limits(max_turns=1, allowed_tools=(), timeout_seconds=WIND_DOWN_SECONDS)
        session = self._roles.maker.session(session_id, store=self._store_of_goal)
        try:
            outcome = await session.run(
                WIND_DOWN_PROMPT,
                input_id=f"wind-down-{self._record.run_id}",
                limits=limits,
                **self._build_budget_override(),
            )
        except ShuttingDown:  # the budget is used up all the same, and the checklist says what is left
            return ""
        return outcome.text.strip() if outcome.status == "done" else ""

    def _describe_state(self) -> str:
        """Return what is done and what is left, from the checklist and the last verdict."""
        verdicts = [each.verdict for each in self._record.iterations if each.verdict is not None]
        said = verdicts[-1].summary if verdicts else ""
        open_items = [f"{each.id}. {each.title}" for each in self._record.open_items]
        left = f"Open items: {'; '.join(open_items)}." if open_items else ""
        return " ".join([each for each in (said, left) if each])

    # -- roles ---------------------------------------------------------------------------------------------------------

    async def _run_role(
        self, agent: "Agent[Any]", role: str, prompt: Message, failures: Collection[str] = _FAILED
    ) -> tuple[Outcome[Any], str]:
        """Run a role in its session, and return the outcome, also a stored one.

        A role whose run ended before with one of the `failures` is tried again in a new session.
        """
        attempt = 1
        while True:
            session_id = f"{self._record.goal_id}/{role}{f'.{attempt}' if attempt > 1 else ''}"
            session = agent.session(session_id, store=self._store_of_goal)
            past = (await session.read_state()).runs_by_input_id.get(ROLE_INPUT)
            ended = None if past is None else past.run_ended_event
            if ended is None or ended.status not in failures:
                break
            attempt += 1
        limits = limit_seconds(agent.limits, self._spending.find_remaining_seconds())
        try:
            outcome = await session.run(prompt, input_id=ROLE_INPUT, limits=limits, **self._build_budget_override())
        except ShuttingDown:
            raise GoalCannotContinue("paused", "shutdown") from None
        return outcome, session_id

    async def _collect_labels(self, iteration: GoalIteration | None) -> tuple[str, ...]:
        """Return the labels of what the roles of an iteration have seen; without one, those of the plan.

        Their reports go to the next role, whose session is a new one: `untrusted` text would lose its label there.
        """
        if iteration is None:
            plans = await self._store_of_goal.list(prefix=f"{self._record.goal_id}/{PLAN_ROLE}", limit=100)
            return merge_labels(*[await self._read_labels(each.session_id) for each in plans])
        made = () if iteration.maker is None else await self._read_labels(iteration.maker.session_id)
        judged = () if iteration.verdict is None else await self._read_labels(iteration.verdict.session_id)
        return merge_labels(made, judged, () if iteration.grade is None else iteration.grade.labels)

    async def _read_labels(self, session_id: str) -> list[str]:
        """Return the labels of what a session has seen; of a checker, of what it has read beside its prompt."""
        state = await self._roles.maker.session(session_id, store=self._store_of_goal).read_state()
        is_checker = session_id.rpartition("/")[2].startswith(CHECKER_ROLE)
        return [label for label, sources in state.labels.items() if not is_checker or {*sources} - {"person"}]

    def _build_budget_override(self) -> Mapping[str, Any]:
        return {} if self._spending.budget is None else {"budget": self._spending.budget}

    def _raise_if_interrupted(self, outcome: Outcome[Any], role: str, *, may_fail: bool = False) -> None:
        """Raise `GoalCannotContinue` if the goal cannot go on after the run of a role."""
        if outcome.reason == BUDGET_REASON:
            raise GoalCannotContinue("budget_limited", "budget", outcome.text.strip())
        if outcome.status == "limit" and outcome.reason == "timeout" and self._spending.find_remaining_seconds() == 0.0:
            raise GoalCannotContinue("budget_limited", "max_seconds")
        if outcome.status == "waiting":
            waits = "waits for an answer" if outcome.questions else "was interrupted"
            reason = f"{outcome.reason or 'question'}: the {role} {waits} in session {outcome.session_id}"
            raise GoalCannotContinue("paused", reason)
        if outcome.status == "cancelled":
            raise GoalCannotContinue("paused", f"the run of the {role} was cancelled")
        if outcome.status in _FAILED and not may_fail:
            problem = error_message(outcome.error) if outcome.error is not None else outcome.reason
            raise GoalCannotContinue("errored", f"the {role} failed: {problem}")

    # -- the log -------------------------------------------------------------------------------------------------------

    @property
    def _store_of_goal(self) -> Store:
        return self._spending.store

    async def _store(self, run: Run, fact: GoalFact, message: Message | None = None) -> None:
        """Store a fact, with a message for the transcript, and apply it. It survives a crash when this returns."""
        events = [build_goal_event(fact), *([] if message is None else [MessageAdded(message)])]
        await run.emit(*[run.stamp_event(each) for each in events], sync=True)
        self._record = self._record.apply(fact, run.clock.now(), run.run_id)
        await asyncio.sleep(0)  # so that a cancel arrives between two steps


_OUTCOMES: Final[Mapping[str, tuple[Any, str]]] = {
    "achieved": ("done", ""),
    "budget_limited": ("limit", "budget"),
    "errored": ("stopped", "errored"),
}


def _is_achieved(record: GoalRecord, verdict: VerdictGiven, grade: Grade | None) -> bool:
    """Return True if the checker and the grader agree that the goal is achieved, and every item is done."""
    return verdict.done and not record.open_items and (grade is None or grade.passed)
