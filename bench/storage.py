"""What keeping costs: appends, opening, forks, search, bytes on disk.

Everything is measured through a session's log on a real SQLite file. Messages are of about 1 KiB, and random, so that
nothing can be gained by compressing them.
"""

import asyncio
import base64
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from perdure import Agent, StopReason, Usage, assistant, user
from perdure._core.log.store import Log
from perdure.engines import SYSTEM_CLOCK
from perdure.events import Event, MessageAdded, ModelRequested, RunEnded, RunStarted
from perdure.stores import MaintainableStore, SearchableStore, Store, open_store
from perdure.testing import ScriptedModel

from .measure import Effort, Figure
from .runs import calling

SESSIONS = 50
"""How many sessions append at the same time."""
SIZE = 1024
"""Characters of a message."""
_ENTRIES = 9  # of a run with a tool call

_random = random.Random(7)
_WORDS = [base64.b32encode(_random.randbytes(4)).decode().strip("=").lower() for _ in range(20_000)]


def text(size: int = SIZE) -> str:
    """Words that nobody has said before, about 1 KiB of them."""
    return " ".join(_random.choices(_WORDS, k=size // 8))


def a_turn(number: int) -> list[list[Event]]:
    """The appends of a run that answers one message."""
    run_id = f"run-{number}"
    reply = assistant(text(), stop=StopReason.STOP, usage=Usage(900, 250))
    return [
        [RunStarted("agent", run_id=run_id), MessageAdded(user(text()), run_id=run_id)],
        [ModelRequested(1, 1, "model", "provider", {}, "0123456789abcdef", 2 * number, run_id=run_id)],
        [MessageAdded(reply, run_id=run_id)],
        [RunEnded("done", usage=Usage(900, 250), turns=1, run_id=run_id)],
    ]


async def append(log: Log, events: Sequence[Event], *, sync: bool = False) -> None:
    """As a run does it."""
    if log.append_now(events, sync=sync) is None:
        await log.append(events, sync=sync, on_stored=lambda _: None)


async def filled(store: Store, session_id: str, turns: int, *, first: int = 0) -> int:
    """Append so many turns; returns the bytes of their messages as JSON."""
    lease = await store.acquire(session_id)
    log = Log(store, lease, len(await store.read(session_id)), SYSTEM_CLOCK)
    size = 0
    for number in range(first, first + turns):
        for events in a_turn(number):
            await append(log, events)
            size += sum(len(msgspec.json.encode(each.message)) for each in events if isinstance(each, MessageAdded))
    await store.release(lease)
    return size


def bytes_in(folder: Path) -> int:
    """What the files of a folder take."""
    return sum(path.stat().st_size for path in folder.iterdir())


# -- appends -----------------------------------------------------------------------------------------------------------


async def together_us(folder: Path, appends: int, size: int = SIZE, *, sync: bool = False) -> float:
    """Microseconds of CPU for an append and its commit, when many sessions append in one event loop."""
    store = open_store(f"sqlite:{folder / 'together.db'}")
    leases = [await store.acquire(f"s{number}") for number in range(SESSIONS)]
    logs = [Log(store, lease, 0, SYSTEM_CLOCK) for lease in leases]
    events = [MessageAdded(user(text(size)), run_id="run") for _ in range(appends)]

    async def work(log: Log | None) -> None:
        for event in events:
            if log is not None:
                await append(log, [event], sync=sync)
            await asyncio.sleep(0)  # as a run does while it waits for its model

    async def cpu_ns(*each: Log | None) -> int:
        began = time.process_time_ns()
        await asyncio.gather(*[work(log) for log in each])
        return time.process_time_ns() - began

    took = min([await cpu_ns(*logs) - await cpu_ns(*[None] * SESSIONS) for _ in range(3)])
    await store.aclose()
    return took / 1000 / appends / SESSIONS


async def growth(folder: Path, turns: int) -> tuple[float, float]:
    """Microseconds of CPU for the appends of a turn: near the 10th one, and when there are many."""
    store = open_store(f"sqlite:{folder / 'growth.db'}")

    logs: dict[str, Log] = {}
    for session_id, before in (("short", 10), ("long", turns)):
        await filled(store, session_id, before)
        head = len(await store.read(session_id))
        logs[session_id] = Log(store, await store.acquire(session_id), head, SYSTEM_CLOCK)

    async def turn_us(session_id: str, count: int = 40) -> float:
        appends = [events for number in range(count) for events in a_turn(number)]
        began = time.process_time_ns()
        for events in appends:
            await append(logs[session_id], events)
        return (time.process_time_ns() - began) / count / 1000

    readings = [(await turn_us("short"), await turn_us("long")) for _ in range(10)]
    await store.aclose()
    return statistics.median([early for early, _ in readings]), statistics.median([late for _, late in readings])


async def commit_p99_ms(folder: Path, commits: int) -> float:
    """Milliseconds until a barrier is acknowledged, beside an event loop that is never idle: 99 of 100 are quicker."""
    store = open_store(f"sqlite:{folder / 'busy.db'}")
    lease = await store.acquire("s")
    log = Log(store, lease, 0, SYSTEM_CLOCK)
    busy = True

    async def burn() -> None:
        while busy:
            until = time.perf_counter_ns() + 1_000_000
            while time.perf_counter_ns() < until:
                pass
            await asyncio.sleep(0)

    burning = asyncio.ensure_future(burn())
    readings: list[float] = []
    for _ in range(commits):
        began = time.perf_counter()
        await append(log, [MessageAdded(user(text()))], sync=True)
        readings.append((time.perf_counter() - began) * 1000)
    busy = False
    await burning
    await store.aclose()
    return statistics.quantiles(readings, n=100)[98]


# -- opening, bytes, forks ---------------------------------------------------------------------------------------------


async def opening_ms(folder: Path, turns: int) -> tuple[float, float, float]:
    """Milliseconds of CPU to open a session, and its bytes on disk against those of its messages, and with forks."""
    inside = folder / "opening"
    inside.mkdir()
    store = open_store(f"sqlite:{inside / 'opening.db'}")
    size = await filled(store, "long", turns)
    await store.aclose()
    alone = bytes_in(inside)
    readings: list[int] = []
    for _ in range(7):
        agent: Agent[None] = Agent(ScriptedModel(), store=store)
        began = time.process_time_ns()
        await agent.session("long").messages()
        readings.append(time.process_time_ns() - began)
    for number in range(100):
        await store.fork("long", f"fork-{number}")
    await store.aclose()
    return min(readings) / 1_000_000, alone / size, bytes_in(inside) / alone


async def opening_runs_ms(folder: Path, runs: int) -> tuple[float, int]:
    """Milliseconds of CPU to open a session of many runs with a tool call each, and the number of its messages."""
    store = open_store(f"sqlite:{folder / 'runs.db'}")
    agent: Agent[None] = calling(runs)
    recorded = agent.session("long")
    for _ in range(runs):
        await recorded.run("add")
    entries = await agent.store.read("long")
    lease = await store.acquire("long")
    for first in range(0, len(entries), _ENTRIES):
        await store.append(lease, entries[first : first + _ENTRIES], sync=False)
    await store.release(lease)
    readings: list[int] = []
    messages: Sequence[object] = ()
    for _ in range(20):
        began = time.process_time_ns()
        messages = await Agent(ScriptedModel(), store=store).session("long").messages()
        readings.append(time.process_time_ns() - began)
    await store.aclose()
    return min(readings) / 1_000_000, len(messages)


# -- search ------------------------------------------------------------------------------------------------------------


async def searching(folder: Path, messages: int) -> tuple[float, float]:
    """Milliseconds of CPU for a search with two terms, and the bytes on disk with the index against the messages."""
    inside = folder / "search"
    inside.mkdir()
    store = open_store(f"sqlite:{inside / 'search.db'}")
    size = 0
    for number in range(max(1, messages // 2000)):
        size += await filled(store, f"s{number}", min(1000, messages // 2))
    if not isinstance(store, SearchableStore) or not isinstance(store, MaintainableStore):
        raise TypeError("the SQLite store can be searched")
    await store.search(_WORDS[0])  # everything is in the index now
    readings: list[int] = []
    for number in range(9):
        query = f"{_WORDS[number]} {_WORDS[number + 100]}"
        began = time.process_time_ns()
        await store.search(query)
        readings.append(time.process_time_ns() - began)
    await store.aclose()
    return statistics.median(readings) / 1_000_000, bytes_in(inside) / size


def figures(effort: Effort) -> Iterator[Figure]:
    """What keeping costs."""
    turns = effort.long_run
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", dir=os.environ.get("PERDURE_BENCH_DIR")) as place:
        folder = Path(place)
        yield from _appends(folder, effort, turns)
        opened, ratio, forked = asyncio.run(opening_ms(folder, turns))
        yield Figure(
            f"opening a conversation of {turns:,} turns",
            opened,
            "ms",
            "CPU: read, decode and fold it",
            5.0 * turns / 1000,
        )
        of_runs, count = asyncio.run(opening_runs_ms(folder, turns))
        what = f"CPU: the same for runs with a tool call each, {count:,} messages"
        yield Figure(f"opening a session of {turns:,} runs", of_runs, "ms", what, 10.0 * turns / 1000)
        yield Figure("bytes on disk", ratio, "x", "the file against the JSON of its messages", 1.3)
        yield Figure("bytes on disk with 100 forks", forked, "x", "the file against the same without forks", 1.2)
        messages = 100 * turns
        found, indexed = asyncio.run(searching(folder, messages))
        yield Figure(f"search over {messages:,} messages", found, "ms", "CPU: two words, twenty best hits", 5.0)
        yield Figure("bytes on disk with the search index", indexed, "x", "against the JSON of the messages", 2.0)


def _appends(folder: Path, effort: Effort, turns: int) -> Iterator[Figure]:
    (folder / "small").mkdir()
    together = asyncio.run(together_us(folder, max(4, effort.calls // 20)))
    what = f"CPU: {SESSIONS} sessions in one event loop, messages of 1 KiB"
    yield Figure("append and commit", together, "us", what, 40.0)
    small = asyncio.run(together_us(folder / "small", max(4, effort.calls // 20), 100))
    what = f"CPU: the same with messages of 100 characters, {SESSIONS} sessions"
    yield Figure("append and commit, a few words", small, "us", what, 40.0)
    (folder / "barriers").mkdir()
    barriers = asyncio.run(together_us(folder / "barriers", max(4, effort.calls // 20), 100, sync=True))
    what = f"CPU: {SESSIONS} sessions in one event loop that wait for the disk at once, messages of 100 characters"
    yield Figure("barriers of many sessions at once, each", barriers, "us", what, 60.0)
    early, late = asyncio.run(growth(folder, 10 * turns))
    what = f"CPU of the four appends of a turn, against the same after {10 * turns:,} turns"
    yield Figure("appends of a turn, growth", (late / early - 1) * 100, "%", what, 10.0, detail=f"{early:.0f} us")
    waited = asyncio.run(commit_p99_ms(folder, max(100, effort.calls // 4)))
    yield Figure("barrier beside a busy loop, p99", waited, "ms", "wall clock: until it is on the disk", 20.0)
