"""A model that is not told any value, and in whose words none is kept. Above: assembly. Below: `redactor.py`.

A person may type a value, and a model may repeat it, piece by piece. A piece that may be the beginning of a value is
held back until it is clear, and what is left of it comes out in front of the end of the reply.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TypeAlias, cast

import msgspec

from perdure.core.event import (
    FailedOver,
    ModelEvent,
    ReplyFinished,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from perdure.core.message import Message
from perdure.core.model import Model, Request
from perdure.core.wrap import Wrapped, listening

from .redactor import Redactor
from .scrub import ScrubbedStream, Scrubber
from .scrub_error import gives_away, scrubbed_error

_MOST_SESSIONS = 64
_Delta: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta
_Key: TypeAlias = tuple[type, int]


def scrubbed_model(model: Model, redactor: Redactor) -> Model:
    """The same model, with the values that the redactor knows taken out of its requests and its replies."""
    sent = _Sent()

    def stream(request: Request) -> AsyncIterator[ModelEvent]:
        scrubber = redactor.scrubber
        if scrubber is None:
            return model.stream(request)
        return _scrubbed(model, sent.request(request, scrubber), scrubber)

    return Wrapped(model, stream)


async def _scrubbed(model: Model, request: Request, scrubber: Scrubber) -> AsyncIterator[ModelEvent]:
    reply = ScrubbedReply(scrubber)
    try:
        async with listening(model, request) as events:
            async for event in events:
                for each in reply.take(event):
                    yield each
        return
    except Exception as error:
        if not gives_away(error, scrubber):
            raise
        failure = scrubbed_error(error, scrubber)
    raise failure  # and not above, where the first one would be chained to it


class ScrubbedReply:
    """One reply on its way: which text goes on in which piece."""

    __slots__ = ("_changed", "_last", "_scrubber", "_streams")

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self._streams: dict[_Key, tuple[_Delta, ScrubbedStream]] = {}
        self._changed: set[_Key] = set()
        self._last: _Key | None = None

    def take(self, event: ModelEvent) -> Iterator[ModelEvent]:
        """What is clear by now, in the order in which it was told."""
        if isinstance(event, (TextDelta, ThinkingDelta, ToolCallDelta)):
            yield from self._delta(event)
            return
        if isinstance(event, ReplyFinished):
            yield from self._rest(list(self._streams))
        elif isinstance(event, (RetryScheduled, FailedOver)):  # it begins anew
            self._streams.clear()
            self._changed.clear()
        yield self._scrubber.value(event)

    def _delta(self, event: _Delta) -> Iterator[ModelEvent]:
        key: _Key = (type(event), 0 if isinstance(event, TextDelta) else event.index)
        last, self._last = self._last, key
        if last is not None and last != key and last[0] is not ToolCallDelta:
            yield from self._rest([last])
        if isinstance(event, ToolCallDelta) and event.call_id and key in self._streams:
            first = self._streams[key][0]
            if isinstance(first, ToolCallDelta) and first.call_id not in {"", event.call_id}:
                yield from self._rest([key])  # another call under the same number
        _, stream = self._streams.setdefault(key, (event, ScrubbedStream(self._scrubber)))
        yield from self._told(event, key, stream)

    def _told(self, event: _Delta, key: _Key, stream: ScrubbedStream) -> Iterator[ModelEvent]:
        if isinstance(event, ToolCallDelta):
            arguments = stream.feed(event.arguments)
            if arguments or event.call_id or event.name or event.signature:
                yield msgspec.structs.replace(event, arguments=arguments)
            return
        text = stream.feed(event.text)
        if isinstance(event, TextDelta):
            if text:
                yield msgspec.structs.replace(event, text=text)
            return
        if event.signature:  # which comes last
            text += stream.end()
        if stream.changed:
            self._changed.add(key)
        signature = "" if key in self._changed else event.signature  # it would prove what is not there any more
        if text or signature or event.data or event.details:
            yield msgspec.structs.replace(event, text=text, signature=signature)

    def _rest(self, keys: Sequence[_Key]) -> Iterator[ModelEvent]:
        for key in keys:
            entry = self._streams.pop(key, None)
            rest = "" if entry is None else entry[1].end()
            if not rest:
                continue
            if key[0] is TextDelta:
                yield TextDelta(rest)
            elif key[0] is ThinkingDelta:
                yield ThinkingDelta(rest, index=key[1])
            else:
                yield ToolCallDelta(arguments=rest, index=key[1])


class _Sent:
    """What was sent before, so that each message of a conversation is looked at once."""

    __slots__ = ("_scrubber", "_sessions")

    def __init__(self) -> None:
        self._scrubber: Scrubber | None = None
        self._sessions: dict[str, dict[int, tuple[Message, Message]]] = {}

    def request(self, request: Request, scrubber: Scrubber) -> Request:
        """The request without values; the very same one when there are none in it."""
        if scrubber is not self._scrubber or len(self._sessions) > _MOST_SESSIONS:
            self._scrubber, self._sessions = scrubber, {}
        before = self._sessions.get(request.session_id, {})
        now: dict[int, tuple[Message, Message]] = {}
        for message in request.messages:
            known = before.get(id(message))
            now[id(message)] = (message, cast("Message", scrubber.value(message))) if known is None else known
        self._sessions[request.session_id] = now
        instructions = scrubber.text(request.instructions)
        messages = [now[id(message)][1] for message in request.messages]
        if instructions == request.instructions and all(new is old for old, new in now.values()):
            return request
        return msgspec.structs.replace(request, instructions=instructions, messages=messages)
