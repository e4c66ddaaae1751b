"""What a run may use. Each limit ends it in an outcome that keeps the work, and above all the last message."""

import asyncio
from typing import Any

import pytest

from perdure import (
    Agent,
    Budget,
    ConfigError,
    Limits,
    Permissions,
    Session,
    Status,
    StoreError,
    ToolContext,
    Usage,
    UsageError,
    ask,
    tool,
)
from perdure.engines import when_tool_called
from perdure.events import ReplyFinished, RunEnded, TextDelta, ToolFinished, ToolStarted
from perdure.models import Price
from perdure.permissions import Verdict, later
from perdure.stores import MemoryStore
from perdure.testing import FakeClock, Reply, ScriptedModel, call, calls, pause
from tests.doubles import SECONDS, Held, log_of, of, rounds
from tests.transcript import assert_valid

pytestmark = pytest.mark.resumed


@tool(effect="read")
async def look(place: str = "") -> str:
    """Looks."""
    return "there"


@tool(terminate=True)
async def finish() -> str:
    """Ends the run."""
    return "finished"


LOOK = Reply("I look.", calls=(call("look"),), usage=Usage(100, 20))
PRICE = Price(input_usd=1_000.0, output_usd=10_000.0)
"""A hundred tokens in and twenty out cost 0.3 dollars."""


async def until_asked(session: Session[Any]) -> None:
    while not await session.questions():  # noqa: ASYNC110 - the caller limits the time
        await asyncio.sleep(0)


async def limited(limits: Limits, *replies: Any, **options: Any) -> tuple[Any, ScriptedModel]:
    model = ScriptedModel(*(replies or (LOOK,)), repeat_last=True, price=PRICE)
    outcome = await Agent(model, tools=[look, finish], limits=limits, guardrails=(), **options).run("Go")
    assert_valid(outcome.messages)
    return outcome, model


@pytest.mark.parametrize(
    ("limits", "reason", "turns"),
    [
        (Limits(max_turns=3), "max_turns", 3),
        (Limits(token_budget=240), "token_budget", 2),
        (Limits(max_cost_usd=0.5), "max_cost", 2),
        (Limits(token_budget=120), "token_budget", 1),
        (Limits(max_cost_usd=PRICE.cost_usd(Usage(100, 20))), "max_cost", 1),
    ],
    ids=["max_turns", "token_budget", "max_cost", "token_budget exactly", "max_cost exactly"],
)
async def test_a_limit_ends_the_run_and_keeps_the_last_message(limits, reason, turns):
    outcome, model = await limited(limits)
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit", reason, turns)
    assert (outcome.text, len(model.requests)) == ("I look.", turns)
    assert outcome.messages[-1].tool_results[0].text == "there"
    with pytest.raises(UsageError, match=f"'limit' \\({reason}\\)"):
        outcome.unwrap()


async def test_an_answer_in_the_last_turn_that_is_allowed_is_done():
    outcome, _ = await limited(Limits(max_turns=1), "Hello.")
    assert (outcome.status, outcome.text) == ("done", "Hello.")


@pytest.mark.parametrize(("reply", "reason"), [(call("finish"), "terminated"), (LOOK, "stop_condition")])
async def test_a_run_that_stops_in_its_last_turn_has_stopped_and_hit_no_limit(reply, reason):
    outcome, _ = await limited(Limits(max_turns=1), reply, stop=when_tool_called("look"))
    assert (outcome.status, outcome.reason) == ("stopped", reason)


async def test_an_answer_that_breaks_the_budget_is_kept():
    outcome, _ = await limited(Limits(token_budget=1), Reply("A long answer.", usage=Usage(1000, 1000)))
    assert (outcome.status, outcome.text) == ("done", "A long answer.")


async def test_a_nudge_is_not_given_to_a_model_that_will_not_be_asked_again():
    model = ScriptedModel(call("look"), repeat_last=True)
    outcome = await Agent(model, tools=[look], limits=Limits(max_turns=3)).run("Go")
    assert (outcome.status, outcome.reason) == ("limit", "max_turns")
    assert outcome.messages[-1].role == "tool"


async def test_limits_count_anew_in_each_run():
    session = Agent(ScriptedModel(LOOK, "Done.", LOOK, "Done."), tools=[look], limits=Limits(max_turns=2)).session()
    assert [(await session.run("Go")).status, (await session.run("Again")).status] == ["done", "done"]


async def test_limits_may_be_given_for_one_run():
    session = Agent(ScriptedModel(LOOK, LOOK, "Done."), tools=[look]).session()
    assert (await session.run("Go", limits=Limits(max_turns=1))).reason == "max_turns"
    assert (await session.run("Go on")).status == "done"


async def test_without_limits_a_run_goes_on():
    unlimited = Limits(max_turns=None)
    outcome, _ = await limited(unlimited, *[LOOK] * 60, "Done.")
    assert (outcome.status, outcome.turns) == ("done", 61)


# -- money -------------------------------------------------------------------------------------------------------------


async def test_the_cost_of_a_run_is_known_when_the_price_is():
    outcome, _ = await limited(Limits(), LOOK, Reply("Done.", usage=Usage(100, 20)))
    assert outcome.cost_usd == pytest.approx(0.6)


async def test_the_cost_is_unknown_when_the_price_is():
    outcome = await Agent(ScriptedModel("Hello.")).run("Hi")
    assert outcome.cost_usd is None


async def test_a_limit_in_money_on_a_model_without_a_price_is_refused_before_the_first_request():
    model = ScriptedModel("Hello.")
    agent = Agent(model, limits=Limits(max_cost_usd=1))
    with pytest.raises(ConfigError, match="max_cost_usd needs a model whose price is known, and 'scripted' has none"):
        await agent.session("s").run("Hi")
    assert model.requests == []
    assert await log_of(agent.store, "s") == []


# -- time --------------------------------------------------------------------------------------------------------------


async def test_time_that_is_up_while_the_model_speaks_keeps_what_it_said():
    clock, held = FakeClock(), pause()
    model = ScriptedModel([TextDelta("Once upon a"), held, ReplyFinished()])
    agent = Agent(model, clock=clock, limits=Limits(timeout_seconds=10))
    run = asyncio.ensure_future(agent.session("s").run("Tell"))
    async with asyncio.timeout(SECONDS):
        await held.wait_reached()
        await clock.advance(9)
        assert not run.done()
        await clock.advance(1)
        outcome = await run
    assert (outcome.status, outcome.reason, outcome.text) == ("limit", "timeout", "Once upon a")
    (ended,) = of(await log_of(agent.store, "s"), RunEnded)
    assert (ended.status, ended.reason) == ("limit", "timeout")


async def test_time_that_is_up_while_a_tool_runs_gives_its_call_a_result():
    clock, held = FakeClock(), Held()
    agent = Agent(ScriptedModel(call("held")), tools=[held.tool], clock=clock, limits=Limits(timeout_seconds=10))
    run = asyncio.ensure_future(agent.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        await clock.advance(10)
        outcome = await run
    assert (outcome.status, outcome.reason, held.cancelled) == ("limit", "timeout", 1)
    assert outcome.messages[-1].tool_results[0].status is Status.CANCELLED
    assert_valid(outcome.messages)


@pytest.mark.parametrize("has_handler", [True, False])
async def test_the_time_in_which_a_person_is_asked_does_not_count(has_handler):
    clock, held, answered = FakeClock(), Held("pay"), asyncio.Event()

    async def person(requests: Any) -> list[Verdict]:
        await answered.wait()
        return [Verdict(allow=True)] * len(requests)

    gate = Permissions(ask("pay"), handler=person if has_handler else later)
    agent = Agent(
        ScriptedModel(call("pay"), "Paid."),
        tools=[held.tool],
        permission=gate,
        clock=clock,
        limits=Limits(timeout_seconds=10),
        answer_timeout_seconds=100,
    )
    session = agent.session("s")
    run = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await until_asked(session)
        await clock.advance(50)
        (question,) = await session.questions()
        answered.set()
        if not has_handler:
            await session.answer(question.ask_id, True)
        await held.started.wait()
        await clock.advance(9)
        assert not run.done()
        await clock.advance(1)
        outcome = await run
    assert (outcome.status, outcome.reason, held.cancelled) == ("limit", "timeout", 1)


async def test_the_time_in_which_a_call_asks_counts_neither_for_it_nor_for_the_runs_above_it():
    clock = FakeClock()

    @tool(timeout_seconds=5)
    async def order(context: ToolContext) -> str:
        """Order."""
        return str(await context.ask("What?"))

    waiter = Agent(ScriptedModel(call("order"), "Ordered."), tools=[order], name="waiter", answer_timeout_seconds=100)
    agent = Agent(
        ScriptedModel(call("waiter", task="Go."), "Done."),
        tools=[waiter.as_tool()],
        clock=clock,
        limits=Limits(timeout_seconds=10),
        answer_timeout_seconds=100,
    )
    session = agent.session("s")
    run = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await until_asked(session)
        await clock.advance(50)
        (question,) = await session.questions()
        await session.answer(question.ask_id, "Tea")
        outcome = await run
    assert (outcome.status, outcome.text) == ("done", "Done.")
    results = [each.result for each in of(await log_of(agent.store, "s"), ToolFinished)]
    assert [(each.name, each.status, each.text) for each in results[:1]] == [("order", Status.OK, "Tea")]


async def test_a_tool_that_ends_in_its_own_way_does_not_give_the_run_more_time():
    clock, started = FakeClock(), asyncio.Event()

    @tool
    async def calm() -> str:
        """Ends in its own way."""
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "calmly"
        return "never"

    model = ScriptedModel(call("calm"), "Never said.")
    run = asyncio.ensure_future(Agent(model, tools=[calm], clock=clock, limits=Limits(timeout_seconds=10)).run("Go"))
    async with asyncio.timeout(SECONDS):
        await started.wait()
        await clock.advance(10)
        outcome = await run
    assert (outcome.status, outcome.reason, model.remaining) == ("limit", "timeout", 1)
    assert outcome.messages[-1].tool_results[0].text == "calmly"


async def test_a_run_that_ends_in_time_leaves_no_timer_behind():
    clock = FakeClock()
    await Agent(ScriptedModel("Hello."), clock=clock, limits=Limits(timeout_seconds=10)).run("Hi")
    assert clock.pending == []


# -- calls -------------------------------------------------------------------------------------------------------------


async def test_calls_beyond_the_limit_are_refused_and_say_so():
    limits = Limits(max_tool_calls=2)
    agent = Agent(ScriptedModel(calls(*[call("look")] * 4), "There."), tools=[look], limits=limits)
    outcome = await agent.session("s").run("Go")
    assert (outcome.status, outcome.text) == ("done", "There.")
    results = outcome.messages[2].tool_results
    assert [result.status for result in results] == [Status.OK, Status.OK, Status.ERROR, Status.ERROR]
    assert results[2].text == "This call was not made: the run may make 2 calls, and has made them."
    assert len(of(await log_of(agent.store, "s"), ToolStarted)) == 2


async def test_calls_that_are_wrong_do_not_count():
    limits = Limits(max_tool_calls=1)
    replies = (calls(call("nope"), call("look", "{"), call("look")), "There.")
    outcome = await Agent(ScriptedModel(*replies), tools=[look], limits=limits).run("Go")
    assert [result.status for result in outcome.messages[2].tool_results] == [Status.ERROR, Status.ERROR, Status.OK]


async def test_the_last_call_that_is_allowed_can_still_be_answered():
    outcome, _ = await limited(Limits(max_tool_calls=2), LOOK, LOOK, "There.")
    assert (outcome.status, outcome.text, outcome.turns) == ("done", "There.", 3)


async def test_a_call_too_many_can_be_answered_and_the_next_one_ends_the_run():
    outcome, model = await limited(Limits(max_tool_calls=2))
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit", "max_tool_calls", 4)
    assert (outcome.text, len(model.requests)) == ("I look.", 4)
    outcome, _ = await limited(Limits(max_tool_calls=2), LOOK, LOOK, LOOK, "There.")
    assert (outcome.status, outcome.text, outcome.turns) == ("done", "There.", 4)


async def test_only_allowed_tools_are_offered_and_run():
    model = ScriptedModel(calls(call("finish"), call("look")), "Done.")
    agent = Agent(model, tools=[look, finish], limits=Limits(allowed_tools=("look",)))
    outcome = await agent.run("Go")
    assert [spec.name for spec in model.requests[0].tools] == ["look"]
    results = outcome.messages[2].tool_results
    assert [result.status for result in results] == [Status.ERROR, Status.OK]
    assert results[0].text == "there is no tool 'finish'; available: look"


async def test_an_allowed_tool_that_is_not_there_is_refused_where_it_is_described():
    with pytest.raises(ConfigError, match="there is no tool 'lok'; did you mean 'look'"):
        Agent(ScriptedModel(), tools=[look], limits=Limits(allowed_tools=("lok",)))
    session = Agent(ScriptedModel("Hello."), tools=[look]).session()
    with pytest.raises(ConfigError, match="there is no tool 'lok'"):
        await session.run("Hi", limits=Limits(allowed_tools=("lok",)))
    assert (await session.run("Hi")).status == "done"


# -- requests that a crash left without a reply ------------------------------------------------------------------------


async def crash_on_requests(store: MemoryStore, crashes: int, **options: Any) -> ScriptedModel:
    """Send the same request again and again, each time in a process that dies before the reply."""
    model = ScriptedModel(StoreError("the machine is gone"), repeat_last=True, price=PRICE)
    session = Agent(model, store=store, **options).session("s")
    with pytest.raises(StoreError):
        await session.run("x" * 4000)
    for _ in range(crashes - 1):
        with pytest.raises(StoreError):
            await Agent(model, store=store, **options).session("s").resume()
    return model


async def test_requests_that_crashes_left_without_a_reply_count_as_used():
    store = MemoryStore()
    model = await crash_on_requests(store, 3)
    assert len(model.requests) == 3
    answering = ScriptedModel(Reply("Here.", usage=Usage(1000, 10)), price=PRICE)
    outcome = await Agent(answering, store=store).session("s").resume()
    assert (outcome.status, outcome.usage.precision) == ("done", "estimated")
    assert 3 * 1000 + 1010 <= outcome.usage.total_tokens <= 3 * 1010 + 1010
    assert outcome.cost_usd == pytest.approx(PRICE.cost_usd(outcome.usage))


@pytest.mark.parametrize(
    ("limits", "reason"), [(Limits(token_budget=2500), "token_budget"), (Limits(max_cost_usd=2.5), "max_cost")]
)
async def test_a_run_whose_requests_crash_reaches_its_limit(limits, reason):
    store = MemoryStore()
    model = await crash_on_requests(store, 3, limits=limits)
    outcome = await Agent(model, store=store, limits=limits).session("s").resume()
    assert (outcome.status, outcome.reason) == ("limit", reason)
    assert len(model.requests) == 3


async def test_a_run_that_was_closed_after_a_crash_tells_what_it_had_sent():
    store = MemoryStore()
    await crash_on_requests(store, 1)
    await Agent(ScriptedModel("Here."), store=store).session("s").run("And now?")
    closed, _ = of(await log_of(store, "s"), RunEnded)
    assert (closed.reason, closed.usage.precision) == ("interrupted", "estimated")
    assert closed.usage.total_tokens >= 1000


async def test_a_budget_of_a_new_process_counts_what_the_run_had_used():
    store = MemoryStore()
    await crash_on_requests(store, 3)
    budget = Budget(token_budget=100_000)
    answering = ScriptedModel(Reply("Here.", usage=Usage(1000, 10)), price=PRICE)
    session = Agent(answering, store=store, budget=budget).session("s")
    outcome = await session.resume()
    assert budget.spent_tokens == outcome.usage.total_tokens > 4000
    small = Budget(token_budget=3500)
    store = MemoryStore()
    model = await crash_on_requests(store, 3)
    outcome = await Agent(model, store=store, budget=small).session("s").resume()
    assert (outcome.status, outcome.reason, len(model.requests)) == ("limit", "budget", 3)


# -- several subagents under one limit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "reason"), [(Limits(token_budget=3000), "token_budget"), (Limits(max_cost_usd=3.0), "max_cost")]
)
async def test_subagents_at_work_do_not_ask_when_the_requests_in_flight_use_up_the_limit(limits, reason):
    answered = asyncio.Event()
    asked: list[str] = []

    def say(request: Any) -> Any:
        asked.append(request.messages[0].text[:10])
        return [answered, TextDelta("Here."), ReplyFinished(usage=Usage(1000, 10))]

    child = Agent(ScriptedModel(say, repeat_last=True, price=PRICE), name="scout")
    branches = [call("scout", task=f"{number} " + "x" * 4000) for number in range(8)]
    model = ScriptedModel(Reply(calls=branches, usage=Usage(1, 1)), "All done.", price=PRICE)
    agent = Agent(model, tools=[child.as_tool()], limits=limits)
    running = asyncio.ensure_future(agent.run("Go"))
    async with asyncio.timeout(SECONDS):
        while len(asked) < 3:
            await rounds()
        await rounds()
        answered.set()
        outcome = await running
    assert (outcome.status, outcome.reason) == ("limit", reason)
    assert len(asked) == 3  # the input of three requests is the limit: the other five were not sent
