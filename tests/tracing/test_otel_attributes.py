"""Attributes of spans: their names by each version of the conventions."""

import json

import pytest

from perdure import Citation, Message, StopReason, Text, Thinking, ToolCall, ToolResult, Usage
from perdure._tracing.export.attributes import (
    encode_messages,
    provider_attributes,
    reply_attributes,
    request_attributes,
    usage_attributes,
)
from perdure.events import ModelRequested

REQUESTED = ModelRequested(
    1, model="m", provider="openai", settings={"temperature": 0.0, "top_p": None, "stop_sequences": ["a"], "seed": 7}
)
USAGE = Usage(10, 5, 4, 3, 2)


def test_a_request_has_the_settings_that_were_given_and_is_streamed():
    assert request_attributes(REQUESTED, "1.44") == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.stop_sequences": ["a"],
        "gen_ai.request.seed": 7,
        "gen_ai.request.stream": True,
    }
    older = request_attributes(REQUESTED, "1.36")
    assert older["gen_ai.system"] == "openai"
    assert not {"gen_ai.provider.name", "gen_ai.request.stream"} & {*older}
    assert request_attributes(ModelRequested(1, settings={"stop_sequences": ()}), "1.36") == {
        "gen_ai.operation.name": "chat"
    }


def test_token_counts_that_are_known_are_attributes():
    assert usage_attributes(USAGE, "1.44") == {
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.cache_creation.input_tokens": 3,
        "gen_ai.usage.reasoning.output_tokens": 2,
    }
    assert usage_attributes(USAGE, "1.36", "x") == {"x.input_tokens": 10, "x.output_tokens": 5}
    assert usage_attributes(Usage(1), "1.44") == {"gen_ai.usage.input_tokens": 1, "gen_ai.usage.output_tokens": 0}
    assert usage_attributes(Usage(), "1.44") == usage_attributes(None, "1.44") == {}


def test_a_reply_has_its_model_its_reason_and_its_tokens():
    reply = Message("assistant", (Text("hi"),), model="m-2", stop=StopReason.LENGTH, usage=USAGE)
    found = reply_attributes(reply, "1.36")
    assert (found["gen_ai.response.model"], found["gen_ai.response.finish_reasons"]) == ("m-2", ["length"])
    assert found["gen_ai.usage.input_tokens"] == 10
    assert reply_attributes(Message("assistant", (Text("hi"),)), "1.36") == {}


@pytest.mark.parametrize(("is_output", "more"), [(False, {}), (True, {"finish_reason": "stop"})])
def test_messages_are_encoded_with_their_reason_if_they_are_replies(is_output, more):
    encoded = encode_messages([Message("assistant", (Text("hé"),))], is_output=is_output)
    assert json.loads(encoded) == [{"role": "assistant", "parts": [{"type": "text", "content": "hé"}], **more}]
    assert "hé" in encoded


def test_an_unknown_provider_has_no_attribute():
    assert provider_attributes("", "1.44") == {}


def test_each_kind_of_part_has_its_form_and_one_without_a_form_its_text():
    parts = (
        Text("hé"),
        Thinking("hm"),
        ToolCall("c", "look", '{"at":1}'),
        ToolCall("d", "look", '{"at":'),
        ToolResult("c", "look", (Text("seen"),)),
        Citation("https://example.com", "Example"),
    )
    assert json.loads(encode_messages([Message("assistant", parts, stop=StopReason.TOOL_USE)], is_output=True)) == [
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": "hé"},
                {"type": "reasoning", "content": "hm"},
                {"type": "tool_call", "id": "c", "name": "look", "arguments": {"at": 1}},
                {"type": "tool_call", "id": "d", "name": "look", "arguments": '{"at":'},
                {"type": "tool_call_response", "id": "c", "response": "seen"},
                {"type": "citation", "content": "[source: Example https://example.com]"},
            ],
            "finish_reason": "tool_call",
        }
    ]


def test_a_provider_with_another_name_in_the_conventions_has_that_one():
    assert provider_attributes("bedrock", "1.44") == {"gen_ai.provider.name": "aws.bedrock"}
    assert provider_attributes("acme", "1.36") == {"gen_ai.system": "acme"}
