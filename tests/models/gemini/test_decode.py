"""An answer, from its bytes to its message."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    Audio,
    BadRequest,
    ContentRefused,
    Image,
    Message,
    ModelError,
    ProviderDown,
    RateLimited,
    ReplyCutOff,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from perdure._models.wires.gemini import WIRE
from perdure.events import ModelEvent, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta, UsageReported
from perdure.models import Profile, assemble_reply

PROFILE = Profile(provider="google", model="gemini-3-flash")
GOLDEN = (Path(__file__).parent / "golden" / "turn.sse").read_bytes()


def chunk(*parts: Mapping[str, Any], finish: str | int | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}}
    return {"candidates": [{**candidate, "finishReason": finish} if finish else candidate], **more}


def call(name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, **more} if name else more}


def as_events(*chunks: Any) -> bytes:
    return b"".join([b"data: " + json.dumps(each).encode() + b"\r\n\r\n" for each in chunks])


def events_of(data: bytes, size: int = 10_000) -> list[ModelEvent]:
    decoder = WIRE.decoder(PROFILE, "text/event-stream")
    events = [event for place in range(0, len(data), size) for event in decoder.feed(data[place : place + size])]
    return [*events, *decoder.end()]


def message_of(*chunks: Any) -> Message:
    *events, finished = events_of(as_events(*chunks))
    assert isinstance(finished, ReplyFinished)
    return assemble_reply(events, finished)


@pytest.mark.parametrize("size", [1, 13, 10_000])
def test_the_golden_turn_is_understood_in_pieces_of_any_size(size):
    *events, finished = events_of(GOLDEN, size)
    assert isinstance(finished, ReplyFinished)
    assert assemble_reply(events, finished) == Message(
        "assistant",
        (
            Thinking("**Weighing it**\nBoth cities ", "", "", "google", "gemini-3-flash"),
            Text("I look at both: é…"),
            Text("", "c2lnLXRleHQ="),
            ToolCall("k1", "weather", '{"city":"Rome","days":2}', "c2lnLWNhbGw="),
            ToolCall("k2", "weather", '{"city":"Oslo"}'),
        ),
        "",
        "google",
        "gemini-3-flash",
        StopReason.TOOL_USE,
        Usage(120, 42, 64, 0, 12),
        metadata={"served_model": "gemini-3-flash-001"},
    )
    assert [type(event).__name__ for event in events if not isinstance(event, UsageReported)] == [
        *["ThinkingDelta"] * 2,
        *["TextDelta"] * 2,
        *["ToolCallDelta"] * 2,
    ]


def test_the_golden_turn_is_never_finished_when_it_is_cut_off():
    for cut in range(len(GOLDEN) - 4):
        with pytest.raises(ModelError):
            events_of(GOLDEN[:cut])


@pytest.mark.parametrize("data", [b"", b"data: {", b": comment\n\n", b"[", b'[{"candidates"', b"{", b"\n\n"])
def test_hardly_anything_is_cut_off(data):
    with pytest.raises(ReplyCutOff):
        events_of(data)


def test_events_an_array_and_one_object_say_the_same():
    whole = chunk({"text": "Hi"}, {"text": " you"}, finish="STOP", usageMetadata={"promptTokenCount": 2})
    pieces = [chunk({"text": "Hi"}), chunk({"text": " you"}, finish="STOP", usageMetadata={"promptTokenCount": 2})]
    answers = [as_events(*pieces), json.dumps(pieces, indent=1).encode(), json.dumps(whole).encode()]
    for data in answers:
        *events, finished = events_of(data, 7)
        assert isinstance(finished, ReplyFinished)
        assert assemble_reply(events, finished).text == "Hi you"
        assert finished.stop is StopReason.STOP
        assert finished.usage == Usage(2)


def test_an_array_that_is_closed_too_early_is_cut_off():
    with pytest.raises(ReplyCutOff):
        events_of(json.dumps([chunk({"text": "Hi"})]).encode())


def test_an_object_that_is_whole_needs_no_reason_to_end():
    *_, finished = events_of(json.dumps(chunk({"text": "Hi"})).encode())
    assert finished == ReplyFinished(model="gemini-3-flash", provider="google")


def test_what_a_gateway_adds_to_a_stream_is_passed_over():
    *events, _ = events_of(as_events(chunk({"text": "Hi"}, finish="STOP")) + b"data: [DONE]\n\n")
    assert events == [TextDelta(text="Hi")]


def test_a_chunk_that_is_no_json_is_the_fault_of_the_provider():
    with pytest.raises(ProviderDown, match="not a JSON object: b'oops'"):
        events_of(b"data: oops\n\n")


def test_signatures_stay_on_the_text_that_they_came_on():
    message = message_of(
        chunk({"text": "a"}),
        chunk({"text": "b"}),
        chunk({"text": "c", "thoughtSignature": "S1"}),
        chunk({"text": "d"}),
        chunk({"text": ""}),
        chunk({"text": "e"}),
        chunk({"text": "", "thoughtSignature": "S2"}, finish="STOP"),
    )
    assert message.parts == (Text("ab"), Text("c", "S1"), Text("de"), Text("", "S2"))


def test_signatures_stay_on_the_thought_that_they_came_on():
    message = message_of(
        chunk({"text": "a", "thought": True}),
        chunk({"text": "", "thought": True}),
        chunk({"text": "b", "thought": True, "thoughtSignature": "S1"}),
        chunk({"text": "c", "thought": True}),
        chunk({"text": "d", "thought": True}),
        chunk({"text": "!"}, finish="STOP"),
    )
    assert [(part.text, part.signature) for part in message.parts[:3] if isinstance(part, Thinking)] == [
        ("a", ""),
        ("b", "S1"),
        ("cd", ""),
    ]
    assert message.thinking == "abcd"


def test_calls_without_an_id_are_still_two():
    message = message_of(chunk(call("f", args={"a": 1}), call("f"), call("f", args=None), finish="STOP"))
    assert [part.arguments for part in message.tool_calls] == ['{"a":1}', "{}", "{}"]
    assert message.stop is StopReason.TOOL_USE


def test_arguments_that_are_no_object_are_kept_as_they_came():
    assert message_of(chunk(call("f", args=[1, "x"]), finish="STOP")).tool_calls[0].arguments == '[1,"x"]'


def test_a_call_may_come_value_by_value():
    message = message_of(
        chunk({**call("f", id="k1", willContinue=True), "thoughtSignature": "S"}),
        chunk(call(partialArgs=[{"jsonPath": "$.a", "stringValue": "x", "willContinue": True}], willContinue=True)),
        chunk(call(partialArgs=[{"jsonPath": "$.a", "stringValue": "y"}], willContinue=True)),
        chunk(call()),
        chunk(call("g", partialArgs=[{"jsonPath": "$.b", "numberValue": 1}])),
        chunk(call("h", willContinue=True)),
        chunk(call("i", willContinue=True)),
        chunk(call(partialArgs=[{"jsonPath": "$.c", "boolValue": True}], willContinue=True), finish="STOP"),
    )
    assert message.tool_calls == (
        ToolCall("k1", "f", '{"a":"xy"}', "S"),
        ToolCall("", "g", '{"b":1}'),
        ToolCall("", "h", "{}"),
        ToolCall("", "i", '{"c":true}'),
    )


def test_half_a_call_is_never_told():
    start = chunk(call("f", willContinue=True))
    message = message_of(start, chunk({"text": "!"}, finish="MAX_TOKENS"))
    assert message.parts == (Text("!"),)
    assert message.stop is StopReason.LENGTH
    with pytest.raises(ReplyCutOff):
        message_of(start)
    assert message_of(chunk(call(), {"text": "?"}, finish="STOP")).parts == (Text("?"),)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("STOP", StopReason.STOP),
        (1, StopReason.STOP),
        ("MAX_TOKENS", StopReason.LENGTH),
        (2, StopReason.LENGTH),
        ("SAFETY", StopReason.CONTENT_FILTER),
        (3, StopReason.CONTENT_FILTER),
        ("RECITATION", StopReason.CONTENT_FILTER),
        ("PROHIBITED_CONTENT", StopReason.CONTENT_FILTER),
        ("OTHER", StopReason.STOP),
        ("SOMETHING_NEW", StopReason.STOP),
        (99, StopReason.STOP),
    ],
)
def test_reasons_to_stop_are_told_in_our_words(reason, stop):
    assert message_of(chunk({"text": "Hi"}, finish=reason)).stop is stop


def test_a_call_that_nobody_declared_is_told_and_a_malformed_one_is_worth_another_try():
    assert message_of(chunk(call("f"), finish="UNEXPECTED_TOOL_CALL")).stop is StopReason.TOOL_USE
    for reason in ("UNEXPECTED_TOOL_CALL", "MALFORMED_FUNCTION_CALL"):
        broken = chunk({"text": "Let me see."}, finish=reason)
        broken["candidates"][0]["finishMessage"] = "print(default_api.f("
        with pytest.raises(ReplyCutOff, match=reason) as raised:
            message_of(broken)
        assert "default_api" in str(raised.value)
        assert raised.value.retryable


def test_a_signature_that_the_provider_missed_is_our_mistake():
    with pytest.raises(BadRequest):
        message_of(chunk(finish="MISSING_THOUGHT_SIGNATURE"))


def test_a_prompt_that_is_blocked_is_refused():
    with pytest.raises(ContentRefused, match=r"'SAFETY'\): Too hot"):
        message_of({"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "Too hot"}})


def test_praise_for_the_prompt_refuses_nothing():
    message = message_of({"promptFeedback": {"safetyRatings": []}}, chunk({"text": "Hi"}, finish="STOP"))
    assert message.text == "Hi"


def test_an_error_after_the_finish_reason_changes_nothing():
    error = {"error": {"code": 400, "message": "invalid document", "status": "INVALID_ARGUMENT"}}
    message = message_of(chunk({"text": "Hi"}, finish="MAX_TOKENS"), error)
    assert (message.text, message.stop) == ("Hi", StopReason.LENGTH)


def test_an_error_inside_a_stream_is_told_as_one():
    error = {"error": {"code": 429, "message": "Resource has been exhausted", "status": "RESOURCE_EXHAUSTED"}}
    for data in (as_events(chunk({"text": "Hi"}), error), json.dumps([chunk({"text": "Hi"}), error]).encode()):
        with pytest.raises(RateLimited):
            events_of(data)


def test_of_several_candidates_only_the_first_is_heard():
    other = {"content": {"parts": [{"text": "No"}]}, "finishReason": "STOP", "index": 1}
    first = {"content": {"parts": [{"text": "Yes"}]}, "index": 0}
    message = message_of({"candidates": [other, first]}, {"candidates": [other]}, chunk({"text": "!"}, finish="STOP"))
    assert message.text == "Yes!"
    with pytest.raises(ReplyCutOff):
        message_of({"candidates": [first]}, {"candidates": [other]})


def test_an_answer_with_nothing_in_it_is_passed_on():
    message = message_of({"candidates": [{"content": {}, "finishReason": "STOP"}]})
    assert message.parts == ()


def test_usage_is_exact_when_it_was_told_at_the_end():
    counts = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 3, "cachedContentTokenCount": 4}
    end = chunk({"text": "!"}, finish="STOP", usageMetadata={**counts, "toolUsePromptTokenCount": 7})
    assert message_of(chunk({"text": "Hi"}), end).usage == Usage(17, 8, 4, 0, 3)


@pytest.mark.parametrize(
    ("early", "late", "usage"),
    [
        ({"promptTokenCount": 10}, None, Usage(10, precision="partial")),
        (None, {"candidatesTokenCount": 5}, Usage(0, 5, precision="partial")),
        (None, {"candidatesTokenCount": 5, "totalTokenCount": 12}, Usage(7, 5)),
        ({"promptTokenCount": 10}, {"trafficType": "ON_DEMAND"}, Usage(10, precision="partial")),
        (None, {"trafficType": "ON_DEMAND"}, None),
        (None, None, None),
    ],
)
def test_usage_that_was_not_told_completely_is_never_called_exact(early, late, usage):
    told = [{"usageMetadata": each} if each else {} for each in (early, late)]
    message = message_of(chunk({"text": "a"}, **told[0]), chunk({"text": "b"}, finish="STOP", **told[1]))
    assert message.usage == usage


def test_a_stream_that_is_cut_off_has_told_what_it_used():
    first = chunk({"text": "a"}, usageMetadata={"promptTokenCount": 10})
    second = chunk({"text": "b"}, usageMetadata={"promptTokenCount": 10, "candidatesTokenCount": 50})
    decoder = WIRE.decoder(PROFILE, "")
    decoder.feed(as_events(first, second))
    end = iter(decoder.end())
    assert next(end) == UsageReported(usage=Usage(10, 50, precision="partial"))
    with pytest.raises(ReplyCutOff):
        next(end)


def test_usage_is_reported_now_and_then():
    pieces = [chunk({"text": "a"}, usageMetadata={"promptTokenCount": 1}) for _ in range(65)]
    events = events_of(as_events(*pieces, chunk(finish="STOP")))
    assert sum(isinstance(event, UsageReported) for event in events) == 3


def test_steps_of_tools_that_the_provider_ran_are_kept_as_they_came():
    code = {"executableCode": {"code": "print(1)", "language": "PYTHON"}, "thoughtSignature": "S"}
    message = message_of(chunk({"text": "a"}, code, {}, {"text": "b"}, finish="STOP"))
    assert message.parts == (
        Text("a"),
        Thinking("", "", "", "google", "gemini-3-flash", {"part": code}, is_item=True),
        Text("b"),
    )


def test_pictures_that_the_model_made_are_in_the_message_with_their_signature():
    message = message_of(
        chunk({"inlineData": {"mimeType": "image/png", "data": "AAEC"}, "thoughtSignature": "S"}),
        chunk({"inlineData": {"mimeType": "audio/wav", "data": "_-8="}}),
        chunk({"inlineData": {"mimeType": "image/png", "data": "A"}}, finish="STOP"),
    )
    assert message.parts == (
        Image(b"\0\1\2", media_type="image/png"),
        Thinking("", "S", "", "google", "gemini-3-flash", {"of": "the part before"}),
        Audio(b"\xff\xef", media_type="audio/wav"),
        Image(b"", media_type="image/png"),
    )


def test_sources_are_kept_beside_the_message():
    end = chunk({"text": "Hi"}, finish="STOP")
    end["candidates"][0] |= {
        "groundingMetadata": {"webSearchQueries": ["x"]},
        "citationMetadata": {"citationSources": [1]},
        "urlContextMetadata": {"urlMetadata": [2]},
    }
    assert message_of(end).metadata == {
        "grounding": {"webSearchQueries": ["x"]},
        "citations": {"citationSources": [1]},
        "url_context": {"urlMetadata": [2]},
    }


def test_deltas_say_what_the_message_says():
    events = events_of(
        as_events(chunk({"text": "t", "thought": True}), chunk({"text": "x"}), chunk(call("f", id="1"), finish="STOP"))
    )
    assert events == [
        ThinkingDelta(text="t", index=1),
        TextDelta(text="x"),
        ToolCallDelta(call_id="1", name="f", arguments="{}"),
        ReplyFinished(stop=StopReason.TOOL_USE, model="gemini-3-flash", provider="google"),
    ]


def test_an_answer_is_never_known_to_be_over_before_its_end() -> None:
    decoder = WIRE.decoder(PROFILE, "text/event-stream")
    decoder.feed(GOLDEN)
    assert not decoder.done


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({"candidatesTokenCount": 5, "totalTokenCount": 9}, Usage(4, 5)),
        ({"candidatesTokenCount": 5, "totalTokenCount": 5}, Usage(0, 5)),
        ({"candidatesTokenCount": 5, "thoughtsTokenCount": 3, "totalTokenCount": 7}, Usage(0, 8, 0, 0, 3)),
        ({"candidatesTokenCount": 5}, Usage(0, 5, precision="partial")),
        ({"promptTokenCount": 0, "totalTokenCount": 9}, Usage(0, 0)),
    ],
)
def test_the_input_is_counted_from_the_total_where_it_is_not_told(counts: Any, usage: Usage) -> None:
    assert message_of(chunk({"text": "a"}, finish="STOP", usageMetadata=counts)).usage == usage
