"""What is left of an event when its words are taken out: its form, and nothing that anybody said."""

import pytest
from hypothesis import given

from perdure import Citation, Image, Message, Status, Text, Thinking, ToolCall, ToolResult, assistant, user
from perdure._core.log.codec import decode_event, encode_event
from perdure._core.log.redaction import NO_SUMMARY, REDACTED, erase_event_content, find_summaries_of
from perdure.events import (
    CitationAdded,
    Compacted,
    Custom,
    Entry,
    Event,
    InboxAdded,
    MessageAdded,
    ModelReplied,
    QuestionAsked,
    ReplyDiscarded,
    RunStarted,
    ToolFinished,
    ToolsChanged,
    ValueKept,
)
from tests.core.material import events as any_event

SECRET = "the launch code is 0000"


@pytest.mark.parametrize(
    "event",
    [
        MessageAdded(user(SECRET, metadata={"from": SECRET})),
        MessageAdded(Message("user", (Text(SECRET), Image(data=SECRET.encode())), original_text=SECRET)),
        MessageAdded(assistant([Thinking(SECRET), ToolCall("c1", "fire", f'{{"code": "{SECRET}"}}')])),
        MessageAdded(Message("tool", (ToolResult("c1", "fire", (Text(SECRET),)),))),
        ToolFinished("c1", "fire", ToolResult("c1", "fire", (Text(SECRET),), Status.ERROR, SECRET, SECRET)),
        ReplyDiscarded(1, "cancelled", assistant(SECRET)),
        ModelReplied(1, assistant(SECRET)),
        RunStarted("agent", {"instructions": SECRET}, run_id="r1"),
        Custom("note", SECRET),
        Custom("note", {"deep": [SECRET]}),
        InboxAdded("i1", SECRET, SECRET, blocking=True),
        QuestionAsked("a1", "permission", SECRET, ({"arguments": SECRET},)),
    ],
)
def test_nothing_that_was_said_is_left(event):
    assert SECRET.encode() not in encode_event(erase_event_content(event))


def test_what_the_runtime_keeps_for_itself_loses_its_words_and_is_found_again():
    session = {"session_id": "s/scout-1", "full_session_id": "acme/s/scout-1"}
    task = {"handle": "scout-1", "agent": "scout", "task": SECRET, **session, "call_id": "c1"}
    left = erase_event_content(ValueKept("perdure:agent:scout-1", task))
    assert isinstance(left, ValueKept)
    assert left.value == {**task, "task": REDACTED}
    mine = erase_event_content(ValueKept("perdure", task))
    assert isinstance(mine, ValueKept)
    assert mine.value == {}
    words = erase_event_content(ValueKept("perdure:note", SECRET))
    assert isinstance(words, ValueKept)
    assert words.value == REDACTED


def logged(*events: Event) -> list[Entry]:
    return [Entry(place, 0.0, event) for place, event in enumerate(events, 1)]


def summary(upto: int, path: str = "") -> Compacted:
    return Compacted(user(SECRET), upto, path=path)


def test_summaries_of_what_is_redacted_are_found():
    entries = logged(
        RunStarted("agent"),
        MessageAdded(user("One")),
        MessageAdded(assistant("Two")),
        summary(1),
        summary(2, path="a"),
        MessageAdded(user("Three")),
        MessageAdded(user("Below"), path="a"),
        summary(3),
        summary(1, path="a"),
    )
    found = {entry.seq: [each.seq for each in find_summaries_of(entries, entry)] for entry in entries}
    assert found == {1: [], 2: [4, 8], 3: [8], 4: [8], 5: [9], 6: [8], 7: [9], 8: [], 9: []}


def test_a_redacted_summary_says_that_there_was_one():
    left = erase_event_content(summary(1))
    assert isinstance(left, Compacted)
    assert (left.summary.text, left.summary.role, left.upto) == (NO_SUMMARY, "user", 1)


def test_the_form_stays_so_that_the_history_stays_valid():
    reply = assistant([Text(SECRET), ToolCall("c1", "fire", "{}")])
    left = erase_event_content(MessageAdded(reply, run_id="r1"))
    assert isinstance(left, MessageAdded)
    assert (left.run_id, left.message.text, left.message.tool_calls[0].call_id) == ("r1", REDACTED, "c1")
    result = erase_event_content(ToolFinished("c1", "fire", ToolResult("c1", "fire", (Text(SECRET),), Status.DENIED)))
    assert isinstance(result, ToolFinished)
    assert (result.result.status, result.result.text) == (Status.DENIED, REDACTED)
    added = erase_event_content(InboxAdded("i1", "job", SECRET, blocking=True))
    assert isinstance(added, InboxAdded)
    assert (added.item_id, added.blocking) == ("i1", True)


def test_a_question_can_still_be_found_by_what_it_is_about():
    calls = (
        {"call_id": "c1", "tool": "fire", "arguments_hash": "h", "arguments": {"code": SECRET}, "target": SECRET},
        {"call_id": "c2", "tool": "fire", "place": 2, "attempt": 1},
    )
    left = erase_event_content(QuestionAsked("a1", "permission", SECRET, calls))
    assert isinstance(left, QuestionAsked)
    assert left.calls == ({"call_id": "c1", "tool": "fire", "arguments_hash": "h"}, calls[1])


@given(any_event)
def test_whatever_is_left_can_be_read_back(event):
    left = erase_event_content(event)
    assert type(left) is type(event)
    assert decode_event(encode_event(left)) == left


def test_lists_lose_what_is_in_them():
    assert erase_event_content(ToolsChanged(("look",), ("listen",), run_id="r")) == ToolsChanged(run_id="r")


def test_a_citation_is_erased_and_can_be_read_back():
    erased = erase_event_content(CitationAdded(Citation("https://example.org/secret", "A title", "A quote")))
    assert erased == CitationAdded(Citation(REDACTED))
    assert decode_event(encode_event(erased)) == erased
