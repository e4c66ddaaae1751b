"""Drives a session from the terminal: events to the screen, signals to the run, its outcome to an exit code.

Above: the commands `run` and `resume`. Below: agent and session, `report.py`, `ask.py`, `interrupt.py`.
"""

import asyncio
import logging
import os
import shlex
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeAlias

from perdure.core.error import PerdureError
from perdure.core.event import Event, QuestionAsked, RunResumed
from perdure.core.fold import fold
from perdure.core.message import user
from perdure.core.outcome import Outcome
from perdure.core.permission import Permissions, later
from perdure.session import Session
from perdure.stores import open_store

from .ask import TerminalQuestion
from .equipment import Equipment, equip, kept_in
from .home import how_to_answer, no_session
from .interrupt import Interrupts
from .keyboard import Keyboard
from .order import Order, Wish, as_before
from .prompt import Attended, Unattended
from .report import JsonReport, TextReport
from .screen import OutputFailed, Screen, can_ask, one_line, report_error, warn

CUT_SHORT: Final = 3
"""The exit code of a run that ended before it was done: at a limit, because it went in circles, or with a question."""

Begin: TypeAlias = Callable[[], Awaitable[Outcome[Any]]]
Show: TypeAlias = Callable[[Event], None]


def carry_out(order: Order) -> int:
    """Do what was asked; returns the exit code."""
    if os.environ.get("PERDURE_DEBUG"):
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
    equipment = equip(order.wish if order.prompt is not None else await wish_before(order.wish, order.session_id))
    _warn(equipment, order)
    headings = [*_headings(equipment, order)]

    def show(event: Event) -> None:
        while headings:
            screen.note(headings.pop(0))
        report(event)
        slots(event)
        if question is not None and _may_be_put(event):
            question.all_shown()

    patience = 0.0 if question is None else float("inf")  # a person may take their time
    gate = equipment.gate(question, yes=order.yes, wait=order.later)
    async with interrupts.covering(equipment.agent(permission=gate, patience_seconds=patience)) as agent:
        session = agent.session(order.session_id)
        slots = _slots(session, screen, order, keyboard if question is not None else None)
        code = 0
        for begin in await _begins(session, order, equipment):
            outcome = None if interrupts.came else await _follow(session, begin, show, interrupts)
            code = code or _concluded(outcome, interrupts)
            if interrupts.came:
                break
        slots.leave()
        if not equipment.store.startswith("memory:"):
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


async def wish_before(wish: Wish, session_id: str | None) -> Wish:
    """What is wanted of the agent, where the log of a session has the rest: it is to be the agent that it was."""
    store = open_store(kept_in(wish))
    try:
        return as_before(wish, fold(await store.read(session_id or "")))
    finally:
        await store.aclose()


def _warn(equipment: Equipment, order: Order) -> None:
    """Tell at once what somebody has to know."""
    if order.yes:
        warn("--yes: whatever the model asks for is done without a question")
    for each in equipment.warnings:
        warn(one_line(each))


def _headings(equipment: Equipment, order: Order) -> Iterator[str]:
    """What is told when the first thing happens."""
    choice = equipment.choice
    if order.prompt is not None and choice.why:
        yield f"model {choice.model}: {choice.why}"
    yield from map(one_line, equipment.notes)


async def _begins(session: Session, order: Order, equipment: Equipment) -> list[Begin]:
    """What there is to do, in order."""
    begins: list[Begin] = []
    if order.resume:
        state = fold(await session.store.read(session.session_id))
        if state.run is None and order.prompt is None:
            raise no_session(session.session_id)
        if state.interrupted or order.prompt is None:
            begins.append(_resumption(session, asked=bool(state.questions)))
    if order.prompt is not None:
        prompt = user(order.prompt, metadata=order.wish.kept)
        begins.append(lambda: session.run(prompt, **equipment.overrides(order)))
    return begins


def _resumption(session: Session, *, asked: bool) -> Begin:
    """Go on with the last run. A question that was left open is not denied now: it has an answer, or stays open."""
    gate = session.agent.permission
    if asked and isinstance(gate, Permissions) and gate.handler is None:
        waiting = Permissions(*gate.rules, handler=later, grants=gate.grants, expires_seconds=gate.expires_seconds)
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
    if isinstance(outcome.error, PerdureError):
        report_error(str(outcome.error))
        return outcome.error.exit_code
    if outcome.error is not None:
        report_error(f"the run failed: {type(outcome.error).__name__}: {outcome.error}; see PERDURE_DEBUG=1")
        return PerdureError.exit_code
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
    wish = order.wish
    options = {
        "--session": session_id,
        "--model": wish.model,
        "--role": wish.role,
        "--config": wish.config,
        "--store": wish.store,
    }
    given = [f"{name} {shlex.quote(value)}" for name, value in options.items() if value]
    if wish.context is not None:
        given.append("--context" if wish.context else "--no-context")
    return f'perdure run {" ".join(given)} "…"'
