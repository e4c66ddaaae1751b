"""Recorded answers of real providers through the front door, `open_model` and `Agent`, over HTTP, whole and cut off.

The decoder alone says what an answer is; everything above it (retries, sanitizing, empty replies, stop reasons, token
counts, costs, the next request) has to make of it what the documentation says. Every recorded answer is run whole. Cut
off is one of each kind, at a place of its own in each run; all of them, at many places, with `PERDURE_SEARCH=long`.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from perdure import Agent, EmptyReply, Message, ModelError, Outcome, StopReason, Usage
from perdure._core.model.protocol import sanitize_reply
from perdure._core.values.message import is_empty
from perdure._models.catalogue.providers import find_provider
from perdure._models.endpoint.wire import load_wire
from perdure._models.provider_errors.classify import classify_error
from perdure.events import ReplyDiscarded, RetryScheduled
from perdure.models import (
    HttpModel,
    HttpTransport,
    Model,
    Price,
    Profile,
    Throttle,
    open_model,
    openai_compatible,
    retried,
)
from perdure.testing import Recorder
from tests.seeds import chance
from tests.wire.recordings import LONG, Exchange, recordings
from tests.wire.server import Playback, Received, Reply, at_random, json_reply
from tests.wire.test_over_http import WIRES, edges, reply_of, told

pytestmark = pytest.mark.wire

ATTEMPTS = 3
PRICE = Price(input_usd=3.0, output_usd=15.0)
APIS = pytest.mark.parametrize("api", WIRES)

_RESPONSES_TEXT = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
LAST: dict[str, Any] = {
    "openai_chat": {"choices": [{"index": 0, "message": {"content": "Done."}, "finish_reason": "stop"}]},
    "openai_responses": {"status": "completed", "output": [_RESPONSES_TEXT]},
    "anthropic": {"content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn"},
    "gemini": {"candidates": [{"content": {"parts": [{"text": "Done."}]}, "finishReason": "STOP"}]},
    "bedrock": {"output": {"message": {"content": [{"text": "Done."}]}}, "stopReason": "end_turn"},
    "ollama": {"message": {"role": "assistant", "content": "Done."}, "done": True, "done_reason": "stop"},
}
"""What every provider answers to the results of calls."""
RESULTS = (b'"role":"tool"', b'"tool_result"', b"tool_call_output", b"function_call_output", b"Response", b"toolResult")
"""What the results of calls look like in a request."""


class SkippingClock:
    """A clock on which nobody has to wait: the time of every timer comes at once."""

    def __init__(self) -> None:
        self._time = 0.0

    def now(self) -> float:
        return 1_700_000_000.0 + self._time

    def monotonic(self) -> float:
        return self._time

    async def sleep(self, seconds: float) -> None:
        self._time += max(seconds, 0.0)
        await asyncio.sleep(0)

    def call_later(self, seconds: float, action: Callable[[], object]) -> asyncio.Handle:
        due = self._time + seconds

        def fire() -> None:
            self._time = max(self._time, due)
            action()

        return asyncio.get_running_loop().call_soon(fire)


@pytest.fixture
async def door(monkeypatch, tmp_path):
    """Opens models whose waiting takes no time, and gives each with the profile that it got."""
    monkeypatch.setenv("PERDURE_PROFILES", str(tmp_path))
    clock, transport, made = SkippingClock(), HttpTransport(), list[HttpModel]()

    class Seen(HttpModel):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            made.append(self)

    monkeypatch.setattr("perdure._models.endpoint.http_model.HttpModel", Seen)
    monkeypatch.setattr("perdure._models.builder.retried", partial(retried, clock=clock))

    def open_(server: Playback, exchange: Exchange) -> tuple[Model, Profile]:
        wire: Any = WIRES[exchange.api]
        options: dict[str, Any] = {
            "api_key": "k",
            "attempts": ATTEMPTS,
            "profile": {"price": {"input_usd": PRICE.input_usd, "output_usd": PRICE.output_usd}},
            "throttle": Throttle(clock=clock),
            "transport": transport,
        }
        name, known = MODELS.get(exchange.recording) or "a-model", find_provider(exchange.provider)
        if known is not None and known.wire == wire and known.name != "openai":  # elsewhere it speaks chat completions
            model = open_model(f"{known.name}:{name}", base_url=server.base_url, **options)
        elif wire == "bedrock":
            model = open_model(f"bedrock:{name}", base_url=server.base_url, **options)
        else:
            model = openai_compatible(server.base_url, name, wire=wire, provider=exchange.provider, **options)
        return model, made[-1].profile

    yield open_
    await transport.aclose()


MODELS = {each.id: each.model for each in recordings()}


def exchanges_of(api: str) -> list[Exchange]:
    return [exchange for recording in recordings(api) for exchange in recording.exchanges]


def answering(exchange: Exchange, *first: Reply) -> Callable[[Received], Reply]:
    """These answers, then the recorded one as often as it is asked for; and the last one after the results of calls."""
    left = list(first)
    last = json_reply(LAST[WIRES[exchange.api]])

    def answer(request: Received) -> Reply:
        if any(sign in request.body for sign in RESULTS):
            return last
        return left.pop(0) if left else reply_of(exchange, cuts=at_random(exchange.index, 2_000))

    return answer


def decoded(exchange: Exchange, profile: Profile, data: bytes) -> Message | type[ModelError]:
    """What the decoder alone makes of an answer: a reply as a session keeps it, or the kind of an error."""
    if not exchange.ok:
        return type(classify_error(exchange.status, exchange.headers, data, exchange.provider))

    def events():
        decoder = load_wire(WIRES[exchange.api]).decoder(profile, exchange.media_type)
        yield from decoder.feed(data)
        yield from decoder.end()

    found: Any = told(events())
    if not isinstance(found, Message):
        return found
    reply = sanitize_reply(found)
    explained = reply.stop in {StopReason.LENGTH, StopReason.CONTENT_FILTER, StopReason.STOP_SEQUENCE}
    return EmptyReply if is_empty(reply) and not explained else reply


def check_outcome(outcome: Outcome[Any], found: Message | type[ModelError], exchange: Exchange) -> None:
    """A run has to end as the decoded answer says."""
    label = exchange.label
    if not isinstance(found, Message):
        assert (outcome.status, outcome.reason) == ("failed", found.__name__), label
        assert [message.role for message in outcome.messages] == ["user"], label
        return
    assert outcome.messages[1:2] == [found], f"{label}: {outcome!r}"
    if found.tool_calls:
        assert (outcome.status, outcome.text, outcome.turns) == ("done", "Done.", 2), label
        results = outcome.messages[2].tool_results
        assert [each.call_id for each in results] == [each.call_id for each in found.tool_calls], label
    elif found.stop in {StopReason.LENGTH, StopReason.CONTENT_FILTER}:
        assert (outcome.status, outcome.reason, outcome.turns) == ("stopped", str(found.stop), 1), label
    elif is_empty(found):
        assert (outcome.status, outcome.reason) == ("stopped", "stop_sequence"), label
    else:
        assert (outcome.status, outcome.text, outcome.turns) == ("done", found.text, 1), label


def check_counts(outcome: Outcome[Any], used: Usage | None, exchange: Exchange) -> None:
    """What was used is counted once, and costs what it costs."""
    assert outcome.usage == (used or Usage()), exchange.label
    if "usage_cost" not in exchange.features:
        assert outcome.cost_usd == pytest.approx(PRICE.cost_usd(outcome.usage)), exchange.label


def check_requests(server: Playback, profile: Profile, exchange: Exchange) -> None:
    """No request breaks a rule of its provider."""
    for received in server.received:
        assert list(load_wire(WIRES[exchange.api]).lint(received.json(), profile)) == [], exchange.label


async def run_at(server: Playback, model: Model) -> tuple[Outcome[Any], Recorder]:
    recorder = Recorder()
    async with asyncio.timeout(30):
        return await Agent(model, watchers=[recorder]).run("hello"), recorder


def retries_in(recorder: Recorder) -> list[RetryScheduled]:
    """The attempts that were repeated; attempt 0 is a request that waits for a slot of its key."""
    return [each for each in recorder.of(RetryScheduled) if each.attempt]


@APIS
async def test_every_recorded_answer_ends_a_run_as_it_says(door, api):
    for exchange in exchanges_of(api):
        async with Playback(answering(exchange)) as server:
            model, profile = door(server, exchange)
            outcome, recorder = await run_at(server, model)
            found = decoded(exchange, profile, exchange.data)
        check_outcome(outcome, found, exchange)
        check_requests(server, profile, exchange)
        if isinstance(found, Message):
            assert len(server.received) == outcome.turns, exchange.label
            check_counts(outcome, found.usage, exchange)
        else:
            attempts = ATTEMPTS if found.retryable else 1
            assert len(server.received) == attempts, exchange.label
            assert len(retries_in(recorder)) == attempts - 1, exchange.label


# -- cut off -----------------------------------------------------------------------------------------------------------


def kind_of(exchange: Exchange) -> tuple[object, ...]:
    """What makes one recording different from another, for those who have to choose."""
    signs = exchange.features & {
        "tool_call",
        "thinking",
        "parallel_tools",
        "finish_length",
        "refusal",
        "empty_response",
    }
    return exchange.provider, exchange.streamed, frozenset(signs)


def to_cut(api: str) -> list[tuple[Exchange, Sequence[int]]]:
    """Answers, and after how many bytes to cut them: one of each kind, or all of them when there is time."""
    draw = chance("front door", api)
    answers = [each for each in exchanges_of(api) if each.ok and len(each.data) > 1]
    if LONG:
        return [
            (each, draw.sample(edges(each)[1:-1] or [1], k=min(12, len(edges(each)[1:-1]) or 1))) for each in answers
        ]
    draw.shuffle(answers)
    chosen = {kind_of(each): each for each in answers}
    return [(each, [draw.randrange(1, len(each.data))]) for each in chosen.values()]


@APIS
@pytest.mark.faults
@pytest.mark.timeout(1800 if LONG else 60)
async def test_an_answer_that_was_cut_off_is_asked_for_again_and_leaves_no_trace(door, api):
    for exchange, places in to_cut(api):
        for place in places:
            await check_cut(door, exchange, place)


async def check_cut(door: Any, exchange: Exchange, place: int) -> None:
    """Cut off once, the run ends as with the whole answer; cut off always, as with none."""
    end: Any = chance("end", exchange.label, place).choice(["close", "reset"])
    cut = reply_of(exchange, end=end, after=place)
    async with Playback(answering(exchange, cut)) as server:
        model, profile = door(server, exchange)
        outcome, recorder = await run_at(server, model)
    found = decoded(exchange, profile, exchange.data)
    part = decoded(exchange, profile, exchange.data[:place])
    if isinstance(part, Message) or not part.retryable:  # it was all there, or it failed for good
        check_outcome(outcome, part, exchange)
        return
    check_outcome(outcome, found, exchange)
    check_requests(server, profile, exchange)
    assert retries_in(recorder)[0].error == part.__name__, exchange.label
    if isinstance(found, Message):
        discarded = [each.partial.usage for each in recorder.of(ReplyDiscarded) if each.partial is not None]
        spent = sum([each for each in discarded if each is not None], found.usage or Usage())
        check_counts(outcome, spent, exchange)
    async with Playback(answering(exchange, *[cut] * ATTEMPTS)) as server:
        model, _ = door(server, exchange)
        outcome, _ = await run_at(server, model)
    check_outcome(outcome, part, exchange)
    assert len(server.received) == ATTEMPTS, exchange.label
