"""What is called is looked at before it is called: async or not."""

import functools
import inspect

import pytest

from perdure.core.argument_checks import is_async_function


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
