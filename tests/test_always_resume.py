"""tests/always_resume.py: a mode in which nothing was resumed is not passed."""

from types import SimpleNamespace
from typing import cast

import pytest

from perdure import Agent
from perdure._core.values import faults
from perdure.testing import ScriptedModel
from tests import always_resume


@pytest.mark.parametrize(("loops", "tests"), [(0, 500), (499, 500), (1300, 1310)])
def test_too_few_loops_in_many_tests_are_a_failure(loops, tests):
    assert always_resume.shortfall(loops, tests).startswith(f"FAILED: {loops} loops")


@pytest.mark.parametrize(("loops", "tests"), [(0, 499), (500, 500), (5000, 1310)])
def test_enough_loops_or_few_tests_are_none(loops, tests):
    assert always_resume.shortfall(loops, tests) == ""


@pytest.mark.parametrize(("loops", "exit_code"), [(499, 1), (500, 0)])
def test_where_too_few_loops_were_thrown_away_the_run_of_the_tests_fails(monkeypatch, loops, exit_code):
    monkeypatch.setattr(faults, "always_resume", True)
    monkeypatch.setattr(always_resume, "thrown_away", [None] * loops)
    session = SimpleNamespace(testscollected=500, exitstatus=0)
    always_resume.pytest_sessionfinish(cast("pytest.Session", session))
    assert session.exitstatus == exit_code


@pytest.mark.resumed
async def test_a_loop_that_is_thrown_away_is_counted():
    before = len(always_resume.thrown_away)
    await Agent(ScriptedModel("Fine.")).run("Go")
    assert (len(always_resume.thrown_away) > before) == faults.always_resume
