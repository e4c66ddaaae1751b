"""Events as lines on a screen."""

import pytest

from perdure import Citation, Status, Text, ToolCall, ToolResult, assistant, user
from perdure._cli.terminal.output import TerminalOutput
from perdure._cli.terminal.printer import TerminalScreen, format_tool_result
from perdure._cli.terminal.screen import CUT_OFF
from perdure.events import (
    Compacted,
    ErrorRaised,
    FailedOver,
    GuardrailTripped,
    Lagged,
    MessageAdded,
    ReplyDiscarded,
    RetryScheduled,
    SkillLoaded,
    SlotOpened,
    SlotUpdated,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnStarted,
    ValueKept,
)


@pytest.fixture
def shown(capsys):
    """What a report of these events writes to both streams."""

    def show(*events) -> tuple[str, str]:
        screen = TerminalScreen(TerminalOutput())
        for event in events:
            screen.show(event)
        written = capsys.readouterr()
        return written.out, written.err

    return show


def test_words_come_as_they_are_said_and_end_with_a_line(shown):
    reply = MessageAdded(assistant("Hello, you."))
    assert shown(TextDelta("Hello,"), TextDelta(" you."), reply) == ("Hello, you.\n", "")
    assert shown(TextDelta("Hello.\n"), MessageAdded(assistant("Hello.\n"))) == ("Hello.\n", "")


def test_words_that_were_not_streamed_are_written_when_the_reply_is_there(shown):
    assert shown(MessageAdded(assistant("Hello."))) == ("Hello.\n", "")


def test_a_model_that_repeats_the_words_about_a_cancelled_reply_is_shown(shown):
    assert shown(MessageAdded(assistant(f"Hello. {CUT_OFF}"), run_id="r")) == (f"Hello. {CUT_OFF}\n", "")


def test_what_others_say_is_not_repeated(shown):
    assert shown(MessageAdded(user("Hello?")), TextDelta("below", path="child"), TurnStarted(1)) == ("", "")


def test_a_call_is_told_when_it_starts_and_when_it_ends(shown):
    call = ToolCall("c", "look", '{"where":"there"}')
    result = ToolResult("c", "look", (Text("one\ntwo\nthree"),))
    events = (
        MessageAdded(assistant([call])),
        ToolStarted("c", "look", "read", "", ""),
        ToolFinished("c", "look", result),
    )
    assert shown(*events) == ("", 'tool look {"where":"there"}\ntool look ok: one (and 2 more lines)\n')


def test_a_call_whose_arguments_came_before_is_told_by_its_name(shown):
    assert shown(ToolStarted("c", "look", "read", "", "")) == ("", "tool look\n")


def test_a_result_without_words_has_a_status():
    assert format_tool_result(ToolResult("c", "look", (), Status.UNKNOWN)) == "tool look unknown: "


def test_a_reply_that_broke_off_does_not_run_into_the_next(shown):
    events = TextDelta("Hel"), ReplyDiscarded(1, "ReplyCutOff"), TextDelta("Hello."), MessageAdded(assistant("Hello."))
    assert shown(*events) == ("Hel\nHello.\n", "the reply broke off (ReplyCutOff)\n")


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (RetryScheduled(1, 3, 2.5, "RateLimited", "slow"), "RateLimited: slow; trying again in 2.5 s\n"),
        (FailedOver("a", "b", "ProviderDown", "gone"), "a failed (ProviderDown); asking b\n"),
        (GuardrailTripped("repeat", 3, "nudge"), "guardrail repeat tripped (3 times): nudge\n"),
        (ErrorRaised("OSError", "no\nway", "the permission gate"), "the permission gate: OSError: no␊way\n"),
        (ErrorRaised("OSError", "no way", "tool 'look'"), ""),
        (Lagged(7), "7 events were not shown: output is too slow\n"),
        (SkillLoaded("knots"), "skill knots is loaded\n"),
        (SkillLoaded("knots", "model"), ""),
        (
            Compacted(user("All was well."), 12),
            "the first 12 messages are summarised for the model; the session keeps them\n",
        ),
        (
            ValueKept("tasks", [{"id": "1", "content": "Coil\x1b[2J", "status": "in_progress"}]),
            "tasks: 0 of 1 done; Coil␛[2J\n",
        ),
        (ValueKept("tasks", []), "tasks: 0 of 0 done\n"),
        (ValueKept("tasks", "none of ours"), ""),
        (ValueKept("scratchpad", "one\ntwo\nthree"), "notes: one (and 2 more lines)\n"),
        (ValueKept("scratchpad", ""), "notes: (empty)\n"),
        (ValueKept("berth", 4), ""),
        (
            MessageAdded(user("@x", metadata={"not_attached": ["@x is not attached: no\nway"]})),
            "@x is not attached: no␊way\n",
        ),
        (MessageAdded(user("x", metadata={"command_line": {}})), ""),
    ],
)
def test_what_a_person_would_wonder_about_is_told(shown, event, line):
    assert shown(event) == ("", line)


def test_a_long_line_is_cut_and_says_so(shown):
    result = ToolResult("c", "look", (Text("x" * 5000),))
    _, line = shown(ToolFinished("c", "look", result))
    assert line.endswith("x…\n")
    assert len(line) == 1001


def test_what_tools_show_is_told_beside_the_answer_whichever_agent_shows_it(shown):
    opened = SlotOpened("slot", "progress", {"label": "copying", "done": 1, "total": 2}, path="child")
    updated = SlotUpdated("slot", {"label": "copying\x1b[2J", "done": 2, "total": 2})
    out, err = shown(opened, updated)
    assert out == ""
    assert err == "> copying: 1 of 2 (50%)\n> copying␛[2J: 2 of 2 (100%)\n"


def test_each_source_of_an_answer_is_told_once_after_it(shown):
    cited = [Citation("https://a", "A", start=0, end=2), Citation("https://a", "A", start=3, end=5), Citation("b.pdf")]
    out, err = shown(TextDelta("It rains."), MessageAdded(assistant(["It rains.", *cited])))
    assert out == "It rains.\n"
    assert [line.strip() for line in err.splitlines()] == ["[source: A https://a]", "[source: b.pdf]"]
