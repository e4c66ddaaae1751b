import asyncio
from collections.abc import Coroutine

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perdure import ConfigError
from perdure.events import Buffer, BufferStats, OverflowPolicy, PushReport

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
    ("policy", "fates", "taken", "report", "stats"),
    [
        (
            "drop_oldest",
            ["kept", "kept", "displaced"],
            ["b", "c"],
            PushReport(accepted=("e", "f"), evicted=("d", "1")),
            {"delivered": 2, "dropped": 3},
        ),
        (
            "drop_newest",
            ["kept", "kept", "dropped"],
            ["a", "b"],
            PushReport(accepted=("1",), refused=("e", "f")),
            {"delivered": 2, "dropped": 3},
        ),
        (
            "block",
            ["kept", "kept", "refused"],
            ["a", "b"],
            PushReport(accepted=("1",), blocked=("e", "f")),
            {"delivered": 2, "refused": 3},
        ),
        (
            "coalesce",
            ["kept", "kept", "merged"],
            ["a", "bc"],
            PushReport(accepted=("1", "e", "f"), evicted=("d",)),
            {"delivered": 2, "dropped": 1, "merged": 2},
        ),
    ],
)
def test_the_policy_decides_what_becomes_of_an_item_that_finds_the_buffer_full(policy, fates, taken, report, stats):
    buffer = Buffer[str](2, policy, coalesce=join_words if policy == "coalesce" else None)
    assert [buffer.push(item) for item in ("a", "b", "c")] == fates
    assert buffer.take_all() == taken
    assert buffer.push_all(["d"]) == PushReport(accepted=("d",))
    assert buffer.push_all(["1", "e", "f"]) == report
    assert buffer.push_all([]) == PushReport()
    refused = stats.get("refused", 0)
    counted = {"delivered": 0, "dropped": 0, "merged": 0, "buffered": 2, "high_water": 2, "refused": 0, **stats}
    assert buffer.stats == BufferStats(pushed=7 - refused, **counted)
    assert (len(buffer), repr(buffer)) == (2, f"<Buffer 2 of 2, {policy}>")
    buffer.close()
    assert buffer.push_all(["e"]) == PushReport(refused=("e",))
    assert buffer.stats.refused == refused + 1


def test_an_item_that_was_joined_to_one_that_is_evicted_is_not_accepted():
    buffer = Buffer[str](2, "coalesce", coalesce=join_words)
    buffer.push_all(["1", "a"])
    assert buffer.push_all(["b", "2", "3"]) == PushReport(accepted=("2", "3"), evicted=("1", "ab"))
    assert buffer.push_all(["c", "d", "4", "5"]) == PushReport(accepted=("4", "5"), evicted=("2", "3", "cd"))
    assert buffer.take_all() == ["4", "5"]


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
    buffer.close()
    assert repr(buffer) == "<Buffer 5000 unbounded, block, closed>"


@pytest.mark.parametrize(
    ("capacity", "options", "advice"),
    [
        (0, {}, "capacity is 0; give a whole number from 1 on"),
        (True, {}, "capacity is True; give"),
        (1.5, {}, "capacity is 1.5; give"),
        (1, {"overflow": "explode"}, "policy is 'explode'; give one of drop_oldest, drop_newest, block, coalesce"),
        (1, {"overflow": "coalesce"}, "give a function that merges to the policy 'coalesce'"),
        (1, {"overflow": "drop_oldest", "coalesce": join_words}, "and to no other"),
        (1, {"overflow": "block", "lagged": count_lost}, "leave out lagged="),
        (1, {"overflow": "drop_newest", "lagged": count_lost}, "leave out lagged="),
    ],
)
def test_a_buffer_that_cannot_work_says_what_to_do(capacity, options, advice):
    with pytest.raises(ConfigError, match=advice):
        Buffer(capacity, **options)


# -- waiting -----------------------------------------------------------------------------------------------------------


async def test_iteration_waits_for_items_and_ends_when_the_buffer_is_closed_and_empty():
    buffer = Buffer[int](2)

    async def produce() -> None:
        for item in range(10):
            assert await buffer.put(item) == "kept"
        buffer.close()

    producing = asyncio.create_task(produce())
    async with asyncio.timeout(SECONDS):
        assert [item async for item in buffer] == list(range(10))
        await producing
    assert buffer.closed
    with pytest.raises(StopAsyncIteration):
        await buffer.get()
    assert (buffer.push(1), await buffer.put(2)) == ("closed", "closed")
    assert (buffer.stats.pushed, buffer.stats.refused) == (10, 2)


async def test_closing_lets_everybody_go_who_waits():
    buffer = Buffer[int](1)
    readers = [asyncio.create_task(anext(buffer, "ended")) for _ in range(3)]
    await turns()
    buffer.close()
    full = Buffer[int](1)
    full.push(1)
    writers = [asyncio.create_task(full.put(item)) for item in (2, 3)]
    await turns()
    assert full.get_nowait() == 1  # room for the first, which has not run yet
    full.close()
    async with asyncio.timeout(SECONDS):
        assert await asyncio.gather(*readers) == ["ended"] * 3
        assert await asyncio.gather(*writers) == ["closed"] * 2
    assert full.take_all() == []


async def test_waiting_gets_are_served_in_the_order_they_came_and_nobody_else_takes_their_items():
    buffer = Buffer[int](4)
    readers = [asyncio.create_task(buffer.get()) for _ in range(2)]
    await turns()
    buffer.push(1)
    buffer.push(2)
    with pytest.raises(asyncio.QueueEmpty):
        buffer.get_nowait()
    assert buffer.take_all() == []
    must_wait(buffer.get())
    async with asyncio.timeout(SECONDS):
        assert await asyncio.gather(*readers) == [1, 2]


async def test_waiting_puts_are_served_in_the_order_they_came_and_not_overtaken():
    buffer = Buffer[int](2)
    buffer.push(0)
    buffer.push(1)
    writers = [asyncio.create_task(buffer.put(item)) for item in (2, 3)]
    await turns()
    assert buffer.take_all() == [0, 1]
    assert buffer.push(9) == "refused"
    must_wait(buffer.put(9))
    async with asyncio.timeout(SECONDS):
        assert await asyncio.gather(*writers) == ["kept", "kept"]
    assert buffer.take_all() == [2, 3]


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


@pytest.mark.parametrize("is_early", [True, False], ids=["before there is an item", "after it was woken"])
async def test_a_cancelled_get_has_taken_nothing_and_the_next_is_served(is_early):
    buffer = Buffer[int](2)
    first, second = (asyncio.create_task(buffer.get()) for _ in range(2))
    await turns()
    for step in (first.cancel, lambda: buffer.push(1))[:: 1 if is_early else -1]:
        step()
    async with asyncio.timeout(SECONDS):
        assert await second == 1
    assert first.cancelled()
    last = asyncio.create_task(buffer.get())
    await turns()
    last.cancel()
    buffer.push(2)
    await asyncio.wait([last])
    assert buffer.get_nowait() == 2


@pytest.mark.parametrize("is_early", [True, False], ids=["before there is room", "after it was woken"])
async def test_a_cancelled_put_has_not_put_its_item_and_the_next_is_served(is_early):
    buffer = Buffer[int](1)
    buffer.push(0)
    first, second, third = (asyncio.create_task(buffer.put(item)) for item in (1, 2, 3))
    await turns()
    for step in (first.cancel, buffer.get_nowait)[:: 1 if is_early else -1]:
        step()
    second.cancel()
    async with asyncio.timeout(SECONDS):
        assert await third == "kept"
    assert (buffer.take_all(), buffer.stats.pushed) == ([3], 2)


async def test_a_get_whose_coroutine_is_closed_leaves_the_line():
    buffer = Buffer[int](1)
    must_wait(buffer.get())
    buffer.push(1)
    assert buffer.get_nowait() == 1


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
        self.readers: list[asyncio.Task[None]] = []
        self.writers: list[asyncio.Task[None]] = []
        self.most_held = 0

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return self.readers + self.writers

    def waiting(self, tasks: list[asyncio.Task[None]]) -> list[asyncio.Task[None]]:
        return [task for task in tasks if not task.done()]

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

        self.writers.append(self.runner.get_loop().create_task(work()))

    @rule()
    def start_get(self) -> None:
        async def work() -> None:
            async for item in self.buffer:
                self.taken.append(item)
                break

        self.readers.append(self.runner.get_loop().create_task(work()))

    @rule()
    def get_nowait(self) -> None:
        try:
            self.taken.append(self.buffer.get_nowait())
        except asyncio.QueueEmpty:
            assert len(self.buffer) <= len(self.waiting(self.readers))

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
        self.runner.run(turns(8 + 4 * len(self.tasks)))
        if len(self.buffer):
            assert not self.waiting(self.readers), "someone waits for an item that is there"
        if len(self.buffer) < self.capacity:
            assert not self.waiting(self.writers), "someone waits for room that is there"

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
