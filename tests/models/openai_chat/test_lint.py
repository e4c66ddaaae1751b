"""What providers of chat completions refuse, told offline."""

from typing import Any

import pytest

from perdure.models.openai_chat import WIRE
from perdure.models.profile import Profile
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
