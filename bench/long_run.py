"""Many tool turns in one run: it gets there, a turn costs what it costs in a short one, and little is kept."""

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator

from . import hand_loop
from .measure import Effort, Figure, cpu_ns
from .turns import add, agent, stamps


async def best_cpu_us(turns: int, rounds: int) -> tuple[float, float]:
    """Microseconds of CPU for each turn: ours and the hand-written loop's, in turns."""
    ours: list[int] = []
    by_hand: list[int] = []
    for _ in range(rounds):
        gc.collect()
        ours.append(await cpu_ns(agent(turns).run("add")))
        by_hand.append(await cpu_ns(hand_loop.run(turns, {"add": add})))
    return min(ours) / turns / 1000, min(by_hand) / turns / 1000


async def kept_bytes(turns: int) -> tuple[float, int]:
    """Bytes that each turn leaves behind (log and transcript), and how many turns there were."""
    await agent(1).run("add")  # what is imported at first use is no part of a turn
    stamps.clear()  # else this list of ours, which all runs before have filled, is moved and counted
    adder = agent(turns)
    gc.collect()
    tracemalloc.start()
    try:
        outcome = await adder.run("add")
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return grown / turns, outcome.turns


def figures(effort: Effort) -> Iterator[Figure]:
    """A run of many turns, in time and in memory."""
    turns = effort.long_run
    ours, by_hand = asyncio.run(best_cpu_us(turns, 5 if effort.rounds > 5 else 1))
    longest, _ = asyncio.run(best_cpu_us(10 * turns, 3 if effort.rounds > 5 else 1))
    kept, steps = asyncio.run(kept_bytes(turns))
    yield Figure(
        f"a turn of {turns:,} in one run",
        ours,
        "us",
        f"CPU for each of {turns:,} sequential tool turns of one run",
        budget=30,
        at_most=45,
        ratio=ours / by_hand,
        detail=f"{steps - 1:,} of {turns:,} done",
    )
    yield Figure(
        f"growth from {turns:,} turns to {10 * turns:,}",
        (longest / ours - 1) * 100,
        "%",
        f"CPU for each turn of a run of {10 * turns:,}, compared with one of {turns:,}",
        budget=10,
        detail=f"{longest:.1f} us",
    )
    yield Figure(
        "memory that a turn leaves",
        kept / 1024,
        "KiB",
        "the entries, which the outcome keeps, the transcript and the scripted model's requests",
    )
