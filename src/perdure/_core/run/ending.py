"""How a run ends, or stops to be resumed: its open calls get results, and its end is stored with its totals."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from perdure._core.log.status import has_unreported_task
from perdure._core.log.store import clear_pending_cancel
from perdure._core.tools.results import build_interrupted_result, build_not_started_result
from perdure._core.values.error import ModelError
from perdure._core.values.event import RunEnded, RunWaiting
from perdure._core.values.jsonable import error_message
from perdure._core.values.message import ToolResult

from .outcome import Outcome
from .run import Run
from .tool_calls.preparation import store_results_without_running


async def suspend_run(run: Run) -> Outcome[Any]:
    """Suspend a run until its questions are answered or another process resumes it; return the `waiting` outcome.

    The run is not over, and its tool calls stay open: it is resumed once its questions are answered, or at once if it
    has none. Until then no process drives it.
    """
    questions = run.state.open_questions
    due_at = min([each.expires_at for each in questions if each.expires_at is not None], default=None)
    if not questions:  # this process leaves the run: any other can continue it now
        due_at = run.clock.now()
    reason = "question" if questions else run.leaving_reason
    waiting = RunWaiting(tuple([each.ask_id for each in questions]), due_at, reason, run_id=run.run_id, path=run.path)
    with suppress(asyncio.CancelledError):  # the event is stored: nothing is left to cancel
        await run.emit(waiting, sync=True)
    if run.is_interrupted:
        await clear_pending_cancel()
    return run.outcome("waiting", reason)


async def end_cancelled_run(run: Run) -> Outcome[Any]:
    """End a cancelled run: store a result for each open tool call, and return the `cancelled` outcome."""
    await store_open_call_results(run)
    return run.interrupted_outcome()


async def end_failed_run(run: Run, error: BaseException) -> Outcome[Any]:
    """End a run that raised an error: store a result for each open tool call, and return the `failed` outcome.

    The error may be a cancel that was not requested through this run.
    """
    await store_open_call_results(run)
    stray = ModelError(f"{run.info.name} was cancelled by something other than this run")
    return run.failed_outcome(error if isinstance(error, Exception) else stray)


async def store_open_call_results(run: Run) -> None:
    """Store a result for each tool call that is still open when the run ends."""
    with suppress(asyncio.CancelledError):  # the results are stored, and the run is over
        await store_results_without_running(run, build_open_call_results(run, run.state.begun_call_ids))


def build_open_call_results(run: Run, in_doubt: Collection[str]) -> list[ToolResult]:
    """Build the results of tool calls that are still open and will not be carried out.

    A call whose effect a crash left in doubt is reported as unknown, and so is one that has begun and whose result
    could not be stored. Any other is reported as not started.
    """
    begun = run.entered_calls.union(in_doubt)
    return [
        build_interrupted_result(call, run.state.find_started_effect(call.call_id))
        if call.call_id in begun
        else build_not_started_result(call)
        for call in run.state.unsettled_calls
    ]


async def discard_open_aside_replies(run: Run, outcome: Outcome[Any]) -> Outcome[Any]:
    """Record unfinished replies outside the conversation as discarded; return the outcome with their tokens added."""
    from .requests import build_open_aside_discarded_events  # at first use, which few runs have

    with suppress(asyncio.CancelledError):  # the events are stored, and the run is over
        await run.emit(*build_open_aside_discarded_events(run))
    return replace(outcome, usage=run.usage, cost_usd=run.cost_usd)


def build_run_ended(run: Run, outcome: Outcome[Any]) -> RunEnded:
    """Build the `RunEnded` event from the outcome of a run."""
    return RunEnded(
        outcome.status,
        outcome.reason,
        "" if outcome.error is None else error_message(outcome.error),
        outcome.usage,
        outcome.cost_usd,
        outcome.turns,
        is_unreported=has_unreported_task(run.state.settings),
        run_id=run.run_id,
        path=run.path,
    )
