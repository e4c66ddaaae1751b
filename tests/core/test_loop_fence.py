"""A driver that was stopped and replaced begins no effect any more, wherever it goes on."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from perdure import Agent, EffectNotStarted, Session, Tool, ToolContext, tool
from perdure._core.log.store import CONFIRMED_SECONDS
from perdure._core.tools.worker.threads import THREAD_POOL
from perdure.events import ToolFinished, ToolStarted
from perdure.stores import Fenced, MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call, calls
from tests.doubles import SECONDS, log_of, of, until


class Stage:
    """A session, a clock that can be advanced as if the process were stopped, and the effects that have begun."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.begun: list[str] = []

    async def be_replaced(self, seconds: float = 1.0) -> None:
        """As if the process were stopped here, and another one took the session over."""
        self.clock._elapsed += seconds
        await self.store.acquire("s", take_over=True)

    def act(self, name: str, during: Callable[[], Any] | None = None, **options: Any) -> Tool[..., Any]:
        """A tool that notes that it has begun."""

        @tool(name=name, description="Acts.", **options)
        async def act() -> str:
            self.begun.append(name)
            if during is not None:
                await during()
            return "acted"

        return act

    def session(self, *script: Any, tools: Any, **options: Any) -> Session:
        agent = Agent(ScriptedModel(*script), tools=tools, store=self.store, clock=self.clock, **options)
        return agent.session("s")

    async def run_fenced(self, session: Session) -> None:
        async with asyncio.timeout(SECONDS):
            with pytest.raises(Fenced):
                await session.run("go")


async def test_calls_of_the_same_reply_are_not_begun_when_the_driver_was_replaced_in_the_first():
    stage = Stage()
    tools = [stage.act("one", stage.be_replaced), stage.act("two"), stage.act("three")]
    await stage.run_fenced(stage.session(calls(call("one"), call("two"), call("three")), tools=tools))
    assert stage.begun == ["one"]
    events = await log_of(stage.store, "s")
    assert [event.name for event in of(events, ToolStarted)] == ["one", "two", "three"]
    assert of(events, ToolFinished) == []


async def test_the_call_itself_is_not_begun_when_the_driver_was_replaced_after_its_intent():
    stage = Stage()

    class Paused(MemoryStore):
        def append_now(self, lease, entries, *, sync):
            done = super().append_now(lease, entries, sync=sync)
            if any(isinstance(entry.event, ToolStarted) for entry in entries):
                stage.clock._elapsed += 1
                session = self._sessions["s"]
                session.fence += 1
            return done

    stage.store = Paused(clock=stage.clock)
    await stage.run_fenced(stage.session(call("one"), tools=[stage.act("one")]))
    assert stage.begun == []


async def test_a_driver_that_was_stopped_and_not_replaced_goes_on():
    stage = Stage()

    async def be_stopped() -> None:
        stage.clock._elapsed += 3600

    tools = [stage.act("one", be_stopped), stage.act("two")]
    outcome = await stage.session(calls(call("one"), call("two")), "Done.", tools=tools).run("go")
    assert (outcome.status, stage.begun) == ("done", ["one", "two"])


async def test_what_only_reads_is_not_asked_about():
    stage = Stage()
    tools = [stage.act("one", stage.be_replaced), stage.act("look", effect="read")]
    await stage.run_fenced(stage.session(calls(call("one"), call("look")), tools=tools))
    assert stage.begun == ["one", "look"]


async def test_a_call_is_not_tried_again_when_the_driver_was_replaced_meanwhile():
    stage = Stage()

    async def fail() -> None:
        await stage.be_replaced()
        raise EffectNotStarted("the line is busy")

    session = stage.session(call("one"), tools=[stage.act("one", fail, retries=2)])
    task = asyncio.ensure_future(stage.run_fenced(session))
    await stage.clock.wait_for_sleepers()
    await stage.clock.advance(1)
    await task
    assert stage.begun == ["one"]


@pytest.mark.parametrize("tries", [1, 2])
async def test_a_tool_that_asks_first_does_not_begin_when_the_driver_was_replaced(tries):
    stage = Stage()
    attempts = []

    @tool(asks_first=True, retries=1)
    async def one(context: ToolContext) -> str:
        """Acts, after a while."""
        attempts.append(context.call_id)
        if len(attempts) == tries:
            await stage.be_replaced()
        await context.begin()
        if tries > len(attempts):
            raise EffectNotStarted("the line is busy")
        stage.begun.append("one")
        return "acted"

    session = stage.session(call("one"), tools=[one])
    task = asyncio.ensure_future(stage.run_fenced(session))
    if tries > 1:
        await stage.clock.wait_for_sleepers()
        await stage.clock.advance(1)
    await task
    assert stage.begun == []


async def test_a_tool_that_asks_first_begins_when_its_driver_was_only_stopped():
    stage = Stage()

    @tool(asks_first=True, effect="read")
    async def look(context: ToolContext) -> str:
        """Looks."""
        await context.begin()
        return "seen"

    @tool(asks_first=True)
    async def one(context: ToolContext) -> str:
        """Acts, after a while."""
        stage.clock._elapsed += 3600
        await context.begin()
        await context.begin()
        stage.begun.append("one")
        return "acted"

    outcome = await stage.session(calls(call("one"), call("look")), "Done.", tools=[one, look]).run("go")
    assert (outcome.status, stage.begun) == ("done", ["one"])


async def test_a_tool_of_a_subagent_is_not_begun_when_the_driver_was_replaced():
    stage = Stage()
    tools = [stage.act("one", stage.be_replaced), stage.act("two")]
    child = Agent(ScriptedModel(calls(call("one"), call("two"))), name="child", tools=tools)
    await stage.run_fenced(stage.session(call("child", task="Act."), tools=[child.as_tool(description="Acts.")]))
    assert stage.begun == ["one"]


@pytest.mark.parametrize("is_replaced", [True, False])
async def test_a_function_that_waited_for_its_thread_is_not_begun_when_the_driver_was_replaced(is_replaced):
    stage = Stage()
    inside, go_on = threading.Semaphore(0), threading.Event()

    def occupy() -> None:
        inside.release()
        go_on.wait(SECONDS)

    @tool
    def one() -> str:
        """Acts."""
        stage.begun.append("one")
        return "acted"

    @tool(effect="read")
    def look() -> str:
        """Looks."""
        return "seen"

    limit = THREAD_POOL._limit
    occupied = [asyncio.ensure_future(THREAD_POOL.run(occupy, (), {})) for _ in range(limit)]
    await asyncio.to_thread(lambda: [inside.acquire(timeout=SECONDS) for _ in range(limit)])
    session = stage.session(calls(call("one"), call("look")), "Done.", tools=[one, look])
    task = asyncio.ensure_future(session.run("go"))
    async with asyncio.timeout(SECONDS):
        await until(lambda: THREAD_POOL.waiting_count == 2, pause=0.001)
    stage.clock._elapsed += 1
    if is_replaced:
        await stage.store.acquire("s", take_over=True)
    go_on.set()
    await asyncio.gather(*occupied)
    async with asyncio.timeout(SECONDS):
        if is_replaced:
            with pytest.raises(Fenced):
                await task
        else:
            assert (await task).status == "done"
    assert stage.begun == ([] if is_replaced else ["one"])


async def test_the_store_is_not_asked_when_calls_begin_right_after_their_intents():
    stage = Stage()
    asked = []

    class Asked(MemoryStore):
        async def holds(self, lease):
            asked.append(lease)
            return await super().holds(lease)

    async def take_a_moment() -> None:
        stage.clock._elapsed += CONFIRMED_SECONDS / 3

    stage.store = Asked(clock=stage.clock)
    tools = [stage.act("one", take_a_moment), stage.act("two")]
    await stage.session(calls(call("one"), call("two")), call("one"), "Done.", tools=tools).run("go")
    assert (stage.begun, asked) == (["one", "two", "one"], [])


async def test_a_tool_gets_the_fence_which_grows_when_the_session_is_taken_over():
    stage = Stage()
    fences = []

    @tool
    async def one(context: ToolContext) -> str:
        """Acts."""
        fences.append(context.fence)
        return "acted"

    session = stage.session(call("one"), "Done.", call("one"), "Done.", tools=[one])
    await session.run("go")
    await stage.store.acquire("s", take_over=True)
    await session.run("go", take_over=True)
    assert fences == sorted(set(fences))
    assert len(fences) == 2
