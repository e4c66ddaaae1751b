"""A batch of prepared tool calls: intents are stored wave by wave, and the calls executed, several at a time."""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence

from perdure._core.log.store import wait_despite_cancel
from perdure._core.run.calling_run import find_other_labels
from perdure._core.run.run import Run
from perdure._core.tools.results import RunSuspended
from perdure._core.tools.tool import REPEATABLE_EFFECTS
from perdure._core.values import faults
from perdure._core.values.message import Status, merge_labels

from .execution import PreparedCall, add_tool_labels, run_call, run_call_with_deferred_intent, run_finish_hooks
from .preparation import build_call_ending_events


async def carry_out_calls(run: Run, prepared_calls: Sequence[PreparedCall]) -> None:
    """Execute prepared tool calls, at most `max_parallel_tools` at a time; a tool that is not parallel runs alone.

    Raises `RunSuspended` if one of them waits for an answer, once all others are settled.
    """
    if len(prepared_calls) == 1:  # a separate task would only cost time
        await store_call_intents(run, prepared_calls)
        only = prepared_calls[0]
        await execute_call(run, only, only.call.call_id in run.state.open_calls)  # not beside others
        if only.is_suspended:
            raise RunSuspended
        return
    waiting = deque(prepared_calls)
    running: dict[asyncio.Task[None], PreparedCall] = {}
    try:
        while waiting or running:
            if run.cancel_mode == "after_tools" or run.leaving_reason:
                waiting.clear()
            wave = take_startable_calls(waiting, running.values(), run.limits.max_parallel_tools)
            if wave:
                await store_call_intents(run, wave)
            running |= {asyncio.ensure_future(execute_call(run, prepared)): prepared for prepared in wave}
            if running:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in [each for each in running if each.done()]:
                del running[task]
                task.result()
    except BaseException:
        for task, prepared in running.items():
            prepared.is_interrupted = True
            task.cancel()
        await wait_despite_cancel(running)
        for task in running:
            _ = task.cancelled() or task.exception()  # retrieved, so that asyncio does not log it
        raise
    suspended = [prepared for prepared in prepared_calls if prepared.is_suspended]
    if run.leaving_reason or suspended:  # all others are settled: the run waits for these
        raise RunSuspended


def take_startable_calls(
    waiting: deque[PreparedCall], running: Collection[PreparedCall], limit: int
) -> list[PreparedCall]:
    """Remove and return the prepared calls that may start now, in order, within the limit of parallel calls."""
    wave: list[PreparedCall] = []
    while waiting and len(running) + len(wave) < limit:
        alone = not waiting[0].tool.parallel
        if alone and (running or wave):
            break
        wave.append(waiting.popleft())
        if alone:
            break
    return wave


async def store_call_intents(run: Run, wave: Sequence[PreparedCall]) -> None:
    """Store the intents of these tool calls (that they are about to run), before they can have an effect.

    Unless all of them only read, the append is synced, so that a power failure cannot lose it.
    """
    faults.fault_point("loop.before_intent")
    if run.interrupt_reason:  # a tool or hook swallowed the cancel: no effect may begin any more
        raise asyncio.CancelledError
    intents = [
        prepared.build_intent(run) for prepared in wave if not prepared.tool.asks_first
    ]  # the others store their intent themselves
    if intents:
        run.stores_intents = True  # a process that ends now gives these calls their time too
        try:
            await run.emit(*intents, sync=bool([None for intent in intents if intent.effect != "read"]))
        finally:
            run.stores_intents = False
    else:
        await run.store_held_events()
    faults.fault_point("loop.intent_stored")


async def execute_call(run: Run, prepared: PreparedCall, is_alone: bool = False) -> None:  # noqa: FBT001, FBT002 - quicker
    """Execute one prepared tool call and store its result, even while the run is being cancelled."""
    began = run.clock.monotonic()
    try:
        result = await (
            run_call_with_deferred_intent(run, prepared) if prepared.tool.asks_first else run_call(run, prepared)
        )
    except RunSuspended:
        prepared.is_suspended = True
        run.entered_calls.discard(prepared.call.call_id)
        return
    faults.fault_point("loop.effect_done")
    if run.leaving_reason and result.status is Status.CANCELLED and prepared.tool.effect in REPEATABLE_EFFECTS:
        raise asyncio.CancelledError  # it stays open: whoever resumes the run makes the call again, with the same key
    if prepared.tool.finish or prepared.tool.summary is not None:
        result = await run_finish_hooks(run, prepared, result)
    if run.scratch:
        prepared.labels = merge_labels(prepared.labels, find_other_labels(run))
    if prepared.tool.labels or prepared.labels:
        result = add_tool_labels(prepared, result)
    settled = build_call_ending_events(run, result, run.clock.monotonic() - began)
    if not (is_alone and run.hold(settled)):  # else it is stored with the next request, or with the end of the run
        await run.emit(*settled)
        faults.fault_point("loop.result_stored")
    run.entered_calls.discard(prepared.call.call_id)
    if prepared.is_interrupted or run.interrupt_reason:
        raise asyncio.CancelledError
