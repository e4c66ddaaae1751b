"""Measure one contestant against a server that is running; started by the Python of its environment.

    python -m bench.peers.trial MODULE PREPARE PART PORT SIZES

`PART` is one of `turns`, `runs`, `memory` and `first`; `SIZES` is a JSON object. Prints one line of JSON. Only the
CPU time of this process counts, with all its threads; the server and the tests of others are other processes.
"""

import asyncio
import gc
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

from bench.peers.contestant import Contestant, heard, stamps

Sizes = dict[str, int]


def median(values: list[int]) -> float:
    """Return the middle value. The module `statistics` would be part of the first answer's time."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


async def measure_cpu_us(action: Callable[[], Awaitable[object]]) -> float:
    """Return the microseconds of CPU that one call takes."""
    began = time.process_time_ns()
    await action()
    return (time.process_time_ns() - began) / 1000


async def measure_turns(contestant: Contestant, sizes: Sizes) -> dict[str, float]:
    """Measure a turn early and late in a run, a streamed piece, and many sessions at once."""
    await contestant.ask("turns-3")
    early: list[float] = []
    late: list[float] = []
    for _ in range(sizes["repeats"]):
        stamps.clear()
        await contestant.ask(f"turns-{sizes['turns']}")
        if len(stamps) != sizes["turns"]:
            raise RuntimeError(f"the tool was called {len(stamps)} times, and not {sizes['turns']}: nothing to compare")
        costs = [later - before for before, later in pairwise(stamps)]
        early.append(median(costs[5:14]))
        late.append(median(costs[-9:]))
    pieces: list[float] = []
    for _ in range(sizes["repeats"]):
        heard[0] = 0
        pieces.append(await measure_cpu_us(lambda: contestant.ask(f"talk-{sizes['deltas']}")))
    together = await measure_cpu_us(lambda: ask_at_once(contestant, sizes["crowd"]))
    return {
        "early_us": min(early) / 1000,
        "late_us": min(late) / 1000,
        "delta_us": min(pieces) / sizes["deltas"],
        "heard": heard[0],
        "crowd_s": together / 1e6,
    }


async def ask_at_once(contestant: Contestant, sessions: int) -> None:
    """Run many sessions of five tool turns at the same time."""
    await asyncio.gather(*[contestant.ask("turns-5") for _ in range(sessions)])


async def measure_runs(contestant: Contestant, sizes: Sizes) -> dict[str, float]:
    """Measure whole runs: with one answer, with one tool turn, and the latter in sessions in memory and on the disk."""
    numbers = iter(range(1_000_000))
    kinds: dict[str, Callable[[], Awaitable[object]]] = {
        "answer_us": lambda: contestant.ask("turns-0"),
        "tool_run_us": lambda: contestant.ask("turns-1"),
        "kept_us": lambda: contestant.keep("turns-1", f"session-{next(numbers)}"),
    }
    store = contestant.store
    if store is not None:
        kinds["stored_us"] = lambda: store("turns-1", f"session-{next(numbers)}")
    for kind in kinds.values():
        for _ in range(5):
            await kind()
    readings: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(sizes["runs"]):
        for name, kind in kinds.items():
            readings[name].append(await measure_cpu_us(kind))
    best = {name: min(values) for name, values in readings.items()}
    return best if store is None else {**best, **await measure_long_session(store, sizes)}


async def measure_long_session(store: Callable[[str, str], Awaitable[object]], sizes: Sizes) -> dict[str, float]:
    """Measure a run with one tool turn in a session on the disk that has had many of them."""
    for _ in range(sizes["past_runs"]):
        await store("turns-1", "long")
    return {"long_us": min([await measure_cpu_us(lambda: store("turns-1", "long")) for _ in range(5)])}


async def measure_memory(contestant: Contestant, sizes: Sizes) -> dict[str, float]:
    """Measure the memory that a session of one tool turn keeps, as growth of this process."""
    for number in range(30):
        await contestant.keep("turns-1", f"before-{number}")
    before = resident_kib()
    for number in range(sizes["sessions"]):
        await contestant.keep("turns-1", f"session-{number}")
    return {"session_kib": (resident_kib() - before) / sizes["sessions"]}


def resident_kib() -> float:
    """Return the resident memory of this process, after a collection; 0 on other systems than Linux."""
    gc.collect()
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


async def measure_first(contestant: Contestant, _sizes: Sizes) -> dict[str, float]:
    """Measure everything from the start of the process to its first answer, after a tool turn."""
    await contestant.ask("turns-1")
    return {"first_ms": time.process_time_ns() / 1e6}


PARTS = {"turns": measure_turns, "runs": measure_runs, "memory": measure_memory, "first": measure_first}


async def main(module: str, prepare: str, part: str, port: str, sizes: str) -> dict[str, float | str]:
    """Prepare a contestant, and measure a part of it."""
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", dir=os.environ.get("PERDURE_BENCH_DIR")) as folder:
        prepared = getattr(importlib.import_module(f"bench.peers.{module}"), prepare)
        contestant: Contestant = await prepared(f"http://127.0.0.1:{port}/v1", Path(folder))
        try:
            found = await PARTS[part](contestant, json.loads(sizes))
        finally:
            await contestant.close()
    return {**found, "store_kind": contestant.store_kind}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
