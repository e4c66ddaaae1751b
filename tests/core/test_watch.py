import asyncio
import contextvars
import functools
import logging
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from time import perf_counter
from typing import Any

import pytest

from perdure import Agent, ConfigError, Limits, Subscription, tool, user
from perdure._core import watch
from perdure._core.watch import MAX_MERGED_CHARACTERS
from perdure.engines import SYSTEM_CLOCK
from perdure.events import (
    BufferStats,
    Entry,
    Event,
    Fanout,
    Lagged,
    MessageAdded,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    TurnStarted,
    WatcherDropped,
)
from perdure.testing import ScriptedModel, call

SECONDS = 30


def stored(number: int) -> Entry:
    """An entry of the log, which never merges."""
    return Entry(number, float(number), MessageAdded(user(str(number))))


def passing(event: Event) -> Entry:
    return Entry(0, 0.0, event)


def fanout_of(capacity: int = 1024) -> Fanout:
    return Fanout(SYSTEM_CLOCK, capacity=capacity)


@pytest.fixture
async def fanout() -> AsyncIterator[Fanout]:
    made = fanout_of()
    yield made
    await made.aclose(0)


def publish(fanout: Fanout, numbers: Iterable[int]) -> None:
    for number in numbers:
        fanout.publish(stored(number))


def shown(entries: Iterable[Entry]) -> list[int | Event]:
    """The numbers of stored entries, and the other events."""
    return [entry.seq or entry.event for entry in entries]


def errors_of_dropped(events: Iterable[int | Event]) -> list[str]:
    return [event.error for event in events if isinstance(event, WatcherDropped)]


async def read(subscription: Subscription, count: int) -> list[int | Event]:
    async with asyncio.timeout(SECONDS):
        return shown([await anext(subscription) for _ in range(count)])


async def read_all(subscription: Subscription) -> list[int | Event]:
    async with asyncio.timeout(SECONDS):
        return shown([entry async for entry in subscription])


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - the thing waited for has no event of its own
            await asyncio.sleep(0)


def thread_of(name: str) -> threading.Thread:
    (thread,) = [each for each in threading.enumerate() if each.name == f"perdure watcher {name}"]
    return thread


class Gate:
    """A plain watcher that stands still until the test opens it."""

    def __init__(self) -> None:
        self.__qualname__ = "gate"
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.passed: list[Entry] = []

    def __call__(self, entry: Entry) -> None:
        self.reached.set()
        self.opened.wait(SECONDS)
        self.passed.append(entry)


class AsyncCallable:
    def __init__(self, function: Callable[[Entry], None]) -> None:
        self.function = function

    async def __call__(self, entry: Entry) -> None:
        await asyncio.sleep(0)
        self.function(entry)


def on_task(function: Callable[[Entry], None]) -> Callable[[Entry], Awaitable[None]]:
    async def watcher(entry: Entry) -> None:
        await asyncio.sleep(0)
        function(entry)

    return watcher


def on_partial(function: Callable[[Entry], None]) -> Callable[[Entry], Awaitable[None]]:
    return functools.partial(on_task(function))


def on_thread(function: Callable[[Entry], None]) -> Callable[[Entry], None]:
    return lambda entry: function(entry)  # noqa: PLW0108 - a list's `append` has no name to look for


def deferring(function: Callable[[Entry], Awaitable[None]]) -> Callable[[Entry], Any]:
    """A plain function that returns an awaitable: from the outside nobody can tell."""
    return lambda entry: function(entry)  # noqa: PLW0108 - being no async function is the point


both_kinds = pytest.mark.parametrize("kind", [on_task, on_thread])


# -- watchers ----------------------------------------------------------------------------------------------------------


async def test_a_fanout_is_watched_while_anybody_is_there_to_be_told(fanout):
    publish(fanout, [1])
    assert not fanout.is_watched
    remove = fanout.add_watcher(print)
    subscription = fanout.subscribe()
    remove()
    assert fanout.is_watched
    subscription.close()
    assert not fanout.is_watched


@pytest.mark.parametrize("kind", [on_task, on_partial, AsyncCallable, on_thread])
async def test_a_watcher_is_called_with_every_event_in_order(fanout, kind):
    seen: list[Entry] = []
    threads: set[str] = set()

    def note(entry: Entry) -> None:
        seen.append(entry)
        threads.add(threading.current_thread().name)

    fanout.add_watcher(kind(note))
    publish(fanout, range(1, 501))
    await fanout.drain(SECONDS)
    assert shown(seen) == list(range(1, 501))
    publish(fanout, [501])
    await fanout.drain(SECONDS)
    assert shown(seen[-1:]) == [501]
    assert [each.startswith("perdure watcher") for each in threads] == [kind is on_thread]
    assert fanout.stats[0].events.delivered == 501


def test_a_watcher_that_cannot_be_called_is_refused():
    with pytest.raises(ConfigError, match="a watcher is 'print'; give a function"):
        fanout_of().add_watcher("print")  # type: ignore[arg-type]


@both_kinds
async def test_nothing_runs_before_the_first_event_and_nothing_after_the_end(fanout, kind):
    before = {*asyncio.all_tasks(), *threading.enumerate()}  # threads of earlier tests may end meanwhile

    def begun() -> set[Any]:
        return {*asyncio.all_tasks(), *threading.enumerate()} - before

    seen: list[Entry] = []
    for _ in range(5):
        fanout.add_watcher(kind(seen.append))
    assert begun() == set()
    publish(fanout, range(100))
    assert len(begun()) == 5
    await fanout.aclose(SECONDS)
    assert (len(seen), begun(), fanout.stats) == (500, set(), ())


@both_kinds
@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        SystemExit(3),
        asyncio.CancelledError(),
        StopAsyncIteration(),
        BaseExceptionGroup("two", [SystemExit()]),
    ],
)
async def test_a_watcher_that_raises_is_reported_and_the_others_go_on(fanout, kind, error, caplog):
    called: list[Entry] = []
    seen: list[Entry] = []

    def faulty(entry: Entry) -> None:
        called.append(entry)
        raise error

    watcher = kind(faulty)
    watcher.__qualname__ = "faulty"
    fanout.add_watcher(watcher)
    fanout.add_watcher(on_task(seen.append))
    for number in (1, 2, 3):
        publish(fanout, [number])
        await fanout.drain(SECONDS)
    told = WatcherDropped("faulty", f"{type(error).__name__}: {error}")
    assert (shown(called), shown(seen)) == ([1], [1, told, 2, 3])
    (record,) = caplog.records
    assert (record.name, record.levelno, record.exc_info[1]) == ("perdure", logging.ERROR, error)
    assert "'faulty' raised" in record.getMessage()
    assert len(fanout.stats) == 1


async def test_draining_waits_until_others_have_heard_of_a_watcher_that_was_dropped_meanwhile(fanout):
    seen: list[Entry] = []

    async def turns() -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def broken(entry: Entry) -> None:
        await turns()
        raise ValueError

    async def recorder(entry: Entry) -> None:
        await turns()
        seen.append(entry)

    fanout.add_watcher(broken)
    fanout.add_watcher(recorder)
    publish(fanout, [1])
    await fanout.drain(SECONDS)
    assert [type(entry.event) for entry in seen] == [MessageAdded, WatcherDropped]


async def test_an_error_that_cannot_be_shown_is_reported_all_the_same(fanout):
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    def fail(entry: Entry) -> None:
        raise Hostile

    subscription = fanout.subscribe()
    fanout.add_watcher(on_task(fail))
    publish(fanout, [1])
    await fanout.drain(SECONDS)
    assert errors_of_dropped(await read(subscription, 2)) == ["Hostile: (no readable message)"]


def test_an_interrupt_from_the_keyboard_is_not_taken_for_an_error_of_the_watcher(caplog):
    fanout = fanout_of()

    async def watcher(entry: Entry) -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        fanout.add_watcher(watcher)
        publish(fanout, [1])
        await asyncio.sleep(SECONDS)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert (len(fanout.stats), caplog.records) == (1, [])


@both_kinds
async def test_a_watcher_sees_the_context_of_the_one_who_added_it(fanout, kind):
    variable = contextvars.ContextVar("variable", default="nobody")
    seen: list[str] = []
    variable.set("who adds")
    fanout.add_watcher(kind(lambda _: seen.append(variable.get())))
    variable.set("who publishes")
    publish(fanout, [1])
    await fanout.drain(SECONDS)
    assert seen == ["who adds"]


@both_kinds
@pytest.mark.parametrize("before", [0, 1], ids=["before its first event", "while it waits for events"])
async def test_a_removed_watcher_gets_no_more_events(fanout, kind, before):
    kept: list[Entry] = []
    removed: list[Entry] = []
    fanout.add_watcher(kind(kept.append))
    remove = fanout.add_watcher(kind(removed.append))
    publish(fanout, range(1, 1 + before))
    await fanout.drain(SECONDS)
    remove()
    remove()
    publish(fanout, [9])
    await until(lambda: len(fanout.stats) == 1)
    await fanout.drain(SECONDS)
    assert (shown(kept), shown(removed)) == ([1, 9][1 - before :], [1][1 - before :])


@both_kinds
async def test_a_watcher_may_remove_itself(fanout, kind):
    seen: list[Entry] = []

    def watcher(entry: Entry) -> None:
        seen.append(entry)
        if len(seen) == 2:
            remove()

    remove = fanout.add_watcher(kind(watcher))
    publish(fanout, range(1, 5))
    await until(lambda: not fanout.stats)
    assert shown(seen) == [1, 2]


async def test_a_removed_watcher_does_not_get_the_event_that_its_task_was_begun_for(fanout):
    seen: list[Entry] = []
    remove = fanout.add_watcher(on_task(seen.append))
    publish(fanout, [1])
    remove()
    await until(lambda: not fanout.stats)
    assert seen == []


@both_kinds
def test_a_watcher_that_an_event_without_an_event_loop_could_not_reach_gets_the_next_one(kind):
    fanout = fanout_of()
    seen: list[Entry] = []
    fanout.add_watcher(kind(seen.append))
    with pytest.raises(RuntimeError, match="no running event loop"):
        publish(fanout, [1])

    async def go_on() -> None:
        publish(fanout, [2])
        await fanout.aclose(SECONDS)

    asyncio.run(go_on())
    assert shown(seen) == [1, 2]


# -- a task ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [0, 1], ids=["before its task runs", "while it hangs"])
async def test_a_task_that_was_cancelled_from_outside_is_made_anew_at_the_next_event(fanout, turns):
    seen: list[Entry] = []
    hangs = asyncio.Event()

    async def watcher(entry: Entry) -> None:
        if not hangs.is_set():
            hangs.set()
            await asyncio.Future()
        seen.append(entry)

    fanout.add_watcher(watcher)
    publish(fanout, [1, 2])
    for _ in range(turns):
        await asyncio.sleep(0)
    hangs.set()
    (task,) = asyncio.all_tasks() - {asyncio.current_task()}
    task.cancel()
    await asyncio.wait([task])
    assert seen == []
    publish(fanout, [3])
    await fanout.drain(SECONDS)
    assert shown(seen) == [1, 2, 3][turns:]


async def test_an_async_watcher_that_never_waits_lets_others_run(fanout):
    seen: list[Entry] = []
    seen_by_others = set()

    async def watcher(entry: Entry) -> None:
        seen.append(entry)

    fanout.add_watcher(watcher)
    publish(fanout, range(1000))
    while len(seen) < 1000:
        await asyncio.sleep(0)
        seen_by_others.add(len(seen))
    assert len(seen_by_others) > 10


async def test_an_event_that_comes_while_a_task_ends_is_handled(fanout):
    seen: list[Entry] = []

    async def watcher(entry: Entry) -> None:
        seen.append(entry)

    fanout.add_watcher(watcher)
    publish(fanout, [1])
    await until(lambda: seen)  # the task has no more to do, and nobody has been told yet
    publish(fanout, [2])
    await fanout.drain(SECONDS)
    assert shown(seen) == [1, 2]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks that begin at once came with Python 3.12")
async def test_no_watcher_is_called_inside_of_the_publisher_where_tasks_begin_at_once(fanout):
    seen: list[Entry] = []

    async def watcher(entry: Entry) -> None:
        seen.append(entry)

    asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009 - 3.11 has none
    fanout.add_watcher(watcher)
    publish(fanout, [1, 2])
    assert seen == []
    await fanout.drain(SECONDS)
    assert shown(seen) == [1, 2]


async def test_an_async_watcher_that_hangs_is_cancelled(fanout):
    cleaned_up = asyncio.Event()

    async def hang(entry: Entry) -> None:
        try:
            await asyncio.Future()
        finally:
            cleaned_up.set()

    fanout.add_watcher(hang)
    publish(fanout, [1])
    await asyncio.sleep(0)
    async with asyncio.timeout(SECONDS):
        await fanout.aclose(0)
        await cleaned_up.wait()


async def test_a_removed_watcher_whose_last_call_hangs_is_ended_with_the_rest(fanout):
    tasks = len(asyncio.all_tasks())
    hanging = asyncio.Event()

    async def hang(entry: Entry) -> None:
        hanging.set()
        await asyncio.Future()

    remove = fanout.add_watcher(hang)
    publish(fanout, [1])
    await hanging.wait()
    remove()
    await fanout.aclose(0)
    await until(lambda: len(asyncio.all_tasks()) == tasks)


async def test_an_async_watcher_may_close_the_fanout_it_watches(fanout):
    closed = asyncio.Event()

    async def closing(entry: Entry) -> None:
        await fanout.aclose(3600)
        closed.set()

    fanout.add_watcher(closing)
    publish(fanout, [1])
    async with asyncio.timeout(SECONDS):
        await closed.wait()


async def test_closing_that_is_cancelled_still_ends_the_watchers(fanout):
    ended = asyncio.Event()

    async def hang(entry: Entry) -> None:
        try:
            await asyncio.Future()
        finally:
            ended.set()

    fanout.add_watcher(hang)
    publish(fanout, [1])
    closing = asyncio.create_task(fanout.aclose(3600))
    await asyncio.sleep(0)
    closing.cancel()
    async with asyncio.timeout(SECONDS):
        await ended.wait()
        await asyncio.wait([closing])
    assert closing.cancelled()


# -- a thread ----------------------------------------------------------------------------------------------------------


async def test_a_watcher_that_blocks_loses_the_oldest_events_and_is_told():
    fanout = fanout_of(capacity=2)
    gate = Gate()
    fanout.add_watcher(gate)
    publish(fanout, [10])
    assert gate.reached.wait(SECONDS)
    fanout.publish(passing(TurnStarted(1)))
    publish(fanout, range(11, 16))
    gate.opened.set()
    await fanout.drain(SECONDS)
    assert shown(gate.passed) == [10, Lagged(4, after=10), 14, 15]
    (slow,) = fanout.stats
    assert (slow.name, slow.lagging) == ("gate", False)
    assert slow.events == BufferStats(pushed=7, delivered=3, dropped=4, merged=0, buffered=0, refused=0, high_water=2)
    await fanout.aclose()


async def test_a_watcher_that_is_late_is_not_waited_for_again_until_it_has_caught_up(fanout):
    gate = Gate()
    fanout.add_watcher(gate)
    publish(fanout, [1])
    await fanout.drain(0)
    assert fanout.stats[0].lagging
    async with asyncio.timeout(SECONDS):
        await fanout.drain(3600)
    gate.opened.set()
    await until(lambda: not fanout.stats[0].lagging)
    gate.opened.clear()
    gate.reached.clear()
    publish(fanout, [2])
    assert gate.reached.wait(SECONDS)
    draining = [asyncio.create_task(fanout.drain(3600)) for _ in range(2)]
    await asyncio.sleep(0)
    gate.opened.set()
    async with asyncio.timeout(SECONDS):
        await asyncio.wait(draining)
    assert shown(gate.passed) == [1, 2]


async def test_a_plain_watcher_that_never_returns_is_left_behind(fanout, caplog):
    gate = Gate()
    fanout.add_watcher(gate)
    publish(fanout, [1])
    assert gate.reached.wait(SECONDS)
    publish(fanout, [2, 3])
    async with asyncio.timeout(SECONDS):
        await fanout.aclose(0)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "the watcher 'gate' was still busy at the end: it missed 2 events"
    thread = thread_of("gate")
    assert thread.daemon
    gate.opened.set()
    thread.join(SECONDS)
    assert shown(gate.passed) == [1]


async def test_an_event_that_comes_while_a_thread_tells_that_it_is_done_is_waited_for(fanout, monkeypatch):
    gates = {1: Gate(), 2: Gate()}
    told = threading.Event()
    fanout.add_watcher(lambda entry: gates[entry.seq](entry))
    (feed,) = fanout.receivers
    tell = feed._call_on_loop

    def tell_us_too(report: Callable[[], None]) -> None:
        tell(report)
        told.set()

    monkeypatch.setattr(feed, "_call_on_loop", tell_us_too)
    publish(fanout, [1])
    assert gates[1].reached.wait(SECONDS)
    waiting = feed.when_settled()
    gates[1].opened.set()
    assert told.wait(SECONDS)  # the loop hears of it only when this test lets it run
    publish(fanout, [2])
    assert gates[2].reached.wait(SECONDS)
    await asyncio.sleep(0)
    assert feed.when_settled() is waiting
    assert not waiting.done()
    gates[2].opened.set()
    async with asyncio.timeout(SECONDS):
        await waiting
    monkeypatch.undo()


async def test_a_plain_watcher_that_returns_an_awaitable_has_it_awaited_on_the_event_loop(fanout):
    seen: list[tuple[int, threading.Thread]] = []

    async def handle_later(entry: Entry) -> None:
        await asyncio.sleep(0)
        seen.append((entry.seq, threading.current_thread()))

    fanout.add_watcher(deferring(handle_later))
    publish(fanout, [1, 2])
    await fanout.drain(SECONDS)
    assert seen == [(1, threading.current_thread()), (2, threading.current_thread())]


async def test_an_awaitable_of_a_plain_watcher_that_raises_is_its_error(fanout):
    async def fail(entry: Entry) -> None:
        raise ValueError(entry.seq)

    subscription = fanout.subscribe()
    fanout.add_watcher(deferring(fail))
    publish(fanout, [1])
    assert errors_of_dropped(await read(subscription, 2)) == ["ValueError: 1"]


async def test_an_awaitable_of_a_plain_watcher_that_hangs_is_cancelled_at_the_end(fanout, caplog, monkeypatch):
    before = {*asyncio.all_tasks(), *threading.enumerate()}  # threads of earlier tests may end meanwhile
    hanging = asyncio.Event()
    waits = threading.Event()
    begin = asyncio.run_coroutine_threadsafe

    def begin_noted(*what: Any) -> Any:
        begun: Any = begin(*what)
        wait = begun.result

        def wait_noted() -> Any:
            waits.set()
            return wait()

        begun.result = wait_noted
        return begun

    async def hang(entry: Entry) -> None:
        hanging.set()
        await asyncio.Future()

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", begin_noted)
    fanout.add_watcher(deferring(hang))
    publish(fanout, [1])
    async with asyncio.timeout(SECONDS):
        await hanging.wait()
        await fanout.drain(0)
    assert waits.wait(SECONDS)
    await fanout.aclose(SECONDS)
    await until(lambda: {*asyncio.all_tasks(), *threading.enumerate()} <= before)
    assert caplog.records == []


async def test_an_awaitable_that_a_plain_watcher_returns_after_the_end_is_cancelled(fanout, caplog):
    gate = Gate()
    seen: list[Entry] = []

    async def hang(entry: Entry) -> None:
        await asyncio.Future()
        seen.append(entry)

    def watcher(entry: Entry) -> Awaitable[None]:
        gate(entry)
        return hang(entry)

    watcher.__qualname__ = "late"
    fanout.add_watcher(watcher)
    publish(fanout, [1])
    assert gate.reached.wait(SECONDS)
    await fanout.aclose(0)
    thread = thread_of("late")
    gate.opened.set()
    await until(lambda: not thread.is_alive())
    assert (seen, caplog.records) == ([], [])


async def test_what_a_watcher_awaits_is_not_cut_short_when_it_removes_itself(fanout):
    seen: list[Entry] = []

    def watcher(entry: Entry) -> Awaitable[None]:
        remove()
        return on_task(seen.append)(entry)

    remove = fanout.add_watcher(watcher)
    publish(fanout, [1, 2])
    await until(lambda: not fanout.stats)
    assert shown(seen) == [1]


async def test_a_watcher_may_return_what_it_likes(fanout):
    fanout.add_watcher(lambda entry: entry)
    publish(fanout, [1])
    await fanout.drain(SECONDS)
    assert len(fanout.stats) == 1


async def test_a_watcher_for_which_there_is_no_thread_is_dropped(fanout, monkeypatch):
    def no_more(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    fanout.add_watcher(print)
    subscription = fanout.subscribe()
    publish(fanout, [1, 2])
    assert await read(subscription, 3) == [
        WatcherDropped("print", "RuntimeError: can't start new thread"),
        1,
        2,
    ]


def test_a_thread_whose_event_loop_is_gone_ends_quietly(caplog):
    gate = Gate()

    async def main() -> Callable[[], None]:
        fanout = fanout_of()
        remove = fanout.add_watcher(gate)
        publish(fanout, [1])
        assert gate.reached.wait(SECONDS)
        return remove

    remove = asyncio.run(main())
    thread = thread_of("gate")
    remove()
    gate.opened.set()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert caplog.records == []


# -- watchers that block the event loop --------------------------------------------------------------------------------


class FakeTime:
    """A clock that only blocking moves, and rests that are noted and take no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.rests: list[float] = []
        monkeypatch.setattr(watch, "perf_counter", lambda: self.now)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        if seconds:
            self.rests.append(seconds)


async def test_an_async_watcher_that_blocks_the_event_loop_rests_after_each_call(fanout, monkeypatch, caplog):
    time = FakeTime(monkeypatch)

    async def watcher(_: Entry) -> None:
        time.now += 0.2

    fanout.add_watcher(watcher)
    publish(fanout, range(4))
    await fanout.drain(SECONDS)
    assert time.rests == pytest.approx([1.8] * 3)  # not after the first: only from then on it is measured
    assert [record.getMessage() for record in caplog.records if "kept the event loop for 200 ms" in record.getMessage()]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("steps", [(0.2, 0.0, 0.0), (0.0, 0.2, 0.0), (0.0, 0.0, 0.2)], ids=["first", "second", "last"])
async def test_the_longest_step_of_an_async_watcher_counts_wherever_it_is(fanout, monkeypatch, steps):
    time = FakeTime(monkeypatch)

    async def watcher(entry: Entry) -> None:
        time.now += 1.0 if entry.seq == 1 else 0.0  # the first call, after which it is measured
        for number, step in enumerate(steps if entry.seq == 2 else ()):
            time.now += step
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(turn.set_result, None)
            if number < len(steps) - 1:
                await turn

    fanout.add_watcher(watcher)
    publish(fanout, [1, 2])
    await fanout.drain(SECONDS)
    assert time.rests == pytest.approx([1.8])


async def test_an_async_watcher_that_awaits_for_long_does_not_rest(fanout, monkeypatch):
    time = FakeTime(monkeypatch)
    seen: list[Entry] = []

    async def watcher(entry: Entry) -> None:
        time.now += 0.04  # a step that is short enough
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(turn.set_result, None)
        asyncio.get_running_loop().call_soon(setattr, time, "now", time.now + 5)
        await turn
        seen.append(entry)

    fanout.add_watcher(watcher)
    publish(fanout, range(1, 5))
    await fanout.drain(SECONDS)
    assert (shown(seen), time.rests) == ([1, 2, 3, 4], [])


async def test_a_watcher_that_is_measured_can_be_cancelled_and_may_raise(fanout, monkeypatch):
    time = FakeTime(monkeypatch)
    entered = asyncio.Event()
    cancelled: list[int] = []

    async def hanging(entry: Entry) -> None:
        time.now += 1
        if entry.seq == 2:
            entered.set()
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.append(entry.seq)
                raise

    async def failing(entry: Entry) -> None:
        time.now += 1
        if entry.seq == 2:
            raise ValueError(entry.seq)

    fanout.add_watcher(failing)
    fanout.add_watcher(hanging)
    subscription = fanout.subscribe()
    publish(fanout, [1, 2])
    await entered.wait()
    assert errors_of_dropped(await read(subscription, 3)) == ["ValueError: 2"]
    await fanout.aclose(0)
    assert cancelled == [2]


TURNS = 100
BLOCKED_SECONDS = 0.1
END_WAIT_SECONDS = 1.0
"""The most that a run waits for its watchers at its end."""


@pytest.mark.budget
async def test_a_watcher_that_blocks_delays_a_run_by_few_calls_and_the_wait_at_its_end(caplog):
    @tool(effect="read")
    async def look(place: int) -> str:
        """Looks."""
        return f"nothing at {place}"

    async def take(watchers: list[Any]) -> float:
        script = [call("look", place=place) for place in range(TURNS)]
        limits = Limits(max_turns=None)
        model = ScriptedModel(*script, "Nothing.")
        agent = Agent(model, tools=[look], limits=limits, guardrails=(), watchers=watchers)
        began = perf_counter()
        assert (await agent.run("Look around.")).status == "done"
        return perf_counter() - began

    blocked: list[float] = []
    seen: list[int] = []

    async def block(_: Any) -> None:
        began = perf_counter()
        while perf_counter() - began < BLOCKED_SECONDS:
            pass
        blocked.append(perf_counter() - began)

    async def see(entry: Any) -> None:
        seen.append(entry.seq)

    alone = await take([see])
    heard = len(seen)
    together = await take([see, block])
    assert len(seen) == 2 * heard  # the other watcher has missed nothing
    assert heard > 4 * TURNS
    assert len(blocked) <= 3 + together / (10 * BLOCKED_SECONDS)  # and not once for each of thousands of events
    assert together <= 3 * alone + sum(blocked) + END_WAIT_SECONDS + 1
    assert "kept the event loop for" in caplog.text


# -- collectors --------------------------------------------------------------------------------------------------------


class Collector:
    """A watcher that only collects, and fails at the second event."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def collect_event(self, entry: Entry) -> None:
        if entry.seq == 2:
            raise ValueError(entry.seq)
        self.entries.append(entry)

    def __call__(self, entry: Entry) -> None:
        raise AssertionError("collect_event is called instead")


async def test_a_collector_gets_each_event_at_once_until_it_raises_or_is_removed(fanout):
    first, second = Collector(), Collector()
    fanout.add_watcher(first)
    remove = fanout.add_watcher(second)
    publish(fanout, [1])
    assert (shown(first.entries), shown(second.entries)) == ([1], [1])
    remove()
    receivers = fanout.receivers
    publish(fanout, [2])
    for receiver in receivers:
        assert receiver.push(stored(3)) == "closed"
    assert (shown(first.entries), shown(second.entries), fanout.stats) == ([1], [1], ())


async def test_a_collector_that_raises_is_reported_and_one_that_is_closed_was_never_busy(fanout, caplog):
    fanout.add_watcher(Collector())
    subscription = fanout.subscribe()
    publish(fanout, [1])
    stats = fanout.stats[0].events
    assert (stats.pushed, stats.delivered, stats.buffered) == (1, 1, 0)
    publish(fanout, [2])
    assert await read(subscription, 3) == [1, WatcherDropped("Collector", "ValueError: 2"), 2]
    caplog.clear()
    fanout.add_watcher(Collector())
    await fanout.drain(SECONDS)
    await fanout.aclose()
    assert caplog.records == []


async def test_a_collector_sees_a_whole_run_before_it_returns():
    collected: list[str] = []

    class Kinds:
        def collect_event(self, entry: Entry) -> None:
            collected.append(type(entry.event).__name__)

        def __call__(self, entry: Entry) -> None:
            raise AssertionError("collect_event is called instead")

    await Agent(ScriptedModel("hello"), watchers=[Kinds()]).run("hi")
    assert (collected[0], collected[-1]) == ("SessionOpened", "RunEnded")


# -- subscriptions -----------------------------------------------------------------------------------------------------


async def test_a_subscription_gets_the_events_since_it_was_made(fanout):
    publish(fanout, [1])
    subscription = fanout.subscribe()
    publish(fanout, [2, 3])
    assert (len(subscription), subscription.get_nowait().seq, await read(subscription, 1)) == (2, 2, [3])
    assert subscription.stats.delivered == 2


async def test_a_closed_subscription_gives_what_it_holds_and_ends(fanout):
    subscription, other = fanout.subscribe(), fanout.subscribe()
    publish(fanout, [1])
    subscription.close()
    subscription.close()
    publish(fanout, [2])
    assert await read_all(subscription) == [1]
    assert await read(other, 2) == [1, 2]


async def test_the_subscriptions_of_one_owner_are_closed_and_no_others(fanout):
    owner, other = object(), object()
    mine, also_mine, theirs, nobodys = (fanout.subscribe(owner=each) for each in (owner, owner, other, None))
    publish(fanout, [1])
    fanout.close_subscriptions(owner)
    publish(fanout, [2])
    assert [len(each) for each in (mine, also_mine, theirs, nobodys)] == [1, 1, 2, 2]
    assert await read_all(mine) == [1]


async def test_a_publisher_waits_while_a_subscription_with_backpressure_is_full_until_half_of_it_is_read():
    fanout = fanout_of(capacity=4)
    assert not fanout.has_backpressure
    subscription = fanout.subscribe(backpressure=True)
    assert fanout.has_backpressure
    fanout.subscribe()
    publish(fanout, [1, 2, 3])
    async with asyncio.timeout(SECONDS):
        await fanout.wait_for_room()
    publish(fanout, [4])
    waiting = asyncio.create_task(fanout.wait_for_room())
    await asyncio.sleep(0)
    assert await read(subscription, 1) == [1]
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    assert subscription.get_nowait().seq == 2
    async with asyncio.timeout(SECONDS):
        await waiting
    subscription.close()
    assert not fanout.has_backpressure


async def test_backpressure_loses_nothing_and_holds_little_even_with_many_publishers():
    fanout = fanout_of(capacity=3)
    subscription = fanout.subscribe(backpressure=True)

    async def publish_slowly(first: int) -> None:
        for number in range(first, first + 100):
            await fanout.wait_for_room()
            publish(fanout, [number])

    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
        for first in (1, 101, 201):
            group.create_task(publish_slowly(first))
        seen = await read(subscription, 300)
    assert set(seen) == set(range(1, 301))
    assert subscription.stats.high_water <= 3 + 3


async def test_every_full_subscription_must_be_read_before_there_is_room():
    fanout = fanout_of(capacity=1)
    one, two = (fanout.subscribe(backpressure=True) for _ in range(2))
    publish(fanout, [1])
    waiting = asyncio.create_task(fanout.wait_for_room())
    assert await read(one, 1) == [1]
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    assert await read(two, 1) == [1]
    async with asyncio.timeout(SECONDS):
        await waiting


async def test_a_full_subscription_that_is_closed_lets_the_publishers_go():
    fanout = fanout_of(capacity=1)
    subscription = fanout.subscribe(backpressure=True)
    publish(fanout, [1])
    waiting = [asyncio.create_task(fanout.wait_for_room()) for _ in range(2)]
    await asyncio.sleep(0)
    subscription.close()
    async with asyncio.timeout(SECONDS):
        await asyncio.wait(waiting)
    assert await read_all(subscription) == [1]


async def test_a_publisher_that_does_not_wait_for_room_still_cannot_fill_the_memory():
    fanout = fanout_of(capacity=2)
    subscription = fanout.subscribe(backpressure=True)
    publish(fanout, range(1, 101))
    assert await read(subscription, 5) == [Lagged(96, after=0), 97, 98, 99, 100]


async def test_a_closed_fanout_takes_neither_events_nor_watchers():
    fanout = fanout_of(capacity=1)
    open_before = fanout.subscribe()
    full = fanout.subscribe(backpressure=True)
    publish(fanout, [1])
    await fanout.aclose()
    await fanout.aclose()
    publish(fanout, [2])
    fanout.add_watcher(print)()
    assert await read_all(fanout.subscribe()) == []
    assert await read_all(open_before) == await read_all(full) == [1]
    assert (fanout.is_watched, fanout.has_backpressure, fanout.receivers, fanout.stats) == (False, False, (), ())


# -- merging -----------------------------------------------------------------------------------------------------------


def what_a_reader_gets_that_has_fallen_behind(one: Event, two: Event) -> list[int | Event]:
    fanout = fanout_of(capacity=1)
    subscription = fanout.subscribe()
    fanout.publish(Entry(0, 1.0, one))
    fanout.publish(Entry(0, 2.0, two))
    entries = subscription.take_all()
    assert (entries[-1].seq, entries[-1].at) == (0, 2.0)
    return shown(entries)


LONG = "x" * (MAX_MERGED_CHARACTERS + 1)


@pytest.mark.parametrize(
    ("one", "two", "both"),
    [
        (TextDelta("a", run_id="r"), TextDelta("b", run_id="r"), TextDelta("ab", run_id="r")),
        (ThinkingDelta("a", index=1), ThinkingDelta("b", index=1), ThinkingDelta("ab", index=1)),
        (
            ToolCallDelta("c", "look", '{"a', index=2, path="child"),
            ToolCallDelta("", "", '":1}', "sig", 2, path="child"),
            ToolCallDelta("c", "look", '{"a":1}', "sig", 2, path="child"),
        ),
    ],
    ids=["text", "thinking", "a call"],
)
def test_deltas_of_the_same_thing_merge_for_a_reader_that_has_fallen_behind(one, two, both):
    assert what_a_reader_gets_that_has_fallen_behind(one, two) == [both]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (TextDelta("a"), ThinkingDelta("b")),
        (TextDelta("a", run_id="r1"), TextDelta("b", run_id="r2")),
        (TextDelta("a"), TextDelta("b", path="child")),
        (TextDelta(LONG), TextDelta("b")),
        (ThinkingDelta("a", index=1), ThinkingDelta("b", index=2)),
        (ThinkingDelta("a"), ThinkingDelta("", "signature")),
        (ThinkingDelta("", data="secret"), ThinkingDelta("b")),
        (ThinkingDelta("", details={"type": "search"}), ThinkingDelta("b")),
        (ThinkingDelta(LONG), ThinkingDelta("b")),
        (ToolCallDelta("c1", index=1), ToolCallDelta("c2", index=2)),
        (ToolCallDelta("c1", index=1), ToolCallDelta("c2", index=1)),
        (ToolCallDelta("c1", arguments=LONG), ToolCallDelta(arguments="y")),
        (MessageAdded(user("a")), MessageAdded(user("a"))),
    ],
)
def test_anything_else_stays_apart_and_the_reader_is_told_that_one_was_lost(one, two):
    assert what_a_reader_gets_that_has_fallen_behind(one, two) == [Lagged(1), two]
