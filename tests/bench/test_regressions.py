"""bench/regressions.py: a ratio above its limit fails a quick run, and a machine that is busy for a while does not."""

import pytest

from bench import __main__ as program
from bench import regressions
from bench.regressions import LIMITS, Limit, find_ratio


def readings(*sides):
    """A measurement with prepared rounds."""
    remaining = list(sides)
    return lambda: remaining.pop(0)


def test_a_ratio_within_its_limit_takes_one_round():
    assert find_ratio(Limit("turn", 10.0, readings((80.0, 10.0)))) == (8.0, 1)


def test_a_busy_round_is_measured_again():
    assert find_ratio(Limit("turn", 10.0, readings((300.0, 10.0), (90.0, 15.0)))) == (9.0, 2)


def test_a_ratio_that_stays_above_its_limit_is_the_best_of_all_rounds():
    assert find_ratio(Limit("turn", 10.0, readings((300.0, 10.0), (200.0, 12.0), (250.0, 9.0))), 3) == (200.0 / 9.0, 3)


@pytest.mark.parametrize(("most", "code"), [(10.0, 0), (5.0, 1)])
def test_a_quick_run_fails_when_a_ratio_is_above_its_limit(monkeypatch, capsys, most, code):
    limit = Limit("tool turn", most, lambda: (80.0, 10.0))
    monkeypatch.setattr(regressions, "LIMITS", [limit])
    assert program.main(["--quick", "--only", "regressions"]) == code
    told = capsys.readouterr()
    assert "| ratio: tool turn | 8.00 x" in told.out
    assert ("bench/regressions.py" in told.err) == bool(code)


def test_a_thorough_run_reports_a_ratio_above_its_limit_and_fails_nothing(monkeypatch, capsys):
    monkeypatch.setattr(regressions, "LIMITS", [Limit("tool turn", 5.0, lambda: (80.0, 10.0))])
    assert program.main(["--only", "regressions"]) == 0
    assert "| missed |" in capsys.readouterr().out


def test_every_limit_has_a_name_of_its_own():
    assert len({limit.name for limit in LIMITS}) == len(LIMITS)
