"""Glue's MCP client, and what ours does besides."""

import pytest

from perdure import Agent, Permissions, Status, allow
from perdure.mcp import McpServers
from perdure.testing import ScriptedModel, call
from tests.coming_from.shows import shows
from tests.mcp.servers import read_lines, scripted

pytestmark = pytest.mark.packages("mcp")


@shows("glue", "package tools/mcp")
async def test_tools_of_a_server_are_gated_by_server_and_tool_and_survive_its_death(tmp_path):
    servers = McpServers(scripted("dies_once", tmp_path, effects={"echo": "read"}))
    model = ScriptedModel(call("s__echo", text="a"), call("s__act", text="b"), "done")
    agent = Agent(
        model, extensions=[servers.extension], permission=Permissions(allow(action="mcp_call", target="s.echo"))
    )
    outcome = await agent.run("go")
    results = [each for message in outcome.messages for each in message.tool_results]
    assert [each.status for each in results] == [Status.OK, Status.DENIED]
    assert read_lines(tmp_path, "calls") == ["echo a", "echo a"]
