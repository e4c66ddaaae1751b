"""Tasks for agents that are known by name: in the foreground, in the background, and across the death of a process."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import pytest

from perdure import (
    Agent,
    Budget,
    ConfigError,
    Extension,
    Limits,
    Outcome,
    Permissions,
    Session,
    SessionBusy,
    Status,
    StoreError,
    ToolContext,
    Usage,
    UsageError,
    deny,
    tool,
)
from perdure._core.log.fold import fold_events
from perdure._core.log.status import GIVEN_BY_SETTING
from perdure._core.people.inbox import build_resolution_post
from perdure._core.run.calling_run import get_run_of_call
from perdure._runtime.resume.reasons import find_task_giver
from perdure._runtime.resume.resumer import SessionResumer
from perdure._runtime.subagents.background import RESUME_PROMPT, BackgroundAgents
from perdure._runtime.subagents.child import DEPTH_SETTING
from perdure.context import Role
from perdure.events import (
    Entry,
    InboxAdded,
    InboxResolved,
    RunEnded,
    RunResumed,
    RunStarted,
    RunWaiting,
    SessionConfigured,
    SubagentFinished,
    SubagentStarted,
    ValueKept,
)
from perdure.models import Price
from perdure.people import PlainText
from perdure.permissions import later
from perdure.stores import Lease, MemoryStore, Post, Store, open_store
from perdure.testing import FakeClock, Recorder, Reply, ScriptedModel, call, calls
from perdure.tools import delegation, orchestrator
from tests.doubles import SECONDS, Held, WaitingStore, log_of, of, rounds, until
from tests.runtime.subagents.family import act_tool, cancel_background_tasks, following, left_behind

pytestmark = pytest.mark.resumed


def chief(*replies: Any, agents: Any, **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(*replies), name="chief", extensions=[delegation(agents)], **options)


def in_background(task: str = "Go.", agent: str = "scout") -> Any:
    return call("delegate", agent=agent, task=task, background=True)


def results_in(outcome: Any) -> list[str]:
    return [result.text for message in outcome.messages for result in message.tool_results]


async def woken(session: Session[Any]) -> Outcome[Any]:
    """The run that begins when an answer has come."""
    async with asyncio.timeout(SECONDS):
        return await anext(session.attend(seconds=0.001))


# -- in the foreground -------------------------------------------------------------------------------------------------


async def test_a_task_is_given_by_name_and_its_agent_remembers():
    model = ScriptedModel("One.", "Two.", "Three.")
    scout = Agent(model, name="the scout", description="Looks around.")
    agent = chief(
        call("delegate", agent="@the scout", task="First."),
        call("delegate", agent="the scout", task="Second."),
        call("list_agents"),
        call("clear_agent_history", agent="the scout"),
        call("list_agents"),
        call("delegate", agent="the scout", task="Third."),
        "Top.",
        agents=[scout],
    )
    outcome = await agent.run("Go")
    told = results_in(outcome)
    assert told[:3] == ["One.", "Two.", "the scout: done: Two."]
    assert told[4] == "the scout: idle"
    assert [len(request.messages) for request in model.requests] == [1, 3, 1]
    description = agent.toolbox.get("delegate").description  # type: ignore[union-attr]
    assert "- the scout: Looks around." in description
    assert "@name means" in description


async def test_an_agent_at_work_is_listed_as_running():
    held = Held()
    scout = Agent(following(call("held"), "Done."), name="scout", tools=[held.tool])
    extension = delegation([scout])
    list_agents = next(each for each in extension.tools if each.name == "list_agents")

    @tool
    async def look(context: ToolContext[Any]) -> str:
        """Looks at the others when the scout is at work."""
        await held.started.wait()
        listed = (await list_agents.call({}, context)).content
        held.released.set()
        return str(listed)

    both = calls(call("delegate", agent="scout", task="Go."), call("look"))
    outcome = await Agent(ScriptedModel(both, "Top."), extensions=[extension], tools=[look]).run("Go")
    assert results_in(outcome) == ["Done.", "scout: running"]


async def test_what_the_model_gets_wrong_goes_back_to_it():
    deep = chief(in_background("Deep."), "Chief done.", agents=[Agent(ScriptedModel(), name="scout")])
    agent = Agent(
        ScriptedModel(
            calls(
                call("delegate", agent="nobody", task="Go."),
                call("delegate", agent="chief", task=" "),
                call("wait_for_agents", handles=["chief-1"]),
                call("wait_for_agents"),
                call("cancel_agent", handle="chief-1"),
                call("delegate", agent="chief", task="Go."),
            ),
            "Top.",
        ),
        extensions=[delegation([deep])],
    )
    session = agent.session("s")
    told = results_in(await session.run("Go"))
    assert told[0] == "there is no agent 'nobody': there are 'chief'"
    assert told[1].startswith("the task is empty")
    assert told[2] == told[4] == "there is no handle 'chief-1': there are none"
    assert told[3] == "No agent is at work in the background."
    child = fold_events(await log_of(session.store, "s")).children["chief"]
    assert "leave out background" in child.messages[2].tool_results[0].text


async def test_an_orchestrator_is_a_planner_that_can_delegate():
    planner = Agent(
        ScriptedModel(call("delegate", agent="scout", task="Go."), "Planned."), extensions=[Extension(name="x")]
    )
    agent = orchestrator(planner, [Agent(ScriptedModel("Scouted."), name="scout")])
    assert [each.name for each in agent.extensions] == ["x", "delegation"]
    assert results_in(await agent.run("Go")) == ["Scouted."]


@pytest.mark.parametrize("agents", [[], "scout", ["scout"], None])
def test_what_are_no_agents_is_refused(agents):
    with pytest.raises(ConfigError, match="agents"):
        delegation(agents)


def test_two_agents_of_one_name_are_refused():
    twin = Agent(ScriptedModel(), name="the scout")
    with pytest.raises(ConfigError, match="two agents are called 'the_scout'"):
        delegation([twin, twin.replace(name="the_scout")])
    with pytest.raises(ConfigError, match="most_at_once=0"):
        delegation([twin], most_at_once=0)


# -- in the background -------------------------------------------------------------------------------------------------


async def test_a_background_task_outlives_the_run_and_its_end_wakes_the_session():
    held = Held()
    scout = Agent(following(call("held"), "It is x."), name="scout", tools=[held.tool])
    session = chief(in_background("Find x."), "Given.", "Told.", agents=[scout]).session("s")
    outcome = await session.run("Go")
    assert outcome.text == "Given."
    await asyncio.wait_for(held.started.wait(), SECONDS)
    (item,) = await session.inbox()
    assert (item.tag, item.request, item.status, item.wake) == ("agent:scout", "Find x.", "pending", True)
    held.released.set()
    outcome = await woken(session)
    words = "[Inbox: 1 resolved]\n- [agent:scout] Request: Find x. -> Response: It is x."
    assert [message.text for message in outcome.new_messages] == [words, "Told."]
    assert await session.wake() is None
    events = await log_of(session.store, "s")
    assert len(of(events, SubagentStarted)) == len(of(events, SubagentFinished)) == 1
    child = await session.store.list(prefix="s/scout-")
    assert len(child) == 1


async def test_the_end_of_a_background_task_is_told_between_two_turns():
    @tool
    async def work(context: ToolContext[Any]) -> str:
        """Works until the other one is done."""
        await until(lambda: get_run_of_call(context).mailbox.has_messages_due)
        return "worked"

    scout = Agent(ScriptedModel("It is x."), name="scout")
    outcome = await chief(in_background(), call("work"), "Top.", agents=[scout], tools=[work]).run("Go")
    assert [message.role for message in outcome.messages[-3:]] == ["tool", "user", "assistant"]
    assert "Response: It is x." in outcome.messages[-2].text


async def test_whoever_waits_for_agents_is_told_once():
    scouts = [Agent(ScriptedModel(f"{name} done."), name=name) for name in ("north", "south")]
    two = calls(in_background("Up.", "north"), in_background("Down.", "south"))
    session = chief(two, call("wait_for_agents"), call("list_agents"), "Top.", agents=scouts).session("s")
    outcome = await session.run("Go")
    told = results_in(outcome)
    assert "given the task 'Up.':\nnorth done." in told[2]
    assert "given the task 'Down.':\nsouth done." in told[2]
    assert told[3].splitlines()[0] == "north: idle"
    assert told[3].splitlines()[1].endswith("done: north done.")
    assert not [message for message in outcome.messages if message.origin == "inbox"]
    assert [item.status for item in await session.inbox()] == ["consumed", "consumed"]
    assert await session.wake() is None


async def test_whoever_has_waited_for_agents_leaves_no_timer_behind():
    clock = FakeClock()
    scout = Agent(ScriptedModel("Done."), name="scout")
    session = chief(in_background(), call("wait_for_agents"), "Top.", agents=[scout], clock=clock).session("s")
    assert (await asyncio.wait_for(session.run("Go"), SECONDS)).text == "Top."
    assert (clock.sleepers, clock.pending) == (0, [])


async def test_waiting_has_an_end():
    clock, held = FakeClock(), Held()
    scout = Agent(following(call("held"), "Done."), name="scout", tools=[held.tool])
    session = chief(
        in_background(), call("wait_for_agents", timeout_seconds=5), "Top.", agents=[scout], clock=clock
    ).session("s")
    run = asyncio.ensure_future(session.run("Go"))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    await clock.wait_for_sleepers()
    await clock.advance(6)
    outcome = await asyncio.wait_for(run, SECONDS)
    assert results_in(outcome)[-1].endswith("still at work (running).")
    held.released.set()
    await rounds(100)


async def test_a_background_task_can_be_cancelled():
    held = Held()
    scout = Agent(following(call("held"), "Done."), name="scout", tools=[held.tool])

    def cancel(request: Any) -> Any:
        return call("cancel_agent", handle=request.messages[2].tool_results[0].render["handle"])

    @tool
    async def settle() -> str:
        """Waits until the scout is at work."""
        await held.started.wait()
        return "settled"

    replies = (in_background(), call("settle"), cancel, cancel, call("list_agents"), "Top.")
    session = chief(*replies, agents=[scout], tools=[settle]).session("s")
    outcome = await session.run("Go")
    told = results_in(outcome)
    assert told[2].endswith("is cancelled.")
    assert told[3].endswith("is not at work any more.")
    assert "cancelled: scout was cancelled before it was done." in told[4]
    assert held.cancelled == 1
    assert await session.wake() is None


async def test_a_task_that_waits_for_its_turn_can_be_cancelled_too():
    held = Held()
    scout = Agent(following(call("held"), "Done."), name="scout", tools=[held.tool])

    def cancel_the_second(request: Any) -> Any:
        return call("cancel_agent", handle=request.messages[2].tool_results[1].render["handle"])

    two = calls(in_background("One."), in_background("Two."))
    model = ScriptedModel(two, cancel_the_second, call("list_agents"), "Top.")
    session = Agent(model, extensions=[delegation([scout], most_at_once=1)]).session("s")
    outcome = await session.run("Go")
    assert results_in(outcome)[2].endswith("is cancelled.")
    states = [line.partition(": ")[2].partition(":")[0] for line in results_in(outcome)[3].splitlines()]
    assert states == ["idle", "running", "cancelled"]
    held.released.set()
    await rounds(100)


async def test_a_task_that_another_process_works_on_is_cancelled_there():
    store = MemoryStore()
    scout = Agent(ScriptedModel("It is x.", repeat_last=True), name="scout")
    await chief(in_background(), "Given.", agents=[scout], store=store).session("s").run("Go")
    await rounds(200)
    lost = await died_with_the_child_cut_off(store, 4)
    (name,) = [info.session_id for info in await store.list(prefix="s/")]
    lease = await lost.acquire(name)

    def cancel(request: Any) -> Any:
        return call("cancel_agent", handle=request.messages[2].tool_results[0].render["handle"])

    session = chief(cancel, "Top.", agents=[scout], store=lost, clock=FakeClock()).session("s")
    assert results_in(await session.run("Stop it."))[-1].endswith("is cancelled.")
    assert [post.kind for post in await lost.posts(name)] == ["cancel"]
    await lost.release(lease)


async def test_no_more_than_so_many_work_at_once():
    held = Held()
    going = most = 0

    @tool
    async def work() -> str:
        """Counts who works at the same time."""
        nonlocal going, most
        going += 1
        most = max(most, going)
        await held.released.wait()
        going -= 1
        return "worked"

    scout = Agent(following(call("work"), "Done."), name="scout", tools=[work])
    replies = ScriptedModel(
        calls(*[in_background(str(number)) for number in range(4)]), call("wait_for_agents"), "Top."
    )
    session = Agent(replies, extensions=[delegation([scout], most_at_once=2)]).session("s")
    run = asyncio.ensure_future(session.run("Go"))
    await until(lambda: going == 2)
    await rounds(100)
    held.released.set()
    await asyncio.wait_for(run, SECONDS)
    assert most == 2


async def test_a_background_agent_that_fails_says_so():
    scout = Agent(ScriptedModel(RuntimeError("lost")), name="scout")
    outcome = await chief(in_background(), call("wait_for_agents"), "Top.", agents=[scout]).run("Go")
    assert "(failed)" in results_in(outcome)[1]
    assert "scout failed (lost)." in results_in(outcome)[1]


async def test_an_agent_that_cannot_even_begin_is_told_of_too(caplog):
    def wrap(_: Any) -> Any:
        raise RuntimeError("no model")

    broken = Agent(ScriptedModel(), name="scout", extensions=[Extension(name="broken", wrap_model=wrap)])
    session = chief(in_background(), "Given.", "Told.", agents=[broken]).session("s")
    await session.run("Go")
    outcome = await woken(session)
    assert "Response: scout failed (no model)." in outcome.new_messages[0].text
    assert "failed" in caplog.text


async def test_watchers_see_what_is_done_in_the_background():
    recorder = Recorder()
    scout = Agent(ScriptedModel("It is x."), name="scout")
    agent = chief(in_background(), call("wait_for_agents"), "Top.", agents=[scout], watchers=[recorder])
    await agent.run("Go")
    paths = {event.path for event in recorder.events if event.path}
    assert [path.partition("-")[0] for path in paths] == ["scout"]
    assert "It is x." in [getattr(event, "text", "") for event in recorder.events if event.path]


async def test_watchers_hear_the_background_after_the_run_that_gave_the_task_has_ended():
    recorder, held = Recorder(), Held()
    scout = Agent(ScriptedModel(call("held"), "It is x."), name="scout", tools=[held.tool])
    agent = chief(in_background(), "Given.", "Told.", agents=[scout], watchers=[recorder])
    session = agent.session("s")
    subscription = agent.session("s").subscribe()
    async with asyncio.timeout(SECONDS):
        assert (await session.run("Go")).text == "Given."
        await held.started.wait()
        recorder.entries.clear()
        held.released.set()
        await until(lambda: any(isinstance(each, RunEnded) and each.path for each in recorder.events))
    heard = [subscription.get_nowait().event for _ in range(len(subscription))]
    assert "It is x." in [getattr(event, "text", "") for event in recorder.events if event.path]
    assert [type(event) for event in recorder.events] == [type(each) for each in heard[-len(recorder.events) :]]
    async with asyncio.timeout(SECONDS):
        await until(lambda: not session._driver.attach_to_loop()._held_watchers)
    subscription.close()


async def test_watchers_hear_the_background_of_a_run_without_a_session_too():
    recorder, held = Recorder(), Held()
    scout = Agent(ScriptedModel(call("held"), "It is x."), name="scout", tools=[held.tool])
    agent = chief(in_background(), "Given.", agents=[scout], watchers=[recorder])
    async with asyncio.timeout(SECONDS):
        await agent.run("Go")
        held.released.set()
        await until(lambda: any(isinstance(each, RunEnded) and each.path for each in recorder.events))
    assert "It is x." in [getattr(event, "text", "") for event in recorder.events if event.path]


async def test_a_watcher_hears_the_background_once_while_the_session_runs_again():
    recorder, held = Recorder(), Held()
    scout = Agent(ScriptedModel(call("held"), "It is x."), name="scout", tools=[held.tool])
    agent = chief(in_background(), "Given.", "Again.", "Told.", agents=[scout], watchers=[recorder])
    async with asyncio.timeout(SECONDS):
        await agent.session("s").run("Go")
        await held.started.wait()
        await agent.session("s").run("And?")
        held.released.set()
        await until(lambda: any(isinstance(each, RunEnded) and each.path for each in recorder.events))
    assert len([each for each in recorder.events if isinstance(each, RunStarted)]) == 3
    assert len([each for each in recorder.events if isinstance(each, RunEnded)]) == 3


async def test_watchers_hear_how_the_background_ends_when_the_block_of_the_agent_is_left():
    recorder, held = Recorder(), Held()
    scout = Agent(ScriptedModel(call("held"), "Never said."), name="scout", tools=[held.tool])
    async with asyncio.timeout(SECONDS):
        async with chief(in_background(), "Given.", agents=[scout], watchers=[recorder]) as agent:
            await agent.session("s").run("Go")
            await held.started.wait()
        ends = [each for each in recorder.events if isinstance(each, RunEnded | RunWaiting) and each.path]
    assert [type(each) for each in ends] == [RunWaiting]


async def test_a_program_waits_for_the_background_before_it_leaves_the_block_of_the_agent():
    store, one, two = MemoryStore(), Held("one"), Held("two")
    scout = Agent(following(call("one"), call("two"), "It is x."), name="scout", tools=[one.tool, two.tool])
    both = calls(in_background("One."), in_background("Two."))
    replies = (both, "Given.", "Told.")
    async with asyncio.timeout(SECONDS), team_of(*replies, scout=scout, store=store, most_at_once=1) as agent:
        session = agent.session("s")
        assert await session.wait_for_agents() is True  # nobody works for it
        await session.run("Go")
        waiting = asyncio.ensure_future(agent.session("s").wait_for_agents())
        await one.started.wait()
        assert not waiting.done()
        one.released.set()
        two.released.set()
        assert await waiting is True
        assert len(await store.posts("s")) == 2
        outcome = await session.wake()
    assert outcome is not None
    assert outcome.new_messages[0].text.count("Response: It is x.") == 2
    assert (one.cancelled, two.cancelled) == (0, 0)


async def test_a_program_waits_for_the_background_for_so_many_seconds():
    clock, held = FakeClock(), Held()
    scout = Agent(following(call("held"), "It is x."), name="scout", tools=[held.tool])
    session = chief(in_background(), "Given.", agents=[scout], clock=clock).session("s")
    async with asyncio.timeout(SECONDS):
        await session.run("Go")
        await held.started.wait()
        waiting = asyncio.ensure_future(session.wait_for_agents(5))
        await clock.wait_for_sleepers()
        await clock.advance(6)
        assert await waiting is False
        held.released.set()
        assert await session.wait_for_agents(5) is True
    with pytest.raises(ConfigError, match="seconds"):
        await session.wait_for_agents("long")  # type: ignore[arg-type]


@pytest.mark.parametrize("step", ["release", "post"])
async def test_a_task_that_ends_while_the_block_of_the_agent_is_left_is_told_of(step):
    """Its run is over, and so is that of the session which gave it: nobody would look for its answer."""

    class Slow(MemoryStore):
        reached, released = asyncio.Event(), asyncio.Event()

        async def release(self, lease: Lease) -> None:
            await super().release(lease)
            if of(await log_of(self, lease.session_id), RunEnded):
                await self.wait("release", lease.session_id != "s")

        async def post(self, session_id: str, post: Post) -> bool:
            await self.wait("post", session_id == "s")
            return await super().post(session_id, post)

        async def wait(self, at: str, is_meant: bool) -> None:
            if at == step and is_meant:
                self.reached.set()
                await self.released.wait()

    store = Slow()
    scout = Agent(ScriptedModel("It is x."), name="scout")
    async with asyncio.timeout(SECONDS):
        async with team_of(in_background("One."), "Given.", scout=scout, store=store) as agent:
            await agent.session("s").run("Go")
            await store.reached.wait()
            asyncio.get_running_loop().call_later(0.01, store.released.set)
        assert len(await store.posts("s")) == 1
        assert "Response: It is x." in await told_by_worker(store)


async def test_an_answer_that_cannot_be_read_when_the_agent_is_left_is_told_later(caplog):
    class Unreadable(MemoryStore):
        broken = False

        async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
            if self.broken and session_id != "s":
                raise StoreError("not now")
            return await super().read(session_id, after=after)

    store = Unreadable()
    scout = Agent(ScriptedModel("Never said."), name="scout")
    async with team_of(in_background("One."), "Given.", scout=scout, store=store) as agent, occupied(agent):
        await agent.session("s").run("Go")
        store.broken = True
    assert "cannot be read: not now" in caplog.text
    store.broken = False
    assert "Response: Did One." in await told_by_worker(store)


async def test_leaving_the_block_of_an_agent_does_not_stop_the_tasks_of_another_one():
    """Two agents of one process, each with a crew, have taken up the same task: one of them works on it."""
    store, held = MemoryStore(), Held()
    scout = Agent(following(call("held"), "It is x."), name="scout", tools=[held.tool])
    async with asyncio.timeout(SECONDS), team_of(in_background("One."), "Given.", scout=scout, store=store) as agent:
        session = agent.session("s")
        await session.run("Go")
        await held.started.wait()
        async with team_of("Yes.", scout=scout, store=store) as other:
            await other.session("s").run("Are you there?")
        assert held.cancelled == 0
        held.released.set()
        assert await session.wait_for_agents() is True
        assert len(await store.posts("s")) == 1


# -- tasks that have not begun -----------------------------------------------------------------------------------------


def team_of(*replies: Any, scout: Any, store: Store | str, most_at_once: int = 4) -> Agent[Any]:
    """A chief with one scout; each of them says these replies."""
    crew = [delegation([scout], most_at_once=most_at_once)]
    return Agent(ScriptedModel(*replies), name="chief", extensions=crew, store=store)


async def told_by_worker(store: Store | str, count: int = 1) -> str:
    """What the chief is told of its tasks, by a worker in another process."""
    told = ""
    scout = Agent(ScriptedModel(lambda request: f"Did {request.messages[0].text}", repeat_last=True), name="scout")
    worker = Agent(
        ScriptedModel("Told.", repeat_last=True), name="chief", extensions=[delegation([scout])], store=store
    )
    async with asyncio.timeout(SECONDS), worker, aclosing(worker.attend_all(seconds=0.01)) as outcomes:
        while told.count("Response:") < count:
            outcome = await anext(outcomes)
            told += "".join([each.text for each in outcome.new_messages if each.origin == "inbox"])
    return told


@asynccontextmanager
async def occupied(agent: Agent[Any]) -> AsyncGenerator[None]:
    """As many tasks are at work as may be, so that no other begins, until the agent is left."""
    (crew,) = [each.background for each in agent.extensions]
    for _ in range(4):
        await crew._get_semaphore().acquire()  # type: ignore[union-attr]
    yield


@pytest.mark.parametrize("kind", ["memory:", "file:", "sqlite:"])
async def test_a_task_that_had_not_begun_when_its_process_ended_is_taken_up_by_a_worker(kind, tmp_path):
    store = MemoryStore() if kind == "memory:" else open_store(f"{kind}{tmp_path / 'sessions'}")
    scout = Agent(ScriptedModel("Never said."), name="scout")
    two = calls(in_background("One."), in_background("Two."))
    async with team_of(two, "Given.", scout=scout, store=store) as agent, occupied(agent):
        await agent.session("s").run("Go")
    rows = await store.list_interrupted()
    assert [(row.session_id.partition("-")[0], row.progress) for row in rows] == [("s/scout", "cut_off")] * 2
    told = await told_by_worker(store, 2)
    assert (told.count("Response: Did One."), told.count("Response: Did Two.")) == (1, 1)
    assert await store.list_interrupted(include_posts=True) == []
    await store.aclose()


async def test_a_task_whose_process_died_before_its_log_began_is_taken_up_by_a_worker():
    store = MemoryStore()
    scout = Agent(ScriptedModel("Never said."), name="scout")
    async with team_of(in_background("One."), "Given.", scout=scout, store=store) as agent:
        await agent.session("s").run("Go")
    entries = await store.read("s")
    given = next(place for place, each in enumerate(entries, 1) if isinstance(each.event, ValueKept))
    lost = await left_behind(entries[:given])
    assert await told_by_worker(lost) == "[Inbox: 1 resolved]\n- [agent:scout] Request: One. -> Response: Did One."
    assert await lost.list_interrupted(include_posts=True) == []


async def test_a_task_without_a_log_gets_one_when_another_prompt_closes_the_run_that_gave_it():
    store = MemoryStore()
    scout = Agent(ScriptedModel("Never said."), name="scout")
    async with team_of(in_background("One."), "Given.", scout=scout, store=store) as agent:
        await agent.session("s").run("Go")
    entries = await store.read("s")
    given = next(place for place, each in enumerate(entries, 1) if isinstance(each.event, ValueKept))
    lost = await left_behind(entries[:given])
    async with team_of("Else.", scout=scout, store=lost) as agent, occupied(agent):
        await agent.session("s").run("Something else")
    assert [row.progress for row in await lost.list_interrupted()] == ["cut_off"]
    assert "Response: Did One." in await told_by_worker(lost)


async def test_a_run_that_is_cancelled_while_it_gives_a_task_leaves_the_task_to_be_found():
    slow = WaitingStore()
    slow.holds_back = SessionConfigured
    slow.open.clear()
    scout = Agent(ScriptedModel("Never said."), name="scout")
    async with asyncio.timeout(SECONDS), team_of(in_background("One."), scout=scout, store=slow) as agent:
        session = agent.session("s")
        running = asyncio.ensure_future(session.run("Go"))
        await slow.waiting.wait()
        await session.cancel()
        await rounds()
        slow.open.set()
        assert (await running).status == "cancelled"
    assert [row.progress for row in await slow.list_interrupted()] == ["cut_off"]
    assert "Response: Did One." in await told_by_worker(slow)


async def test_a_task_that_ends_before_it_begins_is_not_taken_up_again(caplog):
    def wrap(_: Any) -> Any:
        raise RuntimeError("no model")

    store, held = MemoryStore(), Held()
    broken = Agent(ScriptedModel(), name="scout", extensions=[Extension(name="broken", wrap_model=wrap)])
    async with team_of(in_background(), call("wait_for_agents"), "Top.", scout=broken, store=store) as agent:
        assert "(failed)" in results_in(await agent.session("s").run("Go"))[1]
    assert await store.list_interrupted() == []

    def cancel_the_second(request: Any) -> Any:
        return call("cancel_agent", handle=request.messages[-1].tool_results[1].render["handle"])

    busy = Agent(following(call("held"), "Done."), name="scout", tools=[held.tool])
    two = calls(in_background("One."), in_background("Two."))
    replies = (two, cancel_the_second, call("wait_for_agents"), "Top.")
    async with asyncio.timeout(SECONDS), team_of(*replies, scout=busy, store=store, most_at_once=1) as agent:
        held.released.set()
        await agent.session("t").run("Go")
    assert await store.list_interrupted() == []
    children = [await log_of(store, row.session_id) for row in await store.list(prefix="t/")]
    ends = [each.reason for events in children for each in of(events, RunEnded)]
    assert sorted(ends) == ["", "withdrawn"]


async def test_a_task_that_was_cancelled_before_it_began_does_not_begin_in_another_process():
    """The other process has it in its queue, and does not hear of the cancel."""
    store, held, done = MemoryStore(), Held(), list[str]()
    busy = Agent(
        following(call("held"), call("act", what="x"), "Done."), name="scout", tools=[held.tool, act_tool(done)]
    )
    two = calls(in_background("One."), in_background("Two."))
    async with asyncio.timeout(SECONDS), team_of(two, "Given.", scout=busy, store=store, most_at_once=1) as agent:
        await agent.session("s").run("Go")
        await held.started.wait()
        (row,) = await store.list_interrupted()
        other = team_of(call("cancel_agent", handle=row.session_id[2:]), "Stopped.", scout=busy, store=store)
        async with occupied(other):
            await other.session("s").run("Stop it.")
            await cancel_background_tasks(other.session("s"))
        held.released.set()
        await agent.session("s").run("And?", model=ScriptedModel(call("wait_for_agents"), "Done."))
        await rounds(100)
    assert (len(done), await store.list_interrupted()) == (1, [])


async def test_a_task_that_begins_while_the_block_of_its_agent_ends_is_left_to_the_next_process():
    class HoldsBackChildren(WaitingStore):
        async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
            if lease.session_id != "s" and any(isinstance(each.event, RunStarted) for each in entries):
                self.waiting.set()
                await self.open.wait()
            await super().append(lease, entries, sync=sync)

    store: Any = HoldsBackChildren()
    store.open.clear()
    store.holds_back = RunResumed  # nothing else is held back
    scout = Agent(ScriptedModel("It is x."), name="scout")
    async with asyncio.timeout(SECONDS):
        agent = team_of(in_background(), "Given.", scout=scout, store=store)
        await agent.__aenter__()
        await agent.session("s").run("Go")
        await store.waiting.wait()
        leaving = asyncio.ensure_future(agent.__aexit__(None, None, None))
        await rounds()
        store.open.set()
        await leaving
        (row,) = await store.list(prefix="s/")
        last = (await log_of(store, row.session_id))[-1]
        assert isinstance(last, RunWaiting)
        assert last.reason == "shutdown"
        assert "Response: Did" in await told_by_worker(store)


@pytest.mark.parametrize("by", ["wake", "run"])
async def test_a_task_whose_process_died_before_its_report_is_reported_by_the_next_one_at_once(by, monkeypatch):
    store, scout = MemoryStore(), Agent(ScriptedModel("It is x."), name="scout")
    with monkeypatch.context() as died:
        died.setattr(BackgroundAgents, "_post_answer", AsyncMock())
        async with asyncio.timeout(SECONDS), team_of(in_background(), "Given.", scout=scout, store=store) as agent:
            session = agent.session("s")
            await session.run("Go")
            await session.wait_for_agents()
    assert ([row.progress for row in await store.list_interrupted()], await store.posts("s")) == (["cut_off"], [])
    again = team_of("Told.", "Told again.", scout=scout, store=store).session("s")
    outcome = await (again.wake() if by == "wake" else again.run("And?"))
    assert outcome is not None
    assert sum(each.text.count("Response: It is x.") for each in outcome.messages) == 1
    assert (await again.wake(), await store.list_interrupted()) == (None, [])


@pytest.mark.parametrize("kind", ["memory:", "file:", "sqlite:"])
async def test_a_task_that_ended_as_its_process_died_is_reported_by_a_worker(kind, tmp_path, monkeypatch):
    store = MemoryStore() if kind == "memory:" else open_store(f"{kind}{tmp_path / 'sessions'}")
    scout = Agent(ScriptedModel("It is x."), name="scout")
    with monkeypatch.context() as died:
        died.setattr(BackgroundAgents, "_post_answer", AsyncMock())
        async with asyncio.timeout(SECONDS), team_of(in_background(), "Given.", scout=scout, store=store) as agent:
            await agent.session("s").run("Go")
            await agent.session("s").wait_for_agents()
    (row,) = await store.list_interrupted()
    assert (row.session_id.partition("-")[0], row.progress) == ("s/scout", "cut_off")
    assert "Response: It is x." in await told_by_worker(store)
    assert await store.list_interrupted(include_posts=True) == []
    await store.aclose()


@pytest.mark.parametrize("kind", ["memory:", "file:", "sqlite:"])
@pytest.mark.parametrize("by", ["worker", "run"])
async def test_a_task_of_a_background_agent_whose_own_task_is_over_is_reported_to_the_session_above(
    by, kind, tmp_path, monkeypatch
):
    def build(scout: Any, helper: Any, *replies: Any) -> Agent[Any]:
        own = Agent(scout, name="scout", extensions=[delegation([Agent(helper, name="helper")])])
        return team_of(*replies, scout=own, store=store)

    store = MemoryStore() if kind == "memory:" else open_store(f"{kind}{tmp_path / 'sessions'}")
    scouting = ScriptedModel(in_background(agent="helper"), "Seen.")
    agent = build(scouting, ScriptedModel("It is x."), in_background(), "Given.")
    with monkeypatch.context() as died:
        died.setattr(BackgroundAgents, "_post_answer", lost := AsyncMock())
        async with asyncio.timeout(SECONDS), agent:
            await agent.session("s").run("Go")
            await until(lambda: len({each.args[1].session_id for each in lost.await_args_list}) == 2)  # of both agents
    told: list[str] = []

    def listen(request: Any) -> str:
        told.extend([each.text for each in request.messages if each.role == "user"])
        return "Told."

    again = build(ScriptedModel(), ScriptedModel(), *[listen] * 3)
    async with asyncio.timeout(SECONDS), again:
        if by == "run":
            await again.session("s").run("And?")
            while not all(f"Response: {each}" in "".join(told) for each in ("It is x.", "Seen.")):
                await again.session("s").wake()  # an answer is passed on from log to log, while the session rests
                await rounds()
        else:
            async with aclosing(again.attend_all(seconds=0.01)) as outcomes:
                async for _ in outcomes:
                    if "Response: It is x." in "".join(told):
                        break
    assert len({each for each in told if "Response: It is x." in each}) == 1
    assert len({each for each in told if "Response: Seen." in each}) == 1
    await store.aclose()


def chain_of_agents(depth: int, held: Held, store: Store, told: list[str]) -> Agent[Any]:
    """A chief whose agent gives its task to another one in the background, and so on; only the deepest one works."""

    def delegating(name: str, below: Agent[Any], **options: Any) -> Agent[Any]:
        def say(request: Any) -> Any:
            told.extend([each.text for each in request.messages if name == "chief" and each.role == "user"])
            has_delegated = any(each.role == "assistant" for each in request.messages)
            return f"{name} is done." if has_delegated else in_background(agent=below.name)

        model = ScriptedModel(say, repeat_last=True)
        return Agent(model, name=name, extensions=[delegation([below])], **options)

    agent = Agent(following(call("held"), "It is x."), name="deepest", tools=[held.tool])
    for level in range(depth):
        agent = delegating(f"agent{level}", agent)
    return delegating("chief", agent, store=store)


async def tell_all(agent: Agent[Any], told: list[str], last: str) -> None:
    """Let a worker go on until the chief was told this."""
    async with aclosing(agent.attend_all(seconds=0.01)) as outcomes:
        async for _ in outcomes:
            if f"Response: {last}" in "".join(told):
                break


@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_a_task_below_agents_whose_own_tasks_are_over_is_resumed_and_reported_after_a_kill(depth, kind, tmp_path):
    """The store is copied while the last agent works: that is what a process leaves which is killed then."""
    told, held = list[str](), Held(effect="read")
    (tmp_path / "live").mkdir()
    store: Any = open_store(f"{kind}:{tmp_path / 'live' / 'sessions'}")
    async with asyncio.timeout(SECONDS), chain_of_agents(depth, held, store, told) as agent:
        await agent.session("s").run("Go")
        await held.started.wait()
        await tell_all(agent, told, "agent0 is done.")
        shutil.copytree(tmp_path / "live", tmp_path / "copy")
        held.released.set()
        await tell_all(agent, told, "It is x.")
    await store.aclose()
    told.clear()
    store = open_store(f"{kind}:{tmp_path / 'copy' / 'sessions'}")
    async with asyncio.timeout(SECONDS), chain_of_agents(depth, held, store, told) as agent:
        await tell_all(agent, told, "It is x.")
    assert len({each for each in told if "Response: It is x." in each}) == 1
    await store.aclose()


@pytest.mark.parametrize("by", ["worker", "run"])
async def test_a_report_that_was_posted_and_not_recorded_is_recorded_by_the_next_process(by, monkeypatch):
    store, scout = MemoryStore(), Agent(ScriptedModel("It is x."), name="scout")
    with monkeypatch.context() as died:
        died.setattr("perdure._runtime.subagents.background.record_task_end_report", AsyncMock())
        async with asyncio.timeout(SECONDS), team_of(in_background(), "Given.", scout=scout, store=store) as agent:
            await agent.session("s").run("Go")
            await agent.session("s").wait_for_agents()
            (row,) = await store.list_interrupted()
            if by == "worker":
                await agent.session("s").wake(model=ScriptedModel("Told."))
    worker = team_of("Told.", scout=scout, store=store)
    if by == "run":
        outcome = await worker.session("s").run("And?")
        assert sum(each.text.count("Response: It is x.") for each in outcome.messages) == 1
    else:
        assert await SessionResumer(worker, store, {}).attend(row.session_id) is None
    assert await store.list_interrupted(include_posts=True) == []


async def test_a_report_to_a_session_that_was_deleted_is_not_attempted_for_ever(monkeypatch):
    store, scout = MemoryStore(), Agent(ScriptedModel("It is x."), name="scout")
    with monkeypatch.context() as died:
        died.setattr(BackgroundAgents, "_post_answer", AsyncMock())
        async with asyncio.timeout(SECONDS), team_of(in_background(), "Given.", scout=scout, store=store) as agent:
            await agent.session("s").run("Go")
            await agent.session("s").wait_for_agents()
    await store.delete("s")
    (row,) = await store.list_interrupted()
    assert await SessionResumer(team_of(scout=scout, store=store), store, {}).attend(row.session_id) is None
    assert await store.list_interrupted(include_posts=True) == []


async def test_a_report_that_cannot_be_recorded_now_is_recorded_later(monkeypatch):
    store, scout = MemoryStore(), Agent(ScriptedModel("It is x."), name="scout")
    with monkeypatch.context() as died:
        died.setattr(BackgroundAgents, "_post_answer", AsyncMock())
        async with asyncio.timeout(SECONDS), team_of(in_background(), "Given.", scout=scout, store=store) as agent:
            await agent.session("s").run("Go")
            await agent.session("s").wait_for_agents()
    (row,) = await store.list_interrupted()
    worker = team_of("Told.", scout=scout, store=store)
    with monkeypatch.context() as busy:
        busy.setattr(Session, "_append_events", AsyncMock(side_effect=SessionBusy("in use")))
        assert await SessionResumer(worker, store, {}).attend(row.session_id) is not None
    assert [each.session_id for each in await store.list_interrupted()] == [row.session_id]
    assert await SessionResumer(worker, store, {}).attend(row.session_id) is None
    assert await store.list_interrupted(include_posts=True) == []


async def test_a_fork_of_the_session_of_a_background_agent_is_a_session_of_its_own():
    store, scout = MemoryStore(), Agent(ScriptedModel("It is x.", "Again."), name="scout")
    async with asyncio.timeout(SECONDS), team_of(in_background(), "Given.", scout=scout, store=store) as agent:
        await agent.session("s").run("Go")
        await agent.session("s").wait_for_agents()
        (row,) = await store.list(prefix="s/")
        fork = await scout.session(row.session_id, store=store).fork("mine")
        assert (await fork.run("Once more")).text == "Again."
    assert await store.list_interrupted() == []
    assert find_task_giver(await fork.read_state(), "mine") == ""


@pytest.mark.parametrize("has_begun", [True, False])
async def test_a_worker_that_does_not_know_a_background_agent_says_so_once(caplog, has_begun):
    store, held = MemoryStore(), Held()
    scout = Agent(following(call("held"), "Done."), name="scout", tools=[held.tool])
    async with asyncio.timeout(SECONDS):
        async with team_of(in_background(), "Given.", scout=scout, store=store) as agent:
            if has_begun:
                await agent.session("s").run("Go")
                await held.started.wait()
            else:
                async with occupied(agent):
                    await agent.session("s").run("Go")
        (row,) = await store.list(prefix="s/")
        cook = Agent(ScriptedModel(), name="cook")
        worker = team_of("Told.", scout=cook, store=store)
        attending = asyncio.ensure_future(anext(worker.attend_all(seconds=0.001)))
        await until(lambda: "is not one of this worker's agents" in caplog.text, 0.001)
        attending.cancel()
        await asyncio.wait((attending,))
        other = SessionResumer(worker, store, {})
        await other.attend(row.session_id)
        await other.attend(row.session_id)
    assert f"session {row.session_id} waits: agent 'scout'" in caplog.text
    assert caplog.text.count("is not one of this worker's agents") == 2


async def test_a_task_whose_log_cannot_begin_yet_begins_later(caplog):
    class Refusing(MemoryStore):
        refuses = 2

        async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
            if session_id != "s" and self.refuses:
                self.refuses -= 1
                raise StoreError("not now")
            return await super().acquire(session_id, take_over=take_over)

    store, clock = Refusing(), FakeClock()
    scout = Agent(ScriptedModel("It is x."), name="scout")
    session = chief(in_background(), "Given.", "Told.", agents=[scout], store=store, clock=clock).session("s")
    await session.run("Go")
    assert "has no log yet: not now" in caplog.text
    async with asyncio.timeout(SECONDS):
        while (outcome := await session.wake()) is None:
            await clock.advance(4)
            await rounds()
    assert "Response: It is x." in outcome.new_messages[0].text


async def test_a_resumed_session_takes_up_its_background_before_the_calls_that_it_has_to_make():
    store, held = MemoryStore(), Held(effect="read")
    busy = Held("busy")
    scout = Agent(following(call("busy"), "It is x."), name="scout", tools=[busy.tool])
    first = chief(in_background(), call("held"), "Given.", agents=[scout], store=store, tools=[held.tool]).session("s")
    async with asyncio.timeout(SECONDS):
        going = asyncio.ensure_future(first.run("Go"))
        await held.started.wait()
        await busy.started.wait()
        lost = await left_behind(await store.read("s"))
        going.cancel()
        await asyncio.wait((going,))
    done, again = Held("busy"), Held(effect="read")
    scout = Agent(following(call("busy"), "It is x."), name="scout", tools=[done.tool])
    agent = chief("Given.", "Told.", agents=[scout], store=lost, tools=[again.tool])
    async with asyncio.timeout(SECONDS):
        resuming = asyncio.ensure_future(agent.session("s").resume())
        await again.started.wait()
        await done.started.wait()  # while the call of the resumed run is still going on
        done.released.set()
        again.released.set()
        await resuming


async def test_gate_deps_and_budget_come_from_whoever_gave_the_task():
    seen: list[Any] = []
    ledger = Budget(token_budget=100_000)

    @tool
    async def look(context: ToolContext[Any]) -> str:
        """Looks."""
        seen.append(context.deps)
        return "seen"

    scout = Agent(
        following(calls(call("look"), call("act", what="x")), "Done."), name="scout", tools=[look, act_tool([])]
    )
    agent = chief(
        in_background(),
        call("wait_for_agents"),
        "Top.",
        agents=[scout],
        deps="ours",
        budget=ledger,
        permission=Permissions(deny("act")),
    )
    session = agent.session("s")
    await session.run("Go")
    assert (seen, ledger.spent_tokens) == (["ours"], 5 * 15)
    (child,) = await session.store.list(prefix="s/")
    (results,) = [
        each for each in fold_events(await log_of(session.store, child.session_id)).messages if each.role == "tool"
    ]
    assert [each.status for each in results.tool_results] == [Status.OK, Status.DENIED]


@pytest.mark.parametrize("way", ["tool", "handoff", "role"])
async def test_what_a_background_agent_passes_its_work_on_to_counts_in_the_budget_of_whoever_gave_the_task(way: str):
    helper = Agent(ScriptedModel(Reply("Help.", usage=Usage(1_000, 200))), name="helper")
    asks = {"tool": call("helper", task="Go."), "handoff": call("hand_over_to_helper"), "role": None}[way]
    spoken = [Reply("", calls=(asks,), usage=Usage(100, 20))] if asks else []
    scout = Agent(
        ScriptedModel(*spoken, Reply("Seen.", usage=Usage(100, 20))),
        name="scout",
        tools=[helper.as_tool()] if way == "tool" else [],
        handoffs=[helper] if way == "handoff" else [],
        roles=[Role("guide", "Guide.", model="demo")],
        role="guide" if way == "role" else "",
    )
    budget, store = Budget(token_budget=100_000), MemoryStore()
    chief = Agent(
        ScriptedModel(in_background(), "Given."),
        name="chief",
        extensions=[delegation([scout])],
        store=store,
        budget=budget,
    )
    async with asyncio.timeout(SECONDS), chief:
        session = chief.session("s")
        await session.run("Go")
        await session.wait_for_agents()
    sessions = [chief.session(row.session_id) for row in await store.list()]
    assert len(sessions) == 2
    assert budget.spent_tokens == sum([(await each.read_state()).usage.total_tokens for each in sessions])


async def test_the_depth_is_counted_through_sessions():
    deep = delegation([Agent(ScriptedModel("Deep."), name="deep")], max_depth=1)
    middle = Agent(following(call("delegate", agent="deep", task="Go."), "Middle."), name="middle", extensions=[deep])
    session = chief(in_background(agent="middle"), call("wait_for_agents"), "Top.", agents=[middle]).session("s")
    await session.run("Go")
    (child,) = await session.store.list(prefix="s/")
    messages = fold_events(await log_of(session.store, child.session_id)).messages
    assert "agent number 2 in a row, and at most 1 are allowed" in messages[2].tool_results[0].text


async def test_a_background_agent_can_wait_for_an_answer():
    @tool(permission=True)
    async def risky() -> str:
        """Needs permission."""
        return "risked"

    clock = FakeClock()
    scout = Agent(following(call("risky"), call("risky"), "Done."), name="scout", tools=[risky], clock=clock)
    session = chief(
        in_background(), call("list_agents"), "Top.", "Told.", agents=[scout], permission=Permissions(handler=later)
    ).session("s")
    await session.run("Go")
    await clock.wait_for_sleepers()
    (child,) = await session.store.list(prefix="s/")
    there = scout.session(child.session_id, store=session.store)
    async with asyncio.timeout(SECONDS):
        while (outcome := await session.wake()) is None:
            for question in await there.questions():
                await there.answer(question.ask_id, answer=True)
            await clock.advance(1)
            await rounds()
    assert "Response: Done." in outcome.new_messages[0].text


def asking() -> Agent[Any]:
    """An agent that asks two things, shows one, and tells the answers."""

    @tool(asks_first=True)
    async def which(context: ToolContext[Any]) -> str:
        """Asks which."""
        return await context.ask("Which one?")

    @tool
    async def show(context: ToolContext[Any]) -> str:
        """Shows how far it is."""
        await context.display.push(PlainText("Half way."))
        return "shown"

    def tell(request: Any) -> Any:
        said = [result.text for message in request.messages for result in message.tool_results]
        return (call("show"), call("which"), call("which"), f"Took {', '.join(said[1:])}.")[len(said)]

    return Agent(ScriptedModel(tell, repeat_last=True), name="scout", tools=[which, show], clock=FakeClock())


async def asked_below(session: Session[Any]) -> Any:
    """The question that an agent in the background asks, as the session shows it that gave the task."""
    async with asyncio.timeout(SECONDS):
        while not (questions := await session.questions()):
            await rounds()
    return questions[0]


async def test_a_question_from_the_background_is_answered_where_the_task_was_given():
    scout = asking()
    session = chief(in_background(), "Given.", "Told.", agents=[scout]).session("s")
    await session.run("Go")
    first = await asked_below(session)
    (child,) = await session.store.list(prefix="s/")
    assert (first.text, f"s/{first.path}") == ("Which one?", child.session_id)
    assert await session.answer(first.ask_id, "a") is True
    assert await session.answer(first.ask_id, "b") is False
    await scout.clock.wait_for_sleepers()  # type: ignore[attr-defined]
    await scout.clock.advance(1)  # type: ignore[attr-defined]
    async with asyncio.timeout(SECONDS):
        while (second := await asked_below(session)).ask_id == first.ask_id:
            await rounds()
    assert await session.display.resolve(second.ask_id, "c") is True
    await scout.clock.wait_for_sleepers()  # type: ignore[attr-defined]
    await scout.clock.advance(1)  # type: ignore[attr-defined]
    assert "Response: Took a, c." in (await woken(session)).new_messages[0].text
    assert (await session.questions(), await session.answer(second.ask_id, "late")) == ([], False)
    with pytest.raises(UsageError, match="no open question 'nonsense': open are none"):
        await session.answer("nonsense", "x")


async def test_what_the_background_shows_is_shown_and_closed_where_the_task_was_given():
    scout = asking()
    session = chief(in_background(), "Given.", agents=[scout]).session("s")
    await session.run("Go")
    question = await asked_below(session)
    await scout.clock.wait_for_sleepers()  # type: ignore[attr-defined] # it waits, and would go on at once otherwise
    line, asked = await session.display.slots()
    assert (line.renderer, asked.slot_id, asked.path, asked.waits) == ("text", question.ask_id, question.path, True)
    async with aclosing(session.display.subscribe()) as changes:
        assert await anext(changes) == [line, asked]
        assert await session.display.remove(line.slot_id) is True
        assert await session.display.reject(asked.slot_id, "not now") is True
        async with asyncio.timeout(SECONDS):
            assert await anext(changes) == []
    assert await session.display.slots() == []


async def test_a_fork_does_not_answer_for_the_session_that_it_comes_from():
    session = chief(in_background(), "Given.", agents=[asking()]).session("s")
    await session.run("Go")
    question = await asked_below(session)
    fork = await session.fork("f")
    assert (await fork.questions(), await fork.display.slots()) == ([], [])
    with pytest.raises(UsageError, match="has no open question"):
        await fork.answer(question.ask_id, "x")


async def test_an_end_that_cannot_be_posted_is_told_when_the_session_runs_again(caplog):
    class Deaf(MemoryStore):
        deaf = True

        async def post(self, session_id: str, post: Any) -> bool:
            if self.deaf:
                raise StoreError("the line is dead")
            return await super().post(session_id, post)

    store, scout = Deaf(), Agent(ScriptedModel("It is x."), name="scout")
    session = chief(in_background(), "Given.", "Hm.", "Told.", agents=[scout], store=store).session("s")
    await session.run("Go")
    await rounds(200)
    assert "cannot be posted: the line is dead" in caplog.text
    store.deaf = False
    outcome = await session.run("And?")
    assert any("Response: It is x." in each.text for each in outcome.new_messages)


# -- when the process dies ---------------------------------------------------------------------------------------------


async def died_with_the_child_cut_off(store: MemoryStore, cut: int) -> MemoryStore:
    """What a process leaves that has died when the child had stored so many entries, and the chief had ended."""
    (child,) = await store.list(prefix="s/")
    lost = await left_behind(await store.read("s"))
    lease = await lost.acquire(child.session_id)
    await lost.append(lease, (await store.read(child.session_id))[:cut], sync=True)
    await lost.release(lease)
    return lost


def restarted(store: Store, done: list[str]) -> Any:
    scout = Agent(following(call("act", what="x"), "It is x."), name="scout", tools=[act_tool(done)])
    return chief("On it.", "Told.", agents=[scout], store=store).session("s")


async def test_what_a_crash_cut_off_is_taken_up_and_told_once():
    store, done = MemoryStore(), list[str]()
    scout = Agent(following(call("act", what="x"), "It is x."), name="scout", tools=[act_tool(done)])
    await chief(in_background(), "Given.", agents=[scout], store=store).session("s").run("Go")
    await rounds(200)
    assert await store.posts("s")
    (child,) = await store.list(prefix="s/")
    whole = await store.read(child.session_id)
    for cut in [0, 1, *range(3, len(whole) + 1)]:
        lost = await died_with_the_child_cut_off(store, cut)
        session = restarted(lost, [])
        outcome = await session.run("How is it going?")
        if cut < len(whole) - 1:  # else it was over, and is reported at once
            outcome = await woken(session)
        assert sum("Response: It is x." in each.text for each in outcome.new_messages) == 1, cut
        events = await log_of(lost, "s")
        assert len(of(events, InboxResolved)) == len(of(events, SubagentFinished)) == 1
        assert len(await lost.list(prefix="s/")) == 1


async def test_whoever_attends_to_a_session_takes_up_what_a_crash_cut_off():
    store, done = MemoryStore(), list[str]()
    scout = Agent(following(call("act", what="x"), "It is x."), name="scout", tools=[act_tool(done)])
    await chief(in_background(), "Given.", agents=[scout], store=store).session("s").run("Go")
    await rounds(200)
    for cut in (0, 4):
        lost = await died_with_the_child_cut_off(store, cut)
        stranger = Agent(ScriptedModel(), extensions=[delegation([scout.replace(name="other")])], store=lost)
        assert await stranger.session("s").wake() is None
        session = chief("Told.", agents=[scout], store=lost).session("s")
        assert await session.wake() is None  # it goes on, and there is nothing to tell yet
        assert len(of(await log_of(lost, "s"), InboxAdded)) == 1
        outcome = await woken(session)
        assert "Response: It is x." in outcome.new_messages[0].text
        assert await session.wake() is None


async def test_whoever_is_driven_elsewhere_is_left_alone_by_wake():
    store = MemoryStore()
    scout = Agent(ScriptedModel("It is x.", repeat_last=True), name="scout")
    await chief(in_background(), "Given.", agents=[scout], store=store).session("s").run("Go")
    await rounds(200)
    lost = await died_with_the_child_cut_off(store, 4)
    lease = await lost.acquire("s")
    assert await chief(agents=[scout], store=lost).session("s").wake() is None
    await lost.release(lease)


async def test_a_task_that_was_redacted_is_still_told_of():
    scout = Agent(ScriptedModel("It is x."), name="scout")
    session = chief(in_background("Find 0000."), "Given.", "Told.", "Yes?", agents=[scout]).session("s")
    await session.run("Go")
    await rounds(200)
    for entry in await session.store.read("s"):
        if isinstance(entry.event, InboxAdded | SubagentStarted | ValueKept):
            await session.redact(entry.seq)
    outcome = await woken(session)
    assert "Response: It is x." in outcome.new_messages[0].text
    assert len(of(await log_of(session.store, "s"), SubagentFinished)) == 1
    assert (await session.run("And now?")).status == "done"


async def test_a_task_that_was_redacted_before_it_was_begun_is_told_as_failed():
    store = MemoryStore()
    scout = Agent(ScriptedModel("It is x."), name="scout")
    await chief(in_background("Find 0000."), "Given.", agents=[scout], store=store).session("s").run("Go")
    lost = await left_behind(await store.read("s"))
    session = chief("Told.", agents=[Agent(ScriptedModel(), name="scout")], store=lost).session("s")
    for entry in await lost.read("s"):
        if isinstance(entry.event, ValueKept):
            await session.redact(entry.seq)
    assert "redacted from the log before it was started" in (await woken(session)).new_messages[0].text


async def test_what_tools_keep_is_never_taken_for_a_task():
    @tool
    async def note(context: ToolContext[Any]) -> str:
        """Keeps something under a name of older tasks."""
        await context.keep("agent:mood", "fine")
        return "noted"

    scout = Agent(ScriptedModel("It is x."), name="scout")
    session = chief(call("note"), call("list_agents"), "Top.", agents=[scout], tools=[note]).session("s")
    outcome = await session.run("Go")
    assert (outcome.status, results_in(outcome)[1]) == ("done", "scout: idle")


# -- what it may use ---------------------------------------------------------------------------------------------------


def circling(**options: Any) -> Agent[Any]:
    """An agent that never comes to an end by itself."""
    model = ScriptedModel(call("act", what="x"), repeat_last=True, price=Price(input_usd=1e6, output_usd=1e6))
    return Agent(model, name="scout", tools=[act_tool([])], **options)


@pytest.mark.in_memory("how far the run above has got when a background agent begins")
@pytest.mark.parametrize(
    ("above", "own", "reason", "spent"),
    [
        (Limits(token_budget=100), Limits(), "token_budget", 75),
        (Limits(token_budget=100), Limits(token_budget=40), "token_budget", 45),
        (Limits(token_budget=10), Limits(), "token_budget", 15),
        (Limits(max_cost_usd=100), Limits(), "max_cost", 75),
        (Limits(max_cost_usd=100), Limits(max_cost_usd=40), "max_cost", 45),
        (Limits(max_cost_usd=10), Limits(), "max_cost", 15),
        (Limits(), Limits(token_budget=40), "token_budget", 45),
    ],
)
async def test_a_background_agent_has_what_is_left_to_whoever_gave_the_task(above, own, reason, spent):
    model = ScriptedModel(in_background(), "Given.", "Told.", price=Price(input_usd=1e6, output_usd=1e6))
    agent = Agent(model, extensions=[delegation([circling(limits=own)])], limits=above)
    session = agent.session("s")
    await session.run("Go")
    await until_posted(session)
    (child,) = await session.store.list(prefix="s/")
    state = fold_events(await log_of(session.store, child.session_id))
    assert state.run_ended_event is not None
    assert (state.run_ended_event.reason, state.usage.total_tokens) == (reason, spent)


@pytest.mark.in_memory("how far the run above has got when a background agent begins")
@pytest.mark.parametrize(("limit", "spent"), [(44.5, 45), (45.5, 60)])
async def test_a_run_that_has_cost_nothing_leaves_all_of_its_limit_to_a_background_agent(limit, spent):
    model = ScriptedModel(in_background(), "Given.", "Told.", price=Price(input_usd=0.0, output_usd=0.0))
    agent = Agent(model, extensions=[delegation([circling()])], limits=Limits(max_cost_usd=limit))
    session = agent.session("s")
    await session.run("Go")
    await until_posted(session)
    (child,) = await session.store.list(prefix="s/")
    state = fold_events(await log_of(session.store, child.session_id))
    assert state.run_ended_event is not None
    assert (state.run_ended_event.reason, state.usage.total_tokens) == ("max_cost", spent)


async def until_posted(session: Session[Any]) -> None:
    async with asyncio.timeout(SECONDS):
        while not await session.store.posts(session.session_id):
            await rounds()


@pytest.mark.parametrize(
    ("price", "cost"),
    [(None, 15), (Price(input_usd=0.0, output_usd=0.0), 15), (Price(input_usd=1e6, output_usd=1e6), 45)],
    ids=["unknown", "free", "known"],
)
async def test_what_a_background_agent_has_used_counts_when_its_end_is_told(price, cost):
    scout = Agent(ScriptedModel(call("act", what="x"), "Done.", price=price), name="scout", tools=[act_tool([])])
    model = ScriptedModel(in_background(), "Given.", "Told.", price=Price(input_usd=1e6, output_usd=1e6))
    session = Agent(model, extensions=[delegation([scout])]).session("s")
    assert (await session.run("Go")).usage.total_tokens == 30
    outcome = await woken(session)
    assert outcome.usage.total_tokens == 45
    assert outcome.cost_usd == pytest.approx(cost)


async def test_a_call_that_is_made_again_finds_the_task_that_it_gave():
    store = MemoryStore()
    scout = Agent(ScriptedModel("It is x.", repeat_last=True), name="scout")
    session = chief(in_background(), call("wait_for_agents"), "Top.", agents=[scout], store=store).session("s")
    await session.run("Go")
    entries = await store.read("s")
    cut = next(place for place, entry in enumerate(entries, 1) if isinstance(entry.event, InboxAdded)) + 1
    lost = await left_behind(entries[:cut])
    session = chief(call("wait_for_agents"), "Top.", agents=[scout], store=lost).session("s")
    outcome = await session.resume()
    assert "It is x." in results_in(outcome)[-1]
    assert len(of(await log_of(lost, "s"), InboxAdded)) == 1


async def test_what_a_call_was_told_when_it_was_cut_off_is_told_to_it_again():
    store = MemoryStore()
    scout = Agent(ScriptedModel("It is x."), name="scout")
    session = chief(in_background(), call("wait_for_agents"), "Top.", agents=[scout], store=store).session("s")
    await session.run("Go")
    entries = await store.read("s")
    cut = next(place for place, entry in enumerate(entries, 1) if isinstance(entry.event, InboxResolved)) + 1
    (child,) = await store.list(prefix="s/")
    lost = await left_behind(await store.read(child.session_id), child.session_id)
    lease = await lost.acquire("s")
    await lost.append(lease, entries[:cut], sync=True)
    await lost.release(lease)
    outcome = await chief("Top.", agents=[scout], store=lost).session("s").resume()
    assert results_in(outcome)[-1].endswith("It is x.")
    assert len(of(await log_of(lost, "s"), InboxResolved)) == 1


async def test_tasks_end_with_the_block_of_their_agent_and_go_on_in_the_next():
    store, held = MemoryStore(), Held()
    scout = Agent(following(call("held"), "It is x."), name="scout", tools=[held.tool])
    agent = chief(in_background(), "Given.", agents=[scout], store=store)
    async with agent:
        await agent.session("s").run("Go")
        await asyncio.wait_for(held.started.wait(), SECONDS)
    assert held.cancelled == 1
    model = ScriptedModel("It was x.")
    again = chief("Hm.", "Told.", agents=[Agent(model, name="scout")], store=store).session("s")
    await again.run("And?")
    outcome = await woken(again)
    assert "Response: It was x." in outcome.new_messages[0].text
    assert [str(each.status) for each in model.requests[0].messages[-1].tool_results] == ["cancelled"]


async def test_a_task_that_its_process_has_left_is_taken_up_by_a_worker_with_the_same_key():
    store, keys = MemoryStore(), list[str]()
    started, released = asyncio.Event(), asyncio.Event()

    @tool(effect="idempotent")
    async def build(context: ToolContext[Any]) -> str:
        """Build it."""
        keys.append(context.idempotency_key)
        started.set()
        await released.wait()
        return "built"

    scout = Agent(following(call("build"), "It is built."), name="scout", tools=[build])
    async with asyncio.timeout(SECONDS):
        async with chief(in_background(), "Given.", agents=[scout], store=store) as agent:
            await agent.session("s").run("Go")
            await started.wait()
        assert [item.status for item in await chief(agents=[scout], store=store).session("s").inbox()] == ["pending"]
        released.set()
        (listed,) = await store.list_interrupted()
        assert listed.progress == "waiting"
        scout = Agent(ScriptedModel("It is built."), name="scout", tools=[build])
        async with aclosing(chief("Told.", agents=[scout], store=store).attend_all(seconds=0.01)) as outcomes:
            outcome = await anext(outcomes)
    assert outcome.text == "Told."
    assert "Response: It is built." in outcome.new_messages[0].text
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_a_task_whose_run_was_cancelled_with_its_process_is_told_to_go_on():
    store, held = MemoryStore(), Held()
    scout = Agent(following(call("held"), "It is x."), name="scout", tools=[held.tool])
    agent = chief(in_background(), "Given.", agents=[scout], store=store)
    await agent.session("s").run("Go")
    await asyncio.wait_for(held.started.wait(), SECONDS)
    await cancel_background_tasks(agent.session("s"))
    model = ScriptedModel("It was x.")
    again = chief("Hm.", "Told.", agents=[Agent(model, name="scout")], store=store).session("s")
    await again.run("And?")
    outcome = await woken(again)
    assert "Response: It was x." in outcome.new_messages[0].text
    assert model.requests[0].messages[-1].text == RESUME_PROMPT


async def test_a_task_that_was_cancelled_twice_and_then_cut_off_is_taken_up_where_it_was_left():
    store = lost = MemoryStore()
    name = ""
    for says in (in_background(), "Hm.", "Hm."):
        held = Held()
        scout = Agent(following(call("held"), "It is x."), name="scout", tools=[held.tool])
        agent = chief(says, "Given.", agents=[scout], store=store)
        await agent.session("s").run("Go")
        await asyncio.wait_for(held.started.wait(), SECONDS)
        (child,) = await store.list(prefix="s/")
        name = child.session_id
        lost = await died_with_the_child_cut_off(store, child.entries)
        await cancel_background_tasks(agent.session("s"))  # the task, and each of its continuations
    done = restarted(lost, [])
    await done.run("And?")
    await woken(done)
    events = await log_of(lost, name)
    begun = [each.input_id for each in of(events, RunStarted)]
    assert [each.status for each in of(events, RunEnded)] == ["cancelled", "cancelled", "done"]
    assert len(begun) == len(set(begun)) == 3


async def test_a_task_whose_session_is_driven_elsewhere_is_waited_for():
    store, clock = MemoryStore(), FakeClock()
    scout = Agent(ScriptedModel("It is x.", repeat_last=True), name="scout")
    await chief(in_background(), "Given.", agents=[scout], store=store).session("s").run("Go")
    await rounds(200)
    lost = await died_with_the_child_cut_off(store, 0)
    (name,) = [info.session_id for info in await store.list(prefix="s/")]
    lease = await lost.acquire(name)
    session = chief("On it.", "Told.", agents=[scout], store=lost, clock=clock).session("s")
    await session.run("And?")
    await clock.wait_for_sleepers()
    await lost.release(lease)
    async with asyncio.timeout(SECONDS):
        while (outcome := await session.wake()) is None:
            await clock.advance(1)
            await rounds()
    assert outcome.text == "Told."


@pytest.mark.parametrize("waits", [False, True])
async def test_a_task_whose_session_was_taken_over_is_no_failure_and_goes_on_when_that_is_free(waits):
    """As after a pause that was longer than the lease: nobody else may be left to end the task."""
    store, clock, held = MemoryStore(), FakeClock(), Held(effect="idempotent", permission=waits)
    scout = Agent(following(call("held"), "It is x."), name="scout", tools=[held.tool], clock=clock)
    gate = Permissions(handler=later)
    session = chief(
        in_background(), "Given.", "Told.", agents=[scout], store=store, clock=clock, permission=gate
    ).session("s")
    await session.run("Go")
    await rounds()
    (child,) = [info.session_id for info in await store.list(prefix="s/")]
    there = scout.session(child, store=store)
    async with asyncio.timeout(SECONDS):
        while not held.started.is_set():  # where it waits for an answer first, `attend` has begun it
            for question in await there.questions():
                await there.answer(question.ask_id, answer=True)
            await clock.advance(1)
            await rounds()
        lease = await store.acquire(child, take_over=True)
        held.released.set()
        await rounds(50)
        assert [post for post in await store.posts("s") if post.kind == "inbox"] == []
        await store.release(lease)
        while (outcome := await session.wake()) is None:
            await clock.advance(1)
            await rounds()
    assert "Response: It is x." in outcome.new_messages[0].text
    assert [each.status for each in of(await log_of(store, child), RunEnded)] == ["done"]


class UnreachableStore(MemoryStore):
    """A store that cannot be reached for some calls about the sessions of background agents."""

    failures = 0

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
        if self.failures and "/" in session_id:
            self.failures -= 1
            raise StoreError("it cannot be reached")
        return await super().acquire(session_id, take_over=take_over)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("failures", [1, 4, 5, 12])
async def test_a_task_whose_store_is_out_of_reach_for_a_while_is_not_over(waits, failures):
    store, clock, held = UnreachableStore(), FakeClock(), Held(effect="idempotent", permission=waits)
    held.released.set()
    scout = Agent(following(call("held"), "It is x."), name="scout", tools=[held.tool], clock=clock)
    gate = Permissions(handler=later)
    agent = chief(in_background(), "Given.", "Told.", agents=[scout], store=store, clock=clock, permission=gate)
    session = agent.session("s")
    store.failures = 0 if waits else failures
    await session.run("Go")
    async with asyncio.timeout(SECONDS):
        while (outcome := await session.wake()) is None:
            for question in await session.questions():
                if await session.answer(question.ask_id, answer=True):  # the first time
                    store.failures = failures
            await clock.advance(1)
            await rounds()
    assert "Response: It is x." in outcome.new_messages[0].text
    (child,) = [info.session_id for info in await store.list(prefix="s/")]
    assert [each.status for each in of(await log_of(store, child), RunEnded)] == ["done"]


async def test_a_task_of_an_agent_that_is_gone_stays_where_it_is():
    store = MemoryStore()
    scout = Agent(ScriptedModel("It is x."), name="scout")
    await chief(in_background(), "Given.", agents=[scout], store=store).session("s").run("Go")
    await rounds(200)
    lost = await died_with_the_child_cut_off(store, 0)
    other = Agent(ScriptedModel("x"), name="other")
    session = chief("On it.", agents=[other], store=lost).session("s")
    assert (await session.run("And?")).status == "done"
    assert [item.status for item in await session.inbox()] == ["pending"]


@pytest.mark.parametrize("seconds", [0, 600])
async def test_a_background_agent_that_waits_for_an_answer_does_not_hold_up_the_end_of_the_block(seconds):
    """Also if it waits for the answer here: it is left to the next process."""
    store, held = MemoryStore(), Held(permission=True)
    scout = Agent(following(call("held"), "It is x."), name="scout", tools=[held.tool], answer_timeout_seconds=seconds)
    agent = chief(in_background(), "Given.", agents=[scout], store=store, permission=Permissions(handler=later))
    async with asyncio.timeout(SECONDS):
        async with agent:
            session = agent.session("s")
            await session.run("Go")
            while not await session.questions():  # noqa: ASYNC110 - a question sets no event
                await asyncio.sleep(0)
    (child,) = [info.session_id for info in await store.list(prefix="s/")]
    assert len(await scout.session(child, store=store).questions()) == 1
    assert not held.started.is_set()


async def test_a_program_waits_only_for_the_agents_of_its_own_session():
    held = Held()
    scout = Agent(following(call("held"), "It is x."), name="scout", tools=[held.tool])
    agent = chief(in_background(), "Given.", agents=[scout])
    async with asyncio.timeout(SECONDS):
        await agent.session("s").run("Go")
        await held.started.wait()
        assert await agent.session("t").wait_for_agents() is True
        held.released.set()
        assert await agent.session("s").wait_for_agents() is True


async def test_a_task_whose_log_could_not_begin_gets_one_while_it_waits_for_its_turn(caplog):
    store = UnreachableStore()
    scout = Agent(ScriptedModel("Never said."), name="scout")
    async with asyncio.timeout(SECONDS), team_of(in_background("One."), "Given.", scout=scout, store=store) as agent:
        store.failures = 1
        async with occupied(agent):
            await agent.session("s").run("Go")
            assert "has no log yet: it cannot be reached" in caplog.text
            while not await store.list(prefix="s/"):
                await rounds()
    (row,) = await store.list_interrupted()
    assert await log_of(store, row.session_id) == [
        SessionConfigured({DEPTH_SETTING: 1, GIVEN_BY_SETTING: "s"}),
    ]


async def test_a_task_that_had_no_log_begins_it_with_who_gave_the_task():
    store, clock = UnreachableStore(), FakeClock(auto=True)
    scout = Agent(ScriptedModel("It is x."), name="scout")
    agent = chief(in_background(), "Given.", agents=[scout], store=store, clock=clock)
    store.failures = 1
    await agent.session("s").run("Go")
    await agent.session("s").wait_for_agents()
    (row,) = await store.list(prefix="s/")
    first = (await log_of(store, row.session_id))[0]
    assert first == SessionConfigured({DEPTH_SETTING: 1, GIVEN_BY_SETTING: "s"})


async def test_a_task_whose_store_stays_out_of_reach_is_left_after_five_errors_with_longer_and_longer_waits(caplog):
    store, clock = UnreachableStore(), FakeClock(auto=True)
    scout = Agent(ScriptedModel("It is x."), name="scout")
    agent = chief(in_background(), "Given.", agents=[scout], store=store, clock=clock)
    store.failures = 100
    async with asyncio.timeout(SECONDS):
        await agent.session("s").run("Go")
        await agent.session("s").wait_for_agents()
    assert clock.slept == [2.0, 4.0, 8.0, 16.0]
    assert store.failures == 100 - 6  # the first was that of the run which gave the task
    assert "of session s cannot be driven: it cannot be reached" in caplog.text
    assert [item.status for item in await agent.session("s").inbox()] == ["pending"]


async def test_a_slow_watcher_has_heard_how_the_background_ends_when_the_block_of_the_agent_is_left():
    heard, held = list[str](), Held()
    scout = Agent(ScriptedModel(call("held"), "Never said."), name="scout", tools=[held.tool])

    async def watch(entry: Entry) -> None:
        await rounds(20)
        heard.append(type(entry.event).__name__ if entry.event.path else "")

    async with asyncio.timeout(SECONDS):
        async with chief(in_background(), "Given.", agents=[scout], watchers=[watch]) as agent:
            await agent.session("s").run("Go")
            await held.started.wait()
        assert heard[-1] == "RunWaiting"


async def test_a_result_that_came_too_late_for_a_cancelled_task_goes_to_whoever_gave_it_first() -> None:
    store, held = MemoryStore(), Held()
    scout = Agent(following(call("held"), "It is x."), name="scout", tools=[held.tool])
    agent = chief(in_background(), "Given.", agents=[scout], store=store)
    await agent.session("s").run("Go")
    await asyncio.wait_for(held.started.wait(), SECONDS)
    await cancel_background_tasks(agent.session("s"))
    (child,) = await store.list(prefix="s/")
    await scout.session(child.session_id, store=store).add_to_inbox("mail", "Any news?", item_id="i1")
    await store.post(child.session_id, build_resolution_post("i1", "No news.", 5.0))  # the process died before more
    model = ScriptedModel("It was x.")
    again = chief("Hm.", "Told.", agents=[Agent(model, name="scout")], store=store).session("s")
    await again.run("And?")
    await woken(again)
    assert "No news." not in str(model.requests[0].messages)
    assert "No news." in str(await again.messages())
