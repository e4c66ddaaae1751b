"""Cron expressions: what each field may contain, and what is refused."""

import pytest

from perdure import ConfigError
from perdure._work.schedules.cron import SHORT_FORMS, CronExpression, parse_cron_expression


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("*/15 * * * *", "minutes", (0, 15, 30, 45)),
        ("5,10-12 * * * *", "minutes", (5, 10, 11, 12)),
        ("50/4 * * * *", "minutes", (50, 54, 58)),
        ("0 8-18/5 * * *", "hours", (8, 13, 18)),
        ("0 0 1,31 * *", "days", {1, 31}),
        ("0 0 * JAN-mar,12 *", "months", {1, 2, 3, 12}),
        ("0 0 * * mon-Fri", "weekdays", {1, 2, 3, 4, 5}),
        ("0 0 * * fri-sun", "weekdays", {5, 6, 0}),
        ("0 0 * * 7", "weekdays", {0}),
        ("0 0 * * 5-7", "weekdays", {5, 6, 0}),
        ("0 0 * * 4/2", "weekdays", {4, 6}),
        ("0 0 * * 1/2", "weekdays", {1, 3, 5}),
        ("0 0 * * mon-sun", "weekdays", {0, 1, 2, 3, 4, 5, 6}),
        ("0 0 * * sun-sun", "weekdays", {0}),
        ("0 0 28,31 2 *", "days", {28, 31}),
        ("0 0 30 2,4 *", "months", {2, 4}),
        ("0 0 * * 7/1", "weekdays", {0}),
        ("0 0 * * */2", "weekdays", {0, 2, 4, 6}),
    ],
)
def test_fields_have_values_ranges_steps_lists_and_names(text, field, expected):
    found = getattr(parse_cron_expression(text), field)
    assert (found if isinstance(expected, tuple) else set(found)) == expected


@pytest.mark.parametrize("name", SHORT_FORMS)
def test_short_forms_are_expressions(name):
    assert parse_cron_expression(f" {name.upper()} ") == parse_cron_expression(SHORT_FORMS[name])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("* * * * * *", "five fields"),
        ("* " * 200, "five fields"),
        ("60 * * * *", "'60' is no minute: give numbers from 0 to 59"),
        ("* 24 * * *", "is no hour"),
        ("* * 0 * *", "is no day of the month: give numbers from 1 to 31"),
        ("* * * 13 *", "is no month: give numbers from 1 to 12 or jan"),
        ("* * * * 8", "is no day of the week"),
        ("* * * mon *", "is no month"),
        ("5-1 * * * *", "from the smaller value to the larger"),
        ("*/0 * * * *", "a step is 1 or more"),
        ("1,,2 * * * *", "write it like"),
        ("-5 * * * *", "write it like"),
        ("* * L * *", "is no day of the month"),
        ("* * * * 5#2", "write it like"),
        ("٣ * * * *", "write it like"),
        ("0 0 31 2,4,6 *", "fits no date: no such month has a day 31"),
        ("0 0 30 feb *", "fits no date"),
        ("@never", "five fields"),
    ],
)
def test_what_is_wrong_is_refused_with_the_field(text, message):
    with pytest.raises(ConfigError, match=message.replace("*", r"\*")):
        parse_cron_expression(text)


def test_a_day_of_the_month_that_never_comes_is_no_mistake_beside_a_weekday():
    parsed = parse_cron_expression("0 0 31 2 mon")
    assert parsed.matches_date(2, 2, 1)
    assert not parsed.matches_date(2, 2, 2)


def test_an_expression_is_parsed_whole():
    assert parse_cron_expression("30,0 */12 1-2 2 0-1") == CronExpression(
        (0, 30),
        (0, 12),
        frozenset({1, 2}),
        frozenset({2}),
        frozenset({0, 1}),
        has_any_hour=True,
        has_any_day=False,
        has_any_weekday=False,
    )
    assert parse_cron_expression("0 9 * * *") == CronExpression(
        (0,),
        (9,),
        frozenset(range(1, 32)),
        frozenset(range(1, 13)),
        frozenset(range(7)),
        has_any_hour=False,
        has_any_day=True,
        has_any_weekday=True,
    )


@pytest.mark.parametrize(
    ("text", "fitting"),
    [
        ("0 0 13 * 5", [(1, 13, 2), (1, 12, 5), (1, 13, 5)]),  # either, as in other crons
        ("0 0 13 * *", [(1, 13, 2), (1, 13, 5)]),
        ("0 0 * * 5", [(1, 12, 5), (1, 13, 5)]),
        ("0 0 */13 * 5", []),  # both, for the first begins with *
        ("0 0 13 2 5", []),
    ],
)
def test_a_date_fits_by_its_month_and_by_its_day_or_weekday(text, fitting):
    parsed = parse_cron_expression(text)
    dates = [(1, 13, 2), (1, 12, 5), (1, 13, 5), (1, 12, 2)]
    assert [each for each in dates if parsed.matches_date(*each)] == fitting
    assert parse_cron_expression("0 0 */13 * 5").matches_date(1, 14, 5)
