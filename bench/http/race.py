"""An agent over HTTP and the same by hand, in turns against one server: the lines of the table."""

from collections.abc import Iterator, Mapping, Sequence

from bench.measure import QUICK, Effort, Figure
from bench.peers.catalogue import HAND as HAND_LOOP
from bench.peers.catalogue import PERDURE
from bench.peers.running import run_trial, serve

HAND = "the same by hand, with aiohttp"
SIZES = {"repeats": 5, "turns": 60, "deltas": 5_000, "crowd": 200}
QUICK_SIZES = {"repeats": 3, "turns": 20, "deltas": 500, "crowd": 20}

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
    ("prepare_traced", "HTTP tool turn, traced, compared with untraced", 1.05, "`extensions=[tracing(Tracer())]`"),
    ("prepare_traced_to_a_file", "HTTP tool turn, traced to a file", None, "the same, with `Tracer(write=PATH)`"),
)
"""Ways to trace, what they are called, how many times as much as without it they may cost, and what they are."""

ROUNDS = 5
"""Measurements of each of the two, in turns: a crowd is one reading, and the best counts."""


def figures(effort: Effort) -> Iterator[Figure]:
    """Ours and a loop written by hand against the same server. `python -m bench.peers` has the libraries of others."""
    sizes = QUICK_SIZES if effort is QUICK else SIZES
    with serve() as port:
        rounds = [
            (run_trial(HAND_LOOP, "turns", port, sizes), run_trial(PERDURE, "turns", port, sizes))
            for _ in range(1 if effort is QUICK else ROUNDS)
        ]
        hand = {key: min(each[0][key] for each in rounds) for key, *_ in KINDS}
        ours = {key: min(each[1][key] for each in rounds) for key, *_ in KINDS}
        for key, name, budget, explanation in KINDS:
            yield _figure(name, key, ours[key], explanation, budget=budget, ratio=ours[key] / hand[key])
            yield _figure(f"{name}: by hand", key, hand[key], HAND)
        for key, name, budget in RATIOS:
            yield Figure(name, ours[key] / hand[key], "x", "streamed and watched: the two rows above, divided", budget)
        yield from _traced(port, sizes, 1 if effort is QUICK else ROUNDS)


def _traced(port: str, sizes: Mapping[str, int], rounds: int) -> Iterator[Figure]:
    """What tracing adds to a streamed turn: with and without it in turns, and the best of each counts."""
    names = ["prepare", *[name for name, *_ in TRACED]]
    readings = [
        {name: run_trial(PERDURE, "turns", port, sizes, prepare=name)["early_us"] for name in names}
        for _ in range(rounds)
    ]
    best = {name: min(each[name] for each in readings) for name in names}
    for name, label, budget, explanation in TRACED:
        yield Figure(label, best[name] / best["prepare"], "x", f"CPU of a streamed turn, {explanation}", budget)


def _figure(name: str, key: str, value: float, explanation: str, **more: float) -> Figure:
    unit = "s" if key.endswith("_s") else "us"
    return Figure(name, value, unit, explanation, more.get("budget"), ratio=more.get("ratio"), compared_to=HAND)
