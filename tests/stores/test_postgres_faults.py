"""What is there after a process was killed or paused, a connection broke, a server crashed."""

import asyncio
import time

import pytest

from perdure import SessionBusy, SessionExists, StoreError, user
from perdure._core.values import faults
from perdure.events import Custom, Entry, MessageAdded
from perdure.stores import Conflict, Fenced, Post
from tests.seeds import SEED, chance
from tests.stores.material import child, entries
from tests.stores.postgres_server import limit_patience
from tests.stores.weak_line import WeakLine

pytestmark = pytest.mark.needs("postgres")


def ids(found) -> list[str]:
    return [entry.id for entry in found]


def all_ids(count: int) -> list[str]:
    return [f"e-{seq}" for seq in range(1, count + 1)]


# -- drivers -----------------------------------------------------------------------------------------------------------


async def test_whatever_was_acknowledged_survives_kill_9(postgres, tenant, store_of):
    with child("kill_rounds", postgres.address(), tenant, 12, SEED, programs="postgres_children") as process:
        said, error = process.communicate(timeout=50)
    assert process.returncode == 0, error
    found = ids(await store_of().read("s"))
    assert found == all_ids(len(found))
    assert len(found) >= int(said) > 0


async def test_a_driver_that_was_paused_and_replaced_is_fenced_when_it_wakes(postgres, tenant):
    with child("pause_rounds", postgres.address(), tenant, 4, SEED, programs="postgres_children") as process:
        said, error = process.communicate(timeout=50)
    assert (process.returncode, said) == (0, "4\n"), error


@pytest.fixture
def armed():
    """Arms fault points for one test."""
    yield faults.arm
    faults.disarm()


async def test_an_append_that_fails_before_it_is_sent_leaves_nothing(store_of, armed):
    store = store_of()
    lease = await store.acquire("s")
    armed({"store.append.before_commit": "raise@1"})
    with pytest.raises(faults.FaultInjected):
        await store.append(lease, entries(1), sync=False)
    assert await store.read("s") == []
    await store.append(lease, entries(1), sync=False)


async def test_an_append_that_fails_after_the_commit_can_be_repeated(store_of, armed):
    store = store_of()
    lease = await store.acquire("s")
    armed({"store.append.after_commit": "raise@1"})
    with pytest.raises(faults.FaultInjected):
        await store.append(lease, entries(1), sync=False)
    await store.append(lease, entries(1), sync=False)
    await store.append(lease, entries(2), sync=True)
    assert ids(await store.read("s")) == all_ids(2)


# -- connections -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def line(postgres):
    async with WeakLine(postgres.port) as line:
        yield line


async def test_what_was_done_though_the_answer_was_lost_is_not_done_twice(postgres, line, store_of):
    store = store_of(postgres.address(port=line.port))
    await store.list()
    line.lose_answers = 1
    lease = await store.acquire("s")
    for seq in range(1, 6):
        line.lose_answers = 1
        await store.append(lease, entries(seq), sync=seq % 2 == 0)
    line.lose_answers = 1
    assert ids(await store.read("s")) == all_ids(5)
    line.lose_answers = 1
    await store.release(lease)
    again = await store_of().acquire("s")
    assert again.fence > lease.fence
    assert line.connections == 9


async def test_whoever_posted_or_forked_and_heard_nothing_of_it_has_done_it_once(postgres, tenant, line, store_of):
    store, other = store_of(postgres.address(port=line.port)), store_of()
    lease = await other.acquire("s")
    await other.append(lease, entries(1, 3), sync=True)
    await store.list()
    for number in range(5):
        line.lose_answers = 1 + number % 2
        assert await store.post("s", Post(f"p{number}", "steer", number))
        line.lose_answers = 1 + number % 2
        await store.fork("s", f"f{number}", at=2)
    line.lose_answers = 1
    assert not await store.post("s", Post("p0", "steer"))
    line.lose_answers = 1
    with pytest.raises(SessionExists):
        await store.fork("s", "f0", at=2)
    assert [post.body for post in await other.posts("s")] == [0, 1, 2, 3, 4]
    assert ids(await other.read("f4")) == all_ids(2)
    assert postgres.ask("SELECT count(*) FROM perdure.session WHERE tenant = %s", tenant) == [6]


async def test_whoever_erased_and_heard_nothing_of_it_has_done_it(postgres, line, store_of):
    store = store_of(postgres.address(port=line.port))
    lease = await store.acquire("s")
    await store.append(lease, entries(1, 2), sync=False)
    line.lose_answers = 1
    await store.redact(lease, Entry(1, 1.0, Custom("redacted"), "e-1"))
    assert [entry.event.name for entry in await store.read("s")] == ["redacted", "data"]
    line.lose_answers = 1
    taken = await store.acquire("s", take_over=True)
    await store.release(taken)
    line.lose_answers = 1
    await store.delete("s")
    assert await store.read("s") == []


async def test_without_ids_nobody_can_tell_whether_the_answer_was_lost(postgres, line, store_of):
    store = store_of(postgres.address(port=line.port))
    lease = await store.acquire("s")
    line.lose_answers = 1
    with pytest.raises(Conflict, match="ends at entry 1"):
        await store.append(lease, [Entry(1, 0.0, Custom("unnamed"))], sync=False)
    assert len(await store.read("s")) == 1


async def test_a_server_that_does_not_answer_is_given_up_after_a_time(postgres, line, store_of):
    store = store_of(postgres.address(port=line.port))
    lease = await store.acquire("s")
    limit_patience(store, 0.3)
    line.is_dead = True
    started = time.monotonic()
    with pytest.raises(StoreError, match=r"could not be used for 0\.3 s \(OperationalError: .*then try again"):
        await store.append(lease, entries(1), sync=True)
    with pytest.raises(StoreError, match=r"no connection was made in time"):
        await store.read("s")
    assert 0.6 <= time.monotonic() - started < 30
    limit_patience(store, 30)
    line.is_dead = False
    line.cut()
    await store.append(lease, entries(1), sync=True)
    assert ids(await store.read("s")) == all_ids(1)


async def test_leases_that_cannot_be_given_back_end_by_themselves(postgres, line, store_of, caplog):
    store = store_of(postgres.address(port=line.port))
    lease = await store.acquire("one")
    await store.acquire("other")
    limit_patience(store, 0.2)
    line.is_dead = True
    with pytest.raises(StoreError):
        await store.release(lease)
    await store.aclose()
    assert "1 leases were not given back, and end by themselves" in caplog.text


async def test_a_lease_that_could_not_be_given_back_is_taken_again_by_its_own_process_alone(postgres, line, store_of):
    store, other = store_of(postgres.address(port=line.port)), store_of()
    lease = await store.acquire("s")
    limit_patience(store, 0.2)
    line.is_dead = True
    with pytest.raises(StoreError, match=r"could not be used"):
        await store.release(lease)
    limit_patience(store, 30)
    line.is_dead = False
    line.cut()
    with pytest.raises(SessionBusy):
        await other.acquire("s")
    again = await store.acquire("s")
    assert again.fence > lease.fence
    await store.append(again, entries(1), sync=True)
    with pytest.raises(SessionBusy):  # what it has now was not left behind
        await store.acquire("s")


async def test_a_lease_whose_answer_was_lost_for_good_is_taken_again_by_its_own_process(postgres, line, store_of):
    store, other = store_of(postgres.address(port=line.port)), store_of()
    await store.list()
    limit_patience(store, 0.3)
    line.lose_answers = 10_000
    with pytest.raises(StoreError, match=r"could not be used"):
        await store.acquire("s")
    limit_patience(store, 30)
    line.lose_answers = 0
    with pytest.raises(SessionBusy):
        await other.acquire("s")
    await store.release(await store.acquire("s"))
    await other.release(await other.acquire("s"))


async def test_connections_that_are_terminated_lose_nothing(postgres, tenant, store_of):
    store = store_of(connections=3)
    dice = chance("postgres")

    async def grow(session_id) -> None:
        lease = await store.acquire(session_id)
        for seq in range(1, 41):
            await store.append(lease, entries(seq), sync=dice.random() < 0.3)
            if seq % 4 == 0:
                assert await store.post(session_id, Post(f"p{seq}", "steer"))
            if seq % 10 == 0:
                await store.fork(session_id, f"{session_id}-{seq}")

    async def disturb() -> None:
        backends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'perdure'"
        while True:
            await asyncio.to_thread(postgres.ask, backends)
            await asyncio.sleep(0.01)

    disturbance = asyncio.ensure_future(disturb())
    await asyncio.gather(*[grow(f"s{number}") for number in range(4)])
    disturbance.cancel()
    await asyncio.wait([disturbance])
    for number in range(4):
        assert ids(await store.read(f"s{number}")) == all_ids(40)
        assert [post.id for post in await store.posts(f"s{number}")] == [f"p{seq}" for seq in range(4, 41, 4)]
        for seq in range(10, 41, 10):
            assert ids(await store.read(f"s{number}-{seq}")) == all_ids(seq)


async def test_a_connection_too_few_is_told(store_of):
    store = store_of(connections=1)
    await store.list()
    limit_patience(store, 0.1)
    done = asyncio.Event()
    long_work = asyncio.ensure_future(store._database.run(lambda _connection: done.wait()))
    await asyncio.sleep(0)
    with pytest.raises(StoreError, match=r"all 1 connections to .* stayed in use"):
        await store.list()
    done.set()
    await long_work


# -- servers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_calls_wait_for_a_server_that_restarts_and_nothing_is_lost(postgres, tenant, store_of, mode):
    """The second one is a crash: what was not waited for is lost on the server, and stored again by its driver."""
    store = store_of()
    stop = asyncio.Event()

    async def grow(session_id) -> int:
        lease = await store.acquire(session_id)
        seq = 0
        while not stop.is_set():
            seq += 1
            await store.append(lease, entries(seq), sync=seq % 7 == 0)
        return seq

    async def post() -> list[str]:
        posted: list[str] = []
        while not stop.is_set():
            posted.append(f"p{len(posted)}")
            assert await store.post("s0", Post(posted[-1], "steer"))
        return posted

    async def fork() -> int:
        await store.append(await store.acquire("original"), entries(1, 3), sync=False)
        count = 0
        while not stop.is_set():
            await store.fork("original", f"f{count}", at=1 + count % 3)
            count += 1
        return count

    growing = [asyncio.ensure_future(grow(f"s{number}")) for number in range(3)]
    posting, forking = asyncio.ensure_future(post()), asyncio.ensure_future(fork())
    for _ in range(2):
        await asyncio.sleep(0.05)
        await asyncio.to_thread(postgres.restart, mode=mode)
    await asyncio.sleep(0.05)
    stop.set()
    counts, posted, forks = await asyncio.gather(*growing), await posting, await forking  # before anything is compared
    for number, count in enumerate(counts):
        assert ids(await store.read(f"s{number}")) == all_ids(count)
    assert [post.id for post in await store.posts("s0")] == posted
    for number in range(forks):
        assert ids(await store.read(f"f{number}")) == all_ids(1 + number % 3)


def lose(postgres, tenant, *, after: int) -> None:
    """Set all sessions of the tenant back, as a crash does, or the change to a standby that is behind."""
    for table in ("entry", "said"):
        lost = f"DELETE FROM perdure.{table} USING perdure.session WHERE session = key AND seq > %s AND tenant = %s"
        postgres.ask(lost, after, tenant)
    postgres.ask("UPDATE perdure.session SET head = %s WHERE tenant = %s", after, tenant)


async def test_what_a_crash_of_the_server_lost_since_the_last_barrier_is_stored_again(postgres, tenant, store_of):
    store = store_of()
    lease = await store.acquire("s")
    await store.append(lease, entries(1, 2), sync=True)
    await store.append(lease, [Entry(3, 1.0, MessageAdded(user("Hello")), "e-3")], sync=False)
    await store.append(lease, entries(4, 2), sync=False)
    lose(postgres, tenant, after=2)
    await store.append(lease, entries(4, 2), sync=False)  # repeated, because nobody heard that it was done
    assert ids(await store.read("s")) == all_ids(5)
    assert (await store.list())[0].title == "Hello"
    await store.append(lease, entries(6), sync=False)
    await store.append(lease, entries(7), sync=False)
    lose(postgres, tenant, after=6)
    await store.append(lease, entries(8), sync=False)
    assert ids(await store.read("s")) == all_ids(8)


async def test_a_database_that_lost_more_than_that_is_not_written_on(postgres, tenant, store_of):
    store = store_of()
    lease = await store.acquire("s")
    await store.append(lease, entries(1, 5), sync=True)
    await store.append(lease, entries(6), sync=False)
    lose(postgres, tenant, after=3)
    for _ in range(2):
        with pytest.raises(Fenced):
            await store.append(lease, entries(7), sync=False)
    assert ids(await store.read("s")) == all_ids(3)
    await store.release(lease)
    await store.append(await store.acquire("s"), entries(4), sync=True)


async def test_the_driver_is_told_which_entries_are_gone(postgres, tenant, store_of):
    store = store_of()
    lease = await store.acquire("s")
    await store.append(lease, entries(1, 5), sync=True)
    lose(postgres, tenant, after=3)
    with pytest.raises(Fenced, match="ends at entry 3, but entry 5 was stored and acknowledged: the database was set"):
        await store.append(lease, entries(6), sync=False)
