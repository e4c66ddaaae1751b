"""Decode the response of an Ollama chat call into model events. No I/O.

A stream is one JSON object per line, the last with `done`; a response that is not streamed is that last line alone.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.error import ReplyCutOff
from perdure.core.event import ModelEvent, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.core.jsonable import short_repr
from perdure.core.message import StopReason, Usage
from perdure.models.encoding_memo import encode_lossy_json
from perdure.models.mistyped_json_fields import as_dict, as_dicts, as_text, parse_lenient_json
from perdure.models.profile import Profile
from perdure.models.provider_errors import classify_error
from perdure.models.reply_metadata import drop_empty_fields, get_served_model

_STOP_REASONS: Mapping[str, StopReason] = {"stop": StopReason.STOP, "length": StopReason.LENGTH}


class _Message(Struct, gc=False):
    """The piece of the reply in one line."""

    content: str = ""
    thinking: str = ""
    tool_calls: list[dict[str, Any]] | None = None


class _Line(Struct, gc=False):
    """A line of a response, parsed."""

    message: _Message | None = None
    done: bool = False
    done_reason: str = ""
    error: Any = None
    model: str = ""
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    logprobs: list[Any] | None = None


_decode_line = msgspec.json.Decoder(_Line).decode


class OllamaDecoder:
    """Decoder of one response of Ollama's chat API, streamed or whole, into model events."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._rest = b""
        """The beginning of a line that is not complete."""
        self._calls = 0
        self._logprobs: list[Any] = []
        self._last: _Line | None = None

    @property
    def done(self) -> bool:
        """True once the last line was received."""
        return self._last is not None

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Decode more bytes and return the events in them."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        events: list[ModelEvent] = []
        for line in lines:
            if line.strip():
                self._decode_line(line, events)
        return events

    def end(self) -> list[ModelEvent]:
        """Return the remaining events, `ReplyFinished` last. Raise `ReplyCutOff` if the reply is not finished."""
        events: list[ModelEvent] = []
        if self._rest.strip() and _is_json(self._rest):  # otherwise it was cut off
            self._decode_line(self._rest, events)
            self._rest = b""
        last = self._last
        if last is None:
            raise ReplyCutOff(f"the answer of {self._profile.provider} ended before it was finished; ask again")
        profile, stop = self._profile, _STOP_REASONS.get(last.done_reason)
        if self._calls and stop is StopReason.STOP:
            stop = StopReason.TOOL_USE
        told = drop_empty_fields(
            served_model=get_served_model(last.model, profile.model),
            logprobs={"content": self._logprobs} if self._logprobs else None,
        )
        return [*events, ReplyFinished(stop, _build_usage(last), profile.model, profile.provider, metadata=told)]

    def _decode_line(self, data: bytes, events: list[ModelEvent]) -> None:
        try:
            line = _decode_line(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            line = self._parse_leniently(data)
        if line.error is not None:
            if self._last is not None:
                return  # after the last line it changes nothing
            raise classify_error(0, {}, data, self._profile.provider)
        message = line.message
        if message is not None:
            if message.thinking:
                events.append(ThinkingDelta(message.thinking))
            if message.content:
                events.append(TextDelta(message.content))
            events.extend([self._decode_call(call) for call in message.tool_calls or ()])
        if line.logprobs:
            self._logprobs += line.logprobs
        if line.done:
            self._last = line

    def _decode_call(self, call: dict[str, Any]) -> ToolCallDelta:
        """Decode a tool call, which is always sent whole, and its arguments as an object."""
        function, index = as_dict(call.get("function")), self._calls
        self._calls += 1
        given = function.get("arguments")
        arguments = given if isinstance(given, str) else encode_lossy_json(given or {}).decode()
        return ToolCallDelta(as_text(call.get("id")), as_text(function.get("name")), arguments, index=index)

    def _parse_leniently(self, data: bytes) -> _Line:
        """Parse a line, leaving out the fields whose values have the wrong type."""
        try:
            raw = as_dict(parse_lenient_json(data))
        except msgspec.DecodeError:
            shown = short_repr(data.decode("utf-8", "replace"), 200)
            raise ReplyCutOff(f"{self._profile.provider} sent a line that is not JSON, {shown}; ask again") from None
        said = as_dict(raw.get("message"))
        read, written = raw.get("prompt_eval_count"), raw.get("eval_count")
        return _Line(
            _Message(as_text(said.get("content")), as_text(said.get("thinking")), as_dicts(said.get("tool_calls"))),
            raw.get("done") is True,
            as_text(raw.get("done_reason")),
            raw.get("error"),
            as_text(raw.get("model")),
            read if type(read) is int else None,
            written if type(written) is int else None,
        )


def _build_usage(last: _Line) -> Usage | None:
    """Return the token counts in the last line; without input tokens, if the server had all of it cached."""
    read, written = last.prompt_eval_count, last.eval_count
    if read is None and written is None:
        return None
    return Usage(read or 0, written or 0, precision="partial" if read is None or written is None else "exact")


def _is_json(data: bytes) -> bool:
    try:
        parse_lenient_json(data)
    except msgspec.DecodeError:
        return False
    return True
