"""Fork and delete sessions, redact entries, and measure and vacuum the tables, in a PostgreSQL database."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from psycopg import AsyncConnection

from perdure._core.log.codec import VERSION
from perdure._core.log.store import StoreSize

from .leases import ActiveLease
from .rows import EntryRow

# The entry may lie in a session that this one was forked from: it is the same for all that share it.
_REDACT: Final = """
WITH ours AS (
    UPDATE perdure.session SET lease_until = pg_catalog.now() + pg_catalog.make_interval(secs => $5)
    WHERE tenant = $1 AND id = $2 AND fence = $3 AND holder = $4
    RETURNING key
), old AS (
    SELECT entry.session, entry.id, (SELECT owner.id FROM perdure.session AS owner WHERE key = entry.session) AS owner
    FROM ours CROSS JOIN LATERAL perdure.line(ours.key) AS line
    JOIN perdure.entry ON entry.session = line.session AND seq <= upto
    WHERE seq = $6
), replaced AS (
    UPDATE perdure.entry
    SET id = $7, kind = $8, critical = $9, at = $10, title = $11, body = $14, version = $15
    FROM old WHERE entry.session = old.session AND seq = $6
), unheard AS (
    DELETE FROM perdure.said USING old WHERE said.session = old.session AND seq = $6 AND $13::text IS NULL
), heard AS (
    INSERT INTO perdure.said(session, seq, role, at, words)
    SELECT session, $6, $12, $10, perdure.vector($1, $13) FROM old WHERE $13::text IS NOT NULL
    ON CONFLICT(session, seq) DO UPDATE SET role = excluded.role, at = excluded.at, words = excluded.words
), taken AS (
    DELETE FROM perdure.post USING old WHERE tenant = $1 AND post.session IN ($2, owner) AND post.id = old.id
)
SELECT EXISTS (SELECT FROM old), pg_catalog.set_config('synchronous_commit', 'on', true) FROM ours"""
_FORGET: Final = "SELECT perdure.forget($1, $2, $3)"
# The indexes are left for later: to go through all of that of the words takes as long as there are words.
_SWEEP: Final = """
VACUUM (TRUNCATE false, INDEX_CLEANUP off) perdure.session, perdure.entry, perdure.said, perdure.post"""


class EraseStatements:
    """SQL statements of one tenant that redact entries and delete sessions; each is one transaction."""

    def __init__(self, tenant: str, lease_seconds: float) -> None:
        self._tenant = tenant
        self._lease_seconds = lease_seconds

    async def redact(self, connection: AsyncConnection, held: ActiveLease, row: EntryRow) -> bool | None:
        """Replace the row of an entry; return False if there is no entry with its number, `None` if the lease was
        lost.
        """
        lease = held.lease
        ours = (self._tenant, lease.session_id, lease.fence, held.grip, self._lease_seconds)
        found = await (await connection.execute(_REDACT, (*ours, *_columns_of(row), VERSION))).fetchone()
        return bool(found[0]) if found else None

    async def delete(self, connection: AsyncConnection, session_id: str, free: Sequence[str]) -> bool | None:
        """Delete a session and the messages to it; return False if it does not exist, `None` if a process runs it."""
        row = await (await connection.execute(_FORGET, (self._tenant, session_id, [*free]))).fetchone()
        return row[0] if row else None


def _columns_of(row: EntryRow) -> tuple[object, ...]:
    """Return the columns of a row that a redaction replaces: the progress of the run stays as it is."""
    return (*row[: EntryRow._fields.index("progress")], row.body)


async def vacuum_dead_rows(connection: AsyncConnection) -> None:
    """Remove deleted and replaced rows from the disk. Does nothing if the database user may not do that."""
    await connection.execute(_SWEEP)


_FORK: Final = """
WITH source AS (
    SELECT key, head, coalesce($4::bigint, head) AS at FROM perdure.session
    WHERE tenant = $1 AND id = $2 AND head > 0 FOR KEY SHARE
), last AS (
    SELECT entry.at AS updated_at FROM source CROSS JOIN LATERAL perdure.line(source.key) AS line
    JOIN perdure.entry ON entry.session = line.session AND seq = source.at AND seq <= upto
), made AS (
    INSERT INTO perdure.session AS session(tenant, id, fence, head, parent, at, token, created_at, updated_at)
    SELECT $1, $3, coalesce((SELECT value FROM perdure.meta WHERE tenant = $1 AND name = 'fence'), 0),
        at, key, at, $5, $6, updated_at
    FROM source, last
    ON CONFLICT(tenant, id) DO UPDATE
    SET head = excluded.head, parent = excluded.parent, at = excluded.at, token = excluded.token, holder = NULL,
        lease_until = NULL, created_at = excluded.created_at, updated_at = excluded.updated_at
    WHERE session.head = 0
        AND (session.holder IS NULL OR session.lease_until <= pg_catalog.now() OR session.holder = ANY($7::text[]))
    RETURNING key
)
SELECT head, EXISTS (SELECT FROM made), pg_catalog.set_config('synchronous_commit', 'on', true) FROM source"""
_MADE: Final = "SELECT FROM perdure.session WHERE tenant = $1 AND id = $2 AND token = $3"


class ForkResult(NamedTuple):
    """The result of an attempt to fork a session: if the fork was made, and how many entries the original has."""

    head: int
    """The number of entries of the original; 0 if there is no such session."""
    is_made: bool


class TenantForkRequest(NamedTuple):
    """The arguments for forking a session of one tenant."""

    tenant: str
    session_id: str
    new_id: str
    at: int | None
    token: str
    """Unique to this fork: a repeated statement recognizes by it that the fork was made."""
    now: float
    dead_holders: Sequence[str] = ()
    """Lease holders of the new id whose processes have died."""


async def create_fork(connection: AsyncConnection, request: TenantForkRequest) -> ForkResult:
    """Fork a session in one transaction, unless the original session is missing or the new id is taken."""
    row = await (await connection.execute(_FORK, (*request[:-1], [*request.dead_holders]))).fetchone()
    if row and row[1]:
        return ForkResult(row[0], is_made=True)
    known = (request.tenant, request.new_id, request.token)
    made = await (await connection.execute(_MADE, known)).fetchone()
    return ForkResult(row[0] if row else 0, is_made=made is not None)


_SIZE: Final = """
SELECT coalesce(pg_catalog.sum(pg_catalog.pg_total_relation_size(relid)), 0)::bigint,
    coalesce(
        pg_catalog.sum(pg_catalog.pg_relation_size(relid) * n_dead_tup / greatest(n_live_tup + n_dead_tup, 1)), 0
    )::bigint,
    pg_catalog.pg_total_relation_size('perdure.said')
FROM pg_catalog.pg_stat_all_tables WHERE schemaname = 'perdure'"""
_SESSIONS: Final = """
SELECT session.id, coalesce(pg_catalog.sum(pg_catalog.pg_column_size(body)), 0)::bigint
FROM perdure.session LEFT JOIN perdure.entry ON session = key
WHERE tenant = $1 AND head > 0 AND session.id IS NOT NULL GROUP BY session.key"""
# When the index could not be built to its end, the unfinished one stays behind, unused.
_VACUUM: Final = (
    "VACUUM (TRUNCATE false) perdure.session, perdure.entry, perdure.said, perdure.post",
    "DROP INDEX CONCURRENTLY IF EXISTS perdure.said_words_ccnew",
    "REINDEX INDEX CONCURRENTLY perdure.said_words",
)


async def measure_sizes(connection: AsyncConnection, tenant: str) -> StoreSize:
    """Return how many bytes the tables take for all tenants together, and the size of each session of one tenant."""
    total, free, search = await (await connection.execute(_SIZE)).fetchone() or (0, 0, 0)
    sessions = await (await connection.execute(_SESSIONS, (tenant,))).fetchall()
    return StoreSize(total, free, search, dict(sessions))


async def vacuum_tables(connection: AsyncConnection) -> None:
    """Remove dead rows from the store's tables, and rebuild its search index, which keeps terms of deleted entries."""
    for statement in _VACUUM:
        await connection.execute(statement)
