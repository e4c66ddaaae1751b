"""A run as engines see it, and the outcome it ends in."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from perdure import (
    Agent,
    ConfigError,
    Limits,
    Outcome,
    Permissions,
    ProviderDown,
    Retry,
    ToolContext,
    Usage,
    UsageError,
    tool,
    user,
)
from perdure._core.run.calling_run import get_run_of_call
from perdure.engines import Run, act, react, run_turn
from perdure.events import Custom, ErrorRaised, MessageAdded, ModelRequested, QuestionAsked, RunEnded, ToolProgress
from perdure.models import Price
from perdure.permissions import later
from perdure.testing import FakeClock, Recorder, Reply, ScriptedModel, call
from tests.doubles import SECONDS, Held, log_of, of, rounds, until

pytestmark = pytest.mark.resumed


@tool(effect="read")
async def look() -> str:
    """Looks."""
    return "there"


async def inside(body: Callable[[Run], Awaitable[Any]], *replies: Any, **options: Any) -> Any:
    """What a function returns that is given a run as an engine is."""
    returned: list[Any] = []

    async def engine(run: Run) -> Outcome[Any]:
        returned.append(await body(run))
        return run.outcome("done")

    price = options.pop("price", None)
    outcome = await Agent(ScriptedModel(*replies, price=price), engine=engine, **options).run("Go")
    if outcome.error is not None:
        raise outcome.error
    return returned[0]


# -- outcomes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["done", "stopped"])
def test_an_outcome_that_got_to_its_end_unwraps_to_itself(status):
    outcome: Outcome[Any] = Outcome(status=status)
    assert outcome.unwrap() is outcome


@pytest.mark.parametrize("status", ["limit", "cancelled", "waiting", "parked", "failed"])
def test_any_other_outcome_unwraps_to_an_error(status):
    with pytest.raises(UsageError, match=f"the run ended with status '{status}' \\(no reason given\\)"):
        Outcome(status=status).unwrap()


def test_the_reason_of_an_outcome_is_told():
    with pytest.raises(UsageError, match="'limit' \\(max_turns\\)"):
        Outcome(status="limit", reason="max_turns").unwrap()


def test_an_outcome_that_failed_unwraps_to_its_error():
    error = ProviderDown("gone")
    with pytest.raises(ProviderDown) as raised:
        Outcome(status="failed", error=error).unwrap()
    assert raised.value is error


async def test_an_outcome_tells_what_is_new_and_everything():
    session = Agent(ScriptedModel("One.", "Two.")).session("s")
    await session.run("First")
    outcome = await session.run("Second")
    assert [message.text for message in outcome.new_messages] == ["Second", "Two."]
    assert [message.text for message in outcome.messages] == ["First", "One.", "Second", "Two."]
    assert (outcome.message, outcome.session_id) == (outcome.messages[-1], "s")
    assert len(outcome.run_id) == 32


async def test_a_run_in_which_the_model_never_spoke_has_no_message():
    session = Agent(ScriptedModel("One.", ProviderDown("gone"))).session()
    await session.run("First")
    outcome = await session.run("Second")
    assert (outcome.message, outcome.text) == (None, "")


@pytest.mark.parametrize("given", [{"feedback": ""}, {"feedback": "x", "origin": 5}, {"feedback": "x", "event": "y"}])
def test_feedback_that_cannot_be_told_is_refused_where_it_is_made(given):
    with pytest.raises(ConfigError, match="Retry"):
        Retry(**given)


# -- what an engine can do ---------------------------------------------------------------------------------------------


async def test_an_engine_takes_turns_and_acts_for_itself():
    async def body(run: Run) -> list[str]:
        reply = await run_turn(run)
        results = await act(run, reply)
        answer = await run_turn(run)
        return [results[0].text, answer.text, run.messages[-1].text]

    assert await inside(body, call("look"), "Done.", tools=[look]) == ["there", "Done.", "Done."]


async def test_an_engine_may_wrap_another():
    async def twice(run: Run) -> Outcome[Any]:
        await react(run)
        await run.emit(MessageAdded(user("Are you sure?", origin="doubt"), run_id=run.run_id))
        return await react(run)

    outcome = await Agent(ScriptedModel("Yes.", "Quite sure."), engine=twice).run("Go")
    assert (outcome.status, outcome.text, outcome.turns) == ("done", "Quite sure.", 2)


async def test_an_engine_that_raises_fails_the_run_and_is_logged(caplog):
    async def broken(run: Run) -> Outcome[Any]:
        raise ZeroDivisionError("oops")

    outcome = await Agent(ScriptedModel(), engine=broken).session("s").run("Go")
    assert (outcome.status, outcome.reason, str(outcome.error)) == ("failed", "ZeroDivisionError", "oops")
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert (record.run_id, record.session_id) == (outcome.run_id, "s")


async def test_an_error_that_was_foreseen_is_not_logged_as_a_surprise(caplog):
    await Agent(ScriptedModel(ProviderDown("gone"))).run("Go")
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_an_error_that_cannot_be_shown_fails_the_run_all_the_same():
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    async def broken(run: Run) -> Outcome[Any]:
        raise Hostile

    agent = Agent(ScriptedModel(), engine=broken)
    outcome = await agent.session("s").run("Go")
    assert (outcome.status, outcome.reason) == ("failed", "Hostile")
    assert of(await log_of(agent.store, "s"), RunEnded)[0].error == "(no readable message)"


async def test_what_a_run_costs_is_known_while_it_runs():
    async def body(run: Run) -> Any:
        before = run.cost_usd
        await run_turn(run)
        return before, run.cost_usd

    price = Price(input_usd=1.0, output_usd=2.0)
    reply = Reply("Hello.", usage=Usage(1_000_000, 500_000))
    assert await inside(body, reply, price=price) == (0.0, 2.0)
    assert await inside(body, reply) == (None, None)


async def test_an_engine_may_ask_again_for_a_reply_that_broke_off():
    async def patient(run: Run) -> Outcome[Any]:
        try:
            await run_turn(run)
        except ProviderDown:
            await run_turn(run)
        return run.outcome("done")

    agent = Agent(ScriptedModel(ProviderDown("gone"), "Hello."), engine=patient, limits=Limits(max_turns=1))
    outcome = await agent.session("s").run("Hi")
    assert (outcome.text, outcome.turns) == ("Hello.", 1)
    requests = of(await log_of(agent.store, "s"), ModelRequested)
    assert [(each.turn, each.attempt) for each in requests] == [(1, 1), (1, 2)]


async def test_a_turn_that_has_no_reply_yet_may_be_tried_again_at_the_limit():
    async def body(run: Run) -> list[str]:
        told = [run.find_reached_limit()]
        with pytest.raises(ProviderDown):
            await run_turn(run)
        told.append(run.find_reached_limit())
        await run_turn(run)
        return [*told, run.find_reached_limit()]

    replies = (ProviderDown("gone"), "Hello.")
    assert await inside(body, *replies, limits=Limits(max_turns=1)) == ["", "", "max_turns"]


@pytest.mark.in_memory("tools are code")
async def test_the_prefix_of_a_request_is_hashed_anew_only_when_it_changes():
    @tool
    async def more(context: ToolContext) -> str:
        """Adds a tool."""
        context.add_tools(look)
        return "added"

    agent = Agent(ScriptedModel(call("more"), call("look"), "Done."), instructions="Be brief.", tools=[more])
    await agent.session("s").run("Go")
    first, second, third = [each.prefix for each in of(await log_of(agent.store, "s"), ModelRequested)]
    assert first != second == third
    instructions, _, tools = first.partition("-")
    assert second.startswith(instructions)
    assert not second.endswith(tools)


async def test_a_request_that_an_engine_made_itself_is_hashed_by_what_it_has():
    async def body(run: Run) -> list[str]:
        usual = run.build_request(run.messages)
        copied = msgspec.structs.replace(usual, tools=list(usual.tools))
        fewer = msgspec.structs.replace(usual, tools=())
        return [run.build_request_events(each)[-1].prefix for each in (usual, copied, fewer)]

    usual, copied, fewer = await inside(body, "Hello.", tools=[look])
    assert usual == copied != fewer


async def test_instructions_with_lone_surrogates_can_be_sent():
    model = ScriptedModel("Hello.")
    await Agent(model, instructions="Be \ud800 brief.").run("Hi")
    assert model.requests[0].instructions == "Be \ufffd brief."


# -- showing -----------------------------------------------------------------------------------------------------------


async def test_what_is_passing_is_shown_and_not_stored():
    recorder = Recorder()

    async def body(run: Run) -> None:
        run.publish(Custom("passing", run_id=run.run_id))
        run.publish_progress("c1", "act", {"at": {1, 2}})

    agent_options: dict[str, Any] = {"watchers": [recorder]}
    await inside(body, **agent_options)
    shown = [entry for entry in recorder.entries if isinstance(entry.event, Custom | ToolProgress)]
    assert [entry.seq for entry in shown] == [0, 0]
    assert recorder.of(ToolProgress)[0].data == {"at": [1, 2]}


async def test_progress_from_another_thread_comes_by_way_of_the_event_loop():
    recorder = Recorder()

    async def body(run: Run) -> None:
        thread = threading.Thread(target=run.publish_progress, args=("c1", "act", "far"))
        thread.start()
        thread.join(SECONDS)
        assert not recorder.of(ToolProgress)
        await rounds()

    await inside(body, watchers=[recorder])
    assert [event.data for event in recorder.of(ToolProgress)] == ["far"]


async def test_an_error_is_shown_and_logged_when_somebody_reports_it(caplog):
    recorder = Recorder()

    async def body(run: Run) -> None:
        run.report_error(ValueError("no luck"), "the shape")

    await inside(body, watchers=[recorder])
    (shown,) = recorder.of(ErrorRaised)
    assert (shown.error, shown.message, shown.where) == ("ValueError", "no luck", "the shape")
    assert "the shape failed in run" in caplog.text


async def test_when_nobody_watches_nothing_is_shown():
    async def body(run: Run) -> int:
        run.publish(Custom("passing"))
        return run.log.head

    assert await inside(body) == 2


async def test_what_is_stored_waits_for_a_reader_with_backpressure():
    stored = 0

    async def talkative(run: Run) -> Outcome[Any]:
        nonlocal stored
        for _ in range(5000):
            await run.emit(Custom("note", run_id=run.run_id))
            stored += 1
        return run.outcome("done")

    seen = 0
    async with asyncio.timeout(SECONDS):
        async for event in Agent(ScriptedModel(), engine=talkative).session().stream("Go", backpressure=True):
            seen += isinstance(event, Custom)
            assert stored - seen < 2500
    assert (seen, stored) == (5000, 5000)


# -- the end from outside ----------------------------------------------------------------------------------------------


async def test_a_run_that_was_told_to_end_before_it_began_never_does(monkeypatch):
    begun: list[str] = []

    async def engine(run: Run) -> Outcome[Any]:
        begun.append("begun")
        return run.outcome("done")

    session = Agent(ScriptedModel(), engine=engine).session()
    build = session._driver._build

    def built(*args: Any) -> Run:
        run = build(*args)
        run.cancel("now")
        return run

    monkeypatch.setattr(session._driver, "_build", built)
    outcome = await session.run("Go")
    assert (outcome.status, begun) == ("cancelled", [])


async def test_the_first_reason_to_end_counts():
    clock, held = FakeClock(), Held(abortable=False)
    session = Agent(
        ScriptedModel(call("held")), tools=[held.tool], clock=clock, limits=Limits(timeout_seconds=10)
    ).session()
    task = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        await clock.advance(10)
        await session.cancel()
        held.released.set()
        outcome = await task
    assert (outcome.status, outcome.reason) == ("limit", "timeout")


async def test_a_run_that_is_over_cannot_be_interrupted():
    runs: list[Run] = []

    async def engine(run: Run) -> Outcome[Any]:
        runs.append(run)
        return run.outcome("done")

    clock = FakeClock()
    outcome = await Agent(ScriptedModel(), engine=engine, clock=clock).run("Go")
    runs[0].interrupt("late")
    assert (outcome.status, clock.pending) == ("done", [])


# -- leaving a run for another process ---------------------------------------------------------------------------------


async def test_a_run_that_is_left_before_anything_has_begun_ends_at_once_as_waiting():
    async def engine(run: Run) -> Outcome[Any]:
        run.leave("shutdown")
        await asyncio.Event().wait()
        return run.outcome("done")

    session = Agent(ScriptedModel("Done."), engine=engine).session("s")
    async with asyncio.timeout(SECONDS):
        outcome = await session.run("Go")
    assert (outcome.status, outcome.reason) == ("waiting", "shutdown")


@pytest.mark.in_memory("that its process is about to leave it")
async def test_a_run_that_is_left_while_a_tool_works_waits_for_it_and_asks_nothing_more():
    @tool
    async def stop(context: ToolContext[Any]) -> str:
        """Stop."""
        get_run_of_call(context).leave("shutdown")
        await rounds()
        return "stopped"

    model = ScriptedModel(call("stop"), "Done.")
    session = Agent(model, tools=[stop]).session("s")
    async with asyncio.timeout(SECONDS):
        outcome = await session.run("Go")
    assert (outcome.status, outcome.reason, len(model.requests)) == ("waiting", "shutdown", 1)
    assert outcome.messages[-1].tool_results[0].text == "stopped"
    assert (await session.resume()).text == "Done."


async def test_a_run_that_is_left_while_it_waits_for_an_answer_waits_no_longer():
    runs: list[Run] = []
    recorder = Recorder()

    async def engine(run: Run) -> Outcome[Any]:
        runs.append(run)
        return await react(run)

    @tool(permission=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    options: dict[str, Any] = {"answer_timeout_seconds": 5_000, "clock": FakeClock(), "watchers": [recorder]}
    permission = Permissions(handler=later)
    agent = Agent(ScriptedModel(call("pay")), tools=[pay], engine=engine, permission=permission, **options)
    going = asyncio.ensure_future(agent.session("s").run("Go"))
    async with asyncio.timeout(SECONDS):
        await until(lambda: recorder.of(QuestionAsked))
        runs[0].leave("shutdown")
        outcome = await going
    assert outcome.status == "waiting"
