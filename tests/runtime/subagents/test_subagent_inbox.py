"""Inbox items that a subagent's tool has added: their results reach the subagent, or else the agent above it, once."""

import asyncio
from contextlib import aclosing
from typing import Any
from unittest.mock import AsyncMock

import pytest

from perdure import Agent, Session, ToolContext, tool
from perdure._core.log.fold import fold_events
from perdure._core.people.inbox import build_resolution_post
from perdure.events import Entry, InboxAdded, InboxResolved, MessageAdded, RunEnded
from perdure.stores import MemoryStore, Post
from perdure.testing import ScriptedModel, call, calls
from perdure.tools import delegation, post_to_inbox
from tests.doubles import SECONDS, Held, WaitingStore, elsewhere, log_of, of, rounds
from tests.runtime.subagents.family import cancel_background_tasks, following, left_behind

pytestmark = pytest.mark.resumed


def child_agent(*steps: Any, tools: Any = ()) -> Agent[Any]:
    first = call("post_to_inbox", tag="build", request="Build it", blocking=True)
    return Agent(following(first, *steps), name="scout", tools=[post_to_inbox, *tools])


def parent_agent(child: Agent[Any], *, durable: bool = False, **options: Any) -> Agent[Any]:
    model = following(call("scout", task="Go."), "All done.", "Thank you.")
    return Agent(model, name="parent", tools=[child.as_tool(durable=durable)], **options)


async def told(session: Session[Any]) -> list[tuple[str, str]]:
    """The paths of the agents that were told of a result, and what they were told."""
    events = await log_of(session.store, session.session_id)
    return [
        (each.path, each.message.text)
        for each in of(events, MessageAdded)
        if each.message.role == "user" and each.message.origin == "inbox"
    ]


async def the_item(session: Session[Any]) -> str:
    (item,) = await session.inbox()
    return item.item_id


async def status(session: Session[Any]) -> str:
    (item,) = await session.inbox()
    return item.status


FOR_PARENT = "[Inbox: 1 resolved]\n- [build] (of subagent 'scout-call_1') Request: Build it -> Response: built"
FOR_CHILD = "[Inbox: 1 resolved]\n- [build] Request: Build it -> Response: built"


async def test_a_result_that_comes_after_the_subagent_has_ended_is_told_to_the_agent_above_it():
    session = parent_agent(child_agent("I have asked.")).session("s")
    await session.run("Go")
    assert await session.resolve(await the_item(session), "built")
    assert await status(session) == "resolved"
    outcome = await session.wake()
    assert outcome is not None
    assert outcome.status == "done"
    assert await told(session) == [("", FOR_PARENT)]
    assert await status(session) == "consumed"
    state = fold_events(await log_of(session.store, "s"))
    assert not state.session_inbox
    assert await session.store.posts("s") == []
    assert await session.wake() is None


async def test_the_next_run_tells_it_as_well():
    session = parent_agent(child_agent("I have asked.")).session("s")
    await session.run("Go")
    item_id = await the_item(session)
    assert await session.resolve(item_id, "built")
    outcome = await session.run("And now?")
    assert outcome.status == "done"
    assert await told(session) == [("", FOR_PARENT)]
    assert not await session.resolve(item_id, "built again")


async def test_a_subagent_at_work_is_told_itself():
    held = Held()
    child = child_agent(call("held"), "I have asked.", "It is built.", tools=[held.tool])
    session = parent_agent(child).session("s")
    running = asyncio.ensure_future(session.run("Go"))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    assert await session.resolve(await the_item(session), "built")
    held.released.set()
    await asyncio.wait_for(running, SECONDS)
    assert await told(session) == [("scout-call_1", FOR_CHILD)]
    assert await status(session) == "consumed"


async def test_only_the_subagent_that_asked_is_told_when_two_are_at_work():
    held = Held()
    asking = child_agent(call("held"), "I have asked.", tools=[held.tool])
    other = Agent(following(call("held"), "I did nothing."), name="other", tools=[held.tool])
    both = [call("scout", task="Go."), call("other", task="Stay.")]
    agent = Agent(following(calls(*both), "All done."), tools=[asking.as_tool(), other.as_tool()])
    session = agent.session("s")
    running = asyncio.ensure_future(session.run("Go"))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    await until_inbox(session, 1)
    assert await session.resolve(await the_item(session), "built")
    held.released.set()
    await asyncio.wait_for(running, SECONDS)
    assert [path for path, _ in await told(session)] == ["scout-call_1"]


async def test_a_subagent_that_a_crash_cut_off_is_told_when_it_goes_on():
    store = MemoryStore()
    await parent_agent(child_agent("I have asked."), store=store).session("s").run("Go")
    log = await store.read("s")
    after = next(each.seq for each in log if isinstance(each.event, InboxAdded)) + 1
    session = parent_agent(child_agent("I have asked."), store=await left_behind(log[:after])).session("s")
    assert await session.resolve(await the_item(session), "built")
    await session.resume()
    assert await told(session) == [("scout-call_1", FOR_CHILD)]
    assert await status(session) == "consumed"


async def test_wherever_a_process_dies_the_result_is_told_once():
    store = MemoryStore()
    whole = parent_agent(child_agent("I have asked."), store=store).session("s")
    await whole.run("Go")
    assert await whole.resolve(await the_item(whole), "built")
    await whole.wake()
    log = await store.read("s")
    first = next(each.seq for each in log if isinstance(each.event, InboxAdded))
    for upto in range(first, len(log) + 1):
        if isinstance(log[upto - 1].event, InboxResolved):  # one append with the message that follows
            continue
        session = parent_agent(child_agent("I have asked."), store=await left_behind(log[:upto])).session("s")
        await session.resolve(await the_item(session), "built")
        for _ in range(3):
            await session.wake()
        assert await status(session) == "consumed", upto
        assert len(await told(session)) == 1, upto
        assert len(of(await log_of(session.store, "s"), InboxResolved)) == 1, upto


async def test_a_subagent_with_memory_is_told_only_while_it_works():
    child = child_agent("I have asked.")
    session = parent_agent(child, durable=True).session("s")
    await session.run("Go")
    assert await session.resolve(await the_item(session), "built")
    await session.wake()
    assert [path for path, _ in await told(session)] == [""]


async def test_a_result_is_told_to_the_agent_that_the_conversation_was_handed_to():
    heir = Agent(following("I am here.", "Thank you."), name="heir")
    model = following(call("scout", task="Go."), call("hand_over_to_heir", reason="yours"), "Bye.")
    agent = Agent(model, name="parent", tools=[child_agent("I have asked.").as_tool()], handoffs=[heir])
    session = agent.session("s")
    await session.run("Go")
    assert await session.resolve(await the_item(session), "built")
    outcome = await session.wake()
    assert outcome is not None
    assert await told(session) == [("", FOR_PARENT)]


async def test_attend_wakes_a_session_for_an_item_of_a_subagent_that_asks_for_it():
    @tool
    async def order(context: ToolContext[Any]) -> str:
        """Order."""
        return await context.add_to_inbox("build", "Build it", wake=True)

    child = Agent(following(call("order"), "I have asked."), name="scout", tools=[order])
    session = parent_agent(child).session("s")
    await session.run("Go")
    assert await session.resolve(await the_item(session), "built")
    async for outcome in session.attend():
        assert outcome.status == "done"
        break
    assert await told(session) == [("", FOR_PARENT)]


def background_session(
    *steps: Any, wake: bool = False, tools: Any = (), store: Any = "memory:", replies: Any = (), above: Any = ()
) -> Session[Any]:
    """A session whose agent has given a task to another one in the background, which adds an inbox item."""

    @tool
    async def order(context: ToolContext[Any]) -> str:
        """Order."""
        return await context.add_to_inbox("build", "Build it", wake=wake)

    scout = Agent(following(call("order"), *steps, "I have asked."), name="scout", tools=[order, *tools])
    given = (call("delegate", agent="scout", task="Go.", background=True), "Given.", "Noted.")
    model = ScriptedModel(*(replies or given), repeat_last=True)
    return Agent(model, tools=above, extensions=[delegation([scout])], store=store).session("s")


async def until_inbox(session: Session[Any], items: int) -> list[Any]:
    async with asyncio.timeout(SECONDS):
        while len(found := await session.inbox()) < items:
            await rounds()
    return found


async def until_task_is_over(session: Session[Any]) -> None:
    async with asyncio.timeout(SECONDS):
        while not await session.store.posts("s"):
            await rounds()


async def test_a_result_for_a_background_agent_whose_task_is_over_is_told_to_the_session_that_gave_it():
    session = background_session(wake=True)
    await session.run("Go")
    job, item = await until_inbox(session, 2)
    await until_task_is_over(session)
    assert job.tag == "agent:scout"
    assert await session.resolve(item.item_id, "built")
    assert not await session.resolve(item.item_id, "built again")
    async with asyncio.timeout(SECONDS):
        while len(await told(session)) < 2:
            await session.wake()
    handle = (await session.store.list(prefix="s/"))[0].session_id.removeprefix("s/")
    line = f"- [build] (of subagent {handle!r}) Request: Build it -> Response: built"
    assert (await told(session))[-1] == ("", f"[Inbox: 1 resolved]\n{line}")


async def test_a_result_for_a_background_agent_whose_task_is_over_is_told_to_a_run_that_is_under_way():
    held = Held()
    replies = (call("delegate", agent="scout", task="Go.", background=True), call("held"), "Noted.")
    session = background_session(replies=replies, above=[held.tool])
    running = asyncio.ensure_future(session.run("Go"))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    _, item = await until_inbox(session, 2)
    async with asyncio.timeout(SECONDS):
        while (await session.inbox())[0].status == "pending":
            await rounds()
    assert await session.resolve(item.item_id, "built")
    held.released.set()
    outcome = await asyncio.wait_for(running, SECONDS)
    assert any("Request: Build it -> Response: built" in text for _, text in await told(session))
    assert outcome.text == "Noted."


async def test_a_background_agent_at_work_is_told_itself():
    held = Held()
    session = background_session(call("held"), tools=[held.tool])
    await session.run("Go")
    await asyncio.wait_for(held.started.wait(), SECONDS)
    _, item = await until_inbox(session, 2)
    assert await session.resolve(item.item_id, "built")
    held.released.set()
    await until_task_is_over(session)
    child_id = (await session.store.list(prefix="s/"))[0].session_id
    below = [each for each in of(await log_of(session.store, child_id), MessageAdded) if each.message.origin == "inbox"]
    assert [each.message.text for each in below] == [FOR_CHILD]
    assert [post.kind for post in await session.store.posts("s")] == ["inbox"]  # the end of the task


async def test_a_result_that_a_background_agent_did_not_take_is_passed_on_when_its_task_ends():
    held = Held()
    session = background_session(call("held"), tools=[held.tool])
    await session.run("Go")
    await asyncio.wait_for(held.started.wait(), SECONDS)
    _, item = await until_inbox(session, 2)
    child_id = (await session.store.list(prefix="s/"))[0].session_id
    held.released.set()
    await until_task_is_over(session)
    await session.store.post(child_id, build_resolution_post(item.item_id, "built", 1.0))  # as if just too late
    assert not await session.resolve(item.item_id, "built")
    assert {post.kind for post in await session.store.posts("s")} == {"inbox", "steer"}


async def test_a_result_that_a_cancelled_background_agent_did_not_take_is_passed_on():
    held = Held()

    def cancel(request: Any) -> Any:
        return call("cancel_agent", handle=request.messages[2].tool_results[0].render["handle"])

    given = call("delegate", agent="scout", task="Go.", background=True)
    session = background_session(call("held"), tools=[held.tool], replies=(given, "Given.", cancel, "Noted."))
    await session.run("Go")
    await asyncio.wait_for(held.started.wait(), SECONDS)
    _, item = await until_inbox(session, 2)
    assert await session.resolve(item.item_id, "built")  # its agent would read it after this call
    await session.run("Stop it.")
    await session.run("And?")
    assert await times_told(session) == 1


async def test_only_a_program_that_knows_an_agent_cancels_its_tasks():
    held = Held()
    session = background_session(call("held"), tools=[held.tool])
    await session.run("Go")
    await asyncio.wait_for(held.started.wait(), SECONDS)
    (row,) = await session.store.list(prefix="s/")
    handle = row.session_id.removeprefix("s/")
    replies = (call("cancel_agent", handle=handle), "Noted.")
    cook = Agent(ScriptedModel(), name="cook")
    other = Agent(ScriptedModel(*replies), extensions=[delegation([cook])], store=session.store).session("s")
    results = [each for message in (await other.run("Stop it.")).new_messages for each in message.tool_results]
    assert f"'scout' is not an agent of this program: cancel {handle} where it is one" in results[0].text
    assert held.cancelled == 0
    await cancel_background_tasks(session)


async def times_told(session: Session[Any]) -> int:
    """How often a model was told the result, that of the session or that of its background agent."""
    child_id = (await session.store.list(prefix="s/"))[0].session_id
    events = [*await log_of(session.store, "s"), *await log_of(session.store, child_id)]
    return sum(each.message.text.count("Response: built") for each in of(events, MessageAdded))


async def test_a_result_that_was_passed_on_is_not_told_again_to_a_background_agent_that_goes_on():
    held = Held()
    session = background_session(call("held"), tools=[held.tool])
    await session.run("Go")
    await asyncio.wait_for(held.started.wait(), SECONDS)
    _, item = await until_inbox(session, 2)
    await cancel_background_tasks(session)
    assert await session.resolve(item.item_id, "built")
    held.released.set()
    await session.run("And?")
    await until_task_is_over(session)
    await session.run("Well?")
    assert await times_told(session) == 1


async def test_a_run_that_begins_while_a_result_is_passed_on_waits_for_that():
    store = WaitingStore()
    session = background_session(store=store)
    await session.run("Go")
    _, item = await until_inbox(session, 2)
    await until_task_is_over(session)
    child_id = (await store.list(prefix="s/"))[0].session_id
    store.holds_back = InboxResolved
    store.open.clear()
    async with asyncio.timeout(SECONDS):
        resolving = asyncio.ensure_future(session.resolve(item.item_id, "built"))
        await store.waiting.wait()
        going = asyncio.ensure_future(Agent(ScriptedModel("Aye."), store=store).session(child_id).run("Go on."))
        await rounds()
        store.open.set()
        assert await resolving
        assert (await going).text == "Aye."


async def test_a_result_that_comes_while_another_is_passed_on_elsewhere_is_passed_on_too():
    """Whoever delivers it finds the session busy, and leaves it to the one that is busy with it."""
    store = WaitingStore()
    session = background_session(call("order"), store=store)
    await session.run("Go")
    _, one, two = await until_inbox(session, 3)
    await until_task_is_over(session)
    store.holds_back = InboxResolved
    store.open.clear()
    async with asyncio.timeout(SECONDS):
        resolving = asyncio.ensure_future(session.resolve(one.item_id, "one"))
        await store.waiting.wait()
        other = background_session(store=store)
        assert await elsewhere(lambda: other.resolve(two.item_id, "two"))
        store.open.set()
        assert await resolving
        await session.run("And?")
    text = "".join(text for _, text in await told(session))
    assert [text.count(f"Response: {each}") for each in ("one", "two")] == [1, 1]


class Died(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("killed_at", ["store.post", "store.append"])
async def test_a_result_is_told_once_when_the_process_dies_while_it_is_passed_on(killed_at, monkeypatch):
    held = Held()
    session = background_session(call("held"), tools=[held.tool])
    await session.run("Go")
    await asyncio.wait_for(held.started.wait(), SECONDS)
    _, item = await until_inbox(session, 2)
    await cancel_background_tasks(session)
    kind = type(session.store)
    name = killed_at.removeprefix("store.")
    real, left = getattr(kind, name), 2 if name == "post" else 1

    async def die(self, *arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            monkeypatch.setattr(kind, name, real)
            raise Died
        return await real(self, *arguments, **options)

    monkeypatch.setattr(kind, name, die)
    with pytest.raises(Died):
        await session.resolve(item.item_id, "built")
    await session.resolve(item.item_id, "built")  # whoever got no answer asks again
    held.released.set()
    await session.run("And?")
    await until_task_is_over(session)
    await session.run("Well?")
    assert await times_told(session) == 1


@pytest.mark.parametrize("by", ["run", "wake", "attend", "attend_all"])
async def test_a_result_whose_resolve_was_killed_before_it_was_passed_on_is_told_by_whoever_continues(by, monkeypatch):
    store = MemoryStore()
    session = background_session(wake=True, store=store)
    await session.run("Go")
    _, item = await until_inbox(session, 2)
    await until_task_is_over(session)
    while await session.wake() is not None:  # told of the end of the task
        pass
    with monkeypatch.context() as killed:
        killed.setattr("perdure._runtime.subagents.late_results.forward_late_inbox_results", AsyncMock())
        assert await session.resolve(item.item_id, "built")
    assert await times_told(session) == 0
    agent = session.agent.replace(model=ScriptedModel("Thank you.", repeat_last=True))
    again = agent.session("s")
    async with asyncio.timeout(SECONDS):
        match by:
            case "run":
                await again.run("Anything else?")
            case "wake":
                await again.wake()
            case "attend":
                async for _ in again.attend(seconds=0.001):
                    break
            case _:
                async with aclosing(agent.attend_all(seconds=0.001)) as outcomes:
                    async for _ in outcomes:
                        break
    assert await times_told(again) == 1
    assert await store.list_interrupted(include_posts=True) == []


async def test_the_result_of_an_item_that_nobody_knows_is_not_told():
    store = MemoryStore()
    session = parent_agent(child_agent("I have asked."), store=store).session("s")
    await session.run("Go")
    log = await store.read("s")
    kept = [each for each in log if not isinstance(each.event, InboxAdded)]
    other = await left_behind([Entry(seq, each.at, each.event, each.id) for seq, each in enumerate(kept, 1)])
    again = parent_agent(child_agent("I have asked."), store=other).session("s")
    await other.post("s", _resolution(log))
    assert (await again.run("And now?")).status == "done"
    assert await told(again) == []
    assert isinstance((await other.read("s"))[-1].event, RunEnded)


def _resolution(log: list[Entry]) -> Post:
    item = next(each.event for each in log if isinstance(each.event, InboxAdded))
    return build_resolution_post(item.item_id, "built", 1.0)
