"""What a host program is told about a session: its messages with their times, and what they have cost."""

import pytest

from perdure import (
    Message,
    MessageCounts,
    SessionUsage,
    StampedMessage,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    tool_message,
    user,
)
from perdure._runtime.session.report import (
    build_session_usage,
    build_usage_of_ended_runs,
    count_messages_by_role,
    find_stamped_message,
    list_stamped_messages,
)
from perdure.engines import State
from perdure.events import Entry, Event, MessageAdded, RunEnded, RunStarted, ToolFinished, ToolStarted

ASKED = user("Weather?")
CALLS = Message(
    "assistant",
    (ToolCall("c1", "look"), ToolCall("c2", "look")),
    stop=StopReason.TOOL_USE,
    usage=Usage(7, 2),
)
ONE, TWO = (ToolResult(each, "look", (Text("rain"),)) for each in ("c1", "c2"))
ANSWER = assistant("Rain.", usage=Usage(11, 3))
EVENTS: list[Event] = [
    RunStarted("agent", run_id="r1"),
    MessageAdded(ASKED, run_id="r1"),
    MessageAdded(CALLS, run_id="r1"),
    ToolStarted("c1", "look", "read", "k1", run_id="r1"),
    ToolStarted("c2", "look", "read", "k2", run_id="r1"),
    ToolFinished("c2", "look", TWO, run_id="r1"),
    ToolFinished("c1", "look", ONE, run_id="r1"),
    MessageAdded(ANSWER, run_id="r1"),
    RunEnded("done", run_id="r1"),
]
ENTRIES = [Entry(seq, 100.0 + seq, event, f"e{seq}") for seq, event in enumerate(EVENTS, 1)]
STAMPED = [
    StampedMessage(0, ASKED, 102.0, 2, "e2", "r1"),
    StampedMessage(1, CALLS, 103.0, 3, "e3", "r1"),
    StampedMessage(2, tool_message([ONE, TWO]), 107.0, 7, "e7", "r1"),
    StampedMessage(3, ANSWER, 108.0, 8, "e8", "r1"),
]


def fold(events: list[Event]) -> State:
    state = State()
    state.apply_all(events)
    return state


def test_each_message_has_the_time_and_the_number_of_its_entry_and_results_those_of_the_last() -> None:
    assert list_stamped_messages(ENTRIES) == STAMPED
    assert list_stamped_messages(ENTRIES[:6]) == STAMPED[:1]  # a reply counts once all its calls have results
    assert list_stamped_messages([]) == []


@pytest.mark.parametrize(
    ("seq", "index"), [(1, None), (2, 0), (3, 1), (4, None), (6, 2), (7, 2), (8, 3), (9, None), (10, None)]
)
def test_the_message_of_an_entry_is_found_by_its_number(seq: int, index: int | None) -> None:
    assert find_stamped_message(ENTRIES, seq) == (None if index is None else STAMPED[index])


def test_a_result_whose_message_is_not_complete_belongs_to_none() -> None:
    assert find_stamped_message(ENTRIES[:6], 6) is None


def test_messages_are_counted_by_role() -> None:
    messages = [ASKED, CALLS, tool_message([ONE, TWO]), ANSWER, user("And?")]
    assert count_messages_by_role(messages) == MessageCounts(total=5, user=2, assistant=2, tool=1)
    assert count_messages_by_role([]) == MessageCounts(total=0, user=0, assistant=0, tool=0)


def test_the_input_of_the_last_reply_is_known_before_its_calls_have_results() -> None:
    begun, whole = fold(EVENTS[:3]), fold(EVENTS)
    assert [build_session_usage(each, None).last_input_tokens for each in (begun, whole)] == [7, 11]
    assert [build_usage_of_ended_runs(each).last_input_tokens for each in (begun, whole)] == [7, 11]


def test_a_session_without_replies_has_used_nothing() -> None:
    nothing = SessionUsage(usage=Usage(), turns=0, cost_usd=0.0, last_input_tokens=0)
    for events in (EVENTS[:0], EVENTS[:2]):
        assert build_usage_of_ended_runs(fold(events)) == nothing
        assert build_session_usage(fold(events), None).last_input_tokens == 0
    assert build_session_usage(State(), None) == nothing
