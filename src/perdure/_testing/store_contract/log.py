"""Tests in `check_store`: log entries are stored unchanged, in order, and not twice."""

import asyncio

from perdure._core.log.store import EventReadingStore, NonBlockingAppendStore
from perdure._core.values.error import Conflict, Fenced
from perdure._core.values.event import Custom, Entry, MessageAdded, Unknown
from perdure._core.values.event_class import Event
from perdure._core.values.message import user

from .setup import (
    HOSTILE_TEXTS,
    UNENCODABLE,
    CheckSkipped,
    StoreCheck,
    StoreUnderTest,
    build_entries,
    build_user_entries,
    expect_equal,
    expect_error,
    expect_no_error,
)


async def _entries_come_back_in_order(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    lease = await store.acquire(name)
    written = build_user_entries(1, "one", "two", "three")
    await store.append(lease, written[:2], sync=False)
    await store.append(lease, written[2:], sync=True)
    await store.append(lease, [], sync=True)
    expect_equal(await store.read(name), written, "read() gives all entries as they were appended")
    expect_equal(await store.read(name, after=1), written[1:], "read(after=1) leaves out the first entry")
    expect_equal(await store.read(name, after=3), [], "read(after=the last) gives nothing")
    expect_equal(await store.read(name, after=99), [], "read(after=more than there are) gives nothing")
    expect_equal(await store.read(name + "other"), [], "read() of a session that is not there gives nothing")
    (await store.read(name)).clear()
    expect_equal(len(await store.read(name)), 3, "what read() gave belongs to the caller, who may change it")


async def _events_are_those_of_the_entries(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    if not isinstance(store, EventReadingStore):
        raise CheckSkipped("the store is not `EventReadingStore`")
    expect_equal(await store.events(name), (list[Event](), 0), "events() of a session that is not there gives nothing")
    lease = await store.acquire(name)
    written = build_user_entries(1, *[f"line {number}" for number in range(1, 41)])
    for place in range(0, 40, 8):
        await store.append(lease, written[place : place + 8], sync=place % 16 == 0)
    for after in (0, 1, 7, 8, 39, 40, 99):
        expected = [entry.event for entry in written[after:]], max(after, 40)
        expect_equal(await store.events(name, after=after), expected, f"events(after={after}) gives what follows")


async def _numbers_that_do_not_follow_are_refused(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    lease = await store.acquire(name)
    first = build_user_entries(1, "one", "two")
    await store.append(lease, first, sync=False)
    stale, gap, zero = build_user_entries(2, "another"), build_user_entries(4, "four"), build_user_entries(0, "zero")
    torn = [*build_user_entries(3, "three"), *build_user_entries(5, "five")]
    ahead = [*build_user_entries(1, "late"), *build_user_entries(2, "later"), *build_user_entries(3, "latest")]
    for what, entries in (
        ("an entry numbered like the last one", stale),
        ("a gap", gap),
        ("number 0", zero),
        ("a gap inside", torn),
        ("a beginning that is taken", ahead),
    ):
        await expect_error(Conflict, store.append(lease, entries, sync=False), f"append() of entries with {what}")
        expect_equal(await store.read(name), first, f"append() of entries with {what} writes nothing")
    await store.append(lease, build_user_entries(3, "three"), sync=False)
    expect_equal(len(await store.read(name)), 3, "after refusals, the entry that follows is taken")


async def _a_repeated_append_adds_nothing(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    lease = await store.acquire(name)
    first = build_user_entries(1, "one", "two")
    await store.append(lease, first, sync=False)
    await store.append(lease, first, sync=False)
    await store.append(lease, first, sync=True)
    expect_equal(await store.read(name), first, "append() of entries that are there already adds nothing")
    await store.append(lease, first[1:], sync=True)
    expect_equal(await store.read(name), first, "append() of some that are there already adds nothing")
    overlapping = [first[1], *build_user_entries(3, "three")]
    await expect_error(
        Conflict, store.append(lease, overlapping, sync=False), "append() of known and new entries together"
    )
    unnamed = [Entry(3, 0.0, Custom("a")), Entry(4, 0.0, Custom("b"))]
    await store.append(lease, unnamed, sync=False)
    await expect_error(
        Conflict, store.append(lease, unnamed, sync=False), "a repeated append() of entries without an id"
    )
    expect_equal(await store.read(name), [*first, *unnamed], "entries without an id are kept like others")


async def _no_content_makes_storing_fail(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    lease = await store.acquire(name)
    large = "0123456789abcdef" * (10 * 1024 * 1024 // 16)
    exact: list[Event] = [MessageAdded(user(text), run_id=text) for text in (*HOSTILE_TEXTS, large)]
    await expect_no_error(store.append(lease, build_entries(1, exact), sync=False), "append() of hostile text")
    read = await store.read(name)
    for expected, found in zip(exact, read, strict=True):
        expect_equal(found.event, expected, "text comes back as it was")
    numbers = [float("nan"), float("inf"), -float("inf"), 2**63, 10**400, -0.0]
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]
    hostile: list[Event] = [Custom("data", value) for value in (*numbers, *UNENCODABLE, deep, object(), {1: {2}})]
    hostile += [MessageAdded(user(text)) for text in UNENCODABLE]
    work = store.append(lease, build_entries(len(exact) + 1, hostile), sync=True)
    await expect_no_error(work, "append() of data that JSON cannot hold")
    kinds = [type(entry.event) for entry in await store.read(name, after=len(exact))]
    expect_equal(kinds, [type(event) for event in hostile], "entries with data that JSON cannot hold are kept")
    infos = await store.list(prefix=name)
    expect_equal([info.entries for info in infos], [len(exact) + len(hostile)], "a session of hostile text is listed")


async def _unknown_kinds_are_preserved(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    lease = await store.acquire(name)
    body = {"kind": "from_the_future", "run_id": "r", "path": "child", "deep": {"list": [1, None, "x"]}}
    event = Unknown("from_the_future", body, run_id="r", path="child")
    await store.append(lease, [Entry(1, 1.5, event, "u-1")], sync=False)
    expect_equal(
        await store.read(name), [Entry(1, 1.5, event, "u-1")], "an event of an unknown kind comes back as it was"
    )


async def _an_immediate_append_is_done_or_it_is_not(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name
    if not isinstance(store, NonBlockingAppendStore):
        raise CheckSkipped("the store is not `NonBlockingAppendStore`")
    lease = await store.acquire(name)
    expected: list[Entry] = []
    for number, sync in enumerate((False, True, False, False), 1):
        entries = build_user_entries(number, f"number {number}")
        if store.append_now(lease, entries, sync=sync):
            expected += entries
        else:
            expect_equal(await store.read(name), expected, "append_now() that returns False has done nothing")
            await store.append(lease, entries, sync=sync)
            expected += entries
        expect_equal(await store.read(name), expected, "append_now() that returns True has stored the entries")
    await store.release(lease)
    await store.acquire(name)
    try:
        done = store.append_now(lease, build_user_entries(5, "late"), sync=False)
    except Fenced:
        return
    expect_equal(done, expected=False, promise="append_now() with a lease that was replaced is refused")


async def _sessions_grow_side_by_side(trial: StoreUnderTest) -> None:
    store, name = trial.store, trial.name

    async def grow(session_id: str) -> None:
        lease = await store.acquire(session_id)
        for number in range(1, 11):
            await store.append(lease, build_user_entries(number, f"{session_id} {number}"), sync=number == 10)  # noqa: PLR2004

    ids = [f"{name}{number}" for number in range(20)]
    await asyncio.gather(*[grow(session_id) for session_id in ids])
    for session_id in ids:
        expected = [MessageAdded(user(f"{session_id} {number}")) for number in range(1, 11)]
        expect_equal(
            [entry.event for entry in await store.read(session_id)], expected, "each session keeps its own order"
        )


CHECKS: tuple[StoreCheck, ...] = (
    _entries_come_back_in_order,
    _events_are_those_of_the_entries,
    _numbers_that_do_not_follow_are_refused,
    _a_repeated_append_adds_nothing,
    _no_content_makes_storing_fail,
    _unknown_kinds_are_preserved,
    _an_immediate_append_is_done_or_it_is_not,
    _sessions_grow_side_by_side,
)
