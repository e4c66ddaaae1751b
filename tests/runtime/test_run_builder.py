"""What depends on the agent alone is built once, and each run gets what is its own."""

from typing import Any

import pytest
from msgspec.structs import replace

from perdure import Agent, Budget, Extension, Limits, Permissions, Settings, ToolContext, ToolResult, allow, deny, tool
from perdure._runtime.agent import build
from perdure.context import Compaction, Skill, Skills
from perdure.engines import Guardrail, Step
from perdure.models import Model
from perdure.testing import ScriptedModel, call


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the agents whose runs were built from the beginning."""
    made: list[str] = []
    original = build._build_spec

    def build_noted(agent: Any, *rest: Any, **named: Any) -> Any:
        made.append(agent.name)
        return original(agent, *rest, **named)

    monkeypatch.setattr(build, "_build_spec", build_noted)
    return made


async def test_the_runs_of_an_agent_share_what_depends_on_it_alone(builds: list[str]) -> None:
    agent = Agent(ScriptedModel("Hello.", repeat_last=True), budget=Budget(token_budget=100_000))
    session = agent.session("s")
    for _ in range(3):
        await session.run("Hi")
    await agent.session("other").run("Hi")
    await agent.run("Hi")
    assert builds == ["agent"]
    await agent.replace(name="changed").run("Hi")
    assert builds == ["agent", "changed"]


async def test_deps_and_settings_of_one_run_are_its_own(builds: list[str]) -> None:
    @tool
    async def look(context: ToolContext[str]) -> str:
        """Return what it was given."""
        return context.deps

    model = ScriptedModel(call("look"), "One.", call("look"), "Two.")
    agent: Agent[str] = Agent(model, tools=[look], deps="the agent's")
    session = agent.session("s")
    first = await session.run("Go", deps="mine", settings=Settings(temperature=0.5))
    second = await session.run("Go")
    results = [part for run in (first, second) for part in run.new_messages[2].parts if isinstance(part, ToolResult)]
    assert [each.text for each in results] == ["mine", "the agent's"]
    assert [each.settings.temperature for each in model.requests] == [0.5, 0.5, None, None]
    assert builds == ["agent"]


@pytest.mark.parametrize(
    "overrides",
    [
        {"instructions": "Be long."},
        {"tools": []},
        {"limits": Limits(max_turns=1)},
        {"budget": Budget(token_budget=100_000)},
    ],
    ids=lambda each: next(iter(each)),
)
async def test_a_run_that_differs_in_more_is_built_for_itself_alone(builds: list[str], overrides: Any) -> None:
    model = ScriptedModel("Hello.", repeat_last=True)
    session = Agent(model, instructions="Be brief.").session("s")
    await session.run("Hi")
    await session.run("Hi", **overrides)
    await session.run("Hi")
    assert builds == ["agent", "agent"]
    assert [model.requests[0].instructions, model.requests[2].instructions] == ["Be brief.", "Be brief."]


async def test_the_configuration_of_a_session_is_for_that_session(builds: list[str]) -> None:
    model = ScriptedModel("Hello.", repeat_last=True)
    agent = Agent(model, instructions="Be brief.")
    await agent.session("a").run("Hi")
    await agent.session("b").configure(instructions="Be long.")
    await agent.session("b").run("Hi")
    await agent.session("a").run("Hi")
    assert [each.instructions for each in model.requests] == ["Be brief.", "Be long.", "Be brief."]
    assert builds == ["agent", "agent"]


async def test_each_run_has_guardrails_that_have_seen_nothing() -> None:
    started: list[list[int]] = []

    def start() -> Guardrail:
        seen: list[int] = []
        started.append(seen)

        def guard(step: Step) -> None:
            seen.append(step.turn)

        return guard

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    agent = Agent(ScriptedModel(call("look"), "One.", call("look"), "Two."), tools=[look], guardrails=[start])
    await agent.session("a").run("Go")
    await agent.session("b").run("Go")
    assert [each for each in started if each] == [[1], [1]]
    started.clear()
    agent = Agent(ScriptedModel(call("look"), "One.", call("look"), "Two."), tools=[look], guardrails=[start])
    session = agent.session("s")
    await session.run("Go")
    await session.run("Go")
    assert [each for each in started if each] == [[1], [1]]


async def test_the_tools_of_an_agent_are_wrapped_by_those_of_its_extensions_that_do_so() -> None:
    plain, wrapping = Extension(name="plain"), Extension(name="wrapping", wrap_tool=lambda given: given)
    assert not Agent("demo", extensions=[plain]).has_tool_wrappers
    assert Agent("demo", extensions=[plain, wrapping]).has_tool_wrappers
    assert not Agent("demo").has_tool_wrappers


@pytest.mark.parametrize("narrow", [True, False])
async def test_whoever_is_handed_a_conversation_is_limited_by_the_gate_of_the_first_agent(narrow: bool) -> None:
    @tool(permission=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    billing = Agent(
        ScriptedModel(call("pay"), "Done."), name="billing", tools=[pay], permission=Permissions(allow("pay"))
    )
    desk = Agent(
        ScriptedModel(call("hand_over_to_billing")),
        name="desk",
        handoffs=[billing],
        permission=Permissions(deny("pay")),
        narrow_handoffs=narrow,
    )
    outcome = await desk.session("s").run("Go")
    (result,) = outcome.messages[-2].tool_results
    assert (result.text == "paid") is not narrow


async def test_models_and_rules_of_extensions_are_made_for_each_run(builds: list[str]) -> None:
    wrapped: list[Model] = []

    def wrap(model: Model) -> Model:
        wrapped.append(model)
        return model

    model = ScriptedModel("Hello.", repeat_last=True)
    for extension in (Extension(name="wraps", wrap_model=wrap), Extension(name="rules", rules=[allow("a"), deny("b")])):
        session = Agent(model, extensions=[extension]).session("s")
        await session.run("Hi")
        await session.run("Hi")
    assert wrapped == [model, model]
    assert len(builds) == 4


@pytest.mark.parametrize("own", [True, False], ids=["its own model", "the agent's model"])
async def test_a_budget_counts_what_a_summary_costs_whichever_model_writes_it(own: bool) -> None:
    model, other = ScriptedModel("Hello.", repeat_last=True), ScriptedModel("A summary.", repeat_last=True)
    budget = Budget(token_budget=1_000_000)
    compaction = Compaction(at_turns=3, keep_recent_messages=1, model=other if own else None)
    session = Agent(model, budget=budget, compaction=compaction).session("s")
    for _ in range(4):
        await session.run("words " * 400)
    assert (len(model.requests), len(other.requests)) == ((4, 1) if own else (5, 0))
    assert budget.spent_tokens == 5 * 15


@pytest.mark.parametrize("more", [{}, {"instructions": "Be long."}, {"deps": "mine"}])
async def test_the_turns_of_a_run_are_those_that_it_sets_or_else_the_agents(more: Any) -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    def agent(**options: Any) -> Agent[Any]:
        model = ScriptedModel(call("look"), call("look"), call("look"), "Done.", repeat_last=True)
        return Agent(model, tools=[look], **options)

    outcome = await agent().run("Go", limits=Limits(max_turns=2), **more)
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit", "max_turns", 2)
    outcome = await agent(limits=Limits(max_turns=1)).run("Go", limits=Limits(max_turns=2), **more)
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit", "max_turns", 2)
    outcome = await agent(limits=Limits(max_turns=1)).run("Go", **more)
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit", "max_turns", 1)
    outcome = await agent(limits=Limits(max_turns=1)).run("Go", limits=Limits(), **more)
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit", "max_turns", 1)
    outcome = await agent(limits=Limits(max_turns=1)).run("Go", limits=Limits(max_turns=None), **more)
    assert (outcome.status, outcome.turns) == ("done", 4)


@pytest.mark.parametrize("active", ["captain", "mate"])
async def test_the_instructions_between_runs_have_what_the_tools_of_a_handoff_say(active: str) -> None:
    def describe(given: Any) -> Any:
        return replace(given, prompt=f"About {given.name}.")

    model = ScriptedModel("Aye.")
    extension = Extension(name="describing", wrap_tool=describe)
    mate = Agent(model, name="mate", instructions="You are the mate.", extensions=[extension])
    captain = Agent(model, name="captain", handoffs=[mate], instructions="You command.", extensions=[extension])
    session = captain.session("s")
    if active == "mate":
        await session.configure(agent="mate")
    told = await session.instructions()
    await session.run("Go")
    assert told == model.requests[0].instructions
    assert (
        told
        == {
            "captain": "You command.\n\nAbout hand_over_to_mate.",
            "mate": "You are the mate.\n\nAbout hand_over_to_captain.",
        }[active]
    )


@pytest.mark.parametrize(
    ("options", "offered"),
    [
        ({"sections": {"depth": "Deep."}, "hidden": True}, ["skill_resource"]),
        ({"resources": {"chart": "A map."}, "hidden": True}, ["skill_resource"]),
        ({"hidden": True}, []),
        ({"sections": {"depth": "Deep."}}, ["skill", "skill_resource"]),
    ],
)
async def test_texts_of_a_skill_can_be_read_if_it_was_loaded_and_has_any(options: Any, offered: list[str]) -> None:
    model = ScriptedModel("Done.")
    skills = Skills([Skill(name="anchor", description="Heavy.", body="Let it fall.", **options)])
    await Agent(model, skills=skills).run("/anchor")
    assert [each.name for each in model.requests[0].tools] == offered
    if options.get("hidden"):
        other = ScriptedModel("Done.")
        await Agent(other, skills=skills).run("Go")
        assert other.requests[0].tools == ()
