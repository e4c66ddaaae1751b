"""The parts that a turn is made of, each by itself: none has a budget of its own, but this is where a budget goes."""

import asyncio
import itertools
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from perdure import Agent, Text, ToolResult
from perdure._core.schema.parsing import parse_arguments
from perdure.events import Entry, Event, ToolFinished
from perdure.stores import NonBlockingAppendStore, Store, open_store
from perdure.testing import ScriptedModel
from perdure.tools import check_value

from .measure import Effort, Figure, best_async_us, best_us
from .turns import ADD, agent, hand_turn

ARGUMENTS = '{"n": 42}'
OUTPUT_PROPERTIES = 300
RESULT: Event = ToolFinished("call_1", "add", ToolResult("call_1", "add", (Text("ok"),)), 0.001, run_id="run")


async def append_us(store: Store, effort: Effort, *, sync: bool) -> float:
    """Microseconds of CPU to append one event."""
    lease = await store.acquire("appended")
    numbers = itertools.count(1 + len(await store.read("appended")))

    async def append() -> None:
        number = next(numbers)
        entries = (Entry(number, 0.0, RESULT, f"entry-{number}"),)
        if not isinstance(store, NonBlockingAppendStore) or not store.append_now(lease, entries, sync=sync):
            await store.append(lease, entries, sync=sync)

    try:
        return await best_async_us(append, effort)
    finally:
        await store.release(lease)


async def appends(effort: Effort, folder: Path) -> tuple[float, float, float]:
    """Into memory, into a file, and into a file that is then synced to the disk."""
    memory, file = open_store("memory:"), open_store(f"sqlite:{folder / 'appends.db'}")
    few = effort._replace(calls=max(1, effort.calls // 40), repeats=min(5, effort.repeats))
    try:
        return (
            await append_us(memory, effort, sync=False),
            await append_us(file, few, sync=False),
            await append_us(file, few, sync=True),
        )
    finally:
        await file.aclose()


async def opening_ms(turns: int, folder: Path) -> tuple[float, int]:
    """Milliseconds of CPU to open a long session from its file, and how many messages it has."""
    file = f"sqlite:{folder / 'opening.db'}"
    talker = agent(turns, store=file)
    await copy(await recorded(turns), talker.store, "long")
    readings: list[int] = []
    messages: Sequence[object] = ()
    for _ in range(5):
        began = time.process_time_ns()
        messages = await talker.session("long").messages()
        readings.append(time.process_time_ns() - began)
    await talker.store.aclose()
    return min(readings) / 1_000_000, len(messages)


async def recorded(turns: int) -> list[Entry]:
    """The log of a run with that many tool turns."""
    adder = agent(turns)
    await adder.session("long").run("add")
    return await adder.store.read("long")


async def copy(entries: list[Entry], store: Store, session_id: str) -> None:
    """Put a log into a store, in one append."""
    lease = await store.acquire(session_id)
    await store.append(lease, entries, sync=False)
    await store.release(lease)


def parsed_us(effort: Effort) -> float:
    """Microseconds of CPU to read and validate the arguments of a call."""
    return best_us(lambda: ADD.parameters.parse(parse_arguments(ARGUMENTS)), effort)


def checked_result_us(effort: Effort) -> float:
    """Microseconds of CPU to check a structured result against the output schema of its tool."""
    names = [f"field_{number}" for number in range(OUTPUT_PROPERTIES)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
    result = dict.fromkeys(names, "text")
    few = effort._replace(calls=max(1, effort.calls // 20))
    return best_us(lambda: check_value(result, dict(schema)), few)


def run_sync_us(effort: Effort) -> float:
    """Microseconds of CPU for a whole `run_sync`, which crosses to the background loop and back."""
    answering: Agent[None] = Agent(ScriptedModel("done", repeat_last=True))
    return best_us(lambda: answering.run_sync("hello"), effort._replace(calls=max(1, effort.calls // 20)))


def figures(effort: Effort) -> Iterator[Figure]:
    """Each part in CPU time."""
    turn = asyncio.run(hand_turn(effort))
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as name:
        memory, plain, barrier = asyncio.run(appends(effort, Path(name)))
        opened, messages = asyncio.run(opening_ms(effort.long_run, Path(name)))
    timings = (
        ("`run_sync`, one answer", run_sync_us(effort), "a new session on the background loop, one reply, no tool"),
        ("arguments of a call", parsed_us(effort), "from the model's JSON to validated values"),
        (
            f"check of a result, {OUTPUT_PROPERTIES} properties",
            checked_result_us(effort),
            "a structured result, or an answer, against a raw JSON Schema",
        ),
        ("append, memory", memory, "number and store an event"),
        ("append, SQLite", plain, "encode, insert and commit; survives a crash of the process"),
        (
            "append, SQLite, barrier",
            barrier,
            "the same, and wait for the disk on the writer's thread; survives a power cut",
        ),
    )
    for name, took, explanation in timings:
        yield Figure(name, took, "us", f"CPU: {explanation}", ratio=took / turn)
    yield Figure(
        f"opening a session of {effort.long_run:,} turns",
        opened,
        "ms",
        f"CPU: read from SQLite, decode and fold {messages:,} messages",
    )
