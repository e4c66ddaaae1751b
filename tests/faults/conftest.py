"""Tells at the end of a run how long the searches for faults were; and lends what the trials of processes need."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from perdure._core.values.clock import new_id
from tests.faults.children import Place
from tests.faults.workshop import Tally, Workshop

REPORT = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def report(pytestconfig) -> list[str]:
    """Lines for the end of the run."""
    return pytestconfig.stash.setdefault(REPORT, [])


@pytest.fixture(scope="session")
def long() -> bool:
    """Whether the longest form of each search is asked for; `make faults` does."""
    return os.environ.get("PERDURE_SEARCH") == "long"


@pytest.fixture(scope="session")
def workshop() -> Iterator[Workshop]:
    """Warm processes that carry out trials."""
    workshop = Workshop()
    yield workshop
    workshop.close()


@pytest.fixture
def search(workshop, report, long) -> Callable[..., Tally]:
    """Carries out trials until there have been enough of whatever they count, and none in which anything was wrong."""

    def search(what: str, trials: Iterable[Any], count: int, *, long_count: int) -> Tally:
        wanted = long_count if long else count
        tally = workshop.carry_out(trials, wanted)
        report.append(f"{what}: {tally}")
        assert not tally.wrong, "\n".join(tally.wrong)
        assert tally.done >= wanted
        return tally

    return search


@pytest.fixture
def places(request, tmp_path) -> Callable[[str], Iterator[tuple[str, Place]]]:
    """For a kind of store: folders that are not there yet, and in each a place for sessions that nobody else has."""

    def places(kind: str) -> Iterator[tuple[str, Place]]:
        address = request.getfixturevalue("postgres").address() if kind == "postgres" else ""
        for number in itertools.count():
            folder = str(tmp_path / f"{kind}-{number}")
            yield folder, Place(address, new_id()) if address else Place(f"{kind}:{folder}/sessions")

    return places


def pytest_terminal_summary(terminalreporter, config):
    lines = config.stash.get(REPORT, [])
    if lines:
        terminalreporter.section("searches for faults")
        for line in lines:
            terminalreporter.line(line)
