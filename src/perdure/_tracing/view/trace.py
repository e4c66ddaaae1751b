"""`Trace`: what happened in a session, with times, collected live or read from a stored log or a file."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure._core.log.reserved_ids import check_not_reserved
from perdure._core.log.store import Store
from perdure._core.values.error import ConfigError, SessionNotFound
from perdure._core.values.event import Entry, ModelRequested, RunStarted, SessionOpened
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import convert
from perdure._tracing.collect.entry import (
    EntriesMissing,
    NonEventTraceData,
    RawRequest,
    TraceEntry,
    TraceMeta,
    TraceSource,
    decode_trace_entry,
    encode_trace_entry,
    get_trace_source,
    resolve_snapshots,
)

from .builder import build_trace_tree
from .curl import to_curl
from .timelines import DisclosureStep, TrajectoryStep, build_disclosure, build_trajectory
from .tree import TracedRun

if TYPE_CHECKING:
    from .page import PageText

FORMAT: Final = "perdure-trace"
VERSION: Final = 1


class Trace:
    """Timed record of a session's events, which can be read as a timeline, a tree, a trajectory or a web page.

    `Tracer.trace` has that of live runs, `trace_session` reads that of a stored session, and `read_trace` that of a
    file.
    """

    def __init__(self, entries: Sequence[TraceEntry], meta: TraceMeta | None = None) -> None:
        self.entries: Sequence[TraceEntry] = entries
        """The entries, in order."""
        self._meta = meta

    @classmethod
    def from_log(cls, entries: Iterable[Entry], session_id: str = "") -> "Trace":
        """Make the trace of the stored entries of a session."""
        return cls(
            build_trace_entries([(each.at, each.event, each.seq) for each in entries]), TraceMeta(session_id=session_id)
        )

    @cached_property
    def meta(self) -> TraceMeta:
        """Facts about the session, from its last request."""
        return merge_trace_meta(self.entries, self._meta or TraceMeta())

    @property
    def started_at(self) -> float:
        """Time of the first entry, in seconds since 1970; 0 if there is none."""
        return self.entries[0].t if self.entries else 0.0

    @property
    def duration_seconds(self) -> float:
        """Seconds from the first entry to the last."""
        return self.entries[-1].dt if self.entries else 0.0

    @property
    def missing(self) -> int:
        """Number of entries that the trace does not have, because its bound was reached."""
        return sum([each.data.count for each in self.entries if isinstance(each.data, EntriesMissing)])

    @cached_property
    def runs(self) -> list[TracedRun]:
        """The runs as a tree: turns, calls, and runs of subagents below calls."""
        return build_trace_tree(self.entries)

    def trajectory(self) -> list[TrajectoryStep]:
        """Return each turn: the action of the model, and the observations that it produced."""
        return build_trajectory(self.runs)

    def disclosure(self) -> list[DisclosureStep]:
        """Return what entered the context of the model with each request, and why."""
        return build_disclosure(self.runs, resolve_snapshots(self.entries), self.started_at)

    def requests(self) -> list[RawRequest]:
        """Return the raw HTTP requests, if the trace has any: see `Tracer`."""
        return [each.data for each in self.entries if isinstance(each.data, RawRequest)]

    def curls(self, *, api_key_env: str = "API_KEY", pretty: bool = True) -> list[str]:
        """Return a curl command for each raw HTTP request; see `to_curl`."""
        return [to_curl(each, api_key_env=api_key_env, pretty=pretty) for each in self.requests()]

    def to_json(self) -> dict[str, Any]:
        """Return the whole trace as one document of JSON values."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "meta": msgspec.to_builtins(self.meta),
            "started_at": self.started_at,
            "duration_seconds": round(self.duration_seconds, 6),
            "missing": self.missing,
            "entries": [msgspec.json.decode(encode_trace_entry(each)) for each in self.entries],
        }

    def to_jsonl(self) -> str:
        """Return the trace as lines of JSON: a header, then one line for each entry."""
        lines = [encode_header(self.started_at), *[encode_trace_entry(each) for each in self.entries]]
        return b"\n".join(lines).decode() + "\n"

    def format(self, *, max_value_length: int = 80, sources: Sequence[TraceSource] = ()) -> str:
        """Return the timeline as text, one line for each entry, of all sources or some of them."""
        from .text import format_timeline

        return format_timeline(self.entries, max_value_length=max_value_length, sources=sources)

    def format_trajectory(self) -> str:
        """Return the trajectory as text."""
        from .text import format_trajectory

        return format_trajectory(self.trajectory())

    def format_disclosure(self) -> str:
        """Return the disclosure timeline as text."""
        from .text import format_disclosure

        return format_disclosure(self.disclosure())

    def format_tree(self, *, width: int = 100) -> str:
        """Return the tree as text: runs, turns and calls, with times, tokens, cost, retries and errors."""
        from .text import format_tree

        return format_tree(self, width=width)

    def to_html(self, compare: "Trace | None" = None) -> "PageText":
        """Return the trace as one self-contained web page, which requests nothing; beside another one if given."""
        from .page import build_trace_page

        return build_trace_page(self, compare)


def build_trace_entries(
    items: Iterable[tuple[float, Event | NonEventTraceData, int]], first_seq: int = 0
) -> list[TraceEntry]:
    """Build trace entries, numbered from `first_seq` on, from their times, data and numbers in the session's log."""
    entries: list[TraceEntry] = []
    start: float | None = None
    for seq, (at, data, log_seq) in enumerate(items, first_seq):
        start = at if start is None else start
        entries.append(TraceEntry(seq, at, max(at - start, 0.0), get_trace_source(data), data, log_seq))
    return entries


def merge_trace_meta(entries: Iterable[TraceEntry], known: TraceMeta) -> TraceMeta:
    """Return the metadata of a traced session: `known`, updated with what the entries of the trace say."""
    found: dict[str, Any] = {}
    for entry in entries:
        data = entry.data
        if isinstance(data, ModelRequested) and not data.path and not data.aside:
            found |= {"model": data.model, "provider": data.provider, "params": data.settings}
        elif isinstance(data, SessionOpened):
            found["session_id"] = data.session_id
        elif isinstance(data, RunStarted) and not data.path:
            found["agent"] = data.agent
        elif isinstance(data, RawRequest):
            found["base_url"] = data.url
    snapshots = resolve_snapshots([each for each in entries if get_trace_source(each.data) == "model"])
    if snapshots:
        found |= {"system": snapshots[-1][1].system, "tools": snapshots[-1][1].tools}
    return msgspec.structs.replace(known, **{name: each for name, each in found.items() if each})


def encode_header(started_at: float) -> bytes:
    """Encode the first line of a trace in JSON Lines format."""
    return msgspec.json.encode({"format": FORMAT, "version": VERSION, "started_at": started_at})


async def trace_session(store: Store, session_id: str) -> Trace:
    """Read the trace of a stored session. Raises `SessionNotFound`.

    It has everything that the log has: no retries, failovers, progress, raw requests or instructions, as they are not
    stored. A `Tracer` collects them while a run is in progress.
    """
    check_not_reserved(session_id, store)
    entries = await store.read(session_id)
    if not entries:
        raise SessionNotFound(f"there is no session {session_id!r} to trace: store.list() lists them")
    return Trace.from_log(entries, session_id)


def read_trace(text: bytes | str) -> Trace:
    """Read a trace that `Tracer`, `Trace.to_jsonl` or `Trace.to_json` has written. Raises `ConfigError`.

    The last line of a file that was cut off is left out.
    """
    raw = text.encode() if isinstance(text, str) else text
    try:
        head, _, rest = raw.partition(b"\n")
        header, lines = _decode_mapping(head if rest.strip() else raw), rest.splitlines()
        _check_header(header)
        if "entries" in header:
            lines = [msgspec.json.encode(each) for each in header["entries"]]
        started_at = float(header["started_at"])
        entries = [decode_trace_entry(line, started_at) for line in lines[:-1] if line.strip()]
        entries += _decode_last_line(lines, started_at, is_whole="entries" in header or raw.endswith(b"\n"))
        meta = convert(header.get("meta", {}), TraceMeta)
    except ConfigError:  # a ValueError too, which says already what is wrong with the trace
        raise
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"this is no trace ({error}): give a file that perdure run --trace wrote") from error
    return Trace(entries, meta)


def _decode_mapping(raw: bytes) -> Mapping[str, Any]:
    read: Mapping[str, Any] = msgspec.json.decode(raw, type=dict[str, Any])
    return read


def _check_header(header: Mapping[str, Any]) -> None:
    if header.get("format") != FORMAT:
        raise ConfigError(f"a file of format {header.get('format')!r} is no trace: give one of perdure run --trace")
    if not isinstance(header.get("version"), int) or header["version"] > VERSION:
        raise ConfigError(f"this trace is of version {header.get('version')!r}, and this is {VERSION}: upgrade perdure")


def _decode_last_line(lines: Sequence[bytes], started_at: float, *, is_whole: bool) -> list[TraceEntry]:
    if not lines or not lines[-1].strip():
        return []
    try:
        return [decode_trace_entry(lines[-1], started_at)]
    except msgspec.DecodeError:
        if is_whole:
            raise
        return []
