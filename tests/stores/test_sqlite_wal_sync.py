"""Barriers that are committed by their caller, and only synced by the writer's thread."""

import asyncio
import os
import threading
from types import SimpleNamespace

import apsw
import pytest

from perdure.core.error import Fenced, StoreError
from perdure.stores import disk_sync
from perdure.stores.sqlite import wal_sync
from perdure.stores.sqlite.search_thread import SearchThread
from perdure.stores.sqlite.wal_sync import WalSync
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
        disk_sync.sync_data(descriptor)

    monkeypatch.setattr(wal_sync, "sync_data", sync)
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
        disk_sync.sync_data(descriptor)

    monkeypatch.setattr(wal_sync, "sync_data", sync)
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

    monkeypatch.setattr(wal_sync, "sync_data", refuse)
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
        patched.setattr(wal_sync, "sync_data", refuse)
        with pytest.raises(StoreError, match=r"the disk reported an error.*Input/output error"):
            await store.append_soon(lease, entries(2), sync=True)
    assert not store.append_now(lease, entries(2), sync=False)  # nothing is added before it is certain
    await store.append(lease, entries(2), sync=True)
    assert await store.read("s") == entries(1, 2)


async def test_a_barrier_whose_log_was_closed_before_its_sync_is_not_acknowledged(store, lease):
    writer = store._writer
    with writer._thread_lock:  # the writer's thread waits for it
        stored = store.append_soon(lease, entries(2), sync=True)
        with writer._lock:
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

    monkeypatch.setattr(wal_sync, "sync_data", refuse)
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
        patched.setattr(wal_sync, "os", SimpleNamespace(close=close))
        wal.close()
    (descriptor,) = closed
    os.close(descriptor)
