"""Real processes use the same sessions at the same time, and are hit by signals at random from outside.

What they were told and what they did is in a ledger that none of them keeps; an auditor holds the logs against it. The
signals come at any time, so a seed repeats what is chosen, and not the moment at which it meets a process.
"""

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.faults.children import Place
from tests.faults.outside import OutsideTrial
from tests.faults.outside_contention import ContentionTrial
from tests.faults.workshop import SIZE, Tally
from tests.seeds import SEED

LONG = os.environ.get("PERDURE_SEARCH") == "long"
MOST = 25
"""Signals or cancels in one series, on one store."""
MOST_FOR_A_BUG = 400
"""Signals after which a bug that was planted has to be found."""
LEASE_SECONDS = 0.6
"""Of PostgreSQL: some pauses are longer."""
MEMORY = Path("/dev/shm")
"""A disk that keeps nothing is as good here: nobody takes its power."""
SHOWN = (
    "kill",
    "term",
    "stop",
    "taken over",
    "cancel here",
    "cancel caller",
    "cancelled",
    "posted",
    "answered",
    "resolved",
)


class Amount(NamedTuple):
    """How many there have to be, on which store."""

    kind: str
    short: int
    long: int

    @property
    def of_series(self) -> int:
        """How many of them in one series: several series go on at the same time."""
        return MOST if LONG else self.short // SIZE


@pytest.fixture
def fast_places(places) -> Iterator[Callable[[str], Iterator[tuple[str, Place]]]]:
    """Places of which every second is in memory, where there is such a place: twice as much happens there."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as memory:

        def fast_places(kind: str) -> Iterator[tuple[str, Place]]:
            for number, (folder, place) in enumerate(places(kind)):
                if kind == "memory":
                    yield folder, Place("memory:")
                elif place.tenant:
                    yield folder, msgspec.structs.replace(place, lease_seconds=LEASE_SECONDS)
                elif number % 2:
                    yield folder, place
                else:
                    yield f"{memory}/{number}", Place(f"{kind}:{memory}/{number}/sessions")

        yield fast_places


def signals(places: Iterator[tuple[str, Place]], seed: str, most: int, bug: str = "") -> Iterator[OutsideTrial]:
    """One series after the other, each on a store of its own."""
    for number in itertools.count():
        folder, place = next(places)
        pause = 1.5 * place.lease_seconds if place.tenant else 0.12
        yield OutsideTrial(folder, place, f"{seed} {number}", most, pause_seconds=pause, bug=bug)


def cancels(places: Iterator[tuple[str, Place]], seed: str, most: int) -> Iterator[ContentionTrial]:
    """The same of cancels. No process is stopped here, so leases can be longer: short ones end on a busy machine."""
    for number in itertools.count():
        folder, place = next(places)
        patient = msgspec.structs.replace(place, lease_seconds=5 * LEASE_SECONDS)
        yield ContentionTrial(folder, patient, f"{seed} {number}", most)


@pytest.fixture
def search_outside(search, report) -> Callable[..., Tally]:
    """Searches, and tells how often each disturbance came."""

    def search_outside(what: str, trials: Iterator[Any], amount: Amount) -> Tally:
        few = trials if LONG else itertools.islice(trials, SIZE)
        tally = search(f"{what}, {amount.kind}", few, amount.short, long_count=amount.long)
        report.append("    " + ", ".join(f"{tally.seen[each]} {each}" for each in SHOWN))
        return tally

    return search_outside


def for_each(*amounts: Amount) -> pytest.MarkDecorator:
    """A case for each of these."""
    marks = {"postgres": [pytest.mark.needs("postgres")]}
    cases = [pytest.param(each, id=each.kind, marks=marks.get(each.kind, ())) for each in amounts]
    return pytest.mark.parametrize("amount", cases)


@pytest.mark.faults
@pytest.mark.timeout(0)
@for_each(Amount("sqlite", 24, 3000), Amount("file", 24, 500), Amount("postgres", 24, 500))
def test_no_signal_at_any_time_breaks_a_promise(search_outside, fast_places, amount):
    trials = signals(fast_places(amount.kind), f"{SEED} signals {amount.kind}", amount.of_series)
    tally = search_outside("signals from outside", trials, amount)
    assert all(tally.seen[each] for each in ("kill", "stop", "begin", "replied")), tally.seen


@pytest.mark.faults
@pytest.mark.timeout(0)
@for_each(Amount("memory", 24, 1200), Amount("sqlite", 24, 1200), Amount("file", 24, 600), Amount("postgres", 24, 600))
def test_no_cancel_among_others_loses_what_has_happened(search_outside, fast_places, amount):
    trials = cancels(fast_places(amount.kind), f"{SEED} cancels {amount.kind}", amount.of_series)
    search_outside("cancels under contention", trials, amount)


# -- the test of the test ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bug", "found"), [("rerun unknown calls", " began 2 times"), ("store no intents", " began without an intent")]
)
def test_a_bug_is_found_from_outside(workshop, fast_places, report, bug, found):
    """The auditor can fail: two mistakes that would double effects do not get past it."""
    trials, done, wrong = signals(fast_places("sqlite"), f"{SEED} {bug}", 8, bug), 0, list[str]()
    while done < MOST_FOR_A_BUG and not any(found in violation for violation in wrong):
        tally = workshop.carry_out(itertools.islice(trials, SIZE))
        done, wrong = done + tally.done, [*wrong, *tally.wrong]
    report.append(f"{bug}: found by {done} signals from outside")
    assert any(found in violation for violation in wrong), wrong
