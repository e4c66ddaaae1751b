"""Entries as JSON and back. Above: stores, export. Below: msgspec and `plain.py`.

The envelope is open: it is decoded first, and an event of an unknown kind is kept as it came, unless its writer
marked it critical. What is written can always be read back, and no content can make writing fail.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Union

import msgspec

from .error import StoreError, UnreadableEntry
from .event import EVENTS, Entry, Event, Unknown
from .message import PART_TYPES, Message, Usage
from .plain import to_jsonable

VERSION = 1
"""The version of the envelope and of the events in it. It grows when an old reader would misunderstand a new entry."""

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTERS: dict[int, Upcaster] = {}
"""From the event of version N, as plain data, to that of version N + 1."""

DEEP = 400
"""Data with more brackets than this is looked into: it may be nested so deep that it could not be read back."""

_encoder = msgspec.json.Encoder()
_packer = msgspec.msgpack.Encoder()
_type_of: Callable[[Any], Any] = type  # the same, but no type checker draws conclusions from it


class _Envelope(msgspec.Struct, frozen=True, omit_defaults=True):
    seq: int
    at: float
    event: msgspec.Raw
    id: str = ""
    critical: bool = False
    v: int = 1
    """What is written without a version is of the first one, for ever."""


class _Kind(msgspec.Struct, frozen=True):
    kind: str


_envelopes = msgspec.json.Decoder(_Envelope)
_kinds = msgspec.json.Decoder(_Kind)
_decoders: dict[type[Event], msgspec.json.Decoder[Event]] = {}


def encode_event(event: Event) -> bytes:
    """The event as JSON, which is read back before anybody relies on it.

    Never fails because of what people and models say: what JSON cannot hold is marked; NaN becomes null. Raises a
    `StoreError` when a field holds what it should not, a number for a text: that is a bug of whoever made the event.
    """
    if type(event) is Unknown:
        return _encoded(_as_it_came(event))
    raw = _encoded(event)
    try:
        _decoder(type(event)).decode(raw)
    except msgspec.ValidationError as error:
        kind = event.__struct_config__.tag
        message = f"an event of kind {kind!r} cannot be stored, for nobody could read it ({error}): fix what made it"
        raise StoreError(message) from error
    return raw


def _encoded(content: Any) -> bytes:
    try:
        raw = _encoder.encode(content)
    except Exception:  # noqa: BLE001 - whatever is in it may raise whatever it likes
        return _encoder.encode(_sanitised(content))
    if len(raw) > 2 * DEEP and raw.count(b"[") + raw.count(b"{") > DEEP:
        return _encoder.encode(_sanitised(content))
    return raw


def decode_event(raw: bytes, *, critical: bool = False, version: int = VERSION) -> Event:
    """The event that `encode_event` wrote, in this version or an older one."""
    if version != VERSION:
        raw = _encoder.encode(_upcast(msgspec.json.decode(raw), version))
    kind = _kinds.decode(raw).kind
    known = EVENTS.get(kind)
    if known is None or known is Unknown:
        return _unknown(kind, raw, critical=critical)
    return _decoder(known).decode(raw)


def _decoder(kind: type[Event]) -> "msgspec.json.Decoder[Event]":
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    return decoder


def encode_entry(entry: Entry) -> bytes:
    """The whole entry as one line of JSON."""
    event = entry.event
    raw = msgspec.Raw(encode_event(event))
    return _encoder.encode(_Envelope(entry.seq, entry.at, raw, entry.id, type(event).critical, VERSION))


def decode_entry(raw: bytes) -> Entry:
    """The entry that `encode_entry` wrote."""
    envelope = _envelopes.decode(raw)
    event = decode_event(bytes(envelope.event), critical=envelope.critical, version=envelope.v)
    return Entry(envelope.seq, envelope.at, event, envelope.id)


# -- many at once ------------------------------------------------------------------------------------------------------


def encode_events(events: Iterable[Event]) -> bytes:
    """Events as one array of JSON, each as `encode_event` writes it."""
    return b"[%b]" % b",".join([encode_event(event) for event in events])


def pack_events(events: Sequence[Event]) -> bytes:
    """Events that have been read, for `decode_events` to read again: smaller than JSON, and read in less time.

    It is MessagePack, unless there are numbers in them that only JSON can hold. What nobody has read yet goes through
    `encode_events`, which sees to it that it can be.
    """
    try:
        return _packer.encode([_as_it_came(event) if type(event) is Unknown else event for event in events])
    except OverflowError:
        return encode_events(events)


def decode_events(raw: bytes, *, critical: Collection[str] = (), version: int = VERSION) -> list[Event]:
    """The events that `encode_events` or `pack_events` wrote; `critical` has the kinds that their writer marked so."""
    known = decode_known_events(raw, version=version)
    if known is not None:
        return known
    is_json = _is_json(raw)
    bodies = _bodies_in_json.decode(raw) if is_json else [_encoder.encode(body) for body in _bodies_packed.decode(raw)]
    return [
        decode_event(bytes(body), critical=bool(critical) and _kinds.decode(body).kind in critical, version=version)
        for body in bodies
    ]


def decode_known_events(raw: bytes, *, version: int = VERSION) -> list[Event] | None:
    """As `decode_events`, for events of this version whose kinds are all known; `None` when one is not."""
    if version != VERSION:
        return None
    try:
        return (_all_in_json if _is_json(raw) else _all_packed).decode(raw)
    except msgspec.ValidationError:
        return None  # a kind that is not known, most likely: one by one, each is kept or told


def _is_json(raw: bytes) -> bool:
    return raw[:1] == b"["  # in MessagePack, this would be a number


_bodies_in_json = msgspec.json.Decoder(list[msgspec.Raw])
_bodies_packed = msgspec.msgpack.Decoder(list[Any])


# Made here, while the module is imported and no other thread can be at it: msgspec prepares each type when it is first
# used, and two threads that do so at the same moment crash the process.
_KNOWN: Any = list[Union[tuple(kind for kind in EVENTS.values() if kind is not Unknown)]]  # type: ignore[misc] # noqa: UP007 - of a tuple that is known only now
_all_in_json: "msgspec.json.Decoder[list[Event]]" = msgspec.json.Decoder(_KNOWN)
_all_packed: "msgspec.msgpack.Decoder[list[Event]]" = msgspec.msgpack.Decoder(_KNOWN)


# -- what is not as it should be ---------------------------------------------------------------------------------------


def _unknown(kind: str, raw: bytes, *, critical: bool) -> Event:
    if critical:
        message = f"the log holds an entry of kind {kind!r}, which this version does not know: upgrade perdure"
        raise UnreadableEntry(message)
    body: dict[str, Any] = msgspec.json.decode(raw)
    return Unknown(kind, body, run_id=str(body.get("run_id", "")), path=str(body.get("path", "")))


def _upcast(body: dict[str, Any], version: int) -> dict[str, Any]:
    while version != VERSION:
        upcaster = UPCASTERS.get(version)
        if upcaster is None:
            message = f"the log holds an entry of version {version}, and this is version {VERSION}: upgrade perdure"
            raise UnreadableEntry(message)
        body, version = upcaster(body), version + 1
    return body


def _as_it_came(event: Unknown) -> Any:
    """The body of an unknown event, which is all of it, unless somebody made one by hand."""
    body = event.body
    return body if _type_of(body) is dict and body.get("kind") == event.name else {"kind": event.name, "body": body}


_OURS = (Event, Message, Usage, *PART_TYPES)
_LEVELS = 4
"""How deep our own values lie in one another: an event, a message, a result, its content."""


def _sanitised(value: Any, levels: int = _LEVELS) -> Any:
    """Our own values field by field, so that they can be read back, and what others put into them made fit for JSON."""
    if levels and isinstance(value, _OURS):
        config = value.__struct_config__
        fields = {name: _sanitised(getattr(value, name), levels - 1) for name in value.__struct_fields__}
        return fields if config.tag_field is None else {config.tag_field: config.tag, **fields}
    if _type_of(value) is tuple and all(isinstance(each, _OURS) for each in value):
        return [_sanitised(each, levels) for each in value]
    return value if isinstance(value, bytes) else to_jsonable(value)
