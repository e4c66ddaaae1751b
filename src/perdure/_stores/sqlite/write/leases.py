"""Leases in an SQLite file, the right of one process to append to a session's log; and the posts to a session."""

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from perdure._core.log.store import Lease, Post
from perdure._core.values.error import SessionBusy
from perdure._core.values.jsonable import to_jsonable
from perdure._stores.sqlite.driver import Connection
from perdure._stores.sqlite.format import merging
from perdure._stores.sqlite.format.merging import RowMergePlan, merge_log_rows, plan_row_merge
from perdure._stores.sqlite.log import StateBetweenAppends, find_seq

from .process_leases import ProcessLeases, parse_locking_holder

_ADD: Final = "INSERT OR IGNORE INTO post(session, id, kind, at, body) VALUES(?, ?, ?, ?, ?) RETURNING key"
_WAITING: Final = "SELECT id, kind, body, at FROM post WHERE tenant = '' AND session = ? ORDER BY key"
_ANY: Final = "SELECT 1 FROM post WHERE tenant = '' AND session = ? LIMIT 1"
_FORGET: Final = "DELETE FROM post WHERE tenant = '' AND session = ? AND id = ?"
_LOG: Final = "SELECT key, head FROM session WHERE tenant = '' AND id = ? AND head > 0"


def encode_post_body(body: object) -> bytes:
    """Encode the body of a post (a message to a session) as JSON; values that JSON cannot represent are marked."""
    try:
        return msgspec.json.encode(body)
    except Exception:  # noqa: BLE001 - whatever is in it may raise whatever it likes
        return msgspec.json.encode(to_jsonable(body))


def add_post(session_id: str, post: Post, body: bytes, connection: Connection) -> bool:
    """Store a post (a message to a session); return False if a post with its id was stored before."""
    if _is_taken(session_id, post.id, connection):
        return False
    return connection.execute(_ADD, (session_id, post.id, post.kind, post.at, body)).get is not None


def read_pending_posts(session_id: str, connection: Connection) -> list[Post]:
    """Return the posts (messages to a session) that the process running it has not taken yet, oldest first."""
    return [
        Post(post_id, kind, msgspec.json.decode(body), at)
        for post_id, kind, body, at in connection.execute(_WAITING, (session_id,)).fetchall()
        if not _is_taken(session_id, post_id, connection)
    ]


def has_no_posts(session_id: str, connection: Connection) -> bool:
    """Return True if no posts are stored for a session, not even taken ones."""
    return not connection.execute(_ANY, (session_id,)).get


def delete_taken_posts(session_id: str, connection: Connection) -> None:
    """Delete the posts that the session has taken: those whose ids are in its log."""
    for post_id, *_ in connection.execute(_WAITING, (session_id,)).fetchall():
        if _is_taken(session_id, post_id, connection):
            connection.execute(_FORGET, (session_id, post_id))


def _is_taken(session_id: str, post_id: str, connection: Connection) -> bool:
    key, head = connection.execute(_LOG, (session_id,)).get or (0, 0)
    return head > 0 and find_seq(connection, key, head, post_id) is not None


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
    values = (lease.session_id, lease.fence, merging.MERGED_ROW_BYTES)
    if connection.execute(_GIVE_BACK_TIDY, values).get is None:
        return False
    notes.forget_lease(lease.session_id)
    return True


def plan_lease_release(
    lease: Lease, notes: StateBetweenAppends, connection: Connection
) -> Callable[[Connection], None]:
    """Plan the release of a session's lease, outside of any transaction; return the function that carries it out."""
    values = (lease.session_id, merging.MERGED_ROW_BYTES)
    key = connection.execute(_LOOSE_KEY, values).get
    return partial(release_lease, lease, notes, None if key is None else plan_row_merge(connection, key))


def release_lease(lease: Lease, notes: StateBetweenAppends, plan: RowMergePlan | None, connection: Connection) -> None:
    """Release the lease of a session, merge its small log rows if they make a large one, and delete taken posts."""
    notes.forget_lease(lease.session_id)
    key, loose = connection.execute(_GIVE_BACK, (lease.session_id, lease.fence)).get or (None, 0)
    if key is not None:
        if loose >= merging.MERGED_ROW_BYTES:
            merge_log_rows(connection, key, plan)
        delete_taken_posts(lease.session_id, connection)
