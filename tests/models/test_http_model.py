"""A model over the network: from a request to events, and whatever goes wrong on the way as one of our errors."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from perdure import (
    Agent,
    AuthFailed,
    BadRequest,
    ContextOverflow,
    ModelError,
    ProviderDown,
    RateLimited,
    ReplyCutOff,
    StopReason,
    Usage,
    user,
)
from perdure._core.values.clock import SystemClock
from perdure._io.http.sse import SseParser
from perdure._models.endpoint.wire import load_wire
from perdure._models.provider_errors.classify import classify_error
from perdure.events import ErrorRaised, ModelEvent, ReplyFinished, RetryScheduled, TextDelta
from perdure.models import (
    Deadlines,
    EncodedRequest,
    EncodingMemo,
    FixedHeaders,
    HttpModel,
    HttpTransport,
    Profile,
    Request,
    Throttle,
    ToolSpec,
    assemble_reply,
)
from perdure.testing import FakeClock
from tests.wire.server import Playback, Received, Reply, at_random, gzipped, json_reply, sse

# -- a wire of our own, as small as a wire can be ----------------------------------------------------------------------


class TinyDecoder:
    """`{"say": text}`, then `{"done": tokens}`; as a stream of events, or in one piece."""

    done = False

    def __init__(self, profile: Profile, media_type: str) -> None:
        self._profile = profile
        self._reader = SseParser(max_bytes=10_000) if media_type == "text/event-stream" else None
        self._whole = b""
        self._tokens: int | None = None

    def feed(self, data: bytes) -> Iterator[ModelEvent]:
        if self._reader is None:
            self._whole += data
            return
        for _, event in self._reader.feed(data):
            yield from self._said(json.loads(event))

    def _said(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        if "error" in event:
            raise classify_error(0, {}, json.dumps(event), self._profile.provider)
        if "say" in event:
            yield TextDelta(event["say"])
        self._tokens = event.get("done", self._tokens)

    def end(self) -> Iterator[ModelEvent]:
        if self._reader is None:
            try:
                yield from self._said(json.loads(self._whole))
            except ValueError:
                raise ReplyCutOff("half of an answer") from None
        if self._tokens is None:
            raise ReplyCutOff("there was more to come")
        usage = Usage(0, self._tokens)
        yield ReplyFinished(StopReason.STOP, usage, self._profile.model, self._profile.provider)


class TinyWire:
    name = "tiny"

    def encode(self, request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
        said = {"say": request.messages[-1].text, "tools": [tool.name for tool in request.tools]}
        return EncodedRequest("/ask", msgspec.json.encode(said), {"X-Tiny": "1"})

    def decoder(self, profile: Profile, media_type: str) -> TinyDecoder:
        return TinyDecoder(profile, media_type)

    def lint(self, body: Mapping[str, Any], profile: Profile) -> Sequence[str]:
        if body["say"] == "unlintable":
            raise KeyError("say")
        return [f"the word {word!r} is not known" for word in body["say"].split()[1:]]


WORDS = ["Háy ", "is ", "made ", "while ", "the ", "sun ", "shines."]
STREAM = sse(*[{"say": word} for word in WORDS], {"done": 7})
REQUEST = Request(messages=[user("hello")])
PROFILE = Profile(provider="tiny", model="small")


@pytest.fixture
async def http():
    transport = HttpTransport()
    yield transport
    await transport.aclose()


def endpoint(server: Playback, transport: HttpTransport, **options: Any) -> HttpModel:
    options.setdefault("throttle", Throttle())
    options.setdefault("auth", FixedHeaders({"authorization": "Bearer of-a-secret"}))
    profile = options.pop("profile", PROFILE)
    base_url = options.pop("base_url", server.base_url + "/v1/")
    return HttpModel(TinyWire(), profile, base_url=base_url, transport=transport, **options)


async def events_of(model: HttpModel, request: Request = REQUEST) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


def words_of(events: Sequence[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def is_whole(events: Sequence[ModelEvent]) -> bool:
    return isinstance(events[-1], ReplyFinished) and words_of(events) == "".join(WORDS)


# -- asked and answered ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
async def test_a_stream_is_told_as_events_however_it_is_cut(http, seed):
    async with Playback([Reply(STREAM, cuts=at_random(seed, 30))]) as server:
        events = await events_of(endpoint(server, http))
    assert is_whole(events)
    assert events[-1] == ReplyFinished(StopReason.STOP, Usage(0, 7), "small", "tiny")


async def test_an_answer_in_one_piece_is_told_as_the_same_events(http):
    async with Playback([json_reply({"say": "all at once", "done": 3})]) as server:
        events = await events_of(endpoint(server, http, profile=msgspec.structs.replace(PROFILE, streams=False)))
    assert words_of(events) == "all at once"
    assert isinstance(events[-1], ReplyFinished)


async def test_what_is_sent_is_what_wire_and_key_say(http):
    async with Playback([Reply(STREAM)]) as server:
        await events_of(endpoint(server, http))
    [request] = server.received
    assert (request.path, request.json()["say"]) == ("/v1/ask", "hello")
    assert request.headers["x-tiny"] == "1"
    assert request.headers["authorization"] == "Bearer of-a-secret"
    assert request.headers["content-type"] == "application/json"


async def test_a_query_of_the_base_address_goes_with_every_request(http):
    async with Playback([Reply(STREAM)]) as server:
        await events_of(endpoint(server, http, base_url=f"{server.base_url}/openai?api-version=1"))
    assert server.received[0].path == "/openai/ask?api-version=1"


async def test_one_connection_serves_one_turn_after_another(http):
    async with Playback(lambda _: Reply(STREAM, cuts=at_random(1))) as server:
        model = endpoint(server, http)
        for _ in range(4):
            assert is_whole(await events_of(model))
    assert server.connections == 1


def test_it_shows_neither_key_nor_password():
    model = HttpModel(
        TinyWire(), PROFILE, base_url="https://me:secret@host/v1?key=secret", auth=FixedHeaders({"a": "secret"})
    )
    assert "secret" not in repr(model)
    assert "small" in repr(model)


def test_it_says_which_model_it_is_and_where():
    model = HttpModel(TinyWire(), PROFILE, base_url="https://host/v1/?key=secret")
    assert repr(model) == "HttpModel('small' at 'https://host/v1')"


def test_making_one_does_not_import_aiohttp():
    code = (
        "import sys; from perdure.models import HttpModel; from perdure.models import Profile\n"
        "HttpModel(None, Profile(provider='p', model='m'), base_url='http://localhost')\n"
        "print('aiohttp' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == "False\n"


def test_scripts_may_run_it_twice_and_from_loops_of_their_own():
    with Playback(lambda _: Reply(STREAM)) as server:
        model = endpoint(server, HttpTransport())
        agent = Agent(model)
        assert agent.run_sync("one").text == agent.run_sync("two").text == "".join(WORDS)
        for _ in range(2):
            assert is_whole(asyncio.run(events_of(model)))


# -- broken on the way -------------------------------------------------------------------------------------------------


def edges(stream: bytes) -> list[int]:
    """Every end of an event, and one byte either side."""
    ends = [place + 2 for place in range(len(stream)) if stream[place : place + 2] == b"\n\n"]
    return sorted({place + step for place in [0, *ends] for step in (-1, 0, 1) if 0 <= place + step <= len(stream)})


@pytest.mark.parametrize("end", ["close", "reset", "garbage"])
@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
async def test_an_answer_that_is_cut_is_never_taken_for_a_whole_one(http, end, framing, monkeypatch):
    monkeypatch.setattr("perdure._io.http.timeouts.MAX_CHECK_SECONDS", 0.01)
    places = edges(STREAM)
    replies = [Reply(STREAM, end=end, after=place, framing=framing, cuts=at_random(place)) for place in places]
    async with Playback(replies) as server:
        model = endpoint(server, http)
        for place in places:
            try:
                async with asyncio.timeout(30):
                    events = await events_of(model)
            except (ReplyCutOff, ProviderDown):
                assert place < len(STREAM) or end != "close" or framing != "close"
            else:
                assert is_whole(events)
                assert place >= len(STREAM) - 1  # the last line end tells nothing that is not known


async def test_an_answer_that_has_said_all_is_whole_even_when_it_ends_badly(http):
    async with Playback([Reply(STREAM, end="close")]) as server:
        assert is_whole(await events_of(endpoint(server, http)))


async def test_a_silence_in_the_middle_is_a_reply_cut_off():
    http = HttpTransport(deadlines=Deadlines(idle_seconds=0.05))
    async with Playback([Reply(STREAM, end="stall", after=60)]) as server:
        with pytest.raises(ReplyCutOff, match=r"small broke off: .* has sent nothing for 0.05 s"):
            await events_of(endpoint(server, http))
    await http.aclose()


class Hasty(SystemClock):
    """Every look at it is a minute later."""

    def __init__(self) -> None:
        self._minutes = 0

    def monotonic(self) -> float:
        self._minutes += 1
        return self._minutes * 60.0


async def test_pings_alone_do_not_keep_an_answer_alive(http):
    async with Playback([Reply(sse({"say": "well"}), cuts=lambda body: [body, b": ping\n\n"], end="repeat")]) as server:
        with pytest.raises(ReplyCutOff, match="broke off: no content for 300 s, though the connection"):
            await events_of(endpoint(server, http, progress_seconds=300.0, clock=Hasty()))
        await server.until(lambda server: server.hung_up == 1)


async def test_an_answer_that_has_said_all_is_whole_even_when_only_pings_follow(http):
    async with Playback([Reply(STREAM, cuts=lambda body: [body, b": ping\n\n"], end="repeat")]) as server:
        assert is_whole(await events_of(endpoint(server, http, progress_seconds=300.0, clock=Hasty())))


async def test_words_are_progress(http):
    body = b"".join(b": ping\n\n" * 4 + sse({"say": word}) for word in WORDS) + sse({"done": 1})
    async with Playback([Reply(body, cuts=lambda body: body.splitlines(keepends=True))]) as server:
        assert is_whole(await events_of(endpoint(server, http, progress_seconds=1200.0, clock=Hasty())))


async def test_an_event_that_is_too_large_is_not_worth_asking_again(http):
    async with Playback([Reply(sse({"say": "x" * 20_000}), cuts=at_random(1))]) as server:
        with pytest.raises(ModelError, match="cannot be read: one event of a stream is larger than") as raised:
            await events_of(endpoint(server, http))
    assert not raised.value.retryable


async def test_a_compressed_bomb_is_not_worth_asking_again():
    http = HttpTransport(max_bytes=100_000)
    async with Playback([gzipped(b" " * 5_000_000)]) as server:
        with pytest.raises(ModelError, match="exceeds the size limit") as raised:
            await events_of(endpoint(server, http))
    assert not raised.value.retryable
    await http.aclose()


async def test_nobody_there_is_a_provider_that_is_down(http):
    async with Playback([]) as server:
        model = endpoint(server, http)
    with pytest.raises(ProviderDown, match="small of tiny cannot be reached: cannot connect to"):
        await events_of(model)


async def test_no_error_carries_the_key(http):
    async with Playback([Reply(STREAM, end="reset", after=30)]) as server:
        with pytest.raises(ModelError) as raised:
            await events_of(endpoint(server, http))
    error: BaseException | None = raised.value
    while error is not None:
        assert "secret" not in f"{error!r} {error}"
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    "reply",
    [
        json_reply({"error": {"message": "of-a-secret is not known here"}}, 401),
        Reply(sse({"error": {"message": "nobody answers to Bearer of-a-secret"}})),
    ],
)
async def test_a_key_that_the_provider_repeats_is_not_told(http, reply):
    async with Playback([reply]) as server:
        with pytest.raises(ModelError, match=r"\*\*\*") as raised:
            await events_of(endpoint(server, http))
    assert "secret" not in str(raised.value)


def has_hung_up(times: int) -> Callable[[Playback], bool]:
    return lambda server: server.hung_up == times


def has_received(requests: int) -> Callable[[Playback], bool]:
    return lambda server: len(server.received) == requests


# -- left early --------------------------------------------------------------------------------------------------------


async def test_whoever_stops_listening_closes_the_connection_and_frees_the_slot(http):
    async with Playback(lambda _: Reply(STREAM, end="stall")) as server:
        model = endpoint(server, http, throttle=Throttle(concurrency=1))
        for heard in range(1, 4):
            stream = model.stream(REQUEST)
            assert isinstance(await anext(stream), TextDelta)
            await stream.aclose()
            await server.until(has_hung_up(heard))
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("headless", [True, False])
async def test_cancelling_ends_at_once_and_frees_the_slot(http, headless):
    async with Playback(lambda _: Reply(STREAM, end="stall", headless=headless)) as server:
        model = endpoint(server, http, throttle=Throttle(concurrency=1))
        for heard in range(1, 4):
            asking = asyncio.create_task(events_of(model))
            await server.until(has_received(heard))
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await server.until(has_hung_up(heard))
    assert asyncio.all_tasks() == {asyncio.current_task()}


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, BadRequest),
        (401, AuthFailed),
        (404, BadRequest),
        (429, RateLimited),
        (500, ProviderDown),
        (529, ProviderDown),
    ],
)
async def test_a_refusal_is_classified(http, status, error):
    async with Playback([json_reply({"error": {"message": "no, thank you"}}, status, retry_after="3")]) as server:
        with pytest.raises(error, match="no, thank you") as raised:
            await events_of(endpoint(server, http))
    assert raised.value.retry_after_seconds == 3


async def test_a_refusal_names_the_rules_that_the_request_breaks(http):
    refused = json_reply({"error": {"message": "Invalid request"}}, 400)
    async with Playback([refused] * 3) as server:
        model = endpoint(server, http)
        with pytest.raises(BadRequest, match=r"Invalid request.*may be the reason: the word 'b' is not known; the"):
            await events_of(model, Request(messages=[user("a b c")]))
        for said in ("hello", "unlintable"):
            with pytest.raises(BadRequest, match="Invalid request") as raised:
                await events_of(model, Request(messages=[user(said)]))
            assert "may be the reason" not in str(raised.value)


async def test_a_refusal_that_breaks_off_still_has_a_status(http):
    async with Playback([Reply(b"{" * 100, 503, end="close", framing="length", after=10)]) as server:
        with pytest.raises(ProviderDown):
            await events_of(endpoint(server, http))


async def test_an_endless_refusal_is_read_in_part(http):
    async with Playback([Reply(b"no " * 10_000, 500, media_type="text/plain", end="repeat")]) as server:
        with pytest.raises(ProviderDown):
            await events_of(endpoint(server, http))
        await server.until(lambda server: server.hung_up == 1)


async def test_an_error_inside_a_stream_is_classified(http):
    async with Playback(
        [Reply(sse({"say": "well"}, {"error": {"type": "rate_limit_error", "message": "slow"}}))]
    ) as server:
        with pytest.raises(RateLimited, match="slow"):
            await events_of(endpoint(server, http))


async def test_a_redirect_is_told_and_not_followed(http):
    async with Playback([Reply(b"", 301, {"location": "https://example.com/v2?key=secret"})]) as server:
        with pytest.raises(BadRequest, match=r"a redirect to 'https://example.com/v2\?key=\*\*\*' \(HTTP 301\)"):
            await events_of(endpoint(server, http))


async def test_a_web_page_is_no_answer(http):
    async with Playback([Reply(b"<html>Sign in</html>", media_type="text/html; charset=utf-8")]) as server:
        with pytest.raises(BadRequest, match=r"answers with a web page instead of a reply .*check base_url"):
            await events_of(endpoint(server, http))


async def test_the_window_is_learned_from_an_overflow(http):
    told = {
        "error": {"message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded"}
    }
    async with Playback([json_reply(told, 400)] * 2) as server:
        model = endpoint(server, http)
        with pytest.raises(ContextOverflow):
            await events_of(model)
        assert (model.info.context_tokens, model.profile.context_tokens) == (8192, 8192)
        known = endpoint(server, http, profile=msgspec.structs.replace(PROFILE, context_tokens=4096))
        with pytest.raises(ContextOverflow):
            await events_of(known)
        assert known.info.context_tokens == 4096


class Renewing(FixedHeaders):
    """A key that can be renewed, as often as asked."""

    def __init__(self) -> None:
        super().__init__({}, "renewing")
        self.keys = 1

    async def headers(self, url: str, body: bytes) -> Mapping[str, str]:
        return {"authorization": f"key {self.keys}"}

    async def renew(self) -> bool:
        self.keys += 1
        return True


async def test_a_key_that_is_not_known_any_more_is_renewed_once(http):
    auth = Renewing()
    async with Playback([Reply(b"", 401), Reply(STREAM)]) as server:
        assert is_whole(await events_of(endpoint(server, http, auth=auth)))
    assert [request.headers["authorization"] for request in server.received] == ["key 1", "key 2"]


async def test_a_renewed_key_that_is_not_known_either_is_told(http):
    async with Playback(lambda _: Reply(b"", 401)) as server:
        with pytest.raises(AuthFailed):
            await events_of(endpoint(server, http, auth=Renewing()))
    assert len(server.received) == 2


def refusing_one_tool(request: Received) -> Reply:
    tools = request.json()["tools"]
    if "odd" in tools:
        return json_reply({"error": {"message": f"tools[{tools.index('odd')}].function.parameters: bad schema"}}, 400)
    return Reply(STREAM)


async def test_one_tool_that_is_refused_is_left_out_and_told(http):
    tools = [ToolSpec("plain", "", {"type": "object"}), ToolSpec("odd", "", {"type": "object"})]
    async with Playback(refusing_one_tool) as server:
        model = endpoint(server, http)
        warning, *events = await events_of(model, msgspec.structs.replace(REQUEST, tools=tools))
        assert is_whole(await events_of(model, msgspec.structs.replace(REQUEST, tools=tools)))
    assert isinstance(warning, ErrorRaised)
    assert (warning.error, warning.where) == ("BadRequest", "model")
    assert "'odd'" in warning.message
    assert is_whole(events)
    assert [request.json()["tools"] for request in server.received] == [["plain", "odd"], ["plain"], ["plain"]]


# -- limits ------------------------------------------------------------------------------------------------------------


async def test_a_rate_limit_holds_all_requests_of_the_key_and_says_so(http):
    clock = FakeClock()
    throttle = Throttle(clock=clock, jitter=lambda: 0.0)
    async with Playback([json_reply({}, 429, retry_after="20"), Reply(STREAM), Reply(STREAM)]) as server:
        model = endpoint(server, http, throttle=throttle, clock=clock)
        with pytest.raises(RateLimited):
            await events_of(model)
        others = [asyncio.create_task(events_of(model)) for _ in range(2)]
        await clock.advance(19)
        assert len(server.received) == 1
        await clock.advance(1)
        for waiting, *events in await asyncio.wait_for(asyncio.gather(*others), 30):
            assert isinstance(waiting, RetryScheduled)
            assert (waiting.attempt, waiting.error) == (0, "RateLimited")
            assert is_whole(events)


async def test_an_overloaded_provider_is_given_a_pause(http):
    clock = FakeClock()
    throttle = Throttle(clock=clock, jitter=lambda: 0.0)
    async with Playback([json_reply({}, 529), Reply(STREAM)]) as server:
        model = endpoint(server, http, throttle=throttle, clock=clock)
        with pytest.raises(ProviderDown):
            await events_of(model)
        assert throttle.try_take_slot() is None
        await clock.advance(1)
        assert is_whole(await events_of(model))


async def test_no_more_are_under_way_than_are_allowed(http):
    under_way: list[int] = []

    async def answer(_: Received) -> Reply:
        under_way.append(len(server.received) - len(under_way))
        return Reply(STREAM, cuts=at_random(1))

    async with Playback(answer) as server:
        model = endpoint(server, http, throttle=Throttle(concurrency=2))
        answers = await asyncio.gather(*[events_of(model) for _ in range(12)])
    assert all(map(is_whole, answers))
    assert server.connections <= 2


async def test_what_an_answer_has_used_is_counted(http):
    throttle = Throttle(tokens_per_minute=1000, clock=FakeClock())
    body = sse({"say": "x", "done": 960})
    async with Playback([Reply(body)]) as server:
        await events_of(endpoint(server, http, throttle=throttle))
    assert throttle.try_take_slot(41) is None
    assert throttle.try_take_slot(40) is not None


@pytest.mark.parametrize(
    ("wire", "events"),
    [
        ("openai_chat", [{"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]}, "[DONE]"]),
        (
            "anthropic",
            [
                {"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
                {"type": "message_stop"},
            ],
        ),
        (
            "openai_responses",
            [
                {
                    "type": "response.completed",
                    "response": {
                        "status": "completed",
                        "output": [{"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Hi"}]}],
                        "usage": {"input_tokens": 1, "output_tokens": 2},
                    },
                }
            ],
        ),
    ],
)
async def test_an_answer_that_has_said_all_is_not_waited_for(http, monkeypatch, wire, events):
    monkeypatch.setattr("perdure._models.endpoint.http_model.DRAIN_SECONDS", 0.05)
    async with Playback([Reply(sse(*events), end="stall")]) as server:
        model = HttpModel(load_wire(wire), Profile(provider="p", model="m"), base_url=server.base_url, transport=http)
        async with asyncio.timeout(30):
            told = [event async for event in model.stream(Request(messages=(user("Hello"),)))]
    assert isinstance(told[-1], ReplyFinished)
    assert assemble_reply(told[:-1], told[-1]).text == "Hi"


async def test_who_waits_is_told_why_and_for_how_long(http):
    clock = FakeClock()
    throttle = Throttle(clock=clock, jitter=lambda: 0.0)
    throttle.pause(20)
    async with Playback([Reply(STREAM), Reply(STREAM)]) as server:
        model = endpoint(server, http, throttle=throttle, clock=clock)
        others = [asyncio.create_task(events_of(model)) for _ in range(2)]
        await clock.advance(19)
        await clock.advance(1)
        first, second = [events[0] for events in await asyncio.wait_for(asyncio.gather(*others), 30)]
    assert first == RetryScheduled(0, 0, 19.0, "RateLimited", "waiting to send: the provider asked for a pause")
    assert second == RetryScheduled(
        0, 0, 0.0, "RateLimited", "waiting to send: 1 requests with the same key are ahead of it"
    )


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (
            Reply(b"<html>", media_type="text/html; charset=utf-8", framing="length"),
            (
                "'{base}' answers with a web page instead of a reply (HTTP 200): "
                "check base_url, which must be the API of tiny"
            ),
        ),
        (
            json_reply({}, 302, location="https://other.example/x?token=abc"),
            (
                "'{base}' answers with a redirect to 'https://other.example/x?token=***' (HTTP 302), which is not "
                "followed: check base_url, which must be the API of tiny"
            ),
        ),
    ],
)
async def test_an_address_that_is_no_api_is_told_in_full(http, reply, told):
    async with Playback([reply]) as server:
        with pytest.raises(BadRequest) as caught:
            await events_of(endpoint(server, http))
    assert str(caught.value) == told.format(base=f"{server.base_url}/v1")


async def test_a_reply_that_broke_off_is_told_with_its_model(http):
    async with Playback([Reply(STREAM, end="close", after=40)]) as server:
        with pytest.raises(ReplyCutOff, match=r"^the reply of small broke off: "):
            await events_of(endpoint(server, http))


async def test_at_most_three_broken_rules_are_named(http):
    async with Playback([json_reply({"error": {"message": "no"}}, 400)]) as server:
        with pytest.raises(BadRequest) as caught:
            await events_of(endpoint(server, http), Request(messages=[user("a b c d e")]))
    assert str(caught.value) == (
        "tiny rejected the request (HTTP 400): no. The request has to be changed; a retry does not help. "
        "What may be the reason: the word 'b' is not known; the word 'c' is not known; the word 'd' is not known."
    )


@pytest.mark.parametrize(
    ("reply", "seconds"),
    [
        (json_reply({}, 503, retry_after="20"), 20),
        (json_reply({}, 503), 1),
        (json_reply({}, 529), 1),
        (json_reply({}, 429), 1),
        (json_reply({}, 500, retry_after="7"), 7),
        (json_reply({}, 500), 0),
        (json_reply({}, 400), 0),
    ],
)
async def test_requests_pause_for_as_long_as_a_refusal_asks(http, reply, seconds):
    clock = FakeClock()
    throttle = Throttle(clock=clock, jitter=lambda: 0.0)
    async with Playback([reply]) as server:
        with pytest.raises(ModelError):
            await events_of(endpoint(server, http, throttle=throttle, clock=clock))
    if seconds:
        await clock.advance(seconds - 0.1)
        assert throttle.try_take_slot() is None
        await clock.advance(0.1)
    assert throttle.try_take_slot() is not None


async def test_a_redirect_to_nowhere_is_an_error_of_its_status(http):
    async with Playback([Reply(b"", 302)]) as server:
        with pytest.raises(ModelError, match=r"\(HTTP 302\)") as caught:
            await events_of(endpoint(server, http))
    assert "redirect" not in str(caught.value)


async def test_a_key_is_not_renewed_once_the_reply_has_begun(http):
    auth = Renewing()
    refusal = {"error": {"type": "authentication_error", "message": "no such key"}}
    async with Playback([Reply(sse({"say": "well"}, refusal))]) as server:
        with pytest.raises(AuthFailed, match="no such key"):
            await events_of(endpoint(server, http, auth=auth))
    assert (auth.keys, len(server.received)) == (1, 1)


async def test_a_query_is_added_to_that_of_the_path(http):
    class Asking(TinyWire):
        def encode(self, request: Request, profile: Profile, memo: EncodingMemo) -> EncodedRequest:
            return EncodedRequest("/ask?alt=sse", b"{}", {})

    async with Playback([Reply(STREAM)]) as server:
        base_url = f"{server.base_url}/openai/?api-version=1"
        await events_of(HttpModel(Asking(), PROFILE, base_url=base_url, transport=http, throttle=Throttle()))
    assert server.received[0].path == "/openai/ask?alt=sse&api-version=1"


@pytest.mark.parametrize(("pings", "is_alive"), [(5, True), (6, False)])
async def test_an_answer_may_be_quiet_for_as_long_as_the_limit(http, pings, is_alive):
    pieces = [sse({"say": "".join(WORDS)}), *[b": ping\n\n"] * (pings + 1), sse({"done": 1})]

    class Whole:
        status, headers = 200, {"content-type": "text/event-stream"}

        async def chunks(self):
            for each in pieces:
                yield each

    class Scripted:
        @asynccontextmanager
        async def post(self, url, headers, body):
            yield Whole()

    transport: Any = Scripted()
    options: Any = {"progress_seconds": 300.0, "clock": Hasty(), "throttle": Throttle()}
    model = HttpModel(TinyWire(), PROFILE, base_url="https://a.example", transport=transport, **options)
    if is_alive:
        assert is_whole(await events_of(model))
        return
    with pytest.raises(ReplyCutOff) as caught:
        await events_of(model)
    assert str(caught.value) == ("the reply of small broke off: no content for 300 s, though the connection is alive")


@pytest.mark.parametrize("status", [300, 399])
async def test_every_redirect_is_told(http, status):
    async with Playback([json_reply({}, status, location="https://other.example/")]) as server:
        with pytest.raises(BadRequest, match=rf"a redirect to 'https://other.example/' \(HTTP {status}\)"):
            await events_of(endpoint(server, http))


async def test_who_is_cancelled_while_it_waits_is_not_in_the_way_of_others(http):
    clock = FakeClock()
    throttle = Throttle(clock=clock, jitter=lambda: 0.0)
    throttle.pause(20)
    async with Playback([]) as server:
        waiting = asyncio.create_task(events_of(endpoint(server, http, throttle=throttle, clock=clock)))
        await clock.advance(10)
        waiting.cancel()
        await asyncio.wait([waiting])
        await clock.advance(10)
    assert throttle.try_take_slot() is not None
    assert server.received == []
