"""How many calls a client may make within a minute, and at the same time."""

from typing import Any

import pytest

from perdure import ConfigError
from perdure._mcp.server.clients import ClientRequestLimiter, RateLimiter, TooManyCalls
from perdure.mcp import ClientLimits
from perdure.testing import FakeClock


async def test_a_rate_allows_as_many_at_once_and_then_as_many_again_within_a_minute():
    clock = FakeClock()
    rate = RateLimiter(30, clock)
    assert [rate.take() for _ in range(31)] == [0.0] * 30 + [2.0]
    await clock.advance(1.5)
    assert rate.take() == 0.5
    await clock.advance(0.5)
    assert [rate.take(), rate.take()] == [0.0, 2.0]
    await clock.advance(10_000)
    assert [rate.take() for _ in range(31)] == [0.0] * 30 + [2.0]


async def test_what_is_refused_is_not_counted_and_says_when_to_try_again():
    clock = FakeClock()
    limiter = ClientRequestLimiter(4, 2, clock, "calls")
    with limiter.use(), limiter.use():
        assert limiter.in_progress == 2
        with pytest.raises(TooManyCalls) as caught, limiter.use():
            raise AssertionError
        assert str(caught.value) == "this client has 2 calls in progress already: wait for one to end"
    assert limiter.in_progress == 0
    with pytest.raises(KeyError), limiter.use():
        raise KeyError
    assert limiter.in_progress == 0
    with limiter.use():
        assert limiter.in_progress == 1
    with pytest.raises(TooManyCalls) as caught, limiter.use():
        raise AssertionError
    assert str(caught.value) == "this client makes too many calls: try again in 15 s or later"
    assert limiter.in_progress == 0
    await clock.advance(15)
    with limiter.use():
        assert limiter.in_progress == 1


@pytest.mark.parametrize("name", ClientLimits.__struct_fields__)
def test_every_limit_is_a_number_from_1(name):
    assert getattr(ClientLimits(**{name: 1}), name) == 1
    wrong: list[Any] = [0, -1, 1.5, True, None]
    for value in wrong:
        with pytest.raises(ConfigError, match=name):
            ClientLimits(**{name: value})
