"""Check that a PostgreSQL database has the current tables of the store, and create them."""

from typing import Final

from psycopg import AsyncConnection
from psycopg.errors import LockNotAvailable

from perdure.core.error import StoreError

from .tables import TABLES

FORMAT: Final = 1
"""The version of the tables that this version works with; newer ones are refused."""

LOCK_SECONDS: Final = 60.0
"""The time that a process waits for another one that makes the tables."""

_LOCK: Final = int.from_bytes(b"perdure")
# The lock is gone with the transaction, and the transaction soon after a process that stops in the middle of it. The
# isolation level is named because a database may have another default, and must see what was done before the lock.
# Every role of the database can take this lock and keep it, so nobody waits for it for ever. The search path is for
# what the definitions call: other roles may have planted functions of the same names in `public`.
_BEGIN: Final = """
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL idle_in_transaction_session_timeout = '10s';
SET LOCAL synchronous_commit = on;
SET LOCAL lock_timeout = '{milliseconds}ms';
SELECT pg_catalog.pg_advisory_xact_lock({lock});
SET LOCAL lock_timeout TO DEFAULT"""
_LOCK_HOLDER: Final = """
SELECT coalesce(usename, ''), pid FROM pg_catalog.pg_locks LEFT JOIN pg_catalog.pg_stat_activity USING(pid)
WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND pg_locks.database = (
    SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()
) AND (classid::bigint << 32) | objid::bigint = $1"""
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
_FORMAT_OF: Final = "SELECT value FROM perdure.meta WHERE tenant = '' AND name = 'version'"
_STAMP: Final = """
INSERT INTO perdure.meta VALUES('', 'version', $1)"""


async def has_current_schema(connection: AsyncConnection, place: str, owner: str) -> bool:
    """Return True if the database has the tables in the current format. Raises `StoreError` if they are of a newer
    one, or belong to a role that is not trusted: `owner` is, and so are this role, that of the database and superusers.
    """
    return await _read_format(connection, place, owner) == FORMAT


async def create_schema(connection: AsyncConnection, place: str, owner: str) -> None:
    """Create the tables of the store, in one transaction."""
    # Whoever fails in between leaves the transaction open: such a connection is closed, and that undoes it.
    await _begin(connection, place)
    if await _read_format(connection, place, owner) == 0:  # else another process was quicker
        await connection.execute(_MAKE_SCHEMA)
        await connection.execute(TABLES.encode())
        await connection.execute(_STAMP, (FORMAT,))
    await connection.execute("COMMIT")


async def _begin(connection: AsyncConnection, place: str) -> None:
    """Begin the transaction in which tables are made, alone. Raises `StoreError` if another keeps its lock too long."""
    begin = _BEGIN.format(lock=_LOCK, milliseconds=round(LOCK_SECONDS * 1000))
    try:
        await connection.execute(begin.encode())
    except LockNotAvailable as error:
        await connection.execute("ROLLBACK")
        found = await (await connection.execute(_LOCK_HOLDER, (_LOCK,))).fetchone()
        role, process = found or ("", 0)
        raise StoreError(
            f"the tables of {place!r} cannot be made: process {process} of the server, of the "
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
    """Return the format of the existing tables; 0 if there are none. Raises `StoreError` if it is not a known one."""
    await _check_owners(connection, place, owner)
    encoding, is_made = await (await connection.execute(_STATE)).fetchone() or ("", False)
    if encoding != "UTF8":
        raise StoreError(f"the database {place!r} keeps text as {encoding}, not as UTF-8: make one with encoding UTF8")
    if not is_made:
        return 0
    row = await (await connection.execute(_FORMAT_OF)).fetchone()
    if row is None:
        raise StoreError(
            f"the schema 'perdure' of {place!r} is of a version of perdure before the first release, and has been left "
            "as it is: rename or drop it, or choose another database"
        )
    found = int(row[0])
    if found > FORMAT:
        raise StoreError(f"{place!r} has format {found}, and this version knows {FORMAT} at most: upgrade perdure")
    return found
