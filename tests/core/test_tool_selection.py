"""The tools that the model is sent: chosen by selectors, kept until something changes, and loaded in order."""

from typing import Any

from perdure import Agent, Extension, Toolbox, ToolContext, tool
from perdure._core.run.calling_run import get_run_of_call
from perdure._core.run.toolset import store_loaded_tools
from perdure.events import ToolsChanged, ValueKept
from perdure.testing import ScriptedModel, call
from tests.doubles import log_of, of


@tool(effect="read")
async def one() -> str:
    """One."""
    return "1"


@tool(effect="read")
async def two() -> str:
    """Two."""
    return "2"


@tool(effect="read")
async def load(context: ToolContext[Any], names: list[str]) -> str:
    """Load."""
    await store_loaded_tools(get_run_of_call(context), names)
    return "loaded"


def choosing(chosen: list[tuple[str, ...]]) -> Extension:
    def select(tools: Toolbox, loaded: Any) -> Toolbox:
        chosen.append(tuple(loaded))
        return Toolbox([each for each in tools if each.name == "load" or each.name in loaded])

    return Extension(name="choosing", select_tools=select)


def sent(model: ScriptedModel) -> list[list[str]]:
    return [[each.name for each in request.tools] for request in model.requests]


async def test_the_model_is_sent_what_selectors_choose_one_after_the_other():
    model = ScriptedModel("Done.")
    without = Extension(name="a", select_tools=lambda tools, _: Toolbox([each for each in tools if each is not two]))
    last = Extension(name="b", select_tools=lambda tools, _: Toolbox(reversed(list(tools))))
    await Agent(model, tools=[one, two, load], extensions=[without, last]).run("Go")
    assert sent(model) == [["load", "one"]]


async def test_a_choice_is_kept_until_a_tool_is_loaded():
    chosen: list[tuple[str, ...]] = []
    model = ScriptedModel(call("load", names=["two", "two", "none"]), call("load", names=["two"]), call("two"), "Done.")
    agent = Agent(model, tools=[one, two, load], extensions=[choosing(chosen)], store="memory:")
    await agent.session("s").run("Go")
    assert sent(model) == [["load"], *[["two", "load"]] * 3]
    assert chosen == [(), (), ("two",)]  # for the instructions, for the first request, and after loading
    assert model.requests[1].tools is model.requests[2].tools
    events = await log_of(agent.store, "s")
    assert [each.value for each in of(events, ValueKept)] == [["two"]]
    assert [each.added for each in of(events, ToolsChanged)] == [("two",)]
