"""The store in memory: its contract, and what is its own."""

import threading

import pytest

from perdure.events import Custom, Entry
from perdure.stores import Conflict, Fenced, MemoryStore, NonBlockingAppendStore, Post, SearchableStore
from perdure.testing import check_store


async def test_it_keeps_the_contract():
    await check_store(MemoryStore)


async def test_it_keeps_the_contract_when_it_is_shared_by_all():
    store = MemoryStore()
    await check_store(lambda: store)


async def test_entries_are_kept_as_they_are():
    store = MemoryStore()
    lease = await store.acquire("s")
    entry = Entry(1, 0.0, Custom("data", {"value": object()}), "e-1")
    await store.append(lease, [entry], sync=True)
    assert (await store.read("s"))[0] is entry


async def test_an_append_never_has_to_wait():
    store = MemoryStore()
    assert isinstance(store, NonBlockingAppendStore)
    lease = await store.acquire("s")
    assert store.append_now(lease, [Entry(1, 0.0, Custom("a"), "e-1")], sync=True)


async def test_appends_from_several_threads_lose_nothing():
    store = MemoryStore()
    leases = [await store.acquire(f"s{number}") for number in range(4)]

    def grow(lease):
        for seq in range(1, 501):
            store.append_now(lease, [Entry(seq, 0.0, Custom("a"), f"{lease.session_id}-{seq}")], sync=False)

    threads = [threading.Thread(target=grow, args=(lease,)) for lease in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [info.entries for info in await store.list()] == [500] * 4


async def test_forks_hold_the_same_entries():
    store = MemoryStore()
    lease = await store.acquire("s")
    entry = Entry(1, 0.0, Custom("data"), "e-1")
    await store.append(lease, [entry], sync=False)
    await store.fork("s", "t")
    assert (await store.read("t"))[0] is entry


async def test_a_driver_that_was_replaced_in_another_thread_writes_nothing():
    """However the threads come between each other, no number is there twice."""
    store = MemoryStore()
    leases = [await store.acquire("s")]
    written: list[int] = []

    def grow():
        while len(written) < 2000:
            lease, head = leases[-1], len(store._sessions["s"].entries)
            try:
                store.append_now(lease, [Entry(head + 1, 0.0, Custom("a"), f"{lease.fence}-{head}")], sync=False)
            except (Conflict, Fenced):
                continue
            written.append(head)

    threads = [threading.Thread(target=grow) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        leases.append(await store.acquire("s", take_over=True))
    for thread in threads:
        thread.join(30)
    seqs = [entry.seq for entry in await store.read("s")]
    assert seqs == list(range(1, len(seqs) + 1))


async def test_a_lease_of_a_deleted_session_does_not_fit_one_that_a_fork_or_a_post_has_made_anew():
    store = MemoryStore()
    other = await store.acquire("other")
    await store.append(other, [Entry(1, 0.0, Custom("data"), "e-1")], sync=True)
    for name in ("forked", "posted"):
        lease = await store.acquire(name)
        await store.append(lease, [Entry(1, 0.0, Custom("data"), "e-1")], sync=True)
        await store.release(lease)
        await store.delete(name)
        if name == "forked":
            await store.fork("other", name)
        else:
            await store.post(name, Post("p", "steer"))
        before = await store.read(name)
        with pytest.raises(Fenced):
            await store.append(lease, [Entry(len(before) + 1, 0.0, Custom("late"), "e-2")], sync=True)
        with pytest.raises(Fenced):
            await store.redact(lease, Entry(1, 0.0, Custom("late"), "e-1"))
        assert await store.read(name) == before


async def test_a_lease_that_was_given_back_is_good_until_somebody_else_has_the_session():
    """Nobody can tell the difference; whoever is replaced is told."""
    store = MemoryStore()
    lease = await store.acquire("s")
    await store.release(lease)
    await store.append(lease, [Entry(1, 0.0, Custom("data"), "e-1")], sync=True)
    await store.redact(lease, Entry(1, 0.0, Custom("redacted"), "e-1"))
    await store.acquire("s")
    with pytest.raises(Fenced):
        await store.redact(lease, Entry(1, 0.0, Custom("late"), "e-1"))
    assert [entry.event for entry in await store.read("s")] == [Custom("redacted")]


async def test_it_cannot_be_searched_and_says_so_by_its_type():
    assert not isinstance(MemoryStore(), SearchableStore)
