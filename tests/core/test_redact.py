"""What is left of an event when its words are taken out: its form, and nothing that anybody said."""

import pytest
from hypothesis import given

from tests.core.material import events as any_event
from windlass import Text, Thinking, ToolCall, ToolResult, assistant, user
from windlass.core.codec import decode_event, encode_event
from windlass.core.event import (
    Custom,
    InboxAdded,
    MessageAdded,
    QuestionAsked,
    ReplyDiscarded,
    RunStarted,
    ToolFinished,
)
from windlass.core.message import Image, Message, Status
from windlass.core.redact import REDACTED, redacted

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
        RunStarted("agent", {"instructions": SECRET}, run_id="r1"),
        Custom("note", SECRET),
        Custom("note", {"deep": [SECRET]}),
        InboxAdded("i1", SECRET, SECRET, blocking=True),
        QuestionAsked("a1", "permission", SECRET, ({"arguments": SECRET},)),
    ],
)
def test_nothing_that_was_said_is_left(event):
    assert SECRET.encode() not in encode_event(redacted(event))


def test_the_form_stays_so_that_the_history_stays_valid():
    reply = assistant([Text(SECRET), ToolCall("c1", "fire", "{}")])
    left = redacted(MessageAdded(reply, run_id="r1"))
    assert isinstance(left, MessageAdded)
    assert (left.run_id, left.message.text, left.message.tool_calls[0].call_id) == ("r1", REDACTED, "c1")
    result = redacted(ToolFinished("c1", "fire", ToolResult("c1", "fire", (Text(SECRET),), Status.DENIED)))
    assert isinstance(result, ToolFinished)
    assert (result.result.status, result.result.text) == (Status.DENIED, REDACTED)
    added = redacted(InboxAdded("i1", "job", SECRET, blocking=True))
    assert isinstance(added, InboxAdded)
    assert (added.item_id, added.blocking) == ("i1", True)


@given(any_event)
def test_whatever_is_left_can_be_read_back(event):
    left = redacted(event)
    assert type(left) is type(event)
    assert decode_event(encode_event(left)) == left
