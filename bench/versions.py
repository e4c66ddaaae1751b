"""A run on the oldest Python that is supported, compared with this one. `make others` makes the environment for it."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .measure import QUICK, Effort, Figure

ROOT = Path(__file__).parent.parent
OLDEST = "3.11"
ROWS = ("run with one answer", "run with one tool turn", "run with one tool turn, new session")


def run_figures(python: str, *more: str) -> dict[str, float]:
    """The figures of `bench.runs` on another interpreter, by name."""
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        written = Path(folder) / "figures.json"
        command = [python, "-m", "bench", "--only", "run", "--json", str(written), *more]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
        figures = json.loads(written.read_text(encoding="utf-8"))["figures"]
    return {figure["name"]: figure["value"] for figure in figures}


def figures(effort: Effort) -> Iterator[Figure]:
    """How many times as long a run takes there; nothing without an environment for it, or in a hurry."""
    python = ROOT / f".venv-{OLDEST}" / "bin" / "python"
    if effort is QUICK or not python.exists():
        return
    rounds = [(run_figures(sys.executable), run_figures(str(python))) for _ in range(2)]
    here, there = zip(*rounds, strict=True)
    for name in ROWS:
        ours, theirs = (min(each[name] for each in found) for found in (here, there))
        what = f"CPU of the same runs on Python {OLDEST}, compared with this one"
        detail = f"{theirs:.0f} us, here {ours:.0f}"
        yield Figure(f"{name}, on Python {OLDEST}", theirs / ours, "x", what, 1.2, detail=detail)
