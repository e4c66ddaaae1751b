"""Kill -9 at every fault point and at any time: nothing acknowledged is lost, and no effect happens twice.

Real processes drive conversations and are killed, others go on. `auditor.py` then holds the log against the ledger that
the tools have written and against what the processes told. The processes are forked from warm ones (`workshop.py`).
"""

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from perdure._core.values import faults
from perdure.engines import fold_entries
from perdure.events import ToolFinished
from tests.architecture.source import ROOT
from tests.faults.children import Order, Place, read
from tests.faults.clerk import ROUNDS
from tests.faults.kills import ClerkTrial, KillTrial
from tests.faults.plan import LAST_ANSWER, PROMPTS_ONLY
from tests.seeds import SEED

MOST_PASSINGS = 6
"""A point is armed for one of its first passings."""
MORE_ROUNDS = 100
"""So often the points that were not passed are tried once more, in other conversations."""
MOST_LINES = 45
"""A process is killed after it has told up to so many lines."""


def at_points(
    places: Iterator[tuple[str, Place]], seed: str, points: Sequence[str], most_passings: int = MOST_PASSINGS
) -> Iterator[KillTrial | ClerkTrial]:
    """Each of these points in turn, at each of its first passings, and any other while that is repaired.

    Those of stores also while sessions are forked, redacted, deleted and posted to.
    """
    seed = f"{SEED} {seed}"
    chance = random.Random(seed)
    all_points = faults.list_fault_points()
    of_stores = [point for point in all_points if point.startswith("store.")]
    for number in itertools.count():
        passing, place = divmod(number, len(points))
        first = f"{points[place]}=kill@{1 + passing % most_passings}"
        second = f"{chance.choice(all_points)}=kill@{chance.randint(1, 3)}"
        yield KillTrial(*next(places), f"{seed} {number}", [first, second])
        if points[place] in of_stores:
            more = [f"{chance.choice(of_stores)}=kill@{chance.randint(1, ROUNDS)}" for _ in range(2)]
            yield ClerkTrial(*next(places), f"{seed} {number}", [first, *more])


def several(places: Iterator[tuple[str, Place]], seed: str) -> Iterator[KillTrial]:
    """Three to eight in a row, at points and at any time: what repairs is killed too, and what repairs that."""
    seed = f"{SEED} {seed}"
    chance = random.Random(seed)
    for number in itertools.count():
        at_a_point = [
            f"{chance.choice(faults.list_fault_points())}=kill@{chance.randint(1, 3)}"
            for _ in range(chance.randint(2, 5))
        ]
        any_time = [f"after {chance.randint(0, MOST_LINES)}" for _ in range(chance.randint(1, 3))]
        kills = chance.sample([*at_a_point, *any_time], len(at_a_point) + len(any_time))
        yield KillTrial(*next(places), f"{seed} {number}", kills)


def at_any_time(places: Iterator[tuple[str, Place]], seed: str) -> Iterator[KillTrial]:
    """One or two."""
    seed = f"{SEED} {seed}"
    chance = random.Random(seed)
    for number in itertools.count():
        kills = [f"after {chance.randint(0, MOST_LINES)}" for _ in range(chance.randint(1, 2))]
        yield KillTrial(*next(places), f"{seed} {number}", kills)


def of_clerks(places: Iterator[tuple[str, Place]], seed: str) -> Iterator[ClerkTrial]:
    """Three in the same store."""
    seed = f"{SEED} {seed}"
    chance = random.Random(seed)
    for number in itertools.count():
        kills = [f"after {chance.randint(0, MOST_LINES)}" for _ in range(3)]
        yield ClerkTrial(*next(places), f"{seed} {number}", kills)


def for_each_store(**counts: tuple[int, int]) -> pytest.MarkDecorator:
    """How many there have to be in the short form, and in the longest."""
    marks = {"postgres": [pytest.mark.needs("postgres")]}
    cases = [
        pytest.param(kind, short, long, id=f"{kind}-{short}", marks=marks.get(kind, ()))
        for kind, (short, long) in counts.items()
    ]
    return pytest.mark.parametrize(("kind", "count", "long_count"), cases)


@pytest.mark.faults
@pytest.mark.timeout(0)
@for_each_store(sqlite=(32, 1_500), file=(28, 1_400), postgres=(28, 1_400))
def test_after_a_kill_at_a_fault_point_another_process_goes_on(search, places, kind, count, long_count):
    own, points = places(kind), faults.list_fault_points()
    trials = at_points(own, f"points {kind}", points)
    enough = max(count, 2 * len(points))  # so that there is one for each
    tally = search(f"kill -9 at fault points, {kind}", trials, enough, long_count=max(long_count, 50 * enough))
    seen = set(tally.seen)
    for number in range(MORE_ROUNDS):  # a seed may draw no conversation that passes a rare point in time
        if not (rare := sorted(set(points) - seen)):
            break
        more = at_points(own, f"rare points {kind} {number}", rare, most_passings=1)
        seen |= set(search(f"more at {', '.join(rare)}, {kind}", more, len(rare), long_count=len(rare)).seen)
    assert set(points) <= seen, "a point that nobody passes is none"


@pytest.mark.faults
@pytest.mark.timeout(0)
@for_each_store(sqlite=(16, 3_750), file=(12, 1_000), postgres=(8, 500))
def test_after_several_kills_another_process_goes_on(search, places, kind, count, long_count):
    search(f"kill -9 several times, {kind}", several(places(kind), f"several {kind}"), count, long_count=long_count)


@pytest.mark.faults
@pytest.mark.timeout(0)
@for_each_store(sqlite=(10, 750), file=(6, 375), postgres=(4, 250))
def test_after_kills_at_any_time_another_process_goes_on(search, places, kind, count, long_count):
    trials = at_any_time(places(kind), f"any time {kind}")
    search(f"kill -9 at any time, {kind}", trials, count, long_count=long_count)


@pytest.mark.faults
@pytest.mark.timeout(0)
@for_each_store(sqlite=(10, 1_000), file=(8, 500), postgres=(4, 300))
def test_no_kill_leaves_a_fork_a_redaction_a_deletion_or_a_post_half_done(search, places, kind, count, long_count):
    trials = of_clerks(places(kind), f"clerks {kind}")
    search(f"kill -9 while keeping house, {kind}", trials, count, long_count=long_count)


def test_a_conversation_that_nobody_kills_comes_to_its_end(workshop, places):
    at = itertools.islice(places("sqlite"), 8)
    tally = workshop.carry_out(KillTrial(folder, place, folder, []) for folder, place in at)
    assert (tally.wrong, tally.trials, tally.done) == ([], 8, 0)


@pytest.mark.parametrize("point", ["loop.intent_stored", "loop.effect_done"])
def test_run_tool_kill_resume(tmp_path, point):
    """The whole of it in interpreters of their own, armed by the environment."""
    place = Place(f"sqlite:{tmp_path}/sessions")
    order = Order(place, f"{tmp_path}/ledger", "interpreters", [PROMPTS_ONLY])

    def drive(armed: str) -> int:
        command = [sys.executable, "-m", "tests.faults.children", msgspec.json.encode(order).decode()]
        environment = {**os.environ, faults.FAULTS_VARIABLE: armed}
        return subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, timeout=50, check=False
        ).returncode

    assert drive(f"{point}=kill") == -signal.SIGKILL
    assert drive("") == 0
    log = asyncio.run(read(place, PROMPTS_ONLY))
    assert "unknown" in [entry.event.result.status for entry in log if isinstance(entry.event, ToolFinished)]
    assert fold_entries(log).messages[-1].text == LAST_ANSWER


# -- the test of the test ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bug", "found"), [("rerun unknown calls", "I3: doubled: "), ("store no intents", "I3: no intent: ")]
)
def test_a_bug_is_found(workshop, places, bug, found):
    """The auditor can fail: two mistakes that would double effects do not get past it."""
    at = itertools.islice(places("sqlite"), 12)
    kills = itertools.cycle([f"loop.effect_done=kill@{passing}" for passing in range(1, 5)])
    tally = workshop.carry_out(KillTrial(folder, place, bug, [next(kills)], bug) for folder, place in at)
    assert any(found in violation for violation in tally.wrong), tally.wrong


def test_a_deletion_that_did_not_happen_is_found(workshop, places):
    folder, place = next(places("sqlite"))
    tally = workshop.carry_out([ClerkTrial(folder, place, "a lie", ["after 1000"], lies=True)])
    assert any("is none of the 1 things that it may be" in violation for violation in tally.wrong), tally.wrong
