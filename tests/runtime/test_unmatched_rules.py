"""Permission rules that match no tool of an agent: they are found, and warned of before its first run."""

import logging

import pytest

from perdure import Agent, Extension, Permissions, allow, ask, deny, tool
from perdure._runtime.agent.unmatched_rules import describe_unmatched_rules
from perdure.testing import ScriptedModel


def make(name, **options):
    return tool(lambda: "x", name=name, description="Look.", **options)


LOOK = make("look", labels=["mail"])
AGENT = Agent("demo", tools=[make("write"), make("edit", action="write"), make("bash", action="run"), LOOK])


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (deny("write_text", target="**/*.lock"), "matches no tool of this agent"),
        (deny("wirte"), "did you mean 'write'?"),
        (allow("git_*"), "its tools are bash, edit, look, write"),
        (ask("Write"), "did you mean 'write'?"),
        (deny(action="wirte"), "matches no action of this agent: did you mean 'write'?"),
        (deny("edit", action="edit"), "matches no action of this agent: its actions are write"),
        (deny("look", action="write"), "the action of 'look' is look"),
        (deny("look", action="network"), "the action of 'look' is look"),
        (deny("bash", when="untrused"), "did you mean 'untrusted'?"),
        (ask("*", when="secret"), "the labels of this agent are file, imported, mail, private, untrusted"),
    ],
)
def test_a_rule_that_matches_no_tool_is_named_with_what_was_meant(rule, told):
    (text,) = describe_unmatched_rules([rule], AGENT)
    assert str(rule) in text
    assert told in text


@pytest.mark.parametrize(
    "rule",
    [
        deny(),
        deny("write"),
        deny("w*"),
        deny("[ew]*"),
        deny(target="**/*.lock"),
        deny(action="write", target="**/*.lock"),
        deny(action="w*"),
        deny(action="browse"),
        deny(action="mcp_call", target="a.b"),
        ask(action="network"),
        ask("bash", action="network"),
        allow("look", action="look"),
        ask("*", when="untrusted"),
        deny("bash", when="un*"),
        deny("bash", when="mail"),
    ],
)
def test_a_rule_that_can_match_a_tool_is_not_named(rule):
    assert describe_unmatched_rules([rule], AGENT) == []


def test_tools_of_servers_are_known_later():
    agent = AGENT.replace(extensions=[Extension(name="mcp", late_tools=lambda: [make("tides__now")])])
    assert describe_unmatched_rules([deny("weather__*"), deny("tides__now")], agent) == []
    assert len(describe_unmatched_rules([deny("weather__*")], AGENT)) == 1
    assert len(describe_unmatched_rules([deny("writ")], agent)) == 1


# -- before the first run ----------------------------------------------------------------------------------------------


async def list_warnings(caplog, *rules, **options):
    """Return what two runs of an agent with these rules warn of."""
    agent = Agent(ScriptedModel("ok", repeat_last=True), permission=Permissions(*rules), **options)
    with caplog.at_level(logging.WARNING, "perdure"):
        await agent.run("Go.")
        await agent.run("Go.")
    return [record.getMessage() for record in caplog.records]


async def test_a_misspelt_rule_in_code_is_warned_of_once(caplog):
    (text,) = await list_warnings(caplog, deny("delete_fiel"), tools=[make("delete_file")])
    assert "the rule deny('delete_fiel') matches no tool of this agent: did you mean 'delete_file'?" in text


async def test_a_warning_names_each_tool_once(caplog):
    (text,) = await list_warnings(caplog, deny("hoist_flag"), tools=[make("save"), make("delete_file")])
    assert "its tools are delete_file, save;" in text


@pytest.mark.parametrize("rule", [ask("serach"), deny(action="stoer"), deny(when="untrsted"), deny("rm"), allow("Rum")])
async def test_any_rule_in_code_that_can_match_nothing_is_warned_of(rule, caplog):
    tools = [make("search"), make("put", action="store")]
    assert len(await list_warnings(caplog, rule, tools=tools)) == 1


async def test_a_pattern_that_resembles_no_name_is_no_mistake(caplog):
    assert await list_warnings(caplog, allow("git_*"), deny(action="zz*"), tools=[make("look")]) == []
    assert len(await list_warnings(caplog, allow("delet_*"), tools=[make("delete_file")])) == 1


async def test_rules_about_tools_of_agents_that_work_for_an_agent_are_no_mistake(caplog):
    mate = Agent(ScriptedModel("ok"), name="mate", tools=[make("scrub")])
    bosun = Agent(ScriptedModel("ok"), name="bosun", tools=[mate.as_tool()])
    cook = Agent(ScriptedModel("ok"), name="cook", tools=[make("fry")])
    rules = [deny("scrub"), deny("fry"), deny("mate")]
    assert await list_warnings(caplog, *rules, tools=[bosun.as_tool()], handoffs=[cook]) == []


async def test_a_gate_that_agents_share_may_have_rules_for_one_of_them(caplog):
    gate = Permissions(deny("hoist_sail"), allow("*"))
    mate = Agent(ScriptedModel("ok"), name="mate", tools=[make("rest")], permission=gate)
    with caplog.at_level(logging.WARNING, "perdure"):
        await Agent(ScriptedModel("ok"), tools=[make("hoist_sail"), mate.as_tool()], permission=gate).run("Go.")
    assert not caplog.records


async def test_tools_of_one_run_and_spare_tools_are_known(caplog):
    gate = Permissions(deny("furl"), deny("reef"))
    agent = Agent(ScriptedModel("ok"), permission=gate, spare_tools=[make("reef")])
    with caplog.at_level(logging.WARNING, "perdure"):
        await agent.run("Go.", tools=[make("furl")])
    assert not caplog.records
