"""A command that asks for the network: only a rule or an answer about exactly that allows it."""

import pytest

from perdure import Agent, Grant, Permissions, allow, ask, deny, tool
from perdure._core.permission.grants import make_grant
from perdure._core.permission.targets.command import NETWORK_ACTION, CommandPart
from perdure.permissions import CommandTarget, PermissionRequest, Verdict, command, later
from perdure.testing import ScriptedModel, call


def target(arguments):
    words = tuple(arguments["command"].split())
    parts = (CommandPart(words, "it only reads"),) if words[0] == "cat" and not arguments.get("network") else ()
    return CommandTarget(arguments["command"], words, parts, network=bool(arguments.get("network")))


@tool(action="run", target=target, permission=True)
async def bash(command: str, network: bool = False) -> str:
    """Run a command."""
    return f"ran {command}, network {network}"


def request(action="run", words="git push", **options):
    online = action == NETWORK_ACTION
    typed = CommandTarget(words, tuple(words.split()), network=online)
    return PermissionRequest("c", "bash", action, words, {}, "h", True, typed_target=typed, **options)


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ([], "ask"),
        ([allow("bash")], "ask"),
        ([allow("*")], "ask"),
        ([allow("bash", action="*")], "ask"),
        ([allow("bash", action="net*")], "ask"),
        ([allow("bash", target=command("git push"))], "ask"),
        ([allow("bash", action="run", target=command("git push"))], "ask"),
        ([allow("bash", action="network", target=command("git pull"))], "ask"),
        ([allow("bash", action="network", target=command("git push"))], "allow"),
        ([allow("bash", action="network")], "allow"),
        ([allow("bash", action="network"), deny("bash", action="run", target=command("git"))], "deny"),
        ([allow("bash", action="network"), deny("bash", target=command("git push"))], "deny"),
        ([allow("bash", action="network"), ask("bash", action="run")], "ask"),
    ],
)
async def test_a_command_with_network_is_allowed_by_exactly_that_rule(rules, verdict):
    session = Agent(ScriptedModel(), tools=[bash], permission=Permissions(*rules, handler=later)).session()
    assert (await session.explain("bash", {"command": "git push", "network": True})).verdict == verdict


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ([allow("*")], "ask"),
        ([allow("bash", action="*")], "ask"),
        ([allow("bash", action="network")], "ask"),
        ([allow("bash", action="network"), allow("bash", action="configure")], "ask"),
        ([allow("bash", action="network+configure")], "allow"),
        ([allow("bash", action="network+configure"), deny("bash", target=command("git push"))], "deny"),
    ],
)
async def test_both_together_are_allowed_by_the_name_of_both(rules, verdict):
    def both(arguments):
        return CommandTarget(arguments["command"], ("git", "push"), network=True, configures=True)

    @tool(action="run", target=both, permission=True, name="bash")
    async def configured(command: str) -> str:
        """Run a command."""
        return f"ran {command}"

    session = Agent(ScriptedModel(), tools=[configured], permission=Permissions(*rules, handler=later)).session()
    assert (await session.explain("bash", {"command": "git push"})).verdict == verdict


async def test_rules_about_the_network_are_not_about_other_commands():
    rules = Permissions(allow("bash", action="network"), handler=later)
    session = Agent(ScriptedModel(), tools=[bash], permission=rules).session()
    assert (await session.explain("bash", {"command": "git push"})).verdict == "ask"


@pytest.mark.parametrize(("action", "asked"), [("run", ["run"]), (NETWORK_ACTION, [NETWORK_ACTION])])
def test_an_answer_is_for_its_action(action, asked):
    grant = make_grant(request(action), Verdict(allow=True, scope="session", covers="tool"))
    assert [each for each in ("run", NETWORK_ACTION) if grant.covers_call(request(each))] == asked


@pytest.mark.parametrize(("is_allowed", "covered"), [(True, ["run"]), (False, ["run", NETWORK_ACTION])])
def test_an_answer_for_all_actions_allows_no_network_and_denies_it(is_allowed, covered):
    grant = Grant("session", is_allowed, "bash", "*", "", "", covers="tool")
    assert [each for each in ("run", NETWORK_ACTION) if grant.covers_call(request(each))] == covered


async def test_it_counts_as_sending_out():
    @tool(effect="read", labels=["private", "untrusted"])
    async def fetch() -> str:
        """Fetch."""
        return "x"

    calls = [call("fetch"), call("bash", command="curl x", network=True), call("bash", command="make")]
    rules = Permissions(allow("*"), allow("bash", action="network"))
    outcome = await Agent(ScriptedModel(*calls, "Done."), tools=[fetch, bash], permission=rules).run("Go.")
    statuses = [each.status for message in outcome.new_messages for each in message.tool_results]
    assert statuses == ["ok", "denied", "ok"]


async def test_parts_of_a_line_with_network_are_decided_as_such():
    typed = CommandTarget("a && b", parts=(CommandPart(("git", "push")), CommandPart(("git", "pull"))), network=True)

    @tool(action="run", target=lambda _: typed, permission=True)
    async def line() -> str:
        """Run."""
        return "ran"

    verdicts = []
    for rules in (
        [allow("line", target=command("git"))],
        [allow("line", action="network", target=command("git"))],
        [allow("line", action="network", target=command("git push"))],
    ):
        session = Agent(ScriptedModel(), tools=[line], permission=Permissions(*rules, handler=later)).session()
        verdicts.append((await session.explain("line", {})).verdict)
    assert verdicts == ["ask", "allow", "ask"]
