"""Requests to the model aside from the conversation, made by engines and tools: each is limited, stored and counted.

These requests are beside the conversation: an engine that asks for a plan or a vote, or a tool that asks the model of
its run. The replies of the conversation itself are requested by `run_turn`.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .error import ReplyCutOff, UsageError
from .event import (
    ErrorRaised,
    Event,
    FailedOver,
    ModelEvent,
    ModelReplied,
    ModelRequested,
    ReplyDiscarded,
    ReplyFinished,
    RetryScheduled,
)
from .message import Message, Usage, merge_labels
from .model import ModelInfo, Request, assemble_reply, model_info, sanitize_reply
from .model_without_limit_checks import get_model_without_limit_checks
from .provenance import list_message_labels, list_message_sources
from .reminders import find_unlogged_labels
from .run_cost import count_unreported_reply

if TYPE_CHECKING:
    from .run import Run

LEFT_OPEN = "left_open"
"""Reason of a discarded reply whose stream was still open when its run ended."""


class AsideModel:
    """The model of a run, for requests that are not part of the conversation. Wrappers such as `retried` accept it."""

    __slots__ = ("_run",)

    def __init__(self, run: "Run") -> None:
        self._run = run

    @property
    def info(self) -> ModelInfo:
        """The current facts about the model."""
        return model_info(get_model_without_limit_checks(self._run))

    def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Stream the reply to a request. It counts as a turn; at a limit of the run, `LimitExceeded` is raised."""
        return stream_aside_reply(self._run, request)

    def __repr__(self) -> str:
        return f"AsideModel({self.info.name!r})"


async def stream_aside_reply(
    run: "Run", request: Request, on_reply: Callable[[Message], object] | None = None
) -> AsyncGenerator[ModelEvent, None]:
    """Stream the reply to a request outside the conversation; limits are checked, and request and reply are stored.

    `on_reply` gets the whole reply. Watchers see retries and warnings, but not the text: it is no part of the answer.
    """
    requested = build_aside_request_event(run, request)
    turn, received = requested.turn, list[Any]()
    await run.emit(requested)
    stream = get_model_without_limit_checks(run).stream(request)
    try:
        async for event in stream:
            if type(event) is ReplyFinished:
                reply = sanitize_reply(assemble_reply(received, event))
                await run.emit(run.stamp_event(ModelReplied(turn, reply)))
                if reply.usage is None:
                    count_unreported_reply(run, requested, reply)
                if on_reply is not None:
                    on_reply(reply)
            elif isinstance(event, (RetryScheduled, FailedOver)):
                if received:
                    await discard_aside_reply(run, requested, received, type(event).__name__)
                    received.clear()
                run.publish_model_event(event)
            elif type(event) is ErrorRaised:
                run.publish_model_event(event)
            else:
                received.append(event)
            yield event
        _check_finished(run, turn)
    except BaseException as error:
        if (aclose := getattr(stream, "aclose", None)) is not None:
            await aclose()
        await discard_aside_reply(run, requested, received, type(error).__name__)
        raise


def _check_finished(run: "Run", turn: int) -> None:
    if turn in run.state.aside_requests:
        raise ReplyCutOff(f"the reply of {run.info.name} broke off before it was finished")


async def request_aside_reply(run: "Run", request: Request) -> Message:
    """Send a request outside the conversation, and return the whole reply."""
    replies: list[Message] = []
    async for _ in stream_aside_reply(run, request, replies.append):
        pass
    return replies[0]


def build_aside_request_event(run: "Run", request: Request) -> ModelRequested:
    """Build the event that records a request outside the conversation. Raises `LimitExceeded` if a limit is reached."""
    if run.run_id and run.state.run_ended_event is not None:
        raise UsageError(f"run {run.run_id} is over: its model can be asked while it runs")
    labelled = [each for each in request.messages if list_message_labels(each)]
    unlogged = find_unlogged_labels(run)
    return ModelRequested(
        run.begin_request(aside=True),
        1,
        run.info.name,
        run.info.provider,
        msgspec.to_builtins(request.settings),
        run.hash_prefix(request),
        len(request.messages),
        estimated_tokens=run.state.transcript.input_tokens.estimate(request.messages, run.prefix_tokens),
        aside=True,
        price_usd=run.stored_price,
        labels=merge_labels(*map(list_message_labels, labelled), unlogged),
        label_sources=merge_labels(*map(list_message_sources, labelled), unlogged.values()),
        run_id=run.run_id,
        path=run.path,
    )


async def discard_aside_reply(
    run: "Run", requested: ModelRequested, received: Sequence[ModelEvent], reason: str
) -> None:
    """Record an incomplete reply outside the conversation as discarded, unless the run has ended."""
    if requested.turn in run.state.aside_requests:
        await run.emit(build_aside_discarded_event(requested, assemble_reply(received), reason))


def build_aside_discarded_event(requested: ModelRequested, partial: Message, reason: str) -> ReplyDiscarded:
    """Build the event for a discarded reply to a request outside the conversation.

    If no usage was reported, its input tokens are estimated.
    """
    estimate = Usage(requested.estimated_tokens, precision="estimated")
    kept = msgspec.structs.replace(sanitize_reply(partial), usage=partial.usage or estimate)
    return ReplyDiscarded(requested.turn, reason, kept, aside=True, run_id=requested.run_id, path=requested.path)


def build_open_aside_discarded_events(run: "Run") -> Sequence[Event]:
    """Build a `ReplyDiscarded` event for each reply outside the conversation that is unfinished when the run ends."""
    return [
        build_aside_discarded_event(each, Message("assistant", ()), LEFT_OPEN)
        for each in run.state.aside_requests.values()
    ]
