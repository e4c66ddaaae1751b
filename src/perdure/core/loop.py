"""The loop. Read this first, from top to bottom.

    execute       a run, from its first event to its last
      react       a turn, its calls, again, until there is a reason to stop
        turn      ask the model, keep its reply
        act       give every call of the reply exactly one result
          prepare   resolve the tool, parse, hooks, validate      (`call.py`)
          permit    one question for the whole batch              (`call.py`)
          carry_out intents by wave, then the effects, some of them at once
          settle    one effect, one result                        (`effect.py`)

What must last is stored by `run.emit` before the loop goes on: a reply before any of its calls, an intent before its
effect, a result before the next question. So a crash anywhere leaves a log from which the same loop can go on: `react`
begins with the calls that the log left open. Everything else (permissions, limits, retries, compaction, tracing) is
behind a function that the run holds; the loop sees none of it.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from typing import Any, NoReturn, get_args

from . import check, faults
from .call import answer, permit, prepare, settled
from .effect import Job, Suspended, attempt, attempt_without_intent, cut_off, finish, not_started, unknown
from .error import EmptyReply, ModelError, ReplyCutOff, StoreError
from .event import (
    ErrorRaised,
    Event,
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
from .mailbox import Delivery
from .message import Message, Status, StopReason, ToolCall, ToolResult, user
from .model import Request, assemble, is_empty, sound
from .outcome import Outcome
from .plain import words_of
from .repair import LEFT_ALONE, repairs_below
from .run import Accepted, Again, Engine, Run, Shape
from .stop import Guardrail, Halt, Nudge, Step, holds
from .store import wait_through
from .tending import tend

SAID = frozenset(get_args(ModelEvent))
"""What a model says, as a rule."""
BREATH = 64
"""Deltas after which a stream that never waits lets others run, so that it can be watched and cancelled."""


async def execute(run: Run, engine: Engine) -> Outcome[Any]:
    """A run, from its first event to its last, whatever happens in between."""
    run.task = asyncio.current_task()
    timer = run.start_timer()
    try:
        outcome = await (given_up(run) if run.interrupted else engine(run))
        check.returned("engine", engine, outcome, Outcome, "an Outcome, such as run.outcome('done')")
    except asyncio.CancelledError as error:
        outcome = await (given_up(run) if run.interrupted else failed(run, error))
    except Suspended:
        return await suspended(run)
    except StoreError:
        raise  # what cannot be recorded cannot be concluded: opening the session again will repair it
    except Exception as error:  # noqa: BLE001 - whatever went wrong becomes an outcome that keeps the work
        outcome = await failed(run, error)
    finally:
        if timer is not None:
            timer.cancel()
    with suppress(asyncio.CancelledError):  # it is stored, and the run is over: there is nothing left to cancel
        await run.emit(*run.closing, *repairs_below(run.state, LEFT_ALONE), ended(run, outcome), sync=True)
    return outcome


async def suspended(run: Run) -> Outcome[Any]:
    """The run stands still, with its calls open, until somebody answers: it is not over, and nobody drives it."""
    waiting = RunWaiting(tuple([each.ask_id for each in run.state.questions]), run_id=run.run_id, path=run.path)
    with suppress(asyncio.CancelledError):  # it is stored, and there is nothing left to cancel
        await run.emit(waiting, sync=True)
    return run.outcome("waiting", "question")


async def given_up(run: Run) -> Outcome[Any]:
    """The end of a run that was cancelled, perhaps before it had begun."""
    await settle_rest(run)
    return run.interruption()


async def failed(run: Run, error: BaseException) -> Outcome[Any]:
    """The end of a run that something went wrong with: perhaps a cancel that nobody here has asked for."""
    await settle_rest(run)
    stray = ModelError(f"{run.info.name} was cancelled by something other than this run")
    return run.failure(error if isinstance(error, Exception) else stray)


async def settle_rest(run: Run) -> None:
    """Give a result to each call that the end of the run leaves open."""
    with suppress(asyncio.CancelledError):  # they are stored, and the run is over
        await answer(run, left_open(run, run.state.begun))


async def react(run: Run) -> Outcome[Any]:
    """Reason and act: the engine that all others are built around."""
    reply = run.state.unfollowed  # the log may have left a reply that nothing has followed yet
    while True:
        if reply is None:
            if limit := run.exhausted():
                return run.outcome("limit", limit)
            if run.mailbox.due and not run.state.steered:
                await deliver(run, run.mailbox.take_due(run.state.inbox))
            reply = await turn(run)
        outcome = await (after_calls(run, reply) if reply.tool_calls else after_answer(run, reply))
        if run.fanout.watched:
            run.show(TurnEnded(run.state.turns, run.state.usage, run_id=run.run_id, path=run.path))
        if outcome is not None:
            return outcome
        reply = None


# -- one turn of the model ---------------------------------------------------------------------------------------------


async def turn(run: Run) -> Message:
    """Ask the model, show its words as they come, and keep its reply."""
    if changed := run.take_tool_changes():
        await run.emit(ToolsChanged(changed, run_id=run.run_id, path=run.path))
    if run.upkeep or run.mailbox.notes:
        await tend(run)
    messages = run.state.view
    request = run.request(messages if run.shape is None else await shaped(run.shape, messages))
    requested = run.requested(request)
    if run.fanout.watched:
        run.show(TurnStarted(requested[-1].turn, run_id=run.run_id, path=run.path))
    await run.emit(*requested)
    faults.point("loop.requested")
    reply = sound(await listen(run, request), run.state.call_ids)
    if is_empty(reply):
        await discard(run, "empty", reply)
        raise EmptyReply(f"{run.info.name} answered with neither text nor calls (it stopped because of {reply.stop!s})")
    run.partial = None
    faults.point("loop.replied")
    await run.emit(MessageAdded(reply, run_id=run.run_id, path=run.path))
    faults.point("loop.reply_stored")
    return reply


async def shaped(shape: Shape, messages: Sequence[Message]) -> Sequence[Message]:
    """What the model is to see."""
    answer = shape(messages)
    seen = await answer if inspect.isawaitable(answer) else answer
    check.returned("shape", shape, None if isinstance(seen, str) else seen, Sequence, "a list of messages")
    return seen


async def listen(run: Run, request: Request) -> Message:
    """Everything that the model says, put together. A reply that breaks off is told as discarded, never kept."""
    heard: list[ModelEvent] = []
    finished: ReplyFinished | None = None
    stream = run.model.stream(request)
    try:
        async for event in stream:
            if type(event) is ReplyFinished:
                finished = event
            elif type(event) is RetryScheduled or type(event) is FailedOver:
                if heard:
                    await discard(run, type(event).__name__, assemble(heard))
                    heard.clear()
                run.relay(event)
            elif type(event) is ErrorRaised:
                run.relay(event)  # a warning, and no part of the reply
            elif type(event) not in SAID and not isinstance(event, Event):  # the second is slow
                refuse(run, event)
            else:
                heard.append(event)
                if run.fanout.watched:
                    run.relay(event)
                    if run.fanout.congested:
                        await run.fanout.room()
                if not len(heard) % BREATH:
                    await asyncio.sleep(0)
    except BaseException as error:
        await close(stream)
        await broken_off(run, heard, type(error).__name__)
        raise
    if finished is None:
        await broken_off(run, heard, ReplyCutOff.__name__)
        raise ReplyCutOff(f"the reply of {run.info.name} broke off before it was finished")
    return assemble(heard, finished)


async def broken_off(run: Run, heard: Sequence[ModelEvent], reason: str) -> None:
    """Keep what had come of a reply, to be looked at; it is no part of the conversation."""
    if heard:
        run.partial = assemble(heard)
        await discard(run, reason, run.partial)


def refuse(run: Run, event: object) -> NoReturn:
    """Whoever wrote this model has to know."""
    raise ModelError(f"{run.info.name} said {event!r}, which is no event: a model yields deltas and one ReplyFinished")


async def close(stream: AsyncIterator[ModelEvent]) -> None:
    """Let go of a stream that was left early."""
    aclose = getattr(stream, "aclose", None)
    if aclose is not None:
        await aclose()


async def discard(run: Run, reason: str, partial: Message) -> None:
    """Tell that what was shown of a reply is not part of the conversation."""
    await run.emit(ReplyDiscarded(run.state.turns, reason, partial, run_id=run.run_id, path=run.path))


# -- what follows a reply ----------------------------------------------------------------------------------------------


async def after_answer(run: Run, reply: Message) -> Outcome[Any] | None:
    """A reply without calls ends the run, unless somebody has more to say. `None` means: go on."""
    if run.cancelling is not None:
        return run.outcome("cancelled", "cancelled")
    if reply.stop is StopReason.LENGTH or reply.stop is StopReason.CONTENT_FILTER:
        return run.outcome("stopped", str(reply.stop))
    limit = run.exhausted()
    if run.mailbox.due and not limit:
        return None
    for accept in run.accept:
        verdict = accept(run, reply)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        if not isinstance(verdict, Accepted):
            check.returned("accept", accept, verdict, Again, "Accepted() or Again(…)")
            if limit:
                return run.outcome("limit", limit)
            beside = () if verdict.event is None else (run.stamped(verdict.event),)
            await inject(run, [user(verdict.feedback, origin=verdict.origin)], *beside)
            return None
    if run.mailbox.follow_ups and not limit:
        await deliver(run, run.mailbox.take_follow_ups())
        return None
    return run.outcome("done")


async def after_calls(run: Run, reply: Message) -> Outcome[Any] | None:
    """Carry out the calls of the reply, then see whether to go on. Steering outranks every reason to stop."""
    results = await act(run, reply) if run.state.open_calls else run.state.latest_results
    if run.cancelling is not None:
        return run.outcome("cancelled", "cancelled")
    if run.mailbox.due and not run.exhausted():
        return None
    if terminated(results):
        return run.outcome("stopped", "terminated")
    step = Step(run.state.turns, reply, reply.tool_calls, results, run.messages)
    if run.stop is not None and await holds(run.stop, step):
        return run.outcome("stopped", "stop_condition")
    tripped = [(each, verdict) for each in run.guardrails if (verdict := each(step)) is not None]
    return await guard(run, tripped) if tripped and not run.exhausted() else None


def terminated(results: Sequence[ToolResult]) -> bool:
    """Whether every call that was carried out asks for the end, and none of them failed."""
    ran = False
    for result in results:
        if result.status is not Status.DENIED:
            if result.is_error or not result.terminate:
                return False
            ran = True
    return ran


async def guard(run: Run, verdicts: Sequence[tuple[Guardrail, Nudge | Halt]]) -> Outcome[Any] | None:
    """Stop a model that goes in circles, or tell it so first."""
    named = [(getattr(each, "__name__", type(each).__name__), verdict) for each, verdict in verdicts]
    for name, verdict in named:
        if isinstance(verdict, Halt):
            run.closing.append(GuardrailTripped(name, verdict.count, "halt", run_id=run.run_id, path=run.path))
            return run.outcome("stopped", name)
    nudges = [(name, verdict) for name, verdict in named if isinstance(verdict, Nudge)]
    tripped = [GuardrailTripped(name, each.count, "nudge", run_id=run.run_id, path=run.path) for name, each in nudges]
    if nudges:
        await inject(run, [user(each.text, origin="guardrail") for _, each in nudges], *tripped)
    return None


async def deliver(run: Run, delivery: Delivery) -> None:
    """Tell the model what has come from outside. Storing it takes it out of the mailbox, in the same append."""
    events, names = delivery
    await run.emit(*[run.stamped(each) for each in events], names=names)
    faults.point("loop.delivered")


async def inject(run: Run, messages: Sequence[Message], *beside: Event) -> None:
    """Add messages to the conversation, which therefore goes on; in the same append, what there is to be said of it."""
    await run.emit(*beside, *[MessageAdded(each, run_id=run.run_id, path=run.path) for each in messages])


# -- the calls of a reply ----------------------------------------------------------------------------------------------


async def act(run: Run, reply: Message) -> Sequence[ToolResult]:
    """Give every call of the stored reply exactly one result, in the order of the calls, whatever happens."""
    in_doubt = run.state.begun  # before a crash
    try:
        if reply.stop is StopReason.LENGTH or reply.stop is StopReason.CONTENT_FILTER:
            await answer(run, [cut_off(call, reply.stop) for call in run.state.unsettled])
        else:
            if run.upkeep or run.mailbox.notes:
                await tend(run)
            jobs = await prepare(run, run.state.unsettled)
            if run.gate is not None or [job for job in jobs if job.needs_permission()]:
                jobs = await permit(run, jobs)
            await carry_out(run, jobs)
    except asyncio.CancelledError:
        await answer(run, left_open(run, in_doubt))
        raise
    if run.state.reply is not None:  # a cancel that waits for the tools has kept some of them from beginning
        await answer(run, left_open(run, in_doubt))
    return run.state.latest_results


def left_open(run: Run, in_doubt: Collection[str]) -> list[ToolResult]:
    """The results of calls that are not carried out any more: they had no effect, unless a crash left that in doubt."""
    return [unknown(call) if call.call_id in in_doubt else not_started(call) for call in run.state.unsettled]


async def carry_out(run: Run, jobs: Sequence[Job]) -> None:
    """Run the jobs, up to the limit at a time. A tool that is not parallel has the floor to itself."""
    if len(jobs) == 1:  # alone: a task of its own would only cost time
        await intend(run, jobs)
        await settle(run, jobs[0])
        if jobs[0].suspended:
            raise Suspended
        return
    waiting = deque(jobs)
    running: dict[asyncio.Task[None], Job] = {}
    try:
        while waiting or running:
            if run.cancelling == "after_tools":
                waiting.clear()
            wave = next_wave(waiting, running.values(), run.limits.max_parallel_tools)
            if wave:
                await intend(run, wave)
            running |= {asyncio.ensure_future(settle(run, job)): job for job in wave}
            if running:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in [each for each in running if each.done()]:
                del running[task]
                task.result()
    except BaseException:
        for task, job in running.items():
            job.interrupted = True
            task.cancel()
        await wait_through(running)
        for task in running:
            _ = task.cancelled() or task.exception()  # looked at: one error is told, and asyncio complains of no other
        raise
    if [job for job in jobs if job.suspended]:  # all others are settled: the run waits with the one that does
        raise Suspended


def next_wave(waiting: deque[Job], running: Collection[Job], limit: int) -> list[Job]:
    """The jobs that get their place now, in the order of the calls."""
    wave: list[Job] = []
    while waiting and len(running) + len(wave) < limit:
        alone = not waiting[0].tool.parallel
        if alone and (running or wave):
            break
        wave.append(waiting.popleft())
        if alone:
            break
    return wave


async def intend(run: Run, wave: Sequence[Job]) -> None:
    """Store that these effects are about to begin. Unless all of them only read, not even a power cut may forget it."""
    faults.point("loop.before_intent")
    if run.interrupted_by:  # and somebody has swallowed the cancel: nothing may begin any more
        raise asyncio.CancelledError
    intents = [job.intent(run) for job in wave if not job.tool.asks_first]  # the others say when they begin
    if intents:
        await run.emit(*intents, sync=bool([None for intent in intents if intent.effect != "read"]))
    faults.point("loop.intent_stored")


async def settle(run: Run, job: Job) -> None:
    """One effect, one result: it is stored even when the run is being cancelled."""
    began = run.clock.monotonic()
    try:
        result = await (attempt_without_intent(run, job) if job.tool.asks_first else attempt(run, job))
    except Suspended:
        job.suspended = True
        return
    faults.point("loop.effect_done")
    if job.tool.finish or job.tool.summary is not None:
        result = await finish(run, job, result)
    await run.emit(*settled(run, result, run.clock.monotonic() - began))
    faults.point("loop.result_stored")
    if job.interrupted or run.interrupted_by:
        raise asyncio.CancelledError


def direct(call: ToolCall) -> Engine:
    """The engine of a call that no model has asked for: prepared, gated and logged like any other."""

    async def engine(run: Run) -> Outcome[Any]:
        try:
            jobs = await prepare(run, [call])
            await carry_out(run, await permit(run, jobs) if jobs else jobs)
        except asyncio.CancelledError:
            if run.state.latest is None or run.state.latest.call_id != call.call_id:
                await answer(run, [not_started(call)])
            raise
        finally:
            run.output = run.state.latest
        return run.outcome("done")

    return engine


def ended(run: Run, outcome: Outcome[Any]) -> RunEnded:
    """The last event of a run."""
    return RunEnded(
        outcome.status,
        outcome.reason,
        "" if outcome.error is None else words_of(outcome.error),
        outcome.usage,
        outcome.cost_usd,
        outcome.steps,
        run_id=run.run_id,
        path=run.path,
    )
