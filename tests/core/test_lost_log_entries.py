"""Entries that a log has lost: their places are marked, and nothing that they might have said is taken for granted."""

import pytest

from perdure import Message, Status, Text, ToolCall, user
from perdure._core.log.fold import fold_events
from perdure._core.log.repair import ENDING_LOG_DAMAGED, INTERRUPTED_CALL_TEXT, build_repair_events
from perdure._core.log.status import build_lost_entries_error, build_lost_input_error, mark_lost_entries
from perdure._core.log.store import read_events
from perdure.engines import fold_entries
from perdure.events import (
    Custom,
    EntriesLost,
    Entry,
    Event,
    MessageAdded,
    RunEnded,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from perdure.stores import MemoryStore


def entry(seq: int, event: Event | None = None) -> Entry:
    return Entry(seq, 1.0, event or Custom("x", run_id="r"), f"e-{seq}")


def marks(*entries: Entry, after: int | None = None, head: int = 0) -> list[EntriesLost]:
    return [event for event in mark_lost_entries(entries, after, head) if isinstance(event, EntriesLost)]


def test_a_log_that_is_whole_has_no_marks():
    assert marks() == marks(entry(1), entry(2)) == marks(entry(5), entry(6), after=4, head=6) == []


def test_a_mark_stands_where_the_numbers_are_missing():
    events = mark_lost_entries([entry(2), entry(6)], after=0, head=9)
    assert events == [
        EntriesLost(1, 1),
        entry(2).event,
        EntriesLost(3, 5, run_id="r"),
        entry(6).event,
        EntriesLost(7, 9),
    ]
    assert marks(entry(4), entry(5)) == []  # what came before was not asked for
    assert marks(after=3, head=5) == [EntriesLost(4, 5)]


def test_other_runs_may_be_lost_unless_both_sides_are_of_the_same_run():
    assert marks(entry(1), entry(3, Custom("x", run_id="other"))) == [EntriesLost(2, 2)]
    assert marks(entry(1), entry(3, RunStarted("a", run_id="r"))) == [EntriesLost(2, 2)]


class Gappy(MemoryStore):
    async def read(self, session_id, *, after=0):
        return [entry(each) for each in (1, 4) if each > after]

    events = None


async def test_a_store_that_reads_no_events_by_itself_has_its_losses_marked():
    events, head = await read_events(Gappy(), "s")
    assert (events[1], head) == (EntriesLost(2, 3, run_id="r"), 4)
    assert await read_events(Gappy(), "s", after=2) == ([EntriesLost(3, 3), entry(4).event], 4)
    assert await read_events(Gappy(), "s", after=4) == ([], 4)


STARTED = RunStarted("agent", input_id="i", run_id="r")
CALLING = MessageAdded(Message("assistant", (ToolCall("c-1", "pay", "{}"),)), run_id="r")


def test_every_open_call_of_a_run_with_lost_entries_is_unknown():
    state = fold_entries([entry(1, STARTED), entry(2, CALLING), entry(4, Custom("x", run_id="r"))])
    assert state.has_lost_entries
    assert not state.may_have_lost_runs
    finished, ended = build_repair_events(state, ENDING_LOG_DAMAGED)
    assert isinstance(finished, ToolFinished)
    assert isinstance(ended, RunEnded)
    assert finished.result.status is Status.UNKNOWN
    assert finished.result.content == (Text(INTERRUPTED_CALL_TEXT),)
    assert (ended.status, ended.reason) == ("failed", "log_damaged")
    state.apply(finished)
    state.apply(ended)
    assert build_repair_events(state) == []


def test_the_calls_of_subagents_are_unknown_as_well():
    state = fold_events(
        [
            STARTED,
            CALLING,
            ToolStarted("c-1", "pay", "at_most_once", "k", run_id="r"),
            RunStarted("child", run_id="r/1", path="child"),
            MessageAdded(Message("assistant", (ToolCall("c-2", "pay", "{}"),)), run_id="r/1", path="child"),
            EntriesLost(6, 7),
        ]
    )
    assert state.may_have_lost_runs
    assert {each.result.status for each in build_repair_events(state) if hasattr(each, "result")} == {Status.UNKNOWN}


@pytest.mark.parametrize("before", [(), (STARTED, MessageAdded(user("go"), run_id="r"), RunEnded("done", run_id="r"))])
def test_a_loss_before_a_run_does_not_concern_it(before):
    state = fold_events([*before, EntriesLost(5, 6), RunStarted("agent", run_id="next")])
    assert not state.has_lost_entries
    assert state.may_have_lost_runs
    assert [type(each) for each in build_repair_events(state)] == [RunEnded]


def test_errors_about_lost_entries_name_the_session_and_say_what_to_do():
    assert "'s'" in str(build_lost_entries_error("s"))
    assert "go on with run()" in str(build_lost_entries_error("s"))
    assert "'s' has lost entries" in str(build_lost_input_error("s", "order-7"))
    assert "'order-7' may have been among them" in str(build_lost_input_error("s", "order-7"))
