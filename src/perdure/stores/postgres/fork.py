"""Sessions that begin with the entries of another one. Above: `database.py`. Below: psycopg.

Nothing is copied: a fork names its parent, and up to which entry it reads there. Who deletes that one meanwhile waits
for us, or we for them.
"""

from typing import Final, NamedTuple

from psycopg import AsyncConnection

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
    WHERE session.head = 0 AND (session.holder IS NULL OR session.lease_until <= now())
    RETURNING key
)
SELECT head, EXISTS (SELECT FROM made), set_config('synchronous_commit', 'on', true) FROM source"""
_MADE: Final = "SELECT FROM perdure.session WHERE tenant = $1 AND id = $2 AND token = $3"


class Forked(NamedTuple):
    """What came of it."""

    head: int
    """How many entries the original has; 0 when there is no such session."""
    is_made: bool


class Fork(NamedTuple):
    """What is to be made."""

    tenant: str
    session_id: str
    new_id: str
    at: int | None
    token: str
    """Not that of any other fork: by it we know ours when nobody told us that it was made."""
    now: float


async def fork(connection: AsyncConnection, wanted: Fork) -> Forked:
    """Make a fork, unless there is something in its way. One transaction."""
    row = await (await connection.execute(_FORK, wanted)).fetchone()
    if row and row[1]:
        return Forked(row[0], is_made=True)
    known = (wanted.tenant, wanted.new_id, wanted.token)
    made = await (await connection.execute(_MADE, known)).fetchone()
    return Forked(row[0] if row else 0, is_made=made is not None)
