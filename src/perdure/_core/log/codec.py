"""Encoding and decoding of log entries as JSON, and of events as JSON or MessagePack.

The envelope is decoded first. An event of an unknown kind is kept unchanged, unless its writer marked it critical: then
it is an error. Everything that is written can be read back, and no content can make writing fail.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Union

import msgspec

from perdure._core.values.error import EntryTooNew, StoreError
from perdure._core.values.event import EVENTS, Entry, Unknown
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import build_decoder_under_lock, to_jsonable
from perdure._core.values.message import PART_TYPES, Message, Usage

VERSION = 1
"""Version of the envelope and of the events in it. Increased when an old reader would misunderstand a new entry."""

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTERS: dict[int, Upcaster] = {}
"""Functions that turn an event of version N, as plain data, into one of version N + 1, by N."""

MAX_BRACKETS_UNCHECKED = 400
"""Number of brackets above which data is sanitized before it is encoded: nested too deep, it could not be decoded."""

_encoder = msgspec.json.Encoder()
_packer = msgspec.msgpack.Encoder()
_untyped_type: Callable[[Any], Any] = type  # `type`, in a form that type checkers do not narrow by


class _Envelope(msgspec.Struct, frozen=True, omit_defaults=True):
    seq: int
    at: float
    event: msgspec.Raw
    id: str = ""
    critical: bool = False
    v: int = 1
    """Version. An entry written without one is of version 1."""


class _Kind(msgspec.Struct, frozen=True):
    kind: str


_envelope_decoder = msgspec.json.Decoder(_Envelope)
_kind_decoder = msgspec.json.Decoder(_Kind)
_decoders: dict[type[Event], msgspec.json.Decoder[Event]] = {}


def encode_event(event: Event) -> bytes:
    """Encode an event as JSON, checked to be decodable again.

    Never fails because of its content: what JSON cannot represent is replaced by a marker; NaN becomes null. Raises
    `StoreError` when a field has a value of the wrong type, such as a number for a text: that is a bug in the code that
    made the event.
    """
    if type(event) is Unknown:
        return _encode_safely(_original_body(event))
    raw = _encode_safely(event)
    try:
        _decoder(type(event)).decode(raw)
    except msgspec.ValidationError as error:
        kind = event.__struct_config__.tag
        message = f"an event of kind {kind!r} cannot be stored: it could not be read back ({error}); fix its maker"
        raise StoreError(message) from error
    return raw


def _encode_safely(content: Any) -> bytes:
    try:
        raw = _encoder.encode(content)
    except Exception:  # noqa: BLE001 - foreign values may raise anything
        return _encoder.encode(_sanitize(content))
    if len(raw) > 2 * MAX_BRACKETS_UNCHECKED and raw.count(b"[") + raw.count(b"{") > MAX_BRACKETS_UNCHECKED:
        return _encoder.encode(_sanitize(content))
    return raw


def decode_event(raw: bytes, *, critical: bool = False, version: int = VERSION) -> Event:
    """Decode an event that `encode_event` wrote, in this version or an older one. An unknown kind becomes `Unknown`."""
    if version != VERSION:
        raw = _encoder.encode(_upcast_body(msgspec.json.decode(raw), version))
    kind = _kind_decoder.decode(raw).kind
    known = EVENTS.get(kind)
    if known is None or known is Unknown:
        return _decode_unknown(kind, raw, critical=critical)
    return _decoder(known).decode(raw)


def _decoder(kind: type[Event]) -> "msgspec.json.Decoder[Event]":
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = build_decoder_under_lock(kind)
    return decoder


def encode_entry(entry: Entry) -> bytes:
    """Encode a log entry as one line of JSON."""
    event = entry.event
    raw = msgspec.Raw(encode_event(event))
    return _encoder.encode(_Envelope(entry.seq, entry.at, raw, entry.id, type(event).critical, VERSION))


def decode_entry(raw: bytes) -> Entry:
    """Decode a log entry that `encode_entry` wrote."""
    envelope = _envelope_decoder.decode(raw)
    event = decode_event(bytes(envelope.event), critical=envelope.critical, version=envelope.v)
    return Entry(envelope.seq, envelope.at, event, envelope.id)


# -- many at once ------------------------------------------------------------------------------------------------------


def encode_events(events: Iterable[Event]) -> bytes:
    """Encode events as one JSON array that can be decoded again; each element is the JSON of `encode_event`."""
    events = list(events)
    try:
        raw = _encoder.encode(events)
        if len(raw) <= 2 * MAX_BRACKETS_UNCHECKED or raw.count(b"[") + raw.count(b"{") <= MAX_BRACKETS_UNCHECKED:
            _known_json_decoder.decode(raw)
            return raw
    except Exception:  # noqa: BLE001, S110 - foreign values may raise anything: found and replaced one by one
        pass
    return b"[%b]" % b",".join([encode_event(event) for event in events])


def encode_events_as_msgpack(events: Sequence[Event]) -> bytes:
    """Encode events as MessagePack for `decode_events`: smaller than JSON, and faster to decode.

    Falls back to JSON for numbers that MessagePack cannot represent. Only for events that were decoded before: others
    go through `encode_events`, which makes sure that they can be read back.
    """
    try:
        return _packer.encode([_original_body(event) if type(event) is Unknown else event for event in events])
    except OverflowError:
        return encode_events(events)


def decode_events(raw: bytes, *, critical: Collection[str] = (), version: int = VERSION) -> list[Event]:
    """Decode a list of events from JSON or MessagePack; unknown kinds become `Unknown`.

    A kind that is unknown and in `critical` is an error.
    """
    known = decode_events_if_all_known(raw, version=version)
    if known is not None:
        return known
    is_json = _is_json(raw)
    bodies = (
        _json_bodies_decoder.decode(raw)
        if is_json
        else [_encoder.encode(body) for body in _msgpack_bodies_decoder.decode(raw)]
    )
    return [
        decode_event(
            bytes(body), critical=bool(critical) and _kind_decoder.decode(body).kind in critical, version=version
        )
        for body in bodies
    ]


def decode_events_if_all_known(raw: bytes, *, version: int = VERSION) -> list[Event] | None:
    """Decode a list of events quickly; return `None` unless this version wrote them and knows the kinds of all."""
    if version != VERSION:
        return None
    try:
        return (_known_json_decoder if _is_json(raw) else _known_msgpack_decoder).decode(raw)
    except msgspec.ValidationError:
        return None  # most likely an unknown kind: decoded one by one, each is kept or raises


def _is_json(raw: bytes) -> bool:
    return raw[:1] == b"["  # in MessagePack, this would be a number


_json_bodies_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_msgpack_bodies_decoder = msgspec.msgpack.Decoder(list[Any])


# Built while the module is imported, when no other thread can use it: msgspec prepares each type at its first use, and
# two threads that do so at the same time crash the process.
_KNOWN: Any = list[Union[tuple(kind for kind in EVENTS.values() if kind is not Unknown)]]  # type: ignore[misc] # noqa: UP007 - the members are known only at run time
_known_json_decoder: "msgspec.json.Decoder[list[Event]]" = msgspec.json.Decoder(_KNOWN)
_known_msgpack_decoder: "msgspec.msgpack.Decoder[list[Event]]" = msgspec.msgpack.Decoder(_KNOWN)


# -- unknown kinds, old versions, foreign values -----------------------------------------------------------------------


def _decode_unknown(kind: str, raw: bytes, *, critical: bool) -> Event:
    if critical:
        message = f"the log contains an entry of kind {kind!r}, which this version does not know: upgrade perdure"
        raise EntryTooNew(message)
    body: dict[str, Any] = msgspec.json.decode(raw)
    return Unknown(kind, body, run_id=str(body.get("run_id", "")), path=str(body.get("path", "")))


def _upcast_body(body: dict[str, Any], version: int) -> dict[str, Any]:
    while version != VERSION:
        upcaster = UPCASTERS.get(version)
        if upcaster is None:
            message = f"the log contains an entry of version {version}, and this is version {VERSION}: upgrade perdure"
            raise EntryTooNew(message)
        body, version = upcaster(body), version + 1
    return body


def _original_body(event: Unknown) -> Any:
    """Return the stored JSON of an event of unknown kind; build it if the event was made by hand."""
    body = event.body
    return (
        body if _untyped_type(body) is dict and body.get("kind") == event.name else {"kind": event.name, "body": body}
    )


_RUNTIME_TYPES = (Event, Message, Usage, *PART_TYPES)
_NESTING_LEVELS = 4
"""Depth to which runtime values are nested: an event, a message, a result, its content."""


def _sanitize(value: Any, levels: int = _NESTING_LEVELS) -> Any:
    """Convert a value to JSON values: Perdure's own types field by field, so that they can be decoded, others as plain
    JSON.
    """
    if levels and isinstance(value, _RUNTIME_TYPES):
        config = value.__struct_config__
        fields = {name: _sanitize(getattr(value, name), levels - 1) for name in value.__struct_fields__}
        return fields if config.tag_field is None else {config.tag_field: config.tag, **fields}
    if _untyped_type(value) is tuple and all(isinstance(each, _RUNTIME_TYPES) for each in value):
        return [_sanitize(each, levels) for each in value]
    return value if isinstance(value, bytes) else to_jsonable(value)
