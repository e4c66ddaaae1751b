"""Two to eight processes want the same session at the same moment: one gets it, and the others are told who that is."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.children import Place
from tests.faults.races import RaceTrial
from tests.seeds import SEED

ROUNDS = 10
"""The same processes race as often as this."""


def races(places: Iterator[tuple[str, Place]], seed: str, *, take_over: bool = False) -> Iterator[RaceTrial]:
    """Of two to eight."""
    seed = f"{SEED} {seed}"
    chance = random.Random(seed)
    for number in itertools.count():
        folder, place = next(places)
        Path(folder).mkdir()
        yield RaceTrial(place, f"{seed} {number}", chance.randint(2, 8), ROUNDS, take_over)


@pytest.mark.faults
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("kind", "count", "long_count"),
    [
        pytest.param("sqlite", 20, 600, id="sqlite-20"),
        pytest.param("file", 30, 600, id="file-30"),
        pytest.param("postgres", 12, 300, id="postgres-12", marks=pytest.mark.needs("postgres")),
    ],
)
def test_of_several_processes_that_want_a_session_one_gets_it(search, places, kind, count, long_count):
    search(f"races, {kind}", races(places(kind), f"race {kind}"), count, long_count=long_count)


@pytest.mark.faults
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("kind", "count", "long_count"),
    [
        pytest.param("sqlite", 12, 300, id="sqlite-12"),
        pytest.param("postgres", 12, 300, id="postgres-12", marks=pytest.mark.needs("postgres")),
    ],
)
def test_of_several_processes_that_take_a_session_over_one_is_left(search, places, kind, count, long_count):
    trials = races(places(kind), f"overtaking {kind}", take_over=True)
    search(f"races to take over, {kind}", trials, count, long_count=long_count)
