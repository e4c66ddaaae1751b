"""The size of an SQLite file, and backups: made while it is in use, restored, and opened."""

import asyncio
import re
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure import ConfigError, StoreError, user
from perdure._stores.sqlite.format.pages import has_checksums, write_checksums
from perdure._stores.sqlite.format.schema import FORMAT, UNCHECKED_FORMAT
from perdure._stores.sqlite.maintenance import restore, verify
from perdure.events import Custom, Entry, MessageAdded
from perdure.stores import MaintainableStore, Post, SqliteStore, StoreSize
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


@pytest.fixture
async def backup(tmp_path: Path, store: SqliteStore) -> Path:
    """A backup of a store with an entry that has a long text, and a post. The store is closed."""
    lease, _ = await filled(store, count=3)
    await store.append(lease, [Entry(4, 1.0, MessageAdded(user("long " * 9_000)), "long")], sync=True)
    await store.post("s", Post("p", "steer", "later"))
    await store.backup(str(tmp_path / "backup.db"))
    await store.aclose()
    return tmp_path / "backup.db"


def change_unchecked(path: Path, statement: str) -> None:
    """Change a file as if it had been made where SQLite cannot write checksums."""
    with another_connection(path) as connection:
        connection.execute(f"PRAGMA foreign_keys = OFF; {statement}; PRAGMA user_version = {UNCHECKED_FORMAT}")


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE session SET head = head + 1", "entries of session 's' above 4 are missing: use another backup"),
        ("DELETE FROM pack WHERE first = 1", "entries of session 's' above 0 are missing: use another backup"),
        ("DELETE FROM pack WHERE first > 1", "entries of session 's' above 3 are missing: use another backup"),
        ("UPDATE post SET body = CAST('{' AS BLOB)", "the post 'p' is damaged (Input data was truncated): use another"),
        ("DELETE FROM blob", "a long text is missing"),
    ],
)
def test_without_checksums_every_entry_and_post_of_a_file_is_read(backup: Path, statement: str, problem: str) -> None:
    change_unchecked(backup, statement)
    with pytest.raises(StoreError, match=re.escape(problem)):
        verify(backup)
    with pytest.raises(StoreError, match=re.escape(problem)):
        restore(backup, backup.with_name("new.db"))
    assert not backup.with_name("new.db").exists()


def test_a_row_that_belongs_to_no_session_is_damage(backup: Path) -> None:
    with another_connection(backup) as connection:
        connection.execute("PRAGMA foreign_keys = OFF; UPDATE label SET session = 99; UPDATE pack SET session = 99")
    with pytest.raises(StoreError) as damaged:
        verify(backup)
    text = str(damaged.value)
    assert text.startswith(f"{str(backup)!r} is damaged ([('pack', ")
    assert text.endswith(": use another backup, or try `sqlite3 FILE .recover`")


def test_the_warning_about_missing_checksums_names_the_file(backup: Path, caplog: pytest.LogCaptureFixture) -> None:
    verify(backup)
    assert caplog.messages == []
    change_unchecked(backup, "UPDATE session SET head = head")
    verify(backup)
    text = "because it was made where SQLite cannot write them: it can be read completely, but that no byte of it has"
    assert caplog.messages == [f"{str(backup)!r} has no checksums, {text} changed is not verified"]


async def test_a_damaged_store_cannot_be_backed_up(path: Any, store: SqliteStore) -> None:
    await filled(store)
    await store.aclose()
    content = path.read_bytes()
    path.write_bytes(content[:8192] + b"\xa5" * (len(content) - 8192))
    backup = path.with_name("backup.db")
    with pytest.raises(StoreError, match=re.escape(f"the store {str(path)!r} ")):
        await store.backup(str(backup))
    assert not backup.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder in which not even root makes files, such as /proc")
def test_a_backup_is_not_restored_to_a_place_that_cannot_be_written(backup: Path) -> None:
    with pytest.raises(StoreError) as refused:
        restore(backup, "/proc/new.db")
    text = f"{str(backup)!r} cannot be copied to '/proc/new.db': No such file or directory; choose another path"
    assert str(refused.value) == text


def test_a_copy_that_a_bad_disk_has_changed_is_not_left_behind(backup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_checksums_and_fail(place: str, vfs: str | None) -> None:
        write_checksums(place, vfs)
        content = bytearray(Path(place).read_bytes())
        content[-100] ^= 1
        Path(place).write_bytes(content)

    monkeypatch.setattr("perdure._stores.sqlite.maintenance.write_checksums", write_checksums_and_fail)
    with pytest.raises(StoreError, match=r"damaged \(the checksum of page \d+ is wrong\)"):
        restore(backup, backup.with_name("new.db"))
    assert sorted(place.name for place in backup.parent.iterdir()) == ["backup.db", "sessions.db"]


def test_the_first_page_with_a_wrong_checksum_is_named(backup: Path) -> None:
    content = bytearray(backup.read_bytes())
    pages = len(content) // 4096
    for page in (pages, pages - 1):
        content[page * 4096 - 100] ^= 1
        backup.write_bytes(content)
        with pytest.raises(StoreError) as damaged:
            verify(backup)
        assert str(damaged.value) == (
            f"the store {str(backup)!r} is damaged (the checksum of page {page} is wrong), and what it says cannot be "
            "trusted: keep a copy, then restore a backup or try `sqlite3 FILE .recover`"
        )


async def test_the_size_counts_every_file_and_the_bytes_of_each_session(path: Path, store: SqliteStore) -> None:
    await filled(store, count=3)
    await store.acquire("empty")
    size = await store.size()
    with another_connection(path) as connection:
        packed = connection.execute("SELECT sum(length(heads) + length(body)) FROM pack").get
    files = sum(place.stat().st_size for place in path.parent.iterdir())
    assert size == StoreSize(files, 0, 0, {"s": packed})


def test_a_backup_is_not_restored_to_a_folder(backup: Path) -> None:
    folder = backup.parent
    with pytest.raises(ConfigError) as refused:
        restore(backup, folder)
    inside = str(folder / "sessions.db")
    assert str(refused.value) == f"{str(folder)!r} is a folder: pass the path of a file, such as {inside!r}"


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (
            "PRAGMA application_id = 7",
            "{path!r} is no store of perdure, or one of a version before the first release: choose another file",
        ),
        ("PRAGMA user_version = 7", "{path!r} has format 7, and this version knows 2 at most: upgrade perdure"),
    ],
)
def test_a_file_that_is_no_store_or_a_newer_one_is_told_with_its_path(
    backup: Path, statement: str, problem: str
) -> None:
    verify(backup)
    with another_connection(backup) as connection:
        connection.execute(statement)
    with pytest.raises(StoreError) as refused:
        verify(backup)
    assert str(refused.value) == problem.format(path=str(backup))


def test_the_copy_of_a_file_without_checksums_has_them(backup: Path, caplog: pytest.LogCaptureFixture) -> None:
    change_unchecked(backup, "UPDATE session SET head = head")
    copy = backup.with_name("copy.db")
    restore(backup, copy)
    warning = (
        f"{str(backup)!r} has no checksums, because it was made where SQLite cannot write them: it can be read "
        "completely, but that no byte of it has changed is not verified"
    )
    assert caplog.messages == [warning]
    with another_connection(copy) as connection:
        assert (connection.pragma("user_version"), has_checksums(connection)) == (FORMAT, True)
    content = bytearray(copy.read_bytes())
    content[-100] ^= 1
    copy.write_bytes(content)
    with pytest.raises(StoreError, match="is wrong"):
        verify(copy)
