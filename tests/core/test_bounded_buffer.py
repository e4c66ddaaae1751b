import asyncio
from collections.abc import Coroutine

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perdure.core.bounded_buffer import Buffer, BufferStats, OverflowPolicy, PushReport
from perdure.core.error import ConfigError

SECONDS = 30


async def turns(count: int = 3) -> None:
    """Let every task that can run do so."""
    for _ in range(count):
        await asyncio.sleep(0)


def must_wait(coroutine: Coroutine[object, None, object]) -> None:
    """Step it by hand: one that did not wait would raise `StopIteration`."""
    coroutine.send(None)
    coroutine.close()


def join_words(older: str, newer: str) -> str | None:
    return f"{older}{newer}" if older.isalpha() and newer.isalpha() else None


def count_lost(lost: str, marker: str | None) -> str:
    return f"{marker or ''}-{lost}"


# -- what becomes of an item -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "report"),
    [
        ("drop_oldest", PushReport(accepted=("c", "d"), evicted=("a", "b"))),
        ("drop_newest", PushReport(accepted=("b",), refused=("c", "d"))),
        ("block", PushReport(accepted=("b",), blocked=("c", "d"))),
        ("coalesce", PushReport(accepted=("b", "c", "d"))),
    ],
)
def test_several_items_are_told_apart_by_what_became_of_them(policy, report):
    buffer = Buffer[str](2, policy, coalesce=join_words if policy == "coalesce" else None)
    assert buffer.push_all(["a"]) == PushReport(accepted=("a",))
    assert buffer.push_all(["b", "c", "d"]) == report
    assert buffer.push_all([]) == PushReport()
    buffer.close()
    assert buffer.push_all(["e"]) == PushReport(refused=("e",))


def test_items_that_are_joined_leave_together_and_no_item_is_reported_twice():
    def join_letters(earlier: str, later: str) -> str | None:
        return earlier + later if earlier.isalpha() and later.isalpha() else None

    buffer = Buffer[str](2, "coalesce", coalesce=join_letters)
    buffer.push_all(["1", "a"])
    assert buffer.push_all(["b", "2", "3"]) == PushReport(accepted=("b", "2", "3"), evicted=("1", "ab"))
    assert buffer.push_all(["c", "d", "4", "5"]) == PushReport(accepted=("4", "5"), evicted=("2", "3", "cd"))
    assert buffer.take_all() == ["4", "5"]


def test_items_come_out_in_the_order_they_went_in():
    buffer = Buffer[int](3)
    assert [buffer.push(item) for item in (1, 2, 3)] == ["kept", "kept", "kept"]
    assert [buffer.get_nowait(), buffer.get_nowait(), buffer.get_nowait()] == [1, 2, 3]


def test_a_full_buffer_that_drops_its_oldest_item_keeps_the_new_one():
    buffer = Buffer[int](2, "drop_oldest")
    assert [buffer.push(item) for item in (1, 2, 3)] == ["kept", "kept", "displaced"]
    assert buffer.take_all() == [2, 3]
    assert buffer.stats == BufferStats(pushed=3, delivered=2, dropped=1, merged=0, buffered=0, refused=0, high_water=2)


def test_a_full_buffer_that_drops_the_newest_item_keeps_the_old_ones():
    buffer = Buffer[int](2, "drop_newest")
    assert [buffer.push(item) for item in (1, 2, 3)] == ["kept", "kept", "dropped"]
    assert buffer.take_all() == [1, 2]
    assert buffer.stats.dropped == 1


def test_a_full_buffer_that_blocks_leaves_the_item_with_the_caller():
    buffer = Buffer[int](1)
    assert [buffer.push(item) for item in (1, 2)] == ["kept", "refused"]
    assert buffer.stats == BufferStats(pushed=1, delivered=0, dropped=0, merged=0, buffered=1, refused=1, high_water=1)


def test_items_merge_into_the_last_one_once_the_buffer_is_full():
    buffer = Buffer[str](3, "coalesce", coalesce=join_words)
    assert [buffer.push(item) for item in ("a", "b", "c", "d", "e")] == ["kept", "kept", "kept", "merged", "merged"]
    assert buffer.take_all() == ["a", "b", "cde"]
    assert buffer.push("f") == "kept"
    assert buffer.stats == BufferStats(pushed=6, delivered=3, dropped=0, merged=2, buffered=1, refused=0, high_water=3)


def test_an_item_that_does_not_merge_displaces_the_oldest_one_of_a_full_buffer():
    buffer = Buffer[str](2, "coalesce", coalesce=join_words)
    assert [buffer.push(item) for item in ("1", "2", "3")] == ["kept", "kept", "displaced"]
    assert buffer.take_all() == ["2", "3"]


def test_a_marker_made_of_the_lost_items_is_delivered_in_their_place():
    buffer = Buffer[str](2, "drop_oldest", lagged=count_lost)
    for item in "12345":
        buffer.push(item)
    assert [buffer.get_nowait(), buffer.get_nowait()] == ["-1-2-3", "4"]
    for item in "67":
        buffer.push(item)
    assert buffer.take_all() == ["-5", "6", "7"]
    assert buffer.stats == BufferStats(pushed=7, delivered=3, dropped=4, merged=0, buffered=0, refused=0, high_water=2)


def test_a_buffer_without_a_bound_keeps_everything():
    buffer = Buffer[int](None)
    assert {buffer.push(item) for item in range(5000)} == {"kept"}
    assert buffer.stats.high_water == 5000


def test_a_buffer_says_how_full_it_is():
    buffer = Buffer[int](2, "drop_oldest")
    buffer.push(1)
    assert (len(buffer), repr(buffer)) == (1, "<Buffer 1 of 2, drop_oldest>")
    unbounded = Buffer[int](None)
    unbounded.close()
    assert repr(unbounded) == "<Buffer 0 unbounded, block, closed>"


def test_an_empty_buffer_has_nothing_to_get_at_once():
    with pytest.raises(asyncio.QueueEmpty):
        Buffer[int](1).get_nowait()
    assert Buffer[int](1).take_all() == []


@pytest.mark.parametrize(
    ("capacity", "options", "advice"),
    [
        (0, {}, "capacity is 0; give a whole number from 1 on"),
        (True, {}, "capacity is True; give"),
        (1.5, {}, "capacity is 1.5; give"),
        (1, {"overflow": "explode"}, "policy is 'explode'; give one of drop_oldest, drop_newest, block, coalesce"),
        (1, {"overflow": "coalesce"}, "give coalesce="),
        (1, {"overflow": "drop_oldest", "coalesce": join_words}, "leave out coalesce="),
        (1, {"overflow": "block", "lagged": count_lost}, "leave out lagged="),
        (1, {"overflow": "drop_newest", "lagged": count_lost}, "leave out lagged="),
    ],
)
def test_a_buffer_that_cannot_work_says_what_to_do(capacity, options, advice):
    with pytest.raises(ConfigError, match=advice):
        Buffer(capacity, **options)


# -- waiting -----------------------------------------------------------------------------------------------------------


async def test_iteration_waits_for_items_and_ends_when_the_buffer_is_closed():
    buffer = Buffer[int](2)

    async def produce() -> None:
        for item in range(10):
            await buffer.put(item)
        buffer.close()

    producing = asyncio.create_task(produce())
    async with asyncio.timeout(SECONDS):
        assert [item async for item in buffer] == list(range(10))
        await producing


async def test_items_left_at_the_close_are_still_delivered():
    buffer = Buffer[int](2)
    buffer.push(1)
    buffer.push(2)
    buffer.close()
    assert buffer.closed
    assert [item async for item in buffer] == [1, 2]
    with pytest.raises(StopAsyncIteration):
        await buffer.get()


async def test_a_closed_buffer_leaves_the_item_with_the_caller():
    buffer = Buffer[int](1)
    buffer.close()
    assert (buffer.push(1), await buffer.put(2)) == ("closed", "closed")
    assert (buffer.stats.pushed, buffer.stats.refused) == (0, 2)


async def test_closing_ends_every_waiting_get():
    buffer = Buffer[int](1)
    readers = [asyncio.create_task(anext(buffer, "ended")) for _ in range(3)]
    await turns()
    buffer.close()
    async with asyncio.timeout(SECONDS):
        assert await asyncio.gather(*readers) == ["ended"] * 3


async def test_closing_lets_every_waiting_put_go():
    buffer = Buffer[int](1)
    buffer.push(1)
    writers = [asyncio.create_task(buffer.put(item)) for item in (2, 3)]
    await turns()
    buffer.close()
    async with asyncio.timeout(SECONDS):
        assert await asyncio.gather(*writers) == ["closed", "closed"]
    assert buffer.take_all() == [1]


async def test_a_put_that_was_given_room_just_before_the_close_does_not_put():
    buffer = Buffer[int](1)
    buffer.push(1)
    writer = asyncio.create_task(buffer.put(2))
    await turns()
    assert buffer.get_nowait() == 1
    buffer.close()
    assert await writer == "closed"
    assert len(buffer) == 0


async def test_waiting_gets_are_served_in_the_order_they_came():
    buffer = Buffer[int](4)
    readers = [asyncio.create_task(buffer.get()) for _ in range(3)]
    await turns()
    for item in range(3):
        buffer.push(item)
    async with asyncio.timeout(SECONDS):
        assert await asyncio.gather(*readers) == [0, 1, 2]


async def test_nobody_takes_an_item_that_was_promised_to_a_waiting_get():
    buffer = Buffer[int](4)
    reader = asyncio.create_task(buffer.get())
    await turns()
    buffer.push(1)
    with pytest.raises(asyncio.QueueEmpty):
        buffer.get_nowait()
    assert buffer.take_all() == []
    must_wait(buffer.get())
    late = asyncio.create_task(buffer.get())
    async with asyncio.timeout(SECONDS):
        assert await reader == 1
        buffer.push(2)
        assert await late == 2


async def test_waiting_puts_are_served_in_the_order_they_came_and_not_overtaken():
    buffer = Buffer[int](1)
    buffer.push(0)
    writers = [asyncio.create_task(buffer.put(item)) for item in (1, 2)]
    await turns()
    assert buffer.get_nowait() == 0
    assert buffer.push(9) == "refused"
    must_wait(buffer.put(9))
    await turns()
    assert buffer.get_nowait() == 1
    await turns()
    assert buffer.get_nowait() == 2
    assert await asyncio.gather(*writers) == ["kept", "kept"]


async def test_taking_everything_makes_room_for_every_waiting_put():
    buffer = Buffer[int](2)
    buffer.push(0)
    buffer.push(1)
    writers = [asyncio.create_task(buffer.put(item)) for item in (2, 3)]
    await turns()
    assert buffer.take_all() == [0, 1]
    async with asyncio.timeout(SECONDS):
        assert await asyncio.gather(*writers) == ["kept", "kept"]
    assert buffer.take_all() == [2, 3]


async def test_no_item_overtakes_one_whose_put_was_given_room():
    buffer = Buffer[int](2)
    buffer.push(0)
    buffer.push(1)
    first = asyncio.create_task(buffer.put(2))
    await turns()
    assert buffer.take_all() == [0, 1]
    assert buffer.push(9) == "refused"
    async with asyncio.timeout(SECONDS):
        assert await buffer.put(3) == "kept"
        assert await first == "kept"
    assert buffer.take_all() == [2, 3]


async def test_a_put_cancelled_after_it_was_given_room_lets_the_next_have_it():
    buffer = Buffer[int](2)
    buffer.push(0)
    buffer.push(1)
    writers = [asyncio.create_task(buffer.put(2))]
    await turns()
    assert buffer.take_all() == [0, 1]
    behind = buffer.put(3)
    behind.send(None)
    writers[0].cancel()
    await asyncio.wait(writers)
    with pytest.raises(StopIteration, match="kept"):
        behind.send(None)
    assert buffer.take_all() == [3]


async def test_putting_waits_for_nobody_under_a_policy_that_drops():
    buffer = Buffer[int](1, "drop_oldest")
    assert [await buffer.put(1), await buffer.put(2)] == ["kept", "displaced"]


async def test_a_marker_taken_by_one_reader_leaves_the_item_to_the_next():
    buffer = Buffer[str](1, "drop_oldest", lagged=count_lost)
    readers = [asyncio.create_task(buffer.get()) for _ in range(2)]
    await turns()
    buffer.push("1")
    buffer.push("2")
    async with asyncio.timeout(SECONDS):
        assert await asyncio.gather(*readers) == ["-1", "2"]


# -- being cancelled ---------------------------------------------------------------------------------------------------


async def test_a_cancelled_get_takes_nothing_and_leaves_the_line():
    buffer = Buffer[int](1)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await buffer.get()
    assert not buffer._getters.waiting
    buffer.push(1)
    assert await buffer.get() == 1


async def test_a_get_cancelled_after_it_was_woken_hands_the_item_to_the_next():
    buffer = Buffer[int](1)
    first, second = (asyncio.create_task(buffer.get()) for _ in range(2))
    await turns()
    buffer.push(1)
    first.cancel()
    async with asyncio.timeout(SECONDS):
        assert await second == 1
        await asyncio.wait([first])
    assert first.cancelled()


async def test_a_get_cancelled_before_it_could_run_is_not_counted_on():
    buffer = Buffer[int](1)
    first, second = (asyncio.create_task(buffer.get()) for _ in range(2))
    await turns()
    first.cancel()
    buffer.push(1)
    async with asyncio.timeout(SECONDS):
        assert await second == 1


async def test_a_get_cancelled_with_nobody_behind_it_leaves_the_item_there():
    buffer = Buffer[int](1)
    reader = asyncio.create_task(buffer.get())
    await turns()
    buffer.push(1)
    reader.cancel()
    await asyncio.wait([reader])
    assert reader.cancelled()
    assert buffer.get_nowait() == 1


async def test_a_waiting_get_may_be_cancelled_while_the_buffer_is_closed():
    buffer = Buffer[int](1)
    before, after = (asyncio.create_task(buffer.get()) for _ in range(2))
    await turns()
    before.cancel()
    buffer.close()
    after.cancel()
    await asyncio.wait([before, after])
    assert (before.cancelled(), after.cancelled()) == (True, True)


async def test_a_cancelled_put_has_not_put_its_item():
    buffer = Buffer[int](1)
    buffer.push(0)
    writers = [asyncio.create_task(buffer.put(item)) for item in (1, 2, 3)]
    await turns()
    writers[0].cancel()
    assert buffer.get_nowait() == 0
    writers[1].cancel()
    async with asyncio.timeout(SECONDS):
        assert await writers[2] == "kept"
    assert buffer.take_all() == [3]
    assert buffer.stats.pushed == 2


async def test_a_get_whose_coroutine_is_closed_leaves_the_line():
    buffer = Buffer[int](1)
    waiting = buffer.get()
    waiting.send(None)
    waiting.close()
    assert not buffer._getters.waiting


# -- all of it, in any order -------------------------------------------------------------------------------------------

Item = tuple[int, ...]
"""The numbers of the pushed items that went into it; the marker of a gap has one, minus the count of the lost."""


def merge_pairs(older: Item, newer: Item) -> Item | None:
    return (*older, *newer) if len(older) < 3 and newer[0] % 2 else None


def mark_gap(lost: Item, marker: Item | None) -> Item:
    return ((marker[0] if marker else 0) - len(lost),)


class BufferUnderFire(RuleBasedStateMachine):
    """Readers and writers come, wait, are cancelled and go; every item has exactly one fate, in order."""

    @initialize(
        capacity=st.integers(1, 3),
        overflow=st.sampled_from(["drop_oldest", "drop_newest", "block", "coalesce"]),
        marks=st.booleans(),
    )
    def begin(self, capacity: int, overflow: OverflowPolicy, marks: bool) -> None:
        self.runner = asyncio.Runner()
        self.complaints: list[object] = []
        self.runner.get_loop().set_exception_handler(lambda _, context: self.complaints.append(context))
        self.marks = marks and overflow in ("drop_oldest", "coalesce")
        self.capacity = capacity
        self.buffer = Buffer[Item](
            capacity,
            overflow,
            coalesce=merge_pairs if overflow == "coalesce" else None,
            lagged=mark_gap if self.marks else None,
        )
        self.next_number = 0
        self.accepted: list[int] = []
        self.fates: list[str] = []
        self.taken: list[Item] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.most_held = 0

    def new_item(self) -> Item:
        self.next_number += 1
        return (self.next_number,)

    def note(self, item: Item, fate: str) -> None:
        self.fates.append(fate)
        if fate in ("kept", "merged", "displaced"):
            self.accepted.append(item[0])
        self.most_held = max(self.most_held, len(self.buffer))

    @rule()
    def push(self) -> None:
        item = self.new_item()
        self.note(item, self.buffer.push(item))

    @rule()
    def start_put(self) -> None:
        async def work() -> None:
            item = self.new_item()
            fate = await self.buffer.put(item)
            assert fate != "refused"
            self.note(item, fate)

        self.tasks.append(self.runner.get_loop().create_task(work()))

    @rule()
    def start_get(self) -> None:
        async def work() -> None:
            async for item in self.buffer:
                self.taken.append(item)
                break

        self.tasks.append(self.runner.get_loop().create_task(work()))

    @rule()
    def get_nowait(self) -> None:
        try:
            self.taken.append(self.buffer.get_nowait())
        except asyncio.QueueEmpty:
            assert len(self.buffer) <= self.buffer._getters.granted

    @rule()
    def take_all(self) -> None:
        self.taken += self.buffer.take_all()

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def cancel_one(self, data) -> None:
        data.draw(st.sampled_from(self.tasks)).cancel()

    @rule()
    def one_turn(self) -> None:
        self.runner.run(turns(1))

    @rule()
    def let_everyone_run(self) -> None:
        self.runner.run(turns(8))
        buffer = self.buffer
        if len(buffer):
            assert not buffer._getters.waiting, "someone waits for an item that is there"
        if len(buffer) < self.capacity:
            assert not buffer._putters.waiting, "someone waits for room that is there"
        assert buffer._getters.granted == buffer._putters.granted == 0

    @precondition(lambda self: self.next_number > 5)
    @rule()
    def close(self) -> None:
        self.buffer.close()

    @invariant()
    def the_accounts_are_exact(self) -> None:
        if not hasattr(self, "buffer"):
            return
        stats = self.buffer.stats
        assert stats.pushed == stats.delivered + stats.dropped + stats.merged + stats.buffered
        assert stats.buffered == len(self.buffer) <= self.capacity
        assert stats.pushed == sum(fate in ("kept", "merged", "displaced", "dropped") for fate in self.fates)
        assert stats.delivered == sum(item[0] > 0 for item in self.taken)
        assert stats.dropped == sum(fate in ("displaced", "dropped") for fate in self.fates)
        assert stats.merged == self.fates.count("merged")
        assert stats.refused == self.fates.count("refused") + self.fates.count("closed")
        assert stats.high_water == self.most_held

    def teardown(self) -> None:
        if not hasattr(self, "buffer"):
            return
        self.buffer.close()
        self.runner.run(self.finish())
        self.runner.close()
        assert not self.complaints
        self.the_accounts_are_exact()
        self.nothing_was_lost_or_reordered()

    async def finish(self) -> None:
        if self.tasks:
            ended, hanging = await asyncio.wait(self.tasks, timeout=SECONDS)
            assert not hanging
            assert [task.exception() for task in ended if not task.cancelled() and task.exception()] == []
        self.taken += self.buffer.take_all()

    def nothing_was_lost_or_reordered(self) -> None:
        delivered = [number for item in self.taken for number in item if number > 0]
        assert delivered == sorted(set(delivered))
        assert set(delivered) <= set(self.accepted)
        if "displaced" not in self.fates:
            assert delivered == self.accepted
        if self.marks:
            expected = iter(self.accepted)
            for number in (number for item in self.taken for number in item):
                if number < 0:
                    for _ in range(-number):
                        next(expected)
                else:
                    assert next(expected) == number
            assert list(expected) == []


BufferUnderFire.TestCase.settings = settings(stateful_step_count=40)
test_every_item_has_one_fate_whoever_waits_or_is_cancelled = BufferUnderFire.TestCase
