"""A run of the command line: how it is shown and stopped, what is said at its end, and its exit code."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from perdure import Agent, Outcome, ProviderDown, ShuttingDown, Usage
from perdure._cli.run.options import AgentOptions, RunCommandOptions
from perdure._cli.run.session import (
    LIMIT_OPTIONS,
    _format_next_command,
    _report_outcome,
    can_ask_permission,
    format_outcome_usage,
    show_run,
)
from perdure._cli.terminal.output import OutputFailed
from perdure.events import Event, QuestionAsked, ReplyFinished, RunEnded, RunResumed, RunStarted, TextDelta
from perdure.stores import MemoryStore
from perdure.testing import ScriptedModel, pause
from tests.doubles import SECONDS, log_of, of

GENERATED = "0123456789abcdef0123456789abcdef"
MANY = 5000
"""Pieces of a reply: more than are kept for somebody who does not look."""
UNPARK = "perdure resume s --unpark --store x:y"


def interrupts(*, is_interrupted: bool = False, is_shutdown: bool = False, exit_code: int = 0) -> Any:
    """Signals that have come, or have not."""
    return SimpleNamespace(
        is_interrupted=is_interrupted, is_shutdown=is_shutdown, exit_code=exit_code, on_interrupt=lambda _: None
    )


CTRL_C = interrupts(is_interrupted=True, exit_code=130)
SIGTERM = interrupts(is_interrupted=True, is_shutdown=True)
NONE = interrupts()
QUESTION = QuestionAsked("q", "slot", text="Which?")


@pytest.mark.parametrize(
    ("outcome", "signals", "code", "told"),
    [
        (Outcome(status="done"), NONE, 0, ""),
        (Outcome(status="stopped", reason="terminated"), NONE, 0, ""),
        (Outcome(status="stopped", reason="stop_condition"), NONE, 0, ""),
        (
            Outcome(status="waiting", session_id=GENERATED),
            SIGTERM,
            0,
            "warning: the run was stopped; finish it with: perdure resume 0123456789ab --store x:y",
        ),
        (
            Outcome(status="waiting", session_id="s"),
            CTRL_C,
            130,
            "warning: the run was stopped; finish it with: perdure resume s --store x:y",
        ),
        (Outcome(status="cancelled"), NONE, 1, "error: the run was cancelled; finished work is kept"),
        (Outcome(status="cancelled"), CTRL_C, 130, "error: the run was cancelled; finished work is kept"),
        (Outcome(status="cancelled"), SIGTERM, 0, "warning: the run was ended; finished work is kept"),
        (None, SIGTERM, 0, "warning: the run was stopped before it began: start it again"),
        (None, CTRL_C, 130, "error: the run was cancelled; finished work is kept"),
        (Outcome(status="failed", error=ProviderDown("no route")), NONE, ProviderDown.exit_code, "error: no route"),
        (
            Outcome(status="failed", error=ValueError("odd")),
            NONE,
            1,
            "error: the run failed: ValueError: odd (PERDURE_DEBUG=1 shows more)",
        ),
        (
            Outcome(status="parked", reason="crashed", session_id="s"),
            NONE,
            3,
            f"error: the run was parked (crashed): it crashed again and again; continue it with {UNPARK}",
        ),
        (
            Outcome(status="limit", reason="max_turns"),
            NONE,
            3,
            "error: the run ended early (limit: max_turns); allow more with --max-turns, or continue the session",
        ),
        (
            Outcome(status="limit", reason="other"),
            NONE,
            3,
            "error: the run ended early (limit: other); continue the session",
        ),
        (
            Outcome(status="stopped", reason="max_turns"),
            NONE,
            3,
            "error: the run ended early (stopped: max_turns); continue the session",
        ),
    ],
)
def test_how_a_run_ended_is_told_with_its_exit_code(capsys, outcome, signals, code, told):
    assert _report_outcome(outcome, signals, "x:y") == code
    assert capsys.readouterr() == ("", f"{told}\n" if told else "")


def test_each_open_question_is_told(capsys):
    outcome = Outcome[Any](status="waiting", session_id="s", questions=(QUESTION, QuestionAsked("r", "slot", text="?")))
    assert _report_outcome(outcome, NONE, None) == 3
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("error: a question is open: ") for line in lines] == [True, True]
    assert ["perdure answer s q" in lines[0], "perdure answer s r" in lines[1]] == [True, True]


@pytest.mark.parametrize(("reason", "option"), LIMIT_OPTIONS.items())
def test_the_option_that_allows_more_is_named(capsys, reason, option):
    assert _report_outcome(Outcome(status="limit", reason=reason), NONE, None) == 3
    assert f"; allow more with {option}, or continue the session" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Outcome(status="done", turns=1, usage=Usage(1200, 34)), "1 turn, 1,200 tokens in, 34 out"),
        (
            Outcome(status="done", turns=2, usage=Usage(1200, 3400, cache_read_tokens=900), cost_usd=0.01234),
            "2 turns, 1,200 tokens in (75% from the cache), 3,400 out, $0.0123",
        ),
        (
            Outcome(status="done", turns=0, usage=Usage(0, 5, cache_read_tokens=1, precision="estimated")),
            "0 turns, 0 tokens in (100% from the cache), 5 out, estimated",
        ),
    ],
)
def test_what_a_run_has_used_is_one_line(outcome, text):
    assert format_outcome_usage(outcome) == text


@pytest.mark.parametrize(
    ("event", "can_ask"),
    [
        (RunResumed(), True),
        (QuestionAsked("q", "permission"), True),
        (QUESTION, False),
        (RunStarted(), False),
    ],
)
def test_permission_is_asked_after_its_question_or_when_a_run_goes_on(event, can_ask):
    assert can_ask_permission(event) is can_ask


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (AgentOptions(), "--session s"),
        (
            AgentOptions(model="m", role="r", config="a b.toml", store="x:y", context=True, coding=True),
            "--session s --model m --role r --config 'a b.toml' --store x:y --context --coding",
        ),
        (AgentOptions(context=False, coding=False, no_config=True), "--session s --no-context --no-coding --no-config"),
    ],
)
def test_the_command_that_goes_on_has_the_options_that_were_given(agent, words):
    assert _format_next_command(RunCommandOptions(agent=agent), "s") == f'perdure run {words} "…"'


class Shown:
    """Notes the events that are shown, and fails at one of them if it is told to."""

    def __init__(self, fails_at: type[Event] | None = None) -> None:
        self.events: list[Event] = []
        self._fails_at = fails_at

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if self._fails_at is not None and isinstance(event, self._fails_at):
            raise OutputFailed(OSError(28, "No space left"))


async def test_a_run_is_shown_to_its_end():
    shown = Shown()
    session = Agent(ScriptedModel("Hello."), store=MemoryStore()).session("s")
    outcome = await show_run(session, lambda: session.run("Hi"), shown, NONE)
    assert outcome is not None
    assert outcome.text == "Hello."
    assert isinstance(shown.events[-1], RunEnded)


async def test_output_that_fails_cancels_the_run_and_is_raised_after_its_end():
    held = pause()
    session = Agent(ScriptedModel([TextDelta("One"), held]), store=MemoryStore()).session("s")
    with pytest.raises(OutputFailed):
        await show_run(session, lambda: session.run("Hi"), Shown(TextDelta), NONE)
    assert [each.status for each in of(await log_of(session.store, "s"), RunEnded)] == ["cancelled"]


async def test_a_terminal_that_was_closed_shows_nothing_more_and_the_run_ends_as_it_does():
    shown = Shown(TextDelta)
    reply: list[Any] = [*[TextDelta("x")] * MANY, ReplyFinished()]
    session = Agent(ScriptedModel(reply), store=MemoryStore()).session("s")
    async with asyncio.timeout(SECONDS):
        outcome = await show_run(session, lambda: session.run("Hi"), shown, SIGTERM)
    assert outcome is not None
    assert outcome.status == "done"
    assert len(of(shown.events, TextDelta)) == 1


async def test_all_of_a_long_reply_is_shown():
    shown = Shown()
    reply: list[Any] = [*[TextDelta("x")] * MANY, ReplyFinished()]
    session = Agent(ScriptedModel(reply), store=MemoryStore()).session("s")
    async with asyncio.timeout(SECONDS):
        await show_run(session, lambda: session.run("Hi"), shown, NONE)
    assert len(of(shown.events, TextDelta)) == MANY


async def test_ctrl_c_cancels_the_run_in_progress():
    held = pause()
    stops: list[Any] = []
    signals = interrupts()
    signals.on_interrupt = stops.append
    session = Agent(ScriptedModel([TextDelta("One"), held]), store=MemoryStore()).session("s")
    running = asyncio.ensure_future(show_run(session, lambda: session.run("Hi"), Shown(), signals))
    await held.wait_reached()
    (stop,) = stops
    await stop()
    outcome = await running
    assert outcome is not None
    assert outcome.status == "cancelled"


@pytest.mark.parametrize("is_interrupted", [True, False])
async def test_a_run_that_has_not_begun_is_cancelled_too(is_interrupted):
    stops: list[Any] = []
    signals = interrupts(is_interrupted=is_interrupted)
    signals.on_interrupt = stops.append
    session = Agent(ScriptedModel("Hello."), store=MemoryStore()).session("s")
    begun = asyncio.Event()

    async def begin() -> Any:
        begun.set()
        await asyncio.Event().wait()

    running = asyncio.ensure_future(show_run(session, begin, Shown(), signals))
    await begun.wait()
    await stops[0]()
    if is_interrupted:
        assert await running is None
    else:
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_run_that_a_shutdown_refuses_has_no_outcome():
    async def begin() -> Any:
        raise ShuttingDown("the process ends")

    session = Agent(ScriptedModel("Hello."), store=MemoryStore()).session("s")
    assert await show_run(session, begin, Shown(), NONE) is None
