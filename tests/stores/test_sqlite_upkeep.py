"""The size of an SQLite file, and backups: made while it is in use, restored, and opened."""

import asyncio
import stat

import pytest

from perdure.core.error import ConfigError, StoreError
from perdure.core.event import Custom, Entry
from perdure.core.store import MaintainableStore, Post
from perdure.stores.sqlite.maintenance import restore, verify
from perdure.stores.sqlite.store import SqliteStore
from tests.stores.material import another_connection, entries


async def filled(store, session_id="s", count=100):
    lease = await store.acquire(session_id)
    log = [Entry(seq, 1.0, Custom("data", f"{seq} " + "x" * 1000), f"e-{seq}") for seq in range(1, count + 1)]
    await store.append(lease, log, sync=True)
    return lease, log


async def test_the_size_tells_what_each_session_takes_of_its_own(path, store: SqliteStore):
    assert isinstance(store, MaintainableStore)
    lease, _ = await filled(store)
    await store.fork("s", "fork")
    await store.append(lease, entries(101), sync=False)
    size = await store.size()
    assert size.total_bytes >= path.stat().st_size
    assert 100_000 < size.sessions["s"] < 130_000
    assert size.sessions["fork"] == 0
    assert set(size.sessions) == {"s", "fork"}


async def test_vacuum_gives_back_what_was_deleted(path, store):
    await filled(store, "kept", 10)
    lease, _ = await filled(store, "gone", 500)
    await store.release(lease)
    await store.delete("gone")
    before = await store.size()
    assert before.free_bytes > 400_000
    await store.vacuum()
    after = await store.size()
    assert after.free_bytes == 0
    assert path.stat().st_size < before.total_bytes - 400_000
    assert len(await store.read("kept")) == 10


async def test_a_backup_can_be_made_while_the_store_is_in_use_and_opened_where_it_lies(tmp_path, store, store_at):
    lease, log = await filled(store)
    await store.post("s", Post("p", "steer", "later"))
    backup = tmp_path / "backups" / "monday.db"
    work = asyncio.ensure_future(store.backup(str(backup)))
    more = entries(101)
    await store.append(lease, more, sync=True)
    await work
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert [place.name for place in backup.parent.iterdir()] == ["monday.db"]
    verify(backup)
    copy = store_at(backup)
    assert (await copy.read("s"))[:100] == log
    assert await copy.posts("s") == [Post("p", "steer", "later")]


async def test_a_backup_replaces_nothing(path, store):
    await filled(store)
    taken = path.with_name("taken")
    taken.write_text("mine")
    for place in (taken, path):
        with pytest.raises(ConfigError, match="exists already, and has been left as it is"):
            await store.backup(str(place))
    assert taken.read_text() == "mine"
    with pytest.raises(StoreError, match="cannot be written"):
        await store.backup("/proc/backup.db")


async def test_a_backup_is_restored_where_there_is_no_store(tmp_path, path, store, store_at):
    _, log = await filled(store)
    await store.backup(str(tmp_path / "backup.db"))
    with pytest.raises(ConfigError, match="exists already"):
        restore(tmp_path / "backup.db", path)
    restore(tmp_path / "backup.db", tmp_path / "new" / "sessions.db")
    restored = store_at(tmp_path / "new" / "sessions.db")
    assert await restored.read("s") == log
    await restored.append(await restored.acquire("s"), entries(101), sync=True)


async def test_only_a_store_in_good_order_is_restored(tmp_path, path, store):
    await filled(store)
    with pytest.raises(StoreError, match="is in use, or was not closed"):
        restore(path, tmp_path / "new.db")
    await store.aclose()
    good = path.read_bytes()
    bad = tmp_path / "bad.db"
    for content, problem in (
        (good[:8192] + b"\xa5" * (len(good) - 8192), "damaged"),
        (b"no database at all" * 100, "no SQLite database"),
        (b"", "no store of perdure"),
    ):
        bad.write_bytes(content)
        with pytest.raises(StoreError, match=problem):
            restore(bad, tmp_path / "new.db")
    bad.write_bytes(good)
    with another_connection(bad) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="upgrade perdure"):
        verify(bad)
    with pytest.raises(StoreError, match="cannot be opened"):
        verify(tmp_path / "missing.db")
    assert not (tmp_path / "new.db").exists()
