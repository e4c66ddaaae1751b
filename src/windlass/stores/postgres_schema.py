"""The tables of a PostgreSQL store: how they are made, and brought up to date. Above: `postgres_pool.py`.
Below: psycopg.

They lie in a schema of their own, beside whatever else the database holds.
"""

from typing import Final

from psycopg import AsyncConnection

from windlass.core.error import StoreError

# `tenant` stands before every key. The session's row changes with every append, so its pages keep room for the next
# version of it, and nothing that changes is indexed. "C" compares bytes: the same everywhere, and good for prefixes.
# In meta, `format` is the version of the tables, and `fence` the highest fence of a tenant's deleted sessions: one that
# is made anew under an old id goes on from there. Bodies are compressed with lz4 where the server has it: that takes a
# third of the time of its own method.
_FIRST_FORMAT: Final = """
CREATE TABLE windlass.meta(
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value bigint NOT NULL,
    PRIMARY KEY(tenant, name)
);
CREATE TABLE windlass.session(
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL DEFAULT '',
    id text COLLATE "C" NOT NULL,
    head bigint NOT NULL DEFAULT 0,
    fence bigint NOT NULL,
    holder text,
    lease_until timestamptz,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    title text NOT NULL DEFAULT '',
    UNIQUE(tenant, id)
) WITH (fillfactor = 50);
CREATE TABLE windlass.entry(
    session bigint NOT NULL REFERENCES windlass.session(key) ON DELETE CASCADE,
    seq bigint NOT NULL,
    id text COLLATE "C",
    kind text NOT NULL,
    critical boolean NOT NULL,
    version integer NOT NULL,
    at double precision NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY(session, seq)
);
CREATE UNIQUE INDEX entry_id ON windlass.entry(session, id);
DO $$ BEGIN
    EXECUTE 'ALTER TABLE windlass.entry ALTER COLUMN body SET COMPRESSION lz4';
EXCEPTION WHEN feature_not_supported OR syntax_error OR invalid_parameter_value THEN
    NULL;
END $$;
"""

MIGRATIONS: Final = (_FIRST_FORMAT,)
"""The N-th makes format N + 1 of format N; there is nothing in format 0."""
FORMAT: Final = len(MIGRATIONS)
"""Of the tables that this version works with; newer ones are refused."""

# The lock is gone with the transaction, and the transaction soon after a process that stops in the middle of it. The
# isolation level is named because a database may have another default, and must see what was done before the lock.
_BEGIN: Final = f"""
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL idle_in_transaction_session_timeout = '10s';
SET LOCAL synchronous_commit = on;
SELECT pg_advisory_xact_lock({int.from_bytes(b"windlass")})"""
_MAKE_SCHEMA: Final = """
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'windlass') THEN CREATE SCHEMA windlass; END IF;
END $$"""
# The catalogue itself is read: functions like to_regclass() may remember what was there before we waited for the lock.
_STATE: Final = """
SELECT current_setting('server_encoding'),
    EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = 'windlass' AND tablename = 'meta')"""
_FORMAT_OF: Final = "SELECT value FROM windlass.meta WHERE tenant = '' AND name = 'format'"
_STAMP: Final = f"""
INSERT INTO windlass.meta VALUES('', 'format', {FORMAT})
ON CONFLICT(tenant, name) DO UPDATE SET value = excluded.value"""


async def make_ready(connection: AsyncConnection, place: str) -> None:
    """See to it that the database has our tables, in the format that we know. Raises `StoreError` if it cannot be."""
    if await _format(connection, place) == FORMAT:
        return
    # Whoever fails in between leaves the transaction open: such a connection is closed, and that undoes it.
    await connection.execute(_BEGIN.encode())
    found = await _format(connection, place)  # another process may have been quicker
    if found == 0:
        await connection.execute(_MAKE_SCHEMA)
    for migration in MIGRATIONS[found:]:
        await connection.execute(migration)
    await connection.execute(_STAMP.encode())
    await connection.execute("COMMIT")


async def _format(connection: AsyncConnection, place: str) -> int:
    """The format of the tables that are there; 0 when there are none."""
    encoding, is_made = await (await connection.execute(_STATE)).fetchone() or ("", False)
    if encoding != "UTF8":
        raise StoreError(f"the database {place!r} keeps text as {encoding}, not as UTF-8: make one with encoding UTF8")
    row = await (await connection.execute(_FORMAT_OF)).fetchone() if is_made else None
    found = int(row[0]) if row else 0
    if found > FORMAT:
        raise StoreError(f"{place!r} has format {found}, and this version knows {FORMAT} at most: upgrade windlass")
    return found
