"""What the tables of a PostgreSQL store take, and how that is given back. Above: `database.py`.
Below: psycopg.
"""

from typing import Final

from psycopg import AsyncConnection

from perdure.core.store import StoreSize

_SIZE: Final = """
SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint,
    coalesce(sum(pg_relation_size(relid) * n_dead_tup / greatest(n_live_tup + n_dead_tup, 1)), 0)::bigint,
    pg_total_relation_size('perdure.said')
FROM pg_catalog.pg_stat_all_tables WHERE schemaname = 'perdure'"""
_SESSIONS: Final = """
SELECT session.id, coalesce(sum(pg_column_size(body)), 0)::bigint
FROM perdure.session LEFT JOIN perdure.entry ON session = key
WHERE tenant = $1 AND head > 0 AND session.id IS NOT NULL GROUP BY session.key"""
# When the index could not be built to its end, what there was of it stays behind, and nobody uses it.
_VACUUM: Final = (
    "VACUUM (TRUNCATE false) perdure.session, perdure.entry, perdure.said, perdure.post",
    "DROP INDEX CONCURRENTLY IF EXISTS perdure.said_words_ccnew",
    "REINDEX INDEX CONCURRENTLY perdure.said_words",
)


async def size(connection: AsyncConnection, tenant: str) -> StoreSize:
    """What all tenants take together, and the sessions of this one."""
    total, free, search = await (await connection.execute(_SIZE)).fetchone() or (0, 0, 0)
    sessions = await (await connection.execute(_SESSIONS, (tenant,))).fetchall()
    return StoreSize(total, free, search, dict(sessions))


async def vacuum(connection: AsyncConnection) -> None:
    """Make room for what will come, and build the index of words anew: it keeps those of deleted entries until then."""
    for statement in _VACUUM:
        await connection.execute(statement)
