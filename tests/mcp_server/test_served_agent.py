"""What is offered of an agent, and under which name."""

from typing import Any

import pytest

from perdure import Agent, ConfigError, Toolbox, UsageError
from perdure._mcp.server.agents import list_served_agents
from perdure.mcp import ServedAgent
from perdure.models import Request
from perdure.testing import ScriptedModel
from tests.mcp_server.served_tools import Sum, add, helper, shout


def agent_called(name: str, description: str = "") -> Agent[Any]:
    return Agent(ScriptedModel(), name=name, description=description)


@pytest.mark.parametrize(
    ("given", "own", "name"),
    [
        ("", "My helper!", "My-helper"),
        ("", "!!!", "agent"),
        ("", "x" * 65, "x" * 64),
        ("it", "My helper!", "it"),
    ],
)
def test_the_tool_of_an_agent_has_a_name_that_clients_accept(given: str, own: str, name: str) -> None:
    assert ServedAgent(agent=agent_called(own), name=given).tool_name == name


def test_a_name_has_at_most_64_characters() -> None:
    assert ServedAgent(agent=helper(), name="x" * 64).tool_name == "x" * 64
    with pytest.raises(ConfigError, match="use at most 64 letters, digits, '_' and '-'"):
        ServedAgent(agent=helper(), name="x" * 65)


@pytest.mark.parametrize(
    ("given", "own", "description"),
    [
        ("Given.", "Own.", "Given."),
        ("", "Own.", "Own."),
        ("", "", "Give a task to the agent 'box', and get its answer."),
    ],
)
def test_the_tool_of_an_agent_is_described(given: str, own: str, description: str) -> None:
    assert ServedAgent(agent=agent_called("box", own), description=given).tool_description == description


def test_an_answer_has_the_type_that_is_wanted() -> None:
    assert ServedAgent(agent=helper()).wanted_output is None
    wanted = ServedAgent(agent=helper(), output=Sum).wanted_output
    assert wanted is not None
    assert wanted.spec.schema["required"] == ["total"]


def test_tools_without_an_agent_come_first_in_one_agent_of_their_own() -> None:
    agent, served = helper(), ServedAgent(agent=agent_called("other"), offer="both")
    found = list_served_agents([agent, add, served, shout], name="box")
    assert [(each.agent.name, each.offer) for each in found] == [
        ("box", "tools"),
        ("helper", "agent"),
        ("other", "both"),
    ]
    assert [each.name for each in found[0].offered_tools] == ["add", "shout"]
    assert found[1].agent is agent
    assert found[1].offered_tools == ()
    assert found[2] is served


def test_one_agent_or_a_toolbox_is_served_as_a_list_of_it_would_be() -> None:
    agent, served = helper(), ServedAgent(agent=helper())
    assert [each.agent for each in list_served_agents(agent)] == [agent]
    assert list_served_agents(served) == [served]
    (tools,) = list_served_agents(Toolbox([add, shout]))
    assert [each.name for each in tools.offered_tools] == ["add", "shout"]


@pytest.mark.parametrize(
    ("served", "options", "said"),
    [
        ("add", {}, "give an agent, a toolbox or a list of tools"),
        (b"add", {}, "give an agent, a toolbox or a list of tools"),
        ([], {}, "there is nothing to serve: give an agent, or at least one tool"),
        ([ServedAgent(agent=helper(), offer="tools")], {}, "there is nothing to serve"),
        ([helper()], {"store": "memory:"}, "are for tools without an agent: give them to Agent"),
        ([helper()], {"permission": print}, "are for tools without an agent: give them to Agent"),
        ([add, ServedAgent(agent=helper(), name="add")], {}, "two of the tools that are served are called 'add'"),
    ],
)
def test_what_cannot_be_served_is_refused(served: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        list_served_agents(served, **options)


def test_an_agent_of_tools_alone_has_no_model_to_ask() -> None:
    (host,) = list_served_agents([add])
    model: Any = host.agent.model
    with pytest.raises(UsageError, match="served to MCP clients: there is no model to ask"):
        model.stream(Request(messages=()))
