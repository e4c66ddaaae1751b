"""Erase entries (redaction) and whole sessions (deletion) in a PostgreSQL database.

Replaced or deleted rows are out of reach at once. On the disk they are dead rows until the table is vacuumed, so that
is done right after, as far as the user may do it, and as far as no old transaction can still see the row.
"""

from collections.abc import Sequence
from typing import Final

from psycopg import AsyncConnection

from perdure.core.log_codec import VERSION

from .entry_rows import EntryRow
from .leases import ActiveLease

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
