"""Measures what Perdure costs, and prints the table of docs/performance-figures.md.

    python -m bench                  everything, in a minute or two
    python -m bench --quick          a few readings of each, and the ratios that may not grow: for CI
    python -m bench --only turn      one group of figures
    python -m bench --json out.json  the figures for a program, too

A budget that was not kept says "missed", and fails nothing. With `--quick`, a ratio above its limit in `regressions.py`
ends with exit code 1.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from . import (
    building,
    commands,
    deltas,
    files,
    long_history,
    long_run,
    mcp_calls,
    memory,
    parts,
    programs,
    regressions,
    runs,
    startup,
    storage,
    stored_runs,
    table,
    turns,
    versions,
)
from .http import race
from .measure import QUICK, THOROUGH, Effort, Figure

GROUPS: dict[str, Callable[[Effort], Iterator[Figure]]] = {
    "import": startup.figures,
    "build": building.figures,
    "turn": turns.figures,
    "run": runs.figures,
    "stored": stored_runs.figures,
    "deltas": deltas.figures,
    "long": long_run.figures,
    "history": long_history.figures,
    "parts": parts.figures,
    "storage": storage.figures,
    "files": files.figures,
    "commands": commands.figures,
    "programs": programs.figures,
    "mcp": mcp_calls.figures,
    "memory": memory.figures,
    "http": race.figures,
    "versions": versions.figures,
    "regressions": regressions.figures,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 for a quick run in which something has become slow."""
    options = parser().parse_args(arguments)
    effort = QUICK if options.quick else THOROUGH
    figures: list[Figure] = []
    print(table.HEADER, table.RULE, sep="\n", flush=True)
    for name in options.only or GROUPS:
        for figure in GROUPS[name](effort):
            figures.append(figure)
            print(table.row(figure), flush=True)
    print("", table.conditions() + ".", "", *table.explanations(figures), sep="\n")
    if options.json:
        options.json.write_text(table.as_json(figures), encoding="utf-8")
    slow = [figure for figure in figures if figure.name in regressions.NAMES and figure.verdict == "missed"]
    if not options.quick or not slow:
        return 0
    for figure in slow:
        told = f"{figure.name} is {table.measured(figure)}, and may be {figure.budget:g} x"
        advice = "find the change that made it slow, or raise its limit in bench/regressions.py"
        print(f"bench: {told}: {advice}", file=sys.stderr)
    return 1


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    found = argparse.ArgumentParser(prog="python -m bench", description="Measure what Perdure costs.")
    found.add_argument(
        "--quick", action="store_true", help="few readings of each: not reliable; ratios above their limits fail"
    )
    found.add_argument("--only", action="append", choices=GROUPS, metavar="NAME", help=f"one of {', '.join(GROUPS)}")
    found.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
