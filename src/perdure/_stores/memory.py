"""`MemoryStore`: sessions in memory, for tests and for sessions that need not outlive the process.

Entries are not encoded, and forks share the same objects. The store may be used from several threads and event loops.
"""

import threading
from collections.abc import Sequence

from perdure._core.log.status import NO_RUN, LastRunProgress, find_last_run_progress
from perdure._core.log.store import InterruptedSession, Lease, Post, SessionInfo
from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._core.values.error import Conflict, Fenced, SessionBusy, SessionExists, SessionNotFound
from perdure._core.values.event import Entry

from .checks import check_count, check_fork, check_page, check_post, check_session_id
from .texts import find_given_title, find_message_title

_PAIR = 2
"""Number of entries in most appends of a run, which are checked without a loop."""


class StoredSessionState:
    """The stored state of a session, for stores built on `MemoryStore`: its entries, its posts and its identity."""

    __slots__ = ("at", "created_at", "entries", "fence", "parent", "posts")

    def __init__(self, entries: list[Entry], posts: dict[str, Post], fence: int, created_at: float) -> None:
        self.entries = entries
        self.posts = posts
        self.fence = fence
        self.created_at = created_at
        self.parent = ""
        self.at = 0


class _Session:
    __slots__ = (
        "_beginning",
        "_last_run",
        "_name",
        "_titled",
        "at",
        "created_at",
        "driven",
        "entries",
        "fence",
        "parent",
        "posts",
        "seen_for_run",
    )

    def __init__(self, now: float) -> None:
        self.entries: list[Entry] = []
        self.posts: dict[str, Post] = {}
        """By id: posts that wait, and some that the log has taken already."""
        self.fence = 0
        self.driven = False
        self.created_at = now
        self.parent = ""
        self.at = 0
        self.seen_for_run = 0
        """The number of entries that were searched for the progress of the last run, when it was asked for."""
        self._last_run = NO_RUN
        self.reset_title()

    def copy_state(self) -> StoredSessionState:
        """Return a copy of the stored state of the session."""
        state = StoredSessionState(list(self.entries), dict(self.posts), self.fence, self.created_at)
        state.parent, state.at = self.parent, self.at
        return state

    def restore_state(self, state: StoredSessionState) -> None:
        """Replace the stored state of the session, and keep its lease, if there is one."""
        self.entries, self.posts = list(state.entries), dict(state.posts)
        self.fence, self.created_at = state.fence, state.created_at
        self.parent, self.at = state.parent, state.at
        self.seen_for_run, self._last_run = state.at, NO_RUN  # a run that a fork was cut from is the parent's
        self.reset_title()

    def drop_taken_posts(self) -> list[Post]:
        """Return the posts that no log entry has consumed, and drop the others."""
        if self.posts:
            for entry in self.entries:
                self.posts.pop(entry.id, None)
        return list(self.posts.values())

    def reset_title(self) -> None:
        """Reset the cached title, so that it is searched for again."""
        self._titled = 0
        """The number of entries that were searched for a title. Done when it is read, because appends are far more
        frequent.
        """
        self._beginning = ""
        self._name = ""

    def find_title(self) -> str:
        """Return the title: the one that was set, or else the beginning of the first user message."""
        if fresh := self.entries[self._titled :]:
            self._titled += len(fresh)
            self._beginning = self._beginning or find_message_title(fresh)
            self._name = find_given_title(fresh) or self._name
        return self._name or self._beginning

    def find_last_run_progress(self) -> LastRunProgress:
        """Return the progress of the last run that was begun in this session."""
        if fresh := self.entries[self.seen_for_run :]:
            self.seen_for_run += len(fresh)
            self._last_run = find_last_run_progress(fresh) or self._last_run
        return self._last_run

    def build_interrupted(self, session_id: str, *, include_posts: bool, now: float) -> InterruptedSession | None:
        """Return the session as an interrupted one; `None` if there is nothing to continue, or a process runs it."""
        if self.driven:
            return None
        run, posts = self.find_last_run_progress(), self.drop_taken_posts()
        is_due = run.due_at is not None and run.due_at <= now
        if not (run.progress == "cut_off" or is_due or (posts and (include_posts or run.progress == "waiting"))):
            return None
        updated_at = self.entries[-1].at if self.entries else posts[0].at
        return InterruptedSession(session_id, run.progress, len(self.entries), updated_at, len(posts), run.due_at)

    def build_info(self, session_id: str) -> SessionInfo:
        """Return title, times and entry count of this session, which has at least one entry."""
        last = self.entries[-1]
        return SessionInfo(
            session_id, len(self.entries), self.created_at, last.at, self.find_title(), self.parent, self.at
        )


class MemoryStore:
    """A store that keeps sessions in memory until the process ends. It cannot be searched.

    A `Store`, and `NonBlockingAppendStore`.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._fence = 0
        """The highest fence of any deleted session: no old lease may be valid for one that is created again."""

    @property
    def is_process_local(self) -> bool:
        """True if no other process can write to it; a store that is built on this one may be shared."""
        return type(self) is MemoryStore

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        """Acquire the lease of a session (the exclusive right to append to its log); create the session if it is new.
        Raises `SessionBusy` if there is a lease already.

        With `take_over`, that other lease is invalid from then on.
        """
        check_session_id(session_id)
        with self._lock:
            session = self._get_or_create_session(session_id)
            if session.driven and not take_over:
                raise SessionBusy(_busy_message(session_id))
            session.fence += 1
            session.driven = True
            return Lease(session_id, session.fence)

    async def release(self, lease: Lease) -> None:
        """Release a lease; one that was lost already is not an error."""
        with self._lock:
            session = self._sessions.get(lease.session_id)
            if session is not None and session.fence == lease.fence:
                session.driven = False

    async def holds(self, lease: Lease) -> bool:
        """Return True if the lease is still valid: neither released nor taken over."""
        with self._lock:
            session = self._sessions.get(lease.session_id)
            return session is not None and session.driven and session.fence == lease.fence

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        """Append entries to a session's log, all or none; their numbers must follow its last entry."""
        self.append_now(lease, entries, sync=sync)

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:  # noqa: ARG002 - memory has no disk
        """Append entries without waiting, which is always possible here."""
        lock = self._lock
        lock.acquire()  # `with` would take three times as long
        try:
            session = self._sessions.get(lease.session_id)
            if session is None or session.fence != lease.fence:
                raise _fenced(lease)
            log = session.entries
            head, count = len(log), len(entries)
            if count == 1 and entries[0].seq == head + 1:
                log.append(entries[0])
                return True
            if count == _PAIR and entries[0].seq == head + 1 and entries[1].seq == head + _PAIR:
                log += entries  # nearly always
                return True
            for entry in entries:
                head += 1
                if entry.seq != head:
                    return _check_repeated(session, lease, entries)
            log.extend(entries)
            return True
        finally:
            lock.release()

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        """Return the entries numbered above `after`, in order; an empty list if there is no such session."""
        check_session_id(session_id)
        check_count("after", after)
        with self._lock:
            session = self._sessions.get(session_id)
            return session.entries[after:] if session else []

    async def post(self, session_id: str, post: Post) -> bool:
        """Store a post (a message to a session) until the process that runs the session takes it. Return False if a
        post with this id was stored before.
        """
        check_session_id(session_id)
        check_post(post)
        with self._lock:
            session = self._get_or_create_session(session_id)
            if post.id in session.posts or any(entry.id == post.id for entry in session.entries):
                return False
            session.posts[post.id] = post
            return True

    async def posts(self, session_id: str) -> list[Post]:
        """Return the posts (messages to a session) that the process running it has not taken yet, oldest first."""
        check_session_id(session_id)
        with self._lock:
            session = self._sessions.get(session_id)
            return session.drop_taken_posts() if session else []

    async def list_interrupted(
        self, *, prefix: str = "", include_posts: bool = False, now: float | None = None
    ) -> list[InterruptedSession]:
        """Return the sessions whose last run can continue and that are not driven, the longest idle first."""
        check_session_id(prefix, what="a prefix")
        at = self._clock.now() if now is None else now
        with self._lock:
            found = [
                each
                for session_id, session in self._sessions.items()
                if session_id.startswith(prefix)
                and (each := session.build_interrupted(session_id, include_posts=include_posts, now=at)) is not None
            ]
        return sorted(found, key=lambda each: (each.updated_at, each.session_id))

    async def list(self, *, prefix: str = "", limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """Return a page of non-empty sessions whose id begins with `prefix`, the most recently used first."""
        check_page(prefix, limit, offset)
        with self._lock:
            found = [
                session.build_info(session_id)
                for session_id, session in reversed(self._sessions.items())
                if session.entries and session_id.startswith(prefix)
            ]
        found.sort(key=lambda info: info.updated_at, reverse=True)
        return found[offset : offset + limit]

    async def info(self, session_id: str) -> SessionInfo | None:
        """Return title, times and entry count of a session; `None` if it does not exist or has no entries."""
        check_session_id(session_id)
        with self._lock:
            session = self._sessions.get(session_id)
            return session.build_info(session_id) if session and session.entries else None

    async def delete(self, session_id: str) -> None:
        """Delete a session; a missing one is not an error. Raises `SessionBusy` while a process has its lease."""
        check_session_id(session_id)
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                return
            if session.driven:
                raise SessionBusy(_busy_message(session_id))
            del self._sessions[session_id]
            self._fence = max(self._fence, session.fence)
            for fork in self._sessions.values():
                if fork.parent == session_id:
                    fork.parent, fork.at = "", 0

    async def fork(self, session_id: str, new_id: str, *, at: int | None = None) -> None:
        """Create a session that starts with the first `at` entries of another (by default all of them)."""
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
            fork = self._get_or_create_session(new_id)
            fork.created_at = self._clock.now()
            fork.entries = entries[:at]
            fork.parent, fork.at = session_id, len(fork.entries)
            fork.seen_for_run = fork.at  # the run that it was cut from is the parent's

    async def redact(self, lease: Lease, entry: Entry) -> None:
        """Replace the entry that has the same number as `entry`, also in all forks that share it."""
        with self._lock:
            log = self._session_of_lease(lease).entries
            if not 0 < entry.seq <= len(log):
                raise Conflict(
                    f"session {lease.session_id!r} has {len(log)} entries and none numbered {entry.seq!r}: read it "
                    "again, and redact one that it has"
                )
            place, old = entry.seq - 1, log[entry.seq - 1]
            for session in self._sessions.values():
                if len(session.entries) > place and session.entries[place] is old:
                    session.drop_taken_posts()  # the new entry need not have the name of the post that the old one took
                    session.entries[place] = entry
                    session.reset_title()

    async def aclose(self) -> None:
        """Do nothing: the sessions exist as long as the store object."""

    # -- called with the lock ------------------------------------------------------------------------------------------

    def _get_or_create_session(self, session_id: str) -> _Session:
        """Return the session with this id, created if new."""
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = _Session(self._clock.now())
            session.fence = self._fence + 1
        return session

    def _session_of_lease(self, lease: Lease) -> _Session:
        """Return the session of a lease. Raises `Fenced` if the lease is no longer valid."""
        session = self._sessions.get(lease.session_id)
        if session is None or session.fence != lease.fence:
            raise _fenced(lease)
        return session


def _fenced(lease: Lease) -> Fenced:
    return Fenced(f"session {lease.session_id!r} has changed hands since this driver got it: stop, and open it again")


def _check_repeated(session: _Session, lease: Lease, entries: Sequence[Entry]) -> bool:
    """Return True if the log already has these entries at these numbers, by their ids; raise `Conflict` otherwise."""
    first = entries[0].seq
    there = session.entries[first - 1 : first - 1 + len(entries)] if first > 0 else []
    same = [(entry.seq, entry.id) for entry in there] == [(entry.seq, entry.id) for entry in entries]
    if same and all(entry.id for entry in entries):  # without ids they cannot be compared
        return True
    raise Conflict(
        f"session {lease.session_id!r} ends at entry {len(session.entries)}, and entries from {first} on were to be "
        "added: read it again, and go on from its end"
    )


def _busy_message(session_id: str) -> str:
    return f"session {session_id!r} is already being driven through this store: end that run, or open another session"
