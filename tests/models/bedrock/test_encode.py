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
    Video,
    assistant,
    tool_message,
    user,
)
from perdure._core.values.message import Part
from perdure._models.endpoint.memo import ProviderRuleError
from perdure._models.wires.bedrock import WIRE
from perdure._models.wires.bedrock.features import DIALECTS, get_model_features
from perdure.models import EncodingMemo, Profile, Request, ToolSpec

CLAUDE = Profile(provider="bedrock", model="us.anthropic.claude-haiku-4-5-v1:0", documents=True, cache="marked")
NOVA = Profile(provider="bedrock", model="us.amazon.nova-lite-v1:0", documents=True, video=True, cache="marked")
LLAMA = Profile(provider="bedrock", model="us.meta.llama4-v1:0", images=False, cache="none")
WEATHER = ToolSpec(
    "weather",
    "The weather of a town.",
    {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
)
PNG, PDF = b"\x89PNG\r\n\x1a\n", b"%PDF-1"
CALL, RESULT = ToolCall("c1", "weather"), ToolResult("c1", "weather", (Text("x"),))


def body_of(
    messages: Sequence[Message],
    profile: Profile = LLAMA,
    memo: EncodingMemo | None = None,
    settings: Any = None,
    **more: Any,
) -> Any:
    request = Request(messages=messages, settings=Settings(**(settings or {})), **more)
    body = msgspec.json.decode(WIRE.encode(request, profile, memo or EncodingMemo()).body)
    assert WIRE.lint(body, profile) == []
    return body


def own(*parts: Part, profile: Profile = CLAUDE) -> Message:
    return Message("assistant", parts, provider=profile.provider, model=profile.model)


def blocks_of(*parts: Part, profile: Profile) -> list[Any]:
    return body_of([Message("user", parts)], msgspec.structs.replace(profile, cache="none"))["messages"][0]["content"]


def test_a_request_is_said_as_the_golden_file_has_it() -> None:
    messages = [
        user(["What is this?", Image(PNG), Document(PDF, name="my  report_v2.pdf"), Audio(b"la"), " "]),
        user("And hurry.", origin="steering"),
        own(
            Thinking(signature="sig=="),
            Thinking(data="c2VjcmV0"),
            Thinking("unsigned"),
            Text("I look."),
            ToolCall("call_1", "weather", '{"town": "Bonn"}'),
            ToolCall("call_2", "no such tool!", "{oh"),
        ),
        tool_message(
            [
                ToolResult("call_1", "weather", (Text("Rain"),), render={"x": 1}),
                ToolResult("call_2", "no such tool!", (), Status.ERROR),
            ]
        ),
        user("Well?"),
    ]
    settings = {
        "max_output_tokens": 4000,
        "reasoning_tokens": 2048,
        "temperature": 0.3,
        "stop_sequences": ("END", " "),
        "parallel_tool_calls": False,
    }
    body = body_of(messages, CLAUDE, settings=settings, instructions="Be brief.", tools=[WEATHER], session_id="s")
    assert body == json.loads((Path(__file__).parent / "golden" / "request.json").read_text())


def test_the_address_names_the_model_and_whether_it_streams() -> None:
    request = Request(messages=[user("Hello")])
    assert WIRE.encode(request, LLAMA, EncodingMemo()).path == "/model/us.meta.llama4-v1%3A0/converse-stream"
    quiet = Profile(provider="bedrock", model="arn:aws:bedrock:eu-west-1:1:inference-profile/x", streams=False)
    path = WIRE.encode(request, quiet, EncodingMemo()).path
    assert path == "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2Fx/converse"


def test_a_request_of_nothing_but_words_has_nothing_else_in_it() -> None:
    assert body_of([user("Hello")]) == {"messages": [{"role": "user", "content": [{"text": "Hello"}]}]}


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("eu.anthropic.claude-sonnet-4-5-v1:0", "claude"),
        ("us.amazon.nova-2-lite-v1:0", "nova_2"),
        ("amazon.nova-micro-v1:0", "nova"),
        ("openai.gpt-oss-120b-1:0", "gpt_oss"),
        ("moonshot.kimi-k2-thinking", "other"),
    ],
)
def test_the_name_of_a_model_tells_its_maker(model: str, name: str) -> None:
    assert get_model_features("", model) is DIALECTS[name]
    assert get_model_features("nova", model) is DIALECTS["nova"]


# -- the conversation --------------------------------------------------------------------------------------------------


def test_neighbours_of_the_user_are_joined_those_of_the_model_parted_and_the_memo_does_not_mind() -> None:
    memo = EncodingMemo()
    messages = [user("a"), user("b"), assistant("c"), assistant("d"), user("e")]
    for length in (1, 2, 3, 4, 5, 2, 5):
        body = body_of(messages[:length], NOVA, memo, session_id="s")
        roles = [item["role"] for item in body["messages"]]
        assert roles == ["user", "assistant", "user", "assistant", "user"][: len(roles)]
        texts = [block["text"] for item in body["messages"] for block in item["content"] if "text" in block]
        assert texts == ["a", "b", "c", *(["Continue.", "d", "e"] if length > 3 else [])][: length + (length > 3)]


def test_a_conversation_that_the_model_began_gets_a_beginning() -> None:
    assert [item["role"] for item in body_of([assistant("Hi"), user("Hello")])["messages"]] == [
        "user",
        "assistant",
        "user",
    ]


def test_what_the_model_is_to_go_on_from_does_not_end_in_blanks() -> None:
    body = body_of([user("Hello"), assistant("The answer is \n")], CLAUDE)
    assert body["messages"][1]["content"] == [{"text": "The answer is"}]
    ran = {"toolUse": {"toolUseId": "a", "name": "search", "input": {}, "type": "server_tool_use"}}
    body = body_of([user("Hello"), own(Thinking(details=ran))], CLAUDE, tools=[WEATHER])
    assert body["messages"][1]["content"] == [ran]


def test_a_thought_at_the_end_of_a_reply_is_not_sent_back() -> None:
    messages = body_of([user("Hello"), own(Thinking("hm", "sig")), user("Well?")])["messages"]
    assert messages == [{"role": "user", "content": [{"text": "Hello"}, {"text": "Well?"}]}]
    half = own(Thinking("hm", "sig"), Text("Half"), Thinking("", "", "redacted"), profile=CLAUDE)
    kept = body_of([user("Hello"), half, user("Well?")], CLAUDE)["messages"][1]["content"]
    assert [next(iter(block)) for block in kept] == ["reasoningContent", "text"]


def test_a_message_with_nothing_in_it_is_left_out_or_said_to_be_empty() -> None:
    body = body_of([user(""), assistant(" "), user("Hello")])
    assert body["messages"] == [{"role": "user", "content": [{"text": "(nothing was said)"}, {"text": "Hello"}]}]


def test_a_call_without_a_result_is_not_sent() -> None:
    with pytest.raises(ProviderRuleError, match="c1"):
        body_of([user("Hello"), own(CALL)], tools=[WEATHER])


def test_thinking_goes_back_to_its_author_alone() -> None:
    parts = (Thinking("hm", "sig"), Text("Hello"))
    for message, settings, kinds in [
        (own(*parts), {}, ["reasoningContent", "text"]),
        (own(*parts), {"echo_reasoning": False}, ["text"]),
        (own(*parts, profile=NOVA), {}, ["text"]),
    ]:
        body = body_of([user("a"), message, user("b")], CLAUDE, settings=settings)
        assert [next(iter(block)) for block in body["messages"][1]["content"]] == kinds


def test_the_blocks_of_the_providers_tools_go_back_to_their_author() -> None:
    used = {"toolUse": {"toolUseId": "s1", "name": "nova_code", "input": {}, "type": "server_tool_use"}}
    got = {"toolResult": {"toolUseId": "s1", "content": [{"json": {}}], "type": "nova_code_result"}}
    message = own(Thinking(details=used), Thinking(details=got), Text("4"), profile=NOVA)
    body = body_of([user("a"), message, user("b")], NOVA, tools=[WEATHER])
    assert body["messages"][1]["content"] == [used, got, {"text": "4"}]


# -- results and media -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "result", "said"),
    [
        (CLAUDE, ToolResult("c1", "f"), {"content": [{"text": "(no output)"}]}),
        (
            LLAMA,
            ToolResult("c1", "f", (Text("x"),), Status.TIMED_OUT),
            {"content": [{"text": "(timed_out)"}, {"text": "x"}]},
        ),
        (NOVA, ToolResult("c1", "f", (Text("x"),), Status.ERROR), {"content": [{"text": "x"}], "status": "error"}),
        (
            CLAUDE,
            ToolResult("c1", "f", (Image(PNG),)),
            {"content": [{"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}]},
        ),
    ],
)
def test_a_result_is_marked_as_an_error_where_that_is_possible(profile: Profile, result: ToolResult, said: Any) -> None:
    body = body_of([user("a"), own(CALL), tool_message([result])], profile, tools=[WEATHER])
    assert body["messages"][2]["content"][0]["toolResult"] == {"toolUseId": "c1", **said}


def test_what_the_model_cannot_take_is_told_in_a_note() -> None:
    notes = [
        block["text"]
        for block in blocks_of(
            Image(PNG, name="a.png"), Document(PDF, name="a.pdf"), Video(b"x", media_type="video/mp4"), profile=LLAMA
        )
    ]
    assert notes == [
        "[image a.png: this model cannot look at images]",
        "[document a.pdf: this model cannot read documents]",
        "[video: this model cannot watch films]",
    ]
    notes = [
        block["text"]
        for block in blocks_of(
            Image(url="https://example.com/a.png"),
            Image(b"BM", media_type="image/bmp"),
            Document(b"\xff"),
            profile=CLAUDE,
        )
    ]
    assert notes == [
        "[image https://example.com/a.png: this model cannot be given an address]",
        "[image: this model cannot take image/bmp]",
        "[document: this model cannot take files of an unknown type]",
    ]


def test_media_are_said_by_their_formats() -> None:
    film, far = Video(b"x", media_type="video/mp4"), Image(url="s3://bucket/a.png", media_type="image/png")
    assert blocks_of(film, far, Text("?"), profile=NOVA)[:2] == [
        {"video": {"format": "mp4", "source": {"bytes": "eA=="}}},
        {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://bucket/a.png"}}}},
    ]


def test_a_document_is_named_in_allowed_characters_and_comes_with_words() -> None:
    blocks = blocks_of(Document(b"a,b", media_type="text/csv", name="übersicht: Q1/Q2"), profile=CLAUDE)
    assert blocks[0]["document"]["format"] == "csv"
    assert blocks[0]["document"]["name"] == "bersicht Q1 Q2"
    assert blocks[1] == {"text": "(see the document)"}


def test_two_documents_of_one_name_are_enough_to_be_numbered() -> None:
    paper = Document(PDF, name="a.pdf")
    blocks = blocks_of(paper, paper, Text("Read"), profile=CLAUDE)
    assert [block["document"]["name"] for block in blocks if "document" in block] == ["a pdf", "a pdf 2"]


def test_no_two_documents_have_one_name() -> None:
    paper = Document(PDF, name="a.pdf")
    words = '{"document":{"format":"pdf","name":"a pdf"}}'
    messages = [user([paper, "Read"]), assistant(words), user([paper, Document(PDF, name="A pdf 2"), words])]
    blocks = [block for item in body_of(messages, CLAUDE)["messages"] for block in item["content"]]
    assert [block["document"]["name"] for block in blocks if "document" in block] == ["a pdf", "a pdf 2", "A pdf 2 2"]
    assert [block["text"] for block in blocks if "text" in block] == ["Read", words, words]


def test_words_in_a_document_are_said_to_a_model_that_reads_no_documents() -> None:
    assert blocks_of(Document(b"a,b", media_type="text/csv", name="t.csv"), profile=LLAMA) == [
        {"text": "[document t.csv]\na,b"}
    ]


def test_a_picture_that_a_model_made_is_told_to_it_in_a_note() -> None:
    body = body_of([user("Draw"), assistant(Image(PNG, name="cat.png")), user("Again")])
    assert body["messages"][1]["content"][0]["text"].startswith("[image cat.png: made by the model")


# -- the cache ---------------------------------------------------------------------------------------------------------


def marks_of(body: Any) -> list[str]:
    found = [
        name
        for name, blocks in [("system", body.get("system", [])), ("tools", body["toolConfig"]["tools"])]
        if "cachePoint" in blocks[-1]
    ]
    return found + [item["role"] for item in body["messages"] if "cachePoint" in item["content"][-1]]


def test_marks_stand_behind_tools_and_instructions_and_at_the_end() -> None:
    more: Any = {"instructions": "Be brief.", "tools": [WEATHER]}
    messages = [user("a"), assistant("b"), user("c")]
    assert marks_of(body_of(messages, CLAUDE, **more)) == ["system", "tools", "user"]
    assert marks_of(body_of(messages, NOVA, **more)) == ["system", "user"]
    assert marks_of(body_of(messages, CLAUDE, settings={"cache": "off"}, **more)) == []
    assert marks_of(body_of(messages, LLAMA, **more)) == []
    long = body_of(messages, CLAUDE, settings={"cache": "1h"}, **more)
    assert long["system"][-1] == {"cachePoint": {"type": "default", "ttl": "1h"}}


def test_no_mark_stands_right_behind_a_document() -> None:
    body = body_of([user(["Read", Document(PDF)])], CLAUDE, instructions="x", tools=[WEATHER])
    assert marks_of(body) == ["system", "tools"]


# -- settings ----------------------------------------------------------------------------------------------------------


def test_extra_body_wins_but_does_not_replace_the_conversation() -> None:
    guard = {"guardrailConfig": {"guardrailIdentifier": "g"}}
    assert body_of([user("Hello")], settings={"extra_body": guard})["guardrailConfig"] == guard["guardrailConfig"]
    with pytest.raises(ConfigError, match="messages"):
        body_of([user("Hello")], settings={"extra_body": {"messages": []}})


@pytest.mark.parametrize(
    ("choice", "said_as"),
    [
        (None, None),
        ("auto", None),
        ("required", {"any": {}}),
        ("weather", {"tool": {"name": "weather"}}),
    ],
)
def test_the_choice_of_a_tool_is_said(choice: str | None, said_as: Any) -> None:
    body = body_of([user("Hello")], settings={"tool_choice": choice}, tools=[WEATHER])
    assert body["toolConfig"].get("toolChoice") == said_as


def test_tools_that_may_not_be_used_are_not_told_of_unless_they_have_been() -> None:
    settings = {"tool_choice": "none"}
    assert "toolConfig" not in body_of([user("Hello")], settings=settings, tools=[WEATHER])
    called = [user("Hello"), own(CALL), tool_message([RESULT])]
    assert (
        body_of(called, settings=settings, tools=[WEATHER])["toolConfig"]["tools"][0]["toolSpec"]["name"] == "weather"
    )
    assert body_of(called)["toolConfig"]["tools"][0]["toolSpec"]["description"] == "No longer available."


@pytest.mark.parametrize(
    ("model", "settings", "more"),
    [
        ("anthropic.claude-3-5-haiku", {"reasoning_effort": "high"}, None),
        ("anthropic.claude-sonnet-4-6", {"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}),
        (
            "anthropic.claude-opus-5",
            {"reasoning_effort": "high"},
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}},
        ),
        (
            "amazon.nova-2-lite",
            {"reasoning_effort": "minimal"},
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}},
        ),
        ("openai.gpt-oss-120b", {"reasoning_effort": "medium"}, {"reasoning_effort": "medium"}),
        ("openai.gpt-oss-120b", {"reasoning_effort": "none"}, None),
        ("amazon.nova-micro", {"reasoning_effort": "high"}, None),
    ],
)
def test_every_maker_is_told_to_think_in_its_own_way(model: str, settings: Any, more: Any) -> None:
    body = body_of([user("Hello")], msgspec.structs.replace(LLAMA, model=model), settings=settings)
    assert body.get("additionalModelRequestFields") == more


def test_how_to_choose_words_is_said_as_each_maker_takes_it() -> None:
    settings = {"temperature": 1.5, "top_p": 0.9, "max_output_tokens": 100}
    config = body_of([user("Hello")], LLAMA, settings=settings)["inferenceConfig"]
    assert config == {"maxTokens": 100, "temperature": 1.0, "topP": 0.9}
    assert "topP" not in body_of([user("Hello")], CLAUDE, settings=settings)["inferenceConfig"]
    newest = msgspec.structs.replace(CLAUDE, model="anthropic.claude-opus-5")
    assert body_of([user("Hello")], newest, settings=settings)["inferenceConfig"] == {"maxTokens": 100}


def test_a_schema_for_the_answer_is_said_as_text() -> None:
    spec = OutputSpec("a dog", {"type": "object", "properties": {"name": {"type": "string"}}}, "A dog.")
    told = body_of([user("Hello")], output=spec)["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert (told["name"], told["description"]) == ("a_dog", "A dog.")
    assert json.loads(told["schema"])["additionalProperties"] is False
    assert "outputConfig" not in body_of([user("Hello")], msgspec.structs.replace(LLAMA, output="none"), output=spec)


def test_parts_that_no_user_says_are_left_out_of_a_users_message() -> None:
    assert blocks_of(Text("Hello"), Thinking("hm", "sig"), CALL, profile=CLAUDE) == [{"text": "Hello"}]


def test_a_mark_stands_at_the_end_where_a_document_is_not_the_last() -> None:
    mark = {"cachePoint": {"type": "default"}}
    shown = body_of([user([Document(PDF, name="a"), "Read it."])], CLAUDE)["messages"][0]["content"]
    assert [next(iter(block)) for block in shown] == ["document", "text", "cachePoint"]
    assert shown[-1] == mark
    plain = body_of([user("no document here")], CLAUDE)["messages"][0]["content"]
    assert plain == [{"text": "no document here"}, mark]


def test_tools_and_objects_of_extra_body_are_merged_with_ours() -> None:
    theirs = {"systemTool": {"name": "nova_grounding"}}
    extra = {
        "toolConfig": {"tools": [theirs]},
        "inferenceConfig": {"topP": 0.5},
        "guardrailConfig": {"guardrailIdentifier": "g"},
        "system": [{"text": "other"}],
    }
    body = body_of(
        [user("Hello")],
        settings={"extra_body": extra, "temperature": 0.5},
        tools=[WEATHER],
        instructions="Be brief.",
    )
    assert [next(iter(each)) for each in body["toolConfig"]["tools"]] == ["toolSpec", "systemTool"]
    assert body["inferenceConfig"] == {"temperature": 0.5, "topP": 0.5}
    assert body["guardrailConfig"] == {"guardrailIdentifier": "g"}
    assert body["system"] == [{"text": "other"}]
    alone = body_of([user("Hello")], settings={"extra_body": {"toolConfig": {"tools": [theirs]}}})
    assert alone["toolConfig"] == {"tools": [theirs]}


@pytest.mark.parametrize(("asked", "able", "sent"), [(100, None, 100), (100, 50, 50), (50, 100, 50), (None, 50, None)])
def test_no_more_is_asked_for_than_the_model_can_write(asked: int | None, able: int | None, sent: int | None) -> None:
    profile = msgspec.structs.replace(LLAMA, max_output_tokens=able)
    body = body_of([user("Hello")], profile, settings={"max_output_tokens": asked})
    assert body.get("inferenceConfig", {}).get("maxTokens") == sent


def test_a_schema_and_citations_are_not_asked_for_together() -> None:
    output = OutputSpec("dog", {"type": "object", "properties": {}})
    with pytest.raises(ConfigError) as caught:
        body_of([user("Hello")], CLAUDE, settings={"citations": True}, output=output)
    assert str(caught.value) == "Settings(citations=True): this provider refuses it together with an output schema"


@pytest.mark.parametrize(
    ("settings", "able", "more"),
    [
        ({"parallel_tool_calls": False}, True, {"type": "auto", "disable_parallel_tool_use": True}),
        (
            {"parallel_tool_calls": False, "tool_choice": "auto"},
            True,
            {"type": "auto", "disable_parallel_tool_use": True},
        ),
        ({"parallel_tool_calls": False, "tool_choice": "required"}, True, None),
        ({"parallel_tool_calls": False}, False, None),
        ({"parallel_tool_calls": True}, True, None),
    ],
)
def test_one_call_at_a_time_is_asked_of_claude_where_it_may_choose(settings: Any, able: bool, more: Any) -> None:
    profile = msgspec.structs.replace(CLAUDE, parallel_tool_calls=able)
    body = body_of([user("Hello")], profile, settings=settings, tools=[WEATHER])
    assert body.get("additionalModelRequestFields", {}).get("tool_choice") == more
    without = body_of([user("Hello")], profile, settings=settings)
    assert "tool_choice" not in without.get("additionalModelRequestFields", {})


@pytest.mark.parametrize(
    ("name", "sent"),
    [("a" * 101, "a" * 100), ("a" * 99 + " bc", "a" * 99), ("", "document"), ("..", "document"), ("a.b", "a b")],
)
def test_the_name_of_a_document_is_cut_to_what_is_taken(name: str, sent: str) -> None:
    (block,) = [each for each in blocks_of(Document(PDF, name=name), profile=CLAUDE) if "document" in each]
    assert block["document"]["name"] == sent
