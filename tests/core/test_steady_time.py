"""A jump of the machine's clock counts for decisions only once it has lasted, and is reported once."""

import logging

import pytest

from perdure._core.values.clock import describe_jump, get_steady_time
from perdure.testing import FakeClock

pytestmark = pytest.mark.filterwarnings("error")
DAY = 86_400.0


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


async def test_time_passes_as_on_the_clock(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(1000.0)
    assert get_steady_time(clock) == 1000.0
    await clock.advance(7_200.0)
    assert get_steady_time(clock) == 8_200.0
    assert warnings_in(caplog) == []


@pytest.mark.parametrize("jump", [DAY, -DAY])
async def test_a_clock_that_is_wrong_for_some_seconds_changes_nothing_and_is_reported_once(
    jump: float, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock(1000.0 + DAY)
    get_steady_time(clock)
    clock.set_ahead(jump)
    for passed in (0.0, 1.0, 2.0):
        assert get_steady_time(clock) == pytest.approx(1000.0 + DAY + passed)
        await clock.advance(1.0)
    clock.set_ahead(-jump)
    await clock.advance(100.0)
    assert get_steady_time(clock) == clock.now() == pytest.approx(1103.0 + DAY)
    (warning,) = warnings_in(caplog)
    assert f"was set {describe_jump(jump)}" in warning


@pytest.mark.parametrize("jump", [DAY, -DAY])
async def test_a_jump_that_lasts_counts_after_half_a_minute(jump: float, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(1000.0 + DAY)
    get_steady_time(clock)
    clock.set_ahead(jump)
    get_steady_time(clock)
    await clock.advance(29.0)
    assert get_steady_time(clock) == pytest.approx(1029.0 + DAY)
    await clock.advance(1.0)
    assert get_steady_time(clock) == pytest.approx(1030.0 + DAY + jump)
    await clock.advance(1.0)
    assert get_steady_time(clock) == clock.now()
    assert len(warnings_in(caplog)) == 1
    clock.set_ahead(-jump)  # and the next jump is another one
    get_steady_time(clock)
    assert len(warnings_in(caplog)) == 2


async def test_a_small_correction_of_the_clock_counts_at_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(1000.0)
    get_steady_time(clock)
    clock.set_ahead(59.0)
    assert get_steady_time(clock) == 1059.0
    clock.set_ahead(-59.0)
    assert get_steady_time(clock) == 1000.0
    assert warnings_in(caplog) == []


def test_each_clock_has_its_own_time() -> None:
    one, other = FakeClock(1000.0), FakeClock(1000.0 + DAY)
    assert [get_steady_time(one), get_steady_time(other)] == [1000.0, 1000.0 + DAY]


def test_a_clock_that_cannot_be_remembered_is_read_as_it_is() -> None:
    class NamelessClock(FakeClock):
        __hash__ = None  # type: ignore[assignment]

    assert get_steady_time(NamelessClock(1000.0)) == 1000.0


def test_a_jump_is_described_with_its_direction() -> None:
    assert describe_jump(DAY) == "ahead by 1 day, 0:00:00"
    assert describe_jump(-90.4) == "back by 0:01:30"
