"""A page of notes that an agent keeps for itself."""

import pytest

from perdure import Agent, Status
from perdure._tools.tasks.storage import MOST_CHARACTERS
from perdure.events import ValueKept
from perdure.testing import ScriptedModel, call
from perdure.tools import scratchpad_tools


@pytest.fixture
def session():
    return Agent("demo", tools=scratchpad_tools()).session()


async def test_a_page_is_written_read_and_replaced(session):
    assert (await session.call("read_scratchpad", {})).text == "(empty)"
    written = await session.call("write_scratchpad", {"content": " Berth 4 is ours.\n"})
    assert written.text == "The page has 18 characters now."
    assert (await session.call("read_scratchpad", {})).text == " Berth 4 is ours.\n"  # character for character
    assert (await session.call("write_scratchpad", {"content": ""})).text == "The page is empty now."
    assert (await session.call("read_scratchpad", {})).text == "(empty)"


async def test_a_page_that_is_too_long_is_refused_and_the_old_one_stays(session):
    await session.call("write_scratchpad", {"content": "x" * MOST_CHARACTERS})
    result = await session.call("write_scratchpad", {"content": "y" * (MOST_CHARACTERS + 1)})
    assert result.status is Status.ERROR
    assert "20,001 characters are too many" in result.text
    assert await session.kept("scratchpad") == "x" * MOST_CHARACTERS


async def test_the_page_is_in_the_stream_and_survives_a_restart(tmp_path):
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    model = ScriptedModel(call("write_scratchpad", content="Berth 4"), "Noted.")
    async with Agent(model, tools=scratchpad_tools(), store=store) as agent:
        stream = agent.session("ship").stream("Go.")
        kept = [(event.name, event.value) async for event in stream if isinstance(event, ValueKept)]
    assert kept == [("scratchpad", "Berth 4")]
    async with Agent("demo", tools=scratchpad_tools(), store=store) as agent:
        assert (await agent.session("ship").call("read_scratchpad", {})).text == "Berth 4"


def test_reading_has_no_effect_and_none_needs_permission():
    tools = {tool.name: tool for tool in scratchpad_tools()}
    assert {name: tool.effect for name, tool in tools.items()} == {
        "read_scratchpad": "read", "write_scratchpad": "idempotent",
    }  # fmt: skip
    assert not any(tool.permission or tool.parallel for tool in tools.values())
