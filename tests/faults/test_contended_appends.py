"""Appends that wait for one another, cancelled at every moment: none is lost, and no finished call is called unstarted.

Tools that end at the same moment store their results at the same moment, so that most of these appends have to wait.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import pytest

from perdure import Agent, Status, ToolContext, tool
from perdure._core.log.store import Log
from perdure._core.values.clock import new_id
from perdure.engines import SYSTEM_CLOCK
from perdure.events import Custom, Entry, ToolFinished
from perdure.stores import FileStore, MemoryStore, Post, PostgresStore, SqliteStore, Store
from perdure.testing import ScriptedModel, call, calls
from tests.doubles import SECONDS, WaitingStore
from tests.faults.suspension import Suspensions
from tests.seeds import chance as draw_chance

APPENDERS = 5
APPENDS = 4
CALLS = 5

STORES = ("memory", "waiting", "file", "sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres")))


@pytest.fixture
async def store(request, tmp_path) -> AsyncIterator[Store]:
    """A store of each kind; `waiting` is one in memory that makes every append wait."""
    made: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "waiting": WaitingStore,
        "file": lambda: FileStore(tmp_path / "sessions"),
        "sqlite": lambda: SqliteStore(tmp_path / "sessions.db"),
        "postgres": lambda: PostgresStore(request.getfixturevalue("postgres").address(), tenant=new_id()),
    }
    opened = made[request.param]()
    yield opened
    await opened.aclose()


def strikes(chance: random.Random, tasks: Sequence["asyncio.Task[Any]"], most: int) -> Suspensions:
    """Cancels of random tasks at some of the first suspensions."""
    moments = {chance.randint(1, most) for _ in range(chance.randint(1, 6))}

    def strike() -> None:
        if tasks:
            chance.choice(tasks).cancel()

    return Suspensions(moments, strike)


# -- the log -----------------------------------------------------------------------------------------------------------


async def append_contended(store: Store, seed: str) -> None:
    chance, session_id = draw_chance(seed), new_id()
    lease = await store.acquire(session_id)
    log = Log(store, lease, 0, SYSTEM_CLOCK)
    told: list[Entry] = []
    tasks: list[asyncio.Task[Any]] = []

    async def append_some(number: int) -> None:
        tasks.append(cast("asyncio.Task[Any]", asyncio.current_task()))  # from here on it can be cancelled
        for place in range(APPENDS):
            events = [Custom(f"{number}.{place}.{part}") for part in range(chance.randint(1, 2))]
            await log.append(events, sync=chance.random() < 0.3, on_stored=told.extend)

    suspensions = strikes(chance, tasks, APPENDERS * APPENDS * 4)
    with suspensions.watching():
        appenders = [asyncio.ensure_future(append_some(number)) for number in range(APPENDERS)]
        async with asyncio.timeout(SECONDS):
            ends = await asyncio.gather(*appenders, return_exceptions=True)
    assert [end for end in ends if end is not None] == [], f"an append was dropped ({seed})"
    stored = await store.read(session_id)
    assert stored == told, f"what was stored and what was told differ ({seed})"
    assert [entry.seq for entry in stored] == [*range(1, len(stored) + 1)]
    for number in range(APPENDERS):
        named = [entry.event.name for entry in stored if isinstance(entry.event, Custom)]
        mine = [name for name in named if name.startswith(f"{number}.")]
        assert mine == sorted(mine), f"appends of one task have changed places ({seed})"
        assert {name.split(".")[1] for name in mine} == {str(place) for place in range(APPENDS)}
    await store.release(lease)


@pytest.mark.faults
@pytest.mark.timeout(0)
@pytest.mark.parametrize("store", STORES, indirect=True)
async def test_no_cancel_drops_an_append_that_waits_for_others(store, long):
    for number in range(600 if long else 30):
        await append_contended(store, f"appends {number}")


# -- the front door ----------------------------------------------------------------------------------------------------


async def cancel_calls_that_end_together(store: Store, seed: str) -> None:
    chance = draw_chance(seed)
    begun: list[str] = []
    done: list[str] = []

    @tool
    async def act(context: ToolContext) -> str:
        """Acts."""
        begun.append(context.call_id)
        for _ in range(chance.randint(0, 3)):
            await asyncio.sleep(0)
        done.append(context.call_id)
        return "acted"

    async def keep_busy() -> None:
        while True:
            await store.post(f"{session.session_id}-other", Post(new_id(), "steer"))
            await asyncio.sleep(0)

    agent = Agent(ScriptedModel(calls(*[call("act") for _ in range(CALLS)]), "Done."), tools=[act], store=store)
    session = agent.session(new_id())
    tasks: list[asyncio.Task[Any]] = []
    suspensions = strikes(chance, tasks, 150)
    other = asyncio.ensure_future(keep_busy())  # an append that finds the store busy has to wait
    with suspensions.watching():
        tasks.append(asyncio.ensure_future(session.run("go")))
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*tasks, return_exceptions=True)
    other.cancel()
    await asyncio.wait([other])
    events = [entry.event for entry in await store.read(session.session_id)]
    statuses = {event.call_id: event.result.status for event in events if isinstance(event, ToolFinished)}
    for call_id in begun:
        assert statuses[call_id] is not Status.CANCELLED_BEFORE_START, f"{call_id} was begun ({seed})"
    for call_id in done:
        assert statuses[call_id] is Status.OK, f"{call_id} was done ({seed})"
    await session.aclose()


@pytest.mark.faults
@pytest.mark.timeout(0)
@pytest.mark.parametrize("store", STORES, indirect=True)
async def test_no_cancel_makes_a_call_that_was_begun_one_that_was_not_started(store, long):
    for number in range(1500 if long else 40):
        await cancel_calls_that_end_together(store, f"calls {number}")
