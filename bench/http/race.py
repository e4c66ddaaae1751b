"""Every contestant in turn against one server, and the lines of the table. Above: `python -m bench`."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.measure import QUICK, Effort, Figure

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RIVALS = ROOT / ".venv-bench" / "bin" / "python"
SECONDS = 300

OTHERS = ("agno", "openai_agents", "pydantic_ai", "langchain")
HAND = "the same by hand, with aiohttp"

KINDS: Sequence[tuple[str, str, float, str]] = (
    ("early_us", "HTTP tool turn, at turn 10", 600.0, "CPU of the client for a streamed turn with one call"),
    ("late_us", "HTTP tool turn, at turn 50", 600.0, "the same, later in the same run"),
    ("delta_us", "HTTP delta to a handler", 10.0, "CPU for one streamed word, from the socket to an async handler"),
    ("crowd_s", "200 sessions of 5 tool turns at once", 0.8, "CPU of the client for all of them"),
)
"""What is measured, what it is called, what it may be, and how it was measured."""

RATIOS: Sequence[tuple[str, str, float]] = (
    ("early_us", "HTTP tool turn, compared with one by hand", 1.6),
    ("crowd_s", "200 sessions at once, compared with those by hand", 2.0),
)
"""What is compared with the loop written by hand, what it is called, and how many times as much it may be."""


TRACED: Sequence[tuple[str, str, float | None, str]] = (
    ("perdure_traced", "HTTP tool turn, traced, compared with untraced", 1.05, "`extensions=[tracing(Tracer())]`"),
    ("perdure_traced_to_a_file", "HTTP tool turn, traced to a file", None, "the same, with `Tracer(write=PATH)`"),
)
"""Ways to trace, what they are called, how many times as much as without it they may cost, and what they are."""

ROUNDS = 5
"""Measurements of each of the two, in turns: a crowd is one reading, and the best counts."""


def figures(effort: Effort) -> Iterator[Figure]:
    """Ours and a loop written by hand, then the others, all against the same server."""
    turns, deltas, crowd = (20, 500, 20) if effort is QUICK else (60, 5_000, 200)
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.http.server"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        sizes = [port, str(turns), str(deltas), str(crowd)]
        rounds = [
            (_run(sys.executable, "by_hand", sizes), _run(sys.executable, "perdure", sizes))
            for _ in range(2 if effort is QUICK else ROUNDS)
        ]
        hand = {key: min(each[0][key] for each in rounds) for key, *_ in KINDS}
        ours = {key: min(each[1][key] for each in rounds) for key, *_ in KINDS}
        for key, name, budget, explanation in KINDS:
            yield _figure(name, key, ours[key], explanation, budget=budget, ratio=ours[key] / hand[key])
            yield _figure(f"{name}: by hand", key, hand[key], HAND)
        for key, name, budget in RATIOS:
            yield Figure(name, ours[key] / hand[key], "x", "streamed and watched: the two rows above, divided", budget)
        yield from _traced(sizes, 1 if effort is QUICK else ROUNDS)
        if effort is not QUICK:
            yield from _others(sizes, hand)
    finally:
        assert server.stdin is not None
        server.stdin.close()
        server.wait(10)


def _traced(sizes: list[str], rounds: int) -> Iterator[Figure]:
    """What tracing adds to a streamed turn: with and without it in turns, and the best of each counts."""
    names = ["perdure", *[name for name, *_ in TRACED]]
    readings = [{name: _run(sys.executable, name, sizes)["early_us"] for name in names} for _ in range(rounds)]
    best = {name: min(each[name] for each in readings) for name in names}
    for name, label, budget, explanation in TRACED:
        yield Figure(label, best[name] / best["perdure"], "x", f"CPU of a streamed turn, {explanation}", budget)


def _others(sizes: list[str], hand: dict[str, float]) -> Iterator[Figure]:
    if not RIVALS.exists():
        print(f"({', '.join(OTHERS)} are not installed beside it: `make rivals` does that)", flush=True)
        return
    for other in OTHERS:
        told = _run(str(RIVALS), other, sizes)
        for key, name, _, explanation in KINDS:
            label = f"{name}: {other.replace('_', '-')}"
            yield _figure(label, key, told[key], explanation, ratio=told[key] / hand[key])


def _run(python: str, name: str, sizes: list[str]) -> dict[str, Any]:
    command = [python, str(HERE / "contestants.py"), name, *sizes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{name} did not get to the end:\n{done.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def _figure(name: str, key: str, value: float, explanation: str, **more: float) -> Figure:
    unit = "s" if key.endswith("_s") else "us"
    return Figure(name, value, unit, explanation, more.get("budget"), ratio=more.get("ratio"), compared_to=HAND)
