import asyncio
import logging
import threading
from typing import Any

import pytest

from perdure.core.bounded_buffer import BufferStats
from perdure.core.error import ConfigError
from perdure.core.event_fanout import Fanout, Subscription

SECONDS = 30


def join_words(older: str, newer: str) -> str | None:
    return f"{older}{newer}" if older.isalpha() and newer.isalpha() else None


def name_lost(lost: str, marker: str | None) -> str:
    return f"{marker or 'lost:'}{lost}"


async def read(subscription: Subscription[Any], count: int) -> list[Any]:
    async with asyncio.timeout(SECONDS):
        return [await anext(subscription) for _ in range(count)]


async def read_all(subscription: Subscription[Any]) -> list[Any]:
    async with asyncio.timeout(SECONDS):
        return [event async for event in subscription]


async def caught_up(fanout: Fanout[Any]) -> None:
    """Wait as long as the first watcher is lagging."""
    async with asyncio.timeout(SECONDS):
        while fanout.stats[0].lagging:  # noqa: ASYNC110 - the thing waited for has no event of its own
            await asyncio.sleep(0)


class Gate:
    """A plain watcher that stands still until the test opens it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.passed: list[Any] = []

    def __call__(self, event: Any) -> None:
        self.reached.set()
        self.opened.wait(SECONDS)
        self.passed.append(event)


# -- watchers ----------------------------------------------------------------------------------------------------------


async def test_publishing_to_nobody_does_nothing():
    fanout = Fanout[int]()
    fanout.publish(1)
    assert not fanout.is_watched


async def test_a_fanout_is_watched_while_anybody_is_there_to_be_told():
    fanout = Fanout[int]()
    remove = fanout.add_watcher(print)
    subscription = fanout.subscribe()
    remove()
    assert fanout.is_watched
    subscription.close()
    assert not fanout.is_watched


async def test_every_watcher_gets_every_event_in_order():
    fanout = Fanout[int]()
    on_thread: list[int] = []
    on_task: list[int] = []

    async def watcher(event: int) -> None:
        on_task.append(event)

    fanout.add_watcher(on_thread.append)
    fanout.add_watcher(watcher)
    for event in range(300):
        fanout.publish(event)
    await fanout.drain(SECONDS)
    assert on_thread == on_task == list(range(300))
    await fanout.aclose()


async def test_a_watcher_that_raises_is_reported_and_the_others_go_on():
    dropped: list[tuple[str, BaseException]] = []
    fanout = Fanout[int](on_dropped=lambda name, error: dropped.append((name, error)))
    seen: list[int] = []
    error = ValueError("no")

    def faulty(event: int) -> None:
        raise error

    fanout.add_watcher(faulty, name="faulty")
    fanout.add_watcher(seen.append)
    for event in range(3):
        fanout.publish(event)
        await fanout.drain(SECONDS)
    assert dropped == [("faulty", error)]
    assert seen == [0, 1, 2]
    assert [watcher.name for watcher in fanout.stats] == ["list.append"]
    await fanout.aclose()


async def test_the_one_who_is_told_of_a_dropped_watcher_may_publish_it():
    fanout = Fanout[str](on_dropped=lambda name, error: f"{name}: {error!r}")
    subscription = fanout.subscribe()

    async def faulty(event: str) -> None:
        raise SystemExit(1)

    fanout.add_watcher(faulty, name="faulty")
    fanout.publish("hello")
    assert await read(subscription, 2) == ["hello", "faulty: SystemExit(1)"]


async def test_draining_waits_until_others_have_heard_of_a_watcher_that_was_dropped_meanwhile():
    seen: list[str] = []
    fanout = Fanout[str](on_dropped=lambda _name, _error: "dropped")

    async def broken(event: str) -> None:
        await turns()
        raise ValueError(event)

    async def recorder(event: str) -> None:
        await turns(10 if event == "dropped" else 0)
        seen.append(event)

    async def turns(count: int = 10) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    fanout.add_watcher(broken)
    fanout.add_watcher(recorder)
    fanout.publish("x")
    await fanout.drain(SECONDS)
    assert seen == ["x", "dropped"]


async def test_a_report_of_a_dropped_watcher_that_fails_is_logged(caplog):
    def report(name: str, error: BaseException) -> None:
        raise LookupError(name)

    async def faulty(event: int) -> None:
        raise ValueError

    fanout = Fanout[int](on_dropped=report)
    fanout.add_watcher(faulty, name="faulty")
    fanout.publish(1)
    await fanout.drain(SECONDS)
    assert [record.getMessage() for record in caplog.records] == [
        "the watcher 'faulty' raised ValueError() and gets no more events",
        "reporting the dropped watcher 'faulty' failed",
    ]


async def test_a_watcher_that_raises_needs_nobody_to_be_told():
    async def faulty(event: int) -> None:
        raise ValueError

    fanout = Fanout[int]()
    fanout.add_watcher(faulty)
    fanout.publish(1)
    await fanout.drain(SECONDS)
    assert fanout.stats == ()


async def test_a_removed_watcher_gets_no_more_events():
    fanout = Fanout[int]()
    kept: list[int] = []
    removed: list[int] = []
    fanout.add_watcher(kept.append)
    remove = fanout.add_watcher(removed.append)
    fanout.publish(1)
    await fanout.drain(SECONDS)
    remove()
    remove()
    fanout.publish(2)
    await fanout.drain(SECONDS)
    assert (kept, removed) == ([1, 2], [1])
    await fanout.aclose()


async def test_a_watcher_may_remove_itself_from_its_own_thread():
    fanout = Fanout[int]()
    seen: list[int] = []

    def once(event: int) -> None:
        seen.append(event)
        remove()

    remove = fanout.add_watcher(once)
    fanout.publish(1)
    await fanout.drain(SECONDS)
    fanout.publish(2)
    await fanout.drain(SECONDS)
    assert seen == [1]
    assert fanout.stats == ()


async def test_a_watcher_removed_before_its_first_event_is_forgotten():
    fanout = Fanout[int]()
    fanout.add_watcher(print)()
    assert fanout.stats == ()


async def test_a_watcher_that_blocks_loses_the_oldest_events_and_is_told():
    fanout = Fanout[str](capacity=2, lagged=name_lost)
    gate = Gate()
    fanout.add_watcher(gate, name="slow")
    fanout.publish("0")
    assert gate.reached.wait(SECONDS)
    for event in "12345":
        fanout.publish(event)
    gate.opened.set()
    await fanout.drain(SECONDS)
    assert gate.passed == ["0", "lost:123", "4", "5"]
    (slow,) = fanout.stats
    assert (slow.name, slow.lagging) == ("slow", False)
    assert slow.events == BufferStats(pushed=6, delivered=3, dropped=3, merged=0, buffered=0, refused=0, high_water=2)
    await fanout.aclose()


async def test_events_merge_for_a_watcher_whose_buffer_is_full():
    fanout = Fanout[str](capacity=2, coalesce=join_words)
    gate = Gate()
    fanout.add_watcher(gate)
    fanout.publish("0")
    assert gate.reached.wait(SECONDS)
    for event in ("a", "b", "c", "d"):
        fanout.publish(event)
    gate.opened.set()
    await fanout.drain(SECONDS)
    assert gate.passed == ["0", "a", "bcd"]
    await fanout.aclose()


@pytest.mark.parametrize("option", ["coalesce", "lagged"])
async def test_a_merge_that_raises_hurts_nobody_and_is_not_tried_again(caplog, option):
    def merge(first: str, second: str | None) -> str:
        raise ValueError(first)

    options: dict[str, Any] = {option: merge}
    fanout = Fanout[str](capacity=1, **options)
    subscription = fanout.subscribe()
    for event in "123":
        fanout.publish(event)
    assert await read(subscription, 1) == ["3"]
    (record,) = caplog.records
    assert "merging events" in record.getMessage()


def test_a_capacity_that_cannot_work_is_refused_where_it_is_given():
    with pytest.raises(ConfigError, match="capacity is 0"):
        Fanout[int](capacity=0)
    with pytest.raises(ConfigError, match="capacity is -1"):
        Fanout[int]().subscribe(capacity=-1)


# -- subscriptions -----------------------------------------------------------------------------------------------------


async def test_a_subscription_gets_the_events_since_it_was_made():
    fanout = Fanout[int]()
    fanout.publish(1)
    subscription = fanout.subscribe()
    fanout.publish(2)
    fanout.publish(3)
    assert await read(subscription, 2) == [2, 3]
    assert subscription.stats.delivered == 2


async def test_a_closed_subscription_gives_what_it_holds_and_ends():
    fanout = Fanout[int]()
    subscription, other = fanout.subscribe(), fanout.subscribe()
    fanout.publish(1)
    subscription.close()
    subscription.close()
    fanout.publish(2)
    assert await read_all(subscription) == [1]
    assert await read(other, 2) == [1, 2]


async def test_a_subscription_that_falls_behind_is_told_what_it_missed():
    fanout = Fanout[str](lagged=name_lost, coalesce=join_words)
    subscription = fanout.subscribe(capacity=2)
    for event in ("1", "2", "3", "a", "b"):
        fanout.publish(event)
    assert await read(subscription, 3) == ["lost:12", "3", "ab"]


async def test_a_subscription_without_backpressure_slows_nobody():
    fanout = Fanout[int](capacity=1)
    fanout.subscribe()
    fanout.publish(1)
    fanout.publish(2)
    assert not fanout.is_congested
    async with asyncio.timeout(SECONDS):
        await fanout.wait_for_room()


async def test_a_publisher_waits_until_half_of_a_full_subscription_has_been_read():
    fanout = Fanout[int]()
    subscription = fanout.subscribe(backpressure=True, capacity=4)
    for event in range(3):
        fanout.publish(event)
    assert not fanout.is_congested
    fanout.publish(3)
    assert fanout.is_congested
    waiting = asyncio.create_task(fanout.wait_for_room())
    assert await read(subscription, 1) == [0]
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await read(subscription, 1) == [1]
    assert not fanout.is_congested
    async with asyncio.timeout(SECONDS):
        await waiting


async def test_backpressure_loses_nothing_and_holds_little_even_with_many_publishers():
    fanout = Fanout[int]()
    subscription = fanout.subscribe(backpressure=True, capacity=2)

    async def publish(first: int) -> None:
        for event in range(first, first + 100):
            await fanout.wait_for_room()
            fanout.publish(event)

    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
        for first in (0, 100, 200):
            group.create_task(publish(first))
        seen = await read(subscription, 300)
    assert sorted(seen) == list(range(300))
    assert subscription.stats.high_water <= 2 + 3


async def test_every_full_subscription_must_be_read_before_there_is_room():
    fanout = Fanout[int]()
    one, two = (fanout.subscribe(backpressure=True, capacity=1) for _ in range(2))
    fanout.publish(1)
    waiting = asyncio.create_task(fanout.wait_for_room())
    assert await read(one, 1) == [1]
    assert fanout.is_congested
    assert await read(two, 1) == [1]
    async with asyncio.timeout(SECONDS):
        await waiting


async def test_a_full_subscription_that_is_closed_lets_the_publisher_go():
    fanout = Fanout[int]()
    subscription = fanout.subscribe(backpressure=True, capacity=1)
    fanout.publish(1)
    waiting = asyncio.create_task(fanout.wait_for_room())
    await asyncio.sleep(0)
    subscription.close()
    async with asyncio.timeout(SECONDS):
        await waiting
    assert await read_all(subscription) == [1]


async def test_a_publisher_that_does_not_wait_for_room_still_cannot_fill_the_memory():
    fanout = Fanout[int](capacity=3)
    subscription = fanout.subscribe(backpressure=True, capacity=2)
    for event in range(100):
        fanout.publish(event)
    assert await read(subscription, 5) == [95, 96, 97, 98, 99]


# -- draining and closing ----------------------------------------------------------------------------------------------


async def test_a_watcher_that_is_late_is_not_waited_for_again_until_it_has_caught_up():
    fanout = Fanout[int]()
    gate = Gate()
    fanout.add_watcher(gate)
    fanout.publish(1)
    await fanout.drain(0)
    assert fanout.stats[0].lagging
    async with asyncio.timeout(SECONDS):
        await fanout.drain(3600)
    gate.opened.set()
    await caught_up(fanout)
    gate.opened.clear()
    gate.reached.clear()
    fanout.publish(2)
    assert gate.reached.wait(SECONDS)
    draining = asyncio.create_task(fanout.drain(3600))
    await asyncio.sleep(0)
    gate.opened.set()
    async with asyncio.timeout(SECONDS):
        await draining
    assert gate.passed == [1, 2]
    await fanout.aclose()


async def test_closing_leaves_no_task_and_no_thread_behind():
    before = {*asyncio.all_tasks(), *threading.enumerate()}  # threads of earlier tests may end meanwhile
    fanout = Fanout[int]()
    seen: list[int] = []

    async def watcher(event: int) -> None:
        seen.append(event)

    for _ in range(5):
        fanout.add_watcher(watcher)
        fanout.add_watcher(seen.append)
    fanout.add_watcher(print)()
    reading = asyncio.create_task(read_all(fanout.subscribe()))
    for event in range(100):
        fanout.publish(event)
    await fanout.aclose(SECONDS)
    assert len(seen) == 1000
    assert await reading == list(range(100))
    assert {*asyncio.all_tasks(), *threading.enumerate()} <= before
    assert fanout.stats == ()


async def test_a_closed_fanout_takes_neither_events_nor_watchers():
    fanout = Fanout[int]()
    open_before = fanout.subscribe()
    full = fanout.subscribe(backpressure=True, capacity=1)
    fanout.publish(1)
    await fanout.aclose()
    await fanout.aclose()
    assert not fanout.is_congested
    fanout.publish(2)
    remove = fanout.add_watcher(print)
    remove()
    assert fanout.stats == ()
    assert await read_all(fanout.subscribe()) == []
    assert await read_all(open_before) == await read_all(full) == [1]


async def test_a_plain_watcher_that_never_returns_is_left_behind(caplog):
    fanout = Fanout[int]()
    gate = Gate()
    fanout.add_watcher(gate, name="stuck")
    fanout.publish(1)
    assert gate.reached.wait(SECONDS)
    fanout.publish(2)
    fanout.publish(3)
    async with asyncio.timeout(SECONDS):
        await fanout.aclose(0)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "the watcher 'stuck' was still busy at the end: it missed 2 events"
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "perdure watcher stuck"]
    assert thread.daemon
    gate.opened.set()
    thread.join(SECONDS)
    assert gate.passed == [1]


async def test_an_async_watcher_that_hangs_is_cancelled():
    cleaned_up = asyncio.Event()

    async def hang(event: int) -> None:
        try:
            await asyncio.Future()
        finally:
            cleaned_up.set()

    fanout = Fanout[int]()
    fanout.add_watcher(hang)
    fanout.publish(1)
    await asyncio.sleep(0)
    async with asyncio.timeout(SECONDS):
        await fanout.aclose(0)
    await asyncio.sleep(0)
    assert cleaned_up.is_set()


async def test_an_async_watcher_may_close_the_fanout_it_watches():
    fanout = Fanout[int]()
    closed = asyncio.Event()

    async def closing(event: int) -> None:
        await fanout.aclose(3600)
        closed.set()

    fanout.add_watcher(closing)
    fanout.publish(1)
    async with asyncio.timeout(SECONDS):
        await closed.wait()


async def test_closing_that_is_cancelled_still_ends_the_watchers():
    fanout = Fanout[int]()
    ended = asyncio.Event()

    async def hang(event: int) -> None:
        try:
            await asyncio.Future()
        finally:
            ended.set()

    fanout.add_watcher(hang)
    fanout.publish(1)
    closing = asyncio.create_task(fanout.aclose(3600))
    await asyncio.sleep(0)
    closing.cancel()
    async with asyncio.timeout(SECONDS):
        await ended.wait()
        await asyncio.wait([closing])
    assert closing.cancelled()


async def test_a_removed_watcher_whose_last_call_hangs_is_ended_with_the_rest():
    hanging = asyncio.Event()

    async def hang(event: int) -> None:
        hanging.set()
        await asyncio.Future()

    tasks = len(asyncio.all_tasks())
    fanout = Fanout[int]()
    remove = fanout.add_watcher(hang)
    fanout.publish(1)
    async with asyncio.timeout(SECONDS):
        await hanging.wait()
        remove()
        await fanout.aclose(0)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == tasks


@pytest.mark.parametrize("backpressure", [False, True])
async def test_a_reader_may_take_what_waits_without_waiting(backpressure):
    fanout = Fanout[str](capacity=4)
    subscription = fanout.subscribe(backpressure=backpressure, capacity=4)
    for event in "abcd":
        fanout.publish(event)
    assert (len(subscription), fanout.is_congested) == (4, backpressure)
    assert [subscription.get_nowait() for _ in range(4)] == ["a", "b", "c", "d"]
    assert (len(subscription), fanout.is_congested) == (0, False)
    subscription.close()
    await fanout.aclose()


async def test_the_subscriptions_of_one_owner_are_closed_and_no_others():
    fanout: Fanout[int] = Fanout()
    owner, other = object(), object()
    mine, also_mine, theirs, nobodys = (fanout.subscribe(owner=each) for each in (owner, owner, other, None))
    fanout.publish(1)
    fanout.close_subscriptions(owner)
    fanout.publish(2)
    assert [[each.get_nowait() for _ in range(len(each))] for each in (mine, also_mine, theirs, nobodys)] == [
        [1],
        [1],
        [1, 2],
        [1, 2],
    ]
    assert [event async for event in mine] == []


async def test_a_fanout_that_is_closed_is_not_watched() -> None:
    fanout = Fanout[int]()
    fanout.add_watcher(print)
    fanout.subscribe()
    await fanout.aclose()
    assert (fanout.is_watched, fanout.receivers, fanout.stats) == (False, (), ())


async def test_a_fanout_whose_only_watcher_was_dropped_is_not_watched() -> None:
    fanout = Fanout[int]()

    async def fail(_event: int) -> None:
        raise ValueError

    fanout.add_watcher(fail)
    fanout.publish(1)
    await fanout.drain(SECONDS)
    assert (fanout.is_watched, fanout.receivers, fanout.stats) == (False, (), ())
    await fanout.aclose()


async def test_room_is_made_when_exactly_half_has_been_read() -> None:
    fanout = Fanout[int](capacity=2)
    subscription = fanout.subscribe(backpressure=True, capacity=4)
    for number in range(3):
        fanout.publish(number)
    assert not fanout.is_congested
    fanout.publish(3)
    assert (fanout.is_congested, len(subscription)) == (True, 4)
    assert subscription.get_nowait() == 0
    assert fanout.is_congested
    assert subscription.get_nowait() == 1
    assert not fanout.is_congested
    for number in range(4, 10):
        fanout.publish(number)
    assert (len(subscription), subscription.stats.buffered) == (6, 6)
    subscription.close()
    assert (fanout.is_congested, fanout.is_watched) == (False, False)
    assert await read_all(subscription) == [4, 5, 6, 7, 8, 9]


async def test_a_subscription_has_the_capacity_of_the_fanout_unless_it_says_another() -> None:
    fanout = Fanout[int](capacity=2)
    usual, small = fanout.subscribe(), fanout.subscribe(capacity=1)
    for number in range(3):
        fanout.publish(number)
    await fanout.aclose()
    assert (await read_all(usual), await read_all(small)) == ([1, 2], [2])
