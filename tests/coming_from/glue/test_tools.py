"""Glue's tools and hooks, with our names."""

import json

import msgspec
import pytest

from perdure import Agent, Image, Settings, Status, Text, ToolCall, ToolContext, ToolError, ToolOutput, ToolResult, tool
from perdure.events import ToolFinished
from perdure.models import ToolSpec, openai_compatible
from perdure.testing import Recorder, ScriptedModel, call, calls
from perdure.tools import Skip, after, around, before, tool_from_schema
from tests.coming_from.shows import shows
from tests.models.canned import CannedTransport


async def results_of(*tools, script, **options):
    """The results of the calls of one reply."""
    outcome = await Agent(ScriptedModel(calls(*script), "Done."), tools=tools, **options).run("Go.")
    return outcome.messages[2].tool_results


class Trip(msgspec.Struct):
    city: str
    days: int = 1


@shows("glue", "Tool", "NewTool", "ToolExecutor", "Tool.ToolSpec", "ToolSpec", "ToolSpec.Name", "ToolSpec.Description")
async def test_a_tool_is_a_function_whose_arguments_are_decoded_to_its_types():
    got = []

    @tool(effect="read")
    def plan(trip: Trip, note: str = "") -> str:
        """Plan a trip.

        Args:
            trip: Where to, and how long.
            note: Anything else.
        """
        got.append((trip, note))
        return f"{trip.days} days in {trip.city}"

    @tool(effect="read")
    def ping() -> str:
        """Answer."""
        return "pong"

    results = await results_of(
        plan,
        ping,
        script=[
            call("plan", trip={"city": "Oslo", "days": 3}),
            call("plan", trip={"city": "Voss"}, note="soon"),
            call("ping", ""),
            call("plan", '{"trip": {"city": '),
            call("plan", trip={"city": 7}),
        ],
    )
    assert got == [(Trip("Oslo", 3), ""), (Trip("Voss"), "soon")]
    assert [each.text for each in results[:3]] == ["3 days in Oslo", "1 days in Voss", "pong"]
    assert [each.is_error for each in results] == [False, False, False, True, True]
    assert "trip.city" in results[4].text
    spec = plan.spec
    assert isinstance(spec, ToolSpec)
    assert (spec.name, spec.description) == (plan.name, plan.description) == ("plan", "Plan a trip.")
    assert spec.parameters["properties"]["note"]["description"] == "Anything else."
    assert spec.parameters["required"] == ["trip"]


@shows("glue", "ToolSpec.Parameters", "Tool", "Tool.Execute", "ToolExecutor")
async def test_a_schema_of_your_own_goes_to_the_model_as_it_is():
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 4}},
        "required": ["city"],
        "additionalProperties": False,
    }
    weather = tool_from_schema("weather", "Today's weather.", schema, lambda arguments: f"Rain in {arguments['city']}.")
    model = ScriptedModel(calls(call("weather", city="Oslo"), call("weather", city="Bergen")), "Done.")
    outcome = await Agent(model, tools=[weather]).run("Rain?")
    first, second = outcome.messages[2].tool_results
    assert (first.text, second.is_error) == ("Rain in Oslo.", True)
    assert model.requests[0].tools[0].parameters == schema

    @tool(effect="read")
    async def ask_inner(context: ToolContext) -> str:
        """Call another tool's executor."""
        return await weather.call({"city": "Voss"}, context)

    (result,) = await results_of(ask_inner, script=[call("ask_inner")])
    assert result.text == "Rain in Voss."
    assert set(json.loads(msgspec.json.encode(weather.spec))) == {"name", "description", "parameters"}


@shows("glue", "TextResult", "ErrorResult", "ToolResult", "ToolResult.Content", "ToolResult.IsError")
async def test_a_tool_returns_text_or_parts_or_an_error_that_the_model_sees():
    @tool(effect="read")
    def say(kind: str) -> str | ToolOutput:
        """Return something."""
        if kind == "parts":
            return ToolOutput([Text("A map: "), Image(url="https://example.org/map.png")])
        if kind == "raised":
            raise ToolError("no map of Atlantis")
        if kind == "error":
            return ToolOutput("no map of Lemuria", is_error=True)
        return "plain"

    script = [call("say", kind=kind) for kind in ("text", "parts", "raised", "error")]
    text, parts, raised, returned = await results_of(say, script=script)
    assert (text.content, text.is_error, text.status) == ((Text("plain"),), False, Status.OK)
    assert parts.content == (Text("A map: "), Image(url="https://example.org/map.png"))
    assert (raised.text, raised.is_error, raised.status) == ("no map of Atlantis", True, Status.ERROR)
    assert (returned.text, returned.is_error, returned.status) == ("no map of Lemuria", True, Status.ERROR)


@shows("glue", "ToolResult.IsError")
async def test_a_result_says_how_a_call_ended():
    @tool(permission=True)
    def book() -> str:
        """Book."""
        return "booked"

    denied, unknown = await results_of(book, script=[call("book"), call("boook")])
    assert (denied.is_error, denied.status) == (True, Status.DENIED)
    assert (unknown.is_error, unknown.status) == (True, Status.ERROR)


REPLIES = [
    (
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"draw","arguments":"{}"}}'
        b']},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
    ),
    b'data: {"choices":[{"delta":{"content":"Drawn."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
]


@shows("glue", "ToolResult.Metadata", "ToolCall", "ToolCall.ID", "ToolCall.Name", "ToolCall.Arguments")
async def test_data_for_user_interfaces_never_reaches_the_model():
    @tool(effect="read")
    def draw() -> ToolOutput:
        """Draw a chart."""
        return ToolOutput("a chart", render={"points": [1, 2, 3]})

    transport, recorder = CannedTransport(*REPLIES), Recorder()
    model = openai_compatible("http://127.0.0.1:9/v1", "some-model", transport=transport)
    outcome = await Agent(model, tools=[draw], watchers=[recorder]).run("Draw.")
    assert outcome.messages[1].tool_calls == (ToolCall("c1", "draw", "{}"),)
    assert outcome.messages[2].tool_results[0].render == {"points": [1, 2, 3]}
    assert recorder.of(ToolFinished)[0].result.render == {"points": [1, 2, 3]}
    assert b"a chart" in transport.posted[1][2]
    assert b"points" not in transport.posted[1][2]


@shows("glue", "ToolCall.ID")
async def test_ids_of_calls_are_unique_in_a_session_whatever_the_model_sends():
    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    same = ToolCall("1", "look")
    session = Agent(ScriptedModel(calls(same, same), "Done.", same, "Done."), tools=[look]).session("oslo")
    await session.run("Go.")
    outcome = await session.run("Again.")
    ids = [each.call_id for message in outcome.messages for each in message.tool_calls]
    answered = [each.call_id for message in outcome.messages for each in message.tool_results]
    assert len(set(ids)) == 3
    assert ids == answered


@shows("glue", "ToolSpec.RequiresPermission", "ToolSpec.PermissionAction", "ToolSpec.PermissionTarget")
async def test_what_a_tool_says_about_permission_is_in_the_request_and_not_in_what_the_model_is_sent():
    asked: list[tuple[object, ...]] = []

    async def gate(requests):
        from perdure.permissions import Verdict

        asked.extend((each.tool, each.required, each.action, each.target) for each in requests)
        return [Verdict(allow=True) for _ in requests]

    @tool(permission=True, action="write", target=lambda arguments: arguments["path"])
    def save(path: str, text: str) -> str:
        """Save a file."""
        return f"saved {path}"

    @tool(effect="read")
    def look(path: str) -> str:
        """Look."""
        return path

    results = await results_of(
        save, look, script=[call("save", path="a", text="b"), call("look", path="c")], permission=gate
    )
    assert [each.text for each in results] == ["saved a", "c"]
    assert asked[0] == ("save", True, "write", "a")
    assert asked[1][:2] == ("look", False)
    assert "write" not in str(save.spec)


@shows("glue", "Hook", "Hook.PreTool", "Hook.PostTool", "ErrSkipTool")
async def test_hooks_rewrite_arguments_skip_calls_and_replace_results():
    ran, seen = [], []

    @tool(effect="read")
    def weather(city: str) -> str:
        """Today's weather for a city."""
        ran.append(city)
        return f"Rain in {city}."

    def start(called: ToolCall, arguments):
        seen.append((called.name, dict(arguments)))
        if arguments.get("city") == "Atlantis":
            return Skip("there is no such city")
        return {"city": arguments.pop("town")} if "town" in arguments else None

    def end(called: ToolCall, result: ToolResult):
        return msgspec.structs.replace(result, content=(Text(result.text.upper()),)) if called.call_id == "c3" else None

    script = [
        ToolCall("c1", "weather", '{"town": "Oslo"}'),  # valid only after the hook
        ToolCall("c2", "weather", '{"city": "Atlantis"}'),
        ToolCall("c3", "weather", '{"city": "Voss"}'),
    ]
    results = await results_of(after(before(weather, start), end), script=script)
    assert seen[0] == ("weather", {"town": "Oslo"})
    assert ran == ["Oslo", "Voss"]
    assert [each.text for each in results] == ["Rain in Oslo.", results[1].text, "RAIN IN VOSS."]
    assert "there is no such city" in results[1].text
    assert results[1].is_error


@shows("glue", "Hook")
@pytest.mark.parametrize("city", ["Oslo", "Voss"])
async def test_a_wrapper_is_around_the_call_itself(city):
    @tool(effect="read")
    def weather(city: str) -> str:
        """Today's weather for a city."""
        return f"Rain in {city}."

    async def wrapper(call_next, arguments, context):
        return "cached" if arguments["city"] == "Voss" else f"{await call_next()} ({context.call_id})"

    (result,) = await results_of(
        around(weather, wrapper), script=[ToolCall("c1", "weather", json.dumps({"city": city}))], settings=Settings()
    )
    assert result.text == ("cached" if city == "Voss" else "Rain in Oslo. (c1)")
