"""Run an agent for `perdure run` and `resume`: print its events, pass signals on to it, and return the exit code."""

import asyncio
import contextlib
import logging
import os
import shlex
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeAlias

import msgspec

from perdure._cli.home import build_session_not_found, describe_open_question, format_session_arguments
from perdure._cli.sessions.choice import get_project_path, shorten_id
from perdure._cli.sessions.resume_check import check_can_resume
from perdure._cli.terminal.input import LineReader
from perdure._cli.terminal.log import redirect_warnings
from perdure._cli.terminal.output import (
    OutputFailed,
    TerminalOutput,
    can_ask_user,
    report_error,
    to_ascii_json,
    to_one_line,
    warn,
)
from perdure._cli.terminal.permission import TerminalPermissionPrompt
from perdure._cli.terminal.printer import JsonEventPrinter, TerminalScreen
from perdure._cli.terminal.questions import TerminalQuestions, UnattendedQuestions
from perdure._cli.terminal.signals import SignalHandler
from perdure._cli.terminal.spinner import WaitSpinner
from perdure._core.log.fold import fold_entries
from perdure._core.permission.gate import cast_to_question_gate, later
from perdure._core.run.outcome import Outcome
from perdure._core.values.error import PerdureError, ShuttingDown, UsageError
from perdure._core.values.event import RunResumed
from perdure._core.values.event_class import Event, QuestionAsked
from perdure._core.values.message import user
from perdure._runtime.session.session import Session
from perdure._stores import open_store

from .assembly import AgentParts, check_sandbox_for_yolo, collect_agent_parts, resolve_store
from .options import AgentOptions, RunCommandOptions, fill_missing_options
from .project import describe_missing_sandbox, describe_unused_skills
from .trace import RunTrace

ENDED_EARLY: Final = 3
"""Exit code of a run that ended early: at a limit, by a guardrail, or with an open question."""

LIMIT_OPTIONS: Final = {
    "max_turns": "--max-turns",
    "token_budget": "--limit-tokens",
    "max_cost": "--limit-cost",
    "timeout": "--limit-seconds",
    "max_tool_calls": "--limit-tool-calls",
}
"""The option that allows more, by the reason with which a run ends at a limit."""

StartRun: TypeAlias = Callable[[], Awaitable[Outcome[Any]]]
Show: TypeAlias = Callable[[Event], None]


def run_session(options: RunCommandOptions) -> int:
    """Run the agent that the options describe, print its events, and return the exit code of the command."""
    if os.environ.get("PERDURE_DEBUG"):
        logging.basicConfig(level=logging.DEBUG)
    else:  # of other libraries; what matters of ours is printed, without tracebacks
        logging.getLogger().addHandler(logging.NullHandler())
    return asyncio.run(_run_with_signals(options))


async def _run_with_signals(order: RunCommandOptions) -> int:
    screen = TerminalOutput(raw=order.raw or order.as_json, quiet=order.quiet or order.as_json)
    with SignalHandler(screen.note) as interrupts:
        return interrupts.exit_with(await _run_attended(order, screen, interrupts))


async def _run_attended(order: RunCommandOptions, screen: TerminalOutput, interrupts: SignalHandler) -> int:
    """Run the agent while signals are handled, and return the exit code."""
    view = TerminalScreen(screen, with_text=order.schema is None)
    report = JsonEventPrinter(screen) if order.as_json else view.show
    keyboard = LineReader()
    question = TerminalPermissionPrompt(screen, keyboard) if can_ask_user() else None
    equipment = collect_agent_parts(
        order.agent if order.prompt is not None else await restore_agent_options(order.agent, order.session_id)
    )
    if order.yolo:
        check_sandbox_for_yolo(equipment.options["extensions"])
    if order.yes:
        warn(f"--yes: every tool call is made without asking{describe_danger(equipment)}")
    headings = [*_list_notes(equipment, order)]
    if order.prompt is not None and "/" in order.prompt:
        headings += describe_unused_skills(order.prompt, os.curdir, equipment.options.get("skills"))

    spinner = WaitSpinner(screen, lambda: view.waiting_for, is_enabled=not (order.quiet or order.as_json))

    def show_warning(text: str) -> None:
        spinner.clear()
        warn(text)

    def show(event: Event) -> None:
        spinner.clear()
        while headings:
            screen.note(headings.pop(0))
        report(event)
        slots(event)
        if question is not None and can_ask_permission(event):
            question.allow_asking(event)

    patience = 0.0 if question is None else float("inf")  # a person may take their time
    gate = equipment.build_gate(question, yes=order.yes or order.yolo, wait=order.later)
    trace = None if order.trace is None else RunTrace(order.trace)
    traced = {} if trace is None else {"extensions": [*equipment.options["extensions"], trace.extension]}
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(redirect_warnings(show_warning))
        if trace is not None:
            await stack.enter_async_context(trace)
        built = equipment.build_agent(permission=gate, answer_timeout_seconds=patience, **traced)
        agent = await stack.enter_async_context(interrupts.wrap_agent(built))
        session = agent.session(order.session_id)
        slots = _build_question_handler(session, screen, order, keyboard if question is not None else None)
        code = 0
        for begin in await _plan_runs(session, order, equipment):
            with spinner:
                outcome = None if interrupts.is_interrupted else await show_run(session, begin, show, interrupts)
            _print_result(outcome, order, screen)
            code = code or _report_outcome(outcome, interrupts, order.agent.store)
            if interrupts.is_interrupted:
                break
        slots.cancel_all()
        if not equipment.store.startswith("memory:"):
            name = shorten_id(session.session_id)
            screen.note(f"session {name}; go on with: {_format_next_command(order, name)}")
        return code


def describe_danger(equipment: AgentParts) -> str:
    """Return the end of a sentence about calls that nobody is asked about; empty if commands run in a sandbox."""
    risk = describe_missing_sandbox(equipment.options["extensions"])
    return f", commands too, and they run without a sandbox: {risk}" if risk else ""


def _print_result(outcome: Outcome[Any] | None, order: RunCommandOptions, screen: TerminalOutput) -> None:
    """Print the JSON of an answer that has a schema, and what the run has used."""
    if outcome is None:
        return
    if order.schema is not None and outcome.output is not None and not order.as_json:
        screen.write(to_ascii_json(msgspec.json.encode(outcome.output)) + "\n")
    if outcome.usage.total_tokens:
        screen.note(format_outcome_usage(outcome))


def format_outcome_usage(outcome: Outcome[Any]) -> str:
    """Return on one line what a run has used: turns, tokens, the share of the prompt cache, and cost."""
    usage = outcome.usage
    turns = "1 turn" if outcome.turns == 1 else f"{outcome.turns} turns"
    share = usage.cache_read_tokens / max(usage.input_tokens, 1)
    cached = f" ({share:.0%} from the cache)" if usage.cache_read_tokens else ""
    cost = "" if outcome.cost_usd is None else f", ${outcome.cost_usd:.4f}"
    precision = "" if usage.precision == "exact" else f", {usage.precision}"
    return f"{turns}, {usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out{cost}{precision}"


def can_ask_permission(event: Event) -> bool:
    """Return True if an event asks for permission, or resumes a run whose permission questions may be open."""
    return isinstance(event, RunResumed) or (isinstance(event, QuestionAsked) and event.about == "permission")


def _build_question_handler(
    session: Session, screen: TerminalOutput, order: RunCommandOptions, keyboard: LineReader | None
) -> TerminalQuestions | UnattendedQuestions:
    """Return the handler for questions that tools ask: at the terminal, or without one."""
    if keyboard is not None:
        return TerminalQuestions(session.display, keyboard, screen)

    def tell(question: QuestionAsked) -> None:
        screen.note(describe_open_question(session.session_id, question, order.agent.store))

    return UnattendedQuestions(session.display, tell if order.later else None)


async def restore_agent_options(options: AgentOptions, session_id: str | None) -> AgentOptions:
    """Read the session from its store, and return the options completed with those of its last run."""
    store = open_store(resolve_store(options))
    try:
        return fill_missing_options(options, fold_entries(await store.read(session_id or "")))
    finally:
        await store.aclose()


def _list_notes(equipment: AgentParts, order: RunCommandOptions) -> Iterator[str]:
    """Yield the notes that are shown with the first event."""
    choice = equipment.choice
    if order.prompt is not None and choice.reason:
        yield f"model {choice.model}: {choice.reason}"
    yield from map(to_one_line, equipment.notes)


async def _plan_runs(session: Session, order: RunCommandOptions, equipment: AgentParts) -> list[StartRun]:
    """Return the runs to start, in order: a resumption, the prompt, or both."""
    begins: list[StartRun] = []
    if order.resume:
        state = fold_entries(await session.store.read(session.session_id))
        if state.run is None and order.prompt is None:
            raise build_session_not_found(session.session_id, equipment.store)
        await check_can_resume(session.agent, session.store, session.session_id, state, order.agent.store)
        if state.is_parked and order.prompt is None and not order.unpark:
            named = format_session_arguments(shorten_id(session.session_id), order.agent.store, "--unpark")
            raise UsageError(
                f"session {session.session_id!r}: its last run was parked; continue it with: perdure resume {named}"
            )
        if state.is_interrupted or order.prompt is None:
            begins.append(_build_resume(session, asked=bool(state.open_questions), unpark=order.unpark))
    if order.prompt is not None:
        prompt = user(order.prompt, metadata=order.agent.build_prompt_metadata(get_project_path()))
        begins.append(lambda: session.run(prompt, output=order.schema, **equipment.build_overrides(order)))
    return begins


def _build_resume(session: Session, *, asked: bool, unpark: bool) -> StartRun:
    """Return a function that resumes the last run. An open question stays open until it has an answer.

    The gate of the resumed run is that of the agent, and waits where the agent has no one to ask.
    """
    gate = cast_to_question_gate(session.agent.permission)
    if asked and gate is not None and gate.handler is None:
        waiting = gate.with_handler(later, gate.grants)
        return lambda: session.resume(permission=waiting, narrow_permission=False, unpark=unpark)
    return lambda: session.resume(unpark=unpark)


async def show_run(session: Session, begin: StartRun, show: Show, interrupts: SignalHandler) -> Outcome[Any] | None:
    """Start a run, show its events until it ends, and return its outcome; `None` if it was stopped before it began."""
    subscription = session.subscribe(backpressure=True)  # a slow terminal slows the run, and misses nothing
    run = asyncio.ensure_future(begin())
    run.add_done_callback(lambda _: subscription.close())

    async def stop() -> None:
        if not await session.cancel():
            run.cancel()

    interrupts.on_interrupt(stop)
    try:
        async for entry in subscription:
            show(entry.event)
    except OutputFailed:
        subscription.close()
        if not interrupts.is_shutdown:  # a closed terminal shows nothing more, and that is no failure
            await stop()
            await asyncio.wait((run,))
            raise
    try:
        return await run
    except asyncio.CancelledError:
        if not interrupts.is_interrupted:
            raise
        return None
    except ShuttingDown:
        return None


def _report_outcome(outcome: Outcome[Any] | None, interrupts: SignalHandler, store: str | None) -> int:
    """Return the exit code of a run, and print a line unless it ended well."""
    if outcome is not None and outcome.status == "waiting" and not outcome.questions:  # it is left to the next process
        named = format_session_arguments(shorten_id(outcome.session_id), store)
        warn(f"the run was stopped; finish it with: perdure resume {named}")
        return interrupts.exit_code
    if outcome is None or outcome.status == "cancelled":
        if interrupts.is_shutdown:
            ended = "the run was ended; finished work is kept"
            warn(ended if outcome is not None else "the run was stopped before it began: start it again")
        else:
            report_error("the run was cancelled; finished work is kept")
        return interrupts.exit_code if interrupts.is_interrupted else 1
    if isinstance(outcome.error, PerdureError):
        report_error(str(outcome.error))
        return outcome.error.exit_code
    if outcome.error is not None:
        report_error(f"the run failed: {type(outcome.error).__name__}: {outcome.error} (PERDURE_DEBUG=1 shows more)")
        return PerdureError.exit_code
    if outcome.status == "done" or outcome.reason in {"terminated", "stop_condition"}:
        return 0
    if outcome.status == "waiting":
        for question in outcome.questions:
            report_error(describe_open_question(outcome.session_id, question, store))
        return ENDED_EARLY
    if outcome.status == "parked":
        command = f"perdure resume {format_session_arguments(outcome.session_id, store, '--unpark')}"
        report_error(f"the run was parked ({outcome.reason}): it crashed again and again; continue it with {command}")
        return ENDED_EARLY
    option = LIMIT_OPTIONS.get(outcome.reason)
    more = f"allow more with {option}, or " if option and outcome.status == "limit" else ""
    report_error(f"the run ended early ({outcome.status}: {outcome.reason}); {more}continue the session")
    return ENDED_EARLY


def _format_next_command(order: RunCommandOptions, session_id: str) -> str:
    """Return the command line that continues the session."""
    wish = order.agent
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
    if wish.coding is not None:
        given.append("--coding" if wish.coding else "--no-coding")
    if wish.no_config:
        given.append("--no-config")
    return f'perdure run {" ".join(given)} "…"'
