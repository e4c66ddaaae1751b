"""The tables of an SQLite store, and the numbers in its header that say whose file it is and of which format.

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

from typing import Final

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
