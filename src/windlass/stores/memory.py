"""Logs in memory: for tests, and for sessions that may go with the process. Above: `open_store`. Below: nothing.

Entries are kept as they are. It may be used from several threads and event loops.
"""

import threading
from collections.abc import Sequence

from windlass.core.clock import SYSTEM_CLOCK, Clock
from windlass.core.error import Conflict, Fenced, SessionBusy
from windlass.core.event import Entry
from windlass.core.store import Lease, SessionInfo

from .listing import check_count, check_page, check_session_id, title_of


class _Session:
    __slots__ = ("created_at", "driven", "entries", "fence", "title")

    def __init__(self, now: float) -> None:
        self.entries: list[Entry] = []
        self.fence = 0
        self.driven = False
        self.created_at = now
        self.title = ""

    @property
    def updated_at(self) -> float:
        return self.entries[-1].at if self.entries else self.created_at


class MemoryStore:
    """Keeps sessions until the process ends. A `Store`, and `Immediate`."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._fence = 0

    async def acquire(self, session_id: str) -> Lease:
        """The lease of a session, which is made if it is new. Raises `SessionBusy` while another one is out."""
        check_session_id(session_id)
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                session = self._sessions[session_id] = _Session(self._clock.now())
            elif session.driven:
                raise SessionBusy(_busy(session_id))
            self._fence += 1  # never the same twice, so that a lease of a deleted session cannot fit a new one
            session.fence = self._fence
            session.driven = True
            return Lease(session_id, session.fence)

    async def release(self, lease: Lease) -> None:
        """Give the lease back; one that was lost already is not an error."""
        with self._lock:
            session = self._sessions.get(lease.session_id)
            if session is not None and session.fence == lease.fence:
                session.driven = False

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Add entries, numbered from the log's end, all or none."""
        self.append_now(lease, entries, sync=sync)

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:  # noqa: ARG002 - memory has no disk
        """As `append`; it never has to wait."""
        # No lock: the lease sees to it that one driver appends, and each step below is atomic by itself.
        session = self._sessions.get(lease.session_id)
        if session is None or session.fence != lease.fence:
            raise Fenced(_fenced(lease))
        log = session.entries
        head = len(log)
        for entry in entries:
            head += 1
            if entry.seq != head:
                return _repeated(session, lease, entries)
        log.extend(entries)
        if not session.title:
            session.title = title_of(entries)
        return True

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """The entries numbered above `after`, in order; none for a session that is not there."""
        check_session_id(session_id)
        check_count("after", after)
        with self._lock:
            session = self._sessions.get(session_id)
            return session.entries[after:] if session else []

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Sessions whose id begins with `prefix`, the most recently used first."""
        check_page(prefix, limit, offset)
        with self._lock:
            found = [
                SessionInfo(session_id, len(session.entries), session.created_at, session.updated_at, session.title)
                for session_id, session in reversed(self._sessions.items())
                if session.entries and session_id.startswith(prefix)
            ]
        found.sort(key=lambda info: info.updated_at, reverse=True)
        return found[offset : offset + limit]

    async def delete(self, session_id: str) -> None:
        """Forget a session; one that is not there is not an error. Raises `SessionBusy` while it is being driven."""
        check_session_id(session_id)
        with self._lock:
            session = self._sessions.get(session_id)
            if session is not None and session.driven:
                raise SessionBusy(_busy(session_id))
            self._sessions.pop(session_id, None)

    async def aclose(self) -> None:
        """There is nothing to let go of: the sessions stay until the store itself goes."""


def _repeated(session: _Session, lease: Lease, entries: Sequence[Entry]) -> bool:
    """Nothing to do when the log holds these very entries at these numbers; else it has grown by others."""
    first = entries[0].seq
    there = session.entries[first - 1 : first - 1 + len(entries)] if first > 0 else []
    same = [(entry.seq, entry.id) for entry in there] == [(entry.seq, entry.id) for entry in entries]
    if same and all(entry.id for entry in entries):  # without names nobody can tell whether they are the same
        return True
    raise Conflict(
        f"session {lease.session_id!r} ends at entry {len(session.entries)}, and entries from {first} on were to be "
        "added: read it again, and go on from its end"
    )


def _busy(session_id: str) -> str:
    return f"session {session_id!r} is already being driven through this store: end that run, or open another session"


def _fenced(lease: Lease) -> str:
    return f"session {lease.session_id!r} has changed hands since this driver got it: stop, and open it again"
