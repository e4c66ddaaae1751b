"""Registry of the schedules that were added to a store, shared by all processes that run the store's schedules."""

from typing import Any, Final

import msgspec

from perdure.core.clock_and_ids import Clock
from perdure.core.error import SessionBusy
from perdure.core.event import Custom, Entry
from perdure.core.store import Lease, Log, Store, finish_before_cancel
from perdure.core.thread_safe_msgspec import convert

from .schedule import Schedule
from .schedule_journal import REGISTRY_SESSION, has_session_been_deleted
from .signed_records import SessionSigner

ADDED_EVENT: Final = "perdure:schedule_added"
REMOVED_EVENT: Final = "perdure:schedule_removed"
_ATTEMPTS: Final = 50
"""Another process has the lease of the registry for a moment only."""
_ATTEMPT_SECONDS: Final = 0.1


class ScheduleRegistry:
    """The schedules that were added to a store, by name; they are stored in the log of one session."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.known: dict[str, Schedule] = {}
        """The schedules by name, as they were read last."""
        self._head = 0
        self._signer = SessionSigner(store, REGISTRY_SESSION, clock)

    async def load(self) -> dict[str, Schedule]:
        """Return the schedules that were added and not removed."""
        entries = await self._store.read(REGISTRY_SESSION, after=self._head)
        if not entries and await has_session_been_deleted(self._store, REGISTRY_SESSION, self._head):
            self._head, self.known = 0, {}
            entries = await self._store.read(REGISTRY_SESSION)
        for entry in entries:
            self._head = entry.seq
            opened = self._signer.open_entry(entry, refuse_foreign=False)
            if opened is not None:
                self._apply(opened)
        return dict(self.known)

    async def add(self, schedule: Schedule) -> None:
        """Store a schedule, in place of an older one of its name."""
        await self._append(Custom(ADDED_EVENT, msgspec.to_builtins(schedule)))

    async def remove(self, name: str) -> bool:
        """Remove a schedule; return False if there is none of that name."""
        if name not in await self.load():
            return False
        await self._append(Custom(REMOVED_EVENT, name))
        return True

    def _apply(self, entry: Entry) -> None:
        event = entry.event
        if not isinstance(event, Custom):
            return
        if event.name == REMOVED_EVENT:
            self.known.pop(str(event.data), None)
        elif event.name == ADDED_EVENT and (schedule := _decode_schedule(event.data)) is not None:
            self.known[schedule.name] = schedule

    async def _acquire(self) -> Lease:
        """Take the lease of the registry, once the process that has it is done."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._store.acquire(REGISTRY_SESSION)
            except SessionBusy:
                await self._clock.sleep(_ATTEMPT_SECONDS)
        return await self._store.acquire(REGISTRY_SESSION)

    async def _append(self, event: Custom) -> None:
        lease = await self._acquire()
        try:
            await self.load()
            log = Log(self._store, lease, self._head, self._clock)
            await log.append([self._signer.sign_event(event, log.head + 1)], sync=True, on_stored=lambda _: None)
        finally:
            await finish_before_cancel(lambda: self._store.release(lease))


def _decode_schedule(data: Any) -> Schedule | None:
    """Return a stored schedule; `None` for one that a newer version has written, or whose time zone is not there."""
    try:
        return convert(data, Schedule)
    except (msgspec.ValidationError, ValueError):
        return None
