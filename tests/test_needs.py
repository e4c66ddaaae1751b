"""The marks `needs`, `packages` and `wire`: who is skipped, who fails, and what they are told."""

import sys

import pytest

from scripts import system_parts
from tests import needs

INI = """
[pytest]
asyncio_default_fixture_loop_scope = function
markers =
  needs(*parts): parts of the system
  packages(*names): packages of the main environment
  wire: recordings
"""


@pytest.fixture
def outcome_of(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs one test with a mark, in a world with one part that is there and one that is not."""
    monkeypatch.setitem(system_parts.PARTS, "hammer", system_parts.Part("hammer-tools", lambda: True))
    monkeypatch.setitem(system_parts.PARTS, "anvil", system_parts.Part("anvil-server", lambda: False))

    def run(mark: str, *, ci: str = "", wire: str = "absent") -> pytest.RunResult:
        monkeypatch.setenv("CI", ci)
        monkeypatch.setenv("PERDURE_WIRE", str(pytester.path / wire))
        pytester.makeini(INI)
        pytester.makepyfile(f"import pytest\n\n@pytest.mark.{mark}\ndef test_forge():\n    pass\n")
        return pytester.runpytest_inprocess("-rs", "-p", "tests.needs", "-p", "no:cacheprovider")

    return run


def test_a_test_runs_when_its_part_is_there(outcome_of):
    outcome_of('needs("hammer")').assert_outcomes(passed=1)


def test_a_missing_part_skips_its_tests_and_says_how_to_get_it(outcome_of):
    result = outcome_of('needs("hammer", "anvil")')
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*anvil is not installed. *apt-get install anvil-server*"])


def test_a_missing_part_fails_its_tests_under_ci(outcome_of):
    result = outcome_of('needs("anvil")', ci="true")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*anvil is not installed. *Under CI nothing is left out*"])


def test_a_part_that_the_table_does_not_know_is_an_error(outcome_of):
    result = outcome_of('needs("tongs")')
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*needs('tongs'): no such part*known: *anvil*hammer*"])


def test_a_test_runs_when_its_package_is_there(outcome_of):
    outcome_of('packages("msgspec")', ci="true").assert_outcomes(passed=1)


@pytest.mark.parametrize(("ci", "main"), [("", True), ("", False), ("true", False)])
def test_a_missing_package_skips_its_tests(outcome_of, monkeypatch, ci, main):
    monkeypatch.setattr(needs, "in_main_environment", lambda: main)
    result = outcome_of('packages("msgspec", "no_such_package")', ci=ci)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*no_such_package is not installed here; `make env` installs it into .venv alone*"])


def test_a_missing_package_fails_its_tests_under_ci_in_the_main_environment(outcome_of, monkeypatch):
    monkeypatch.setattr(needs, "in_main_environment", lambda: True)
    result = outcome_of('packages("no_such_package")', ci="true")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no_such_package is not installed here*Under CI nothing is left out*"])


def test_the_main_environment_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(needs, "ROOT", tmp_path)
    assert not needs.in_main_environment()
    (tmp_path / ".venv").symlink_to(sys.prefix)
    assert needs.in_main_environment()


@pytest.mark.parametrize("ci", ["", "true"])
def test_missing_recordings_skip_their_tests_even_under_ci(outcome_of, ci):
    result = outcome_of("wire", ci=ci)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*no recordings at *set PERDURE_WIRE*"])


def test_recordings_that_are_there_are_used(outcome_of):
    outcome_of("wire", wire=".").assert_outcomes(passed=1)
