"""The tables of an SQLite store, and the migration from older formats.

- `session`: a row for each. A deleted one stays, without its id, while forks share entries with it. `progress` is that
  of the last run that was begun in it: 0 over, 1 cut off, 2 waiting (until `due_at`, if that is not null). The search
  index has the entries up to `indexed`; `unindexed` is 1 if there are more.
- `pack`: the entries, several to a row (see `pack_rows.py`). An append adds a row; now and then the last rows of a
  session are merged into one (see `log_row_merging.py`), so the key of a row means nothing: an entry is found by its
  session and its own number. A fork has only the entries after `at`; those before are read from its parent.
- `label`: the ids of entries in merged rows, of which most are numbered: `stem-first` to `stem-last` are entries `seq`
  and on. An id that is not numbered is a stem by itself.
- `blob`: long texts, by their hash, with the number of places that use them.
- `post`: by the id of the session, which need not exist yet.

`tenant` precedes every id, and is empty in this store. In `meta`, `fence` is the highest fence of any deleted session:
one that is created again under an old id continues from there, so that no forgotten lease is valid for it.
`repeated` counts appends that were already there.
"""

from collections.abc import Iterator
from typing import Any, Final

from .apsw_types import Connection
from .entry_id_index import add_ids
from .pack_rows import PackedRowMetadata, PackRow, build_row_without_long_texts

FORMAT: Final = 6
"""The newest format; a file of a newer one is refused. It has the tables below, and a checksum on every page."""
UNCHECKED_FORMAT: Final = 5
"""The same tables in a file without checksums: one made by an older version, or where SQLite has no checksum VFS."""
WITH_CHECKSUMS: Final = {3: 4, 4: 4, UNCHECKED_FORMAT: FORMAT, FORMAT: FORMAT}
"""The format that a copy of a file has once every page has a checksum, by the format of the file."""
CHECKED_FORMATS: Final = frozenset(WITH_CHECKSUMS.values())
"""The formats of files with a checksum on every page."""
PROGRESS_FORMAT: Final = 3
"""The first format that recorded the progress of runs."""
APPLICATION_ID: Final = 0x50524455
"""The id in the file's header that marks it as a store, also for `file(1)`: the letters PRDU."""
APPLICATION_IDS: Final = frozenset({APPLICATION_ID, 0x574E444C})
"""All ids of a store's file. Files made while the project was called Windlass have the letters WNDL."""
MERGED_ROW_BYTES: Final = 96 * 1024
"""The bytes that are put into one row. Memory for more than 128 KiB is mapped, and cleared, each time it is read."""

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

# -- from format 1, which had a row for each entry ---------------------------------------------------------------------

_SET_ASIDE: Final = "ALTER TABLE session RENAME TO old_session; ALTER TABLE entry RENAME TO old_entry; DROP TABLE meta;"
_TAKE_SESSIONS: Final = """
INSERT INTO session(key, tenant, owner, id, head, fence, holder, created_at, updated_at, title, sealed, unindexed)
SELECT key, tenant, owner, id, head, fence, holder, created_at, updated_at, title, head, head > 0 FROM old_session"""
_OLD_ENTRIES: Final = """
SELECT session, seq, coalesce(id, ''), kind, critical, version, at, body FROM old_entry ORDER BY session, seq"""


# -- from format 2, which did not record the progress of runs ----------------------------------------------------------

_ADD_PROGRESS: Final = """
ALTER TABLE session ADD COLUMN progress INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN due_at REAL;
CREATE INDEX session_unfinished ON session(key) WHERE progress > 0;"""

# -- from formats 3 and 4, whose index of what is not indexed for the search had a page for each append ----------------

_ADD_UNINDEXED: Final = """
DROP INDEX session_unindexed;
ALTER TABLE session ADD COLUMN unindexed INTEGER NOT NULL DEFAULT 0;
UPDATE session SET unindexed = 1 WHERE indexed < head;
CREATE INDEX session_unindexed ON session(key) WHERE unindexed > 0;"""


def migrate_tables(connection: Connection, version: int) -> None:
    """Migrate the tables of an older format to the current one, inside the caller's transaction."""
    if version == 1:
        _migrate_entries(connection)
        return
    if version < PROGRESS_FORMAT:
        connection.execute(_ADD_PROGRESS)
    connection.execute(_ADD_UNINDEXED)
    connection.execute(f"PRAGMA user_version = {FORMAT if version in CHECKED_FORMATS else UNCHECKED_FORMAT}")


def _migrate_entries(connection: Connection) -> None:
    """Migrate a database of format 1, which had a row for each entry."""
    fences = connection.execute("SELECT value FROM meta WHERE name = 'fence'").get
    connection.execute(_SET_ASIDE)
    connection.execute(TABLES)
    connection.execute("UPDATE meta SET value = ? WHERE name = 'fence'", (fences,))
    connection.execute(_TAKE_SESSIONS)
    for session, row, texts in _read_old_rows(connection):
        connection.execute(ADD_ROW, (session, *row))
        connection.executemany(ADD_BLOB, texts.items())
        add_ids(connection, session, row)
    connection.execute("DROP TABLE old_entry; DROP TABLE old_session")


def _read_old_rows(connection: Connection) -> Iterator[tuple[int, PackRow, dict[bytes, bytes]]]:
    """Yield the entries of a file of format 1, several to a row; their bodies are not decoded."""
    belong: tuple[int, int] = (0, 0)
    first = size = 0
    heads, bodies = PackedRowMetadata([], [], []), list[bytes]()
    for session, seq, entry_id, kind, critical, version, at, body in connection.execute(_OLD_ENTRIES):
        if bodies and (size >= MERGED_ROW_BYTES or belong != (session, version)):
            yield belong[0], *build_row_without_long_texts(first, belong[1], heads, b"[%b]" % b",".join(bodies))
            bodies = []
        if not bodies:
            belong, first, size, heads = (session, version), seq, 0, PackedRowMetadata([], [], [])
        bodies.append(body)
        size += len(body)
        _add_head(heads, at, entry_id, kind if critical else "")
    if bodies:
        yield belong[0], *build_row_without_long_texts(first, belong[1], heads, b"[%b]" % b",".join(bodies))


def _add_head(heads: PackedRowMetadata, at: float, entry_id: str, critical: Any) -> None:
    heads.ats.append(at)
    heads.ids.append(entry_id)
    if critical and critical not in heads.critical:
        heads.critical.append(critical)
