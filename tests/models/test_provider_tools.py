"""Tools that a provider runs, through `open_model` and `Agent`: beside the agent's own, never taken for them, and asked
about when the provider asks.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import Agent, Permissions, Settings, Status, allow, tool
from perdure.models import Model, open_model, openai_compatible
from perdure.permissions import PermissionRequest, Verdict, later
from perdure.stores import MemoryStore
from tests.wire.server import Playback, Reply, json_reply, sse

pytestmark = pytest.mark.usefixtures("_no_profiles")


@pytest.fixture
def _no_profiles(monkeypatch, tmp_path):
    monkeypatch.setenv("PERDURE_PROFILES", str(tmp_path))


@tool
async def weather(city: str) -> str:
    """Tells the weather."""
    return f"Rain in {city}"


@tool
async def memory(command: str) -> str:
    """Keeps notes."""
    return f"done: {command}"


# -- beside the agent's own --------------------------------------------------------------------------------------------

CHAT = {"choices": [{"index": 0, "message": {"content": "Yes."}, "finish_reason": "stop"}]}
RESPONSES = {
    "status": "completed",
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}],
}
MESSAGES = {"role": "assistant", "content": [{"type": "text", "text": "Yes."}], "stop_reason": "end_turn", "usage": {}}
GEMINI = {"candidates": [{"content": {"parts": [{"text": "Yes."}]}, "finishReason": "STOP"}]}
CONVERSE = {"output": {"message": {"content": [{"text": "Yes."}]}}, "stopReason": "end_turn", "usage": {}}
OLLAMA = {"message": {"role": "assistant", "content": "Yes."}, "done": True, "done_reason": "stop"}

SEARCH: dict[str, Any] = {
    "openai_chat": {"type": "web_search"},
    "openai_responses": {"type": "web_search"},
    "anthropic": {"type": "web_search_20250305", "name": "web_search"},
    "gemini": {"googleSearch": {}},
    "bedrock": {"systemTool": {"name": "nova_grounding"}},
    "ollama": {"type": "function", "function": {"name": "web_search", "parameters": {"type": "object"}}},
}
ANSWERS = {
    "openai_chat": CHAT, "openai_responses": RESPONSES, "anthropic": MESSAGES, "gemini": GEMINI, "bedrock": CONVERSE,
    "ollama": OLLAMA,
}  # fmt: skip


def open_at(server: Playback, wire: Any) -> Model:
    if wire == "bedrock":
        return open_model("bedrock:amazon.nova-pro-v1:0", base_url=server.base_url, api_key="k")
    return openai_compatible(server.base_url, "a-model", wire=wire, api_key="k")


def tools_in(body: Any) -> list[Any]:
    return list(body["toolConfig"]["tools"] if "toolConfig" in body else body["tools"])


@pytest.mark.parametrize("wire", SEARCH)
@pytest.mark.parametrize("tools", [[weather], []], ids=["with ours", "alone"])
async def test_tools_of_the_provider_stand_beside_those_of_the_agent(wire, tools):
    extra = {"toolConfig": {"tools": [SEARCH[wire]]}} if wire == "bedrock" else {"tools": [SEARCH[wire]]}
    async with Playback([json_reply(ANSWERS[wire])]) as server:
        agent = Agent(open_at(server, wire), tools=tools, settings=Settings(extra_body=extra))
        outcome = await agent.run("Is it raining?")
    assert (outcome.status, outcome.text) == ("done", "Yes.")
    sent = tools_in(server.received[0].json())
    assert SEARCH[wire] in sent
    assert ['"weather"' in json.dumps(each) for each in sent].count(True) == len(tools)
    assert "tool_choice" not in server.received[0].json()


@pytest.mark.parametrize(
    ("wire", "theirs"),
    [
        ("anthropic", {"type": "memory_20250818", "name": "memory"}),
        ("openai_responses", {"type": "custom", "name": "memory"}),
    ],
)
async def test_a_definition_of_the_provider_takes_the_place_of_ours_with_the_same_name(wire, theirs):
    async with Playback([json_reply(ANSWERS[wire])]) as server:
        settings = Settings(extra_body={"tools": [theirs]})
        await Agent(open_at(server, wire), tools=[weather, memory], settings=settings).run("Is it raining?")
    ours, *others = tools_in(server.received[0].json())
    assert (ours["name"], others) == ("weather", [theirs])


async def test_other_fields_of_bedrock_are_merged_too():
    extra = {"inferenceConfig": {"topP": 0.5}, "additionalModelRequestFields": {"top_k": 3}}
    async with Playback([json_reply(CONVERSE)]) as server:
        settings = Settings(max_output_tokens=50, extra_body=extra)
        await Agent(open_at(server, "bedrock"), settings=settings).run("Is it raining?")
    body = server.received[0].json()
    assert body["inferenceConfig"] == {"maxTokens": 50, "topP": 0.5}
    assert body["additionalModelRequestFields"] == {"top_k": 3}


async def test_a_conversation_with_calls_of_former_tools_may_go_on_with_tools_of_the_provider():
    call = {**MESSAGES, "content": [{"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Oslo"}}]}
    async with Playback([json_reply(call), json_reply(MESSAGES), json_reply(MESSAGES)]) as server:
        store = MemoryStore()
        await Agent(open_at(server, "anthropic"), tools=[weather], store=store).session("s").run("Hi")
        settings = Settings(extra_body={"tools": [SEARCH["anthropic"]]})
        await Agent(open_at(server, "anthropic"), settings=settings, store=store).session("s").run("And now?")
    last = server.received[-1].json()
    assert [each["name"] for each in last["tools"]] == ["weather", "web_search"]
    assert "tool_choice" not in last


# -- never taken for the agent's own -----------------------------------------------------------------------------------

X_SEARCH = {
    "type": "custom_tool_call",
    "id": "ctc_1",
    "call_id": "xs_call_1",
    "name": "x_keyword_search",
    "input": '{"query":"rain"}',
    "status": "completed",
}


def x_search_stream() -> Reply:
    message = RESPONSES["output"][0]
    begun = {**X_SEARCH, "input": "", "status": "in_progress"}
    return Reply(
        sse(
            {"type": "response.output_item.added", "output_index": 0, "item": begun},
            {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": X_SEARCH["input"]},
            {"type": "response.custom_tool_call_input.done", "output_index": 0, "input": X_SEARCH["input"]},
            {"type": "response.output_item.done", "output_index": 0, "item": X_SEARCH},
            {"type": "response.output_item.done", "output_index": 1, "item": message},
            {"type": "response.completed", "response": {"status": "completed", "output": [X_SEARCH, message]}},
        )
    )


@pytest.mark.parametrize("streamed", [True, False])
async def test_the_searches_of_xai_are_not_taken_for_calls_of_the_agents_tools(streamed):
    whole = json_reply({"status": "completed", "output": [X_SEARCH, *RESPONSES["output"]]})
    async with Playback([x_search_stream() if streamed else whole, json_reply(RESPONSES)]) as server:
        model = openai_compatible(server.base_url, "grok-4", wire="openai_responses", api_key="k")
        session = Agent(
            model, tools=[weather], settings=Settings(extra_body={"tools": [{"type": "x_search"}]})
        ).session()
        outcome = await session.run("What do they say about rain?")
        assert (outcome.status, outcome.text, len(server.received)) == ("done", "Yes.", 1)
        assert outcome.messages[-1].tool_calls == ()
        assert (await session.run("And snow?")).status == "done"
    assert X_SEARCH in server.received[1].json()["input"]


# -- asked about when the provider asks --------------------------------------------------------------------------------

APPROVAL = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "name": "ask_question",
    "server_label": "deepwiki",
    "arguments": '{"repo":"a/b"}',
}
MCP_CALL = {"type": "mcp_call", "id": "mcp_1", "name": "ask_question", "server_label": "deepwiki", "output": "It is."}


def responses(*items: Any) -> dict[str, Any]:
    return {"status": "completed", "output": list(items), "usage": {"input_tokens": 9, "output_tokens": 2}}


def approval_stream() -> Reply:
    return Reply(
        sse(
            {"type": "response.output_item.added", "output_index": 0, "item": {**APPROVAL, "arguments": ""}},
            {"type": "response.output_item.done", "output_index": 0, "item": APPROVAL},
            {"type": "response.completed", "response": responses(APPROVAL)},
        )
    )


def approving_server(*, streamed: bool = False) -> Playback:
    first = approval_stream() if streamed else json_reply(responses(APPROVAL))
    return Playback([first, json_reply(responses(MCP_CALL, RESPONSES["output"][0]))])


def asker(server: Playback, permissions: Permissions | None, **options: Any) -> Agent[Any]:
    model = openai_compatible(server.base_url, "gpt-5", wire="openai_responses", api_key="k")
    remote = {
        "type": "mcp",
        "server_label": "deepwiki",
        "server_url": "https://x.example",
        "require_approval": "always",
    }
    settings = Settings(extra_body={"tools": [remote]})
    return Agent(model, tools=[weather], settings=settings, permission=permissions, **options)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("allow", [True, False])
async def test_an_approval_that_the_provider_asks_for_is_a_question(streamed, allow):
    asked: list[PermissionRequest] = []

    def answer(requests: Sequence[PermissionRequest]) -> list[Verdict]:
        asked.extend(requests)
        return [Verdict(allow=allow, reason="" if allow else "not today")] * len(requests)

    async with approving_server(streamed=streamed) as server:
        outcome = await asker(server, Permissions(handler=answer)).run("Is it so?")
    assert (outcome.status, outcome.text, len(server.received)) == ("done", "Yes.", 2)
    assert [(each.tool, each.arguments) for each in asked] == [("deepwiki_ask_question", {"repo": "a/b"})]
    request, response = server.received[1].json()["input"][-2:]
    assert request == APPROVAL
    assert (response["type"], response["approval_request_id"]) == ("mcp_approval_response", "mcpr_1")
    assert response["approve"] is allow
    assert "not today" in response.get("reason", "not today")
    assert outcome.usage.total_tokens == 22


async def test_an_approval_may_be_given_later_in_another_process():
    store = MemoryStore()
    async with approving_server() as server:
        waiting = await asker(server, Permissions(handler=later), store=store).session("s").run("Is it so?")
        assert (waiting.status, len(server.received)) == ("waiting", 1)
        session = asker(server, Permissions(handler=later), store=store).session("s")
        await session.answer(waiting.questions[0].ask_id, True)
        outcome = await session.resume()
    assert (outcome.status, outcome.text) == ("done", "Yes.")
    assert server.received[1].json()["input"][-1]["approve"] is True


async def test_a_rule_decides_about_an_approval_as_about_any_call():
    async with approving_server() as server:
        outcome = await asker(server, Permissions(allow("deepwiki_*"))).run("Is it so?")
    assert (outcome.status, server.received[1].json()["input"][-1]["approve"]) == ("done", True)


async def test_without_anybody_to_ask_an_approval_is_denied():
    async with approving_server() as server:
        outcome = await asker(server, None).run("Is it so?")
    assert outcome.messages[2].tool_results[0].status is Status.DENIED
    assert server.received[1].json()["input"][-1]["approve"] is False


async def test_a_tool_of_the_agent_is_not_called_in_the_place_of_the_provider():
    called: list[str] = []

    @tool(name="deepwiki_ask_question")
    async def ask_question(repo: str) -> str:
        """Asks a question."""
        called.append(repo)
        return "ours"

    async with approving_server() as server:
        agent = asker(server, Permissions(handler=lambda requests: [Verdict(allow=True)] * len(requests)))
        await agent.replace(tools=[ask_question]).run("Is it so?")
    assert called == []
    assert server.received[1].json()["input"][-1]["approve"] is True


async def test_another_model_sees_a_call_and_its_result():
    store = MemoryStore()
    async with approving_server() as server, Playback([json_reply(CHAT)]) as other:
        allowed = Permissions(handler=lambda requests: [Verdict(allow=True)] * len(requests))
        await asker(server, allowed, store=store).session("s").run("Is it so?")
        await Agent(open_at(other, "openai_chat"), store=store).session("s").run("Really?")
    called, result = other.received[0].json()["messages"][1:3]
    assert called["tool_calls"][0]["function"]["name"] == "deepwiki_ask_question"
    assert result["content"] == "Approved. The provider makes the call."
