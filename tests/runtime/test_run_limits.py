"""What a run is given is merged with what its agent has: a run can narrow what protects, and widen it only by name."""

import asyncio
from typing import Any

import pytest

from perdure import Agent, Budget, ConfigError, Limits, Outcome, Permissions, Settings, Status, Usage, allow, deny, tool
from perdure._config.needs_trust import tighten_limits
from perdure._core.run.stop import merge_limits
from perdure.engines import until
from perdure.evals import Case, Dataset, Evaluation, Grade, contains
from perdure.events import RunStarted
from perdure.models import Price
from perdure.permissions import allow_all, deny_all, later
from perdure.stores import MemoryStore
from perdure.testing import FakeClock, Reply, ScriptedModel, call
from tests.doubles import SECONDS, Held, log_of, of
from tests.evaluating.quizzes import evaluate

PRICE = Price(input_usd=1_000.0, output_usd=10_000.0)
"""A hundred tokens in and twenty out cost 0.3 dollars."""


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


@tool(effect="read")
async def listen() -> str:
    """Listen."""
    return "heard"


@tool(permission=True)
async def book() -> str:
    """Book."""
    return "booked"


def spender(*, says: Any = (), **options: Any) -> Agent[Any]:
    """Return an agent that looks around for ever, each turn for 0.3 dollars and 120 tokens."""
    model = ScriptedModel(*says, Reply("", calls=(call("look"),), usage=Usage(100, 20)), repeat_last=True, price=PRICE)
    return Agent(model, tools=[look, listen], guardrails=(), **options)


@pytest.mark.parametrize(
    ("own", "given", "ending"),
    [
        (Limits(max_cost_usd=0.5), Limits(max_turns=8), ("max_cost", 2)),
        (Limits(token_budget=200), Limits(max_turns=8), ("token_budget", 2)),
        (Limits(max_tool_calls=3), Limits(max_turns=8), ("max_tool_calls", 5)),
        (Limits(max_turns=4), Limits(max_cost_usd=5), ("max_turns", 4)),
        (Limits(max_turns=60), Limits(max_cost_usd=500), ("max_turns", 60)),
        (Limits(max_turns=4), Limits(max_turns=6), ("max_turns", 6)),
        (Limits(max_turns=60), Limits(max_turns=50), ("max_turns", 50)),
        (Limits(max_cost_usd=0.5), Limits(max_cost_usd=5), ("max_cost", 2)),
        (Limits(max_cost_usd=5), Limits(max_cost_usd=0.5), ("max_cost", 2)),
        (Limits(max_cost_usd=0.5), Limits(max_cost_usd=None, max_turns=9), ("max_cost", 2)),
        (Limits(max_cost_usd=0.5), Limits(max_cost_usd=1, widens=("max_cost_usd",)), ("max_cost", 4)),
        (Limits(max_cost_usd=0.5, max_turns=9), Limits(widens=("max_cost_usd",)), ("max_turns", 9)),
    ],
)
@pytest.mark.parametrize("how", ["run", "session", "stream", "deps"])
async def test_the_limits_of_a_run_are_merged_with_those_of_its_agent(
    own: Limits, given: Limits, ending: Any, how: str
) -> None:
    agent = spender(limits=own)
    if how == "stream":
        outcome = await agent.session().stream("Go", limits=given).outcome()
    elif how == "run":
        outcome = await agent.run("Go", limits=given)
    else:
        more: Any = {"deps": 3} if how == "deps" else {}
        outcome = await agent.session().run("Go", limits=given, **more)
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit", *ending)


async def list_agent_runs(agent: Agent[Any], how: str, given: Limits) -> list[Outcome[Any]]:
    """Return the outcomes of runs that are begun in some way, with limits of their own."""
    engine: dict[str, Any] = {"until": until(lambda _: False, max_rounds=9)}
    match how:
        case "subagent":
            boss = Agent(ScriptedModel(call("spender", task="Look."), "Done.", price=PRICE), tools=[agent.as_tool()])
            return [await boss.run("Go", limits=given)]
        case "handoff":
            boss = Agent(ScriptedModel(call("hand_over_to_spender"), price=PRICE), name="boss", handoffs=[agent])
            return [await boss.run("Go", limits=given)]
        case "resumed":
            session = agent.session("s")
            return [await session.run("Go", limits=given), await session.run("Go on", limits=given)]
        case "case of an evaluation":
            cases = Dataset("cases", [Case(prompt="Go", graders=[contains("x")], limits=given)])
            report = await evaluate(Evaluation(cases, agent))
            return [Outcome(status="limit", cost_usd=each.cost_usd) for each in report.results]
        case _:
            return [await agent.run("Go", engine=engine.get(how, how), limits=given)]


@pytest.mark.parametrize(
    "how",
    [
        *("react", "planner", "reflect", "chain_of_thought", "autonomous", "until"),
        *("subagent", "handoff", "resumed", "case of an evaluation"),
    ],
)
async def test_whatever_begins_a_run_the_money_of_the_agent_is_its_limit(how: str) -> None:
    """A reply costs 0.3: a second one may reach the limit, and no third one is asked for."""
    agent = spender(limits=Limits(max_cost_usd=0.5), name="spender")
    for outcome in await list_agent_runs(agent, how, Limits(max_turns=30)):
        assert outcome.cost_usd is not None
        spent_by_others = 1.0 if how in {"subagent", "handoff"} else 0.0
        assert 0.5 <= outcome.cost_usd <= 0.6 + spent_by_others + 1e-9, (how, outcome)


async def test_the_time_limit_of_the_agent_holds_for_a_run_that_sets_another_limit() -> None:
    clock, held = FakeClock(), Held()
    agent = Agent(ScriptedModel(call("held")), tools=[held.tool], limits=Limits(timeout_seconds=10), clock=clock)
    run = asyncio.ensure_future(agent.run("Go", limits=Limits(max_turns=8)))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    await clock.advance(11)
    outcome = await asyncio.wait_for(run, SECONDS)
    assert (outcome.status, outcome.reason) == ("limit", "timeout")


@pytest.mark.parametrize(
    ("given", "offered"),
    [
        (Limits(max_turns=2), ["look"]),
        (Limits(allowed_tools=("look", "listen")), ["look"]),
        (Limits(allowed_tools=("listen",)), []),
        (Limits(allowed_tools=("listen",), widens=("allowed_tools",)), ["listen"]),
        (Limits(widens=("allowed_tools",)), ["look", "listen"]),
    ],
)
async def test_a_run_is_offered_no_tool_that_its_agent_does_not_allow(given: Limits, offered: list[str]) -> None:
    model = ScriptedModel("Aye.")
    await Agent(model, tools=[look, listen], limits=Limits(allowed_tools=("look",))).run("Go", limits=given)
    assert [each.name for each in model.requests[0].tools] == offered


async def test_tools_of_a_run_are_in_place_of_the_agents_as_far_as_it_allows_them() -> None:
    model = ScriptedModel("Aye.", repeat_last=True)
    agent = Agent(model, tools=[look], limits=Limits(allowed_tools=("look",)))
    await agent.run("Go", tools=[listen])
    await agent.run("Go", tools=[listen, look])
    assert [[each.name for each in request.tools] for request in model.requests] == [[], ["look"]]
    with pytest.raises(ConfigError, match="there is no tool 'lok'"):
        await agent.run("Go", limits=Limits(allowed_tools=("lok",)))


@pytest.mark.parametrize(
    ("given", "ending"),
    [
        (None, ("max_cost", 2)),
        (Limits(max_turns=8), ("max_cost", 2)),
        (Limits(max_cost_usd=50.0), ("max_cost", 2)),
        (Limits(max_cost_usd=0.1), ("max_cost", 1)),
        (Limits(max_turns=1), ("max_turns", 1)),
        (Limits(max_cost_usd=50.0, widens=("max_cost_usd",)), ("max_turns", 4)),
    ],
)
async def test_a_run_that_is_resumed_keeps_its_limits_and_can_be_given_narrower_ones(given: Any, ending: Any) -> None:
    first = Reply("", calls=(call("book"),), usage=Usage(100, 20))
    agent = spender(says=[first], limits=Limits(max_tool_calls=9), permission=Permissions(handler=later))
    session = agent.replace(tools=[look, book], store=MemoryStore()).session("s")
    waiting = await session.run("Go", limits=Limits(max_turns=4, max_cost_usd=0.5))
    started = of(await log_of(session.store, "s"), RunStarted)[0]
    recorded = started.options["limits"]
    assert (recorded["max_turns"], recorded["max_cost_usd"]) == (4, 0.5)
    assert not {"max_calls_per_reply", "max_parallel_tools", "widens"} & set(recorded)
    await session.answer(waiting.questions[0].ask_id, True)
    outcome = await session.resume(**({} if given is None else {"limits": given}))
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit", *ending)


async def test_settings_of_a_run_are_merged_with_those_of_its_agent() -> None:
    model = ScriptedModel("Aye.", repeat_last=True)
    own = Settings(temperature=1.0, max_output_tokens=500, extra_body={"a": 1, "b": 1}, stop_sequences=("END",))
    agent = Agent(model, settings=own)
    await agent.run("Go", settings=Settings(temperature=0.0, extra_body={"b": 2}))
    await agent.run("Go", settings=Settings(stop_sequences=("STOP",)), instructions="Be brief.")
    first, second = [each.settings for each in model.requests]
    merged = Settings(temperature=0.0, max_output_tokens=500, extra_body={"a": 1, "b": 2}, stop_sequences=("END",))
    assert first == merged
    assert (second.temperature, second.stop_sequences) == (1.0, ("STOP",))


async def test_the_budget_of_an_agent_holds_beside_that_of_a_run() -> None:
    own, given = Budget(token_budget=20_000), Budget(token_budget=50_000)
    limits = Limits(max_turns=2)
    await spender(budget=own, limits=limits).run("Go", budget=given)
    assert own.spent_tokens == given.spent_tokens == 240
    await spender(budget=own, limits=limits).run("Go", budget=None)
    assert own.spent_tokens == 480
    assert (await spender(budget=Budget(token_budget=0)).run("Go", budget=given)).reason == "budget"


@pytest.mark.parametrize(
    ("own", "given", "more", "status"),
    [
        (deny_all, allow_all, {}, Status.DENIED),
        (deny_all, allow_all, {"narrow_permission": False}, Status.OK),
        (allow_all, deny_all, {}, Status.DENIED),
        (Permissions(deny("book")), Permissions(allow("*")), {}, Status.DENIED),
        (Permissions(allow("book")), None, {}, Status.OK),
        (Permissions(deny("look")), None, {}, Status.DENIED),
        (None, allow_all, {}, Status.OK),
        (None, None, {}, Status.DENIED),
        (allow_all, None, {"narrow_permission": False}, Status.DENIED),
    ],
)
async def test_a_call_needs_the_permission_of_the_agent_beside_that_of_the_run(
    own: Any, given: Any, more: Any, status: Status
) -> None:
    named = "look" if own is not None and given is None and status is Status.DENIED and not more else "book"
    agent = Agent(ScriptedModel(call(named), "Done."), tools=[look, book], permission=own)
    outcome = await agent.run("Go", permission=given, **more)
    assert outcome.new_messages[2].tool_results[0].status is status


@pytest.mark.parametrize("narrow", [True, False])
async def test_the_limits_of_the_first_agent_hold_after_a_handoff_as_its_permissions_do(narrow: bool) -> None:
    billing = spender(name="billing", limits=Limits(max_turns=6))
    first = Reply("", calls=(call("hand_over_to_billing", message="x"),), usage=Usage(100, 20))
    desk = Agent(
        ScriptedModel(first, price=PRICE),
        name="desk",
        handoffs=[billing],
        limits=Limits(max_cost_usd=0.8, max_turns=3),
        narrow_handoffs=narrow,
    )
    session = desk.session()
    outcome = await session.run("Go")
    assert (outcome.reason, outcome.turns) == (("max_cost", 3) if narrow else ("max_turns", 6))
    outcome = await session.run("Go on")  # billing speaks from the beginning
    assert (outcome.reason, outcome.turns) == (("max_cost", 3) if narrow else ("max_turns", 6))


@pytest.mark.parametrize("narrow", [True, False])
async def test_the_budget_of_the_first_agent_holds_after_a_handoff_as_its_limits_do(narrow: bool) -> None:
    billing = spender(name="billing", limits=Limits(max_turns=6))
    first = Reply("", calls=(call("hand_over_to_billing", message="x"),), usage=Usage(100, 20))
    budget = Budget(token_budget=20_000)
    desk = Agent(
        ScriptedModel(first, price=PRICE), name="desk", handoffs=[billing], budget=budget, narrow_handoffs=narrow
    )
    outcome = await desk.run("Go")
    assert outcome.turns == 6
    assert budget.spent_tokens == (6 * 120 if narrow else 120)


def test_a_file_that_is_not_trusted_cannot_widen_limits() -> None:
    hostile = Limits(
        max_cost_usd=9.0, max_turns=90, allowed_tools=("look", "book"), widens=("max_cost_usd", "max_turns")
    )
    own = Limits(max_cost_usd=1.0, max_turns=9, allowed_tools=("look",))
    lowered = tighten_limits(hostile, own)
    assert lowered == merge_limits(own, lowered) == own


def test_what_widens_is_for_runs_alone_and_names_limits() -> None:
    with pytest.raises(ConfigError, match="widens= is for the limits of one run"):
        Agent("demo", limits=Limits(max_cost_usd=1, widens=("max_cost_usd",)))
    with pytest.raises(ConfigError, match=r"there is no limit 'max_cost': did you mean 'max_cost_usd'"):
        Limits(widens=("max_cost",))
    with pytest.raises(ConfigError, match=r"Limits\(widens='max_turns'\): give the names of limits"):
        Limits(widens="max_turns")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="there is no limit 3"):
        Limits(widens=(3,))  # type: ignore[arg-type]


async def test_the_grades_of_a_subagent_count_for_the_limits_of_the_agent_above_it():
    def reject(_evidence: object) -> Grade:
        return Grade(passed=False, usage=Usage(1_000, 0))

    scout = Agent(ScriptedModel("one", "two"), name="scout", engine=until(reject, max_rounds=2))
    boss = Agent(ScriptedModel(call("scout", task="Count."), "Done."), tools=[scout.as_tool()])
    outcome = await boss.run("Go.", limits=Limits(token_budget=1_500))
    assert (outcome.status, outcome.reason) == ("limit", "token_budget")
