"""Sessions with programs and loaded tools are replayed: their calls are taken from the log, and none is made."""

from typing import Any

import pytest

from perdure import Agent, Permissions, ask, tool
from perdure.permissions import later
from perdure.testing import ScriptedModel, call, replay
from perdure.tools import code_mode, tool_from_schema, tool_search

CODE = """
import asyncio, datetime
first = await note(text='1')
both = await asyncio.gather(note(text='2'), note(text='3'))
[first, both, await book(text='4'), str(datetime.date.today())]
"""


def agent_of(made: list[str], **options: Any) -> Agent[Any]:
    @tool
    async def note(text: str) -> str:
        """Note."""
        made.append(text)
        return f"noted {text}"

    @tool
    async def book(text: str) -> str:
        """Book."""
        made.append(text)
        return f"booked {text}"

    model = ScriptedModel(call("run_program", code=CODE), "Done.")
    return Agent(model, tools=[note, book], extensions=[code_mode()], store="memory:", **options)


@pytest.mark.packages("pydantic_monty")
async def test_a_program_is_replayed_without_its_calls():
    made: list[str] = []
    agent = agent_of(made)
    await agent.session("s").run("Go")
    replayed = await replay(agent, "s")
    assert replayed.agrees, replayed.divergence
    assert made == ["1", "2", "3", "4"]


@pytest.mark.packages("pydantic_monty")
async def test_a_program_that_waited_for_an_answer_is_replayed():
    made: list[str] = []
    agent = agent_of(made, permission=Permissions(ask("book"), handler=later))
    session = agent.session("s")
    outcome = await session.run("Go")
    await session.answer(outcome.questions[0].ask_id, True)
    assert (await session.resume()).status == "done"
    replayed = await replay(agent, "s")
    assert replayed.agrees, replayed.divergence
    assert made == ["1", "2", "3", "4"]


async def test_loaded_tools_are_replayed():
    schema = {"type": "object", "properties": {}}
    tools = [tool_from_schema(f"tool_{n}", "Do it.", schema, lambda _: "done") for n in range(30)]
    model = ScriptedModel(call("load_tools", names=["tool_3"]), call("tool_3"), "Done.")
    agent = Agent(model, tools=tools, extensions=[tool_search()], store="memory:")
    await agent.session("s").run("Go")
    replayed = await replay(agent, "s")
    assert replayed.agrees, replayed.divergence
