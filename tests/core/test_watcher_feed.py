import asyncio
import contextvars
import functools
import logging
import threading
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

import pytest

from perdure import Agent, Limits, tool
from perdure.core import watcher_feed
from perdure.core.bounded_buffer import Buffer
from perdure.core.error import ConfigError
from perdure.core.watcher_feed import AsyncWatcherFeed, ThreadWatcherFeed, WatcherFeed, make_feed
from perdure.testing import ScriptedModel, call

SECONDS = 30


class Ended:
    """Remembers how feeds ended: it may be told on another thread, from which an event must not be set directly."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.errors: list[BaseException | None] = []
        self.threads: list[threading.Thread] = []
        self.happened = asyncio.Event()

    def __call__(self, feed: WatcherFeed[Any], error: BaseException | None) -> None:
        self.errors.append(error)
        self.threads.append(threading.current_thread())
        self._loop.call_soon_threadsafe(self.happened.set)


@pytest.fixture
async def ended() -> Ended:
    return Ended()


@pytest.fixture
def feeding(ended: Ended) -> Callable[..., WatcherFeed[Any]]:
    def make(watcher: Any, name: str | None = "the watcher", capacity: int = 1024) -> WatcherFeed[Any]:
        return make_feed(watcher, name, Buffer(capacity, "drop_oldest"), ended)

    return make


async def settled(feed: WatcherFeed[Any]) -> None:
    if (future := feed.when_settled()) is not None:
        async with asyncio.timeout(SECONDS):
            await future


async def stopped(feed: WatcherFeed[Any]) -> None:
    if (future := feed.stop()) is not None:
        async with asyncio.timeout(SECONDS):
            await asyncio.wait([future])


class Gate:
    """Where a plain watcher stands until the test opens it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.passed: list[Any] = []

    def __call__(self, event: Any) -> None:
        self.reached.set()
        self.opened.wait(SECONDS)
        self.passed.append(event)


# -- which watcher gets what -------------------------------------------------------------------------------------------


class AsyncCallable:
    async def __call__(self, event: int) -> None: ...


async def handle(event: int) -> None: ...


def deferring(function: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    """A plain function that returns an awaitable: from the outside nobody can tell."""
    return lambda event: function(event)  # noqa: PLW0108 - being no async function is the point


@pytest.mark.parametrize("watcher", [handle, AsyncCallable(), functools.partial(handle)])
def test_an_async_watcher_gets_a_task(feeding, watcher):
    assert isinstance(feeding(watcher), AsyncWatcherFeed)


@pytest.mark.parametrize("watcher", [print, [].append, deferring(handle), functools.partial(print, "event")])
def test_a_plain_watcher_gets_a_thread(feeding, watcher):
    assert isinstance(feeding(watcher), ThreadWatcherFeed)


def test_a_watcher_without_a_name_is_called_as_its_function_is(feeding):
    names = [feeding(watcher, None).name for watcher in (handle, AsyncCallable(), print)]
    assert names == ["handle", "AsyncCallable", "print"]


def test_a_watcher_that_cannot_be_called_is_refused(feeding):
    with pytest.raises(ConfigError, match="a watcher is 'print'; give a function"):
        feeding("print")


# -- both kinds --------------------------------------------------------------------------------------------------------


def on_task(function: Callable[[Any], None]) -> Callable[[Any], Awaitable[None]]:
    async def watcher(event: Any) -> None:
        await asyncio.sleep(0)
        function(event)

    return watcher


def on_thread(function: Callable[[Any], None]) -> Callable[[Any], None]:
    return function


both_kinds = pytest.mark.parametrize("kind", [on_task, on_thread])


@both_kinds
async def test_a_watcher_is_called_with_every_event_in_order(feeding, ended, kind):
    seen: list[int] = []
    feed = feeding(kind(seen.append))
    for event in range(500):
        feed.push(event)
    await settled(feed)
    assert seen == list(range(500))
    feed.push(500)
    await settled(feed)
    assert seen[-1] == 500
    assert feed.stats.delivered == 501
    await stopped(feed)
    assert ended.errors == [None]


@both_kinds
async def test_nothing_runs_before_the_first_event_and_nothing_after_the_end(feeding, kind):
    before = {*asyncio.all_tasks(), *threading.enumerate()}  # threads of earlier tests may end meanwhile

    def begun() -> set[Any]:
        return {*asyncio.all_tasks(), *threading.enumerate()} - before

    feed = feeding(kind(lambda _: None))
    assert begun() == set()
    feed.push(1)
    assert len(begun()) == 1
    await stopped(feed)
    assert begun() == set()


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
async def test_a_watcher_that_raises_is_logged_once_reported_and_not_called_again(feeding, ended, caplog, kind, error):
    seen: list[int] = []

    def watcher(event: int) -> None:
        seen.append(event)
        raise error

    feed = feeding(kind(watcher), "the faulty one")
    for event in range(3):
        feed.push(event)
    async with asyncio.timeout(SECONDS):
        await ended.happened.wait()
    feed.push(4)
    assert seen == [0]
    assert ended.errors == [error]
    assert ended.threads == [threading.current_thread()]
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("perdure", logging.ERROR)
    assert "'the faulty one'" in record.getMessage()
    assert record.exc_info[1] is error


@both_kinds
async def test_those_who_wait_for_a_watcher_that_raises_are_let_go(feeding, ended, kind):
    def watcher(event: int) -> None:
        raise ValueError

    feed = feeding(kind(watcher))
    feed.push(1)
    await settled(feed)
    assert len(ended.errors) == 1


@both_kinds
async def test_a_watcher_sees_the_context_of_the_one_who_added_it(feeding, kind):
    variable = contextvars.ContextVar("variable", default="nobody")
    seen: list[str] = []
    variable.set("who adds")
    feed = feeding(kind(lambda _: seen.append(variable.get())))
    variable.set("who publishes")
    feed.push(1)
    await settled(feed)
    assert seen == ["who adds"]
    await stopped(feed)


@both_kinds
async def test_a_feed_that_is_retired_before_its_first_event_has_ended(feeding, ended, kind):
    seen: list[int] = []
    feed = feeding(kind(seen.append))
    feed.retire()
    assert ended.errors == [None]
    feed.push(1)
    assert feed.when_settled() is None
    assert feed.stop() is None
    assert seen == []


@both_kinds
async def test_a_watcher_may_retire_its_own_feed(feeding, ended, kind):
    seen: list[int] = []

    def watcher(event: int) -> None:
        seen.append(event)
        if event == 1:
            feed.retire()

    feed = feeding(kind(watcher))
    for event in range(4):
        feed.push(event)
    async with asyncio.timeout(SECONDS):
        await ended.happened.wait()
    assert seen == [0, 1]
    assert ended.errors == [None]


@both_kinds
async def test_a_feed_that_is_retired_while_it_waits_for_events_ends(feeding, ended, kind):
    feed = feeding(kind(lambda _: None))
    feed.push(1)
    await settled(feed)
    feed.retire()
    async with asyncio.timeout(SECONDS):
        await ended.happened.wait()
    assert ended.errors == [None]


# -- a task ------------------------------------------------------------------------------------------------------------


async def test_a_retired_feed_does_not_hand_over_the_event_its_task_was_woken_for(feeding, ended):
    seen: list[int] = []
    feed = feeding(on_task(seen.append))
    feed.push(1)
    await settled(feed)
    feed.push(2)
    feed.retire()
    async with asyncio.timeout(SECONDS):
        await ended.happened.wait()
    assert seen == [1]


async def test_an_async_watcher_that_hangs_is_cancelled_at_the_end(feeding, ended):
    hanging = asyncio.Event()

    async def watcher(event: int) -> None:
        hanging.set()
        await asyncio.Future()

    feed = feeding(watcher)
    feed.push(1)
    async with asyncio.timeout(SECONDS):
        await hanging.wait()
    await stopped(feed)
    assert ended.errors == [None]


async def test_an_async_watcher_waits_neither_for_itself_nor_for_its_own_end(feeding, ended):
    answers: list[object] = []

    async def watcher(event: int) -> None:
        answers.append(feed.when_settled())
        answers.append(feed.stop())
        await asyncio.sleep(0)
        answers.append("not cancelled")

    feed = feeding(watcher)
    feed.push(1)
    async with asyncio.timeout(SECONDS):
        await ended.happened.wait()
    assert answers == [None, None, "not cancelled"]


async def test_a_task_that_was_cancelled_from_outside_is_made_anew_at_the_next_event(feeding, ended):
    seen: list[int] = []
    feed = feeding(on_task(seen.append))
    feed.push(1)
    await settled(feed)
    (task,) = asyncio.all_tasks() - {asyncio.current_task()}
    task.cancel()
    await asyncio.wait([task])
    feed.push(2)
    await settled(feed)
    assert seen == [1, 2]
    assert ended.errors == []
    await stopped(feed)


async def test_an_async_watcher_that_never_waits_lets_others_run(feeding):
    seen_by_others: list[int] = []
    seen: list[int] = []

    async def watcher(event: int) -> None:
        seen.append(event)

    async def other() -> None:
        while len(seen) < 1000:
            seen_by_others.append(len(seen))
            await asyncio.sleep(0)

    feed = feeding(watcher)
    for event in range(1000):
        feed.push(event)
    async with asyncio.timeout(SECONDS):
        await other()
    assert len(seen_by_others) > 10
    await stopped(feed)


def test_an_interrupt_from_the_keyboard_is_not_taken_for_an_error_of_the_watcher(caplog):
    ended: list[object] = []
    tasks: list[asyncio.Task[None] | None] = []

    async def watcher(event: int) -> None:
        tasks.append(asyncio.current_task())
        raise KeyboardInterrupt

    async def main() -> None:
        feed = make_feed(watcher, None, Buffer[int](1), lambda *end: ended.append(end))
        feed.push(1)
        await asyncio.sleep(SECONDS)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert [type(task.exception()) for task in tasks if task] == [KeyboardInterrupt]
    assert ended == []
    assert caplog.records == []


# -- a thread ----------------------------------------------------------------------------------------------------------


async def test_a_plain_watcher_that_blocks_does_not_block_the_event_loop(feeding):
    gate = Gate()
    feed = feeding(gate, capacity=3)
    feed.push(0)
    assert gate.reached.wait(SECONDS)
    for event in range(1, 6):
        feed.push(event)
    waiting = feed.when_settled()
    assert waiting is feed.when_settled()
    gate.opened.set()
    async with asyncio.timeout(SECONDS):
        await waiting
    assert gate.passed == [0, 3, 4, 5]
    await stopped(feed)


async def test_a_thread_that_lags_is_left_behind_and_ends_when_the_function_returns(feeding, ended):
    gate = Gate()
    feed = feeding(gate)
    feed.push(1)
    feed.push(2)
    assert gate.reached.wait(SECONDS)
    feed.lagging = True
    assert feed.stop() is None
    assert ended.errors == []
    gate.opened.set()
    async with asyncio.timeout(SECONDS):
        await ended.happened.wait()
    assert gate.passed == [1]
    assert ended.errors == [None]


async def test_an_event_that_comes_while_a_thread_tells_that_it_is_done_is_waited_for(feeding, monkeypatch):
    gates = [Gate(), Gate()]
    told = threading.Event()
    feed = feeding(lambda gate: gate(gate))
    tell = feed._call_on_loop

    def tell_us_too(report: Callable[[], None]) -> None:
        tell(report)
        told.set()

    monkeypatch.setattr(feed, "_call_on_loop", tell_us_too)
    feed.push(gates[0])
    assert gates[0].reached.wait(SECONDS)
    waiting = feed.when_settled()
    gates[0].opened.set()
    assert told.wait(SECONDS)  # the loop hears of it only when this test lets it run
    feed.push(gates[1])
    assert gates[1].reached.wait(SECONDS)
    await asyncio.sleep(0)
    assert feed.when_settled() is waiting
    assert not waiting.done()
    gates[1].opened.set()
    await settled(feed)
    monkeypatch.undo()
    await stopped(feed)


async def test_a_plain_watcher_that_returns_an_awaitable_has_it_awaited_on_the_event_loop(feeding):
    seen: list[tuple[int, threading.Thread]] = []

    async def handle_later(event: int) -> None:
        await asyncio.sleep(0)
        seen.append((event, threading.current_thread()))

    feed = feeding(deferring(handle_later))
    feed.push(1)
    feed.push(2)
    await settled(feed)
    assert seen == [(1, threading.current_thread()), (2, threading.current_thread())]
    await stopped(feed)


async def test_an_awaitable_of_a_plain_watcher_that_raises_is_its_error(feeding, ended):
    async def fail(event: int) -> None:
        raise ValueError(event)

    feed = feeding(deferring(fail))
    feed.push(1)
    async with asyncio.timeout(SECONDS):
        await ended.happened.wait()
    assert repr(ended.errors) == "[ValueError(1)]"


async def test_an_awaitable_of_a_plain_watcher_that_hangs_is_cancelled_at_the_end(feeding, ended, caplog):
    hanging = asyncio.Event()

    async def hang(event: int) -> None:
        hanging.set()
        await asyncio.Future()

    before = {*asyncio.all_tasks(), *threading.enumerate()}  # threads of earlier tests may end meanwhile
    feed = feeding(deferring(hang))
    feed.push(1)
    async with asyncio.timeout(SECONDS):
        await hanging.wait()
        while feed._awaiting is None:  # noqa: ASYNC110 - its thread notes it without telling
            await asyncio.sleep(0)
    feed.lagging = True
    await stopped(feed)
    async with asyncio.timeout(SECONDS):
        await ended.happened.wait()
    assert ended.errors == [None]
    assert caplog.records == []
    assert {*asyncio.all_tasks(), *threading.enumerate()} <= before


async def test_a_watcher_that_is_stopped_before_anybody_sees_that_it_waits_is_cancelled(feeding, ended, monkeypatch):
    begin = asyncio.run_coroutine_threadsafe

    def begin_late(awaited: Any, loop: asyncio.AbstractEventLoop) -> Any:
        begun = begin(awaited, loop)
        feed.retire()
        return begun

    async def hang(event: int) -> None:
        await asyncio.Future()

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", begin_late)
    feed = feeding(deferring(hang))
    feed.push(1)
    async with asyncio.timeout(SECONDS):
        await ended.happened.wait()
    assert ended.errors == [None]


async def test_a_watcher_may_return_what_it_likes(feeding, ended):
    feed = feeding(lambda event: event)
    feed.push(1)
    await settled(feed)
    assert ended.errors == []
    await stopped(feed)


async def test_a_watcher_for_which_there_is_no_thread_is_dropped(feeding, ended, monkeypatch):
    def no_more(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    feed = feeding(lambda _: None)
    feed.push(1)
    feed.push(2)
    assert repr(ended.errors) == """[RuntimeError("can't start new thread")]"""


def test_a_thread_whose_event_loop_is_gone_ends_quietly(ended):
    gate = Gate()

    async def main() -> WatcherFeed[int]:
        feed = make_feed(gate, "orphan", Buffer[int](1), ended)
        feed.push(1)
        assert gate.reached.wait(SECONDS)
        return feed

    feed = asyncio.run(main())
    feed.retire()
    gate.opened.set()
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "perdure watcher orphan"]
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert ended.errors == []


def test_a_thread_serves_a_second_event_loop():
    gate = Gate()
    ended: list[object] = []
    feed = make_feed(gate, None, Buffer[int](8), lambda *end: ended.append(end))

    async def first() -> None:
        feed.push(1)
        assert feed.when_settled() is not None

    async def second() -> None:
        feed.push(2)
        assert feed.when_settled() is not None
        gate.opened.set()
        await settled(feed)
        await stopped(feed)

    asyncio.run(first())
    asyncio.run(second())
    assert gate.passed == [1, 2]
    assert len(ended) == 1


class FakeTime:
    """A clock that only blocking moves, and rests that are noted and take no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.rests: list[float] = []
        monkeypatch.setattr(watcher_feed, "perf_counter", lambda: self.now)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        if seconds:
            self.rests.append(seconds)


async def test_an_async_watcher_that_blocks_the_event_loop_rests_after_each_call(feeding, monkeypatch, caplog):
    time = FakeTime(monkeypatch)

    async def watcher(_: Any) -> None:
        time.now += 0.2

    feed = feeding(watcher)
    for event in range(4):
        feed.push(event)
    await settled(feed)
    assert time.rests == pytest.approx([1.8] * 3)  # not after the first: only from then on it is measured
    assert [record.getMessage() for record in caplog.records if "kept the event loop for 200 ms" in record.getMessage()]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("steps", [(0.2, 0.0, 0.0), (0.0, 0.2, 0.0), (0.0, 0.0, 0.2)], ids=["first", "second", "last"])
async def test_the_longest_step_of_an_async_watcher_counts_wherever_it_is(feeding, monkeypatch, steps):
    time = FakeTime(monkeypatch)
    blocking = 1.0  # the first call, after which it is measured

    async def watcher(event: int) -> None:
        time.now += 0.0 if event else blocking
        for number, step in enumerate(steps if event else ()):
            time.now += step
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(turn.set_result, None)
            if number < len(steps) - 1:
                await turn

    feed = feeding(watcher)
    for event in range(2):
        feed.push(event)
    await settled(feed)
    assert time.rests == pytest.approx([1.8])


async def test_an_async_watcher_that_awaits_for_long_does_not_rest(feeding, monkeypatch):
    time = FakeTime(monkeypatch)
    seen: list[int] = []

    async def watcher(event: int) -> None:
        time.now += 0.04  # a step that is short enough
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(turn.set_result, None)
        asyncio.get_running_loop().call_soon(setattr, time, "now", time.now + 5)
        await turn
        seen.append(event)

    feed = feeding(watcher)
    for event in range(4):
        feed.push(event)
    await settled(feed)
    assert (seen, time.rests) == ([0, 1, 2, 3], [])


async def test_a_watcher_that_is_measured_can_be_cancelled_and_may_raise(feeding, ended, monkeypatch):
    time = FakeTime(monkeypatch)
    entered = asyncio.Event()
    cancelled: list[int] = []

    async def watcher(event: int) -> None:
        time.now += 1
        if event:
            entered.set()
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.append(event)
                raise

    feed = feeding(watcher)
    feed.push(0)
    feed.push(1)
    await entered.wait()
    await stopped(feed)
    assert cancelled == [1]

    async def failing(event: int) -> None:
        time.now += 1
        if event:
            raise ValueError(event)

    broken = feeding(failing)
    broken.push(0)
    broken.push(1)
    await settled(broken)
    assert isinstance(ended.errors[-1], ValueError)


TURNS = 100
BLOCKED_SECONDS = 0.1
END_WAIT_SECONDS = 1.0
"""The most that a run waits for its watchers at its end."""


@pytest.mark.budget
async def test_a_watcher_that_blocks_delays_a_run_by_few_calls_and_the_wait_at_its_end(
    caplog,
):
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
    """A watcher that only collects, and can be made to fail."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.threads: set[int] = set()

    def collect_event(self, event: Any) -> None:
        if event == "bad":
            raise ValueError(event)
        self.threads.add(threading.get_ident())
        self.events.append(event)

    def __call__(self, event: Any) -> None:
        raise AssertionError("collect_event is called instead")


async def test_a_collector_gets_each_event_at_once_on_the_thread_of_the_publisher(feeding):
    collector = Collector()
    feed = feeding(collector)
    feed.push(1)
    feed.push(2)
    assert (collector.events, collector.threads) == ([1, 2], {threading.get_ident()})
    assert feed.when_settled() is None
    assert (feed.stats.pushed, feed.stats.delivered, feed.stats.buffered) == (2, 2, 0)


async def test_a_collector_that_raises_is_dropped_and_reported(feeding, ended, caplog):
    collector = Collector()
    feed = feeding(collector)
    for event in (1, "bad", 2):
        feed.push(event)
    assert collector.events == [1]
    assert [type(each) for each in ended.errors] == [ValueError]
    assert "the watcher 'the watcher' raised" in caplog.text


async def test_a_stopped_collector_gets_nothing_more(feeding, ended):
    collector = Collector()
    feed = feeding(collector)
    assert feed.stop() is None
    feed.push(1)
    assert (collector.events, ended.errors) == ([], [None])


async def test_a_collector_sees_a_whole_run_before_it_returns():
    collector = Collector()
    await Agent(ScriptedModel("hello"), watchers=[collector]).run("hi")
    kinds = [type(each.event).__name__ for each in collector.events]
    assert (kinds[0], kinds[-1]) == ("SessionOpened", "RunEnded")
