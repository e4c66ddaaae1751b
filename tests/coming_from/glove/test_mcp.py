"""Glove's `mountMcp`, with and without people."""

import pytest

from perdure import Agent, Permissions, Status
from perdure.mcp import CatalogueEntry, McpCatalogue, McpServers
from perdure.testing import ScriptedModel, call
from tests.coming_from.shows import shows
from tests.mcp.servers import scripted

pytestmark = pytest.mark.packages("mcp")


@shows("glove", "mountMcp")
@pytest.mark.parametrize(
    ("settings", "statuses"),
    [
        ({}, [Status.DENIED, Status.DENIED]),
        ({"trust_hints": True}, [Status.OK, Status.DENIED]),
        ({"permission": False}, [Status.OK, Status.OK]),
    ],
)
async def test_tools_of_a_server_are_mounted_and_gated(settings, statuses):
    model = ScriptedModel(call("s__echo", text="a"), call("s__act", text="b"), "done")
    servers = McpServers(scripted("kind", **settings))
    outcome = await Agent(model, extensions=[servers.extension], permission=Permissions()).run("go")
    assert [each.status for message in outcome.messages for each in message.tool_results] == statuses


@shows("glove", "mountMcp")
async def test_servers_are_found_on_demand_and_stay(tmp_path):
    entry = CatalogueEntry(server=scripted("kind", permission=False), description="Notes")
    store = f"sqlite:{tmp_path / 'log.db'}"
    model = ScriptedModel(call("discover_tools", need="a note"), "found")
    catalogue = McpCatalogue(entry, policy="best")
    async with Agent(model, extensions=[catalogue.extension], store=store) as agent:
        await agent.session("s").run("write it down")
    assert [each.name for each in model.requests[0].tools] == ["discover_tools"]

    later = ScriptedModel(call("s__echo", text="a"), "done")
    other = Agent(later, extensions=[McpCatalogue(entry, policy="best").extension], store=store)
    async with other:
        outcome = await other.session("s").run("again")
    assert "s__echo" in [each.name for each in later.requests[0].tools]
    assert [each.status for each in outcome.messages[-2].tool_results] == [Status.OK]
