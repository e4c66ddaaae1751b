"""What a schedule's journal gets next: whole records, from its state, its triggers and the time."""

from datetime import UTC, datetime
from typing import Any

import pytest

from perdure._work.schedules.firing import JournalState, build_record_event
from perdure._work.schedules.plan import OverdueTimes, find_overdue_times, plan_records, plan_skipped
from perdure.background import Schedule, ScheduleJournalRecord, at, cron, every
from perdure.events import Entry
from perdure.stores import Post

START = 1_699_999_200.0
"""2023-11-14 22:00:00 UTC."""
HOUR = 3600.0
NEWS = Schedule(name="news", when=every(hours=1), prompt="Read.", late_seconds=30, new_session=True)
MAIL = Schedule(name="mail", skill="answer")
LATE = "no process served it in time"


def state_of(schedule: Schedule, *records: ScheduleJournalRecord) -> JournalState:
    """The state of a schedule that was armed at the start, and of these records."""
    state = JournalState()
    for record in (ScheduleJournalRecord(kind="armed", schedule=schedule.name, timing=schedule.when), *records):
        state.apply(Entry(1, START, build_record_event(record)))
    return state


def plan(schedule: Schedule, state: JournalState, now: float, *posts: Post) -> list[ScheduleJournalRecord]:
    return plan_records(schedule, state, posts, now)


def fired(due: float, moment: str) -> ScheduleJournalRecord:
    session = f"news-{moment}"
    return ScheduleJournalRecord(
        kind="fired", schedule="news", firing_id=moment, due=due, session_id=session, prompt="Read."
    )


def test_a_schedule_is_armed_first_and_again_when_its_times_have_changed():
    armed = ScheduleJournalRecord(kind="armed", schedule="news", timing=NEWS.when)
    assert plan(NEWS, JournalState(), START) == [armed]
    other = Schedule(name="news", when=every(hours=2), prompt="Read.")
    assert plan(NEWS, state_of(other), START + 9 * HOUR) == [armed]


def test_a_moment_that_has_passed_when_it_is_added_is_missed_at_once():
    moment = at(datetime.fromtimestamp(START - 60, UTC))
    old = Schedule(name="old", when=moment, prompt="Too late.")
    assert plan(old, JournalState(), START) == [
        ScheduleJournalRecord(kind="armed", schedule="old", timing=moment),
        ScheduleJournalRecord(
            kind="missed",
            schedule="old",
            firing_id="never",
            due=START - 60,
            reason="its time had passed when it was added",
        ),
    ]


def test_nothing_is_planned_before_a_schedule_is_due_and_one_that_only_triggers_fire_is_never_due():
    assert plan(NEWS, state_of(NEWS), START + HOUR - 1) == []
    assert plan(MAIL, JournalState(), START + 9 * HOUR) == []


@pytest.mark.parametrize("late", [0, 30])
def test_a_due_time_is_fired_as_long_as_it_is_not_too_late(late):
    assert plan(NEWS, state_of(NEWS), START + HOUR + late) == [fired(START + HOUR, "2023-11-14T23:00:00Z")]


def test_a_due_time_that_is_too_late_is_missed_with_those_before_it():
    def missed(count: int) -> list[ScheduleJournalRecord]:
        return [
            ScheduleJournalRecord(
                kind="missed",
                schedule="news",
                firing_id="2023-11-14T23:00:00Z",
                due=START + count * HOUR,
                count=count,
                reason=LATE,
            )
        ]

    assert plan(NEWS, state_of(NEWS), START + HOUR + 31) == missed(1)
    assert plan(NEWS, state_of(NEWS), START + 3 * HOUR + 31) == missed(3)


def test_of_several_due_times_the_last_is_fired_and_the_others_are_missed():
    assert plan(NEWS, state_of(NEWS), START + 3 * HOUR + 30) == [
        ScheduleJournalRecord(
            kind="missed",
            schedule="news",
            firing_id="2023-11-14T23:00:00Z",
            due=START + HOUR,
            count=2,
            reason=LATE,
        ),
        fired(START + 3 * HOUR, "2023-11-15T01:00:00Z"),
    ]


def test_a_firing_whose_run_is_not_over_is_resumed_before_anything_else():
    state = state_of(NEWS, fired(START + HOUR, "f1"))
    resumed = ScheduleJournalRecord(kind="resumed", schedule="news", firing_id="f1", session_id="news-f1")
    trigger = Post("trigger-1", "schedule_trigger", {}, START)
    assert plan(NEWS, state, START + 9 * HOUR, trigger) == [resumed]


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"input": {"n": 1}, "labels": ["untrusted"]}, {"input": {"n": 1}, "labels": ("untrusted",)}),
        ({"labels": None}, {}),
        ("of another program", {}),
    ],
)
def test_the_first_trigger_is_fired_with_its_input_and_labels(body: Any, fields: dict[str, Any]):
    posts = [Post("c", "cancel", {}, START), Post("t1", "schedule_trigger", body, START)]
    posts.append(Post("t2", "schedule_trigger", {}, START))
    assert plan(MAIL, JournalState(), START, *posts) == [
        ScheduleJournalRecord(
            kind="fired", schedule="mail", firing_id="t1", session_id="mail", skill="answer", **fields
        )
    ]
    assert plan(MAIL, JournalState(), START, posts[0]) == []


def test_due_times_that_pass_while_a_run_goes_on_are_skipped():
    state = state_of(NEWS, fired(START + HOUR, "f1"))
    assert plan_skipped(NEWS, state, START + 2 * HOUR - 1) == []
    assert plan_skipped(NEWS, state, START + 3 * HOUR) == [
        ScheduleJournalRecord(
            kind="skipped",
            schedule="news",
            firing_id="2023-11-15T00:00:00Z",
            due=START + 3 * HOUR,
            count=2,
            reason="the last run is not over",
        )
    ]
    changed = Schedule(name="news", when=every(hours=2), prompt="Read.")
    assert plan_skipped(changed, state, START + 9 * HOUR) == []
    assert plan_skipped(MAIL, state_of(MAIL), START + 9 * HOUR) == []


@pytest.mark.parametrize(
    ("timing", "first", "last", "count"),
    [
        (every(minutes=1), 60.0, 9 * HOUR, 540),
        (cron("0 * * * *", timezone="UTC"), HOUR, 9 * HOUR, 9),
        (cron("30 * * * *", timezone="UTC"), HOUR / 2, 8.5 * HOUR, 9),
        (cron("0 0 * * *", timezone="UTC"), 2 * HOUR, 2 * HOUR, 1),
        (at(datetime.fromtimestamp(START + 60, UTC)), 60.0, 60.0, 1),
    ],
)
def test_overdue_times_are_from_the_first_to_the_last_that_has_passed(timing, first, last, count):
    state = state_of(Schedule(name="x", when=timing, prompt="x"))
    assert find_overdue_times(state, START + 9 * HOUR) == OverdueTimes(START + first, START + last, count)
    assert find_overdue_times(state, START + first) == OverdueTimes(START + first, START + first, 1)
    assert find_overdue_times(state, START + first - 1) is None
