"""Recorded traffic of this wire: what was answered is understood, what was sent next is what we would send."""

from typing import Any

import msgspec
import pytest

from perdure import (
    AuthFailed,
    BadRequest,
    ContentRefused,
    ContextOverflow,
    Message,
    ModelError,
    ProviderDown,
    RateLimited,
    ReplyCutOff,
    Thinking,
)
from perdure._core.model.protocol import sanitize_reply
from perdure._models.provider_errors.classify import classify_error
from perdure._models.wires.openai_chat import WIRE
from perdure._models.wires.openai_chat.decode import ChatDecoder
from perdure.events import ModelEvent, ReplyFinished
from perdure.models import EncodingMemo, Profile, Request, assemble_reply
from tests.models.openai_chat.oracle import Told, meaning, told
from tests.models.openai_chat.reading import (
    instructions_of,
    meant,
    messages_of,
    profile_of,
    settings_of,
    tools_of,
)
from tests.seeds import chance
from tests.wire.recordings import (
    Exchange,
    Recording,
    Skipped,
    chunked,
    copied,
    cuts,
    each_exchange,
    each_recording,
    recordings,
)

API = "openai-chat"

FAILED = Skipped(
    {
        "06ea07-0": "an error is told in the stream, see the test for those",
        "2136d0-0": "an error is told in the last chunk, see the test for those",
        "fd05cd-1": "the body of the 200 is an error, see the test for those",
    }
)
"""Answers with status 200 that are none."""

OTHERWISE = Skipped(
    {
        "6005a8": "the client writes thinking into the text",
        "b0034f": "the client lost the text of a reply with calls",
        "c43af0": "the client lost the first piece of the thinking",
        "eeca85": "the results have no ids, which this provider forgives",
    }
)
"""Where the recorded client did otherwise than we would."""

REPLACED = Skipped(
    {
        "64b3af": "the recorder replaced the ids of calls by others, of another form",
        "fb98f8-1": "the recorder replaced the ids of calls by others, of another form",
        "eeca85-1": "the results have no ids, which this provider forgives",
    }
)
"""Requests that are not what was sent, or that we are stricter about than their provider."""


@pytest.mark.wire
@each_exchange(API, where=lambda exchange: exchange.ok)
def test_a_recorded_answer_is_understood_in_pieces_of_any_size(exchange: Exchange) -> None:
    FAILED.check(exchange)
    expected = told(exchange.data, streamed=exchange.streamed)
    for pieces in (exchange.chunks, chunked(exchange.data, chance(exchange.label))):
        events = heard(ChatDecoder(profile_of(exchange)), pieces)
        assert isinstance(events[-1], ReplyFinished)
        agree(assemble_reply(events, events[-1]), expected)
        agree(assemble_reply(events[:-1], msgspec.structs.replace(events[-1], message=None)), expected, whole=False)


def heard(decoder: ChatDecoder, pieces: list[bytes]) -> list[ModelEvent]:
    """All that a decoder says about these pieces."""
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return [*events, *decoder.end()]


def agree(message: Message, expected: Told, *, whole: bool = True) -> None:
    """Fail unless a message says what was recorded."""
    assert message.text == expected.text
    assert message.thinking == expected.thinking
    assert [(call.call_id, call.name, meaning(call.arguments)) for call in message.tool_calls] == expected.signed_calls
    assert expected.stop in {None, str(message.stop)}
    assert details_of(message) == (expected.details if whole else [])
    if not expected.usage:
        assert message.usage is None
        return
    assert message.usage is not None
    assert message.usage.precision == "exact"
    assert message.usage.total_tokens == expected.usage["total_tokens"]
    assert message.usage.input_tokens == expected.usage["prompt_tokens"]
    assert message.usage.cache_read_tokens == expected.cached_tokens
    assert message.usage.reasoning_tokens == expected.reasoning_tokens


def details_of(message: Message) -> list[dict[str, Any]]:
    """The blocks of reasoning that a message keeps."""
    thoughts = [part for part in message.parts if isinstance(part, Thinking)]
    return [block for thought in thoughts for block in thought.details.get("reasoning_details", [])]


@pytest.mark.wire
@pytest.mark.faults
@each_exchange(API, where=lambda exchange: exchange.ok and exchange.streamed and FAILED.reason(exchange) is None)
def test_a_stream_that_is_cut_off_is_never_taken_for_a_whole_one(exchange: Exchange) -> None:
    expected = told(exchange.data, streamed=True)
    decoder, fed = ChatDecoder(profile_of(exchange)), 0
    for place in cuts(exchange.data, most=400):
        decoder.feed(exchange.data[fed:place])
        fed = place
        message = cut_off(decoder)
        if message is not None:
            assert (message.text, message.thinking) == (expected.text, expected.thinking)
            calls = [(call.call_id, call.name, meaning(call.arguments)) for call in message.tool_calls]
            assert calls == expected.signed_calls


def cut_off(decoder: ChatDecoder) -> Message | None:
    """What a decoder makes of the end of the bytes at this place; nothing when it says that there is more to come."""
    said, decoder._said = decoder._said, []  # events do not change: to copy them at each place would take longest
    twin = copied(decoder)
    decoder._said, twin._said = said, [*said]
    try:
        events = [*said, *twin.end()]
    except ReplyCutOff:
        return None
    assert isinstance(events[-1], ReplyFinished)
    return assemble_reply(events[:-1], events[-1])


@pytest.mark.faults
@pytest.mark.wire
@each_exchange(API, where=lambda exchange: exchange.ok and FAILED.reason(exchange) is not None)
def test_an_answer_with_an_error_inside_is_never_taken_for_one(exchange: Exchange) -> None:
    for place in [*cuts(exchange.data, most=400), len(exchange.data)]:
        pieces = chunked(exchange.data[:place], chance(exchange.label), mean=4_000)
        with pytest.raises(ModelError):
            heard(ChatDecoder(profile_of(exchange)), pieces)


@pytest.mark.wire
@each_exchange(API, where=lambda exchange: exchange.ok and not exchange.streamed)
def test_a_whole_answer_that_is_cut_off_is_never_taken_for_one(exchange: Exchange) -> None:
    random_places = chance(exchange.label).sample(range(1, len(exchange.data)), k=20)
    for place in [*random_places, len(exchange.data) - 1]:
        with pytest.raises(ReplyCutOff):
            heard(ChatDecoder(profile_of(exchange)), [exchange.data[:place]])


# -- what is sent next -------------------------------------------------------------------------------------------------


def followed(recording: Recording) -> list[tuple[Exchange, Exchange]]:
    """The pairs of exchanges of which the second goes on with the answer of the first."""
    pairs: list[tuple[Exchange, Exchange]] = []
    for second in recording.exchanges:
        for first in reversed(recording.exchanges[: second.index]):
            if first.ok and FAILED.reason(first) is None and goes_on(first, second):
                pairs.append((first, second))
                break
    return pairs


def goes_on(first: Exchange, second: Exchange) -> bool:
    """Whether the second request is the first one, its answer, and more."""
    if not (first.request and second.request):
        return False
    before, after = first.request["messages"], second.request["messages"]
    if len(after) <= len(before) or after[len(before)]["role"] != "assistant":
        return False
    answer, reply = told(first.data, streamed=first.streamed), meant([after[len(before)]])[0]
    same_calls = [(name, arguments) for _, name, arguments in answer.signed_calls] == reply["calls"]
    same_text = answer.text.strip() == reply["text"] or bool(answer.calls)
    return same_text and same_calls and meant(after[: len(before)]) == meant(before)


@pytest.mark.wire
@each_recording(API, where=lambda recording: bool(followed(recording)))
def test_the_next_request_is_the_one_that_was_recorded(recording: Recording) -> None:
    OTHERWISE.check(recording)
    for first, second in followed(recording):
        profile, body = profile_of(second), second.request
        ours = rebuilt(first, second, profile)
        assert WIRE.lint(ours, profile) == []
        compare(ours["messages"], body["messages"])
        assert [tool["function"]["name"] for tool in ours.get("tools", [])] == [tool.name for tool in tools_of(body)]
        assert settings_of(ours) == settings_of(body)


def rebuilt(first: Exchange, second: Exchange, profile: Profile) -> dict[str, Any]:
    """The second request, made by us from the first exchange and what was added to it."""
    before, after = first.request["messages"], second.request["messages"]
    instructions = instructions_of(first.request)
    history = messages_of(before[1:] if instructions else before, profile)
    events = heard(ChatDecoder(profile), [first.data])
    assert isinstance(events[-1], ReplyFinished)
    taken = {call.call_id for message in history for call in message.tool_calls}
    reply = sanitize_reply(assemble_reply(events[:-1], events[-1]), taken)
    theirs = after[len(before)].get("tool_calls") or []
    names = {call["id"]: ours.call_id for call, ours in zip(theirs, reply.tool_calls, strict=True)}
    rest = [
        {**item, "tool_call_id": names.get(item["tool_call_id"])} if item["role"] == "tool" else item
        for item in after[len(before) + 1 :]
    ]
    request = Request(
        messages=[*history, reply, *messages_of(rest, profile)],
        instructions=instructions,
        tools=tools_of(second.request),
        settings=settings_of(second.request),
    )
    body: dict[str, Any] = msgspec.json.decode(WIRE.encode(request, profile, EncodingMemo()).body)
    return body


def compare(ours: list[dict[str, Any]], recorded: list[dict[str, Any]]) -> None:
    """Fail unless the messages mean the same. Many clients forget the thinking; then ours may have it."""
    for mine, theirs in zip(meant(ours), meant(recorded), strict=True):
        for name in ("thinking", "details"):
            if not theirs.get(name) and name in mine:
                mine[name] = theirs[name]
        assert mine == theirs


# -- what was sent -----------------------------------------------------------------------------------------------------


@pytest.mark.wire
@each_exchange(API, where=lambda exchange: exchange.ok and exchange.request is not None)
def test_what_was_accepted_is_accepted(exchange: Exchange) -> None:
    FAILED.check(exchange)
    REPLACED.check(exchange)
    assert WIRE.lint(exchange.request, profile_of(exchange)) == []


@pytest.mark.wire
@each_exchange(API, where=lambda exchange: exchange.ok and exchange.request is not None)
def test_a_recorded_request_survives_our_own_values(exchange: Exchange) -> None:
    FAILED.check(exchange)
    REPLACED.check(exchange)
    profile, body = profile_of(exchange), exchange.request
    instructions = instructions_of(body)
    items = body["messages"][1:] if instructions else body["messages"]
    request = Request(messages=messages_of(items, profile), instructions=instructions)
    ours = msgspec.json.decode(WIRE.encode(request, profile, EncodingMemo()).body)
    compare(ours["messages"], body["messages"])


KINDS: dict[int, tuple[type[ModelError], ...]] = {
    400: (BadRequest, ContextOverflow, ReplyCutOff),
    401: (AuthFailed,),
    402: (AuthFailed,),
    403: (AuthFailed, ContentRefused),
    404: (BadRequest,),
    408: (ProviderDown,),
    422: (BadRequest,),
    429: (RateLimited,),
    500: (ProviderDown,),
    503: (ProviderDown,),
}
"""What the recorded refusals may be taken for."""


@pytest.mark.wire
@each_exchange(API, where=lambda exchange: not exchange.ok)
def test_a_recorded_refusal_is_classified(exchange: Exchange) -> None:
    error = classify_error(exchange.status, exchange.headers, exchange.data, exchange.provider)
    assert isinstance(error, KINDS[exchange.status])


@pytest.mark.wire
def test_nothing_is_left_out_that_is_not_there() -> None:
    assert FAILED.unused(API) == []
    assert OTHERWISE.unused(API) == []
    assert REPLACED.unused(API) == []
    assert len(recordings(API)) >= 180
