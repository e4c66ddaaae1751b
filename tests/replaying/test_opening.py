"""Replays of runs that began with more than a prompt: skills, hooks, files, roles, and what the session was told."""

import pytest

from perdure import Agent, ToolContext, assistant, tool, user
from perdure.context import Command, MentionSettings, Rewrite, Role, ShortCircuit, Skill, Skills
from perdure.events import MessageAdded, SkillLoaded
from perdure.testing import ScriptedModel, call
from tests.replaying.replays import agreeing, agreeing_wherever_it_is_cut, diverging

pytestmark = pytest.mark.resumed

CALLED: list[str] = []
"""What hooks, skills' tools and files have really been asked for."""


@pytest.fixture(autouse=True)
def _nothing_called():
    CALLED.clear()


@tool(effect="read")
async def sound(depth: int) -> str:
    """Take a sounding."""
    CALLED.append("sound")
    return f"{depth} metres"


MOORING = Skill(name="mooring", description="How to moor.", body="Take a sounding first.", tools=(sound,))
KNOTS = Skill(name="knots", description="How to tie.", body="Tie a bowline.")


def skilled(*replies, **options) -> Agent:
    return Agent(ScriptedModel(*replies), skills=Skills([MOORING, KNOTS]), **options)


async def events(agent: Agent):
    return [entry.event for entry in await agent.store.read("s")]


# -- skills ------------------------------------------------------------------------------------------------------------


async def test_the_skills_that_a_prompt_names_are_told_before_it_again():
    agent = skilled("Moored.", "Yes.")
    session = agent.session("s")
    await session.steer("Hurry.")
    await session.run("/mooring /knots Moor the boat.")
    await session.run("Sure?")
    said = [event.message for event in await events(agent) if isinstance(event, MessageAdded)]
    assert [message.origin for message in said[:4]] == ["skill", "skill", "", "steering"]
    replayed = await agreeing(agent)
    assert list(replayed.outcomes[0].messages) == said[:5]
    await agreeing_wherever_it_is_cut(agent, first=8)


async def test_a_run_that_a_program_began_with_a_skill_begins_with_it_again():
    agent = skilled("Moored.", call("sound", depth=3), "Done.")
    await agent.session("s").skill("mooring", "at the pier")
    await agent.session("s").run("And now?")
    CALLED.clear()
    await agreeing(agent)
    assert CALLED == []


async def test_a_name_that_was_left_in_the_stored_words_loads_nothing_now():
    agent = skilled("Moored.")
    await agent.session("s").run(r"Say \/mooring to learn how to moor.")
    assert not [event for event in await events(agent) if isinstance(event, SkillLoaded)]
    await agreeing(agent)


async def test_a_skill_that_the_model_loads_offers_its_tools_again():
    agent = skilled(call("skill", name="mooring"), call("sound", depth=3), "Done.", call("sound", depth=4), "Again.")
    session = agent.session("s")
    await session.run("Moor.")
    await session.run("Again.")
    assert CALLED == ["sound", "sound"]
    CALLED.clear()
    await agreeing(agent)
    assert CALLED == []
    await agreeing_wherever_it_is_cut(agent)


@pytest.mark.in_memory("that a tool came while a run was going")
async def test_a_skill_without_its_tools_differs_where_they_were_offered():
    agent = skilled(call("skill", name="mooring"), call("sound", depth=3), "Done.")
    await agent.session("s").run("Moor.")
    bare = Skill(name="mooring", description="How to moor.", body="Take a sounding first.")
    divergence = await diverging(agent.replace(skills=Skills([bare, KNOTS])))
    assert divergence.what == "tools that were added are not added any more"
    assert divergence.recorded == "tools are added: sound"


async def test_a_skill_that_is_told_otherwise_now_is_another_catalogue():
    agent = skilled("Moored.")
    await agent.session("s").run("/mooring Moor.")
    await agreeing(agent.replace(skills=Skills([Skill(**{**_fields(MOORING), "body": "Look first."}), KNOTS])))
    other = Skills([Skill(**{**_fields(MOORING), "description": "How to berth."}), KNOTS])
    divergence = await diverging(agent.replace(skills=other))
    assert divergence.what == "the request of turn 1 is another one: the instructions"


def _fields(skill: Skill) -> dict:
    return {name: getattr(skill, name) for name in skill.__struct_fields__}


# -- hooks and files ---------------------------------------------------------------------------------------------------


async def shout(context):
    CALLED.append("shout")
    return Rewrite(context.text.upper())


async def answer(_context):
    CALLED.append("answer")
    return ShortCircuit(assistant("It is noon."))


HOOKS = [Command("shout", shout), Command("time", answer)]


async def test_hooks_are_not_called_again():
    agent = Agent(ScriptedModel("Yes!"), commands=HOOKS)
    await agent.session("s").run("/shout moor the boat")
    assert CALLED == ["shout"]
    await agreeing(agent)
    await agreeing(agent.replace(commands=()))
    assert CALLED == ["shout"]


async def test_a_run_that_a_hook_answered_asks_no_model_again():
    agent = Agent(ScriptedModel("Good day.", "Bye."), commands=HOOKS)
    session = agent.session("s")
    await session.run("Hello.")
    assert (await session.run("/time")).text == "It is noon."
    await session.run("Bye.")
    replayed = await agreeing(agent)
    assert CALLED == ["answer"]
    assert [outcome.text for outcome in replayed.outcomes] == ["Good day.", "It is noon.", "Bye."]
    assert (replayed.runs, replayed.turns) == (3, 2)
    await agreeing_wherever_it_is_cut(agent)


async def test_files_are_not_read_again(tmp_path):
    (tmp_path / "chart.txt").write_text("12 metres at the pier")
    agent = Agent(ScriptedModel("12 metres."), mentions=MentionSettings(str(tmp_path)))
    await agent.session("s").run("How deep is it? @chart.txt")
    first = next(event.message for event in await events(agent) if isinstance(event, MessageAdded))
    assert "12 metres at the pier" in first.text
    (tmp_path / "chart.txt").unlink()
    await agreeing(agent)


# -- roles, and what the session was told ------------------------------------------------------------------------------

PILOT = Role("pilot", "You are a pilot.", model="openai:gpt-nobody-has")
CAPTAIN = Role("captain", "You are a captain.")


async def test_a_run_has_its_role_again():
    agent = Agent(ScriptedModel("Aye.", "Aye.", "Aye."), roles=[PILOT, CAPTAIN])
    await agent.session("s", role="captain").run("Hello.")
    await agent.session("s").run("Hello.", role="captain")
    await agent.session("s").run("Hello.")
    await agreeing(agent)
    divergence = await diverging(agent.replace(roles=[Role("captain", "You are an admiral.")]))
    assert divergence.what == "the request of turn 1 is another one: the instructions"


async def test_a_role_that_is_gone_is_told():
    agent = Agent(ScriptedModel("Aye."), roles=[CAPTAIN])
    await agent.session("s").run("Hello.", role="captain")
    divergence = await diverging(agent.replace(roles=[]))
    assert (divergence.seq, divergence.about, divergence.what, divergence.recorded) == (
        *(1, "request"),
        *("the run cannot be begun", "a run"),
    )
    assert "captain" in divergence.now
    assert "captain" in divergence.now


@pytest.mark.usefixtures("_no_network")
async def test_no_model_is_asked_that_a_role_or_the_session_names():
    scripted = ScriptedModel("Aye.", "Aye.", "Aye.")
    agent = Agent(scripted, roles=[PILOT, CAPTAIN])
    session = agent.session("s")
    await session.run("Hello.", role="pilot", model=scripted)
    await session.configure(model="openai:gpt-nobody-has")
    await session.run("Hello.", model=scripted)
    await session.configure(model="", role="captain", instructions="Be brief.")
    await session.run("Hello.")
    replayed = await agreeing(agent)
    assert replayed.turns == 3


@pytest.fixture
def _no_network(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")


async def test_a_run_that_was_woken_knows_what_the_session_was_told():
    agent = Agent(ScriptedModel("One.", "Two."))
    session = agent.session("s")
    await session.run("One?")
    await session.configure(instructions="Be brief.")
    await session.follow_up("And two?")
    await session.wake()
    await agreeing(agent)


async def test_what_a_session_was_told_while_a_run_waited_holds_when_it_goes_on():
    @tool(effect="read", asks_first=True)
    async def ask(context: ToolContext) -> str:
        """Ask somebody."""
        CALLED.append("ask")
        return await context.ask("Where?")

    agent = Agent(ScriptedModel(call("ask"), "There."), tools=[ask])
    session = agent.session("s")
    outcome = await session.run("Ask.")
    await session.configure(instructions="Be brief.")
    await session.answer(outcome.questions[0].ask_id, "here")
    assert (await session.resume()).text == "There."
    CALLED.clear()
    replayed = await agreeing(agent)
    assert ([each.text for each in replayed.outcomes], replayed.runs, CALLED) == (["There."], 1, [])


async def test_a_prompt_with_the_origin_of_a_skill_is_a_prompt():
    agent = Agent(ScriptedModel("Hi."))
    await agent.session("s").run(user("Hello.", origin="skill"))
    await agreeing(agent)
