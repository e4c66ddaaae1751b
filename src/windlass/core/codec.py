"""Entries as JSON and back. Above: stores, export. Below: msgspec and `plain.py`.

The envelope is open: it is decoded first, and an event of an unknown kind is kept as it came, unless its writer
marked it critical. What is written can always be read back, and no content can make writing fail.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from .error import UnreadableEntry
from .event import EVENTS, Entry, Event, Unknown
from .plain import to_jsonable

VERSION = 1
"""The version of the envelope and of the events in it. It grows when an old reader would misunderstand a new entry."""

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTERS: dict[int, Upcaster] = {}
"""From the event of version N, as plain data, to that of version N + 1."""

_encoder = msgspec.json.Encoder()


class _Envelope(msgspec.Struct, frozen=True, omit_defaults=True):
    seq: int
    at: float
    event: msgspec.Raw
    id: str = ""
    critical: bool = False
    v: int = VERSION


class _Kind(msgspec.Struct, frozen=True):
    kind: str


_envelopes = msgspec.json.Decoder(_Envelope)
_kinds = msgspec.json.Decoder(_Kind)
_decoders: dict[str, msgspec.json.Decoder[Event]] = {}


def encode_event(event: Event) -> bytes:
    """The event as JSON. Never fails because of what is in it: what JSON cannot hold is marked, not refused."""
    if type(event) is Unknown:
        return _encoder.encode(event.body)
    try:
        return _encoder.encode(event)
    except (ValueError, TypeError, RecursionError, OverflowError):
        return _encoder.encode(_sanitised(event))


def decode_event(raw: bytes, *, critical: bool = False, version: int = VERSION) -> Event:
    """The event that `encode_event` wrote, in this version or an older one."""
    if version != VERSION:
        raw = _encoder.encode(_upcast(msgspec.json.decode(raw), version))
    kind = _kinds.decode(raw).kind
    known = EVENTS.get(kind)
    if known is None or known is Unknown:
        return _unknown(kind, raw, critical=critical)
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(known)
    return decoder.decode(raw)


def encode_entry(entry: Entry) -> bytes:
    """The whole entry as one line of JSON."""
    event = entry.event
    raw = msgspec.Raw(encode_event(event))
    return _encoder.encode(_Envelope(entry.seq, entry.at, raw, entry.id, type(event).critical))


def decode_entry(raw: bytes) -> Entry:
    """The entry that `encode_entry` wrote."""
    envelope = _envelopes.decode(raw)
    event = decode_event(bytes(envelope.event), critical=envelope.critical, version=envelope.v)
    return Entry(envelope.seq, envelope.at, event, envelope.id)


def _unknown(kind: str, raw: bytes, *, critical: bool) -> Event:
    if critical:
        message = f"the log holds an entry of kind {kind!r}, which this version does not know: upgrade windlass"
        raise UnreadableEntry(message)
    body: dict[str, Any] = msgspec.json.decode(raw)
    return Unknown(kind, body, run_id=str(body.get("run_id", "")), path=str(body.get("path", "")))


def _upcast(body: dict[str, Any], version: int) -> dict[str, Any]:
    while version != VERSION:
        upcaster = UPCASTERS.get(version)
        if upcaster is None:
            message = f"the log holds an entry of version {version}, and this is version {VERSION}: upgrade windlass"
            raise UnreadableEntry(message)
        body, version = upcaster(body), version + 1
    return body


def _sanitised(event: Event) -> Any:
    try:
        return to_jsonable(msgspec.to_builtins(event, enc_hook=to_jsonable))
    except RecursionError:
        fields: Mapping[str, Any] = {name: to_jsonable(getattr(event, name)) for name in event.__struct_fields__}
        return {"kind": event.__struct_config__.tag, **fields}
