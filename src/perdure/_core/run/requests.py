"""Requests of a run to its model: the reminders at their end, and requests aside from the conversation."""

import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure._core.model.protocol import Model, ModelInfo, Request, assemble_reply, model_info, sanitize_reply
from perdure._core.values import checks
from perdure._core.values.error import ReplyCutOff, UsageError
from perdure._core.values.event import (
    ErrorRaised,
    FailedOver,
    ModelEvent,
    ModelReplied,
    ModelRequested,
    ReplyDiscarded,
    ReplyFinished,
    RetryScheduled,
)
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import replace_surrogates
from perdure._core.values.message import Message, Usage, merge_labels, user
from perdure._core.values.provenance import list_message_labels, list_message_sources

from .calling_run import find_other_labels
from .costs import count_unreported_reply

if TYPE_CHECKING:
    from .run import Run
    from .spec import Reminder


def get_model_without_limit_checks(run: "Run") -> Model:
    """Return the model of a run without limit checks, for a caller that checks limits, stores and counts by itself.

    Once the session or one of its subagents has secrets, it redacts them in requests and in replies.
    """
    return run._get_unlimited_model()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - hidden from engines


PROJECT_SOURCE: Final = "program:project"
"""Source of the files of a project, such as AGENTS.md."""
_LABELS_KEY: Final = "perdure.request_labels"


def build_reminder_messages(run: "Run") -> list[Message]:
    """Build one message from the text of all reminders of a run; return an empty list if there is none."""
    texts = [text for each in run.spec.reminders if (text := _call_reminder(run, each))]
    return [user(replace_surrogates("\n\n".join(texts)), origin="reminder")] if texts else []


def label_requests(run: "Run", labels: Iterable[str], source: str) -> None:
    """Give labels to all further requests of a run, for text in them that is not in the log, such as a reminder."""
    run.scratch.setdefault(_LABELS_KEY, {}).update(dict.fromkeys(labels, source))


def find_unlogged_labels(run: "Run") -> dict[str, str]:
    """Return the labels of text that is sent with a request and is not in the log, each with its source.

    Those that the session has already are left out.
    """
    told = {**dict.fromkeys(run.spec.project_labels, PROJECT_SOURCE), **run.scratch.get(_LABELS_KEY, {})}
    missing = {label: source for label, source in told.items() if label not in run.state.labels}
    return {**missing, **find_other_labels(run)}


def _call_reminder(run: "Run", reminder: "Reminder") -> str | None:
    """Return the text of one reminder; report an error and return `None` if it fails."""
    try:
        text = reminder(run)
        if inspect.iscoroutine(text):
            text.close()  # never awaited
        if text is not None:
            checks.require_return_type(
                "reminder", reminder, text, str, "text or None, without await: async work belongs between turns"
            )
    except Exception as error:  # noqa: BLE001 - any error of a reminder
        run.report_error(error, "a reminder")
        return None
    return text


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
