"""Recorded traffic of this wire: what was answered is understood, what was sent next is what we would send."""

import pytest

from perdure import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    ModelError,
    ProviderDown,
    RateLimited,
    ReplyCutOff,
)
from perdure._models.provider_errors.classify import classify_error
from perdure._models.wires.anthropic import WIRE
from perdure.events import ModelEvent
from tests.models.anthropic.reading import (
    PROFILE,
    Oracle,
    answered,
    continued,
    decoded,
    finished,
    meaning,
    plain,
    read_messages,
    sent,
    shapes,
    text_of,
)
from tests.seeds import chance
from tests.wire.recordings import (
    SHORT_STREAM,
    Exchange,
    Recording,
    chunked,
    copied,
    cuts,
    each_exchange,
    each_recording,
)

API = "anthropic-messages"
pytestmark = pytest.mark.wire


# -- answers -----------------------------------------------------------------------------------------------------------


@each_exchange(API, where=answered)
def test_a_recorded_answer_is_understood_however_it_is_cut_into_pieces(exchange: Exchange) -> None:
    expected = Oracle(exchange)
    for seed in range(3):
        pieces = exchange.chunks if seed == 0 else chunked(exchange.data, chance(seed))
        message = decoded(pieces)
        assert shapes(message.parts) == expected.shapes
        assert message.usage == expected.usage
        assert message.stop == expected.stop
        assert (message.provider, message.model) == (PROFILE.provider, PROFILE.model)


@pytest.mark.faults
@each_exchange(API, where=answered)
def test_a_recorded_answer_that_is_cut_off_is_never_taken_for_a_whole_one(exchange: Exchange) -> None:
    expected = Oracle(exchange)
    decoder, events, fed = WIRE.decoder(PROFILE, exchange.media_type), list[ModelEvent](), 0
    for cut in cuts(exchange.data, most=SHORT_STREAM if exchange.streamed else 600):
        events += decoder.feed(exchange.data[fed:cut])
        fed = cut
        try:
            last = list(copied(decoder).end())
        except ReplyCutOff:
            continue
        message = finished([*events, *last])
        assert shapes(message.parts) == expected.shapes
        assert message.stop == expected.stop
    events += decoder.feed(exchange.data[fed:])
    assert shapes(finished([*events, *decoder.end()]).parts) == expected.shapes


@pytest.mark.faults
@each_exchange(API, where=lambda exchange: exchange.ok and not answered(exchange))
def test_an_error_in_a_recorded_stream_is_raised(exchange: Exchange) -> None:
    with pytest.raises(ProviderDown):
        decoded([exchange.data])
    for cut in cuts(exchange.data):
        with pytest.raises(ModelError):
            decoded([exchange.data[:cut]])


@each_exchange(API, where=lambda exchange: not exchange.ok)
def test_a_recorded_refusal_is_classified(exchange: Exchange) -> None:
    error = classify_error(exchange.status, exchange.headers, exchange.data, exchange.provider)
    by_status = {401: AuthFailed, 429: RateLimited, 500: ProviderDown, 503: ProviderDown, 529: ProviderDown}
    overflows = b"prompt is too long" in exchange.data
    assert type(error) is (ContextOverflow if overflows else by_status.get(exchange.status, BadRequest))


# -- requests ----------------------------------------------------------------------------------------------------------


@each_exchange(API, where=lambda exchange: exchange.ok and exchange.request is not None)
def test_a_recorded_request_that_was_accepted_breaks_no_rule(exchange: Exchange) -> None:
    assert WIRE.lint(exchange.request, PROFILE) == []


@each_recording(API, where=lambda recording: any(continued(recording)))
def test_the_next_request_of_a_recorded_conversation_is_the_one_we_would_send(recording: Recording) -> None:
    for first, second in continued(recording):
        known = len(first.request["messages"])
        reply = decoded([first.data])
        messages = [*read_messages(first.request["messages"]), reply]
        messages += read_messages(second.request["messages"][known + 1 :])
        body = sent(messages, second.request)
        assert WIRE.lint(body, PROFILE) == []
        assert meaning(body["messages"]) == meaning(second.request["messages"])
        for name in ("max_tokens", "tools", "thinking", "temperature"):
            wanted = second.request.get(name)
            if not (name == "temperature" and second.request.get("thinking")):
                assert plain(body.get(name)) == plain(wanted), name
        assert text_of(body.get("system")) == text_of(second.request.get("system"))
