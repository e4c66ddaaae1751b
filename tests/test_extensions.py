"""The extensions that we have."""

from typing import Any

import pytest

from perdure import Agent, ConfigError, ToolOutput, tool
from perdure.events import ViewChanged
from perdure.testing import ScriptedModel, call
from perdure.tools import history, large_results, notebook, short_results
from tests.doubles import log_of, of


@tool(effect="read")
async def chart() -> ToolOutput:
    """Every depth."""
    return ToolOutput("depth " * 2_000, summary="a chart")


async def told(*replies: Any, runs: int = 1, **options: Any) -> tuple[Agent[Any], ScriptedModel]:
    model = ScriptedModel(*replies)
    agent = Agent(model, store="memory:", **options)
    for number in range(runs):
        assert (await agent.session("s").run(f"Go {number}")).status == "done"
    return agent, model


def results(model: ScriptedModel, place: int = -1) -> list[str]:
    return [result.text for message in model.requests[place].messages for result in message.tool_results]


async def test_a_result_that_is_too_long_is_previewed_and_can_be_read_and_kept_whole():
    agent, model = await told(
        call("chart"), call("read_result", call_id="call_1", offset=600, limit=12), "Done.",
        tools=[chart], extensions=[large_results(400)],
    )  # fmt: skip
    preview, read = results(model)
    assert len(preview) < 800
    assert "read_result" in preview
    assert "depth depth" in read
    messages = await agent.session("s").messages()
    assert len(messages[2].tool_results[0].text) == 12_000


async def test_results_of_earlier_runs_are_sent_in_their_short_form():
    agent, model = await told(
        call("chart"), "Done.", "Done.", runs=2, tools=[chart], extensions=[short_results(min_tokens=100)]
    )
    assert (len(results(model, 1)[0]), results(model, 2)) == (12_000, ["a chart"])
    assert [each.cause for each in of(await log_of(agent.store, "s"), ViewChanged)] == ["summaries"]


async def test_all_that_was_said_can_be_searched():
    _, model = await told(call("search_history", query="Go"), "Done.", extensions=[history()])
    assert "Go 0" in results(model)[0]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["update_tasks", "read_scratchpad", "write_scratchpad"]),
        ({"tasks": False, "scratchpad": False, "todos": True}, ["todo_append", "todo_list", "todo_update"]),
    ],
)
def test_a_notebook_has_what_was_asked_for(options, names):
    assert [each.name for each in notebook(**options).tools] == names


def test_a_size_that_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="max_characters"):
        large_results(5)
