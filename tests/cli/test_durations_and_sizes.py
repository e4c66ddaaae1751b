"""Amounts as people write them."""

import click
import pytest

from perdure._cli.terminal import amounts as amount

CONTEXT = click.Context(click.Command("x"))
OPTION = click.Option(["--x"])


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("12h", 43_200), ("30d", 2_592_000), (" 1.5w ", 907_200)]
)
def test_a_length_of_time_is_read(text, seconds):
    assert amount.parse_duration(CONTEXT, OPTION, text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1000", 1000), ("1k", 1024), ("1.5G", 1_610_612_736), ("500 MB", 524_288_000), ("2TiB", 2 * 1024**4)],
)
def test_a_size_is_read(text, size):
    assert amount.parse_size(CONTEXT, OPTION, text) == size


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1 month", "1e3d", "1d2h", "∞d"])
def test_what_is_no_length_of_time_is_refused(text):
    with pytest.raises(click.BadParameter, match="use 30d, 12h or 2w"):
        amount.parse_duration(CONTEXT, OPTION, text)


@pytest.mark.parametrize("text", ["", "G", "-1", "1X", "1e9", "1GG", "a lot"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(click.BadParameter, match=r"use 500M, 1\.5G or a number of bytes"):
        amount.parse_size(CONTEXT, OPTION, text)


def test_nothing_stays_nothing():
    assert amount.parse_duration(CONTEXT, OPTION, None) is None
    assert amount.parse_size(CONTEXT, OPTION, None) is None


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KiB"),
        (1024 * 99, "99.0 KiB"),
        (1024 * 500, "500 KiB"),
        (1024**3, "1.0 GiB"),
        (5 * 1024**5, "5120.0 TiB"),
    ],
)
def test_a_size_is_shown_to_people(count, shown):
    assert amount.format_size(count) == shown
