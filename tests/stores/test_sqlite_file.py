"""The file of an SQLite store: how it is made and opened, and which files are refused."""

import asyncio
import os
import stat
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from perdure import ConfigError, StoreError
from perdure._stores.sqlite import database, file_system
from perdure._stores.sqlite.database import to_store_error
from perdure._stores.sqlite.driver import Connection
from perdure._stores.sqlite.format.schema import FORMAT
from perdure._stores.sqlite.maintenance import verify
from perdure.stores import Conflict, SqliteStore
from tests.stores.material import another_connection, entries


def test_making_a_store_touches_nothing_and_loads_no_database(path):
    program = f"import sys, perdure.stores\nperdure.stores.open_store('sqlite:{path}')\nprint('apsw' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert not path.exists()


async def test_the_file_and_a_new_folder_are_for_their_owner_alone(tmp_path):
    path = tmp_path / "folder" / "sessions.db"
    before = os.umask(0)
    try:
        store = SqliteStore(path)
        await store.append(await store.acquire("s"), entries(1), sync=True)
        modes = {place.name: stat.S_IMODE(place.stat().st_mode) for place in tmp_path.rglob("*")}
        await store.aclose()
    finally:
        os.umask(before)
    assert modes.pop("folder") == 0o700
    assert {name.partition("-process-")[0] for name in modes} == {"sessions.db", "sessions.db-wal", "sessions.db-shm"}
    assert set(modes.values()) == {0o600}


async def test_what_was_stored_is_there_when_the_file_is_opened_again(path):
    store = SqliteStore(path)
    await store.append(await store.acquire("s"), entries(1, 3), sync=False)
    await store.aclose()
    assert [place.name for place in path.parent.iterdir()] == ["sessions.db"]
    again = SqliteStore(str(path))
    assert await again.read("s") == entries(1, 3)
    await again.aclose()


async def test_a_closed_store_opens_again_at_the_next_use(store):
    lease = await store.acquire("s")
    await store.aclose()
    await store.aclose()
    assert (await store.acquire("s")).fence == lease.fence + 1


async def test_a_relative_path_stays_where_it_was_when_the_store_was_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("sessions.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await store.acquire("s")
    await store.aclose()
    assert (tmp_path / "sessions.db").exists()


async def test_no_thread_is_left_when_the_last_store_is_closed(path):
    before = threading.enumerate()
    first, second = SqliteStore(path), SqliteStore(path)
    await first.acquire("a")
    await second.acquire("b")
    await first.aclose()
    assert await second.read("b") == []
    mine = [thread for thread in threading.enumerate() if thread not in before]
    assert sorted([thread.name for thread in mine]) == ["perdure-sqlite", "perdure-sqlite-read"]
    await second.aclose()
    for thread in mine:
        thread.join(30)
    assert not any(thread.is_alive() for thread in mine)


# -- files that are not ours -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"x", b"hello", b"hello\n" * 1000, b"\0" * 8192, b"SQLite format 3\0" + b"\xff" * 999]
)
async def test_a_file_that_is_no_database_is_left_as_it_is(store_at, path, content):
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"left as it is|damaged"):
        await store_at(path).acquire("s")
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


async def test_an_empty_file_is_taken(path, store):
    path.touch()
    await store.acquire("s")


async def test_the_database_of_another_program_is_left_as_it_is(store_at, path):
    with another_connection(path) as connection:
        connection.execute("CREATE TABLE customers(name)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="belongs to another program"):
        await store_at(path).acquire("s")
    assert path.read_bytes() == before


@pytest.mark.parametrize("format_number", [1, 2, 6])
async def test_a_file_from_before_the_first_release_is_refused_and_left_as_it_is(path, store, format_number):
    await store.append(await store.acquire("s"), entries(1), sync=True)
    await store.aclose()
    with another_connection(path) as connection:
        connection.execute(f"PRAGMA application_id = 0x50524455; PRAGMA user_version = {format_number}")
    before = path.read_bytes()
    for refused in (store.read("s"), store.acquire("s")):
        with pytest.raises(StoreError, match="or to a version of perdure before the first release, and has been left"):
            await refused
    with pytest.raises(StoreError, match="is no store of perdure, or one of a version before the first release"):
        verify(path)
    assert path.read_bytes() == before


async def test_a_file_of_a_newer_format_is_refused(path, store):
    await store.acquire("s")
    await store.aclose()
    with another_connection(path) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    with pytest.raises(StoreError, match=r"has format 3, and this version knows 2 at most: upgrade perdure"):
        await store.acquire("s")


async def test_a_damaged_database_is_reported(path, store):
    lease = await store.acquire("s")
    await store.append(lease, entries(1, 200), sync=True)
    await store.aclose()
    content = path.read_bytes()
    path.write_bytes(content[:8192] + b"\xa5" * (len(content) - 8192))
    with pytest.raises(StoreError, match="damaged"):
        await store.read("s")


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder in which not even root makes files, such as /proc")
@pytest.mark.parametrize("place", ["/proc/sessions.db", "/proc/new/sessions.db", "/dev/null/sessions.db"])
async def test_a_place_that_cannot_be_written_is_named(store_at, place):
    with pytest.raises(StoreError, match=rf"{place}' cannot be made: .*choose another path"):
        await store_at(place).acquire("s")


async def test_a_folder_and_what_is_no_file_are_refused(store_at, tmp_path):
    with pytest.raises(ConfigError, match=r"is a folder: pass the path of a file, such as '.*/sessions.db'"):
        await store_at(tmp_path).acquire("s")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a regular file"):
        await store_at(tmp_path / "pipe").acquire("s")


async def test_a_network_file_system_is_refused(store_at, path, monkeypatch):
    monkeypatch.setattr("perdure._stores.files.find_network_file_system", lambda _: "nfs4")
    with pytest.raises(ConfigError, match=r"network file system \(nfs4\).*local disk"):
        await store_at(path).acquire("s")
    assert not path.exists()


# -- what SQLite reports -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (apsw.FullError, "the disk is full, and nothing of this was stored: make room, then go on"),
        (apsw.IOError, "the disk reported an error: check the disk and its free space, then open the store again"),
        (apsw.ReadOnlyError, "it cannot be written: check the permissions of the file and its folder, and the disk"),
        (apsw.CantOpenError, "it cannot be opened: check the permissions of the file and its folder, and the disk"),
        (apsw.PermissionsError, "it cannot be opened: check the permissions of the file and its folder, and the disk"),
        (apsw.CorruptError, "it is damaged: keep a copy, then restore a backup or try `sqlite3 FILE .recover`"),
        (apsw.NotADBError, "it is no SQLite database, and has been left as it is: choose another path"),
        (apsw.TooBigError, "an entry is larger than SQLite can hold (1 GB): keep such data in a file of its own"),
        (apsw.SQLError, "unexpected error; please report it"),
    ],
)
def test_an_error_of_sqlite_is_told_with_advice(kind: type[apsw.Error], advice: str) -> None:
    error = to_store_error(kind("words of SQLite"), "x.db")
    assert type(error) is StoreError
    assert str(error) == f"the store 'x.db' failed: {advice} ({kind.__name__}: words of SQLite)"


def test_a_constraint_a_wrong_checksum_and_a_lock_are_told_as_what_they_mean() -> None:
    conflict = to_store_error(apsw.ConstraintError("UNIQUE"), "x.db")
    assert type(conflict) is Conflict
    text = "the store 'x.db' already holds one of these entries, elsewhere in the log: read it again"
    assert str(conflict) == text
    busy = to_store_error(apsw.BusyError("database is locked"), "x.db")
    assert str(busy) == (
        "the store 'x.db' failed: another process kept it locked for 30 s: continue that process if it is stopped, or "
        "end it, then try again (BusyError: database is locked)"
    )
    wrong: Any = apsw.IOError("disk I/O error")
    wrong.extendedresult = apsw.SQLITE_IOERR_DATA
    assert "'x.db' is damaged (the checksum of a page is wrong)" in str(to_store_error(wrong, "x.db"))


@pytest.mark.parametrize(("size", "reason"), [(511, "it is too small to be one"), (512, "file is not a database")])
async def test_what_is_smaller_than_any_database_is_not_overwritten(
    store_at: Any, path: Path, size: int, reason: str
) -> None:
    content = b"x" * size
    await asyncio.to_thread(path.write_bytes, content)
    with pytest.raises(StoreError, match=rf"choose another path \(NotADBError: {reason}\)"):
        await store_at(path).acquire("s")
    assert await asyncio.to_thread(path.read_bytes) == content


def test_a_file_that_cannot_be_opened_to_read_is_named(path: Path) -> None:
    with pytest.raises(StoreError, match=rf"^the store '{path}' failed: it cannot be opened"):
        database.open_read_only(str(path))
    assert not path.exists()


def test_a_file_that_sqlite_can_only_read_is_not_opened_to_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database.open_to_write(str(path)).close()
    connect = database.connect
    opened = []

    def connect_to_read(path: str, vfs: str | None, *, flags: int) -> Connection:
        assert flags == apsw.SQLITE_OPEN_READWRITE
        opened.append(connect(path, vfs, flags=apsw.SQLITE_OPEN_READONLY))
        return opened[-1]

    monkeypatch.setattr(database, "connect", connect_to_read)
    with pytest.raises(StoreError, match=r"it cannot be written: .* \(ReadOnlyError: it can only be read\)$"):
        database.open_to_write(str(path))
    with pytest.raises(apsw.ConnectionClosedError):
        opened[0].execute("SELECT 1")


def test_a_database_without_a_write_ahead_log_is_refused() -> None:
    with another_connection(":memory:") as connection:
        with pytest.raises(StoreError) as refused:
            database._enable_wal(connection, "x.db")
        text = "'x.db' lies where SQLite can keep no log (mode 'memory'): choose another path"
        assert str(refused.value) == text


@pytest.mark.parametrize(("attempts", "is_done"), [(6, True), (7, False)])
def test_a_locked_file_is_tried_again_for_half_a_minute(
    monkeypatch: pytest.MonkeyPatch, attempts: int, is_done: bool
) -> None:
    now, tried = [100.0], []

    def work() -> str:
        tried.append(now[0])
        now[0] += 5.0  # as long as it waits for the lock itself
        if len(tried) < attempts:
            raise apsw.BusyError("database is locked")
        return "done"

    def pause(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(database, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=pause))
    if is_done:
        assert database.retry_while_busy(work) == "done"
    else:
        with pytest.raises(apsw.BusyError):
            database.retry_while_busy(work)
    assert len(tried) == 6


def test_what_fails_in_a_transaction_is_undone_and_what_does_not_is_returned() -> None:
    with another_connection(":memory:") as connection:
        connection.execute("CREATE TABLE words(word)")
        add = "INSERT INTO words VALUES('one')"
        assert database.run_in_transaction(connection, lambda inside: inside.execute(add).fetchall()) == []

        def fail(inside: Any, *, ended: bool) -> None:
            inside.execute(add)
            if ended:
                inside.execute("ROLLBACK")
            raise ZeroDivisionError

        for ended in (False, True):
            with pytest.raises(ZeroDivisionError):
                database.run_in_transaction(connection, partial(fail, ended=ended))
            assert not connection.in_transaction
        assert connection.execute("SELECT count(*) FROM words").get == 1


def test_a_file_that_is_not_there_has_no_identity_and_no_version(path: Path) -> None:
    assert database.file_identity(str(path)) == (0, 0)
    assert file_system.get_file_version(str(path)) == (0, 0, 0, 0, 0)
    path.write_bytes(b"12345")
    path.with_name("sessions.db-wal").write_bytes(b"123")
    status = path.stat()
    assert database.file_identity(str(path)) == (status.st_dev, status.st_ino)
    version = (status.st_dev, status.st_ino, 5, status.st_mtime_ns, 3)
    assert file_system.get_file_version(str(path)) == version


# -- how it is opened --------------------------------------------------------------------------------------------------


def test_a_connection_to_write_waits_for_others_and_keeps_no_trace_of_what_was_deleted(path: Path) -> None:
    connection: Any = database.open_to_write(str(path))
    try:
        asked = ("busy_timeout", "journal_mode", "synchronous", "fullfsync", "checkpoint_fullfsync", "foreign_keys")
        more = ("trusted_schema", "cell_size_check", "secure_delete", "journal_size_limit")
        assert {name: connection.pragma(name) for name in (*asked, *more)} == {
            "busy_timeout": 30_000,
            "journal_mode": "wal",
            "synchronous": 1,
            "fullfsync": 1,
            "checkpoint_fullfsync": 1,
            "foreign_keys": 1,
            "trusted_schema": 0,
            "cell_size_check": 1,
            "secure_delete": 1,
            "journal_size_limit": 67_108_864,
        }
        for setting in (apsw.SQLITE_DBCONFIG_DEFENSIVE, apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE):
            assert connection.config(setting, -1) == 1
    finally:
        connection.close()
    reader: Any = database.open_read_only(str(path))
    try:
        names = ("busy_timeout", "trusted_schema", "cell_size_check", "cache_size")
        assert [reader.pragma(name) for name in names] == [30_000, 0, 1, -32_768]
        assert reader.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, -1) == 1
        assert reader.readonly("main")
    finally:
        reader.close()


def test_the_log_beside_the_file_goes_with_a_checkpoint_and_stays_without_one(path: Path) -> None:
    log = path.with_name("sessions.db-wal")
    connection = database.open_to_write(str(path))
    connection.execute("INSERT INTO session(id, fence, created_at, updated_at) VALUES('s', 1, 1.0, 1.0)")
    connection.close()
    assert log.stat().st_size > 0
    connection = database.open_to_write(str(path))
    assert connection.execute("SELECT id FROM session").get == "s"
    database.close_and_checkpoint(connection)
    assert not log.exists()
