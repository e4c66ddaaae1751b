"""What is done with kept sessions beside talking: inbox, forks, titles, redaction, search."""

import asyncio
from typing import Any, cast

import pytest

from perdure import (
    Agent,
    Budget,
    ConfigError,
    Extension,
    Permissions,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    Settings,
    ToolCall,
    ToolContext,
    ToolResult,
    UsageError,
    assistant,
    tool,
    user,
)
from perdure._core.log.codec import encode_event
from perdure._core.log.redaction import NO_SUMMARY
from perdure._runtime.session import stored
from perdure._testing.store_contract.setup import store_session
from perdure._tools.tasks.task_list import StatedTask
from perdure.context import Compaction, Role
from perdure.events import (
    InboxAdded,
    InboxResolved,
    MessageAdded,
    ModelRequested,
    RunEnded,
    RunStarted,
    ToolFinished,
)
from perdure.models import Price, Request
from perdure.permissions import later
from perdure.stores import Hit, MemoryStore, UnsupportedByStore
from perdure.testing import FakeClock, ScriptedModel, call, calls
from perdure.tools import Task, task_tools
from tests.doubles import SECONDS, Held, crashed, log_of, of
from tests.transcript import assert_valid


@tool
async def order(what: str, context: ToolContext[None]) -> str:
    """Order something."""
    return await context.add_to_inbox("delivery", what, blocking=True, wake=True)


@tool
async def note(what: str, context: ToolContext[None]) -> str:
    """Ask for something that can wait."""
    return await context.add_to_inbox("note", what)


def agent(*replies, store=None, **options):
    return Agent(ScriptedModel(*replies), tools=[order, note], store=store or MemoryStore(), **options)


# -- the inbox ---------------------------------------------------------------------------------------------------------


async def test_an_item_is_pending_then_resolved_then_consumed():
    session = agent(call("order", what="bread"), "Ordered.", "It has come.").session("s")
    await session.run("Order bread")
    (item,) = await session.inbox()
    assert (item.status, item.tag, item.request, item.blocking, item.wake) == (
        "pending",
        "delivery",
        "bread",
        True,
        True,
    )
    assert await session.resolve(item.item_id, {"loaves": 2})
    (item,) = await session.inbox()
    assert (item.status, item.response) == ("resolved", {"loaves": 2})
    await session.steer("Quick!")  # another post, which is no answer
    outcome = await session.run("And?")
    told = [each for each in outcome.messages if each.origin == "inbox"]
    assert [each.text for each in told] == [
        '[Inbox: 1 resolved]\n- [delivery] Request: bread -> Response: {"loaves":2}'
    ]
    (item,) = await session.inbox()
    assert (item.status, item.response) == ("consumed", {"loaves": 2})
    assert_valid(outcome.messages)
    assert await session.store.posts("s") == []


async def test_an_item_is_answered_once_also_by_several_processes():
    store = MemoryStore()
    await agent(call("order", what="bread"), "Ordered.", store=store).session("s").run("Order bread")
    sessions = [agent(store=store).session("s") for _ in range(3)]
    (item,) = await sessions[0].inbox()
    answered = await asyncio.gather(*[each.resolve(item.item_id, "here") for each in sessions])
    assert sorted(answered) == [False, False, True]
    outcome = await agent("Thanks.", store=store).session("s").run("And?")
    assert len([each for each in outcome.messages if each.origin == "inbox"]) == 1
    assert not await sessions[0].resolve(item.item_id, "again")
    assert len(of(await log_of(store, "s"), InboxResolved)) == 1


async def test_what_tells_the_model_is_what_takes_the_answer():
    session = agent(call("order", what="bread"), "Ordered.", "Thanks.").session("s")
    await session.run("Order bread")
    (item,) = await session.inbox()
    await session.resolve(item.item_id, "here")
    await session.run("And?")
    entries = await session.store.read("s")
    (taken,) = [entry for entry in entries if isinstance(entry.event, InboxResolved)]
    told = entries[taken.seq].event
    assert taken.id == f"inbox-{item.item_id}"
    assert isinstance(told, MessageAdded)
    assert told.message.origin == "inbox"


async def test_while_something_blocks_the_model_is_reminded_and_the_reminder_is_not_kept():
    model_agent = agent(call("order", what="bread"), "Ordered.")
    session = model_agent.session("s")
    outcome = await session.run("Order bread")
    last = model_agent.model.requests[-1].messages
    assert "still waiting" in last[-1].text
    assert "bread" in last[-1].text
    assert [each.origin for each in outcome.messages] == ["", "", "", ""]


async def test_what_does_not_block_is_no_reminder():
    model_agent = agent(call("note", what="a pen"), "Noted.")
    await model_agent.session("s").run("A pen")
    assert "still waiting" not in model_agent.model.requests[-1].messages[-1].text


async def test_an_answer_wakes_the_session():
    session = agent(call("order", what="bread"), "Ordered.", "It has come.").session("s")
    await session.run("Order bread")
    assert await session.wake() is None
    (item,) = await session.inbox()
    await session.resolve(item.item_id, "here")
    outcome = await session.wake()
    assert outcome is not None
    assert (outcome.status, outcome.text) == ("done", "It has come.")
    assert_valid(outcome.messages)
    assert await session.wake() is None


async def test_a_follow_up_wakes_the_session_too():
    session = agent("Hello.", "Two.").session("s")
    await session.run("Hi")
    await session.follow_up("1 + 1?")
    outcome = await session.wake()
    assert outcome is not None
    assert [each.text for each in outcome.new_messages] == ["1 + 1?", "Two."]


async def test_whoever_attends_a_session_sees_it_go_on_by_itself():
    clock = FakeClock()
    session = agent(call("order", what="bread"), call("note", what="ink"), "Ordered.", "Come.", clock=clock).session(
        "s"
    )
    await session.run("Order bread")
    heard = []

    async def attend():
        async for outcome in session.attend():
            heard.append(outcome.text)  # noqa: PERF401 - looked at before it ends, which it never does

    attending = asyncio.ensure_future(attend())
    async with asyncio.timeout(SECONDS):
        await clock.wait_for_sleepers()
        first, second = await session.inbox()
        await session.resolve(second.item_id, "ink is here")
        await clock.advance(1)
        assert heard == []  # it was not said to wake anybody
        await session.resolve(first.item_id, "bread is here")
        await clock.advance(1)
        assert heard == ["Come."]
    attending.cancel()
    await asyncio.wait((attending,))


async def test_whoever_attends_a_session_waits_while_somebody_else_drives_it():
    store, clock = MemoryStore(), FakeClock()
    driving = agent("Hello.", store=store).session("s")
    await driving.run("Hi")
    heard = []

    async def attend():
        async for outcome in agent("And then.", store=store, clock=clock).session("s").attend():
            heard.append(outcome.text)  # noqa: PERF401 - looked at before it ends, which it never does

    lease = await store.acquire("s")
    await driving.follow_up("And then?")
    attending = asyncio.ensure_future(attend())
    async with asyncio.timeout(SECONDS):
        await clock.wait_for_sleepers()
        assert heard == []
        await store.release(lease)
        await clock.advance(1)
    assert heard == ["And then."]
    attending.cancel()
    await asyncio.wait((attending,))


@pytest.mark.parametrize("seconds", [-1, "soon", None])
async def test_a_session_is_attended_at_intervals(seconds):
    with pytest.raises(ConfigError, match="seconds"):
        await anext(agent().session("s").attend(seconds=seconds))


async def test_an_item_that_was_never_asked_for_cannot_be_resolved():
    session = agent("Hello.").session("s")
    await session.run("Hi")
    with pytest.raises(UsageError, match="no item 'i9' in its inbox"):
        await session.resolve("i9", "here")


@pytest.mark.parametrize("given", [("", "x"), (5, "x"), ("tag", 5)])
async def test_an_item_without_a_proper_tag_or_request_is_refused(given):
    errors = []

    @tool
    async def ask_for(context: ToolContext[None]) -> str:
        """Ask."""
        try:
            return await context.add_to_inbox(*given)
        except ConfigError as error:
            errors.append(str(error))
            return "refused"

    store = MemoryStore()
    await Agent(ScriptedModel(call("ask_for"), "Hm."), tools=[ask_for], store=store).session("s").run("Go")
    assert "add_to_inbox" in errors[0]
    assert not of(await log_of(store, "s"), InboxAdded)


# -- forks -------------------------------------------------------------------------------------------------------------


async def test_a_fork_goes_its_own_way_from_any_point():
    store = MemoryStore()
    session = agent("One.", "Two.", "Another two.", store=store).session("s")
    await session.run("1?")
    there = len(await store.read("s"))
    await session.run("2?")
    fork = await session.fork("f", at=there)
    outcome = await fork.run("2!")
    assert [each.text for each in outcome.messages] == ["1?", "One.", "2!", "Another two."]
    assert [each.text for each in await session.messages()] == ["1?", "One.", "2?", "Two."]
    assert [each.session_id for each in await fork.lineage()] == ["s", "f"]
    assert [(each.session_id, each.at) for each in await session.forks()] == [("f", there)]


async def test_a_fork_inside_a_run_can_be_gone_on_with():
    store, held = MemoryStore(), Held()
    first = Agent(ScriptedModel(call("held"), "Done."), tools=[held.tool], store=store).session("s")
    going = asyncio.ensure_future(first.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        fork = await Agent(ScriptedModel("I wait no longer."), store=store).session("s").fork()
        outcome = await fork.run("Go on")
        assert_valid(outcome.messages)
        assert "may or may not" in outcome.messages[2].tool_results[0].text
        held.released.set()
        assert (await going).status == "done"


async def test_a_fork_has_a_name_of_its_own():
    session = agent("Hello.").session("s")
    with pytest.raises(SessionNotFound):
        await session.fork("f")
    await session.run("Hi")
    with pytest.raises(SessionExists):
        await session.fork("s")
    assert (await session.fork()).session_id != "s"
    with pytest.raises(ConfigError) as caught:
        await session.fork(5)
    assert str(caught.value) == "session.fork(session_id=5): give text"
    assert len(await session.store.list()) == 2


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5])
async def test_every_session_of_a_store_is_listed_once_however_many_fit_on_a_page(monkeypatch, count):
    monkeypatch.setattr(stored, "_PAGE_SIZE", 2)
    store = MemoryStore()
    for number in range(count):
        await crashed(store, f"a{number}", RunStarted(run_id="r1"))
    await crashed(store, "b", RunStarted(run_id="r1"))
    found = [each.session_id async for each in stored.iterate_sessions(store, prefix="a")]
    assert sorted(found) == [f"a{number}" for number in range(count)]
    assert len([each async for each in stored.iterate_sessions(store)]) == count + 1


# -- titles, redaction, deletion ---------------------------------------------------------------------------------------


async def test_a_session_can_be_given_a_title():
    session = agent("Hello.").session("s")
    assert await session.info() is None
    with pytest.raises(SessionNotFound):
        await session.rename("Greetings")
    await session.run("Hi")
    await session.rename("Greetings")
    info = await session.info()
    assert info is not None
    assert info.title == "Greetings"
    assert (await session.messages())[0].text == "Hi"


async def test_redacting_takes_the_words_and_leaves_a_conversation_that_goes_on():
    session = agent("I forget it.", "Yes?").session("s")
    await session.run("My code is 0000")
    place = next(entry.seq for entry in await session.store.read("s") if isinstance(entry.event, MessageAdded))
    await session.redact(place)
    outcome = await session.run("Well?")
    assert [each.text for each in outcome.messages] == ["[redacted]", "I forget it.", "Well?", "Yes?"]
    with pytest.raises(UsageError, match="has no entry 99"):
        await session.redact(99)


async def test_redacting_takes_the_words_out_of_the_summaries_that_were_made_of_them():
    def say(request: Request) -> str:
        return "Noted. " * 100 if request.instructions == "Talk." else "The code is 0000."

    talker = Agent(
        ScriptedModel(say, repeat_last=True), instructions="Talk.", compaction=Compaction(keep_recent_tokens=50)
    )
    session = talker.session("s")
    await session.run("My code is 0000")
    for number in range(1, 4):
        await session.run(f"More {number}")
    assert await session.compact()
    place = next(entry.seq for entry in await session.store.read("s") if isinstance(entry.event, MessageAdded))
    await session.redact(place)
    assert [entry for entry in await session.store.read("s") if b"0000" in encode_event(entry.event)] == []
    model = ScriptedModel("Yes?")
    outcome = await session.run("Well?", model=model)
    assert (outcome.text, model.requests[0].messages[0].text) == ("Yes?", NO_SUMMARY)
    assert_valid(outcome.messages)


async def test_nothing_is_redacted_while_the_session_is_driven():
    held = Held()
    session = Agent(ScriptedModel(call("held"), "Done."), tools=[held.tool]).session("s")
    going = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        with pytest.raises(SessionBusy):
            await session.redact(1)
        held.released.set()
        await going


async def test_a_session_can_be_deleted():
    session = agent("Hello.").session("s")
    await session.run("Hi")
    await session.delete()
    assert (await session.info(), list(await session.messages())) == (None, [])


# -- search ------------------------------------------------------------------------------------------------------------


async def test_a_store_that_cannot_search_says_so():
    with pytest.raises(UnsupportedByStore, match="MemoryStore cannot be searched"):
        await agent().search("bread")
    with pytest.raises(UnsupportedByStore, match="sqlite:PATH"):
        await agent().session("s").search("bread")


async def test_an_agent_searches_all_sessions_and_a_session_itself():
    asked = []

    class Searched(MemoryStore):
        async def search(self, query, **narrowed):
            asked.append((query, narrowed))
            return [Hit("s", 1, "user", "«bread»", 1.0, 0.0)]

    store = Searched()
    assert (await agent(store=store).search("bread", limit=5))[0].snippet == "«bread»"
    await agent(store=store).session("s").search("bread", role="user")
    assert asked == [("bread", {"limit": 5}), ("bread", {"session_id": "s", "role": "user"})]


# -- what a host program adds and reads --------------------------------------------------------------------------------


async def test_a_host_keeps_values_that_tools_read():
    @tool(effect="read")
    async def who(context: ToolContext[None]) -> str:
        """Tells the name."""
        return str(context.kept("user"))

    session = Agent(ScriptedModel(call("who"), "Ada."), tools=[who]).session("s")
    await session.keep("user", {"name": "Ada"})
    (made,) = (await session.run("Who?")).tool_calls
    assert made.result is not None
    assert made.result.text == "{'name': 'Ada'}"
    await session.keep("user", None)
    await session.keep("plan", "free")
    assert await session.kept_values() == {"user": None, "plan": "free"}


async def test_what_a_host_keeps_during_a_run_is_read_at_once_and_stored_by_the_run():
    held = Held("wait")
    session = Agent(ScriptedModel(call("wait"), "Done."), tools=[held.tool]).session("s")
    running = asyncio.ensure_future(session.run("Go."))
    await held.started.wait()
    await session.keep("a", 1)
    await session.keep("a", 2)
    assert await session.kept("a") == 2
    held.released.set()
    await running
    assert await session.kept("a") == 2
    assert await session.store.posts("s") == []


@pytest.mark.parametrize("name", ["", " ", 5, "perdure:x"])
async def test_a_value_needs_a_name_of_its_own(name):
    with pytest.raises(ConfigError, match=r"session\.keep\(name="):
        await Agent(ScriptedModel()).session("s").keep(name, 1)


@pytest.mark.parametrize("during_a_run", [False, True])
async def test_a_host_adds_an_inbox_item_and_its_result_reaches_the_model(during_a_run):
    held = Held("wait")
    model = ScriptedModel(call("wait"), "Done.", "It is here.")
    session = Agent(model, tools=[held.tool]).session("s")
    running = None
    if during_a_run:
        running = asyncio.ensure_future(session.run("Go."))
        await held.started.wait()
    assert await session.add_to_inbox("delivery", "rope", wake=True, item_id="rope-1") == "rope-1"
    assert await session.add_to_inbox("delivery", "rope", wake=True, item_id="rope-1") == "rope-1"
    (item,) = await session.inbox()
    assert (item.tag, item.request, item.status, item.wake) == ("delivery", "rope", "pending", True)
    assert await session.resolve("rope-1", "40 metres")
    held.released.set()
    outcome = await (session.wake() if running is None else running)
    assert outcome is not None
    said = [message.text for message in outcome.messages if message.origin == "inbox"]
    assert said == ["[Inbox: 1 resolved]\n- [delivery] Request: rope -> Response: 40 metres"]
    (item,) = await session.inbox()
    assert item.status == "consumed"
    kinds = [type(each) for each in await log_of(session.store, "s")]
    assert [kind for kind in kinds if kind in {InboxAdded, InboxResolved}] == [InboxAdded, InboxResolved]


async def test_an_item_and_its_result_that_were_posted_to_a_dead_driver_are_taken_in_order():
    store = MemoryStore()
    lease = await store.acquire("s")  # another process drives it
    session = Agent(ScriptedModel("It is here."), store=store).session("s")
    await session.add_to_inbox("delivery", "rope", item_id="rope-1")
    assert await session.resolve("rope-1", "40 metres")
    await store.release(lease)
    outcome = await session.run("Well?")
    assert [message.origin for message in outcome.new_messages] == ["", "inbox", ""]
    assert [item.status for item in await session.inbox()] == ["consumed"]


@pytest.mark.parametrize("given", [{"tag": ""}, {"request": 5}, {"item_id": None}])
async def test_an_inbox_item_needs_a_tag_and_a_request(given):
    with pytest.raises(ConfigError, match=r"session\.add_to_inbox\("):
        await Agent(ScriptedModel()).session("s").add_to_inbox(**{"tag": "t", "request": "r", **given})


async def test_a_host_sets_and_changes_the_tasks_of_the_agent():
    session = Agent(ScriptedModel("Done."), tools=task_tools()).session("s")
    first, second = await session.set_tasks(["Splice", StatedTask("Paint", "Painting")])
    assert (first.id, second.id, second.active_form) == ("task-1", "task-2", "Painting")
    changed = await session.update_task("task-2", status="in_progress")
    assert changed.display_text == "Painting"
    await session.run("Go.")
    tasks = await session.set_tasks([changed, "Splice", "Sail"])
    assert [(task.id, task.status) for task in tasks] == [
        ("task-2", "in_progress"),
        ("task-1", "pending"),
        ("task-3", "pending"),
    ]
    assert await session.tasks() == tasks
    assert await session.set_tasks([]) == await session.tasks() == []


@pytest.mark.parametrize("tasks", ["Splice", None, [5], [""], [Task(id="a", content="x", status="lost")], ["x"] * 101])  # type: ignore[arg-type]
async def test_what_is_no_task_list_is_refused(tasks):
    session = Agent(ScriptedModel()).session("s")
    with pytest.raises(ConfigError, match=r"no list of tasks|is no task|are not accepted"):
        await session.set_tasks(tasks)
    with pytest.raises(UsageError, match="there is no task 'task-9': there are none"):
        await session.update_task("task-9", status="completed")


async def test_the_instructions_of_a_session_are_what_the_next_run_sends():
    model = ScriptedModel("Yes.", "Yes.", "Yes.")
    roles = [Role("pirate", "Talk like a pirate.")]
    extension = Extension(name="polite", instructions="Be polite.")
    agent = Agent(model, instructions="Be brief.", roles=roles, extensions=[extension], tools=[order])
    session = agent.session("s")
    told = []
    given: list[Any] = [{}, {"role": "pirate"}, {"instructions": "Be long."}]
    for options in given:
        told.append(await session.instructions(**options))
        await session.run("Go.", **options)
    assert told == [request.instructions for request in model.requests]
    assert told[0] == "Be brief.\n\nBe polite."
    await session.configure(instructions="Be quick.", role="pirate")
    assert "Be quick." in await session.instructions()
    assert "pirate" in await agent.session("other", role="pirate").instructions()


async def test_the_instructions_during_a_run_are_those_of_the_run():
    held = Held("wait")
    session = Agent(ScriptedModel(call("wait"), "Done."), tools=[held.tool], instructions="Be brief.").session("s")
    running = asyncio.ensure_future(session.run("Go.", instructions="Be long."))
    await held.started.wait()
    assert await session.instructions() == "Be long."
    held.released.set()
    await running
    assert await session.instructions() == "Be brief."


async def test_after_a_handoff_the_instructions_are_those_of_the_agent_that_answers():
    other = Agent(ScriptedModel("Aye."), name="mate", instructions="You are the mate.")
    session = Agent(ScriptedModel(), handoffs=[other], instructions="You are the captain.").session("s")
    await session.configure(agent="mate")
    assert (await session.instructions()).startswith("You are the mate.")


async def test_usage_of_a_session_covers_all_runs_and_the_one_in_progress():
    held = Held("wait")
    price = Price(input_usd=1e6, output_usd=0)
    session = Agent(ScriptedModel("One.", call("wait"), "Two.", price=price), tools=[held.tool]).session("s")
    assert (await session.usage()).usage.total_tokens == 0
    await session.run("1")
    running = asyncio.ensure_future(session.run("2"))
    await held.started.wait()
    used = await session.usage()
    assert (used.usage.input_tokens, used.turns, used.cost_usd, used.last_input_tokens) == (20, 2, 20.0, 10)
    held.released.set()
    await running
    used = await session.usage()
    assert (used.usage.input_tokens, used.turns, used.cost_usd) == (30, 3, 30.0)


DOLLAR_PER_TOKEN = Price(input_usd=1e6, output_usd=0)


@tool(permission=True)
async def refund() -> str:
    """Refund."""
    return "paid"


def refunder(*replies: Any, store: Any = None, **options: Any) -> Agent[Any]:
    model = ScriptedModel(*replies, price=DOLLAR_PER_TOKEN)
    return Agent(model, tools=[refund], permission=Permissions(handler=later), store=store or MemoryStore(), **options)


@pytest.mark.parametrize("is_other_process", [False, True])
async def test_usage_covers_a_run_that_waits_for_an_answer(is_other_process):
    session = refunder("One.", call("refund"), "Two.").session("s")
    await session.run("1")
    outcome = await session.run("2")
    if is_other_process:
        session = Agent(ScriptedModel(), store=session.store).session("s")  # without the agent, and without its prices
    used = await session.usage()
    assert (outcome.status, outcome.cost_usd) == ("waiting", 10.0)
    assert (used.usage.input_tokens, used.cost_usd, used.last_input_tokens) == (20, 20.0, 10)


async def test_usage_without_the_run_that_is_not_over_is_what_its_next_budget_has_to_leave_out():
    session = refunder("One.", call("refund"), "Two.", settings=Settings(max_output_tokens=10)).session("s")
    await session.run("1")
    (question,) = (await session.run("2")).questions
    ended = await session.usage(with_unfinished=False)
    assert (ended.usage.input_tokens, ended.turns, ended.cost_usd) == (10, 1, 10.0)
    budget = Budget(max_cost_usd=1e9)
    await session.answer(question.ask_id, True)
    await session.resume(budget=budget)
    assert (ended.cost_usd or 0.0) + budget.spent_usd == (await session.usage()).cost_usd == 30.0
    assert await session.usage(with_unfinished=False) == await session.usage()
    with pytest.raises(ConfigError, match="with_unfinished"):
        await session.usage(with_unfinished="no")  # type: ignore[arg-type]


@pytest.mark.parametrize("nothing", [Budget(token_budget=0), Budget(max_cost_usd=0)])
async def test_a_run_with_nothing_left_in_its_budget_sends_nothing(nothing):
    agent = refunder("One.")
    outcome = await agent.run("1", budget=nothing)
    assert (outcome.status, outcome.reason) == ("limit", "budget")
    assert outcome.usage.total_tokens == 0


async def test_the_cost_of_a_run_that_is_given_up_without_an_answer_is_stored():
    session = refunder(call("refund"), "Two.").session("s")
    await session.run("1")
    await session.run("2")
    given_up, ended = of(await log_of(session.store, "s"), RunEnded)
    assert (given_up.reason, given_up.cost_usd, ended.cost_usd) == ("unanswered", 10.0, 10.0)
    assert (await session.usage()).cost_usd == 20.0


async def test_the_cost_of_a_run_that_a_crash_has_ended_is_stored_with_what_may_be_billed():
    store, first = MemoryStore(), MemoryStore()

    def reply(request: Request) -> str:
        died.append(len(request.messages))
        return "Late."

    died: list[int] = []
    session = Agent(ScriptedModel("One.", reply, price=DOLLAR_PER_TOKEN), store=first).session("s")
    await session.run("1")
    await session.run("2")
    events = await log_of(first, "s")
    requests = [place for place, each in enumerate(events) if isinstance(each, ModelRequested)]
    await crashed(store, "s", *events[: requests[-1] + 1])
    asked = of(events, ModelRequested)[-1].estimated_tokens
    session = refunder("Three.", store=store).session("s")
    assert (await session.usage()).cost_usd == 10.0
    await session.run("3")
    lost = of(await log_of(store, "s"), RunEnded)[1]
    assert (lost.reason, lost.cost_usd) == ("interrupted", float(asked))
    assert (await session.usage()).cost_usd == 20.0 + asked


async def test_the_cost_of_a_subagent_that_waits_is_part_of_that_of_the_session():
    child = refunder(call("refund"), "Refunded.").replace(name="clerk")
    model = ScriptedModel(call("clerk", task="Go."), "Done.", "Later.", price=DOLLAR_PER_TOKEN)
    session = Agent(model, tools=[child.as_tool()]).session("s")
    outcome = await session.run("1")
    assert (outcome.status, outcome.cost_usd) == ("waiting", 20.0)
    assert (await session.usage()).cost_usd == 20.0
    await session.run("2")
    costs = [(each.path != "", each.cost_usd) for each in of(await log_of(session.store, "s"), RunEnded)]
    assert costs == [(True, 10.0), (False, 20.0), (False, 10.0)]
    assert (await session.usage()).cost_usd == 30.0


async def test_a_run_that_is_cancelled_while_its_subagent_waits_costs_both():
    child = refunder(call("refund"), "Refunded.").replace(name="clerk")
    model = ScriptedModel(call("clerk", task="Go."), price=DOLLAR_PER_TOKEN)
    session = Agent(model, tools=[child.as_tool()]).session("s")
    await session.run("1")
    await session.cancel()
    outcome = await session.resume()
    assert (outcome.status, outcome.cost_usd) == ("cancelled", 20.0)
    assert (await session.usage()).cost_usd == 20.0


async def test_the_cost_of_a_run_whose_price_nobody_knows_is_not_known():
    session = refunder(call("refund"), "Two.").replace(model=ScriptedModel(call("refund"))).session("s")
    await session.run("1")
    assert (await session.usage()).cost_usd is None


async def test_messages_have_their_times_and_the_numbers_of_their_entries():
    clock = FakeClock()
    began = clock.now()

    @tool(effect="read")
    async def look() -> str:
        """Looks, which takes two seconds."""
        await clock.advance(2)
        return "there"

    session = Agent(ScriptedModel(call("look"), "Done."), tools=[look], clock=clock).session("s")
    await session.run("Go.")
    history = await session.history()
    assert [each.message for each in history] == list(await session.messages())
    assert [(each.index, each.message.role, each.at - began) for each in history] == [
        (0, "user", 0),
        (1, "assistant", 0),
        (2, "tool", 2),
        (3, "assistant", 2),
    ]
    entries = {entry.seq: entry for entry in await session.store.read("s")}
    assert all(entries[each.seq].id == each.entry_id for each in history)
    assert {type(entries[each.seq].event).__name__ for each in history} == {"MessageAdded", "ToolFinished"}
    assert len({each.run_id for each in history}) == 1


async def test_a_host_append_and_a_run_of_one_session_wait_for_each_other():
    session = Agent(ScriptedModel("Done."), store=MemoryStore()).session("s")
    await asyncio.gather(session.keep("a", 1), session.run("Go."), session.keep("b", 2))
    assert await session.kept_values() == {"a": 1, "b": 2}


async def test_a_search_hit_is_found_in_the_conversation(tmp_path):
    @tool(effect="read")
    async def look(at: str) -> str:
        """Looks."""
        return f"a {at} lighthouse"

    model = ScriptedModel(calls(call("look", at="red"), call("look", at="blue")), "One harbour.")
    async with Agent(model, tools=[look], store=f"sqlite:{tmp_path / 's.db'}") as agent:
        session = agent.session("s")
        await session.run("Where is it?")
        messages = await session.messages()
        hit: Hit | None = None
        for query, index in (("Where", 0), ("red", 2), ("blue", 2), ("harbour", 3)):
            (hit,) = await agent.search(query)
            found = await session.find_message(hit)
            assert found is not None
            assert (found.index, found.message) == (index, messages[index])
        assert await session.find_message(1) is None  # the start of the run
        assert await session.find_message(99) is None
        with pytest.raises(UsageError, match="this hit is in session 's', not in 'other'"):
            await agent.session("other").find_message(cast("Hit", hit))
        with pytest.raises(ConfigError, match=r"session\.find_message\(found='x'\)"):
            await session.find_message("x")  # type: ignore[arg-type]
        counts = await session.count_messages()
        assert (counts.total, counts.user, counts.assistant, counts.tool) == (4, 1, 2, 1)


async def test_an_entry_of_a_call_without_all_results_is_no_message_yet():
    result = ToolResult("c", "look")
    reply = assistant([ToolCall("c", "look"), ToolCall("d", "look")])
    events = [RunStarted(run_id="r"), MessageAdded(reply, run_id="r"), ToolFinished("c", "look", result, run_id="r")]
    store = MemoryStore()
    await crashed(store, "s", *events, MessageAdded(user("x"), run_id="r", path="child"))
    session = Agent(ScriptedModel(), store=store).session("s")
    assert [await session.find_message(seq) for seq in (2, 3, 4)] == [None, None, None]


@pytest.mark.parametrize("session_id", ["a\nb", "a\x1b[2J"])
async def test_no_run_creates_a_session_whose_id_has_control_characters(session_id):
    store = MemoryStore()
    with pytest.raises(ConfigError, match="session_id"):
        await Agent(ScriptedModel("Hi."), store=store).session(session_id).run("x")
    assert await store.info(session_id) is None


async def test_a_session_that_has_such_an_id_already_is_run():
    store = MemoryStore()
    await store_session(store, "a\nb", "Hello.")
    outcome = await Agent(ScriptedModel("Hi."), store=store).session("a\nb").run("x")
    assert outcome.text == "Hi."


async def test_a_watch_that_is_left_is_no_longer_told_of_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Agent(ScriptedModel("One.", "Two.")).session("s")
    made: list[Any] = []
    subscribe = session.subscribe

    def noted() -> Any:
        made.append(subscribe())
        return made[-1]

    monkeypatch.setattr(session, "subscribe", noted)
    await session.run("1?")
    watching = session.watch()
    assert (await anext(watching)).seq == 1
    await watching.aclose()
    await session.run("2?")
    (subscription,) = made
    assert len(subscription) == 0
