"""The table definitions of a PostgreSQL store, as a list of migrations from each format to the next.

They are in a separate schema, beside other tables of the database. Statements elsewhere name the schema of each table
and function that they use, `pg_catalog` too: what a role planted in a schema of the search path is not run. Here the
transaction has a search path of its own.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from psycopg import AsyncConnection

from perdure.core.error import StoreError
from perdure.core.event import Entry
from perdure.core.last_run_progress import NO_RUN, LastRunProgress, find_last_run_progress

from .entry_rows import PROGRESS_NUMBERS, decode_row_event, get_indexed_text

Migration: TypeAlias = str | Callable[[AsyncConnection], Awaitable[None]]
"""One step to the next format: SQL statements, or a function for changes that SQL cannot express."""

_BATCH: Final = 100
"""The number of entries that are read at once."""

# `tenant` precedes every key. The session's row changes with every append, so its pages keep room for the next
# version of it, and nothing that changes is indexed. "C" compares bytes: the same everywhere, and good for prefixes.
# In meta, `format` is the version of the tables, and `fence` the highest fence of a tenant's deleted sessions: one that
# is made anew under an old id goes on from there. Bodies are compressed with lz4 where the server has it: that takes a
# third of the time of its own method.
_FIRST_FORMAT: Final = """
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
CREATE TABLE perdure.entry(
    session bigint NOT NULL REFERENCES perdure.session(key) ON DELETE CASCADE,
    seq bigint NOT NULL,
    id text COLLATE "C",
    kind text NOT NULL,
    critical boolean NOT NULL,
    version integer NOT NULL,
    at double precision NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY(session, seq)
);
CREATE UNIQUE INDEX entry_id ON perdure.entry(session, id);
DO $$ BEGIN
    EXECUTE 'ALTER TABLE perdure.entry ALTER COLUMN body SET COMPRESSION lz4';
EXCEPTION WHEN feature_not_supported OR syntax_error OR invalid_parameter_value THEN
    NULL;
END $$;
"""

# A fork is (parent, at): its own entries are numbered above `at`, the others are read in the parent, which may be a
# fork itself. A deleted session that forks need stays without an id, and so nobody finds it. `token` is the fork's
# maker's, who can tell by it that it was made when the answer was lost; likewise for a post.
#
# An entry has the title that it would give its session: so a fork needs no title of its own, and one that is redacted
# leaves none behind.
_FORKS_AND_POSTS: Final = """
ALTER TABLE perdure.session
    ALTER COLUMN id DROP NOT NULL,
    ADD COLUMN parent bigint REFERENCES perdure.session(key),
    ADD COLUMN at bigint NOT NULL DEFAULT 0,
    ADD COLUMN token text;
CREATE INDEX session_parent ON perdure.session(parent) WHERE parent IS NOT NULL;
ALTER TABLE perdure.entry ADD COLUMN title text;
CREATE INDEX entry_title ON perdure.entry(session, kind, seq) WHERE title IS NOT NULL;
UPDATE perdure.entry SET title = session.title
FROM perdure.session, LATERAL (
    SELECT min(seq) AS seq FROM perdure.entry WHERE session = session.key AND kind = 'message_added'
) AS first
WHERE entry.session = session.key AND entry.seq = first.seq AND session.title <> '';
ALTER TABLE perdure.session DROP COLUMN title;
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
CREATE FUNCTION perdure.forget(of_tenant text, of_id text, free text[]) RETURNS boolean LANGUAGE plpgsql AS $$
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
"""

# The vector of an entry also contains a mark of its tenant, so that no search scans the text of other tenants. One that
# would be too large for the server, which few long texts are, has the first half of the words, or the first quarter …
_SEARCH: Final = """
CREATE TABLE perdure.said(
    session bigint NOT NULL REFERENCES perdure.session(key) ON DELETE CASCADE,
    seq bigint NOT NULL,
    role text NOT NULL,
    at double precision NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY(session, seq)
);
CREATE INDEX said_words ON perdure.said USING gin(words);
CREATE FUNCTION perdure.mark(of_tenant text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT '@' || left(md5(of_tenant), 8)
$$;
CREATE FUNCTION perdure.vector(of_tenant text, words text) RETURNS tsvector LANGUAGE plpgsql IMMUTABLE AS $$
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

_UNINDEXED: Final = """
SELECT tenant, session, seq, entry.at, critical, version, body
FROM perdure.entry JOIN perdure.session ON session = key
WHERE (session, seq) > ($1, $2) AND kind IN ('message_added', 'tool_finished') ORDER BY session, seq LIMIT $3"""
_ADD_TO_INDEX: Final = """
INSERT INTO perdure.said(session, seq, role, at, words)
SELECT session, seq, role, at, perdure.vector(tenant, words)
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::float8[], $6::text[])
    AS heard(tenant, session, seq, role, at, words)"""


async def _index_existing_entries(connection: AsyncConnection) -> None:
    """Add the entries that were stored before the search index existed to the index."""
    place = (0, 0)
    while rows := await (await connection.execute(_UNINDEXED, (*place, _BATCH), binary=True)).fetchall():
        heard = [each for row in rows if (each := _build_search_row(row))]
        if heard:
            await connection.execute(_ADD_TO_INDEX, tuple(list(column) for column in zip(*heard, strict=True)))
        place = rows[-1][1], rows[-1][2]


def _build_search_row(row: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the search row of an entry; `None` if it has no text, or cannot be read."""
    tenant, session, seq, at, critical, version, body = row
    try:
        role, words = get_indexed_text(decode_row_event("", seq, critical, version, body))
    except StoreError:
        return None
    return None if words is None else (tenant, session, seq, role, at, words)


# The progress of the last run that was begun in a session: 0 over, 1 cut off, 2 waiting (until `due_at`, if that is not
# null). Only runs that are not over are in the index.
_PROGRESS: Final = """
ALTER TABLE perdure.session
    ADD COLUMN progress smallint NOT NULL DEFAULT 0,
    ADD COLUMN due_at double precision;
CREATE INDEX session_unfinished ON perdure.session(tenant, id) WHERE progress > 0;
"""
_RUN_EVENTS: Final = """
SELECT session, seq, at, critical, version, body FROM perdure.entry
WHERE (session, seq) > ($1, $2)
    AND kind IN ('run_started', 'run_resumed', 'run_waiting', 'run_ended', 'session_configured')
ORDER BY session, seq LIMIT $3"""
_SET_PROGRESS: Final = """
UPDATE perdure.session SET progress = given.progress, due_at = given.due_at
FROM unnest($1::bigint[], $2::smallint[], $3::float8[]) AS given(key, progress, due_at)
WHERE session.key = given.key"""


async def _fill_progress(connection: AsyncConnection) -> None:
    """Set the progress of the last run for sessions stored before progress was recorded."""
    place = (0, 0)
    while rows := await (await connection.execute(_RUN_EVENTS, (*place, _BATCH), binary=True)).fetchall():
        last: dict[int, LastRunProgress] = {}
        for session, seq, at, critical, version, body in rows:
            try:
                run = find_last_run_progress((Entry(seq, at, decode_row_event("", seq, critical, version, body)),))
            except StoreError:  # the session cannot be read, and so cannot be continued
                run = NO_RUN
            if run is not None:
                last[session] = run
        if last:
            known = [(session, PROGRESS_NUMBERS[run.progress], run.due_at) for session, run in last.items()]
            await connection.execute(_SET_PROGRESS, tuple(list(column) for column in zip(*known, strict=True)))
        place = rows[-1][0], rows[-1][1]


# Without that, a caller's search_path would say what the words in their bodies mean, and another role of the database
# may have a function in `public` that fits the arguments better than PostgreSQL's own. (perdure.line has no calls; and
# it has to stay one that the planner can merge into a query.)
_FIXED_SEARCH_PATH: Final = """
ALTER FUNCTION perdure.forget(text, text, text[]) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION perdure.mark(text) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION perdure.vector(text, text) SET search_path = pg_catalog, pg_temp;
"""

MIGRATIONS: Final[tuple[Migration, ...]] = (
    _FIRST_FORMAT,
    _FORKS_AND_POSTS,
    _SEARCH,
    _index_existing_entries,
    _PROGRESS,
    _fill_progress,
    _FIXED_SEARCH_PATH,
)
"""The N-th migrates format N to format N + 1; format 0 is an empty schema."""
