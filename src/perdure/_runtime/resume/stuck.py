"""End a run whose asyncio task ignores its cancel: abandon the task, and store the end of the run in the log."""

from collections.abc import Sequence
from typing import Any

from perdure._core.log.repair import build_child_repairs
from perdure._core.run.answers import end_with_fallback_answer
from perdure._core.run.ending import build_run_ended
from perdure._core.run.outcome import Outcome
from perdure._core.run.run import Run, logger
from perdure._core.run.tool_calls.preparation import build_tool_finished
from perdure._core.tools.results import build_not_started_result, build_uncertain_result
from perdure._core.tools.tool import REPEATABLE_EFFECTS
from perdure._core.values.event import RunStarted, RunWaiting
from perdure._core.values.event_class import Event
from perdure._core.values.message import Status, ToolCall

from .reasons import CALL_OPTION


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
    outcome = end_with_fallback_answer(run, run.interrupted_outcome())
    await run.store_for_stuck_loop(lambda: [*run.closing_events, build_run_ended(run, outcome)])
    return outcome


def _build_stuck_results(run: Run) -> list[Event]:
    """Build the results of all open calls of a run that was abandoned, and the ends of its subagents' runs.

    If another process is to resume the run, calls that have not begun or may be repeated stay open.
    """
    open_calls = [ToolCall(start.call_id, start.name) for start in run.state.started_calls.values()]
    open_calls += [call for call in run.state.unsettled_calls if call.call_id not in run.state.started_calls]
    begun_call_ids = run.state.begun_call_ids | run.entered_calls
    begun = [call for call in open_calls if call.call_id in begun_call_ids]
    waiting = [call for call in open_calls if call not in begun]
    _warn_of_stuck_calls(run, begun)
    status, text = _describe_stuck_call(run)
    results = [
        build_uncertain_result(call, status, text, run.state.find_started_effect(call.call_id))
        for call in begun
        if not _is_left_open(run, call)
    ]
    results += [] if run.leaving_reason else [build_not_started_result(call) for call in waiting]
    below = build_child_repairs(run.state, ("cancelled", run.interrupt_reason, text))
    return [*below, *[build_tool_finished(run, each) for each in results]]


def _is_left_open(run: Run, call: ToolCall) -> bool:
    """Return True if whoever resumes the run makes this call again; one whose subagent ends here is not made again."""
    state = run.state
    is_delegated = call.call_id in state.subagents or call.call_id in state.child_paths_by_call
    is_repeatable = state.find_started_effect(call.call_id) in REPEATABLE_EFFECTS
    return bool(run.leaving_reason) and is_repeatable and not is_delegated


def _describe_stuck_call(run: Run) -> tuple[Status, str]:
    """Return the status and the text of a tool call that did not stop: unknown, if its process ends with it."""
    if run.leaving_reason:
        return Status.UNKNOWN, "The process had to end while this ran, and could not wait for its result."
    return Status.CANCELLED, "The run was cancelled, and this did not stop; it may still be running."


def _warn_of_stuck_calls(run: Run, calls: Sequence[ToolCall]) -> None:
    """Log which run was abandoned, and because of which tools."""
    names = ", ".join([repr(each) for each in dict.fromkeys(call.name for call in calls)]) or "its engine"
    words = "run %s of session %s was abandoned: %s did not end in time, and may still be running"
    logger.warning(words, run.run_id, run.full_session_id, names, extra=run.log_fields)
