"""What a difference is about, and how it reads."""

import pytest

from perdure import (
    Citation,
    Status,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    assistant,
    tool_message,
    user,
)
from perdure._work.replay.differences import (
    describe_difference,
    describe_event,
    format_instructions_and_tools,
    get_difference_kind,
    get_prompt_prefix,
)
from perdure.events import (
    AutoContinued,
    Compacted,
    CompactionStarted,
    GuardrailTripped,
    MessageAdded,
    ModelRequested,
    PermissionDecided,
    ReplyDiscarded,
    RunEnded,
    ToolFinished,
    ToolsChanged,
    ToolStarted,
    ViewChanged,
)
from perdure.models import Request, ToolSpec
from perdure.testing import Divergence


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (ModelRequested(1), "request"),
        (ToolsChanged(("depth",)), "request"),
        (ToolStarted("c1", "depth", "read", "key"), "call"),
        (ToolFinished("c1", "depth", ToolResult("c1", "depth")), "call"),
        (PermissionDecided("c1", "depth", "read", "", "", True), "permission"),
        (ReplyDiscarded(1, "empty"), "reply"),
        (MessageAdded(assistant("Hello.")), "reply"),
        (MessageAdded(user("Hello.")), "message"),
        (AutoContinued(1), "message"),
        (RunEnded("done"), "ending"),
        (CompactionStarted("tokens"), "view"),
        (Compacted(user("So far."), 4), "view"),
        (ViewChanged("summaries", 4), "view"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_each_event_that_is_not_as_recorded_is_a_difference_of_its_kind(event, kind):
    assert get_difference_kind(event) == kind


def test_a_difference_reads_as_its_place_what_it_is_and_both_sides_line_by_line():
    divergence = Divergence(7, "reply", "something else is said", "one\ntwo", "one\nthree")
    assert str(divergence).splitlines() == [
        "entry 7: something else is said",
        "--- recorded",
        "+++ now",
        "@@ -1,2 +1,2 @@",
        " one",
        "-two",
        "+three",
    ]


def finished(text: str = "", status: Status = Status.OK) -> ToolFinished:
    return ToolFinished("c1", "depth", ToolResult("c1", "depth", (Text(text),) if text else (), status))


STARTED = ToolStarted("c1", "depth", "read", "key")
DENIED = PermissionDecided("c1", "depth", "read", "Bergen", "", allow=False, reason="too\ndeep")
ARGUMENTS = {"c1": '{"harbour":"Bergen"}'}


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (None, "(nothing)"),
        (ModelRequested(2, messages=3), "request of turn 2, of 3 messages"),
        (ModelRequested(2, 2, messages=3), "request of turn 2, attempt 2, of 3 messages"),
        (STARTED, 'call depth {"harbour":"Bergen"}'),
        (ToolStarted("c2", "depth", "read", "key"), "call depth"),
        (finished("12\nmetres", Status.ERROR), "result of depth: error\n  12\n  metres"),
        (finished(), "result of depth: ok"),
        (DENIED, "call of depth on Bergen: denied\n  too\n  deep"),
        (PermissionDecided("c1", "depth", "read", "Bergen", "", allow=True), "call of depth on Bergen: allowed"),
        (RunEnded("failed", "ProviderDown", "no line"), "the run ends: failed (ProviderDown)\n  no line"),
        (RunEnded("done"), "the run ends: done"),
        (ReplyDiscarded(1, "empty"), "the reply is discarded: empty"),
        (GuardrailTripped("repeat", 3, "nudge"), "the guardrail repeat trips: nudge"),
        (ToolsChanged(("a", "b")), "tools are added: a, b"),
        (CompactionStarted("tokens"), "the conversation is summed up (tokens)"),
        (Compacted(user("So far."), 4), "a summary stands for the first 4 messages:\n  So far."),
        (ViewChanged("summaries", 4), "results in the first 4 messages are sent in their short form"),
        (ViewChanged("tools"), '{"kind":"view_changed","cause":"tools"}'),
        (MessageAdded(user("Hi\nyou", origin="steering")), "user (steering):\n  Hi\n  you"),
        (
            MessageAdded(
                assistant(
                    [Thinking("Hm"), "Look.", ToolCall("c1", "depth", "{}"), Citation("https://example.org", "E")]
                )
            ),
            "assistant:\n  [thinking] Hm\n  Look.\n  call depth {}\n  [source: E https://example.org]",
        ),
        (MessageAdded(tool_message([ToolResult("c1", "depth", (Text("12"),))])), "result of depth: ok\n  12"),
    ],
)
def test_an_event_reads_as_what_can_differ_of_it(event, text):
    assert describe_event(event, ARGUMENTS) == text


@pytest.mark.parametrize(
    ("then", "now", "kind", "what"),
    [
        (CompactionStarted("tokens"), RunEnded("done"), "view", "the conversation is not summed up here any more"),
        (Compacted(user("a"), 1), RunEnded("done"), "view", "the conversation is not summed up here any more"),
        (ViewChanged("summaries", 1), STARTED, "view", "older results are not sent in their short form any more"),
        (ToolsChanged(("a",)), STARTED, "request", "tools that were added are not added any more"),
        (ToolsChanged(("a",)), ToolsChanged(("b",)), "request", "something else happens"),
        (DENIED, STARTED, "permission", "the call of 'depth' is not denied any more"),
        (STARTED, DENIED, "permission", "the call of 'depth' is denied now"),
        (STARTED, finished(), "call", "the call of 'depth' is not made any more"),
        (finished(), STARTED, "call", "the call of 'depth' is made now"),
        (finished("a"), finished("b"), "call", "the call of 'depth' ends otherwise"),
        (None, STARTED, "call", "the call of 'depth' was another one"),
        (None, ModelRequested(2), "request", "the model is asked once more than recorded"),
        (RunEnded("done"), ModelRequested(2), "request", "the model is asked once more than recorded"),
        (MessageAdded(user("a")), ModelRequested(2), "request", "something else happens"),
        (RunEnded("done"), RunEnded("failed"), "ending", "the run ends otherwise"),
        (ModelRequested(1), RunEnded("failed"), "ending", "the run ends here now"),
        (MessageAdded(user("a")), MessageAdded(user("b")), "message", "another message is added to the conversation"),
        (
            MessageAdded(user("a")),
            MessageAdded(assistant("b")),
            "reply",
            "another message is added to the conversation",
        ),
        (None, MessageAdded(user("b")), "message", "something else happens"),
    ],
)
def test_a_difference_is_told_in_a_sentence(then, now, kind, what):
    assert describe_difference(then, now) == (kind, what)


def test_instructions_and_tools_are_told_line_by_line():
    request = Request(messages=(), instructions="Be\nbrief.", tools=[ToolSpec("depth", "How deep.", {"b": 1, "a": []})])
    assert list(format_instructions_and_tools(get_prompt_prefix(request))) == [
        *("instructions:", "  Be", "  brief.", "tool depth:", "  How deep."),
        *("  {", '    "a": [],', '    "b": 1', "  }"),
    ]
