"""Tool calls before they run: calls that are mistakes, hooks, and limits."""

from typing import Any

import pytest

from perdure import Agent, Limits, Status, Tool, ToolCall, tool
from perdure.testing import Reply, ScriptedModel, call, calls
from perdure.tools import Skip, before

made: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


@tool
async def look(where: str = "here") -> str:
    """Look."""
    made.append(where)
    return f"seen {where}"


async def results_of(
    *asked: Reply | ToolCall, tools: list[Tool[..., Any]], limits: Limits | None = None
) -> list[tuple[str, str]]:
    outcome = await Agent(ScriptedModel(*asked, "Done."), tools=tools, limits=limits or Limits()).run("Go")
    found = [result for message in outcome.new_messages for result in message.tool_results]
    return [(result.status.value, result.text) for result in found]


async def test_each_mistake_of_a_reply_is_told_and_the_other_calls_are_made():
    asked = calls(call("lok"), call("look", where=5), call("look", "{"), call("look", where="there"))
    (missing, wrong, broken, right) = await results_of(asked, tools=[look])
    assert missing == ("error", "there is no tool 'lok'; did you mean 'look'? available: look")
    assert wrong == ("error", "invalid arguments for 'look': where: expected a string, got 5")
    assert broken[0] == "error"
    assert broken[1].startswith("invalid arguments for 'look': ")
    assert right == ("ok", "seen there")
    assert made == ["there"]


async def test_without_tools_a_call_is_told_that_there_are_none():
    assert await results_of(call("look"), tools=[]) == [("error", "there is no tool 'look'; there are no tools")]


async def test_hooks_change_arguments_one_after_another_and_may_wait():
    def first(_call: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"where": arguments["where"] + " a"}

    async def second(_call: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"where": arguments["where"] + " b"}

    def third(_call: Any, _arguments: dict[str, Any]) -> None:
        return None

    hooked = before(before(before(look, first), second), third)
    assert await results_of(call("look", where="x"), tools=[hooked]) == [("ok", "seen x a b")]


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (Skip("not today"), ("denied", "not today")),
        (Skip(), ("denied", "skipped by a hook")),
        ({"where": 5}, ("error", "invalid arguments for 'look': where: expected a string, got 5")),
    ],
)
async def test_a_hook_can_refuse_a_call_and_what_it_returns_is_validated(returned, told):
    later_hooks: list[Any] = []
    hooked = before(before(look, lambda _call, _arguments: returned), lambda *given: later_hooks.append(given))
    assert await results_of(call("look"), tools=[hooked]) == [told]
    assert made == []
    assert len(later_hooks) == (0 if isinstance(returned, Skip) else 1)


async def test_a_hook_that_fails_does_not_let_the_call_through():
    def hook(_call: Any, _arguments: dict[str, Any]) -> None:
        raise OSError("no disk")

    result = await results_of(call("look"), tools=[before(look, hook)])
    assert (result, made) == ([("error", "a hook of 'look' failed: OSError: no disk")], [])


async def test_of_a_reply_only_the_first_calls_are_made():
    asked = calls(*[call("look", where=each) for each in "abc"])
    results = await results_of(asked, tools=[look], limits=Limits(max_calls_per_reply=2))
    told = "This call was not made: only the first 2 calls of a reply are. Make it again if it is needed."
    assert sorted(results) == [("error", told), ("ok", "seen a"), ("ok", "seen b")]
    assert await results_of(asked, tools=[look], limits=Limits(max_calls_per_reply=3)) == [
        ("ok", "seen a"),
        ("ok", "seen b"),
        ("ok", "seen c"),
    ]


async def test_the_calls_of_a_subagent_are_limited_by_its_own_limit():
    asked = calls(call("look", where="a"), call("look", where="b"))
    child = Agent(ScriptedModel(asked, "Done."), tools=[look], name="scout", limits=Limits(max_tool_calls=1))
    parent = Agent(ScriptedModel(call("scout", task="Go."), "Done."), tools=[child.as_tool()])
    assert (await parent.run("Go")).status == "done"
    assert made == ["a"]
    made.clear()
    child = Agent(ScriptedModel(asked, "Done."), tools=[look], name="scout")
    parent = Agent(
        ScriptedModel(call("scout", task="Go."), "Done."), tools=[child.as_tool()], limits=Limits(max_tool_calls=1)
    )
    outcome = await parent.run("Go")
    assert [result.status for result in outcome.messages[2].tool_results] == [Status.OK]
    assert made == ["a", "b"]
