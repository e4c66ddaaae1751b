"""The answer of the Responses wire, as events. Pure. Above: the wire. Below: `reply.py`, `net.sse`, `refusal`.

An answer is a list of items. A stream tells each item bit by bit, then as a whole, and at its end all of them once
more (or none). The items are told apart by their place in the list alone: there are providers whose ids change from
event to event. An answer that came whole is read as the same items.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from perdure.core.error import ReplyCutOff
from perdure.core.event import ModelEvent, TextDelta, ToolCallDelta
from perdure.core.plain import excerpt
from perdure.models.profile import Profile
from perdure.models.refusal import classified
from perdure.models.untrusted import mapping, mappings, text
from perdure.net.sse import SseReader

from .reply import OpenItem, finished
from .rules import CALLS

_Bits: TypeAlias = Literal["words", "thought", "input"]

_WORDS = "response.output_text.delta"
_BITS: Mapping[str, _Bits] = {
    _WORDS: "words",
    "response.refusal.delta": "words",
    "response.reasoning_summary_text.delta": "thought",
    "response.reasoning_text.delta": "thought",
    "response.function_call_arguments.delta": "input",
    "response.custom_tool_call_input.delta": "input",
}
"""The events that tell a bit of an item, and what of."""
_INPUT_DONE = frozenset({"response.function_call_arguments.done", "response.custom_tool_call_input.done"})
_ENDINGS = frozenset({"response.completed", "response.incomplete", "response.done"})
_FAILURES = frozenset({"response.failed", "error"})
_FAILED = frozenset({"failed", "cancelled"})
_WHOLE = frozenset({None, "completed", "incomplete"})
_DONE = b"[DONE]"


class _Bit(Struct, gc=False):
    """What there is in nearly all events; the rest of an event is skipped."""

    type: str = ""
    delta: str = ""
    output_index: int = -1
    summary_index: int = 0
    content_index: int = 0


_decode_bit = msgspec.json.Decoder(_Bit).decode
_decode = msgspec.json.Decoder().decode
_UNREADABLE: Final = object()


class ResponsesDecoder:
    """One answer."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._reader = SseReader()
        self._began = False
        self._body: list[bytes] | None = None
        """The pieces of an answer that comes whole."""
        self._items: dict[int, OpenItem] = {}
        self._final: Mapping[str, Any] | None = None
        """The whole answer, as its end tells it."""
        self._events: list[ModelEvent] = []

    @property
    def done(self) -> bool:
        """Whether the last word has been said."""
        return self._final is not None

    def feed(self, data: bytes) -> Iterable[ModelEvent]:
        """More bytes: what they say."""
        if not self._began and (start := data.lstrip()):
            self._began = True
            if start.startswith(b"{"):  # no stream begins like that, whatever the answer calls itself
                self._body = []
        if self._body is not None:
            self._body.append(data)
            return ()
        for name, payload in self._reader.feed(data):
            self._take(name, payload)
        return self._told()

    def end(self) -> Iterable[ModelEvent]:
        """The bytes are over: what is left to say, and `ReplyFinished`."""
        if self._body is not None:
            self._take_whole(b"".join(self._body))
        for name, payload in self._reader.rest():
            if _read(payload) is not _UNREADABLE:  # otherwise it is torn
                self._take(name, payload)
        if self._final is None:
            raise ReplyCutOff(f"the answer of {self._profile.provider} ended before it was complete; ask again")
        items = [self._items[place] for place in sorted(self._items)]
        return [*self._told(), finished(items, self._final, self._profile)]

    def _told(self) -> list[ModelEvent]:
        events, self._events = self._events, []
        return events

    # -- one event -----------------------------------------------------------------------------------------------------

    def _take(self, name: str, payload: bytes) -> None:
        try:
            bit = _decode_bit(payload)
        except (msgspec.MsgspecError, RecursionError):
            bit = self._odd(payload)
        kind = bit.type or name
        if kind == _WORDS and bit.output_index >= 0:  # nearly always
            if bit.delta:
                item = self._items.get(bit.output_index) or self._open(bit.output_index, "message")
                item.pieces.append(bit.delta)
                self._events.append(TextDelta(bit.delta))
        elif kind in _BITS:
            if bit.delta:
                place = bit.output_index if bit.output_index >= 0 else self._place(_event(payload).get("item_id"))
                self._take_bit(_BITS[kind], place, bit)
        elif kind in _ENDINGS:
            self._complete(mapping(_event(payload).get("response")))
        elif kind == "response.output_item.added":
            self._begin_item(_event(payload))
        elif kind == "response.output_item.done":
            self._end_item(_event(payload))
        elif kind in _INPUT_DONE:
            self._end_input(_event(payload))
        elif kind in _FAILURES or not kind:  # an error without a type is one of a gateway
            self._fail(_event(payload))

    def _odd(self, payload: bytes) -> _Bit:
        """An event that is not as we know it: as much of it as can be used."""
        if payload.strip() == _DONE:
            return _Bit("done")
        raw = _read(payload)
        if raw is _UNREADABLE:
            raise ReplyCutOff(
                f"{self._profile.provider} sent an event that is no JSON, {excerpt(payload, 80)}; ask again"
            )
        event = mapping(raw)
        places = [event.get(name) for name in ("output_index", "summary_index", "content_index")]
        known = [place if isinstance(place, int) else -1 for place in places]
        return _Bit(text(event.get("type")) or "unknown", text(event.get("delta")), *known)

    def _take_bit(self, what: _Bits, place: int, bit: _Bit) -> None:
        match what:
            case "words":
                self._open(place, "message").pieces.append(bit.delta)
                self._events.append(TextDelta(bit.delta))
            case "thought":
                section = (bit.type, bit.summary_index, bit.content_index)
                self._events.append(self._open(place, "reasoning").thought(bit.delta, section))
            case "input":
                self._open(place, "function_call").pieces.append(bit.delta)
                self._events.append(ToolCallDelta(arguments=bit.delta, index=place))

    def _open(self, place: int, kind: str) -> OpenItem:
        item = self._items.get(place)
        if item is None:
            item = self._items[place] = OpenItem(place, kind)
        return item

    def _place(self, item_id: Any) -> int:
        """Where the item is that an event belongs to, when the event does not tell: by its id, or the last one."""
        known = [place for place, item in self._items.items() if item_id and item.item_id == item_id]
        return known[0] if known else max(self._items, default=0)

    def _begin_item(self, event: Mapping[str, Any]) -> None:
        told = mapping(event.get("item"))
        item = self._open(_index(event, len(self._items)), text(told.get("type")))
        item.item_id = told.get("id")
        if item.kind in CALLS:
            self._events += item.begin_call(told)

    def _end_item(self, event: Mapping[str, Any]) -> None:
        told = mapping(event.get("item"))
        place = _index(event, self._place(told.get("id")))
        self._events += self._open(place, text(told.get("type"))).end(told)

    def _end_input(self, event: Mapping[str, Any]) -> None:
        item = self._open(_index(event, self._place(event.get("item_id"))), "function_call")
        if item.kind in CALLS:
            self._events += item.end_input(text(event.get(CALLS[item.kind])))

    # -- the whole answer ----------------------------------------------------------------------------------------------

    def _take_whole(self, body: bytes) -> None:
        answer = _event(body)  # nothing, when it was cut off
        if answer.get("status") in _FAILED or (answer.get("error") and not answer.get("output")):
            self._fail(answer)
        if answer.get("status") in _WHOLE and isinstance(answer.get("output"), list):
            self._complete(answer)

    def _complete(self, answer: Mapping[str, Any]) -> None:
        """The provider says that this is all. Items that it has not told yet are in its answer."""
        for place, told in enumerate(mappings(answer.get("output"))):
            item = self._open(place, text(told.get("type")))
            if item.whole is None:
                self._events += item.end(told)
        self._final = answer

    def _fail(self, event: Mapping[str, Any]) -> None:
        """Raise the error that is told inside an answer, if there is one."""
        error = event.get("error") or mapping(event.get("response")).get("error")
        if not error and (event.get("type") in _FAILURES or event.get("status") in _FAILED):
            error = {name: value for name, value in event.items() if name in {"code", "message", "status", "type"}}
        if error:
            code = mapping(error).get("status") or mapping(error).get("code")
            told = msgspec.json.encode({"error": error})
            raise classified(code if isinstance(code, int) else 0, {}, told, self._profile.provider)


def _index(event: Mapping[str, Any], otherwise: int) -> int:
    value = event.get("output_index")
    return value if isinstance(value, int) and value >= 0 else otherwise


def _event(payload: bytes) -> Mapping[str, Any]:
    return mapping(_read(payload))


def _read(payload: bytes) -> Any:
    """JSON, also such as only browsers and Python take: half a pair of surrogates, `NaN`. Or `_UNREADABLE`."""
    try:
        return _decode(payload)
    except msgspec.MsgspecError:
        try:
            return json.loads(payload.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return _UNREADABLE
    except RecursionError:
        return _UNREADABLE
