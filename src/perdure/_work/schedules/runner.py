"""Run one firing of a schedule: unattended, with a time limit; retried only if nothing can happen twice.

Each run has an `input_id` made of the schedule, the firing and the attempt. A run that a crash interrupted is found by
it in the log of its session, and continued: it is never begun anew.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from perdure._core.log.store import Store
from perdure._core.run.outcome import Outcome
from perdure._core.run.spec import ShutdownSignal
from perdure._core.run.stop import Limits, merge_limits
from perdure._core.values.clock import Clock
from perdure._core.values.error import PerdureError, SessionBusy, ShuttingDown, StoreError
from perdure._core.values.event import Entry, PermissionDecided, ToolFinished, ToolStarted
from perdure._core.values.event_class import QuestionAnswered, QuestionAsked
from perdure._core.values.jsonable import to_text
from perdure._core.values.message import UNCERTAIN_STATUSES, user
from perdure._core.values.provenance import TRIGGER_ORIGIN
from perdure._runtime.agent.agent import Agent
from perdure._runtime.agent.overrides import Overrides, Prompt
from perdure._runtime.session.session import Session
from perdure._runtime.tasks import sleep_until_shutdown

from .firing import ScheduleJournalRecord, build_input_id
from .journal import ScheduleClaim
from .schedule import Schedule

UNATTENDED: Final = "schedule"
"""The name under which questions of unattended runs are denied."""
_REPEATABLE: Final = frozenset({"read", "idempotent"})
"""Effects of tool calls that may be made again."""
_LONGEST_RETRY_SECONDS: Final = 3600.0
_SHORTEST_WAIT_SECONDS: Final = 0.001
_MOST_ANSWERS: Final = 100
"""Rounds of questions that are answered for one run."""
_SHOWN: Final = 120


class FiringLeftAtShutdown(Exception):
    """Raised when the run of a firing is left to the next process, because this process shuts down."""


class FiringRunner:
    """The run of one firing of a schedule in this process, with its retries."""

    def __init__(
        self,
        schedule: Schedule,
        agent: Agent[Any],
        store: Store,
        *,
        overrides: Overrides[Any],
        poll_seconds: float,
        process_end: ShutdownSignal | None,
        publish: Callable[[ScheduleJournalRecord], None],
    ) -> None:
        self._schedule = schedule
        self._overrides = overrides
        self._publish = publish
        self._agent = agent
        self._store = store
        self._clock: Clock = agent.clock
        self._poll_seconds = poll_seconds
        self._process_end = process_end

    async def perform(self, fired: ScheduleJournalRecord, claim: ScheduleClaim) -> bool:
        """Run a firing to its end, with its retries, and store the record that ends it.

        Return False if the process was asked to end: the next one continues the run.
        """
        attempt = max(1, claim.state.attempt)
        while True:
            try:
                outcome = await self._run_attempt(fired, claim, attempt)
                entries = await self._read_run(fired.session_id, outcome.run_id)
            except (FiringLeftAtShutdown, ShuttingDown):
                return False
            ended = _build_end(fired, outcome, entries, attempt)
            if not self._may_retry(ended, outcome, entries, attempt):
                await self._append(claim, ended)
                return True
            attempt += 1
            await self._append(claim, msgspec.structs.replace(ended, kind="retried", attempt=attempt, denied=()))
            delay = min(self._schedule.retry_seconds * 2.0 ** (attempt - 2), _LONGEST_RETRY_SECONDS)
            await self._wait_for_retry(delay, fired, claim)

    async def _wait_for_retry(self, seconds: float, fired: ScheduleJournalRecord, claim: ScheduleClaim) -> None:
        """Wait for the next attempt; not longer than until the firing is cancelled, or the process is asked to end."""
        end = self._clock.monotonic() + seconds
        while (left := end - self._clock.monotonic()) > _SHORTEST_WAIT_SECONDS:
            if self._process_end is not None and self._process_end.requested:
                return
            if await claim.journal.is_cancel_requested(fired.firing_id):
                return
            await sleep_until_shutdown(self._clock, min(left, self._poll_seconds), self._process_end)

    async def _append(self, claim: ScheduleClaim, record: ScheduleJournalRecord) -> None:
        for stored in await claim.append([record]):
            self._publish(stored)

    async def _run_attempt(self, fired: ScheduleJournalRecord, claim: ScheduleClaim, attempt: int) -> Outcome[Any]:
        """Begin or continue the run of one attempt; wait while another process drives its session."""
        started, longest = self._clock.monotonic(), self._schedule.timeout_seconds
        while True:
            if self._process_end is not None and self._process_end.requested:
                raise FiringLeftAtShutdown
            if await claim.journal.is_cancel_requested(fired.firing_id):
                return Outcome(status="cancelled", reason="cancelled", session_id=fired.session_id)
            try:
                return await self._run_unattended(fired, attempt)
            except SessionBusy as error:
                if longest is not None and self._clock.monotonic() - started >= longest:
                    return Outcome(status="failed", reason="SessionBusy", error=error, session_id=fired.session_id)
                await sleep_until_shutdown(self._clock, self._poll_seconds, self._process_end)
            except (FiringLeftAtShutdown, ShuttingDown, StoreError):
                raise
            except Exception as error:  # noqa: BLE001 - such as an unknown skill: the firing fails, not the scheduler
                return Outcome(status="failed", reason=type(error).__name__, error=error, session_id=fired.session_id)

    async def _run_unattended(self, fired: ScheduleJournalRecord, attempt: int) -> Outcome[Any]:
        """Run the prompt, and deny every question that is left open, until the run is over."""
        session = self._agent.session(fired.session_id, store=self._store, role=self._schedule.role)
        outcome = await self._send(session, fired, attempt)
        for _ in range(_MOST_ANSWERS):
            if outcome.status != "waiting":
                return outcome
            if self._process_end is not None and self._process_end.requested:
                raise FiringLeftAtShutdown
            await _deny_questions(session, outcome.questions)
            outcome = await self._send(session, fired, attempt)
        return outcome

    async def _send(self, session: Session[Any], fired: ScheduleJournalRecord, attempt: int) -> Outcome[Any]:
        """Send the prompt of a firing. Sent again, it continues the run that it began, or returns its outcome."""
        input_id = build_input_id(self._schedule.name, fired.firing_id, attempt)
        overrides = self._build_overrides()
        if fired.skill:
            return await session.skill(fired.skill, fired.input, input_id=input_id, labels=fired.labels, **overrides)
        return await session.run(_build_prompt(fired), input_id=input_id, **overrides)

    def _build_overrides(self) -> Overrides[Any]:
        longest = self._schedule.timeout_seconds
        if longest is None:
            return self._overrides
        limits = merge_limits(self._overrides.get("limits", Limits()), Limits(timeout_seconds=longest))
        return {**self._overrides, "limits": limits}

    async def _read_run(self, session_id: str, run_id: str) -> Sequence[Entry]:
        """Return the entries of a run, also those from before it was resumed, and those of its subagents."""
        return await self._agent.session(session_id, store=self._store).read_run(run_id) if run_id else ()

    def _may_retry(
        self, ended: ScheduleJournalRecord, outcome: Outcome[Any], entries: Sequence[Entry], attempt: int
    ) -> bool:
        """Return True if a failed run may be tried again: no call was begun that must not be made twice."""
        if ended.kind != "failed" or attempt > self._schedule.retries or outcome.status not in {"failed", "limit"}:
            return False
        started = [each.event for each in entries if isinstance(each.event, ToolStarted)]
        return not ended.unknown_effects and all(each.effect in _REPEATABLE for each in started)


async def _deny_questions(session: Session[Any], questions: Sequence[QuestionAsked]) -> None:
    """Deny the questions of an unattended run: no permission, no repetition of an interrupted call."""
    for question in questions:
        with suppress(PerdureError):  # answered meanwhile: then it is not open any more
            if question.about == "slot":
                await session.display.reject(question.ask_id, "nobody is there to answer: this run is unattended")
            else:
                answer = "skip" if question.about == "settlement" else False
                await session.answer(question.ask_id, answer, by=UNATTENDED)


def _build_prompt(fired: ScheduleJournalRecord) -> Prompt:
    """Return the prompt of a firing, preceded by the input of its trigger as a message.

    In the last message alone, `/name` and `@file` are directives, unless it is untrusted.
    """
    if fired.input is None:
        return fired.prompt
    is_own_prompt = not fired.prompt.strip() and not fired.labels
    given = user(to_text(fired.input), origin="" if is_own_prompt else TRIGGER_ORIGIN, labels=fired.labels)
    return [given, user(fired.prompt)] if fired.prompt.strip() else given


def _build_end(
    fired: ScheduleJournalRecord, outcome: Outcome[Any], entries: Sequence[Entry], attempt: int
) -> ScheduleJournalRecord:
    """Return the record that ends a firing, from the outcome of its last run."""
    kind = {"done": "finished", "stopped": "finished", "cancelled": "cancelled"}.get(outcome.status, "failed")
    reason = outcome.reason
    if outcome.error is not None:
        reason = _shorten(f"{reason}: {outcome.error}" if reason else str(outcome.error))
    elif kind == "failed":
        reason = reason or outcome.status
    return ScheduleJournalRecord(
        kind=kind,  # type: ignore[arg-type]
        schedule=fired.schedule,
        firing_id=fired.firing_id,
        due=fired.due,
        reason=reason,
        session_id=fired.session_id,
        run_id=outcome.run_id,
        attempt=attempt,
        denied=tuple(_list_denied(entries)),
        unknown_effects=tuple(_list_unknown_effects(entries)),
        cost_usd=outcome.cost_usd,
    )


def _list_denied(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the calls of a run that were denied, and its questions that the scheduler has answered."""
    asked = {each.event.ask_id: each.event for each in entries if isinstance(each.event, QuestionAsked)}
    for entry in entries:
        event = entry.event
        if isinstance(event, PermissionDecided) and not event.allow:
            yield _shorten(f"{event.tool} {event.target}")
        elif isinstance(event, QuestionAnswered) and (event.by == UNATTENDED or event.rejected):
            question = asked.get(event.ask_id)
            if question is not None and question.about != "permission":
                yield _shorten(question.text)


def _list_unknown_effects(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the names of the tools whose calls may or may not have had an effect."""
    for entry in entries:
        event = entry.event
        if isinstance(event, ToolFinished) and event.result.status in UNCERTAIN_STATUSES:
            yield event.name


def _shorten(text: str) -> str:
    """Return a text on one line, cut if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
