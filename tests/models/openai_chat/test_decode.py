"""What a model answers, as events: the rule, and what real servers make of it."""

import json
from typing import Any

import pytest

from perdure import (
    Citation,
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
from perdure._models.wires.openai_chat import WIRE
from perdure._models.wires.openai_chat.chunks import FunctionPiece, ToolCallPiece
from perdure._models.wires.openai_chat.reply import ToolCallAccumulator, parse_usage
from perdure._models.wires.openai_chat.reply_fields import parse_annotation, parse_source_lists
from perdure.events import ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta, UsageReported
from perdure.models import Profile
from tests.doubles import LineCount
from tests.models.openai_chat.material import PROFILE, chunk, heard, message_of, stream, whole

USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}


def call(index: int | None = 0, call_id: str | None = None, name: str | None = None, arguments: Any = None) -> Any:
    """A chunk with one piece of a call."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    piece = {key: value for key, value in (("index", index), ("id", call_id)) if value is not None}
    return chunk({"tool_calls": [{**piece, "type": "function", "function": function}]})


def test_text_is_streamed_and_finished_with_its_usage() -> None:
    first, last = chunk({"role": "assistant", "content": ""}), {"choices": [], "usage": USAGE}
    events = heard(stream(first, chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk(finish="stop"), last))
    usage = Usage(10, 4)
    assert events == [
        TextDelta("Hel"),
        TextDelta("lo"),
        UsageReported(usage),
        ReplyFinished(StopReason.STOP, usage, "gpt-4.1", "openai"),
    ]


def test_a_whole_answer_says_the_same_as_a_stream() -> None:
    calls = [{"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}]
    message = message_of(
        whole({"content": "Well.", "reasoning_content": "Hm.", "tool_calls": calls}, "tool_calls", usage=USAGE)
    )
    assert message.parts == (
        Thinking("Hm.", provider="openai", model="gpt-4.1"),
        Text("Well."),
        ToolCall("call_1", "add", '{"a":1}'),
    )
    assert (message.stop, message.usage) == (StopReason.TOOL_USE, Usage(10, 4))


def test_the_pieces_of_calls_are_told_apart_by_their_index() -> None:
    message = message_of(
        stream(
            call(0, "call_a", "add", ""),
            call(0, arguments='{"a"'),
            call(1, "call_b", "mul", '{"b":'),
            call(0, arguments=":1}"),
            call(1, arguments="2}"),
            chunk(finish="tool_calls"),
        )
    )
    assert message.tool_calls == (ToolCall("call_a", "add", '{"a":1}'), ToolCall("call_b", "mul", '{"b":2}'))
    assert message.stop is StopReason.TOOL_USE


@pytest.mark.parametrize(
    ("chunks", "calls"),
    [
        pytest.param(
            [call(None, "", "add", '{"a":1}'), call(None, "", "add", '{"a":2}')],
            [("", "add", '{"a":1}'), ("", "add", '{"a":2}')],
            id="no index and no id",
        ),
        pytest.param(
            [call(0, "x", "add", '{"a":1}'), call(0, "y", "add", '{"a":2}')],
            [("x", "add", '{"a":1}'), ("y", "add", '{"a":2}')],
            id="another id under the same index",
        ),
        pytest.param(
            [call(0, "x", "add", '{"a"'), call(0, "y", None, ":1}")],
            [("x", "add", '{"a":1}')],
            id="a new id with every piece",
        ),
        pytest.param(
            [call(0, "x", "add", ""), call(0, "x", "add", '{"a"'), call(0, "x", "add", ":1}")],
            [("x", "add", '{"a":1}')],
            id="the name and the id with every piece",
        ),
        pytest.param(
            [call(0, None, "add", '{"a"'), call(0, None, "add", ":1}")],
            [("", "add", '{"a":1}')],
            id="the name with every piece, and no id",
        ),
        pytest.param(
            [call(0, "", "add", '{"a":1}'), call(0, "", "mul", '{"b":2}')],
            [("", "add", '{"a":1}'), ("", "mul", '{"b":2}')],
            id="whole calls under one index, without ids",
        ),
        pytest.param(
            [call(1, "x", "add", "null"), call(1, "", None, '{"a":1}')],
            [("x", "add", '{"a":1}')],
            id="an index from one on, and null before the arguments",
        ),
        pytest.param([call(0, "x", "add", "null")], [("x", "add", "")], id="no arguments but null"),
        pytest.param([call(0, "x", "add", {"a": 1})], [("x", "add", '{"a":1}')], id="arguments that are an object"),
        pytest.param(
            [call(0, None, "add", ""), call(0, "x", None, "{}")], [("x", "add", "{}")], id="an id that comes late"
        ),
        pytest.param(
            [call(0, None, None, '{"a"'), call(0, "x", "add", ":1}")],
            [("x", "add", '{"a":1}')],
            id="arguments before the name",
        ),
        pytest.param([call(0, "x", "add", "{}"), call(1)], [("x", "add", "{}")], id="a piece with nothing in it"),
        pytest.param(
            [
                chunk({"function_call": {"name": "add", "arguments": '{"a"'}}),
                chunk({"function_call": {"arguments": ":1}"}}),
            ],
            [("", "add", '{"a":1}')],
            id="functions of old",
        ),
    ],
)
def test_calls_are_found_in_whatever_form_they_come(chunks: list[Any], calls: list[tuple[str, str, str]]) -> None:
    message = message_of(stream(*chunks, chunk(finish="stop")))
    assert [(each.call_id, each.name, each.arguments) for each in message.tool_calls] == calls
    assert message.stop is StopReason.TOOL_USE


def test_the_signature_of_a_call_of_gemini_is_kept() -> None:
    piece = call(0, "x", "add", "{}")
    piece["choices"][0]["delta"]["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "sig"}}
    assert message_of(stream(piece, chunk(finish="tool_calls"))).tool_calls == (ToolCall("x", "add", "{}", "sig"),)


def signed(index: int) -> dict[str, Any]:
    """A piece of a call that has a signature and nothing else."""
    extra = {"google": {"thought_signature": "sig"}}
    return chunk({"tool_calls": [{"index": index, "extra_content": extra}]})


@pytest.mark.parametrize("place", [0, 1])
def test_a_signature_that_comes_later_belongs_to_the_call_of_its_index(place: int) -> None:
    pieces = [call(0, "x", "add", "{}"), call(1, "y", "add", "{}"), signed(place)]
    calls = message_of(stream(*pieces, chunk(finish="tool_calls"))).tool_calls
    assert [each.signature for each in calls] == ["sig" if each == place else "" for each in (0, 1)]


def test_a_signature_without_a_call_is_left_out() -> None:
    message = message_of(stream(signed(0), chunk({"content": "Yes."}), chunk(finish="stop")))
    assert (message.text, message.tool_calls) == ("Yes.", ())


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
def test_thinking_is_heard_under_any_of_its_names(field: str) -> None:
    message = message_of(
        stream(chunk({field: "Let "}), chunk({field: "me."}), chunk({"content": "Yes."}), chunk(finish="stop"))
    )
    assert (message.thinking, message.text) == ("Let me.", "Yes.")


def test_content_in_a_list_is_text_and_thinking() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    items = [thinking, {"type": "text", "text": "Yes"}, {"type": "reference", "reference_ids": [1]}, "."]
    message = message_of(stream(chunk({"content": items}), chunk(finish="stop")))
    assert (message.thinking, message.text) == ("Hm.", "Yes.")


def test_tags_of_thinking_stay_in_the_text() -> None:
    message = message_of(stream(chunk({"content": "<think>Hm.</think>Yes."}), chunk(finish="stop")))
    assert (message.thinking, message.text) == ("", "<think>Hm.</think>Yes.")


def test_blocks_of_reasoning_are_put_together_and_kept_in_their_order() -> None:
    text = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 1}
    message = message_of(
        stream(
            chunk({"reasoning": "Hm", "reasoning_details": [{**text, "text": "Hm"}]}),
            chunk(
                {
                    "reasoning_details": [
                        {"index": 1, "text": "."},
                        {"type": "reasoning.encrypted", "data": "xyz", "index": 0},
                    ]
                }
            ),
            chunk({"reasoning_details": [{**text, "signature": "sig"}]}),
            chunk({"content": "Yes."}),
            chunk(finish="stop"),
        )
    )
    assert message.thinking == "Hm."
    assert message.parts[0] == Thinking(
        "Hm.",
        provider="openai",
        model="gpt-4.1",
        details={
            "reasoning_details": [
                {"type": "reasoning.encrypted", "data": "xyz", "index": 0},
                {**text, "text": "Hm.", "signature": "sig"},
            ]
        },
    )
    assert message.text == "Yes."


def test_an_empty_field_of_a_later_piece_takes_nothing_away_and_a_new_one_is_kept() -> None:
    first = {"type": "reasoning.text", "text": "Hm", "format": "f", "index": 0}
    later = {"type": "reasoning.text", "text": ".", "format": None, "signature": None, "id": "", "index": 0}
    message = message_of(stream(chunk({"reasoning_details": [first]}), chunk({"reasoning_details": [later]}, "stop")))
    kept = message.parts[0].details["reasoning_details"]  # type: ignore[union-attr]
    assert kept == [{**first, "text": "Hm.", "signature": None, "id": ""}]


def test_a_summary_and_its_encrypted_form_share_an_index_and_stay_two_blocks() -> None:
    blocks = [
        {"type": "reasoning.summary", "summary": "In short.", "index": 0},
        {"type": "reasoning.encrypted", "data": "x", "id": "rs_1", "index": 0},
        {"type": "reasoning.encrypted", "data": "y", "id": "rs_2", "index": 0},
    ]
    for data in (
        stream(*[chunk({"reasoning_details": [block]}) for block in blocks], chunk({"content": "Yes."}, "stop")),
        whole({"content": "Yes.", "reasoning_details": blocks}),
    ):
        message = message_of(data)
        assert message.thinking == "In short."
        assert message.parts[0].details["reasoning_details"] == blocks  # type: ignore[union-attr]


def test_encrypted_reasoning_without_a_word_is_kept_as_well() -> None:
    block = {"type": "reasoning.encrypted", "data": "xyz", "index": 0}
    message = message_of(
        stream(chunk({"reasoning_details": [block]}), call(0, "x", "add", "{}"), chunk(finish="tool_calls"))
    )
    assert message.parts[0] == Thinking("", provider="openai", model="gpt-4.1", details={"reasoning_details": [block]})
    assert message.thinking == ""


def test_a_refusal_is_text_and_the_reason_to_stop() -> None:
    for data in (
        stream(chunk({"refusal": "I "}), chunk({"refusal": "won't."}), chunk(finish="stop")),
        whole({"refusal": "I won't."}),
    ):
        message = message_of(data)
        assert (message.text, message.stop) == ("I won't.", StopReason.CONTENT_FILTER)


def test_of_several_answers_the_first_is_taken() -> None:
    other = chunk({"content": "Or else."}, "stop")
    other["choices"][0]["index"] = 1
    assert message_of(stream(chunk({"content": "This."}), other, chunk(finish="stop"))).text == "This."
    assert message_of(stream(other, chunk({"content": "This."}), chunk(finish="stop"))).text == "This."


def test_the_first_answer_is_taken_also_where_another_stands_before_it_in_the_same_chunk() -> None:
    first, other = chunk({"content": "This."}, "stop"), chunk({"content": "Or else."}, "length")
    other["choices"][0]["index"] = 1
    message = message_of(stream({"choices": other["choices"] + first["choices"]}))
    assert (message.text, message.stop) == ("This.", StopReason.STOP)


def test_sound_is_told_in_a_note() -> None:
    message = message_of(whole({"content": None, "audio": {"id": "a", "data": "UklG", "transcript": "Hello."}}))
    assert message.text == "[audio: Hello.]"


@pytest.mark.parametrize("audio", [{}, {"transcript": ""}, {"transcript": None, "data": ""}, None])
def test_audio_with_nothing_in_it_is_nothing(audio: Any) -> None:
    assert message_of(whole({"content": "Hello.", "audio": audio})).parts == (Text("Hello."),)
    parts = message_of(stream(chunk({"content": "Hello.", "audio": audio}), chunk(finish="stop"))).parts
    assert parts == (Text("Hello."),)


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", StopReason.STOP),
        ("eos", StopReason.STOP),
        ("tool_calls", StopReason.STOP),
        ("length", StopReason.LENGTH),
        ("model_length", StopReason.LENGTH),
        ("content_filter", StopReason.CONTENT_FILTER),
        ("SAFETY", StopReason.CONTENT_FILTER),
        ("a new reason", StopReason.STOP),
    ],
)
def test_reasons_to_stop_are_known(finish: str, stop: StopReason) -> None:
    assert message_of(stream(chunk({"content": "x"}), chunk(finish=finish))).stop is stop


# -- the end, and what is none -----------------------------------------------------------------------------------------


def test_a_reason_to_stop_ends_an_answer_without_the_last_marker() -> None:
    assert message_of(stream(chunk({"content": "x"}), chunk(finish="stop"), done=False)).text == "x"


def test_the_last_marker_ends_an_answer_without_a_reason_to_stop() -> None:
    assert message_of(stream(chunk({"content": "x"}))).stop is StopReason.STOP


def test_an_answer_with_nothing_in_it_is_passed_on() -> None:
    assert message_of(stream(chunk({"content": ""}))).parts == ()


@pytest.mark.parametrize(
    "data",
    [
        stream(chunk({"content": "x"}), done=False),
        stream(call(0, "x", "add", '{"a"')),
        stream(chunk({"content": "x"}), chunk(finish="stop"), done=False)[:-30],
        whole({"content": "x"})[:-1],
        b"",
        b"upstream connect error",
    ],
)
def test_what_ends_before_the_model_said_why_is_cut_off(data: bytes) -> None:
    with pytest.raises(ReplyCutOff):
        heard(data)


def test_a_reason_to_stop_that_is_told_with_each_call_does_not_end_the_answer() -> None:
    profile = Profile(provider="together", model="llama", dialect="together")
    early = call(0, "x", "add", "{}")
    early["choices"][0]["finish_reason"] = "tool_calls"
    with pytest.raises(ReplyCutOff):
        heard(stream(early, done=False), profile)
    with pytest.raises(ReplyCutOff):
        heard(stream(early, call(1, "y", "mul", '{"a"'), done=False))
    assert (
        len(message_of(stream(early, call(1, "y", "mul", "{}"), chunk(finish="tool_calls")), profile).tool_calls) == 2
    )


def test_an_error_in_a_chunk_is_raised_after_what_was_said_before() -> None:
    decoder = WIRE.decoder(PROFILE, "text/event-stream")
    data = stream(chunk({"content": "x"}), chunk(finish="error", error={"code": 429, "message": "slow down"}))
    assert list(decoder.feed(data)) == [TextDelta("x")]
    with pytest.raises(RateLimited):
        decoder.feed(b"data: [DONE]\n\n")
    with pytest.raises(RateLimited):
        decoder.end()


@pytest.mark.parametrize(
    "data",
    [
        stream({"error": {"message": "Overloaded", "code": 503}}),
        stream('event: error\ndata: {"message": "it broke"}'),
        stream({"object": "error", "message": "Service unavailable.", "code": 1000}),
        stream(chunk({"content": "x"}), chunk(finish="network_error")),
        b'{"error": {"message": "upstream failed", "code": 502}}',
    ],
)
def test_errors_in_an_answer_that_began_well_are_raised(data: bytes) -> None:
    with pytest.raises(ProviderDown):
        heard(data)


def erring(error: Any, finish: str | None = "stop") -> dict[str, Any]:
    """A choice with an error inside."""
    return {"choices": [{"index": 0, "message": {"content": "Half"}, "finish_reason": finish, "error": error}]}


@pytest.mark.parametrize("finish", ["stop", "error", None])
def test_an_error_of_the_choice_is_raised(finish: str | None) -> None:
    body = erring({"code": 429, "message": "slow down"}, finish)
    for data in (json.dumps(body).encode(), stream(body)):
        with pytest.raises(RateLimited, match="slow down"):
            heard(data)


@pytest.mark.parametrize("finish", ["length", "content_filter"])
@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("dialect", ["openai", "openrouter"])
def test_an_error_after_a_stop_reason_that_explains_it_is_that_stop_reason(
    finish: str, done: bool, dialect: str
) -> None:
    profile = Profile(provider="openai", model="gpt-4.1", dialect=dialect)
    error = {"message": "max completion tokens reached before a valid document", "code": "json_validate_failed"}
    half, last, late = chunk({"content": "Half"}), chunk(finish=finish), {"error": error}
    bodies = [
        stream(half, last, late, done=done),
        stream(half, last, f"event: error\ndata: {json.dumps(error)}", done=done),
        stream(half, {**last, "error": error}, done=done),
        stream(half, erring(error, finish), done=done),
        json.dumps(erring(error, finish)).encode(),
        json.dumps({**erring(None, finish), "error": error}).encode(),
    ]
    for body in bodies:
        message = message_of(body, profile)
        assert (message.text, message.stop) == ("Half", StopReason(finish))


def test_a_chunk_that_is_no_json_is_an_error_of_the_provider() -> None:
    with pytest.raises(ProviderDown, match="not a JSON object"):
        heard(stream("data: <html>", chunk(finish="stop")))


def test_comments_empty_lines_and_windows_line_ends_are_nothing() -> None:
    data = b": keep alive\r\n\r\ndata:\r\n\r\n" + stream(chunk({"content": "x"}), chunk(finish="stop")).replace(
        b"\n", b"\r\n"
    )
    assert message_of(data).text == "x"


def test_json_that_only_lenient_readers_take_is_read() -> None:
    lone = b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"},"logprobs":NaN}]}\n\n'
    assert message_of(lone + stream(chunk(finish="stop"))).text == "a\ufffd"


def test_a_message_in_the_last_event_counts_when_nothing_was_streamed() -> None:
    last = {"choices": [{"index": 0, "message": {"content": "All."}, "finish_reason": "stop"}]}
    assert message_of(stream(last)).text == "All."
    assert message_of(stream(chunk({"content": "All"}), last)).text == "All"


# -- usage -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "usage"),
    [
        (USAGE, Usage(10, 4)),
        ({**USAGE, "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 2}}, Usage(10, 4, 6, 2)),
        ({**USAGE, "prompt_cache_hit_tokens": 6}, Usage(10, 4, 6)),
        ({**USAGE, "cache_read_input_tokens": 6, "cache_creation_input_tokens": 1}, Usage(10, 4, 6, 1)),
        ({**USAGE, "completion_tokens_details": {"reasoning_tokens": 3}}, Usage(10, 4, reasoning_tokens=3)),
        ({**USAGE, "total_tokens": 44, "completion_tokens_details": {"reasoning_tokens": 30}}, Usage(10, 34, 0, 0, 30)),
        ({**USAGE, "total_tokens": 20, "cache_read_input_tokens": 6}, Usage(16, 4, 6)),
        ({**USAGE, "total_tokens": 514}, Usage(10, 504, 0, 0, 500)),
        ({"prompt_tokens": 10, "total_tokens": 514}, Usage(10, 0, precision="partial")),
        ({**USAGE, "prompt_tokens_details": {"cached_tokens": 600}}, Usage(10, 4, 10)),
        ({"prompt_tokens": 10, "completion_tokens": None}, Usage(10, 0, precision="partial")),
        ({"prompt_tokens": None, "completion_tokens": None}, None),
        ({"prompt_tokens": float(2**90), "completion_tokens": 4}, Usage(0, 4, precision="partial")),
    ],
)
def test_usage_is_counted_under_all_its_names(said: dict[str, Any], usage: Usage | None) -> None:
    assert message_of(stream(chunk({"content": "x"}, "stop", usage=said))).usage == usage


def test_usage_that_grows_with_every_chunk_counts_once() -> None:
    early = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
    events = heard(stream(chunk({"content": "x"}, usage=early), chunk(finish="stop", usage=USAGE)))
    assert [event.usage for event in events if isinstance(event, UsageReported)] == [Usage(10, 1), Usage(10, 4)]


@pytest.mark.parametrize("done", [True, False])
def test_usage_that_was_told_before_the_end_is_not_all_of_it(done: bool) -> None:
    early = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
    answer = stream(chunk({"content": "x"}, usage=early), chunk({"content": "yz"}, "stop"), done=done)
    assert message_of(answer).usage == Usage(10, 1, precision="partial")


def test_the_signature_of_a_whole_message_is_kept_with_its_text() -> None:
    signed = {"extra_content": {"google": {"thought_signature": "sig"}}}
    for body in (
        whole({"content": "Hello.", **signed}),
        stream(chunk({"content": "Hel"}), chunk({"content": "lo.", **signed}), chunk(finish="stop")),
        stream(chunk({"content": "Hello."}), chunk({"content": "", **signed}), chunk(finish="stop")),
    ):
        assert message_of(body).parts == (Text("Hello.", "sig"),)
    calls = [{"id": "a", "function": {"name": "add", "arguments": "{}"}}]
    both = message_of(whole({"tool_calls": calls, **signed}, "tool_calls"))
    assert both.parts == (ToolCall("a", "add", "{}"), Text("", "sig"))
    assert message_of(whole({"content": "Hello.", "extra_content": {"google": {}}})).parts == (Text("Hello."),)


def test_groq_tells_its_usage_in_a_field_of_its_own() -> None:
    assert message_of(stream(chunk({"content": "x"}, "stop", x_groq={"id": "1", "usage": USAGE}))).usage == Usage(10, 4)


def test_nothing_is_made_up_when_no_usage_is_told() -> None:
    assert message_of(stream(chunk({"content": "x"}, "stop"))).usage is None


def test_more_than_anybody_can_count_is_no_count() -> None:
    endless = (
        b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1e999}}\n\n'
    )
    assert message_of(endless).usage is None


def test_an_object_where_text_should_be_may_hold_anything() -> None:
    said = b'{"function":{"name":"f","arguments":{"a":"\\ud83d","b":NaN,"c":%d}},"id":"1"}' % 2**70
    lone = b'data: {"choices":[{"delta":{"tool_calls":[%b]},"finish_reason":"stop"}]}\n\n' % said
    (call,) = message_of(lone).tool_calls
    assert call.arguments.startswith('{"a":"\ufffd","b":"NaN"')


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "data",
    [
        b"data: 1\n\n",
        b'{"choices": 1}',
        b'data: {"choices":[{"delta":7}]}\n\n',
        b"{}",
        b"[1]",
        b'{"choices":' + DEEP,
        b'data: {"choices":[],"more":' + DEEP + b"\n\n",
        b'data: {"choices":[{"delta":{"content":' + DEEP + b"\n\n",
        stream(call(0, "1", "f", DEEP.decode())),
    ],
    ids=lambda data: data[:40],
)
def test_nonsense_is_a_model_error_and_nothing_else(data: bytes) -> None:
    with pytest.raises(ModelError):
        heard(data)


def test_deltas_of_thinking_and_calls_come_as_they_are_said() -> None:
    events = heard(
        stream(chunk({"reasoning": "Hm"}), call(0, "x", "add", "{"), call(0, arguments="}"), chunk(finish="stop"))
    )
    assert events[:-1] == [ThinkingDelta("Hm"), ToolCallDelta("x", "add", "{"), ToolCallDelta(arguments="}")]


def test_many_calls_in_one_reply_take_work_in_proportion() -> None:
    def count_lines(number: int) -> int:
        pieces = [
            ToolCallPiece(index=place, id=f"call_{place}", function=FunctionPiece(name="add", arguments="{}"))
            for place in range(number)
        ]
        calls = ToolCallAccumulator()
        with LineCount() as counted:
            deltas = calls.add_pieces(pieces)
        assert len(deltas) == len(calls) == number
        return counted.lines

    assert count_lines(400) < 4.5 * count_lines(100)


def test_an_error_in_a_last_event_that_nothing_ends_is_raised() -> None:
    last = stream(chunk({"content": "x"}, error={"code": 429, "message": "slow down"}), done=False).rstrip()
    decoder = WIRE.decoder(PROFILE, "text/event-stream")
    assert list(decoder.feed(stream(chunk({"content": "a"}), done=False) + last)) == [TextDelta("a")]
    with pytest.raises(RateLimited, match="slow down"):
        decoder.end()


def test_thinking_in_a_list_of_content_may_be_text_and_blank_items_are_nothing() -> None:
    items = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": ""}, "", {"text": "Yes."}]
    events = heard(stream(chunk({"content": items}, "stop")))
    assert events[:-1] == [ThinkingDelta("Hm."), TextDelta("Yes.")]


def test_a_stream_is_done_with_its_last_marker_and_not_before() -> None:
    decoder = WIRE.decoder(PROFILE, "text/event-stream")
    decoder.feed(stream(chunk({"content": "x"}), chunk(finish="stop"), done=False))
    assert not decoder.done
    decoder.feed(b"data: [DONE]\n\n")
    assert decoder.done


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (stream("data: <html>"), "openai sent a chunk that is not a JSON object: b'<html>'. Try again."),
        (
            stream(chunk({"content": "x"}, "network_error")),
            "openai stopped in the middle of its answer: 'network_error'. Try again.",
        ),
        (b'{"a', "the answer of openai is not a complete JSON object: b'{\"a'"),
        (stream(chunk({"content": "x"}), done=False), "the answer of openai ended without a finish reason. Try again."),
    ],
)
def test_what_is_wrong_with_an_answer_is_told_with_its_provider(data: bytes, told: str) -> None:
    with pytest.raises(ModelError) as caught:
        heard(data)
    assert str(caught.value) == told


def test_more_text_after_a_reason_to_stop_means_that_it_was_sent_too_early() -> None:
    early = stream(chunk({"content": "a"}, "stop"), chunk({"content": "b"}), done=False)
    with pytest.raises(ReplyCutOff):
        heard(early)
    assert message_of(early + stream(chunk(finish="length"))).stop is StopReason.LENGTH
    assert message_of(stream(chunk({"content": "a"}, "length"), chunk({"content": ""}), done=False)).text == "a"


def test_the_same_usage_is_reported_once_and_counts_as_the_last() -> None:
    events = heard(stream(chunk({"content": "x"}, usage=USAGE), chunk(finish="stop"), {"choices": [], "usage": USAGE}))
    assert events == [
        TextDelta("x"),
        UsageReported(Usage(10, 4)),
        ReplyFinished(StopReason.STOP, Usage(10, 4), "gpt-4.1", "openai"),
    ]


@pytest.mark.parametrize(
    ("said", "usage"),
    [
        ({"input_tokens": 10, "output_tokens": 4}, Usage(10, 4)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage(0, 0)),
        ({"prompt_tokens": -1, "completion_tokens": 4}, Usage(0, 4, precision="partial")),
        ({"prompt_tokens": 2**53 - 1, "completion_tokens": 4}, Usage(2**53 - 1, 4)),
        ({"prompt_tokens": 2**53, "completion_tokens": 4}, Usage(0, 4, precision="partial")),
        ({"completion_tokens": 4, "total_tokens": 14}, Usage(0, 4, precision="partial")),
        ({**USAGE, "num_cached_tokens": 6}, Usage(10, 4, 6)),
        ({**USAGE, "cached_tokens": 6, "cache_write_tokens": 9}, Usage(10, 4, 6, 4)),
        ({**USAGE, "reasoning_tokens": 3}, Usage(10, 4, 0, 0, 3)),
        ({**USAGE, "reasoning_tokens": 30}, Usage(10, 4, 0, 0, 4)),
        ({**USAGE, "total_tokens": 17, "reasoning_tokens": 3}, Usage(10, 7, 0, 0, 3)),
        ({**USAGE, "total_tokens": 18, "reasoning_tokens": 3}, Usage(10, 4, 0, 0, 3)),
        ({**USAGE, "total_tokens": 22, "cached_tokens": 6, "cache_write_tokens": 2}, Usage(18, 4, 6, 2)),
        ({**USAGE, "total_tokens": 15}, Usage(10, 5, 0, 0, 1)),
        ({**USAGE, "total_tokens": 13}, Usage(10, 4)),
    ],
)
def test_counts_are_added_up_as_their_total_says(said: dict[str, Any], usage: Usage) -> None:
    assert parse_usage(said) == usage


@pytest.mark.parametrize(
    ("annotation", "citation"),
    [
        (
            {
                "type": "url_citation",
                "url_citation": {"url": "u", "title": "t", "content": "q", "start_index": 0, "end_index": 1},
            },
            ("u", "t", "q", 5, 6),
        ),
        ({"type": "url_citation", "url": "u", "start_index": 3, "end_index": 3}, ("u", "", "", None, None)),
        ({"type": "url_citation", "url": "u", "start_index": -1, "end_index": 3}, ("u", "", "", None, None)),
        ({"type": "url_citation", "url": "u", "start_index": 2}, ("u", "", "", None, None)),
        ({"type": "file", "file": {"hash": "h", "name": "n"}}, ("h", "n", "", None, None)),
        ({"type": "file_citation", "file_id": "f", "filename": "n", "quote": "q"}, ("f", "n", "q", None, None)),
        ({"title": "t"}, ("t", "t", "", None, None)),
    ],
)
def test_an_annotation_is_a_citation_of_its_passage(annotation: dict[str, Any], citation: Any) -> None:
    found = parse_annotation(annotation, 5)
    assert (found.source, found.title, found.quote, found.start, found.end) == citation
    assert found.details == annotation


def test_the_lists_of_sources_of_an_answer_are_told_once_each() -> None:
    results = [{"url": "b", "title": "B", "snippet": "bb"}, {"url": "c"}, {"title": "nowhere"}]
    assert list(parse_source_lists(["a", "b", 7, "a"], results)) == [
        Citation("a"),
        Citation("b", "B", "bb", details=results[0]),
        Citation("c", details=results[1]),
    ]
