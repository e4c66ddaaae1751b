"""The driver's end of a log: numbers, order, cancels, and what happens when it is taken away."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import StoreError
from perdure._core.log.store import (
    CONFIRMED_SECONDS,
    EntryIdSource,
    Log,
    SessionKeyStore,
    cancel_and_await_tasks,
    finish_before_cancel,
    get_process_wide_session_key,
    read_events,
    restart_until_completed,
    run_to_completion,
    wait_despite_cancel,
)
from perdure.engines import SYSTEM_CLOCK
from perdure.events import Custom, Entry, Event
from perdure.stores import Conflict, Fenced, Lease, MemoryStore, NonBlockingAppendStore, SessionPlace, Store
from perdure.testing import FakeClock
from tests.doubles import SECONDS, NotedStore, WaitingStore, rounds, until


async def log_in(store: Store, clock: Any = SYSTEM_CLOCK) -> Log:
    lease = await store.acquire("s")
    return Log(store, lease, 0, clock)


def notes(*names: str) -> list[Event]:
    return [Custom(name) for name in names]


async def names(store: Store) -> list[str]:
    return [entry.event.name for entry in await store.read("s") if isinstance(entry.event, Custom)]


async def append(log: Log, *events: str, sync: bool = False) -> bool:
    return await log.append(notes(*events), sync=sync, on_stored=lambda _: None)


# -- numbers -----------------------------------------------------------------------------------------------------------


async def test_entries_are_numbered_timed_and_named():
    store, clock = NotedStore(), FakeClock(100.0)
    log = await log_in(store, clock)
    first = log.append_now(notes("a"), sync=False)
    second = log.append_now(notes("b", "c"), sync=True)
    assert first is not None
    assert second is not None
    entries = [*first, *second]
    assert [(entry.seq, entry.at) for entry in entries] == [(1, 100.0), (2, 100.0), (3, 100.0)]
    assert len({entry.id for entry in entries}) == 3
    assert (log.head, [each.sync for each in store.appends]) == (3, [False, True])
    assert await store.read("s") == entries


async def test_names_are_never_used_twice_however_the_appends_are_mixed():
    store = MemoryStore()
    log = await log_in(store)
    for size in (1, 2, 1, 3, 1, 1, 2):
        assert log.append_now(notes(*"abc"[:size]), sync=False)
    entries = await store.read("s")
    assert len({entry.id for entry in entries}) == len(entries) == 11


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("taken", [0, 1, 2])
async def test_entries_of_an_append_are_in_order_and_the_first_have_the_names_of_their_posts(size, taken):
    log = await log_in(MemoryStore(), FakeClock(100.0))
    stem, posts, events = log._ids.stem, ["post-1", "post-2"][: min(taken, size)], notes(*"abc"[:size])
    for begun in (0, size):
        own = [f"{stem}-{begun + place}" for place in range(1, size + 1)]
        entries = log.append_now(events, False, posts if not begun else ())
        assert entries is not None
        assert [entry.event for entry in entries] == events
        assert [(entry.seq, entry.at) for entry in entries] == [(begun + place, 100.0) for place in range(1, size + 1)]
        assert [entry.id for entry in entries] == ([*posts, *own[len(posts) :]] if not begun else own)


async def test_two_drivers_give_different_names():
    store = MemoryStore()
    lease = await store.acquire("s")
    names_given = [Log(store, lease, 0, SYSTEM_CLOCK)._make_entries(notes("a"), ())[0].id for _ in range(2)]
    assert len(set(names_given)) == 2


async def test_the_logs_of_one_driver_go_on_numbering():
    store, ids = MemoryStore(), EntryIdSource()
    lease = await store.acquire("s")
    one, other = (Log(store, lease, 0, SYSTEM_CLOCK, ids) for _ in range(2))
    given = [log._make_entries(notes("a"), ())[0].id for log in (one, other, one)]
    given.append((await other.hand_over())._make_entries(notes("a"), ())[0].id)
    assert given == [f"{ids.stem}-{number}" for number in (1, 2, 3, 4)]


async def test_a_fork_of_the_process_gives_names_of_its_own():
    store, ids = MemoryStore(), EntryIdSource()
    ids.process_id -= 1
    log = Log(store, await store.acquire("s"), 0, SYSTEM_CLOCK, ids)
    assert not log._make_entries(notes("a"), ())[0].id.startswith(ids.stem)


async def test_nothing_at_all_may_be_appended():
    store = MemoryStore()
    log = await log_in(store)
    assert log.append_now([], sync=True) == []
    assert (log.head, await store.read("s")) == (0, [])


async def test_a_log_goes_on_where_it_was_left():
    store = MemoryStore()
    log = await log_in(store)
    log.append_now(notes("a", "b"), sync=False)
    later = Log(store, log.lease, 2, SYSTEM_CLOCK)
    later.append_now(notes("c"), sync=False)
    assert (later.head, await names(store)) == (3, ["a", "b", "c"])


async def test_a_stale_head_is_refused():
    store = MemoryStore()
    log = await log_in(store)
    log.append_now(notes("a"), sync=False)
    with pytest.raises(Conflict):
        Log(store, log.lease, 0, SYSTEM_CLOCK).append_now(notes("b"), sync=False)


# -- waiting -----------------------------------------------------------------------------------------------------------


async def test_a_store_that_is_never_immediate_has_to_be_waited_for():
    store = WaitingStore()
    assert not isinstance(store, NonBlockingAppendStore)
    log = await log_in(store)
    assert log.append_now(notes("a"), sync=False) is None
    assert not await append(log, "a", "b", sync=True)
    assert (log.head, await names(store)) == (2, ["a", "b"])


class Reluctant(MemoryStore):
    """Appends at once only when it need not sync."""

    def append_now(self, lease: Any, entries: Sequence[Entry], *, sync: bool) -> bool:
        return not sync and super().append_now(lease, entries, sync=sync)

    async def append(self, lease: Any, entries: Sequence[Entry], *, sync: bool) -> None:
        await asyncio.sleep(0)
        super().append_now(lease, entries, sync=False)


async def test_what_cannot_be_stored_at_once_is_not_stored_at_all():
    store = Reluctant()
    log = await log_in(store)
    assert log.append_now(notes("a"), sync=True) is None
    assert (log.head, await store.read("s")) == (0, [])
    assert not await append(log, "a", sync=True)
    assert log.append_now(notes("b"), sync=False) is not None
    assert await names(store) == ["a", "b"]


async def test_the_ids_of_what_could_not_be_stored_at_once_are_given_to_the_next_entries():
    store = Reluctant()
    log = await log_in(store)
    for count in range(1, 4):
        assert log.append_now(notes(*"xyz"[:count]), sync=True, entry_ids=("post",)[: count - 1]) is None
    assert log.append_now(notes("a", "b"), sync=False) is not None
    assert [entry.id.rpartition("-")[2] for entry in await store.read("s")] == ["1", "2"]


async def test_appends_that_have_to_wait_are_stored_one_after_the_other():
    store = WaitingStore()
    log = await log_in(store)
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*[append(log, letter, letter.upper()) for letter in "abcdef"])
    assert await names(store) == list("aAbBcCdDeEfF")


async def test_nothing_overtakes_an_append_that_waits():
    store = Reluctant()
    log = await log_in(store)
    first = asyncio.ensure_future(append(log, "a", sync=True))
    await asyncio.sleep(0)
    assert log.append_now(notes("b"), sync=False) is None
    await first
    assert log.append_now(notes("b"), sync=False) is not None
    assert await names(store) == ["a", "b"]


async def test_each_append_is_told_before_the_next_is_stored():
    store = WaitingStore()
    log = await log_in(store)
    told: list[list[int]] = []

    async def one(name: str) -> None:
        await log.append(notes(name), sync=False, on_stored=lambda entries: told.append([each.seq for each in entries]))

    await asyncio.gather(*[one(name) for name in "abc"])
    assert told == [[1], [2], [3]]


async def test_an_append_that_fails_leaves_the_head_where_it_was():
    store = WaitingStore()
    log = await log_in(store)
    store.error = StoreError("disk full")
    with pytest.raises(StoreError, match="disk full"):
        await append(log, "a")
    store.error = None
    assert log.head == 0
    await append(log, "b")
    assert await names(store) == ["b"]


# -- cancels -----------------------------------------------------------------------------------------------------------


async def test_a_cancel_during_an_append_is_told_when_everything_is_stored():
    store = WaitingStore()
    store.open.clear()
    log = await log_in(store)
    task = asyncio.ensure_future(append(log, "a"))
    async with asyncio.timeout(SECONDS):
        await store.waiting.wait()
        task.cancel()
        await rounds()
        assert not task.done()
        task.cancel()
        store.open.set()
        assert await task
    assert (log.head, await names(store)) == (1, ["a"])


async def test_an_append_is_stored_once_also_when_every_task_is_cancelled():
    store = WaitingStore()
    store.open.clear()
    log = await log_in(store)
    task = asyncio.ensure_future(append(log, "a"))
    async with asyncio.timeout(SECONDS):
        await store.waiting.wait()
        for each in asyncio.all_tasks() - {asyncio.current_task()}:
            each.cancel()
        await rounds()
        store.open.set()
        assert await task
    assert await names(store) == ["a"]


async def test_uninterrupted_work_comes_to_its_end_and_says_whether_a_cancel_came():
    go = asyncio.Event()

    async def work() -> str:
        await go.wait()
        return "done"

    calm = asyncio.ensure_future(run_to_completion(work()))
    hasty = asyncio.ensure_future(run_to_completion(work()))
    await rounds()
    for _ in range(3):
        hasty.cancel()
        await rounds()
    go.set()
    assert [await calm, await hasty] == [("done", False), ("done", True)]


async def test_uninterrupted_work_may_fail():
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await run_to_completion(work())


async def test_insisted_work_is_done_again_when_it_was_itself_cancelled():
    tries = 0

    async def work() -> str:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise asyncio.CancelledError
        return "done"

    assert await restart_until_completed(work) == ("done", True)
    assert tries == 3


async def test_a_cancel_is_raised_when_what_has_to_be_finished_is():
    done = asyncio.Event()

    async def work() -> str:
        await asyncio.sleep(0)
        done.set()
        return "done"

    assert await finish_before_cancel(work) == "done"
    done.clear()
    task = asyncio.ensure_future(finish_before_cancel(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()


async def test_insisting_has_an_end():
    tries = 0

    async def work() -> None:
        nonlocal tries
        tries += 1
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await restart_until_completed(work)
    assert tries == 10


async def test_waiting_through_nothing_returns_at_once():
    assert not await wait_despite_cancel([])


# -- in other hands ----------------------------------------------------------------------------------------------------


async def test_a_log_that_was_taken_over_cannot_be_written_by_whoever_had_it():
    store = MemoryStore()
    log = await log_in(store)
    log.append_now(notes("a"), sync=False)
    heir = await log.hand_over()
    with pytest.raises(Fenced, match="session 's' was taken over"):
        log.append_now(notes("b"), sync=False)
    with pytest.raises(Fenced):
        await append(log, "b")
    heir.append_now(notes("c"), sync=False)
    assert await names(store) == ["a", "c"]


async def test_taking_over_waits_for_what_is_being_written():
    store = WaitingStore()
    store.open.clear()
    log = await log_in(store)
    writing = asyncio.ensure_future(append(log, "a"))
    async with asyncio.timeout(SECONDS):
        await store.waiting.wait()
        taking = asyncio.ensure_future(log.hand_over())
        await rounds()
        assert not taking.done()
        store.open.set()
        heir = await taking
        await writing
        await append(heir, "b")
    assert await names(store) == ["a", "b"]


async def test_a_driver_whose_lease_was_lost_is_fenced():
    store = MemoryStore()
    log = await log_in(store)
    await store.release(log.lease)
    await store.acquire("s")
    with pytest.raises(Fenced):
        log.append_now(notes("a"), sync=False)


# -- whether it still has the lease ------------------------------------------------------------------------------------


class AskedStore(MemoryStore):
    """Counts how often it is asked to confirm a lease, and may take its time."""

    def __init__(self, clock: FakeClock, seconds: float = 0.0) -> None:
        super().__init__(clock=clock)
        self.asked = 0
        self.seconds = seconds
        self._fake_clock = clock

    async def holds(self, lease: Lease) -> bool:
        self.asked += 1
        valid = await super().holds(lease)
        await self._fake_clock.advance(self.seconds)
        return valid


async def test_a_lease_is_confirmed_by_an_append_for_a_moment():
    store = AskedStore(clock := FakeClock())
    log = await log_in(store, clock)
    assert not log.is_lease_confirmed
    log.append_now(notes("a"), sync=True)
    assert log.is_lease_confirmed
    await log.confirm_lease()
    await clock.advance(CONFIRMED_SECONDS * 0.9)
    await log.confirm_lease()
    assert store.asked == 0


async def test_an_append_of_nothing_confirms_nothing():
    log = await log_in(MemoryStore())
    await append(log)
    assert not log.is_lease_confirmed


@pytest.mark.parametrize("has_appended", [True, False])
async def test_a_lease_that_was_not_confirmed_for_a_while_is_asked_for(has_appended):
    store = AskedStore(clock := FakeClock())
    log = await log_in(store, clock)
    if has_appended:
        log.append_now(notes("a"), sync=True)
    await clock.advance(1)
    await log.confirm_lease()
    await log.confirm_lease()
    assert store.asked == 1


async def test_a_lease_that_was_lost_is_not_confirmed():
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    log = await log_in(store, clock)
    log.append_now(notes("a"), sync=True)
    await store.acquire("s", take_over=True)
    await clock.advance(1)
    with pytest.raises(Fenced, match="session 's' has changed hands"):
        await log.confirm_lease()


async def test_a_log_that_was_taken_over_confirms_nothing():
    log = await log_in(MemoryStore())
    log.append_now(notes("a"), sync=True)
    await log.hand_over()
    assert not log.is_lease_confirmed
    with pytest.raises(Fenced):
        await log.confirm_lease()


async def test_a_confirmation_that_arrives_late_is_asked_for_again_with_more_patience_each_time():
    store = AskedStore(clock := FakeClock(), seconds=1.0)
    log = await log_in(store, clock)
    await log.confirm_lease()
    assert store.asked == 7  # the last answer may take 1.28 s, and did not
    assert log.is_lease_confirmed


class SlowlyAppendingStore(AskedStore):
    """Takes its time to append as well, and never appends at once."""

    append_seconds = 0.0

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        return False

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        await self._fake_clock.advance(self.append_seconds)
        await super().append(lease, entries, sync=sync)


@pytest.mark.parametrize("kind", [AskedStore, SlowlyAppendingStore])
async def test_a_store_that_was_slow_for_once_is_not_trusted_for_longer_ever_after(kind):
    store = kind(clock := FakeClock(), seconds=1.0)
    log = await log_in(store, clock)
    await log.confirm_lease()
    if log.append_now(notes("a"), sync=True) is None:
        await append(log, "a", sync=True)
    assert log.is_lease_confirmed
    await clock.advance(2 * CONFIRMED_SECONDS)
    assert not log.is_lease_confirmed


async def test_a_store_that_is_always_slow_confirms_a_lease_by_an_append_for_as_long_as_it_needs():
    store = SlowlyAppendingStore(clock := FakeClock(), seconds=1.0)
    store.append_seconds = 1.0
    log = await log_in(store, clock)
    await log.confirm_lease()
    await append(log, "a", sync=True)
    assert log.is_lease_confirmed
    assert store.asked == 7


async def test_nothing_begins_on_a_store_that_is_never_in_time():
    store = AskedStore(clock := FakeClock(), seconds=100.0)
    log = await log_in(store, clock)
    with pytest.raises(StoreError, match="takes too long to confirm the lease of session 's'"):
        await log.confirm_lease()
    assert not log.is_lease_confirmed


@pytest.mark.parametrize("late_answers", range(9))
async def test_a_process_that_is_stopped_after_any_number_of_late_answers_finds_that_it_was_replaced(late_answers):
    clock = FakeClock()

    class StoppedStore(AskedStore):
        async def holds(self, lease):
            self.seconds = 1.1 * CONFIRMED_SECONDS * 2**self.asked
            valid = await super().holds(lease)
            if self.asked > late_answers and valid:
                await self.acquire("s", take_over=True)
                await clock.advance(3600)
            return valid

    log = await log_in(StoppedStore(clock), clock)
    with pytest.raises((Fenced, StoreError)):
        await log.confirm_lease()


async def test_a_clock_that_was_set_back_confirms_nothing():
    store = AskedStore(clock := FakeClock())
    log = await log_in(store, clock)
    log.append_now(notes("a"), sync=True)
    clock._start -= 3600
    await log.confirm_lease()
    await log.confirm_lease()
    assert store.asked == 1


# -- a store that stores together what comes at the same time ----------------------------------------------------------


class GroupedStore(WaitingStore):
    """A store whose appends go on by themselves, in the order in which they came."""

    def append_soon(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> "asyncio.Future[None]":
        return asyncio.ensure_future(self.append(lease, entries, sync=sync))


async def test_a_store_that_groups_is_waited_for_however_often_the_waiting_is_cancelled():
    store = GroupedStore()
    log = Log(store, await store.acquire("s"), 0, SYSTEM_CLOCK)
    store.open.clear()
    stored: list[Entry] = []
    waiting = asyncio.ensure_future(log.append(notes("a"), sync=True, on_stored=stored.extend))
    async with asyncio.timeout(SECONDS):
        await store.waiting.wait()
        for _ in range(3):
            waiting.cancel()
            await asyncio.sleep(0)
        second = asyncio.ensure_future(log.append(notes("b"), sync=True, on_stored=stored.extend))
        await asyncio.sleep(0)
        store.open.set()
        assert await waiting is True
        assert await second is False
    assert [entry.seq for entry in stored] == [1, 2]
    assert await store.read("s") == stored


async def test_an_append_is_not_dropped_by_a_cancel_while_others_wait_for_a_lock_that_is_free():
    store = GroupedStore()
    log = Log(store, await store.acquire("s"), 0, SYSTEM_CLOCK)
    store.open.clear()

    async def append_twice() -> bool:
        await append(log, "a")
        return await append(log, "c")  # the lock was just given back, and is promised to the other one

    twice = asyncio.ensure_future(append_twice())
    async with asyncio.timeout(SECONDS):
        await store.waiting.wait()
        between = asyncio.ensure_future(append(log, "b"))
        await rounds()
        store.open.set()
        await until(lambda: log.head)
        twice.cancel()
        assert await twice is True
        assert await between is False
    assert await names(store) == ["a", "b", "c"]


async def test_an_append_is_not_dropped_by_a_cancel_while_the_log_is_being_taken_over():
    store = GroupedStore()
    log = Log(store, await store.acquire("s"), 0, SYSTEM_CLOCK)
    store.open.clear()

    async def append_twice() -> None:
        await append(log, "a")
        await append(log, "late")

    twice = asyncio.ensure_future(append_twice())
    async with asyncio.timeout(SECONDS):
        await store.waiting.wait()
        taking = asyncio.ensure_future(log.hand_over())
        await rounds()
        store.open.set()
        await until(lambda: log.head)
        twice.cancel()
        heir = await taking
        with pytest.raises(Fenced):
            await twice
        await append(heir, "b")
    assert await names(store) == ["a", "b"]


async def test_what_a_store_that_groups_refuses_is_raised():
    store = GroupedStore()
    log = Log(store, await store.acquire("s"), 0, SYSTEM_CLOCK)
    store.error = StoreError("no room")
    with pytest.raises(StoreError, match="no room"):
        await log.append(notes("a"), sync=True, on_stored=lambda _: None)
    assert log.head == 0


async def test_events_are_given_with_the_number_of_the_last_entry_by_any_store():
    store = MemoryStore()
    log = await log_in(store)
    log.append_now(notes("a", "b", "c"), sync=False)
    assert await read_events(store, "s", after=1) == (notes("b", "c"), 3)
    assert await read_events(store, "s", after=3) == ([], 3)


# -- where a session is ------------------------------------------------------------------------------------------------


def test_a_session_of_a_plain_store_is_found_by_the_store_object():
    class Plain(MemoryStore):
        """Cannot tell where its sessions are."""

    one, other = Plain(), Plain()
    assert get_process_wide_session_key(one, "s") == get_process_wide_session_key(one, "s")
    assert get_process_wide_session_key(one, "s") != get_process_wide_session_key(one, "t")
    assert get_process_wide_session_key(one, "s") != get_process_wide_session_key(other, "s")


def test_a_store_may_say_where_its_sessions_are():
    class Part(MemoryStore):
        """A part of another store."""

        def locate_session(self, session_id: str) -> SessionPlace:
            return "elsewhere", f"part/{session_id}"

    assert (
        get_process_wide_session_key(Part(), "s")
        == get_process_wide_session_key(Part(), "s")
        == ("elsewhere", "part/s")
    )
    assert isinstance(Part(), SessionKeyStore)
    assert not isinstance(MemoryStore(), SessionKeyStore)


async def test_a_cancel_that_comes_while_tasks_are_ended_is_raised_when_they_have_ended():
    released = asyncio.Event()

    async def end_slowly():
        try:
            await asyncio.Event().wait()
        finally:
            await released.wait()

    task = asyncio.ensure_future(end_slowly())
    await asyncio.sleep(0)
    ending = asyncio.ensure_future(cancel_and_await_tasks((task,)))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.sleep(0)
    assert not ending.done()
    released.set()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert task.cancelled()


async def test_ended_tasks_are_no_cancel_of_the_caller():
    task = asyncio.ensure_future(asyncio.Event().wait())
    await cancel_and_await_tasks((task,))
    assert task.cancelled()
