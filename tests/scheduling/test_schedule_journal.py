"""The journal of a schedule: whoever claims it has read it, or gets an error and leaves it to others."""

import asyncio

import pytest

from perdure.core.error import StoreError
from perdure.core.event import Entry
from perdure.core.secret_redaction import RelatedRunsRedaction
from perdure.core.store import Lease
from perdure.scheduling.schedule_journal import ScheduleJournal
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock
from tests.doubles import SECONDS, rounds


def open_journal(store: MemoryStore) -> ScheduleJournal:
    return ScheduleJournal(store, "nightly", FakeClock(), RelatedRunsRedaction())


class UnreadableStore(MemoryStore):
    """A store of which nothing can be read for now."""

    is_readable = False

    async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
        if not self.is_readable:
            raise StoreError("the disk is gone")
        return await super().read(session_id, after=after)


class SlowStore(MemoryStore):
    """A store that takes its time to give a lease."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may = asyncio.Event(), asyncio.Event()

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        self.asked.set()
        await self.may.wait()
        return await super().acquire(session_id, take_over=take_over)


async def test_a_claim_that_is_cancelled_while_it_gets_its_lease_leaves_the_journal_to_others():
    store = SlowStore()
    claiming = asyncio.ensure_future(open_journal(store).claim())
    async with asyncio.timeout(SECONDS):
        await store.asked.wait()
        claiming.cancel()
        await rounds()
        store.may.set()
        await asyncio.wait([claiming])
        assert claiming.cancelled()
        claim = await open_journal(store).claim()
    assert claim is not None
    await claim.release()


async def test_a_journal_that_cannot_be_read_is_not_claimed_and_left_to_others():
    store = UnreadableStore()
    with pytest.raises(StoreError, match="the disk is gone"):
        await open_journal(store).claim()
    store.is_readable = True
    claim = await open_journal(store).claim()
    assert claim is not None
    await claim.release()
