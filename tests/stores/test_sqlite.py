"""The store in an SQLite file: its contract, its leases, its appends."""

import asyncio
import os
import re
import threading

import msgspec
import pytest

from perdure import SessionBusy, StoreError, user
from perdure.events import Custom, Entry, MessageAdded, Unknown
from perdure.stores import Conflict, EntryTooNew, Lease, SqliteStore, describe_this_process
from perdure.testing import check_store
from tests.stores.material import another_connection, child, entries

# -- the contract ------------------------------------------------------------------------------------------------------


async def test_it_keeps_the_contract(path):
    await check_store(lambda: SqliteStore(path))


async def test_it_keeps_the_contract_while_another_store_has_the_file_open(path, store):
    await store.acquire("other")
    await check_store(lambda: SqliteStore(path))
    with pytest.raises(SessionBusy):
        await store.acquire("other")


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
    "change",
    [
        {"pid": 1},  # a living process, but not the one that started at that time
        {"started": "0"},
        {"started": ""},
        {"machine": "another boot"},
        {"since": 0.0},  # ourselves, but the lease is not out: we were replaced by exec
    ],
)
async def test_a_session_whose_holder_is_gone_is_taken_over(path, store, change):
    lease = await store.acquire("s")
    await store.release(lease)
    holder = msgspec.structs.replace(describe_this_process(0.0), **change)
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


async def test_a_release_that_is_cancelled_is_done_all_the_same(path, store):
    lease = await store.acquire("s")
    with another_connection(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        task = asyncio.ensure_future(store.release(lease))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        connection.execute("ROLLBACK")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await store.acquire("s")).fence == lease.fence + 1


async def test_a_lease_given_back_after_the_store_was_closed_does_not_open_it_again(path, store):
    lease = await store.acquire("s")
    await store.aclose()
    path.unlink()
    await store.release(lease)
    assert not path.exists()


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
    assert re.findall(r"process (\d+) on", busy)[0] in {str(process.pid) for process in children}


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
    assert not store.append_now(lease, entries(2), sync=True)  # how quick the disk is, nobody knows yet
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
    monkeypatch.setattr("perdure._stores.sqlite.connections.BUSY_SECONDS", 0)
    with another_connection(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"process.* kept it locked for .* s: continue that.*try again"):
            await store.append(lease, entries(1), sync=True)
        connection.execute("ROLLBACK")
    await store.append(lease, entries(1), sync=True)


async def test_the_log_is_moved_into_the_database_as_it_grows(path, store):
    lease = await store.acquire("s")
    for seq in range(1, 2001):
        batch = [Entry(seq, 1.0, Custom("data", "x" * 500), f"e-{seq}")]
        if not store.append_now(lease, batch, sync=False):
            await store.append(lease, batch, sync=False)
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
    await store.append(lease, entries(1), sync=False)
    await store.append(lease, entries(2), sync=False)
    body = b'[{"kind":"dreamt","run_id":"r","of":["sheep"]}]'
    with another_connection(path) as connection:
        connection.execute("UPDATE pack SET body = ? WHERE last = 2", (body,))
    (entry,) = await store.read("s", after=1)
    assert entry.event == Unknown("dreamt", {"kind": "dreamt", "run_id": "r", "of": ["sheep"]}, run_id="r")
    await store.append(lease, [Entry(3, 1.0, entry.event, "e-3")], sync=False)
    with another_connection(path) as connection:
        assert connection.execute("SELECT body FROM pack WHERE last = 3").get == body
        heads = msgspec.msgpack.encode([[1.0], "e-", ["2"], ["dreamt"]])
        connection.execute("UPDATE pack SET heads = ? WHERE last = 2", (heads,))
    with pytest.raises(EntryTooNew, match="upgrade"):
        await store.read("s")
    await store.release(lease)  # which leaves alone what it cannot read
    assert [row.seq for row in await store.read("s", after=2)] == [3]


DAMAGE = ("body = x'7B2278'", "body = x'5B5D'", "body = x'00'", "heads = x'9490A09090'", "holes = x'9192C0C0'")


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_entry_is_named(path, store, damage):
    lease = await store.acquire("s")
    for seq in (1, 2):
        await store.append(lease, entries(seq), sync=False)
    with another_connection(path) as connection:
        connection.execute(f"UPDATE pack SET {damage} WHERE last = 2")
    with pytest.raises(StoreError, match=r"entry 2 of session 's' is damaged.*backup"):
        await store.read("s")
    await store.release(lease)
