"""Calls of clients without the protocol: sessions, limits, structured results."""

from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest

from perdure import Agent, ConfigError, Permissions, ToolContext, ToolOutput, UsageError, allow, tool, tool_from_schema
from perdure.mcp_server import ServedAgent, tool_server
from perdure.mcp_server.output_schema import find_output_schema
from perdure.mcp_server.protocol_server import build_call_result
from perdure.mcp_server.served_agent import list_served_agents
from perdure.mcp_server.tool_server import ToolServer
from perdure.testing import ScriptedModel
from tests.mcp_server.served_tools import Sum, add, helper, shout


@tool(labels=["untrusted"], effect="read")
def read_page() -> str:
    """Read a page of somebody else."""
    return "text"


@tool
def where(context: ToolContext) -> str:
    """Return the session."""
    return context.session_id


async def test_a_long_log_is_followed_by_another_unless_it_has_labels(monkeypatch):
    monkeypatch.setattr(tool_server, "CALLS_PER_SESSION", 2)
    server = ToolServer(list_served_agents([where, read_page]))
    ids = [(await server.call("ann", "where", {})).result.text for _ in range(4)]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    await server.call("ann", "read_page", {})
    after = [(await server.call("ann", "where", {})).result.text for _ in range(3)]
    assert len(set(after)) == 1


@tool(permission=True)
def send() -> str:
    """Send it."""
    return "sent"


async def test_labels_of_one_call_reach_the_gate_of_the_next():
    seen = []

    async def gate(requests):
        seen.extend([request.labels for request in requests])
        return await Permissions(allow("*"))(requests)

    server = ToolServer(list_served_agents([read_page, send], permission=gate))
    await server.call("ann", "read_page", {})
    await server.call("ann", "send", {})
    await server.call("bob", "send", {})
    assert seen[-2] == ("untrusted",)
    assert seen[-1] == ()


async def test_a_tool_that_is_not_there_is_an_error():
    with pytest.raises(UsageError, match="no tool 'x'; available: add"):
        await ToolServer(list_served_agents([add])).call("ann", "x", {})


class Row(TypedDict):
    name: str


class Box(msgspec.Struct):
    size: int


@dataclass
class Empty:
    pass


@pytest.mark.parametrize(
    ("returned", "has_schema"),
    [(Sum, True), (Row, True), (Box, True), (str, False), (list[Sum], False), (ToolOutput, False), (Empty, False),
     (dict, False), ("Missing", False), (None, False), (object, False)],
)  # fmt: skip
def test_only_a_type_with_fields_is_an_output_schema(returned, has_schema):
    def give():
        """Give."""

    give.__annotations__["return"] = returned
    assert (find_output_schema(tool(give)) is not None) is has_schema


def test_a_tool_from_a_schema_has_no_output_schema():
    made = tool_from_schema("x", "X.", {"type": "object"}, lambda arguments: arguments)
    assert find_output_schema(made) is None


async def test_a_result_that_does_not_fit_its_schema_is_an_error():
    @tool
    def lie() -> Sum:
        """Return something else."""
        return "no sum"  # type: ignore[return-value]

    server = ToolServer(list_served_agents([lie]))
    result: Any = build_call_result(await server.call("ann", "lie", {}), server.tools["lie"])
    assert result.is_error
    assert "does not fit the output schema" in result.content[0].text


def test_an_agent_can_offer_itself_its_tools_or_both():
    agent = Agent(ScriptedModel(), name="box", tools=[add, shout])
    names = {
        offer: list(ToolServer([ServedAgent(agent=agent, offer=offer)]).tools) for offer in ("agent", "tools", "both")
    }
    assert names == {"agent": ["box"], "tools": ["add", "shout"], "both": ["box", "add", "shout"]}
    assert list(ToolServer([ServedAgent(agent=agent, name="it")]).tools) == ["it"]


@pytest.mark.parametrize(
    ("options", "said"),
    [({"offer": "all"}, "offer"), ({"name": "a b"}, "letters"), ({"name": 3}, "name"), ({"agent": 3}, "Agent")],
)
def test_an_agent_cannot_be_served_in_other_ways(options, said):
    with pytest.raises(ConfigError, match=said):
        ServedAgent(**{"agent": helper(), **options})


async def test_an_agent_without_a_model_cannot_be_asked():
    host = list_served_agents([add])[0].agent
    assert (await host.run("hello")).status == "failed"
