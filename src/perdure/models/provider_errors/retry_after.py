"""Parse how many seconds a provider asks to wait before a retry.

The time may be in a header as seconds, milliseconds or a date, in a field of the body, or in the error text.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

MAX_WAIT_SECONDS = 86_400.0
"""Maximum wait: longer ones are cut to a day."""

_UNITS: Mapping[str, float] = {"h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0}
_AMOUNT = (
    r"\d{1,9}(?:\.\d{1,12})?\s?(?:milliseconds?|msecs?|ms|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])"
)
_DURATION = re.compile(rf"(?:{_AMOUNT}\s?){{1,4}}", re.IGNORECASE)
_PARTS = re.compile(r"(\d{1,9}(?:\.\d{1,12})?)\s?([a-z]*)", re.IGNORECASE)
_WAIT_PHRASE = re.compile(
    rf"(?:retry|try again|wait)[ -]{{0,2}}(?:in|after|for|starting from)?[:=~ ]{{0,4}}((?:{_AMOUNT}\s?){{1,4}})"
    r"|retry[ -]after['\"]?[:= ]{1,3}['\"]?(\d{1,9}(?:\.\d{1,12})?)",
    re.IGNORECASE,
)


def parse_wait_in_text(text: str) -> float | None:
    """Return the wait in seconds that a sentence asks for: `Please try again in 1m30.5s.` is 90.5."""
    found = _WAIT_PHRASE.search(text)
    return None if found is None else _clamp_seconds(_sum_duration(found[1] or found[2]))


def parse_wait_field(value: Any, unit: float = 1.0) -> float | None:
    """Return the seconds to wait that an error field or header gives: a number times `unit`, or `"22s"`.

    `None` if it gives none.
    """
    if isinstance(value, str):
        text = value.strip()[:60]
        if _DURATION.fullmatch(text):
            return _clamp_seconds(_sum_duration(text))
        try:
            value = float(text)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return _clamp_seconds(float(value) * unit)
    except OverflowError:  # an integer with hundreds of digits
        return MAX_WAIT_SECONDS


def parse_wait_headers(headers: Mapping[str, str], now: float | None) -> float | None:
    """Return the seconds to wait that the `retry-after` headers of an HTTP response ask for; `None` if none.

    A date is relative to `now` (seconds since 1970), or to the `Date` header.
    """
    named = {name.lower(): value for name, value in headers.items()}
    exact = parse_wait_field(named.get("retry-after-ms"), 0.001)
    if exact is not None:
        return exact
    told = named.get("retry-after")
    if told is None:
        return None
    seconds = parse_wait_field(told)
    if seconds is not None:
        return seconds
    until = _parse_date(told)
    since = now if now is not None else _parse_date(named.get("date", ""))
    return None if until is None or since is None else _clamp_seconds(until - since)


def _sum_duration(duration: str) -> float:
    return sum(float(number) * _get_unit_seconds(unit.lower()) for number, unit in _PARTS.findall(duration))


def _get_unit_seconds(unit: str) -> float:
    return 0.001 if unit.startswith(("milli", "ms")) else _UNITS[unit[:1]]


def _parse_date(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text[:100])
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError, IndexError, OSError):
        return None


def _clamp_seconds(seconds: float) -> float | None:
    return None if math.isnan(seconds) else min(max(seconds, 0.0), MAX_WAIT_SECONDS)
