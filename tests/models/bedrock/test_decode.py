"""Answers of this wire, by streams of our own: every kind of message, and what a stream may get wrong."""

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
from perdure._models.wires.bedrock.decode import BedrockDecoder
from perdure.events import ModelEvent, TextDelta, ToolCallDelta, UsageReported
from tests.models.bedrock.reading import PROFILE, decoded, ended_here, finished, frame
from tests.seeds import chance
from tests.wire.recordings import chunked

USAGE = {"inputTokens": 5, "outputTokens": 7, "cacheReadInputTokens": 3, "cacheWriteInputTokens": 2, "totalTokens": 17}


def delta(index: int, **what: Any) -> bytes:
    return frame("contentBlockDelta", {"contentBlockIndex": index, "delta": what, "p": "abcdef"})


def start(index: int, **what: Any) -> bytes:
    return frame("contentBlockStart", {"contentBlockIndex": index, "start": what})


def stop(index: int) -> bytes:
    return frame("contentBlockStop", {"contentBlockIndex": index})


def over(reason: str = "end_turn") -> bytes:
    return frame("messageStop", {"stopReason": reason})


HELLO = delta(0, text="Hello") + stop(0)
METADATA = frame("metadata", {"usage": USAGE, "metrics": {"latencyMs": 1}})
PIECES = (
    frame("messageStart", {"role": "assistant"}),
    delta(0, reasoningContent={"text": "Two "}),
    delta(0, reasoningContent={"text": "towns"}),
    delta(0, reasoningContent={"signature": "c2ln/+=="}),
    stop(0),
    delta(1, reasoningContent={"redactedContent": "c2VjcmV0"}),
    stop(1),
    delta(2, text="Grüße, "),
    delta(2, text=""),
    delta(2, text="I look."),
    stop(2),
    start(3, toolUse={"toolUseId": "tooluse_1", "name": "weather"}),
    delta(3, toolUse={"input": '{"town":"Bo'}),
    delta(3, toolUse={"input": 'nn"}'}),
    stop(3),
    start(4, toolUse={"toolUseId": "tooluse_2", "name": "clock"}),
    stop(4),
    start(5, toolUse={"toolUseId": "s1", "name": "nova_code", "type": "server_tool_use"}),
    delta(5, toolUse={"input": '{"code": 1}'}),
    stop(5),
    start(6, toolResult={"toolUseId": "s1", "type": "nova_code_result", "status": "success"}),
    delta(6, toolResult=[{"json": {"stdOut": "4"}}]),
    stop(6),
    over("tool_use"),
    METADATA,
)
TURN = b"".join(PIECES)
AUTHOR: Any = {"provider": PROFILE.provider, "model": PROFILE.model}
PARTS = (
    Thinking("Two towns", "c2ln/+==", **AUTHOR),
    Thinking(data="c2VjcmV0", **AUTHOR),
    Text("Grüße, I look."),
    ToolCall("tooluse_1", "weather", '{"town":"Bonn"}'),
    ToolCall("tooluse_2", "clock", "{}"),
    Thinking(
        **AUTHOR,
        is_item=True,
        details={"toolUse": {"toolUseId": "s1", "name": "nova_code", "type": "server_tool_use", "input": {"code": 1}}},
    ),
    Thinking(
        **AUTHOR,
        is_item=True,
        details={
            "toolResult": {
                "toolUseId": "s1",
                "type": "nova_code_result",
                "status": "success",
                "content": [{"json": {"stdOut": "4"}}],
            }
        },
    ),
)


def test_a_turn_is_told_block_by_block_in_order() -> None:
    for seed in range(20):
        message = decoded(chunked(TURN, chance(seed)))
        assert message.parts == PARTS
        assert message.stop is StopReason.TOOL_USE
        assert message.usage == Usage(10, 7, 3, 2)


def test_a_turn_that_is_cut_after_any_byte_is_finished_only_when_all_of_it_has_come() -> None:
    decoder, events = BedrockDecoder(PROFILE), list[ModelEvent]()
    ended = len(TURN) - len(METADATA)
    for place in range(len(TURN)):
        try:
            last = ended_here(decoder)
        except ReplyCutOff:
            assert place < ended
        else:
            assert place >= ended
            assert finished([*events, *last]).parts == PARTS
        events += decoder.feed(TURN[place : place + 1])


def test_an_answer_may_begin_with_nothing() -> None:
    assert decoded([b"", b"\n", HELLO + over()]).text == "Hello"
    assert decoded([b"", b"\n", b'{"output": {"message": {"content": [{"text": "Hello"}]}}}']).text == "Hello"


def test_words_and_usage_are_passed_on_as_they_come() -> None:
    events = BedrockDecoder(PROFILE).feed(TURN)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Grüße, ", "I look."]
    assert [event.usage for event in events if isinstance(event, UsageReported)] == [Usage(10, 7, 3, 2)]


def test_an_answer_without_a_word_about_usage_says_nothing_about_it() -> None:
    assert decoded([HELLO + over()]).usage is None
    assert decoded([HELLO + over() + frame("metadata", {"usage": {"inputTokens": 0}})]).usage is None
    told = decoded([HELLO + over() + frame("metadata", {"usage": {"outputTokens": 4}})]).usage
    assert told == Usage(0, 4, precision="partial")


def test_an_answer_that_is_not_streamed_tells_the_same() -> None:
    content = [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}},
        {"reasoningContent": {"redactedContent": "xx"}},
        {"text": "It is "},
        {"citationsContent": {"content": [{"text": "a dog"}], "citations": []}},
        {"text": "."},
        {"toolUse": {"toolUseId": "c1", "name": "f", "input": {"a": [1, None]}, "type": "tool_use"}},
        {"somethingNew": {"x": 1}},
    ]
    body = {"output": {"message": {"content": content}}, "stopReason": "guardrail_intervened", "usage": USAGE}
    message = decoded(chunked(b"\n" + msgspec.json.encode(body), chance(1)))
    assert message.parts == (
        Thinking("hm", "sig", **AUTHOR),
        Thinking(data="xx", **AUTHOR),
        Text("It is a dog."),
        ToolCall("c1", "f", '{"a":[1,null]}'),
        Thinking(**AUTHOR, is_item=True, details={"somethingNew": {"x": 1}}),
    )
    assert message.stop is StopReason.CONTENT_FILTER
    assert message.usage == Usage(10, 7, 3, 2)


@pytest.mark.parametrize(
    ("told", "meant"),
    [
        ("end_turn", StopReason.STOP),
        ("stop_sequence", StopReason.STOP_SEQUENCE),
        ("max_tokens", StopReason.LENGTH),
        ("model_context_window_exceeded", StopReason.LENGTH),
        ("guardrail_intervened", StopReason.CONTENT_FILTER),
        ("content_filtered", StopReason.CONTENT_FILTER),
        ("something_new", StopReason.STOP),
    ],
)
def test_a_reason_to_stop_is_one_of_ours(told: str, meant: StopReason) -> None:
    assert decoded([HELLO + over(told)]).stop is meant


def test_blocks_that_nothing_ends_are_ended_with_the_message() -> None:
    used = start(1, toolUse={"toolUseId": "s", "type": "server_tool_use"}) + delta(1, toolUse={"input": "{oh"})
    message = decoded([start(0, toolUse={"toolUseId": "c1", "name": "f"}) + used + over("tool_use")])
    assert message.tool_calls == (ToolCall("c1", "f", "{}"),)
    assert message.parts[1] == Thinking(
        **AUTHOR,
        is_item=True,
        details={"toolUse": {"toolUseId": "s", "type": "server_tool_use", "input": {"_raw": "{oh"}}},
    )


def test_what_is_strange_is_passed_over() -> None:
    strange = [
        frame("somethingNew", {"x": 1}),
        frame("contentBlockStart", {}),
        frame("contentBlockDelta", {"contentBlockIndex": None, "delta": {"text": 7}}),
        frame("contentBlockDelta", {"delta": {"toolUse": {"input": "{}"}}}),
        frame("contentBlockDelta", {"delta": {"citation": "x"}}),
        frame("contentBlockDelta", b""),
        frame("metadata", {}),
    ]
    assert decoded([b"".join(strange) + HELLO + over()]).parts == (Text("Hello"),)


def test_an_event_that_is_no_json_cuts_the_answer_off() -> None:
    with pytest.raises(ReplyCutOff, match="messageStop"):
        BedrockDecoder(PROFILE).feed(HELLO + frame("messageStop", b"{oh"))


def test_a_damaged_stream_is_cut_off() -> None:
    damaged = bytearray(HELLO)
    damaged[60] ^= 1
    with pytest.raises(ReplyCutOff, match="damaged"):
        BedrockDecoder(PROFILE).feed(bytes(damaged))
    with pytest.raises(ReplyCutOff, match="damaged"):
        BedrockDecoder(PROFILE).feed(b"<html>a gateway says no</html>")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("throttlingException", RateLimited),
        ("serviceUnavailableException", ProviderDown),
        ("internalServerException", ProviderDown),
        ("modelStreamErrorException", ProviderDown),
        ("validationException", BadRequest),
    ],
)
def test_an_exception_in_a_stream_is_classified(name: str, error: type[ModelError]) -> None:
    with pytest.raises(error, match="oh dear"):
        BedrockDecoder(PROFILE).feed(HELLO + frame(name, {"message": "oh dear"}, "exception"))


def test_an_error_after_the_stop_reason_changes_nothing() -> None:
    late = frame("validationException", {"message": "oh dear"}, "exception")
    message = decoded([HELLO + over("max_tokens") + late])
    assert (message.text, message.stop) == ("Hello", StopReason.LENGTH)


def test_an_error_in_a_stream_is_classified() -> None:
    with pytest.raises(ProviderDown, match="oh dear"):
        BedrockDecoder(PROFILE).feed(frame("InternalError", "oh dear", "error"))


def test_a_whole_answer_that_is_none_is_classified() -> None:
    with pytest.raises(RateLimited):
        decoded([b'{"message": "Too many requests, please wait before trying again."}'])


@pytest.mark.parametrize("body", [b"", b" ", b"{", b'{"output": {', HELLO, HELLO[:9]])
def test_an_answer_with_nothing_whole_in_it_is_cut_off(body: bytes) -> None:
    with pytest.raises(ReplyCutOff):
        decoded([body])


def test_text_that_comes_while_a_call_is_open_is_passed_on() -> None:
    used = start(0, toolUse={"toolUseId": "c1", "name": "f"})
    decoder = BedrockDecoder(PROFILE)
    assert decoder.feed(used + delta(1, text="Hello") + delta(0, toolUse={"input": "{}"}) + stop(0) + over()) == [
        ToolCallDelta("c1", "f", index=0),
        TextDelta("Hello"),
        ToolCallDelta(arguments="{}", index=0),
    ]


def test_a_block_that_starts_again_ends_the_one_before() -> None:
    calls = start(0, toolUse={"toolUseId": "c1", "name": "f"}) + start(0, toolUse={"toolUseId": "c2", "name": "g"})
    assert BedrockDecoder(PROFILE).feed(calls + stop(0)) == [
        ToolCallDelta("c1", "f", index=0),
        ToolCallDelta(arguments="{}", index=0),
        ToolCallDelta("c2", "g", index=0),
        ToolCallDelta(arguments="{}", index=0),
    ]


def test_an_answer_that_ends_early_is_told_with_the_name_of_the_provider() -> None:
    with pytest.raises(ReplyCutOff) as caught:
        decoded([HELLO])
    assert str(caught.value) == (
        f"the answer of {PROFILE.provider} ended before the model had finished; asking again may help"
    )


def test_an_answer_is_never_known_to_be_over_before_its_end() -> None:
    decoder = BedrockDecoder(PROFILE)
    decoder.feed(TURN)
    assert not decoder.done


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        ({"inputTokens": 5}, Usage(5, 0, precision="partial")),
        ({"inputTokens": 5, "outputTokens": 0}, Usage(5, 0)),
        ({"cacheReadInputTokens": 2, "cacheWriteInputTokens": 3, "outputTokens": 1}, Usage(5, 1, 2, 3)),
    ],
)
def test_input_is_the_sum_of_its_three_counts(told: Any, usage: Usage) -> None:
    assert decoded([HELLO + over() + frame("metadata", {"usage": told})]).usage == usage
