"""From what a person typed to what the model is told, in a session."""

from typing import Any

import pytest

from perdure import Agent, CommandContext, ConfigError, ToolContext, UsageError, tool
from perdure.context import Command, CommandFailed, Compaction, MentionSettings, Rewrite, ShortCircuit, Skill, Skills
from perdure.events import HookInvoked, MessageAdded, ModelRequested, SkillLoaded
from perdure.testing import ScriptedModel, call

pytestmark = pytest.mark.resumed

BRIEF = Skill(name="brief", description="How to brief.", body="Be brief.")


async def test_hooks_skills_and_files_reach_the_model_in_order_and_what_was_typed_is_kept(tmp_path):
    (tmp_path / "log.txt").write_text("calm", encoding="utf-8")
    model = ScriptedModel("Aye.")
    agent = Agent(
        model,
        skills=Skills([BRIEF]),
        commands=[Command("loud", lambda context: Rewrite(context.text.replace("read", "READ")))],
        mentions=MentionSettings(tmp_path),
        store=f"sqlite:{tmp_path / 'sessions.db'}",
    )
    stream = agent.session("ship").stream("/loud\n/brief now\nread @log.txt and @missing")
    kinds = (HookInvoked, SkillLoaded, MessageAdded, ModelRequested)
    events = [event async for event in stream if isinstance(event, kinds)]
    assert {type(event) for event in events} == set(kinds)
    skill, message = model.requests[0].messages
    assert (skill.origin, skill.text) == ("skill", "Be brief.\n\nArguments:\nnow")
    assert message.text.startswith("[/loud]\n[/brief] now\nREAD @log.txt and @missing\n\n[Files")
    assert "--- @log.txt ---\ncalm\n" in message.text
    await agent.store.aclose()

    async with Agent("demo", store=f"sqlite:{tmp_path / 'sessions.db'}") as later:
        kept = (await later.session("ship").messages())[1]
    assert kept.original_text == "/loud\n/brief now\nread @log.txt and @missing"
    assert kept.metadata == {"not_attached": ["@missing is not attached: there is no such file"]}


async def test_a_hook_that_answers_keeps_the_model_out_of_it_and_the_next_run_goes_on():
    model = ScriptedModel("Two messages were before this.")
    session = Agent(model, commands=[Command("ping", lambda _: ShortCircuit("pong"))]).session()
    outcome = await session.run("/ping")
    assert (outcome.status, outcome.text, model.requests) == ("done", "pong", [])
    assert [(each.role, each.text, each.origin) for each in await session.messages()] == [
        ("user", "[/ping]", ""), ("assistant", "pong", "hook"),
    ]  # fmt: skip
    await session.run("What was before this?")
    assert [each.text for each in model.requests[0].messages] == ["[/ping]", "pong", "What was before this?"]


async def test_a_hook_can_do_with_the_session_what_a_caller_can():
    async def calm(context: CommandContext) -> None:
        await context.controls.configure(instructions="Speak calmly.")
        await context.controls.rename("Calm")
        await context.controls.steer("And slowly.")

    model = ScriptedModel("Aye.")
    session = Agent(model, instructions="Speak.", commands=[Command("calm", calm)]).session()
    await session.run("/calm please")
    assert model.requests[0].instructions == "Speak calmly."
    assert "And slowly." in [each.text for each in model.requests[0].messages]
    info = await session.info()
    assert info is not None
    assert info.title == "Calm"


async def test_a_hook_that_fails_leaves_nothing_behind():
    def fail(context: CommandContext) -> None:
        raise OSError("no wind")

    model = ScriptedModel("Aye.")
    session = Agent(model, commands=[Command("sail", fail)]).session()
    with pytest.raises(CommandFailed, match="/sail failed, and the message was not sent: OSError: no wind"):
        await session.run("/sail")
    assert await session.info() is None
    assert (await session.run("Without it.")).text == "Aye."


async def test_a_prompt_that_was_answered_before_calls_no_hook_again():
    called: list[CommandContext] = []
    session = Agent(ScriptedModel("Aye."), commands=[Command("note", called.append)]).session()
    first = await session.run("/note", input_id="one")
    again = await session.run("/note", input_id="one")
    assert (first.text, again.text, len(called)) == ("Aye.", "Aye.", 1)


@tool(effect="read")
async def draw() -> str:
    """Draws."""
    return "drawn"


@pytest.mark.parametrize("by_name", [True, False])
async def test_the_tools_of_a_skill_are_there_in_the_very_run_that_loads_it(by_name):
    model = ScriptedModel(call("draw"), "Drawn.", "Again.")
    skills = Skills([Skill(name="ropework", description="Knots.", body="Tie.", tools=(draw,))])
    session = Agent(model, skills=skills).session("s")
    outcome = await (session.run("/ropework now") if by_name else session.skill("ropework", "now"))
    assert outcome.messages[-2].tool_results[0].text == "drawn"
    await session.skill("ropework", "again")
    names = ["skill", "skill_resource", "draw"]
    assert [[each.name for each in request.tools] for request in model.requests] == [names] * 3


async def test_a_skill_that_is_sent_again_under_its_input_id_is_answered_once():
    model = ScriptedModel("Tied.", "Again.")
    session = Agent(model, skills=Skills([Skill(name="ropework", description="Knots.", body="Tie.")])).session("s")
    outcomes = [await session.skill("ropework", "now", input_id=each) for each in ("a", "a", "b")]
    assert [each.text for each in outcomes] == ["Tied.", "Tied.", "Again."]


async def test_a_tool_of_a_skill_that_has_the_name_of_another_is_left_out_in_every_run():
    @tool(effect="read", name="draw")
    async def other() -> str:
        """Draws something else."""
        return "something else"

    model = ScriptedModel(call("draw"), "Drawn.", call("draw"), "Drawn.")
    skills = [Skill(name=name, description="Knots.", body="Tie.", tools=(draw,)) for name in ("one", "two")]
    session = Agent(model, tools=[other], skills=Skills(skills)).session("s")
    for name in ("one", "two"):
        outcome = await session.skill(name)
        assert outcome.messages[-2].tool_results[0].text == "something else"


async def test_hooks_skills_and_compaction_are_those_of_whoever_speaks():
    model = ScriptedModel("Billing.", repeat_last=True)
    billing = Agent(
        model,
        name="billing",
        skills=Skills([BRIEF]),
        commands=[Command("loud", lambda context: Rewrite(context.text.upper()))],
        compaction=Compaction(),
    )
    desk = Agent(ScriptedModel(call("hand_over_to_billing")), name="desk", handoffs=[billing])
    session = desk.session("s")
    with pytest.raises(UsageError, match="no compaction"):
        await session.compact()
    with pytest.raises(UsageError, match="no skills"):
        await session.skill("brief")
    await session.run("Go")
    await session.run("/loud now")
    assert model.requests[-1].messages[-1].text.endswith("NOW")
    await session.run("/brief now")
    assert model.requests[-1].messages[-2].text.startswith("Be brief.")
    await session.skill("brief")
    assert model.requests[-1].messages[-1].text == "Be brief."
    assert await session.compact()


# -- skills with a handler ---------------------------------------------------------------------------------------------


async def test_a_skill_with_a_handler_is_used_by_code_by_users_and_by_the_model():
    asked: list[Any] = []

    def knots(arguments: Any) -> str:
        asked.append(arguments)
        return f"Text {len(asked)}."

    skills = Skills([Skill(name="knots", description="Knots.", handler=knots)])
    load = call("skill", name="knots", arguments="c")
    model = ScriptedModel("1", "2", load, load, "3")
    session = Agent(model, skills=skills).session("s")
    await session.skill("knots", {"a": 1})
    await session.run("Please use /knots b")
    outcome = await session.run("Go.")
    assert asked == [{"a": 1}, "b", "c", "c"]  # the model may ask again: the text may be another one
    said = [message.text for message in await session.messages() if message.origin == "skill"]
    assert said == ["Text 1.", "Text 2."]
    assert "Text 3." in (outcome.tool_calls[0].result.text if outcome.tool_calls[0].result else "")


async def test_a_handler_that_fails_sends_nothing():
    def knots(_arguments: Any) -> str:
        raise RuntimeError("no rope")

    skills = Skills([Skill(name="knots", description="Knots.", handler=knots)])
    model = ScriptedModel(call("skill", name="knots"), "Sorry.")
    session = Agent(model, skills=skills).session("s")
    with pytest.raises(CommandFailed, match="and the message was not sent: RuntimeError: no rope"):
        await session.run("/knots")
    with pytest.raises(RuntimeError, match="no rope"):
        await session.skill("knots")
    assert await session.info() is None
    outcome = await session.run("Go.")
    assert outcome.tool_calls[0].result is not None
    assert "no rope" in outcome.tool_calls[0].result.text


@pytest.mark.parametrize("skills", [None, Skills([BRIEF])], ids=["no skills", "another skill"])
@pytest.mark.parametrize("typed", ["/etc/hosts is empty", "/other now"])
async def test_a_name_that_is_neither_a_command_nor_a_skill_is_sent_as_it_was_typed(skills, typed):
    model = ScriptedModel("Aye.")
    agent = Agent(model, skills=skills, commands=[Command("ping", lambda _: ShortCircuit("pong"))])
    outcome = await agent.session("s").run(typed)
    assert (outcome.text, [each.text for each in model.requests[0].messages]) == ("Aye.", [typed])
    assert outcome.new_messages[0].original_text == ""


async def test_a_command_that_answers_needs_no_deps_of_tools():
    @tool
    async def look(context: ToolContext[Shop]) -> str:
        """Looks."""
        return context.deps.name

    agent = Agent(ScriptedModel(), tools=[look], commands=[Command("ping", lambda _: ShortCircuit("pong"))])
    assert (await agent.session("s").run("/ping")).text == "pong"
    with pytest.raises(ConfigError, match=r"tool 'look' needs deps \(Shop\)"):
        await agent.session("s").run("Go")


class Shop:
    """What a tool needs."""

    name = "corner shop"
