"""The file of an SQLite store: how it is made and opened, and which files are refused."""

import os
import stat
import subprocess
import sys
import threading

import pytest

from perdure.core.error import ConfigError, StoreError
from perdure.stores.sqlite.schema import FORMAT
from perdure.stores.sqlite.store import SqliteStore
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
    assert set(modes) == {"sessions.db", "sessions.db-wal", "sessions.db-shm"}
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
    assert sorted([thread.name for thread in mine]) == ["perdure-sqlite", "perdure-sqlite-read_0"]
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


async def test_a_file_of_a_newer_format_is_refused(path, store):
    await store.acquire("s")
    await store.aclose()
    with another_connection(path) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    with pytest.raises(StoreError, match=r"has format 7, and this version knows 6 at most: upgrade perdure"):
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
    monkeypatch.setattr("perdure.stores.private_paths.find_network_file_system", lambda _: "nfs4")
    with pytest.raises(ConfigError, match=r"network file system \(nfs4\).*local disk"):
        await store_at(path).acquire("s")
    assert not path.exists()
