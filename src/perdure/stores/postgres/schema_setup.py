"""Check that a PostgreSQL database has the current tables of the store, and create or migrate them."""

from typing import Final

from psycopg import AsyncConnection
from psycopg.errors import LockNotAvailable

from perdure.core.error import StoreError

from .table_migrations import MIGRATIONS

FORMAT: Final = len(MIGRATIONS)
"""The version of the tables that this version works with; newer ones are refused."""

LOCK_SECONDS: Final = 60.0
"""The time that a process waits for another one that makes the tables."""

_LOCKS: Final = tuple(int.from_bytes(name) for name in (b"perdure", b"windlass"))
# The lock is gone with the transaction, and the transaction soon after a process that stops in the middle of it. The
# isolation level is named because a database may have another default, and must see what was done before the lock.
# Every role of the database can take these locks and keep them, so nobody waits for them for ever. The search path is
# for what migrations call: other roles may have planted functions of the same names in `public`.
_BEGIN: Final = """
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL idle_in_transaction_session_timeout = '10s';
SET LOCAL synchronous_commit = on;
SET LOCAL lock_timeout = '{milliseconds}ms';
SELECT pg_catalog.pg_advisory_xact_lock({locks[0]});
SELECT pg_catalog.pg_advisory_xact_lock({locks[1]});
SET LOCAL lock_timeout TO DEFAULT"""
_LOCK_HOLDER: Final = """
SELECT coalesce(usename, ''), pid FROM pg_catalog.pg_locks LEFT JOIN pg_catalog.pg_stat_activity USING(pid)
WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND pg_locks.database = (
    SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()
) AND (classid::bigint << 32) | objid::bigint = ANY($1::bigint[])"""
# While the project was called Windlass, so was the schema, and the bodies of its functions name it. (They are the only
# text in it that does: all else in the catalogue refers to the schema itself, and so follows its name.)
_RENAME_OLD: Final = """
DO $$
DECLARE
    definition text;
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = 'perdure' AND tablename = 'meta')
        OR NOT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = 'windlass' AND tablename = 'meta')
        OR EXISTS (
            SELECT FROM pg_catalog.pg_namespace JOIN pg_catalog.pg_roles ON pg_roles.oid = nspowner
            WHERE nspname = 'windlass' AND NOT rolsuper AND rolname <> CURRENT_USER
        )
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
# Who owns a table or a function decides what else is run when it is used: triggers, rules, defaults, bodies. A trigger
# can also come from a role that has the right to make some, which `GRANT ALL` contains.
_OTHER_OWNERS: Final = """
SELECT DISTINCT rolname::text FROM (
    SELECT nspowner AS owner FROM pg_catalog.pg_namespace WHERE nspname = 'perdure'
    UNION ALL
    SELECT relowner FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = 'perdure'
    UNION ALL
    SELECT proowner FROM pg_catalog.pg_proc JOIN pg_catalog.pg_namespace ON pg_namespace.oid = pronamespace
    WHERE nspname = 'perdure'
    UNION ALL
    SELECT proowner FROM pg_catalog.pg_trigger JOIN pg_catalog.pg_class ON pg_class.oid = tgrelid
        JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace JOIN pg_catalog.pg_proc ON pg_proc.oid = tgfoid
    WHERE nspname = 'perdure' AND NOT tgisinternal
) AS owned JOIN pg_catalog.pg_roles ON pg_roles.oid = owner
WHERE NOT rolsuper AND rolname NOT IN (CURRENT_USER, $1, 'pg_database_owner')
    AND owner <> (SELECT datdba FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())"""
# The catalogue itself is read: functions like to_regclass() may remember what was there before we waited for the lock.
_STATE: Final = """
SELECT pg_catalog.current_setting('server_encoding'),
    EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = 'perdure' AND tablename = 'meta')"""
_FORMAT_OF: Final = "SELECT value FROM perdure.meta WHERE tenant = '' AND name = 'format'"
_STAMP: Final = """
INSERT INTO perdure.meta VALUES('', 'format', $1)
ON CONFLICT(tenant, name) DO UPDATE SET value = excluded.value"""


async def has_current_schema(connection: AsyncConnection, place: str, owner: str) -> bool:
    """Return True if the database has the tables in the current format. Raises `StoreError` if they are of a newer
    one, or belong to a role that is not trusted: `owner` is, and so are this role, that of the database and superusers.
    """
    return await _read_format(connection, place, owner) == FORMAT


async def migrate_schema(connection: AsyncConnection, place: str, owner: str) -> None:
    """Create the tables of the store, or migrate older ones, in one transaction."""
    # Whoever fails in between leaves the transaction open: such a connection is closed, and that undoes it.
    await _begin(connection, place)
    await connection.execute(_RENAME_OLD)
    found = await _read_format(connection, place, owner)  # another process may have been quicker
    if found == 0:
        await connection.execute(_MAKE_SCHEMA)
    for migration in MIGRATIONS[found:]:
        if isinstance(migration, str):
            await connection.execute(migration.encode())
        else:
            await migration(connection)
    await connection.execute(_STAMP, (len(MIGRATIONS),))
    await connection.execute("COMMIT")


async def _begin(connection: AsyncConnection, place: str) -> None:
    """Begin the transaction in which tables are made, alone. Raises `StoreError` if another keeps its lock too long."""
    begin = _BEGIN.format(locks=_LOCKS, milliseconds=round(LOCK_SECONDS * 1000))
    try:
        await connection.execute(begin.encode())
    except LockNotAvailable as error:
        await connection.execute("ROLLBACK")
        found = await (await connection.execute(_LOCK_HOLDER, ([*_LOCKS],))).fetchone()
        role, process = found or ("", 0)
        raise StoreError(
            f"the tables of {place!r} cannot be made or brought up to date: process {process} of the server, of the "
            f"role {role!r}, has held the lock for that for {LOCK_SECONDS:g} s. If it does this work itself, try again "
            f"later; if not, end it: SELECT pg_terminate_backend({process})"
        ) from error


async def _check_owners(connection: AsyncConnection, place: str, owner: str) -> None:
    others = [row[0] for row in await (await connection.execute(_OTHER_OWNERS, (owner,))).fetchall()]
    if others:
        name = others[0]
        raise StoreError(
            f"the schema 'perdure' of {place!r}, or something in it, belongs to the role {name!r}, whose triggers and "
            "functions would run with the rights of this one: nothing was read or written. If that role keeps the "
            f"tables, pass PostgresStore(…, owner={name!r}); if not, drop what it made"
        )


async def _read_format(connection: AsyncConnection, place: str, owner: str) -> int:
    """Return the format of the existing tables; 0 if there are none."""
    await _check_owners(connection, place, owner)
    encoding, is_made = await (await connection.execute(_STATE)).fetchone() or ("", False)
    if encoding != "UTF8":
        raise StoreError(f"the database {place!r} keeps text as {encoding}, not as UTF-8: make one with encoding UTF8")
    row = await (await connection.execute(_FORMAT_OF)).fetchone() if is_made else None
    found = int(row[0]) if row else 0
    if found > FORMAT:
        raise StoreError(f"{place!r} has format {found}, and this version knows {FORMAT} at most: upgrade perdure")
    return found
