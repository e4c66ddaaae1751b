"""Messages and their parts: values that JSON keeps unchanged."""

import math
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from perdure import (
    UNCERTAIN_STATUSES,
    Audio,
    Citation,
    ConfigError,
    Document,
    Image,
    Message,
    Status,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    Video,
    assistant,
    tool_message,
    user,
)
from perdure._core.values.message import (
    MAX_TOKENS,
    NO_USAGE,
    PART_TYPES,
    Part,
    Precision,
    ResultPart,
    check_labels,
    clamp_usage,
    is_cost,
    is_cut_short,
    is_empty,
    merge_exact_usages,
    merge_labels,
    parts_to_text,
    sanitize_citation,
    sanitize_part,
    to_parts,
)
from tests.core.material import messages, parts, texts, usages

CALL = ToolCall("call_1", "weather", '{"city":"Oslo"}')
RESULT = ToolResult("call_1", "weather", (Text("4 degrees"),))


# -- in and out of JSON ------------------------------------------------------------------------------------------------


@given(messages)
def test_every_message_survives_json_unchanged(message):
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


@given(parts)
def test_every_part_says_its_kind_in_json(part):
    written = msgspec.json.encode(part)
    assert msgspec.json.decode(written)["type"] == type(part).__struct_config__.tag
    assert msgspec.json.decode(written, type=Part) == part


def test_the_kinds_of_parts_have_names_of_their_own():
    names = [kind.__struct_config__.tag for kind in PART_TYPES]
    expected = ["text", "thinking", "image", "audio", "video", "document", "citation", "tool_call", "tool_result"]
    assert names == expected


def test_bytes_are_base64_in_json():
    assert msgspec.json.encode(Image(data=b"\xff\x00", media_type="image/png")) == (
        b'{"type":"image","data":"/wA=","media_type":"image/png"}'
    )


def test_what_was_not_said_is_not_written():
    assert msgspec.json.encode(user("hi")) == b'{"role":"user","parts":[{"type":"text","text":"hi"}]}'


def test_the_raw_arguments_of_a_call_are_kept_however_broken():
    message = assistant(ToolCall("call_1", "shell", '{"command": "l'))
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message).tool_calls[0].arguments == '{"command": "l'


def test_a_role_that_does_not_exist_is_not_read():
    with pytest.raises(msgspec.ValidationError, match="robot"):
        msgspec.json.decode(b'{"role":"robot"}', type=Message)


@pytest.mark.parametrize("value", [Text("a"), user("a"), Usage(), CALL, RESULT])
def test_values_cannot_be_changed(value):
    with pytest.raises(AttributeError):
        setattr(value, value.__struct_fields__[0], "b")


def test_messages_do_not_share_what_is_kept_beside_them():
    assert user("a").metadata is not user("a").metadata


# -- putting messages together -----------------------------------------------------------------------------------------


def test_a_message_from_a_person_is_made_of_text():
    assert user("hi") == Message("user", (Text("hi"),))


def test_a_message_says_where_it_came_from_and_what_belongs_to_it():
    message = user("hi", origin="steering", metadata={"channel": 7})
    assert (message.origin, message.metadata) == ("steering", {"channel": 7})


def test_a_message_from_a_model_has_its_stop_reason_and_usage():
    message = assistant([Thinking("Hm"), "Hello"], stop=StopReason.STOP, usage=Usage(3, 4))
    assert message == Message(
        "assistant", (Thinking("Hm"), Text("Hello")), stop=StopReason.STOP, usage=Usage(input_tokens=3, output_tokens=4)
    )


def test_one_message_answers_all_calls():
    assert tool_message([RESULT]) == Message("tool", (RESULT,))


def test_words_and_parts_may_be_mixed():
    image = Image(url="https://example.org/cat.png")
    assert to_parts(["Look: ", image]) == (Text("Look: "), image)
    assert to_parts(image) == (image,)
    assert to_parts(part for part in ("a", "b")) == (Text("a"), Text("b"))
    assert to_parts([]) == ()


@pytest.mark.parametrize("content", [None, 5, [5], ["a", None], b"abc", {"text": "a"}, user("hi"), Text], ids=repr)
@pytest.mark.parametrize("make", [user, assistant])
def test_what_is_no_content_is_refused_with_advice(make, content):
    with pytest.raises(ConfigError, match=r"cannot be put into a message: give text, a part such as Image"):
        make(content)


# -- looking into messages ---------------------------------------------------------------------------------------------


def test_a_message_gives_its_words_thoughts_calls_and_results_apart():
    message = Message("assistant", (Thinking("Hm. "), Text("One. "), CALL, Thinking("So."), Text("Two."), RESULT))
    assert message.text == "One. Two."
    assert message.thinking == "Hm. So."
    assert message.tool_calls == (CALL,)
    assert message.tool_results == (RESULT,)


@given(texts)
def test_the_words_of_a_plain_message_are_what_was_said(text):
    assert user(text).text == text


@pytest.mark.parametrize("content", [[], Image(url="u"), CALL], ids=["nothing", "image", "call"])
def test_a_message_without_words_has_none(content):
    assert user(content).text == ""


@pytest.mark.parametrize("status", Status)
def test_every_status_but_ok_is_an_error_for_the_model(status):
    assert ToolResult("c", "t", status=status).is_error == (status is not Status.OK)


def test_three_statuses_leave_it_open_whether_something_happened():
    assert {"timed_out", "cancelled", "unknown"} == UNCERTAIN_STATUSES


# -- as plain text -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (Text("hello"), "hello"),
        (Thinking("secret"), ""),
        (CALL, '[call weather {"city":"Oslo"}]'),
        (RESULT, "4 degrees"),
        (Image(data=b"x"), "[image]"),
        (Image(data=b"x", name="cat.png", url="u"), "[image: cat.png]"),
        (Audio(url="https://example.org/a.wav"), "[audio: https://example.org/a.wav]"),
        (Video(file_id="f"), "[video]"),
        (Document(name="plan.pdf"), "[document: plan.pdf]"),
    ],
)
def test_a_part_that_is_not_text_is_flattened_to_a_note(part, text):
    assert parts_to_text([part]) == text


def test_flattening_puts_each_part_on_a_line_and_leaves_out_what_shows_nothing():
    assert parts_to_text([Text("a"), Thinking("b"), Text(""), Image(), Text("c")]) == "a\n[image]\nc"


def test_a_result_is_flattened_to_its_content():
    result = ToolResult("c", "t", (Text("a"), Image(name="b.png")), render={"rows": 3})
    assert result.text == parts_to_text([result]) == "a\n[image: b.png]"
    assert ToolResult("c", "t", (Image(name="b.png"),)).text == "[image: b.png]"
    assert ToolResult("c", "t", (Text("a"),)).text == "a"
    assert ToolResult("c", "t").text == ""


# -- usage -------------------------------------------------------------------------------------------------------------


@given(usages, usages)
def test_usage_adds_up_and_is_as_precise_as_its_coarsest_part(one, other):
    total = one + other
    assert total == other + one
    assert total.total_tokens == one.total_tokens + other.total_tokens
    assert total.cache_read_tokens == one.cache_read_tokens + other.cache_read_tokens
    assert total.cache_write_tokens == one.cache_write_tokens + other.cache_write_tokens
    assert total.reasoning_tokens == one.reasoning_tokens + other.reasoning_tokens
    order = ("exact", "estimated", "partial")
    assert total.precision == order[max(order.index(one.precision), order.index(other.precision))]


@given(usages)
def test_adding_no_usage_changes_nothing(usage):
    assert usage + NO_USAGE == usage


@pytest.mark.parametrize("field", ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"])
@pytest.mark.parametrize(
    ("reported", "kept"),
    [(0, 0), (MAX_TOKENS, MAX_TOKENS), (MAX_TOKENS + 1, MAX_TOKENS), (-1, 0), (2.5, 2), (float("nan"), 0), (True, 1)],
)
def test_each_count_of_a_usage_is_brought_into_range_alone(field, reported, kept):
    usage = Usage(**{"input_tokens": 1, "output_tokens": 2**39 - 1, field: reported})
    clamped = clamp_usage(usage)
    assert msgspec.structs.asdict(clamped) == {**msgspec.structs.asdict(usage), field: kept}
    assert type(getattr(clamped, field)) is int


# -- empty replies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts", [[], [""], [" \n\t"], [Thinking("Hm")], [Thinking("Hm"), " "], [" ", Citation("a")]], ids=repr
)
def test_a_reply_of_nothing_but_thoughts_citations_and_blanks_is_empty(parts):
    assert is_empty(assistant(parts))


@pytest.mark.parametrize("part", ["a", ToolCall("c", "t"), Image(data=b"x")], ids=["text", "call", "image"])
def test_a_reply_with_words_calls_or_media_is_not_empty(part):
    assert not is_empty(assistant([Thinking("Hm"), " ", part]))


# -- citations and reported costs --------------------------------------------------------------------------------------


def test_the_citations_of_a_message_locate_their_passages_in_its_text():
    cited = Citation("https://a", "A", start=6, end=10)
    message = Message("assistant", (Text("Rain, "), Text("snow."), cited, CALL))
    assert message.citations == (cited,)
    assert message.text[cited.start : cited.end] == "snow"


@pytest.mark.parametrize(
    ("citation", "line"),
    [(Citation("https://a", "A"), "[source: A https://a]"), (Citation("https://a"), "[source: https://a]")],
)
def test_a_citation_is_a_note_in_plain_text(citation, line):
    assert parts_to_text([Text("Rain."), citation]) == f"Rain.\n{line}"


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (Usage(1, reported_usd=0.25), Usage(2, reported_usd=0.5), 0.75),
        (Usage(1, reported_usd=0.25), Usage(2), None),
        (Usage(1), Usage(2, reported_usd=0.25), None),
        (Usage(), Usage(2, reported_usd=0.25), 0.25),
        (Usage(2, reported_usd=0.25), Usage(), 0.25),
        (Usage(1), Usage(2), None),
    ],
)
def test_a_sum_has_a_reported_cost_only_if_all_of_it_was_reported(one, other, both):
    assert (one + other).reported_usd == both


@pytest.mark.parametrize(
    ("reported", "kept"), [(0.5, 0.5), (1, 1), (-1.0, None), (math.nan, None), (math.inf, None), ("1", None)]
)
def test_a_reported_cost_that_cannot_be_one_is_left_out(reported, kept):
    assert clamp_usage(Usage(1, 2, reported_usd=reported)) == Usage(1, 2, reported_usd=kept)
    assert clamp_usage(Usage(-1, 2, reported_usd=reported)) == Usage(0, 2, reported_usd=kept)


BEFORE = (Usage(), Usage(1, 1, reported_usd=0.5), Usage(1, 1, precision="partial"))


@pytest.mark.parametrize(
    "usages",
    [
        [],
        [Usage(1, 2, 3, 4, 5)],
        [Usage(1, 2, 3, 4, 5), Usage(10, 20, 30, 40, 50), Usage()],
        [Usage(), Usage()],
        [Usage(1, 2), Usage(3, 4, precision="estimated"), Usage(5, 6)],
        [Usage(1, 2), Usage(3, 4, precision="partial")],
        [Usage(1, 2), Usage(3, 4, reported_usd=0.25)],
        [Usage(1, 2, reported_usd=0.5), Usage(3, 4, reported_usd=0.25)],
        [Usage(1, 2, reported_usd=0.0), Usage()],
    ],
)
def test_joined_token_counts_have_the_same_sum_with_whatever_they_are_added_to(usages):
    for before in BEFORE:
        assert sum(merge_exact_usages(usages), before) == sum(usages, before)


def test_exact_token_counts_are_joined_to_one_and_others_are_left_as_they_are():
    exact = [Usage(1, 2, 3, 4, 5), Usage(10, 20, 30, 40, 50), Usage(100, 200, 300, 400, 500)]
    assert list(merge_exact_usages(exact)) == [Usage(111, 222, 333, 444, 555)]
    assert list(merge_exact_usages([])) == []
    for other in (Usage(1, precision="partial"), Usage(1, precision="estimated"), Usage(1, reported_usd=0.25)):
        for mixed in ([other], [other, *exact], [*exact, other]):
            assert merge_exact_usages(mixed) is mixed  # a reported cost is counted by itself


def test_a_part_can_be_taken_from_token_counts():
    whole, part = Usage(9, 8, 7, 6, 5, "partial", 0.5), Usage(1, 2, 3, 4, 5, reported_usd=0.25)
    assert whole.minus(part) == Usage(8, 6, 4, 2, 0, "partial")


@pytest.mark.parametrize(("label", "fits"), [("x" * 64, True), ("x" * 65, False), ("", False), ("a\nb", False)])
def test_a_label_is_short_and_on_one_line(label, fits):
    if fits:
        assert check_labels([label, label]) == (label,)
    else:
        with pytest.raises(ConfigError, match="give a list of short words"):
            check_labels([label])


def test_items_that_the_provider_made_are_no_thinking_and_no_empty_reply():
    search = {"type": "web_search_call", "id": "ws_1"}
    reply = Message("assistant", (Thinking("Hm."), Thinking(details=search, is_item=True)))
    assert (reply.provider_items, reply.thinking, is_empty(reply)) == ((search,), "Hm.", False)
    assert is_empty(Message("assistant", (Thinking("Hm.", details={"type": "reasoning"}),)))


# -- parts of every kind -----------------------------------------------------------------------------------------------


def test_several_texts_calls_and_results_are_all_given_in_order() -> None:
    message = assistant(["a", "b", Thinking("x"), Thinking("y"), CALL, ToolCall("call_2", "time"), "c"])
    assert (message.text, message.thinking) == ("abc", "xy")
    assert message.tool_calls == (CALL, ToolCall("call_2", "time"))
    assert assistant(["a", "b"]).text == "ab"
    assert assistant([CALL, "a"]).tool_calls == (CALL,)
    assert assistant([CALL, "a"]).text == "a"
    other = ToolResult("call_2", "time", (Text("noon"), Text("sharp")))
    assert tool_message([RESULT, other]).tool_results == (RESULT, other)
    assert other.text == "noon\nsharp"


@pytest.mark.parametrize(
    ("part", "kept"),
    [
        (Text("a\ud800", "s\ud800"), Text("a\ufffd", "s\ufffd")),
        (Text(cast("str", 5)), None),
        (Image(data=b"x", name="n\ud800"), Image(data=b"x", name="n\ufffd")),
        (Image(data=cast("bytes", "x")), None),
        (Image(url=cast("str", 5)), None),
        (Image(url=cast("str", 5), data=cast("bytes", 5)), None),
        (Document(data=b"x", name=cast("str", None)), None),
    ],
    ids=ascii,
)
def test_a_part_has_its_text_mended_and_is_none_if_it_cannot_be(part: ResultPart, kept: ResultPart | None) -> None:
    assert sanitize_part(part) == kept


@pytest.mark.parametrize("text", ["", "Hello"])
@pytest.mark.parametrize("stop", [None, *StopReason])
def test_a_reply_is_cut_short_at_a_limit_by_a_filter_or_before_any_text(stop: StopReason | None, text: str) -> None:
    always = {StopReason.LENGTH, StopReason.CONTENT_FILTER}
    expected = stop in always or (stop is StopReason.STOP_SEQUENCE and not text)
    assert is_cut_short(assistant(text, stop=stop)) is expected


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (Citation("a", start=0, end=0), Citation("a", start=0, end=0)),
        (Citation("a", start=2, end=1), Citation("a")),
        (Citation("a", start=-1, end=1), Citation("a")),
        (Citation("a", start=None, end=1), Citation("a")),
        (Citation("a", start=cast("int", 0.5), end=1), Citation("a")),
        (Citation(cast("str", 1), "t", "q"), Citation("", "t", "q")),
        (Citation("a", details={"b": (1,)}), Citation("a", details={"b": [1]})),
        (Citation("a", details=cast("dict[str, object]", "b")), Citation("a")),
    ],
    ids=repr,
)
def test_a_citation_has_a_span_and_details_that_can_be_stored(given: Citation, kept: Citation) -> None:
    assert sanitize_citation(given) == kept


def test_a_citation_that_can_be_stored_is_returned_as_it_is() -> None:
    citation = Citation("a", "b", "c", 0, 3, {"d": [1]})
    assert sanitize_citation(citation) is citation


# -- token counts ------------------------------------------------------------------------------------------------------


def test_token_counts_in_range_are_returned_as_they_are() -> None:
    for usage in (Usage(), Usage(1), Usage(MAX_TOKENS), Usage(1, 2, 3, 4, 5, "partial", 0.5), Usage(reported_usd=0)):
        assert clamp_usage(usage) is usage


@pytest.mark.parametrize("field", ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"])
@pytest.mark.parametrize(
    ("given", "kept"), [(-1, 0), (MAX_TOKENS + 1, MAX_TOKENS), (1.9, 1), (math.nan, 0), ("5", 0), (None, 0), (0.0, 0)]
)
def test_a_count_out_of_range_changes_no_other(field: str, given: object, kept: int) -> None:
    plain = Usage(1, 2, 3, 4, 5, "exact", 0.5)
    assert clamp_usage(replace(plain, **{field: given})) == replace(plain, **{field: kept})


def test_a_precision_that_is_not_known_is_an_estimate() -> None:
    assert clamp_usage(Usage(1, 2, 3, 4, 5, cast("Precision", "rough"), 0.5)) == Usage(1, 2, 3, 4, 5, "estimated", 0.5)


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        *[(0, True), (0.5, True), (MAX_TOKENS, True), (MAX_TOKENS + 1, False), (-0.1, False), (True, False)],
        *[("1", False), (math.nan, False), (math.inf, False), (None, False)],
    ],
)
def test_a_cost_is_a_number_that_can_be_paid(value: object, fits: bool) -> None:
    assert is_cost(value) is fits


def test_every_count_is_added_and_taken_away() -> None:
    one, other = Usage(10, 20, 30, 40, 50), Usage(1, 2, 3, 4, 5, "partial", 0.5)
    assert one + other == Usage(11, 22, 33, 44, 55, "partial")
    assert other + one == Usage(11, 22, 33, 44, 55, "partial")
    assert one.minus(other) == Usage(9, 18, 27, 36, 45)
    assert other.minus(Usage(1)) == Usage(0, 2, 3, 4, 5, "partial")
    assert merge_exact_usages([one, one]) == (Usage(20, 40, 60, 80, 100),)
    assert merge_exact_usages([]) == ()


# -- labels ------------------------------------------------------------------------------------------------------------


def test_labels_are_given_once_each_in_order() -> None:
    assert check_labels(["b", "a", "b"]) == ("b", "a")
    assert merge_labels(("b", "a"), (), ["c", "a"]) == ("b", "a", "c")
    assert user("Hi", labels=["x" * 64]).labels == ("x" * 64,)


@pytest.mark.parametrize("labels", ["untrusted", [""], ["x" * 65], ["a\nb"], [5], {"a"}], ids=repr)
def test_labels_that_are_no_list_of_short_words_are_refused(labels: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        check_labels(labels)
    assert str(refused.value) == f"labels={labels!r}: give a list of short words, such as ['untrusted']"


@pytest.mark.parametrize("results", ["text", RESULT, [RESULT, "text"], 5], ids=["text", "one", "mixed", "number"])
def test_a_message_of_results_is_made_of_results(results: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        tool_message(results)
    assert str(refused.value) == (f"{results!r} cannot be put into a message of results: give a list of ToolResult(…)")
