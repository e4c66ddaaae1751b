"""What is there after a process was killed, a disk was full, a file was taken away."""

import itertools
import os

import apsw
import pytest

from perdure import StoreError, user
from perdure._core.values import faults
from perdure._stores.sqlite import connections as sqlite_access
from perdure.events import Custom, Entry, MessageAdded
from perdure.stores import Post, SqliteStore
from tests.seeds import SEED
from tests.small_disk import mounted, remount
from tests.stores.material import another_connection, child, entries


@pytest.fixture
def syncs():
    """The files that SQLite syncs, in order."""
    synced = []
    system = apsw.vfs_names()[0]

    class Files(apsw.VFS):
        def __init__(self):
            super().__init__("counted", system, makedefault=True)

        def xOpen(self, name, flags):  # noqa: N802 - apsw's name
            return File(system, name, flags)

    class File(apsw.VFSFile):
        def __init__(self, system, name, flags):
            whole = name.filename() if isinstance(name, apsw.URIFilename) else name
            self.ending = whole.rpartition("sessions.db")[2]
            super().__init__(system, name, flags)

        def xSync(self, flags):  # noqa: N802 - apsw's name
            synced.append(self.ending)
            super().xSync(flags)

    files = Files()
    yield synced
    files.unregister()


async def test_a_barrier_is_synced_with_all_before_it_and_a_plain_append_is_not(path, syncs):
    store = SqliteStore(path, vfs="counted")
    lease = await store.acquire("s")
    syncs.clear()
    await store.append(lease, entries(1), sync=False)
    assert store.append_now(lease, entries(2), sync=False)
    assert syncs == []
    await store.append(lease, entries(3), sync=True)
    assert syncs == ["-wal"]
    await store.append(lease, entries(4), sync=False)
    assert syncs == ["-wal"]
    await store.append(lease, entries(4), sync=True)  # there already, but not yet for certain
    assert syncs == ["-wal", "-wal"]
    await store.release(lease)
    syncs.clear()
    await store.delete("s")
    assert syncs == ["-wal", "-wal", "", "-wal"]  # nothing of it is left in the log, nor in the database
    await store.aclose()


@pytest.fixture
def failing():
    """Makes the next syncs fail: as many as it says."""
    left = {"-wal": 0}
    system = apsw.vfs_names()[0]

    class Files(apsw.VFS):
        def __init__(self):
            super().__init__("failing", system)

        def xOpen(self, name, flags):  # noqa: N802 - apsw's name
            return File(system, name, flags)

    class File(apsw.VFSFile):
        def __init__(self, system, name, flags):
            whole = name.filename() if isinstance(name, apsw.URIFilename) else name
            self.ending = whole.rpartition("sessions.db")[2]
            super().__init__(system, name, flags)

        def xSync(self, flags):  # noqa: N802 - apsw's name
            if left.get(self.ending, 0) > 0:
                left[self.ending] -= 1
                raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)
            super().xSync(flags)

    files = Files()
    yield left
    files.unregister()


async def test_after_a_sync_that_failed_everything_is_written_and_checked_again(path, failing, monkeypatch):
    store = SqliteStore(path, vfs="failing")
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=False)
    assert store._writer is not None
    first = store._writer._access.connection
    failing["-wal"] = 1
    with pytest.raises(StoreError, match=r"the disk reported an error.*open the store again"):
        await store.append(lease, entries(2), sync=True)
    assert (await store.read("s"))[:1] == entries(1)  # whether the second one is there, nobody can tell
    assert not store.append_now(lease, entries(2), sync=False)  # nothing is added before it is certain
    written_again = []
    again = sqlite_access.WriteConnection._write_wal_again

    def write_again(*each):
        written_again.append(1)
        again(*each)

    monkeypatch.setattr(sqlite_access.WriteConnection, "_write_wal_again", write_again)
    await store.append(lease, entries(2), sync=True)
    assert written_again == [1]
    assert store._writer._access.connection is not first
    assert store.append_now(lease, entries(3), sync=False)
    assert await store.read("s") == entries(1, 3)
    await store.aclose()


@pytest.fixture
def writes():
    """The bytes that are written to the write-ahead log, by their place, since it was last cleared."""
    written: dict[int, bytes] = {}
    system = apsw.vfs_names()[0]

    class Files(apsw.VFS):
        def __init__(self):
            super().__init__("written", system)

        def xOpen(self, name, flags):  # noqa: N802 - apsw's name
            return File(system, name, flags)

    class File(apsw.VFSFile):
        def __init__(self, system, name, flags):
            whole = name.filename() if isinstance(name, apsw.URIFilename) else name
            self.is_log = whole.endswith("-wal")
            super().__init__(system, name, flags)

        def xWrite(self, data, offset):  # noqa: N802 - apsw's name
            if self.is_log:
                written[offset] = bytes(data)
            super().xWrite(data, offset)

    files = Files()
    yield written
    files.unregister()


async def test_a_log_that_may_not_have_reached_the_disk_is_written_again_whole(path, writes):
    store = SqliteStore(path, vfs="written")
    await store.append(await store.acquire("s"), entries(1, 2_000), sync=True)
    left = path.with_name("sessions.db-wal").read_bytes()
    assert len(left) > 2 * sqlite_access._CHUNK  # so that it takes three steps
    writes.clear()
    access = sqlite_access.WriteConnection(str(path), "written", lambda: None)
    with access.use_with_timeout():
        assert b"".join([data for _, data in sorted(writes.items())]) == left
    assert path.with_name("sessions.db-wal").read_bytes() == left
    access.close()
    assert await store.read("s") == entries(1, 2_000)
    await store.aclose()


async def test_after_a_sync_that_failed_a_file_that_is_damaged_is_written_no_more(path, failing):
    store = SqliteStore(path, vfs="failing")
    other = await store.acquire("other")
    await store.append(other, entries(1, 2_000), sync=True)
    await store.aclose()
    store = SqliteStore(path, vfs="failing")
    lease = await store.acquire("s")
    failing["-wal"] = 1
    with pytest.raises(StoreError, match=r"the disk reported an error"):
        await store.append(lease, entries(1), sync=True)
    with path.open("r+b") as file:  # what is not read for an append, so that nothing but a check finds it
        file.seek(path.stat().st_size // 4096 // 2 * 4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(StoreError, match=r"(?s)is damaged since the disk failed .*: keep a copy, then restore"):
        await store.append(lease, entries(1), sync=True)
    with pytest.raises(StoreError, match="is damaged since the disk failed"):
        await store.aclose()  # the lease is not given back; it runs out


async def test_while_every_sync_fails_nothing_is_acknowledged_and_the_lease_can_be_given_back(path, failing):
    store = SqliteStore(path, vfs="failing")
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=True)
    failing["-wal"] = 10**9
    for _ in range(3):
        with pytest.raises(StoreError, match="the disk reported an error"):
            await store.append(lease, entries(2), sync=True)
    with pytest.raises(StoreError):
        await store.aclose()
    failing["-wal"] = 0
    again = SqliteStore(path, vfs="failing")
    lease = await again.acquire("s")
    await again.append(lease, entries(2), sync=True)
    assert await again.read("s") == entries(1, 2)
    await again.aclose()


@pytest.fixture
def armed():
    """Arms fault points for one test."""
    yield faults.arm
    faults.disarm()


async def append(store, lease, batch, *, sync):
    """As a driver does it."""
    if not store.append_now(lease, batch, sync=sync):
        await store.append(lease, batch, sync=sync)


@pytest.mark.parametrize("immediate", [True, False])
async def test_an_append_that_fails_before_the_commit_leaves_nothing(store, armed, immediate):
    lease = await store.acquire("s")
    armed({"store.append.before_commit": "raise@1"})
    with pytest.raises(faults.FaultInjected):
        await append(store, lease, entries(1), sync=not immediate)
    assert await store.read("s") == []
    await store.append(lease, entries(1), sync=True)


@pytest.mark.parametrize("immediate", [True, False])
async def test_an_append_that_fails_after_the_commit_can_be_repeated(store, armed, immediate):
    lease = await store.acquire("s")
    armed({"store.append.after_commit": "raise@1"})
    with pytest.raises(faults.FaultInjected):
        await append(store, lease, entries(1), sync=not immediate)
    assert await store.read("s") == entries(1)
    await store.append(lease, entries(1), sync=True)
    assert await store.read("s") == entries(1)


def test_whatever_was_acknowledged_survives_kill_9(path):
    """Twenty drivers, each killed while it appends, at random times and on both sides of a commit."""
    seed = str(SEED)
    with child("kill_rounds", path, 20, seed) as process:
        output, errors = process.communicate(timeout=50)
    assert process.returncode == 0, f"seed {seed}: {errors}"
    acknowledged = int(output)
    assert acknowledged > 20
    with another_connection(path) as connection:
        assert connection.pragma("integrity_check") == "ok"
        stored, head = connection.execute(
            "SELECT sum(last + 1 - first), max(head) FROM pack JOIN session ON session = session.key"
        ).get
    assert stored == head >= acknowledged, f"seed {seed}"


def test_a_forked_child_may_not_use_the_store_but_one_of_its_own(path):
    with child("fork", path) as process:
        output, errors = process.communicate(timeout=30)
    assert output.split() == ["0", "2"], errors
    with another_connection(path) as connection:
        assert connection.pragma("integrity_check") == "ok"


async def test_a_full_database_takes_nothing_and_goes_on_when_there_is_room(path, store):
    lease = await store.acquire("s")
    connection = store._writer._access.connection
    connection.execute("PRAGMA max_page_count = 40")
    large = [Entry(seq, 1.0, Custom("data", os.urandom(60_000).hex()), f"e-{seq}") for seq in (1, 2)]
    for append in (store.append(lease, large, sync=True), store.append(lease, large, sync=False)):
        with pytest.raises(StoreError, match=r"the disk is full.*make room"):
            await append
    assert not store.append_now(lease, large, sync=False)
    assert await store.read("s") == []
    assert connection.execute("PRAGMA synchronous").get == 1
    connection.execute("PRAGMA max_page_count = 10000")
    await store.append(lease, large, sync=True)
    assert await store.read("s") == large


@pytest.fixture
def small_disk(tmp_path):
    """A disk of half a megabyte."""
    with mounted(tmp_path, "512k") as place:
        yield place


async def test_on_a_full_disk_what_was_acknowledged_stays(small_disk):
    store = SqliteStore(small_disk / "sessions.db")
    lease = await store.acquire("s")
    acknowledged = []

    async def append_for_ever():
        for seq in itertools.count(1):
            batch = [Entry(seq, 1.0, Custom("data", "x" * 2000), f"e-{seq}")]
            await append(store, lease, batch, sync=seq % 3 == 0)
            acknowledged.extend(batch)

    with pytest.raises(StoreError, match="disk"):
        await append_for_ever()
    assert len(acknowledged) > 10
    assert await store.read("s") == acknowledged
    remount(small_disk, "size=4m")
    more = entries(len(acknowledged) + 1)
    await store.append(lease, more, sync=True)
    assert await store.read("s") == [*acknowledged, *more]
    await store.aclose()


async def test_on_a_disk_that_can_only_be_read_a_store_is_read_and_searched(small_disk, store_at):
    path = small_disk / "sessions.db"
    store = store_at(path)
    lease = await store.acquire("s")
    await store.append(lease, [Entry(1, 1.0, MessageAdded(user("rain in Spain")), "e-1"), *entries(2, 3)], sync=True)
    await store.post("s", Post("p", "steer"))
    await store.fork("s", "fork", at=2)
    assert len(await store.search("rain")) == 1
    said = [await store.list(), await store.read("s"), await store.posts("s"), await store.forks("s")]
    await store.aclose()
    remount(small_disk, "ro")
    reader = store_at(path)
    assert [await reader.list(), await reader.read("s"), await reader.posts("s"), await reader.forks("s")] == said
    assert len(await reader.search("rain")) == 1
    assert (await reader.size()).total_bytes > 0
    for write in (reader.acquire("s"), reader.post("s", Post("q", "steer")), reader.fork("s", "t"), reader.delete("s")):
        with pytest.raises(StoreError, match="can only be read here: to write to it, check the permissions"):
            await write
    assert [await reader.list(), await reader.read("s"), await reader.posts("s"), await reader.forks("s")] == said
    with pytest.raises(StoreError, match="choose another path"):
        await store_at(small_disk / "new.db").acquire("s")
    remount(small_disk, "rw")
    with another_connection(path) as connection:
        connection.execute("UPDATE session SET title = 'other' WHERE id = 's'")
    assert (await reader.info("s")).title == "other"  # what it was when it was opened does not count
    await store.acquire("s")  # and now it can be written


async def test_what_cannot_be_read_as_it_is_says_what_to_do(small_disk, store_at, monkeypatch):
    path = small_disk / "sessions.db"
    store = store_at(path)
    await store.append(await store.acquire("s"), [Entry(1, 1.0, MessageAdded(user("rain")), "e-1")], sync=True)
    torn = {place.name: place.read_bytes() for place in small_disk.iterdir()}
    await store.aclose()
    remount(small_disk, "ro")
    with pytest.raises(StoreError, match=r"search index .* cannot be made: Read-only file system"):
        await store_at(path).search("rain")
    remount(small_disk, "rw")
    for name, content in torn.items():
        (small_disk / name).write_bytes(content)
    (small_disk / "empty.db").write_bytes(b"")
    remount(small_disk, "ro")
    with pytest.raises(StoreError, match="was not closed in good order or is in use: copy it to where it can be"):
        await store_at(path).read("s")
    with pytest.raises(StoreError, match="is empty, and nothing can be written here: choose another path"):
        await store_at(small_disk / "empty.db").read("s")
    remount(small_disk, "rw")


@pytest.mark.parametrize("fate", ["deleted", "replaced"])
async def test_a_file_that_is_taken_away_is_not_written_on(path, store, fate):
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=True)
    for place in path.parent.iterdir():
        place.unlink()
    if fate == "replaced":
        path.touch()
    with pytest.raises(StoreError, match="was deleted or replaced while it was open"):
        await store.append(lease, entries(2), sync=True)
    assert await store.read("s") == []
