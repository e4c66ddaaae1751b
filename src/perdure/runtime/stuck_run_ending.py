"""End a stuck run, whose task ignores its cancel: abandon the task, and store its end in the log."""

from typing import Any

from perdure.core.call_preparation import build_tool_finished
from perdure.core.event import Event, RunStarted, RunWaiting
from perdure.core.log_repair import build_child_repairs
from perdure.core.loop import build_run_ended
from perdure.core.message import Status, ToolCall
from perdure.core.outcome import Outcome
from perdure.core.run import Run
from perdure.core.unsuccessful_results import build_not_started_result, build_uncertain_result

from .resume_reasons import CALL_OPTION


async def end_stuck_run(run: Run) -> Outcome[Any]:
    """End a run whose asyncio task ignores its cancel: store results for open tool calls, and the run's end.

    From then on the task can store nothing more.

    A run that its process leaves to another one is not ended, and calls that have not begun stay open.
    """
    await run.store_for_stuck_loop(lambda: _build_stuck_results(run))
    if run.leaving_reason:
        left = RunWaiting((), run.clock.now(), run.leaving_reason, run_id=run.run_id, path=run.path)
        await run.store_for_stuck_loop(lambda: [left])
        return run.outcome("waiting", run.leaving_reason)
    run.output = run.state.latest_result if CALL_OPTION in (run.state.run or RunStarted()).options else None
    outcome = run.interrupted_outcome()
    await run.store_for_stuck_loop(lambda: [build_run_ended(run, outcome)])
    return outcome


def _build_stuck_results(run: Run) -> list[Event]:
    """Build the results of all open calls of a run that was abandoned, and the ends of its subagents' runs."""
    open_calls = [ToolCall(start.call_id, start.name) for start in run.state.started_calls.values()]
    open_calls += [call for call in run.state.unsettled_calls if call.call_id not in run.state.started_calls]
    begun_call_ids = run.state.begun_call_ids | run.entered_calls
    begun = [call for call in open_calls if call.call_id in begun_call_ids]
    waiting = [call for call in open_calls if call not in begun]
    text = "The run was cancelled, and this did not stop; it may still be running."
    results = [build_uncertain_result(call, Status.CANCELLED, text) for call in begun]
    results += [] if run.leaving_reason else [build_not_started_result(call) for call in waiting]
    below = build_child_repairs(run.state, ("cancelled", run.interrupt_reason, text))
    return [*below, *[build_tool_finished(run, each) for each in results]]
