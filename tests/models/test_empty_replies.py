"""Replies without text that end for a stated reason, on every wire, through `open_model` and `Agent`."""

from typing import Any

import msgspec
import pytest

from perdure import Agent, Settings, Usage
from perdure.models import Model, open_model, openai_compatible
from tests.wire.server import Playback, json_reply


def chat(finish: str, **message: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage}


def responses(*items: Any, reason: str = "") -> dict[str, Any]:
    status = {"status": "incomplete", "incomplete_details": {"reason": reason}} if reason else {"status": "completed"}
    return {**status, "output": list(items), "usage": {"input_tokens": 9, "output_tokens": 4}}


def messages(stop: str, *blocks: Any) -> dict[str, Any]:
    return {"content": list(blocks), "stop_reason": stop, "usage": {"input_tokens": 9, "output_tokens": 4}}


def gemini(finish: str, *parts: Any) -> dict[str, Any]:
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 4, "totalTokenCount": 13}
    return {"candidates": [{"content": {"parts": list(parts)}, "finishReason": finish}], "usageMetadata": usage}


def converse(stop: str, *blocks: Any) -> dict[str, Any]:
    usage = {"inputTokens": 9, "outputTokens": 4, "totalTokens": 13}
    return {"output": {"message": {"role": "assistant", "content": list(blocks)}}, "stopReason": stop, "usage": usage}


def ollama(done_reason: str, **message: Any) -> dict[str, Any]:
    counts = {"prompt_eval_count": 9, "eval_count": 4}
    return {"message": {"role": "assistant", **message}, "done": True, "done_reason": done_reason, **counts}


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Here I am."}]}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
BEDROCK_THOUGHT = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}}

ANSWERS = {
    "openai_chat": chat("stop", content="Here I am."),
    "openai_responses": responses(SAID),
    "anthropic": messages("end_turn", {"type": "text", "text": "Here I am."}),
    "gemini": gemini("STOP", {"text": "Here I am."}),
    "bedrock": converse("end_turn", {"text": "Here I am."}),
    "ollama": ollama("stop", content="Here I am."),
}
CASES = [
    ("openai_chat", "length", chat("length", reasoning_content="Hm.")),
    ("openai_chat", "content_filter", chat("content_filter", content="")),
    ("openai_chat", "stop_sequence", chat("stop", content="")),
    ("openai_responses", "length", responses(REASONING, reason="max_output_tokens")),
    ("openai_responses", "content_filter", responses(reason="content_filter")),
    ("anthropic", "length", messages("max_tokens", THOUGHT)),
    ("anthropic", "content_filter", messages("refusal")),
    ("anthropic", "stop_sequence", messages("stop_sequence")),
    ("gemini", "length", gemini("MAX_TOKENS", {"text": "Hm.", "thought": True})),
    ("gemini", "content_filter", gemini("SAFETY")),
    ("gemini", "stop_sequence", gemini("STOP")),
    ("bedrock", "length", converse("max_tokens", BEDROCK_THOUGHT)),
    ("bedrock", "content_filter", converse("guardrail_intervened")),
    ("bedrock", "stop_sequence", converse("stop_sequence")),
    ("ollama", "length", ollama("length", content="", thinking="Hm.")),
    ("ollama", "stop_sequence", ollama("stop", content="")),
]


def open_at(server: Playback, wire: Any) -> Model:
    options: Any = {"api_key": "k", "profile": {"price": {"input_usd": 1.0, "output_usd": 2.0}}}
    if wire == "bedrock":
        return open_model("bedrock:anthropic.claude-sonnet-4-5", base_url=server.base_url, **options)
    return openai_compatible(server.base_url, "a-model", wire=wire, **options)


@pytest.fixture(autouse=True)
def _no_profiles(monkeypatch, tmp_path):
    monkeypatch.setenv("PERDURE_PROFILES", str(tmp_path))


@pytest.mark.parametrize(("wire", "reason", "empty"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
async def test_an_empty_reply_with_a_reason_is_one_request_and_the_session_goes_on(wire, reason, empty):
    settings = Settings(stop_sequences=("END",) if reason == "stop_sequence" else ())
    async with Playback([json_reply(empty), json_reply(ANSWERS[wire])]) as server:
        session = Agent(open_at(server, wire), settings=settings).session()
        outcome = await session.run("Are you there?")
        assert (outcome.status, outcome.reason, outcome.text) == ("stopped", reason, "")
        assert len(server.received) == 1
        assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (9, 4)
        assert outcome.usage.precision == Usage().precision
        assert outcome.cost_usd == pytest.approx(17e-6)
        again = await session.run("Hello?")
    assert (again.status, again.text) == ("done", "Here I am.")
    assert b"Are you there?" in server.received[1].body
    assert b"Hm." not in server.received[1].body


SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
IMAGE = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "aGVsbG8="}
SERVER_TOOL = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
CODE = {"executableCode": {"language": "PYTHON", "code": "1 + 1"}}
RAN = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}
ITEMS = [
    ("openai_responses", responses(SEARCH), [SEARCH]),
    ("openai_responses", responses(REASONING, IMAGE), [IMAGE]),
    ("anthropic", messages("end_turn", SERVER_TOOL, FOUND), [SERVER_TOOL, FOUND]),
    ("gemini", gemini("STOP", CODE, RAN), [{"part": CODE}, {"part": RAN}]),
    ("bedrock", converse("end_turn", {"toolResult": {"toolUseId": "t"}}), [{"toolResult": {"toolUseId": "t"}}]),
]


@pytest.mark.parametrize(("wire", "reply", "items"), ITEMS)
async def test_a_reply_of_items_that_the_provider_made_is_one_request_and_is_kept(wire, reply, items, tmp_path):
    async with Playback([json_reply(reply), json_reply(ANSWERS[wire])]) as server:
        agent = Agent(open_at(server, wire), store=f"sqlite:{tmp_path}/sessions.db")
        outcome = await agent.session("s").run("Look it up.")
        assert (outcome.status, outcome.reason, outcome.text) == ("done", "", "")
        assert len(server.received) == 1
        assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (9, 4)
        assert [*outcome.messages[-1].provider_items] == items
        again = await agent.session("s").run("And?")
    assert (again.status, again.text) == ("done", "Here I am.")
    stored = [message for message in await agent.session("s").messages() if message.role == "assistant"]
    assert [*stored[0].provider_items] == items
    sent = server.received[1].body.decode()
    assert '"And?"' in sent
    assert all(name in sent for name in [next(iter(item.get("part", item))) for item in items])


async def test_a_turn_that_anthropic_pauses_is_gone_on_with():
    said = {"type": "text", "text": "Let me look."}
    paused = [json_reply(messages("pause_turn", said, SERVER_TOOL)), json_reply(messages("pause_turn", FOUND))]
    async with Playback([*paused, json_reply(ANSWERS["anthropic"])]) as server:
        outcome = await Agent(open_at(server, "anthropic")).run("Look it up.")
    assert (outcome.status, outcome.text, outcome.turns) == ("done", "Here I am.", 3)
    assert outcome.usage.input_tokens == 27
    requests = [msgspec.json.decode(each.body)["messages"] for each in server.received]
    assert [[each["role"] for each in request] for request in requests] == [
        ["user"],
        ["user", "assistant"],
        ["user", "assistant", "assistant"],
    ]
    assert [block["type"] for block in requests[1][1]["content"]] == ["text", "server_tool_use"]
    assert requests[2][2]["content"] == [FOUND]


async def test_a_reply_that_is_empty_for_no_reason_is_asked_for_again_and_its_tokens_are_counted():
    async with Playback([json_reply(responses(REASONING))]) as server:
        model = openai_compatible(server.base_url, "a-model", wire="openai_responses", api_key="k", attempts=1)
        outcome = await Agent(model).run("Are you there?")
    assert (outcome.status, outcome.reason) == ("failed", "EmptyReply")
    assert outcome.usage.total_tokens == 13
