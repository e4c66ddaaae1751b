"""What a log amounts to: the same whether it is watched as it grows or read back, and never a broken conversation."""

from collections.abc import Iterable

import pytest

from tests.transcript import assert_valid
from windlass.core.event import (
    Custom,
    Entry,
    Event,
    MessageAdded,
    ModelRequested,
    PermissionDecided,
    RunEnded,
    RunResumed,
    RunStarted,
    Scope,
    ToolFinished,
    ToolStarted,
)
from windlass.core.fold import INTERRUPTED, NOT_STARTED, State, fold, repairs
from windlass.core.view import View
from windlass.core.message import Message, Status, Text, ToolCall, ToolResult, Usage, assistant, user


def folded(*events: Event) -> State:
    return fold(Entry(place, 0.0, event) for place, event in enumerate(events, 1))


def reply(*call_ids: str, usage: Usage | None = None) -> Message:
    return assistant([ToolCall(call_id, "act") for call_id in call_ids], usage=usage)


def started(call_id: str, attempt: int = 1) -> ToolStarted:
    return ToolStarted(call_id, "act", "at_most_once", "", f"key-{call_id}", attempt, run_id="r1")


def finished(call_id: str, text: str = "done") -> ToolFinished:
    return ToolFinished(call_id, "act", ToolResult(call_id, "act", (Text(text),)), run_id="r1")


def decided(call_id: str, scope: Scope = "once") -> PermissionDecided:
    return PermissionDecided(call_id, "act", "act", "", "hash", allow=True, scope=scope)


START = (RunStarted("agent", run_id="r1"), MessageAdded(user("Go"), run_id="r1"), ModelRequested(1, run_id="r1"))


# -- views -------------------------------------------------------------------------------------------------------------


def words(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages]


def test_a_view_does_not_change_when_the_transcript_grows():
    state = folded(MessageAdded(user("one")), MessageAdded(user("two")))
    view = state.messages
    state.apply(MessageAdded(user("three")))
    assert (words(view), len(view), words(state.messages)) == (["one", "two"], 2, ["one", "two", "three"])


def test_a_view_is_read_like_a_list():
    state = folded(*[MessageAdded(user(word)) for word in ("one", "two", "three")])
    view = state.messages
    state.apply(MessageAdded(user("four")))
    assert (view[0].text, view[-1].text) == ("one", "three")
    assert (words(view[1:]), words(view[:-1]), words(view[::-1])) == (
        ["two", "three"],
        ["one", "two"],
        ["three", "two", "one"],
    )
    assert (user("two") in view, user("four") in view, view.index(user("three"))) == (True, False, 2)
    assert words(reversed(view)) == ["three", "two", "one"]
    with pytest.raises(IndexError):
        view[3]


def test_a_view_is_equal_to_what_holds_the_same_messages():
    messages = [user("one"), user("two")]
    view = View(messages)
    assert view == messages
    assert view == tuple(messages)
    assert view == View([*messages])
    assert view != messages[:1]
    assert view != "one two"
    assert repr(view) == f"View({messages!r})"
    with pytest.raises(TypeError, match="unhashable"):
        hash(view)


# -- the transcript ----------------------------------------------------------------------------------------------------


def test_a_reply_with_calls_enters_the_transcript_together_with_its_results():
    state = folded(*START, MessageAdded(reply("a", "b")), started("a"), started("b"), finished("b", "second"))
    assert words(state.messages) == ["Go"]
    assert [call.call_id for call in state.unsettled] == ["a"]
    assert state.reply == reply("a", "b")
    state.apply(finished("a", "first"))
    assert_valid(state.messages)
    assert [result.text for result in state.messages[2].tool_results] == ["first", "second"]
    assert state.latest_results == state.messages[2].tool_results
    assert not any((state.reply, state.unsettled, state.open_calls, state.started))


def test_a_reply_without_calls_is_the_answer_until_something_follows():
    state = folded(*START)
    assert state.answer is None
    state.apply(MessageAdded(assistant("Hello.")))
    assert state.answer == assistant("Hello.")
    state.apply(MessageAdded(user("And?")))
    assert state.answer is None


def test_an_answer_belongs_to_its_run():
    state = folded(*START, MessageAdded(assistant("Hello.")), RunEnded("done"), RunStarted(run_id="r2"))
    assert state.answer is None


def test_results_of_tools_are_not_an_answer():
    assert folded(*START, MessageAdded(reply("a")), finished("a")).answer is None


def test_a_result_of_a_call_that_no_reply_made_is_the_latest_and_nothing_else():
    state = folded(*START, started("direct"), finished("direct"))
    assert state.latest == finished("direct").result
    assert (words(state.messages), state.started) == (["Go"], {})


def test_every_call_id_there_has_been_is_known():
    state = folded(*START, MessageAdded(reply("a")), finished("a"), MessageAdded(reply("b", "c")))
    assert state.call_ids == {"a", "b", "c"}


# -- counting ----------------------------------------------------------------------------------------------------------


def test_turns_attempts_calls_and_usage_are_counted():
    state = folded(
        *START,
        ModelRequested(1, 2),
        MessageAdded(reply("a", "b", usage=Usage(10, 1))),
        started("a"),
        started("b"),
        finished("a"),
        finished("b"),
        ModelRequested(2),
    )
    assert (state.turns, state.attempts, state.tool_calls, state.usage) == (2, 1, 2, Usage(10, 1))
    state.apply(MessageAdded(assistant("Done.", usage=Usage(5, 5))))
    assert (state.attempts, state.usage, state.usage) == (0, Usage(15, 6), Usage(15, 6))


def test_a_call_that_is_started_again_after_a_crash_counts_once():
    state = folded(*START, MessageAdded(reply("a")), started("a"), started("a", 2))
    assert (state.tool_calls, state.started["a"].attempt) == (1, 2)


def test_a_new_run_counts_anew_and_the_transcript_goes_on():
    state = folded(
        *START,
        MessageAdded(assistant("Hello.", usage=Usage(10, 1))),
        RunEnded("done", run_id="r1"),
        RunStarted(run_id="r2"),
    )
    assert (state.turns, state.attempts, state.tool_calls, state.usage, state.first) == (0, 0, 0, Usage(), 2)
    assert state.run == RunStarted(run_id="r2")
    assert state.ended is None


def test_a_run_is_interrupted_from_its_start_to_its_end():
    state = State()
    assert not state.interrupted
    state.apply(START[0])
    assert state.interrupted
    state.apply(RunResumed(run_id="r1"))
    assert state.interrupted
    state.apply(RunEnded("done"))
    assert not state.interrupted


def test_events_of_other_agents_and_of_other_kinds_change_nothing():
    state = folded(
        *START, MessageAdded(assistant("Child."), path="child"), Custom("note"), RunEnded("done", path="child")
    )
    assert (words(state.messages), state.interrupted) == (["Go"], True)


def test_verdicts_are_known_until_their_call_is_settled_and_longer_ones_for_good():
    state = folded(*START, MessageAdded(reply("a", "b")), decided("a"), decided("b", "session"))
    assert set(state.decided) == {"a", "b"}
    state.apply(finished("a"))
    state.apply(finished("b"))
    assert (state.decided, state.remembered) == ({}, [decided("b", "session")])


# -- repairs -----------------------------------------------------------------------------------------------------------


def repaired(*events: Event) -> State:
    state = folded(*events)
    for event in repairs(state):
        state.apply(event)
    assert repairs(state) == []
    assert_valid(state.messages)
    assert not state.interrupted
    return state


def test_a_log_in_good_order_needs_no_repair():
    assert repairs(State()) == []
    assert repairs(folded(*START, MessageAdded(assistant("Hello.")), RunEnded("done"))) == []


def test_started_calls_become_unknown_and_others_say_that_they_never_began():
    state = repaired(*START, MessageAdded(reply("a", "b", "c")), started("a"), started("b"), finished("b"))
    results = state.messages[2].tool_results
    assert [(result.status, result.text) for result in results] == [
        (Status.UNKNOWN, INTERRUPTED),
        (Status.OK, "done"),
        (Status.CANCELLED_BEFORE_START, NOT_STARTED),
    ]


def test_a_run_that_was_cut_off_is_closed_with_what_it_used():
    events = repairs(folded(*START, MessageAdded(assistant("Hello.", usage=Usage(3, 4)))))
    assert events == [RunEnded("failed", "interrupted", "the process ended", Usage(3, 4), turns=1, run_id="r1")]


def test_a_call_that_no_reply_made_is_settled_too():
    state = repaired(RunStarted(run_id="r1"), started("direct"))
    assert state.latest is not None
    assert (state.latest.call_id, state.latest.status, state.started) == ("direct", Status.UNKNOWN, {})


def test_calls_that_a_run_left_open_when_it_failed_are_settled():
    events = repairs(folded(*START, MessageAdded(reply("a")), RunEnded("failed")))
    assert [type(event) for event in events] == [ToolFinished]


def test_repairs_belong_to_the_run_they_repair():
    events = repairs(folded(*START, MessageAdded(reply("a")), started("a")))
    assert {event.run_id for event in events} == {"r1"}
