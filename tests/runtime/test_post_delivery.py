"""Posts of other processes are looked for while a run goes on, and no longer."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from perdure import Agent
from perdure._core.log.fold import fold_events
from perdure._core.people.inbox import INBOX_POST
from perdure._core.people.mailbox import ANSWER_POST, CANCEL_POST
from perdure._runtime.session import posts as post_delivery
from perdure._runtime.session.posts import PostPoller, fill_mailbox, iterate_with_timeouts
from perdure.engines import Mailbox, State
from perdure.events import Entry, InboxAdded, QuestionAsked, RunStarted
from perdure.stores import MemoryStore, Post
from perdure.testing import ScriptedModel, call
from tests.doubles import SECONDS, Held, until


class SlowToLook(MemoryStore):
    """A store that is asked for posts when the run ends, and takes its time to give up."""

    def __init__(self) -> None:
        super().__init__()
        self.looking = asyncio.Event()
        self.gave_up = False

    async def posts(self, session_id: str) -> list[Post]:
        self.looking.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self.gave_up = True
        return []


async def test_nothing_is_asked_of_the_store_any_more_once_polling_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post_delivery, "POLL_SECONDS", 0.0)
    store = SlowToLook()
    poller = PostPoller(store, "s", lambda _: None)
    async with asyncio.timeout(SECONDS):
        await store.looking.wait()
        await poller.close()
    assert store.gave_up


async def test_sessions_that_began_together_look_at_different_times_and_within_the_interval() -> None:
    store, loop = MemoryStore(), asyncio.get_running_loop()
    began = loop.time()
    pollers = [PostPoller(store, f"s{number}", lambda _: None) for number in range(100)]
    schedule = post_delivery._schedules[loop]
    due = list(schedule.due_times.values())
    ended = loop.time()
    for poller in pollers:
        await poller.close()
    assert not schedule.due_times
    assert len(due) == len(pollers)
    assert max(due) <= ended + post_delivery.POLL_SECONDS * (1 - post_delivery.TICK)
    assert min(due) > began
    assert max(due) - min(due) > post_delivery.POLL_SECONDS / 5


class CountsLooks(MemoryStore):
    """A store that counts how often it is asked for posts."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[str] = []
        self.both = asyncio.Event()

    async def posts(self, session_id: str) -> list[Post]:
        self.looks.append(session_id)
        if len(set(self.looks)) == 2:
            self.both.set()
        return []


async def test_one_timer_starts_the_pollers_of_all_runs_that_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post_delivery, "POLL_SECONDS", 0.01)
    store, loop = CountsLooks(), asyncio.get_running_loop()
    timers: list[float] = []
    call_later = loop.call_later

    def count_timer(delay: float, *rest: Any) -> asyncio.TimerHandle:
        timers.append(delay)
        return call_later(delay, *rest)

    monkeypatch.setattr(loop, "call_later", count_timer)
    ended = PostPoller(store, "ended", lambda _: None)
    pollers = [PostPoller(store, name, lambda _: None) for name in ("a", "b")]
    assert len(timers) == 1
    await ended.close()
    async with asyncio.timeout(SECONDS):
        await store.both.wait()
        for poller in pollers:
            await poller.close()
    assert set(store.looks) == {"a", "b"}


def test_an_event_loop_is_not_kept_alive_by_the_pollers_that_it_had() -> None:
    async def poll_shortly() -> "weakref.ref[asyncio.AbstractEventLoop]":
        await PostPoller(MemoryStore(), "s", lambda _: None).close()
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(poll_shortly())
    gc.collect()
    assert loop() is None


async def test_a_poller_without_intervals_looks_when_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post_delivery, "POLL_SECONDS", 0.0)
    store, delivered = MemoryStore(), list[str]()
    await store.post("s", Post("p1", "steer", {}, 0.0))
    poller = PostPoller(store, "s", lambda post: delivered.append(post.id), at_intervals=False)
    await asyncio.sleep(0.01)
    assert not delivered
    async with asyncio.timeout(SECONDS):
        poller.poll_soon()
        await until(lambda: delivered == ["p1"])
        poller.poll_soon()
        await until(lambda: delivered == ["p1", "p1"])
        await poller.close()
    assert poller not in post_delivery._schedules[asyncio.get_running_loop()].due_times


async def test_what_is_posted_while_the_store_is_asked_is_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post_delivery, "POLL_SECONDS", 3600.0)
    looks: list[int] = []

    class AskedTwice(MemoryStore):
        async def posts(self, session_id: str) -> list[Post]:
            looks.append(len(looks))
            if len(looks) == 1:
                poller.poll_soon()
            return await super().posts(session_id)

    poller = PostPoller(AskedTwice(), "s", lambda _: None)
    poller.poll_soon()
    async with asyncio.timeout(SECONDS):
        await until(lambda: len(looks) == 2)
    await poller.close()
    assert looks == [0, 1]


async def test_a_store_that_no_other_process_can_reach_is_not_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post_delivery, "POLL_SECONDS", 0.001)
    held, polled = Held(), list[str]()
    posts = MemoryStore.posts

    async def count_posts(store: MemoryStore, session_id: str) -> list[Post]:
        polled.append(session_id)
        return await posts(store, session_id)

    monkeypatch.setattr(MemoryStore, "posts", count_posts)
    going = asyncio.ensure_future(Agent(ScriptedModel(call("held"), "Done."), tools=[held.tool]).run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        before = list(polled)
        await asyncio.sleep(0.02)
        assert polled == before
        held.released.set()
        assert (await going).text == "Done."


def test_posts_for_an_earlier_run_are_told_from_those_for_this_one() -> None:
    def post(name: str, kind: str, **body: Any) -> Post:
        return Post(name, kind, body, 0.0)

    asked = QuestionAsked("a1", "permission", "May I?", run_id="r1")
    state = fold_events([RunStarted(run_id="r1"), InboxAdded("i1", "mail", "Any?", run_id="r1"), asked])
    posts = [
        post("cancel-this", CANCEL_POST, run_id="r1"),
        post("cancel-other", CANCEL_POST, run_id="r0"),
        post("answer-open", ANSWER_POST, ask_id="a1", answer=True),
        post("answer-other", ANSWER_POST, ask_id="a0", answer=True),
        post("result-awaited", INBOX_POST, item_id="i1", response="yes"),
        post("result-other", INBOX_POST, item_id="i0", response="yes"),
    ]

    def late(state: State, *, is_resumed: bool) -> list[str]:
        return [each.id for each in fill_mailbox(Mailbox(), posts, state, "r1", is_resumed=is_resumed)]

    assert late(state, is_resumed=True) == ["cancel-other", "answer-other", "result-other"]
    assert late(state, is_resumed=False) == ["cancel-other", "answer-open", "answer-other", "result-other"]
    assert late(State(), is_resumed=True) == [
        "cancel-other", "answer-open", "answer-other", "result-awaited", "result-other",
    ]  # fmt: skip
    assert fill_mailbox(Mailbox(), [], state, "r1", is_resumed=True) == []


async def test_a_poller_looks_again_and_again_also_if_it_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post_delivery, "POLL_SECONDS", 0.0)
    store = CountsLooks()
    poller = PostPoller(store, "s", lambda _: None)
    await until(lambda: len(store.looks) >= 3)
    await poller.close()
    assert set(store.looks) == {"s"}


async def test_entries_are_passed_on_and_each_pause_between_them_is_told() -> None:
    coming: asyncio.Queue[Entry | None] = asyncio.Queue()
    ended: list[str] = []

    async def entries() -> AsyncGenerator[Entry]:
        try:
            while (entry := await coming.get()) is not None:
                yield entry
        finally:
            ended.append("closed")

    first, second = Entry(1, 1.0, RunStarted(run_id="r1")), Entry(2, 2.0, RunStarted(run_id="r2"))
    async with asyncio.timeout(SECONDS):
        found = iterate_with_timeouts(entries(), 0.0)
        assert [await anext(found) for _ in range(2)] == [None, None]
        for each in (first, second, None):
            coming.put_nowait(each)
        assert [entry async for entry in found if entry is not None] == [first, second]
        assert ended == ["closed"]
        found = iterate_with_timeouts(entries(), 0.0)
        assert await anext(found) is None
        await found.aclose()
    assert ended == ["closed", "closed"]
    assert asyncio.all_tasks() == {asyncio.current_task()}
