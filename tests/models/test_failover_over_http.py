"""A failover between real servers: what a dead first model costs, measured on the loopback."""

import asyncio
import time

import pytest

from perdure import Agent, RateLimited, user
from perdure.models import Request, Throttle, failover, openai_compatible
from perdure.testing import FakeClock
from tests.wire.server import Playback, Received, Reply, json_reply, sse

ANSWER = Reply(
    sse(
        {"choices": [{"index": 0, "delta": {"content": "Here."}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        "[DONE]",
    )
)
TURNS = 10
MOST_SECONDS = 0.05
"""What a turn may take once the first model is known to be dead."""


def refusing(status: int, said: str = "no", **headers: str):
    """A server that refuses every request at once."""

    def answer(_: Received) -> Reply:
        return json_reply({"error": {"message": said}}, status, **headers)

    return answer


def model_of(server: Playback, name: str, **options):
    return openai_compatible(f"{server.base_url}/v1", name, api_key="k", **options)


@pytest.mark.parametrize(
    "refusal",
    [
        *[refusing(503), refusing(429, retry_after="20"), refusing(500), refusing(529), refusing(401)],
        *[refusing(404), refusing(302, location="https://example.com"), refusing(400, "The model `x` does not exist")],
    ],
    ids=["503", "429 with retry-after", "500", "529", "401", "404", "302", "unknown model"],
)
async def test_a_dead_first_model_costs_below_50_ms_a_turn_after_the_first(refusal):
    async with Playback(refusal) as dead, Playback(lambda _: ANSWER) as well:
        session = Agent(failover(model_of(dead, "dead"), model_of(well, "well"))).session()
        began = time.perf_counter()
        await session.run("Hello?")
        first = time.perf_counter() - began
        seconds = []
        for _ in range(TURNS):
            began = time.perf_counter()
            outcome = await session.run("And now?")
            seconds.append(time.perf_counter() - began)
            assert outcome.text == "Here."
        assert len(dead.received) == 1
    assert first < 1  # no retry and no pause is waited for; the first request of a process opens its connections
    assert sorted(seconds)[TURNS // 2] < MOST_SECONDS


async def test_a_pause_that_another_session_has_caused_does_not_hold_up_the_first_turn():
    async with Playback(refusing(429, retry_after="20")) as limited, Playback(lambda _: ANSWER) as well:
        for _ in range(3):  # each has a failover of its own, and all share the key
            outcome = await Agent(failover(model_of(limited, "limited"), model_of(well, "well"))).run("Hello?")
            assert outcome.text == "Here."
        assert len(limited.received) == 1


async def test_a_request_that_waits_in_the_queue_leaves_it_when_a_pause_begins():
    clock = FakeClock()
    throttle = Throttle(concurrency=1, clock=clock, jitter=lambda: 0.0)
    slot = throttle.try_take_slot()
    assert slot is not None
    async with Playback(lambda _: ANSWER) as server:
        first = model_of(server, "first", throttle=throttle, attempts=1)
        stream = first.stream(Request(messages=(user("Hello?"),), may_wait=False)).__aiter__()
        event = asyncio.ensure_future(anext(stream))
        for _ in range(20):  # until it waits for its slot
            await asyncio.sleep(0)
        await clock.advance(1)
        assert "in flight, which is the limit" in (await event).message
        throttle.record_refused(slot, 20)
        with pytest.raises(RateLimited, match="asked for a pause, which ends in about 20 s"):
            await anext(stream)
        assert server.received == []
