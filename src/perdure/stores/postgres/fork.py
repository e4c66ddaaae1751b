"""Fork sessions in a PostgreSQL database: the new session names its parent and how many of its entries it shares.

Nothing is copied: a fork names its parent, and up to which entry it reads there. A row lock on the parent excludes its
deletion meanwhile.
"""

from collections.abc import Sequence
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
