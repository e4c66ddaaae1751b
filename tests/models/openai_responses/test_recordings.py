"""Recorded traffic of the Responses wire: answers are understood, and what was sent next is what we would send."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from perdure import AuthFailed, BadRequest, ContextOverflow, Message, ModelError, ReplyCutOff, tool_message
from perdure._core.model.protocol import sanitize_reply
from perdure._models.provider_errors.classify import classify_error
from perdure._models.wires.openai_responses import WIRE
from perdure._models.wires.openai_responses.decode import ResponsesDecoder
from perdure.events import ModelEvent, TextDelta
from perdure.models import EncodingMemo
from tests.models.openai_responses.reading import (
    API,
    Oracle,
    head_meaning,
    items_of,
    meaning,
    message_of,
    messages_of,
    profile_of,
    request_of,
    thoughts_in,
    told,
)
from tests.seeds import chance
from tests.wire.recordings import Exchange, Recording, Skipped, chunked, cuts, each_exchange, each_recording

pytestmark = pytest.mark.wire

UNANSWERED = Skipped(
    {
        "15606f": "a background answer is only queued here, and is fetched by other means; we never ask for one",
        "8409c6": "the stream tells an error; that is looked at by itself",
    }
)
UNCONTINUED = Skipped(
    {
        "442662": "previous_response_id: the provider keeps the conversation; we always send all of it",
        "eeeb54": "the client that was recorded lost the arguments of the call on the way back",
    }
)
ERRORS: Mapping[str, type[ModelError]] = {
    "656ebc": AuthFailed,
    "f7f783": BadRequest,
    "ebe63e": ContextOverflow,
    "9d30b7": BadRequest,
}


def test_nothing_is_left_out_that_is_not_there() -> None:
    assert UNANSWERED.unused(API) == UNCONTINUED.unused(API) == []


# -- answers -----------------------------------------------------------------------------------------------------------


@each_exchange(API, where=lambda exchange: exchange.ok)
def test_a_recorded_answer_is_understood_however_it_is_cut_into_pieces(exchange: Exchange) -> None:
    UNANSWERED.check(exchange)
    expected = Oracle(exchange)
    for seed in range(3):
        pieces = exchange.chunks if seed == 0 else chunked(exchange.data, chance(seed))
        events = told(exchange, pieces)
        message = message_of(events)
        assert message.text == expected.text
        assert message.text == "".join([event.text for event in events if isinstance(event, TextDelta)])
        assert message.thinking == expected.thinking
        assert [(call.call_id, call.name, call.arguments) for call in message.tool_calls] == expected.calls
        assert [thought.data for thought in thoughts_in(message) if thought.data] == expected.encrypted
        assert (message.stop, message.usage) == (expected.stop, expected.usage)
        asked = profile_of(exchange)
        assert (message.provider, message.model) == (asked.provider, asked.model)


@each_exchange(API, where=lambda exchange: exchange.ok)
def test_what_we_do_not_understand_of_a_recorded_answer_is_kept_as_it_came(exchange: Exchange) -> None:
    UNANSWERED.check(exchange)
    message = message_of(told(exchange, [exchange.data]))
    kept = [part.details for part in thoughts_in(message) if part.details["type"] != "reasoning"]
    assert kept == Oracle(exchange).foreign


@pytest.mark.faults
@each_exchange(API, where=lambda exchange: exchange.ok)
def test_a_recorded_answer_that_is_cut_off_anywhere_is_never_finished(exchange: Exchange) -> None:
    UNANSWERED.check(exchange)
    whole = message_of(told(exchange, [exchange.data]))
    decoder = WIRE.decoder(profile_of(exchange), exchange.media_type)
    assert isinstance(decoder, ResponsesDecoder)
    seen: list[ModelEvent] = []
    place = 0
    for cut in cuts(exchange.data, most=1200):
        seen += decoder.feed(exchange.data[place:cut])
        place = cut
        rest = ended(forked(decoder))
        if rest is not None:
            assert message_of([*seen, *rest]) == whole
    assert whole.text.startswith("".join([event.text for event in seen if isinstance(event, TextDelta)]))


def forked(decoder: ResponsesDecoder) -> ResponsesDecoder:
    """A decoder that stands where this one stands, to be ended."""
    fork = copy.copy(decoder)
    fork._events = []
    fork._reader = copy.copy(decoder._reader)
    fork._items = {place: copy.copy(item) for place, item in decoder._items.items()}
    for item in fork._items.values():
        item.pieces = [*item.pieces]
    return fork


def ended(decoder: ResponsesDecoder) -> list[ModelEvent] | None:
    try:
        return [*decoder.end()]
    except ReplyCutOff:
        return None


# -- requests ----------------------------------------------------------------------------------------------------------


@each_exchange(API, where=lambda exchange: exchange.ok and exchange.request is not None)
def test_a_recorded_request_that_was_taken_breaks_no_rule(exchange: Exchange) -> None:
    assert [*WIRE.lint(exchange.request, profile_of(exchange))] == []


@each_exchange(API, where=lambda exchange: exchange.ok and exchange.request is not None)
def test_a_recorded_request_is_sent_by_us_as_it_was(exchange: Exchange) -> None:
    UNCONTINUED.check(exchange)
    messages = messages_of(items_of(exchange.request), profile_of(exchange))
    body = sent(exchange, messages, echo=True)
    assert meaning(body["input"]) == meaning(items_of(exchange.request))


@each_recording(API, where=lambda recording: len(recording.exchanges) > 1)
def test_a_recorded_conversation_is_continued_by_us_as_it_was(recording: Recording) -> None:
    UNCONTINUED.check(recording)
    continued = 0
    for first, second in zip(recording.exchanges, recording.exchanges[1:], strict=False):
        before, after = items_of(first.request), items_of(second.request)
        if second.ok and len(after) > len(before) and meaning(after[: len(before)]) == meaning(before):
            check_continuation(first, second)
            continued += 1
    if not continued:
        pytest.skip(f"{recording.label}: its exchanges are no conversation")


def check_continuation(first: Exchange, second: Exchange) -> None:
    """That we, who got the first answer, would have sent what was sent next."""
    before, after = items_of(first.request), items_of(second.request)
    own = profile_of(first)
    asked = messages_of(before, own)
    taken = {call.call_id for message in asked for call in message.tool_calls}
    reply = sanitize_reply(message_of(told(first, [first.data])), taken)
    echoed = [item for item in after[len(before) :] if is_written(item)]
    answers = after[len(before) + len(echoed) :]
    messages = [*asked, reply, *answering(reply, messages_of(answers, own))]
    body = sent(second, messages, echo=echo_of(echoed, reply))
    assert meaning(body["input"]) == meaning(after)
    if second.request.get("tools") == first.request.get("tools"):
        assert head_meaning(body) == head_meaning(second.request)


def answering(reply: Message, messages: Sequence[Message]) -> list[Message]:
    """The results, in order, as those of our calls: clients call them what they like."""
    if not reply.tool_calls:
        return [*messages]
    results = zip(messages[0].tool_results, reply.tool_calls, strict=True)
    renamed = [msgspec.structs.replace(result, call_id=call.call_id) for result, call in results]
    return [tool_message(renamed), *messages[1:]]


def echo_of(echoed: Sequence[Mapping[str, Any]], reply: Message) -> bool | None:
    """Whether the client that was recorded sends reasoning back; nothing when there was none."""
    if any(item.get("type") == "reasoning" for item in echoed):
        return True
    return False if any(part.details["type"] == "reasoning" for part in thoughts_in(reply)) else None


def is_written(item: Mapping[str, Any]) -> bool:
    """Whether a model wrote it."""
    return item.get("role", "assistant") == "assistant" and not str(item.get("type")).endswith("call_output")


def sent(exchange: Exchange, messages: Sequence[Message], echo: bool | None) -> Mapping[str, Any]:
    """What we send, after the rules of the provider have been looked at."""
    profile = profile_of(exchange)
    body = WIRE.encode(request_of(exchange.request, messages, echo), profile, EncodingMemo()).body
    sending = msgspec.json.decode(body)
    problems = [each for each in WIRE.lint(sending, profile) if "store" not in each]
    assert problems == []
    return sending


# -- errors ------------------------------------------------------------------------------------------------------------


@each_exchange(API, where=lambda exchange: not exchange.ok)
def test_a_recorded_refusal_is_classified(exchange: Exchange) -> None:
    error = classify_error(exchange.status, exchange.headers, exchange.data, exchange.provider)
    assert type(error) is ERRORS[exchange.recording[-6:]]


@each_recording(API, where=lambda recording: "error_in_stream" in recording.features)
def test_a_recorded_error_inside_a_stream_is_classified(recording: Recording) -> None:
    (exchange,) = recording.exchanges
    with pytest.raises(AuthFailed, match="exceeded your current quota"):
        told(exchange, chunked(exchange.data, chance(1)))
