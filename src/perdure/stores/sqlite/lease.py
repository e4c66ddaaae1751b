"""Leases in an SQLite file: the exclusive right of a process to append to a session's log.

The functions here run inside a transaction that the caller has begun.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from perdure.core.error import SessionBusy
from perdure.core.store import Lease

from . import log_row_merging
from .apsw_types import Connection
from .log import StateBetweenAppends
from .log_row_merging import RowMergePlan, merge_log_rows, plan_row_merge
from .mailbox import delete_taken_posts
from .process_leases import ProcessLeases, parse_locking_holder

_FIND: Final = "SELECT fence, holder FROM session WHERE tenant = '' AND id = ?"
_TAKE: Final = """
INSERT INTO session(id, fence, holder, created_at, updated_at)
SELECT ?1, value + 1, ?2, ?3, ?3 FROM meta WHERE name = 'fence'
ON CONFLICT(tenant, id) DO UPDATE SET fence = fence + 1, holder = excluded.holder
RETURNING fence"""
_TAKE_FREE: Final = """
INSERT INTO session(id, fence, holder, created_at, updated_at)
SELECT ?1, value + 1, ?2, ?3, ?3 FROM meta WHERE name = 'fence'
ON CONFLICT(tenant, id) DO UPDATE SET fence = fence + 1, holder = excluded.holder WHERE session.holder IS NULL
RETURNING fence"""
_HELD: Final = "SELECT 1 FROM session WHERE tenant = '' AND id = ? AND fence = ? AND holder IS NOT NULL"
_LOOSE_KEY: Final = "SELECT key FROM session WHERE tenant = '' AND id = ? AND loose >= ?"
_GIVE_BACK: Final = "UPDATE session SET holder = NULL WHERE tenant = '' AND id = ? AND fence = ? RETURNING key, loose"
_GIVE_BACK_TIDY: Final = """
UPDATE session SET holder = NULL
WHERE tenant = '' AND id = ?1 AND fence = ?2 AND loose < ?3
    AND NOT EXISTS (SELECT 1 FROM post WHERE tenant = '' AND session = ?1)
RETURNING key"""


def acquire_lease(session_id: str, now: float, leases: ProcessLeases, take_over: bool, connection: Connection) -> Lease:  # noqa: FBT001 - handed through
    """Acquire the lease of a session, which is created if it is new. Raises `SessionBusy` if a process runs it.

    With `take_over`, it is acquired all the same.
    """
    if not take_over:
        check_not_running(session_id, leases, connection)
    holder = leases.build_holder_json(now)
    lease = Lease(session_id, int(connection.execute(_TAKE, (session_id, holder, now)).get))
    leases.add(lease)
    return lease


def acquire_free_lease(session_id: str, now: float, leases: ProcessLeases, connection: Connection) -> Lease | None:
    """Acquire the lease of a new or free session in one statement; return `None` if a process may have the lease."""
    holder = leases.build_holder_json(now)
    fence = connection.execute(_TAKE_FREE, (session_id, holder, now)).get
    if fence is None:
        return None
    lease = Lease(session_id, int(fence))
    leases.add(lease)
    return lease


def check_not_running(session_id: str, leases: ProcessLeases, connection: Connection) -> None:
    """Raise `SessionBusy` if a live process runs the session. A lease that a dead process has left does not count."""
    for fence, text in connection.execute(_FIND, (session_id,)).fetchall():
        holder = parse_locking_holder(text)
        if holder is not None and leases.is_driven(Lease(session_id, fence), holder):
            raise SessionBusy(
                f"session {session_id!r} is being driven by {holder}: end that run, take it over, or open another "
                "session"
            )


def is_lease_valid(lease: Lease, connection: Connection) -> bool:
    """Return True if the session has the fence of this lease, and the lease was not released."""
    return bool(connection.execute(_HELD, (lease.session_id, lease.fence)).get)


def try_release_lease(lease: Lease, notes: StateBetweenAppends, connection: Connection) -> bool:
    """Release the lease of a session in one statement; return False, and do nothing, if rows or posts need cleaning up.

    Rows to merge and stored posts need cleaning up; with them, nothing is done.
    """
    values = (lease.session_id, lease.fence, log_row_merging.MERGED_ROW_BYTES)
    if connection.execute(_GIVE_BACK_TIDY, values).get is None:
        return False
    notes.forget_lease(lease.session_id)
    return True


def plan_lease_release(
    lease: Lease, notes: StateBetweenAppends, connection: Connection
) -> Callable[[Connection], None]:
    """Plan the release of a session's lease, outside of any transaction; return the function that carries it out."""
    values = (lease.session_id, log_row_merging.MERGED_ROW_BYTES)
    key = connection.execute(_LOOSE_KEY, values).get
    return partial(release_lease, lease, notes, None if key is None else plan_row_merge(connection, key))


def release_lease(lease: Lease, notes: StateBetweenAppends, plan: RowMergePlan | None, connection: Connection) -> None:
    """Release the lease of a session, merge its small log rows if they make a large one, and delete taken posts."""
    notes.forget_lease(lease.session_id)
    key, loose = connection.execute(_GIVE_BACK, (lease.session_id, lease.fence)).get or (None, 0)
    if key is not None:
        if loose >= log_row_merging.MERGED_ROW_BYTES:
            merge_log_rows(connection, key, plan)
        delete_taken_posts(lease.session_id, connection)
