"""Replays of calls that leave more in the log than their results: values, slots, questions, runs of other agents."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from perdure import Agent, Budget, Extension, Limits, Permissions, Status, ToolContext, tool
from perdure.events import (
    QuestionAsked,
    RunEnded,
    RunWaiting,
    SlotOpened,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    ValueKept,
)
from perdure.models import observed
from perdure.people import Showable, SlotLifetime
from perdure.permissions import MemoryVault, Verdict
from perdure.testing import ScriptedModel, call, calls
from perdure.tools import delegation, notebook
from tests.replaying.replays import agreeing, agreeing_wherever_it_is_cut, diverging, with_session

pytestmark = pytest.mark.resumed

DONE: list[str] = []
"""What tools have really done."""


@pytest.fixture(autouse=True)
def _nothing_done():
    DONE.clear()


class Sign(Showable, frozen=True):
    renderer = "sign"
    text: str


@tool(effect="read", asks_first=True)
async def moor(context: ToolContext, times: int = 1) -> str:
    """Moor where somebody says."""
    DONE.append("asked")
    places = [await context.ask(f"Where, {number}?") for number in range(times)]
    await context.begin()
    await context.keep("place", places)
    return f"moored at {' and '.join(places)}"


async def events(agent: Agent):
    return [entry.event for entry in await agent.store.read("s")]


async def count(agent: Agent, kind: type) -> int:
    return len([event for event in await events(agent) if isinstance(event, kind)])


def reminding(*names: str) -> Extension:
    """Words for the end of each request about what is kept and shown: without these, a request is another one."""

    def kept(run):
        return str([run.state.kept.get(name) for name in names if name in run.state.kept]).strip("[]")

    def shown(run):
        return "\n".join([str(each.input) for each in run.state.slots.values()])

    return Extension(name="reminding", reminders=[kept, shown])


# -- what calls keep and show ------------------------------------------------------------------------------------------


async def test_what_tools_keep_is_kept_again_and_reminders_find_it():
    tasks = [{"content": "Splice the rope", "status": "in_progress"}]
    model = ScriptedModel(call("update_tasks", tasks=tasks), "One task.", "Still one.")
    agent = Agent(model, extensions=[notebook(), reminding("tasks")])
    session = agent.session("s")
    await session.run("Plan.")
    await session.run("And?")
    assert await count(agent, ValueKept) == 1
    replayed = await agreeing(agent)
    assert replayed.outcomes[-1].text == "Still one."
    await agreeing_wherever_it_is_cut(agent)


async def test_what_tools_show_is_shown_again():
    @tool(effect="read")
    async def show(context: ToolContext, *, until: SlotLifetime = "closed") -> str:
        """Show a sign."""
        DONE.append("shown")
        slot_id = await context.display.push(Sign("wait"), until=until)
        await context.display.update(slot_id, Sign("go"))
        return "shown"

    shows = calls(call("show"), call("show", until="call"), call("show", until="run"))
    agent = Agent(ScriptedModel(shows, "Shown.", "Gone."), tools=[show], extensions=[reminding()])
    session = agent.session("s")
    await session.run("Show.")
    await session.run("And?")
    DONE.clear()
    replayed = await agreeing(agent)
    assert (replayed.turns, DONE) == (3, [])


async def test_calls_that_ended_in_another_order_leave_the_same_behind():
    first = asyncio.Event()

    @tool(effect="read")
    async def slow(context: ToolContext) -> str:
        """Wait for the other one."""
        await first.wait()
        await context.keep("who", "slow")
        return "late"

    @tool(effect="read")
    async def quick(context: ToolContext) -> str:
        """Go first."""
        await context.keep("who", "quick")
        first.set()
        return "early"

    model = ScriptedModel(calls(call("slow"), call("quick")), "Both.", "Yes.")
    agent = Agent(model, tools=[slow, quick], extensions=[reminding("who")])
    await agent.session("s").run("Go.")
    await agent.session("s").run("Sure?")
    await agreeing(agent)


# -- what calls ask ----------------------------------------------------------------------------------------------------


async def waited(times: int = 1) -> tuple[Agent, list[str]]:
    """An agent whose session `s` waited for answers, and the questions."""
    agent = Agent(ScriptedModel(call("moor", times=times), "Moored.", "Yes."), tools=[moor])
    session = agent.session("s")
    outcome = await session.run("Moor.")
    asked = []
    while outcome.status == "waiting":
        asked.append(outcome.questions[0].text)
        await session.answer(outcome.questions[0].ask_id, "Bergen")
        outcome = await session.resume()
    assert outcome.text == "Moored."
    DONE.clear()
    return agent, asked


@pytest.mark.parametrize("times", [1, 3])
async def test_a_run_that_waited_for_a_tools_question_goes_on_with_the_answer(times):
    agent, asked = await waited(times)
    assert await count(agent, RunWaiting) == len(asked) == times
    await agent.session("s").run("Sure?")
    replayed = await agreeing(agent)
    assert ([outcome.text for outcome in replayed.outcomes], replayed.runs, DONE) == (["Moored.", "Yes."], 2, [])
    await agreeing_wherever_it_is_cut(agent)


async def test_a_question_that_nobody_answered_stays_open():
    agent = Agent(ScriptedModel(call("moor"), "Never mind.", "Well?"), tools=[moor])
    session = agent.session("s")
    assert (await session.run("Moor.")).status == "waiting"
    assert (await agreeing(agent)).outcomes == ()
    await session.run("Forget it.")
    replayed = await agreeing(agent)
    assert [outcome.text for outcome in replayed.outcomes] == ["Never mind."]


async def test_a_run_that_was_cancelled_while_it_waited_is_cancelled_again():
    agent = Agent(ScriptedModel(call("moor"), "Hello."), tools=[moor])
    session = agent.session("s")
    await session.run("Moor.")
    await session.cancel()
    assert (await session.resume()).status == "cancelled"
    await session.run("Hello?")
    replayed = await agreeing(agent)
    assert [outcome.status for outcome in replayed.outcomes] == ["cancelled", "done"]


async def test_a_refusal_is_told_to_the_tool_again():
    agent = Agent(ScriptedModel(call("moor"), "A pity."), tools=[moor])
    session = agent.session("s")
    outcome = await session.run("Moor.")
    await session.display.reject(outcome.questions[0].ask_id, "I do not know")
    await session.resume()
    assert await count(agent, ToolStarted) == 0
    await agreeing(agent)


async def test_a_question_that_is_answered_while_the_tool_waits_is_answered_again():
    @tool
    async def anchor(context: ToolContext) -> str:
        """Drop the anchor where somebody says."""
        asking = asyncio.ensure_future(context.ask("Where?"))
        await asyncio.sleep(0)
        await session.answer((await session.questions())[0].ask_id, "here")
        return await asking

    agent = Agent(ScriptedModel(call("anchor"), "Dropped."), tools=[anchor])
    session = agent.session("s")
    async with asyncio.timeout(30):
        await session.run("Drop it.")
    assert await count(agent, QuestionAsked) == 1
    await agreeing(agent)


async def test_a_tool_that_does_not_ask_first_any_more_differs():
    agent = Agent(ScriptedModel(call("moor"), "A pity."), tools=[moor], interactive=False)
    await agent.session("s").run("Moor.")
    other = tool(_moor_at_once, name="moor", description=moor.description)
    other = other.__class__(**{**_fields(moor), "asks_first": False, "call": other.call})
    divergence = await diverging(agent.replace(tools=[other]))
    assert divergence.what == "the call of 'moor' is made now"


async def _moor_at_once() -> str:
    return "moored"


def _fields(given) -> dict:
    return {name: getattr(given, name) for name in given.__struct_fields__}


# -- other agents ------------------------------------------------------------------------------------------------------


def crew(*replies, **options) -> Agent:
    """An agent with another one as a tool, which looks and answers."""

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        DONE.append("looked")
        return "12 metres"

    pilot = Agent(ScriptedModel(call("look"), "It is deep.", repeat_last=True), name="pilot", tools=[look])
    return Agent(ScriptedModel(*replies), tools=[pilot.as_tool()], **options)


async def test_other_agents_are_not_run_again():
    agent = crew(calls(call("pilot", task="Look."), call("pilot", task="Look again.")), "Deep.", "Yes.")
    session = agent.session("s")
    await session.run("How deep?")
    await session.run("Sure?")
    assert await count(agent, SubagentStarted) == 2
    DONE.clear()
    replayed = await agreeing(agent)
    assert ([outcome.text for outcome in replayed.outcomes], replayed.turns, DONE) == (["Deep.", "Yes."], 3, [])
    await agreeing_wherever_it_is_cut(agent)


async def test_what_other_agents_used_counts_again():
    agent = crew(call("pilot", task="Look."), call("pilot", task="Look."), limits=Limits(token_budget=60))
    outcome = await agent.session("s").run("How deep?")
    assert outcome.reason == "token_budget"
    replayed = await agreeing(agent)
    assert replayed.outcomes[0].usage == outcome.usage


async def test_calls_of_other_agents_count_again():
    tasks = [call("pilot", task=str(number)) for number in range(3)]
    agent = crew(calls(*tasks), "Enough.", limits=Limits(max_tool_calls=2))
    await agent.session("s").run("How deep?")
    await agreeing(agent)


@pytest.mark.parametrize("again", ["resume", "run"])
async def test_a_log_with_other_agents_that_breaks_off_anywhere_agrees_when_it_is_resumed_or_left(again):
    agent = crew(calls(call("pilot", task="Look."), call("pilot", task="Look again.")), "Deep.")
    await agent.session("s").run("How deep?")
    entries = list(await agent.store.read("s"))
    for number in range(3, len(entries)):
        replies = [] if any(_is_reply(entry) for entry in entries[:number]) else [call("pilot", task="Look.")]
        cut = await with_session(agent, entries[:number], model=ScriptedModel(*replies, "Deep.", "Well."))
        session = cut.session("s")
        outcome = await (session.resume() if again == "resume" else session.run("Never mind."))
        assert outcome.status == "done"
        DONE.clear()
        await agreeing(cut)
        assert DONE == []


def _is_reply(entry):
    message = getattr(entry.event, "message", None)
    return not entry.event.path and getattr(message, "role", "") == "assistant"


async def test_an_agent_below_that_waited_for_an_answer_is_served_with_it():
    pilot = Agent(ScriptedModel(call("moor"), "Moored in Bergen."), name="pilot", tools=[moor])
    agent = Agent(ScriptedModel(call("pilot", task="Moor."), "Done."), tools=[pilot.as_tool()])
    session = agent.session("s")
    outcome = await session.run("Moor.")
    assert outcome.status == "waiting"
    await session.answer(outcome.questions[0].ask_id, "Bergen")
    assert (await session.resume()).text == "Done."
    DONE.clear()
    replayed = await agreeing(agent)
    assert ([each.text for each in replayed.outcomes], DONE) == (["Done."], [])
    await agreeing_wherever_it_is_cut(agent)


async def test_a_denial_below_is_no_denial_here():
    def ask(requests):
        return [Verdict(False, "not today") for _ in requests]

    asking = tool(_moor_at_once, name="berth", description="Berth.", permission=True)
    pilot = Agent(ScriptedModel(call("berth"), "I may not."), name="pilot", tools=[asking])
    permission = Permissions(handler=ask)
    agent = Agent(ScriptedModel(call("pilot", task="Berth."), "No."), tools=[pilot.as_tool()], permission=permission)
    await agent.session("s").run("Berth.")
    await agreeing(agent)


async def test_a_cancel_that_ended_other_agents_is_replayed():
    held = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        held.set()
        await asyncio.Event().wait()
        return "never"

    pilot = Agent(ScriptedModel(call("wait")), name="pilot", tools=[wait])
    agent = Agent(ScriptedModel(call("pilot", task="Wait.")), tools=[pilot.as_tool()])
    session = agent.session("s")
    async with asyncio.timeout(30):
        running = asyncio.ensure_future(session.run("Wait."))
        await held.wait()
        await session.cancel()
        assert (await running).status == "cancelled"
    replayed = await agreeing(agent)
    assert replayed.outcomes[0].messages[-1].tool_results[0].status is Status.CANCELLED


async def test_agents_in_the_background_are_not_begun_again():
    pilot = Agent(ScriptedModel("It is deep.", repeat_last=True), name="pilot", description="Looks.")
    given = call("delegate", agent="pilot", task="Look.", background=True)
    other = call("delegate", agent="pilot", task="Look there.", background=True)
    model = ScriptedModel(given, call("wait_for_agents"), other, "Waiting.", "It has come.")
    agent = Agent(model, extensions=[delegation([pilot])])
    session = agent.session("s")
    async with agent, asyncio.timeout(30):
        await session.run("Have somebody look.")
        async for outcome in session.attend(seconds=0.01):
            assert outcome.text == "It has come."
            break
    assert isinstance(pilot.model, ScriptedModel)
    asked = len(pilot.model.requests)
    replayed = await agreeing(agent)
    assert [each.text for each in replayed.outcomes] == ["Waiting.", "It has come."]
    assert len(pilot.model.requests) == asked
    await agreeing_wherever_it_is_cut(agent)


# -- handing over ------------------------------------------------------------------------------------------------------


def desk() -> Agent:
    """An agent that hands over to another one, which hands back."""
    repairs = Agent(
        ScriptedModel("I repair boats.", call("hand_over_to_front_desk"), "Never used."),
        name="repairs",
        instructions="You repair.",
    )
    return Agent(
        ScriptedModel(call("hand_over_to_repairs"), "Welcome back."),
        name="front desk",
        instructions="You greet.",
        handoffs=[repairs],
    )


async def test_a_conversation_is_handed_over_and_back_again():
    agent = desk()
    session = agent.session("s")
    assert (await session.run("My boat leaks.")).text == "I repair boats."
    assert (await session.run("Thanks.")).text == "Welcome back."
    replayed = await agreeing(agent)
    assert [outcome.text for outcome in replayed.outcomes] == ["I repair boats.", "Welcome back."]
    await agreeing_wherever_it_is_cut(agent)


async def test_another_agent_with_other_words_differs_where_it_speaks():
    agent = desk()
    await agent.session("s").run("My boat leaks.")
    other = agent.handoffs[0].replace(instructions="You repair slowly.")
    divergence = await diverging(agent.replace(handoffs=[other]))
    assert divergence.what == "the request of turn 2 is another one: the instructions"


async def test_an_agent_that_is_gone_is_told():
    agent = desk()
    session = agent.session("s")
    await session.run("My boat leaks.")
    await session.run("Thanks.")
    entries = list(await agent.store.read("s"))
    place = next(place for place, entry in enumerate(entries) if isinstance(entry.event, RunEnded))
    gone = await with_session(agent, entries[: place + 1], model=ScriptedModel("Hello."))
    await gone.session("s").run("Hello.")
    assert (await diverging(gone.replace(handoffs=[]))).seq == 3


# -- a shared budget ---------------------------------------------------------------------------------------------------


async def test_a_budget_that_was_used_up_is_not_drawn_on_and_ends_the_run_again():
    ledger = Budget(token_budget=100)
    agent = Agent(ScriptedModel(call("moor"), "Never."), tools=[moor], budget=ledger, interactive=False)
    outcome = await agent.session("s").run("Moor.")
    assert (outcome.status, outcome.reason) == ("limit", "budget")
    spent = ledger.spent_tokens
    await agreeing(agent.replace(budget=Budget(token_budget=10_000)))
    await agreeing(agent)
    assert ledger.spent_tokens == spent


async def test_a_budget_of_one_run_need_not_be_given_again():
    agent = Agent(ScriptedModel("Hello.", "Hello."))
    await agent.session("s").run("Hello.", budget=Budget(token_budget=1_000))
    await agreeing(agent)


# -- code of its own, and a crash --------------------------------------------------------------------------------------


async def test_a_run_with_a_model_of_its_own_that_was_resumed_is_resumed_again():
    agent = Agent(ScriptedModel("Never."), tools=[moor])
    session = agent.session("s")
    model = ScriptedModel(call("moor"), "Moored.")
    outcome = await session.run("Moor.", model=model, deps="harbours")
    await session.answer(outcome.questions[0].ask_id, "Bergen")
    assert (await session.resume(model=model, deps="harbours")).text == "Moored."
    await agreeing(agent)


async def test_what_calls_leave_is_left_where_a_crash_cut_it():
    agent, _ = await waited()
    entries = list(await agent.store.read("s"))
    place = next(place for place, entry in enumerate(entries) if isinstance(entry.event, ToolFinished))
    cut = await with_session(agent, entries[:place], model=ScriptedModel("Moored again."))
    assert (await cut.session("s").resume()).text == "Moored again."
    assert await count(cut, SlotOpened) == 0
    DONE.clear()
    await agreeing(cut)
    assert DONE == []


# -- what reaches outside ----------------------------------------------------------------------------------------------


async def test_what_extensions_open_stays_closed_and_nobody_is_told():
    @asynccontextmanager
    async def open_it(_agent):
        DONE.append("opened")
        yield

    async def watch(_entry):
        DONE.append("told")

    def wrapped(model):
        return observed(model, lambda _request, _event: DONE.append("heard"))

    extension = Extension(name="outside", lifespan=open_it, watchers=[watch], wrap_model=wrapped)
    agent = Agent(ScriptedModel("Hello."), extensions=[extension], watchers=[watch])
    await agent.session("s").run("Hello.")
    assert set(DONE) == {"opened", "told", "heard"}
    DONE.clear()
    await agreeing(agent)
    assert DONE == []


async def test_no_vault_is_opened():
    class Vault(MemoryVault):
        def resolve(self, name):
            DONE.append("resolved")
            return super().resolve(name)

    @tool(effect="read")
    async def log_in(password: str) -> str:
        """Log in."""
        return f"used {password}"

    model = ScriptedModel(call("log_in", password="{{harbour}}"), "In.", "Still in.")
    agent = Agent(model, tools=[log_in], vault=Vault({"harbour": "correct horse battery"}))
    session = agent.session("s")
    await session.run("Log in.")
    await session.run("And?")
    assert DONE == ["resolved"] * 2  # to be known, and to be used
    replayed = await agreeing(agent)
    assert replayed.outcomes[0].messages[2].tool_results[0].text == "used {{harbour}}"
    assert DONE == ["resolved"] * 2
