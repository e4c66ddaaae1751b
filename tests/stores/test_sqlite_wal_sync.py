"""Barriers that are committed by their caller, and synced by the writer's thread, or by the caller on a quick disk."""

import asyncio
import os
import threading
from types import SimpleNamespace

import apsw
import pytest

from perdure import StoreError
from perdure._stores import files
from perdure._stores.sqlite.search.thread import SearchThread
from perdure._stores.sqlite.write import jobs
from perdure._stores.sqlite.write.jobs import (
    MAX_QUICK_SYNCS,
    QUICK_SECONDS,
    QUICK_SYNCS,
    STALL_SECONDS,
    TRUSTED_SYNCS,
    SyncSpeedPredictor,
    WalSync,
)
from perdure._stores.sqlite.write.scheduler import MAX_SYNCS_NOW
from perdure.stores import Fenced
from tests.stores.material import another_connection, entries


@pytest.fixture(autouse=True)
def _no_indexing(monkeypatch):
    """Nothing else writes to the file, however slow the machine is."""
    monkeypatch.setattr(SearchThread, "signal_append", lambda _: None)


@pytest.fixture
def held_syncs(monkeypatch):
    """Syncs that wait for this event, and the threads that make them."""
    allowed, threads = threading.Event(), []

    def sync(descriptor):
        threads.append(threading.current_thread())
        assert allowed.wait(60)
        files.sync_data(descriptor)

    monkeypatch.setattr(jobs, "sync_data", sync)
    yield allowed, threads
    allowed.set()


@pytest.fixture
async def lease(store):
    """Of a session that had its first barrier, which SQLite itself syncs together with the name of its log."""
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=True)
    return lease


async def test_a_barrier_is_committed_at_once_and_acknowledged_when_it_is_synced(path, store, lease, held_syncs):
    allowed, threads = held_syncs
    stored = store.append_soon(lease, entries(2), sync=True)
    with another_connection(path) as connection:
        assert connection.execute("SELECT head FROM session").get == 2
    assert not stored.done()
    allowed.set()
    await stored
    assert [thread.name for thread in threads] == ["perdure-sqlite"]
    assert await store.read("s") == entries(1, 2)


async def test_what_is_synced_is_the_log_that_sqlite_writes_also_after_it_was_emptied_and_closed(
    path, store, lease, monkeypatch
):
    synced = []

    def sync(descriptor):
        synced.append(os.path.samestat(os.fstat(descriptor), path.with_name("sessions.db-wal").stat()))
        files.sync_data(descriptor)

    monkeypatch.setattr(jobs, "sync_data", sync)
    await store.append(lease, entries(2), sync=True)
    await store.vacuum()
    await store.append(lease, entries(3), sync=True)
    assert synced
    before = len(synced)
    await store.aclose()  # with the last connection, SQLite removes its log
    again = await store.acquire("s")
    await store.append(again, entries(4), sync=True)  # by SQLite itself
    assert len(synced) == before
    await store.append(again, entries(5), sync=True)
    assert synced == [True] * (before + 1)
    assert await store.read("s") == entries(1, 5)


async def test_while_a_barrier_waits_for_the_disk_nothing_overtakes_it(store, lease, held_syncs):
    allowed, threads = held_syncs
    stored = store.append_soon(lease, entries(2), sync=True)
    assert not store.append_now(lease, entries(3), sync=False)
    following = store.append_soon(lease, entries(3), sync=True)
    assert not following.done()
    allowed.set()
    await following
    assert stored.done()
    assert len(threads) == 1  # the following one was synced by SQLite
    assert await store.read("s") == entries(1, 3)


async def test_a_barrier_that_was_cancelled_during_its_sync_is_acknowledged_to_who_repeats_it_after_the_sync(
    store, lease, held_syncs
):
    allowed, _ = held_syncs
    store.append_soon(lease, entries(2), sync=True).cancel()
    repeated = store.append_soon(lease, entries(2), sync=True)
    assert not repeated.done()
    allowed.set()
    await repeated
    assert await store.read("s") == entries(1, 2)


async def test_a_store_is_closed_after_the_barriers_that_wait_for_the_disk(path, store, lease, held_syncs):
    allowed, _ = held_syncs
    stored = store.append_soon(lease, entries(2), sync=True)
    closing = asyncio.ensure_future(store.aclose())
    await asyncio.sleep(0)
    assert path.with_name("sessions.db-wal").exists()
    allowed.set()
    await closing
    await stored
    assert await store.read("s") == entries(1, 2)


async def test_what_follows_a_barrier_whose_sync_failed_is_stored_after_the_log_was_written_again(
    store, lease, held_syncs, monkeypatch
):
    allowed, _ = held_syncs
    access, repaired = store._writer._access, []

    def refuse(_descriptor):
        assert allowed.wait(60)
        raise OSError(5, "Input/output error")

    def write_again(connection, write=access._write_wal_again):
        repaired.append(True)
        write(connection)

    monkeypatch.setattr(jobs, "sync_data", refuse)
    monkeypatch.setattr(access, "_write_wal_again", write_again)
    failed = store.append_soon(lease, entries(2), sync=True)
    following = store.append_soon(lease, entries(3), sync=True)
    allowed.set()
    with pytest.raises(StoreError, match="the disk reported an error"):
        await failed
    await following
    assert repaired == [True]
    assert await store.read("s") == entries(1, 3)


async def test_a_sync_that_the_system_refuses_acknowledges_nothing(store, lease, monkeypatch):
    def refuse(_descriptor):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(jobs, "sync_data", refuse)
        with pytest.raises(StoreError, match=r"the disk reported an error.*Input/output error"):
            await store.append_soon(lease, entries(2), sync=True)
    assert not store.append_now(lease, entries(2), sync=False)  # nothing is added before it is certain
    await store.append(lease, entries(2), sync=True)
    assert await store.read("s") == entries(1, 2)


async def test_a_barrier_whose_log_was_closed_before_its_sync_is_not_acknowledged(store, lease):
    writer = store._writer
    with writer._thread_lock:  # the writer's thread waits for it
        stored = store.append_soon(lease, entries(2), sync=True)
        with writer._lock.hold():
            writer._access._drop_connection()
    with pytest.raises(StoreError, match="the log was closed after an error"):
        await stored


async def test_a_barrier_of_a_lost_lease_fails_at_its_caller(store, lease):
    await store.acquire("s", take_over=True)
    with pytest.raises(Fenced):
        await store.append_soon(lease, entries(2), sync=True)
    assert await store.read("s") == entries(1)


async def test_a_barrier_in_a_file_that_was_replaced_is_refused(path, store, lease):
    path.rename(path.with_suffix(".moved"))
    with pytest.raises(StoreError, match="was deleted or replaced while it was open"):
        await store.append_soon(lease, entries(2), sync=True)


# -- a quick disk ------------------------------------------------------------------------------------------------------


class Disk:
    """A disk whose syncs take as long as it says, and tell which thread waits for them."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.error: OSError | None = None
        self.threads: list[str] = []
        self._clock = 0.0

    def perf_counter(self) -> float:
        return self._clock

    def sync(self, descriptor: int) -> None:
        self.threads.append(threading.current_thread().name)
        self._clock += self.seconds
        if self.error is not None:
            raise self.error
        files.sync_data(descriptor)


@pytest.fixture
def disk(monkeypatch):
    disk = Disk()
    monkeypatch.setattr(jobs, "time", disk)
    monkeypatch.setattr(jobs, "sync_data", disk.sync)
    return disk


@pytest.fixture
async def quick(store, lease, disk):
    """The number of the last entry, once the disk is known to be quick."""
    for number in range(QUICK_SYNCS):
        assert not store.append_now(lease, entries(2 + number), sync=True)
        await store.append_soon(lease, entries(2 + number), sync=True)
    assert disk.threads == ["perdure-sqlite"] * QUICK_SYNCS
    disk.threads.clear()
    return 1 + QUICK_SYNCS


async def test_while_the_disk_is_quick_a_barrier_is_synced_by_its_caller(store, lease, disk, quick):
    assert store.append_now(lease, entries(quick + 1), sync=True)
    assert disk.threads == ["MainThread"]
    assert store.append_now(lease, entries(quick + 2), sync=False)
    assert len(disk.threads) == 1
    assert await store.read("s") == entries(1, quick + 2)


async def test_a_slow_sync_leaves_the_next_ones_to_the_thread(store, lease, disk, quick):
    disk.seconds = QUICK_SECONDS * 1.1
    assert store.append_now(lease, entries(quick + 1), sync=True)
    disk.seconds = 0.0
    assert not store.append_now(lease, entries(quick + 2), sync=True)
    await store.append_soon(lease, entries(quick + 2), sync=True)
    assert disk.threads == ["MainThread", "perdure-sqlite"]
    assert await store.read("s") == entries(1, quick + 2)


async def test_a_sync_that_fails_at_its_caller_acknowledges_nothing(store, lease, disk, quick):
    disk.error = OSError(5, "Input/output error")
    with pytest.raises(StoreError, match=r"the disk reported an error.*Input/output error"):
        store.append_now(lease, entries(quick + 1), sync=True)
    disk.error = None
    assert not store.append_now(lease, entries(quick + 1), sync=True)  # nothing is added before it is certain
    await store.append(lease, entries(quick + 1), sync=True)
    assert await store.read("s") == entries(1, quick + 1)


async def test_on_a_quick_disk_a_lost_lease_and_a_replaced_file_are_noticed(path, store, lease, quick):
    await store.acquire("s", take_over=True)
    assert not store.append_now(lease, entries(quick + 1), sync=True)
    with pytest.raises(Fenced):
        await store.append(lease, entries(quick + 1), sync=True)
    path.rename(path.with_suffix(".moved"))
    assert not store.append_now(lease, entries(quick + 1), sync=True)
    with pytest.raises(StoreError, match="was deleted or replaced while it was open"):
        await store.append(lease, entries(quick + 1), sync=True)


async def test_of_several_sessions_that_have_a_barrier_at_once_only_the_first_is_synced_by_its_caller(
    store, lease, disk, quick
):
    others = [await store.acquire(f"other-{number}") for number in range(3)]
    assert store.append_now(lease, entries(quick + 1), sync=True)
    assert not any(store.append_now(other, entries(1), sync=True) for other in others)
    with store._writer._thread_lock:  # the writer's thread waits for it, and so finds all of them
        waiting = [store.append_soon(other, entries(1), sync=True) for other in others]
    await asyncio.gather(*waiting)
    assert disk.threads == ["MainThread"]  # the others have shared a transaction, which SQLite has synced
    assert not store.append_now(lease, entries(quick + 2), sync=True)  # as long as barriers are shared


async def test_a_run_that_never_waits_leaves_a_barrier_to_the_thread_now_and_then(store, lease, disk, quick):
    last = quick
    turns_of_others: list[int] = []
    for _ in range(2):
        while store.append_now(lease, entries(last + 1), sync=True):
            last += 1
        asyncio.get_running_loop().call_soon(turns_of_others.append, last)
        await store.append_soon(lease, entries(last + 1), sync=True)
        last += 1
    assert turns_of_others == [quick + MAX_SYNCS_NOW, quick + 2 * MAX_SYNCS_NOW + 1]
    assert disk.threads == [*["MainThread"] * MAX_SYNCS_NOW, "perdure-sqlite"] * 2
    assert await store.read("s") == entries(1, last)


def recorded(*seconds: float, pace: SyncSpeedPredictor | None = None) -> SyncSpeedPredictor:
    pace = pace or SyncSpeedPredictor()
    for each in seconds:
        pace.record(each)
    return pace


def test_a_disk_is_quick_after_some_quick_syncs_in_a_row():
    assert not recorded(*[QUICK_SECONDS] * (QUICK_SYNCS - 1)).is_quick
    assert recorded(*[QUICK_SECONDS] * QUICK_SYNCS).is_quick
    assert not recorded(*[0.0] * (QUICK_SYNCS - 1), QUICK_SECONDS * 1.1, 0.0).is_quick


def test_a_disk_that_stalls_has_to_be_quick_for_longer_each_time():
    pace = recorded(*[0.0] * QUICK_SYNCS, STALL_SECONDS)
    assert recorded(*[0.0] * QUICK_SYNCS, pace=pace).is_quick
    waited = []
    for _ in range(4):
        pace.record(STALL_SECONDS * 1.1)
        waited.append(0)
        while not pace.is_quick:
            pace.record(0.0)
            waited[-1] += 1
    assert waited == [QUICK_SYNCS * 16, QUICK_SYNCS * 256, MAX_QUICK_SYNCS, MAX_QUICK_SYNCS]


def test_a_stall_while_syncs_are_left_to_the_thread_changes_nothing():
    pace = recorded(STALL_SECONDS * 2, STALL_SECONDS * 2)
    assert recorded(*[0.0] * QUICK_SYNCS, pace=pace).is_quick


def test_after_many_quick_syncs_old_stalls_are_forgotten():
    after_a_stall = QUICK_SYNCS * 16
    pace = recorded(*[0.0] * QUICK_SYNCS, STALL_SECONDS * 2, *[0.0] * (after_a_stall + TRUSTED_SYNCS - 1))
    pace.record(0.0)
    pace.record(QUICK_SECONDS * 2)
    assert recorded(*[0.0] * QUICK_SYNCS, pace=pace).is_quick


def test_a_log_that_is_not_there_or_is_a_link_is_not_opened(tmp_path):
    with pytest.raises(FileNotFoundError):
        WalSync(str(tmp_path / "sessions.db"), None)
    (tmp_path / "sessions.db-wal").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").touch()
    with pytest.raises(OSError, match="symbolic links"):
        WalSync(str(tmp_path / "sessions.db"), None)


def test_an_error_of_the_system_is_one_of_the_database(tmp_path, monkeypatch):
    (tmp_path / "sessions.db-wal").touch()
    wal = WalSync(str(tmp_path / "sessions.db"), None)
    wal.sync()

    def refuse(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jobs, "sync_data", refuse)
    with pytest.raises(apsw.IOError, match="No space left"):
        wal.sync()
    wal.close()


def test_a_log_that_cannot_be_closed_in_good_order_is_closed_all_the_same(tmp_path, monkeypatch):
    """After a sync has failed some file systems report it once more here: the caller has its error already."""
    (tmp_path / "sessions.db-wal").touch()
    wal = WalSync(str(tmp_path / "sessions.db"), None)
    closed = []

    def close(descriptor):
        closed.append(descriptor)
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(jobs, "os", SimpleNamespace(close=close))
        wal.close()
    (descriptor,) = closed
    os.close(descriptor)
