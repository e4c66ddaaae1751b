"""Glue's working directory and its subagents, with our names."""

import asyncio

import pytest

from perdure import Agent, ConfigError, Limits, tool
from perdure._models import registry
from perdure.context import Project, Role, Skill, load_roles, load_skills, load_skills_from
from perdure.events import SubagentFinished, SubagentStarted, ToolFinished
from perdure.testing import Recorder, ScriptedModel, call, calls
from tests.coming_from.shows import shows
from tests.doubles import SECONDS


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@shows(
    "glue",
    "ProjectContext",
    "LoadContext",
    "ProjectContext.AgentsMD",
    "ProjectContext.Skills",
    "ProjectContext.Roles",
    "Skill",
)
async def test_a_working_directory_gives_instructions_skills_and_roles(tmp_path):
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    write(work / "AGENTS.md", "Use tabs.")
    write(work / ".agents/skills/pack/SKILL.md", "---\nname: pack\ndescription: How to pack.\n---\nPack the bag.")
    write(work / "roles/critic.md", "Find faults.")
    project = Project(work, home=home)
    assert "Use tabs." in project.text()
    skills = load_skills_from(str(work / ".agents" / "skills"))
    skill = skills.get("pack")
    assert isinstance(skill, Skill)
    assert (skill.description, skill.body.strip()) == ("How to pack.", "Pack the bag.")
    (role,) = load_roles(work / "roles")
    model = ScriptedModel("Packed.")
    agent = Agent(model, instructions="Be brief.", project=project, skills=skills, roles=[role])
    await agent.session("oslo").skill("pack", role="critic")
    sent = model.requests[0]
    places = [sent.instructions.index(text) for text in ("Be brief.", "Use tabs.", "Find faults.")]
    assert places == sorted(places)
    assert "Pack the bag." in sent.messages[0].text


@shows("glue", "LoadContext", "ProjectContext")
def test_a_directory_without_any_of_it_is_no_error(tmp_path):
    project = Project(tmp_path, home=tmp_path)
    assert (project.text(), project.problems) == ("", ())
    assert load_skills(str(tmp_path), home=str(tmp_path)).names == ()
    assert load_roles(tmp_path / "roles") == []


@shows("glue", "ProjectContext")
def test_files_of_outer_folders_come_first_are_limited_and_are_read_again(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / ".git").mkdir()
    write(tmp_path / "AGENTS.md", "Outer.")
    write(tmp_path / "docs" / "AGENTS.md", "Inner.")
    project = Project(tmp_path / "docs", home=home)
    text = project.text()
    assert text.index("Outer.") < text.index("Inner.")
    write(tmp_path / "docs" / "AGENTS.md", "Inner, changed.")
    assert "Inner, changed." in project.text()
    write(tmp_path / "AGENTS.md", "x" * 200_000)
    limited = Project(tmp_path / "docs", home=home, max_characters=1000)
    assert "Inner, changed." in limited.text()
    assert len(limited.text()) < 2000
    assert limited.problems


@shows("glue", "Role", "Role.Model", "Role.name:", "Role.description:", "Role.model:")
async def test_a_role_is_a_file_with_a_name_a_description_and_a_model(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_factories", {})
    large = ScriptedModel("Guilty.")
    registry.register("house", lambda _name: large)
    write(tmp_path / "critic.md", "Find faults.")
    write(tmp_path / "x.md", "---\nname: judge\ndescription: Decides.\nmodel: house:large\n---\nDecide.")
    roles = load_roles(tmp_path)
    assert roles == [Role("critic", "Find faults."), Role("judge", "Decide.", "Decides.", "house:large")]
    outcome = await Agent(ScriptedModel(), roles=roles).session("oslo").run("Well?", role="judge")
    assert outcome.text == "Guilty."
    assert "Decide." in large.requests[0].instructions
    with pytest.raises(ConfigError, match="there is no role 'jury'"):
        await Agent(ScriptedModel(), roles=roles).session("oslo").run("Well?", role="jury")


@shows(
    "glue",
    "SubagentTool",
    "SubagentOptions",
    "SubagentOptions.Name",
    "SubagentOptions.Description",
    "SubagentOptions.Agent",
    "SubagentOptions.SystemPrompt",
    "SubagentOptions.SessionID",
)
async def test_an_agent_is_a_tool_that_gets_a_task_and_returns_its_answer():
    below, recorder = ScriptedModel("Rain.", "Snow."), Recorder()
    scout = Agent(below, name="scout", instructions="Look outside.")
    given = scout.as_tool(name="ask_scout", description="Asks the scout.")
    model = ScriptedModel(call("ask_scout", task="Oslo?"), call("ask_scout", task="Voss?"), "Both wet.")
    session = Agent(model, instructions="Be brief.", tools=[given], watchers=[recorder]).session("oslo")
    outcome = await session.run("Weather?")
    spec = model.requests[0].tools[0]
    assert (spec.name, spec.description) == ("ask_scout", "Asks the scout.")
    assert [each.instructions for each in below.requests] == ["Look outside."] * 2
    assert [[each.text for each in request.messages] for request in below.requests] == [["Oslo?"], ["Voss?"]]
    results = [each.text for message in outcome.messages for each in message.tool_results]
    assert results == ["Rain.", "Snow."]
    paths = {event.child for event in recorder.of(SubagentStarted)}
    assert len(paths) == 2
    log = [entry.event for entry in await session.store.read("oslo")]
    assert paths <= {event.path for event in log}
    assert [event.status for event in recorder.of(SubagentFinished)] == ["done", "done"]


@shows("glue", "SubagentOptions.SessionID")
async def test_a_durable_subagent_goes_on_with_its_conversation():
    below = ScriptedModel("Rain.", "Snow.")
    given = Agent(below, name="scout").as_tool(durable=True)
    model = ScriptedModel(call("scout", task="Oslo?"), call("scout", task="Voss?"), "Both wet.")
    await Agent(model, tools=[given]).run("Weather?")
    assert [each.text for each in below.requests[1].messages] == ["Oslo?", "Rain.", "Voss?"]


@shows("glue", "SubagentOptions.MaxTurns")
async def test_a_subagent_has_limits_of_its_own_within_those_of_its_caller():
    @tool(effect="read")
    def look(place: int) -> str:
        """Look."""
        return "nothing"

    def endless():
        return ScriptedModel(*[call("look", place=number) for number in range(20)])

    below = endless()
    given = Agent(below, name="scout", tools=[look], limits=Limits(max_turns=2)).as_tool()
    outcome = await Agent(ScriptedModel(call("scout", task="Look."), "Pity."), tools=[given]).run("Go.")
    assert len(below.requests) == 2
    assert outcome.messages[2].tool_results[0].is_error
    below = endless()
    given = Agent(below, name="scout", tools=[look]).as_tool()
    model = ScriptedModel(call("scout", task="Look."), "Pity.")
    outcome = await Agent(model, tools=[given], limits=Limits(token_budget=60)).run("Go.")
    assert (outcome.status, outcome.reason) == ("limit", "token_budget")
    assert len(below.requests) == 3  # 15 tokens each, and 15 of the caller


@shows("glue", "SubagentTool")
async def test_a_subagent_that_fails_is_an_error_for_the_model_and_a_cancel_stops_both():
    broken = Agent(ScriptedModel(ConnectionError("down")), name="broken").as_tool()
    outcome = await Agent(ScriptedModel(call("broken", task="Go."), "Pity."), tools=[broken]).run("Go.")
    assert outcome.messages[2].tool_results[0].is_error
    assert (outcome.status, outcome.text) == ("done", "Pity.")
    started = asyncio.Event()

    @tool
    async def wait_for_ever() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return ""

    waiting = Agent(ScriptedModel(call("wait_for_ever")), name="waiting", tools=[wait_for_ever]).as_tool()
    session = Agent(ScriptedModel(call("waiting", task="Wait.")), tools=[waiting]).session("oslo")
    running = asyncio.create_task(session.run("Go."))
    async with asyncio.timeout(SECONDS):
        await started.wait()
        await session.cancel()
        assert (await running).status == "cancelled"


@shows("glue", "SubagentTool")
async def test_a_subagent_goes_on_after_a_crash():
    looks = []

    @tool(effect="read")
    def look(place: str) -> str:
        """Look."""
        looks.append(place)
        return f"seen {place}"

    below = ScriptedModel(calls(call("look", place="left"), call("look", place="right")), "Nothing.", "Nothing.")
    given = Agent(below, name="scout", tools=[look]).as_tool()
    model = ScriptedModel(call("scout", task="Look."), "All clear.", "All clear.")
    agent = Agent(model, tools=[given])
    await agent.session("oslo").run("Go.")
    entries = await agent.store.read("oslo")
    last = max(
        place for place, each in enumerate(entries, 1) if isinstance(each.event, ToolFinished) and each.event.path
    )
    crashed = await agent.session("oslo").fork("crashed", at=last)
    outcome = await crashed.resume()
    assert (outcome.status, outcome.text, looks) == ("done", "All clear.", ["left", "right"])
