"""Requests of this wire: what goes where, what is left out, and what the memo and the cache see."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import (
    Audio,
    ConfigError,
    Document,
    Image,
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
from perdure._core.values.message import Part
from perdure._models.endpoint.memo import ProviderRuleError
from perdure._models.wires.anthropic import WIRE
from perdure.models import EncodingMemo, Profile, Request, ToolSpec

CLAUDE = Profile(provider="anthropic", model="claude-haiku-4-5", documents=True, cache="marked")
PLAIN = Profile(provider="anthropic", model="claude-haiku-4-5", cache="none")
WEATHER = ToolSpec(
    "weather",
    "The weather of a town.",
    {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
)
PNG, PDF = b"\x89PNG\r\n\x1a\n", b"%PDF-1"


def own(*parts: Part) -> Message:
    return Message("assistant", parts, provider="anthropic", model="claude-haiku-4-5")


def body_of(
    messages: Sequence[Message],
    profile: Profile = PLAIN,
    memo: EncodingMemo | None = None,
    settings: Any = None,
    **more: Any,
) -> Any:
    request = Request(messages=messages, settings=Settings(**(settings or {})), **more)
    body = msgspec.json.decode(WIRE.encode(request, profile, memo or EncodingMemo()).body)
    assert WIRE.lint(body, profile) == []
    return body


def blocks_of(*parts: Part, profile: Profile = PLAIN) -> list[Any]:
    return body_of([Message("user", parts)], profile)["messages"][0]["content"]


def test_a_request_is_said_as_the_golden_file_has_it() -> None:
    messages = [
        user(
            [
                "What is this?",
                Image(PNG),
                Document(PDF, name="a.pdf"),
                Document(b"words", media_type="text/markdown"),
                Audio(b"la"),
                " ",
            ]
        ),
        own(
            Thinking(signature="sig=="),
            Thinking(data="c2VjcmV0"),
            Text("I look."),
            Thinking(
                details={
                    "type": "server_tool_use",
                    "id": "srvtoolu_1",
                    "name": "web_search",
                    "input": {"query": "Bonn"},
                }
            ),
            Text("\n\n"),
            ToolCall("call_1", "weather", '{"town": "Bonn"}'),
            ToolCall("call_2", "no such tool!", "{oh"),
        ),
        tool_message(
            [
                ToolResult(
                    "call_1", "weather", (Text("Rain"), Image(url="https://example.com/a.png")), render={"x": 1}
                ),
                ToolResult("call_2", "no such tool!", (), Status.ERROR, summary="short"),
            ]
        ),
    ]
    settings = {
        "max_output_tokens": 4000,
        "reasoning_tokens": 2048,
        "temperature": 0.3,
        "top_p": 0.5,
        "stop_sequences": ("END", " "),
        "parallel_tool_calls": False,
        "cache": "1h",
    }
    body = body_of(messages, CLAUDE, settings=settings, instructions="Be brief.", tools=[WEATHER], session_id="s")
    assert body == json.loads((Path(__file__).parent / "golden" / "request.json").read_text())


def test_the_version_is_said_in_a_header_and_a_file_by_its_id_needs_another() -> None:
    sending = WIRE.encode(Request(messages=[user("Hello")]), PLAIN, EncodingMemo())
    assert (sending.path, sending.headers["anthropic-version"]) == ("/v1/messages", "2023-06-01")
    assert "anthropic-beta" not in sending.headers
    sending = WIRE.encode(Request(messages=[user(Image(file_id="file_1"))]), PLAIN, EncodingMemo())
    assert sending.headers["anthropic-beta"] == "files-api-2025-04-14"
    assert b'"source":{"type":"file","file_id":"file_1"}' in sending.body


# -- media -------------------------------------------------------------------------------------------------------------


def test_what_the_model_cannot_take_is_told_in_a_note() -> None:
    blind = msgspec.structs.replace(PLAIN, images=False)
    assert blocks_of(Image(PNG, name="a.png"), profile=blind) == [
        {"type": "text", "text": "[image a.png: this model cannot look at images]"}
    ]
    notes = [block["text"] for block in blocks_of(Document(PDF), Document(url="https://example.com/a.docx"))]
    assert notes == [
        "[document: this model cannot read documents]",
        "[document https://example.com/a.docx: this model cannot read documents]",
    ]
    unknown = blocks_of(Image(b"BM", media_type="image/bmp"), Document(b"\xff", name="x"), profile=CLAUDE)
    assert [block["text"] for block in unknown] == [
        "[image: this model cannot take image/bmp]",
        "[document x: this model cannot take files of an unknown type]",
    ]


def test_words_in_a_document_are_said_to_a_model_that_reads_no_documents() -> None:
    assert blocks_of(Document(b"a,b", media_type="text/csv", name="t.csv")) == [
        {"type": "text", "text": "[document t.csv]\na,b"}
    ]
    assert blocks_of(Document(b"a,b")) == [{"type": "text", "text": "a,b"}]


def test_a_picture_is_what_its_bytes_say() -> None:
    (block,) = blocks_of(Image(b"\xff\xd8\xff\xe0", media_type="image/png"))
    assert block["source"]["media_type"] == "image/jpeg"
    (block,) = blocks_of(Document(PNG, name="scan"))
    assert block["type"] == "image"


def test_a_document_that_is_no_pdf_is_not_fetched() -> None:
    (block,) = blocks_of(Document(url="https://example.com/a", media_type="text/html"), profile=CLAUDE)
    assert block["text"] == "[document https://example.com/a: this model cannot take text/html]"
    (block,) = blocks_of(Document(url="https://example.com/a.pdf"), profile=CLAUDE)
    assert block["source"] == {"type": "url", "url": "https://example.com/a.pdf"}


def test_a_picture_that_a_model_made_is_told_to_it_in_a_note() -> None:
    body = body_of([user("Draw"), assistant(Image(PNG, name="cat.png")), user("Again")])
    assert body["messages"][1]["content"][0]["text"].startswith("[image cat.png: made by the model")


# -- thinking in the conversation --------------------------------------------------------------------------------------


def said(message: Message, profile: Profile = PLAIN, **settings: Any) -> list[Any]:
    body = body_of([user("Hello"), message, user("Go on")], profile, settings=settings)
    return next(item["content"] for item in body["messages"] if item["role"] == "assistant")


def test_thinking_goes_back_to_its_author_alone() -> None:
    parts = (Thinking("hm", "sig"), Text("Hello"))
    assert said(own(*parts))[0] == {"type": "thinking", "thinking": "hm", "signature": "sig"}
    assert said(Message("assistant", parts, provider="anthropic", model="another")) == [
        {"type": "text", "text": "Hello"}
    ]
    assert said(own(*parts), echo_reasoning=False) == [{"type": "text", "text": "Hello"}]


def test_thinking_without_a_signature_goes_back_only_where_none_is_wanted() -> None:
    parts = (Thinking("hm"), Text("Hello"))
    assert said(own(*parts)) == [{"type": "text", "text": "Hello"}]
    other = Profile(provider="minimax", model="MiniMax-M3")
    assert said(Message("assistant", parts, provider="minimax", model="MiniMax-M3"), other)[0]["thinking"] == "hm"


def test_the_blocks_of_the_providers_tools_go_back_even_when_thinking_does_not() -> None:
    block = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    assert said(own(Thinking(details=block), Text("Hello")), echo_reasoning=False)[0] == block


# -- the conversation --------------------------------------------------------------------------------------------------


def test_a_message_with_nothing_in_it_is_left_out_or_said_to_be_empty() -> None:
    body = body_of([user(""), assistant(" "), user("Hello")])
    assert [item["role"] for item in body["messages"]] == ["user", "user"]
    assert body["messages"][0]["content"] == [{"type": "text", "text": "(nothing was said)"}]


def test_a_conversation_that_the_model_began_gets_a_beginning() -> None:
    body = body_of([assistant("How can I help?"), user("Hello")])
    assert [item["role"] for item in body["messages"]] == ["user", "assistant", "user"]


def test_what_the_model_is_to_go_on_from_does_not_end_in_blanks() -> None:
    memo, messages = EncodingMemo(), [user("Hello"), assistant("The answer is \n")]
    for _ in range(2):
        body = body_of(messages, CLAUDE, memo, session_id="s")
        assert body["messages"][1]["content"] == [
            {"type": "text", "text": "The answer is", "cache_control": {"type": "ephemeral"}}
        ]
    body = body_of([*messages, user("Well?")], CLAUDE, memo, session_id="s")
    assert body["messages"][1]["content"] == [{"type": "text", "text": "The answer is \n"}]


def test_a_system_message_among_the_others_is_said_by_the_user() -> None:
    body = body_of([Message("system", (Text("Be kind."),)), user("Hello")])
    assert body["messages"][0] == {"role": "user", "content": [{"type": "text", "text": "Be kind."}]}


def test_a_call_without_a_result_is_not_sent() -> None:
    with pytest.raises(ProviderRuleError, match="c1"):
        body_of([user("Hello"), own(ToolCall("c1", "weather"))], tools=[WEATHER])


def test_an_empty_conversation_is_not_sent() -> None:
    with pytest.raises(ProviderRuleError, match="nothing in the conversation"):
        body_of([])


def test_calls_of_tools_that_are_gone_keep_a_tool_beside_them() -> None:
    call, result = ToolCall("c1", "old tool"), ToolResult("c1", "old tool", (Text("x"),))
    body = body_of([user("Hello"), own(call), tool_message([result])])
    assert [tool["name"] for tool in body["tools"]] == ["old_tool"]
    assert body["tool_choice"] == {"type": "none"}


# -- the memo and the cache --------------------------------------------------------------------------------------------


def test_each_message_is_encoded_once_and_marks_move_with_the_end() -> None:
    memo, messages = EncodingMemo(), [user("one")]
    marked = {"type": "ephemeral"}
    for turn in range(4):
        body = body_of(messages, CLAUDE, memo, session_id="s")
        marks = [item["content"][-1].get("cache_control") for item in body["messages"]]
        assert marks == [None] * (len(messages) - 1) + [marked]
        messages = [*messages, own(Text(f"reply {turn}")), user(f"more {turn}")]


def test_words_that_only_one_request_has_stand_behind_the_mark() -> None:
    body = body_of([user("one"), user("still waiting", origin="reminder")], CLAUDE)
    assert ["cache_control" in item["content"][-1] for item in body["messages"]] == [True, False]
    body = body_of([user("still waiting", origin="reminder")], CLAUDE)
    assert "cache_control" not in body["messages"][0]["content"][-1]


def test_the_stable_prefix_is_marked_at_the_instructions_or_else_at_the_last_tool() -> None:
    mark = {"type": "ephemeral"}
    body = body_of([user("Hello")], CLAUDE, instructions="Be brief.", tools=[WEATHER])
    assert body["system"][0]["cache_control"] == mark
    assert "cache_control" not in body["tools"][0]
    body = body_of([user("Hello")], CLAUDE, instructions=" ", tools=[WEATHER, WEATHER_OF_OLD])
    assert "system" not in body
    assert ["cache_control" in tool for tool in body["tools"]] == [False, True]


WEATHER_OF_OLD = ToolSpec("weather_of_old", "", {"type": "object", "properties": {}})


@pytest.mark.parametrize(("profile", "cache"), [(CLAUDE, "off"), (PLAIN, None), (PLAIN, "1h")])
def test_nothing_is_marked_when_nobody_wants_it(profile: Profile, cache: str | None) -> None:
    body = body_of([user("Hello")], profile, settings={"cache": cache}, instructions="Be brief.", tools=[WEATHER])
    assert b"cache_control" not in msgspec.json.encode(body)


def test_a_thought_at_the_end_of_a_reply_is_not_sent_back() -> None:
    cut_off, asked = own(Thinking("hm", "sig")), user("Hello")
    assert body_of([asked, cut_off, user("Well?")], CLAUDE)["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "user", "content": [{"type": "text", "text": "Well?", "cache_control": {"type": "ephemeral"}}]},
    ]
    half = own(Thinking("hm", "sig"), Text("Half"), Thinking("", "", "redacted"))
    kept = body_of([asked, half, user("Well?")], CLAUDE)["messages"][1]["content"]
    assert [block["type"] for block in kept] == ["thinking", "text"]


# -- settings ----------------------------------------------------------------------------------------------------------


def test_an_effort_in_extra_body_leaves_the_schema_of_the_answer() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    asked: dict[str, Any] = {"settings": {"extra_body": {"output_config": {"effort": "max"}}}}
    config = body_of([user("Hello")], output=OutputSpec("n", schema), **asked)["output_config"]
    assert (config["effort"], config["format"]["type"]) == ("max", "json_schema")
    assert body_of([user("Hello")], **asked)["output_config"] == {"effort": "max"}


def test_extra_body_wins_but_does_not_replace_the_conversation() -> None:
    body = body_of([user("Hello")], settings={"extra_body": {"max_tokens": 7, "metadata": {"user_id": "u"}}})
    assert (body["max_tokens"], body["metadata"]) == (7, {"user_id": "u"})
    with pytest.raises(ConfigError, match="messages"):
        body_of([user("Hello")], settings={"extra_body": {"messages": []}})


@pytest.mark.parametrize(
    ("choice", "said_as"),
    [
        (None, None),
        ("auto", None),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ("weather", {"type": "tool", "name": "weather"}),
    ],
)
def test_the_choice_of_a_tool_is_said(choice: str | None, said_as: Any) -> None:
    body = body_of([user("Hello")], settings={"tool_choice": choice}, tools=[WEATHER])
    assert body.get("tool_choice") == said_as
    assert "tool_choice" not in body_of([user("Hello")], settings={"tool_choice": choice})


@pytest.mark.parametrize(("top_p", "is_sent"), [(0.94, False), (0.95, True), (0.96, True)])
def test_a_model_that_thinks_gets_only_a_top_p_that_it_takes(top_p: float, is_sent: bool) -> None:
    settings = {"max_output_tokens": 4000, "reasoning_tokens": 2048, "top_p": top_p}
    assert ("top_p" in body_of([user("Hello")], CLAUDE, settings=settings)) is is_sent
    assert body_of([user("Hello")], settings={"top_p": top_p})["top_p"] == top_p


def test_one_of_temperature_and_top_p_is_said() -> None:
    assert body_of([user("Hello")], settings={"temperature": 1.4, "top_p": 0.9})["temperature"] == 1.0
    assert body_of([user("Hello")], settings={"top_p": 0.9})["top_p"] == 0.9
    newest = msgspec.structs.replace(PLAIN, model="claude-opus-5")
    body = body_of([user("Hello")], newest, settings={"temperature": 0.5, "top_p": 0.9})
    assert not {"temperature", "top_p"} & set(body)


def test_a_schema_for_the_answer_is_said_where_the_model_can_be_held_to_it() -> None:
    spec = OutputSpec("dog", {"type": "object", "properties": {"name": {"type": "string"}}})
    body = body_of([user("Hello")], output=spec)
    wanted = {**spec.schema, "additionalProperties": False}
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": wanted}}
    assert "output_config" not in body_of([user("Hello")], msgspec.structs.replace(PLAIN, output="none"), output=spec)


def test_an_endpoint_that_does_not_stream_is_not_asked_to() -> None:
    assert "stream" not in body_of([user("Hello")], msgspec.structs.replace(PLAIN, streams=False))


def test_tools_that_can_be_strict_are_said_to_be() -> None:
    strict = msgspec.structs.replace(PLAIN, strict_tools=True)
    free = ToolSpec("free", "", {"type": "object", "additionalProperties": {"type": "string"}})
    closed, opened = body_of([user("Hello")], strict, tools=[WEATHER, free])["tools"]
    assert closed["strict"] is True
    assert closed["input_schema"]["additionalProperties"] is False
    assert "strict" not in opened


def test_a_model_that_decides_itself_is_told_the_effort_beside_the_schema() -> None:
    newest = msgspec.structs.replace(PLAIN, model="claude-opus-5", max_output_tokens=4000)
    spec = OutputSpec("dog", {"type": "object", "properties": {}})
    body = body_of([user("Hello")], newest, settings={"reasoning_effort": "low"}, output=spec)
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    assert body == {
        "model": "claude-opus-5",
        "max_tokens": 4000,
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": schema}},
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
    }


@pytest.mark.parametrize(
    ("settings", "able", "said_as"),
    [
        ({}, True, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"tool_choice": "required"}, True, {"type": "any", "disable_parallel_tool_use": True}),
        ({"tool_choice": "none"}, True, {"type": "none"}),
        ({}, False, None),
    ],
)
def test_one_call_at_a_time_is_asked_for_where_the_model_could_make_more(
    settings: Any, able: bool, said_as: Any
) -> None:
    profile = msgspec.structs.replace(PLAIN, parallel_tool_calls=able)
    body = body_of([user("Hello")], profile, settings={**settings, "parallel_tool_calls": False}, tools=[WEATHER])
    assert body.get("tool_choice") == said_as
    body = body_of([user("Hello")], profile, settings={"parallel_tool_calls": True}, tools=[WEATHER])
    assert "tool_choice" not in body


def test_a_tool_without_a_description_is_sent_without_one() -> None:
    blank = ToolSpec("blank", " ", {"type": "object", "properties": {}})
    assert body_of([user("Hello")], tools=[blank])["tools"] == [
        {"name": "blank", "input_schema": {"type": "object", "properties": {}}}
    ]


def test_the_tools_of_extra_body_are_added_to_ours_and_can_be_called() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    settings = {"extra_body": {"tools": [search], "top_k": 5}, "tool_choice": "none"}
    body = body_of([user("Hello")], settings=settings, tools=[WEATHER_OF_OLD])
    assert (body["tools"][1:], body["tool_choice"], body["top_k"]) == ([search], {"type": "none"}, 5)
    assert [tool["name"] for tool in body["tools"]] == ["weather_of_old", "web_search"]
    call, result = ToolCall("c1", "old"), ToolResult("c1", "old", (Text("x"),))
    body = body_of([user("Hello"), own(call), tool_message([result])], settings={"extra_body": {"tools": [search]}})
    assert [tool["name"] for tool in body["tools"]] == ["old", "web_search"]
    assert "tool_choice" not in body


def test_parts_that_no_user_says_are_left_out_of_a_users_message() -> None:
    assert blocks_of(Text("Hello"), Thinking("hm", "sig"), ToolCall("c1", "weather")) == [
        {"type": "text", "text": "Hello"}
    ]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [('{"a": 1}', {"a": 1}), ("", {}), (" ", {}), ("[1]", {"_raw": "[1]"}), ("{oh", {"_raw": "{oh"})],
)
def test_arguments_are_always_sent_as_an_object(arguments: str, sent: Any) -> None:
    call, result = ToolCall("c1", "weather", arguments), ToolResult("c1", "weather", (Text("x"),))
    body = body_of([user("Hello"), own(call), tool_message([result])], tools=[WEATHER])
    assert body["messages"][1:] == [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": sent}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "x"}]}],
        },
    ]


@pytest.mark.parametrize(
    ("status", "content", "sent"),
    [
        (Status.OK, (), {}),
        (Status.OK, (Text("x"),), {"content": [{"type": "text", "text": "x"}]}),
        (Status.ERROR, (), {"is_error": True, "content": [{"type": "text", "text": "(error)"}]}),
        (Status.ERROR, (Text("oh"),), {"is_error": True, "content": [{"type": "text", "text": "oh"}]}),
    ],
)
def test_a_result_is_sent_with_its_content_and_an_error_never_without(status: Status, content: Any, sent: Any) -> None:
    messages = [
        user("Hello"),
        own(ToolCall("c1", "weather")),
        tool_message([ToolResult("c1", "weather", content, status)]),
    ]
    body = body_of(messages, tools=[WEATHER])
    assert body["messages"][2]["content"] == [{"type": "tool_result", "tool_use_id": "c1", **sent}]
