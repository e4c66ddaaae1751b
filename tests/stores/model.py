"""What a store promises, as plain Python: dicts and lists, and no disk. For test_state_machine.py.

Forks share `Cell`s with their parents, so a redaction is seen by whoever shares what was redacted.
"""

from collections.abc import Sequence

from perdure import ConfigError, PerdureError, SessionBusy, SessionExists, SessionNotFound
from perdure.events import Entry, MessageAdded, SessionConfigured
from perdure.stores import Conflict, Fenced, Lease, Post, UnsupportedByStore

Errors = set[type[PerdureError]]
"""The ways in which something may be refused; empty when it must succeed."""


class Cell:
    """An entry, which may be replaced."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry


class Log:
    """One session."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self.posts: dict[str, Post] = {}
        """Those that wait, in order."""
        self.lease: Lease | None = None
        """The last that was given."""
        self.is_driven = False
        """Whether it is out."""
        self.parent = ""
        self.at = 0

    @property
    def entries(self) -> list[Entry]:
        return [cell.entry for cell in self.cells]

    @property
    def ids(self) -> set[str]:
        return {cell.entry.id for cell in self.cells}

    @property
    def title(self) -> str:
        """The last title that it was given, or else the first message."""
        events = [cell.entry.event for cell in self.cells]
        given = [event.changes["title"] for event in events if isinstance(event, SessionConfigured)]
        said = [event.message.text for event in events if isinstance(event, MessageAdded)]
        return (given[-1:] or said[:1] or [""])[0]

    def waiting(self) -> list[Post]:
        """A post whose id is that of an entry has been taken."""
        return [post for post in self.posts.values() if post.id not in self.ids]


class Model:
    """A store. `refusals_of_*` say how something may be refused, the others do it."""

    def __init__(self, takes_over: bool, is_lax: bool, keeps_fences: bool, redacts_anywhere: bool) -> None:
        self.logs: dict[str, Log] = {}
        self.fences: dict[str, int] = {}
        """The highest of each id."""
        self._takes_over = takes_over
        self._is_lax = is_lax
        self._keeps_fences = keeps_fences
        self._redacts_anywhere = redacts_anywhere

    def log(self, session_id: str) -> Log:
        return self.logs.get(session_id) or Log()

    # -- leases --------------------------------------------------------------------------------------------------------

    def refusals_of_acquire(self, session_id: str, *, take_over: bool) -> Errors:
        if not self.log(session_id).is_driven:
            return set()
        if not take_over:
            return {SessionBusy}
        return set() if self._takes_over else {UnsupportedByStore}

    def acquire(self, lease: Lease) -> None:
        session_id = lease.session_id
        assert lease.fence > self.fences.get(session_id, 0), "a fence went back"
        log = self.logs.setdefault(session_id, Log())
        log.lease, log.is_driven = lease, True
        self.fences[session_id] = lease.fence

    def release(self, lease: Lease) -> None:
        log = self.log(lease.session_id)
        if log.lease == lease:
            log.is_driven = False

    def is_good(self, lease: Lease) -> bool:
        """Whether its session can be driven with it."""
        log = self.log(lease.session_id)
        return log.lease == lease and log.is_driven

    def _refusals_of_lease(self, lease: Lease) -> Errors:
        return set() if self.is_good(lease) else {Fenced}

    def may_be_lax(self, lease: Lease) -> bool:
        """Whether this lease was given back and not given out since, in a store that may still take it for good."""
        log = self.log(lease.session_id)
        return self._is_lax and log.lease == lease and not log.is_driven

    # -- entries -------------------------------------------------------------------------------------------------------

    def refusals_of_append(self, lease: Lease, entries: Sequence[Entry]) -> Errors:
        refusals = self._refusals_of_lease(lease)
        if not self._follows(lease.session_id, entries) and not self._is_repeated(lease.session_id, entries):
            refusals |= {Conflict}
        return refusals

    def append(self, lease: Lease, entries: Sequence[Entry]) -> None:
        if not self._is_repeated(lease.session_id, entries):
            self.logs[lease.session_id].cells += map(Cell, entries)

    def _follows(self, session_id: str, entries: Sequence[Entry]) -> bool:
        head = len(self.log(session_id).cells)
        return [entry.seq for entry in entries] == list(range(head + 1, head + len(entries) + 1))

    def _is_repeated(self, session_id: str, entries: Sequence[Entry]) -> bool:
        there = {(entry.seq, entry.id) for entry in self.log(session_id).entries}
        places = [(entry.seq, entry.id) for entry in entries]
        return set(places) <= there and places == sorted(places)

    def refusals_of_redact(self, lease: Lease, seq: int) -> Errors:
        refusals = self._refusals_of_lease(lease)
        if not 0 < seq <= len(self.log(lease.session_id).cells):
            refusals |= {Conflict}
        return refusals

    def may_be_held(self, lease: Lease, seq: int) -> bool:
        """Whether this entry is shared with a session that is driven, in a store that need not redact it then."""
        cell = self.logs[lease.session_id].cells[seq - 1]
        others = [log for session_id, log in self.logs.items() if session_id != lease.session_id and log.is_driven]
        return not self._redacts_anywhere and any(cell in log.cells for log in others)

    def redact(self, lease: Lease, entry: Entry) -> None:
        self.logs[lease.session_id].cells[entry.seq - 1].entry = entry

    # -- posts ---------------------------------------------------------------------------------------------------------

    def post(self, session_id: str, post: Post) -> bool:
        log = self.logs.setdefault(session_id, Log())
        is_new = post.id not in log.posts and post.id not in log.ids
        if is_new:
            log.posts[post.id] = post
        return is_new

    # -- sessions ------------------------------------------------------------------------------------------------------

    def refusals_of_fork(self, session_id: str, new_id: str, at: int | None) -> Errors:
        entries = len(self.log(session_id).cells)
        refusals: Errors = set()
        if not entries:
            refusals |= {SessionNotFound}
        if at is not None and not 0 < at <= entries:
            refusals |= {ConfigError}
        if self.log(new_id).cells:
            refusals |= {SessionExists}
        if self.log(new_id).is_driven:
            refusals |= {SessionExists, SessionBusy}
        return refusals

    def fork(self, session_id: str, new_id: str, at: int | None) -> None:
        parent, child = self.logs[session_id], self.logs.setdefault(new_id, Log())
        child.cells = parent.cells[:at]
        child.parent, child.at = session_id, len(child.cells)

    def refusals_of_delete(self, session_id: str) -> Errors:
        return {SessionBusy} if self.log(session_id).is_driven else set()

    def delete(self, session_id: str) -> None:
        self.logs.pop(session_id, None)
        if not self._keeps_fences:
            self.fences.pop(session_id, None)
        for log in self.logs.values():
            if log.parent == session_id:
                log.parent, log.at = "", 0

    def listed(self) -> dict[str, Log]:
        return {session_id: log for session_id, log in self.logs.items() if log.cells}
