"""Catch what has become slow: CPU time as a ratio to the hand-written loop, with a limit for each ratio.

A round measures both sides once, and the best reading of each side counts. Rounds stop as soon as a ratio is within its
limit, so that a loaded machine costs more rounds and no failure. What is still above its limit after the last round has
become slower.
"""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from perdure import Agent
from perdure.testing import ScriptedModel

from . import deltas, hand_loop, runs, stored_runs
from .measure import QUICK, Effort, Figure, cpu_ns
from .peers.catalogue import HAND, PERDURE
from .peers.running import run_trial, serve
from .turns import ADD, add, agent

TURNS, CALLS, DELTAS, READINGS = 60, 20, 2_000, 3
ROUNDS = 20
"""The most rounds of a ratio."""
HTTP_SIZES = {"repeats": 2, "turns": 20, "deltas": 50, "crowd": 2}

Action = Callable[[], Awaitable[object]]
Sides = tuple[float, float]
"""CPU time of ours and of the hand-written one, in the same unit."""


async def measure_both(ours: Action, by_hand: Action) -> Sides:
    """Measure both sides alternately, several times; the best reading of each counts."""
    readings = [(await cpu_ns(ours()), await cpu_ns(by_hand())) for _ in range(READINGS)]
    return min(first for first, _ in readings), min(second for _, second in readings)


async def repeat(action: Action) -> None:
    """Do something several times: a reading of one call is too short."""
    for _ in range(CALLS):
        await action()


def measure_turns() -> Sides:
    """Measure a run of many tool turns, in memory."""
    return asyncio.run(measure_both(lambda: agent(TURNS).run("add"), lambda: hand_loop.run(TURNS, {"add": add})))


def measure_answers() -> Sides:
    """Measure runs with one answer, in a session that is used again."""
    ours = runs.reused(runs.answering())
    return asyncio.run(measure_both(lambda: repeat(ours), lambda: repeat(lambda: hand_loop.run(0, {}))))


def measure_tool_runs() -> Sides:
    """Measure runs with one tool turn, each in a new session."""
    ours = runs.opened(runs.calling(CALLS * READINGS))
    return asyncio.run(measure_both(lambda: repeat(ours), lambda: repeat(lambda: hand_loop.run(1, {"add": add}))))


def measure_building() -> Sides:
    """Measure the building of agents, beside runs with one tool turn by hand."""
    model = ScriptedModel("done")

    async def build() -> Agent[Any]:
        return Agent(model, tools=[ADD])

    return asyncio.run(measure_both(lambda: repeat(build), lambda: repeat(lambda: hand_loop.run(1, {"add": add}))))


def measure_deltas() -> Sides:
    """Measure a reply in many pieces, to an async handler."""
    talker = deltas.Talker(DELTAS)
    return asyncio.run(
        measure_both(
            lambda: deltas.by_async_watcher(talker, deltas.Listener()),
            lambda: deltas.by_hand(talker, deltas.Listener()),
        )
    )


def measure_stored_runs() -> Sides:
    """Measure a run with one changing tool on SQLite, beside bare apsw with the same rows and barriers."""
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", dir=os.environ.get("PERDURE_BENCH_DIR")) as folder:
        found = asyncio.run(stored_runs.measured(QUICK, Path(folder)))
    return found["reused"], found["bare"]


def measure_http_turns() -> Sides:
    """Measure a streamed tool turn over HTTP, each side in a process of its own."""
    with serve() as port:
        ours, by_hand = (run_trial(each, "turns", port, HTTP_SIZES)["early_us"] for each in (PERDURE, HAND))
    return ours, by_hand


class Limit(NamedTuple):
    """The most that something may cost, as a multiple of the same by hand."""

    name: str
    most: float
    measure: Callable[[], Sides]
    """Takes one round."""


LIMITS = (
    Limit("tool turn", 20.0, measure_turns),
    Limit("run with one answer", 120.0, measure_answers),
    Limit("run with one tool turn", 75.0, measure_tool_runs),
    Limit("building an agent", 5.0, measure_building),
    Limit("delta to a watcher", 12.0, measure_deltas),
    Limit("run on SQLite", 10.0, measure_stored_runs),
    Limit("HTTP tool turn", 3.5, measure_http_turns),
)
"""Every limit: between two and three times the ratios that were measured when they were written."""


NAMES = frozenset(f"ratio: {limit.name}" for limit in LIMITS)
"""The figures that fail a quick run when they are above their limits."""


def find_ratio(limit: Limit, rounds: int = ROUNDS) -> tuple[float, int]:
    """Return the best ratio, and the number of rounds that it took to be within the limit."""
    ours = by_hand = float("inf")
    done = 0
    for done in range(1, rounds + 1):  # noqa: B007 - it is returned
        first, second = limit.measure()
        ours, by_hand = min(ours, first), min(by_hand, second)
        if ours / by_hand <= limit.most:
            break
    return ours / by_hand, done


def figures(_: Effort) -> Iterator[Figure]:
    """Yield a row for each limit."""
    for limit in LIMITS:
        ratio, rounds = find_ratio(limit)
        yield Figure(
            f"ratio: {limit.name}",
            ratio,
            "x",
            "CPU, as a multiple of the same by hand: the best of as many rounds as it takes to be within the limit",
            budget=limit.most,
            detail=f"{rounds} rounds" if rounds > 1 else "",
        )
