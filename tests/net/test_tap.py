"""Whoever wants to see the raw traffic sees all of it, but no key."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from perdure import Agent
from perdure._io.http.tap import _TappedResponse, mask_headers, mask_sent_secrets, mask_url
from perdure._io.http.transport import NetError
from perdure.models import HttpTransport, TappedRequest, openai_compatible, tap_models, tapped
from tests.wire.server import Playback, Reply, at_random, each_byte, sse

STREAM = sse({"a": 1}, {"b": "ü"}) + b": ping\n\ndata: no end"


class Seen:
    """A tap that keeps all."""

    def __init__(self) -> None:
        self.requests: list[TappedRequest] = []
        self.answers: list[tuple[int, Mapping[str, str]]] = []
        self.lines: list[tuple[int, bytes]] = []

    def on_request(self, exchange: TappedRequest) -> None:
        self.requests.append(exchange)

    def on_answer(self, exchange: TappedRequest, status: int, headers: Mapping[str, str]) -> None:
        self.answers.append((status, headers))

    def on_line(self, exchange: TappedRequest, line: bytes) -> None:
        self.lines.append((exchange.number, line))


@pytest.fixture
async def http():
    transport = HttpTransport()
    yield transport
    await transport.aclose()


@pytest.mark.parametrize("cuts", [each_byte, at_random(1, 20), lambda body: [body]])
async def test_a_tap_sees_the_request_the_answer_and_every_line(http, cuts):
    seen = Seen()
    async with Playback([Reply(STREAM, cuts=cuts, headers={"set-cookie": "secret=1"})]) as server:
        url = f"{server.base_url}/v1?key=secret&alt=sse"
        async with tapped(http, seen).post(url, {"x-api-key": "secret", "accept": "*/*"}, b"{}") as answer:
            read = b"".join([data async for data in answer.chunks()])
    assert read == STREAM
    [exchange] = seen.requests
    assert exchange.url == f"{server.base_url}/v1?key=***&alt=sse"
    assert exchange.headers == {"x-api-key": "***", "accept": "*/*"}
    assert (exchange.method, exchange.body) == ("POST", b"{}")
    [(status, headers)] = seen.answers
    assert (status, headers["set-cookie"]) == (200, "***")
    assert [line for _, line in seen.lines] == STREAM.splitlines(keepends=True)
    assert {number for number, _ in seen.lines} == {exchange.number}
    assert server.received[0].path == "/v1?key=secret&alt=sse"


async def test_a_tap_sees_a_body_that_is_read_at_once(http):
    seen = Seen()
    async with (
        Playback([Reply(b"one\ntwo", 500)]) as server,
        tapped(http, seen).post(server.base_url, {}, b"") as answer,
    ):
        assert await answer.read(100) == b"one\ntwo"
    assert [line for _, line in seen.lines] == [b"one\n", b"two"]


async def test_a_tap_sees_what_came_before_the_answer_broke_off(http):
    seen = Seen()
    async with (
        Playback([Reply(b"whole\nhalf", framing="length", end="close", after=8)]) as server,
        tapped(http, seen).post(server.base_url, {}, b"") as answer,
    ):
        with pytest.raises(NetError):
            async for _ in answer.chunks():
                pass
    assert [line for _, line in seen.lines] in ([b"whole\n", b"ha"], [])  # as much as was read


async def test_a_line_without_an_end_is_shown_in_pieces(http, monkeypatch):
    monkeypatch.setattr("perdure._io.http.tap.MAX_EVENT_BYTES", 100)
    seen = Seen()
    async with (
        Playback([Reply(b"x" * 1000, cuts=at_random(1, 50))]) as server,
        tapped(http, seen).post(server.base_url, {}, b"") as answer,
    ):
        async for _ in answer.chunks():
            pass
    assert b"".join(line for _, line in seen.lines) == b"x" * 1000
    assert len(seen.lines) > 1


@pytest.mark.parametrize(("size", "lines"), [(100, [b"x" * 100 + b"!\n"]), (101, [b"x" * 101, b"!\n"])])
async def test_a_line_may_be_exactly_as_long_as_an_event_before_it_is_shown_in_pieces(monkeypatch, size, lines):
    monkeypatch.setattr("perdure._io.http.tap.MAX_EVENT_BYTES", 100)
    seen = Seen()
    answer = _TappedResponse(
        cast("Any", InPieces(b"x" * size, b"!\n")), TappedRequest(1, "GET", "http://host.example", {}, b""), (seen,)
    )
    async for _ in answer.chunks():
        pass
    assert [line for _, line in seen.lines] == lines


class InPieces:
    """An answer whose pieces come as they are given."""

    status = 200
    headers: Mapping[str, str] = {}

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    async def chunks(self):
        for piece in self._pieces:
            yield piece


class Failing(Seen):
    def on_answer(self, exchange: TappedRequest, status: int, headers: Mapping[str, str]) -> None:
        raise ZeroDivisionError


async def test_an_error_of_a_tap_ends_the_answer_and_closes_its_connection(http):
    async with Playback([Reply(STREAM, end="stall")]) as server:
        with pytest.raises(ZeroDivisionError):
            async with tapped(http, Failing()).post(server.base_url, {}, b""):
                pass
        await server.until(lambda server: server.hung_up == 1)


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "x-api-key",
        "api-key",
        "X-Goog-Api-Key",
        "proxy-authorization",
        "Cookie",
        "x-amz-security-token",
    ],
)
def test_headers_that_carry_keys_are_masked(name):
    assert mask_headers({name: "secret"}) == {name: "***"}


@pytest.mark.parametrize(
    "name", ["content-type", "anthropic-ratelimit-tokens-remaining", "x-ratelimit-limit-tokens", "x-request-id"]
)
def test_headers_that_carry_none_are_shown(name):
    assert mask_headers({name: "7"}) == {name: "7"}


def test_keys_and_passwords_in_addresses_are_masked():
    url = "https://me:word@host:1/v1?key=k&x=1&X-Amz-Signature=s#end"
    assert mask_url(url) == "https://***@host:1/v1?key=***&x=1&X-Amz-Signature=***#end"


async def test_in_a_context_every_model_is_tapped_and_outside_of_it_none():
    outer, inner = Seen(), Seen()
    async with Playback(lambda _: Reply(sse({"choices": [{"delta": {"content": "Aye."}}]}, "[DONE]"))) as server:
        model = openai_compatible(f"{server.base_url}/v1", "small")

        async def ask() -> None:
            await asyncio.create_task(Agent(model).run("Ready?"))  # taps are known in tasks that the context starts

        with tap_models(outer):
            await ask()
            with tap_models(inner):
                await ask()
        await ask()
    assert (len(server.received), len(outer.requests), len(inner.requests)) == (3, 2, 1)
    assert inner.lines[-1][1].strip() in {b"", b"data: [DONE]"}


@pytest.mark.parametrize(
    ("text", "headers", "masked"),
    [
        ("bad key sk-12345678", {"x-api-key": "sk-12345678"}, "bad key ***"),
        ("bad Bearer sk-12345678, sk-12345678", {"Authorization": "Bearer sk-12345678"}, "bad ***, ***"),
        ("12345678 and 1234567", {"x-api-key": "12345678", "api-key": "1234567"}, "*** and 1234567"),
        ("application/json", {"content-type": "application/json"}, "application/json"),
        ("nothing", {}, "nothing"),
    ],
)
def test_keys_that_an_answer_repeats_are_masked(text: str, headers: Mapping[str, str], masked: str) -> None:
    assert mask_sent_secrets(text, headers) == masked


class Slow(Seen):
    """A tap whose methods are asynchronous."""

    async def _note(self, note: Any, *details: Any) -> None:
        await asyncio.sleep(0)
        note(*details)

    def on_request(self, *details: Any) -> Any:
        return self._note(super().on_request, *details)

    def on_answer(self, *details: Any) -> Any:
        return self._note(super().on_answer, *details)

    def on_line(self, *details: Any) -> Any:
        return self._note(super().on_line, *details)


class Canned:
    """A transport with one answer."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    @asynccontextmanager
    async def post(self, _url: str, _headers: Mapping[str, str], _body: bytes) -> AsyncIterator[Any]:
        yield InPieces(*self._pieces)


async def test_a_tap_may_be_asynchronous() -> None:
    seen = Slow()
    transport = tapped(cast("Any", Canned(b"one\ntw", b"o")), seen)
    async with transport.post("http://host.example", {}, b"{}") as answer:
        assert [data async for data in answer.chunks()] == [b"one\ntw", b"o"]
    assert [each.body for each in seen.requests] == [b"{}"]
    assert seen.answers == [(200, {})]
    assert [line for _, line in seen.lines] == [b"one\n", b"two"]


async def test_the_end_of_an_answer_is_shown_once() -> None:
    seen = Seen()
    request = TappedRequest(1, "GET", "http://host.example", {}, b"")
    answer: Any = _TappedResponse(cast("Any", InPieces(b"no end")), request, (seen,))
    assert [data async for data in answer] == []  # as nobody has asked for its pieces
    pieces = answer.chunks()
    assert [data async for data in pieces] == [b"no end"]
    assert [data async for data in pieces] == []
    assert seen.lines == [(1, b"no end")]
