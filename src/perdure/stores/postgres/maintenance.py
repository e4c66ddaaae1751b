"""Maintain the tables of a PostgreSQL store: measure their size, and vacuum them."""

from typing import Final

from psycopg import AsyncConnection

from perdure.core.store import StoreSize

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
