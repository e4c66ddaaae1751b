"""Logs in memory: for tests, and for sessions that may go with the process. Above: `open_store`. Below: nothing.

Entries are kept as they are, and forks hold the same ones. It may be used from several threads and event loops.
"""

import threading
from collections.abc import Sequence

from perdure.core.clock import SYSTEM_CLOCK, Clock
from perdure.core.error import Conflict, Fenced, SessionBusy, SessionExists, SessionNotFound
from perdure.core.event import Entry
from perdure.core.store import Lease, Post, SessionInfo

from .listing import check_count, check_page, check_session_id, renamed_to, title_of
from .refusal import check_fork, check_post


class _Session:
    __slots__ = ("_beginning", "_name", "_titled", "at", "created_at", "driven", "entries", "fence", "parent", "posts")

    def __init__(self, now: float) -> None:
        self.entries: list[Entry] = []
        self.posts: dict[str, Post] = {}
        """By their ids: those that wait, and some that the log has taken already."""
        self.fence = 0
        self.driven = False
        self.created_at = now
        self.parent = ""
        self.at = 0
        self.forget_title()

    def waiting(self) -> list[Post]:
        """The posts that the log has not taken; the others are forgotten."""
        if self.posts:
            for entry in self.entries:
                self.posts.pop(entry.id, None)
        return list(self.posts.values())

    def forget_title(self) -> None:
        """Look for it again when it is asked for."""
        self._titled = 0
        """How many entries were looked at for a title: appending does not, because it is done far more often."""
        self._beginning = ""
        self._name = ""

    def title(self) -> str:
        """What it was called, or else the beginning of the first message."""
        if fresh := self.entries[self._titled :]:
            self._titled += len(fresh)
            self._beginning = self._beginning or title_of(fresh)
            self._name = renamed_to(fresh) or self._name
        return self._name or self._beginning

    def info(self, session_id: str) -> SessionInfo:
        """Its line in the list; it holds something."""
        last = self.entries[-1]
        return SessionInfo(session_id, len(self.entries), self.created_at, last.at, self.title(), self.parent, self.at)


class MemoryStore:
    """Keeps sessions until the process ends. A `Store`, and `Immediate`. It cannot be searched."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._fence = 0
        """The highest of any deleted session: no forgotten lease may ever fit one that is made anew."""

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        """The lease of a session, which is made if it is new. Raises `SessionBusy` while another one is out.

        With `take_over`, that other one is worth nothing from then on.
        """
        check_session_id(session_id)
        with self._lock:
            session = self._made(session_id)
            if session.driven and not take_over:
                raise SessionBusy(_busy(session_id))
            session.fence += 1
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
        with self._lock:
            session = self._driven(lease)
            log = session.entries
            head = len(log)
            for entry in entries:
                head += 1
                if entry.seq != head:
                    return _repeated(session, lease, entries)
            log.extend(entries)
            return True

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """The entries numbered above `after`, in order; none for a session that is not there."""
        check_session_id(session_id)
        check_count("after", after)
        with self._lock:
            session = self._sessions.get(session_id)
            return session.entries[after:] if session else []

    async def post(self, session_id: str, post: Post) -> bool:
        """Keep a post until the session's driver takes it; `False` when one of this id was there already."""
        check_session_id(session_id)
        check_post(post)
        with self._lock:
            session = self._made(session_id)
            if post.id in session.posts or any(entry.id == post.id for entry in session.entries):
                return False
            session.posts[post.id] = post
            return True

    async def posts(self, session_id: str) -> list[Post]:
        """The posts that nobody has taken, in the order in which they came."""
        check_session_id(session_id)
        with self._lock:
            session = self._sessions.get(session_id)
            return session.waiting() if session else []

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Sessions whose id begins with `prefix` and that hold something, the most recently used first."""
        check_page(prefix, limit, offset)
        with self._lock:
            found = [
                session.info(session_id)
                for session_id, session in reversed(self._sessions.items())
                if session.entries and session_id.startswith(prefix)
            ]
        found.sort(key=lambda info: info.updated_at, reverse=True)
        return found[offset : offset + limit]

    async def info(self, session_id: str) -> SessionInfo | None:
        """The line of one session in the list; `None` when there is none, or it holds nothing."""
        check_session_id(session_id)
        with self._lock:
            session = self._sessions.get(session_id)
            return session.info(session_id) if session and session.entries else None

    async def delete(self, session_id: str) -> None:
        """Forget a session; one that is not there is not an error. Raises `SessionBusy` while it is being driven."""
        check_session_id(session_id)
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                return
            if session.driven:
                raise SessionBusy(_busy(session_id))
            del self._sessions[session_id]
            self._fence = max(self._fence, session.fence)
            for fork in self._sessions.values():
                if fork.parent == session_id:
                    fork.parent, fork.at = "", 0

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        """Make a session that begins with the first `at` entries of another (all of them, when it is not said)."""
        check_session_id(session_id)
        check_session_id(new_id)
        with self._lock:
            entries = self._sessions[session_id].entries if session_id in self._sessions else []
            there = self._sessions.get(new_id)
            if not entries:
                raise SessionNotFound(f"there is no session {session_id!r} to fork: list() shows which there are")
            if there is not None and (there.entries or there.driven):
                raise SessionExists(f"there is a session {new_id!r} already: fork {session_id!r} to another id")
            check_fork(session_id, at, len(entries))
            fork = self._made(new_id)
            fork.created_at = self._clock.now()
            fork.entries = entries[:at]
            fork.parent, fork.at = session_id, len(fork.entries)

    async def redact(self, lease: Lease, entry: Entry) -> None:
        """Put `entry` in the place of the one with its number, here and in all sessions that share that one."""
        with self._lock:
            log = self._driven(lease).entries
            if not 0 < entry.seq <= len(log):
                raise Conflict(
                    f"session {lease.session_id!r} has {len(log)} entries and none numbered {entry.seq!r}: read it "
                    "again, and redact one that it has"
                )
            place, old = entry.seq - 1, log[entry.seq - 1]
            for session in self._sessions.values():
                if len(session.entries) > place and session.entries[place] is old:
                    session.waiting()  # the new entry need not have the name of the post that the old one took
                    session.entries[place] = entry
                    session.forget_title()

    async def aclose(self) -> None:
        """There is nothing to let go of: the sessions stay until the store itself goes."""

    # -- what is done while the lock is held ---------------------------------------------------------------------------

    def _made(self, session_id: str) -> _Session:
        """The session of this id, which is made if it is new."""
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = _Session(self._clock.now())
            session.fence = self._fence + 1
        return session

    def _driven(self, lease: Lease) -> _Session:
        """The session of a lease that is still good."""
        session = self._sessions.get(lease.session_id)
        if session is None or session.fence != lease.fence:
            raise Fenced(
                f"session {lease.session_id!r} has changed hands since this driver got it: stop, and open it again"
            )
        return session


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
