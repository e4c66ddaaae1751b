"""The tables of a PostgreSQL store: their definitions, and checking and creating them."""

from typing import Final

from psycopg import AsyncConnection
from psycopg.errors import LockNotAvailable

from perdure._core.values.error import StoreError

# `tenant` precedes every key. The session's row changes with every append, so its pages keep room for the next
# version of it, and nothing that changes is indexed but `progress`, of runs that are not over. "C" compares bytes: the
# same everywhere, and good for prefixes.
#
# In meta, `version` is the format of the tables, and `fence` the highest fence of a tenant's deleted sessions: one that
# is made anew under an old id goes on from there. Bodies are compressed with lz4 where the server has it: that takes a
# third of the time of its own method.
#
# A fork is (parent, at): its own entries are numbered above `at`, the others are read in the parent, which may be a
# fork itself. A deleted session that forks need stays without an id, and so nobody finds it. `token` is the fork's
# maker's, who can tell by it that it was made when the answer was lost; likewise for a post.
#
# An entry has the title that it would give its session: so a fork needs no title of its own, and one that is redacted
# leaves none behind.
#
# `progress` is that of the last run that was begun in a session: 0 over, 1 cut off, 2 waiting (until `due_at`, if that
# is not null).
#
# The vector of an entry also contains a mark of its tenant, so that no search scans the text of other tenants. One that
# would be too large for the server, which few long texts are, has the first half of the words, or the first quarter …
#
# Functions have a search path of their own. Without it, a caller's would say what the words in their bodies mean, and
# another role of the database may have a function in `public` that fits the arguments better than PostgreSQL's own.
# (perdure.line has no calls; and it has to stay one that the planner can merge into a query.)
TABLES: Final = """
CREATE TABLE perdure.meta(
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value bigint NOT NULL,
    PRIMARY KEY(tenant, name)
);
CREATE TABLE perdure.session(
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL DEFAULT '',
    id text COLLATE "C",
    head bigint NOT NULL DEFAULT 0,
    fence bigint NOT NULL,
    holder text,
    lease_until timestamptz,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    parent bigint REFERENCES perdure.session(key),
    at bigint NOT NULL DEFAULT 0,
    token text,
    progress smallint NOT NULL DEFAULT 0,
    due_at double precision,
    UNIQUE(tenant, id)
) WITH (fillfactor = 50);
CREATE INDEX session_parent ON perdure.session(parent) WHERE parent IS NOT NULL;
CREATE INDEX session_unfinished ON perdure.session(tenant, id) WHERE progress > 0;
CREATE TABLE perdure.entry(
    session bigint NOT NULL REFERENCES perdure.session(key) ON DELETE CASCADE,
    seq bigint NOT NULL,
    id text COLLATE "C",
    kind text NOT NULL,
    critical boolean NOT NULL,
    version integer NOT NULL,
    at double precision NOT NULL,
    body bytea NOT NULL,
    title text,
    PRIMARY KEY(session, seq)
);
CREATE UNIQUE INDEX entry_id ON perdure.entry(session, id);
CREATE INDEX entry_title ON perdure.entry(session, kind, seq) WHERE title IS NOT NULL;
DO $$ BEGIN
    EXECUTE 'ALTER TABLE perdure.entry ALTER COLUMN body SET COMPRESSION lz4';
EXCEPTION WHEN feature_not_supported OR syntax_error OR invalid_parameter_value THEN
    NULL;
END $$;
CREATE TABLE perdure.said(
    session bigint NOT NULL REFERENCES perdure.session(key) ON DELETE CASCADE,
    seq bigint NOT NULL,
    role text NOT NULL,
    at double precision NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY(session, seq)
);
CREATE INDEX said_words ON perdure.said USING gin(words);
CREATE TABLE perdure.post(
    tenant text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    place bigint GENERATED ALWAYS AS IDENTITY,
    version integer NOT NULL,
    at double precision NOT NULL,
    token text NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY(tenant, session, id)
);
CREATE FUNCTION perdure.line(of_session bigint) RETURNS TABLE(session bigint, upto bigint) LANGUAGE sql STABLE AS $$
    WITH RECURSIVE line(key, upto, parent, at) AS (
        SELECT key, head, parent, at FROM perdure.session WHERE key = of_session
        UNION ALL
        SELECT older.key, least(line.upto, line.at), older.parent, older.at
        FROM line JOIN perdure.session AS older ON older.key = line.parent
    )
    SELECT key, upto FROM line
$$;
COMMENT ON FUNCTION perdure.line IS 'whose entries a session reads, and up to which number: its own, its parent''s, …';
CREATE FUNCTION perdure.forget(of_tenant text, of_id text, free text[]) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    doomed perdure.session;
    needed bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    SELECT * INTO doomed FROM perdure.session WHERE tenant = of_tenant AND id = of_id FOR UPDATE;
    IF doomed.lease_until > now() AND doomed.holder <> ALL(free) THEN
        RETURN NULL;
    END IF;
    DELETE FROM perdure.post WHERE tenant = of_tenant AND session = of_id;
    IF doomed.key IS NULL THEN
        RETURN FOUND;
    END IF;
    INSERT INTO perdure.meta AS meta VALUES(of_tenant, 'fence', doomed.fence)
    ON CONFLICT(tenant, name) DO UPDATE SET value = greatest(meta.value, excluded.value);
    LOOP
        SELECT max(at) INTO needed FROM perdure.session WHERE parent = doomed.key;
        IF needed IS NULL THEN
            DELETE FROM perdure.session WHERE key = doomed.key;
        ELSE
            DELETE FROM perdure.entry WHERE session = doomed.key AND seq > needed;
            DELETE FROM perdure.said WHERE session = doomed.key AND seq > needed;
            UPDATE perdure.session
            SET id = NULL, holder = NULL, lease_until = NULL, head = needed, at = least(at, needed)
            WHERE key = doomed.key;
        END IF;
        -- Locked before we look whether it has an id: who is deleting it meanwhile still counts us among its forks.
        SELECT * INTO doomed FROM perdure.session WHERE key = doomed.parent FOR UPDATE;
        IF doomed.key IS NULL OR doomed.id IS NOT NULL THEN
            RETURN true;
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION perdure.forget IS 'delete a session, and what only it needed; null when somebody holds it';
CREATE FUNCTION perdure.mark(of_tenant text) RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT '@' || left(md5(of_tenant), 8)
$$;
CREATE FUNCTION perdure.vector(of_tenant text, words text) RETURNS tsvector LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF length(words) < 100000 THEN
        RETURN to_tsvector('pg_catalog.simple', words) || array_to_tsvector(ARRAY[perdure.mark(of_tenant)]);
    END IF;
    BEGIN
        RETURN to_tsvector('pg_catalog.simple', words) || array_to_tsvector(ARRAY[perdure.mark(of_tenant)]);
    EXCEPTION WHEN program_limit_exceeded THEN
        RETURN perdure.vector(of_tenant, left(words, length(words) / 2));
    END;
END $$;
"""


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
