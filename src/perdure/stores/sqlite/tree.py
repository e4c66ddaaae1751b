"""Forks of sessions in an SQLite file, and how entries and sessions go. Above: `store.py`. Below: `log.py`.

A fork is a line that names its parent and how many entries they share; those are read from the parent. A session that
is deleted keeps, without a name, what its forks share with it, and goes with the last of them.

Everything here is done inside a transaction that somebody else has begun. Whatever goes is overwritten in the database;
its trace in SQLite's own log is for the writer to remove.
"""

from typing import Final, NamedTuple

from perdure.core.error import Conflict, Fenced, SessionBusy, SessionExists, SessionNotFound
from perdure.core.event import Entry
from perdure.core.store import Lease
from perdure.stores.refusal import check_fork

from .connection import Connection
from .label import add_labels
from .lease import check_free
from .log import drop_blobs, lineage, text_from, time_of, titled
from .row import Row, heads_of, new_row, part_of
from .schema import ADD_BLOB, ADD_ROW

_FIND: Final = "SELECT key, head, fence, title FROM session WHERE tenant = '' AND id = ?"
_FORK: Final = """
INSERT INTO session(id, head, fence, created_at, updated_at, title, parent, at, sealed, indexed)
SELECT ?1, ?2, value + 1, ?3, ?4, ?5, ?6, ?2, ?2, ?2 FROM meta WHERE name = 'fence'
ON CONFLICT(tenant, id) DO UPDATE SET head = excluded.head, created_at = excluded.created_at,
    updated_at = excluded.updated_at, title = excluded.title, parent = excluded.parent, at = excluded.at,
    sealed = excluded.sealed, indexed = excluded.indexed"""
_ABOVE: Final = """
SELECT key, first, last, version, heads, body, holes FROM pack WHERE session = ? AND last > ? ORDER BY last"""
_HOLDING: Final = """
SELECT key, first, last, version, heads, body, holes FROM pack WHERE session = ?1 AND last >= ?2 AND first <= ?2"""
_HIDE: Final = "UPDATE session SET id = NULL, title = '', holder = NULL WHERE key = ?"
_CUT: Final = """
UPDATE session SET head = ?2, sealed = min(sealed, ?2), indexed = min(indexed, ?2), at = min(at, ?2), updated_at = 0
WHERE key = ?1"""
_CUT_LABELS: Final = "UPDATE label SET last = first + ?2 - seq WHERE session = ?1 AND seq + last - first > ?2"
_SHARING: Final = "SELECT key FROM session WHERE parent = ?1 AND at >= ?2"
_NOTE_LOSS: Final = "UPDATE meta SET value = value + 1 WHERE name = 'search'"


class Forking(NamedTuple):
    """A fork that is to be made."""

    session_id: str
    new_id: str
    at: int | None
    now: float


def fork(new: Forking, leases: set[Lease], connection: Connection) -> None:
    """Make a session that begins with the first entries of another."""
    session_id, new_id, at, now = new
    key, head, _, title = connection.execute(_FIND, (session_id,)).get or (0, 0, 0, "")
    if not head:
        raise SessionNotFound(f"there is no session {session_id!r} to fork: list() shows which there are")
    _check_new(session_id, new_id, leases, connection)
    check_fork(session_id, at, head)
    upto = head if at is None else at
    if upto < head:
        title = titled(connection, key, upto, session_id)
    connection.execute(_FORK, (new_id, upto, now, time_of(connection, key, upto), title, key))


def _check_new(session_id: str, new_id: str, leases: set[Lease], connection: Connection) -> None:
    there = connection.execute(_FIND, (new_id,)).get
    taken = there is not None and there[1] > 0
    try:
        check_free(new_id, leases, connection)
    except SessionBusy:
        taken = True
    if taken:
        raise SessionExists(f"there is a session {new_id!r} already: fork {session_id!r} to another id")


def delete(session_id: str, leases: set[Lease], connection: Connection) -> None:
    """Forget a session, but for what its forks share with it."""
    check_free(session_id, leases, connection)
    connection.execute("DELETE FROM post WHERE tenant = '' AND session = ?", (session_id,))
    found = connection.execute(_FIND, (session_id,)).get
    if found is None:
        return
    key, _, fence, _ = found
    connection.execute(_NOTE_LOSS)
    connection.execute("UPDATE meta SET value = max(value, ?) WHERE name = 'fence'", (fence,))
    connection.execute(_HIDE, (key,))
    _let_go(key, connection)


def _let_go(key: int, connection: Connection) -> None:
    """A session without a name keeps what its forks share with it; one without forks is gone, and perhaps a parent."""
    parent = connection.execute("SELECT parent FROM session WHERE key = ?", (key,)).get
    shared = connection.execute("SELECT max(at) FROM session WHERE parent = ?", (key,)).get
    _cut_off(key, shared or 0, connection)
    if shared is None:
        connection.execute("DELETE FROM session WHERE key = ?", (key,))
    if parent is not None and connection.execute("SELECT id IS NULL FROM session WHERE key = ?", (parent,)).get:
        _let_go(parent, connection)


def _cut_off(key: int, upto: int, connection: Connection) -> None:
    """Drop the entries of a session above a number."""
    rows = connection.execute(_ABOVE, (key, upto)).fetchall()
    _drop([row[0] for row in rows], connection)
    straddling = Row._make(rows[0][1:]) if rows else None
    if straddling is not None and straddling.first <= upto:
        _add(key, *part_of(straddling, straddling.first, upto, text_from(connection)), connection)
    drop_blobs(connection, [Row._make(row[1:]) for row in rows])
    connection.execute("DELETE FROM label WHERE session = ? AND seq > ?", (key, upto))
    connection.execute(_CUT_LABELS, (key, upto))
    connection.execute(_CUT, (key, upto))


def _drop(keys: list[int], connection: Connection) -> None:
    connection.executemany("DELETE FROM pack WHERE key = ?", [(key,) for key in keys])


def _add(key: int, row: Row, texts: dict[bytes, bytes], connection: Connection) -> None:
    connection.execute(ADD_ROW, (key, *row))
    connection.executemany(ADD_BLOB, texts.items())


# -- redaction ---------------------------------------------------------------------------------------------------------


def redact(lease: Lease, entry: Entry, connection: Connection) -> None:
    """Put an entry in the place of another one, for all who share that."""
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
    owner = next(each for each in lineage(connection, key, head) if each.after < entry.seq <= each.upto).session
    connection.execute(_NOTE_LOSS)
    old = _replace(owner, entry, connection)
    for each in _sharing(owner, entry.seq, connection):
        session_id, head = connection.execute("SELECT id, head FROM session WHERE key = ?", (each,)).get
        if session_id is None:
            continue
        connection.execute("DELETE FROM post WHERE tenant = '' AND session = ? AND id = ?", (session_id, old))
        connection.execute(
            "UPDATE session SET title = ? WHERE key = ?", (titled(connection, each, head, session_id), each)
        )


def _replace(owner: int, entry: Entry, connection: Connection) -> str:
    """Take the row that holds an entry apart, with another entry in its place; says the id of the old one."""
    key, *columns = connection.execute(_HOLDING, (owner, entry.seq)).get
    row, text_of = Row._make(columns), text_from(connection)
    parts = [
        part_of(row, first, last, text_of)
        for first, last in ((row.first, entry.seq - 1), (entry.seq + 1, row.last))
        if first <= last
    ]
    parts.insert(1 if row.first < entry.seq else 0, new_row([entry]))
    _drop([key], connection)
    connection.execute("DELETE FROM label WHERE session = ?1 AND seq BETWEEN ?2 AND ?3", (owner, row.first, row.last))
    is_sealed = row.last <= connection.execute("SELECT sealed FROM session WHERE key = ?", (owner,)).get
    for part, texts in parts:
        _add(owner, part, texts, connection)
        if is_sealed:  # the ids of others are not in the table
            add_labels(connection, owner, part)
    drop_blobs(connection, [row])
    return heads_of(row).ids[entry.seq - row.first]


def _sharing(owner: int, seq: int, connection: Connection) -> list[int]:
    """The keys of the sessions whose logs have an entry in common: its owner, forks of that, forks of those."""
    keys = [owner]
    for key in keys:
        keys += [each for (each,) in connection.execute(_SHARING, (key, seq)).fetchall()]
    return keys
