"""A request as chat completions say it: messages, tools, settings, and what differs between those who speak it."""

from typing import Any, cast

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
from perdure._models.wires.attachments import describe_unsupported_media
from perdure._models.wires.openai_chat import WIRE
from perdure._models.wires.openai_chat.dialect import ChatDialect
from perdure._models.wires.openai_chat.encode import encode_tools
from perdure._models.wires.openai_chat.messages import ChatMessageEncoder
from perdure._models.wires.openai_chat.settings import encode_settings
from perdure.models import EncodingMemo, Profile, Request, ToolSpec
from tests.models.openai_chat.material import PROFILE, body_of

ADD = ToolSpec("add", "Add numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
PNG = b"\x89PNG\r\n\x1a\n"


def profile(dialect: str, model: str = "m", **more: Any) -> Profile:
    """A model of the provider of this name."""
    return Profile(provider=dialect, model=model, dialect=dialect, **more)


def asked(settings: Settings, to: Profile = PROFILE) -> dict[str, Any]:
    """What is said besides the conversation, when a tool is there."""
    body = body_of(Request(messages=[user("Hi")], tools=(ADD,), settings=settings), to)
    return {name: value for name, value in body.items() if name not in {"messages", "model", "tools", "stream_options"}}


def own(*parts: Any, to: Profile) -> Message:
    """What this very model said."""
    return Message("assistant", parts, provider=to.provider, model=to.model)


def turn(to: Profile, *parts: Any) -> list[Message]:
    """A turn on which the model called a tool."""
    call = ToolCall("call_1", "add", '{"a": 1}')
    return [user("Hi"), own(*parts, call, to=to), tool_message([ToolResult("call_1", "add", (Text("3"),))])]


def said_by(to: Profile, messages: list[Message], **settings: Any) -> dict[str, Any]:
    """The item of the assistant."""
    body = body_of(Request(messages=messages, settings=Settings(**settings)), to)
    found: dict[str, Any] = next(item for item in body["messages"] if item["role"] == "assistant")
    return found


# -- the conversation --------------------------------------------------------------------------------------------------


def test_a_request_is_the_model_the_conversation_and_the_tools() -> None:
    body = body_of(Request(messages=[user("Hi")], instructions="Be brief.", tools=(ADD,)))
    assert body == {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "model": "gpt-4.1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {"name": "add", "description": "Add numbers.", "parameters": ADD.parameters},
            }
        ],
    }
    assert WIRE.encode(Request(messages=[user("Hi")]), PROFILE, EncodingMemo()).path == "/chat/completions"


def test_a_turn_with_calls_and_results_is_told_in_the_order_of_the_calls() -> None:
    calls = (ToolCall("c1", "add", '{"a":1}'), ToolCall("c2", "add", "{broken"), ToolCall("c3", "add", ""))
    results = [
        ToolResult("c1", "add", (Text("3"),), render={"secret": 1}, summary="short"),
        ToolResult("c2", "add", (Text("no such number"),), Status.ERROR),
        ToolResult("c3", "add"),
    ]
    body = body_of(Request(messages=[user("Hi"), assistant(calls), tool_message(results)]))
    assert body["messages"][1] == {
        "role": "assistant",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
            {"id": "c2", "type": "function", "function": {"name": "add", "arguments": '{"_raw":"{broken"}'}},
            {"id": "c3", "type": "function", "function": {"name": "add", "arguments": "{}"}},
        ],
    }
    assert body["messages"][2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "tool", "tool_call_id": "c2", "content": "[error]\nno such number"},
        {"role": "tool", "tool_call_id": "c3", "content": "[no output]"},
    ]


def test_arguments_that_are_nested_without_end_do_not_end_a_session() -> None:
    deep = "[" * 100_000
    calls = (ToolCall("c1", "add", '{"a":' + deep),)
    results = [ToolResult("c1", "add", (Text("nested too deep"),), Status.ERROR)]
    body = body_of(Request(messages=[user("Hi"), assistant(calls), tool_message(results)]))
    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == f'{{"_raw":"{{\\"a\\":{deep}"}}'


def test_messages_with_nothing_in_them_are_left_out_or_say_so() -> None:
    messages = [user(""), assistant(" "), Message("system", (Text("Note this."),)), user(["a", "b"])]
    body = body_of(Request(messages=messages))
    assert body["messages"] == [
        {"role": "user", "content": "[empty message]"},
        {"role": "system", "content": "Note this."},
        {"role": "user", "content": "a\nb"},
    ]


def test_what_a_model_can_look_at_is_shown_to_it() -> None:
    parts: list[str | Part] = [
        "Look:",
        Image(data=PNG, detail="low"),
        Image(url="https://example.com/a.jpg"),
        Document(data=b"%PDF-1.4", name="a.pdf"),
        Document(file_id="file-1"),
        Audio(data=b"RIFF", media_type="audio/wav"),
    ]
    body = body_of(Request(messages=[user(parts)]))
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.jpg"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjQ="}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    ]


def test_what_a_model_cannot_look_at_is_told_in_a_note() -> None:
    blind = profile("deepseek", images=False)
    parts: list[Image | Video | Audio | Document] = [
        Image(data=PNG, name="a.png"),
        Video(url="https://example.com/a.mp4"),
        Audio(data=b"x"),
        Document(data=PNG),
    ]
    body = body_of(Request(messages=[user(parts)]), blind)
    assert body["messages"][0]["content"] == "\n".join([describe_unsupported_media(part) for part in parts])
    assert describe_unsupported_media(parts[0]) == "[image a.png: this model cannot look at images]"


def test_a_document_that_is_text_is_read_out() -> None:
    notes = Document(data=b"Buy milk.", media_type="text/plain", name="notes.txt")
    assert body_of(Request(messages=[user(notes)]))["messages"][0]["content"] == "[document notes.txt]\nBuy milk."


def test_pictures_of_results_follow_them_where_they_cannot_be_in_them() -> None:
    results = [
        ToolResult("c1", "look", (Text("Here."), Image(data=PNG, name="a.png"))),
        ToolResult("c2", "look", (Text("Nothing."),)),
    ]
    calls = (ToolCall("c1", "look"), ToolCall("c2", "look"))
    messages = [user("Hi"), assistant(calls), tool_message(results)]
    items = body_of(Request(messages=messages))["messages"]
    assert [item["role"] for item in items] == ["user", "assistant", "tool", "tool", "user"]
    assert items[2]["content"] == "Here.\n[image a.png: it follows these results]"
    assert [item["type"] for item in items[4]["content"]] == ["text", "image_url"]
    inside = body_of(Request(messages=messages), profile("ollama"))["messages"]
    assert [item["type"] for item in inside[2]["content"]] == ["text", "image_url"]
    assert len(inside) == 4


def test_what_would_be_refused_is_not_sent() -> None:
    call = assistant([ToolCall("c1", "add", "{}")])
    with pytest.raises(ProviderRuleError, match="no result"):
        WIRE.encode(Request(messages=[user("Hi"), call]), PROFILE, EncodingMemo())


# -- thinking ----------------------------------------------------------------------------------------------------------

BLOCKS = [{"type": "reasoning.text", "text": "Hm.", "signature": "s", "index": 0}]


@pytest.mark.parametrize(
    ("dialect", "field"),
    [
        ("deepseek", "reasoning_content"),
        ("glm", "reasoning_content"),
        ("openrouter", "reasoning"),
        ("vllm", "reasoning"),
    ],
)
def test_a_model_gets_its_thinking_back_with_its_calls(dialect: str, field: str) -> None:
    to = profile(dialect)
    assert said_by(to, turn(to, Thinking("Hm.")))[field] == "Hm."
    assert field not in said_by(to, turn(to, Thinking("Hm.")), echo_reasoning=False)
    assert field not in said_by(to, [user("Hi"), own(Thinking("Hm."), Text("Yes."), to=to), user("Go on")])


def test_blocks_of_reasoning_go_back_as_they_came_and_without_the_words() -> None:
    to = profile("openrouter")
    item = said_by(to, turn(to, Thinking("Hm.", details={"reasoning_details": BLOCKS})))
    assert item["reasoning_details"] == BLOCKS
    assert "reasoning" not in item


def test_nobody_gets_the_thinking_of_another() -> None:
    author, other = profile("deepseek", "v4"), profile("deepseek", "v5")
    item = said_by(other, turn(author, Thinking("Hm.", details={"reasoning_details": BLOCKS})))
    assert set(item) == {"role", "tool_calls"}


@pytest.mark.parametrize(
    "to",
    [
        profile("deepseek", "deepseek-r1"),
        profile("featherless", "deepseek-ai/DeepSeek-R1-0528"),
        profile("gemini", "gemini-3-pro"),
        profile("groq", "openai/gpt-oss-20b"),
    ],
)
def test_who_refuses_thinking_does_not_get_it(to: Profile) -> None:
    item = said_by(to, turn(to, Thinking("Hm.")))
    assert set(item) == {"role", "tool_calls"}
    assert "reasoning_content" in said_by(to, turn(to, Thinking("Hm.")), echo_reasoning=True) or to.dialect == "groq"


def test_mistral_gets_its_thinking_in_the_content_and_ids_of_nine_letters() -> None:
    to = profile("mistral")
    body = body_of(Request(messages=turn(to, Thinking("Hm."), Text("Well."))), to)
    said, result = body["messages"][1:]
    assert said["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "Well."},
    ]
    name = said["tool_calls"][0]["id"]
    assert len(name) == 9
    assert name.isalnum()
    assert (result["tool_call_id"], result["name"]) == (name, "add")
    assert body_of(Request(messages=turn(to)), to)["messages"][1]["tool_calls"][0]["id"] == name


def test_calls_of_gemini_carry_its_signatures() -> None:
    to = profile("gemini", "gemini-3-flash")
    signed = Message("assistant", (ToolCall("c1", "add", "{}", "sig"),), provider="gemini", model="gemini-3-flash")
    results = tool_message([ToolResult("c1", "add", (Text("3"),))])
    mine = said_by(to, [user("Hi"), signed, results])["tool_calls"][0]
    assert mine["extra_content"] == {"google": {"thought_signature": "sig"}}
    foreign = said_by(to, [user("Hi"), assistant([ToolCall("c1", "add", "{}", "other")]), results])["tool_calls"][0]
    assert foreign["extra_content"] == {"google": {"thought_signature": "skip_thought_signature_validator"}}


def test_gemini_gets_the_signature_of_its_whole_message_back() -> None:
    to = Profile(provider="gemini", model="gemini-3-flash", dialect="gemini")
    signed = Message("assistant", (Text("Hello.", "sig"),), provider="gemini", model="gemini-3-flash")
    said = said_by(to, [user("Hi"), signed, user("Well?")])
    assert said["extra_content"] == {"google": {"thought_signature": "sig"}}
    other = Message("assistant", (Text("Hello.", "sig"),), provider="gemini", model="gemini-2.5-flash")
    assert "extra_content" not in said_by(to, [user("Hi"), other, user("Well?")])


def test_a_gateway_to_gemini_gets_the_signatures_back_that_it_gave() -> None:
    to = Profile(provider="house", model="gemini-3-flash")
    results = tool_message([ToolResult("c1", "add", (Text("3"),))])

    def own(signature: str) -> list[Message]:
        parts = (Text("Hello.", signature), ToolCall("c1", "add", "{}", signature))
        return [user("Hi"), Message("assistant", parts, provider="house", model="gemini-3-flash"), results]

    signed, plain = said_by(to, own("sig")), said_by(to, own('{"id":"msg_1"}'))
    for each in (signed, signed["tool_calls"][0]):
        assert each["extra_content"] == {"google": {"thought_signature": "sig"}}
    for each in (plain, plain["tool_calls"][0]):
        assert "extra_content" not in each


def test_thinking_that_was_shown_in_the_text_is_not_sent_as_something_said() -> None:
    to = profile("deepseek")
    item = said_by(to, turn(to, Thinking("Hm."), Text("<think>Hm.</think>\n\nWell.")))
    assert item["content"] == "Well."


# -- settings ----------------------------------------------------------------------------------------------------------


def test_settings_are_fields_of_the_body() -> None:
    settings = Settings(
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=100,
        stop_sequences=("END",),
        seed=7,
        tool_choice="required",
        parallel_tool_calls=False,
        reasoning_effort="low",
    )
    assert asked(settings) == {
        "stream": True,
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "top_p": 0.9,
        "max_completion_tokens": 100,
        "stop": ["END"],
        "seed": 7,
        "reasoning_effort": "low",
    }
    assert asked(Settings(tool_choice="add"))["tool_choice"] == {"type": "function", "function": {"name": "add"}}


@pytest.mark.parametrize(
    ("to", "settings", "fields"),
    [
        (profile("mistral"), {"seed": 7, "tool_choice": "required"}, {"random_seed": 7, "tool_choice": "any"}),
        (profile("mistral"), {"reasoning_effort": "low"}, {}),
        (profile("vllm"), {"max_output_tokens": 9}, {"max_tokens": 9}),
        (profile("anthropic"), {"seed": 7}, {}),
        (profile("xai", parallel_tool_calls=False), {"parallel_tool_calls": False}, {}),
        (profile("mimo"), {"reasoning_effort": "minimal"}, {}),
        (profile("openrouter"), {"reasoning_effort": "high"}, {"reasoning": {"effort": "high"}}),
        (
            profile("openrouter"),
            {"reasoning_effort": "high", "reasoning_tokens": 99},
            {"reasoning": {"max_tokens": 99}},
        ),
        (profile("openrouter"), {"thinking": "off"}, {"reasoning": {"enabled": False}}),
        (profile("deepseek"), {"thinking": "on"}, {"thinking": {"type": "enabled"}}),
        (profile("deepseek"), {"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}),
        (profile("deepseek"), {"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
        (profile("kimi"), {"reasoning_effort": "high"}, {}),
        (profile("anthropic"), {"reasoning_tokens": 99}, {"thinking": {"type": "enabled", "budget_tokens": 99}}),
        (profile("qwen"), {"thinking": "off"}, {"enable_thinking": False}),
        (
            profile("qwen"),
            {"reasoning_effort": "low", "reasoning_tokens": 9},
            {"enable_thinking": True, "thinking_budget": 9},
        ),
        (profile("gemini"), {"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        (
            profile("gemini"),
            {"reasoning_tokens": 9},
            {"extra_body": {"google": {"thinking_config": {"thinking_budget": 9, "include_thoughts": True}}}},
        ),
        (profile("groq", "openai/gpt-oss-20b"), {"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        (
            profile("groq", "qwen/qwen3-32b"),
            {"reasoning_effort": "low"},
            {"reasoning_effort": "default", "reasoning_format": "parsed"},
        ),
        (profile("minimax"), {}, {"reasoning_split": True}),
        (
            profile("featherless", "Qwen/Qwen3-8B"),
            {"thinking": "off"},
            {"chat_template_kwargs": {"enable_thinking": False}},
        ),
        (
            profile("vllm", "Qwen/Qwen3-8B"),
            {"thinking": "off", "chat_template_kwargs": {"enable_thinking": True, "x": 1}},
            {"chat_template_kwargs": {"enable_thinking": True, "x": 1}},
        ),
        (profile("fireworks", "qwen3-8b"), {"thinking": "off"}, {}),
    ],
)
def test_each_dialect_has_its_own_words(to: Profile, settings: dict[str, Any], fields: dict[str, Any]) -> None:
    assert asked(Settings(**settings), to) == {"stream": True, **fields}


def test_reasoning_models_of_openai_are_instructed_by_a_developer() -> None:
    def role(model: str, dialect: str = "openai") -> str:
        body = body_of(Request(messages=[user("Hi")], instructions="Be brief."), profile(dialect, model))
        return str(body["messages"][0]["role"])

    assert [role(name) for name in ("o3", "gpt-5", "gpt-5-mini")] == ["developer"] * 3
    assert [role(name) for name in ("gpt-4o", "gpt-5-chat-latest")] == ["system"] * 2
    assert role("o3", "openrouter") == "system"


def test_an_endpoint_that_cannot_stream_is_asked_for_a_whole_answer() -> None:
    body = body_of(Request(messages=[user("Hi")]), profile("vllm", streams=False))
    assert (body["stream"], "stream_options" in body) == (False, False)
    for silent in (profile("vllm", usage_in_stream=False), profile("mistral")):
        assert "stream_options" not in body_of(Request(messages=[user("Hi")]), silent)


def test_extra_fields_are_added_last_and_win() -> None:
    extra = {"temperature": 1, "stream_options": {"x": 1}, "provider": {"only": ["a"]}, "tools": [{"type": "web"}]}
    body = msgspec.json.decode(
        WIRE.encode(
            Request(messages=[user("Hi")], tools=(ADD,), settings=Settings(temperature=0, extra_body=extra)),
            PROFILE,
            EncodingMemo(),
        ).body
    )
    assert body["temperature"] == 1
    assert body["stream_options"] == {"include_usage": True, "x": 1}
    assert body["provider"] == {"only": ["a"]}
    assert [tool["type"] for tool in body["tools"]] == ["function", "web"]


@pytest.mark.parametrize("settings", [Settings(extra_body={"messages": []}), Settings(tool_choice="no_such_tool")])
def test_settings_that_cannot_work_are_refused(settings: Settings) -> None:
    with pytest.raises(ConfigError):
        WIRE.encode(Request(messages=[user("Hi")], tools=(ADD,), settings=settings), PROFILE, EncodingMemo())


def test_an_unknown_dialect_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="openrouter"):
        WIRE.encode(Request(messages=[user("Hi")]), profile("klingon"), EncodingMemo())


def test_a_choice_without_tools_is_not_sent() -> None:
    body = body_of(Request(messages=[user("Hi")], settings=Settings(tool_choice="auto", parallel_tool_calls=True)))
    assert not {"tool_choice", "parallel_tool_calls", "tools"} & set(body)
    without = body_of(Request(messages=[user("Hi")], tools=(ADD,)), profile("vllm", tools="none"))
    assert "tools" not in without


# -- schemas -----------------------------------------------------------------------------------------------------------


def test_the_text_of_a_reply_is_held_to_a_schema_as_far_as_possible() -> None:
    output = OutputSpec("A plan!", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, "x")

    def wanted(to: Profile) -> Any:
        return body_of(Request(messages=[user("Hi")], output=output), to).get("response_format")

    strict = wanted(profile("openai", schema="openai_strict"))["json_schema"]
    assert (strict["name"], strict["strict"], strict["description"]) == ("A_plan_", True, "x")
    assert strict["schema"]["additionalProperties"] is False
    assert wanted(profile("vllm"))["json_schema"]["strict"] is False
    assert wanted(profile("deepseek", output="object")) == {"type": "json_object"}
    assert wanted(profile("vllm", output="none")) is None


def test_tools_are_strict_where_their_schema_can_be() -> None:
    free = ToolSpec("free", "", {"type": "object", "additionalProperties": True})
    to = profile("openai", schema="openai_strict", strict_tools=True)
    strict, loose = body_of(Request(messages=[user("Hi")], tools=(ADD, free)), to)["tools"]
    assert strict["function"]["strict"] is True
    assert "strict" not in loose["function"]


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ("openai_strict", {"type": "string", "minLength": 3, "default": "now"}),
        ("openai", {"type": "string", "minLength": 3, "default": "now"}),
        ("llamacpp", {"type": "string", "minLength": 3, "description": 'Default "now"'}),
    ],
)
def test_a_schema_that_is_not_enforced_keeps_all_that_its_provider_understands(
    schema: str, sent: dict[str, Any]
) -> None:
    properties = {"when": {"type": "string", "minLength": 3, "default": "now"}}
    free: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": {"type": "string"}}
    request = Request(messages=[user("Hi")], tools=(ToolSpec("free", "", free),), output=OutputSpec("free", free))
    body = body_of(request, profile("openai", schema=schema, strict_tools=True))
    for compiled in (body["tools"][0]["function"]["parameters"], body["response_format"]["json_schema"]["schema"]):
        assert compiled["properties"] == {"when": sent}
        assert "required" not in compiled


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_the_prompt_is_marked_for_the_cache_where_that_is_needed() -> None:
    to = profile("openrouter", "anthropic/claude-sonnet-4.6", cache="marked")
    memo = EncodingMemo()
    messages = [*turn(to, Text("Well.")), user([Image(data=PNG), "And?", Image(data=PNG)])]

    def marks(count: int, **settings: Any) -> list[Any]:
        request = Request(
            messages=messages[:count], instructions="Be brief.", session_id="s", settings=Settings(**settings)
        )
        body = msgspec.json.decode(WIRE.encode(request, to, memo).body)
        return [
            (place, item["cache_control"])
            for place, each in enumerate(body["messages"])
            for item in (each.get("content") if isinstance(each.get("content"), list) else [])
            if "cache_control" in item
        ]

    mark = {"type": "ephemeral"}
    assert marks(1) == [(0, mark), (1, mark)]
    assert marks(3) == [(0, mark), (1, mark)]
    assert marks(4) == [(0, mark), (4, mark)]
    assert marks(4, cache="1h") == [(0, {**mark, "ttl": "1h"}), (4, {**mark, "ttl": "1h"})]
    assert marks(4, cache="off") == []


def test_a_message_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Message] = []
    items = ChatMessageEncoder.encode_message

    def counted(self: ChatMessageEncoder, message: Message) -> Any:
        made.append(message)
        return items(self, message)

    monkeypatch.setattr(ChatMessageEncoder, "encode_message", counted)
    memo, messages = EncodingMemo(), [user("one"), assistant("two"), user("three")]
    first = WIRE.encode(Request(messages=messages[:1], session_id="s"), PROFILE, memo)
    second = WIRE.encode(Request(messages=messages, session_id="s"), PROFILE, memo)
    assert made == messages
    assert first.body != second.body
    assert second.body == WIRE.encode(Request(messages=messages), PROFILE, EncodingMemo()).body


def test_the_same_list_of_tools_gives_the_same_bytes() -> None:
    tools = (ADD,)
    assert encode_tools(tools, PROFILE) is encode_tools(tools, PROFILE)
    assert bytes(encode_tools([ADD], PROFILE)) == bytes(encode_tools(tools, PROFILE))


def test_ids_that_some_would_refuse_are_made_shorter_in_the_same_way_each_time():
    long = "c" * 64
    history = [
        user("Go."),
        Message("assistant", (ToolCall(long, "look", "{}"),)),
        tool_message([ToolResult(long, "look", (Text("ok"),))]),
    ]
    _, call, result = body_of(Request(messages=history))["messages"]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    assert len(result["tool_call_id"]) <= 40


@pytest.mark.parametrize(("length", "is_kept"), [(1, True), (39, True), (40, True), (41, False), (64, False)])
def test_an_id_of_up_to_forty_characters_is_sent_as_it_is(length, is_kept):
    own = "c" * length
    history = [
        user("Go."),
        Message("assistant", (ToolCall(own, "look", "{}"),)),
        tool_message([ToolResult(own, "look", (Text("ok"),))]),
    ]
    _, call, result = body_of(Request(messages=history))["messages"]
    assert (call["tool_calls"][0]["id"] == own, result["tool_call_id"] == own) == (is_kept, is_kept)


def test_a_dialect_that_says_nothing_of_templates_has_none() -> None:
    assert ChatDialect(name="plain").template is False


def test_options_that_a_caller_changes_between_two_requests_are_sent_as_they_are_then() -> None:
    memo, extra, tools = EncodingMemo(), dict[str, Any](), [ADD]
    kwargs, endings, offer = (
        dict[str, Any](),
        ["END"],
        (ADD,),
    )  # one tuple: what is kept is found by its identity
    settings, told = Settings(extra_body=extra), Settings(chat_template_kwargs=kwargs)
    ended = Settings(stop_sequences=cast("Any", endings))  # a list is accepted

    def send(chosen: Settings, offered: Any) -> dict[str, Any]:
        request = Request(messages=[user("Hi")], settings=chosen, tools=offered)
        return dict(msgspec.json.decode(WIRE.encode(request, PROFILE, memo).body))

    assert "top_k" not in send(settings, offer)
    extra["top_k"] = 5
    assert send(settings, offer)["top_k"] == 5
    assert "chat_template_kwargs" not in send(told, offer)
    for value in (1, 2):
        kwargs["a"] = value
        assert send(told, offer)["chat_template_kwargs"] == {"a": value}
    assert send(ended, offer)["stop"] == ["END"]
    endings.append("STOP")
    assert send(ended, offer)["stop"] == ["END", "STOP"]
    assert len(send(Settings(), tools)["tools"]) == 1
    tools.append(ToolSpec("other", "Another.", ADD.parameters))
    assert len(send(Settings(), tools)["tools"]) == 2


def test_requests_that_differ_in_their_messages_alone_say_all_else_alike() -> None:
    memo, settings, tools = EncodingMemo(), Settings(temperature=0.5), (ADD,)

    def send(text: str, chosen: Settings = settings, to: Profile = PROFILE) -> dict[str, Any]:
        request = Request(messages=[user(text)], settings=chosen, tools=tools)
        return dict(msgspec.json.decode(WIRE.encode(request, to, memo).body))

    first, second = send("one"), send("two")
    assert [each.pop("messages")[0]["content"] for each in (first, second)] == ["one", "two"]
    assert first == second
    assert send("three", Settings(temperature=0.1))["temperature"] == 0.1
    assert send("four", to=msgspec.structs.replace(PROFILE, model="other"))["model"] == "other"


def test_only_the_first_foreign_call_and_only_of_gemini_3_gets_a_placeholder_for_a_signature() -> None:
    calls = assistant([ToolCall("c1", "add", "{}", "other"), ToolCall("c2", "add", "{}", "other")])
    results = tool_message([ToolResult("c1", "add", (Text("3"),)), ToolResult("c2", "add", (Text("4"),))])

    def signed(to: Profile) -> list[Any]:
        said = said_by(to, [user("Hi"), calls, results])["tool_calls"]
        return [each.get("extra_content") for each in said]

    placeholder = {"google": {"thought_signature": "skip_thought_signature_validator"}}
    assert signed(profile("gemini", "gemini-3-flash")) == [placeholder, None]
    assert signed(profile("gemini", "gemini-2.5-flash")) == [None, None]
    assert signed(profile("openrouter", "google/gemini-3-flash")) == [None, None]


def test_an_id_of_nine_letters_and_digits_is_kept_for_mistral() -> None:
    to = profile("mistral")
    call = ToolCall("abcDEF123", "add", "{}")
    history = [user("Hi"), assistant([call]), tool_message([ToolResult("abcDEF123", "add", (Text("3"),))])]
    body = body_of(Request(messages=history), to)
    assert body["messages"][1]["tool_calls"][0]["id"] == "abcDEF123"
    assert body["messages"][2]["tool_call_id"] == "abcDEF123"


@pytest.mark.parametrize(
    ("to", "settings", "fields"),
    [
        (profile("gemini"), {}, {}),
        (profile("openrouter"), {}, {}),
        (profile("openrouter"), {"thinking": "on"}, {"reasoning": {"enabled": True}}),
        (profile("openrouter"), {"thinking": "auto"}, {}),
        (profile("deepseek"), {"thinking": "off", "reasoning_effort": "high"}, {"thinking": {"type": "disabled"}}),
        (
            profile("deepseek"),
            {"thinking": "on", "reasoning_effort": "high"},
            {"thinking": {"type": "enabled"}, "reasoning_effort": "high"},
        ),
        (profile("deepseek"), {"thinking": "on", "reasoning_effort": "none"}, {"thinking": {"type": "enabled"}}),
        (profile("deepseek"), {}, {}),
        (profile("qwen"), {"thinking": "on"}, {"enable_thinking": True}),
        (profile("qwen"), {"thinking": "on", "reasoning_effort": "none"}, {"enable_thinking": True}),
        (profile("qwen"), {"reasoning_effort": "none"}, {"enable_thinking": False}),
        (profile("qwen"), {}, {}),
        (
            profile("groq", "qwen/qwen3-32b"),
            {"reasoning_effort": "none"},
            {"reasoning_effort": "none", "reasoning_format": "parsed"},
        ),
        (profile("groq", "qwen/qwen3-32b"), {}, {}),
        (profile("mistral"), {"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
    ],
)
def test_what_is_asked_about_thinking_is_said_once(
    to: Profile, settings: dict[str, Any], fields: dict[str, Any]
) -> None:
    assert asked(Settings(**settings), to) == {"stream": True, **fields}


def test_a_dialect_without_a_way_to_ask_for_thinking_says_nothing_about_it() -> None:
    settings = Settings(reasoning_effort="high", reasoning_tokens=9, thinking="on", top_p=0.5)
    assert encode_settings(settings, PROFILE, ChatDialect(name="silent", reasoning="none")) == {"top_p": 0.5}


def test_a_choice_of_a_tool_that_is_not_there_names_those_that_are() -> None:
    request = Request(messages=[user("Hi")], tools=(ADD, ToolSpec("b", "", {})), settings=Settings(tool_choice="c"))
    with pytest.raises(ConfigError) as caught:
        WIRE.encode(request, PROFILE, EncodingMemo())
    assert str(caught.value) == (
        "Settings(tool_choice='c'): no such tool; use 'auto', 'none', 'required', or one of 'add', 'b'"
    )


def test_the_name_of_a_schema_is_cut_to_what_is_allowed() -> None:
    def name(given: str) -> Any:
        output = OutputSpec(given, {"type": "object", "properties": {}})
        return body_of(Request(messages=[user("Hi")], output=output))["response_format"]["json_schema"]

    assert [name(given)["name"] for given in ("n" * 64, "n" * 65, "", "a b-c_d")] == [
        "n" * 64,
        "n" * 64,
        "output",
        "a_b-c_d",
    ]
    assert "description" not in name("x")


def test_extra_tools_alone_and_no_extra_tools_are_both_sent() -> None:
    def tools(given: Any, **more: Any) -> Any:
        settings = Settings(extra_body={"tools": given})
        request = Request(messages=[user("Hi")], settings=settings, **more)
        return msgspec.json.decode(WIRE.encode(request, PROFILE, EncodingMemo()).body)["tools"]

    assert tools([{"type": "web"}]) == [{"type": "web"}]
    assert tools(({"type": "web"},), tools=(ADD,))[1:] == [{"type": "web"}]
    assert tools([], tools=(ADD,)) == []


def test_only_the_last_text_of_the_last_user_message_is_marked() -> None:
    to = profile("openrouter", "anthropic/claude-sonnet-4.6", cache="marked")

    def contents(*messages: Message) -> list[Any]:
        body = msgspec.json.decode(WIRE.encode(Request(messages=messages), to, EncodingMemo()).body)
        return [(item["role"], item["content"]) for item in body["messages"]]

    mark = {"cache_control": {"type": "ephemeral"}}
    marked = ("user", [{"type": "text", "text": "b", **mark}])
    assert contents(user("a"), assistant("x"), user("b")) == [("user", "a"), ("assistant", "x"), marked]
    assert contents(user("b"), assistant("x")) == [marked, ("assistant", "x")]
    assert contents(Message("system", (Text("a"),)), assistant("x")) == [("system", "a"), ("assistant", "x")]
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.jpg"}}
    image = Image(url="https://example.com/a.jpg")
    assert contents(user(image)) == [("user", [picture])]
    texts = [{"type": "text", "text": "a"}, picture, {"type": "text", "text": "b", **mark}, picture]
    assert contents(user(["a", image, "b", image])) == [("user", texts)]
