"""Answers of this wire, by streams of our own: every kind of event, and what a stream may get wrong."""

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import (
    BadRequest,
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
from perdure._models.wires.anthropic.decode import AnthropicDecoder
from perdure.events import ModelEvent, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta, UsageReported
from perdure.models import Profile
from tests.models.anthropic.reading import decoded, finished
from tests.seeds import chance
from tests.wire.recordings import chunked

PROFILE = Profile(provider="anthropic", model="a-model")
TURN = (Path(__file__).parent / "golden" / "turn.sse").read_bytes()
PARTS = (
    Thinking("Two towns", "c2ln/+==", provider="anthropic", model="a-model"),
    Thinking(signature="b25seQ==", provider="anthropic", model="a-model"),
    Thinking(data="c2VjcmV0", provider="anthropic", model="a-model"),
    Text("Grüße, I look."),
    Thinking(
        provider="anthropic",
        model="a-model",
        is_item=True,
        details={"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Bonn"}},
    ),
    Thinking(
        provider="anthropic",
        model="a-model",
        is_item=True,
        details={
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [{"type": "web_search_result", "encrypted_content": "RW5j"}],
        },
    ),
    ToolCall("toolu_1", "weather", '{"town":"Bonn"}'),
    ToolCall("toolu_2", "clock", "{}"),
)


def stream(*events: Any) -> bytes:
    lines = [each if isinstance(each, bytes) else msgspec.json.encode(each) for each in events]
    return b"".join([b"data: " + line + b"\n\n" for line in lines])


def start(index: int, **block: Any) -> Any:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **what: Any) -> Any:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **what}}


def stop(index: int) -> Any:
    return {"type": "content_block_stop", "index": index}


def over(reason: str | None = "end_turn", **usage: Any) -> Any:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


HELLO = (start(0, type="text", text=""), delta(0, "text_delta", text="Hello"), stop(0))
DONE = {"type": "message_stop"}


def test_a_turn_is_told_block_by_block_in_order() -> None:
    for seed in range(30):
        message = decoded(chunked(TURN, chance(seed)))
        assert message.parts == PARTS
        assert message.stop is StopReason.TOOL_USE
        assert message.usage == Usage(417, 27, 114, 0, 9)


def test_a_turn_with_other_line_ends_is_the_same() -> None:
    assert decoded([TURN.replace(b"\n", b"\r\n")]).parts == PARTS


def test_a_turn_that_is_cut_after_any_byte_is_finished_only_when_all_of_it_has_come() -> None:
    decoder, events = AnthropicDecoder(PROFILE), list[ModelEvent]()
    ended = TURN.index(b'"thinking_tokens":9}}}') + len(b'"thinking_tokens":9}}}')
    for place in range(len(TURN)):
        try:
            last = copy.deepcopy(decoder, {id(PROFILE): PROFILE}).end()
        except ReplyCutOff:
            assert place < ended
        else:
            assert place >= ended
            assert finished([*events, *last]).parts == PARTS
        events += decoder.feed(TURN[place : place + 1])


def test_an_answer_may_begin_with_nothing() -> None:
    assert decoded([b"", b"\n", stream(*HELLO, DONE)]).text == "Hello"
    assert decoded([b"", b"\n", b'{"content": [{"type": "text", "text": "Hello"}]}']).text == "Hello"


def test_words_thoughts_and_calls_are_passed_on_as_they_come() -> None:
    events = AnthropicDecoder(PROFILE).feed(TURN)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Grüße, ", "I look."]
    assert [event.text for event in events if isinstance(event, ThinkingDelta)][:2] == ["Two towns", ""]
    assert [event.arguments for event in events if isinstance(event, ToolCallDelta)] == [
        "",
        '{"town":"Bo',
        'nn"}',
        "",
        "{}",
    ]


def test_usage_is_reported_at_the_beginning_and_corrected_at_the_end() -> None:
    reported = [event.usage for event in AnthropicDecoder(PROFILE).feed(TURN) if isinstance(event, UsageReported)]
    assert reported == [Usage(417, 1, 417, precision="partial"), Usage(417, 27, 114, 0, 9)]


def test_an_answer_that_is_not_streamed_tells_the_same() -> None:
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "xx"},
        {"type": "text", "text": "Hello"},
        {"type": "compaction", "content": "short"},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": [1, None]}},
    ]
    usage = {"input_tokens": 5, "output_tokens": 7, "cache_creation_input_tokens": 3, "cache_read_input_tokens": None}
    body = msgspec.json.encode({"type": "message", "content": content, "stop_reason": "max_tokens", "usage": usage})
    message = decoded(chunked(b" \n" + body, chance(1)))
    assert [type(part) for part in message.parts] == [Thinking, Thinking, Text, Thinking, ToolCall]
    assert message.tool_calls[0].arguments == '{"a":[1,null]}'
    assert message.parts[3] == Thinking(
        provider="anthropic", model="a-model", is_item=True, details={"type": "compaction", "content": "short"}
    )
    assert message.stop is StopReason.LENGTH
    assert message.usage == Usage(8, 7, 0, 3)


def test_the_author_is_who_was_asked_and_not_the_snapshot_that_answered() -> None:
    message = decoded([TURN])
    assert (message.provider, message.model) == ("anthropic", "a-model")


@pytest.mark.parametrize(
    ("told", "meant"),
    [
        ("end_turn", StopReason.STOP),
        ("stop_sequence", StopReason.STOP_SEQUENCE),
        ("max_tokens", StopReason.LENGTH),
        ("model_context_window_exceeded", StopReason.LENGTH),
        ("pause_turn", StopReason.PAUSE),
        ("refusal", StopReason.CONTENT_FILTER),
        ("something_new", StopReason.STOP),
    ],
)
def test_a_reason_to_stop_is_one_of_ours(told: str, meant: StopReason) -> None:
    assert decoded([stream(*HELLO, over(told, output_tokens=1), DONE)]).stop is meant


def test_a_refusal_keeps_what_had_been_said() -> None:
    message = decoded([stream(*HELLO, over("refusal"), DONE)])
    assert (message.text, message.stop) == ("Hello", StopReason.CONTENT_FILTER)


def test_a_stream_that_stops_without_saying_why_is_finished_all_the_same() -> None:
    assert decoded([stream(*HELLO, DONE)]).text == "Hello"


def test_what_a_gateway_says_after_the_end_is_ignored() -> None:
    assert decoded([stream(*HELLO, over(), DONE, b"[DONE]")]).text == "Hello"


def test_the_last_event_needs_no_blank_line_behind_it() -> None:
    assert decoded([stream(*HELLO, over())[:-2]]).text == "Hello"


def test_the_name_of_an_event_stands_for_its_type() -> None:
    named = b'event: message_stop\ndata: {"x":1}\n\n'
    assert decoded([stream(*HELLO) + named]).text == "Hello"


def test_text_that_comes_with_the_beginning_of_a_block_is_not_lost() -> None:
    blocks = (start(0, type="text", text="Hel"), delta(0, "text_delta", text="lo"), stop(0))
    assert decoded([stream(*blocks, DONE)]).text == "Hello"
    whole = {"type": "message_start", "message": {"content": [{"type": "text", "text": "Oh. "}], "usage": None}}
    assert decoded([stream(whole, *blocks, DONE)]).text == "Oh. Hello"


def test_neighbouring_thoughts_under_one_index_stay_apart() -> None:
    thoughts = [(start(0, type="thinking"), delta(0, "signature_delta", signature=each), stop(0)) for each in "ab"]
    message = decoded([stream(*[event for each in thoughts for event in each], *HELLO, DONE)])
    assert [part.signature for part in message.parts if isinstance(part, Thinking)] == ["a", "b"]


def test_blocks_that_nothing_ends_are_ended_with_the_message() -> None:
    call = start(0, type="tool_use", id="c1", name="f", input={})
    unknown = start(1, type="new_kind", items=[1], note="a")
    grown = delta(1, "new_delta", items=[2], note="b", extra=True)
    message = decoded([stream(call, unknown, grown, over("tool_use", output_tokens=1))])
    assert message.tool_calls == (ToolCall("c1", "f", "{}"),)
    assert message.parts[0] == ToolCall("c1", "f", "{}")
    thought = message.parts[1]
    assert isinstance(thought, Thinking)
    assert thought.details == {"type": "new_kind", "items": [1, 2], "note": "ab", "extra": True}


def test_arguments_that_come_with_the_beginning_of_a_call_are_kept() -> None:
    call = start(0, type="tool_use", id="c1", name="f", input={"a": 1})
    assert decoded([stream(call, stop(0), DONE)]).tool_calls == (ToolCall("c1", "f", '{"a":1}'),)


def test_blocks_that_come_whole_with_the_beginning_of_a_message_are_complete_before_those_that_follow() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Bonn"}}
    call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"town": "Bonn"}}
    begun = {"type": "message_start", "message": {"content": [call, search]}}
    decoder = AnthropicDecoder(PROFILE)
    assert decoder.feed(stream(begun)) == [
        ToolCallDelta("toolu_1", "weather", index=0),
        ToolCallDelta(arguments='{"town":"Bonn"}', index=0),
        ThinkingDelta(details=search, index=1, is_item=True),
    ]
    assert decoder.feed(stream(*HELLO, over())) == [TextDelta("Hello")]
    assert [type(event) for event in decoder.end()] == [ReplyFinished]
    assert [type(part) for part in decoded([stream(begun, *HELLO, over())]).parts] == [ToolCall, Thinking, Text]


def test_what_a_tool_of_the_provider_was_given_is_kept_even_when_it_is_no_json() -> None:
    used = (start(0, type="server_tool_use", id="s"), delta(0, "input_json_delta", partial_json="{oh"), stop(0))
    part = decoded([stream(*used, *HELLO, DONE)]).parts[0]
    assert isinstance(part, Thinking)
    assert part.details["input"] == {"_raw": "{oh"}


def test_an_event_with_something_strange_in_it_is_read_for_the_rest() -> None:
    strange = b'{"type":"content_block_delta","index":null,"delta":{"type":7,"text":"Hello","signature":null}}'
    assert decoded([stream(start(0, type="text"), strange, {"type": "new"}, 5, DONE)]).text == "Hello"


def test_an_event_without_what_it_should_hold_says_nothing() -> None:
    bare = [{"type": each} for each in ("message_start", "content_block_start", "content_block_delta", "message_delta")]
    message = decoded([stream(*bare, delta(9, "input_json_delta", partial_json="{}"), DONE)])
    assert (message.parts, message.usage) == ((), None)


def test_a_stream_with_garbage_in_it_is_cut_off() -> None:
    with pytest.raises(ReplyCutOff, match="<html>"):
        AnthropicDecoder(PROFILE).feed(b"data: <html>\n\n")


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("overloaded_error", ProviderDown),
        ("api_error", ProviderDown),
        ("rate_limit_error", RateLimited),
        ("invalid_request_error", BadRequest),
    ],
)
def test_an_error_in_a_stream_is_classified(kind: str, error: type[ModelError]) -> None:
    told = {"type": "error", "error": {"details": None, "type": kind, "message": "x"}}
    with pytest.raises(error):
        AnthropicDecoder(PROFILE).feed(stream(*HELLO, told))
    with pytest.raises(error):
        decoded([msgspec.json.encode(told)])


def test_an_error_after_the_stop_reason_changes_nothing() -> None:
    late = {"type": "error", "error": {"type": "invalid_request_error", "message": "x"}}
    message = decoded([stream(*HELLO, over("max_tokens"), late)])
    assert (message.text, message.stop) == ("Hello", StopReason.LENGTH)


@pytest.mark.parametrize("body", [b"", b" ", b"{", b'{"content": [', b"data: {", b": ping\n\n"])
def test_an_answer_with_nothing_whole_in_it_is_cut_off(body: bytes) -> None:
    with pytest.raises(ReplyCutOff):
        decoded([body])


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        ({}, None),
        ({"input_tokens": 0, "output_tokens": 0}, None),
        ({"input_tokens": 3, "output_tokens": 4}, Usage(3, 4)),
        ({"input_tokens": 3}, Usage(3, 0, precision="partial")),
        ({"output_tokens": 4}, Usage(0, 4, precision="partial")),
        ({"input_tokens": "many", "output_tokens": 4, "iterations": [7]}, Usage(0, 4, precision="partial")),
        (
            {
                "input_tokens": 3,
                "output_tokens": 4,
                "iterations": [
                    {"type": "compaction", "input_tokens": 10, "output_tokens": 20, "cache_creation_input_tokens": 30},
                    {"type": "message", "input_tokens": 3, "output_tokens": 4},
                ],
            },
            Usage(43, 24, 0, 30),
        ),
    ],
)
def test_usage_is_exact_only_when_all_of_it_was_told(told: Any, usage: Usage | None) -> None:
    last = AnthropicDecoder(PROFILE)
    last.feed(stream(*HELLO, over(**told), DONE))
    end = last.end()[-1]
    assert isinstance(end, ReplyFinished)
    assert end.usage == usage
