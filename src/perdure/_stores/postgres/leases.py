"""The leases that a PostgreSQL store has on sessions, and the thread that renews them before they expire.

A lease lasts for some seconds by the database's clock. Each append renews it, and so does this thread, which no blocked
event loop can stop. A driver that could not renew its lease for two thirds of that time stops by itself, by its local
clock, before another process can have taken the session over. Should both clocks fail, the fence in the database
decides.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Final

import psycopg
from psycopg import Connection, RawCursor

from perdure._core.log.store import Lease
from perdure._core.values.clock import Clock
from perdure._core.values.error import Fenced
from perdure._stores.lease_holder import LeaseHolderProcess

from .pool import Settings, format_error_line
from .rows import EntryRow

# What this thread renews need not survive a crash of the server: a lease may end early, never late.
_RENEW: Final = """
UPDATE perdure.session SET lease_until = pg_catalog.now() + pg_catalog.make_interval(secs => $5)
FROM unnest($2::text[], $3::bigint[], $4::text[]) AS held(id, fence, holder)
WHERE session.tenant = $1 AND session.id = held.id AND session.fence = held.fence AND session.holder = held.holder
RETURNING session.id, session.fence, pg_catalog.set_config('synchronous_commit', 'off', true)"""

_MAX_UNRELEASED: Final = 16
"""Of one session, so many are remembered: before the newest of more attempts than that, the oldest have expired."""

_log = logging.getLogger("perdure.stores")


class LeaseHolderWithToken(LeaseHolderProcess, frozen=True):
    """The process that has a lease, with a token that is unique to this lease.

    It stays unique when the database was restored from a backup.
    """

    token: str


class ActiveLease:
    """A lease that this process has on a session, with the state of its writes."""

    __slots__ = ("grip", "head", "is_fork", "is_lost", "lease", "renewed_at", "unsynced", "unsynced_bytes")

    def __init__(self, lease: Lease, grip: str, head: int, renewed_at: float, *, is_fork: bool) -> None:
        self.lease = lease
        self.grip = grip
        """The `LeaseHolderWithToken`, as it is written into the database."""
        self.head = head
        """The number of the last entry that is known to be stored."""
        self.is_fork = is_fork
        """True if the session shares entries of another one."""
        self.renewed_at = renewed_at
        """When the last successful renewal was sent, by the local monotonic clock."""
        self.is_lost = False
        """True if another process may have the session. A lost lease stays lost."""
        self.unsynced: list[EntryRow] = []
        """Rows that were stored since the last sync: a server that crashes may lose them."""
        self.unsynced_bytes = 0
        """Their size."""

    def record_stored(self, rows: Sequence[EntryRow], *, sync: bool, sent_at: float) -> None:
        """Record that these rows were stored, which has also renewed the lease."""
        self.renewed_at = max(self.renewed_at, sent_at)
        new = [row for row in rows if row.seq > self.head]
        self.head = max(self.head, rows[-1].seq)
        if sync:
            self.record_synced(sent_at=sent_at)
        else:
            self.unsynced += new
            self.unsynced_bytes += sum(len(row.body) + len(row.words or "") for row in new)

    def record_synced(self, *, sent_at: float) -> None:
        """Record that all stored entries are on the server's disk, and that the lease was renewed."""
        self.renewed_at = max(self.renewed_at, sent_at)
        self.unsynced, self.unsynced_bytes = [], 0


class LeaseRenewer:
    """The leases that one store has, and the background thread that renews each lease until it is removed."""

    def __init__(self, settings: Settings, tenant: str, seconds: float, clock: Clock) -> None:
        self._settings = settings
        self._tenant = tenant
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[Lease, ActiveLease] = {}
        self._unreleased: dict[str, list[str]] = {}
        self._end_of_thread: threading.Event | None = None

    def add(self, held: ActiveLease) -> None:
        """Add a lease to those that are renewed, and start the thread if necessary."""
        with self._lock:
            self._held[held.lease] = held
            if self._end_of_thread is None:
                self._end_of_thread = threading.Event()
                work = (self._end_of_thread,)
                threading.Thread(target=self._renew_until, args=work, name="perdure-leases", daemon=True).start()

    def remove(self, lease: Lease) -> ActiveLease | None:
        """Stop renewing a lease and return its state; `None` if it was not among these leases."""
        with self._lock:
            return self._held.pop(lease, None)

    def remove_all(self) -> list[ActiveLease]:
        """Stop renewing all leases, end the thread, and return their states."""
        with self._lock:
            held, self._held = [*self._held.values()], {}
            if self._end_of_thread is not None:
                self._end_of_thread.set()
                self._end_of_thread = None
        return held

    def add_unreleased(self, session_id: str, grip: str) -> None:
        """Record a lease that this process does not use, and that may still be in the database: a statement failed."""
        with self._lock:
            self._unreleased[session_id] = [*self._unreleased.get(session_id, ()), grip][-_MAX_UNRELEASED:]

    def find_unreleased(self, session_id: str) -> Sequence[str]:
        """Return the leases on a session that this process may take over at once, since it left them behind itself."""
        return self._unreleased.get(session_id, ())

    def forget_unreleased(self, session_id: str) -> None:
        """Forget what this process left behind on a session, once it has acquired a new lease."""
        with self._lock:
            self._unreleased.pop(session_id, None)

    def get_valid(self, lease: Lease) -> ActiveLease:
        """Return the state of a lease. Raises `Fenced` if it is lost, or could not be renewed in time."""
        held = self._held.get(lease)
        if held is None or held.is_lost:
            raise build_fenced_error(lease)
        silence = self._clock.monotonic() - held.renewed_at
        if silence > self._seconds * 2 / 3:
            held.is_lost = True
            raise Fenced(
                f"the lease of session {lease.session_id!r} could not be renewed for {silence:.1f} s, and another "
                "driver may have taken it: stop, and open it again"
            )
        return held

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _renew_until(self, end: threading.Event) -> None:
        """Renew all leases periodically, until `end` is set or there is none left."""
        connection: Connection | None = None
        pause = self._seconds / 3
        try:
            while not end.wait(pause):
                with self._lock:
                    held = [each for each in self._held.values() if not each.is_lost]
                    if not self._held and self._end_of_thread is end:
                        self._end_of_thread = None
                        return
                if held:
                    connection = self._renew(connection, held)
                    pause = self._seconds / (3 if connection else 15)
        finally:
            if connection is not None:
                connection.close()

    def _renew(self, connection: Connection | None, held: Sequence[ActiveLease]) -> Connection | None:
        """Renew all leases at once; return the connection for the next time, or `None` if it broke."""
        sent_at = self._clock.monotonic()
        columns = [each.lease.session_id for each in held], [each.lease.fence for each in held], [e.grip for e in held]
        try:
            connection = connection or self._connect()
            rows = connection.execute(_RENEW, (self._tenant, *columns, self._seconds)).fetchall()
        except psycopg.Error as error:
            _log.warning(
                "%d leases could not be renewed, which will be tried again: %s", len(held), format_error_line(error)
            )
            if connection is not None:
                connection.close()
            return None
        ours = {Lease(session_id, fence) for session_id, fence, _ in rows}
        for each in held:
            if each.lease in ours:
                each.renewed_at = max(each.renewed_at, sent_at)
            else:
                each.is_lost = True
        return connection

    def _connect(self) -> Connection:
        return Connection.connect(
            **self._settings, autocommit=True, prepare_threshold=None, cursor_factory=RawCursor[tuple[str, int, str]]
        )


def build_fenced_error(lease: Lease) -> Fenced:
    """Build the error for a lease that is no longer valid: another process has the session, or it was deleted."""
    return Fenced(f"session {lease.session_id!r} has changed hands since this driver got it: stop, and open it again")
