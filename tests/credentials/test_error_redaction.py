"""Errors that hold a value, without it."""

import asyncio
import os
import traceback
from typing import Any, Self

import pytest

from perdure import EffectNotStarted, RateLimited, ToolError
from perdure._credentials.redactor import has_secret, redact_error
from perdure.permissions import FixedSecretsRedactor

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


def test_an_error_that_is_only_text_has_that_text_as_its_argument() -> None:
    redacted = redact_error(Slotted(f"hidden {KEY}"), SCRUBBER)
    assert redacted.args == ("hidden {{key}}",)
    assert repr(redacted) == "Slotted('hidden {{key}}')"
    assert (type(redacted).__module__, type(redacted).__qualname__) == (Slotted.__module__, "Slotted")


class Forgetful(Exception):
    def __new__(cls, *_: Any) -> Self:
        return super().__new__(cls)


def test_an_error_whose_class_ignores_its_arguments_keeps_them_redacted() -> None:
    redacted = redact_error(Forgetful(f"lost {KEY}", 2), SCRUBBER)
    assert type(redacted) is Forgetful
    assert redacted.args == ("lost {{key}}", 2)


class Discreet(Exception):
    def __str__(self) -> str:
        return "failed"

    def __repr__(self) -> str:
        return f"Discreet(key={KEY})"


class Unshowable(Exception):
    def __str__(self) -> str:
        return "failed"

    def __repr__(self) -> str:
        raise RuntimeError(KEY)


@pytest.mark.parametrize("kind", [Discreet, Unshowable])
def test_an_error_that_shows_a_secret_only_in_its_repr_is_replaced(kind: type[Exception]) -> None:
    redacted = redact_error(kind(), SCRUBBER)
    assert isinstance(redacted, kind)
    assert (str(redacted), repr(redacted)) == ("failed", f"{kind.__name__}('failed')")


class Reported(Exception):
    def __str__(self) -> str:
        return "failed"


def test_plain_data_of_an_error_is_redacted_in_place_and_objects_become_text() -> None:
    plain = {"deep": [KEY, {"more": (KEY, 7, None, 1.5, True)}]}
    with_object = {"request": Request()}
    error: Any = Reported(plain, [KEY], with_object, [Request()])
    error.plain = plain
    error.listed = [KEY, 7]
    error.with_object = with_object
    error.objects = [Request()]
    error.request = Request()
    redacted = redact_error(error, SCRUBBER)
    redacted_plain = {"deep": ["{{key}}", {"more": ["{{key}}", 7, None, 1.5, True]}]}
    assert redacted.args == (redacted_plain, ["{{key}}"], "{'request': <Request {{key}}>}", "[<Request {{key}}>]")
    assert vars(redacted) == {"plain": redacted_plain, "listed": ["{{key}}", 7]}


def test_notes_that_are_no_list_are_left_out_and_others_come_before_the_place_of_the_error() -> None:
    odd = ValueError(KEY)
    odd.__notes__ = 7  # type: ignore[assignment]
    assert not hasattr(redact_error(odd, SCRUBBER), "__notes__")
    error = ValueError(KEY)
    error.add_note(f"first {KEY}")
    error.add_note("second")
    caught = raised(error)
    assert caught is not None
    place = caught.__traceback__
    assert place is not None
    where = f'  File "{__file__}", line {place.tb_lineno}, in raised'
    assert redact_error(caught, SCRUBBER).__notes__ == [
        "first {{key}}",
        "second",
        f"raised at (most recent call last):\n{where}",
    ]


def test_only_the_last_frames_of_a_deep_error_are_noted() -> None:
    def descend(depth: int) -> None:
        if not depth:
            raise ValueError(KEY)
        descend(depth - 1)

    with pytest.raises(ValueError, match=KEY) as caught:
        descend(30)
    lines = redact_error(caught.value, SCRUBBER).__notes__[0].splitlines()
    assert len(lines) == 1 + 20
    assert all(line.endswith("in descend") for line in lines[1:])


def test_an_error_has_a_secret_if_its_text_or_one_of_its_causes_has() -> None:
    assert has_secret(ValueError(f"bad {KEY}"), SCRUBBER) is True
    assert has_secret(raised(ValueError("fine")) or ValueError(), SCRUBBER) is True  # of the KeyError that caused it
    assert has_secret(ValueError("fine"), SCRUBBER) is False
