"""Ollama's own chat API: what is sent, what comes back line by line, and recorded conversations."""

from typing import Any

import msgspec
import pytest

from perdure import (
    Agent,
    Audio,
    BadRequest,
    ConfigError,
    ContextOverflow,
    Document,
    Image,
    Message,
    ModelError,
    OutputSpec,
    ReplyCutOff,
    Settings,
    Status,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    tool,
    user,
)
from perdure._core.values.message import Part
from perdure._models.endpoint.memo import ProviderRuleError
from perdure._models.provider_errors.classify import classify_error
from perdure._models.wires.ollama import WIRE
from perdure.events import ModelEvent, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.models import EncodingMemo, Profile, Request, ToolSpec, assemble_reply, open_model, openai_compatible
from tests.models.canned import CannedResponse, CannedTransport
from tests.seeds import chance
from tests.wire.recordings import (
    Exchange,
    Recording,
    chunked,
    cuts,
    each_exchange,
    each_recording,
)

API = "ollama-chat"
PROFILE = Profile(provider="ollama-native", model="qwen3:4b", schema="llamacpp")
ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
ANSWER = OutputSpec("answer", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
PNG = b"\x89PNG\r\n\x1a\n...."


def body_of(*messages: Message, profile: Profile = PROFILE, settings: Any = None, **fields: Any) -> Any:
    request = Request(messages=messages or [user("Hi")], settings=Settings(**settings or {}), **fields)
    sending = WIRE.encode(request, profile, EncodingMemo())
    assert sending.path == "/api/chat"
    body = msgspec.json.decode(sending.body)
    assert WIRE.lint(body, profile) == []
    return body


def lines(*told: Any) -> bytes:
    return b"".join([msgspec.json.encode(each) + b"\n" for each in told])


def line(**message: Any) -> Any:
    return {"model": "qwen3:4b", "message": {"role": "assistant", "content": "", **message}, "done": False}


END = {"model": "qwen3:4b", "message": {"content": ""}, "done": True, "done_reason": "stop"}
COUNTS = {"prompt_eval_count": 9, "eval_count": 4}


def heard(pieces: list[bytes], profile: Profile = PROFILE) -> list[ModelEvent]:
    decoder = WIRE.decoder(profile, "")
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return [*events, *decoder.end()]


def message_of(data: bytes, profile: Profile = PROFILE) -> Message:
    *events, last = heard([data], profile)
    assert isinstance(last, ReplyFinished)
    return assemble_reply(events, last)


# -- requests ----------------------------------------------------------------------------------------------------------


def test_a_prompt_is_never_cut_silently() -> None:
    assert body_of() == {
        "messages": [{"role": "user", "content": "Hi"}],
        "model": "qwen3:4b",
        "stream": True,
        "truncate": False,
        "shift": False,
    }


def test_the_size_of_the_window_and_the_settings_are_options() -> None:
    settings = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "max_output_tokens": 64, "stop_sequences": ("END",)}
    profile = msgspec.structs.replace(PROFILE, context_tokens=8192, streams=False)
    body = body_of(profile=profile, settings=settings, instructions="Be brief.")
    assert body["options"] == {
        "num_ctx": 8192,
        "num_predict": 64,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["END"],
    }
    assert (body["stream"], body["messages"][0]) == (False, {"role": "system", "content": "Be brief."})


@pytest.mark.parametrize(
    ("settings", "model", "think"),
    [
        ({}, "qwen3", None),
        ({"thinking": "on"}, "qwen3", True),
        ({"thinking": "off"}, "qwen3", False),
        ({"thinking": "auto"}, "qwen3", None),
        ({"reasoning_effort": "none"}, "qwen3", False),
        ({"reasoning_effort": "high"}, "qwen3", True),
        ({"reasoning_effort": "high"}, "gpt-oss:20b", "high"),
        ({"reasoning_effort": "minimal"}, "gpt-oss:20b", "low"),
    ],
)
def test_thinking_is_asked_for_in_the_way_of_the_model(settings: Any, model: str, think: Any) -> None:
    assert body_of(profile=Profile(provider="o", model=model), settings=settings).get("think") == think


def test_a_schema_is_the_format_and_beside_tools_it_is_described() -> None:
    assert body_of(output=ANSWER)["format"]["properties"] == {"n": {"type": "integer"}}
    assert body_of(output=ANSWER, profile=Profile(provider="o", model="m", output="object"))["format"] == "json"
    body = body_of(output=ANSWER, tools=(ADD,), instructions="Be brief.")
    assert "format" not in body
    assert body["messages"][0]["content"].startswith("Be brief.\n\nWhen you answer")
    assert body["tools"][0]["function"]["name"] == "add"
    chosen = body_of(output=ANSWER, tools=(ADD,), settings={"tool_choice": "none"})
    assert "format" in chosen
    assert "tools" not in chosen


def test_extra_fields_are_merged_and_the_conversation_is_not() -> None:
    extra = {"keep_alive": "10m", "options": {"num_gpu": 1}}
    body = body_of(settings={"extra_body": extra, "seed": 1})
    assert (body["keep_alive"], body["options"]) == ("10m", {"seed": 1, "num_gpu": 1})
    with pytest.raises(ConfigError, match="messages"):
        body_of(settings={"extra_body": {"messages": []}})


def test_a_turn_with_calls_is_sent_with_its_results_and_its_thinking() -> None:
    parts: tuple[Part, ...] = (
        Thinking("Hm."),
        Text("I add."),
        ToolCall("c1", "add", '{"a":1}'),
        ToolCall("c2", "add", "oops"),
        ToolCall("c3", "add", ""),
    )
    reply = Message("assistant", parts, provider=PROFILE.provider, model=PROFILE.model)
    results = Message(
        "tool",
        (
            ToolResult("c1", "add", (Text("1"), Image(data=PNG))),
            ToolResult("c2", "add", (Text("no"),), Status.ERROR),
            ToolResult("c3", "add"),
        ),
    )
    said, *told = body_of(user("?"), reply, results)["messages"][1:]
    assert said == {
        "role": "assistant",
        "content": "I add.",
        "thinking": "Hm.",
        "tool_calls": [
            {"id": "c1", "function": {"name": "add", "arguments": {"a": 1}}},
            {"id": "c2", "function": {"name": "add", "arguments": {"_raw": "oops"}}},
            {"id": "c3", "function": {"name": "add", "arguments": {}}},
        ],
    }
    assert [(each["tool_call_id"], each["tool_name"], each["content"]) for each in told] == [
        ("c1", "add", "1"),
        ("c2", "add", "[error]\nno"),
        ("c3", "add", "[no output]"),
    ]
    assert len(told[0]["images"]) == 1
    other = msgspec.structs.replace(reply, model="another")
    assert "thinking" not in body_of(user("?"), other, results)["messages"][1]
    assert "thinking" not in body_of(user("?"), reply, results, settings={"echo_reasoning": False})["messages"][1]


def test_media_that_cannot_be_sent_become_a_note() -> None:
    text = Document(data=b"Rain.", media_type="text/plain", name="a.txt")
    (message,) = body_of(user([text, Image(data=PNG), Image(url="https://a/b.png"), Audio(data=b"x")]))["messages"]
    assert len(message["images"]) == 1
    assert message["content"].splitlines() == [
        "[document a.txt]",
        "Rain.",
        "[image https://a/b.png: this server does not fetch images]",
        "[audio: this model cannot listen to recordings]",
    ]
    blind = body_of(user([Image(data=PNG)]), profile=Profile(provider="o", model="m", images=False))
    assert blind["messages"][0]["content"] == "[image: this model cannot look at images]"
    assert body_of(user([" "]))["messages"][0]["content"] == "[empty message]"
    assert body_of(user([Image(data=PNG)]))["messages"][0]["content"] == ""
    drawn = Message("assistant", (Text("See: "), Image(data=PNG, name="a.png")))
    assert body_of(user("?"), drawn, user("!"))["messages"][1]["content"] == "See: [image a.png: made by the assistant]"
    assert len(body_of(user("?"), assistant(" "), user("!"))["messages"]) == 2


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([user("?"), assistant(ToolCall("c", "add")), user("!")], "no result before the next message"),
        ([user("?"), assistant(ToolCall("c", "add"))], "1 calls have no result"),
        ([user("?"), Message("tool", (ToolResult("c", "add"),))], "follows no call"),
    ],
)
def test_a_conversation_in_the_wrong_order_is_not_sent(messages: Any, words: str) -> None:
    with pytest.raises(ProviderRuleError, match=words):
        body_of(*messages)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"model": "m"}, "there are no messages"),
        ({"messages": [{"role": "user", "content": "?"}]}, "no model"),
        ({"model": "m", "messages": [{"role": "critic", "content": "?"}]}, "the role 'critic'"),
        ({"model": "m", "messages": [{"role": "user", "content": ["?"]}]}, "not text"),
        ({"model": "m", "messages": [{"role": "assistant", "tool_calls": [{}]}]}, "names no tool"),
        ({"model": "m", "messages": [{"role": "user"}], "format": 7}, "format is 7"),
        ({"model": "m", "messages": [{"role": "user"}], "format": "json", "tools": [{}]}, "keeps the model from"),
        ({"model": "m", "messages": [{"role": "user", "images": ["x"]}]}, "takes no images"),
    ],
)
def test_what_the_server_would_misread_is_found(body: Any, words: str) -> None:
    found = WIRE.lint(body, Profile(provider="o", model="m", images=False))
    assert any(words in each for each in found), found


# -- answers -----------------------------------------------------------------------------------------------------------


TURN = lines(
    line(thinking="H"),
    line(thinking="m."),
    line(content="I "),
    line(content="add: é"),
    line(tool_calls=[{"id": "c1", "function": {"index": 0, "name": "add", "arguments": {"a": 1}}}]),
    line(tool_calls=[{"function": {"name": "add", "arguments": '{"a":2}'}}]),
    {**END, **COUNTS},
)


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_stream_is_understood_in_pieces_of_any_size(size: int) -> None:
    *events, last = heard([TURN[start : start + size] for start in range(0, len(TURN), size)])
    assert events == [
        ThinkingDelta("H"),
        ThinkingDelta("m."),
        TextDelta("I "),
        TextDelta("add: é"),
        ToolCallDelta("c1", "add", '{"a":1}', index=0),
        ToolCallDelta("", "add", '{"a":2}', index=1),
    ]
    assert last == ReplyFinished(StopReason.TOOL_USE, Usage(9, 4), "qwen3:4b", "ollama-native")


def test_a_stream_that_is_cut_off_is_never_finished() -> None:
    for cut in range(len(TURN) - 1):
        decoder = WIRE.decoder(PROFILE, "")
        decoder.feed(TURN[:cut])
        if b'"done":true' in TURN[:cut]:
            continue
        with pytest.raises(ReplyCutOff):
            decoder.end()


def test_it_is_done_with_its_last_line() -> None:
    decoder = WIRE.decoder(PROFILE, "")
    decoder.feed(lines(line(content="a")))
    assert not decoder.done
    decoder.feed(lines(END))
    assert decoder.done


@pytest.mark.parametrize(
    ("end", "stop", "usage"),
    [
        ({"done_reason": "length", **COUNTS}, StopReason.LENGTH, Usage(9, 4)),
        ({"eval_count": 4}, StopReason.STOP, Usage(0, 4, precision="partial")),
        ({}, StopReason.STOP, None),
        ({"done_reason": "load"}, StopReason.STOP, None),
    ],
)
def test_reasons_to_stop_and_counts_are_told(end: Any, stop: StopReason, usage: Usage | None) -> None:
    message = message_of(lines(line(content="a"), {**END, **end}))
    assert (message.stop, message.usage) == (stop, usage)


def test_a_line_with_something_strange_in_it_is_read_for_the_rest() -> None:
    strange = {"message": {"content": "a", "thinking": 7, "tool_calls": "x"}, "model": None, "prompt_eval_count": "9"}
    message = message_of(lines(strange, {**END, "eval_count": 4, "model": 7, "prompt_eval_count": 2.5}))
    assert (message.parts, message.usage) == ((Text("a"),), Usage(0, 4, precision="partial"))
    with pytest.raises(ReplyCutOff, match="not JSON"):
        message_of(b"<html>\n")


def test_facts_about_the_reply_are_metadata() -> None:
    tokens = [{"token": "a", "logprob": -0.5}]
    message = message_of(lines({**line(content="a"), "logprobs": tokens}, {**END, "model": "qwen3:8b"}))
    assert message.metadata == {"served_model": "qwen3:8b", "logprobs": {"content": tokens}}


def test_an_error_in_the_stream_is_raised_and_an_overflow_is_one() -> None:
    with pytest.raises(ModelError, match="crashed"):
        message_of(lines(line(content="a"), {"error": "the model runner has crashed"}))
    told = msgspec.json.encode({"error": "the input length exceeds the context length"})
    assert isinstance(classify_error(400, {}, told, "ollama"), ContextOverflow)
    with pytest.raises(ContextOverflow):
        message_of(told)


def test_an_error_after_the_last_line_changes_nothing() -> None:
    message = message_of(lines(line(content="a"), {**END, "done_reason": "length"}, {"error": "crashed"}))
    assert (message.text, message.stop) == ("a", StopReason.LENGTH)


# -- an agent ----------------------------------------------------------------------------------------------------------


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_an_agent_calls_its_tools_through_the_native_api() -> None:
    call = line(tool_calls=[{"id": "call_1", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}])
    transport = CannedTransport(
        CannedResponse(lines(call, {**END, **COUNTS}), "application/x-ndjson"),
        CannedResponse(lines(line(content="3"), {**END, **COUNTS}), "application/x-ndjson"),
    )
    model = open_model("ollama-native:qwen3:4b", transport=transport, profile={"context_tokens": 8192})
    outcome = await Agent(model, tools=[add]).run("1 + 2?")
    assert (outcome.text, outcome.usage.total_tokens, outcome.cost_usd) == ("3", 26, 0.0)
    assert [url for url, _, _ in transport.posted] == ["http://localhost:11434/api/chat"] * 2
    assert transport.bodies[1]["options"] == {"num_ctx": 8192}
    assert transport.bodies[1]["messages"][-1] == {
        "role": "tool",
        "content": "3",
        "tool_name": "add",
        "tool_call_id": "call_1",
    }


async def test_any_server_can_be_opened_with_this_wire() -> None:
    transport = CannedTransport(CannedResponse(lines(line(content="Yes."), END), "application/x-ndjson"))
    model = openai_compatible("http://gpu:11434/v1", "m", wire="ollama", transport=transport)
    assert (await Agent(model).run("?")).text == "Yes."
    assert transport.posted[0][0] == "http://gpu:11434/api/chat"


# -- recordings --------------------------------------------------------------------------------------------------------


def recorded(exchange: Exchange) -> tuple[str, str, list[Any], Any]:
    """Text, thinking, calls and the last line of an answer, read in the simplest way."""
    told = [msgspec.json.decode(each) for each in exchange.data.splitlines() if each.strip()]
    messages = [each["message"] for each in told]
    calls = [call["function"] for each in messages for call in each.get("tool_calls") or []]
    return (
        "".join([each.get("content", "") for each in messages]),
        "".join([each.get("thinking") or "" for each in messages]),
        [(each["name"], each["arguments"]) for each in calls],
        told[-1],
    )


@pytest.mark.wire
@each_exchange(API, where=lambda exchange: exchange.ok)
def test_a_recorded_answer_is_understood_however_it_is_cut_into_pieces(exchange: Exchange) -> None:
    text, thinking, calls, last = recorded(exchange)
    for seed in range(3):
        *events, finished = heard(chunked(exchange.data, chance(seed)))
        assert isinstance(finished, ReplyFinished)
        message = assemble_reply(events, finished)
        assert (message.text, message.thinking) == (text, thinking)
        assert [(call.name, msgspec.json.decode(call.arguments)) for call in message.tool_calls] == calls
        assert message.usage == Usage(last["prompt_eval_count"], last["eval_count"])
        wanted = StopReason.TOOL_USE if calls else StopReason(last["done_reason"])
        assert message.stop is wanted


@pytest.mark.faults
@pytest.mark.wire
@each_exchange(API, where=lambda exchange: exchange.ok and exchange.streamed)
def test_a_recorded_stream_that_is_cut_off_is_never_finished(exchange: Exchange) -> None:
    for cut in cuts(exchange.data, most=200):
        if b'"done":true' in exchange.data[:cut]:
            continue
        decoder = WIRE.decoder(PROFILE, "")
        decoder.feed(exchange.data[:cut])
        with pytest.raises(ReplyCutOff):
            decoder.end()


@pytest.mark.wire
@each_exchange(API, where=lambda exchange: not exchange.ok)
def test_a_recorded_refusal_is_classified(exchange: Exchange) -> None:
    error = classify_error(exchange.status, exchange.headers, exchange.data, exchange.provider)
    assert type(error) is BadRequest
    assert "nonexistent-model" in str(error)


@pytest.mark.wire
@each_exchange(API, where=lambda exchange: exchange.ok and exchange.request is not None)
def test_a_recorded_request_that_was_accepted_breaks_no_rule(exchange: Exchange) -> None:
    assert WIRE.lint(exchange.request, PROFILE) == []


@pytest.mark.wire
@each_recording(API, where=lambda recording: len(recording.exchanges) > 1)
def test_the_next_request_of_a_recorded_conversation_is_the_one_we_would_send(recording: Recording) -> None:
    messages: list[Message] = []
    for before, after in zip(recording.exchanges, recording.exchanges[1:], strict=False):
        asked = [each for each in before.request["messages"] if each["role"] == "user"]
        messages = messages or [user(each["content"]) for each in asked]
        reply = message_of(before.data)
        calls = [
            msgspec.structs.replace(call, call_id=f"{len(messages)}-{place}")
            for place, call in enumerate(reply.tool_calls)
        ]
        texts = [part for part in reply.parts if isinstance(part, Text)]
        new = after.request["messages"][len(before.request["messages"]) + 1 :]
        results = [
            ToolResult(call.call_id, call.name, (Text(each["content"]),)) for call, each in zip(calls, new, strict=True)
        ]
        messages += [msgspec.structs.replace(reply, parts=(*texts, *calls)), Message("tool", tuple(results))]
        system = "".join([each["content"] for each in after.request["messages"] if each["role"] == "system"])
        body = body_of(*messages, instructions=system)
        assert meaning(body) == meaning(after.request)


def meaning(body: Any) -> list[Any]:
    """Messages without ids, which the recorder replaced. The client took text before `</think>` for thinking."""
    return [
        (
            each["role"],
            (each["content"] or each.get("thinking", "")).strip().removesuffix("</think>").strip(),
            [(call["function"]["name"], call["function"]["arguments"]) for call in each.get("tool_calls") or []],
            each.get("tool_name"),
        )
        for each in body["messages"]
    ]


# -- in full -----------------------------------------------------------------------------------------------------------


def test_what_is_torn_after_the_last_line_changes_nothing() -> None:
    assert message_of(lines(line(content="a"), END) + b'{"torn').text == "a"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (lines(line(content="a")), "the answer of ollama-native ended before it was finished; ask again"),
        (
            lines(line(content="a")) + b'{"torn',
            "the answer of ollama-native ended before it was finished; ask again",
        ),
        (b"<html>\n", "ollama-native sent a line that is not JSON, '<html>'; ask again"),
    ],
)
def test_an_answer_that_is_cut_off_says_how(data: bytes, told: str) -> None:
    with pytest.raises(ReplyCutOff) as caught:
        message_of(data)
    assert str(caught.value) == told


def test_a_last_line_that_nothing_ends_counts() -> None:
    assert message_of(lines(line(content="a"), {**END, **COUNTS}).rstrip()).usage == Usage(9, 4)


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({"prompt_eval_count": 9}, Usage(9, 0, precision="partial")),
        ({"prompt_eval_count": 0, "eval_count": 0}, Usage(0, 0)),
    ],
)
def test_counts_that_are_missing_are_zero_and_partial(counts: Any, usage: Usage) -> None:
    assert message_of(lines(line(content="a"), {**END, **counts})).usage == usage


USER = {"role": "user", "content": "?"}
CALLS = {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}] * 2}
RESULT = {"role": "tool", "content": "x"}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"messages": []}, ["there are no messages"]),
        ({"messages": [USER, CALLS, RESULT, RESULT, USER]}, []),
        ({"messages": [USER, CALLS, RESULT]}, ["1 calls have no result"]),
        ({"messages": [USER, CALLS, RESULT, USER]}, ["1 calls have no result before the next message, of 'user'"]),
        ({"messages": [USER, CALLS, RESULT, RESULT, RESULT]}, ["a result follows no call"]),
        (
            {"messages": [{"role": "critic"}]},
            ["a message has the role 'critic'; there are assistant, system, tool, user"],
        ),
        ({"messages": [{"role": "user", "content": None}]}, ["the content of a message of 'user' is not text"]),
        ({"messages": [{**USER, "tool_calls": [{"function": {"name": "f"}}]}]}, []),
        ({"messages": [USER, {"role": "assistant", "tool_calls": [{"function": {}}]}]}, ["a call names no tool"]),
        ({"model": ""}, ["no model is named"]),
        ({"format": "yaml"}, ["format is 'yaml'; use 'json' or a JSON Schema"]),
        ({"format": "json"}, []),
        ({"format": {"type": "object"}}, []),
        (
            {"format": {"type": "object"}, "tools": [{}]},
            ["format and tools are given, and the format keeps the model from calling tools"],
        ),
        ({"tools": [{}]}, []),
        ({"messages": [{**USER, "images": ["x"]}]}, ["there is an image, and 'm' takes no images"]),
        ({"messages": [{**USER, "images": []}]}, []),
    ],
)
def test_what_would_be_misread_is_told_in_full(fields: Any, found: list[str]) -> None:
    body = {"model": "m", "messages": [USER], **fields}
    assert WIRE.lint(body, Profile(provider="o", model="m", images=False)) == found


def test_the_schema_beside_tools_is_told_word_for_word() -> None:
    body = body_of(output=ANSWER, tools=(ADD,))
    assert body["messages"][0] == {
        "role": "system",
        "content": (
            "When you answer, rather than call a tool, answer with nothing but JSON of this schema:\n"
            '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
        ),
    }
    nothing = Profile(provider="o", model="m", output="none")
    assert "format" not in body_of(output=ANSWER, profile=nothing)
    plain = body_of(output=ANSWER, tools=(ADD,), profile=Profile(provider="o", model="m", tools="none"))
    assert "tools" not in plain
    assert plain["format"] == ANSWER.schema


@pytest.mark.parametrize(
    ("arguments", "sent"), [("null", {}), (" ", {}), ("[1]", {"_raw": "[1]"}), ('{"a":[1]}', {"a": [1]})]
)
def test_arguments_are_sent_as_an_object(arguments: str, sent: Any) -> None:
    messages = [user("?"), assistant(ToolCall("c", "add", arguments)), Message("tool", (ToolResult("c", "add"),))]
    assert body_of(*messages)["messages"][1]["tool_calls"][0]["function"]["arguments"] == sent
