"""Answers of the Responses wire that are not as they should be."""

import json
from typing import Any

import pytest

from perdure import (
    AuthFailed,
    ContextOverflow,
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
from perdure._core.model.protocol import sanitize_reply
from perdure._models.wires.openai_responses import WIRE
from perdure._models.wires.openai_responses.reply import OutputItemBuilder
from perdure.events import CitationAdded, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta
from tests.models.openai_responses.speaking import PROFILE, completed, event, heard, reply, stream

CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": '{"a":1}'}
HI = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}


def words(text: str, index: int | None = 0, **fields: Any) -> dict[str, Any]:
    return event("output_text.delta", index, delta=text, **fields)


# -- words -------------------------------------------------------------------------------------------------------------


def test_words_alone_need_no_message() -> None:
    assert heard(stream(words("h"), words("i"), completed())) == [
        TextDelta("h"),
        TextDelta("i"),
        ReplyFinished(StopReason.STOP, None, "gpt-9", "openai"),
    ]


def test_words_that_were_never_streamed_are_told_at_the_end_of_their_item() -> None:
    assert heard(stream(event("output_item.done", item=HI), completed()))[0] == TextDelta("hi")
    assert heard(stream(completed(HI)))[0] == TextDelta("hi")
    assert reply(stream(words("h"), event("output_item.done", item=HI), completed(HI))).text == "hi"


def test_what_was_streamed_counts_when_the_whole_is_something_else() -> None:
    assert reply(stream(words("hello"), event("output_item.done", item=HI), completed())).text == "hello"


def test_empty_bits_say_nothing() -> None:
    assert heard(stream(words(""), event("refusal.delta", delta=""), words("a"), completed()))[0] == TextDelta("a")


def test_the_phase_of_words_is_kept() -> None:
    item = {**HI, "phase": "final_answer"}
    assert reply(stream(words("hi"), event("output_item.done", item=item), completed())).parts == (
        Text("hi", '{"id":"m","phase":"final_answer"}'),
    )


def test_a_refusal_is_words_and_a_reason_to_stop() -> None:
    item = {"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}
    for said in (
        stream(event("refusal.delta", delta="No"), event("output_item.done", item=item), completed()),
        json.dumps({"status": "completed", "output": [item]}).encode(),
    ):
        message = reply(said)
        assert (message.text, message.stop) == ("No.", StopReason.CONTENT_FILTER)


def test_content_may_be_plain_text() -> None:
    assert reply(stream(completed({"type": "message", "content": "hi"}))).text == "hi"


# -- calls -------------------------------------------------------------------------------------------------------------


def test_a_call_without_any_delta_is_whole() -> None:
    added = event("output_item.added", item={**CALL, "arguments": ""})
    events = heard(stream(added, event("function_call_arguments.done", arguments='{"a":1}'), completed()))
    assert events[:2] == [ToolCallDelta("c1", "f"), ToolCallDelta(arguments='{"a":1}')]
    assert isinstance(events[-1], ReplyFinished)
    assert events[-1].message is not None
    assert events[-1].message.tool_calls == (ToolCall("c1", "f", '{"a":1}'),)
    assert events[-1].stop is StopReason.TOOL_USE


def test_a_call_without_arguments_gets_an_empty_object() -> None:
    (called,) = reply(stream(event("output_item.done", item={**CALL, "arguments": ""}), completed())).tool_calls
    assert called.arguments == "{}"


def test_a_call_whose_name_comes_late_is_named_once() -> None:
    events = heard(
        stream(
            event("output_item.added", item={"type": "function_call"}),
            event("function_call_arguments.delta", delta='{"a":1}'),
            event("output_item.done", item=CALL),
            completed(),
        )
    )
    assert events[:2] == [ToolCallDelta(arguments='{"a":1}'), ToolCallDelta("c1", "f")]


def test_a_call_without_an_id_has_that_of_its_item() -> None:
    item = {**CALL, "call_id": None}
    assert reply(stream(event("output_item.done", item=item), completed())).tool_calls[0].call_id == "fc_1"


def test_half_a_call_is_no_answer() -> None:
    begun = [event("output_item.added", item=CALL), event("function_call_arguments.delta", delta='{"a')]
    with pytest.raises(ReplyCutOff, match="in the middle of a call"):
        heard(stream(*begun, completed()))


def test_half_a_call_of_a_reply_that_was_too_long_is_marked_as_cut_off() -> None:
    begun = [event("output_item.added", item=CALL), event("function_call_arguments.delta", delta='{"a')]
    ending = completed(status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    message = reply(stream(*begun, ending))
    assert message.stop is StopReason.LENGTH
    assert message.tool_calls[0].arguments == '{"a'


def test_the_input_of_something_that_is_no_call_is_ignored() -> None:
    item = {"type": "mcp_call", "id": "mcp_1", "arguments": "{}"}
    events = heard(
        stream(
            event("output_item.added", item=item),
            event("function_call_arguments.done", arguments="{}"),
            event("output_item.done", item=item),
            completed(),
        )
    )
    assert len(events) == 1


# -- reasoning ---------------------------------------------------------------------------------------------------------


def test_reasoning_in_the_open_is_streamed() -> None:
    item = {"type": "reasoning", "id": "r", "status": "completed", "summary": [], "content": [{"text": "Hm."}]}
    message = reply(
        stream(
            event("reasoning_text.delta", delta="H"),
            event("reasoning_text.delta", delta="m."),
            event("output_item.done", item=item),
            words("4", 1),
            completed(),
        )
    )
    kept = {name: value for name, value in item.items() if name != "status"}
    assert message.parts[0] == Thinking("Hm.", "", "", "openai", "gpt-9", kept)
    assert message.thinking == "Hm."


def test_parts_of_a_summary_are_set_apart() -> None:
    bits = [event("reasoning_summary_text.delta", delta=text, summary_index=i) for i, text in enumerate("ab")]
    assert heard(stream(*bits, words("c", 1), completed()))[:2] == [ThinkingDelta("a"), ThinkingDelta("\n\nb")]


def test_items_keep_their_places_whatever_order_they_come_in() -> None:
    message = reply(
        stream(
            event("reasoning_text.delta", 0, delta="Hm."),
            words("4", 1),
            event("output_item.done", 1, item={**HI, "content": [{"type": "output_text", "text": "4"}]}),
            event("output_item.done", 0, item={"type": "reasoning", "summary": [], "content": [{"text": "Hm."}]}),
            completed(),
        )
    )
    assert [type(part) for part in message.parts] == [Thinking, Text]


# -- odd events --------------------------------------------------------------------------------------------------------


def test_events_without_a_place_belong_to_the_item_of_their_id_or_to_the_last() -> None:
    message = reply(
        stream(
            event("output_item.added", None, item={"type": "reasoning", "id": "r"}),
            event("output_item.added", None, item={"type": "message", "id": "m"}),
            event("reasoning_text.delta", None, delta="Hm.", item_id="r"),
            words("h", None, item_id="m"),
            words("i", None),
            event("output_item.done", None, item={"type": "reasoning", "id": "r", "summary": []}),
            completed(),
        )
    )
    assert (message.thinking, message.text) == ("Hm.", "hi")


def test_fields_of_another_type_do_no_harm() -> None:
    odd = {"type": "response.output_text.delta", "delta": "hi", "output_index": None, "content_index": "0"}
    nothing = {"type": "response.output_text.delta", "delta": {"text": "?"}, "output_index": 0}
    assert reply(stream(odd, nothing, "[1, 2]", '"text"', {"type": 7}, {"type": ""}, completed())).text == "hi"


def test_the_name_of_an_event_tells_its_type_when_nothing_else_does() -> None:
    named = b'event: response.output_text.delta\ndata: {"delta":"hi","output_index":0}\n\n'
    assert reply(named + stream(completed())).text == "hi"


def test_comments_pings_and_a_mark_of_the_end_say_nothing() -> None:
    data = b": PROCESSING\n\n" + stream({"type": "keepalive"}, words("hi"), completed(), "[DONE]")
    assert reply(data).text == "hi"


def test_an_event_that_is_no_json_ends_the_answer() -> None:
    with pytest.raises(ReplyCutOff, match="not JSON"):
        heard(stream(words("hi"), '{"type": "resp', completed()))


def test_half_a_pair_of_surrogates_does_no_harm() -> None:
    halves = [words("\ud83d"), words("\ude00")]
    assert sanitize_reply(reply(stream(*halves, completed())), set()).text == "\U0001f600"
    whole = {"status": "completed", "output": [{**HI, "content": [{"type": "output_text", "text": "a\ud83d"}]}]}
    assert sanitize_reply(reply(json.dumps(whole).encode()), set()).text == "a\ufffd"


@pytest.mark.parametrize("nested", [b"[" * 100_000, b'{"type":"x","y":' + b"[" * 100_000])
def test_an_event_that_is_nested_without_end_ends_the_answer(nested: bytes) -> None:
    with pytest.raises(ReplyCutOff):
        heard(b"data: " + nested + b"\n\n")
    with pytest.raises(ReplyCutOff):
        heard(b'{"output":' + nested)


def test_an_ending_that_nothing_closes_still_counts() -> None:
    assert reply(stream(words("hi"), completed()).rstrip()).text == "hi"


def test_an_answer_that_stops_early_is_cut_off() -> None:
    data = stream(words("hi"), completed())
    for place in range(len(data) - 3):
        with pytest.raises(ReplyCutOff):
            heard(data[:place])


# -- endings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_output_tokens", StopReason.LENGTH),
        ("content_filter", StopReason.CONTENT_FILTER),
        ("something new", StopReason.LENGTH),
    ],
)
def test_an_incomplete_answer_says_why(reason: str, stop: StopReason) -> None:
    ending = completed(status="incomplete", incomplete_details={"reason": reason})
    assert reply(stream(words("hi"), ending)).stop is stop


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (None, None),
        ({}, None),
        ({"input_tokens": 5, "output_tokens": 3}, Usage(5, 3)),
        ({"input_tokens": 5, "output_tokens": None}, Usage(5, 0, precision="partial")),
        (
            {"input_tokens": 5, "output_tokens": 3, "input_tokens_details": None, "output_tokens_details": {"x": 1}},
            Usage(5, 3),
        ),
    ],
)
def test_usage_is_what_was_told_and_never_made_up(told: Any, usage: Usage | None) -> None:
    assert reply(stream(words("hi"), completed(usage=told))).usage == usage


def test_an_empty_answer_is_passed_on() -> None:
    message = reply(stream(completed()))
    assert (message.parts, message.stop) == ((), StopReason.STOP)


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_after_a_complete_response_changes_nothing() -> None:
    late = {"type": "error", "code": "invalid_prompt", "message": "x"}
    cut_off = completed(status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    message = reply(stream(event("output_text.delta", delta="Half"), cut_off, late))
    assert (message.text, message.stop) == ("Half", StopReason.LENGTH)


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"type": "error", "error": {"code": "insufficient_quota", "message": "You exceeded your quota"}}, AuthFailed),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "Slow down"}, RateLimited),
        ({"type": "error", "code": "server_error", "message": "Oops"}, ProviderDown),
        ({"error": {"code": 502, "message": "Bad gateway"}}, ProviderDown),
        (
            {"type": "response.failed", "response": {"error": {"code": "context_length_exceeded", "message": "long"}}},
            ContextOverflow,
        ),
        ({"type": "response.failed", "response": {"status": "failed", "error": None}}, ModelError),
    ],
)
def test_an_error_inside_a_stream_is_classified(told: dict[str, Any], error: type[ModelError]) -> None:
    with pytest.raises(error):
        heard(stream(words("hi"), told))


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"message": "Oops", "code": "server_error"}},
        {"status": "failed", "error": {"message": "Oops", "code": "server_error"}, "output": []},
        {"status": "cancelled", "error": None, "output": []},
    ],
)
def test_an_error_that_came_whole_is_classified(answer: dict[str, Any]) -> None:
    with pytest.raises(ModelError) as caught:
        heard(json.dumps(answer).encode())
    assert not isinstance(caught.value, ReplyCutOff)


@pytest.mark.parametrize("answer", [b"{", b'{"status": "queued", "output": []}', b'{"object": "list"}', b"{}"])
def test_an_answer_that_came_whole_and_says_nothing_is_cut_off(answer: bytes) -> None:
    with pytest.raises(ReplyCutOff):
        heard(answer)


def test_a_whole_answer_is_known_by_its_first_byte_whatever_it_calls_itself() -> None:
    data = b" \n" + json.dumps({"status": "completed", "output": [HI]}).encode()
    decoder = WIRE.decoder(PROFILE, "text/event-stream")
    assert [*decoder.feed(data[:1]), *decoder.feed(data[1:])] == []
    assert next(iter(decoder.end())) == TextDelta("hi")


def test_reasoning_that_was_not_streamed_is_announced_when_its_item_is_complete():
    item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    assert list(OutputItemBuilder(2, "reasoning", {}).finish_item(item)) == [ThinkingDelta("Hm.", index=2)]
    assert list(OutputItemBuilder(2, "reasoning", {}).finish_item({"type": "reasoning", "summary": []})) == []


def test_a_mark_of_the_end_before_the_last_event_says_nothing() -> None:
    assert reply(stream(words("hi"), "[DONE]", " [DONE] ", completed())).text == "hi"


def test_an_answer_is_done_with_its_last_event_and_not_before() -> None:
    decoder = WIRE.decoder(PROFILE, "")
    decoder.feed(stream(words("hi")))
    assert not decoder.done
    decoder.feed(stream(completed()))
    assert decoder.done


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (stream(words("hi")), "the answer of openai ended before it was complete; ask again"),
        (stream("{oh"), "openai sent an event that is not JSON, b'{oh'; ask again"),
        (
            stream(event("output_item.added", item=CALL), completed()),
            "openai ended its answer in the middle of a call; ask again",
        ),
    ],
)
def test_an_answer_that_is_cut_off_says_how(data: bytes, told: str) -> None:
    with pytest.raises(ReplyCutOff) as caught:
        heard(data)
    assert str(caught.value) == told


def test_a_citation_of_a_later_part_counts_from_the_beginning_of_the_reply() -> None:
    def cited(text: str, start: int, end: int) -> dict[str, Any]:
        note = {"type": "url_citation", "url": "https://example.com", "start_index": start, "end_index": end}
        return {"type": "output_text", "text": text, "annotations": [note]}

    first = {"type": "message", "content": [cited("One. ", 0, 3), {"type": "refusal", "refusal": "No. "}]}
    second = {"type": "message", "content": [cited("Two. ", 0, 3), cited("Three.", 0, 5)]}
    for data in (
        stream(completed(first, second)),
        json.dumps({"status": "completed", "output": [first, second]}).encode(),
    ):
        events = heard(data)
        spans = [(each.citation.start, each.citation.end) for each in events if isinstance(each, CitationAdded)]
        assert spans == [(0, 3), (9, 12), (14, 19)]
        message = reply(data)
        assert [(each.start, each.end) for each in message.citations] == [(0, 3), (9, 12), (14, 19)]
        assert [message.text[each.start : each.end] for each in message.citations] == ["One", "Two", "Three"]


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        ({"output_tokens": 3}, Usage(0, 3, precision="partial")),
        (
            {
                "input_tokens": 9,
                "output_tokens": 7,
                "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
                "output_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(9, 7, 4, 2, 5),
        ),
    ],
)
def test_all_counts_of_an_answer_are_kept(told: Any, usage: Usage) -> None:
    assert reply(stream(words("hi"), completed(usage=told))).usage == usage


def test_words_and_thoughts_that_come_before_their_items_open_them() -> None:
    events = heard(
        stream(
            event("reasoning_text.delta", 0, delta="a", content_index=0),
            event("reasoning_text.delta", 0, delta="b", content_index=0),
            event("reasoning_text.delta", 0, delta="c", content_index=1),
            event("reasoning_summary_text.delta", 0, delta="d", summary_index=0),
            words("", 1),
            words("hi", 1),
            event("custom_tool_call_input.delta", 2, delta="x"),
            event(
                "output_item.done", 2, item={"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": "xy"}
            ),
            completed(),
        )
    )
    assert events[:-1] == [
        ThinkingDelta("a"),
        ThinkingDelta("b"),
        ThinkingDelta("\n\nc"),
        ThinkingDelta("\n\nd"),
        TextDelta("hi"),
        ToolCallDelta(arguments="x", index=2),
        ToolCallDelta("c1", "f", index=2),
        ToolCallDelta(arguments="y", index=2),
    ]


def test_a_call_of_free_text_without_input_has_none() -> None:
    item = {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": ""}
    (called,) = reply(stream(event("output_item.done", item=item), completed())).tool_calls
    assert called.arguments == ""


def test_what_the_provider_asks_leave_for_is_a_call_that_it_runs() -> None:
    item = {"type": "mcp_approval_request", "id": "r1", "name": "look up", "server_label": "wiki", "arguments": ""}
    message = reply(stream(event("output_item.done", item=item), completed()))
    signature = '{"type":"mcp_approval_request","id":"r1","name":"look up","server_label":"wiki"}'
    assert message.parts == (ToolCall("r1", "wiki_look_up", "{}", signature, run_by_provider=True),)
    assert message.stop is StopReason.TOOL_USE


def test_whole_reasoning_is_its_content_and_then_its_summary() -> None:
    item = {"type": "reasoning", "content": [{"text": "a"}, {"text": ""}], "summary": [{"text": "b"}]}
    assert heard(stream(event("output_item.done", item=item), completed()))[0] == ThinkingDelta("a\n\nb")


def test_an_error_with_a_status_is_classified_by_it() -> None:
    with pytest.raises(RateLimited):
        heard(stream({"type": "error", "error": {"status": 429, "message": "x"}}))
    with pytest.raises(RateLimited):
        heard(stream({"type": "error", "error": {"code": 429, "message": "x"}}))


@pytest.mark.parametrize("nested", [b"[" * 100_000, b'{"type":"x","y":' + b"[" * 100_000])
def test_an_event_that_is_nested_without_end_is_not_passed_over(nested: bytes) -> None:
    with pytest.raises(ReplyCutOff, match="not JSON"):
        heard(b"data: " + nested + b"\n\n" + stream(words("hi"), completed()))
