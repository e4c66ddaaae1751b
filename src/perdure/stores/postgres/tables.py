"""The definitions of the tables and functions of a PostgreSQL store.

They are in a separate schema, beside other tables of the database. Statements elsewhere name the schema of each table
and function that they use, `pg_catalog` too: what a role planted in a schema of the search path is not run. Here the
transaction has a search path of its own.
"""

from typing import Final

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
