"""Entries of a trace: events of a run, snapshots of requests to the model, and raw HTTP traffic, with their times.

In JSON, an entry is `{"seq": …, "dt": …, "source": …, "data": {"kind": …}}`; a trace is a document of them, or lines.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from perdure._core.log.codec import decode_event, encode_event
from perdure._core.model.protocol import ToolSpec
from perdure._core.values.event import ModelEvent, Unknown
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import to_jsonable

TraceSource: TypeAlias = Literal["agent", "model", "wire"]
"""Origin of an entry: the run, the stream of the model, or the HTTP traffic."""

TEXT_LIMIT: Final = 1_000_000
"""Characters of a raw request body or line that are kept; the rest is cut off and counted."""

_encoder: Final = msgspec.json.Encoder()
_MODEL_EVENTS: Final = frozenset(get_args(ModelEvent))


class NonEventTraceData(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="kind"):
    """Base class of the data in trace entries other than events of a run, such as raw HTTP traffic."""


class RequestSnapshot(NonEventTraceData, frozen=True, tag="request", kw_only=True):
    """Snapshot of a request to the model: its instructions, its tools, and the number of messages."""

    system: str = ""
    """The instructions."""
    tools: tuple[ToolSpec, ...] = ()
    """Full descriptions of the tools."""
    messages: int = 0
    """Number of messages of the conversation that were sent."""
    session_id: str = ""
    is_repeated: bool = False
    """True if `system` and `tools` are those of the snapshot before, and left out here."""


class FirstDelta(NonEventTraceData, frozen=True, tag="first_delta"):
    """Trace data: the first piece of a model's reply has arrived, of text, thinking or a tool call."""

    run_id: str = ""
    path: str = ""


class RawRequest(NonEventTraceData, frozen=True, tag="raw_request"):
    """Trace data: an HTTP request to a model as it was sent, with keys masked."""

    number: int
    """Number of the request in this process."""
    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: str = ""
    cut_characters: int = 0
    """Characters of the body that were left out."""


class RawResponseHead(NonEventTraceData, frozen=True, tag="raw_answer"):
    """Trace data: the beginning of the HTTP response to a request, its status and headers."""

    number: int
    """Number of the request."""
    status: int
    headers: Mapping[str, str] = {}


class RawResponseLine(NonEventTraceData, frozen=True, tag="raw_line"):
    """Trace data: a line of an HTTP response, such as one server-sent event."""

    number: int
    """Number of the request."""
    line: str
    cut_characters: int = 0
    """Characters of the line that were left out."""


class EntriesMissing(NonEventTraceData, frozen=True, tag="entries_missing"):
    """Trace data: the number of entries that the trace lacks, because it was full or they could not be redacted."""

    count: int
    reason: str = ""


_DATA_CLASSES: Final[Mapping[str, type[NonEventTraceData]]] = {
    "request": RequestSnapshot,
    "first_delta": FirstDelta,
    "raw_request": RawRequest,
    "raw_answer": RawResponseHead,
    "raw_line": RawResponseLine,
    "entries_missing": EntriesMissing,
}
_SOURCES: Final[Mapping[type[Event | NonEventTraceData], TraceSource]] = {
    **dict.fromkeys(_MODEL_EVENTS, "model"),
    RequestSnapshot: "model",
    FirstDelta: "model",
    RawRequest: "wire",
    RawResponseHead: "wire",
    RawResponseLine: "wire",
}


class TraceEntry(Struct, frozen=True, gc=False):
    """An entry of a trace: an event or other data, with its time, its source and its number."""

    seq: int
    """Number in the trace, from 0."""
    t: float
    """Time in seconds since 1970."""
    dt: float
    """Seconds since the first entry of the trace."""
    source: TraceSource
    data: Event | NonEventTraceData
    """The event, or what was recorded besides."""
    log_seq: int = 0
    """Number of the entry in the session's log; 0 if the log does not have it."""

    @property
    def label(self) -> str:
        """Kind of the data, in snake case, such as `tool_started` or `raw_request`."""
        return str(self.data.__struct_config__.tag)


class TraceMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Metadata of a whole trace: its session, agent, model, settings, instructions and tools."""

    session_id: str = ""
    agent: str = ""
    """Name of the agent."""
    model: str = ""
    provider: str = ""
    base_url: str = ""
    """URL of the last raw request, with keys masked."""
    params: Mapping[str, Any] = {}
    """Settings of the request, such as its temperature."""
    system: str = ""
    """Instructions; the trace of a stored log does not have them."""
    tools: tuple[ToolSpec, ...] = ()
    """Descriptions of the tools; the trace of a stored log does not have them."""


def get_trace_source(data: Event | NonEventTraceData) -> TraceSource:
    """Return the source of trace data: `agent` for events of a run, `model` for its stream, `wire` for HTTP traffic."""
    return _SOURCES.get(type(data), "agent")


def encode_data(data: Event | NonEventTraceData) -> bytes:
    """Encode the data of a trace entry as JSON. Never fails because of its content."""
    try:
        if type(data) is not Unknown:
            return _encoder.encode(data)
    except Exception:  # noqa: BLE001 - a schema, setting or progress that is not JSON may raise anything
        if not isinstance(data, Event):
            return _encode_plainly(data)
    return encode_event(data)


def _encode_plainly(data: NonEventTraceData) -> bytes:
    fields = {name: to_jsonable(each) for name, each in msgspec.structs.asdict(data).items()}
    return _encoder.encode({"kind": data.__struct_config__.tag, **fields})


class _Line(Struct, frozen=True, omit_defaults=True):
    seq: int
    dt: float
    source: TraceSource
    data: msgspec.Raw
    log_seq: int = 0


def encode_trace_entry(entry: TraceEntry) -> bytes:
    """Encode a trace entry as one line of compact JSON."""
    raw = msgspec.Raw(encode_data(entry.data))
    return _encoder.encode(_Line(entry.seq, round(entry.dt, 6), entry.source, raw, entry.log_seq))


_lines: Final = msgspec.json.Decoder(_Line)
_kinds: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode_trace_entry(line: bytes, started_at: float) -> TraceEntry:
    """Decode a trace entry from a line that `encode_trace_entry` wrote. Raises `msgspec.DecodeError`."""
    read = _lines.decode(line)
    body = bytes(read.data)
    kind = msgspec.json.decode(bytes(_kinds.decode(body).get("kind", b'""')))
    known = _DATA_CLASSES.get(str(kind))
    data = decode_event(body) if known is None else msgspec.json.decode(body, type=known)
    return TraceEntry(read.seq, started_at + read.dt, read.dt, read.source, data, read.log_seq)


def cut_text(text: str) -> tuple[str, int]:
    """Return the beginning of a text, and the number of characters that were cut off."""
    return (text, 0) if len(text) <= TEXT_LIMIT else (text[:TEXT_LIMIT], len(text) - TEXT_LIMIT)


def resolve_snapshots(entries: Sequence[TraceEntry]) -> list[tuple[TraceEntry, RequestSnapshot]]:
    """Return the request snapshots of a trace; those that repeat instructions and tools get them filled in."""
    found: list[tuple[TraceEntry, RequestSnapshot]] = []
    before: dict[str, RequestSnapshot] = {}
    for entry in entries:
        if isinstance(entry.data, RequestSnapshot):
            shown = entry.data
            known = before.get(shown.session_id)
            if shown.is_repeated and known is not None:
                shown = msgspec.structs.replace(shown, system=known.system, tools=known.tools)
            before[shown.session_id] = shown
            found.append((entry, shown))
    return found
