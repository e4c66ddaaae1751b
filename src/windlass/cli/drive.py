"""Drives a session from the terminal: events to the screen, signals to the run, its outcome to an exit code.

Above: the commands `run` and `resume`. Below: agent and session, `report.py`, `ask.py`, `interrupt.py`.
"""

import asyncio
import logging
import os
import shlex
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from msgspec import Struct

from windlass.agent import Agent
from windlass.core.error import WindlassError
from windlass.core.event import Event, QuestionAsked, RunResumed
from windlass.core.fold import fold
from windlass.core.outcome import Outcome
from windlass.core.permission import Gate, Permissions, allow_all, later
from windlass.interaction.grant_file import GrantFile
from windlass.override import Overrides
from windlass.session import Session
from windlass.toolkits.basics import basics

from .ask import TerminalQuestion
from .choice import Choice, chosen
from .home import grants_file, how_to_answer, no_session, store_spec
from .interrupt import Interrupts
from .keyboard import Keyboard
from .prompt import Attended, Unattended
from .report import JsonReport, TextReport
from .screen import OutputFailed, Screen, can_ask, one_line, report_error, warn

CUT_SHORT: Final = 3
"""The exit code of a run that ended before it was done: at a limit, because it went in circles, or with a question."""

Begin: TypeAlias = Callable[[], Awaitable[Outcome[Any]]]
Show: TypeAlias = Callable[[Event], None]


class Order(Struct, frozen=True, kw_only=True):
    """What a command was asked to do."""

    session_id: str | None = None
    """Which session; a new one if none is named."""
    prompt: str | None = None
    """What to say; nothing if the last run is only to be finished."""
    resume: bool = False
    """Finish the last run first, if it was cut off."""
    model: str | None = None
    """Who was named to answer."""
    choice: Choice | None = None
    """Who answers, and why, if that is known already."""
    store: str | None = None
    overrides: Overrides = {}
    """How this run differs from others."""
    as_json: bool = False
    quiet: bool = False
    raw: bool = False
    yes: bool = False
    """Allow every call."""
    later: bool = False
    """Leave questions open where nobody can be asked."""


def carry_out(order: Order) -> int:
    """Do what was asked; returns the exit code."""
    if os.environ.get("WINDLASS_DEBUG"):
        logging.basicConfig(level=logging.DEBUG)
    else:  # what matters is told on the screen, without tracebacks
        logging.getLogger().addHandler(logging.NullHandler())
    return asyncio.run(_perform(order))


async def _perform(order: Order) -> int:
    screen = Screen(raw=order.raw or order.as_json, quiet=order.quiet or order.as_json)
    with Interrupts(screen.note) as interrupts:
        return interrupts.leave(await _attended(order, screen, interrupts))


async def _attended(order: Order, screen: Screen, interrupts: Interrupts) -> int:
    """Do it, with somebody who listens to signals."""
    report = JsonReport(screen) if order.as_json else TextReport(screen)
    keyboard = Keyboard()
    question = TerminalQuestion(screen, keyboard) if can_ask() else None
    choice, store = order.choice or chosen(order.model), store_spec(order.store)
    heading = f"model {choice.model}: {choice.why}" if order.prompt is not None and choice.why else ""

    def show(event: Event) -> None:
        nonlocal heading
        if heading:
            screen.note(heading)
            heading = ""
        report(event)
        slots(event)
        if question is not None and _may_be_put(event):
            question.all_shown()

    patience = 0.0 if question is None else float("inf")  # a person may take their time
    gate = _gate(question, order)
    agent = interrupts.covering(
        Agent(choice.model, tools=basics(), store=store, permission=gate, patience_seconds=patience)
    )
    async with agent:
        session = agent.session(order.session_id)
        slots = _slots(session, screen, order, keyboard if question is not None else None)
        code = 0
        for begin in await _begins(session, order):
            outcome = None if interrupts.came else await _follow(session, begin, show, interrupts)
            code = code or _concluded(outcome, interrupts)
            if interrupts.came:
                break
        slots.leave()
        if not store.startswith("memory:"):
            screen.note(f"session {session.session_id}; go on with: {_next_command(order, session.session_id)}")
        return code


def _may_be_put(event: Event) -> bool:
    """Whether a question about permission may be asked now: it has just come, or an earlier run has left it."""
    return isinstance(event, RunResumed) or (isinstance(event, QuestionAsked) and event.about == "permission")


def _slots(session: Session, screen: Screen, order: Order, keyboard: Keyboard | None) -> Attended | Unattended:
    """Whoever answers what tools ask."""
    if keyboard is not None:
        return Attended(session.display, keyboard, screen)

    def tell(question: QuestionAsked) -> None:
        screen.note(f"a question is open: {one_line(question.text)}; {how_to_answer(session.session_id, question)}")

    return Unattended(session.display, tell if order.later else None)


def _gate(question: TerminalQuestion | None, order: Order) -> Gate:
    if order.yes:
        warn("--yes: whatever the model asks for is done without a question")
        return allow_all
    return Permissions(handler=question or (later if order.later else None), grants=GrantFile(grants_file()))


async def _begins(session: Session, order: Order) -> list[Begin]:
    """What there is to do, in order."""
    begins: list[Begin] = []
    if order.resume:
        state = fold(await session.store.read(session.session_id))
        if state.run is None and order.prompt is None:
            raise no_session(session.session_id)
        if state.interrupted or order.prompt is None:
            begins.append(_resumption(session, asked=bool(state.questions)))
    if (prompt := order.prompt) is not None:
        begins.append(lambda: session.run(prompt, **order.overrides))
    return begins


def _resumption(session: Session, *, asked: bool) -> Begin:
    """Go on with the last run. A question that was left open is not denied now: it has an answer, or stays open."""
    gate = session.agent.permission
    if asked and isinstance(gate, Permissions) and gate.handler is None:
        waiting = Permissions(handler=later, grants=gate.grants)
        return lambda: session.resume(permission=waiting)
    return session.resume


async def _follow(session: Session, begin: Begin, show: Show, interrupts: Interrupts) -> Outcome[Any] | None:
    """Show a run until it ends, and say how; nothing when it was stopped before it began."""
    subscription = session.subscribe(backpressure=True)  # a slow terminal slows the run, and misses nothing
    run = asyncio.ensure_future(begin())
    run.add_done_callback(lambda _: subscription.close())

    async def stop() -> None:
        if not await session.cancel():
            run.cancel()

    interrupts.on_first(stop)
    try:
        async for entry in subscription:
            show(entry.event)
    except OutputFailed:
        subscription.close()
        if not interrupts.is_shutdown:  # a terminal that was closed shows nothing more, and that is no failure
            await stop()
            await asyncio.wait((run,))
            raise
    try:
        return await run
    except asyncio.CancelledError:
        if not interrupts.came:
            raise
        return None


def _concluded(outcome: Outcome[Any] | None, interrupts: Interrupts) -> int:
    """The exit code of a run, and a line about every end but a good one."""
    if outcome is None or outcome.status == "cancelled":
        if interrupts.is_shutdown:
            warn("the run was ended; what was finished is kept")
        else:
            report_error("the run was cancelled; what was finished is kept")
        return interrupts.exit_code if interrupts.came else 1
    if isinstance(outcome.error, WindlassError):
        report_error(str(outcome.error))
        return outcome.error.exit_code
    if outcome.error is not None:
        report_error(f"the run failed: {type(outcome.error).__name__}: {outcome.error}; see WINDLASS_DEBUG=1")
        return WindlassError.exit_code
    if outcome.status == "done" or outcome.reason in {"terminated", "stop_condition"}:
        return 0
    if outcome.status == "waiting":
        for question in outcome.questions:
            report_error(
                f"a question is open: {one_line(question.text)}; {how_to_answer(outcome.session_id, question)}"
            )
        return CUT_SHORT
    more = "allow more with --max-turns, or " if outcome.reason == "max_turns" else ""
    report_error(f"the run ended before it was done ({outcome.status}: {outcome.reason}); {more}go on with the session")
    return CUT_SHORT


def _next_command(order: Order, session_id: str) -> str:
    """How to go on with the session."""
    options = {"--session": session_id, "--model": order.model, "--store": order.store}
    given = [f"{name} {shlex.quote(value)}" for name, value in options.items() if value]
    return f'windlass run {" ".join(given)} "…"'
