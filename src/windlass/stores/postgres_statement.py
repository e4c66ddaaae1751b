"""What a PostgreSQL store says to its database, one tenant at a time. Above: `postgres.py`. Below: psycopg.

Whether a commit waits for the disk is set inside the statement itself, for its own transaction and no other.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection

from windlass.core.codec import VERSION
from windlass.core.event import Entry
from windlass.core.store import Lease, SessionInfo

from .postgres_lease import Held
from .postgres_row import Row, entry_of, packed

# A session is free when nobody holds it, when its lease has ended by the database's clock, or when its holder is one of
# those in the array: ourselves, if our own statement went through unheard, or a process that is known to have died.
_TAKE: Final = """
INSERT INTO windlass.session AS session(tenant, id, fence, holder, lease_until, created_at, updated_at)
SELECT $1, $2, coalesce(max(value), 0) + 1, $3, now() + make_interval(secs => $4), $5::float8, $5::float8
FROM windlass.meta WHERE tenant = $1 AND name = 'fence'
ON CONFLICT(tenant, id) DO UPDATE
SET fence = session.fence + 1, holder = excluded.holder, lease_until = excluded.lease_until
WHERE session.holder IS NULL OR session.lease_until <= now() OR session.holder = ANY($6::text[])
RETURNING fence, head, title, set_config('synchronous_commit', 'on', true)"""
_GIVE_BACK: Final = """
UPDATE windlass.session SET holder = NULL, lease_until = NULL
FROM unnest($2::text[], $3::bigint[], $4::text[]) AS held(id, fence, holder)
WHERE session.tenant = $1 AND session.id = held.id AND session.fence = held.fence AND session.holder = held.holder
RETURNING set_config('synchronous_commit', 'off', true)"""
_APPEND: Final = """
WITH advanced AS (
    UPDATE windlass.session
    SET head = $6, updated_at = $7, title = CASE title WHEN '' THEN $8 ELSE title END,
        lease_until = now() + make_interval(secs => $9)
    WHERE tenant = $1 AND id = $2 AND fence = $3 AND holder = $4 AND head = $5
    RETURNING key
), added AS (
    INSERT INTO windlass.entry(session, seq, id, kind, critical, version, at, body)
    SELECT key, seq, added.id, kind, critical, $10, coalesce(at, 'NaN'), substring($12::bytea FROM start FOR length)
    FROM advanced, json_to_recordset($11) AS added(
        seq bigint, id text, kind text, critical boolean, at double precision, start integer, length integer
    )
)
SELECT set_config('synchronous_commit', $13, true) FROM advanced"""
_SYNC: Final = """
UPDATE windlass.session SET lease_until = now() + make_interval(secs => $5)
WHERE tenant = $1 AND id = $2 AND fence = $3 AND holder = $4
RETURNING set_config('synchronous_commit', 'on', true)"""
_DELETE: Final = """
WITH gone AS (
    DELETE FROM windlass.session
    WHERE tenant = $1 AND id = $2 AND (holder IS NULL OR lease_until <= now() OR holder = ANY($3::text[]))
    RETURNING fence
)
INSERT INTO windlass.meta AS meta(tenant, name, value) SELECT $1, 'fence', fence FROM gone
ON CONFLICT(tenant, name) DO UPDATE SET value = greatest(meta.value, excluded.value)
RETURNING set_config('synchronous_commit', 'on', true)"""
_FIND: Final = "SELECT head, fence, holder FROM windlass.session WHERE tenant = $1 AND id = $2"
_COMPARE: Final = """
SELECT seq, entry.id FROM windlass.entry JOIN windlass.session ON session = key
WHERE tenant = $1 AND session.id = $2 AND seq BETWEEN $3 AND $4 ORDER BY seq"""
_READ: Final = """
SELECT seq, at, coalesce(entry.id, ''), critical, version, body
FROM windlass.entry JOIN windlass.session ON session = key
WHERE tenant = $1 AND session.id = $2 AND seq > $3 ORDER BY seq"""
_LIST: Final = """
SELECT id, head, created_at, updated_at, title FROM windlass.session
WHERE tenant = $1 AND head > 0 AND starts_with(id, $2)
ORDER BY updated_at DESC, key DESC LIMIT $3 OFFSET $4"""


class Found(NamedTuple):
    """What the database knows of a session."""

    head: int
    fence: int
    holder: str | None


class Statements:
    """Each is one transaction."""

    def __init__(self, tenant: str, lease_seconds: float) -> None:
        self._tenant = tenant
        self._lease_seconds = lease_seconds

    async def take(
        self, connection: AsyncConnection, session_id: str, grip: str, free: Sequence[str], now: float
    ) -> tuple[int, int, str] | None:
        """Take a session that is free, or make it. Gives its fence, head and title; `None` if somebody holds it."""
        values = (self._tenant, session_id, grip, self._lease_seconds, now, [grip, *free])
        cursor = await connection.execute(_TAKE, values)
        row = await cursor.fetchone()
        return row[:3] if row else None

    async def give_back(self, connection: AsyncConnection, held: Sequence[Held]) -> None:
        """Those that are not ours any more are left alone."""
        columns = [each.lease.session_id for each in held], [each.lease.fence for each in held], [e.grip for e in held]
        await connection.execute(_GIVE_BACK, (self._tenant, *columns))

    async def append(
        self, connection: AsyncConnection, held: Held, rows: Sequence[Row], title: str, *, sync: bool
    ) -> bool:
        """Add rows behind the one before the first of them; `False`, and nothing was done, if that is not the last."""
        first, last, lease = rows[0], rows[-1], held.lease
        compared = (self._tenant, lease.session_id, lease.fence, held.grip, first.seq - 1)
        changed = (last.seq, last.at, title, self._lease_seconds)
        values = (*compared, *changed, VERSION, *packed(rows), "on" if sync else "off")
        cursor = await connection.execute(_APPEND, values)
        return await cursor.fetchone() is not None

    async def sync(self, connection: AsyncConnection, held: Held) -> None:
        """Wait until all that was committed before is on disk."""
        lease = held.lease
        values = (self._tenant, lease.session_id, lease.fence, held.grip, self._lease_seconds)
        await connection.execute(_SYNC, values)

    async def delete(self, connection: AsyncConnection, session_id: str, free: Sequence[str]) -> bool:
        """Delete a session that is free; `False` if there is none."""
        cursor = await connection.execute(_DELETE, (self._tenant, session_id, [*free]))
        return await cursor.fetchone() is not None

    async def find(self, connection: AsyncConnection, session_id: str) -> Found | None:
        """What the database knows of a session."""
        row = await (await connection.execute(_FIND, (self._tenant, session_id))).fetchone()
        return Found(*row) if row else None

    async def names(self, connection: AsyncConnection, lease: Lease, first: int, last: int) -> list[tuple[Any, ...]]:
        """The numbers and ids of some entries."""
        cursor = await connection.execute(_COMPARE, (self._tenant, lease.session_id, first, last))
        return await cursor.fetchall()

    async def read(self, connection: AsyncConnection, session_id: str, after: int) -> list[Entry]:
        """The entries above a number."""
        cursor = await connection.execute(_READ, (self._tenant, session_id, after), binary=True)
        return [entry_of(session_id, row) for row in await cursor.fetchall()]

    async def list(self, connection: AsyncConnection, prefix: str, limit: int, offset: int) -> list[SessionInfo]:
        """A page of sessions."""
        cursor = await connection.execute(_LIST, (self._tenant, prefix, limit, offset))
        return [SessionInfo(*row) for row in await cursor.fetchall()]
