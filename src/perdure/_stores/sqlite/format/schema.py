"""The tables of an SQLite store, and the index that finds an entry by its id."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from perdure._stores.sqlite.driver import Connection

from .rows import PackRow, decode_entry_metadata

UNNUMBERED: Final = -1
_DIGITS: Final = 15  # as many are a number for SQLite too
_ADD: Final = "INSERT INTO label(session, stem, first, last, seq) VALUES(?, ?, ?, ?, ?)"
_FIND: Final = """
SELECT seq + ?3 - first FROM label WHERE session = ?1 AND stem = ?2 AND first <= ?3 AND last >= ?3"""
_TOP: Final = "SELECT max(last) FROM label WHERE session = ? AND stem = ?"
_LOOSE: Final = """
SELECT first, last, version, heads, x'', NULL FROM pack
WHERE session = ?1 AND last > (SELECT sealed FROM session WHERE key = ?1) ORDER BY last"""


class IdRange(NamedTuple):
    """A range of entry ids with the same stem and consecutive numbers, stored as one row of the index."""

    stem: str
    first: int
    last: int
    seq: int
    """The number of the entry with the first id."""


def split_id(entry_id: str) -> tuple[str, int]:
    """Split an id into its stem and number; return the whole id and `UNNUMBERED` if it does not end in a number."""
    stem, dash, digits = entry_id.rpartition("-")
    if dash and digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS and str(int(digits)) == digits:
        return stem, int(digits)
    return entry_id, UNNUMBERED


def group_ids(first: int, ids: Sequence[str]) -> Iterator[IdRange]:
    """Group the ids of consecutive entries into ranges; `first` is the number of the first entry.

    Entries without an id are skipped.
    """
    run: IdRange | None = None
    for seq, entry_id in enumerate(ids, first):
        stem, number = split_id(entry_id)
        if run is not None and (stem, number, seq) == (run.stem, run.last + 1, run.seq + number - run.first):
            run = run._replace(last=number)
            continue
        if run is not None:
            yield run
        run = IdRange(stem, number, number, seq) if entry_id else None
    if run is not None:
        yield run


def add_ids(connection: Connection, session: int, row: PackRow) -> None:
    """Add the entry ids of a row that several appends were merged into to the index."""
    connection.executemany(_ADD, [(session, *run) for run in group_ids(row.first, decode_entry_metadata(row).ids)])


def find_seq_by_id(connection: Connection, session: int, entry_id: str) -> int | None:
    """Return the number of the entry with this id among a session's own entries; `None` if there is none."""
    stem, number = split_id(entry_id)
    found = connection.execute(_FIND, (session, stem, number)).get
    if found is not None:
        return int(found)
    for row in map(PackRow._make, connection.execute(_LOOSE, (session,))):
        ids = decode_entry_metadata(row).ids
        if entry_id in ids:
            return row.first + ids.index(entry_id)
    return None


def highest_id_number(connection: Connection, session: int, stem: str) -> int:
    """Return the highest number that follows this stem in the ids of a session's own entries; negative if there is
    none.
    """
    top = connection.execute(_TOP, (session, stem)).get
    highest = UNNUMBERED if top is None else int(top)
    for row in map(PackRow._make, connection.execute(_LOOSE, (session,))):
        parts = map(split_id, decode_entry_metadata(row).ids)
        highest = max([highest, *[number for other, number in parts if other == stem]])
    return highest


FORMAT: Final = 2
"""The newest format; a file of a newer one is refused. It has the tables below, and a checksum on every page."""
UNCHECKED_FORMAT: Final = 1
"""The same tables in a file without checksums, made where SQLite has no checksum VFS."""
APPLICATION_ID: Final = 0x50455244
"""The id in the file's header that marks it as a store, also for `file(1)`: the letters PERD."""

# Rows are large, so the tables keep their rowid.
TABLES: Final = f"""
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES('fence', 0), ('repeated', 0);
CREATE TABLE session(
    key INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL DEFAULT '',
    owner TEXT NOT NULL DEFAULT '',
    id TEXT,
    head INTEGER NOT NULL DEFAULT 0,
    fence INTEGER NOT NULL,
    holder TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    title TEXT NOT NULL DEFAULT '',
    parent INTEGER REFERENCES session(key),
    at INTEGER NOT NULL DEFAULT 0,
    sealed INTEGER NOT NULL DEFAULT 0,
    loose INTEGER NOT NULL DEFAULT 0,
    indexed INTEGER NOT NULL DEFAULT 0,
    unindexed INTEGER NOT NULL DEFAULT 0,
    progress INTEGER NOT NULL DEFAULT 0,
    due_at REAL,
    UNIQUE(tenant, id)
) STRICT;
CREATE INDEX session_child ON session(parent) WHERE parent IS NOT NULL;
CREATE INDEX session_unindexed ON session(key) WHERE unindexed > 0;
CREATE INDEX session_unfinished ON session(key) WHERE progress > 0;
CREATE TABLE pack(
    key INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session(key),
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    version INTEGER NOT NULL,
    heads BLOB NOT NULL,
    body BLOB NOT NULL,
    holes BLOB,
    UNIQUE(session, last)
) STRICT;
CREATE TABLE label(
    session INTEGER NOT NULL REFERENCES session(key),
    stem TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY(session, stem, first)
) STRICT, WITHOUT ROWID;
CREATE TABLE blob(
    digest BLOB PRIMARY KEY,
    uses INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE TABLE post(
    key INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL DEFAULT '',
    session TEXT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    at REAL NOT NULL,
    body BLOB NOT NULL,
    UNIQUE(tenant, session, id)
) STRICT;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {UNCHECKED_FORMAT};
"""

ADD_ROW: Final = "INSERT INTO pack(session, first, last, version, heads, body, holes) VALUES(?, ?, ?, ?, ?, ?, ?)"
ADD_BLOB: Final = "INSERT INTO blob VALUES(?, 1, ?) ON CONFLICT(digest) DO UPDATE SET uses = uses + 1"
