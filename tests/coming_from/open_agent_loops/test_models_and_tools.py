"""Models, tools and stop conditions of Open Agent Loops, with our names."""

import asyncio
from typing import Any

import msgspec
import pytest

from perdure import (
    Agent,
    ConfigError,
    Invalid,
    Settings,
    StopReason,
    Tool,
    Toolbox,
    ToolContext,
    ToolOutput,
    Usage,
    tool,
    user,
)
from perdure.engines import Step, all_of, any_of, max_turns, none_of, when_tool_called
from perdure.events import ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta, ToolProgress
from perdure.models import (
    ModelInfo,
    ReasoningProfile,
    Request,
    ToolSpec,
    add_template_kwargs,
    build_template_kwargs,
    find_reasoning_profile,
    open_model,
    openai_compatible,
)
from perdure.testing import Recorder, ScriptedModel, call, calls
from tests.coming_from.shows import shows
from tests.doubles import SECONDS
from tests.models.canned import CannedTransport


@tool(effect="read")
def weather(city: str) -> str:
    """Today's weather for a city."""
    return f"Rain in {city}."


class Parrot:
    """A model client of our own."""

    info = ModelInfo("parrot")

    def __init__(self):
        self.requests: list[Request] = []

    async def stream(self, request: Request):
        self.requests.append(request)
        last = request.messages[-1]
        yield ThinkingDelta("Hm.")
        if last.role == "user":
            yield ToolCallDelta("c1", "weather", '{"city":"Oslo"}')
            yield ReplyFinished(StopReason.TOOL_USE, Usage(3, 2))
        else:
            for word in last.tool_results[0].text.split():
                yield TextDelta(f"{word} ")
            yield ReplyFinished(StopReason.STOP, Usage(4, 3))


@shows(
    "open-agent-loops",
    "ModelClient",
    "ModelClient.stream",
    "ModelRequest",
    "ModelStream",
    "StreamEvent",
    "StreamEventType",
    "ToolSpec",
)
async def test_a_model_client_streams_events_for_a_request():
    parrot, recorder = Parrot(), Recorder()
    agent = Agent(parrot, instructions="Be brief.", tools=[weather], settings=Settings(seed=7), watchers=[recorder])
    outcome = await agent.session("demo").run("Rain?")
    assert (outcome.text, outcome.usage) == ("Rain in Oslo. ", Usage(7, 5))
    first, second = parrot.requests
    assert (first.instructions, first.settings.seed) == ("Be brief.", 7)
    assert [each.role for each in second.messages] == ["user", "assistant", "tool"]
    (spec,) = first.tools
    assert isinstance(spec, ToolSpec)
    assert (spec.name, spec.description, spec.parameters["required"]) == (
        "weather",
        "Today's weather for a city.",
        ["city"],
    )
    assert [
        type(event) for event in recorder.events if isinstance(event, ThinkingDelta | ToolCallDelta | TextDelta)
    ] == [
        *(ThinkingDelta, ToolCallDelta),
        *(ThinkingDelta, TextDelta, TextDelta, TextDelta),
    ]


@shows("open-agent-loops", "MockModelClient")
async def test_a_scripted_model_streams_what_the_test_says_and_notes_what_it_was_sent():
    model = ScriptedModel(call("weather", city="Oslo"), "Take one.", chunk=3)
    streamed = [event async for event in Agent(model, tools=[weather]).stream("Rain?") if isinstance(event, TextDelta)]
    assert [event.text for event in streamed] == ["Tak", "e o", "ne."]
    assert (len(model.requests), model.remaining) == (2, 0)


ANSWER = b'data: {"choices":[{"delta":{"content":"Rain."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@shows("open-agent-loops", "OpenAICompatibleModel")
async def test_any_openai_compatible_endpoint_is_a_model():
    transport = CannedTransport(ANSWER)
    model = openai_compatible("http://127.0.0.1:9/v1", "some-model", api_key="key-7", transport=transport)
    outcome = await Agent(model, instructions="Be brief.", tools=[weather], settings=Settings(temperature=0.0)).run("?")
    url, headers, _ = transport.posted[0]
    assert (outcome.text, url) == ("Rain.", "http://127.0.0.1:9/v1/chat/completions")
    assert headers["authorization"] == "Bearer key-7"
    body = transport.bodies[0]
    assert (body["model"], body["stream"], body["temperature"]) == ("some-model", True, 0.0)
    assert [each["role"] for each in body["messages"]] == ["system", "user"]
    assert body["tools"][0]["function"]["name"] == "weather"


@shows("open-agent-loops", "OpenAICompatibleModel")
@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ("anthropic:claude-sonnet-5.5", "/v1/messages"),
        ("gemini:gemini-3.1-pro-preview", "streamGenerateContent"),
        ("openai:gpt-5.5", "/responses"),
        ("bedrock:anthropic.claude-sonnet-5-5-v1:0", "/converse-stream"),
    ],
)
async def test_other_providers_are_spoken_to_in_their_own_form(spec, path):
    transport = CannedTransport(b"")
    outcome = await Agent(open_model(spec, api_key="none", transport=transport, attempts=1)).run("Rain?")
    assert path in transport.posted[0][0]
    assert outcome.status == "failed"  # an empty stream is no answer


@shows(
    "open-agent-loops",
    "ThinkingMode",
    "ReasoningProfile",
    "reasoningProfileFor",
    "reasoningKwargsFor",
    "injectReasoningKwargs",
)
async def test_thinking_of_open_models_is_switched_by_their_chat_template():
    profile = find_reasoning_profile("Qwen/Qwen3-8B")
    assert isinstance(profile, ReasoningProfile)
    assert (profile.toggle, profile.default_on) == ("enable_thinking", True)
    assert find_reasoning_profile("llama-3") is None
    assert build_template_kwargs("Qwen/Qwen3-8B", "off") == {"enable_thinking": False}
    assert build_template_kwargs("deepseek-v3.1", "on") == {"thinking": True}
    assert build_template_kwargs("deepseek-v3.1", "auto") == {"thinking": False}  # its default
    for nothing in ("llama-3", "qwen3-coder-30b", "deepseek-r1"):  # unknown, does not think, cannot be switched
        assert build_template_kwargs(nothing, "off") == {}
    body = {"model": "Qwen/Qwen3-8B", "messages": [], "chat_template_kwargs": {"add_vision_id": True}}
    merged = add_template_kwargs(body, "off")
    assert merged["chat_template_kwargs"] == {"add_vision_id": True, "enable_thinking": False}
    assert body["chat_template_kwargs"] == {"add_vision_id": True}
    assert add_template_kwargs({"model": "llama-3"}, "off") == {"model": "llama-3"}
    transport = CannedTransport(ANSWER)
    model = openai_compatible("http://127.0.0.1:9/v1", "Qwen/Qwen3-8B", transport=transport)
    await Agent(model, settings=Settings(thinking="off")).run("Rain?")
    assert transport.bodies[0]["chat_template_kwargs"] == {"enable_thinking": False}


# -- tools -------------------------------------------------------------------------------------------------------------


class Trip(msgspec.Struct):
    city: str
    days: int


@shows(
    "open-agent-loops",
    "Tool",
    "Tool.name",
    "Tool.description",
    "Tool.execute",
    "defineTool",
    "toToolSpec",
    "validateToolArguments",
)
async def test_a_tool_is_read_from_a_function_and_checks_its_arguments():
    @tool(effect="read")
    def plan(trip: Trip, guests: list[str]) -> str:
        """Plan a trip."""
        return f"{trip.days} days in {trip.city} for {', '.join(guests)}"

    assert isinstance(plan, Tool)
    assert (plan.name, plan.description) == (plan.spec.name, plan.spec.description) == ("plan", "Plan a trip.")
    parsed = plan.parameters.parse({"trip": {"city": "Oslo", "days": 3}, "guests": ["Ada"]})
    assert parsed == {"trip": Trip("Oslo", 3), "guests": ["Ada"]}
    with pytest.raises(Invalid) as caught:
        plan.parameters.parse({"trip": {"city": 1}, "guests": ["Ada", 2]})
    for path in ("trip.city", "trip.days", "guests"):
        assert path in str(caught.value)
    model = ScriptedModel(
        calls(call("plan", trip={"city": "Oslo", "days": 3}, guests=["Ada"]), call("plan", trip={}, guests=1)), "Done."
    )
    outcome = await Agent(model, tools=[plan]).run("Plan.")
    first, second = outcome.messages[2].tool_results
    assert (first.text, second.is_error) == ("3 days in Oslo for Ada", True)
    for path in ("trip.city", "trip.days", "guests"):
        assert path in second.text

    @tool(effect="read")
    async def outer(context: ToolContext) -> str:
        """Call the other."""
        return await plan.call(parsed, context)

    outcome = await Agent(ScriptedModel(call("outer"), "Done."), tools=[outer]).run("Plan.")
    assert outcome.messages[2].tool_results[0].text == "3 days in Oslo for Ada"


@shows("open-agent-loops", "ToolContext", "ToolResult")
async def test_a_tool_has_a_context_and_returns_text_data_or_an_output():
    contexts = []

    @tool(effect="read")
    async def work(kind: str, context: ToolContext[dict[str, int]]) -> Any:
        """Work."""
        contexts.append((context.call_id, context.name, context.session_id, context.turn, context.deps))
        context.emit({"done": 0.5})
        await context.keep("last", kind)
        return {"text": "plain", "data": {"n": 1}, "output": ToolOutput("short", render={"n": 1}, terminate=True)}[kind]

    recorder = Recorder()
    model = ScriptedModel(calls(*[call("work", kind=kind) for kind in ("text", "data", "output")]), "Done.")
    agent: Agent[dict[str, int]] = Agent(model, tools=[work], deps={"n": 7}, watchers=[recorder])
    session = agent.session("demo")
    outcome = await session.run("Work.")
    ids = [each.call_id for each in outcome.messages[1].tool_calls]
    assert contexts == [(call_id, "work", "demo", 1, {"n": 7}) for call_id in ids]
    text, data, output = outcome.messages[2].tool_results
    assert (text.text, msgspec.json.decode(data.text), output.text, output.render) == (
        *("plain", {"n": 1}, "short"),
        {"n": 1},
    )
    assert [event.data for event in recorder.of(ToolProgress)] == [{"done": 0.5}] * 3
    assert await session.kept("last") in {"text", "data", "output"}


@shows("open-agent-loops", "ToolContext")
async def test_the_key_of_a_call_is_the_same_for_each_attempt():
    keys = []

    @tool(effect="idempotent", retries=1)
    async def pay(context: ToolContext) -> str:
        """Pay."""
        keys.append(context.idempotency_key)
        if len(keys) == 1:
            raise ConnectionError("lost")
        return "paid"

    outcome = await Agent(ScriptedModel(call("pay"), "Done."), tools=[pay]).run("Pay.")
    assert outcome.messages[2].tool_results[0].text == "paid"
    assert len(keys) == 2
    assert len(set(keys)) == 1


@shows("open-agent-loops", "ToolContext")
async def test_a_tool_asks_people_and_waits_for_results_from_outside():
    @tool(asks_first=True)
    async def book(context: ToolContext) -> str:
        """Book a table."""
        name = await context.ask("In whose name?")
        await context.begin()
        await context.add_to_inbox("restaurant", f"A table for {name}", wake=True)
        return f"asked for a table for {name}"

    model = ScriptedModel(call("book"), "I have asked.", "You have a table.")
    session = Agent(model, tools=[book]).session("demo")
    waiting = await session.run("Book.")
    assert waiting.status == "waiting"
    await session.answer(waiting.questions[0].ask_id, "Ada")
    assert (await session.resume()).text == "I have asked."
    (item,) = await session.inbox()
    assert (item.tag, item.request) == ("restaurant", "A table for Ada")
    assert await session.resolve(item.item_id, "table 7")
    woken = await session.wake()
    assert woken is not None
    assert woken.text == "You have a table."
    assert "table 7" in model.requests[-1].messages[-1].text


@shows("open-agent-loops", "ExecutionMode")
@pytest.mark.parametrize("parallel", [True, False])
async def test_a_tool_runs_beside_its_siblings_or_alone(parallel):
    running, most = 0, 0
    met = asyncio.Event()

    @tool(effect="read", parallel=parallel)
    async def work(name: str) -> str:
        """Work."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        if parallel:
            if running == 2:
                met.set()
            await met.wait()
        await asyncio.sleep(0)
        running -= 1
        return name

    model = ScriptedModel(calls(call("work", name="a"), call("work", name="b")), "Done.")
    async with asyncio.timeout(SECONDS):
        await Agent(model, tools=[work]).run("Work.")
    assert most == (2 if parallel else 1)


@shows("open-agent-loops", "ToolRegistry", "ToolRegistry.resolve")
async def test_tools_are_collected_once_and_resolved_by_name():
    @tool(effect="read")
    def clock() -> str:
        """The time."""
        return "noon"

    toolbox = Toolbox([weather, clock])
    assert toolbox.names == ("weather", "clock")
    assert toolbox.get("clock") is clock
    assert toolbox.get("calendar") is None
    some = toolbox.with_only(["clock"])
    assert tuple(some) == (clock,)
    with pytest.raises(ConfigError, match="calendar"):
        toolbox.with_only(["calendar"])
    with pytest.raises(ConfigError, match="weather"):
        Toolbox([weather, weather])
    model = ScriptedModel(call("clock"), "Noon.")
    await Agent(model, tools=tuple(some)).run("Time?")
    assert [each.name for each in model.requests[0].tools] == ["clock"]


# -- stop conditions ---------------------------------------------------------------------------------------------------


@shows("open-agent-loops", "StopCondition", "StopContext", "StopContext.step")
async def test_a_stop_condition_sees_each_turn_and_may_end_the_run():
    steps: list[Step] = []

    def second_city(step: Step) -> bool:
        steps.append(step)
        return step.turn == 2

    model = ScriptedModel(call("weather", city="Oslo"), call("weather", city="Voss"), call("weather", city="Hamar"))
    outcome = await Agent(model, tools=[weather], stop=second_city).run("Rain?")
    assert (outcome.status, outcome.reason, len(model.requests)) == ("stopped", "stop_condition", 2)
    assert [each.turn for each in steps] == [1, 2]
    assert [each.text for each in steps[1].results] == ["Rain in Voss."]
    assert steps[1].reply == outcome.messages[3]
    assert [each.name for each in steps[1].calls] == ["weather"]
    assert list(steps[1].messages) == list(outcome.messages)


async def turns_until(stop):
    """The turns that a run takes until this condition stops it: weather, clock, weather, …, and an answer."""

    @tool(effect="read")
    def clock(zone: int) -> str:
        """The time."""
        return "noon"

    script = [call("weather", city=f"{n}") if n % 2 else call("clock", zone=n) for n in range(1, 6)]
    model = ScriptedModel(*script, "Done.")
    outcome = await Agent(model, tools=[weather, clock], stop=stop).run("Go.")
    return len(model.requests), outcome.status


@shows("open-agent-loops", "all", "any", "not", "maxSteps", "whenToolCalled")
async def test_stop_conditions_are_combined():
    assert await turns_until(None) == (6, "done")
    assert await turns_until(max_turns(3)) == (3, "stopped")
    assert await turns_until(when_tool_called("clock")) == (2, "stopped")
    assert await turns_until(any_of(max_turns(4), when_tool_called("clock"))) == (2, "stopped")
    assert await turns_until(all_of(max_turns(3), when_tool_called("clock"))) == (4, "stopped")
    assert await turns_until(none_of(when_tool_called("weather"))) == (2, "stopped")
    assert await turns_until(all_of(none_of(when_tool_called("clock")), max_turns(2))) == (3, "stopped")


@shows("open-agent-loops", "StopCondition", "maxSteps")
async def test_a_stop_condition_is_also_asked_after_an_answer_that_would_be_continued():
    turns = []

    async def noted(step: Step) -> bool:
        turns.append((step.turn, step.calls))
        return step.turn == 1

    model = ScriptedModel("One.", "Two.")
    session = Agent(model, stop=noted).session("demo")
    await session.follow_up("And then?")
    outcome = await session.run(user("Go."))
    assert (outcome.text, turns, model.remaining) == ("One.", [(1, ())], 1)
