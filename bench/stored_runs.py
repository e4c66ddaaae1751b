"""A whole run on SQLite with one tool that changes something, beside bare apsw with the same rows and barriers.

The bare one has neither events nor checks, and works on the calling thread: it takes the lease, makes the same appends,
waits for the disk as often, and gives the lease back. Its tables are what a person would make: a log is found by its
session, and nothing else is kept in order.
"""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import apsw

from perdure import Agent, ToolCall
from perdure.testing import ScriptedModel

from .measure import Effort, Figure, cpu_ns
from .turns import ADD

RUNS = 10
"""Readings of each kind in a row. Each is of one run, which waits for the disk: other programs come between."""

_TABLES = """
PRAGMA journal_mode = wal;
CREATE TABLE session(id TEXT PRIMARY KEY, head INTEGER NOT NULL, fence INTEGER NOT NULL, holder TEXT);
CREATE TABLE pack(
    key INTEGER PRIMARY KEY, session TEXT NOT NULL, last INTEGER NOT NULL, heads BLOB, body BLOB, UNIQUE(session, last)
);
INSERT INTO session VALUES('s', 0, 0, NULL);
"""
_ADVANCE = "UPDATE session SET head = head + ? WHERE id = 's' RETURNING head"
_ADD = "INSERT INTO pack(session, last, heads, body) VALUES('s', ?, ?, ?)"
_TAKE = "UPDATE session SET fence = fence + 1, holder = 'this process' WHERE id = 's'"
_GIVE_BACK = "UPDATE session SET holder = NULL WHERE id = 's'"

Row = tuple[int, bytes, bytes]
"""Number of entries, heads and body, as the store writes them."""
BARRIERS = (True, False, True, False, True)
"""Which appends of a run wait for the disk: the prompt, the intent of the call, the end of the run."""


def calling(runs: int, store: str) -> Agent[Any]:
    """An agent that calls its tool once for each prompt, and then answers."""
    replies = [reply for run in range(runs) for reply in (ToolCall(f"call_{run}", "add", f'{{"n":{run}}}'), "done")]
    return Agent(ScriptedModel(*replies), tools=[ADD], store=store)


async def appended_rows(folder: Path) -> list[Row]:
    """The rows that one run appends."""
    path = folder / "rows.db"
    agent = calling(1, f"sqlite:{path}")
    await agent.session("s").run("add")
    connection = apsw.Connection(str(path))
    found: Any = connection.execute("SELECT last - first + 1, heads, body FROM pack ORDER BY last").fetchall()
    rows: list[Row] = found
    connection.close()
    await agent.store.aclose()
    if len(rows) != len(BARRIERS):
        raise RuntimeError(f"a run makes {len(rows)} appends, and not {len(BARRIERS)}: compare it with as many")
    return rows


def run_bare(connection: apsw.Connection, rows: list[Row]) -> None:
    """What a run leaves in the file, with nothing but apsw."""
    connection.execute(_TAKE)
    for (entries, heads, body), is_synced in zip(rows, BARRIERS, strict=True):
        connection.execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'NORMAL'}")
        connection.execute("BEGIN IMMEDIATE")
        head = connection.execute(_ADVANCE, (entries,)).get
        connection.execute(_ADD, (head, heads, body))
        connection.execute("COMMIT")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(_GIVE_BACK)


async def measured(effort: Effort, folder: Path) -> dict[str, float]:
    """Microseconds of CPU of a run: bare, in a session that is used again, and in a new one."""
    rounds = effort.rounds
    rows = await appended_rows(folder)
    bare = apsw.Connection(str(folder / "bare.db"))
    bare.execute(_TABLES).fetchall()  # the first statement gives a row, at which it would stop
    agent = calling(2 * rounds * RUNS, f"sqlite:{folder / 'runs.db'}")
    session, numbers = agent.session("reused"), count()

    async def run_without_us() -> None:
        run_bare(bare, rows)

    kinds: dict[str, Callable[[], Awaitable[object]]] = {
        "bare": run_without_us,
        "reused": lambda: session.run("add"),
        "new": lambda: agent.session(f"new-{next(numbers)}").run("add"),
    }
    best = dict.fromkeys(kinds, float("inf"))
    for _ in range(rounds):
        for name, run in kinds.items():
            readings = [await cpu_ns(run()) for _ in range(RUNS)]
            best[name] = min(best[name], min(readings) / 1000)
    bare.close()
    await agent.store.aclose()
    return best


def figures(effort: Effort) -> Iterator[Figure]:
    """What a run costs that is stored."""
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", dir=os.environ.get("PERDURE_BENCH_DIR")) as folder:
        found = asyncio.run(measured(effort, Path(folder)))
    bare = found["bare"]
    for name, kind in (
        ("run on SQLite, changing tool", "reused"),
        ("run on SQLite, changing tool, new session", "new"),
    ):
        yield Figure(
            name,
            found[kind] / 1000,
            "ms",
            "CPU of the whole run with all its threads, best of many: a prompt, a call and a reply, three barriers",
            budget=2.2,
            ratio=found[kind] / bare,
            compared_to="bare apsw with the same rows and barriers",
            detail=f"bare {bare / 1000:.2f}",
        )
    yield Figure(
        "run on SQLite, compared with bare apsw",
        found["reused"] / bare,
        "x",
        "the same rows and barriers on the calling thread, without events, checks or leases of processes",
        budget=3.0,
    )
