"""Glue's providers and failover, with our names."""

import asyncio

import pytest

from perdure import (
    Agent,
    AllModelsFailed,
    Message,
    ModelError,
    RateLimited,
    Settings,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
    tool,
    user,
)
from perdure.events import FailedOver, ModelEvent, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.models import ModelInfo, Request, failover
from perdure.testing import Recorder, ScriptedModel, call, check_model
from tests.coming_from.shows import shows
from tests.doubles import SECONDS


@tool(effect="read")
def weather(city: str) -> str:
    """Today's weather for a city."""
    return f"Rain in {city}."


class Echo:
    """A provider of our own: it repeats what it was last sent."""

    def __init__(self):
        self.info = ModelInfo("echo")
        self.requests: list[Request] = []
        self.closed = 0

    async def stream(self, request: Request):
        self.requests.append(request)
        try:
            for word in request.messages[-1].text.split():
                yield TextDelta(f"{word} ")
            yield ReplyFinished(StopReason.STOP, Usage(3, 2))
        finally:
            self.closed += 1


@shows(
    "glue",
    "Provider",
    "Provider.Stream",
    "ProviderRequest",
    "ProviderRequest.SystemPrompt",
    "ProviderRequest.Messages",
    "ProviderRequest.Tools",
    "ProviderRequest.Options",
)
async def test_a_provider_is_an_object_that_streams_the_answer_to_a_request():
    echo = Echo()
    settings = Settings(temperature=0.0)
    agent = Agent(echo, instructions="Be brief.", tools=[weather], settings=settings)
    outcome = await agent.session("oslo").run("Rain again")
    assert outcome.text == "Rain again "
    request = echo.requests[0]
    assert (request.instructions, request.settings) == ("Be brief.", settings)
    assert [each.text for each in request.messages] == ["Rain again"]
    assert [each.name for each in request.tools] == ["weather"]
    assert echo.closed == 1
    await check_model(Echo)


@shows("glue", "Provider.Stream")
async def test_a_stream_is_closed_when_its_consumer_stops():
    class Endless(Echo):
        reached = asyncio.Event()

        async def stream(self, request: Request):
            try:
                yield TextDelta("It ")
                self.reached.set()
                await asyncio.Event().wait()
            finally:
                self.closed += 1

    endless = Endless()
    session = Agent(endless).session("oslo")
    running = asyncio.create_task(session.run("Rain?"))
    async with asyncio.timeout(SECONDS):
        await endless.reached.wait()
        await session.cancel()
        assert (await running).status == "cancelled"
    assert endless.closed == 1


@shows(
    "glue",
    "ProviderEvent",
    "ProviderEvent.Type",
    "ProviderEvent.Message",
    "ProviderEvent.Delta",
    "ProviderEvent.ContentIndex",
    "ProviderEvent.ToolCall",
    "ProviderEventType",
    "ProviderEventTextDelta",
    'ProviderEventType."text_delta"',
    "ProviderEventThinkingDelta",
    'ProviderEventType."thinking_delta"',
    "ProviderEventToolCall",
    'ProviderEventType."tool_call"',
    "ProviderEventDone",
    'ProviderEventType."done"',
)
async def test_a_stream_consists_of_deltas_and_one_end():
    recorder = Recorder()
    deltas: list[ModelEvent] = [
        ThinkingDelta("First."),
        ThinkingDelta("Second.", index=1),
        TextDelta("I "),
        TextDelta("look."),
        ToolCallDelta("c1", "weather", '{"city": '),
        ToolCallDelta("c2", "weather", '{"city": "Voss"}', index=1),
        ToolCallDelta(arguments='"Oslo"}'),  # of the first call: index 0
        ReplyFinished(StopReason.TOOL_USE),
    ]
    whole = Message("assistant", (Text("Rain."),), usage=Usage(9, 1))
    model = ScriptedModel(deltas, [TextDelta("Rain."), ReplyFinished(message=whole)])
    outcome = await Agent(model, tools=[weather], watchers=[recorder]).run("Rain?")
    reply = outcome.messages[1]
    assert [(type(part), getattr(part, "text", "")) for part in reply.parts[:3]] == [
        (Thinking, "First."),
        (Thinking, "Second."),
        (Text, "I look."),
    ]
    assert reply.tool_calls == (
        ToolCall("c1", "weather", '{"city": "Oslo"}'),
        ToolCall("c2", "weather", '{"city": "Voss"}'),
    )
    streamed = [event.arguments for event in recorder.of(ToolCallDelta)]
    assert streamed == ['{"city": ', '{"city": "Voss"}', '"Oslo"}']
    assert [event.index for event in recorder.of(ThinkingDelta)] == [0, 1]
    assert outcome.message is not None
    assert (outcome.message.text, outcome.message.usage) == ("Rain.", Usage(9, 1))


@shows("glue", "ProviderEvent.Error", "ProviderEventError", 'ProviderEventType."error"')
async def test_an_error_of_a_provider_is_raised_and_says_whether_it_may_pass():
    outcome = await Agent(ScriptedModel([TextDelta("It "), RateLimited("slow down")])).run("Rain?")
    assert (outcome.status, type(outcome.error)) == ("failed", RateLimited)
    assert (RateLimited("").retryable, ModelError("").retryable) == (True, False)
    with pytest.raises(ModelError, match="no such model"):
        async for _ in ScriptedModel(ModelError("no such model")).stream(Request(messages=[user("Rain?")])):
            pass


@shows("glue", "WithFailover")
@pytest.mark.parametrize(
    "failure", [ModelError("down"), [RateLimited("slow down")], []], ids=["call", "first", "empty"]
)
async def test_a_model_that_fails_before_its_answer_begins_is_followed_by_the_next(failure):
    recorder = Recorder()
    model = failover(ScriptedModel(failure, name="first"), ScriptedModel("Rain.", name="second"))
    outcome = await Agent(model, watchers=[recorder]).run("Rain?")
    assert outcome.message is not None
    assert (outcome.text, outcome.message.model) == ("Rain.", "second")
    (over,) = recorder.of(FailedOver)
    assert (over.failed, over.next) == ("first", "second")


@shows("glue", "WithFailover")
async def test_a_model_whose_answer_has_begun_is_not_replaced():
    second = ScriptedModel("Rain.", name="second")
    model = failover(ScriptedModel([TextDelta("It "), ModelError("down")], name="first"), second)
    outcome = await Agent(model).run("Rain?")
    assert (outcome.status, str(outcome.error), second.remaining) == ("failed", "down", 1)


@shows("glue", "FailoverError", "FailoverError.Attempts", "FailoverError.Error", "FailoverAttempt")
async def test_when_all_models_fail_the_error_has_what_each_said():
    model = failover(
        ScriptedModel(RateLimited("slow down"), name="first"), ScriptedModel(ModelError("no key"), name="second")
    )
    outcome = await Agent(model).run("Rain?")
    assert isinstance(outcome.error, AllModelsFailed)
    assert [(name, type(error), str(error)) for name, error in outcome.error.attempts] == [
        ("first", RateLimited, "slow down"),
        ("second", ModelError, "no key"),
    ]
    for word in ("first", "slow down", "second", "no key"):
        assert word in str(outcome.error)


@shows("glue", "WithFailover")
async def test_each_turn_begins_with_the_first_model_again():
    first = ScriptedModel(RateLimited("slow down"), "Rain.", name="first")
    second = ScriptedModel(call("weather", city="Oslo"), name="second")
    outcome = await Agent(failover(first, second), tools=[weather]).run("Rain?")
    assert [each.model for each in outcome.messages if each.role == "assistant"] == ["second", "first"]
