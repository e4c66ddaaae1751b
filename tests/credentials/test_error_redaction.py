"""Errors that hold a value, without it."""

import asyncio
import os
import traceback

import pytest

from perdure import EffectNotStarted, RateLimited, ToolError
from perdure.credentials import FixedSecretsRedactor
from perdure.credentials.error_redaction import redact_error

KEY = "s3cr3t-value"
SCRUBBER = FixedSecretsRedactor({"key": KEY})


class Attributed(Exception):
    def __init__(self, reason, request):
        self.reason = reason
        self.request = request

    def __str__(self):
        return f"{self.reason}: {self.request}"


class Particular(Exception):
    def __new__(cls, one, two):
        return super().__new__(cls, one, two)

    def __str__(self):
        return f"{self.args[0]} of {KEY}"


class Slotted(Exception):
    __slots__ = ("hidden",)

    def __init__(self, hidden):
        super().__init__()
        self.hidden = hidden

    def __str__(self):
        return self.hidden


class Request:
    def __repr__(self):
        return f"<Request {KEY}>"


def raised(error):
    try:
        try:
            os.environ[KEY]
        except KeyError as cause:
            raise error from cause
    except BaseException as caught:  # noqa: BLE001 - whatever was given
        return caught


def everything(error):
    inner = [everything(each) for each in getattr(error, "exceptions", ())]
    return "".join(
        [repr(error), str(error), repr(error.args), repr(vars(error)), *traceback.format_exception(error), *inner]
    )


@pytest.mark.parametrize(
    "error",
    [
        ValueError(f"bad {KEY}"),
        KeyError(KEY),
        OSError(2, "no such file", f"/tmp/{KEY}"),
        UnicodeDecodeError("utf-8", KEY.encode(), 0, 1, KEY),
        ToolError(f"told {KEY}"),
        EffectNotStarted(KEY),
        RateLimited(KEY, retry_after_seconds=3),
        asyncio.CancelledError(KEY),
        SystemExit(KEY),
        Attributed(f"declined {KEY}", Request()),
        Particular(KEY, 2),
        Slotted(f"hidden {KEY}"),
        Exception(Request(), {"deep": [KEY]}, KEY.encode()),
        ExceptionGroup(f"both {KEY}", [ValueError(KEY), ExceptionGroup(KEY, [OSError(KEY)])]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_keeps_its_class_and_loses_the_value(error):
    scrubbed = redact_error(raised(error), SCRUBBER)
    assert KEY not in everything(scrubbed)
    assert "{{key}}" in everything(scrubbed)
    assert isinstance(scrubbed, type(error))
    assert type(scrubbed).__name__ == type(error).__name__
    assert (scrubbed.__cause__, scrubbed.__context__, scrubbed.__traceback__) == (None, None, None)


def test_what_an_error_tells_besides_is_kept():
    error = RateLimited(f"slow down, {KEY}", retry_after_seconds=3)
    error.add_note(f"sent {KEY}")
    scrubbed = redact_error(raised(error), SCRUBBER)
    assert str(scrubbed) == "slow down, {{key}}"
    assert isinstance(scrubbed, RateLimited)
    assert scrubbed.retry_after_seconds == 3
    assert scrubbed.__notes__[0] == "sent {{key}}"
    assert "test_error_redaction.py" in scrubbed.__notes__[1]


def test_an_error_that_cannot_be_asked_is_replaced():
    class Rude(Exception):
        def __repr__(self):
            raise RuntimeError(KEY)

        __str__ = __repr__

    assert KEY not in everything(redact_error(raised(Rude(KEY)), SCRUBBER))


def test_an_error_of_a_class_that_cannot_be_made_says_what_it_was():
    class Sealed(Exception):
        def __init_subclass__(cls):
            raise TypeError(cls)

        def __str__(self):
            return f"sealed {KEY}"

    assert repr(redact_error(Sealed(), SCRUBBER)) == "RuntimeError('Sealed: sealed {{key}}')"
