"""The comparison of a replay with the log: in which order events may come, and what the first difference says."""

import pytest

from perdure import Text, ToolResult, assistant, user
from perdure._work.replay.comparison import LogComparer, ReplayStopped, _describe_prefix_difference, get_call_id
from perdure._work.replay.differences import NOTHING
from perdure._work.replay.log import index_recorded_log
from perdure.events import (
    Compacted,
    CompactionStarted,
    Entry,
    Event,
    MessageAdded,
    ModelRequested,
    PermissionDecided,
    QuestionAsked,
    RunEnded,
    RunStarted,
    ToolFinished,
    ToolsChanged,
    ToolStarted,
    TurnStarted,
    ViewChanged,
)
from perdure.models import Request
from perdure.testing import Divergence

STARTED, PROMPT, ENDED = RunStarted("a"), MessageAdded(user("Go.")), RunEnded("done")


def comparer(*events: Event) -> LogComparer:
    """A comparer with a log of one run, whose entries are a second apart."""
    log = [Entry(number, 10.0 + number, event) for number, event in enumerate((STARTED, PROMPT, *events), 1)]
    made = LogComparer(index_recorded_log(log), {})
    made.begin(made.record.segments[0])
    return made


def started(call_id: str, name: str = "look") -> ToolStarted:
    return ToolStarted(call_id, name, "read", "k")


def finished(call_id: str, text: str = "seen") -> ToolFinished:
    return ToolFinished(call_id, "look", ToolResult(call_id, "look", (Text(text),)))


def compare(check: LogComparer, *events: Event) -> str:
    """Compare events, and return why the replay was stopped; empty if it was not."""
    try:
        for event in events:
            check.compare_event(event)
    except ReplayStopped as stopped:
        return str(stopped)
    return ""


def test_what_is_as_recorded_is_taken_off_and_its_time_is_the_present():
    check = comparer(ENDED)
    assert (check.at, check.next_event, [entry.seq for entry in check.remaining]) == (11.0, PROMPT, [2, 3])
    check.compare_event(TurnStarted(1))  # which is not compared
    check.compare_event(PROMPT)
    assert (check.at, check.next_event) == (12.0, ENDED)
    check.compare_event(ENDED)
    assert (check.at, check.next_event, check.remaining) == (13.0, None, [])
    check.finish()
    assert check.divergence is None


def test_calls_may_come_in_any_order_but_not_before_what_is_no_call():
    events = [
        started("c"),
        started("d"),
        finished("c"),
        finished("d"),
        MessageAdded(user("More.")),
        started("e"),
        ENDED,
    ]
    check = comparer(*events)
    order = [
        PROMPT,
        started("d"),
        finished("d"),
        started("c"),
        finished("c"),
        MessageAdded(user("More.")),
        started("e"),
    ]
    assert compare(check, *order) == ""
    assert compare(check, ENDED) == ""
    early = comparer(*events)
    compare(early, PROMPT, started("e"))
    assert early.divergence is not None
    assert early.divergence.seq == 3


def test_a_compaction_may_come_while_calls_are_going():
    shortening = [CompactionStarted("overflow", 9), Compacted(user("So far."), 1), ViewChanged("compaction")]
    check = comparer(started("c"), *shortening, finished("c"), ENDED)
    assert compare(check, PROMPT, started("c"), *shortening, finished("c"), ENDED) == ""
    late = comparer(started("c"), finished("c"), *shortening, ENDED)
    assert compare(late, PROMPT, started("c"), *shortening, finished("c"), ENDED) == ""
    other = comparer(started("c"), finished("c"), MessageAdded(user("More.")), ENDED)
    assert compare(other, PROMPT, started("c"), MessageAdded(user("More."))) != ""


def test_the_first_difference_is_kept_and_ends_all_that_follows():
    check = comparer(ENDED)
    first = compare(check, PROMPT, MessageAdded(user("Else.")))
    assert check.divergence is not None
    assert (check.divergence.seq, first) == (3, str(check.divergence))
    check.record_divergence(9, "ending", "another", "then", "now")
    assert (check.divergence.seq, compare(check, ENDED)) == (3, first)
    check.finish()
    assert check.divergence.seq == 3


def test_what_happens_after_the_end_of_the_log_is_a_difference_after_its_last_entry():
    check = comparer(ENDED)
    compare(check, PROMPT, ENDED, MessageAdded(user("More.")))
    assert check.divergence is not None
    assert (check.divergence.seq, check.divergence.recorded) == (4, NOTHING)


def test_a_log_that_breaks_off_is_no_difference():
    check = comparer(started("c"), started("d"))
    assert compare(check, PROMPT, started("c"), finished("c")) == "the record breaks off after entry 4"
    assert [entry.seq for entry in check.remaining] == [4]
    check.finish()
    assert check.divergence is None
    again = comparer(started("c"), MessageAdded(user("More.")))
    assert compare(again, PROMPT, finished("d")) != "the record breaks off after entry 4"
    assert again.divergence is not None


def test_what_is_left_of_a_run_that_has_ended_is_a_difference():
    check = comparer(MessageAdded(user("More.")), ENDED)
    assert compare(check, PROMPT) == ""
    check.finish()
    assert check.divergence is not None
    assert (check.divergence.seq, check.divergence.what, check.divergence.now) == (
        *(3, "nothing more happens here"),
        NOTHING,
    )


def test_a_call_that_somebody_was_asked_about_is_not_made_without_asking():
    asked = QuestionAsked("q", "permission", "May I?", ({"call_id": "c", "tool": "look"},))
    check = comparer(asked, started("c"), ENDED)
    compare(check, PROMPT, started("c"))
    assert check.divergence is not None
    assert (check.divergence.seq, check.divergence.about, check.divergence.what) == (
        *(4, "permission"),
        "the call of 'look' is made without approval",
    )
    assert check.divergence.recorded == f"approval is requested\n{check.divergence.now}"
    approved = comparer(asked, started("c"), ENDED)
    approved.approval_calls.add("c")
    assert compare(approved, PROMPT, started("c"), ENDED) == ""


def test_a_yes_is_not_compared_and_a_no_is():
    yes = PermissionDecided("c", "look", "look", "", "h", allow=True)
    no = PermissionDecided("c", "look", "look", "", "h", allow=False)
    assert compare(comparer(yes, ENDED), PROMPT, ENDED) == ""
    assert compare(comparer(no, ENDED), PROMPT, no, ENDED) == ""
    assert compare(comparer(no, ENDED), PROMPT, ENDED) != ""


@pytest.mark.parametrize(
    ("then", "now", "parts"),
    [
        ({}, {}, ""),
        ({}, {"turn": 2}, "its turn"),
        ({}, {"attempt": 2}, "its turn"),
        ({}, {"aside": True}, "it is beside the conversation"),
        ({"aside": True}, {}, "it is part of the conversation"),
        ({"settings": {"seed": 1}}, {"settings": {"seed": 2}}, "its settings"),
        ({"messages": 1}, {"messages": 2}, "the messages"),
        ({}, {"turn": 2, "messages": 2}, "its turn, the messages"),
        ({}, {"prefix": "c-b"}, "the instructions"),
        ({}, {"prefix": "a-d"}, "the tools"),
    ],
)
def test_the_parts_in_which_a_request_differs_are_named(then, now, parts):
    check = comparer(ModelRequested(**{"turn": 1, "prefix": "a-b", **then}), ENDED)
    check.compare_event(PROMPT)
    check.compare_event(ModelRequested(**{"turn": 1, "prefix": "a-b", **now}))
    assert check.current == 3
    request = Request(messages=(user("Go."),))
    if not parts:
        check.compare_request(request, [])
        assert (check.requests, check.divergence) == (1, None)
        check.compare_request(request, [])  # of which there is no event
        assert check.requests == 1
        return
    with pytest.raises(ReplayStopped):
        check.compare_request(request, [])
    assert check.divergence is not None
    assert (check.divergence.seq, check.divergence.about, check.divergence.what, check.requests) == (
        *(3, "request"),
        f"the request of turn 1 is another one: {parts}",
        0,
    )


def test_two_requests_are_shown_with_their_settings_and_conversations():
    check = comparer(ModelRequested(1, settings={"seed": 1}, prefix="a-b", messages=2), ENDED)
    check.compare_event(PROMPT)
    check.compare_event(ModelRequested(1, settings={"seed": 2}, prefix="a-b", messages=1))
    with pytest.raises(ReplayStopped):
        check.compare_request(Request(messages=(user("Go."),)), [user("Go."), assistant("Yes.")])
    assert check.divergence == Divergence(
        3,
        "request",
        "the request of turn 1 is another one: its settings, the messages",
        'request of turn 1\nsettings: {"seed":1}\nmessages: 2\nuser:\n  Go.\nassistant:\n  Yes.',
        'request of turn 1\nsettings: {"seed":2}\nmessages: 1\nuser:\n  Go.',
    )


def test_only_events_that_are_compared_are_about_a_call():
    assert [get_call_id(each) for each in (started("c"), finished("d"), ENDED, TurnStarted(1))] == [
        "c",
        "d",
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("then", "now", "is_same"),
    [
        (ENDED, RunEnded("done", run_id="r"), True),
        (ENDED, RunEnded("failed"), False),
        (RunEnded("limit", "timeout"), RunEnded("limit", "max_turns"), False),
        (ToolsChanged(("a",)), ToolsChanged(("a",), run_id="r"), True),
        (ToolsChanged(("a",)), ToolsChanged(("b",)), False),
        (finished("c"), finished("c"), True),
        (finished("c"), finished("c", "else"), False),
        (started("c"), started("c", "other"), False),
        (CompactionStarted("overflow", 9), CompactionStarted("manual", 9), False),
        (MessageAdded(user("a")), MessageAdded(user("a", origin="steering")), False),
    ],
)
def test_events_are_the_same_if_all_that_is_compared_of_them_is(then, now, is_same):
    assert (compare(comparer(then, ENDED), PROMPT, now) == "") is is_same


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        ("a-b", "a-c", "the tools"),
        ("a-b", "c-b", "the instructions"),
        ("a-b", "c-d", "the instructions, the tools"),
    ],
)
def test_the_part_of_the_prompt_that_differs_is_named(then, now, told):
    assert _describe_prefix_difference(then, now) == told
