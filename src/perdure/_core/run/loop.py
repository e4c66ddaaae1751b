"""The agent loop: ask the model, run its tool calls, repeat. Read this first, from top to bottom.

- `execute`: a run, from its first event to its last, by an engine such as `react`
  - `react`: a turn, then its tool calls, repeated until there is a reason to stop
    - `run_turn`: request a reply from the model, stream it, store it
    - `act`: give every tool call of the reply exactly one result
      - `prepare_calls`: resolve the tool, parse, hooks, validate (in `tool_calls/preparation.py`)
      - `filter_permitted`: one permission question for the whole batch (in `tool_calls/approval.py`)
      - `carry_out_calls`: store intents wave by wave, then execute the calls, several at a time
        - `execute_call`: execute one call (`tool_calls/execution.py`), store its one result

What must last is stored by `run.emit` before the loop goes on: a reply before any of its calls, an intent before its
effect, a result before the next request. (With `run.hold` a reply or a result waits for the append that comes next.) So
a crash anywhere leaves a log from which the same loop can resume: `react` begins with the calls that the log left open.
Everything else (permissions, limits, retries, compaction, tracing) is behind functions of the run, and the loop does
not know about it.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from typing import Any, NoReturn, get_args

from msgspec.structs import replace

from perdure._core.log.past_runs import count_unreported_reply
from perdure._core.log.repair import ENDING_PARENT_ENDED, build_child_repairs, build_direct_call_repairs
from perdure._core.log.status import has_unreported_task
from perdure._core.log.store import clear_pending_cancel, wait_despite_cancel
from perdure._core.model.protocol import CONCLUDED_FOR, Request, assemble_reply, find_empty_reply_reason, sanitize_reply
from perdure._core.people.mailbox import Delivery
from perdure._core.tools.results import (
    RunSuspended,
    build_interrupted_result,
    build_not_started_result,
    build_truncated_reply_result,
)
from perdure._core.tools.tool import REPEATABLE_EFFECTS
from perdure._core.values import checks, faults
from perdure._core.values.error import EmptyReply, LimitExceeded, ModelError, ReplyCutOff, StoreError, UsageError
from perdure._core.values.event import (
    ErrorRaised,
    FailedOver,
    GuardrailTripped,
    MessageAdded,
    ModelEvent,
    ReplyDiscarded,
    ReplyFinished,
    RetryScheduled,
    RunEnded,
    RunWaiting,
    ToolsChanged,
    TurnEnded,
    TurnStarted,
)
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import error_message
from perdure._core.values.message import (
    Message,
    Status,
    StopReason,
    ToolResult,
    is_cut_short,
    is_empty,
    merge_labels,
    user,
)

from .between_turns import run_between_turns, store_log_only_events
from .calling_run import build_label_events, enter_run, find_other_labels, leave_run, list_seen_labels
from .outcome import Outcome
from .requests import get_model_without_limit_checks
from .run import Run
from .spec import Accepted, Engine, HistoryProcessor, Retry, call_engine
from .stop import Guardrail, Halt, Nudge, Step, call_guardrails, evaluate_condition
from .tool_calls.execution import (
    PreparedCall,
    add_tool_labels,
    run_call,
    run_call_with_deferred_intent,
    run_finish_hooks,
)
from .tool_calls.preparation import build_call_ending_events, prepare_calls, store_results_without_running

REPLY_EVENT_TYPES = frozenset(get_args(ModelEvent)) - {ReplyFinished, RetryScheduled, FailedOver, ErrorRaised}
"""The types of events that are parts of a reply, for a fast membership test."""
TOOL_USE, DENIED = StopReason.TOOL_USE, Status.DENIED  # members of an enum are slow to look up
DELTAS_BETWEEN_YIELDS = 64
"""Deltas after which a stream that never awaits yields to other tasks, so that it can be watched and cancelled."""
TURNS_BETWEEN_YIELDS = 8
"""Turns after which a watched run yields, for the same reason: its model and tools may never await anything, and a
watcher that is not called misses events when its buffer is full."""


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


async def discard_open_aside_replies(run: Run, outcome: Outcome[Any]) -> Outcome[Any]:
    """Record unfinished replies outside the conversation as discarded; return the outcome with their tokens added."""
    from .requests import build_open_aside_discarded_events  # at first use, which few runs have

    with suppress(asyncio.CancelledError):  # the events are stored, and the run is over
        await run.emit(*build_open_aside_discarded_events(run))
    return replace(outcome, usage=run.usage, cost_usd=run.cost_usd)


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


async def explain_or_reject_empty_reply(run: Run, request: Request, reply: Message) -> Message:
    """Return an empty reply with the stop reason that explains why it is empty. Raises `EmptyReply` if nothing does."""
    reason = find_empty_reply_reason(reply.stop, request)
    if reason is None:
        await record_discarded_reply(run, "empty", reply)
        raise EmptyReply(f"{run.info.name} answered with neither text nor calls (it stopped because of {reply.stop!s})")
    return replace(reply, stop=reason)


async def process_history(processor: HistoryProcessor, messages: Sequence[Message]) -> Sequence[Message]:
    """Apply the history processor to the messages that are about to be sent."""
    answer = processor(messages)
    seen = await answer if inspect.isawaitable(answer) else answer
    checks.require_return_type(
        "history_processor", processor, None if isinstance(seen, str) else seen, Sequence, "a list of messages"
    )
    return seen


async def collect_reply(run: Run, request: Request) -> Message:
    """Collect the events of the model's stream into one message.

    A reply that breaks off, or that a retry replaces, is recorded as discarded and is not part of the conversation.
    """
    received: list[ModelEvent] = []
    finished: ReplyFinished | None = None
    stream = get_model_without_limit_checks(run).stream(request)
    try:
        async for event in stream:
            if type(event) is ReplyFinished:
                finished = event
                continue
            if type(event) not in REPLY_EVENT_TYPES and not await is_part_of_reply(run, event, received):
                continue
            received.append(event)
            if run.fanout.is_watched:
                run.publish_model_event(event)
                if run.fanout.has_backpressure:
                    await run.fanout.wait_for_room()
            if not len(received) % DELTAS_BETWEEN_YIELDS:
                await asyncio.sleep(0)
    except BaseException as error:
        await close_stream(stream)
        await discard_partial_reply(run, received, type(error).__name__)
        raise
    if finished is None:
        await discard_partial_reply(run, received, ReplyCutOff.__name__)
        raise ReplyCutOff(f"the reply of {run.info.name} broke off before it was finished")
    return assemble_reply(received, finished)


async def is_part_of_reply(run: Run, event: ModelEvent, received: list[ModelEvent]) -> bool:
    """Return True if an event of the model's stream is part of the reply; publish retries and warnings, which are not.

    Before the notice of a retry, what was received of the reply so far is recorded as discarded. Raises `ModelError`
    for an object that is not an event.
    """
    if type(event) is RetryScheduled or type(event) is FailedOver:
        if received:
            await record_discarded_reply(run, type(event).__name__, assemble_reply(received))
            received.clear()
        run.publish_model_event(event)
        return False
    if type(event) is ErrorRaised:
        run.publish_model_event(event)  # a warning
        return False
    return isinstance(event, Event) or reject_non_event(run, event)


async def discard_partial_reply(run: Run, received: Sequence[ModelEvent], reason: str) -> None:
    """Record an incomplete reply as discarded, and set it as `run.partial` for inspection."""
    if received:
        run.partial_reply = assemble_reply(received)
        await record_discarded_reply(run, reason, run.partial_reply)


def reject_non_event(run: Run, event: object) -> NoReturn:
    """Raise `ModelError` because the model's stream yielded an object that is not an event."""
    raise ModelError(
        f"{run.info.name} yielded {event!r}, which is not an event: a model yields deltas and one ReplyFinished"
    )


async def close_stream(stream: AsyncIterator[ModelEvent]) -> None:
    """Close a model stream that was left before its end, if it can be closed."""
    aclose = getattr(stream, "aclose", None)
    if aclose is not None:
        await aclose()


async def record_discarded_reply(run: Run, reason: str, partial: Message) -> None:
    """Store a `ReplyDiscarded` event, with the reason, for a model reply that is left out of the conversation.

    Watchers may have seen a part of it.
    """
    kept = sanitize_reply(partial)
    await run.emit(ReplyDiscarded(run.state.turns, reason, kept, run_id=run.run_id, path=run.path))


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


async def deliver_due_messages(run: Run) -> None:
    """Add steering messages and inbox results to the conversation, before the next turn."""
    if run.mailbox.log_only_events:  # an inbox item that the host has added comes before its result
        await store_log_only_events(run)
    await store_delivery(run, run.mailbox.take_due_messages(run.state.session_inbox, run.path))


async def store_delivery(run: Run, delivery: Delivery) -> None:
    """Add a delivery (messages and inbox results from outside) to the conversation, and remove it from the mailbox.

    The same append removes their posts from the mailbox.
    """
    events, names = delivery
    await run.emit(*[run.stamp_event(each) for each in events], entry_ids=names)
    faults.fault_point("loop.delivered")


async def add_messages(run: Run, messages: Sequence[Message], *events: Event) -> None:
    """Add messages to the conversation; they and the related `events` are stored in one append."""
    await run.emit(*events, *[MessageAdded(each, run_id=run.run_id, path=run.path) for each in messages])


# -- tool calls of a reply ---------------------------------------------------------------------------------------------


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
