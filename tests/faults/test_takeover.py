"""A driver that was paused and replaced is stopped at its next append, and its effects happen once all the same.

Real processes are stopped by a signal in the middle of a conversation; another process takes it over; the first wakes.
"""

import itertools
import random
from collections.abc import Iterator

import pytest

from perdure._core.values import faults
from tests.faults.children import Place
from tests.faults.takeovers import TakeoverTrial
from tests.seeds import SEED

MOST_LINES = 45


def takeovers(places: Iterator[tuple[str, Place]], seed: str) -> Iterator[TakeoverTrial]:
    """At each point in turn, at any time, and while the first one runs."""
    seed = f"{SEED} {seed}"
    chance = random.Random(seed)
    points = itertools.cycle(faults.list_fault_points())
    for number in itertools.count():
        pauses = f"{next(points)}=stop@{chance.randint(1, 5)}", f"after {chance.randint(0, MOST_LINES)}"
        pause = f"never {chance.randint(1, MOST_LINES)}" if number % 7 == 0 else pauses[number % 2]
        folder, place = next(places)
        yield TakeoverTrial(folder, place, f"{seed} {number}", pause)


@pytest.mark.faults
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("kind", "count", "long_count"),
    [
        pytest.param("sqlite", 12, 960, id="sqlite-12"),
        pytest.param("postgres", 8, 600, id="postgres-8", marks=pytest.mark.needs("postgres")),
    ],
)
def test_a_driver_that_was_paused_and_replaced_is_fenced(search, places, kind, count, long_count):
    trials = takeovers(places(kind), f"takeover {kind}")
    tally = search(f"takeovers, {kind}", trials, count, long_count=long_count)
    assert tally.seen["fenced"] > tally.done / 2, "most of them have to be in the middle of a run"
