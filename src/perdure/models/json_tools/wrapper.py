"""Wrap a model without tool support: tools are described in the prompt, and JSON in its replies becomes tool calls."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from perdure.core.error import ConfigError
from perdure.core.event import (
    CitationAdded,
    FailedOver,
    ModelEvent,
    ReplyFinished,
    RetryScheduled,
    TextDelta,
    ToolCallDelta,
)
from perdure.core.message import Citation, Part, StopReason, Text
from perdure.core.model import Model, Request, assemble_reply, model_info
from perdure.core.model_and_tool_wrappers import WrappedModel, open_stream

from .history_rewriter import MessageRewriter
from .reply_parser import JsonReplyParser
from .toolless_request import build_toolless_request

MAX_CALLS = 64
"""Maximum number of tool calls in one reply; later ones are ignored."""


def json_tools(model: Model) -> Model:
    """Wrap a model without tool support so that it calls tools by writing JSON, which is parsed from its replies.

    The form of the reply is enforced through `Request.output` if the model supports that (its `ModelInfo` says
    `native`); otherwise it is only asked for, and parsed leniently.
    """
    given: Any = model
    if isinstance(given, type) or not callable(getattr(given, "stream", None)):
        raise ConfigError(f"json_tools({given!r}): give a model object; perdure.open_model(…) opens one by its name")
    enforced = model_info(model).output == "native"
    retold = MessageRewriter()

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        hearing = _ReplyTranslator(request) if request.tools else None
        async with open_stream(model, build_toolless_request(request, retold, enforced=enforced)) as events:
            async for event in events:
                for told in (event,) if hearing is None else hearing.translate_event(event):
                    yield told

    return WrappedModel(model, stream)


_PartType = TypeVar("_PartType", bound=Part)


def _without_span(part: _PartType) -> _PartType:
    """Return a part; a citation loses its position, which refers to the JSON and not to the text in it."""
    return replace(part, start=None, end=None) if isinstance(part, Citation) else part


class _ReplyTranslator:
    """Translator of the events of one JSON reply into those of a reply with tool calls."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._start_reply()

    def _start_reply(self) -> None:
        settings = self._request.settings
        most_calls = 1 if settings.parallel_tool_calls is False else MAX_CALLS
        self._reply = JsonReplyParser(
            f"json_{len(self._request.messages)}_",
            most_calls=0 if settings.tool_choice == "none" else most_calls,
            structured=self._request.output is not None,
        )
        self._has_deltas = False
        self._emitted: list[ModelEvent] = []

    def translate_event(self, event: ModelEvent) -> Sequence[ModelEvent]:
        """Return the events to emit in place of one event of the wrapped model."""
        if type(event) is TextDelta:
            self._has_deltas = True
            return self._record_events(self._reply.feed(event.text))
        if type(event) is ReplyFinished:
            return self._translate_finish(event)
        if type(event) is CitationAdded:
            return (CitationAdded(_without_span(event.citation)),)
        if isinstance(event, (RetryScheduled, FailedOver)):  # earlier output is void
            self._start_reply()
        return (event,)

    def _record_events(self, events: Sequence[ModelEvent]) -> Sequence[ModelEvent]:
        self._emitted += events
        return events

    def _translate_finish(self, event: ReplyFinished) -> Sequence[ModelEvent]:
        whole = event.message
        untold: list[ModelEvent] = []
        if whole is not None and not self._has_deltas:
            untold += self._record_events(self._reply.feed(whole.text))
        untold += self._record_events(self._reply.end())
        if whole is None:
            return [*untold, replace(event, stop=self._get_stop_reason(event.stop))]
        others = [_without_span(part) for part in whole.parts if not isinstance(part, Text)]
        parts = (*others, *assemble_reply(self._emitted, ReplyFinished()).parts)
        stop = self._get_stop_reason(whole.stop or event.stop)
        return [*untold, replace(event, stop=stop, message=replace(whole, parts=parts, stop=stop))]

    def _get_stop_reason(self, stop: StopReason | None) -> StopReason | None:
        """Return the stop reason. Emitted tool calls are complete, even if the text after them was cut off."""
        called = any(type(event) is ToolCallDelta for event in self._emitted)
        return StopReason.TOOL_USE if called else stop
