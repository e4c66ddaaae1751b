"""Replays of conversations that were summed up, or sent shorter than they are."""

import pytest

from perdure import Agent, ContextOverflow, Extension, Permissions, ToolContext, ToolOutput, Usage, tool, user
from perdure.context import Compaction
from perdure.events import Compacted, CompactionStarted, ReplyDiscarded, RunEnded, ValueKept, ViewChanged
from perdure.permissions import Verdict
from perdure.testing import Reply, ScriptedModel, call
from perdure.tools import short_results
from tests.context.conversation import SNAPSHOT, model_of
from tests.replaying.replays import agreeing, agreeing_wherever_it_is_cut, diverging, with_session

pytestmark = pytest.mark.resumed

LONG = "There is much to be told about it. " * 60
DONE: list[str] = []
"""What tools have really done."""


@pytest.fixture(autouse=True)
def _nothing_done():
    DONE.clear()


@tool(effect="read")
async def look(place: str) -> str:
    """Look at a place."""
    DONE.append(place)
    return LONG


@tool(effect="read")
async def glance(place: str) -> str:
    """Look at a place."""
    return "seen"


def summing_up(**options) -> Compaction:
    return Compaction(model=ScriptedModel(Reply(SNAPSHOT, usage=Usage(100, 20)), repeat_last=True), **options)


async def events(agent: Agent):
    return [entry.event for entry in await agent.store.read("s")]


async def kinds(agent: Agent) -> list[str]:
    return [type(event).__name__ for event in await events(agent)]


async def looked_around(compaction: Compaction, turns: int = 4, **options) -> Agent:
    """An agent whose session `s` was summed up while it looked around."""
    places = [call("look", place=str(number)) for number in range(turns)]
    agent = Agent(ScriptedModel(*places, "Seen."), tools=[look], compaction=compaction, **options)
    assert (await agent.session("s").run("Look around.")).status == "done"
    DONE.clear()
    return agent


# -- summaries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"at_messages": 5}, {"at_tokens": 2_200}, {"at_turns": 2}])
async def test_a_summary_comes_from_the_record_at_the_same_place(limits):
    agent = await looked_around(summing_up(**limits), turns=6)
    compaction = agent.compaction
    assert compaction is not None
    assert [event for event in await events(agent) if isinstance(event, Compacted)]
    assert isinstance(compaction.model, ScriptedModel)
    asked = len(compaction.model.requests)
    replayed = await agreeing(agent)
    assert (replayed.turns, DONE, len(compaction.model.requests)) == (7, [], asked)


async def test_when_it_is_due_is_not_compared():
    agent = await looked_around(summing_up(at_messages=5))
    await agreeing(agent.replace(compaction=summing_up(at_messages=9)))


async def test_a_log_that_breaks_off_anywhere_around_a_summary_agrees():
    await agreeing_wherever_it_is_cut(await looked_around(summing_up(at_messages=5)))


async def test_an_agent_that_does_not_sum_up_any_more_differs_where_it_did():
    agent = await looked_around(summing_up(at_messages=5))
    divergence = await diverging(agent.replace(compaction=None))
    assert (divergence.about, divergence.what) == ("view", "the conversation is not summed up here any more")
    assert divergence.recorded == "the conversation is summed up (messages)"
    assert divergence.now == "request of turn 3, of 5 messages"


async def test_a_summary_that_came_to_nothing_comes_to_nothing_again():
    model = ScriptedModel(*[call("glance", place=str(number)) for number in range(3)], "Seen.")
    agent = Agent(model, tools=[glance], compaction=summing_up(at_messages=4))
    await agent.session("s").run("Look around.")
    discarded = [event for event in await events(agent) if isinstance(event, ReplyDiscarded)]
    assert {event.reason for event in discarded} == {"compaction"}
    await agreeing(agent)
    await agreeing_wherever_it_is_cut(agent)


async def test_a_summary_before_the_calls_of_a_reply_is_made_before_them_again():
    agent = await looked_around(summing_up(at_tokens=1_500), turns=6)
    told = await events(agent)
    causes = [event.cause for event in told if isinstance(event, CompactionStarted)]
    assert set(causes) == {"before_tools"}
    await agreeing(agent)


async def test_a_compaction_that_an_extension_brings_is_served_too():
    extension = Extension(name="brief", between_turns=[summing_up(at_messages=5)])
    model = ScriptedModel(*[call("look", place=str(number)) for number in range(4)], "Seen.")
    agent = Agent(model, tools=[look], extensions=[extension])
    await agent.session("s").run("Look around.")
    assert "Compacted" in await kinds(agent)
    DONE.clear()
    await agreeing(agent)
    assert DONE == []


@pytest.mark.parametrize("helps", [True, False])
async def test_a_request_that_was_too_long_is_too_long_again(helps):
    replies = [call("look", place="a"), ContextOverflow("too long"), "Seen." if helps else ContextOverflow("too long")]
    model = model_of(*replies, window=100_000)
    agent = Agent(model, tools=[look], compaction=summing_up())
    outcome = await agent.session("s").run("Look.")
    assert outcome.status == ("done" if helps else "failed")
    names = await kinds(agent)
    place = names.index("CompactionStarted")
    assert names[place - 1 : place + 4] == [
        "ModelRequested",
        "CompactionStarted",
        "Compacted",
        "ViewChanged",
        "ModelRequested",
    ]
    DONE.clear()
    replayed = await agreeing(agent)
    assert (replayed.outcomes[0].status, replayed.turns) == (outcome.status, 3)
    assert DONE == []
    await agreeing_wherever_it_is_cut(agent)


async def test_a_request_that_was_too_long_and_could_not_be_made_shorter_fails_again():
    agent = Agent(ScriptedModel(ContextOverflow("too long")), compaction=summing_up())
    assert (await agent.session("s").run("Look.")).reason == "ContextOverflow"
    replayed = await agreeing(agent)
    assert str(replayed.outcomes[0].error) == "too long"


async def test_a_summary_that_somebody_had_made_between_two_runs_is_there_again():
    agent = Agent(ScriptedModel("One.", "Two.", "Three.", repeat_last=True), compaction=summing_up())
    session = agent.session("s")
    for number in range(3):
        await session.run(f"{number}: {LONG}")
    assert await session.compact()
    await session.run("And now?")
    replayed = await agreeing(agent)
    assert (replayed.runs, replayed.turns) == (4, 4)
    await agreeing(agent.replace(compaction=None))


async def test_a_summary_by_the_agents_own_tool_is_not_asked_for_again():
    compaction = summing_up(keep_recent_messages=0)
    model = ScriptedModel(call("look", place="a"), call("compact_conversation"), "Summed up.", "Yes.")
    agent = Agent(model, tools=[look, compaction.build_compact_tool()], compaction=compaction)
    session = agent.session("s")
    await session.run("Look.")
    await session.run("Sure?")
    names = await kinds(agent)
    place = names.index("CompactionStarted")
    assert names[place - 1 : place + 4] == [
        "ToolStarted",
        "CompactionStarted",
        "Compacted",
        "ViewChanged",
        "ToolFinished",
    ]
    await agreeing(agent)
    await agreeing_wherever_it_is_cut(agent)


# -- short forms -------------------------------------------------------------------------------------------------------


async def shortened() -> Agent:
    @tool(effect="read")
    async def tell() -> ToolOutput:
        """Tell a lot."""
        return ToolOutput(LONG, summary="much")

    agent = Agent(
        ScriptedModel(call("tell"), "Told.", "Again."),
        tools=[tell],
        extensions=[short_results(min_tokens=10, min_fraction=0.0)],
    )
    session = agent.session("s")
    await session.run("Tell.")
    await session.run("And?")
    assert [event.cause for event in await events(agent) if isinstance(event, ViewChanged)] == ["summaries"]
    return agent


async def test_older_results_are_sent_in_their_short_form_again():
    agent = await shortened()
    await agreeing(agent)
    await agreeing(agent.replace(extensions=[short_results(min_tokens=100_000)]))


async def test_an_agent_that_sends_older_results_whole_differs():
    agent = await shortened()
    divergence = await diverging(agent.replace(extensions=[]))
    assert (divergence.about, divergence.what) == ("view", "older results are not sent in their short form any more")
    assert divergence.recorded == "results in the first 4 messages are sent in their short form"


async def test_other_words_about_the_view_are_not_compared():
    agent = Agent(ScriptedModel("One.", "Two."))
    session = agent.session("s")
    await session.run("One?")
    await session.run("Two?", instructions="Be brief.")
    entries = list(await agent.store.read("s"))
    place = next(place for place, entry in enumerate(entries) if isinstance(entry.event, ViewChanged))
    without = [*entries[:place], *entries[place + 1 :]]
    renumbered = [type(entry)(number, entry.at, entry.event, entry.id) for number, entry in enumerate(without, 1)]
    await agreeing(agent)
    await agreeing(await with_session(agent, renumbered))


# -- upkeep of somebody's own ------------------------------------------------------------------------------------------


async def test_upkeep_of_somebodys_own_runs_again():
    async def count(run):
        run.instructions = f"{len(run.state.messages)} messages."
        if run.state.kept_values.get("counted") != len(run.state.messages):
            await run.emit(run.stamp_event(ValueKept("counted", len(run.state.messages))))

    agent = Agent(ScriptedModel(call("look", place="a"), "Seen."), tools=[look])
    agent = agent.replace(extensions=[Extension(name="count", between_turns=[count])])
    await agent.session("s").run("Look.")
    await agreeing(agent)


# -- what people did meanwhile -----------------------------------------------------------------------------------------


async def test_a_permission_that_was_taken_back_is_taken_back_again():
    @tool(effect="read")
    async def revoke() -> str:
        """Let somebody take back what was allowed."""
        for grant in await session.grants():
            await session.revoke(grant.grant_id)
        return "taken back"

    asked: list[str] = []

    def ask(requests):
        asked.extend([each.tool for each in requests])
        return [Verdict(True, scope="session") for _ in requests]

    moor = tool(_moor, name="moor", permission=True)
    moored, taken_back = call("moor"), call("revoke")
    model = ScriptedModel(moored, moored, taken_back, moored, "Moored.", moored, "Moored again.")
    agent = Agent(model, tools=[moor, revoke], permission=Permissions(handler=ask))
    session = agent.session("s")
    await session.run("Moor.")
    assert asked == ["moor", "moor"]
    await session.revoke((await session.grants())[0].grant_id)
    await session.run("Again.")
    assert asked == ["moor", "moor", "moor"]
    assert (await kinds(agent)).count("GrantRevoked") == 2
    await agreeing(agent)
    assert asked == ["moor", "moor", "moor"]


async def _moor() -> str:
    """Moor the boat."""
    return "moored"


async def test_a_slot_that_somebody_closed_is_closed_again():
    from perdure.people import Showable

    class Sign(Showable, frozen=True):
        renderer = "sign"
        text: str

    @tool(effect="read")
    async def show(context: ToolContext) -> str:
        """Show a sign, which somebody closes."""
        slot_id = await context.display.push(Sign("closed"))
        await session.display.remove(slot_id, "seen")
        return "shown"

    def remind(run):
        return "\n".join([each.input["text"] for each in run.state.slots.values()])

    model = ScriptedModel(call("show"), "Shown.", "Yes.")
    agent = Agent(model, tools=[show], extensions=[Extension(name="signs", reminders=[remind])])
    session = agent.session("s")
    await session.run("Show.")
    await session.run("Sure?")
    assert "SlotClosed" in await kinds(agent)
    await agreeing(agent)


async def test_a_prompt_of_a_summary_is_no_summary():
    agent = Agent(ScriptedModel("Hi."), compaction=summing_up())
    await agent.session("s").run(user("Hello.", origin="compaction"))
    assert isinstance((await events(agent))[-1], RunEnded)
    await agreeing(agent)
