"""Forks in a PostgreSQL store: nothing is copied, and nothing is kept that nobody needs."""

import asyncio

import msgspec
import pytest

from perdure import SessionBusy, SessionExists, SessionNotFound
from perdure.events import Custom, Entry
from perdure.stores import Conflict, Fenced, describe_this_process
from tests.stores.material import entries

pytestmark = pytest.mark.needs("postgres")


def kept(postgres, tenant) -> list[str]:
    """The sessions that have rows, by their key, and how many entries lie in each: `(id,count)`."""
    statement = """
    SELECT ROW(session.id, count(entry.seq))::text FROM perdure.session LEFT JOIN perdure.entry ON session = key
    WHERE tenant = %s GROUP BY key ORDER BY key"""
    return postgres.ask(statement, tenant)


async def grown(store, session_id: str, first: int, count: int) -> None:
    lease = await store.acquire(session_id)
    await store.append(lease, entries(first, count), sync=False)
    await store.release(lease)


async def ids(store, session_id: str) -> list[str]:
    return [entry.id for entry in await store.read(session_id)]


async def test_a_fork_copies_nothing(postgres, tenant, store_of):
    store = store_of()
    await grown(store, "a", 1, 5)
    await store.fork("a", "b", at=3)
    await store.fork("b", "c")
    await grown(store, "c", 4, 1)
    assert kept(postgres, tenant) == ["(a,5)", "(b,0)", "(c,1)"]
    assert await ids(store, "c") == [f"e-{seq}" for seq in range(1, 5)]


async def test_a_deleted_session_keeps_what_its_forks_need_and_no_more(postgres, tenant, store_of):
    store = store_of()
    await grown(store, "a", 1, 9)
    await store.fork("a", "b", at=6)
    await grown(store, "b", 7, 2)
    await store.fork("b", "c", at=4)
    await store.fork("b", "d", at=7)
    await store.delete("a")
    assert kept(postgres, tenant) == ["(,6)", "(b,2)", "(c,0)", "(d,0)"]
    await store.delete("b")
    assert kept(postgres, tenant) == ["(,6)", "(,1)", "(c,0)", "(d,0)"]
    assert await ids(store, "d") == [f"e-{seq}" for seq in range(1, 8)]
    await store.delete("d")
    assert kept(postgres, tenant) == ["(,4)", "(,0)", "(c,0)"]
    assert await ids(store, "c") == [f"e-{seq}" for seq in range(1, 5)]
    assert [(info.session_id, info.parent, info.at) for info in await store.list()] == [("c", "", 0)]
    await store.delete("c")
    assert kept(postgres, tenant) == []


async def test_forks_and_original_that_are_deleted_at_once_leave_nothing(postgres, tenant, store_of):
    stores = [store_of() for _ in range(3)]
    for number in range(6):
        await grown(stores[0], "a", 1, 4)
        await stores[0].fork("a", "b", at=2)
        await stores[0].fork("b", "c", at=1)
        names = ["a", "b", "c"]
        tries = [store.delete(name) for store, name in zip(stores, names[number % 3 :] + names, strict=False)]
        await asyncio.gather(*tries)
        assert kept(postgres, tenant) == []


async def test_a_fork_that_is_made_while_its_original_is_deleted_is_whole_or_not_there(postgres, tenant, store_of):
    one, other = store_of(), store_of()
    for number in range(10):
        await grown(one, f"a{number}", 1, 3)
        tries = [one.fork(f"a{number}", f"b{number}", at=2), other.delete(f"a{number}")]
        made, _ = await asyncio.gather(*tries, return_exceptions=True)
        assert made is None or isinstance(made, SessionNotFound)
        assert len(await one.read(f"b{number}")) == (0 if made else 2)
        await one.delete(f"b{number}")
    assert kept(postgres, tenant) == []


async def test_of_many_that_make_the_same_fork_one_does(store_of):
    stores = [store_of(), store_of()]
    await grown(stores[0], "a", 1, 3)
    for number in range(5):
        tries = [store.fork("a", f"b{number}") for store in stores * 2]
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert [type(result) for result in results if result is not None] == [SessionExists] * 3


async def test_a_fork_to_a_session_that_somebody_drives_is_refused(store_of):
    store = store_of()
    await grown(store, "a", 1, 2)
    lease = await store.acquire("b")
    with pytest.raises(SessionExists, match="there is a session 'b' already"):
        await store.fork("a", "b")
    await store.release(lease)
    await store.fork("a", "b")
    with pytest.raises(Fenced):
        await store.append(lease, entries(1), sync=False)


async def test_tenants_fork_their_own_sessions(store_of):
    ours, theirs = store_of(tenant="fork ours"), store_of(tenant="fork theirs")
    await grown(ours, "a", 1, 2)
    with pytest.raises(SessionNotFound, match="there is no session 'a' to fork"):
        await theirs.fork("a", "b")
    await ours.delete("a")


async def test_an_entry_that_a_fork_shares_is_not_added_at_a_new_number(store_of):
    store = store_of()
    await grown(store, "a", 1, 3)
    await store.fork("a", "b")
    lease = await store.acquire("b")
    with pytest.raises(Conflict, match="elsewhere in the log"):
        await store.append(lease, [Entry(4, 1.0, Custom("data"), "e-2")], sync=False)
    await store.append(lease, entries(2, 2), sync=True)
    await store.append(lease, entries(4), sync=True)
    assert len(await store.read("b")) == 4


async def test_a_fork_goes_on_with_the_fences_of_its_id(store_of):
    store = store_of()
    await grown(store, "a", 1, 1)
    await grown(store, "b", 1, 1)
    old = await store.acquire("b")
    await store.release(old)
    await store.delete("b")
    await store.fork("a", "b")
    assert (await store.acquire("b")).fence > old.fence


async def test_who_was_taken_over_is_fenced_and_who_took_over_is_named(store_of):
    store, other = store_of(), store_of()
    old = await store.acquire("s")
    await store.append(old, entries(1), sync=False)
    new = await other.acquire("s", take_over=True)
    assert new.fence == old.fence + 1
    with pytest.raises(Fenced, match="has changed hands"):
        await store.append(old, entries(2), sync=False)
    await store.release(old)
    with pytest.raises(SessionBusy):
        await store.acquire("s")
    await other.append(new, entries(2), sync=True)


@pytest.mark.parametrize("has_died", [True, False])
async def test_a_fork_takes_an_id_that_a_dead_process_has_and_not_that_of_a_living_one(
    postgres, tenant, store_of, has_died
):
    store = store_of()
    await grown(store, "a", 1, 2)
    await store.acquire("b")
    holder = describe_this_process(0.0)
    text = msgspec.json.encode(msgspec.structs.replace(holder, pid=2**22 + 1) if has_died else holder).decode()
    postgres.ask("UPDATE perdure.session SET holder = %s WHERE tenant = %s AND id = 'b'", text, tenant)
    if has_died:
        await store.fork("a", "b")
        assert await ids(store, "b") == ["e-1", "e-2"]
    else:
        with pytest.raises(SessionExists):
            await store.fork("a", "b")
