"""The leases that a PostgreSQL store has out, and the thread that renews them. Above: `store.py`. Below: psycopg.

A lease lasts for some seconds by the database's clock. Each append renews it, and so does this thread, which no blocked
event loop can stop. A driver that could not renew its lease for two thirds of that time stops by itself, by its own
clock and before anybody can have taken the session over. Should both clocks fail, the fence in the database decides.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Final

import psycopg
from psycopg import Connection, RawCursor

from perdure.core.clock import Clock
from perdure.core.error import Fenced
from perdure.core.store import Lease
from perdure.stores.holder import Holder

from .error import text_of
from .pool import Settings
from .row import Row

# What this thread renews need not survive a crash of the server: a lease may end early, never late.
_RENEW: Final = """
UPDATE perdure.session SET lease_until = now() + make_interval(secs => $5)
FROM unnest($2::text[], $3::bigint[], $4::text[]) AS held(id, fence, holder)
WHERE session.tenant = $1 AND session.id = held.id AND session.fence = held.fence AND session.holder = held.holder
RETURNING session.id, session.fence, set_config('synchronous_commit', 'off', true)"""

_log = logging.getLogger("perdure.stores")


class Grip(Holder, frozen=True):
    """A holder, and which of its leases this is. Two are never the same, not even when the database was set back."""

    token: str


class Held:
    """A lease that is out, and what its driver has stored with it."""

    __slots__ = ("grip", "head", "is_fork", "is_lost", "lease", "renewed_at", "unsynced", "unsynced_bytes")

    def __init__(self, lease: Lease, grip: str, head: int, renewed_at: float, *, is_fork: bool) -> None:
        self.lease = lease
        self.grip = grip
        """Our `Grip`, as it is written into the database."""
        self.head = head
        """The number of the last entry that we know to be stored."""
        self.is_fork = is_fork
        """Whether the session begins with entries of another one."""
        self.renewed_at = renewed_at
        """When the last renewal that succeeded was sent, on our own clock."""
        self.is_lost = False
        """Whether the session may be in other hands. Once lost, a lease stays so."""
        self.unsynced: list[Row] = []
        """What was stored since the last barrier: a server that crashes may lose it."""
        self.unsynced_bytes = 0
        """How much that is."""

    def note_stored(self, rows: Sequence[Row], *, sync: bool, sent_at: float) -> None:
        """These rows are in the database, which has renewed the lease with them."""
        self.renewed_at = max(self.renewed_at, sent_at)
        new = [row for row in rows if row.seq > self.head]
        self.head = max(self.head, rows[-1].seq)
        if sync:
            self.note_synced(sent_at=sent_at)
        else:
            self.unsynced += new
            self.unsynced_bytes += sum(len(row.body) + len(row.words or "") for row in new)

    def note_synced(self, *, sent_at: float) -> None:
        """All that was stored is on the server's disk, and the lease was renewed on the way."""
        self.renewed_at = max(self.renewed_at, sent_at)
        self.unsynced, self.unsynced_bytes = [], 0


class Leases:
    """Those that one store has out."""

    def __init__(self, settings: Settings, tenant: str, seconds: float, clock: Clock) -> None:
        self._settings = settings
        self._tenant = tenant
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[Lease, Held] = {}
        self._end_of_thread: threading.Event | None = None

    def add(self, held: Held) -> None:
        """From now on it is renewed."""
        with self._lock:
            self._held[held.lease] = held
            if self._end_of_thread is None:
                self._end_of_thread = threading.Event()
                work = (self._end_of_thread,)
                threading.Thread(target=self._renew_for_ever, args=work, name="perdure-leases", daemon=True).start()

    def remove(self, lease: Lease) -> Held | None:
        """It is not renewed any more."""
        with self._lock:
            return self._held.pop(lease, None)

    def remove_all(self) -> list[Held]:
        """None of them is renewed any more."""
        with self._lock:
            held, self._held = [*self._held.values()], {}
            if self._end_of_thread is not None:
                self._end_of_thread.set()
                self._end_of_thread = None
        return held

    def checked(self, lease: Lease) -> Held:
        """The lease, with which an append may be tried. Raises `Fenced` when it is lost."""
        held = self._held.get(lease)
        if held is None or held.is_lost:
            raise fenced(lease)
        silence = self._clock.monotonic() - held.renewed_at
        if silence > self._seconds * 2 / 3:
            held.is_lost = True
            raise Fenced(
                f"the lease of session {lease.session_id!r} could not be renewed for {silence:.1f} s, and somebody "
                "else may have taken it: stop, and open it again"
            )
        return held

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _renew_for_ever(self, end: threading.Event) -> None:
        """Until it is told to end, or there is nothing left to renew."""
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

    def _renew(self, connection: Connection | None, held: Sequence[Held]) -> Connection | None:
        """Renew them all at once. Gives the connection for the next time; none if it broke."""
        sent_at = self._clock.monotonic()
        columns = [each.lease.session_id for each in held], [each.lease.fence for each in held], [e.grip for e in held]
        try:
            connection = connection or self._connected()
            rows = connection.execute(_RENEW, (self._tenant, *columns, self._seconds)).fetchall()
        except psycopg.Error as error:
            _log.warning("%d leases could not be renewed, which will be tried again: %s", len(held), text_of(error))
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

    def _connected(self) -> Connection:
        return Connection.connect(
            **self._settings, autocommit=True, prepare_threshold=None, cursor_factory=RawCursor[tuple[str, int, str]]
        )


def fenced(lease: Lease) -> Fenced:
    """Somebody else drives the session, or nobody, or there is no such session any more."""
    return Fenced(f"session {lease.session_id!r} has changed hands since this driver got it: stop, and open it again")
