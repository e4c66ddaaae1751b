"""Glue's `Agent` and its options, with our names."""

import asyncio

import pytest

from perdure import Agent, Extension, Limits, Settings, tool
from perdure._models import registry
from perdure.context import Compaction, Project, Role, Skill, Skills, Trust, keep_recent, load_roles, load_skills
from perdure.models import Price
from perdure.permissions import Verdict
from perdure.stores import UnsupportedByStore
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.tools import after, before
from tests.coming_from.shows import shows
from tests.doubles import SECONDS


@tool(effect="read")
def weather(city: str) -> str:
    """Today's weather for a city."""
    return f"Rain in {city}."


@shows("glue", "Agent", "NewAgent", "Agent.Session", "AgentOptions", "AgentOptions.Store")
async def test_an_agent_has_its_options_in_common_for_sessions_that_it_opens_by_id(sqlite):
    model = ScriptedModel("Hello.", "Still here.", "Who are you?")
    agent = Agent(model, instructions="Be brief.", store=sqlite())
    await agent.session("oslo").run("Hi")
    again = Agent(model, store=sqlite())  # as another program that has the same store
    outcome = await again.session("oslo").run("And now?")
    other = await agent.session("bergen").run("Hi")
    assert [each.text for each in outcome.messages] == ["Hi", "Hello.", "And now?", "Still here."]
    assert [each.text for each in other.messages] == ["Hi", "Who are you?"]
    assert [each.instructions for each in model.requests] == ["Be brief.", "", "Be brief."]


@shows("glue", "NewAgent", "Agent.Session")
async def test_without_a_store_sessions_are_kept_in_memory():
    agent = Agent(ScriptedModel("One.", "Two."))
    await agent.session("oslo").run("First")
    outcome = await agent.session("oslo").run("Second")
    assert [each.text for each in outcome.messages] == ["First", "One.", "Second", "Two."]


@shows("glue", "AgentOptions.Store")
async def test_a_save_writes_new_entries_alone_and_others_can_watch(sqlite):
    agent, reader = Agent(ScriptedModel("One.", "Two."), store=sqlite()), Agent(ScriptedModel(), store=sqlite())
    await agent.session("oslo").run("First")
    before_second = await agent.store.read("oslo")
    await agent.session("oslo").run("Second")
    entries = await agent.store.read("oslo")
    assert entries[: len(before_second)] == before_second
    seen = []
    async with asyncio.timeout(30):
        async for entry in reader.session("oslo").watch():
            seen.append(entry)
            if len(seen) == len(entries):
                break
    assert seen == entries


@shows("glue", "Agent.SearchSessions")
async def test_all_sessions_of_a_store_that_can_search_are_searched(sqlite):
    model = ScriptedModel("The ferry leaves at nine.", "No ferry, but a train.", "Nothing leaves.")
    agent = Agent(model, store=sqlite())
    for city in ("oslo", "bergen", "voss"):
        await agent.session(city).run("How do I get away?")
    assert {hit.session_id for hit in await agent.search("ferry")} == {"oslo", "bergen"}
    queries = {
        '"ferry leaves"': {"oslo"},
        "ferry AND train": {"bergen"},
        "train OR nine": {"oslo", "bergen"},
        "leaves NOT ferry": {"voss"},
    }
    for query, sessions in queries.items():
        assert {hit.session_id for hit in await agent.search(query, syntax="query")} == sessions
    with pytest.raises(UnsupportedByStore):
        await Agent(ScriptedModel()).search("ferry")


@shows("glue", "Agent.ToolCatalog")
def test_the_tools_of_an_agent_are_known_without_a_session():
    @tool(permission=True, action="write", target=lambda arguments: arguments["path"])
    def save(path: str) -> str:
        """Save a file."""
        return path

    catalog = Agent(ScriptedModel(), tools=[weather, save]).tools
    assert [(each.name, each.description, each.permission, each.action) for each in catalog] == [
        ("weather", "Today's weather for a city.", False, ""),
        ("save", "Save a file.", True, "write"),
    ]
    target = catalog[1].target
    assert target is not None
    assert target({"path": "a.txt"}) == "a.txt"
    assert catalog[0].spec.parameters["required"] == ["city"]


@shows(
    "glue",
    "AgentOptions",
    "AgentOptions.Provider",
    "AgentOptions.Model",
    "AgentOptions.SystemPrompt",
    "AgentOptions.Tools",
    "AgentOptions.Options",
)
async def test_model_instructions_tools_and_settings_reach_every_request(monkeypatch):
    monkeypatch.setattr(registry, "_factories", {})
    named = ScriptedModel(call("weather", city="Oslo"), "Take one.")
    registry.register("house", lambda name: {"big": named}[name])
    settings = Settings(temperature=0.0, extra_body={"safety": "off"})
    agent = Agent("house:big", instructions="Be brief.", tools=[weather], settings=settings)
    outcome = await agent.run("Do I need an umbrella?")
    assert outcome.text == "Take one."
    assert outcome.messages[2].tool_results[0].text == "Rain in Oslo."
    for request in named.requests:
        assert (request.instructions, [each.name for each in request.tools]) == ("Be brief.", ["weather"])
        assert (request.settings.temperature, request.settings.extra_body) == (0.0, {"safety": "off"})
    object_itself = await Agent(ScriptedModel("Yes.")).run("Any object with a stream?")
    assert object_itself.text == "Yes."


@shows("glue", "AgentOptions.MaxTurns")
async def test_the_turns_of_a_run_are_limited_and_so_is_more_than_turns():
    model = ScriptedModel(call("weather", city="Oslo"), call("weather", city="Voss"), "Rain.")
    outcome = await Agent(model, tools=[weather], limits=Limits(max_turns=1)).run("Rain?")
    assert (outcome.status, outcome.reason, len(model.requests)) == ("limit", "max_turns", 1)
    for limits, reason in [
        (Limits(max_tool_calls=1), "max_tool_calls"),
        (Limits(token_budget=20), "token_budget"),
    ]:
        calls = ScriptedModel(*[call("weather", city=f"town {number}") for number in range(9)])
        outcome = await Agent(calls, tools=[weather], limits=limits).run("Rain?")
        assert (outcome.status, outcome.reason) == ("limit", reason)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@shows("glue", "AgentOptions.WorkDir", "AgentOptions.Skills", "AgentOptions.Roles")
async def test_a_working_directory_has_instructions_skills_and_roles_and_those_of_the_program_win(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "home").mkdir()
    write(tmp_path / "AGENTS.md", "Use tabs.")
    write(tmp_path / "docs" / "AGENTS.md", "Write short sentences.")
    for name in ("deploy", "review"):
        write(
            tmp_path / f".agents/skills/{name}/SKILL.md",
            f"---\nname: {name}\ndescription: How to {name}.\n---\nOn disk.",
        )
    write(tmp_path / "roles" / "critic.md", "---\ndescription: Finds faults.\n---\nFind faults.")
    trust = Trust(str(tmp_path / "trusted.json"))
    found = load_skills(str(tmp_path), home=str(tmp_path / "home"), trust=trust)
    assert (found.names, [each.name for each in found.untrusted]) == ((), ["deploy", "review"])
    for each in found.untrusted:
        trust.trust(each)
    skills = load_skills(str(tmp_path), home=str(tmp_path / "home"), trust=trust)
    mine = Skills([Skill(name="review", description="Mine.", body="In the program.")])
    model = ScriptedModel(call("skill", name="deploy"), "Done.", "Done.", "Done.")
    agent = Agent(
        model,
        project=Project(tmp_path / "docs", home=tmp_path / "home"),
        skills=mine + skills,
        roles=[Role("author", "Write."), *load_roles(tmp_path / "roles")],
    )
    session = agent.session("oslo")
    loaded = await session.run("Deploy.")
    assert "Use tabs." in model.requests[0].instructions
    assert "Write short sentences." in model.requests[0].instructions
    assert "deploy" in model.requests[0].instructions
    assert "On disk." in loaded.messages[2].tool_results[0].text
    await session.skill("review")
    assert "In the program." in model.requests[2].messages[-1].text
    write(tmp_path / "AGENTS.md", "Use blanks, not tabs.")
    await session.run("Again.", role="critic")
    assert "Use blanks" in model.requests[3].instructions
    assert "Find faults." in model.requests[3].instructions


@shows(
    "glue", "AgentOptions.Role", "AgentOptions.Roles", "AgentOptions.Model", "WithSessionRole", "WithRole", "WithModel"
)
async def test_a_role_is_that_of_the_run_else_of_the_session_else_of_the_agent_and_so_is_its_model(monkeypatch):
    monkeypatch.setattr(registry, "_factories", {})
    asked = {name: ScriptedModel("Yes.", repeat_last=True, name=name) for name in ("plain", "large", "other")}
    registry.register("house", asked.__getitem__)
    roles = [Role("poet", "Rhyme."), Role("judge", "Decide.", model="house:large"), Role("clerk", "Note.")]
    agent = Agent("house:plain", roles=roles, role="poet")

    async def answer(session, **options):
        outcome = await session.run("Well?", **options)
        name = outcome.message.model
        text = asked[name].requests[-1].instructions
        return name, [role.name for role in roles if role.instructions in text]

    assert await answer(agent.session("of the agent")) == ("plain", ["poet"])
    assert await answer(agent.session("of the session", role="judge")) == ("large", ["judge"])
    assert await answer(agent.session("of the session"), role="clerk") == ("plain", ["clerk"])
    assert await answer(agent.session("of the call", role="judge"), role="judge", model="house:other") == (
        "other",
        ["judge"],
    )
    configured = agent.session("configured")
    await configured.configure(role="judge")
    assert await answer(agent.session("configured")) == ("large", ["judge"])
    with pytest.raises(ValueError, match="there is no role 'actor'"):
        await agent.session("unknown").run("Well?", role="actor")


@shows("glue", "AgentOptions.Permission")
async def test_one_decision_is_asked_for_all_calls_of_a_reply_and_can_be_remembered():
    from perdure import Permissions, allow
    from perdure.testing import calls

    asked = []

    def decide(requests):
        asked.append([(each.tool, each.target) for each in requests])
        return [Verdict(allow=each.target != "b", scope="session", covers="target") for each in requests]

    @tool(permission=True, target="path")
    def save(path: str) -> str:
        """Save a file."""
        return f"saved {path}"

    model = ScriptedModel(
        calls(call("save", path="a"), call("save", path="b"), call("save", path="tmp/x")),
        call("save", path="a"),
        "Done.",
    )
    gate = Permissions(allow("save", target="tmp/*"), handler=decide)
    outcome = await Agent(model, tools=[save], permission=gate).run("Save them.")
    results = [each.text for message in outcome.messages for each in message.tool_results]
    assert asked == [[("save", "a"), ("save", "b")]]
    assert (results[0], results[2], results[3]) == ("saved a", "saved tmp/x", "saved a")
    assert "denied" in results[1]
    denied = await Agent(ScriptedModel(call("save", path="a"), "Pity."), tools=[save]).run("Without a gate.")
    assert denied.messages[2].tool_results[0].is_error


@shows("glue", "AgentOptions.Hooks")
async def test_hooks_are_called_around_each_call_of_one_tool_or_of_all():
    seen: list[tuple[str, ...]] = []

    def hooked(inner):
        started = before(inner, lambda call, _: seen.append(("pre", call.name)))
        return after(started, lambda call, result: seen.append(("post", call.name, result.text)))

    model = ScriptedModel(call("weather", city="Oslo"), "Rain.")
    await Agent(model, tools=[hooked(weather)]).run("Rain?")
    assert seen == [("pre", "weather"), ("post", "weather", "Rain in Oslo.")]
    seen.clear()
    model = ScriptedModel(call("weather", city="Voss"), "Rain.")
    await Agent(model, tools=[weather], extensions=[Extension(name="hooks", wrap_tool=hooked)]).run("Rain?")
    assert seen == [("pre", "weather"), ("post", "weather", "Rain in Voss.")]


@shows("glue", "AgentOptions.Compactor", "AgentOptions.CompactionThreshold")
async def test_a_conversation_above_a_number_of_messages_is_shortened_for_the_model_and_stays_complete():
    model = ScriptedModel("A long answer. " * 60, repeat_last=True)
    compaction = Compaction(at_messages=6, keep_recent_messages=2, strategy=keep_recent)
    session = Agent(model, compaction=compaction).session("oslo")
    for number in range(5):
        await session.run(f"Question {number}. " + "Please. " * 60)
    assert [len(each.messages) for each in model.requests] == [1, 3, 5, 4, 4]
    assert len(await session.messages()) == 10


@shows("glue", "AgentOptions.CompactionThreshold")
async def test_without_a_number_of_messages_measured_tokens_are_compared_with_the_context_window():
    from perdure import Usage
    from perdure.models import ModelInfo
    from perdure.testing import Reply

    model = ScriptedModel(
        Reply("A long answer. " * 60, usage=Usage(90_000, 10)), "A summary.", Reply("Short.", usage=Usage(200, 10))
    )
    model.info = ModelInfo("small", context_tokens=100_000)
    session = Agent(model, compaction=Compaction(keep_recent_messages=0)).session("oslo")
    await session.run("First. " * 60)
    await session.run("Second.")
    assert "A summary." in model.requests[2].messages[0].text
    assert len(model.requests[2].messages) == 2


@shows("glue", "AgentOptions.MaxTurns")
async def test_money_and_time_are_limited_as_well():
    model = ScriptedModel(
        *[call("weather", city=f"town {number}") for number in range(9)], price=Price(input_usd=1e5, output_usd=0)
    )
    outcome = await Agent(model, tools=[weather], limits=Limits(max_cost_usd=2.0)).run("Rain?")
    assert (outcome.status, outcome.reason, outcome.cost_usd) == ("limit", "max_cost", 2.0)
    clock = FakeClock()

    @tool
    async def wait_for_ever() -> str:
        """Wait."""
        await clock.sleep(1e9)
        return ""

    agent = Agent(
        ScriptedModel(call("wait_for_ever")), tools=[wait_for_ever], limits=Limits(timeout_seconds=60), clock=clock
    )
    running = asyncio.create_task(agent.run("Wait."))
    await clock.wait_for_sleepers()
    await clock.advance(60)
    async with asyncio.timeout(SECONDS):
        outcome = await running
    assert (outcome.status, outcome.reason) == ("limit", "timeout")
