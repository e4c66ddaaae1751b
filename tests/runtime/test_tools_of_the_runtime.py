"""Tools by which a run ends or changes its agent are not the user's to allow; tools of others with their names are."""

from typing import Any

import pytest

from perdure import Agent, Limits, Output, Permissions, allow, ask, deny, tool
from perdure.engines import autonomous
from perdure.permissions import Verdict, deny_all
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call

GATES: list[Any] = [
    Permissions(deny("*")),
    Permissions(ask("*")),
    Permissions.deny_all("no"),
    deny_all,
    Permissions(deny(target="*"), allow("read")),
]


@pytest.mark.parametrize("gate", GATES)
async def test_an_autonomous_run_ends_whatever_the_gate_says(gate: Any) -> None:
    agent = Agent(ScriptedModel(call("finish", result="All done.")), engine="autonomous", permission=gate)
    outcome = await agent.run("Go.")
    assert (outcome.status, outcome.text) == ("done", "All done.")


@pytest.mark.parametrize("gate", GATES)
async def test_a_typed_answer_is_given_whatever_the_gate_says(gate: Any) -> None:
    agent = Agent(ScriptedModel(call("final_answer", value=3)), permission=gate)
    assert (await agent.run("Go.", output=Output(int, mode="tool"))).value == 3


@pytest.mark.parametrize("allowed", [(), ("look",)])
@pytest.mark.parametrize("engine", ["react", "autonomous"])
async def test_a_typed_answer_is_given_whatever_tools_are_allowed(engine: str, allowed: tuple[str, ...]) -> None:
    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    limits = Limits(allowed_tools=allowed)
    for of_agent, of_run in ((limits, Limits()), (Limits(), limits)):
        model = ScriptedModel(call("final_answer", value=3))
        agent = Agent(model, engine=engine, tools=[look], limits=of_agent)
        outcome = await agent.run("Go.", output=Output(int, mode="tool"), limits=of_run)
        assert (outcome.status, outcome.value) == ("done", 3)
        assert {each.name for each in model.requests[-1].tools} >= {"final_answer", *allowed}


@pytest.mark.parametrize("gate", GATES)
async def test_a_conversation_is_handed_over_whatever_the_gate_says(gate: Any) -> None:
    second = Agent(ScriptedModel("Here I am."), name="second", permission=gate)
    first = Agent(ScriptedModel(call("hand_over_to_second")), name="first", handoffs=[second], permission=gate)
    assert (await first.run("Go.")).text == "Here I am."


async def test_no_person_is_asked_whether_the_model_may_finish() -> None:
    asked: list[Any] = []

    def answer(requests: Any) -> list[Verdict]:
        asked.extend(requests)
        return [Verdict(allow=True)] * len(requests)

    model = ScriptedModel(call("finish", result="All done."))
    agent = Agent(model, engine="autonomous", permission=Permissions(ask("*"), handler=answer))
    assert (await agent.run("Go.")).text == "All done."
    assert not asked


@pytest.mark.parametrize("name", ["finish", "final_answer", "hand_over_to_second"])
async def test_a_tool_of_others_with_such_a_name_is_like_any_other(name: str) -> None:
    called: list[str] = []

    @tool(name=name)
    def own() -> str:
        """Do something."""
        called.append(name)
        return "done"

    agent = Agent(ScriptedModel(call(name), "Over."), tools=[own], permission=Permissions(deny("*")), store=STORE)
    await agent.run("Go.")
    assert not called
    assert (await agent.session(name).explain(name, {})).verdict == "deny"


STORE = open_store("memory:")


async def test_explain_says_that_no_rule_is_about_them() -> None:
    gate = Permissions(deny("*"))
    second = Agent(ScriptedModel(), name="second")
    agent = Agent(
        ScriptedModel(), engine=autonomous(finish_tool="end"), handoffs=[second], permission=gate, store=STORE
    )
    for name in ("end", "final_answer", "hand_over_to_second"):
        explained = await agent.session("s").explain(name, {})
        assert (explained.verdict, "tool of the runtime" in explained.why) == ("allow", True)
