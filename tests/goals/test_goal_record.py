"""The record of a goal, computed from the log of its session: times, iterations, and how a pursuit ended."""

from typing import Any

import pytest

from perdure import SessionNotFound, Usage
from perdure._work.goals import record as goal_record
from perdure._work.goals.events import (
    GoalEnded,
    GoalFact,
    GoalPlanned,
    GoalStarted,
    IterationStarted,
    WorkGraded,
    build_goal_event,
    build_goal_prompt,
)
from perdure._work.goals.record import fold_goal, measure_lost_seconds, measure_progress, measure_pursuit_seconds
from perdure.background import (
    ChecklistItem,
    Goal,
    GoalIteration,
    GoalRecord,
    MakerFinished,
    VerdictGiven,
    list_goals,
    read_goal,
    stop_goal,
)
from perdure.evals import Grade
from perdure.events import Custom, Entry, Event, MessageAdded, RunEnded, RunResumed, RunStarted, RunWaiting
from perdure.stores import open_store
from tests.doubles import crashed

GOAL = Goal("Make the boat ready.")
OPEN = (ChecklistItem("1", "The hull is tight."),)
DONE = (ChecklistItem("1", "The hull is tight.", done=True, evidence="dry", progress=100),)
GRADE = Grade(passed=True, grader="dry")


def began(goal: Goal = GOAL, **fields: Any) -> list[Event]:
    prompt = build_goal_prompt("Make it ready.", GoalStarted(goal, **fields))
    return [RunStarted("goal", run_id="r1"), MessageAdded(prompt, run_id="r1")]


def log(*events: Event, first: float = 100.0, step: float = 10.0) -> list[Entry]:
    return [Entry(number + 1, first + step * number, event) for number, event in enumerate(events)]


def verdict_of(iteration: int, items: tuple[ChecklistItem, ...], **fields: Any) -> VerdictGiven:
    return VerdictGiven(iteration, f"goal-b/checker-{iteration}", items, **fields)


def test_a_log_without_entries_is_a_record_without_a_goal():
    record = fold_goal("goal-b", [])
    assert record == GoalRecord(goal_id="goal-b")
    assert (record.objective, record.open_iteration, record.scores, record.grades) == ("", None, [], [])


def test_a_record_has_everything_that_the_log_says_with_its_times():
    made = MakerFinished(1, "goal-b/maker-1", report="Tarred it.")
    judged = verdict_of(1, DONE, done=True, is_progress=True, score=0.75, usage=Usage(7, 2), cost_usd=0.5)
    ended = GoalEnded("achieved", "enough", "The hull is dry.", Usage(9, 3), 0.75)
    facts: list[GoalFact] = [GoalPlanned(OPEN), IterationStarted(1), made, WorkGraded(1, GRADE), judged, ended]
    entries = log(
        *began(workdir="/boat", branch="goal/b", details={"model": "m"}),
        *[build_goal_event(each) for each in facts],
        RunEnded("done", "done", run_id="r1"),
    )
    assert fold_goal("goal-b", entries) == GoalRecord(
        goal_id="goal-b",
        goal=GOAL,
        status="achieved",
        reason="enough",
        summary="The hull is dry.",
        items=DONE,
        iterations=(
            GoalIteration(number=1, maker=made, grade=GRADE, verdict=judged, started_at=130.0, finished_at=160.0),
        ),
        first_iteration=1,
        workdir="/boat",
        branch="goal/b",
        details={"model": "m"},
        usage=Usage(9, 3),
        cost_usd=0.75,
        seconds=80.0,
        created_at=100.0,
        updated_at=180.0,
        run_id="r1",
    )


def test_what_a_child_run_says_is_no_fact_of_the_goal():
    planned = build_goal_event(GoalPlanned(OPEN))
    entries = log(*began(), Custom(planned.name, planned.data, path="child"), RunEnded("failed", path="child"))
    record = fold_goal("goal-b", entries)
    assert (record.items, record.status) == ((), "running")


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [
        (RunWaiting(("a",), reason="an answer", run_id="r1"), "paused", "an answer"),
        (RunEnded("cancelled", "cancelled", run_id="r1"), "paused", "stopped"),
        (RunEnded("failed", "ProviderDown", run_id="r1", error="no route"), "errored", "no route"),
        (RunEnded("stopped", "max_turns", run_id="r1"), "errored", "max_turns"),
        (RunEnded("failed", "", run_id="r1"), "errored", "failed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_that_ends_without_a_word_of_the_goal_says_what_became_of_it(end, status, reason):
    record = fold_goal("goal-b", log(*began(), end))
    assert (record.status, record.reason) == (status, reason)
    resumed = fold_goal("goal-b", log(*began(), end, RunResumed(run_id="r1")))
    assert (resumed.status, resumed.reason) == ("running", "")


def test_a_status_that_the_goal_has_stored_is_not_replaced_by_the_end_of_its_run():
    blocked = build_goal_event(GoalEnded("blocked", "no progress"))
    for end in (RunEnded("failed", "x", run_id="r1"), RunWaiting((), reason="x", run_id="r1")):
        record = fold_goal("goal-b", log(*began(), blocked, end))
        assert (record.status, record.reason) == ("blocked", "no progress")


def test_a_resumed_goal_keeps_its_folder_and_counts_its_iterations_from_the_next_or_the_open_one():
    first = began(workdir="/boat", branch="goal/b", details={"a": 1})
    again = [RunStarted("goal", run_id="r2"), MessageAdded(build_goal_prompt("Go on.", GoalStarted(GOAL)), run_id="r2")]
    one: list[GoalFact] = [IterationStarted(1), verdict_of(1, OPEN)]
    closed = fold_goal("goal-b", log(*first, *map(build_goal_event, one), *again))
    assert (closed.first_iteration, closed.run_id, closed.open_iteration) == (2, "r2", None)
    assert (closed.workdir, closed.branch, closed.details) == ("/boat", "goal/b", {"a": 1})
    still_open = fold_goal("goal-b", log(*first, *map(build_goal_event, [*one, IterationStarted(2)]), *again))
    assert still_open.first_iteration == 2
    assert still_open.open_iteration is still_open.iterations[-1]


def test_iterations_without_progress_are_counted_back_to_the_last_progress_and_not_into_an_earlier_pursuit():
    def count(*progress: bool, first: int = 1, opened: bool = False) -> int:
        record = GoalRecord(goal_id="g", first_iteration=first)
        for number, each in enumerate(progress, 1):
            record = record.apply(IterationStarted(number)).apply(verdict_of(number, OPEN, is_progress=each))
        return (record.apply(IterationStarted(9)) if opened else record).count_without_progress()

    assert [count(), count(True), count(False), count(True, False, False), count(False, True, False)] == [0, 0, 1, 2, 1]
    assert count(False, False, False, first=2) == 2
    assert count(False, False, opened=True) == 0


def test_a_fact_of_an_iteration_that_was_never_begun_changes_no_iteration():
    record = GoalRecord(goal_id="g").apply(MakerFinished(1, "goal-b/maker-1")).apply(WorkGraded(1, GRADE))
    assert record == GoalRecord(goal_id="g")


def test_the_time_of_pursuits_is_without_the_pauses_and_the_runs_of_children():
    child = RunStarted("child", run_id="c", path="child")
    events = [*began(), child, RunEnded("cancelled", run_id="r1"), RunStarted("goal", run_id="r2"), child]
    assert measure_pursuit_seconds(log(*events)) == [30.0, 10.0]
    assert measure_pursuit_seconds(log(child, child)) == []
    assert measure_pursuit_seconds(log(*events, step=-10.0)) == [0.0, 0.0]  # a clock that was set back


def test_time_is_lost_between_the_last_entry_and_the_crash_as_far_as_the_roles_have_noted_it():
    crashed = log(*began(), RunResumed(run_id="r1"), step=100.0)
    assert measure_lost_seconds(crashed, [150.0, 200.0, 230.0, 290.0, 300.0, 310.0]) == 100.0
    assert measure_lost_seconds(crashed, [150.0, 200.0, 230.0, 290.0]) == 90.0
    assert measure_lost_seconds(crashed, [150.0, 200.0]) == 0.0
    assert measure_lost_seconds(log(*began(), RunResumed(path="child"), step=100.0), [250.0]) == 0.0
    for end in (RunEnded("cancelled", run_id="r1"), RunWaiting((), run_id="r1")):
        assert measure_lost_seconds(log(*began(), end, RunResumed(run_id="r1"), step=100.0), [350.0]) == 0.0
    twice = log(*began(), RunResumed(run_id="r1"), RunResumed(run_id="r1"), step=100.0)
    assert measure_lost_seconds(twice, [250.0, 330.0]) == 80.0


def test_progress_is_the_mean_of_the_items():
    half = ChecklistItem("2", "The sail is up.", progress=50)
    assert [measure_progress(each) for each in ((), OPEN, DONE, (half, *DONE), (half, *OPEN))] == [0, 0, 1, 0.75, 0.25]
    assert measure_progress([ChecklistItem("3", "Done.", done=True, evidence="seen", progress=20)]) == 1.0


async def test_a_goal_whose_process_has_gone_is_paused_and_can_be_stopped():
    store = open_store("memory:")
    await crashed(store, "goal-gone", *began())
    lease = await store.acquire("goal-gone")
    assert (await read_goal("goal-gone", store)).status == "running"  # while a process has it
    await store.release(lease)
    found = await read_goal("goal-gone", store)
    assert (found.status, found.reason, found.goal) == ("paused", "interrupted", GOAL)
    assert await stop_goal("goal-gone", store)
    stopped = await read_goal("goal-gone", store)
    assert (stopped.status, stopped.reason) == ("paused", "stopped")
    assert not await stop_goal("goal-gone", store)


async def test_all_goals_of_a_store_are_listed_without_the_sessions_of_their_roles(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(goal_record, "_PAGE_SIZE", 2)
    store = open_store("memory:")
    ended = RunEnded("done", run_id="r1")
    achieved = build_goal_event(GoalEnded("achieved", "", "All is done."))
    for name in ("goal-a", "goal-b", "goal-c"):
        await crashed(store, name, *began(), achieved, ended)
        await crashed(store, f"{name}/maker-1", *began())
    await crashed(store, "goal-cut", *began())
    await crashed(store, "goal-none", RunStarted("goal", run_id="r1"))
    await crashed(store, "other", *began())
    found = {each.goal_id: (each.status, each.reason) for each in await list_goals(store)}
    assert found == {
        "goal-a": ("achieved", ""),
        "goal-b": ("achieved", ""),
        "goal-c": ("achieved", ""),
        "goal-cut": ("paused", "interrupted"),
    }
    with pytest.raises(SessionNotFound) as raised:
        await read_goal("goal-none", store)
    assert str(raised.value) == ("there is no goal 'goal-none' in this store: `perdure goal list` lists those that are")
