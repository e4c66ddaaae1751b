"""The mode PERDURE_ALWAYS_RESUME, in which every run goes on from the log: who takes part, and whether it happened.

A pytest plugin, loaded by conftest.py. Tests marked `resumed` pass in that mode too. They would also pass if no loop
were ever thrown away; so loops are counted, and a run of the tests with too few of them fails.
"""

import pytest

from perdure._core.run.run import SimulatedCrash
from perdure._core.values import faults

FEWEST_TESTS = 500
"""Below so many tests nothing is expected: somebody may look at a few that start no run."""

thrown_away: list[None] = []
"""One for each loop that was thrown away, for another one made from the log."""


def count_one(_exception: SimulatedCrash) -> None:
    """Count a loop, when the exception that throws it away is made."""
    thrown_away.append(None)


if faults.always_resume:
    SimulatedCrash.__init__ = count_one  # type: ignore[method-assign, assignment]


def shortfall(loops: int, tests: int) -> str:
    """Return what is wrong with so few loops in so many tests, or nothing."""
    if tests < FEWEST_TESTS or loops >= tests:
        return ""
    return f"FAILED: {loops} loops were made anew from the log in {tests} tests; at least one for each is expected"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """When every run goes on from the log after each append, what no log keeps cannot be looked at."""
    for item in items:
        marker = item.get_closest_marker("in_memory")
        if faults.always_resume and marker is not None:
            item.add_marker(pytest.mark.skip(reason=f"no log keeps it: {marker.args[0]}"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail when hardly anything was resumed."""
    if faults.always_resume and shortfall(len(thrown_away), session.testscollected):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many loops there were."""
    session = terminalreporter._session
    if faults.always_resume and session is not None:
        loops = f"{len(thrown_away)} loops were made anew from the log in {session.testscollected} tests"
        terminalreporter.ensure_newline()
        terminalreporter.line(shortfall(len(thrown_away), session.testscollected) or loops)
