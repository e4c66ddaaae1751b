"""The moments of cron expressions, at changes of the clocks, and against a scan of every minute."""

import functools
import os
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure._work.schedules.cron import find_next_cron_time, parse_cron_expression

LONG = os.environ.get("PERDURE_SEARCH") == "long"
MINUTE = timedelta(minutes=1)


def list_times(expression: str, zone: str, start: str, count: int) -> list[str]:
    """The next moments of an expression after a local time, as the clocks show them, with their offset."""
    found, place, parsed = (
        [],
        datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone)),
        parse_cron_expression(expression),
    )
    for _ in range(count):
        due = find_next_cron_time(parsed, ZoneInfo(zone), place)
        assert due is not None
        place = due
        found.append(place.astimezone(ZoneInfo(zone)).strftime("%m-%d %H:%M %z"))
    return found


def test_times_without_a_change_of_the_clocks():
    parsed = parse_cron_expression("30 9 * * 1-5")
    friday = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)
    assert find_next_cron_time(parsed, UTC, friday - MINUTE) == friday
    assert find_next_cron_time(parsed, UTC, friday) == datetime(2026, 11, 23, 9, 30, tzinfo=UTC)


def test_a_leap_day_is_found_over_eight_years():
    parsed = parse_cron_expression("0 0 29 2 *")
    after = datetime(2096, 3, 1, tzinfo=UTC)
    assert find_next_cron_time(parsed, UTC, after) == datetime(2104, 2, 29, tzinfo=UTC)


def test_the_calendar_ends():
    assert find_next_cron_time(parse_cron_expression("0 0 1 1 *"), UTC, datetime(9999, 6, 1, tzinfo=UTC)) is None


@pytest.mark.needs("tzdata")
def test_a_time_that_the_clocks_skip_is_due_at_the_end_of_the_gap():
    found = list_times("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00", 3)
    assert found == ["03-28 02:30 +0100", "03-29 03:00 +0200", "03-30 02:30 +0200"]
    odd = list_times("1 2 * * *", "Europe/Berlin", "2026-03-28T12:00", 1)
    assert odd == ["03-29 03:00 +0200"]
    both = list_times("0,30 2,3 * * *", "Europe/Berlin", "2026-03-28T04:00", 3)
    assert both == ["03-29 03:00 +0200", "03-29 03:30 +0200", "03-30 02:00 +0200"]


@pytest.mark.needs("tzdata")
def test_a_time_that_the_clocks_show_twice_is_due_once():
    found = list_times("30 2 * * *", "Europe/Berlin", "2026-10-24T00:00", 3)
    assert found == ["10-24 02:30 +0200", "10-25 02:30 +0200", "10-26 02:30 +0100"]


@pytest.mark.needs("tzdata")
def test_an_expression_for_every_hour_counts_real_time():
    spring = list_times("0 * * * *", "Europe/Berlin", "2026-03-29T00:30", 3)
    assert spring == ["03-29 01:00 +0100", "03-29 03:00 +0200", "03-29 04:00 +0200"]
    autumn = list_times("30 * * * *", "Europe/Berlin", "2026-10-25T01:00", 4)
    assert autumn == ["10-25 01:30 +0200", "10-25 02:30 +0200", "10-25 02:30 +0100", "10-25 03:30 +0100"]


@pytest.mark.needs("tzdata")
def test_a_day_that_the_clocks_skip_is_due_at_its_end():
    found = list_times("0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00", 1)
    assert found == ["12-31 00:00 +1400"]


@pytest.mark.needs("tzdata")
def test_clocks_that_are_set_back_over_midnight_keep_the_order():
    found = list_times("*/30 * * * *", "America/St_Johns", "2010-11-06T23:00", 5)
    assert found == [
        "11-06 23:30 -0230",
        "11-07 00:00 -0230",
        "11-06 23:30 -0330",
        "11-07 00:00 -0330",
        "11-07 00:30 -0330",
    ]


# -- against a scan ----------------------------------------------------------------------------------------------------

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/St_Johns", "Asia/Kathmandu")
CHANGES = (  # days around which clocks are changed in one of the zones, and one where they are not
    *(datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC), datetime(2026, 3, 8, tzinfo=UTC)),
    *(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 4, 5, tzinfo=UTC), datetime(2026, 10, 4, tzinfo=UTC)),
    *(datetime(2010, 11, 7, tzinfo=UTC), datetime(2026, 6, 15, tzinfo=UTC)),
)


def field(first: int, last: int) -> st.SearchStrategy[str]:
    number = st.integers(first, last)
    ranges = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    part = st.one_of(number.map(str), ranges, st.just("*"))
    stepped = st.tuples(part, st.integers(1, 30)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    return st.lists(st.one_of(part, stepped), min_size=1, max_size=2).map(",".join)


def matches(fields: list[str], local: datetime) -> bool:
    """Match a local minute with an expression, field by field, in the plainest way."""
    values = (local.minute, local.hour, local.day, local.month, local.isoweekday() % 7)
    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
    fits = [fits_field(*each) for each in zip(fields, values, bounds, strict=True)]
    is_either = not fields[2].startswith("*") and not fields[4].startswith("*")
    return fits[0] and fits[1] and fits[3] and (fits[2] or fits[4] if is_either else fits[2] and fits[4])


@functools.cache
def fits_field(text: str, value: int, bounds: tuple[int, int]) -> bool:
    for part in text.split(","):
        span, has_step, step = part.partition("/")
        first, is_range, last = span.partition("-")
        low = bounds[0] if first == "*" else int(first)
        high = bounds[1] if first == "*" or (has_step and not is_range) else int(last or first)
        if low <= value <= high and (value - low) % int(step or 1) == 0:
            return True
    return False


def scan_minutes(fields: list[str], zone: ZoneInfo, start: datetime, minutes: int) -> list[datetime]:
    """Every due moment, found by looking at every minute."""
    found, counts_real_time = [], fields[1].startswith("*")
    for number in range(1, minutes + 1):
        moment = start + number * MINUTE
        local = moment.astimezone(zone)
        if counts_real_time:
            is_due = matches(fields, local)
        else:
            skipped = (moment - MINUTE).astimezone(zone).replace(tzinfo=None) + MINUTE
            shown, is_due = local.replace(tzinfo=None), local.fold == 0 and matches(fields, local)
            while skipped < shown and not is_due:  # the minutes that the clocks have skipped just now
                is_due = matches(fields, skipped)
                skipped += MINUTE
        if is_due:
            found.append(moment)
    return found


@pytest.mark.needs("tzdata")
@pytest.mark.faults
@pytest.mark.timeout(600)
@settings(max_examples=300 if LONG else 15, deadline=None)
@given(
    fields=st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6)).map(list),
    zone=st.sampled_from(ZONES),
    day=st.sampled_from(CHANGES),
)
def test_every_due_moment_is_the_one_that_a_scan_of_every_minute_finds(fields, zone, day):
    fields[3] = "*" if day.month % 2 else fields[3]  # else most expressions are not due at all
    try:
        parsed = parse_cron_expression(" ".join(fields))
    except ValueError:  # no month has such a day
        return
    place, end = day - timedelta(hours=30), day + timedelta(hours=30)
    expected = scan_minutes(fields, ZoneInfo(zone), place, int((end - place) / MINUTE))
    found: list[datetime] = []
    while (due := find_next_cron_time(parsed, ZoneInfo(zone), place)) is not None and due <= end and len(found) < 60:
        found.append(due)
        place = due
    assert found == expected[:60]
    assert len(found) == min(60, len(expected))
