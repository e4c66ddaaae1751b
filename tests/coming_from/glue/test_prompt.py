"""The options of one prompt in Glue, and its result, with our names."""

import io
import json

import msgspec
import pytest

from perdure import Agent, Limits, Message, Settings, tool
from perdure._models import registry
from perdure.events import RunEnded, RunStarted, TextDelta, WatcherDropped
from perdure.models import Price, open_model
from perdure.permissions import allow_all, deny_all
from perdure.testing import Recorder, ScriptedModel, call, calls
from perdure.tracing import mirror_text, mirror_tool_calls
from tests.coming_from.shows import shows
from tests.models.canned import CannedTransport


@tool(effect="read")
def weather(city: str) -> str:
    """Today's weather for a city."""
    return f"Rain in {city}."


@tool(permission=True)
def book(room: str) -> str:
    """Book a room."""
    return f"booked {room}"


@shows("glue", "WithEvents")
async def test_a_watcher_of_one_run_sees_its_events_beside_those_of_the_session():
    own, of_session = Recorder(), Recorder()
    session = Agent(ScriptedModel("One.", "Two.")).session("oslo")
    session.add_watcher(of_session)
    await session.run("First", watchers=[own])
    await session.run("Second")
    assert own.text == "One."
    assert (isinstance(own.events[1], RunStarted), isinstance(own.events[-1], RunEnded)) == (True, True)
    assert of_session.text == "One.Two."


@shows("glue", "WithStreamWriter", "WithToolLogger", "WithEvents")
async def test_text_and_tool_calls_are_mirrored_to_writers_that_do_not_displace_one_another():
    text, log, recorder = io.StringIO(), io.StringIO(), Recorder()
    model = ScriptedModel(calls(call("weather", city="Oslo"), call("weather", city="Voss")), "Rain.", chunk=2)
    session = Agent(model, tools=[weather]).session("oslo")
    await session.run("Rain?", watchers=[mirror_text(text), mirror_tool_calls(log), recorder])
    assert text.getvalue() == recorder.text == "Rain."
    assert log.getvalue() == "[tool] weather\n[tool] weather\n"


class BrokenWriter:
    def write(self, text: str) -> None:
        raise OSError("the pipe is gone")


@shows("glue", "WithStreamWriter", "WithToolLogger")
async def test_a_writer_that_fails_does_not_affect_the_run():
    recorder = Recorder()
    model = ScriptedModel(call("weather", city="Oslo"), "Rain.")
    session = Agent(model, tools=[weather], watchers=[recorder]).session("oslo")
    watchers = [mirror_text(BrokenWriter()), mirror_tool_calls(BrokenWriter())]
    outcome = await session.run("Rain?", watchers=watchers)
    assert (outcome.status, outcome.text) == ("done", "Rain.")
    assert len(recorder.of(WatcherDropped)) == 2


@shows("glue", "WithMaxTurns", "WithModel", "WithSystemPrompt", "WithProviderOptions", "WithTools", "WithPermission")
async def test_options_of_one_run_change_those_of_the_agent_and_are_gone_afterwards(monkeypatch):
    monkeypatch.setattr(registry, "_factories", {})
    other = ScriptedModel(call("book", room="7"), "Booked.", call("book", room="8"), "Pity.")
    registry.register("house", lambda _name: other)
    own = ScriptedModel("Hello.")
    settings = Settings(temperature=1.0, seed=7)
    agent = Agent(
        own,
        instructions="Be brief.",
        tools=[weather],
        settings=settings,
        permission=deny_all,
        limits=Limits(max_turns=9),
    )
    session = agent.session("oslo")
    outcome = await session.run(
        "Book it.",
        model="house:big",
        instructions="Be long.",
        tools=[book],
        settings=Settings(temperature=0.0),
        permission=allow_all,
        narrow_permission=False,
    )
    assert outcome.messages[2].tool_results[0].text == "booked 7"
    first = other.requests[0]
    assert (first.instructions, [each.name for each in first.tools]) == ("Be long.", ["book"])
    assert (first.settings.temperature, first.settings.seed) == (0.0, 7)
    short = await session.run("Again.", model=other, tools=[book], permission=None, limits=Limits(max_turns=1))
    assert (short.status, short.reason) == ("limit", "max_turns")
    assert "permission denied" in short.messages[-1].tool_results[0].text
    await session.run("Hi")
    last = own.requests[0]
    assert (last.instructions, [each.name for each in last.tools], last.settings) == (
        "Be brief.",
        ["weather"],
        settings,
    )


class Forecast(msgspec.Struct):
    city: str


GEMINI = json.dumps(
    {
        "candidates": [
            {"content": {"role": "model", "parts": [{"text": '{"city": "Oslo"}'}]}, "finishReason": "STOP"},
        ],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2},
    }
)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@shows("glue", "WithJSONSchema", "response_mime_type", "response_json_schema")
@pytest.mark.parametrize("output", [SCHEMA, Forecast])
async def test_a_schema_is_sent_to_a_provider_that_has_structured_output(output):
    transport = CannedTransport(f"data: {GEMINI}\n\n".encode())
    model = open_model("gemini:gemini-3.1-pro-preview", api_key="none", transport=transport)
    outcome = await Agent(model).session("oslo").run("Where?", output=output)
    wanted = transport.bodies[0]["generationConfig"]
    assert wanted["responseMimeType"] == "application/json"
    assert wanted["responseJsonSchema"]["properties"] == SCHEMA["properties"]
    assert outcome.value == ({"city": "Oslo"} if output is SCHEMA else Forecast("Oslo"))


@shows("glue", "WithJSONSchema")
async def test_an_answer_that_does_not_fit_a_schema_is_repaired():
    model = ScriptedModel(call("final_answer", '{"city": 7}'), call("final_answer", city="Oslo"))
    outcome = await Agent(model).session("oslo").run("Where?", output=SCHEMA)
    assert (outcome.value, len(model.requests)) == ({"city": "Oslo"}, 2)


@shows(
    "glue",
    "PromptResult",
    "PromptResult.Text",
    "PromptResult.Message",
    "PromptResult.NewMessages",
    "PromptResult.Messages",
    "RunResult",
    "RunResult.Messages",
    "RunResult.NewMessages",
)
async def test_the_outcome_has_the_answer_what_was_added_and_the_whole_transcript():
    model = ScriptedModel("Hello.", call("weather", city="Oslo"), [TextDelta("Take "), TextDelta("one."), finished()])
    session = Agent(model, tools=[weather]).session("oslo")
    before = (await session.run("Hi")).messages
    outcome = await session.run("Do I need an umbrella?")
    assert outcome.text == "Take one."
    assert outcome.message == outcome.messages[-1]
    prompt, *produced = outcome.new_messages
    assert prompt.text == "Do I need an umbrella?"
    assert [each.role for each in produced] == ["assistant", "tool", "assistant"]
    assert list(outcome.messages) == [*before, prompt, *produced] == list(await session.messages())
    assert (outcome.status, outcome.turns, outcome.usage.input_tokens) == ("done", 2, 10)


@shows("glue", "PromptResult")
async def test_the_outcome_has_the_cost_and_the_validated_output():
    price = Price(input_usd=1.0, output_usd=2.0)
    model = ScriptedModel(call("final_answer", city="Oslo"), price=price)
    outcome = await Agent(model).session("oslo").run("Where?", output=Forecast)
    assert (outcome.status, outcome.output, outcome.value) == ("done", Forecast("Oslo"), Forecast("Oslo"))
    assert outcome.cost_usd == pytest.approx((10 * 1.0 + 5 * 2.0) / 1_000_000)


@shows("glue", "PromptResult.Message")
async def test_a_run_without_an_answer_has_no_message():
    outcome = await Agent(ScriptedModel(ValueError("no connection"))).session("oslo").run("Hi")
    assert (outcome.status, outcome.message, outcome.text) == ("failed", None, "")
    assert [each.text for each in outcome.new_messages] == ["Hi"]
    assert all(isinstance(each, Message) for each in outcome.new_messages)


def finished():
    from perdure.events import ReplyFinished

    return ReplyFinished()
