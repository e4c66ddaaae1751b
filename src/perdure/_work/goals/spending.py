"""Tokens, money and time that a goal has used, over all of its sessions and processes."""

from collections.abc import Sequence
from typing import Any

from perdure._core.log.store import Store
from perdure._core.model.budget import Budget
from perdure._core.values.clock import Clock
from perdure._core.values.event import Entry
from perdure._core.values.message import Usage
from perdure._runtime.agent.agent import Agent

from .goal import Goal
from .record import GoalRecord, measure_lost_seconds


class GoalSpending:
    """Counts what a goal has used, in this process and earlier ones, and has the budget that its agents share."""

    def __init__(self, goal: Goal, record: GoalRecord, store: Store, clock: Clock) -> None:
        self._goal = goal
        self._goal_id = record.goal_id
        self.store = store
        self._clock = clock
        self._past_seconds = record.seconds
        self._begun_at = clock.monotonic()
        self._grader_usage = [each.usage for each in record.grades]
        self._grader_costs = [each.cost_usd for each in record.grades if each.usage != Usage()]
        self._ended: dict[str, tuple[Usage, float | None]] = {}
        """The usage of sessions in which nothing more will happen."""
        has_budget = goal.token_budget is not None or goal.max_cost_usd is not None
        self.budget = Budget(token_budget=goal.token_budget, max_cost_usd=goal.max_cost_usd) if has_budget else None
        """The budget that all agents of the goal share; `None` without a limit."""

    async def count_lost_seconds(self, entries: Sequence[Entry]) -> None:
        """Count the time after the last entry of the goal in each process that was killed. A role may work for long."""
        if self._goal.max_seconds is not None:
            sessions = [await self.store.read(each) for each in await self._list_sessions()]
            times = [entry.at for each in sessions for entry in each]
            self._past_seconds += measure_lost_seconds(entries, times)

    async def count_past(self, agent: "Agent[Any]") -> None:
        """Count the runs that have ended in the budget. Runs that are resumed count their own past."""
        if self.budget is None:
            return
        for session_id in await self._list_sessions():
            used = await agent.session(session_id, store=self.store).usage(with_unfinished=False)
            self.budget.count_past(f"past:{session_id}", used.usage.total_tokens, used.cost_usd or 0.0)
        tokens = sum([each.total_tokens for each in self._grader_usage])
        self.budget.count_past("past:grades", tokens, sum([each or 0.0 for each in self._grader_costs]))

    def count_grade(self, usage: Usage, cost_usd: float | None) -> None:
        """Count the tokens of a grader."""
        self._grader_usage.append(usage)
        if usage != Usage():
            self._grader_costs.append(cost_usd)
            if self.budget is not None:
                number = len(self._grader_usage)
                self.budget.count_past(f"grade:{number}", usage.total_tokens, cost_usd or 0.0)

    async def measure_usage(self, agent: "Agent[Any]") -> tuple[Usage, float | None]:
        """Return the tokens and the cost of the goal so far; the cost is `None` if a price is not known."""
        usages, costs = [*self._grader_usage], [*self._grader_costs]
        for session_id in await self._list_sessions():
            if session_id not in self._ended:
                session = agent.session(session_id, store=self.store)
                found = await session.usage()
                measured = (found.usage, found.cost_usd if found.usage.total_tokens else 0.0)
                if not (await session.read_state()).is_interrupted:
                    self._ended[session_id] = measured
            else:
                measured = self._ended[session_id]
            usages.append(measured[0])
            costs.append(measured[1])
        total = sum(usages, Usage())
        return total, None if None in costs else sum([each or 0.0 for each in costs])

    def forget_session(self, session_id: str) -> None:
        """Measure a session again: another run is about to begin in it."""
        self._ended.pop(session_id, None)

    @property
    def seconds(self) -> float:
        """Time in which the goal was pursued so far."""
        return self._past_seconds + self._clock.monotonic() - self._begun_at

    def find_remaining_seconds(self) -> float | None:
        """Return the time that is left, at least 0; `None` without a limit."""
        limit = self._goal.max_seconds
        return None if limit is None else max(0.0, limit - self.seconds)

    def find_reached_limit(self) -> str:
        """Return the name of the budget that is used up; empty if none is."""
        if self.find_remaining_seconds() == 0.0:
            return "max_seconds"
        if self.budget is None:
            return ""
        tokens, dollars = self.budget.remaining()
        if tokens <= 0:
            return "token_budget"
        return "max_cost_usd" if dollars <= 0 else ""

    async def _list_sessions(self) -> list[str]:
        found: list[str] = []
        while page := await self.store.list(prefix=f"{self._goal_id}/", limit=200, offset=len(found)):
            found += [each.session_id for each in page]
        return found
