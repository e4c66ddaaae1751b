"""The journal of a schedule: whoever claims it has read it, or gets an error and leaves it to others."""

import asyncio

import pytest

from perdure import StoreError
from perdure._core.log.redaction import RelatedRunsRedaction
from perdure._core.log.reserved_ids import is_schedule_session
from perdure._work.schedules.journal import (
    ScheduleJournal,
    get_journal_session_id,
    has_session_been_deleted,
)
from perdure.background import ScheduleJournalRecord
from perdure.events import Custom, Entry
from perdure.stores import Lease, MemoryStore, Post
from perdure.testing import FakeClock
from tests.doubles import SECONDS, WaitingStore, crashed, rounds


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


def build_record(kind: str, firing_id: str = "f1") -> ScheduleJournalRecord:
    return ScheduleJournalRecord(kind=kind, schedule="nightly", firing_id=firing_id)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("session_id", "is_internal"),
    [
        *[("schedules", True), ("schedules/x", True), ("a/schedules", True), ("a/schedules/x", True)],
        *[("x", False), ("a/x", False), ("schedules/x/y", False), ("schedules-x", False), ("", False)],
    ],
)
def test_the_sessions_that_store_schedules_are_known_by_their_last_two_parts(session_id: str, is_internal: bool):
    assert is_schedule_session(session_id) is is_internal
    assert get_journal_session_id("x") == "schedules/x"


async def test_a_session_was_deleted_if_it_is_gone_or_shorter_than_it_was_read():
    store = MemoryStore()
    await crashed(store, "s", Custom("a", 1), Custom("b", 2))
    found = [await has_session_been_deleted(store, name, head) for name in ("s", "gone") for head in (0, 1, 2, 3)]
    assert found == [False, False, False, True, False, True, True, True]


async def test_records_are_stored_with_the_ids_of_their_firings_and_returned_with_the_firing_last():
    store = MemoryStore()
    claim = await open_journal(store).claim()
    assert claim is not None
    stored = await claim.append([build_record("missed", "f0"), build_record("finished", "f0"), build_record("fired")])
    assert [each.kind for each in stored] == ["finished", "missed", "fired"]
    entries = await store.read("schedules/nightly")
    assert [each.id for each in entries[:2]] == ["f1", "end-f0"]
    assert [each.event.data["signed"]["kind"] for each in entries if isinstance(each.event, Custom)] == [
        "finished",
        "fired",
        "missed",
    ]
    await claim.release()


async def test_a_firing_is_cancelled_by_a_post_that_its_end_consumes():
    store = MemoryStore()
    journal = open_journal(store)
    await store.post(journal.session_id, Post("end-f2", "schedule_trigger", None, 0.0))
    await journal.request_cancel("f1")
    assert [await journal.is_cancel_requested(each) for each in ("f1", "f2", "f3")] == [True, False, False]
    claim = await journal.claim()
    assert claim is not None
    await claim.append([build_record("fired")])
    assert await journal.is_cancel_requested("f1")
    await claim.append([build_record("cancelled")])
    assert not await journal.is_cancel_requested("f1")
    await claim.release()


async def test_a_claim_that_is_cancelled_while_it_stores_a_record_has_stored_it():
    store = WaitingStore()
    journal = ScheduleJournal(store, "nightly", FakeClock(), RelatedRunsRedaction())
    claim = await journal.claim()
    assert claim is not None
    store.open.clear()
    storing = asyncio.ensure_future(claim.append([build_record("fired")]))
    async with asyncio.timeout(SECONDS):
        await store.waiting.wait()
        storing.cancel()
        await rounds()
        store.open.set()
        await asyncio.wait([storing])
    assert storing.cancelled()
    assert journal.state.open == (await journal.refresh()).open
    assert journal.state.open is not None
    await claim.release()
