"""What is called is looked at before it is called: async or not."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from perdure import ConfigError
from perdure._core.values.checks import (
    close_coroutine,
    is_async_function,
    require_bool,
    require_callable,
    require_callable_or_none,
    require_callables,
    require_int,
    require_number,
    require_one_line,
    require_one_of,
    require_plain_function,
    require_plain_function_or_none,
    require_plain_return_type,
    require_return_type,
    require_text,
    suggest_name,
)

FUNCTIONS = "give a list of functions"


def plain() -> None:
    """Nothing."""


async def waiting() -> None:
    """Nothing."""


async def yielding():
    yield


class Thing:
    async def wait(self) -> None:
        """Nothing."""

    def work(self) -> None:
        """Nothing."""


class Called:
    async def __call__(self) -> None:
        """Nothing."""


@functools.wraps(waiting)
def wrapped() -> None:
    """A plain function that has the name of an async one."""


@pytest.mark.parametrize(
    ("value", "is_async"),
    [
        (plain, False),
        (waiting, True),
        (yielding, False),
        (Thing().wait, True),
        (Thing().work, False),
        (functools.partial(functools.partial(waiting)), True),
        (functools.partial(plain), False),
        (Called(), True),
        (Thing(), False),
        (wrapped, False),
        (print, False),
    ],
)
def test_an_async_function_is_known_in_every_form(value, is_async):
    assert is_async_function(value) is is_async


@pytest.mark.skipif(not hasattr(inspect, "markcoroutinefunction"), reason="since Python 3.12")
def test_a_function_that_is_marked_as_async_is_one():
    def begin():
        return waiting()

    assert is_async_function(getattr(inspect, "markcoroutinefunction")(begin))  # noqa: B009 - 3.11 has none


INFINITE, NOT_A_NUMBER = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("check", "good", "bad", "advice"),
    [
        (require_text, ["", " ", "a"], [None, 5, b"a"], "give text"),
        (
            functools.partial(require_text, non_empty=True),
            ["a", " a "],
            ["", " \n", None, 5, ["a"]],
            "give non-empty text",
        ),
        (
            require_one_line,
            ["", "a b", "é", "\u200b", "\ud800", "\u00a0"],
            ["a\nb", "\t", "\x7f", "\u2028", "\u2029", "\x85"],
            "give text without line breaks and other control characters",
        ),
        (require_bool, [True, False], [0, 1, None, "yes"], "give True or False"),
        (require_int, [0, 1, 10**30], [-1, 0.0, 1.5, True, False, "1", None], "give a whole number, 0 or more"),
        (functools.partial(require_int, minimum=3), [3, 4], [2, 0, 3.0], "give a whole number, 3 or more"),
        (
            require_number,
            [0, 0.0, 0.5, 1, INFINITE],
            [-1, -0.1, True, False, "1", None, NOT_A_NUMBER],
            "give a number from 0 on",
        ),
        (
            functools.partial(require_number, maximum=2.5),
            [0, 2.5, 0.1],
            [2.6, 3, -1, INFINITE, NOT_A_NUMBER],
            "give a number from 0 to 2.5",
        ),
        (functools.partial(require_one_of, allowed=["a", "b"]), ["a", "b"], ["c", "", None, 1], "use 'a', 'b'"),
        (require_callable, [plain, waiting, Called(), int], [None, 5, "f", Thing()], "give a function"),
        (require_callable_or_none, [None, plain, waiting], [5, "f", Thing()], "give a function"),
        (require_plain_function, [plain, wrapped, Thing().work, int], [None, 5], "give a function"),
        (require_plain_function_or_none, [None, plain], [5], "give a function"),
        (
            require_plain_function,
            [plain],
            [waiting, yielding, Called(), Thing().wait],
            "give a plain function, and no async one: nothing awaits it",
        ),
        (
            require_plain_function_or_none,
            [None],
            [waiting, yielding],
            "give a plain function, and no async one: nothing awaits it",
        ),
        (require_callables, [[], (), [plain], (plain, waiting)], [None, plain, {plain}, [plain, 5], "f"], FUNCTIONS),
    ],
)
def test_a_wrong_value_is_refused_with_advice(
    check: Callable[..., None], good: Sequence[Any], bad: Sequence[Any], advice: str
) -> None:
    for value in good:
        check("Thing", "option", value)
    for value in bad:
        with pytest.raises(ConfigError) as caught:
            check("Thing", "option", value)
        assert str(caught.value) == f"Thing(option={value!r}): {advice}"


def test_the_nearest_name_is_suggested_in_its_own_spelling() -> None:
    assert suggest_name("Limts", ["Limits", "Limit", "x"]) == "did you mean 'Limits'? "
    assert suggest_name("LIMITS", ["limits"]) == "did you mean 'limits'? "
    assert suggest_name("zzz", ["limits"]) == ""
    assert suggest_name("limits", []) == ""


def test_a_function_that_returns_the_wrong_type_is_named() -> None:
    require_return_type("stop", plain, 5, int, "a number")
    require_plain_return_type("stop", plain, 5, (int, str), "a number")
    for check in (require_return_type, require_plain_return_type):
        with pytest.raises(ConfigError) as caught:
            check("stop", plain, "5", int, "a number")
        assert str(caught.value) == f"the stop function {plain!r} returned '5': it has to return a number"


def test_a_coroutine_that_nobody_will_await_is_closed() -> None:
    given = waiting()
    with pytest.raises(ConfigError, match="it has to return a number"):
        require_plain_return_type("stop", waiting, given, int, "a number")
    assert inspect.getcoroutinestate(given) == inspect.CORO_CLOSED
    other = waiting()
    close_coroutine(other)
    assert inspect.getcoroutinestate(other) == inspect.CORO_CLOSED
    close_coroutine(plain)
