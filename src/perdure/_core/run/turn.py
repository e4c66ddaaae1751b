"""The parts of a turn, in the order in which `loop.run_turn` calls them.

What has arrived for the conversation is delivered, pending changes are logged and the history is compacted; the history
processor shapes what is sent; the reply is collected from the model's stream, or recorded as discarded.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence
from typing import NoReturn, get_args

from msgspec.structs import replace

from perdure._core.model.protocol import Request, assemble_reply, find_empty_reply_reason, sanitize_reply
from perdure._core.people.mailbox import Delivery
from perdure._core.values import checks, faults
from perdure._core.values.error import EmptyReply, ModelError, ReplyCutOff
from perdure._core.values.event import (
    ErrorRaised,
    FailedOver,
    GrantRevoked,
    MessageAdded,
    ModelEvent,
    ReplyDiscarded,
    ReplyFinished,
    RetryScheduled,
)
from perdure._core.values.event_class import Event
from perdure._core.values.message import Message

from .requests import get_model_without_limit_checks
from .run import Run
from .spec import HistoryProcessor

REPLY_EVENT_TYPES = frozenset(get_args(ModelEvent)) - {ReplyFinished, RetryScheduled, FailedOver, ErrorRaised}
"""The types of events that are parts of a reply, for a fast membership test."""
DELTAS_BETWEEN_YIELDS = 64
"""Deltas after which a stream that never awaits yields to other tasks, so that it can be watched and cancelled."""


# -- before the request ------------------------------------------------------------------------------------------------


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


async def run_between_turns(run: Run) -> None:
    """Log pending changes (closed display slots, revoked permissions), then call the run's `between_turns` functions.

    Compaction is such a function. Events of the host program are stored too.
    """
    if run.mailbox.log_only_events:
        await store_log_only_events(run)
    for upkeep in run.spec.between_turns:
        work = upkeep(run)
        if inspect.isawaitable(work):
            await work


async def store_log_only_events(run: Run) -> None:
    """Store events that the model is not sent: closed slots, revoked grants, and events of the host program."""
    events, names = run.mailbox.take_log_only_events()
    await run.emit(*[run.stamp_event(each) for each in events], entry_ids=names)
    for event in events:
        if isinstance(event, GrantRevoked):
            from perdure._core.permission.inherited import list_chain_grants  # at first use: few programs revoke grants

            for _, grants in list_chain_grants(run.gate):
                grants.forget(event.grant_id, run.full_session_id)


async def process_history(processor: HistoryProcessor, messages: Sequence[Message]) -> Sequence[Message]:
    """Apply the history processor to the messages that are about to be sent."""
    answer = processor(messages)
    seen = await answer if inspect.isawaitable(answer) else answer
    checks.require_return_type(
        "history_processor", processor, None if isinstance(seen, str) else seen, Sequence, "a list of messages"
    )
    return seen


# -- the reply ---------------------------------------------------------------------------------------------------------


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


async def discard_partial_reply(run: Run, received: Sequence[ModelEvent], reason: str) -> None:
    """Record an incomplete reply as discarded, and set it as `run.partial` for inspection."""
    if received:
        run.partial_reply = assemble_reply(received)
        await record_discarded_reply(run, reason, run.partial_reply)


async def record_discarded_reply(run: Run, reason: str, partial: Message) -> None:
    """Store a `ReplyDiscarded` event, with the reason, for a model reply that is left out of the conversation.

    Watchers may have seen a part of it.
    """
    kept = sanitize_reply(partial)
    await run.emit(ReplyDiscarded(run.state.turns, reason, kept, run_id=run.run_id, path=run.path))


async def explain_or_reject_empty_reply(run: Run, request: Request, reply: Message) -> Message:
    """Return an empty reply with the stop reason that explains why it is empty. Raises `EmptyReply` if nothing does."""
    reason = find_empty_reply_reason(reply.stop, request)
    if reason is None:
        await record_discarded_reply(run, "empty", reply)
        raise EmptyReply(f"{run.info.name} answered with neither text nor calls (it stopped because of {reply.stop!s})")
    return replace(reply, stop=reason)
