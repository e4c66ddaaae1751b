"""The store in an SQLite file: its contract, its leases, and what is there after whatever may happen."""

import asyncio
import os
import re
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec
import pytest

from tests.architecture.source import ROOT
from windlass.core import faults
from windlass.core.error import Conflict, SessionBusy, StoreError, UnreadableEntry
from windlass.core.event import Custom, Entry, MessageAdded, Unknown
from windlass.core.message import user
from windlass.core.store import Lease
from windlass.stores import sqlite_file
from windlass.stores.holder import this_process
from windlass.stores.sqlite import SqliteStore
from windlass.testing.contracts import check_store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sessions.db"


@pytest.fixture
async def store(path):
    store = SqliteStore(path)
    yield store
    await store.aclose()


def entries(first: int, count: int = 1) -> list[Entry]:
    return [Entry(seq, 1.0, Custom("data", seq), f"e-{seq}") for seq in range(first, first + count)]


@contextmanager
def child(*arguments):
    """One of the programs in children.py."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.stores.children", *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def another_connection(path):
    """As another process would have it."""
    connection = apsw.Connection(str(path))
    try:
        yield connection
    finally:
        connection.close()


# -- the contract ------------------------------------------------------------------------------------------------------


async def test_it_keeps_the_contract(path):
    await check_store(lambda: SqliteStore(path))


async def test_it_keeps_the_contract_while_another_store_has_the_file_open(path, store):
    await store.acquire("other")
    await check_store(lambda: SqliteStore(path))
    with pytest.raises(SessionBusy):
        await store.acquire("other")


# -- the file ----------------------------------------------------------------------------------------------------------


def test_making_a_store_touches_nothing_and_loads_no_database(path):
    program = "import sys; from windlass.stores import open_store; open_store(sys.argv[1]); print('apsw' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, f"sqlite:{path}"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert not path.exists()


async def test_the_file_and_new_folders_are_for_their_owner_alone(tmp_path):
    path = tmp_path / "new" / "folder" / "sessions.db"
    before = os.umask(0)
    try:
        store = SqliteStore(path)
        await store.append(await store.acquire("s"), entries(1), sync=True)
        modes = {place.name: stat.S_IMODE(place.stat().st_mode) for place in (tmp_path / "new").rglob("*")}
        await store.aclose()
    finally:
        os.umask(before)
    assert modes.pop("folder") == 0o700
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
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
    first, second = SqliteStore(path), SqliteStore(path)
    await first.acquire("a")
    await second.acquire("b")
    await first.aclose()
    assert await second.read("b") == []
    mine = [thread for thread in threading.enumerate() if thread.name.startswith("windlass-sqlite")]
    await second.aclose()
    for thread in mine:
        thread.join(10)
    assert not any(thread.is_alive() for thread in mine)


# -- leases ------------------------------------------------------------------------------------------------------------


async def test_two_stores_of_one_process_know_of_each_others_leases(path, store):
    await store.acquire("s")
    other = SqliteStore(path)
    with pytest.raises(SessionBusy, match=f"'s' is being driven by process {os.getpid()} on .* since 20"):
        await other.acquire("s")
    with pytest.raises(SessionBusy):
        await other.delete("s")
    await other.aclose()


async def test_closing_a_store_gives_its_leases_back_and_no_others(path, store):
    other = SqliteStore(path)
    await store.acquire("kept")
    await other.acquire("freed")
    await other.aclose()
    await store.acquire("freed")
    with pytest.raises(SessionBusy):
        await store.acquire("kept")


@pytest.mark.parametrize(
    ("change", "is_free"),
    [
        ({"pid": os.getppid()}, True),  # a living process, but not the one that started at that time
        ({"started": "0"}, True),
        ({"started": ""}, True),
        ({"machine": "another boot"}, True),
        ({"since": 0.0}, True),  # ourselves, but the lease is not out: we were replaced by exec
    ],
)
async def test_a_session_whose_holder_is_gone_is_taken_over(path, store, change, is_free):
    lease = await store.acquire("s")
    await store.release(lease)
    holder = msgspec.structs.replace(this_process(0.0), **change)
    with another_connection(path) as connection:
        connection.execute("UPDATE session SET holder = ?", (msgspec.json.encode(holder).decode(),))
    assert (await store.acquire("s")).fence == lease.fence + 1


async def test_a_holder_that_cannot_be_read_is_nobody(path, store):
    await store.release(await store.acquire("s"))
    with another_connection(path) as connection:
        connection.execute("UPDATE session SET holder = 'scribble'")
    await store.acquire("s")


async def test_a_driver_that_was_replaced_cannot_give_the_new_lease_back(path, store):
    old = await store.acquire("s")
    with another_connection(path) as connection:
        connection.execute("UPDATE session SET fence = fence + 1")
    await store.release(old)
    with another_connection(path) as connection:
        assert connection.execute("SELECT holder IS NULL FROM session").get == 0


async def test_an_acquire_that_is_cancelled_holds_nothing(path, store):
    await store.read("s")
    with another_connection(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        task = asyncio.ensure_future(store.acquire("s"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        connection.execute("ROLLBACK")
    with pytest.raises(asyncio.CancelledError):
        await task
    await store.acquire("s")


def test_of_several_processes_one_gets_each_session(path):
    """They also make the file at the same time."""
    with child("race", path, 20) as one, child("race", path, 20) as two, child("race", path, 20) as three:
        children = (one, two, three)
        for process in children:
            assert process.stdout.readline() == "ready\n", process.stderr.read()
        for process in children:
            process.stdin.write("go\n")
            process.stdin.flush()
        won = []
        for process in children:
            while (line := process.stdout.readline()) != "done\n":
                assert line, process.stderr.read()
                won.append(line.strip())
        assert sorted(won) == sorted(f"s{number}" for number in range(20))
        busy = asyncio.run(refusal(path, "s0"))
    assert re.search(r"process (\d+)", busy)[1] in {str(process.pid) for process in children}


async def refusal(path, session_id: str) -> str:
    store = SqliteStore(path)
    with pytest.raises(SessionBusy) as caught:
        await store.acquire(session_id)
    with pytest.raises(SessionBusy):
        await store.delete(session_id)
    await store.aclose()
    return str(caught.value)


# -- appends -----------------------------------------------------------------------------------------------------------


async def test_a_known_entry_is_not_added_at_a_new_number(store):
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=False)
    with pytest.raises(Conflict, match="elsewhere in the log"):
        await store.append(lease, [Entry(2, 1.0, Custom("data"), "e-1")], sync=False)
    assert await store.read("s") == entries(1)


async def test_a_plain_append_is_immediate_once_the_file_is_open(path, store):
    assert not store.append_now(Lease("s", 1), entries(1), sync=False)
    lease = await store.acquire("s")
    assert store.append_now(lease, [], sync=True)
    assert store.append_now(lease, entries(1), sync=False)
    assert not store.append_now(lease, entries(2), sync=True)
    assert await store.read("s") == entries(1)


async def test_while_another_process_writes_an_append_waits_for_it(path, store):
    lease = await store.acquire("s")
    with another_connection(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        assert not store.append_now(lease, entries(1), sync=False)
        waiting = asyncio.ensure_future(store.append(lease, entries(1), sync=True))
        await asyncio.sleep(0)
        assert not store.append_now(lease, entries(1), sync=False)
        connection.execute("ROLLBACK")
    await waiting
    assert store.append_now(lease, entries(2), sync=False)
    assert await store.read("s") == entries(1, 2)


async def test_a_file_that_stays_locked_is_an_error_that_says_so(path, store, monkeypatch):
    lease = await store.acquire("s")
    monkeypatch.setattr("windlass.stores.sqlite_writer.BUSY_SECONDS", 0)
    with another_connection(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process kept it locked.*try again"):
            await store.append(lease, entries(1), sync=True)
        connection.execute("ROLLBACK")
    await store.append(lease, entries(1), sync=True)


async def test_the_log_is_moved_into_the_database_as_it_grows(path, store):
    lease = await store.acquire("s")
    for seq in range(1, 2001):
        if not store.append_now(lease, entries(seq), sync=False):
            await store.append(lease, entries(seq), sync=False)
    await store.append(lease, entries(2001), sync=True)  # after the checkpoint that the others asked for
    assert path.with_name("sessions.db-wal").stat().st_size < 3000 * 4096
    assert path.stat().st_size > 200_000
    assert len(await store.read("s")) == 2001


def test_one_store_serves_several_threads_and_event_loops(path):
    store = SqliteStore(path)
    errors = []

    async def grow(session_id):
        lease = await store.acquire(session_id)
        for seq in range(1, 31):
            if not store.append_now(lease, entries(seq), sync=False):
                await store.append(lease, entries(seq), sync=seq % 10 == 0)
        await store.release(lease)

    def run(session_id):
        try:
            asyncio.run(grow(session_id))
        except BaseException as error:  # noqa: BLE001 - told to the test below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(f"s{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
    assert [info.entries for info in asyncio.run(store.list())] == [30] * 6
    asyncio.run(store.aclose())


async def test_a_title_is_the_beginning_of_the_first_message_and_stays(path, store):
    lease = await store.acquire("s")
    said = ["", "\ud83d\0 Fix the\n\tbuild", "and then the tests"]
    for seq, text in enumerate(said, 1):
        await store.append(lease, [Entry(seq, 1.0, MessageAdded(user(text)), f"e-{seq}")], sync=False)
    assert [info.title for info in await store.list()] == ["Fix the build"]


async def test_tables_carry_tenant_and_owner(path, store):
    await store.acquire("s")
    with another_connection(path) as connection:
        assert connection.execute("SELECT tenant, owner, id FROM session").fetchall() == [("", "", "s")]


# -- what reading meets ------------------------------------------------------------------------------------------------


async def test_kinds_of_a_newer_version_are_kept_unless_they_are_critical(path, store):
    lease = await store.acquire("s")
    await store.append(lease, entries(1, 2), sync=False)
    body = b'{"kind":"dreamt","run_id":"r","of":["sheep"]}'
    with another_connection(path) as connection:
        connection.execute("UPDATE entry SET kind = 'dreamt', body = ? WHERE seq = 2", (body,))
    (entry,) = await store.read("s", after=1)
    assert entry.event == Unknown("dreamt", {"kind": "dreamt", "run_id": "r", "of": ["sheep"]}, run_id="r")
    await store.append(lease, [Entry(3, 1.0, entry.event, "e-3")], sync=False)
    with another_connection(path) as connection:
        assert connection.execute("SELECT kind, body FROM entry WHERE seq = 3").get == ("dreamt", body)
        connection.execute("UPDATE entry SET critical = 1 WHERE seq = 2")
    with pytest.raises(UnreadableEntry, match="upgrade"):
        await store.read("s")


async def test_a_damaged_entry_is_named(path, store):
    await store.append(await store.acquire("s"), entries(1, 2), sync=False)
    with another_connection(path) as connection:
        connection.execute("UPDATE entry SET body = x'7B2278' WHERE seq = 2")
    with pytest.raises(StoreError, match="entry 2 of session 's' is damaged.*backup"):
        await store.read("s")


# -- faults ------------------------------------------------------------------------------------------------------------


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
            self.ending = str(name.filename() if isinstance(name, apsw.URIFilename) else name).rpartition("sessions.db")[2]
            super().__init__(system, name, flags)

        def xSync(self, flags):  # noqa: N802 - apsw's name
            synced.append(self.ending)
            super().xSync(flags)

    files = Files()
    yield synced
    files.unregister()


async def test_a_barrier_is_synced_with_all_before_it_and_a_plain_append_is_not(path, syncs):
    store = SqliteStore(path)
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
    await store.delete("s")
    assert syncs == ["-wal", "-wal", "-wal"]
    await store.aclose()


@pytest.fixture
def armed():
    """Arms fault points for one test."""
    yield faults.arm
    faults.disarm()


@pytest.mark.parametrize("immediate", [True, False])
async def test_an_append_that_fails_before_the_commit_leaves_nothing(store, armed, immediate):
    lease = await store.acquire("s")
    armed({"store.append.before_commit": "raise@1"})
    with pytest.raises(faults.FaultInjected):
        if not (immediate and store.append_now(lease, entries(1), sync=False)):
            await store.append(lease, entries(1), sync=True)
    assert await store.read("s") == []
    await store.append(lease, entries(1), sync=True)


@pytest.mark.parametrize("immediate", [True, False])
async def test_an_append_that_fails_after_the_commit_can_be_repeated(store, armed, immediate):
    lease = await store.acquire("s")
    armed({"store.append.after_commit": "raise@1"})
    with pytest.raises(faults.FaultInjected):
        if not (immediate and store.append_now(lease, entries(1), sync=False)):
            await store.append(lease, entries(1), sync=True)
    assert await store.read("s") == entries(1)
    await store.append(lease, entries(1), sync=True)
    assert await store.read("s") == entries(1)


def test_whatever_was_acknowledged_survives_kill_9(path):
    """Twenty drivers, each killed while it appends, at random times and on both sides of a commit."""
    seed = str(time.time_ns())
    with child("kill_rounds", path, 20, seed) as process:
        output, errors = process.communicate(timeout=50)
    assert process.returncode == 0, f"seed {seed}: {errors}"
    acknowledged = int(output)
    assert acknowledged > 20
    with another_connection(path) as connection:
        assert connection.pragma("integrity_check") == "ok"
        stored, head = connection.execute("SELECT count(*), max(head) FROM entry JOIN session ON session = key").get
    assert stored == head >= acknowledged, f"seed {seed}"


def test_a_forked_child_may_not_use_the_store_but_one_of_its_own(path):
    with child("fork", path) as process:
        output, errors = process.communicate(timeout=30)
    assert output.split() == ["0", "2"], errors
    with another_connection(path) as connection:
        assert connection.pragma("integrity_check") == "ok"


async def test_a_full_database_takes_nothing_and_goes_on_when_there_is_room(path, store):
    lease = await store.acquire("s")
    connection = store._writer._connection
    connection.execute("PRAGMA max_page_count = 40")
    large = [Entry(seq, 1.0, Custom("data", "x" * 100_000), f"e-{seq}") for seq in (1, 2)]
    for append in (store.append(lease, large, sync=True), store.append(lease, large, sync=False)):
        with pytest.raises(StoreError, match="the disk is full.*make room"):
            await append
    with pytest.raises(StoreError, match="the disk is full"):
        store.append_now(lease, large, sync=False)
    assert await store.read("s") == []
    assert connection.execute("PRAGMA synchronous").get == 1
    connection.execute("PRAGMA max_page_count = 10000")
    await store.append(lease, large, sync=True)
    assert await store.read("s") == large


@pytest.fixture
def small_disk(tmp_path):
    """A disk of half a megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", place], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"only who may mount can try a full disk: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


async def test_on_a_full_disk_what_was_acknowledged_stays(small_disk):
    store = SqliteStore(small_disk / "sessions.db")
    lease = await store.acquire("s")
    acknowledged = []
    with pytest.raises(StoreError, match="disk"):
        for seq in range(1, 1000):
            batch = [Entry(seq, 1.0, Custom("data", "x" * 2000), f"e-{seq}")]
            if seq % 3 == 0 or not store.append_now(lease, batch, sync=False):
                await store.append(lease, batch, sync=seq % 3 == 0)
            acknowledged += batch
    assert len(acknowledged) > 10
    assert await store.read("s") == acknowledged
    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    more = entries(len(acknowledged) + 1)
    await store.append(lease, more, sync=True)
    assert await store.read("s") == [*acknowledged, *more]
    await store.aclose()


async def test_on_a_disk_that_can_only_be_read_a_store_is_refused(small_disk):
    path = small_disk / "sessions.db"
    store = SqliteStore(path)
    await store.acquire("s")
    await store.aclose()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StoreError, match="cannot be opened: check the permissions"):
        await SqliteStore(path).acquire("s")
    with pytest.raises(StoreError, match="choose another path"):
        await SqliteStore(small_disk / "new.db").acquire("s")


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


# -- files that are not ours -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"x", b"hello", b"hello\n" * 1000, b"\0" * 8192, b"SQLite format 3\0" + b"\xff" * 5000])
async def test_a_file_that_is_no_database_is_left_as_it_is(path, content):
    path.write_bytes(content)
    with pytest.raises(StoreError, match="left as it is|damaged"):
        await SqliteStore(path).acquire("s")
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


async def test_an_empty_file_is_taken(path, store):
    path.touch()
    await store.acquire("s")


async def test_the_database_of_another_program_is_left_as_it_is(path):
    with another_connection(path) as connection:
        connection.execute("CREATE TABLE customers(name)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="belongs to another program"):
        await SqliteStore(path).acquire("s")
    assert path.read_bytes() == before


async def test_a_file_of_a_newer_format_is_refused(path, store):
    await store.acquire("s")
    await store.aclose()
    with another_connection(path) as connection:
        connection.execute(f"PRAGMA user_version = {sqlite_file.FORMAT + 1}")
    with pytest.raises(StoreError, match="has format 2, and this version knows 1 at most: upgrade windlass"):
        await store.acquire("s")


async def test_a_damaged_database_is_reported(path, store):
    lease = await store.acquire("s")
    await store.append(lease, entries(1, 200), sync=True)
    await store.aclose()
    content = path.read_bytes()
    path.write_bytes(content[:8192] + b"\xa5" * (len(content) - 8192))
    with pytest.raises(StoreError, match="damaged"):
        await store.read("s")


@pytest.mark.parametrize("place", ["/proc/sessions.db", "/proc/new/sessions.db", "/dev/null/sessions.db"])
async def test_a_place_that_cannot_be_written_is_named(place):
    if not Path("/proc/self").exists():
        pytest.skip("needs a folder in which not even root may make files, such as /proc")
    with pytest.raises(StoreError, match=f"{place}' cannot be made: .*choose another path"):
        await SqliteStore(place).acquire("s")
