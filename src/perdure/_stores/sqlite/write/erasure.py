"""Fork and delete sessions, redact entries, and list the texts that leave an SQLite file, to look for copies."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec

from perdure._core.log.store import Lease
from perdure._core.values.error import Conflict, Fenced, SessionBusy, SessionExists, SessionNotFound, StoreError
from perdure._core.values.event import Entry
from perdure._stores.checks import check_fork
from perdure._stores.sqlite.driver import Connection
from perdure._stores.sqlite.format.rows import PackRow, decode_entry_metadata, encode_row, slice_row
from perdure._stores.sqlite.format.schema import ADD_BLOB, ADD_ROW, add_ids
from perdure._stores.sqlite.log import (
    find_ranges,
    make_long_text_reader,
    read_entries,
    read_entry_time,
    read_title,
    release_long_texts,
)

from .leases import check_not_running
from .process_leases import ProcessLeases

_FIND_TEXT = "SELECT key, head, title FROM session WHERE tenant = '' AND id = ?"
_POSTS = "SELECT id, body FROM post WHERE tenant = '' AND session = ?"

_NAMES_OF_KINDS = frozenset({"kind", "role", "status"})
"""Fields of events whose values are words of ours, which are everywhere."""


def list_texts(session_id: str, seq: int | None, connection: Connection) -> set[str]:
    """Return all texts of a session, or of its entry `seq`: those of events, of posts, and ids."""
    texts: set[str] = set()
    for key, head, title in connection.execute(_FIND_TEXT, (session_id,)).fetchall():
        texts.add(str(title))
        try:
            for entry_range in find_ranges(connection, key, head):
                first = entry_range.after if seq is None else max(entry_range.after, seq - 1)
                last = entry_range.upto if seq is None else min(entry_range.upto, seq)
                for entry in read_entries(connection, entry_range._replace(after=first, upto=last), session_id):
                    texts.update((entry.id, *_find_texts(msgspec.to_builtins(entry.event))))
        except StoreError:  # damaged: it can be deleted all the same
            continue
    if seq is None:
        texts.add(session_id)
        for post_id, body in connection.execute(_POSTS, (session_id,)).fetchall():
            texts.update((str(post_id), bytes(body).decode(errors="replace")))
    return texts


def _find_texts(value: Any) -> Iterator[str]:
    """Yield the texts in JSON values, without the names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, each in cast("dict[str, Any]", value).items():
            if name not in _NAMES_OF_KINDS:
                yield from _find_texts(each)
    elif isinstance(value, list | tuple):
        for each in cast("Sequence[Any]", value):
            yield from _find_texts(each)


_FIND: Final = "SELECT key, head, fence, title FROM session WHERE tenant = '' AND id = ?"
_FORK: Final = """
INSERT INTO session(id, head, fence, created_at, updated_at, title, parent, at, sealed, indexed)
SELECT ?1, ?2, value + 1, ?3, ?4, ?5, ?6, ?2, ?2, ?2 FROM meta WHERE name = 'fence'
ON CONFLICT(tenant, id) DO UPDATE SET head = excluded.head, created_at = excluded.created_at,
    updated_at = excluded.updated_at, title = excluded.title, parent = excluded.parent, at = excluded.at,
    sealed = excluded.sealed, indexed = excluded.indexed, unindexed = 0"""
_ABOVE: Final = """
SELECT key, first, last, version, heads, body, holes FROM pack WHERE session = ? AND last > ? ORDER BY last"""
_HOLDING: Final = """
SELECT key, first, last, version, heads, body, holes FROM pack WHERE session = ?1 AND last >= ?2 AND first <= ?2"""
_HIDE: Final = "UPDATE session SET id = NULL, title = '', holder = NULL, progress = 0, due_at = NULL WHERE key = ?"
_CUT: Final = """
UPDATE session SET head = ?2, sealed = min(sealed, ?2), indexed = min(indexed, ?2), unindexed = indexed < ?2,
    at = min(at, ?2), updated_at = 0
WHERE key = ?1"""
_CUT_LABELS: Final = "UPDATE label SET last = first + ?2 - seq WHERE session = ?1 AND seq + last - first > ?2"
_SHARING: Final = "SELECT key FROM session WHERE parent = ?1 AND at >= ?2"
_NOTE_LOSS: Final = "UPDATE meta SET value = value + 1 WHERE name = 'search'"


class ForkRequest(NamedTuple):
    """The arguments for forking a session: its id, the id of the new session, and the number of entries to share."""

    session_id: str
    new_id: str
    at: int | None
    now: float


def create_fork(new: ForkRequest, leases: ProcessLeases, connection: Connection) -> None:
    """Fork a session: create a new session that shares the first entries of an existing one."""
    session_id, new_id, at, now = new
    key, head, _, title = connection.execute(_FIND, (session_id,)).get or (0, 0, 0, "")
    if not head:
        raise SessionNotFound(f"there is no session {session_id!r} to fork: list() shows which there are")
    _check_fork_id(session_id, new_id, leases, connection)
    check_fork(session_id, at, head)
    upto = head if at is None else at
    if upto < head:
        title = read_title(connection, key, upto, session_id)
    connection.execute(_FORK, (new_id, upto, now, read_entry_time(connection, key, upto), title, key))


def _check_fork_id(session_id: str, new_id: str, leases: ProcessLeases, connection: Connection) -> None:
    there = connection.execute(_FIND, (new_id,)).get
    taken = there is not None and there[1] > 0
    try:
        check_not_running(new_id, leases, connection)
    except SessionBusy:
        taken = True
    if taken:
        raise SessionExists(f"there is a session {new_id!r} already: fork {session_id!r} to another id")


def delete_session(session_id: str, leases: ProcessLeases, connection: Connection) -> None:
    """Delete a session, but keep the entries that its forks share."""
    check_not_running(session_id, leases, connection)
    connection.execute("DELETE FROM post WHERE tenant = '' AND session = ?", (session_id,))
    found = connection.execute(_FIND, (session_id,)).get
    if found is None:
        return
    key, _, fence, _ = found
    connection.execute(_NOTE_LOSS)
    connection.execute("UPDATE meta SET value = max(value, ?) WHERE name = 'fence'", (fence,))
    connection.execute(_HIDE, (key,))
    _trim_deleted(key, connection)


def _trim_deleted(key: int, connection: Connection) -> None:
    """Delete the entries of a deleted session that no fork shares; if it has no forks, delete it completely, and trim
    its parent.
    """
    parent = connection.execute("SELECT parent FROM session WHERE key = ?", (key,)).get
    shared = connection.execute("SELECT max(at) FROM session WHERE parent = ?", (key,)).get
    _delete_entries_above(key, shared or 0, connection)
    if shared is None:
        connection.execute("DELETE FROM session WHERE key = ?", (key,))
    if parent is not None and connection.execute("SELECT id IS NULL FROM session WHERE key = ?", (parent,)).get:
        _trim_deleted(parent, connection)


def _delete_entries_above(key: int, upto: int, connection: Connection) -> None:
    """Delete the entries of a session above a number."""
    rows = connection.execute(_ABOVE, (key, upto)).fetchall()
    _delete_rows([row[0] for row in rows], connection)
    straddling = PackRow._make(rows[0][1:]) if rows else None
    if straddling is not None and straddling.first <= upto:
        _add_row(key, *slice_row(straddling, straddling.first, upto, make_long_text_reader(connection)), connection)
    release_long_texts(connection, [PackRow._make(row[1:]) for row in rows])
    connection.execute("DELETE FROM label WHERE session = ? AND seq > ?", (key, upto))
    connection.execute(_CUT_LABELS, (key, upto))
    connection.execute(_CUT, (key, upto))


def _delete_rows(keys: list[int], connection: Connection) -> None:
    connection.executemany("DELETE FROM pack WHERE key = ?", [(key,) for key in keys])


def _add_row(key: int, row: PackRow, texts: dict[bytes, bytes], connection: Connection) -> None:
    connection.execute(ADD_ROW, (key, *row))
    connection.executemany(ADD_BLOB, texts.items())


# -- redaction ---------------------------------------------------------------------------------------------------------


def redact_entry(lease: Lease, entry: Entry, connection: Connection) -> None:
    """Replace the log entry of the same number by the redacted `entry`, in every session that shares it."""
    key, head, fence, _ = connection.execute(_FIND, (lease.session_id,)).get or (0, 0, 0, "")
    if fence != lease.fence:
        raise Fenced(
            f"session {lease.session_id!r} has changed hands since this driver got it: stop, and open it again"
        )
    if not 0 < entry.seq <= head:
        raise Conflict(
            f"session {lease.session_id!r} has {head} entries and none numbered {entry.seq!r}: read it again, and "
            "redact one that it has"
        )
    owner = next(each for each in find_ranges(connection, key, head) if each.after < entry.seq <= each.upto).session
    connection.execute(_NOTE_LOSS)
    old = _replace_entry(owner, entry, connection)
    for each in _find_sharing_sessions(owner, entry.seq, connection):
        session_id, head = connection.execute("SELECT id, head FROM session WHERE key = ?", (each,)).get
        if session_id is None:
            continue
        connection.execute("DELETE FROM post WHERE tenant = '' AND session = ? AND id = ?", (session_id, old))
        connection.execute(
            "UPDATE session SET title = ? WHERE key = ?", (read_title(connection, each, head, session_id), each)
        )


def _replace_entry(owner: int, entry: Entry, connection: Connection) -> str:
    """Split the row that contains an entry and replace that entry; return the id of the old one."""
    key, *columns = connection.execute(_HOLDING, (owner, entry.seq)).get
    row, text_of = PackRow._make(columns), make_long_text_reader(connection)
    parts = [
        slice_row(row, first, last, text_of)
        for first, last in ((row.first, entry.seq - 1), (entry.seq + 1, row.last))
        if first <= last
    ]
    parts.insert(1 if row.first < entry.seq else 0, encode_row([entry], [entry.id]))
    _delete_rows([key], connection)
    connection.execute("DELETE FROM label WHERE session = ?1 AND seq BETWEEN ?2 AND ?3", (owner, row.first, row.last))
    is_sealed = row.last <= connection.execute("SELECT sealed FROM session WHERE key = ?", (owner,)).get
    for part, texts in parts:
        _add_row(owner, part, texts, connection)
        if is_sealed:  # the ids of others are not in the table
            add_ids(connection, owner, part)
    release_long_texts(connection, [row])
    return decode_entry_metadata(row).ids[entry.seq - row.first]


def _find_sharing_sessions(owner: int, seq: int, connection: Connection) -> list[int]:
    """Return the keys of the sessions that have this entry: its owner, its forks, their forks."""
    keys = [owner]
    for key in keys:
        keys += [each for (each,) in connection.execute(_SHARING, (key, seq)).fetchall()]
    return keys
