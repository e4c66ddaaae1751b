"""A request, from its values to its bytes."""

import json
from typing import Any

import pytest

from perdure import (
    ConfigError,
    Message,
    OutputSpec,
    Settings,
    Status,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    assistant,
    tool_message,
    user,
)
from perdure._models.endpoint.memo import ProviderRuleError
from perdure._models.wires.gemini import WIRE
from perdure._models.wires.gemini.encode import GeminiMessageEncoder
from perdure.models import EncodingMemo, Profile, Request, ToolSpec

OLD = Profile(provider="google", model="gemini-2.5-flash", schema="gemini")
NEW = Profile(provider="google", model="gemini-3-flash", schema="gemini")
WEATHER = ToolSpec("weather", "How it is there", {"type": "object", "properties": {"city": {"type": "string"}}})
NOW = ToolSpec("now", "What time it is", {"type": "object", "properties": {}})
ANSWER = OutputSpec("answer", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})


def body_of(profile: Profile = OLD, **fields: Any) -> dict[str, Any]:
    sending = WIRE.encode(Request(**{"messages": [user("Hi")], **fields}), profile, EncodingMemo())
    body = json.loads(sending.body)
    assert list(WIRE.lint(body, profile)) == []
    return body


def test_a_word_alone_is_a_content_alone():
    assert body_of() == {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}


@pytest.mark.parametrize(
    ("model", "streams", "path"),
    [
        ("gemini-2.5-flash", True, "/models/gemini-2.5-flash:streamGenerateContent?alt=sse"),
        ("gemini-2.5-flash", False, "/models/gemini-2.5-flash:generateContent"),
        ("tunedModels/mine", True, "/tunedModels/mine:streamGenerateContent?alt=sse"),
        ("odd name?", False, "/models/odd%20name%3F:generateContent"),
    ],
)
def test_the_model_is_in_the_path(model, streams, path):
    profile = Profile(provider="google", model=model, streams=streams)
    assert WIRE.encode(Request(messages=[user("Hi")]), profile, EncodingMemo()).path == path


def test_a_whole_request():
    messages = [
        user("How is it in Rome and Oslo?"),
        Message(
            "assistant",
            (Thinking("Both."), ToolCall("c1", "weather", '{"city":"Rome"}', "S"), ToolCall("c2", "weather", "?")),
            "",
            "google",
            "gemini-3-flash",
            metadata={"secret": "never sent"},
        ),
        tool_message([ToolResult("c1", "weather", (Text("sunny"),)), ToolResult("c2", "weather", (), Status.UNKNOWN)]),
        user("Go on.", origin="steering"),
    ]
    settings = Settings(
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=100,
        stop_sequences=("END",),
        seed=-1,
        reasoning_effort="low",
        tool_choice="weather",
        parallel_tool_calls=False,
        extra_body={"safetySettings": [], "generationConfig": {"topK": 4}},
    )
    body = body_of(
        NEW, messages=messages, instructions="Be kind.", tools=[WEATHER, NOW], settings=settings, output=ANSWER
    )
    config = body["generationConfig"]
    assert config.pop("responseJsonSchema")["properties"] == {"n": {"type": "integer"}}
    assert body == {
        "contents": [
            {"role": "user", "parts": [{"text": "How is it in Rome and Oslo?"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "Both.", "thought": True},
                    {
                        "functionCall": {"id": "c1", "name": "weather", "args": {"city": "Rome"}},
                        "thoughtSignature": "S",
                    },
                    {"functionCall": {"id": "c2", "name": "weather", "args": {"_raw": "?"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "c1", "name": "weather", "response": {"output": "sunny"}}},
                    {
                        "functionResponse": {
                            "id": "c2",
                            "name": "weather",
                            "response": {"error": "The call has ended with the status 'unknown'."},
                        }
                    },
                ],
            },
            {"role": "user", "parts": [{"text": "Go on."}]},
        ],
        "systemInstruction": {"parts": [{"text": "Be kind."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "weather",
                        "description": "How it is there",
                        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
                    },
                    {"name": "now", "description": "What time it is"},
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["weather"]}},
        "safetySettings": [],
        "generationConfig": {
            "temperature": 0.5,
            "topP": 0.9,
            "maxOutputTokens": 100,
            "stopSequences": ["END"],
            "seed": 2**31 - 1,
            "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"},
            "responseMimeType": "application/json",
            "topK": 4,
        },
    }


@pytest.mark.parametrize(("choice", "mode"), [("auto", "AUTO"), ("none", "NONE"), ("required", "ANY")])
def test_the_choice_of_a_tool_is_a_mode(choice, mode):
    body = body_of(tools=[WEATHER], settings=Settings(tool_choice=choice))
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": mode}}
    assert "toolConfig" not in body_of(settings=Settings(tool_choice=choice))


def test_a_model_that_takes_no_tools_is_given_none():
    assert "tools" not in body_of(Profile(provider="google", model="gemma-3", tools="json"), tools=[WEATHER])


def test_an_older_model_with_tools_is_asked_for_json_in_words():
    body = body_of(OLD, tools=[WEATHER], instructions="Be kind.", output=ANSWER)
    assert "generationConfig" not in body
    kind, schema = [part["text"] for part in body["systemInstruction"]["parts"]]
    assert kind == "Be kind."
    assert '"required":["n"]' in schema
    assert "responseJsonSchema" in body_of(OLD, output=ANSWER)["generationConfig"]


def test_a_model_without_schemas_is_held_to_json():
    profile = Profile(provider="google", model="gemini-1.5-flash", output="object")
    assert body_of(profile, output=ANSWER)["generationConfig"] == {"responseMimeType": "application/json"}


def test_what_the_caller_adds_wins_and_tools_of_the_provider_come_beside_ours():
    extra = {"tools": [{"googleSearch": {}}], "generationConfig": {"temperature": 1}, "labels": {"a": "b"}}
    body = body_of(tools=[NOW], settings=Settings(temperature=0.1, extra_body=extra))
    assert body["generationConfig"] == {"temperature": 1}
    assert [sorted(tool) for tool in body["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert body["labels"] == {"a": "b"}
    assert body_of(settings=Settings(extra_body={"tools": [{"googleSearch": {}}]}))["tools"] == [{"googleSearch": {}}]


def test_the_conversation_cannot_be_replaced():
    with pytest.raises(ConfigError, match="contents"):
        body_of(settings=Settings(extra_body={"contents": []}))


def test_a_conversation_that_would_be_refused_is_not_sent():
    lost = tool_message([ToolResult("c1", "f")])
    with pytest.raises(ProviderRuleError, match="answers no call"):
        body_of(messages=[user("Hi"), lost])
    with pytest.raises(ProviderRuleError, match="there are no contents"):
        body_of(messages=[])


def test_a_model_that_spoke_last_is_asked_to_go_on():
    assert body_of(messages=[assistant("Hi")])["contents"] == [
        {"role": "user", "parts": [{"text": "Continue."}]},
        {"role": "model", "parts": [{"text": "Hi"}]},
        {"role": "user", "parts": [{"text": "Continue."}]},
    ]


def test_a_message_is_encoded_once_for_each_way_to_encode_it(monkeypatch):
    encoded: list[Message] = []
    of = GeminiMessageEncoder.encode_message

    def counted(self, message):
        encoded.append(message)
        return of(self, message)

    monkeypatch.setattr(GeminiMessageEncoder, "encode_message", counted)
    memo = EncodingMemo()
    messages = [user("a"), Message("assistant", (Text("b", "S"),), "", "google", "gemini-2.5-flash"), user("c")]
    for echo in (True, True, False):
        settings = Settings(echo_reasoning=echo)
        sent = WIRE.encode(Request(messages=messages, settings=settings, session_id="s"), OLD, memo)
        assert (b"thoughtSignature" in sent.body) is echo
    assert encoded == [*messages, *messages]
