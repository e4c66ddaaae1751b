"""Recorded answers of real providers, played back by a server: what comes through the network is what a decoder makes
of the bytes, however they are cut; and where they are cut off, nothing passes for an answer that is none.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from perdure import ModelError, user
from perdure._models.provider_errors.classify import classify_error
from perdure.events import ModelEvent, ReplyFinished
from perdure.models import HttpModel, HttpTransport, Profile, Request, Throttle, Wire, assemble_reply, load_wire
from tests.wire.recordings import LONG, Exchange, recordings
from tests.wire.server import Playback, Reply, at_random

WIRES = {
    "openai-chat": "openai_chat",
    "openai-responses": "openai_responses",
    "anthropic-messages": "anthropic",
    "gemini": "gemini",
    "bedrock-converse": "bedrock",
    "ollama-chat": "ollama",
}
REQUEST = Request(messages=[user("hello")])
APIS = pytest.mark.parametrize("api", WIRES)

pytestmark = pytest.mark.wire


@pytest.fixture
async def http():
    transport = HttpTransport()
    yield transport
    await transport.aclose()


def wire_of(api: str) -> Wire:
    wire: Wire = load_wire(WIRES[api])
    return wire


def exchanges_of(api: str) -> list[Exchange]:
    return [exchange for recording in recordings(api) for exchange in recording.exchanges]


def profile_of(exchange: Exchange) -> Profile:
    return Profile(provider=exchange.provider, model="recorded")


def reply_of(exchange: Exchange, **how: Any) -> Reply:
    said = {name: text for name, text in exchange.headers.items() if not name.startswith(("content-", "transfer-"))}
    return Reply(exchange.data, exchange.status, said, exchange.media_type, **how)


def told(events: Iterable[ModelEvent]) -> object:
    """What an answer amounts to: a message, or the kind of an error."""
    heard: list[ModelEvent] = []
    try:
        heard.extend(events)
    except ModelError as error:
        return type(error)
    finished = heard.pop()
    assert isinstance(finished, ReplyFinished)
    return assemble_reply(heard, finished)


def decoded(exchange: Exchange, data: bytes) -> object:
    """What the decoder alone makes of it."""
    if not exchange.ok:
        return type(classify_error(exchange.status, exchange.headers, data, exchange.provider))

    def events() -> Iterable[ModelEvent]:
        decoder = wire_of(exchange.api).decoder(profile_of(exchange), exchange.media_type)
        yield from decoder.feed(data)
        yield from decoder.end()

    return told(events())


async def asked(exchange: Exchange, server: Playback, http: HttpTransport) -> object:
    """What an endpoint makes of it."""
    model = HttpModel(
        wire_of(exchange.api), profile_of(exchange), base_url=server.base_url, transport=http, throttle=Throttle()
    )
    heard: list[ModelEvent] = []
    async with asyncio.timeout(30):
        try:
            heard += [event async for event in model.stream(REQUEST)]
        except ModelError as error:
            return type(error)
    return told(heard)


@APIS
async def test_every_recording_comes_through_the_network_as_it_is(http, api):
    exchanges = exchanges_of(api)
    replies = [reply_of(exchange, cuts=at_random(seed, 500)) for seed, exchange in enumerate(exchanges)]
    async with Playback(replies) as server:
        for exchange in exchanges:
            assert await asked(exchange, server, http) == decoded(exchange, exchange.data), exchange.label
    assert len(server.received) == len(exchanges)


def edges(exchange: Exchange) -> list[int]:
    """Every end of an event, and one byte either side."""
    data, ends = exchange.data, [0]
    if exchange.media_type == "application/vnd.amazon.eventstream":
        while ends[-1] < len(data):
            ends.append(ends[-1] + int.from_bytes(data[ends[-1] : ends[-1] + 4], "big"))
    else:
        plain = data.replace(b"\r\n", b"\n ")  # of the same length
        ends += [place + 2 for place in range(len(data)) if plain[place : place + 2] == b"\n\n"]
        ends += [place + 4 for place in range(len(data)) if data[place : place + 4] == b"\r\n\r\n"]
    return sorted({end + step for end in ends for step in (-1, 0, 1) if 0 <= end + step <= len(data)})


def to_cut(api: str) -> list[Exchange]:
    """Streams with calls in them: the shortest one, or all of them when there is time."""
    streams = [each for each in exchanges_of(api) if each.ok and each.streamed and "tool_call" in each.features]
    return streams if LONG else sorted(streams, key=lambda each: (len(edges(each)), each.label))[:1]


@APIS
@pytest.mark.faults
@pytest.mark.timeout(1800 if LONG else 60)
async def test_an_answer_that_is_cut_off_is_never_taken_for_a_whole_one(http, api):
    for exchange in to_cut(api):
        places = edges(exchange)
        async with Playback([reply_of(exchange, end="close", after=place) for place in places]) as server:
            for place in places:
                came = await asked(exchange, server, http)
                assert came == decoded(exchange, exchange.data[:place]), f"{exchange.label} after {place} bytes"
