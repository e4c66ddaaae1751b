"""What a command costs in the sandbox, below the supervisor, and bare."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator

from perdure._tools.sandbox.bubblewrap import find_bubblewrap
from perdure.hosts import LocalShell, ShellCommand
from perdure.tools import split_command_line

from .measure import Effort, Figure, best_us

TRUE = ShellCommand(argv=("/bin/true",))
LINE = "git status -s && cat src/a.py | grep -n def | head -20; ls -la"


def figures(effort: Effort) -> Iterator[Figure]:
    """A command in the sandbox and without one, over a bare process; and taking a command line apart."""
    bare, confined, supervised = asyncio.run(measured(effort))
    if confined is not None:
        yield Figure(
            "sandboxed command, over the bare one",
            confined - bare,
            "ms",
            "`/bin/true` in bubblewrap by `LocalShell`, less that of asyncio alone; wall clock, the best of many",
            budget=40,
            detail=f"bare {bare:.1f}",
        )
    yield Figure(
        "supervised command, over the bare one",
        supervised - bare,
        "ms",
        "the same without a sandbox, below the supervisor that ends all that it started",
        detail=f"bare {bare:.1f}",
    )
    yield Figure(
        "taking a command line apart",
        best_us(lambda: split_command_line(LINE), effort._replace(calls=max(1, effort.calls // 20))),
        "us",
        f"`{LINE.replace('|', '/')}`: both parsers; CPU, the best of many readings",
    )


async def measured(effort: Effort) -> tuple[float, float | None, float]:
    """Milliseconds of a bare command, one in the sandbox (`None` without one), and one below the supervisor."""
    with tempfile.TemporaryDirectory() as folder:
        async with LocalShell(folder, sandbox="off") as free, LocalShell(folder) as confined:
            kinds: list[Callable[[], Awaitable[object]]] = [
                run_bare,
                lambda: free.run(TRUE),
                lambda: confined.run(TRUE),
            ]
            readings: list[list[float]] = [[], [], []]
            for _ in range(max(2, effort.rounds // 2)):
                for kind, times in zip(kinds, readings, strict=True):
                    began = time.perf_counter()
                    await kind()
                    times.append(1000 * (time.perf_counter() - began))
    bare, supervised, sandboxed = [min(each) for each in readings]
    return bare, sandboxed if find_bubblewrap()[0] else None, supervised


async def run_bare() -> None:
    """Run a command by asyncio alone."""
    process = await asyncio.create_subprocess_exec(
        "/bin/true", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    await process.communicate()
