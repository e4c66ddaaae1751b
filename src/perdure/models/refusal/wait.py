"""How long a provider asks us to wait. Above: `said.py`, the package. Below: nothing.

It may be told in a header as seconds or as a date, in milliseconds, in a field of the body, or in words.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

LONGEST_SECONDS = 86_400.0
"""A longer wait than a day is taken for a day."""

_UNITS: Mapping[str, float] = {"h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0}
_AMOUNT = (
    r"\d{1,9}(?:\.\d{1,12})?\s?(?:milliseconds?|msecs?|ms|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])"
)
_DURATION = re.compile(rf"(?:{_AMOUNT}\s?){{1,4}}", re.IGNORECASE)
_PARTS = re.compile(r"(\d{1,9}(?:\.\d{1,12})?)\s?([a-z]*)", re.IGNORECASE)
_TOLD = re.compile(
    rf"(?:retry|try again|wait)[ -]{{0,2}}(?:in|after|for|starting from)?[:=~ ]{{0,4}}((?:{_AMOUNT}\s?){{1,4}})"
    r"|retry[ -]after['\"]?[:= ]{1,3}['\"]?(\d{1,9}(?:\.\d{1,12})?)",
    re.IGNORECASE,
)


def seconds_in(words: str) -> float | None:
    """What a sentence asks for: `Please try again in 1m30.5s.` is 90.5."""
    found = _TOLD.search(words)
    return None if found is None else _sane(_total(found[1] or found[2]))


def seconds_of(value: Any, unit: float = 1.0) -> float | None:
    """What a field asks for: a number of units, or a duration such as `"22s"`."""
    if isinstance(value, str):
        text = value.strip()[:60]
        if _DURATION.fullmatch(text):
            return _sane(_total(text))
        try:
            value = float(text)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return _sane(float(value) * unit)
    except OverflowError:  # a whole number with hundreds of digits
        return LONGEST_SECONDS


def seconds_from(headers: Mapping[str, str], now: float | None) -> float | None:
    """What the headers ask for. A date is counted from `now`, in seconds since 1970, else from the answer's date."""
    named = {name.lower(): value for name, value in headers.items()}
    exact = seconds_of(named.get("retry-after-ms"), 0.001)
    if exact is not None:
        return exact
    told = named.get("retry-after")
    if told is None:
        return None
    seconds = seconds_of(told)
    if seconds is not None:
        return seconds
    until = _moment(told)
    since = now if now is not None else _moment(named.get("date", ""))
    return None if until is None or since is None else _sane(until - since)


def _total(duration: str) -> float:
    return sum(float(number) * _factor(unit.lower()) for number, unit in _PARTS.findall(duration))


def _factor(unit: str) -> float:
    return 0.001 if unit.startswith(("milli", "ms")) else _UNITS[unit[:1]]


def _moment(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text[:100])
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError, IndexError, OSError):
        return None


def _sane(seconds: float) -> float | None:
    return None if math.isnan(seconds) else min(max(seconds, 0.0), LONGEST_SECONDS)
