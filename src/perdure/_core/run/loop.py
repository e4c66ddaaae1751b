"""The agent loop: ask the model, run its tool calls, repeat. Read this first, from top to bottom.

- `execute`: a run, from its first event to its last, by an engine such as `react`
  - `react`: a turn, then its tool calls, repeated until there is a reason to stop
    - `run_turn`: deliver what has arrived, request a reply from the model, stream it, store it (parts in `turn.py`)
    - `handle_answer`, `handle_tool_calls`: decide whether the run goes on
      - `act`: give every tool call of the reply exactly one result
        - `prepare_calls`: resolve the tool, parse, hooks, validate (in `tool_calls/preparation.py`)
        - `filter_permitted`: one permission question for the whole batch (in `tool_calls/approval.py`)
        - `carry_out_calls`: store intents wave by wave, then execute calls, several at a time (`tool_calls/batch.py`)
          - `execute_call`: execute one call (`tool_calls/execution.py`), store its one result
  - `suspend_run`, `end_failed_run`, `build_run_ended` and others: how a run ends (in `ending.py`)

What must last is stored by `run.emit` before the loop goes on: a reply before any of its calls, an intent before its
effect, a result before the next request. (With `run.hold` a reply or a result waits for the append that comes next.) So
a crash anywhere leaves a log from which the same loop can resume: `react` begins with the calls that the log left open.
Everything else (permissions, limits, retries, compaction, tracing) is behind functions of the run, and the loop does
not know about it.
"""

import asyncio
import inspect
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from perdure._core.log.repair import ENDING_PARENT_ENDED, build_child_repairs, build_direct_call_repairs
from perdure._core.log.store import clear_pending_cancel
from perdure._core.model.protocol import CONCLUDED_FOR, sanitize_reply
from perdure._core.tools.results import RunSuspended, build_truncated_reply_result
from perdure._core.values import checks, faults
from perdure._core.values.engine_event import GuardrailTripped
from perdure._core.values.error import LimitExceeded, StoreError, UsageError
from perdure._core.values.event import MessageAdded, ToolsChanged, TurnEnded, TurnStarted
from perdure._core.values.message import Message, Status, StopReason, ToolResult, is_cut_short, is_empty, user

from .calling_run import build_label_events, enter_run, leave_run, list_seen_labels
from .costs import count_unreported_reply
from .ending import (
    build_open_call_results,
    build_run_ended,
    discard_open_aside_replies,
    end_cancelled_run,
    end_failed_run,
    suspend_run,
)
from .outcome import Outcome
from .run import Run
from .spec import Accepted, Engine, Retry, call_engine
from .stop import Guardrail, Halt, Nudge, Step, call_guardrails, evaluate_condition
from .tool_calls.batch import carry_out_calls
from .tool_calls.preparation import prepare_calls, store_results_without_running
from .turn import (
    add_messages,
    collect_reply,
    deliver_due_messages,
    explain_or_reject_empty_reply,
    process_history,
    run_between_turns,
    store_delivery,
    store_log_only_events,
)

TOOL_USE, DENIED = StopReason.TOOL_USE, Status.DENIED  # members of an enum are slow to look up
TURNS_BETWEEN_YIELDS = 8
"""Turns after which a watched run yields to other tasks: its model and tools may never await anything, and a watcher
that is not called misses events when its buffer is full."""


async def execute(run: Run, engine: Engine) -> Outcome[Any]:
    """Perform a run with this engine, store how it ended, and return its outcome, also after an error or a cancel."""
    run.task = asyncio.current_task()
    run.engine = engine
    token = enter_run(run)
    run.joins_appends = engine is react and not run.calls_code_between_turns
    run.start_timer()
    try:
        if run.leaving_reason:  # this process was asked to leave it before it began
            return await suspend_run(run)
        outcome = await (end_cancelled_run(run) if run.is_interrupted else call_engine(engine, run))
        checks.require_return_type("engine", engine, outcome, Outcome, "an Outcome, such as run.outcome('done')")
    except asyncio.CancelledError as error:
        if run.leaving_reason:
            return await suspend_run(run)
        outcome = await (end_cancelled_run(run) if run.is_interrupted else end_failed_run(run, error))
    except RunSuspended:
        return await suspend_run(run)
    except StoreError:
        raise  # the end cannot be stored either; the log is repaired when the session is opened again
    except Exception as error:  # noqa: BLE001 - any error becomes an outcome that keeps the work done so far
        outcome = await end_failed_run(run, error)
    finally:
        leave_run(token)
        run.stop_timer()
    if run.scratch:
        from .answers import end_with_fallback_answer  # at first use: an engine of few runs has one

        outcome = end_with_fallback_answer(run, outcome)
        run.closing_events += build_label_events(run)
        outcome = replace(outcome, labels=tuple(list_seen_labels(run)))
    if run.state.aside_requests:
        outcome = await discard_open_aside_replies(run, outcome)
    if run.mailbox.log_only_events:
        with suppress(asyncio.CancelledError):
            await store_log_only_events(run)
    with suppress(asyncio.CancelledError):  # the events are stored and the run is over: nothing is left to cancel
        await run.emit(
            *run.closing_events,
            *build_direct_call_repairs(run.state),
            *build_child_repairs(run.state, ENDING_PARENT_ENDED),
            build_run_ended(run, outcome),
            sync=True,
        )
    if run.is_interrupted:  # perhaps by a tool of its own, in whose task nothing was awaited since
        await clear_pending_cancel()
    return outcome


async def react(run: Run) -> Outcome[Any]:
    """The default engine: alternate model turns and tool calls until there is a reason to stop."""
    reply = run.state.last_reply  # after a resume: the last stored reply, if nothing follows it yet
    while True:
        if reply is None:
            try:
                reply = await (run_turn(run) if run.spec.around_turn is not None else run_turn_without_middleware(run))
            except LimitExceeded as stop:
                return run.outcome("limit", stop.limit)
        outcome = await (handle_tool_calls(run, reply) if reply.tool_calls else handle_answer(run, reply))
        if run.fanout.is_watched:
            run.publish(TurnEnded(run.state.turns, run.state.usage, run_id=run.run_id, path=run.path))
            if outcome is None and not run.state.turns % TURNS_BETWEEN_YIELDS:
                await asyncio.sleep(0)
        if outcome is not None:
            return outcome
        reply = None


# -- one turn of the model ---------------------------------------------------------------------------------------------


async def run_turn(run: Run) -> Message:
    """Request the next reply of the conversation from the model, publish it while it streams, and store it.

    Queued messages are delivered first. Raises `LimitExceeded` if a limit of the run forbids the request. Middleware
    around turns is called around all of this.
    """
    if run.spec.around_turn is not None:
        return await run.spec.around_turn(run, lambda: run_turn_without_middleware(run))
    return await run_turn_without_middleware(run)


async def run_turn_without_middleware(run: Run) -> Message:
    """Run a turn inside the middleware: check the limits, deliver queued messages, request the reply and store it."""
    if limit := run.find_reached_limit():
        raise LimitExceeded(limit)
    check_last_turn_ended(run)
    run.has_turn_in_progress = True
    try:
        if run.mailbox.has_messages_due and not run.state.is_steered and not run.is_paused:
            await deliver_due_messages(run)
        if changed := run.take_tool_changes():
            await run.emit(ToolsChanged(changed, run_id=run.run_id, path=run.path))
        if run.spec.between_turns or run.mailbox.log_only_events:
            await run_between_turns(run)
        messages, processor = run.state.view, run.options.history_processor
        request = run.build_request(messages if processor is None else await process_history(processor, messages))
        requested = run.build_request_events(request)
        if run.fanout.is_watched:
            run.publish(TurnStarted(requested[-1].turn, run_id=run.run_id, path=run.path))
        await run.emit(*requested)
        faults.fault_point("loop.requested")
        reply = sanitize_reply(await collect_reply(run, request), run.state.call_ids)
        if is_empty(reply):
            reply = await explain_or_reject_empty_reply(run, request, reply)
        run.partial_reply = None
        if reply.usage is None:
            count_unreported_reply(run, requested[-1], reply)
        faults.fault_point("loop.replied")
        added = MessageAdded(reply, run_id=run.run_id, path=run.path)
        if not run.hold((added,)):  # else it is stored with the intents of its calls, or with the end of the run
            await run.emit(added)
            faults.fault_point("loop.reply_stored")
        return reply
    finally:
        run.has_turn_in_progress = False


def check_last_turn_ended(run: Run) -> None:
    """Raise `UsageError` if the last turn, or a tool call of it, is not finished.

    Raises `RunSuspended` if this process leaves the run for another one to resume.
    """
    if run.leaving_reason:
        raise RunSuspended
    if run.has_turn_in_progress:
        raise UsageError("this run waits for a reply already: await run_turn(run) before you call it again")
    if run.state.open_calls:
        raise UsageError("the calls of the last reply have no results yet: await act(run, reply) before the next turn")


# -- after a reply -----------------------------------------------------------------------------------------------------


async def handle_answer(run: Run, reply: Message) -> Outcome[Any] | None:
    """Handle a reply without tool calls: return the outcome, or `None` if the run goes on.

    It goes on if messages are queued or an output validator asks for another attempt, unless a limit is reached or the
    stop condition is true.
    """
    if run.cancel_mode is not None:
        return run.outcome("cancelled", "cancelled")
    if is_cut_short(reply):
        return run.outcome("stopped", str(reply.stop))
    limit = run.find_reached_limit()
    if run.mailbox.has_messages_due and not limit:
        return None
    is_stopped = run.spec.stop is not None and await evaluate_condition(
        run.spec.stop, Step(run.state.turns, reply, (), (), run.state.messages)
    )
    if reply.stop is StopReason.PAUSE:  # the provider has not finished it, and goes on when it is sent back
        return run.outcome("stopped", "stop_condition") if is_stopped else None
    for accept in run.spec.output_validators:
        verdict = accept(run, reply)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        if not isinstance(verdict, Accepted):
            checks.require_return_type("output_validators", accept, verdict, Retry, "Accepted() or Retry(…)")
            if limit or is_stopped:
                return run.outcome("limit", limit) if limit else run.outcome("stopped", "stop_condition")
            beside = () if verdict.event is None else (run.stamp_event(verdict.event),)
            await add_messages(run, [user(verdict.feedback, origin=verdict.origin)], *beside)
            return None
    if run.mailbox.follow_ups and not limit and not is_stopped:
        await store_delivery(run, run.mailbox.take_follow_ups())
        return None
    return run.outcome("done", str(reply.metadata.get(CONCLUDED_FOR, "")))


async def handle_tool_calls(run: Run, reply: Message) -> Outcome[Any] | None:
    """Carry out the tool calls of a reply; return the outcome, or `None` if the run goes on.

    Queued steering messages take precedence over every reason to stop, except a cancel or a limit.
    """
    results = await act(run, reply) if run.state.open_calls else run.state.latest_results
    if run.cancel_mode is not None:
        return run.outcome("cancelled", "cancelled")
    if run.mailbox.has_messages_due and not run.find_reached_limit():
        return None
    if is_ended_by_tools(results):
        return run.outcome("stopped", "terminated")
    step = Step(run.state.turns, reply, reply.tool_calls, results, run.state.messages)
    if run.spec.stop is not None and await evaluate_condition(run.spec.stop, step):
        return run.outcome("stopped", "stop_condition")
    objecting = call_guardrails(run.spec.guardrails, step)
    tripped = () if objecting is None else await objecting
    return await apply_guardrail_verdicts(run, tripped) if tripped and not run.find_reached_limit() else None


async def act(run: Run, reply: Message) -> Sequence[ToolResult]:
    """Carry out the tool calls of a stored reply: each gets exactly one result, stored in the order of the calls."""
    in_doubt = run.state.begun_call_ids  # calls started before a crash: their effects are unknown
    try:
        if (stop := reply.stop) is not TOOL_USE and (stop is StopReason.LENGTH or stop is StopReason.CONTENT_FILTER):
            await store_results_without_running(
                run, [build_truncated_reply_result(call, stop) for call in run.state.unsettled_calls]
            )
        else:
            if run.spec.between_turns or run.mailbox.log_only_events:
                await run_between_turns(run)
            prepared_calls = await prepare_calls(run, run.state.unsettled_calls)
            labels = list_seen_labels(run)
            if run.spec.gate is not None or [each for each in prepared_calls if each.needs_permission(labels)]:
                from .tool_calls.approval import filter_permitted  # at first use: many agents need no permission

                await run.store_held_events()  # a person may be asked
                prepared_calls = await filter_permitted(run, prepared_calls)
            await carry_out_calls(run, prepared_calls)
    except asyncio.CancelledError:
        if not run.leaving_reason:  # else whoever resumes the run carries them out
            await store_results_without_running(run, build_open_call_results(run, in_doubt))
        raise
    if run.state.unsettled_reply is not None:  # a cancel with `after_tools` kept some of the calls from starting
        await store_results_without_running(run, build_open_call_results(run, in_doubt))
    return run.state.latest_results


def is_ended_by_tools(results: Sequence[ToolResult]) -> bool:
    """Return True if every executed call asks to end the run, and none of them failed."""
    ran = False
    for result in results:
        if result.status is not DENIED:
            if result.is_error or not result.terminate:
                return False
            ran = True
    return ran


async def apply_guardrail_verdicts(run: Run, verdicts: Sequence[tuple[Guardrail, Nudge | Halt]]) -> Outcome[Any] | None:
    """Act on tripped guardrails: stop the run for a `Halt`, add a message to the conversation for each `Nudge`."""
    named = [(getattr(each, "__name__", type(each).__name__), verdict) for each, verdict in verdicts]
    for name, verdict in named:
        if isinstance(verdict, Halt):
            run.closing_events.append(GuardrailTripped(name, verdict.count, "halt", run_id=run.run_id, path=run.path))
            return run.outcome("stopped", name)
    nudges = [(name, verdict) for name, verdict in named if isinstance(verdict, Nudge)]
    tripped = [GuardrailTripped(name, each.count, "nudge", run_id=run.run_id, path=run.path) for name, each in nudges]
    await add_messages(run, [user(each.text, origin="guardrail") for _, each in nudges], *tripped)
    return None
