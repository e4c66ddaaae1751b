"""`GoalRecord`: the state of a goal, computed from the log of its session; and functions to read and list goals."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.log.reserved_ids import check_not_reserved
from perdure._core.log.store import Store
from perdure._core.values.error import SessionNotFound
from perdure._core.values.event import Entry, RunEnded, RunResumed, RunStarted, RunWaiting
from perdure._core.values.message import Usage
from perdure._work.judging.graders.grader import Grade

from .events import (
    GoalEnded,
    GoalFact,
    GoalPlanned,
    GoalStarted,
    IterationStarted,
    MakerFinished,
    VerdictGiven,
    WorkGraded,
    parse_goal_event,
)
from .goal import WHOLE, ChecklistItem, Goal, GoalStatus

GOAL_PREFIX: Final = "goal-"
"""Beginning of the ids of goals, which are those of their sessions."""
_PAGE_SIZE: Final = 200


class GoalIteration(Struct, frozen=True, kw_only=True):
    """An iteration of a goal: the work of a maker, its grade, and the verdict of a checker."""

    number: int
    maker: MakerFinished | None = None
    """The report of the maker; `None` while it works."""
    grade: Grade | None = None
    """The grade of the goal's grader, if it has one."""
    verdict: VerdictGiven | None = None
    """The verdict of the checker; `None` until there is one."""
    started_at: float = 0.0
    finished_at: float = 0.0
    """Time of the verdict, in seconds since 1970; 0 until there is one."""


class GoalRecord(Struct, frozen=True, kw_only=True):
    """The state of a goal: its checklist with evidence, its iterations with scores, and how it ended."""

    goal_id: str
    goal: Goal | None = None
    """The goal with its limits, as it was last started or resumed; `None` before the first step is stored."""
    status: GoalStatus = "running"
    reason: str = ""
    """Reason of the status, such as the limit or the error."""
    summary: str = ""
    """What was achieved and what is left, at the end of a pursuit."""
    items: tuple[ChecklistItem, ...] = ()
    iterations: tuple[GoalIteration, ...] = ()
    first_iteration: int = 1
    """Number of the first iteration of the last pursuit."""
    workdir: str = ""
    branch: str = ""
    details: Mapping[str, Any] = {}
    """Values that the caller has stored with the goal."""
    usage: Usage = Usage()
    """Tokens of all agents so far, as of the last verdict."""
    cost_usd: float | None = 0.0
    seconds: float = 0.0
    """Time in which the goal was pursued, without pauses."""
    created_at: float = 0.0
    updated_at: float = 0.0
    run_id: str = ""
    """Run of the goal's session in which the last pursuit began."""

    @property
    def objective(self) -> str:
        """The objective of the goal."""
        return "" if self.goal is None else self.goal.objective

    @property
    def open_iteration(self) -> GoalIteration | None:
        """The iteration that has no verdict yet; `None` if there is none."""
        last = self.iterations[-1] if self.iterations else None
        return last if last is not None and last.verdict is None else None

    @property
    def scores(self) -> list[float]:
        """The score of each iteration with a verdict, in order."""
        return [each.verdict.score for each in self.iterations if each.verdict is not None]

    @property
    def grades(self) -> list[Grade]:
        """The grades of the goal's grader, in order."""
        return [each.grade for each in self.iterations if each.grade is not None]

    @property
    def open_items(self) -> list[ChecklistItem]:
        """The items that are not done."""
        return [each for each in self.items if not each.done]

    def count_without_progress(self) -> int:
        """Return how many of the last iterations of this pursuit brought no progress."""
        count = 0
        for each in reversed(self.iterations):
            if each.verdict is None or each.number < self.first_iteration or each.verdict.is_progress:
                break
            count += 1
        return count

    def apply(self, fact: GoalFact, at: float = 0.0, run_id: str = "") -> "GoalRecord":
        """Return the record after another fact of the goal."""
        match fact:
            case GoalStarted():
                return replace(
                    self,
                    goal=fact.goal,
                    status="running",
                    reason="",
                    summary="",
                    workdir=fact.workdir or self.workdir,
                    branch=fact.branch or self.branch,
                    details=fact.details or self.details,
                    first_iteration=len(self.iterations) + (0 if self.open_iteration else 1),
                    run_id=run_id or self.run_id,
                )
            case GoalPlanned():
                return replace(self, items=fact.items)
            case IterationStarted():
                return replace(self, iterations=(*self.iterations, GoalIteration(number=fact.iteration, started_at=at)))
            case MakerFinished():
                return self._change_last(maker=fact)
            case WorkGraded():
                return self._change_last(grade=fact.grade)
            case VerdictGiven():
                changed = self._change_last(verdict=fact, finished_at=at)
                return replace(changed, items=fact.items, usage=fact.usage, cost_usd=fact.cost_usd)
            case GoalEnded():
                return replace(
                    self,
                    status=fact.status,
                    reason=fact.reason,
                    summary=fact.summary,
                    usage=fact.usage,
                    cost_usd=fact.cost_usd,
                )

    def _change_last(self, **changes: object) -> "GoalRecord":
        if not self.iterations:
            return self
        return replace(self, iterations=(*self.iterations[:-1], replace(self.iterations[-1], **changes)))


def fold_goal(goal_id: str, entries: Sequence[Entry]) -> GoalRecord:
    """Return the state of a goal, computed from the log of its session."""
    record = GoalRecord(goal_id=goal_id)
    for entry in entries:
        event = entry.event
        if event.path:
            continue
        fact = parse_goal_event(event)
        if fact is not None:
            record = record.apply(fact, entry.at, event.run_id)
        elif isinstance(event, (RunEnded, RunWaiting)):
            record = _apply_run_end(record, event)
        elif isinstance(event, (RunStarted, RunResumed)):
            record = replace(record, status="running", reason="")
    times = [each.at for each in entries]
    return replace(
        record,
        created_at=times[0] if times else 0.0,
        updated_at=times[-1] if times else 0.0,
        seconds=sum(measure_pursuit_seconds(entries)),
    )


def _apply_run_end(record: GoalRecord, event: RunEnded | RunWaiting) -> GoalRecord:
    """Return the record after the end of a run; a status that the goal has stored itself is kept."""
    if record.status != "running":
        return record
    if isinstance(event, RunWaiting):
        return replace(record, status="paused", reason=event.reason)
    if event.status == "cancelled":
        return replace(record, status="paused", reason="stopped")
    return replace(record, status="errored", reason=event.error or event.reason or event.status)


def measure_pursuit_seconds(entries: Sequence[Entry]) -> list[float]:
    """Return the seconds that each pursuit of a goal lasted in its log: from its start or resume to its last entry."""
    segments: list[float] = []
    begun: float | None = None
    last = 0.0
    for entry in entries:
        if isinstance(entry.event, (RunStarted, RunResumed)) and not entry.event.path:
            if begun is not None:
                segments.append(max(0.0, last - begun))
            begun = entry.at
        last = entry.at
    return [*segments, max(0.0, last - begun)] if begun is not None else segments


def measure_lost_seconds(entries: Sequence[Entry], times: Sequence[float]) -> float:
    """Return the seconds that processes worked on a goal between their last entry in its log and their crash.

    `times` are those of the entries in the sessions of the roles.
    """
    lost = 0.0
    for before, entry in itertools.pairwise(entries):
        is_begun = isinstance(entry.event, (RunStarted, RunResumed)) and not entry.event.path
        if is_begun and not isinstance(before.event, (RunEnded, RunWaiting)):
            lost += max([each - before.at for each in times if before.at < each <= entry.at], default=0.0)
    return lost


def measure_progress(items: Iterable[ChecklistItem]) -> float:
    """Return the mean progress of a checklist, from 0 to 1."""
    parts = [WHOLE if each.done else each.progress for each in items]
    return sum(parts) / (WHOLE * len(parts)) if parts else 0.0


async def read_goal(goal_id: str, store: Store) -> GoalRecord:
    """Return the state of a goal in a store. Raises `SessionNotFound` if there is no goal with this id.

    A goal that no living process pursues, because its process was killed, is `paused` with the reason `interrupted`.
    """
    check_not_reserved(goal_id, store)
    record = fold_goal(goal_id, await store.read(goal_id))
    if record.goal is None:
        raise SessionNotFound(f"there is no goal {goal_id!r} in this store: `perdure goal list` lists those that are")
    return (await _mark_interrupted([record], store, goal_id))[0]


async def list_goals(store: Store) -> list[GoalRecord]:
    """Return the goals of a store, the most recently changed first."""
    found: list[GoalRecord] = []
    offset = 0
    while page := await store.list(prefix=GOAL_PREFIX, limit=_PAGE_SIZE, offset=offset):
        ids = [info.session_id for info in page if "/" not in info.session_id]
        found += [fold_goal(each, await store.read(each)) for each in ids]
        offset += len(page)
    return await _mark_interrupted([each for each in found if each.goal is not None], store, GOAL_PREFIX)


async def _mark_interrupted(records: list[GoalRecord], store: Store, prefix: str) -> list[GoalRecord]:
    """Return the records, with those as paused whose process has gone."""
    if not any(each.status == "running" for each in records):
        return records
    gone = {each.session_id for each in await store.list_interrupted(prefix=prefix)}
    return [
        replace(each, status="paused", reason="interrupted")
        if each.status == "running" and each.goal_id in gone
        else each
        for each in records
    ]
