"""Tells at the end of a run how long the searches for faults were."""

import os

import pytest

REPORT = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def report(pytestconfig) -> list[str]:
    """Lines for the end of the run."""
    return pytestconfig.stash.setdefault(REPORT, [])


@pytest.fixture(scope="session")
def long() -> bool:
    """Whether the longest form of each search is asked for; `make faults` does."""
    return os.environ.get("WINDLASS_SEARCH") == "long"


def pytest_terminal_summary(terminalreporter, config):
    lines = config.stash.get(REPORT, [])
    if lines:
        terminalreporter.section("searches for faults")
        for line in lines:
            terminalreporter.line(line)
