"""Search in a tree of 50,000 files beside ripgrep alone, and the edit of a large file."""

import asyncio
import itertools
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from perdure import Agent
from perdure.hosts import GlobQuery, LocalFiles, LocalSearch, SearchQuery, SnapshotFolder
from perdure.permissions import allow_all
from perdure.testing import ScriptedModel
from perdure.tools import edit_tool, read_tool

from .measure import QUICK, Effort, Figure

FILES = 50_000
ALONE = "ripgrep alone"


def plant(root: Path, count: int) -> None:
    """Make a tree of small files, of which one in a thousand has the word that is looked for."""
    text = "def f(n):\n    return n + 1\n" * 20
    for number in range(count):
        folder = root / f"part{number // 1000}" / f"module{number // 50}"
        if number % 50 == 0:
            folder.mkdir(parents=True)
        (folder / f"file{number}.py").write_text(text + ("NEEDLE = 1\n" if number % 1000 == 7 else ""))


def cpu_ms(work: Callable[[], object]) -> float:
    """Milliseconds of CPU that some work takes, in this process and its children."""
    before = sum(used())
    work()
    return (sum(used()) - before) * 1000


def used() -> Iterator[float]:
    """Yield the seconds of CPU used so far, by this process and by its children."""
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        yield usage.ru_utime + usage.ru_stime


def run_alone(root: Path, *words: str) -> None:
    subprocess.run(["rg", "--no-config", *words], cwd=root, stdout=subprocess.DEVNULL, check=False)


def searches(effort: Effort, folder: Path) -> Iterator[Figure]:
    """Yield the figures of grep and glob, with ripgrep and without."""
    count = 2_000 if effort == QUICK else FILES
    plant(folder, count)
    files = LocalFiles(folder)
    target = files.resolve(".")
    lines, names = SearchQuery("NEEDLE"), GlobQuery("**/file1*7.py")
    alone = {"grep": ("-n", "NEEDLE"), "glob": ("--files", "-g", "**/file1*7.py")}
    with_ripgrep = [True] if shutil.which("rg") else []
    for fast in [*with_ripgrep, False]:
        search = LocalSearch(files, use_ripgrep=fast)
        works: dict[str, Callable[[], object]] = {
            "grep": lambda search=search: search.search_lines(target, lines),  # type: ignore[misc]
            "glob": lambda search=search: search.find_files(target, names),  # type: ignore[misc]
        }
        for name, work in works.items():
            rounds = (7 if fast else 2) if effort != QUICK else 1
            ours, theirs = [], []
            for _ in range(rounds):  # in turns, so that the same things disturb both
                theirs.append(cpu_ms(lambda name=name: run_alone(folder, *alone[name]))) if with_ripgrep else None  # type: ignore[misc]
                ours.append(cpu_ms(work))
            ratio = min(ours) / min(theirs) if theirs else None
            label = f"{name} over a tree" + ("" if fast else ", without ripgrep")
            yield Figure(
                label, ratio if fast and ratio else min(ours), "x" if fast else "ms",
                f"CPU of the tool `{name}` over {count:,} files" + (f", to that of {ALONE}" if fast else " in Python"),
                budget=1.5 if fast else None, ratio=ratio, compared_to=ALONE, detail=f"{min(ours):.0f} ms",
            )  # fmt: skip


async def edit_ms(effort: Effort, folder: Path) -> tuple[float, float]:
    """Milliseconds of CPU, and by the clock, of a call of `edit` on a file of 1 MiB; the best of several."""
    place = folder / "large.py"
    line = "value = 'some text that is neither long nor short'\n"
    place.write_text(line * (1024 * 1024 // len(line)) + "marker = 0\n")
    files = LocalFiles(folder)
    tools = [read_tool(files), edit_tool(files, snapshots=SnapshotFolder(folder / "snapshots"))]
    session = Agent(ScriptedModel(), tools=tools, permission=allow_all).session()
    await session.call("read", {"path": "large.py"})
    readings: list[float] = []
    clock: list[float] = []
    for number in itertools.islice(itertools.count(), 3 if effort == QUICK else 15):
        began, used_before = time.perf_counter(), time.process_time()
        change = {"path": "large.py", "old_string": f"marker = {number}\n", "new_string": f"marker = {number + 1}\n"}
        result = await session.call("edit", change)
        readings.append((time.process_time() - used_before) * 1000)
        clock.append((time.perf_counter() - began) * 1000)
        if result.status != "ok":
            raise RuntimeError(result.text)
    return min(readings), min(clock)


def figures(effort: Effort) -> Iterator[Figure]:
    """Yield the figures of the file tools."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        milliseconds, clock = asyncio.run(edit_ms(effort, Path(folder)))
        explanation = "CPU of a call of the tool `edit` on a file of 1 MiB, with its record and snapshots"
        detail = f"{clock:.0f} ms by the clock, with the sync"
        yield Figure("edit of 1 MiB", milliseconds, "ms", explanation, budget=20, detail=detail)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        yield from searches(effort, Path(folder))
