"""Leases in an SQLite file: the exclusive right of a process to append to a session's log.

The functions here run inside a transaction that the caller has begun.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from perdure.core.error import SessionBusy
from perdure.core.store import Lease
from perdure.stores.lease_holder import LeaseHolder, describe_this_process, parse_holder

from .apsw_types import Connection
from .log import AppendState
from .mailbox import delete_taken_posts
from .row_merging import MergePlan, merge_log, plan_merge

_FIND: Final = "SELECT fence, holder FROM session WHERE tenant = '' AND id = ?"
_TAKE: Final = """
INSERT INTO session(id, fence, holder, created_at, updated_at)
SELECT ?1, value + 1, ?2, ?3, ?3 FROM meta WHERE name = 'fence'
ON CONFLICT(tenant, id) DO UPDATE SET fence = fence + 1, holder = excluded.holder
RETURNING fence"""
_HELD: Final = "SELECT 1 FROM session WHERE tenant = '' AND id = ? AND fence = ? AND holder IS NOT NULL"
_GIVE_BACK: Final = "UPDATE session SET holder = NULL WHERE tenant = '' AND id = ? AND fence = ? RETURNING key"


def acquire_lease(session_id: str, now: float, leases: set[Lease], take_over: bool, connection: Connection) -> Lease:  # noqa: FBT001 - handed through
    """Acquire the lease of a session; create the session if it is new. Raises `SessionBusy` if a process runs it,
    unless `take_over` is set.
    """
    if not take_over:
        check_not_driven(session_id, leases, connection)
    holder = msgspec.json.encode(describe_this_process(now)).decode()
    lease = Lease(session_id, int(connection.execute(_TAKE, (session_id, holder, now)).get))
    leases.add(lease)
    return lease


def check_not_driven(session_id: str, leases: set[Lease], connection: Connection) -> None:
    """Raise `SessionBusy` if a live process runs the session. A lease that a dead process has left does not count."""
    for fence, text in connection.execute(_FIND, (session_id,)).fetchall():
        holder = parse_holder(text)
        if holder is not None and _is_driving(holder, Lease(session_id, fence), leases):
            raise SessionBusy(
                f"session {session_id!r} is being driven by {holder}: end that run, take it over, or open another "
                "session"
            )


def _is_driving(holder: LeaseHolder, lease: Lease, leases: set[Lease]) -> bool:
    return lease in leases if holder.is_this_process else holder.is_alive


def is_lease_valid(lease: Lease, connection: Connection) -> bool:
    """Return True if the session has the fence of this lease, and the lease was not released."""
    return bool(connection.execute(_HELD, (lease.session_id, lease.fence)).get)


def prepare_release(lease: Lease, notes: AppendState, connection: Connection) -> Callable[[Connection], None]:
    """Prepare the release of a lease outside of any transaction; return the job that does it."""
    key = connection.execute("SELECT key FROM session WHERE tenant = '' AND id = ?", (lease.session_id,)).get
    return partial(release_lease, lease, notes, None if key is None else plan_merge(connection, key))


def release_lease(lease: Lease, notes: AppendState, plan: MergePlan | None, connection: Connection) -> None:
    """Release the lease of a session, merge the small rows of its log, and delete the posts that it has taken."""
    notes.highest_ids.pop(lease.session_id, None)
    notes.loose_bytes.pop(lease.session_id, None)
    key = connection.execute(_GIVE_BACK, (lease.session_id, lease.fence)).get
    if key is not None:
        merge_log(connection, key, plan)
        delete_taken_posts(lease.session_id, connection)
