"""What stands around the items of a request on the Responses wire."""

from typing import Any

import pytest

from perdure import ConfigError, OutputSpec, user
from perdure._models.wires.openai_responses import WIRE
from perdure._models.wires.openai_responses.encode import MAX_CACHED_TOOL_LISTS, build_cache_key, encode_tools
from perdure.models import Profile, ToolSpec
from tests.models.openai_responses.speaking import PROFILE, WEATHER, body

HELLO = [user("hello")]
STRICT = Profile(provider="openai", model="gpt-9", strict_tools=True, schema="openai_strict")
EMPTY: dict[str, Any] = {"type": "object", "properties": {}}
CODEX = Profile(provider="codex", model="gpt-9", dialect="codex", streams=False)


def test_a_bare_request_stores_nothing_and_asks_for_encrypted_reasoning() -> None:
    sent = body(HELLO)
    assert (sent["store"], sent["stream"]) == (False, True)
    assert sent["include"] == ["reasoning.encrypted_content"]
    assert sent.keys() == {"model", "store", "stream", "include", "input"}


@pytest.mark.parametrize("model", ["gpt-4.1", "gpt-4o-mini", "openai/gpt-4o", "gpt-3.5-turbo", "gpt-5-chat-latest"])
def test_a_model_that_does_not_reason_is_asked_for_no_reasoning(model: str) -> None:
    profile = Profile(provider="openai", model=model)
    sent = body(HELLO, profile, reasoning_effort="low")
    assert "include" not in sent
    assert "reasoning" not in sent
    assert WIRE.lint(sent, profile) == []


def test_settings_go_where_the_wire_has_a_place_for_them() -> None:
    sent = body(
        HELLO,
        max_output_tokens=100,
        reasoning_effort="high",
        parallel_tool_calls=False,
        tools=[WEATHER],
        tool_choice="weather",
        session_id="s1",
    )
    assert sent["max_output_tokens"] == 100
    assert sent["reasoning"] == {"effort": "high", "summary": "auto"}
    assert sent["parallel_tool_calls"] is False
    assert sent["tool_choice"] == {"type": "function", "name": "weather"}
    assert sent["prompt_cache_key"] == "s1"


@pytest.mark.parametrize(
    ("thinking", "asked"), [("on", {"summary": "auto"}), ("off", {"effort": "none"}), ("auto", None)]
)
def test_thinking_is_switched_by_the_effort(thinking: Any, asked: Any) -> None:
    assert body(HELLO, thinking=thinking).get("reasoning") == asked


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_a_general_choice_is_sent_as_it_is(choice: str) -> None:
    assert body(HELLO, tools=[WEATHER], tool_choice=choice)["tool_choice"] == choice


def test_a_choice_without_tools_is_not_sent() -> None:
    assert "tool_choice" not in body(HELLO, tool_choice="auto")


def test_a_switched_off_cache_has_no_key() -> None:
    assert "prompt_cache_key" not in body(HELLO, session_id="s1", cache="off")


def test_a_long_or_strange_name_of_a_session_is_made_short_and_plain() -> None:
    for name in ("x" * 100, "séance", "a\nb"):
        key = build_cache_key(name)
        assert len(key) <= 64
        assert key.isascii()
        assert key.isprintable()
        assert key != build_cache_key(name + "!")


def test_a_tool_is_strict_where_that_loses_nothing() -> None:
    anything = ToolSpec("anything", "", {"type": "object", "additionalProperties": True})
    sent = body(HELLO, STRICT, tools=[WEATHER, anything])
    weather, free = sent["tools"]
    assert weather["strict"] is True
    assert weather["parameters"]["additionalProperties"] is False
    assert free["strict"] is False
    assert WIRE.lint(sent, STRICT) == []


def test_a_tool_is_never_strict_where_the_profile_does_not_say_so() -> None:
    (weather,) = body(HELLO, tools=[WEATHER])["tools"]
    assert weather["strict"] is False
    assert weather["parameters"] == WEATHER.parameters


def test_a_list_of_tools_that_cannot_change_is_encoded_once() -> None:
    fixed = (WEATHER,)
    assert encode_tools(fixed, PROFILE) is encode_tools(fixed, PROFILE)
    assert encode_tools(fixed, PROFILE) is not encode_tools(fixed, STRICT)
    changing = [WEATHER]
    before = body(HELLO, tools=changing)["tools"]
    changing.append(ToolSpec("other", "", {"type": "object", "properties": {}}))
    assert len(body(HELLO, tools=changing)["tools"]) == len(before) + 1


def test_only_so_many_lists_of_tools_are_remembered() -> None:
    lists = [(ToolSpec(f"t{number}", "", {"type": "object"}),) for number in range(MAX_CACHED_TOOL_LISTS + 1)]
    first = encode_tools(lists[0], PROFILE)
    for each in lists[1:]:
        encode_tools(each, PROFILE)
    assert encode_tools(lists[0], PROFILE) is not first


def test_tools_are_left_out_where_they_are_called_by_other_means() -> None:
    assert "tools" not in body(HELLO, Profile(provider="p", model="m", tools="json"), tools=[WEATHER])


def test_an_output_is_a_schema_with_a_name_that_the_provider_takes() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    sent = body(HELLO, STRICT, output=OutputSpec("A number!", schema, "Just one."))
    form = sent["text"]["format"]
    assert (form["type"], form["name"], form["description"]) == ("json_schema", "A_number_", "Just one.")
    assert form["strict"] is True
    assert form["schema"]["additionalProperties"] is False
    assert WIRE.lint(sent, STRICT) == []


def test_an_output_is_any_object_where_schemas_are_not_known() -> None:
    output = OutputSpec("n", {"type": "object"})
    assert body(HELLO, Profile(provider="p", model="m", output="object"), output=output)["text"] == {
        "format": {"type": "json_object"}
    }
    assert "text" not in body(HELLO, Profile(provider="p", model="m", output="none"), output=output)


def test_an_extra_body_is_merged_and_wins() -> None:
    extra = {
        "text": {"verbosity": "low"},
        "tools": [{"type": "web_search"}],
        "temperature": 0.1,
        "metadata": {"a": "b"},
    }
    output = OutputSpec("n", {"type": "object"})
    sent = body(HELLO, tools=[WEATHER], output=output, temperature=0.9, extra_body=extra)
    assert sent["text"]["verbosity"] == "low"
    assert sent["text"]["format"]["name"] == "n"
    assert [tool["type"] for tool in sent["tools"]] == ["function", "web_search"]
    assert sent["temperature"] == 0.1
    assert sent["metadata"] == {"a": "b"}


def test_an_extra_body_cannot_take_the_place_of_the_conversation() -> None:
    with pytest.raises(ConfigError, match="input is made from the messages"):
        body(HELLO, extra_body={"input": "something else"})


def test_the_endpoint_of_the_subscription_gets_what_it_demands_and_nothing_that_it_refuses() -> None:
    sent = body(HELLO, CODEX, temperature=0.5, top_p=0.5, max_output_tokens=100)
    assert (sent["stream"], sent["store"]) == (True, False)
    assert sent["instructions"]
    assert not {"temperature", "top_p", "max_output_tokens"} & sent.keys()
    assert WIRE.lint(sent, CODEX) == []


def test_servers_of_open_models_are_asked_for_nothing_that_they_may_not_know() -> None:
    sent = body(HELLO, Profile(provider="p", model="m", dialect="open"), session_id="s", reasoning_effort="low")
    assert not {"include", "prompt_cache_key"} & sent.keys()
    assert sent["reasoning"]["effort"] == "low"


def test_an_endpoint_that_cannot_stream_is_not_asked_to() -> None:
    assert body(HELLO, Profile(provider="p", model="m", streams=False))["stream"] is False


def test_the_profile_says_which_model_is_asked() -> None:
    assert body(HELLO)["model"] == PROFILE.model


def test_the_key_of_the_cache_is_the_id_of_the_session_as_long_as_it_may_be():
    assert build_cache_key("x" * 64) == "x" * 64
    for other in ("x" * 65, "ü", "a\nb"):
        assert len(build_cache_key(other)) == 64
        assert build_cache_key(other) != other


def test_lists_of_an_extra_body_are_added_to_ours_and_mappings_are_merged_at_any_depth() -> None:
    extra = {
        "include": ["file_search_call.results"],
        "reasoning": {"summary": "detailed"},
        "text": {"format": {"strict": True}},
        "stream": False,
    }
    output = OutputSpec("n", EMPTY)
    sent = body(HELLO, reasoning_effort="low", output=output, extra_body=extra)
    assert sent["include"] == ["reasoning.encrypted_content", "file_search_call.results"]
    assert sent["reasoning"] == {"effort": "low", "summary": "detailed"}
    assert sent["text"]["format"] == {"type": "json_schema", "name": "n", "schema": EMPTY, "strict": True}
    assert sent["stream"] is False


def test_tools_of_an_extra_body_are_sent_alone_where_there_are_no_others() -> None:
    assert body(HELLO, extra_body={"tools": [{"type": "web_search"}]})["tools"] == [{"type": "web_search"}]


def test_a_tool_of_an_extra_body_replaces_ours_of_its_name() -> None:
    theirs = {"type": "custom", "name": "weather"}
    assert body(HELLO, tools=(WEATHER,), extra_body={"tools": [theirs]})["tools"] == [theirs]


def test_the_error_about_a_reserved_field_shows_what_was_given() -> None:
    with pytest.raises(ConfigError) as caught:
        body(HELLO, extra_body={"input": "x"})
    assert str(caught.value) == "extra_body={'input': 'x'}: input is made from the messages; leave it out here"


@pytest.mark.parametrize(("name", "sent"), [("n" * 64, "n" * 64), ("n" * 65, "n" * 64), ("", "output")])
def test_the_name_of_an_output_is_as_long_as_it_may_be(name: str, sent: str) -> None:
    form = body(HELLO, output=OutputSpec(name, EMPTY))["text"]["format"]
    assert form == {"type": "json_schema", "name": sent, "schema": EMPTY, "strict": False}


def test_parallel_calls_are_spoken_of_only_to_a_model_that_can_make_them() -> None:
    single = Profile(provider="p", model="m", parallel_tool_calls=False)
    assert "parallel_tool_calls" not in body(HELLO, single, tools=[WEATHER], parallel_tool_calls=True)
    assert body(HELLO, tools=[WEATHER], parallel_tool_calls=True)["parallel_tool_calls"] is True


def test_instructions_take_the_place_of_those_that_an_endpoint_demands() -> None:
    assert body(HELLO, CODEX, instructions="Be brief.")["instructions"] == "Be brief."
    assert body(HELLO, CODEX)["instructions"] == "You are a helpful assistant."
    assert "instructions" not in body(HELLO)


def test_as_many_lists_of_tools_as_are_allowed_are_remembered() -> None:
    lists = [(ToolSpec(f"k{number}", "", {"type": "object"}),) for number in range(MAX_CACHED_TOOL_LISTS)]
    encoded = [encode_tools(each, PROFILE) for each in lists]
    assert all(encode_tools(each, PROFILE) is raw for each, raw in zip(lists, encoded, strict=True))
