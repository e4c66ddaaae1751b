"""The store in a PostgreSQL database: its contract, its leases, its appends."""

import asyncio
import os
import re
import threading
import time

import msgspec
import pytest

from perdure import ConfigError, SessionBusy, StoreError, user
from perdure.events import Custom, Entry, MessageAdded, Unknown
from perdure.stores import (
    Conflict,
    EntryTooNew,
    Fenced,
    Lease,
    LeaseHolderProcess,
    PostgresStore,
    describe_this_process,
)
from perdure.testing import FakeClock, check_store
from tests.stores.material import child, entries
from tests.stores.postgres_children import patiently_acquired
from tests.stores.postgres_server import free_port

pytestmark = pytest.mark.needs("postgres")

# -- the contract ------------------------------------------------------------------------------------------------------


async def test_it_keeps_the_contract(postgres):
    await check_store(lambda: PostgresStore(postgres.address()))


@pytest.mark.needs("pgbouncer")
async def test_it_keeps_the_contract_behind_a_pooler_of_transactions(pooled_address):
    await check_store(lambda: PostgresStore(pooled_address, tenant="pooled"))


async def test_tenants_do_not_see_one_another(store_of):
    ours, theirs = store_of(tenant="ours"), store_of(tenant="theirs")
    lease = await ours.acquire("s")
    await ours.append(lease, entries(1), sync=False)
    assert await theirs.read("s") == await theirs.list() == []
    await theirs.acquire("s")
    await theirs.delete("other")
    assert [info.session_id for info in await ours.list()] == ["s"]
    await theirs.aclose()
    await theirs.delete("s")
    assert len(await ours.read("s")) == 1


# -- leases ------------------------------------------------------------------------------------------------------------


async def test_whoever_comes_second_is_told_who_drives_the_session(store_of):
    store, other = store_of(), store_of()
    await store.acquire("s")
    with pytest.raises(SessionBusy, match=f"'s' is being driven by process {os.getpid()} on .* since 20"):
        await other.acquire("s")
    with pytest.raises(SessionBusy, match=f"process {os.getpid()}"):
        await other.delete("s")


async def test_closing_a_store_gives_its_leases_back_and_no_others(store_of):
    store, other = store_of(), store_of()
    await store.acquire("kept")
    await other.acquire("freed")
    await other.aclose()
    await store.acquire("freed")
    with pytest.raises(SessionBusy):
        await other.acquire("kept")


async def test_a_lease_that_was_given_back_fits_no_more(store_of):
    store = store_of()
    lease = await store.acquire("s")
    await store.release(lease)
    await store.release(lease)
    with pytest.raises(Fenced, match="stop, and open it again"):
        await store.append(lease, entries(1), sync=False)
    assert (await store.acquire("s")).fence == lease.fence + 1


def hold(postgres, tenant, holder, seconds: float) -> None:
    """Let somebody hold all sessions of the tenant, for so many seconds of the database's clock."""
    text = holder if isinstance(holder, str) else msgspec.json.encode(holder).decode()
    postgres.ask(
        "UPDATE perdure.session SET holder = %s, lease_until = now() + make_interval(secs => %s) WHERE tenant = %s",
        text,
        seconds,
        tenant,
    )


@pytest.mark.parametrize(
    "holder",
    [
        msgspec.structs.replace(describe_this_process(0.0), machine="another machine", pid=2**40),
        msgspec.structs.replace(describe_this_process(0.0), machine=describe_this_process(0.0).host, pid=2**21),
        msgspec.structs.replace(describe_this_process(0.0), started=""),
        describe_this_process(0.0),
        "scribble",
    ],
)
async def test_a_lease_lasts_as_long_as_the_database_says(postgres, tenant, store_of, holder):
    store = store_of()
    lease = await store.acquire("s")
    hold(postgres, tenant, holder, 60.0)
    for busy in (store.acquire("s"), store.delete("s")):
        with pytest.raises(SessionBusy, match=r"'s' is being driven by (process|another process)"):
            await busy
    hold(postgres, tenant, holder, 0.0)
    assert (await store.acquire("s")).fence == lease.fence + 1


async def test_the_session_of_a_killed_driver_is_free_when_its_lease_has_ended(postgres, tenant, store_of, monkeypatch):
    monkeypatch.setattr(LeaseHolderProcess, "has_ended", False)  # as of a process on another machine
    with child("hold", postgres.address(), tenant, 60.0, programs="postgres_children") as process:
        assert process.stdout.readline() == "held\n", process.stderr.read()
        process.kill()
    store = store_of()
    with pytest.raises(SessionBusy, match=f"process {process.pid} on"):
        await store.acquire("s")
    started = time.monotonic()
    soon = "UPDATE perdure.session SET lease_until = clock_timestamp() + interval '0.3 s' WHERE tenant = %s"
    postgres.ask(soon, tenant)
    await patiently_acquired(store)
    assert 0.25 <= time.monotonic() - started < 30


@pytest.mark.parametrize("change", [{"pid": 2**21 + 1}, {"pid": os.getppid()}])
async def test_a_holder_that_died_on_this_machine_need_not_be_waited_for(postgres, tenant, store_of, change):
    store = store_of()
    lease = await store.acquire("s")
    dead = msgspec.structs.replace(describe_this_process(0.0), started="0", **change)
    hold(postgres, tenant, dead, 60.0)
    assert (await store.acquire("s")).fence == lease.fence + 1
    hold(postgres, tenant, dead, 60.0)
    await store.delete("s")
    assert await store.list() == []


async def test_a_driver_that_was_replaced_is_fenced_and_cannot_give_the_new_lease_back(postgres, tenant, store_of):
    store, other = store_of(), store_of()
    old = await store.acquire("s")
    hold(postgres, tenant, "scribble", 0.0)
    await other.acquire("s")
    with pytest.raises(Fenced, match="has changed hands"):
        await store.append(old, entries(1), sync=False)
    await store.release(old)
    with pytest.raises(SessionBusy):
        await store.acquire("s")


async def test_two_leases_of_the_same_number_are_told_apart(postgres, tenant, store_of):
    """As when the database was set back to before the first one was taken."""
    store, other = store_of(), store_of()
    old = await store.acquire("s")
    postgres.ask("UPDATE perdure.session SET fence = fence - 1, holder = NULL WHERE tenant = %s", tenant)
    assert await other.acquire("s") == old
    with pytest.raises(Fenced):
        await store.append(old, entries(1), sync=False)


async def test_a_lease_is_renewed_though_the_event_loop_is_blocked(postgres, tenant, store_of):
    store = store_of(lease_seconds=0.3)
    await store.acquire("s")
    question = "SELECT lease_until::text FROM perdure.session WHERE tenant = %s"
    seen: set[str] = set()
    deadline = time.monotonic() + 20
    while len(seen) < 3 and time.monotonic() < deadline:
        seen.update(postgres.ask(question, tenant))
    assert len(seen) == 3


async def test_a_driver_that_cannot_renew_its_lease_stops_before_anybody_can_take_it(store_of):
    clock = FakeClock()
    store = store_of(clock=clock)
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=False)
    await clock.advance(9.9)
    await store.append(lease, entries(2), sync=False)  # which renews it
    await clock.advance(9.9)
    await store.append(lease, entries(3), sync=False)
    await clock.advance(10.1)
    with pytest.raises(Fenced, match=r"could not be renewed for 10\.1 s"):
        await store.append(lease, entries(4), sync=False)
    with pytest.raises(Fenced):
        await store.append(lease, entries(4), sync=False)
    await store.release(lease)
    assert (await store.acquire("s")).fence == lease.fence + 1


async def test_a_lease_that_is_found_lost_when_it_is_renewed_is_not_used_again(postgres, tenant, store_of):
    store = store_of()
    leases = [await store.acquire(f"s{number}") for number in range(3)]
    postgres.ask("UPDATE perdure.session SET fence = 99 WHERE tenant = %s AND id = 's1'", tenant)
    keeper = store._database.leases
    held = [keeper.get_valid(lease) for lease in leases]
    await asyncio.to_thread(lambda: keeper._renew(None, held).close())
    assert [each.is_lost for each in held] == [False, True, False]


async def test_a_renewal_that_fails_is_tried_again(store_of, caplog):
    store = store_of()
    lease = await store.acquire("s")
    keeper = store._database.leases
    keeper._settings = {**keeper._settings, "port": free_port()}
    assert await asyncio.to_thread(keeper._renew, None, [keeper.get_valid(lease)]) is None
    assert "1 leases could not be renewed, which will be tried again" in caplog.text
    await store.append(lease, entries(1), sync=True)


async def test_without_leases_there_is_no_thread(store_of):
    store = store_of()
    await store.list()
    store._database.leases._seconds = 0.06  # how often its thread looks; the server may take longer for the rest
    others = set(threading.enumerate())
    lease = await store.acquire("s")
    keepers = [thread for thread in set(threading.enumerate()) - others if thread.name == "perdure-leases"]
    assert len(keepers) == 1
    await store.release(lease)
    await asyncio.to_thread(keepers[0].join, 30)
    assert not keepers[0].is_alive()
    await store.acquire("s")


def test_of_several_processes_one_gets_each_session(postgres):
    """They also make the tables at the same time."""
    address = postgres.address(postgres.new_database())
    arguments = ("race", address, "t", 20)
    with (
        child(*arguments, programs="postgres_children") as one,
        child(*arguments, programs="postgres_children") as two,
        child(*arguments, programs="postgres_children") as three,
    ):
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
        busy = asyncio.run(refusal(address, "s0"))
    assert re.findall(r"process (\d+) on", busy)[0] in {str(process.pid) for process in children}


async def refusal(address, session_id: str) -> str:
    store = PostgresStore(address, tenant="t")
    with pytest.raises(SessionBusy) as caught:
        await store.acquire(session_id)
    await store.aclose()
    return str(caught.value)


async def test_of_two_stores_one_wins_each_of_many_races(store_of):
    stores = store_of(), store_of()
    for number in range(50):
        tries = [store.acquire(f"s{number}") for store in stores]
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["Lease", "SessionBusy"]


# -- appends -----------------------------------------------------------------------------------------------------------


async def test_a_known_entry_is_not_added_at_a_new_number(store_of):
    store = store_of()
    lease = await store.acquire("s")
    await store.append(lease, entries(1), sync=False)
    with pytest.raises(Conflict, match="elsewhere in the log"):
        await store.append(lease, [Entry(2, 1.0, Custom("data"), "e-1")], sync=False)
    assert await store.read("s") == entries(1)


async def test_only_barriers_wait_for_the_disk(postgres, store_of):
    database = postgres.new_database()
    store = store_of(postgres.address(database))
    lease = await store.acquire("s")
    postgres.ask(
        """
        CREATE TABLE seen(mode text);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO seen VALUES(current_setting('synchronous_commit')); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT OR UPDATE OR DELETE ON perdure.session
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
        """,
        database=database,
    )

    def modes() -> list[str]:
        return postgres.ask("WITH gone AS (DELETE FROM seen RETURNING mode) SELECT mode FROM gone", database=database)

    await store.append(lease, entries(1), sync=False)
    assert modes() == ["off"]
    await store.append(lease, entries(2), sync=True)
    assert modes() == ["on"]
    await store.append(lease, entries(2), sync=False)
    assert modes() == []
    await store.append(lease, entries(2), sync=True)  # there already, but perhaps not on disk
    assert modes() == ["on"]
    await store.release(lease)
    assert modes() == ["off"]
    await store.acquire("s")  # a fence that is forgotten could be given twice
    assert modes() == ["on"]
    await store.aclose()
    await store.delete("s")
    assert modes() == ["off", "on"]


async def test_what_is_not_on_disk_does_not_grow_without_bounds(store_of, monkeypatch):
    monkeypatch.setattr("perdure._stores.postgres.operations.UNSYNCED_BYTES", 100)
    store = store_of()
    lease = await store.acquire("s")
    held = store._database.leases.get_valid(lease)
    sizes = []
    for seq in range(1, 9):
        await store.append(lease, entries(seq), sync=False)
        sizes.append(len(held.unsynced))
    assert sizes == [1, 2, 3, 0, 1, 2, 3, 0]


def test_one_store_serves_several_threads_and_event_loops(postgres, tenant):
    store = PostgresStore(postgres.address(), tenant=tenant)
    errors = []

    async def grow(session_id):
        lease = await store.acquire(session_id)
        for seq in range(1, 11):
            await store.append(lease, entries(seq), sync=seq % 10 == 0)
        await store.release(lease)

    def work(number):
        try:
            asyncio.run(grow(f"s{number}"))
        except Exception as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []

    async def finish():
        infos = await store.list()
        await store.aclose()
        return infos

    assert [info.entries for info in asyncio.run(finish())] == [10] * 4


async def test_more_work_than_connections_waits_its_turn(store_of):
    store = store_of(connections=2)
    await asyncio.gather(*[store.acquire(f"s{number}") for number in range(20)])
    assert len(next(iter(store._database._pools.values()))._idle) == 2


async def test_a_store_that_was_closed_can_be_used_again(store_of):
    store = store_of()
    await store.append(await store.acquire("s"), entries(1), sync=False)
    await store.aclose()
    await store.aclose()
    assert await store.read("s") == entries(1)


# -- cancels -----------------------------------------------------------------------------------------------------------


async def test_whoever_is_cancelled_while_it_is_sent_has_done_it_all_the_same(postgres, tenant, store_of):
    import psycopg

    store = store_of()
    lease = await store.acquire("s")
    async with await psycopg.AsyncConnection.connect(postgres.address()) as other:

        async def cancelled(work):
            """Cancelled while it waits for another transaction, which ends then."""
            await other.execute("SELECT 1 FROM perdure.session WHERE tenant = %s FOR UPDATE", (tenant,))
            task = asyncio.ensure_future(work)
            async with asyncio.timeout(30):
                while not postgres.ask("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):  # noqa: ASYNC110 - nobody tells us
                    await asyncio.sleep(0.005)
            task.cancel()
            await asyncio.sleep(0)
            await other.rollback()
            with pytest.raises(asyncio.CancelledError):
                await task

        await cancelled(store.append(lease, entries(1), sync=True))
        assert await store.read("s") == entries(1)
        await cancelled(store.release(lease))
        again = await store.acquire("s")
        assert again.fence == lease.fence + 1
        await store.release(again)
        await cancelled(store.acquire("s"))
        await store.acquire("s")
        await store.aclose()
        await cancelled(store.delete("s"))
        assert await store.list() == []


async def test_whoever_is_cancelled_while_reading_reads_no_more(store_of):
    store = store_of()
    await store.append(await store.acquire("s"), entries(1), sync=False)
    task = asyncio.ensure_future(store.read("s"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.read("s") == entries(1)


# -- what is kept ------------------------------------------------------------------------------------------------------


async def test_names_that_a_column_cannot_hold_are_no_obstacle(store_of):
    store = store_of()
    lease = await store.acquire("s")
    hostile = "\0 \ud800 '; DROP TABLE perdure.entry; --"
    events = [Unknown(hostile, {"kind": "x"}), MessageAdded(user(hostile)), Custom(hostile)]
    await store.append(lease, [Entry(seq, 0.0, event, f"e-{seq}") for seq, event in enumerate(events, 1)], sync=True)
    assert [type(entry.event) for entry in await store.read("s")] == [Unknown, MessageAdded, Custom]
    assert (await store.list())[0].title == "'; DROP TABLE perdure.entry; --"


@pytest.mark.parametrize("entry_id", ["\0", "é\0", "\ud800"])
async def test_an_entry_whose_id_could_not_be_kept_is_refused(store_of, entry_id):
    store = store_of()
    lease = await store.acquire("s")
    with pytest.raises(ConfigError, match="the id of an entry must be text"):
        await store.append(lease, [Entry(1, 0.0, Custom("data"), entry_id)], sync=False)
    await store.append(lease, [Entry(1, 0.0, Custom("data"), "é")], sync=False)
    assert (await store.read("s"))[0].id == "é"


def change_bodies(postgres, tenant, body: bytes, critical: bool) -> None:
    """Of all entries of the tenant."""
    statement = """
    UPDATE perdure.entry SET body = %s, critical = %s FROM perdure.session WHERE session = key AND tenant = %s"""
    postgres.ask(statement, body, critical, tenant)


async def test_a_damaged_entry_is_told_by_its_number(postgres, tenant, store_of):
    store = store_of()
    await store.append(await store.acquire("s"), entries(1, 2), sync=False)
    change_bodies(postgres, tenant, b"{", False)
    with pytest.raises(StoreError, match="entry 2 of session 's' is damaged"):
        await store.read("s", after=1)


async def test_kinds_of_a_newer_version_are_kept_unless_they_are_critical(postgres, tenant, store_of):
    store = store_of()
    await store.append(await store.acquire("s"), entries(1), sync=False)
    body = b'{"kind": "from_the_future", "x": 1}'
    change_bodies(postgres, tenant, body, False)
    assert isinstance((await store.read("s"))[0].event, Unknown)
    change_bodies(postgres, tenant, body, True)
    with pytest.raises(EntryTooNew):
        await store.read("s")


# -- forks -------------------------------------------------------------------------------------------------------------


def test_a_forked_child_must_make_a_store_of_its_own(postgres, tenant):
    with child("fork", postgres.address(), tenant, programs="postgres_children") as process:
        assert process.stdout.read() == "0 2\n", process.stderr.read()


def test_a_lease_of_nobody_is_fenced_at_once(postgres, tenant):
    store = PostgresStore(postgres.address(), tenant=tenant)
    with pytest.raises(Fenced):
        asyncio.run(store.append(Lease("s", 1), entries(1), sync=False))
