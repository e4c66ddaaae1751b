"""`Tracer`: a watcher that collects what happens in runs as a trace, and writes it on a thread of its own."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.model.protocol import Model, Request
from perdure._core.model.wrappers import WrappedModel
from perdure._core.values import checks
from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._core.values.event import (
    Entry,
    ModelEvent,
    ModelRequested,
    RunEnded,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReported,
)
from perdure._core.values.event_class import Event
from perdure._io.home.paths import open_private_file
from perdure._io.http.tap import TappedRequest
from perdure._tracing.view.trace import Trace, encode_header, merge_trace_meta

from .entry import (
    EntriesMissing,
    FirstDelta,
    NonEventTraceData,
    RawRequest,
    RawResponseHead,
    RawResponseLine,
    RequestSnapshot,
    TraceEntry,
    TraceMeta,
    cut_text,
    encode_trace_entry,
    get_trace_source,
)

T = TypeVar("T")

BATCH_SIZE: Final = 100
"""Most items that are written at once, unless the writer is given another number."""
MAX_QUEUE: Final = 10_000
"""Most items that wait, unless the writer is given another number."""
LINGER_SECONDS: Final = 0.05
"""Time that the thread waits for more items before it writes a batch that is not full."""

_LOGGER: Final = logging.getLogger("perdure")


class WriterStats(Struct, frozen=True, kw_only=True):
    """Counters of an `AsyncWriter`. Every added item is written, dropped, failed or queued."""

    added: int
    written: int
    dropped: int
    """Items that were added while the queue was full, or after the end."""
    failed: int
    """Items of batches whose writing raised an error."""
    queued: int


class AsyncWriter(Generic[T]):
    """Writes items in batches, in order, on a background thread. Adding an item never waits and never raises.

    If the queue is full, a new item is dropped and counted. An error of `write` is counted and logged once; the next
    batch is tried again.
    """

    def __init__(
        self, write: Callable[[Sequence[T]], object], *, batch_size: int = BATCH_SIZE, max_queue: int = MAX_QUEUE
    ) -> None:
        """Make a writer; its thread starts with the first item.

        Args:
            write: Plain function that writes a batch of items; it is called on the thread of the writer.
            batch_size: Most items in one batch.
            max_queue: Most items that wait to be written.
        """
        checks.require_plain_function("AsyncWriter", "write", write)
        checks.require_int("AsyncWriter", "batch_size", batch_size, 1)
        checks.require_int("AsyncWriter", "max_queue", max_queue, 1)
        self._write = write
        self._batch_size = batch_size
        self._max_queue = max_queue
        self._queue: deque[T] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_idle = True
        self._is_flushing = False
        self._is_closed = False
        self._writing = 0
        self._written = self._dropped = self._failed = 0

    def add(self, item: T) -> bool:
        """Queue an item; return False if it was dropped. May be called on any thread."""
        count = len(self._queue)
        if self._is_closed or count >= self._max_queue:
            with self._changed:
                self._dropped += 1
            return False
        self._queue.append(item)
        # The lock is needed only to wake the thread, which marks itself as idle before it looks at the queue once more.
        if self._is_idle or count + 1 == self._batch_size:
            with self._changed:
                self._is_idle = False
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="perdure trace writer", daemon=True)
                    self._thread.start()
                self._changed.notify_all()
        return True

    @property
    def is_full(self) -> bool:
        """True if the next item would be dropped: a producer that can wait should await `wait_for_room()`."""
        return len(self._queue) >= self._max_queue

    async def wait_for_room(self) -> None:
        """Wait until half of the queue has been written."""
        await asyncio.to_thread(self._wait, lambda: len(self._queue) <= self._max_queue // 2)

    @property
    def stats(self) -> WriterStats:
        """The counters as they are now."""
        with self._changed:
            queued = len(self._queue) + self._writing
            return WriterStats(
                added=self._written + self._dropped + self._failed + queued,
                written=self._written,
                dropped=self._dropped,
                failed=self._failed,
                queued=queued,
            )

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait until everything queued is written; return False if that takes longer than the timeout."""
        return self._wait(lambda: not self._queue and not self._writing, timeout_seconds)

    async def flush_async(self, timeout_seconds: float | None = None) -> bool:
        """Wait as `flush` does, without blocking the event loop."""
        return await asyncio.to_thread(self.flush, timeout_seconds)

    def close(self, timeout_seconds: float | None = None) -> bool:
        """Accept no more items, and wait until those queued are written; return False after the timeout."""
        self._is_closed = True
        is_done = self.flush(timeout_seconds)
        with self._changed:
            self._changed.notify_all()
        return is_done

    def _wait(self, is_done: Callable[[], bool], timeout_seconds: float | None = None) -> bool:
        with self._changed:
            self._is_flushing = True
            self._changed.notify_all()
            try:
                return self._changed.wait_for(is_done, timeout_seconds)
            finally:
                self._is_flushing = False

    # -- on the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while batch := self._take_batch():
            try:
                self._write(batch)
            except Exception as error:  # noqa: BLE001 - an error of a writer must not reach a run
                self._count(failed=len(batch))
                if self._failed == len(batch):
                    _LOGGER.warning(
                        "a trace cannot be written (%s: %s); it is tried again", type(error).__name__, error
                    )
            else:
                self._count(written=len(batch))

    def _take_batch(self) -> list[T]:
        """Wait for items and return a batch of them; an empty one when the writer is closed."""
        with self._changed:
            while True:
                self._is_idle = True
                if self._queue:
                    break
                if self._is_closed:
                    return []
                self._changed.wait()
            self._is_idle = False
            if len(self._queue) < self._batch_size and not (self._is_flushing or self._is_closed):
                self._changed.wait(LINGER_SECONDS)
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), self._batch_size))]
            self._writing = len(batch)
            return batch

    def _count(self, *, written: int = 0, failed: int = 0) -> None:
        with self._changed:
            self._written += written
            self._failed += failed
            self._writing = 0
            self._changed.notify_all()


MAX_ENTRIES: Final = 100_000
"""Entries that a tracer keeps, unless it is given another number; the oldest make room."""

_DELTAS: Final = frozenset({TextDelta, ThinkingDelta, ToolCallDelta, UsageReported})


class Tracer:
    """Watcher that records a trace of runs: events, requests and raw HTTP traffic, with times.

    - `Agent(watchers=[tracer])` collects all events: also retries, failovers, errors and progress, which are not stored
      in the log.
    - `tracer.observe(model)` adds the instructions and tools of each request; `extensions.tracing(tracer)` does both.
    - `tapped(transport, tracer)` adds raw requests and lines of responses.

    Pieces of text are not kept, unless `deltas` is set: only when the first one arrived. Events have been redacted with
    the vault of their agent before a watcher gets them; `redact` is for more, and for raw traffic.
    """

    def __init__(
        self,
        *,
        write: Callable[[Sequence[str]], object] | str | Path | None = None,
        on_entry: Callable[[TraceEntry], object] | None = None,
        limit: int = MAX_ENTRIES,
        deltas: bool = False,
        redact: Callable[[Any], Any] | None = None,
        meta: TraceMeta | None = None,
        batch_size: int = BATCH_SIZE,
        max_queue: int = MAX_QUEUE,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Make a tracer that has collected nothing yet.

        Args:
            write: The path of a file, or a plain function that is given lines of JSON; called on a thread, in batches.
            on_entry: Plain function that gets each entry at once; it has to be quick. An error ends its calls.
            limit: Most entries that are kept; the oldest make room. Those that are written are not limited.
            deltas: True to keep each streamed piece of text too.
            redact: Plain function that returns an event, or what was recorded besides, without secrets, as
                `Redactor.value` does. If it raises, the entry is left out.
            meta: Facts about the session that entries do not tell.
            batch_size: Most lines that are written at once.
            max_queue: Most lines that wait to be written; more are dropped and counted.
            clock: The source of the time of requests and raw traffic.
        """
        for name, value in (("on_entry", on_entry), ("redact", redact)):
            checks.require_plain_function_or_none("Tracer", name, value)
        checks.require_int("Tracer", "limit", limit, 1)
        checks.require_bool("Tracer", "deltas", deltas)
        self._entries: deque[tuple[int, float, Event | NonEventTraceData, int]] = deque(maxlen=limit)
        self._on_entry = on_entry
        self._keeps_deltas = deltas
        self._redact = redact
        self._known_meta = meta or TraceMeta()
        self._clock = clock
        self._count = 0
        self._left_out = 0
        self._started_at: float | None = None
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        """Runs that wait for the first piece of a reply."""
        self._prefixes: dict[str, tuple[str, Sequence[Any]]] = {}
        """Instructions and tools of the last request, by session."""
        self._file: _TraceFile | None = None
        self.writer: AsyncWriter[TraceEntry] | None = None
        """The writer, if there is one, with its counters."""
        if write is not None:
            self._file = _TraceFile(write)
            self.writer = AsyncWriter(self._file.write_entries, batch_size=batch_size, max_queue=max_queue)

    # -- what it sees --------------------------------------------------------------------------------------------------

    def collect_event(self, entry: Entry) -> None:
        """Collect an event of a run; called at once by the run, for every event."""
        event = entry.event
        kind = type(event)
        if kind in _DELTAS:
            if self._waiting and kind is not UsageReported and event.run_id in self._waiting:
                self._waiting.discard(event.run_id)
                self._add(entry.at, FirstDelta(event.run_id, event.path))
            if not self._keeps_deltas:
                return
        elif kind is ModelRequested:
            self._waiting.add(event.run_id)
        elif kind is RunEnded:
            self._waiting.discard(event.run_id)
        self._add(entry.at, event, entry.seq)

    def __call__(self, entry: Entry) -> None:
        """Collect an entry, as `collect_event` does; for stored entries, and for programs that call watchers."""
        self.collect_event(entry)

    def observe(self, model: Model) -> Model:
        """Wrap a model so that the instructions and tools of each request are collected. Its stream is not touched."""
        if not callable(getattr(model, "stream", None)):
            checks.raise_config_error("Tracer.observe", "model", model, "give a model with stream(request)")

        def stream(request: Request) -> AsyncIterator[ModelEvent]:
            self._collect_request(request)
            return model.stream(request)

        return WrappedModel(model, stream)

    def on_request(self, exchange: TappedRequest) -> None:
        """Collect a raw request; called by `tapped(transport, tracer)`."""
        body, cut = cut_text(exchange.body.decode("utf-8", "replace"))
        self._add(
            self._clock.now(),
            RawRequest(exchange.number, exchange.method, exchange.url, dict(exchange.headers), body, cut),
        )

    def on_answer(self, exchange: TappedRequest, status: int, headers: Mapping[str, str]) -> None:
        """Collect the status and headers of a response; called by `tapped(transport, tracer)`."""
        self._add(self._clock.now(), RawResponseHead(exchange.number, status, dict(headers)))

    def on_line(self, exchange: TappedRequest, line: bytes) -> None:
        """Collect a line of a response that is not empty; called by `tapped(transport, tracer)`."""
        text = line.decode("utf-8", "replace").strip()
        if text:
            self._add(self._clock.now(), RawResponseLine(exchange.number, *cut_text(text)))

    def _collect_request(self, request: Request) -> None:
        try:
            prefix = (request.instructions, request.tools)
            known = self._prefixes.get(request.session_id)
            is_same = known is not None and known[0] == prefix[0] and (known[1] is prefix[1] or known[1] == prefix[1])
            self._prefixes[request.session_id] = prefix
            snapshot = RequestSnapshot(
                system="" if is_same else request.instructions,
                tools=() if is_same else tuple(request.tools),
                messages=len(request.messages),
                session_id=request.session_id,
                is_repeated=is_same,
            )
        except Exception:  # noqa: BLE001 - tracing must not break a run
            self._left_out += 1
        else:
            self._add(self._clock.now(), snapshot)

    def _add(self, t: float, data: Event | NonEventTraceData, log_seq: int = 0) -> None:
        if self._redact is not None:
            try:
                data = self._redact(data)
            except Exception:  # noqa: BLE001 - what cannot be redacted is not kept
                self._left_out += 1
                return
        with self._lock:
            seq = self._count
            self._count = seq + 1
            self._entries.append((seq, t, data, log_seq))
        if self.writer is not None or self._on_entry is not None:
            self._pass_on(seq, t, data, log_seq)

    def _pass_on(self, seq: int, t: float, data: Event | NonEventTraceData, log_seq: int) -> None:
        if self._started_at is None:
            self._started_at = t
        entry = TraceEntry(seq, t, max(t - self._started_at, 0.0), get_trace_source(data), data, log_seq)
        if self.writer is not None:
            self.writer.add(entry)
        if self._on_entry is not None:
            try:
                self._on_entry(entry)
            except Exception as error:  # noqa: BLE001 - tracing must not break a run
                _LOGGER.warning("on_entry of a tracer raised %r and is not called again", error)
                self._on_entry = None

    # -- what it has ---------------------------------------------------------------------------------------------------

    @property
    def trace(self) -> Trace:
        """The trace of everything that was collected and kept so far."""
        with self._lock:
            kept, count = list(self._entries), self._count
        lost = count - len(kept) + self._left_out
        start = kept[0][1] if kept else 0.0
        entries = [
            TraceEntry(seq, t, max(t - start, 0.0), get_trace_source(data), data, log_seq)
            for seq, t, data, log_seq in kept
        ]
        if lost:
            first_seq = max(entries[0].seq - 1, 0) if entries else 0
            marker = EntriesMissing(lost, "the trace reached its limit, or entries could not be redacted")
            entries.insert(0, TraceEntry(first_seq, start, 0.0, "agent", marker))
        meta = self._known_meta
        if self._prefixes:  # the ring may have lost the request that had them
            system, tools = list(self._prefixes.values())[-1]
            if self._redact is None:
                meta = replace(meta, system=system, tools=tuple(tools))
        return Trace(entries, meta)

    @property
    def meta(self) -> TraceMeta:
        """Facts about the session: its id, agent, model, settings, instructions and tools."""
        return merge_trace_meta(self.trace.entries, self.trace.meta)

    def flush(self, timeout_seconds: float | None = 5.0) -> bool:
        """Wait until everything collected is written; return False after the timeout."""
        return self.writer is None or self.writer.flush(timeout_seconds)

    def close(self, timeout_seconds: float | None = 5.0) -> bool:
        """Write what was collected, and close the file; return False if that takes longer than the timeout."""
        is_done = self.writer is None or self.writer.close(timeout_seconds)
        if self._file is not None and is_done:
            self._file.close()
        return is_done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


class _TraceFile:
    """Writes entries as lines of JSON, to a file or a function; used on the thread of the writer."""

    def __init__(self, target: Callable[[Sequence[str]], object] | str | Path) -> None:
        self._has_header = False
        self._handle: Any = None
        if isinstance(target, str | Path):
            path = Path(target)  # readable by its owner alone: a trace contains the conversation
            self._handle = open(path, "w", encoding="utf-8", opener=open_private_file)  # noqa: SIM115 - `close` closes it
            self._write: Callable[[Sequence[str]], object] = self._write_to_file
        else:
            checks.require_plain_function("Tracer", "write", target)
            self._write = target

    def write_entries(self, entries: Sequence[TraceEntry]) -> None:
        lines = [encode_trace_entry(each).decode() for each in entries]
        if not self._has_header:
            lines.insert(0, encode_header(entries[0].t - entries[0].dt).decode())
            self._has_header = True
        self._write(lines)

    def _write_to_file(self, lines: Sequence[str]) -> None:
        self._handle.write("".join([line + "\n" for line in lines]))
        self._handle.flush()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()
