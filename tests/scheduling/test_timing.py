"""Timings: intervals, moments and cron expressions as values, with advice for what is wrong."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from perdure import ConfigError
from perdure._work.schedules.timing import format_moment, parse_interval
from perdure.background import At, Cron, Every, Schedule, at, cron, every

MOMENT = 1_794_992_400.0


def test_an_interval_is_counted_from_its_anchor():
    timing = every(minutes=1, seconds=30)
    assert timing == Every(90.0)
    assert [timing.find_next(after, 10.0) for after in (0.0, 10.0, 99.0, 100.0, 100.5)] == [100, 100, 100, 190, 190]


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [("30s", 30, "30s"), ("5m", 300, "5m"), ("1.5 h", 5400, "90m"), ("2d", 172_800, "2d"), ("1w", 604_800, "7d")],
)
def test_intervals_can_be_written_as_text(text, seconds, shown):
    assert parse_interval(text) == Every(seconds)
    assert parse_interval(text).describe() == f"every {shown}"


def test_an_interval_is_a_second_at_least_and_ten_years_at_most():
    assert every(seconds=1) == Every(1.0)
    assert every(days=3660) == Every(3660 * 86_400.0)
    for seconds in (0.999, 3661 * 86_400.0):
        with pytest.raises(ConfigError) as error:
            Every(seconds)
        assert str(error.value) == (
            f"an interval of {seconds!r} seconds is no schedule: give a second or more, and at most ten years"
        )


def test_fractions_of_seconds_are_shown():
    assert every(seconds=1.5).describe() == "every 1.5s"


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "5 minutes", "0s", "1e9w"])
def test_a_wrong_interval_is_refused(text):
    with pytest.raises(ConfigError, match="interval"):
        parse_interval(text)


@pytest.mark.parametrize("options", [{}, {"seconds": 0.5}, {"minutes": -1}, {"hours": "2"}, {"days": 1e9}])
def test_a_wrong_number_is_refused(options):
    with pytest.raises(ConfigError):
        every(**options)


def test_a_moment_has_a_time_zone():
    assert at(datetime(2026, 11, 18, 9, tzinfo=UTC)) == At(MOMENT)
    assert at("2026-11-18T10:00+01:00") == At(MOMENT)
    assert at(datetime(2026, 11, 18, 11, tzinfo=timezone(timedelta(hours=2)))) == At(MOMENT)
    assert at("2026-11-18 09:00", timezone="UTC") == At(MOMENT)
    assert at("2026-11-18T09:00Z").describe() == "at 2026-11-18T09:00:00Z"
    assert (At(5.0).find_next(4.0, 0.0), At(5.0).find_next(5.0, 0.0)) == (5.0, None)


@pytest.mark.needs("tzdata")
def test_a_moment_can_be_in_a_named_time_zone():
    assert at("2026-11-18T10:00", timezone="Europe/Berlin") == At(MOMENT)


@pytest.mark.parametrize(
    ("moment", "message"),
    [("tomorrow", "write it like"), ("2026-11-18T09:00", "no time zone"), (5, "datetime"), ("0001-01-01T00:00Z", "")],
)
def test_a_wrong_moment_is_refused(moment, message):
    if message:
        with pytest.raises(ConfigError, match=message):
            at(moment)
    else:
        assert at(moment).find_next(0.0, 0.0) is None  # long ago


def test_a_cron_timing_is_in_its_time_zone():
    timing = cron("0  9 * * *")
    assert timing == Cron("0 9 * * *", "UTC")
    assert timing.find_next(MOMENT - 1, 0.0) == MOMENT
    assert timing.describe() == "cron 0 9 * * * (UTC)"


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "../../etc/passwd", "", "Europe", "\0"])
def test_an_unknown_time_zone_is_refused(zone):
    with pytest.raises(ConfigError):
        cron("0 9 * * *", timezone=zone)


def test_moments_are_shown_in_utc():
    assert format_moment(MOMENT) == "2026-11-18T09:00:00Z"
    assert format_moment(MOMENT + 0.25) == "2026-11-18T09:00:00.250Z"
    assert format_moment(MOMENT + 0.001) == "2026-11-18T09:00:00.001Z"
    assert format_moment(MOMENT + 0.0004) == "2026-11-18T09:00:00Z"
    assert format_moment(-5.0) == "1970-01-01T00:00:00Z"
    assert format_moment(1e18).startswith("9999-12-31T")


# -- schedules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "letters"),
        ({"name": "a" * 65}, "name"),
        ({"when": "5m"}, "every"),
        ({"when": every(minutes=5), "prompt": " "}, "give a prompt, or a skill"),
        ({"skill": "x", "prompt": "y"}, "keep one"),
        ({"session": "a\nb"}, "line breaks"),
        ({"session": "schedules"}, "session='schedules'.: the runtime has its own sessions there: give another"),
        ({"name": "schedules"}, "session='schedules'.: the runtime has its own sessions there: give another"),
        ({"prompt": 3}, "prompt=3"),
        ({"skill": 3}, "skill=3"),
        ({"session": 3}, "session=3"),
        ({"role": 3}, "role=3"),
        ({"retries": -1}, "retries"),
        ({"retries": 101}, "at most 100"),
        ({"timeout_seconds": 0}, r"timeout_seconds=0\): give more than 0, or None"),
        ({"late_seconds": -1}, "late_seconds"),
        ({"retry_seconds": "1"}, "retry_seconds"),
        ({"new_session": 1}, "new_session"),
    ],
)
def test_a_schedule_that_cannot_work_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Schedule(**{"name": "a", **options})


def test_a_schedule_describes_its_times():
    assert Schedule(name="a").describe_timing() == "when triggered"
    assert Schedule(name="a", when=every(days=1), prompt="x").describe_timing() == "every 1d"


WRONG: Any = "soon"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Every(WRONG), r"Every\(seconds='soon'\)"),
        (lambda: At(WRONG), r"'soon' is no moment: give seconds since 1970, or use at\(…\)"),
        (lambda: At(float("inf")), "inf is no moment"),
        (lambda: Cron("0 9 * *"), "'0 9 \\* \\*' is no cron expression"),
        (lambda: Cron("0 9 * * *", "Europe/Atlantis"), "there is no time zone 'Europe/Atlantis'"),
        (lambda: cron(" "), r"cron\(expression=' '\)"),
        (lambda: cron("0 9 * * *", timezone=""), r"cron\(timezone=''\)"),
    ],
)
def test_a_timing_that_is_wrong_is_refused_when_it_is_made(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


def test_a_schedule_without_options_is_tried_once_and_may_take_an_hour() -> None:
    schedule = Schedule(name="a")
    assert (schedule.retries, schedule.retry_seconds, schedule.timeout_seconds) == (0, 1.0, 3600.0)
