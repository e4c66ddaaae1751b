"""Limits that all who use a key share."""

import asyncio
import gc
import threading

import pytest

from perdure import ConfigError
from perdure._models.endpoint.throttle import get_shared_throttle
from perdure._models.endpoint.throttle_state import RequestSlot
from perdure.models import Throttle, set_api_key_limits
from perdure.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def waited(throttle: Throttle, tokens: int = 0) -> RequestSlot:
    slot = throttle.try_take_slot(tokens)
    if slot is None:
        place = throttle.join_queue(tokens)
        try:
            slot = await throttle.wait_for_slot(place)
        finally:
            throttle.leave_queue(place)
    return slot


def exact(clock: FakeClock, **limits: float) -> Throttle:
    return Throttle(clock=clock, jitter=lambda: 0.0, **limits)  # type: ignore[arg-type]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_without_limits_nobody_waits(clock):
    throttle = exact(clock)
    slots = [throttle.try_take_slot(10**6) for _ in range(100)]
    assert None not in slots
    for slot in slots:
        throttle.release_slot(slot, 10**6)  # type: ignore[arg-type]
    assert repr(throttle) == "Throttle()"


async def test_the_line_is_served_in_order(clock):
    throttle, served = exact(clock, concurrency=1), []

    async def one(number: int) -> None:
        slot = await waited(throttle)
        served.append(number)
        await asyncio.sleep(0)
        throttle.release_slot(slot)

    async with asyncio.timeout(30):
        await asyncio.gather(*[one(number) for number in range(30)])
    assert served == list(range(30))


async def test_nobody_overtakes_the_line(clock):
    throttle = exact(clock, concurrency=1, tokens_per_minute=100)
    slot = throttle.try_take_slot(100)
    assert slot is not None
    waiting = asyncio.create_task(waited(throttle, 100))
    await settle()
    throttle.release_slot(slot, 100)
    await settle()
    assert throttle.try_take_slot(0) is None  # a small one would fit, but it was not its turn
    await clock.advance(60)
    assert (await waiting).tokens == 100


async def test_requests_per_minute_are_spread(clock):
    throttle, sent = exact(clock, requests_per_minute=60), []
    for _ in range(60):
        assert throttle.try_take_slot() is not None

    async def one() -> None:
        throttle.release_slot(await waited(throttle))
        sent.append(clock.monotonic())

    tasks = [asyncio.create_task(one()) for _ in range(4)]
    await clock.advance(10)
    await asyncio.gather(*tasks)
    assert sent == pytest.approx([1.0, 2.0, 3.0, 4.0])


async def test_one_that_is_cancelled_makes_room_for_the_next(clock):
    throttle = exact(clock, concurrency=1)
    slot = throttle.try_take_slot()
    assert slot is not None
    first, second = asyncio.create_task(waited(throttle)), asyncio.create_task(waited(throttle))
    await settle()
    first.cancel()
    await settle()
    throttle.release_slot(slot)
    async with asyncio.timeout(30):
        await second
    assert first.cancelled()


async def test_one_that_is_cancelled_as_its_turn_comes_loses_nothing(clock):
    throttle = exact(clock, concurrency=1)
    slot = throttle.try_take_slot()
    assert slot is not None
    first, second = asyncio.create_task(waited(throttle)), asyncio.create_task(waited(throttle))
    await settle()
    throttle.release_slot(slot)
    first.cancel()
    async with asyncio.timeout(30):
        await second


async def test_whoever_waits_for_more_than_a_moment_is_told_why(clock):
    throttle = exact(clock, requests_per_minute=2)
    assert throttle.try_take_slot() is not None
    assert throttle.try_take_slot() is not None
    place = throttle.join_queue()
    waiting = asyncio.create_task(throttle.wait_for_slot(place, 1.0))
    await clock.advance(1)
    assert await waiting is None
    assert place.obstacle.seconds == pytest.approx(29)
    assert place.obstacle.reason == "the limit of 2 requests a minute is reached"
    behind = throttle.join_queue()
    assert await throttle.wait_for_slot(behind, 0.0) is None
    throttle.leave_queue(place)
    throttle.leave_queue(place)
    throttle.leave_queue(behind)


@pytest.mark.parametrize("limits", [{}, {"concurrency": 3}])
async def test_one_that_has_left_the_line_is_not_in_anybodys_way(clock, limits):
    throttle = exact(clock, **limits)
    first, second = throttle.join_queue(), throttle.join_queue()
    assert throttle.try_take_slot() is None
    throttle.leave_queue(first)
    throttle.leave_queue(first)
    assert throttle.try_take_slot() is None
    throttle.leave_queue(second)
    assert throttle.try_take_slot() is not None


async def test_one_that_waits_is_told_how_many_are_ahead(clock):
    throttle = exact(clock, concurrency=1)
    assert throttle.try_take_slot() is not None
    places = [throttle.join_queue() for _ in range(3)]
    waiting = [asyncio.create_task(throttle.wait_for_slot(each, 5.0)) for each in places]
    await settle()
    assert [(each.obstacle.seconds, each.obstacle.reason) for each in places[1:]] == [
        (None, "1 requests with the same key are ahead of it"),
        (None, "2 requests with the same key are ahead of it"),
    ]
    await clock.advance(5)
    assert await asyncio.gather(*waiting) == [None] * 3


async def test_a_place_that_nobody_waits_at_holds_nobody_up(clock):
    throttle = exact(clock, concurrency=1)
    slot = throttle.try_take_slot()
    assert slot is not None
    slow = throttle.join_queue()
    assert await throttle.wait_for_slot(slow, 0.0) is None  # and now it is busy telling somebody
    other = asyncio.create_task(waited(throttle))
    await settle()
    throttle.release_slot(slot)
    async with asyncio.timeout(30):
        throttle.release_slot(await other)
        assert await throttle.wait_for_slot(slow) is not None


async def test_after_a_refusal_the_line_goes_on_little_by_little(clock):
    throttle = exact(clock)
    refused = [throttle.try_take_slot() for _ in range(10)]
    for slot in refused:
        assert slot is not None
        throttle.record_refused(slot)  # all that was sent together counts once
        throttle.release_slot(slot)
    going: list[RequestSlot] = []

    async def one() -> None:
        going.append(await waited(throttle))

    tasks = [asyncio.create_task(one()) for _ in range(10)]
    await clock.advance(0.9)
    assert len(going) == 0
    await clock.advance(0.1)
    sent = [len(going)]
    while len(going) < 10:
        for slot in going[-sent[-1] :]:
            throttle.record_accepted(slot)
        before = len(going)
        await settle()
        sent.append(len(going) - before)
    assert sent == [1, 2, 4, 3]
    await asyncio.gather(*tasks)


async def test_refusals_that_come_late_and_name_a_wait_do_not_double_the_next_pause(clock):
    """Requests sent together are refused one after another, each with a wait of its own: that is one pause."""
    throttle = exact(clock)
    sent = [throttle.try_take_slot() for _ in range(10)]
    for slot in sent:
        assert slot is not None
        throttle.record_refused(slot, 1)
        throttle.release_slot(slot)
    waiting = asyncio.create_task(waited(throttle))
    await clock.advance(1)
    first = await waiting
    throttle.record_refused(first)  # without a wait: the second pause is twice as long, and not a thousand times
    throttle.release_slot(first)
    again = asyncio.create_task(waited(throttle))
    await clock.advance(1.9)
    assert not again.done()
    await clock.advance(0.1)
    assert again.done()


async def test_a_pause_that_was_told_holds_for_everybody(clock):
    throttle = exact(clock)
    throttle.pause(5)
    waiting = asyncio.create_task(waited(throttle))
    await clock.advance(4.9)
    assert not waiting.done()
    await clock.advance(0.1)
    throttle.record_accepted(await waiting)
    assert throttle.try_take_slot() is not None
    assert throttle.try_take_slot() is not None


async def test_a_pause_that_is_told_while_the_line_recovers_lets_one_go_first_again(clock):
    throttle = exact(clock)
    throttle.pause(5)
    going: list[RequestSlot] = []

    async def one() -> None:
        going.append(await waited(throttle))

    tasks = [asyncio.create_task(one()) for _ in range(6)]
    await clock.advance(5)
    throttle.record_accepted(going[0])
    await settle()
    assert len(going) == 3
    throttle.pause(5)
    await clock.advance(4.9)
    assert len(going) == 3
    await clock.advance(0.1)
    assert len(going) == 4
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_pauses_are_stretched_by_chance(clock):
    throttle = Throttle(clock=clock, jitter=lambda: 1.0)
    throttle.pause(10)
    await clock.advance(10.9)
    assert throttle.try_take_slot() is None
    await clock.advance(0.1)
    assert throttle.try_take_slot() is not None


def test_loops_of_several_threads_share_one_line():
    throttle, at_once, most = Throttle(concurrency=2), [0], [0]
    lock = threading.Lock()

    async def one() -> None:
        slot = await waited(throttle)
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        await asyncio.sleep(0.001)
        with lock:
            at_once[0] -= 1
        throttle.release_slot(slot)

    async def some() -> None:
        async with asyncio.timeout(30):
            await asyncio.gather(*[one() for _ in range(20)])

    threads = [threading.Thread(target=lambda: asyncio.run(some())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert most == [2]
    assert throttle.try_take_slot() is not None


def test_a_loop_that_was_closed_does_not_hold_the_line_up():
    throttle = Throttle(concurrency=1)
    loop = asyncio.new_event_loop()
    slot = throttle.try_take_slot()
    assert slot is not None
    task = loop.create_task(waited(throttle))
    loop.run_until_complete(asyncio.sleep(0))
    place = throttle._queue[0]
    loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    place.awaited = True
    throttle._queue.append(place)  # as if it had died there

    async def next_one() -> None:
        async with asyncio.timeout(30):
            waiting = asyncio.create_task(waited(throttle))
            await settle()
            throttle.release_slot(slot)
            assert await waiting is not None

    asyncio.run(next_one())


@pytest.mark.parametrize(
    "limits", [{"concurrency": 0}, {"concurrency": 1.5}, {"requests_per_minute": 0}, {"tokens_per_minute": -1}]
)
def test_limits_that_cannot_be_are_refused(limits):
    with pytest.raises(ConfigError, match=f"Throttle.{next(iter(limits))}="):
        Throttle(**limits)


def test_a_key_has_one_throttle_as_long_as_somebody_uses_it():
    throttle = get_shared_throttle("https://one.example/v1/", "a")
    assert get_shared_throttle("https://one.example/v1", "a") is throttle
    assert get_shared_throttle("https://one.example/v1", "b") is not throttle
    throttle.pause(60)
    del throttle
    gc.collect()
    assert get_shared_throttle("https://one.example/v1", "a").try_take_slot() is not None


def test_limits_of_an_address_hold_for_all_of_its_keys_also_for_those_in_use():
    used = get_shared_throttle("https://two.example/v1", "a")
    own = get_shared_throttle("https://two.example/v1", "b")
    set_api_key_limits("https://two.example/v1", "b", tokens_per_minute=100)
    set_api_key_limits("https://two.example/v1", concurrency=3)
    assert repr(used) == "Throttle(concurrency=3)"
    assert repr(own) == "Throttle(tokens_per_minute=100)"
    assert repr(get_shared_throttle("https://two.example/v1", "new")) == "Throttle(concurrency=3)"
    set_api_key_limits("https://two.example/v1", requests_per_minute=9)
    assert repr(used) == "Throttle(requests_per_minute=9)"
    with pytest.raises(ConfigError):
        set_api_key_limits("https://two.example/v1", concurrency=0)


async def test_a_slot_that_is_given_back_twice_counts_once(clock):
    throttle = exact(clock, concurrency=2)
    first, second = throttle.try_take_slot(), throttle.try_take_slot()
    assert first is not None
    assert second is not None
    throttle.release_slot(first)
    throttle.release_slot(first)
    assert throttle.try_take_slot() is not None
    assert throttle.try_take_slot() is None


def test_a_throttle_says_its_limits(clock):
    throttle = exact(clock, concurrency=2, requests_per_minute=60, tokens_per_minute=1e6)
    assert repr(throttle) == "Throttle(concurrency=2, requests_per_minute=60, tokens_per_minute=1e+06)"
    throttle.set_limits()
    assert repr(throttle) == "Throttle()"


def test_a_limit_of_nothing_is_refused_with_what_to_do():
    with pytest.raises(ConfigError) as caught:
        Throttle(requests_per_minute=0)
    assert str(caught.value) == "Throttle(requests_per_minute=0): give a number above 0, or None for no limit"


async def test_limits_that_are_lifted_let_those_go_who_wait(clock):
    throttle = exact(clock, concurrency=1)
    assert throttle.try_take_slot() is not None
    waiting = asyncio.create_task(waited(throttle))
    await settle()
    throttle.set_limits()
    async with asyncio.timeout(30):
        assert await waiting is not None


async def test_a_late_refusal_without_a_wait_pauses_nobody_again(clock):
    throttle = exact(clock)
    early, late = throttle.try_take_slot(), throttle.try_take_slot()
    assert early is not None
    assert late is not None
    throttle.record_refused(early, 2)
    await clock.advance(2)
    first = throttle.try_take_slot()
    assert first is not None
    throttle.record_accepted(first)
    throttle.record_refused(late)
    assert throttle.try_take_slot() is not None
    throttle.record_refused(late, 3)
    assert throttle.try_take_slot() is None
