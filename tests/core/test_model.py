"""The seam to a model: replies put together from deltas, made sound, and priced."""

import math
import re
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import (
    Citation,
    ConfigError,
    Image,
    Message,
    ModelError,
    Settings,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    user,
)
from perdure._core.model.protocol import find_empty_reply_reason, sanitize_reply
from perdure._core.model.transcript import InputTokenEstimate
from perdure.events import (
    CitationAdded,
    ErrorRaised,
    ModelEvent,
    ReplyFinished,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReported,
)
from perdure.models import ModelInfo, Price, Request, assemble_reply, model_info
from perdure.testing import ScriptedModel
from tests.core.material import json_objects, media, texts, thoughts, torn_texts, usages

FINISHED = ReplyFinished(usage=Usage(3, 4), model="m-1", provider="p")


# -- what is known about a model ---------------------------------------------------------------------------------------


def test_a_model_that_describes_itself_is_asked():
    price = Price(input_usd=1, output_usd=2)
    assert model_info(ScriptedModel("hi", name="m-1", price=price)) == ModelInfo("m-1", "scripted", price)


def test_a_model_that_says_nothing_about_itself_is_called_by_its_class():
    class Mute:
        def stream(self, request):
            raise NotImplementedError

    assert model_info(Mute()) == ModelInfo("Mute")


# -- from deltas to a message ------------------------------------------------------------------------------------------


@given(st.lists(texts, min_size=1, max_size=5))
def test_neighbouring_pieces_of_text_become_one_part(pieces):
    message = assemble_reply([TextDelta(piece) for piece in pieces], FINISHED)
    assert message.parts == (Text("".join(pieces)),)


def test_a_reply_has_what_the_end_of_the_stream_says():
    message = assemble_reply([TextDelta("hi")], ReplyFinished(StopReason.LENGTH, Usage(3, 4), "m-1", "p"))
    assert message == Message(
        "assistant", (Text("hi"),), provider="p", model="m-1", stop=StopReason.LENGTH, usage=Usage(3, 4)
    )


@pytest.mark.parametrize(
    ("event", "stop"),
    [(TextDelta("hi"), StopReason.STOP), (ToolCallDelta("call_1", "shell"), StopReason.TOOL_USE)],
)
def test_a_stop_reason_that_was_not_told_is_what_the_parts_suggest(event, stop):
    assert assemble_reply([event], FINISHED).stop is stop
    assert assemble_reply([event, event], FINISHED).stop is stop


def test_a_reply_that_was_cut_off_keeps_what_had_come():
    message = assemble_reply([TextDelta("Hel"), TextDelta("lo"), ToolCallDelta("call_1", "shell", '{"comm')])
    assert message == Message(
        "assistant", (Text("Hello"), ToolCall("call_1", "shell", '{"comm')), stop=StopReason.CANCELLED
    )


def test_a_reply_of_nothing_has_no_parts():
    assert assemble_reply([], FINISHED).parts == ()
    assert assemble_reply([]).parts == ()


def test_the_order_of_text_thoughts_and_calls_is_kept():
    events: list[ModelEvent] = [
        ThinkingDelta("a"),
        TextDelta("b"),
        ToolCallDelta("call_1", "one", "{}", index=0),
        TextDelta("c"),
        ThinkingDelta("d"),
        ToolCallDelta("call_2", "two", "{}", index=1),
    ]
    assert assemble_reply(events, FINISHED).parts == (
        Thinking("a", provider="p", model="m-1"),
        Text("b"),
        ToolCall("call_1", "one"),
        Text("c"),
        Thinking("d", provider="p", model="m-1"),
        ToolCall("call_2", "two"),
    )


def test_blocks_of_thinking_are_told_apart_by_their_index_and_keep_their_proofs():
    events: list[ModelEvent] = [
        ThinkingDelta("Fir", index=0),
        ThinkingDelta("st", details={"id": "t1"}, index=0),
        ThinkingDelta(signature="sig-", index=0),
        ThinkingDelta(signature="1", details={"format": "x"}, index=0),
        ThinkingDelta(data="c2VjcmV0", index=1),
    ]
    assert assemble_reply(events, FINISHED).parts == (
        Thinking("First", "sig-1", "", "p", "m-1", {"id": "t1", "format": "x"}),
        Thinking("", "", "c2VjcmV0", "p", "m-1"),
    )


def test_the_pieces_of_calls_may_come_in_turns():
    events: list[ModelEvent] = [
        ToolCallDelta("a", "one", '{"x"', index=0),
        ToolCallDelta("b", "two", '{"y"', "sig", index=1),
        TextDelta("while you wait"),
        ToolCallDelta(arguments=":1}", index=0),
        ToolCallDelta(arguments=":2}", index=1),
    ]
    assert assemble_reply(events, FINISHED).parts == (
        ToolCall("a", "one", '{"x":1}'),
        ToolCall("b", "two", '{"y":2}', "sig"),
        Text("while you wait"),
    )


def test_calls_that_a_provider_gives_the_same_index_are_told_apart_by_their_ids():
    events: list[ModelEvent] = [
        ToolCallDelta("a", "one", "{"),
        ToolCallDelta("a", arguments="}"),
        ToolCallDelta("b", "two", "{"),
        ToolCallDelta("", arguments="}"),
    ]
    assert assemble_reply(events, FINISHED).parts == (ToolCall("a", "one", "{}"), ToolCall("b", "two", "{}"))


def test_the_name_and_id_of_a_call_may_come_late():
    events = [ToolCallDelta(arguments="{"), ToolCallDelta("a", arguments="}"), ToolCallDelta("", "one", "")]
    assert assemble_reply(events, FINISHED).parts == (ToolCall("a", "one", "{}"),)


@pytest.mark.parametrize(
    "event", [UsageReported(Usage(1, 1)), RetryScheduled(1, 2, 0.5, "E", "m"), ErrorRaised("E", "m")]
)
def test_events_that_are_no_part_of_the_reply_are_passed_over(event):
    assert assemble_reply([event], FINISHED).parts == ()
    assert assemble_reply([TextDelta("a"), event, TextDelta("b")], FINISHED).parts == (Text("ab"),)


@pytest.mark.parametrize(
    ("delta", "part"),
    [
        (TextDelta("a"), Text("a")),
        (ThinkingDelta("a", "s", "d", {"k": 1}), Thinking("a", "s", "d", "p", "m-1", {"k": 1})),
        (ToolCallDelta("c", "t", "{}", "s"), ToolCall("c", "t", "{}", "s")),
    ],
)
def test_a_reply_told_at_once_is_the_same_as_one_told_in_pieces(delta, part):
    assert assemble_reply([delta], FINISHED).parts == (part,)
    assert assemble_reply([delta, UsageReported(Usage())], FINISHED).parts == (part,)


def test_a_message_that_comes_whole_is_taken_as_it_is():
    image = Image(data=b"x")
    message = Message("assistant", (image,), "", "q", "m-2", StopReason.STOP, Usage(1, 1))
    assert (
        assemble_reply([TextDelta("ignored")], ReplyFinished(StopReason.LENGTH, Usage(9, 9), "m", "p", message))
        == message
    )


def test_a_message_that_comes_whole_is_given_what_only_the_end_of_the_stream_says():
    bare = Message("assistant", (ToolCall("c", "t"),))
    message = assemble_reply([], ReplyFinished(None, Usage(9, 9), "m", "p", bare))
    assert message == Message("assistant", bare.parts, "", "p", "m", StopReason.TOOL_USE, Usage(9, 9))
    assert assemble_reply([], ReplyFinished(StopReason.LENGTH, message=bare)).stop is StopReason.LENGTH


# -- sound replies -----------------------------------------------------------------------------------------------------

torn_parts = st.lists(
    st.one_of(
        st.builds(Text, torn_texts, texts),
        st.builds(Thinking, torn_texts, texts, texts, texts, texts, json_objects),
        st.builds(
            ToolCall, st.sampled_from(["a", "b", "call_1", "call_2", "", "ä"]) | torn_texts, torn_texts, torn_texts
        ),
        media,
    ),
    max_size=6,
)


@given(torn_parts, st.sets(st.sampled_from(["a", "call_1", "call_2", "call_3", "call_4"])))
def test_a_sound_reply_can_be_written_and_each_call_has_an_id_of_its_own(parts, taken):
    before = set(taken)
    reply = sanitize_reply(Message("assistant", tuple(parts)), taken)
    msgspec.json.encode(reply)
    ids = [call.call_id for call in reply.tool_calls]
    assert len(set(ids)) == len(ids)
    assert not set(ids) & taken
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", each) for each in ids)
    assert [type(part) for part in reply.parts] == [type(part) for part in parts]
    assert taken == before
    assert sanitize_reply(reply, taken) is reply


@given(texts, thoughts, media)
def test_a_reply_that_is_sound_already_stays_the_very_same(text, thought, medium):
    reply = assistant([thought, text, medium, ToolCall("call_7", "shell", text), ToolCall("call_8", "shell")])
    assert sanitize_reply(reply, {"call_1"}) is reply


@pytest.mark.parametrize(
    "metadata",
    [
        {"served_model": "m-2026"},
        {"served_model": "m" * 1000},
        {"n" * 300: "m"},
        {"modèle": "m"},
        {"served_model": "modèle"},
        {"logprobs": [1.0]},
        {str(number): "x" for number in range(100)},
    ],
)
def test_metadata_that_can_be_stored_stays_the_very_same(metadata):
    reply = msgspec.structs.replace(assistant("Hi"), metadata=metadata)
    assert sanitize_reply(reply, set()) is reply


@pytest.mark.parametrize("metadata", [{"a": "\ud800"}, {"\ud800": "a"}, {1: "a"}, {"a": {1, 2}}])
def test_metadata_that_cannot_be_stored_is_made_so(metadata):
    reply = sanitize_reply(msgspec.structs.replace(assistant("Hi"), metadata=metadata), set())
    assert msgspec.json.decode(msgspec.json.encode(reply.metadata)) == reply.metadata


def test_a_picture_beside_what_is_not_sound_stays_the_very_same():
    image = Image(data=b"x")
    reply = sanitize_reply(assistant([Text("a\ud800"), image]), set())
    assert reply.parts[0] == Text("a\ufffd")
    assert reply.parts[1] is image


@pytest.mark.parametrize("call_id", ["", "a b", "functions.shell:0", "x" * 65, "é", "a\n"])
def test_an_id_that_providers_would_refuse_is_replaced_and_remembered(call_id):
    (call,) = sanitize_reply(assistant(ToolCall(call_id, "shell", "{}", "sig")), set()).tool_calls
    assert call == ToolCall("call_1", "shell", "{}", "sig", call_id)


def test_an_id_used_before_is_replaced_by_one_that_is_free():
    reply = assistant([ToolCall("call_3", "a"), ToolCall("call_3", "b"), ToolCall("x", "c"), ToolCall("x", "d")])
    calls = sanitize_reply(reply, {"call_1", "x"}).tool_calls
    assert [(call.call_id, call.name, call.provider_call_id) for call in calls] == [
        ("call_3", "a", ""),
        ("call_4", "b", "call_3"),
        ("call_5", "c", "x"),
        ("call_6", "d", "x"),
    ]


def test_what_the_provider_called_it_is_not_forgotten():
    call = ToolCall("call_1", "a", "{\ud800}", provider_call_id="functions.a:0")
    assert sanitize_reply(assistant(call), set()).tool_calls == (
        ToolCall("call_1", "a", "{\ufffd}", "", "functions.a:0"),
    )
    assert sanitize_reply(assistant(call), {"call_1"}).tool_calls[0].provider_call_id == "functions.a:0"


def test_torn_text_is_mended_wherever_it_is():
    reply = assistant([Thinking("a\ud800", "sig"), Text("b\udfff", "sig"), ToolCall("call_1", "c\ud800", "d\ud800")])
    assert sanitize_reply(reply, set()).parts == (
        Thinking("a\ufffd", "sig"),
        Text("b\ufffd", "sig"),
        ToolCall("call_1", "c\ufffd", "d\ufffd"),
    )


# -- prices ------------------------------------------------------------------------------------------------------------


def test_cached_tokens_have_their_own_price():
    price = Price(input_usd=3, output_usd=15, cache_read_usd=0.3, cache_write_usd=3.75)
    usage = Usage(1_000_000, 100_000, cache_read_tokens=500_000, cache_write_tokens=200_000)
    assert price.cost_usd(usage) == pytest.approx(0.3 * 3 + 0.5 * 0.3 + 0.2 * 3.75 + 0.1 * 15)


@given(usages)
def test_without_a_price_of_their_own_cached_tokens_cost_as_much_as_others(usage):
    price = Price(input_usd=3, output_usd=15)
    expected = (3 * usage.input_tokens + 15 * usage.output_tokens) / 1_000_000
    assert price.cost_usd(msgspec.structs.replace(usage, reported_usd=None)) == pytest.approx(expected)


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "3"])
@pytest.mark.parametrize("field", ["input_usd", "output_usd", "cache_read_usd", "cache_write_usd"])
def test_a_price_that_is_none_is_refused(field, value):
    given = {"input_usd": 1, "output_usd": 1, field: value}
    with pytest.raises(ConfigError, match=rf"Price\({field}=.*from 0 on"):
        Price(**given)


def test_settings_take_what_providers_take():
    settings = Settings(temperature=0.5, reasoning_effort="low", tool_choice="auto", stop_sequences=("END",), seed=7)
    assert (settings.reasoning_effort, settings.stop_sequences) == ("low", ("END",))


@pytest.mark.parametrize("usage", ["12 tokens", Usage("12", 3)])  # type: ignore[arg-type]
def test_usage_that_cannot_be_added_up_is_the_models_mistake(usage):
    with pytest.raises(ModelError, match=r"Usage.* with whole numbers"):
        assemble_reply([TextDelta("Hi")], ReplyFinished(usage=usage))


def test_the_input_of_a_request_is_estimated_from_what_the_provider_counted_last():
    asked = user("x" * 400)
    answer = Message("assistant", (Text("Hello."),), usage=Usage(1000, 50))
    result = Message("tool", (ToolResult("c", "look", (Text("y" * 80),)),))
    assert InputTokenEstimate().estimate([asked], 25) == 125
    assert InputTokenEstimate().estimate([asked, answer, result], 25) == 1070
    assert [InputTokenEstimate().estimate([user("x" * size)], 0) for size in (0, 3, 4, 7, 8)] == [
        0,
        0,
        1,
        1,
        2,
    ]
    told = [answer, user("x" * 3)]
    assert InputTokenEstimate().estimate(told, 25) == InputTokenEstimate().estimate(told[:1], 25)


@pytest.mark.parametrize(
    ("stop", "known"),
    [("max_output_tokens", StopReason.STOP), (StopReason.LENGTH, StopReason.LENGTH), ("length", StopReason.LENGTH)],
)
def test_a_reply_with_names_that_cannot_be_stored_keeps_what_can_be_known(stop, known):
    reply = Message("assistant", (Text("Hello."),), stop=stop, provider="p\ud800", metadata={"x": {1, 2}})
    kept = sanitize_reply(reply)
    assert (kept.stop, kept.provider, kept.text) == (known, "p\ufffd", "Hello.")
    assert msgspec.json.decode(msgspec.json.encode(kept), type=Message) == kept


@pytest.mark.parametrize("field", ["provider", "model", "origin", "original_text"])
def test_each_name_in_a_reply_that_cannot_be_stored_is_mended(field):
    names = {"provider": "p", "model": "m", "origin": "o", "original_text": "t"}
    kept = sanitize_reply(msgspec.structs.replace(assistant("Hello."), **{**names, field: "x\ud800"}))
    assert {name: getattr(kept, name) for name in names} == {**names, field: "x\ufffd"}


def test_a_reply_that_says_no_reason_has_none_also_when_its_author_has_to_be_mended():
    assert sanitize_reply(Message("assistant", (Text("Hello."),), origin="x\ud800")).stop is None


def test_a_signature_and_a_picture_that_cannot_be_stored_are_mended():
    picture = Image(data=5)  # type: ignore[arg-type]
    reply = sanitize_reply(assistant([Text("a", "sig\ud800"), Text("b", "sig"), picture]))
    assert reply.parts == (Text("a", "sig\ufffd"), Text("b", "sig"), Text("[unreadable]"))


def test_a_picture_alone_stays_the_very_same():
    reply = assistant([Image(data=b"x")])
    assert sanitize_reply(reply) is reply


# -- replies without text ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", list(StopReason))
def test_some_stop_reasons_explain_a_reply_without_text(stop):
    explains = {StopReason.LENGTH, StopReason.CONTENT_FILTER, StopReason.STOP_SEQUENCE}
    assert find_empty_reply_reason(stop, Request(messages=())) is (stop if stop in explains else None)


@pytest.mark.parametrize("stop", [None, *StopReason])
def test_a_reply_without_text_that_just_stopped_has_met_a_stop_sequence_if_there_are_any(stop):
    request = Request(messages=(), settings=Settings(stop_sequences=("END",)))
    expected = {
        None: StopReason.STOP_SEQUENCE,
        StopReason.STOP: StopReason.STOP_SEQUENCE,
        StopReason.TOOL_USE: None,
        StopReason.PAUSE: None,
        StopReason.CANCELLED: None,
        StopReason.ERROR: None,
    }
    assert find_empty_reply_reason(stop, request) is expected.get(stop, stop)


def test_a_cost_that_the_provider_reports_wins_over_the_price():
    price = Price(input_usd=3, output_usd=15)
    assert price.cost_usd(Usage(1_000_000, 0, reported_usd=0.25)) == 0.25
    assert price.cost_usd(Usage(1_000_000, 0, reported_usd=0.0)) == 0.0


# -- citations and metadata --------------------------------------------------------------------------------------------


def test_citations_follow_the_text_that_they_belong_to_and_do_not_divide_it():
    one, two, three = Citation("a", start=0, end=3), Citation("b"), Citation("c")
    events: list[ModelEvent] = [
        TextDelta("One "),
        CitationAdded(one),
        TextDelta("two."),
        CitationAdded(two),
        ToolCallDelta("call_1", "look", "{}"),
        TextDelta("Three."),
        CitationAdded(three),
    ]
    call = ToolCall("call_1", "look")
    assert assemble_reply(events, FINISHED).parts == (Text("One two."), one, two, call, Text("Three."), three)
    assert assemble_reply([CitationAdded(one)], FINISHED).parts == (one,)
    assert assemble_reply([CitationAdded(one), ThinkingDelta("a")], FINISHED).parts[0] == one


def test_what_the_provider_says_about_a_reply_is_metadata_of_the_message():
    told = ReplyFinished(metadata={"service_tier": "flex"})
    assert assemble_reply([TextDelta("a")], told).metadata == {"service_tier": "flex"}
    own = Message("assistant", (Text("a"),), metadata={"service_tier": "own", "n": 1})
    whole = ReplyFinished(message=own, metadata={"service_tier": "flex", "served_by": "x"})
    assert assemble_reply([], whole).metadata == {"service_tier": "own", "n": 1, "served_by": "x"}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (Citation("a\ud800", "b\ud800", "c\ud800"), Citation("a\ufffd", "b\ufffd", "c\ufffd")),
        (Citation("a", start=-1, end=3), Citation("a")),
        (Citation("a", start=4, end=3), Citation("a")),
        (Citation("a", start=1), Citation("a")),
        (Citation("a", end=True, start=0), Citation("a")),
        (Citation(cast("str", 7)), Citation()),
        (Citation("a", details=cast("dict[str, Any]", [1])), Citation("a")),
        (Citation("a", details={"b": "\ud800"}), Citation("a", details={"b": "\ufffd"})),
        (Citation("a", "b", "c", 0, 3, {"d": [1]}), Citation("a", "b", "c", 0, 3, {"d": [1]})),
    ],
    ids=repr,
)
def test_a_citation_is_stored_in_a_form_that_can_be_read_back(given, kept):
    assert sanitize_reply(assistant(["Text", given]), set()).parts == (Text("Text"), kept)


# -- what is checked, and what is computed -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("temperature", "hot", ""),
        ("top_p", 1.5, ""),
        ("max_output_tokens", 0, ""),
        ("stop_sequences", "END", "give a list of texts, such as ('END',)"),
        ("stop_sequences", ["END", 1], "give a list of texts, such as ('END',)"),
        ("seed", 1.5, ""),
        ("seed", -(2**63) - 1, ""),
        ("reasoning_effort", "much", ""),
        ("reasoning_tokens", -1, ""),
        ("thinking", True, ""),
        ("chat_template_kwargs", [1], "give a dict of JSON values"),
        ("reasoning_in_text", "yes", ""),
        ("echo_reasoning", 1, ""),
        ("citations", "yes", ""),
        ("cache", "2h", ""),
        ("tool_choice", True, "give 'auto', 'none', 'required', or the name of a tool"),
        ("parallel_tool_calls", 1, ""),
        ("extra_body", {"a": object()}, "give a dict of JSON values"),
        ("extra_body", 5, "give a dict of JSON values"),
    ],
)
def test_a_setting_that_no_provider_takes_is_refused(name: str, value: object, advice: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Settings(**cast("Any", {name: value}))
    assert str(refused.value).startswith(f"Settings({name}=")
    assert str(refused.value).endswith(advice)


def test_settings_at_their_bounds_are_accepted() -> None:
    least = Settings(temperature=0, top_p=0, max_output_tokens=1, seed=-(2**63), reasoning_tokens=0)
    assert (least.top_p, least.seed) == (0, -(2**63))
    assert Settings(top_p=1, stop_sequences=cast("Any", ["END"]), extra_body={"a": [1]}).top_p == 1


@pytest.mark.parametrize("field", ["context_tokens", "max_output_tokens"])
def test_facts_about_a_model_are_checked(field: str) -> None:
    assert getattr(ModelInfo("m", **cast("Any", {field: 1})), field) == 1
    with pytest.raises(ConfigError, match=rf"ModelInfo\({field}=0"):
        ModelInfo("m", **cast("Any", {field: 0}))


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ({"name": 5}, "ModelInfo(name=5)"),
        ({"name": "m", "provider": None}, "ModelInfo(provider=None)"),
        ({"name": "m", "output": "xml"}, "ModelInfo(output='xml')"),
    ],
)
def test_other_facts_about_a_model_are_checked_too(given: dict[str, Any], start: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ModelInfo(**given)
    assert str(refused.value).startswith(start)


def test_the_price_of_a_model_is_a_price() -> None:
    with pytest.raises(ConfigError) as refused:
        ModelInfo("m", price=cast("Any", 3.0))
    assert str(refused.value) == "ModelInfo(price=3.0): give a Price(…), or None when it is not known"


def test_the_info_of_a_model_is_a_model_info() -> None:
    class Odd:
        info = "gpt"

    with pytest.raises(ConfigError) as refused:
        model_info(cast("Any", Odd()))
    assert str(refused.value) == "Odd(info='gpt'): the info of a model is a ModelInfo(…)"


def test_a_million_tokens_cost_their_price() -> None:
    price = Price(input_usd=2.0, output_usd=8.0, cache_read_usd=0.5, cache_write_usd=4.0)
    assert price.cost_usd(Usage(1_000_000)) == 2.0
    assert price.cost_usd(Usage(0, 1_000_000)) == 8.0
    assert price.cost_usd(Usage(1_000_000, cache_read_tokens=1_000_000)) == 0.5
    assert price.cost_usd(Usage(1_000_000, cache_write_tokens=1_000_000)) == 4.0
    assert price.cost_usd(Usage(4_000_000, 1_000_000, 1_000_000, 1_000_000)) == 4.0 + 8.0 + 0.5 + 4.0


def test_a_price_may_be_nothing_and_is_read_back_as_it_was_stored() -> None:
    price = Price(input_usd=0, output_usd=1.5, cache_write_usd=2.5)
    assert (price.read_usd, price.write_usd, price.to_tuple()) == (0, 2.5, (0, 1.5, None, 2.5))
    assert Price.from_tuple(price.to_tuple()) == price
    unreadable: list[Any] = [(), (1.0,), (-1.0, 1.0), ("a", 1.0)]
    assert [Price.from_tuple(each) for each in unreadable] == [None] * 4


def test_tokens_that_a_provider_has_not_counted_are_estimated_from_text_alone() -> None:
    uncounted = Message(
        "assistant", (Thinking("x" * 400), Text("y" * 40), ToolCall("c", "f", "z" * 400)), usage=Usage()
    )
    assert InputTokenEstimate().estimate([user("x" * 8), uncounted], 100) == 112


def test_the_usage_of_a_reply_that_was_cut_off_is_the_last_that_was_told() -> None:
    events: list[ModelEvent] = [UsageReported(Usage(1)), UsageReported(Usage(2, 1)), TextDelta("a"), TextDelta("b")]
    cut = assemble_reply(events)
    assert cut == Message("assistant", (Text("ab"),), stop=StopReason.CANCELLED, usage=Usage(2, 1, precision="partial"))
    assert assemble_reply(events[2:]).usage is None


def test_a_reply_is_made_of_everything_that_was_told() -> None:
    finished = ReplyFinished(usage=Usage(3, 4), model="m", provider="p", metadata={"tier": "flex"})
    events: list[ModelEvent] = [
        ThinkingDelta("a", signature="s1", data="d1", details={"x": 1}),
        ThinkingDelta("b", signature="s2", data="d2", details={"y": 2}, is_item=True),
        TextDelta("Hel"),
        TextDelta("lo"),
        ToolCallDelta("", "", '{"a":', index=1),
        ToolCallDelta("c1", "look", "1}", index=1, signature="s3"),
    ]
    assert assemble_reply(events, finished) == Message(
        "assistant",
        (
            Thinking("ab", "s1s2", "d1d2", "p", "m", {"x": 1, "y": 2}, is_item=True),
            Text("Hello"),
            ToolCall("c1", "look", '{"a":1}', "s3"),
        ),
        provider="p",
        model="m",
        stop=StopReason.TOOL_USE,
        usage=Usage(3, 4),
        metadata={"tier": "flex"},
    )
    assert assemble_reply(events[:1], finished).parts == (Thinking("a", "s1", "d1", "p", "m", {"x": 1}),)


# -- what is mended ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        Message("assistant", (Text("a"),), origin="steering"),
        Message("assistant", (Text("a"),), original_text="é"),
        Message("assistant", (Text("a"),), provider="é", model="é", stop=StopReason.STOP),
        assistant(ToolCall("c1", "look", "{}", "sig", "id")),
        assistant(ToolCall("c1", "é", "é", "é", "é")),
        assistant(ToolCall("x" * 64, "look")),
        assistant(Thinking("é", "é", "é", "é", "é", {"a": "é"})),
        assistant(ToolResult("c1", "look", (Text("a"),))),
    ],
    ids=repr,
)
def test_a_reply_that_can_be_stored_is_returned_as_it_is(reply: Message) -> None:
    assert sanitize_reply(reply) is reply


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (ToolCall("c", "a\ud800"), ToolCall("c", "a\ufffd")),
        (ToolCall("c", "a", "\ud800"), ToolCall("c", "a", "\ufffd")),
        (ToolCall("c", "a", "{}", "\ud800"), ToolCall("c", "a", "{}", "\ufffd")),
        (ToolCall("c", "a", "{}", "", "\ud800"), ToolCall("c", "a", "{}", "", "\ufffd")),
        (
            ToolCall("c d", "a", "{}", run_by_provider=True),
            ToolCall("call_1", "a", "{}", "", "c d", run_by_provider=True),
        ),
        (Thinking("\ud800"), Thinking("\ufffd")),
        (Thinking("a", "\ud800"), Thinking("a", "\ufffd")),
        (Thinking("a", "", "\ud800"), Thinking("a", "", "\ufffd")),
        (Thinking("a", "", "", "\ud800"), Thinking("a", "", "", "\ufffd")),
        (Thinking("a", "", "", "", "\ud800"), Thinking("a", "", "", "", "\ufffd")),
        (Thinking("a", details={"b": "\ud800"}, is_item=True), Thinking("a", details={"b": "\ufffd"}, is_item=True)),
        (Text("a", "\ud800"), Text("a", "\ufffd")),
        (Image(data=b"x", name="\ud800"), Image(data=b"x", name="\ufffd")),
    ],
    ids=ascii,
)
def test_each_text_of_a_part_is_mended_and_the_others_stay(given: Any, kept: Any) -> None:
    assert sanitize_reply(assistant([given, Text("b")])).parts == (kept, Text("b"))


def test_each_text_of_a_reply_is_mended_and_the_others_stay() -> None:
    plain = Message("assistant", (Text("a"),), "é", "é", "é", StopReason.STOP, original_text="é", metadata={"a": "b"})
    for field in ("provider", "model", "origin", "original_text"):
        torn = msgspec.structs.replace(plain, **{field: "\ud800"})
        assert sanitize_reply(torn) == msgspec.structs.replace(plain, **{field: "\ufffd"})


def test_an_id_is_replaced_by_the_first_that_is_free() -> None:
    reply = assistant([ToolCall("", "a"), ToolCall("", "b")])
    taken = {"call_3", "x"}
    assert [call.call_id for call in sanitize_reply(reply, taken).tool_calls] == ["call_4", "call_5"]
    assert [call.call_id for call in sanitize_reply(reply, {"x"}).tool_calls] == ["call_2", "call_3"]
