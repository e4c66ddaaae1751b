"""What every screen does with the events of a session, whatever it looks like."""

import pytest

from perdure import Message, Text, ToolCall, ToolResult, assistant
from perdure._cli.terminal.output import TerminalOutput
from perdure._cli.terminal.printer import TerminalScreen
from perdure._cli.terminal.screen import Screen
from perdure.events import MessageAdded, ReplyDiscarded, RunEnded, TextDelta, ToolFinished, ToolStarted


@pytest.fixture
def screen() -> Screen:
    return TerminalScreen(TerminalOutput(quiet=True), with_text=False)


def finish(number: int, *, path: str = "") -> ToolFinished:
    result = ToolResult(f"c{number}", "look", (Text(f"result {number}"),))
    return ToolFinished(f"c{number}", "look", result, duration_seconds=2.5, path=path)


def test_a_finished_call_is_found_by_its_number_with_what_was_asked_and_changed(screen: Screen) -> None:
    screen.show(MessageAdded(assistant([ToolCall("c1", "look", '{"where":"there"}')])))
    screen.show(finish(1), "-old\n+new\n")
    screen.show(finish(2))
    screen.show(finish(3, path="child"))
    first, last = screen.find_call(1), screen.find_call(None)
    assert first is not None
    assert (first.arguments, first.seconds, first.diff) == ('{"where":"there"}', 2.5, "-old\n+new\n")
    assert last is not None
    assert (last.number, last.result.text, last.arguments, last.diff) == (2, "result 2", "", "")
    assert screen.find_call(3) is None


def test_only_the_last_hundred_calls_are_kept(screen: Screen) -> None:
    for number in range(1, 103):
        screen.show(finish(number))
    assert [call.number for call in screen.calls] == list(range(3, 103))
    assert (screen.call_count, screen.find_call(2)) == (102, None)


def test_of_a_stored_call_it_is_not_known_how_long_it_took(screen: Screen) -> None:
    screen.show_stored([Message("tool", (ToolResult("c1", "look", (Text("x"),)),))])
    assert [(call.number, call.seconds, call.diff) for call in screen.calls] == [(1, 0.0, "")]


def test_a_reply_that_was_not_streamed_after_one_that_broke_off_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    screen = TerminalScreen(TerminalOutput())
    screen.show(TextDelta("Hel"))
    screen.show(ReplyDiscarded(1, "CancelledError"))
    screen.show(MessageAdded(assistant("Hello.")))
    assert capsys.readouterr() == ("Hel\nHello.\n", "")
    assert screen.last_answer == "Hello."
    screen.show(MessageAdded(assistant("")))
    assert screen.last_answer == "Hello."


@pytest.mark.parametrize(("tells_end", "line"), [(True, "the run ended early (failed: Boom)\n"), (False, "")])
def test_why_a_run_ended_early_is_printed_unless_the_command_does(
    capsys: pytest.CaptureFixture[str], tells_end: bool, line: str
) -> None:
    screen = TerminalScreen(TerminalOutput(), tells_end=tells_end)
    screen.show(TextDelta("Hel"))
    screen.show(ToolStarted("c1", "look", "read", "", ""))
    screen.show(RunEnded("failed", error="Boom"))
    assert screen.waiting_for == ""
    assert capsys.readouterr() == ("Hel\n", f"tool look\n{line}")
