"""Who drives a session of an SQLite file. Above: `store.py`. Below: `holder.py` and the table `session`.

Everything here is done inside a transaction that somebody else has begun.
"""

from typing import Final

import msgspec

from perdure.core.error import SessionBusy
from perdure.core.store import Lease
from perdure.stores.holder import Holder, parse_holder, this_process

from .connection import Connection
from .log import Notes
from .merge import merge
from .post import forget_taken

_FIND: Final = "SELECT fence, holder FROM session WHERE tenant = '' AND id = ?"
_TAKE: Final = """
INSERT INTO session(id, fence, holder, created_at, updated_at)
SELECT ?1, value + 1, ?2, ?3, ?3 FROM meta WHERE name = 'fence'
ON CONFLICT(tenant, id) DO UPDATE SET fence = fence + 1, holder = excluded.holder
RETURNING fence"""
_GIVE_BACK: Final = "UPDATE session SET holder = NULL WHERE tenant = '' AND id = ? AND fence = ? RETURNING key"


def take(session_id: str, now: float, leases: set[Lease], take_over: bool, connection: Connection) -> Lease:  # noqa: FBT001 - handed through
    """The lease of a session, which is made if it is new. Raises `SessionBusy`, unless it is to be taken over."""
    if not take_over:
        check_free(session_id, leases, connection)
    holder = msgspec.json.encode(this_process(now)).decode()
    lease = Lease(session_id, int(connection.execute(_TAKE, (session_id, holder, now)).get))
    leases.add(lease)
    return lease


def check_free(session_id: str, leases: set[Lease], connection: Connection) -> None:
    """Refuse a session that somebody drives. What a dead process left behind, or we before an exec, is free."""
    for fence, text in connection.execute(_FIND, (session_id,)).fetchall():
        holder = parse_holder(text)
        if holder is not None and _drives(holder, Lease(session_id, fence), leases):
            raise SessionBusy(
                f"session {session_id!r} is being driven by {holder}: end that run, take it over, or open another "
                "session"
            )


def _drives(holder: Holder, lease: Lease, leases: set[Lease]) -> bool:
    return lease in leases if holder.is_this_process else holder.is_alive


def give_back(lease: Lease, notes: Notes, connection: Connection) -> None:
    """Let others drive the session, and leave its log in good order."""
    notes.tops.pop(lease.session_id, None)
    key = connection.execute(_GIVE_BACK, (lease.session_id, lease.fence)).get
    if key is not None:
        merge(connection, key)
        forget_taken(lease.session_id, connection)
