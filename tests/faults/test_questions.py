"""Kill -9 of whoever asks and whoever answers: answers are kept, and what they were asked for is done once."""

import itertools
import random
from collections.abc import Iterator

import pytest

from perdure._core.values import faults
from tests.faults.children import Place
from tests.faults.questions import QuestionTrial
from tests.seeds import SEED


def in_turn(places: Iterator[tuple[str, Place]], seed: str) -> Iterator[QuestionTrial]:
    """Each point in turn, at each of its first passings, and others while that is repaired."""
    seed = f"{SEED} {seed}"
    chance = random.Random(seed)
    points = faults.list_fault_points()
    for number in itertools.count():
        passing, place = divmod(number, len(points))
        first = f"{points[place]}=kill@{1 + passing % 3}"
        others = [f"{chance.choice(points)}=kill@{chance.randint(1, 2)}", f"after {chance.randint(0, 1)}"]
        yield QuestionTrial(*next(places), f"{seed} {number}", [first, *chance.sample(others, 2)])


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_tool_that_asks_first_survives_kills_of_whoever_asks_and_whoever_answers(search, places, kind):
    search(f"{kind}, kills of who asks and who answers", in_turn(places(kind), kind), 15, long_count=600)
