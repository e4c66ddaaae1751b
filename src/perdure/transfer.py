"""Sessions as JSON documents: to hand one over, to keep one as a test, to move one to another store.

Above: callers, the command line, `replay.py`. Below: stores and the codec. A document holds every entry as it was, with
its number, name and time. What an older version has written is understood; what a newer one has written is refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from .core.codec import decode_entry, encode_entry
from .core.error import ConfigError, Conflict, SessionExists, SessionNotFound, UnreadableEntry
from .core.event import Entry
from .core.model import ToolSpec
from .core.store import Store, insisted

FORMAT: Final = "windlass-session"
VERSION: Final = 1
"""The version of the document; its entries have versions of their own."""


class Prefix(msgspec.Struct, frozen=True):
    """What a model is told before a conversation. The log keeps a hash of it, a document can keep it whole."""

    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()


class Recording(msgspec.Struct, frozen=True):
    """What a document says."""

    session_id: str
    entries: Sequence[Entry]
    prefixes: Mapping[str, Prefix] = {}
    """What the hashes in its requests stand for, as far as the document tells."""


async def export_session(
    store: Store, session_id: str, *, prefixes: Mapping[str, Prefix] | None = None
) -> dict[str, Any]:
    """A session as a document of JSON values. Raises `SessionNotFound`.

    With `prefixes` (see `Replayed.prefixes`) it also tells which instructions and tools the hashes in its requests
    stand for, so that a replay can show what has changed in them.
    """
    info, entries = await store.info(session_id), await store.read(session_id)
    if info is None or not entries:
        raise SessionNotFound(f"there is no session {session_id!r} to export: store.list() tells which there are")
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
    store: Store, document: Mapping[str, Any] | bytes | str, *, session_id: str | None = None
) -> str:
    """Make a session of a document, under its own name or another, and say which. It is there whole or not at all.

    Raises `SessionExists`, and leaves that one as it is; `ConfigError` for what is no such document.
    """
    recording = read_document(document)
    name = session_id or recording.session_id
    if await store.info(name) is not None:
        raise _exists(name)
    lease = await store.acquire(name)
    try:
        await insisted(lambda: store.append(lease, recording.entries, sync=True))
    except Conflict as error:  # somebody has begun it since we looked
        raise _exists(name) from error
    finally:
        await insisted(lambda: store.release(lease))
    return name


def read_document(document: Mapping[str, Any] | bytes | str) -> Recording:
    """What a document says, all of it checked. Raises `ConfigError`, and `UnreadableEntry` for a newer version's."""
    read = _decoded(document)
    if read.format != FORMAT:
        raise ConfigError(f"a document of format {read.format!r} is no session: give one that export_session made")
    if read.version > VERSION:
        raise UnreadableEntry(
            f"this document is of version {read.version}, and this is version {VERSION}: upgrade perdure"
        )
    entries = [_entry(place, raw) for place, raw in enumerate(read.entries, 1)]
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
    prefixes: dict[str, Prefix] = {}


_documents = msgspec.json.Decoder(_Document)


def _decoded(document: Mapping[str, Any] | bytes | str) -> _Document:
    try:
        raw = msgspec.json.encode(dict(document)) if isinstance(document, Mapping) else document
        return _documents.decode(raw)
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"this is no session ({error}): give a document that export_session made") from error


def _entry(place: int, raw: msgspec.Raw) -> Entry:
    try:
        entry = decode_entry(bytes(raw))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"entry {place} of the document cannot be read ({error}): export the session again"
        ) from error
    if entry.seq != place:
        raise ConfigError(f"entry {place} of the document has the number {entry.seq}: export the session again")
    return entry


def _exists(session_id: str) -> SessionExists:
    return SessionExists(f"there is a session {session_id!r} already: import this one under another name")
