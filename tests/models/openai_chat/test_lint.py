"""What providers of chat completions refuse, told offline."""

from typing import Any

import pytest

from perdure._models.wires.openai_chat import WIRE
from perdure.models import Profile
from tests.models.openai_chat.material import PROFILE

USER = {"role": "user", "content": "Hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
SAID = {"role": "assistant", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "3"}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def complaints(messages: list[Any], profile: Profile = PROFILE, **more: Any) -> str:
    """What there is to complain about."""
    return "\n".join(WIRE.lint({"model": "m", "messages": messages, **more}, profile))


def test_a_sound_request_is_accepted() -> None:
    assert (
        complaints([{"role": "system", "content": "x"}, USER, SAID, RESULT, USER], tools=[TOOL], tool_choice="auto")
        == ""
    )
    assert complaints([USER], tools=[TOOL], tool_choice={"type": "function", "function": {"name": "add"}}) == ""


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([], "no messages"),
        ([{"role": "robot", "content": "x"}], "role 'robot'"),
        ([{"role": "user", "content": ""}], "no content"),
        ([USER, {"role": "assistant", "content": None}], "neither content nor calls"),
        ([USER, SAID], "'c1' has no result"),
        ([USER, SAID, USER], "no result before the next message"),
        ([USER, RESULT], "which the message before has not"),
        ([USER, SAID, RESULT, RESULT], "which the message before has not"),
        ([USER, SAID, {**RESULT, "content": None}], "has no content"),
        ([USER, {"role": "assistant", "tool_calls": [CALL, CALL]}, RESULT], "same id"),
        ([USER, {"role": "assistant", "tool_calls": [{**CALL, "id": ""}]}], "has no id"),
        ([USER, {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"arguments": "{}"}}]}], "names no tool"),
        (
            [USER, {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "a", "arguments": {}}}]}],
            "not text",
        ),
    ],
)
def test_messages_that_would_be_refused_are_found(messages: list[Any], complaint: str) -> None:
    assert complaint in complaints(messages)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"tools": [{"type": "function", "function": {"name": "no spaces"}}]}, "named 'no spaces'"),
        ({"tools": [TOOL, TOOL]}, "two tools are named 'add'"),
        ({"tools": [TOOL] * 200}, "200 tools"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "string"}}}]},
            "to be an object",
        ),
        ({"tool_choice": "auto"}, "no tools"),
        ({"tools": [TOOL], "tool_choice": "sometimes"}, "'sometimes'"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "b"}}}, "names 'b'"),
        ({"response_format": {"type": "yaml"}}, "'yaml'"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {"type": "object"}}}},
            "'a b'",
        ),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}, "no schema"),
        ({"stream_options": {}}, "stream_options"),
        ({"max_tokens": 1, "max_completion_tokens": 1}, "exclude each other"),
        ({"model": ""}, "no model"),
    ],
)
def test_fields_that_would_be_refused_are_found(fields: dict[str, Any], complaint: str) -> None:
    assert complaint in complaints([USER], **fields)


def test_what_a_model_cannot_look_at_is_found() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    blind = Profile(provider="deepseek", model="v4", dialect="deepseek", images=False)
    assert "takes no images" in complaints([{"role": "user", "content": [picture]}], blind)


def test_mistral_has_rules_of_its_own() -> None:
    mistral = Profile(provider="mistral", model="m", dialect="mistral")
    assert "nine letters" in complaints([USER, SAID, RESULT], mistral)
    assert "last message" in complaints([USER, {"role": "assistant", "content": "Well,"}], mistral)
    assert complaints([USER, {"role": "assistant", "content": "Well,"}]) == ""


def test_there_may_be_exactly_as_many_tools_as_are_allowed() -> None:
    tools = [{"type": "function", "function": {"name": f"t{n}", "parameters": {"type": "object"}}} for n in range(129)]
    assert complaints([USER], tools=tools[:128]) == ""
    assert "there are 129 tools; 128 are allowed" in complaints([USER], tools=tools)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        (
            [{"role": "robot", "content": "x"}],
            "a message has the role 'robot'; there are assistant, developer, function, system, tool, user",
        ),
        ([{"role": "user"}], "a message of the user has no content"),
        ([{"role": "user", "content": []}], "a message of the user has no content"),
        ([USER, {"role": "assistant", "content": ""}], "a message of the assistant has neither content nor calls"),
        ([USER, SAID], "the call 'c1' has no result"),
        ([USER, SAID, USER], "the call 'c1' has no result before the next message, of 'user'"),
        (
            [USER, RESULT],
            "a result is for the call 'c1', which the message before has not; waiting: none",
        ),
        (
            [USER, {"role": "assistant", "tool_calls": [CALL, {**CALL, "id": "c2"}]}, {**RESULT, "tool_call_id": "c3"}],
            "a result is for the call 'c3', which the message before has not; waiting: 'c1', 'c2'",
        ),
        (
            [USER, {"role": "assistant", "tool_calls": [CALL, {**CALL, "id": "c2"}]}, RESULT],
            "the call 'c2' has no result",
        ),
        ([USER, SAID, {**RESULT, "content": None}], "the result of the call 'c1' has no content"),
        (
            [USER, {"role": "assistant", "tool_calls": [CALL, {**CALL, "id": "c2"}, CALL]}],
            "two calls of a message have the same id: 'c1', 'c2', 'c1'",
        ),
        ([USER, {"role": "assistant", "tool_calls": [{**CALL, "id": None}]}], "a call of 'add' has no id"),
        (
            [USER, {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": 7, "arguments": "{}"}}]}],
            "the call 'c1' names no tool",
        ),
        (
            [USER, {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "", "arguments": "{}"}}]}],
            "the call 'c1' names no tool",
        ),
        (
            [USER, {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "a"}}]}],
            "the arguments of the call 'c1' are not text; give JSON as text",
        ),
    ],
)
def test_a_complaint_about_a_message_says_what_is_wrong(messages: list[Any], complaint: str) -> None:
    assert complaints(messages) == complaint


@pytest.mark.parametrize(
    "messages",
    [
        [USER, {"role": "assistant", "function_call": {"name": "add", "arguments": "{}"}}],
        [USER, {"role": "assistant", "refusal": "I will not."}],
        [{"role": "system", "content": ""}, {"role": "developer"}, USER],
        [
            USER,
            {"role": "assistant", "tool_calls": [CALL, {**CALL, "id": "c2"}]},
            {**RESULT, "tool_call_id": "c2"},
            RESULT,
        ],
        [USER, SAID, {**RESULT, "content": ""}, USER],
    ],
)
def test_messages_that_are_taken_raise_no_complaint(messages: list[Any]) -> None:
    assert complaints(messages) == ""


def test_all_that_is_wrong_with_the_fields_is_listed_in_order() -> None:
    nameless = {"type": "function", "function": {"parameters": {"type": "array"}}}
    found = complaints(
        [{"role": "user", "content": [{"type": "video_url"}, {"type": "input_audio"}, {"type": "text"}]}],
        Profile(provider="openai", model="m", dialect="openai"),
        model="",
        tools=[TOOL, nameless, TOOL, {"type": "web"}],
        tool_choice={"type": "function", "function": {"name": "web"}},
        response_format={"type": "json_schema", "json_schema": {"name": "n" * 65}},
        stream_options={},
        max_tokens=1,
        max_completion_tokens=1,
    )
    assert found.split("\n") == [
        "there is an item 'input_audio', and 'm' takes no audio",
        "there is an item 'video_url', and 'm' takes no video",
        "a tool is named None; use up to 64 letters, digits, '_' and '-'",
        "two tools are named 'add'",
        "the parameters of None are 'array'; they have to be an object",
        "tool_choice names 'web', which is not a tool of this request",
        f"response_format names its schema {'n' * 65!r}; use up to 64 letters, digits, '_' and '-'",
        "response_format has no schema",
        "no model is named",
        "stream_options is only allowed together with stream",
        "max_tokens and max_completion_tokens exclude each other",
    ]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"tool_choice": "required"}, "tool_choice is 'required', and there are no tools"),
        (
            {"tools": [TOOL], "tool_choice": "some"},
            "tool_choice is 'some'; use 'auto', 'none', 'required', or an object that names a tool",
        ),
        ({"tools": [TOOL], "tool_choice": {"name": "b"}}, "tool_choice names 'b', which is not a tool of this request"),
        (
            {"response_format": {}},
            "response_format has the type None; use 'text', 'json_object' or 'json_schema'",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}},
            "response_format names its schema None; use up to 64 letters, digits, '_' and '-'",
        ),
    ],
)
def test_a_complaint_about_a_field_says_what_is_wrong(fields: dict[str, Any], complaint: str) -> None:
    assert complaints([USER], **fields) == complaint


@pytest.mark.parametrize(
    "fields",
    [
        *[{"tools": [TOOL], "tool_choice": choice} for choice in ("auto", "none", "required", "any", {"type": "x"})],
        {"tools": [{"type": "function", "function": {"name": "n" * 64}}]},
        {"tools": [{"type": "function", "function": {"name": "n.m", "parameters": {"properties": {}}}}]},
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object"}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n" * 64, "schema": {"type": "object"}},
            }
        },
        {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 1},
    ],
)
def test_fields_that_are_taken_raise_no_complaint(fields: dict[str, Any]) -> None:
    assert complaints([USER], **fields) == ""


def test_a_provider_whose_address_names_the_model_needs_none_in_the_body() -> None:
    assert complaints([USER], Profile(provider="azure", model="m", dialect="azure"), model="") == ""


def test_rules_of_mistral_are_told_in_full() -> None:
    mistral = Profile(provider="mistral", model="m", dialect="mistral")
    nine = {**CALL, "id": "abcdef123"}
    answered = [USER, {"role": "assistant", "tool_calls": [nine]}, {**RESULT, "tool_call_id": "abcdef123"}]
    assert complaints(answered, mistral) == ""
    assert complaints([USER, SAID, RESULT], mistral) == (
        "the id of a call is 'c1'; it has to be nine letters and digits"
    )
    assert complaints([*answered, {"role": "assistant", "content": "Well,"}], mistral) == (
        "the last message has to be of the user, or a result; it is of the assistant"
    )
