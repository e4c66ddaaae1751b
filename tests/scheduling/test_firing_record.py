"""The state of a schedule, computed from the records of its journal, and records as text."""

import pytest

from perdure._work.schedules.firing import JournalState, build_record_event, read_record
from perdure.background import Firing, ScheduleJournalRecord, every
from perdure.events import Custom, Entry

HOURLY = every(hours=1)


def fold(*records: ScheduleJournalRecord, first: float = 100.5) -> JournalState:
    """The state after these records, which are 10 seconds apart."""
    state = JournalState()
    for number, record in enumerate(records):
        state.apply(Entry(number + 1, first + 10 * number, build_record_event(record)))
    return state


def record(kind, firing_id="f1", **fields) -> ScheduleJournalRecord:
    return ScheduleJournalRecord(kind=kind, schedule="news", firing_id=firing_id, **fields)


FIRED = record("fired", due=100.0, session_id="news", prompt="Read.")


def test_a_journal_without_records_has_nothing():
    state = fold()
    assert (state.timing, state.anchor, state.handled_until, state.open) == (None, 0.0, 0.0, None)
    assert (state.attempt, state.next_due, state.firings) == (0, None, {})


def test_an_armed_schedule_is_counted_from_the_whole_second_and_from_what_was_handled_last():
    armed = record("armed", "", timing=HOURLY)
    assert (fold(armed).anchor, fold(armed).next_due) == (100.0, 3700.0)
    later = fold(armed, record("missed", due=3700.0), record("skipped", "f2", due=7300.0))
    assert (later.handled_until, later.next_due) == (7300.0, 10900.0)
    assert fold(armed, record("skipped", due=7300.0), record("missed", "f2", due=3700.0)).handled_until == 7300.0
    assert fold(armed, record("fired", "trigger-1")).handled_until == 0.0


def test_a_firing_is_open_until_it_has_ended_and_has_all_that_was_noted_of_it():
    begun = fold(FIRED)
    assert begun.open is not None
    assert (begun.open.firing_id, begun.attempt) == ("f1", 1)
    running = Firing(
        schedule="news", firing_id="f1", status="running", due=100.0, started_at=100.5, session_id="news", attempts=1
    )
    assert begun.firings == {"f1": running}
    retried = record("retried", attempt=2, reason="ProviderDown", cost_usd=0.5)
    again = fold(FIRED, record("resumed"), record("resumed"), retried)
    assert (again.attempt, again.firings["f1"].resumed, again.firings["f1"].reason) == (2, 2, "ProviderDown")
    end = record("failed", run_id="r", reason="down", denied=("send",), unknown_effects=("pay",), cost_usd=0.25)
    ended = fold(FIRED, record("resumed"), retried, end)
    assert (ended.open, ended.attempt) == (None, 0)
    assert ended.firings["f1"] == Firing(
        schedule="news",
        firing_id="f1",
        status="failed",
        due=100.0,
        started_at=100.5,
        ended_at=130.5,
        session_id="news",
        run_id="r",
        attempts=2,
        resumed=1,
        reason="down",
        denied=("send",),
        unknown_effects=("pay",),
        cost_usd=0.75,
    )


@pytest.mark.parametrize(
    ("of_first", "of_last", "cost"), [(None, None, None), (0.5, None, 0.5), (None, 0.25, 0.25), (0.5, 0.25, 0.75)]
)
def test_the_cost_of_a_firing_is_that_of_its_runs_as_far_as_it_is_known(of_first, of_last, cost):
    state = fold(FIRED, record("retried", attempt=2, cost_usd=of_first), record("finished", cost_usd=of_last))
    assert state.firings["f1"].cost_usd == cost


@pytest.mark.parametrize("kind", ["skipped", "missed"])
def test_a_due_time_that_had_no_run_is_over_at_once(kind):
    state = fold(record(kind, due=50.0, count=3, reason="late"))
    assert state.open is None
    [firing] = state.firings.values()
    assert firing == Firing(
        schedule="news",
        firing_id="f1",
        status=kind,
        due=50.0,
        count=3,
        started_at=100.5,
        ended_at=100.5,
        reason="late",
    )
    assert firing.is_over


def test_the_end_of_a_firing_that_was_never_begun_changes_nothing():
    state = fold(FIRED, record("finished", "other"))
    assert state.open is not None
    assert list(state.firings) == ["f1"]


def test_only_records_are_read_and_with_the_time_of_their_entry():
    assert read_record(Entry(1, 5.0, build_record_event(FIRED))) == ScheduleJournalRecord(
        kind="fired", schedule="news", firing_id="f1", due=100.0, session_id="news", prompt="Read.", at=5.0
    )
    assert read_record(Entry(1, 5.0, Custom("other", {"kind": "fired"}))) is None
    assert read_record(Entry(1, 5.0, Custom("perdure:schedule", {"kind": "of a newer version"}))) is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (record("armed", ""), "news armed"),
        (record("fired"), "news f1 fired"),
        (record("missed", count=2, reason="late"), "news f1 missed x2 (late)"),
        (record("finished", denied=("a", "b")), "news f1 finished; denied: a, b"),
        (record("failed", reason="down", unknown_effects=("c", "d")), "news f1 failed (down); unknown: c, d"),
        (
            record("failed", reason="down", denied=("a",), unknown_effects=("c",)),
            "news f1 failed (down); denied: a; unknown: c",
        ),
    ],
)
def test_a_record_is_one_line_of_text(given, text):
    assert given.describe() == text
