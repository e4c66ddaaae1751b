"""Who writes to an SQLite file when: what is committed together, and who waits for whom."""

import asyncio
import os
import sys
import threading
import time
from typing import Any

import apsw
import pytest

from perdure import SessionBusy, StoreError
from perdure._core.values import faults
from perdure._stores.sqlite import connections as sqlite_access
from perdure._stores.sqlite import connections as sqlite_turns
from perdure._stores.sqlite import log as sqlite_log
from perdure._stores.sqlite.format.schema import highest_id_number
from perdure.events import Custom, Entry
from perdure.stores import Conflict, Fenced, Lease, Post, SqliteStore
from tests.stores.material import another_connection, entries


@pytest.fixture
async def commits(store):
    """The transactions that are committed from now on, one for each."""
    await store.acquire("first")
    made = []
    connection = store._writer._access.connection
    grown = store._writer._access._on_commit

    def hook(*change):
        made.append(change[2])
        return grown(*change)

    connection.set_wal_hook(hook)
    return made


async def test_appends_of_one_turn_of_the_loop_are_one_transaction(store, commits):
    leases = [await store.acquire(f"s{number}") for number in range(20)]
    commits.clear()
    await asyncio.gather(*[store.append(lease, entries(1), sync=False) for lease in leases])
    assert len(commits) == 1
    assert [await store.read(lease.session_id) for lease in leases] == [entries(1)] * 20


async def test_of_appends_that_are_written_together_a_refused_one_fails_alone(store, commits):
    leases = [await store.acquire(f"s{number}") for number in range(4)]
    commits.clear()
    work = [
        store.append(leases[0], entries(1), sync=False),
        store.append(leases[1], entries(7), sync=False),
        store.append(Lease("s2", 99), entries(1), sync=False),
        store.append(leases[3], entries(1, 2), sync=False),
    ]
    results = await asyncio.gather(*work, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), Conflict, Fenced, type(None)]
    assert len(commits) == 1
    assert [len(await store.read(f"s{number}")) for number in range(4)] == [1, 0, 0, 2]


async def test_one_that_dies_before_the_commit_takes_no_other_with_it(store, commits):
    leases = [await store.acquire(f"s{number}") for number in range(3)]
    faults.arm({"store.append.before_commit": "raise@2"})
    try:
        work = [store.append(lease, entries(1), sync=False) for lease in leases]
        results = await asyncio.gather(*work, return_exceptions=True)
    finally:
        faults.disarm()
    assert [type(result) for result in results] == [type(None), faults.FaultInjected, type(None)]
    assert [len(await store.read(f"s{number}")) for number in range(3)] == [1, 0, 1]


async def test_barriers_that_wait_share_one_sync(path, store, commits):
    leases = [await store.acquire(f"s{number}") for number in range(10)]
    with another_connection(path) as connection:
        connection.execute("BEGIN IMMEDIATE")  # the thread has to wait, and meanwhile all of them come
        first = asyncio.ensure_future(store.append(leases[0], entries(1), sync=True))
        await asyncio.sleep(0)
        work = [asyncio.ensure_future(store.append(lease, entries(1), sync=True)) for lease in leases[1:]]
        await asyncio.sleep(0)
        commits.clear()
        connection.execute("ROLLBACK")
    await asyncio.gather(first, *work)
    assert len(commits) <= 2
    assert [len(await store.read(lease.session_id)) for lease in leases] == [1] * 10


async def test_appends_of_one_session_are_done_in_the_order_of_asking(store):
    lease = await store.acquire("s")
    work = [store.append(lease, entries(seq), sync=seq % 3 == 1) for seq in range(1, 31)]
    await asyncio.gather(*work)
    assert await store.read("s") == entries(1, 30)


async def test_an_append_whose_caller_has_gone_is_written_all_the_same(store):
    lease = await store.acquire("s")
    for sync in (False, True):
        head = len(await store.read("s"))
        task = asyncio.ensure_future(store.append(lease, entries(head + 1), sync=sync))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await store.append(lease, entries(head + 1), sync=True)
        assert len(await store.read("s")) == head + 1


async def test_a_group_that_another_process_keeps_waiting_waits(path, store):
    lease = await store.acquire("s")
    with another_connection(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(store.append(lease, entries(1), sync=False))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        connection.execute("ROLLBACK")
    await waiting
    assert await store.read("s") == entries(1)


async def test_whoever_reads_does_not_wait_for_whoever_writes(path, store):
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=True)
    with another_connection(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(store.append(lease, entries(2), sync=True))
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            assert await store.read("s") == entries(1)
            assert [info.entries for info in await store.list()] == [1]
        assert not waiting.done()
        connection.execute("ROLLBACK")
    await waiting


async def test_whoever_writes_does_not_wait_for_whoever_reads(store):
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=True)
    reading, may_end = threading.Event(), threading.Event()

    def read_for_long(connection):
        connection.execute("SELECT count(*) FROM pack").fetchall()
        reading.set()
        assert may_end.wait(30)
        return connection.execute("SELECT count(*) FROM pack").get

    long = asyncio.ensure_future(store._writer.read(read_for_long))
    await asyncio.to_thread(reading.wait, 10)
    await store.append(lease, entries(2), sync=True)
    assert store.append_now(lease, entries(3), sync=False)
    may_end.set()
    assert await long == 1  # it sees the file at one moment


async def test_a_reader_whose_file_fails_opens_it_again(store):
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=True)

    def fail(_connection):
        raise apsw.IOError("the disk is on fire")

    with pytest.raises(StoreError, match="the disk reported an error"):
        await store._writer.read(fail)
    assert await store.read("s") == entries(1)


async def test_sqlites_own_log_is_cut_when_it_has_become_long(path, store, monkeypatch):
    monkeypatch.setattr(sqlite_access, "MAX_WAL_BYTES", 100_000)
    monkeypatch.setattr(sqlite_access, "CHECKPOINT_PAGES", 50)
    lease = await store.acquire("s")
    for seq in range(1, 60):
        await store.append(lease, [Entry(seq, 1.0, Custom("data", "x" * 10_000), f"e-{seq}")], sync=False)
    for seq in (60, 61):  # the second one is done after whatever the first one has made due
        await store.append(lease, [Entry(seq, 1.0, Custom("data"), f"e-{seq}")], sync=True)
    assert path.with_name("sessions.db-wal").stat().st_size < 400_000
    assert len(await store.read("s")) == 61


async def test_threads_get_their_turn_sooner_while_a_store_is_open(tmp_path):
    before = sys.getswitchinterval()
    first, second = SqliteStore(tmp_path / "1.db"), SqliteStore(tmp_path / "2.db")
    await first.acquire("s")
    await second.acquire("s")
    assert sys.getswitchinterval() == pytest.approx(sqlite_turns.SWITCH_SECONDS)
    await first.aclose()
    assert sys.getswitchinterval() == pytest.approx(sqlite_turns.SWITCH_SECONDS)
    await second.aclose()
    assert sys.getswitchinterval() == pytest.approx(before)


async def test_an_interval_that_somebody_else_has_set_stays(store):
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.0001)
        await store.acquire("s")
        assert sys.getswitchinterval() == pytest.approx(0.0001)
        await store.aclose()
        assert sys.getswitchinterval() == pytest.approx(0.0001)
        sys.setswitchinterval(before)
        await store.acquire("s")
        sys.setswitchinterval(0.02)
        await store.aclose()
        assert sys.getswitchinterval() == pytest.approx(0.02)
    finally:
        sys.setswitchinterval(before)


# -- what is done at once ----------------------------------------------------------------------------------------------


def complete_at_once(work):
    """The result of a coroutine that need not wait for anything."""
    with pytest.raises(StopIteration) as ended:
        work.send(None)
    return ended.value.value


async def test_a_session_is_opened_and_given_back_without_waiting_while_the_file_is_idle(store):
    await store.list()  # which opens the file
    lease = complete_at_once(store.acquire("s"))
    assert complete_at_once(store.events("s")) == ([], 0)
    assert complete_at_once(store.posts("s")) == []
    complete_at_once(store.release(lease))
    assert complete_at_once(store.acquire("s")) == Lease("s", lease.fence + 1)


async def test_what_has_been_read_is_not_read_again(store):
    lease = await store.acquire("s")
    assert store.append_now(lease, entries(1, 2), sync=False)
    assert complete_at_once(store.events("s", after=2)) == ([], 2)
    assert (await store.events("s", after=1))[1] == 2


async def test_a_lease_that_somebody_has_is_not_taken_at_once(store):
    await store.acquire("s")
    with pytest.raises(SessionBusy, match="is being driven by process"):
        await store.acquire("s")
    assert (await store.acquire("s", take_over=True)).fence == 2


async def test_of_sessions_that_begin_at_once_one_is_served_at_once(store):
    await store.list()
    complete_at_once(store.acquire("first"))
    others = [asyncio.ensure_future(store.acquire(f"s{number}")) for number in range(3)]
    await asyncio.sleep(0)
    assert [other.done() for other in others] == [False] * 3
    assert [lease.fence for lease in await asyncio.gather(*others)] == [1] * 3
    complete_at_once(store.acquire("later"))


async def test_a_session_whose_file_was_replaced_is_not_opened_at_once(path, store):
    await store.release(await store.acquire("s"))
    path.rename(path.with_name("elsewhere.db"))
    with pytest.raises(StoreError, match="was deleted or replaced while it was open"):
        await store.acquire("s")


async def test_a_disk_that_fails_at_once_is_an_error_and_the_session_is_free_afterwards(store):
    lease = await store.acquire("s")

    def fail(_connection):
        raise apsw.IOError("the disk is on fire")

    with pytest.raises(StoreError, match="the disk reported an error"):
        store._writer.run_now("s", fail)
    assert store._writer.run_now("s", lambda _: True) is None  # it has to be opened again, which waits
    await store.release(lease)
    assert (await store.acquire("s")).fence == 2


async def test_taken_posts_are_deleted_when_the_session_is_given_back(path, store):
    lease = await store.acquire("s")
    await store.post("s", Post("taken", "steer"))
    await store.post("s", Post("waiting", "steer"))
    await store.append(lease, [Entry(1, 1.0, Custom("d"), "taken")], sync=False)
    await store.release(lease)
    with another_connection(path) as connection:
        assert connection.execute("SELECT id FROM post").fetchall() == [("waiting",)]


# -- ids that go on ----------------------------------------------------------------------------------------------------


async def test_a_driver_that_goes_on_numbering_is_believed_as_long_as_nobody_came_between(store, monkeypatch):
    looked_up = []

    def look_up(*place):
        looked_up.append(place)
        return highest_id_number(*place)

    monkeypatch.setattr(sqlite_log, "highest_id_number", look_up)
    for run in range(3):
        lease = await store.acquire("s")
        assert store.append_now(lease, entries(2 * run + 1, 2), sync=False)
        await store.release(lease)
    assert looked_up == []
    await store.release(await store.acquire("s"))  # as another process might, and append something
    await store.append(await store.acquire("s"), entries(7), sync=False)
    assert len(looked_up) == 1


async def test_an_id_of_an_earlier_run_is_refused(store):
    lease = await store.acquire("s")
    await store.append(lease, entries(1, 3), sync=False)
    await store.release(lease)
    lease = await store.acquire("s")
    again = entries(2)[0]
    with pytest.raises(Conflict, match="elsewhere in the log"):
        await store.append(lease, [Entry(4, 1.0, again.event, again.id)], sync=False)


@pytest.mark.parametrize("size", [10, 12_000], ids=["nothing to tidy up", "rows to merge"])
async def test_the_ids_of_only_so_many_sessions_are_remembered_and_no_sizes_of_any(store, monkeypatch, size):
    monkeypatch.setattr(sqlite_log, "MAX_NOTED_SESSIONS", 2)
    for number in range(5):
        lease = await store.acquire(f"s{number}")
        for seq in range(1, 13):
            text = Entry(seq, 1.0, Custom("data", os.urandom(size // 2).hex()), f"e-{seq}")
            await store.append(lease, [text], sync=False)
        assert list(store._writer.notes.loose_bytes) == [f"s{number}"]
        await store.release(lease)
    assert list(store._writer.notes.highest_ids) == ["s3", "s4"]
    assert store._writer.notes.loose_bytes == {}


async def test_an_observer_notices_that_the_file_was_replaced(path, store):
    """Who only reads has no lease, at whose acquisition the file was looked up."""
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=True)
    await store.release(lease)
    for _ in range(2):
        assert await store.posts("s") == []
        assert await store.events("s", after=1) == ([], 1)
    path.rename(path.with_suffix(".moved"))
    with pytest.raises(StoreError, match="was deleted or replaced while it was open"):
        await store.posts("s")


async def test_a_lease_is_not_acquired_in_a_file_that_was_replaced_after_its_session_was_read(path, store):
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=True)
    await store.release(lease)
    assert await store.posts("s") == []
    path.rename(path.with_suffix(".moved"))
    with pytest.raises(StoreError, match="was deleted or replaced while it was open"):
        await store.acquire("s")


async def test_a_session_whose_release_took_a_thread_is_looked_up_as_well(path, store):
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=True)
    await store.post("s", Post("p", "steer", "hello", 1.0))  # with it, the lease is not released in one statement
    await store.release(lease)
    path.rename(path.with_suffix(".moved"))
    with pytest.raises(StoreError, match="was deleted or replaced while it was open"):
        await store.events("s", after=1)


async def test_the_event_loop_does_not_wait_for_another_process_in_a_file_that_was_only_read(
    path: Any, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure._stores.sqlite.database.BUSY_SECONDS", 3)
    assert await store.read("s") == []  # which opens the file
    with another_connection(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        acquiring = asyncio.ensure_future(store.acquire("s"))
        start = time.monotonic()
        await asyncio.sleep(0)
        assert time.monotonic() - start < 2
        assert not acquiring.done()
        connection.execute("ROLLBACK")
    assert await acquiring == Lease("s", 1)


async def test_a_lease_that_somebody_else_has_ended_is_not_acquired_again_in_a_file_that_was_replaced(
    path: Any, store: SqliteStore
) -> None:
    await store.acquire("s")
    with another_connection(path) as connection:
        connection.execute("UPDATE session SET holder = NULL")
    path.rename(path.with_suffix(".moved"))
    with pytest.raises(StoreError, match="was deleted or replaced while it was open"):
        await store.acquire("s")


async def test_after_appends_that_were_written_together_any_session_writes_at_once(store: SqliteStore) -> None:
    first, second = await store.acquire("a"), await store.acquire("b")
    assert store.append_now(second, entries(1), sync=False)
    together = [store.append(lease, entries(seq), sync=False) for lease, seq in ((first, 1), (second, 2))]
    await asyncio.gather(*together)
    assert store.append_now(first, entries(2), sync=False)
    assert not store.append_now(second, entries(3), sync=False)  # in the same turn: they are better written together
    await asyncio.sleep(0)
    assert store.append_now(second, entries(3), sync=False)


async def test_nothing_is_written_at_once_while_others_wait(store: SqliteStore) -> None:
    first, second = await store.acquire("a"), await store.acquire("b")
    gathered = store.append_soon(first, entries(1), sync=False)
    assert not store.append_now(first, entries(2), sync=False)
    await gathered
    writer = store._get_writer()
    held, begun = threading.Event(), threading.Event()

    def hold(_connection: object) -> bool:
        begun.set()
        return held.wait(30)

    holding = writer.write(hold)
    assert await asyncio.to_thread(begun.wait, 30)
    assert not writer.can_write_now("a")
    assert not store.append_now(first, entries(2), sync=False)
    assert writer.run_now("a", lambda _: 1) is None
    waiting = [store.append_soon(first, entries(2), sync=False), store.append_soon(second, entries(1), sync=False)]
    held.set()
    assert await holding is True
    await asyncio.gather(*waiting)
    assert [await store.read(name) for name in "ab"] == [entries(1, 2), entries(1)]


async def test_a_file_is_closed_with_its_last_user_and_opened_again_for_the_next(path: Any) -> None:
    first, second = SqliteStore(path), SqliteStore(path)
    lease = await first.acquire("a")
    await second.acquire("b")
    writer = first._get_writer()
    assert second._get_writer() is writer
    await first.append(lease, entries(1), sync=False)
    assert writer.notes.highest_ids
    thread = writer._thread
    await first.aclose()
    assert (writer._access.is_open, writer._thread) == (True, thread)
    assert writer.leases == {Lease("b", 1)}
    await second.aclose()
    assert (writer._access.is_open, writer._thread, writer.leases) == (False, None, set())
    assert (writer.notes.highest_ids, writer.notes.loose_bytes) == ({}, {})
    assert not path.with_name("sessions.db-wal").exists()
    try:
        assert await first.acquire("a") == Lease("a", 2)
        assert first._get_writer() is writer
        assert await first.read("a") == entries(1)
    finally:
        await first.aclose()
