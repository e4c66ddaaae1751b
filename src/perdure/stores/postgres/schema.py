"""The tables of a PostgreSQL store: whether they are there, and up to date. Above: `pool.py`.
Below: `migration.py`.
"""

from typing import Final

from psycopg import AsyncConnection

from perdure.core.error import StoreError

from .migration import MIGRATIONS

FORMAT: Final = len(MIGRATIONS)
"""Of the tables that this version works with; newer ones are refused."""

# The lock is gone with the transaction, and the transaction soon after a process that stops in the middle of it. The
# isolation level is named because a database may have another default, and must see what was done before the lock.
_BEGIN: Final = f"""
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL idle_in_transaction_session_timeout = '10s';
SET LOCAL synchronous_commit = on;
SELECT pg_advisory_xact_lock({int.from_bytes(b"perdure")})"""
_MAKE_SCHEMA: Final = """
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'perdure') THEN CREATE SCHEMA perdure; END IF;
END $$"""
# The catalogue itself is read: functions like to_regclass() may remember what was there before we waited for the lock.
_STATE: Final = """
SELECT current_setting('server_encoding'),
    EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = 'perdure' AND tablename = 'meta')"""
_FORMAT_OF: Final = "SELECT value FROM perdure.meta WHERE tenant = '' AND name = 'format'"
_STAMP: Final = """
INSERT INTO perdure.meta VALUES('', 'format', $1)
ON CONFLICT(tenant, name) DO UPDATE SET value = excluded.value"""


async def is_up_to_date(connection: AsyncConnection, place: str) -> bool:
    """Whether the database has our tables, in the format that we know. Raises `StoreError` if it cannot be used."""
    return await _format(connection, place) == FORMAT


async def bring_up_to_date(connection: AsyncConnection, place: str) -> None:
    """Make our tables, or make those of this version out of older ones, in one transaction."""
    # Whoever fails in between leaves the transaction open: such a connection is closed, and that undoes it.
    await connection.execute(_BEGIN.encode())
    found = await _format(connection, place)  # another process may have been quicker
    if found == 0:
        await connection.execute(_MAKE_SCHEMA)
    for migration in MIGRATIONS[found:]:
        if isinstance(migration, str):
            await connection.execute(migration.encode())
        else:
            await migration(connection)
    await connection.execute(_STAMP, (len(MIGRATIONS),))
    await connection.execute("COMMIT")


async def _format(connection: AsyncConnection, place: str) -> int:
    """The format of the tables that are there; 0 when there are none."""
    encoding, is_made = await (await connection.execute(_STATE)).fetchone() or ("", False)
    if encoding != "UTF8":
        raise StoreError(f"the database {place!r} keeps text as {encoding}, not as UTF-8: make one with encoding UTF8")
    row = await (await connection.execute(_FORMAT_OF)).fetchone() if is_made else None
    found = int(row[0]) if row else 0
    if found > FORMAT:
        raise StoreError(f"{place!r} has format {found}, and this version knows {FORMAT} at most: upgrade perdure")
    return found
