"""Tool search: a catalogue is sent, and tools are loaded when the model asks for them."""

import json
from typing import Any

import msgspec
import pytest

from perdure import Agent, ConfigError, Limits, Permissions, Status, Tool, ToolContext, deny, tool
from perdure._tools.code.stubs import build_stubs
from perdure._tools.tool_search import build_catalogue, search_tools
from perdure.events import ToolsChanged, ValueKept, ViewChanged
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call, calls
from perdure.tools import code_mode, tool_from_schema, tool_search
from tests.doubles import log_of, of


def many(count: int = 30, **options: Any) -> list[Tool[..., Any]]:
    schema = {"type": "object", "properties": {"city": {"type": "string", "description": "A long description. " * 9}}}
    return [
        tool_from_schema(
            f"tool_{n}", f"Do thing {n}.\nMore about it.", schema, lambda _: "done", effect="read", **options
        )
        for n in range(count)
    ]


@tool(effect="read", prompt="Ask for the forecast of tomorrow first.")
async def get_forecast(city: str) -> str:
    """Return the weather forecast of a city."""
    return f"sun in {city}"


def agent_of(*replies: Any, tools: Any = None, store: Any = "memory:", extensions: Any = None, **options: Any) -> Any:
    given = [*many(), get_forecast] if tools is None else tools
    extensions = [tool_search()] if extensions is None else extensions
    return Agent(ScriptedModel(*replies), tools=given, extensions=extensions, store=store, **options)


def offered(agent: Any, place: int = -1) -> list[str]:
    return [each.name for each in agent.model.requests[place].tools]


def results(agent: Any) -> list[Any]:
    return [result for message in agent.model.requests[-1].messages for result in message.tool_results]


async def test_only_a_catalogue_is_sent():
    agent = agent_of("Done.")
    await agent.session("s").run("Go")
    assert offered(agent) == ["load_tools"]
    text = agent.model.requests[0].tools[0].description
    assert "- tool_7: Do thing 7.\n" in text
    assert "- get_forecast: Return the weather forecast of a city." in text
    assert "A long description" not in text
    assert "forecast of tomorrow" not in agent.model.requests[0].instructions


async def test_up_to_the_threshold_all_tools_are_sent():
    agent = agent_of("Done.", tools=many(20))
    await agent.session("s").run("Go")
    assert offered(agent) == [f"tool_{n}" for n in range(20)]


async def test_loaded_tools_are_sent_after_the_others_in_the_order_of_loading():
    agent = agent_of(
        call("load_tools", names=["tool_9", "get_forecast"]), call("load_tools", names=["tool_2", "tool_9"]), "Done."
    )
    await agent.session("s").run("Go")
    assert offered(agent) == ["load_tools", "tool_9", "get_forecast", "tool_2"]
    assert agent.model.requests[0].tools[0] == agent.model.requests[2].tools[0]
    first = results(agent)[0].text
    assert "async def get_forecast(city: str) -> str:" in first
    assert "Ask for the forecast of tomorrow first." in first
    events = await log_of(agent.store, "s")
    assert [each.added for each in of(events, ToolsChanged)] == [("tool_9", "get_forecast"), ("tool_2",)]
    assert of(events, ViewChanged)


async def test_the_result_of_loading_hundreds_of_tools_has_their_names_alone():
    agent = agent_of(call("load_tools", names=[f"tool_{n}" for n in range(300)]), "Done.", tools=many(300))
    await agent.session("s").run("Go")
    assert len(offered(agent)) == 301
    assert results(agent)[0].text.endswith("tool_298, tool_299.")
    assert len(results(agent)[0].text) < 4_000


async def test_a_query_loads_the_tools_that_match_it_best():
    agent = agent_of(call("load_tools", query="weather forecasts"), call("get_forecast", city="Kiel"), "Done.")
    await agent.session("s").run("Go")
    assert offered(agent) == ["load_tools", "get_forecast"]
    assert results(agent)[-1].text == "sun in Kiel"


async def test_loaded_tools_last_in_later_runs_and_processes():
    store = open_store("memory:")
    await agent_of(call("load_tools", names=["tool_3"]), "Done.", store=store).session("s").run("Go")
    agent = agent_of("Done.", store=store)
    await agent.session("s").run("Go on")
    assert offered(agent) == ["load_tools", "tool_3"]
    assert len([each for each in of(await log_of(store, "s"), ValueKept) if "loaded" in each.name]) == 1


async def test_a_loaded_tool_that_is_gone_is_not_sent():
    store = open_store("memory:")
    await agent_of(call("load_tools", names=["tool_29"]), "Done.", store=store).session("s").run("Go")
    agent = agent_of("Done.", store=store, tools=many(25))
    await agent.session("s").run("Go on")
    assert offered(agent) == ["load_tools"]


async def test_a_session_goes_on_when_the_names_of_loaded_tools_were_erased():
    store = open_store("memory:")
    session = agent_of(call("load_tools", names=["tool_3"]), "Done.", store=store).session("s")
    await session.run("Go")
    await session.redact(next(each.seq for each in await store.read("s") if isinstance(each.event, ValueKept)))
    agent = agent_of(call("load_tools", names=["tool_4"]), "Done.", store=store)
    assert (await agent.session("s").run("Go on")).status == "done"
    assert offered(agent) == ["load_tools", "tool_4"]


async def test_loaded_tools_are_sent_in_a_fork_too():
    agent = agent_of(call("load_tools", names=["tool_3"]), "Done.", "Done.")
    session = agent.session("s")
    await session.run("Go")
    await (await session.fork("t")).run("Go on")
    assert offered(agent) == ["load_tools", "tool_3"]


async def test_a_tool_that_is_not_allowed_cannot_be_loaded_or_called():
    allowed = [f"tool_{n}" for n in range(25)]
    agent = agent_of(
        call("load_tools", names=["tool_29"]), call("tool_29"), "Done.",
        limits=Limits(allowed_tools=("load_tools", *allowed)),
    )  # fmt: skip
    await agent.session("s").run("Go")
    assert offered(agent) == ["load_tools"]
    assert "tool_29" not in agent.model.requests[0].tools[0].description
    assert [each.status for each in results(agent)] == [Status.ERROR, Status.ERROR]


async def test_a_tool_that_is_not_loaded_can_be_called_and_is_gated():
    agent = agent_of(call("get_forecast", city="Kiel"), "Done.")
    await agent.session("s").run("Go")
    assert results(agent)[-1].text == "sun in Kiel"
    agent = agent_of(call("get_forecast", city="Kiel"), "Done.", permission=Permissions(deny("get_forecast")))
    await agent.session("s").run("Go")
    assert results(agent)[-1].status is Status.DENIED


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "give names, or a query"),
        ({"names": ["forecast"]}, "Did you mean get_forecast?"),
        ({"names": ["zzz"]}, "Try a query"),
        ({"query": "zzz"}, "no tool matches 'zzz'"),
    ],
)
async def test_what_cannot_be_found_is_explained(arguments, text):
    agent = agent_of(call("load_tools", **arguments), "Done.")
    await agent.session("s").run("Go")
    assert text in results(agent)[0].text
    assert offered(agent) == ["load_tools"]


async def test_some_tools_can_always_be_sent_and_the_catalogue_be_left_out():
    agent = agent_of("Done.", extensions=[tool_search(always=["tool_1"], catalogue=False)])
    await agent.session("s").run("Go")
    assert offered(agent) == ["tool_1", "load_tools"]
    assert "There are 30 tools to search." in agent.model.requests[0].tools[1].description


async def test_tools_that_are_added_during_a_run_are_in_the_catalogue():
    extra = many(3)
    added = [msgspec.structs.replace(each, name=f"server__{each.name}") for each in extra]

    @tool
    def connect(context: ToolContext[Any]) -> str:
        """Connect."""
        context.add_tools(*added, scope="process")
        return "connected"

    extensions = [tool_search(always=["connect"])]
    agent = agent_of(
        call("connect"), call("load_tools", names=["server__tool_1"]), "Done.",
        tools=[*many(), connect], extensions=extensions,
    )  # fmt: skip
    await agent.session("s").run("Go")
    assert "server__tool_1" not in str(agent.model.requests[0].tools)
    assert offered(agent, 1) == ["connect", "load_tools"]
    assert "- server__tool_1: Do thing 1." in str(agent.model.requests[1].tools[1].description)
    assert offered(agent) == ["connect", "load_tools", "server__tool_1"]


@pytest.mark.packages("pydantic_monty")
async def test_a_program_can_call_tools_that_are_not_loaded():
    agent = agent_of(
        call("run_program", code="await get_forecast('Kiel')"), "Done.", extensions=[tool_search(), code_mode()]
    )
    await agent.session("s").run("Go")
    assert offered(agent) == ["load_tools", "run_program"]
    assert results(agent)[0].text == "sun in Kiel"
    assert "get_forecast" not in agent.model.requests[0].tools[1].description


async def test_five_hundred_tools_cost_no_more_than_their_catalogue():
    agent = agent_of("Done.", tools=many(500))
    await agent.session("s").run("Go")
    sent = len(msgspec.json.encode(agent.model.requests[0].tools))
    whole = len(json.dumps([msgspec.to_builtins(each.spec) for each in many(500)]))
    lines = sum([len(f"- tool_{n}: Do thing {n}.\\n") for n in range(500)])
    assert sent < lines + 1_500
    assert sent * 8 < whole


@pytest.mark.parametrize("options", [{"threshold": -1}, {"always": "x"}, {"max_found": 0}, {"catalogue": 1}])
def test_options_that_cannot_be_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        tool_search(**options)


def named(name: str, description: str = "", *parameters: str) -> Tool[..., Any]:
    schema = {"type": "object", "properties": {each: {"type": "string"} for each in parameters}}
    return tool_from_schema(name, description, schema, lambda _: "done", effect="read")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("issue", ["listOpenIssues", "comment"]),  # a name counts more than a description
        ("ISSUES", ["listOpenIssues", "comment"]),  # the plural and the singular are one word
        ("open", ["listOpenIssues"]),  # a word in a name of several humps
        ("bus", ["find_bus"]),  # a short word keeps its s
        ("bu", []),
        ("maps", ["draw"]),  # of four letters, one is a plural
        ("map", ["draw"]),
        ("ma", []),
        ("street", ["draw"]),  # a parameter
        ("tree", ["trees3", "wood", "park"]),  # what is repeated counts more
        ("rose", ["rose", "garden"]),  # but not as much as a name
        ("3", ["trees3"]),  # a number is a word of its own
        ("nothing like this", []),
    ],
)
def test_a_search_ranks_tools_by_their_names_and_words(query: str, found: list[str]) -> None:
    tools = [
        named("comment", "Write a comment on an issue."),
        named("listOpenIssues", "List what is to be done."),
        named("find_bus", "Find one."),
        named("draw", "Draw a map.", "street"),
        named("park", "Every tree of a city."),
        named("wood", "Each tree, and every other tree."),
        named("trees3", "Count them."),
        named("garden", "A rose, another rose, one more rose."),
        named("rose", "One flower."),
    ]
    assert [each.name for each in search_tools(tools, query, 5)] == found


def test_a_search_weighs_rare_words_more_and_returns_no_more_than_asked_for() -> None:
    tools = [named("a", "city, city"), named("b", "river"), named("c", "city"), named("d", "city"), named("e")]
    assert [each.name for each in search_tools(tools, "city river", 5)] == ["b", "a", "c", "d"]
    assert [each.name for each in search_tools(tools, "city river", 2)] == ["b", "a"]


def test_words_of_one_tool_add_up_whatever_their_number() -> None:
    tools = [named("one", "river"), named("two", "river bank"), *[named(f"other_{n}", "bank") for n in range(8)]]
    assert [each.name for each in search_tools(tools, "river bank", 3)] == ["two", "one", "other_0"]


def test_a_word_that_every_tool_has_still_finds_them() -> None:
    tools = [named("one", "river"), named("two", "river")]
    assert [each.name for each in search_tools(tools, "rivers", 3)] == ["one", "two"]


def test_a_line_of_the_catalogue_has_the_beginning_of_the_first_line() -> None:
    tools = [named("whole", "x" * 100), named("cut", "y" * 101), named("lines", "\n First.\nSecond."), named("bare")]
    lines = [f"- whole: {'x' * 100}", f"- cut: {'y' * 99}…", "- lines: First.", "- bare"]
    assert build_catalogue(tools) == "\n".join(lines)


@pytest.mark.parametrize(("more", "is_shown"), [(0, True), (1, False)])
async def test_signatures_are_shown_up_to_their_greatest_length(more: int, is_shown: bool) -> None:
    short = len(build_stubs({"long": named("long", "x")}))
    long = named("long", "x" * (20_001 - short + more))
    agent = agent_of(call("load_tools", names=["long"]), "Done.", tools=[*many(), long])
    await agent.session("s").run("Go")
    shown = f"\n\n{build_stubs({'long': long})}" if is_shown else ""
    assert results(agent)[0].text == f"Loaded: long.{shown}"


async def test_a_tool_that_was_named_and_found_is_loaded_once_and_first() -> None:
    agent = agent_of(call("load_tools", names=["tool_4", "get_forecast"], query="forecast"), "Done.")
    await agent.session("s").run("Go")
    assert offered(agent) == ["load_tools", "tool_4", "get_forecast"]
    assert results(agent)[0].text.startswith("Loaded: tool_4, get_forecast.\n\n")


async def test_a_tool_that_ends_the_run_or_hands_over_is_always_sent() -> None:
    last = tool_from_schema("finish", "End.", {"type": "object"}, lambda _: "done", terminate=True)
    agent = agent_of("Done.", tools=[*many(), last, named("hand_over_to_expert")])
    await agent.session("s").run("Go")
    assert offered(agent) == ["finish", "hand_over_to_expert", "load_tools"]


async def test_two_calls_of_one_reply_load_the_tools_of_both() -> None:
    agent = agent_of(calls(call("load_tools", names=["tool_9"]), call("load_tools", names=["tool_2"])), "Done.")
    await agent.session("s").run("Go")
    assert offered(agent) == ["load_tools", "tool_9", "tool_2"]


def test_tools_are_loaded_one_after_the_other_without_effects_and_without_secrets() -> None:
    (load_tools,) = tool_search().tools
    assert isinstance(load_tools, Tool)
    assert (load_tools.effect, load_tools.parallel, load_tools.credentials) == ("read", False, False)
