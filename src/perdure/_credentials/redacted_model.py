"""Wrap a model so that secrets are redacted from its requests and replies, for one agent or for several together."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TypeAlias, cast
from weakref import WeakSet

import msgspec

from perdure._core.model.protocol import Model, Request
from perdure._core.model.wrappers import WrappedModel, open_stream
from perdure._core.values.event import (
    FailedOver,
    ModelEvent,
    ReplyFinished,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from perdure._core.values.message import Message

from .fixed_redactor import FixedSecretsRedactor, RedactingStream
from .redactor import Redactor, has_secret, redact_error

_MOST_SESSIONS = 64
_Delta: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta
_Key: TypeAlias = tuple[type, int]


def redacted_model(model: Model, redactor: Redactor) -> Model:
    """Wrap a model so that the secrets that the redactor knows are redacted from its requests and replies."""
    sent = _RedactedMessages()

    def stream(request: Request) -> AsyncIterator[ModelEvent]:
        fixed = redactor.fixed_redactor
        if fixed is None:
            return model.stream(request)
        return _stream_redacted(model, sent.redact_request(request, fixed), fixed)

    return WrappedModel(model, stream)


async def _stream_redacted(model: Model, request: Request, fixed: FixedSecretsRedactor) -> AsyncIterator[ModelEvent]:
    reply = ReplyRedactor(fixed)
    try:
        async with open_stream(model, request) as events:
            async for event in events:
                for each in reply.redact_event(event):
                    yield each
        return
    except Exception as error:
        if not has_secret(error, fixed):
            raise
        failure = redact_error(error, fixed)
    raise failure  # not inside `except`, where the original would be chained to it


class ReplyRedactor:
    """Redacts secrets from the streamed events of one model reply, also secrets that are split across events."""

    __slots__ = ("_changed", "_fixed", "_last", "_streams")

    def __init__(self, fixed: FixedSecretsRedactor) -> None:
        self._fixed = fixed
        self._streams: dict[_Key, tuple[_Delta, RedactingStream]] = {}
        self._changed: set[_Key] = set()
        self._last: _Key | None = None

    def redact_event(self, event: ModelEvent) -> Iterator[ModelEvent]:
        """Take the next event of the reply; yield the redacted events that can be shown by now."""
        if isinstance(event, (TextDelta, ThinkingDelta, ToolCallDelta)):
            yield from self._redact_delta(event)
            return
        if isinstance(event, ReplyFinished):
            yield from self._flush_streams(list(self._streams))
        elif isinstance(event, (RetryScheduled, FailedOver)):  # it begins anew
            self._streams.clear()
            self._changed.clear()
        yield self._fixed.redact_value(event)

    def _redact_delta(self, event: _Delta) -> Iterator[ModelEvent]:
        key: _Key = (type(event), 0 if isinstance(event, TextDelta) else event.index)
        last, self._last = self._last, key
        if last is not None and last != key and last[0] is not ToolCallDelta:
            yield from self._flush_streams([last])
        if isinstance(event, ToolCallDelta) and event.call_id and key in self._streams:
            first = self._streams[key][0]
            if isinstance(first, ToolCallDelta) and first.call_id not in {"", event.call_id}:
                yield from self._flush_streams([key])  # another call under the same number
        _, stream = self._streams.setdefault(key, (event, RedactingStream(self._fixed)))
        yield from self._emit_delta(event, key, stream)

    def _emit_delta(self, event: _Delta, key: _Key, stream: RedactingStream) -> Iterator[ModelEvent]:
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
        if event.signature:  # the last delta
            text += stream.end()
        if stream.changed:
            self._changed.add(key)
        signature = "" if key in self._changed else event.signature  # it would not match the redacted text
        if text or signature or event.data or event.details:
            yield msgspec.structs.replace(event, text=text, signature=signature)

    def _flush_streams(self, keys: Sequence[_Key]) -> Iterator[ModelEvent]:
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


class _RedactedMessages:
    """Cache of redacted messages, so that each message of a conversation is redacted once."""

    __slots__ = ("_fixed", "_sessions")

    def __init__(self) -> None:
        self._fixed: FixedSecretsRedactor | None = None
        self._sessions: dict[str, dict[int, tuple[Message, Message]]] = {}

    def redact_request(self, request: Request, fixed: FixedSecretsRedactor) -> Request:
        """Return the request with the secrets redacted; the same object if it contains none."""
        if fixed is not self._fixed or len(self._sessions) > _MOST_SESSIONS:
            self._fixed, self._sessions = fixed, {}
        before = self._sessions.get(request.session_id, {})
        now: dict[int, tuple[Message, Message]] = {}
        for message in request.messages:
            known = before.get(id(message))
            now[id(message)] = (message, cast("Message", fixed.redact_value(message))) if known is None else known
        self._sessions[request.session_id] = now
        instructions = fixed.redact_text(request.instructions)
        messages = [now[id(message)][1] for message in request.messages]
        if instructions == request.instructions and all(new is old for old, new in now.values()):
            return request
        return msgspec.structs.replace(request, instructions=instructions, messages=messages)


class CombinedRedactor(Redactor):
    """Redactor that combines others: it redacts every secret that one of them knows, also one learned later."""

    __slots__ = ("_members", "_only")

    def __init__(self) -> None:
        super().__init__()
        self._members: WeakSet[Redactor] = WeakSet()
        self._only: Redactor | None = None

    def __contains__(self, redactor: object) -> bool:
        return redactor in self._members

    def add(self, redactor: Redactor) -> None:
        """Add a member, whose present and future secrets are redacted from now on."""
        if redactor in self:
            return
        self._only = None if self._members else redactor
        self._members.add(redactor)
        redactor.share_with(self)

    @property
    def fixed_redactor(self) -> FixedSecretsRedactor | None:
        """Filter that redacts the secrets of all members; `None` if there are none yet."""
        return (
            super().fixed_redactor if self._only is None else self._only.fixed_redactor
        )  # which is made already, as a rule

    def model(self, model: Model) -> Model:
        """Wrap a model so that the secrets of all members are redacted from its requests and replies."""
        return redacted_model(model, self)
