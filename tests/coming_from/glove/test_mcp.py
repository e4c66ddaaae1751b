"""Glove's `mountMcp`, with and without people."""

import pytest

from perdure import Agent, McpServers, Permissions
from perdure.core.message import Status
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
