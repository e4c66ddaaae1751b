"""Async work for callers that are not: twice in a row, from many threads, and never inside an event loop."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, Status, UsageError, tool
from perdure._runtime.agent.sync_loop import _background_loop, run_on_background_loop
from perdure.events import ModelEvent, ReplyFinished, TextDelta
from perdure.models import Request
from perdure.stores import MemoryStore
from perdure.testing import Recorder, ScriptedModel, call
from tests.doubles import SECONDS


def test_a_script_gets_its_answer_twice_in_a_row():
    agent = Agent(ScriptedModel("One.", "Two."))
    assert agent.run_sync("a").text == "One."
    assert agent.run_sync("b").text == "Two."


def test_a_script_may_use_tools_watchers_and_overrides():
    recorder = Recorder()

    @tool
    def look() -> str:
        """Looks."""
        return threading.current_thread().name

    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], watchers=[recorder])
    outcome = agent.run_sync("Go", instructions="Be brief.")
    assert outcome.messages[2].tool_results[0].text.startswith("perdure-tool")
    assert recorder.kinds[-1] == "run_ended"


def test_many_threads_may_run_agents_at_the_same_time():
    barrier = threading.Barrier(4)

    class Meeting:
        """Answers when four are asking."""

        async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            await asyncio.to_thread(barrier.wait, SECONDS)
            yield TextDelta(request.messages[-1].text)
            yield ReplyFinished()

    agent = Agent(Meeting())
    with ThreadPoolExecutor(4) as threads:
        outcomes = list(threads.map(agent.run_sync, ["a", "b", "c", "d"]))
    assert [outcome.text for outcome in outcomes] == ["a", "b", "c", "d"]


def test_all_calls_share_one_event_loop():
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert run_on_background_loop(loop) is run_on_background_loop(loop)


async def test_inside_an_event_loop_a_clear_error_says_what_to_do_instead():
    model = ScriptedModel("Hello.")
    with pytest.raises(UsageError, match=r"inside a running event loop.* use `await agent\.run"):
        Agent(model).run_sync("Hi")
    assert model.requests == []


def test_a_script_goes_on_after_the_agent_was_closed(tmp_path: Path):
    agent = Agent(ScriptedModel("One.", "Two.", "Three."), store=f"sqlite:{tmp_path / 'sessions.db'}")

    async def in_a_block() -> str:
        async with agent:
            return (await agent.run("a")).text

    assert agent.run_sync("a").text == "One."
    assert asyncio.run(in_a_block()) == "Two."
    assert agent.run_sync("b").text == "Three."
    run_on_background_loop(agent.store.aclose)


def test_an_error_is_raised_where_the_script_waits():
    async def work() -> None:
        raise ValueError("no luck")

    with pytest.raises(ValueError, match="no luck"):
        run_on_background_loop(work)


def test_an_agent_that_cannot_work_is_told_so():
    with pytest.raises(ValueError, match="the prompt is empty"):
        Agent(ScriptedModel()).run_sync("")


def test_an_interrupt_cancels_the_work(monkeypatch):
    started, cancelled = threading.Event(), threading.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    class Interrupted:
        """A future whose waiting is interrupted, as by Ctrl-C."""

        def __init__(self, future: Any) -> None:
            self.cancel = future.cancel

        def result(self) -> None:
            assert started.wait(SECONDS)
            raise KeyboardInterrupt

    submit = asyncio.run_coroutine_threadsafe
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", lambda *given: Interrupted(submit(*given)))
    with pytest.raises(KeyboardInterrupt):
        run_on_background_loop(work)
    assert cancelled.wait(SECONDS)


@pytest.fixture
def another_process(monkeypatch) -> Iterator[None]:
    """As in a forked child: other number, and the thread of the parent's event loop is not there."""
    loop, process = _background_loop.get_loop(), _background_loop._process
    monkeypatch.setattr(os, "getpid", lambda: process + 1)
    yield
    child, (thread,) = (
        _background_loop.get_loop(),
        [each for each in threading.enumerate() if each.name == "perdure-loop"][1:],
    )
    child.call_soon_threadsafe(child.stop)
    thread.join(SECONDS)
    child.close()
    _background_loop._loop, _background_loop._process = loop, process


def test_a_forked_child_gets_an_event_loop_of_its_own(another_process):
    before = _background_loop._loop
    assert Agent(ScriptedModel("Hello.")).run_sync("Hi").text == "Hello."
    assert _background_loop._loop is not before


def test_a_tool_on_a_thread_that_runs_its_own_session_gets_an_error_and_no_deadlock():
    agents: list[Agent[Any]] = []

    @tool
    def recurse() -> str:
        """Runs its own session from a thread."""
        return run_on_background_loop(lambda: agents[0].session("s").run("again")).text

    agents.append(Agent(ScriptedModel(call("recurse"), "Done."), tools=[recurse]))
    outcome = run_on_background_loop(lambda: agents[0].session("s").run("Go"))
    result = outcome.messages[2].tool_results[0]
    assert (result.status, "cannot run its own session" in result.text) == (Status.ERROR, True)


def test_a_tool_on_a_thread_may_run_another_agent():
    other = Agent(ScriptedModel("From another."))

    @tool
    def ask_another() -> str:
        """Asks another agent."""
        return other.run_sync("Hello?").text

    outcome = Agent(ScriptedModel(call("ask_another"), "Done."), tools=[ask_another]).run_sync("Go")
    assert outcome.messages[2].tool_results[0].text == "From another."


def test_an_interrupt_lets_the_run_end_in_good_order_first():
    @tool
    async def wait() -> None:
        """Waits for ever, and has somebody press Ctrl-C."""
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        await asyncio.Event().wait()

    store = MemoryStore()
    agent = Agent(ScriptedModel(call("wait")), tools=[wait], store=store)
    with pytest.raises(KeyboardInterrupt):
        agent.run_sync("Go")
    (session,) = asyncio.run(store.list())
    kinds = [type(entry.event).__name__ for entry in asyncio.run(store.read(session.session_id))]
    assert kinds[-2:] == ["ToolFinished", "RunEnded"]
