"""Export and import sessions as JSON documents: to share one, to keep one as a test, or to move it to another store."""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NoReturn

import msgspec
from msgspec import Struct, structs
from msgspec.structs import replace

from perdure._core.log.codec import decode_entry, encode_entry
from perdure._core.log.fold import State
from perdure._core.log.repair import build_repair_events
from perdure._core.log.reserved_ids import check_not_reserved
from perdure._core.log.store import Store, finish_before_cancel
from perdure._core.model.protocol import ToolSpec
from perdure._core.values.clock import SYSTEM_CLOCK, Clock, new_id
from perdure._core.values.engine_event import AutoContinued, GuardrailTripped, LimitReached
from perdure._core.values.error import ConfigError, Conflict, EntryTooNew, SessionExists, SessionNotFound
from perdure._core.values.event import (
    Compacted,
    CompactionStarted,
    Entry,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    ReplyDiscarded,
    RunEnded,
    RunStarted,
    SessionConfigured,
    SessionImported,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    Unknown,
    ValueKept,
    ViewChanged,
)
from perdure._core.values.event_class import Event
from perdure._core.values.message import NO_USAGE, Message, ToolResult, Usage, merge_labels
from perdure._core.values.provenance import IMPORTED_LABEL, KEPT_LABELS, list_kept_labels

ENDING_IMPORTED: Final = ("cancelled", "imported", "the session was imported, and its run is not continued")
"""Status, reason and error text of a run that was not over when its session was exported."""
MAX_NUMBER: Final = 2**53
"""Numbers above this one, or below zero, are not those of a log."""
MAX_DEPTH: Final = 32
"""Number of agents that can be below one another."""
MAX_PATH_LENGTH: Final = 2000
"""Maximum length of the path of an agent."""
KEPT_EVENTS: Final[frozenset[type[Event]]] = frozenset(
    {
        *(MessageAdded, ToolStarted, ToolFinished, Compacted, ViewChanged, CompactionStarted),
        *(RunStarted, RunEnded, ModelRequested, ModelReplied, ReplyDiscarded, SubagentStarted, SubagentFinished),
        *(GuardrailTripped, AutoContinued, LimitReached, SessionImported),
    }
)
"""Kinds of events that are words, or records of what happened. All others are dropped, new ones too."""
SHOWN_DIGEST: Final = 16
"""Characters of the digest in the sources of each message."""


class ImportReport(Struct, frozen=True, kw_only=True):
    """The report on an import: the new session, the digest of its document, and what was dropped from it."""

    session_id: str
    digest: str
    """SHA-256 of the document."""
    entries: int
    """Number of entries in the new log."""
    trusted: bool = False
    """True if everything was imported."""
    dropped: Mapping[str, int] = {}
    """Number of entries that were dropped, by kind: `permission_decided`, `session_configured`, …"""
    notes: tuple[str, ...] = ()
    """What else was changed, a sentence each."""


def reduce_to_conversation(
    entries: Sequence[Entry], digest: str, now: float
) -> tuple[list[Entry], dict[str, int], list[str]]:
    """Drop the log entries that could control later runs; return the rest, the number dropped by kind, and notes.

    Raises `ConfigError` for entries that contradict one another, as no log has them.
    """
    dropped: Counter[str] = Counter()
    notes: dict[str, None] = {}
    kept: list[Entry] = []
    state = State()
    finished = _list_finished_tasks(entries)
    source = f"import:{digest[:SHOWN_DIGEST]}"
    for entry in entries:
        event = entry.event
        if isinstance(event, SessionConfigured) and isinstance(title := event.changes.get("title"), str):
            dropped.update([_get_kind(event)] if len(event.changes) > 1 else [])
            event = SessionConfigured({"title": title}, run_id=event.run_id)
        elif isinstance(event, ValueKept) and (labels := list_kept_labels(event)[0]):
            event = ValueKept(KEPT_LABELS, dict.fromkeys(labels, source), run_id=event.run_id, path=event.path)
        elif type(event) not in KEPT_EVENTS or _is_unfinished(event, finished):
            dropped[_get_kind(event)] += 1
            continue
        event = _reduce_event(event, source)
        _check_consistency(entry.seq, event, state)
        state.apply(event)
        kept.append(Entry(0, entry.at if 0 <= entry.at <= now else now, event))
    for event in _end_runs(state):
        notes["a run that was not over is ended"] = None
        kept.append(Entry(0, now, event))
    return kept, dict(dropped), list(notes)


def renumber_entries(entries: Sequence[Entry]) -> list[Entry]:
    """Return imported log entries numbered from 1, and with new ids, since those in the document may be forged."""
    return [Entry(seq, each.at, each.event, new_id()) for seq, each in enumerate(entries, 1)]


def _is_unfinished(event: Event, finished: Collection[str]) -> bool:
    """Return True for an event about a task of another agent that has no end in the document, and is dropped."""
    return isinstance(event, SubagentStarted) and event.call_id not in finished


def _get_kind(event: Event) -> str:
    return f"unknown:{event.name}" if isinstance(event, Unknown) else str(event.__struct_config__.tag)


def _end_runs(state: State) -> list[Event]:
    """Build the events that end all unfinished runs, of subagents too, and give their open calls a result."""
    children = [event for child in state.children.values() for event in build_repair_events(child, ENDING_IMPORTED)]
    for event in children:
        state.apply(event)
    return [*children, *build_repair_events(state, ENDING_IMPORTED)]


def _list_finished_tasks(entries: Sequence[Entry]) -> set[str]:
    return {each.event.call_id for each in entries if isinstance(each.event, SubagentFinished)}


# -- one event ---------------------------------------------------------------------------------------------------------


def _reduce_event(event: Event, source: str) -> Event:
    """Return an event of the conversation without the fields that control later runs."""
    match event:
        case MessageAdded(message=message) | ModelReplied(message=message):
            return replace(event, message=_reduce_message(message, source))
        case ReplyDiscarded(partial=Message() as partial):
            return replace(event, partial=_reduce_message(partial, source))
        case Compacted(summary=summary, usage=usage):
            return replace(event, summary=_reduce_message(summary, source), usage=_check_usage(usage))
        case ToolFinished(result=result):
            return replace(event, result=_reduce_result(result))
        case _:
            return _reduce_record(event)


def _reduce_record(event: Event) -> Event:
    """Return an event about a run or a request without options, input ids and impossible numbers."""
    match event:
        case RunStarted():
            return replace(event, options={}, input_id="")
        case RunEnded(usage=usage, cost_usd=cost):
            return replace(event, usage=_check_usage(usage) or NO_USAGE, cost_usd=_check_cost(cost))
        case SubagentFinished(usage=usage, cost_usd=cost):
            return replace(event, usage=_check_usage(usage), cost_usd=_check_cost(cost))
        case ModelRequested():
            return replace(event, settings={}, price_usd=())
        case _:
            return event


def _reduce_message(message: Message, source: str) -> Message:
    """Return a message with a label that it was imported. Instructions become a user's message."""
    is_system = message.role == "system"
    return replace(
        message,
        role="user" if is_system else message.role,
        origin="import" if is_system else message.origin,
        parts=tuple([_reduce_result(part) if isinstance(part, ToolResult) else part for part in message.parts]),
        usage=_check_usage(message.usage),
        metadata={},
        author="",
        labels=merge_labels(message.labels, (IMPORTED_LABEL,)),
        sources=(*message.sources, source),
    )


def _reduce_result(result: ToolResult) -> ToolResult:
    labels = merge_labels(result.labels, (IMPORTED_LABEL,))
    return replace(result, render=None, terminate=False, labels=labels)


def _check_usage(usage: Usage | None) -> Usage | None:
    """Return token counts if they are plausible; negative ones would enlarge the budget of a later run."""
    if usage is None:
        return None
    numbers = [value for value in structs.astuple(usage) if isinstance(value, (int, float))]
    return usage if all(0 <= number <= MAX_NUMBER for number in numbers) else None


def _check_cost(cost: float | None) -> float | None:
    return cost if cost is not None and 0 <= cost <= MAX_NUMBER else None


# -- what no log has ---------------------------------------------------------------------------------------------------


def _check_consistency(seq: int, event: Event, state: State) -> None:
    """Raise `ConfigError` for an event that cannot follow the ones before it."""
    if event.path.count("/") >= MAX_DEPTH or len(event.path) > MAX_PATH_LENGTH:
        _fail(seq, "is of an agent below too many others")
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if isinstance(value, int) and not 0 <= value <= MAX_NUMBER:
            _fail(seq, f"has a {name} that cannot be: {value}")
    here = state if event.path == state.path else state.get_child(event.path)
    match event:
        case MessageAdded(message=message):
            _check_message(seq, message, here)
        case ToolFinished(result=result) if (result.call_id, result.name) != (event.call_id, event.name):
            _fail(seq, "has the result of another call")
        case Compacted(upto=upto) | ViewChanged(upto=upto) if upto > len(here.messages):
            _fail(seq, f"replaces {upto} messages, and there are {len(here.messages)}")
        case _:
            pass


def _check_message(seq: int, message: Message, state: State) -> None:
    calls = [call.call_id for call in message.tool_calls]
    if message.role == "tool" or message.tool_results:
        _fail(seq, "has results that no call of a tool led to")
    if message.role != "assistant":
        return _fail(seq, "has calls of tools that no model made") if calls else None
    if state.unsettled_reply is not None:
        _fail(seq, "is a reply, and calls of the one before have no results")
    if len({*calls}) < len(calls) or not state.call_ids.isdisjoint(calls):
        _fail(seq, "has a call twice")
    return None


def _fail(seq: int, problem: str) -> NoReturn:
    raise ConfigError(f"entry {seq} of the document {problem}: it was not exported so; export the session again")


FORMAT: Final = "perdure-session"
VERSION: Final = 1
"""Version of the document; its entries have their own versions."""


class PromptPrefix(msgspec.Struct, frozen=True):
    """Instructions and tools that begin each model request, before the conversation; the log has only their hash.

    An export can include their full text.
    """

    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()


class Recording(msgspec.Struct, frozen=True):
    """A session read from an exported document: its entries, and the instructions and tools of its requests."""

    session_id: str
    entries: Sequence[Entry]
    prefixes: Mapping[str, PromptPrefix] = {}
    """Instructions and tools by the hash in the requests, as far as the document has them."""


async def export_session(
    store: Store, session_id: str, *, prefixes: Mapping[str, PromptPrefix] | None = None
) -> dict[str, Any]:
    """Export a session as a document of JSON values. Raises `SessionNotFound`.

    With `prefixes` (see `ReplayReport.prefixes`) the document also has the instructions and tools behind the hashes in
    its requests, so that a replay can show what has changed in them.
    """
    check_not_reserved(session_id, store)
    info, entries = await store.info(session_id), await store.read(session_id)
    if info is None or not entries:
        raise SessionNotFound(f"there is no session {session_id!r} to export: store.list() lists them")
    document = {
        "format": FORMAT,
        "version": VERSION,
        "session_id": session_id,
        "title": info.title,
        "parent": info.parent,
        "at": info.at,
        "entries": [msgspec.json.decode(encode_entry(entry)) for entry in entries],
    }
    if prefixes:
        document["prefixes"] = msgspec.to_builtins(dict(prefixes))
    return document


async def import_session(
    store: Store,
    document: Mapping[str, Any] | bytes | str,
    *,
    session_id: str | None = None,
    trusted: bool = False,
    by: str = "",
    clock: Clock = SYSTEM_CLOCK,
) -> ImportReport:
    """Store the session of an exported document, under its id or a new one. Either all of it is stored, or nothing.

    An import takes words, not power: messages and results are stored, with the label `imported`. Grants, decisions,
    models, settings, questions, inbox items, kept values and jobs are dropped and counted, and a run that was not over
    is ended. The log of the new session begins with a `SessionImported`.

    Args:
        store: The store of the new session.
        document: The document, as `export_session` returned it, or as JSON.
        session_id: Id of the new session; that in the document if there is none.
        trusted: True to import everything unchanged: for a document that nobody else could have changed.
        by: The user who imports it, for the log.
        clock: The source of the time of the import.

    Raises `SessionExists`, leaving that session unchanged, and `ConfigError` for an invalid document.
    """
    recording = read_document(document)
    name = session_id or recording.session_id
    check_not_reserved(name, store)
    entries, report = _prepare_import(recording, name, _hash_document(document), by, clock.now(), trusted=trusted)
    if await store.info(name) is not None:
        raise _build_session_exists(name)
    lease = await store.acquire(name)
    try:
        await finish_before_cancel(lambda: store.append(lease, entries, sync=True))
    except Conflict as error:  # it was created since we looked
        raise _build_session_exists(name) from error
    finally:
        await finish_before_cancel(lambda: store.release(lease))
    return report


def _prepare_import(
    recording: Recording, name: str, digest: str, by: str, now: float, *, trusted: bool
) -> tuple[list[Entry], ImportReport]:
    """Return the entries to store for an imported session, and the report on them."""
    if trusted:
        kept, dropped, notes = list(recording.entries), dict[str, int](), list[str]()
    else:
        kept, dropped, notes = reduce_to_conversation(recording.entries, digest, now)
    event = SessionImported(digest, recording.session_id, by, trusted, dropped)
    if trusted:
        kept.append(Entry(len(kept) + 1, now, event, new_id()))
    else:
        kept = renumber_entries([Entry(0, now, event), *kept])
    return kept, ImportReport(
        session_id=name, digest=digest, entries=len(kept), trusted=trusted, dropped=dropped, notes=tuple(notes)
    )


def _hash_document(document: Mapping[str, Any] | bytes | str) -> str:
    """Return the SHA-256 of a document; of its JSON, if it is not text."""
    if isinstance(document, Mapping):
        document = msgspec.json.encode(dict(document))
    return hashlib.sha256(document.encode() if isinstance(document, str) else document).hexdigest()


def read_document(document: Mapping[str, Any] | bytes | str) -> Recording:
    """Parse and check an exported session. Raises `ConfigError`, and `EntryTooNew` if a newer version wrote it."""
    read = _decode_document(document)
    if read.format != FORMAT:
        raise ConfigError(f"a document of format {read.format!r} is no session: give one from export_session")
    if read.version > VERSION:
        raise EntryTooNew(f"this document is of version {read.version}, and this is version {VERSION}: upgrade perdure")
    entries = [_decode_document_entry(place, raw) for place, raw in enumerate(read.entries, 1)]
    if not entries:
        raise ConfigError(f"the document of session {read.session_id!r} has no entries: export it again")
    names = [entry.id for entry in entries if entry.id]
    if len(set(names)) < len(names):
        raise ConfigError(f"the document of session {read.session_id!r} has an entry twice: export it again")
    return Recording(read.session_id, entries, read.prefixes)


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    version: int
    session_id: str
    entries: list[msgspec.Raw]
    prefixes: dict[str, PromptPrefix] = {}


_documents = msgspec.json.Decoder(_Document)


def _decode_document(document: Mapping[str, Any] | bytes | str) -> _Document:
    try:
        raw = msgspec.json.encode(dict(document)) if isinstance(document, Mapping) else document
        return _documents.decode(raw)
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"this is no session ({error}): give a document that export_session made") from error


def _decode_document_entry(place: int, raw: msgspec.Raw) -> Entry:
    try:
        entry = decode_entry(bytes(raw))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"entry {place} of the document cannot be read ({error}): export the session again"
        ) from error
    if entry.seq != place:
        raise ConfigError(f"entry {place} of the document has the number {entry.seq}: export the session again")
    return entry


def _build_session_exists(session_id: str) -> SessionExists:
    return SessionExists(f"there is a session {session_id!r} already: import this one under another name")
