"""Segments of a recorded log: what of a run is given again, and what is made again."""

import pytest

from perdure import Message, Status, Text, ToolCall, ToolResult, assistant, user
from perdure._core.values.clock import SEPARATOR
from perdure._work.replay.log import (
    Beginning,
    RecordedExchange,
    RunSegment,
    fill_segment_fields,
    is_compaction,
    is_result_shortening,
)
from perdure.events import (
    Compacted,
    CompactionStarted,
    Entry,
    Event,
    InboxResolved,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    QuestionAnswered,
    QuestionAsked,
    ReplyDiscarded,
    RunEnded,
    RunResumed,
    RunStarted,
    RunWaiting,
    SkillLoaded,
    ToolFinished,
    ToolStarted,
    TurnStarted,
    ValueKept,
    ViewChanged,
)

STARTED = RunStarted("a", run_id="r")


def said(text: str, origin: str = "", role: str = "user") -> MessageAdded:
    return MessageAdded(Message(role, (Text(text),), origin=origin))  # type: ignore[arg-type]


def segment(*events: Event, begins: Beginning = "run", asked_by_tools: tuple[str, ...] = ()) -> RunSegment:
    """The segment of a run of these events, numbered from 1 on."""
    entries = [Entry(number, 0.0, event) for number, event in enumerate(events, 1)]
    return fill_segment_fields(RunSegment(begins, STARTED, entries), asked_by_tools)


def test_a_run_has_its_prompt_its_requests_with_replies_and_its_calls():
    first, second = ModelRequested(1), ModelRequested(2)
    reply = assistant(["Look.", ToolCall("c", "look", "{}")])
    result = ToolResult("c", "look", (Text("seen"),))
    ended = RunEnded("done")
    kept, child = ValueKept("note", 1), TurnStarted(1, path="child")
    discarded = ReplyDiscarded(1, "RetryScheduled")
    events: list[Event] = [
        STARTED,
        said("Go."),
        said("Early.", "steering"),
        TurnStarted(1),
        first,
        discarded,
        MessageAdded(reply),
        ToolStarted("c", "look", "read", "k"),
        kept,
        child,
        ToolFinished("c", "look", result),
        said("Later.", "follow_up"),
        second,
        MessageAdded(assistant("Done.")),
        said("By the engine.", "engine", "assistant"),
        said("Go on.", "guardrail"),
        ended,
    ]
    made = segment(*events)
    assert made == RunSegment(
        "run",
        STARTED,
        [Entry(number, 0.0, event) for number, event in enumerate(events, 1)],
        opening=[user("Go.")],
        early_messages=[user("Early.", origin="steering")],
        exchanges={
            5: RecordedExchange(
                first, [discarded], reply, later_messages=[user("Later.", origin="follow_up")], started={"c"}
            ),
            13: RecordedExchange(second, reply=assistant("Done.")),
        },
        results={"c": result},
        result_entries={"c": 11},
        started_calls={"c"},
        other_entries=[Entry(9, 0.0, kept), Entry(10, 0.0, child)],
        ended=ended,
    )
    assert not made.is_waiting
    assert made.last_exchange is made.exchanges[13]
    assert made.call_statuses(made.exchanges[5]) == {Status.OK}
    assert made.call_statuses(made.exchanges[13]) == set()


def test_a_prompt_comes_with_the_skills_that_it_names_and_the_answer_of_a_handler():
    skills = [SkillLoaded("maps", "user"), SkillLoaded("knots", "model")]
    made = segment(STARTED, *skills, said("The maps."), said("Go."), said("At once.", role="assistant"), said("Odd."))
    assert (made.begins, made.skills, made.opening, made.answer) == (
        "run",
        skills,
        [user("The maps."), user("Go.")],
        assistant("At once."),
    )
    alone = segment(STARTED, said("Go."), said("More."))
    assert (alone.opening, alone.answer) == ([user("Go.")], None)


def test_a_run_without_a_prompt_was_woken_and_one_that_was_cut_off_before_it_was_not():
    woken = segment(STARTED, said("News.", "inbox"), ModelRequested(1))
    assert (woken.begins, woken.opening, woken.early_messages) == ("wake", [], [])
    assert segment(STARTED).begins == "run"
    below = segment(STARTED, MessageAdded(user("Go."), path="child"))
    assert (below.begins, [entry.seq for entry in below.other_entries]) == ("wake", [2])


def test_what_was_repaired_of_the_run_before_does_not_belong_to_a_run_and_a_resumed_one_begins_at_once():
    made = segment(RunEnded("failed", "interrupted"), STARTED, said("Go."), ModelRequested(1))
    assert (made.ended, made.opening, [*made.exchanges]) == (None, [user("Go.")], [4])
    resumed = segment(RunResumed(), said("Go."), ModelRequested(1), RunWaiting(("q",)), begins="resume")
    assert (resumed.opening, [*resumed.exchanges], resumed.is_waiting, resumed.ended) == ([], [3], True, None)


def test_questions_of_the_runtime_are_asked_again_and_those_of_tools_are_stored_again():
    asked, answered = QuestionAsked("q", "permission"), QuestionAnswered("q", "yes", "user")
    of_tool, below = QuestionAsked("t", "slot"), QuestionAsked("q", "permission", path="child")
    made = segment(STARTED, said("Go."), asked, answered, of_tool, below, asked_by_tools=("t",))
    assert [entry.event for entry in made.other_entries] == [of_tool, below]


def test_what_the_inbox_brought_is_given_again_where_it_was_delivered_and_else_stored_again():
    one, two, three = [InboxResolved(name, "here") for name in ("one", "two", "three")]
    made = segment(
        STARTED,
        said("Go."),
        one,
        two,
        said("News.", "inbox"),
        ModelRequested(1),
        MessageAdded(assistant("Hm.")),
        three,
        TurnStarted(2),
        two,
        said("News.", "inbox"),
    )
    assert made.early_messages == [one, two]
    assert made.exchanges[6].later_messages == [two]
    assert [entry.event for entry in made.other_entries] == [three]


def test_replies_beside_the_conversation_belong_to_their_requests():
    one, two = ModelRequested(7, aside=True), ModelRequested(8, aside=True)
    discarded = ReplyDiscarded(8, "late", aside=True)
    turn = ModelRequested(7)
    made = segment(STARTED, said("Go."), turn, one, two, discarded, ModelReplied(7, assistant("Aside.")))
    assert made.exchanges == {
        3: RecordedExchange(turn),
        4: RecordedExchange(one, reply=assistant("Aside.")),
        5: RecordedExchange(two, [discarded]),
    }


@pytest.mark.parametrize("has_reply", [False, True])
def test_a_request_without_a_reply_before_a_compaction_was_too_long(has_reply):
    reply = [MessageAdded(assistant("Hm."))] if has_reply else []
    compaction = [CompactionStarted("overflow", 9), Compacted(user("So far."), 1)]
    made = segment(STARTED, said("Go."), ModelRequested(1), *reply, *compaction)
    assert made.exchanges[3].is_overflowed is not has_reply
    assert [entry.event for entry in made.other_entries] == compaction
    assert [entry.event for entry in segment(STARTED, said("Go."), *compaction).other_entries] == compaction


def test_calls_of_a_program_are_stored_again_with_it():
    inner = ToolStarted(f"c{SEPARATOR}1", "look", "read", "k")
    made = segment(STARTED, said("Go."), ToolStarted("c", "program", "read", "k"), inner)
    assert (made.started_calls, [entry.event for entry in made.other_entries]) == ({"c"}, [inner])
    alone = segment(STARTED, said("Go."), inner)
    assert (alone.started_calls, alone.other_entries) == ({inner.call_id}, [])


@pytest.mark.parametrize(
    ("events", "is_interrupted", "is_cancelled_at_start"),
    [
        ([], False, False),
        ([RunEnded("done")], False, False),
        ([RunEnded("limit", "timeout")], True, False),
        ([RunEnded("cancelled")], True, True),
        ([ModelRequested(1), RunEnded("cancelled")], True, False),
        ([ModelRequested(1, path="child"), RunEnded("cancelled")], True, False),
        ([ToolStarted("c", "look", "read", "k"), RunEnded("cancelled")], True, False),
    ],
)
def test_a_run_that_was_cancelled_or_timed_out_was_interrupted(events, is_interrupted, is_cancelled_at_start):
    made = segment(STARTED, said("Go."), *events)
    assert (made.is_interrupted, made.is_cancelled_at_start) == (is_interrupted, is_cancelled_at_start)


@pytest.mark.parametrize(
    ("event", "compacts", "shortens"),
    [
        (CompactionStarted("overflow", 9), True, False),
        (Compacted(user("So far."), 1), True, False),
        (ViewChanged("compaction"), True, False),
        (ViewChanged("summaries"), False, True),
        (ViewChanged("tools"), False, False),
        (ReplyDiscarded(1, "compaction"), True, False),
        (ReplyDiscarded(1, "summaries"), False, False),
        (TurnStarted(1), False, False),
    ],
)
def test_events_that_make_a_conversation_shorter_are_known(event, compacts, shortens):
    assert (is_compaction(event), is_result_shortening(event)) == (compacts, shortens)
