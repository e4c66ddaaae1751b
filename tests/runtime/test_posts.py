"""Posts of other processes are looked for while a run goes on, and no longer."""

import asyncio

import pytest

from perdure.core.store import Post
from perdure.runtime import posts
from perdure.runtime.posts import PostPoller
from perdure.stores.memory import MemoryStore
from tests.doubles import SECONDS


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
    monkeypatch.setattr(posts, "POLL_SECONDS", 0.0)
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
    due = [poller._timer.when() for poller in pollers]
    ended = loop.time()
    for poller in pollers:
        await poller.close()
    assert max(due) <= ended + posts.POLL_SECONDS
    assert min(due) > began
    assert max(due) - min(due) > posts.POLL_SECONDS / 5
