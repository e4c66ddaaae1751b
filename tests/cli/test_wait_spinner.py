"""The spinner of `perdure run`: it names what is waited for, and leaves nothing behind."""

import asyncio
from typing import Any

import pytest

from perdure import Text, ToolResult
from perdure._cli.terminal import spinner as wait_spinner
from perdure._cli.terminal.output import TerminalOutput
from perdure._cli.terminal.printer import TerminalScreen
from perdure._cli.terminal.spinner import WaitSpinner
from perdure.events import (
    Event,
    ModelRequested,
    QuestionAsked,
    RetryScheduled,
    RunEnded,
    RunWaiting,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
)
from tests.cli.process import STAND_INS
from tests.doubles import rounds, until


def test_it_names_the_model_and_is_cleared(shell):
    with shell.terminal("run", "--model", "odd:silent", "go", program=STAND_INS, size=(80, 24)) as terminal:
        terminal.await_text("waiting for the model")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "\r\x1b[K" in terminal.seen
    assert terminal.seen.rindex("\r\x1b[K") > terminal.seen.rindex("waiting for the model")


def test_without_a_terminal_there_is_none(shell):
    assert "waiting" not in shell.run("run", "Calculate 6 * 7").stderr


class Output(TerminalOutput):
    """A terminal that notes what is drawn beside its lines, and which lines the screen with the events would print."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.written: list[str] = []
        self.shown = TerminalScreen(self, with_text=False)

    def write_question(self, text: str) -> None:
        self.written.append(text)

    def make_spinner(self, *, is_enabled: bool = True) -> WaitSpinner:
        return WaitSpinner(self, lambda: self.shown.waiting_for, is_enabled=is_enabled)


@pytest.fixture
def screen(monkeypatch):
    """A terminal on which the spinner appears after four ticks."""
    monkeypatch.setattr(wait_spinner, "uses_cursor", lambda: True)
    monkeypatch.setattr(wait_spinner, "TICK_SECONDS", 1 / 1024)
    monkeypatch.setattr(wait_spinner, "FIRST_SECONDS", 4 / 1024)
    monkeypatch.setenv("COLUMNS", "80")
    return Output()


def started(call_id: str, name: str) -> ToolStarted:
    return ToolStarted(call_id=call_id, name=name, effect="read", idempotency_key="k")


def finished(call_id: str) -> ToolFinished:
    return ToolFinished(call_id=call_id, name="x", result=ToolResult(call_id, "x", (Text("done"),)))


@pytest.mark.parametrize(
    ("events", "shown"),
    [
        ([ModelRequested(turn=1, model="acme:small")], "the model acme:small"),
        ([ModelRequested(turn=1)], "the model"),
        ([ModelRequested(turn=1, model="acme"), ThinkingDelta("hm")], "the model, which thinks"),
        ([ThinkingDelta("hm"), TextDelta("One")], "the model, which thinks"),
        ([ThinkingDelta("hm"), ModelRequested(turn=1, model="other", path="child")], "the model, which thinks"),
        ([started("1", "read")], "tool read"),
        ([started("1", "read"), started("2", "edit")], "tools read, edit"),
        ([started("1", "read"), started("2", "edit"), finished("1")], "tool edit"),
        ([started("1", "read"), finished("3")], "tool read"),
        ([RetryScheduled(1, 2, 1.0, "it is\nbusy", "")], "the next attempt, after it is␊busy"),
    ],
)
async def test_what_is_waited_for_is_learned_from_events(screen, events, shown):
    with screen.make_spinner():
        for event in events:
            screen.shown.show(event)
        await until(lambda: len(screen.written) >= 5)
    frames = [f"\r\x1b[K{each} waiting for {shown}" for each in "\\|/-\\"]
    count = len(screen.written)
    await until_ticked(8)
    assert len(screen.written) == count  # it has ended
    assert screen.written[:5] == frames
    assert screen.written[-1] == "\r\x1b[K"
    assert "\r\x1b[K" not in screen.written[:-1]


@pytest.mark.parametrize("event", [QuestionAsked("q", "permission"), RunEnded("done"), RunWaiting(()), finished("1")])
async def test_while_a_person_is_asked_and_after_the_end_nothing_is_waited_for(screen, event: Event):
    with screen.make_spinner() as spinner:
        screen.shown.show(started("1", "read"))
        await until(lambda: screen.written)
        spinner.clear()
        screen.shown.show(event)
        count = len(screen.written)
        assert screen.written[-1] == "\r\x1b[K"
        await until_ticked(8)
    assert len(screen.written) == count


async def until_ticked(count: int) -> None:
    """Let at least so many ticks of a spinner pass."""
    for _ in range(count):
        await asyncio.sleep(wait_spinner.TICK_SECONDS)
    await rounds(3)


async def test_nothing_is_drawn_into_a_line_that_has_begun(screen, monkeypatch):
    monkeypatch.setattr(Output, "is_at_line_start", False)
    with screen.make_spinner():
        screen.shown.show(started("1", "read"))
        await until_ticked(8)
    assert screen.written == []


@pytest.mark.parametrize(("is_enabled", "has_cursor"), [(False, True), (True, False)])
async def test_a_quiet_command_and_a_terminal_without_a_cursor_have_no_spinner(
    screen, monkeypatch, is_enabled: bool, has_cursor: bool
):
    monkeypatch.setattr(wait_spinner, "uses_cursor", lambda: has_cursor)
    spinner: Any = screen.make_spinner(is_enabled=is_enabled)
    with spinner:
        screen.shown.show(started("1", "read"))
        await until_ticked(8)
    assert screen.written == []


async def test_after_output_the_spinner_waits_again_before_it_appears(screen, monkeypatch):
    monkeypatch.setattr(wait_spinner, "FIRST_SECONDS", 10.0)
    with screen.make_spinner() as spinner:
        screen.shown.show(started("1", "read"))
        await until_ticked(8)
        assert screen.written == []
        monkeypatch.setattr(wait_spinner, "FIRST_SECONDS", 4 / 1024)
        await until(lambda: screen.written)
        monkeypatch.setattr(wait_spinner, "FIRST_SECONDS", 10.0)
        spinner.clear()
        assert screen.written[-1] == "\r\x1b[K"
        count = len(screen.written)
        await until_ticked(8)
    assert len(screen.written) == count
