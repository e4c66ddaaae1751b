"""Tests in `check_store`: only one process at a time runs a session, and a replaced one cannot write to it."""

import asyncio

from perdure._core.log.store import Lease, NonBlockingAppendStore, Post, Store
from perdure._core.values.error import Fenced, SessionBusy, UnsupportedByStore
from perdure._core.values.event import Custom, Entry

from .setup import (
    CheckSkipped,
    StoreCheck,
    StoreUnderTest,
    build_user_entries,
    expect_equal,
    expect_error,
    expect_no_error,
    store_session,
)


async def _a_lease_that_was_replaced_is_fenced(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    old = await store.acquire(name)
    first = build_user_entries(1, "one")
    await store.append(old, first, sync=False)
    expect_equal([await store.holds(old)], [True], "holds() of a lease that is valid")
    await store.release(old)
    expect_equal([await store.holds(old)], [False], "holds() of a lease that was released")
    new = await store.acquire(name)
    expect_equal([await store.holds(old), await store.holds(new)], [False, True], "holds() when there is another lease")
    expect_equal(max(old.fence + 1, new.fence), new.fence, "the fence grows each time a session changes hands")
    await expect_error(
        Fenced, store.append(old, build_user_entries(2, "two"), sync=False), "append() with a lease that was replaced"
    )
    await expect_error(
        Fenced, store.append(old, first, sync=False), "a repeated append() with a lease that was replaced"
    )
    expect_equal(await store.read(name), first, "append() with a lease that was replaced writes nothing")
    await store.release(old)
    await expect_error(SessionBusy, store.acquire(name), "acquire() after release() of a lease that was lost before")
    await store.append(new, build_user_entries(2, "two"), sync=True)
    expect_equal(len(await store.read(name)), 2, "the new lease can append")
    missing = Lease(name + "never", 1)
    await expect_error(Fenced, store.append(missing, first, sync=False), "append() to a session that is not there")
    expect_equal([await store.holds(missing)], [False], "holds() of a lease of a session that is not there")
    await expect_no_error(store.release(missing), "release() of a lease of a session that is not there")


async def _one_lease_is_out_at_a_time(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    lease = await store.acquire(name)
    await expect_error(SessionBusy, store.acquire(name), "acquire() of a session that is being driven")
    other = await store.acquire(name + "other")
    await store.append(other, build_user_entries(1, "not concerned"), sync=False)
    await store.release(lease)
    await store.release(lease)
    again = await store.acquire(name)
    await store.append(again, build_user_entries(1, "one"), sync=False)
    expect_equal(len(await store.read(name)), 1, "a lease that was given back can be had again")
    ways = await asyncio.gather(*[store.acquire(name + "race") for _ in range(5)], return_exceptions=True)
    expect_equal(
        sum(isinstance(way, Lease) for way in ways), 1, "of several that acquire() a session at once, one gets it"
    )
    expect_equal(sum(isinstance(way, SessionBusy) for way in ways), 4, "and the others are told that it is busy")


async def _a_session_can_be_taken_over(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    old = await store.acquire(name)
    first = build_user_entries(1, "one")
    await store.append(old, first, sync=False)
    await _check_take_over(store, store, old)


async def _a_session_can_be_taken_over_from_elsewhere(trial: StoreUnderTest) -> None:
    other = await trial.open_second_store()
    store, name = trial.store, trial.name
    old = await store.acquire(name)
    await store.append(old, build_user_entries(1, "one"), sync=False)
    await _check_take_over(store, other, old)


async def _check_take_over(holder: Store, taker: Store, old: Lease) -> None:
    """Check that `taker` can take over the session of lease `old`, which has one entry, from `holder`."""
    name = old.session_id
    first = await holder.read(name)
    try:
        new = await taker.acquire(name, take_over=True)
    except UnsupportedByStore as reason:
        await expect_no_error(
            holder.append(old, build_user_entries(2, "two"), sync=True),
            "append() after a take_over that is UnsupportedByStore",
        )
        raise CheckSkipped(f"the store cannot take a session over: {reason}") from None
    expect_equal(max(old.fence + 1, new.fence), new.fence, "the fence grows when a session is taken over")
    expect_equal([await holder.holds(old)], [False], "holds() of a lease that was taken over")
    expect_equal([await taker.holds(new)], [True], "holds() of the lease by which a session was taken over")
    late = build_user_entries(2, "late")
    await expect_error(Fenced, holder.append(old, late, sync=False), "append() by a driver that was replaced")
    await expect_error(Fenced, holder.append(old, late, sync=True), "a synced append() by a driver that was replaced")
    await expect_error(
        Fenced, holder.append(old, first, sync=True), "a repeated append() by a driver that was replaced"
    )
    replaced = Entry(1, 1.0, Custom("redacted"), first[0].id)
    await expect_error(Fenced, holder.redact(old, replaced), "redact() by a driver that was replaced")
    if isinstance(holder, NonBlockingAppendStore):
        await expect_error(
            Fenced, _append_now_or_later(holder, old, late), "append_now() by a driver that was replaced"
        )
    expect_equal(await taker.read(name), first, "a driver that was replaced writes nothing")
    await expect_no_error(holder.release(old), "release() of a lease that was taken")
    await expect_error(SessionBusy, holder.acquire(name), "acquire() after the driver that was replaced has released")
    await taker.append(new, build_user_entries(2, "two"), sync=True)
    expect_equal(len(await holder.read(name)), 2, "the driver that took the session over can append")
    await taker.release(new)
    free = await taker.acquire(name, take_over=True)
    await taker.append(free, build_user_entries(3, "three"), sync=False)
    expect_equal(len(await taker.read(name)), 3, "take_over of a session without a driver is an acquire()")


async def _append_now_or_later(store: Store, lease: Lease, entries: list[Entry]) -> None:
    if not (isinstance(store, NonBlockingAppendStore) and store.append_now(lease, entries, sync=False)):
        await store.append(lease, entries, sync=False)


async def _two_stores_of_one_place_agree(trial: StoreUnderTest) -> None:
    other = await trial.open_second_store()
    store, name = trial.store, trial.name
    lease = await store.acquire(name)
    await expect_error(SessionBusy, other.acquire(name), "acquire() of a session that is driven through another store")
    await expect_error(SessionBusy, other.delete(name), "delete() of a session that is driven through another store")
    first = build_user_entries(1, "one", "two")
    await store.append(lease, first, sync=False)
    expect_equal(await other.read(name), first, "what was appended is read by another store at once")
    expect_equal(await other.info(name), await store.info(name), "two stores give the same line")
    posts = [Post("theirs", "steer", "now"), Post("ours", "steer")]
    new = [await other.post(name, posts[0]), await store.post(name, posts[1]), await store.post(name, posts[0])]
    expect_equal(new, [True, True, False], "a post is kept once, whichever store it comes by")
    expect_equal([await store.posts(name), await other.posts(name)], [posts, posts], "two stores give the same posts")
    taking = [Entry(3, 1.0, Custom("taken"), "theirs")]
    await store.append(lease, taking, sync=True)
    expect_equal(await other.posts(name), posts[1:], "a post that was taken is taken in every store")
    await other.fork(name, name + "fork", at=2)
    expect_equal(
        await store.read(name + "fork"), first, "a session can be forked while it is driven through another store"
    )
    await store.release(lease)
    successor = await other.acquire(name)
    expect_equal(max(lease.fence + 1, successor.fence), successor.fence, "the fence grows from store to store")
    late = store.append(lease, build_user_entries(4, "late"), sync=False)
    await expect_error(Fenced, late, "append() with a lease that was replaced through another store")
    await other.append(successor, build_user_entries(4, "four"), sync=True)
    expect_equal([entry.seq for entry in await store.read(name)], [1, 2, 3, 4], "the log goes on through another store")


async def _closing_a_store_concerns_no_other(trial: StoreUnderTest) -> None:
    other = await trial.open_second_store()
    store, name = trial.store, trial.name
    ours, theirs = await store.acquire(name + "ours"), await other.acquire(name + "theirs")
    await other.append(theirs, build_user_entries(1, "one"), sync=False)
    await other.aclose()
    late = store.append(ours, build_user_entries(1, "one"), sync=True)
    await expect_no_error(late, "append() after another store of the same place was closed")
    lease = await store.acquire(name + "theirs")
    expect_equal(len(await store.read(name + "theirs")), 1, "what a store has kept is there when it is closed")
    await store.append(lease, build_user_entries(2, "two"), sync=True)
    await store_session(store, name + "more", "one")
    expect_equal(len(await store.list(prefix=name)), 4, "a store goes on when another one of the same place is closed")


async def _of_two_stores_one_gets_the_session(trial: StoreUnderTest) -> None:
    other = await trial.open_second_store()
    for number in range(5):
        session_id = f"{trial.name}{number}"
        tries = [each.acquire(session_id) for each in (trial.store, other, trial.store, other)]
        ways = await asyncio.gather(*tries, return_exceptions=True)
        expect_equal(
            sum(isinstance(way, Lease) for way in ways), 1, "of two stores that acquire() at once, one gets it"
        )
        expect_equal(sum(isinstance(way, SessionBusy) for way in ways), 3, "and the other is told that it is busy")


CHECKS: tuple[StoreCheck, ...] = (
    _a_lease_that_was_replaced_is_fenced,
    _one_lease_is_out_at_a_time,
    _a_session_can_be_taken_over,
    _a_session_can_be_taken_over_from_elsewhere,
    _two_stores_of_one_place_agree,
    _of_two_stores_one_gets_the_session,
    _closing_a_store_concerns_no_other,
)
