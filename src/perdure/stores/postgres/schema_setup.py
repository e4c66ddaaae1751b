"""Check that a PostgreSQL database has the current tables of the store, and create or migrate them."""

from typing import Final

from psycopg import AsyncConnection

from perdure.core.error import StoreError

from .table_migrations import MIGRATIONS

FORMAT: Final = len(MIGRATIONS)
"""The version of the tables that this version works with; newer ones are refused."""

# The lock is gone with the transaction, and the transaction soon after a process that stops in the middle of it. The
# isolation level is named because a database may have another default, and must see what was done before the lock.
_BEGIN: Final = f"""
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL idle_in_transaction_session_timeout = '10s';
SET LOCAL synchronous_commit = on;
SELECT pg_advisory_xact_lock({int.from_bytes(b"perdure")});
SELECT pg_advisory_xact_lock({int.from_bytes(b"windlass")})"""
# While the project was called Windlass, so was the schema, and the bodies of its functions name it. (They are the only
# text in it that does: all else in the catalogue refers to the schema itself, and so follows its name.)
_RENAME_OLD: Final = """
DO $$
DECLARE
    definition text;
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = 'perdure' AND tablename = 'meta')
        OR NOT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = 'windlass' AND tablename = 'meta')
    THEN
        RETURN;
    END IF;
    ALTER SCHEMA windlass RENAME TO perdure;
    FOR definition IN
        SELECT pg_catalog.replace(pg_catalog.pg_get_functiondef(proc.oid), 'windlass.', 'perdure.')
        FROM pg_catalog.pg_proc AS proc JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = pronamespace
        WHERE nspname = 'perdure'
    LOOP
        EXECUTE definition;
    END LOOP;
END $$"""
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


async def has_current_schema(connection: AsyncConnection, place: str) -> bool:
    """Return True if the database has the tables in the current format. Raises `StoreError` if they are of a newer
    one.
    """
    return await _read_format(connection, place) == FORMAT


async def migrate_schema(connection: AsyncConnection, place: str) -> None:
    """Create the tables of the store, or migrate older ones, in one transaction."""
    # Whoever fails in between leaves the transaction open: such a connection is closed, and that undoes it.
    await connection.execute(_BEGIN.encode())
    await connection.execute(_RENAME_OLD)
    found = await _read_format(connection, place)  # another process may have been quicker
    if found == 0:
        await connection.execute(_MAKE_SCHEMA)
    for migration in MIGRATIONS[found:]:
        if isinstance(migration, str):
            await connection.execute(migration.encode())
        else:
            await migration(connection)
    await connection.execute(_STAMP, (len(MIGRATIONS),))
    await connection.execute("COMMIT")


async def _read_format(connection: AsyncConnection, place: str) -> int:
    """Return the format of the existing tables; 0 if there are none."""
    encoding, is_made = await (await connection.execute(_STATE)).fetchone() or ("", False)
    if encoding != "UTF8":
        raise StoreError(f"the database {place!r} keeps text as {encoding}, not as UTF-8: make one with encoding UTF8")
    row = await (await connection.execute(_FORMAT_OF)).fetchone() if is_made else None
    found = int(row[0]) if row else 0
    if found > FORMAT:
        raise StoreError(f"{place!r} has format {found}, and this version knows {FORMAT} at most: upgrade perdure")
    return found
