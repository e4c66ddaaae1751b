"""The journal of a schedule: a session of the store whose log records every firing of the schedule.

The process that runs a firing has the lease of the journal until the run is over. So no two processes fire a schedule,
a run never overlaps the one before, and when a process dies its lease ends with it, and another one continues the run.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from perdure._core.log.redaction import RelatedRunsRedaction
from perdure._core.log.reserved_ids import SCHEDULES_SESSION
from perdure._core.log.store import Lease, Log, Post, Store, finish_before_cancel, run_to_completion
from perdure._core.values.clock import Clock
from perdure._core.values.error import SessionBusy, StoreError
from perdure._core.values.event import Entry

from .firing import END_KINDS, JournalState, ScheduleJournalRecord, build_record_event, read_record
from .signing import SessionSigner

REGISTRY_SESSION: Final = SCHEDULES_SESSION
"""The session whose log has the schedules that were added to a store."""
CANCEL_POST: Final = "schedule_cancel"
"""Kind of the posts that cancel a firing while it has no run: before a retry, or while its session is in use."""

TRIGGER_POST: Final = "schedule_trigger"
"""Kind of the posts that fire a schedule."""
_POST_KINDS: Final = frozenset({TRIGGER_POST, CANCEL_POST})


def get_journal_session_id(schedule: str) -> str:
    """Return the id of the session that is the journal of a schedule."""
    return f"{REGISTRY_SESSION}/{schedule}"


async def has_session_been_deleted(store: Store, session_id: str, head: int) -> bool:
    """Return True if a session was deleted, and perhaps started anew, since it was read up to entry number `head`."""
    if head == 0:
        return False
    info = await store.info(session_id)
    return info is None or info.entries < head


class ScheduleJournal:
    """Reads the journal of one schedule, and acquires the right to add records to it."""

    def __init__(self, store: Store, name: str, clock: Clock, redaction: RelatedRunsRedaction) -> None:
        self.redaction = redaction
        """Removes secrets of the agent from the records."""
        self.session_id = get_journal_session_id(name)
        self.state = JournalState()
        self.signer = SessionSigner(store, self.session_id, clock)
        """Signs its records and posts, and knows which ones others have put there."""
        self._store = store
        self._clock = clock
        self._head = 0

    async def refresh(self) -> JournalState:
        """Read the records that were added, and return the state."""
        entries = await self._store.read(self.session_id, after=self._head)
        if not entries and await has_session_been_deleted(self._store, self.session_id, self._head):
            self._head, self.state = 0, JournalState()
            entries = await self._store.read(self.session_id)
        self._apply(entries)
        return self.state

    async def list_posts(self) -> list[Post]:
        """Return the triggers that were not fired yet, and the requests to cancel a firing that is not over."""
        return self.signer.list_verified_posts(await self._store.posts(self.session_id), _POST_KINDS)

    async def request_cancel(self, firing_id: str) -> None:
        """Ask the process that has a firing to end it before its next run."""
        await self.post(Post(_name_end(firing_id), CANCEL_POST, None, self._clock.now()))

    async def post(self, post: Post) -> None:
        """Store a trigger, or a request to cancel. Raises `StoreError` if another program has taken its id."""
        if await self._store.post(self.session_id, self.signer.sign_post(post)):
            return
        pending = [each for each in await self._store.posts(self.session_id) if each.id == post.id]
        if pending and not self.signer.list_verified_posts(pending, _POST_KINDS):
            raise StoreError(
                f"post {post.id!r} of session {self.session_id!r} is there already, and this runtime has not signed "
                "it: give the trigger another id"
            )

    async def is_cancel_requested(self, firing_id: str) -> bool:
        """Return True if a firing has to end before its next run."""
        end = _name_end(firing_id)
        return any(post.kind == CANCEL_POST and post.id == end for post in await self.list_posts())

    async def claim(self) -> "ScheduleClaim | None":
        """Take the lease of the journal, and read it; `None` while another process has it, which runs a firing."""
        try:
            lease, was_cancelled = await run_to_completion(self._store.acquire(self.session_id))
        except SessionBusy:
            return None
        claim = ScheduleClaim(self, lease, self._store, self._clock)
        if was_cancelled:
            await claim.release()
            raise asyncio.CancelledError
        try:
            await claim.open()
        except BaseException:
            await claim.release()
            raise
        return claim

    def _apply(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.seq > self._head:
                if (opened := self.signer.open_entry(entry, refuse_foreign=True)) is not None:
                    self.state.apply(opened)
                self._head = entry.seq

    def apply_stored(self, entries: Sequence[Entry]) -> None:
        """Apply entries that this process has stored."""
        self._apply(entries)

    @property
    def head(self) -> int:
        """Number of the last entry that was read."""
        return self._head


def _name_end(firing_id: str) -> str:
    """Return the id of the entry that ends a firing, which is also that of a request to cancel it."""
    return f"end-{firing_id}"


def _has_no_id(record: ScheduleJournalRecord) -> bool:
    return record.kind != "fired" and record.kind not in END_KINDS


class ScheduleClaim:
    """The claim of one process on a schedule: while it has the journal's lease, no other process can run it."""

    def __init__(self, journal: ScheduleJournal, lease: Lease, store: Store, clock: Clock) -> None:
        self.journal = journal
        self._lease = lease
        self._store = store
        self._clock = clock
        self._log: Log | None = None
        self._append_lock = asyncio.Lock()

    @property
    def state(self) -> JournalState:
        """State of the schedule."""
        return self.journal.state

    async def open(self) -> None:
        """Read what other processes have added before the claim."""
        await self.journal.refresh()
        self._log = Log(self._store, self._lease, self.journal.head, self._clock)

    async def append(self, records: Sequence[ScheduleJournalRecord]) -> list[ScheduleJournalRecord]:
        """Store records, all or none, and return them with their times. They survive a loss of power.

        The entry of a firing has the firing's id: a trigger is consumed by it, and no id is fired twice. That of
        its end consumes a request to cancel it.
        """
        assert self._log is not None  # noqa: S101 - a claim is opened before it is handed out
        ordered = sorted(records, key=_has_no_id)  # entries with a given id are the first ones
        ids = [each.firing_id for each in ordered if each.kind == "fired"]
        ids += [_name_end(each.firing_id) for each in ordered if each.kind in END_KINDS]
        stored: list[Entry] = []

        def apply(entries: Sequence[Entry]) -> None:
            stored.extend(entries)
            self.journal.apply_stored(entries)

        redacted = [self.journal.redaction.redact_event(build_record_event(each)) for each in ordered]
        async with self._append_lock:  # the number of an entry is signed
            first = self._log.head + 1
            events = [self.journal.signer.sign_event(each, seq) for seq, each in enumerate(redacted, first)]
            if await self._log.append(events, sync=True, on_stored=apply, entry_ids=ids):
                raise asyncio.CancelledError
        opened = [self.journal.signer.open_entry(each, refuse_foreign=True) for each in stored]
        found = [record for each in opened if each is not None and (record := read_record(each)) is not None]
        return sorted(found, key=lambda each: each.kind == "fired")  # which is what happens last

    async def release(self) -> None:
        """Give up the claim, even if the caller is cancelled meanwhile."""
        await finish_before_cancel(lambda: self._store.release(self._lease))
