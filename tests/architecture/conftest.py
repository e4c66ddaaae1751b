"""Prints the report of test_sizes.py at the end of a run."""

from tests.architecture.sizes import REPORT


def pytest_terminal_summary(terminalreporter, config):
    lines = config.stash.get(REPORT, [])
    if lines:
        terminalreporter.section("sizes (a guide, not a rule)")
        for line in lines:
            terminalreporter.line(line)
