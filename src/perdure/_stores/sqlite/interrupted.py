"""Find the sessions of an SQLite file whose last run can continue; its progress is a column of the session's row.

An append that begins, suspends or ends a run changes the column in its own transaction. Only sessions whose run is not
over are in the index, so a query costs nothing for the others.

The functions here run inside a transaction that the caller has begun.
"""

from typing import Final

from perdure._core.log.status import RunProgress
from perdure._core.log.store import InterruptedSession, Lease

from .driver import Connection
from .log import PROGRESS_NUMBERS
from .write.process_leases import LockingLeaseHolder, ProcessLeases, parse_locking_holder

_PROGRESS: Final[dict[int, RunProgress]] = {number: name for name, number in PROGRESS_NUMBERS.items()}
# A session that was posted to need not exist yet. The parts of the union use the index, and the posts' key.
_INTERRUPTED: Final = """
SELECT id, progress, head, updated_at, posts, due_at, fence, holder FROM (
    SELECT id, progress, head, updated_at, due_at, fence, holder,
        (SELECT count(*) FROM post WHERE post.tenant = '' AND post.session = session.id) AS posts
    FROM session WHERE progress > 0 AND tenant = '' AND id IS NOT NULL
    UNION ALL
    SELECT post.session, 0, coalesce(head, 0), iif(coalesce(head, 0) > 0, updated_at, min(post.at)), NULL,
        coalesce(fence, 0), holder, count(*)
    FROM post LEFT JOIN session ON session.tenant = '' AND session.id = post.session
    WHERE ?1 AND post.tenant = '' AND coalesce(progress, 0) = 0 GROUP BY post.session
)
WHERE (progress = 1 OR posts > 0 OR due_at <= ?2) AND substr(id, 1, length(?3)) = ?3
ORDER BY updated_at, id"""


def query_interrupted(
    prefix: str,
    include_posts: bool,  # noqa: FBT001 - handed through
    now: float,
    leases: ProcessLeases,
    connection: Connection,
) -> list[InterruptedSession]:
    """Return the sessions whose last run can continue and that no live process runs, the longest idle first."""
    rows = connection.execute(_INTERRUPTED, (include_posts, now, prefix))
    alive: dict[tuple[int, str, str, str], bool] = {}
    """Whether a process is alive, so that each is looked for once."""
    return [
        InterruptedSession(session_id, _PROGRESS[progress], *columns)
        for session_id, progress, *columns, fence, holder in rows
        if not _is_driven(parse_locking_holder(holder), Lease(session_id, fence), leases, alive)
    ]


def _is_driven(
    holder: LockingLeaseHolder | None,
    lease: Lease,
    leases: ProcessLeases,
    alive: dict[tuple[int, str, str, str], bool],
) -> bool:
    if holder is None or lease in leases:
        return holder is not None
    process = (holder.pid, holder.machine, holder.started, holder.lock)
    if process not in alive:
        alive[process] = leases.is_alive(holder)
    return alive[process]
