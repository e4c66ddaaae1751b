"""Decode the response of a Responses API call (OpenAI) into model events. No I/O.

A response is a list of items. A stream sends each item in deltas, then as a whole, and at its end all items once more
(or none). Items are identified by their position in the list alone, since some providers change ids from event to
event. A response that is not streamed is decoded as the same items.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from perdure._core.values.error import ReplyCutOff
from perdure._core.values.event import CitationAdded, ModelEvent, TextDelta, ToolCallDelta
from perdure._core.values.jsonable import short_repr
from perdure._io.http.sse import SseParser
from perdure._models.endpoint.profile import Profile
from perdure._models.provider_errors.classify import classify_error
from perdure._models.wires.lenient_json import as_dict, as_dicts, as_text

from .dialect import get_dialect
from .lint import get_input_fields_by_call_type
from .reply import OutputItemBuilder, build_reply_finished

_DeltaKind: TypeAlias = Literal["words", "thought", "input"]

_TEXT_DELTA = "response.output_text.delta"
_DELTA_KINDS: Mapping[str, _DeltaKind] = {
    _TEXT_DELTA: "words",
    "response.refusal.delta": "words",
    "response.reasoning_summary_text.delta": "thought",
    "response.reasoning_text.delta": "thought",
    "response.function_call_arguments.delta": "input",
    "response.custom_tool_call_input.delta": "input",
}
"""Events that carry a delta of an item, and what it is a delta of."""
_INPUT_DONE = frozenset({"response.function_call_arguments.done", "response.custom_tool_call_input.done"})
_ENDINGS = frozenset({"response.completed", "response.incomplete", "response.done"})
_FAILURES = frozenset({"response.failed", "error"})
_FAILED = frozenset({"failed", "cancelled"})
_WHOLE = frozenset({None, "completed", "incomplete"})
_DONE = b"[DONE]"


class _DeltaEvent(Struct, gc=False):
    """Server-sent event, with the fields that nearly all events have."""

    type: str = ""
    delta: str = ""
    output_index: int = -1
    summary_index: int = 0
    content_index: int = 0


_decode_delta_event = msgspec.json.Decoder(_DeltaEvent).decode
_decode = msgspec.json.Decoder().decode
_UNREADABLE: Final = object()


class ResponsesDecoder:
    """Decoder of one response of the Responses API, streamed or whole, into model events."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._reader = SseParser()
        self._began = False
        self._body: list[bytes] | None = None
        """The pieces of a response that is not streamed."""
        self._call_fields = get_input_fields_by_call_type(get_dialect(profile))
        self._items: dict[int, OutputItemBuilder] = {}
        self._final: Mapping[str, Any] | None = None
        """The complete response, as the last event has it."""
        self._events: list[ModelEvent] = []

    @property
    def done(self) -> bool:
        """True once the event that ends the response was received."""
        return self._final is not None

    def feed(self, data: bytes) -> Iterable[ModelEvent]:
        """Decode more bytes and return the events in them."""
        if not self._began and (start := data.lstrip()):
            self._began = True
            if start.startswith(b"{"):  # no stream starts like that, whatever its content type
                self._body = []
        if self._body is not None:
            self._body.append(data)
            return ()
        for name, payload in self._reader.feed(data):
            self._decode_event(name, payload)
        return self._drain_events()

    def end(self) -> Iterable[ModelEvent]:
        """Return the remaining events, `ReplyFinished` last. Raise `ReplyCutOff` if the response is not finished."""
        if self._body is not None:
            self._decode_body(b"".join(self._body))
        for name, payload in self._reader.flush():
            if _parse_json(payload) is not _UNREADABLE:  # otherwise it is torn
                self._decode_event(name, payload)
        if self._final is None:
            raise ReplyCutOff(f"the answer of {self._profile.provider} ended before it was complete; ask again")
        items = [self._items[place] for place in sorted(self._items)]
        return [*self._drain_events(), build_reply_finished(items, self._final, self._profile)]

    def _drain_events(self) -> list[ModelEvent]:
        events, self._events = self._events, []
        return events

    # -- one event -----------------------------------------------------------------------------------------------------

    def _decode_event(self, name: str, payload: bytes) -> None:
        if self._final is not None:
            return  # an error that follows a complete response changes nothing
        try:
            bit = _decode_delta_event(payload)
        except (msgspec.MsgspecError, RecursionError):
            bit = self._parse_leniently(payload)
        kind = bit.type or name
        if kind == _TEXT_DELTA and bit.output_index >= 0:  # nearly always
            if bit.delta:
                item = self._items.get(bit.output_index) or self._get_or_open_item(bit.output_index, "message")
                item.pieces.append(bit.delta)
                self._events.append(TextDelta(bit.delta))
        elif kind in _DELTA_KINDS:
            if bit.delta:
                place = (
                    bit.output_index
                    if bit.output_index >= 0
                    else self._find_item_index(_parse_event(payload).get("item_id"))
                )
                self._decode_delta(_DELTA_KINDS[kind], place, bit)
        elif kind in _ENDINGS:
            self._finish_response(as_dict(_parse_event(payload).get("response")))
        elif kind == "response.output_item.added":
            self._start_item(_parse_event(payload))
        elif kind == "response.output_item.done":
            self._finish_item(_parse_event(payload))
        elif kind in _INPUT_DONE:
            self._finish_call_input(_parse_event(payload))
        elif kind in _FAILURES or not kind:  # gateways send errors without a type
            self._raise_error(_parse_event(payload))

    def _parse_leniently(self, payload: bytes) -> _DeltaEvent:
        """Parse a server-sent event that does not fit the expected types, keeping its usable fields."""
        if payload.strip() == _DONE:
            return _DeltaEvent("done")
        raw = _parse_json(payload)
        if raw is _UNREADABLE:
            raise ReplyCutOff(
                f"{self._profile.provider} sent an event that is not JSON, {short_repr(payload, 80)}; ask again"
            )
        event = as_dict(raw)
        places = [event.get(name) for name in ("output_index", "summary_index", "content_index")]
        known = [place if isinstance(place, int) else -1 for place in places]
        return _DeltaEvent(as_text(event.get("type")) or "unknown", as_text(event.get("delta")), *known)

    def _decode_delta(self, what: _DeltaKind, place: int, bit: _DeltaEvent) -> None:
        match what:
            case "words":
                self._get_or_open_item(place, "message").pieces.append(bit.delta)
                self._events.append(TextDelta(bit.delta))
            case "thought":
                section = (bit.type, bit.summary_index, bit.content_index)
                self._events.append(self._get_or_open_item(place, "reasoning").add_reasoning(bit.delta, section))
            case "input":
                item = self._get_or_open_item(place, "function_call")
                item.pieces.append(bit.delta)
                if item.is_call:
                    self._events.append(ToolCallDelta(arguments=bit.delta, index=place))

    def _get_or_open_item(self, place: int, kind: str) -> OutputItemBuilder:
        item = self._items.get(place)
        if item is None:
            item = self._items[place] = OutputItemBuilder(place, kind, self._call_fields)
        return item

    def _find_item_index(self, item_id: Any) -> int:
        """Return the index of the output item with this id; without a match, that of the last item."""
        known = [place for place, item in self._items.items() if item_id and item.item_id == item_id]
        return known[0] if known else max(self._items, default=0)

    def _start_item(self, event: Mapping[str, Any]) -> None:
        told = as_dict(event.get("item"))
        item = self._get_or_open_item(_get_output_index(event, len(self._items)), as_text(told.get("type")))
        item.item_id = told.get("id")
        if item.is_call:
            self._events += item.start_call(told)

    def _finish_item(self, event: Mapping[str, Any]) -> None:
        told = as_dict(event.get("item"))
        place = _get_output_index(event, self._find_item_index(told.get("id")))
        self._finish_item_with(self._get_or_open_item(place, as_text(told.get("type"))), told)

    def _finish_item_with(self, item: OutputItemBuilder, told: Mapping[str, Any]) -> None:
        """Record a complete item, and emit what was not streamed, and its citations."""
        self._events += item.finish_item(told)
        if item.kind == "message":
            offset = sum([each.text_length for place, each in self._items.items() if place < item.index])
            self._events += map(CitationAdded, item.list_citations(offset))

    def _finish_call_input(self, event: Mapping[str, Any]) -> None:
        item = self._get_or_open_item(
            _get_output_index(event, self._find_item_index(event.get("item_id"))), "function_call"
        )
        if item.is_call:
            self._events += item.finish_input(as_text(event.get(self._call_fields[item.kind])))

    # -- the whole answer ----------------------------------------------------------------------------------------------

    def _decode_body(self, body: bytes) -> None:
        answer = _parse_event(body)  # empty, when it was cut off
        if answer.get("status") in _FAILED or (answer.get("error") and not answer.get("output")):
            self._raise_error(answer)
        if answer.get("status") in _WHOLE and isinstance(answer.get("output"), list):
            self._finish_response(answer)

    def _finish_response(self, answer: Mapping[str, Any]) -> None:
        """Record the final response, and return events for its items that were not streamed."""
        for place, told in enumerate(as_dicts(answer.get("output"))):
            item = self._get_or_open_item(place, as_text(told.get("type")))
            if item.whole is None:
                self._finish_item_with(item, told)
        self._final = answer

    def _raise_error(self, event: Mapping[str, Any]) -> None:
        """Raise the error inside an event or a response, if there is one."""
        error = event.get("error") or as_dict(event.get("response")).get("error")
        if not error and (event.get("type") in _FAILURES or event.get("status") in _FAILED):
            error = {name: value for name, value in event.items() if name in {"code", "message", "status", "type"}}
        if error:
            code = as_dict(error).get("status") or as_dict(error).get("code")
            told = msgspec.json.encode({"error": error})
            raise classify_error(code if isinstance(code, int) else 0, {}, told, self._profile.provider)


def _get_output_index(event: Mapping[str, Any], otherwise: int) -> int:
    value = event.get("output_index")
    return value if isinstance(value, int) and value >= 0 else otherwise


def _parse_event(payload: bytes) -> Mapping[str, Any]:
    return as_dict(_parse_json(payload))


def _parse_json(payload: bytes) -> Any:
    """Parse JSON, including lone surrogates and `NaN`. Return `_UNREADABLE` if it is invalid."""
    try:
        return _decode(payload)
    except msgspec.MsgspecError:
        try:
            return json.loads(payload.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return _UNREADABLE
    except RecursionError:
        return _UNREADABLE
