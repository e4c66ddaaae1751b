"""Messages, models and tools, as AgentLIB's reference describes `ModelMessage`, `ModelProvider`, `ToolDefinition`."""

import json
from typing import Any

from perdure import (
    Agent,
    Image,
    Message,
    Status,
    Text,
    Thinking,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolResult,
    Usage,
    assistant,
    tool,
    user,
)
from perdure.events import MessageAdded, ReplyFinished, TextDelta, ToolCallDelta
from perdure.models import ModelInfo, Request, assemble_reply, open_model, tapped
from perdure.testing import Recorder, Reply, ScriptedModel, call, check_model
from perdure.tools import tool_from_schema
from tests.coming_from.outcomes import present, results_of
from tests.coming_from.shows import shows
from tests.models.canned import CannedResponse, CannedTransport


@tool(effect="read")
async def weather(city: str, days: int = 1) -> str:
    """Today's weather for a city."""
    return f"Rain in {city} for {days}."


@shows(
    "agentlib",
    "ModelMessage",
    "ModelMessage.role",
    'ModelMessage."user"',
    'ModelMessage."assistant"',
    'ModelMessage."tool"',
    "ModelMessage.content",
    "ModelMessage.reasoning",
    "ModelMessage.toolCallId",
    "ModelMessage.toolCalls",
    "ToolCall",
    "ToolCall.id",
    "ToolCall.name",
    "ToolCall.arguments",
)
async def test_the_messages_of_a_run_have_roles_texts_thinking_calls_and_results():
    look = ToolCall("a", "weather", '{"city":"Oslo"}')
    again = ToolCall("a", "weather", '{"city":"Bergen"}')
    model = ScriptedModel(Reply("Let me look.", thinking="Where?", calls=[look]), Reply(calls=[again]), "Rain.")
    picture = Image(data=b"\x89PNG", media_type="image/png")
    outcome = await Agent(model, tools=[weather]).run([Text("Umbrella?"), picture])
    asked, reply, results, _, more, answer = outcome.messages
    assert [each.role for each in outcome.messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert asked == user([Text("Umbrella?"), picture])
    assert asked.parts == (Text("Umbrella?"), picture)
    assert (reply.text, reply.thinking) == ("Let me look.", "Where?")
    assert [(each.call_id, each.name, each.arguments) for each in reply.tool_calls] == [
        ("a", "weather", '{"city":"Oslo"}')
    ]
    assert [(each.call_id, each.text) for each in results.tool_results] == [("a", "Rain in Oslo for 1.")]
    assert answer.text == assistant("Rain.").text
    assert more.tool_results[0].call_id != "a"  # the provider used an id twice: it is unique in the session
    sent_back = model.requests[1].messages[1].parts[0]
    assert isinstance(sent_back, Thinking)
    assert (sent_back.text, sent_back.model) == ("Where?", "scripted")


@shows("agentlib", "ToolCall.arguments")
async def test_arguments_that_are_no_json_are_kept_and_reported_to_the_model():
    model = ScriptedModel(call("weather", '{"city": '), "Sorry.")
    outcome = await Agent(model, tools=[weather]).run("Umbrella?")
    [made] = outcome.tool_calls
    assert (made.arguments, results_of(outcome)[0].status) == ('{"city": ', Status.ERROR)
    assert "JSON" in model.requests[1].messages[-1].tool_results[0].text


@shows("agentlib", 'ModelMessage."system"')
async def test_a_system_prompt_is_the_instructions_and_a_system_message_can_be_imported():
    model = ScriptedModel("Yes.")
    session = Agent(model, instructions="Be brief.").session("s")
    await session.import_messages([Message("system", (Text("The user is Ada."),)), user("Hi."), assistant("Hi, Ada.")])
    await session.run("Do you know me?")
    [request] = model.requests
    assert request.instructions == "Be brief."
    assert [each.text for each in request.messages] == ["The user is Ada.", "Hi.", "Hi, Ada.", "Do you know me?"]


class Parrot:
    """A model of one's own: it says the last words again, a word at a time."""

    info = ModelInfo("parrot-1", "birds")

    async def stream(self, request: Request):
        words = request.messages[-1].text.split(" ")
        for word in words:
            yield TextDelta(f"{word} ")
        yield ReplyFinished(usage=Usage(len(words), len(words)), model="parrot-1", provider="birds")


@shows(
    "agentlib",
    "ModelProvider",
    "ModelProvider.name",
    "ModelProvider.complete",
    "ModelProvider.stream",
    "ModelResponseChunk",
    "ModelResponse",
    "ModelResponse.message",
    "ModelResponse.usage",
    "TokenUsage",
    "TokenUsage.promptTokens",
    "TokenUsage.completionTokens",
    "TokenUsage.totalTokens",
)
async def test_a_model_of_ones_own_streams_its_reply():
    await check_model(Parrot)
    chunks = [event async for event in Parrot().stream(Request(messages=[user("hello you")]))]
    assert [event.text for event in chunks[:-1]] == ["hello ", "you "]
    assert assemble_reply(chunks[:-1], chunks[-1]).text == "hello you "
    seen = Recorder()
    outcome = await Agent(Parrot()).run("good day to you", watchers=[seen])
    assert [event.text for event in seen.of(TextDelta)] == ["good ", "day ", "to ", "you "]
    reply = seen.of(MessageAdded)[-1].message
    assert (reply.text, reply.model, reply.provider) == ("good day to you ", "parrot-1", "birds")
    used = present(reply.usage)
    assert (used.input_tokens, used.output_tokens, used.total_tokens) == (4, 4, 8)
    assert (outcome.usage.total_tokens, outcome.usage.precision) == (8, "exact")


@shows("agentlib", "ModelRequest", "ModelRequest.messages", "ModelRequest.tools", "ModelResponse.toolCalls")
async def test_a_request_has_the_conversation_and_the_tools_and_its_reply_the_calls():
    model = ScriptedModel(call("weather", city="Oslo"), "Rain.")
    seen = Recorder()
    await Agent(model, tools=[weather]).run("Umbrella?", watchers=[seen])
    first, second = model.requests
    assert [each.role for each in second.messages] == ["user", "assistant", "tool"]
    assert [each.name for each in first.tools] == ["weather"]
    assert [each.name for each in seen.of(ToolCallDelta)] == ["weather"]
    reply = seen.of(MessageAdded)[1].message
    assert [each.name for each in reply.tool_calls] == ["weather"]


class Tape:
    """A tap that keeps what the provider sent."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def on_request(self, exchange: Any) -> None: ...

    def on_answer(self, exchange: Any, status: int, headers: Any) -> None: ...

    def on_line(self, exchange: Any, line: bytes) -> None:
        self.lines.append(line)


@shows("agentlib", "ModelResponse.raw")
async def test_the_raw_response_of_a_provider_can_be_seen():
    body = {
        "id": "r1",
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Rain."},
                "finish_reason": "stop",
                "logprobs": {"content": [{"token": "Rain.", "logprob": -0.1, "top_logprobs": []}]},
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
        "system_fingerprint": "fp_1",
    }
    tape = Tape()
    transport = tapped(CannedTransport(CannedResponse(json.dumps(body).encode(), "application/json")), tape)
    model = open_model("openai-chat:m", api_key="k", transport=transport)
    outcome = await Agent(model).run("Umbrella?")
    assert outcome.text == "Rain."
    assert json.loads(b"".join(tape.lines)) == body
    assert present(outcome.message).metadata["logprobs"]["content"][0]["token"] == "Rain."


@shows(
    "agentlib",
    "ToolDefinition",
    "ToolDefinition.schema",
    "ToolDefinition.execute",
    "ToolSchema",
    "ToolSchema.name",
    "ToolSchema.description",
    "ToolSchema.parameters",
    "ToolRegistry",
)
async def test_a_tool_is_a_function_or_a_schema_with_one_and_its_arguments_are_validated():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

    async def execute(arguments: dict[str, Any], context: ToolContext[Any]) -> dict[str, Any]:
        return {"city": arguments["city"], "session": context.session_id}

    described = tool_from_schema("tides", "Today's tides.", schema, execute, effect="read")
    assert (described.spec.name, described.spec.description, described.spec.parameters["required"]) == (
        "tides",
        "Today's tides.",
        ["city"],
    )
    assert (weather.spec.name, weather.spec.description) == ("weather", "Today's weather for a city.")
    assert weather.spec.parameters["properties"]["days"]["type"] == "integer"
    model = ScriptedModel(
        call("tides", city="Oslo"), call("weather", city=5, days="x"), call("weather", city="Oslo"), "Done."
    )
    agent = Agent(model, tools=[described, weather])
    assert agent.toolbox.names == ("tides", "weather")
    assert agent.toolbox.get("tides") is described
    assert Toolbox([weather]).with_tools([described]).names == ("weather", "tides")
    outcome = await agent.session("s").run("Go")
    tides, wrong, right = results_of(outcome)
    assert json.loads(tides.text) == {"city": "Oslo", "session": "s"}
    assert wrong.is_error
    assert all(name in wrong.text for name in ("city", "days"))
    assert right == ToolResult(right.call_id, "weather", (Text("Rain in Oslo for 1."),))
