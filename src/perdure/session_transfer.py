"""Export and import sessions as JSON documents, to share one, to keep one as a test, or to move it to another store.

A document contains every entry with its number, id and time. Those of newer
versions are refused.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from .core.clock_and_ids import SYSTEM_CLOCK, Clock, new_id
from .core.error import ConfigError, Conflict, EntryTooNew, SessionExists, SessionNotFound
from .core.event import Entry, SessionImported
from .core.log_codec import decode_entry, encode_entry
from .core.model import ToolSpec
from .core.reserved_session_ids import check_not_reserved
from .core.store import Store, finish_before_cancel
from .imported_session_filter import ImportReport, reduce_to_conversation, renumber_entries

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
