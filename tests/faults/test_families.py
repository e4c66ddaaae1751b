"""Kill -9 of agents that have others work for them: each task is given once, ends once, and nothing happens twice."""

import itertools
import random
from collections.abc import Iterator

import pytest

from perdure._core.values import faults
from tests.faults.children import Place
from tests.faults.families import FamilyTrial
from tests.seeds import SEED

MOST_PASSINGS = 8
"""A point is armed for one of its first passings: by then the helpers are at work."""
MOST_KILLS = 3
"""More in a row, at the same place, and the run would be parked."""


def in_turn(places: Iterator[tuple[str, Place]], seed: str) -> Iterator[FamilyTrial]:
    """Each point in turn, at each of its first passings, and others while that is repaired."""
    seed = f"{SEED} {seed}"
    chance = random.Random(seed)
    points = [point for point in faults.list_fault_points() if not point.startswith("question.")]
    for number in itertools.count():
        passing, place = divmod(number, len(points))
        first = f"{points[place]}=kill@{1 + passing % MOST_PASSINGS}"
        more = [f"{chance.choice(points)}=kill@{chance.randint(1, MOST_PASSINGS)}" for _ in range(MOST_KILLS - 1)]
        yield FamilyTrial(*next(places), f"{seed} {number}", [first, *more])


def test_a_family_that_nobody_kills_comes_to_its_end(workshop, places):
    at = itertools.islice(places("sqlite"), 2)
    tally = workshop.carry_out(FamilyTrial(folder, place, folder, []) for folder, place in at)
    assert (tally.wrong, tally.trials) == ([], 2)


@pytest.mark.faults
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_agents_that_work_for_agents_survive_kills(search, places, kind):
    search(f"{kind}, kills of agents that work for agents", in_turn(places(kind), kind), 26, long_count=1200)
