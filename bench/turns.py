"""A tool turn in process: the model asks for a tool, the tool runs, its result goes back. Below: `hand_loop.py`.

The tool notes the time at each call; what lies between two notes is one turn. Arguments differ from turn to turn, since
guardrails watch for repeats.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from perdure import Agent, Limits, Tool, ToolCall, tool
from perdure.events import Entry
from perdure.testing import ScriptedModel

from . import hand_loop
from .measure import Effort, Figure, Spread, cpu_ns, spread

TURNS = 210
"""Of each run in memory."""
TURNS_IN_A_FILE = 40
AROUND_10TH, AROUND_200TH = slice(4, 15), slice(194, 205)

stamps: list[int] = []
"""When the tool was called, in nanoseconds."""


async def add(n: int) -> str:
    """Add a number.

    Args:
        n: the number to add.
    """
    stamps.append(time.perf_counter_ns())
    return "ok" if n >= 0 else "below zero"


ADD = tool(add)
ADD_READING = tool(effect="read")(add)
"""The same, as a tool that changes nothing, so that no intent has to survive a power cut."""


def agent(turns: int, added: Tool[..., Any] = ADD, **options: Any) -> Agent[Any]:
    """An agent whose model asks for the tool `turns` times."""
    calls = [ToolCall(f"call_{turn}", "add", f'{{"n":{turn}}}') for turn in range(turns)]
    return Agent(ScriptedModel(*calls, "done"), tools=[added], limits=Limits(max_turns=None), **options)


async def watch(_: Entry) -> None:
    """A watcher that has nothing to do."""


class Kind:
    """One way to have turns, and what they took."""

    def __init__(self, start: Callable[[int], Awaitable[object]], turns: int = TURNS) -> None:
        self.start = start
        """Begins a run of so many turns."""
        self.turns = turns
        self.rounds: list[list[int]] = []
        """Nanoseconds of each turn, by run."""
        self.cpu: list[int] = []
        """Nanoseconds of CPU of each whole run."""

    async def run(self) -> None:
        """One more run."""
        work = self.start(self.turns)
        stamps.clear()
        self.cpu.append(await cpu_ns(work))
        self.rounds.append([later - earlier for earlier, later in pairwise(stamps)])

    def spread(self) -> Spread:
        """All turns together."""
        return spread([turn for turns in self.rounds for turn in turns])

    def cpu_us(self) -> float:
        """Microseconds of CPU for each turn of the best run, its beginning, its end and all cleaning up included."""
        return min(self.cpu) / self.turns / 1000

    def growth_percent(self) -> float:
        """How much longer the turns around the 200th take than those around the 10th of the same run."""
        median = statistics.median
        return (median([median(turns[AROUND_200TH]) / median(turns[AROUND_10TH]) for turns in self.rounds]) - 1) * 100


async def in_turns(kinds: Sequence[Kind], rounds: int) -> None:
    """Run all kinds one after the other, again and again, so that whatever else the machine does falls on all alike."""
    for kind in kinds:
        await kind.run()
        kind.rounds.clear()  # the first run of each is the slowest: Python still learns what is hot
        kind.cpu.clear()
    for _ in range(rounds):
        for kind in kinds:
            await kind.run()


async def hand_turn(effort: Effort) -> float:
    """Microseconds for a turn by hand, now, for figures that are compared with it."""
    hand = Kind(lambda turns: hand_loop.run(turns, {"add": add}))
    await in_turns([hand], effort.rounds)
    return hand.spread().median


async def measured(effort: Effort, folder: Path) -> tuple[Kind, Kind, Kind, Kind, Kind]:
    """The hand-written loop, then ours: in memory, watched, and twice in a file."""
    file = f"sqlite:{folder / 'sessions.db'}"
    hand = Kind(lambda turns: hand_loop.run(turns, {"add": add}))
    memory = Kind(lambda turns: agent(turns).run("add"))
    watched = Kind(lambda turns: agent(turns, watchers=[watch]).run("add"))
    reading = Kind(lambda turns: agent(turns, ADD_READING, store=file).run("add"), TURNS_IN_A_FILE)
    synced = Kind(lambda turns: agent(turns, store=file).run("add"), TURNS_IN_A_FILE)
    await in_turns([hand, memory, watched], effort.rounds)
    await in_turns([reading, synced], max(1, effort.rounds // 2))
    return hand, memory, watched, reading, synced


def figures(effort: Effort) -> Iterator[Figure]:
    """What a turn costs, and whether it grows with the conversation."""
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        hand, memory, watched, reading, synced = asyncio.run(measured(effort, Path(folder)))
    by_hand, ours = hand.spread(), memory.spread()
    yield Figure(
        "tool turn",
        ours.median,
        "us",
        "the model calls a tool, the tool runs, and every event is logged in memory; median of all turns of all runs",
        budget=30,
        at_most=45,
        ratio=ours.median / by_hand.median,
        detail=str(ours),
    )
    yield Figure(
        "tool turn, all CPU",
        memory.cpu_us(),
        "us",
        f"CPU of the best whole run over its {TURNS} turns: beginning, end and garbage collection included",
        budget=30,
        at_most=45,
        ratio=memory.cpu_us() / hand.cpu_us(),
    )
    yield Figure(
        "growth from the 10th turn to the 200th",
        memory.growth_percent(),
        "%",
        "medians of the turns around each, compared within each run; the median of all runs",
        budget=10,
        detail=f"hand-written {hand.growth_percent():+.1f} %",
    )
    yield Figure(
        "hand-written turn",
        by_hand.median,
        "us",
        "the same with bench/hand_loop.py: no log, no validation, no limits, no events",
        detail=f"{by_hand}, all CPU {hand.cpu_us():.1f}",
    )
    found = watched.spread()
    yield Figure(
        "tool turn, watched",
        found.median,
        "us",
        "with an async watcher that gets every event",
        ratio=found.median / by_hand.median,
        detail=f"{found}, all CPU {watched.cpu_us():.1f}",
    )
    kinds = (
        ("tool turn, SQLite, reading tool", reading, 300, "every entry survives a crash of the process"),
        (
            "tool turn, SQLite, changing tool",
            synced,
            600,
            "every intent also survives a power cut: the run waits for the disk",
        ),
    )
    for name, kind, budget, explanation in kinds:
        found = kind.spread()
        yield Figure(
            name,
            kind.cpu_us(),
            "us",
            f"CPU of the best whole run over its {TURNS_IN_A_FILE} turns, all threads; {explanation}",
            budget=budget,
            ratio=kind.cpu_us() / hand.cpu_us(),
            detail=f"by the clock: median {found.median:.0f}, {found}",
        )
