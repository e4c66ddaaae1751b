"""The wrapper: asks in JSON, and tells the reply as if there were tools. Above: callers. Below: `question`, `reply`."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec.structs import replace

from perdure.core.error import ConfigError
from perdure.core.event import FailedOver, ModelEvent, ReplyFinished, RetryScheduled, TextDelta, ToolCallDelta
from perdure.core.message import StopReason, Text
from perdure.core.model import Model, Request, assemble, info_of
from perdure.core.wrap import Wrapped, listening

from .history import Retold
from .question import asked
from .reply import JsonReply

MOST_CALLS = 64
"""In one reply; a model that goes on for ever is not listened to."""


def json_tools(model: Model) -> Model:
    """Give tools to a model whose endpoint has none.

    The reply is held to its form by `Request.output` where the model takes that (its `ModelInfo` says `native`);
    elsewhere it is asked for, and read as well as can be.
    """
    given: Any = model
    if isinstance(given, type) or not callable(getattr(given, "stream", None)):
        raise ConfigError(f"json_tools({given!r}): give a model object; perdure.open_model(…) opens one by its name")
    enforced = info_of(model).output == "native"
    retold = Retold()

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        hearing = _Hearing(request) if request.tools else None
        async with listening(model, asked(request, retold, enforced=enforced)) as events:
            async for event in events:
                for told in (event,) if hearing is None else hearing.hear(event):
                    yield told

    return Wrapped(model, stream)


class _Hearing:
    """One reply, from the events of the model inside."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._begin()

    def _begin(self) -> None:
        settings = self._request.settings
        most_calls = 1 if settings.parallel_tool_calls is False else MOST_CALLS
        self._reply = JsonReply(
            f"json_{len(self._request.messages)}_",
            most_calls=0 if settings.tool_choice == "none" else most_calls,
            structured=self._request.output is not None,
        )
        self._in_pieces = False
        self._told: list[ModelEvent] = []

    def hear(self, event: ModelEvent) -> Sequence[ModelEvent]:
        """What an event says in this mode."""
        if type(event) is TextDelta:
            self._in_pieces = True
            return self._tell(self._reply.feed(event.text))
        if type(event) is ReplyFinished:
            return self._finished(event)
        if isinstance(event, (RetryScheduled, FailedOver)):  # what was said until now is void
            self._begin()
        return (event,)

    def _tell(self, events: Sequence[ModelEvent]) -> Sequence[ModelEvent]:
        self._told += events
        return events

    def _finished(self, event: ReplyFinished) -> Sequence[ModelEvent]:
        whole = event.message
        untold: list[ModelEvent] = []
        if whole is not None and not self._in_pieces:
            untold += self._tell(self._reply.feed(whole.text))
        untold += self._tell(self._reply.end())
        if whole is None:
            return [*untold, replace(event, stop=self._stop(event.stop))]
        others = [part for part in whole.parts if not isinstance(part, Text)]
        parts = (*others, *assemble(self._told, ReplyFinished()).parts)
        stop = self._stop(whole.stop or event.stop)
        return [*untold, replace(event, stop=stop, message=replace(whole, parts=parts, stop=stop))]

    def _stop(self, stop: StopReason | None) -> StopReason | None:
        """Why it stopped. A call that has been told is whole, even if what followed it was cut off."""
        called = any(type(event) is ToolCallDelta for event in self._told)
        return StopReason.TOOL_USE if called else stop
