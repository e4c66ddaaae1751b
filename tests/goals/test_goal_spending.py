"""Budgets of a goal: they hold over processes that were killed, and one that cannot hold is refused at once."""

import asyncio
import math

import pytest
from msgspec.structs import replace

from perdure import ConfigError, Usage
from perdure._work.goals.spending import GoalSpending
from perdure.background import Goal, GoalRecord, pursue_goal, resume_goal
from perdure.evals import Evidence, Grade
from perdure.events import RunEnded, RunResumed
from perdure.models import Price
from perdure.stores import open_store
from perdure.testing import FakeClock, Reply, call
from tests.goals.roles import ScriptedRoles, build_maker, verdict

PRICED = {"price": Price(input_usd=1, output_usd=1)}


async def test_a_budget_in_money_is_refused_before_anything_is_stored_if_a_price_is_not_known():
    priced = build_maker(ScriptedRoles(checker=[verdict("1", "2")]), model_options=PRICED)
    unknown = build_maker(ScriptedRoles(checker=[verdict("1", "2")]))
    for maker, checker in ((unknown, None), (priced, unknown)):
        with pytest.raises(ConfigError, match=r"price is known.*token_budget"):
            await pursue_goal(
                Goal("Do it.", max_cost_usd=1.0), maker, checker=checker, goal_id="goal-m", store=priced.store
            )
    assert await priced.store.list(prefix="goal-m") == []
    record = await pursue_goal(Goal("Do it.", max_cost_usd=1.0), priced, goal_id="goal-m")
    assert record.status == "achieved"


async def test_a_grader_without_a_price_ends_a_goal_with_a_budget_in_money():
    async def judge(_evidence):
        return Grade(passed=True, score=1.0, usage=Usage(100, 10), cost_usd=None)

    maker = build_maker(ScriptedRoles(checker=[verdict("1", "2")]), model_options=PRICED)
    record = await pursue_goal(Goal("Do it.", max_cost_usd=1.0), maker, grader=judge)
    assert record.status == "errored"
    assert "max_cost_usd needs known prices" in record.reason
    assert (await pursue_goal(Goal("Do it.", token_budget=10**6), maker, grader=judge)).status == "achieved"


@pytest.mark.parametrize("options", [
    {"max_seconds": math.inf}, {"max_cost_usd": math.inf}, {"max_seconds": math.nan}, {"max_seconds": True},
    {"max_seconds": "3"}, {"items": None}, {"items": 3}, {"items": {"a": "b"}},
])  # fmt: skip
def test_a_limit_that_cannot_be_stored_and_items_that_are_no_list_are_refused(options):
    with pytest.raises(ConfigError):
        Goal("Do it.", **options)


async def test_the_time_of_every_process_that_was_killed_counts():
    """Two processes were killed while the maker worked: one after 900 seconds, the other after 800."""
    first = build_maker(ScriptedRoles(checker=[verdict("1", "2")]), store=open_store("memory:"))
    await pursue_goal(Goal("Do it.", max_seconds=1500.0), first, goal_id="goal-t")
    entries = await first.store.read("goal-t")
    end = next(
        place for place, each in enumerate(entries) if getattr(each.event, "name", "") == "goal.iteration_started"
    )
    run_id = entries[0].event.run_id
    kept = [replace(each, at=1000.0) for each in entries[: end + 1]]
    resumed = [
        replace(kept[-1], seq=kept[-1].seq + number, at=at, event=RunResumed(run_id=run_id))
        for number, at in ((1, 5000.0), (2, 9000.0))
    ]
    work = [each for each in await first.store.read("goal-t/maker-1") if not isinstance(each.event, RunEnded)]
    begun = [replace(each, at=at) for each, at in zip(work[:2], (1900.0, 5800.0), strict=True)]
    store = open_store("memory:")
    for session_id, given in (("goal-t", [*kept, *resumed]), ("goal-t/maker-1", begun)):
        lease = await store.acquire(session_id)
        await store.append(lease, given, sync=True)
        await store.release(lease)

    async def stay(request):
        if request.tools:
            await asyncio.Event().wait()
        return "Half of it is done."  # in its last turn

    async with asyncio.timeout(60):
        record = await resume_goal("goal-t", build_maker(ScriptedRoles(maker=[stay], checker=[verdict()]), store=store))
    assert (record.status, record.reason) == ("budget_limited", "max_seconds")
    assert record.summary == "Half of it is done."


async def test_a_goal_that_ends_while_a_second_resume_waits_for_it_is_not_an_error():
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def stay(_request):
        begun.set()
        await go_on.wait()
        return "Worked."

    roles = ScriptedRoles(maker=["Worked.", stay, "Worked."], checker=[verdict(), verdict("1", "2")])
    maker = build_maker(roles, store=open_store("memory:"))
    await pursue_goal(Goal("Do it.", max_iterations=1), maker, goal_id="goal-w")
    first = asyncio.ensure_future(resume_goal("goal-w", maker))
    async with asyncio.timeout(60):
        await begun.wait()
        second = asyncio.ensure_future(resume_goal("goal-w", maker))
        for _ in range(100):  # so that it waits for its turn, if it can
            await asyncio.sleep(0)
        go_on.set()
        records = await asyncio.gather(first, second)
    assert [(each.status, len(each.iterations)) for each in records] == [("achieved", 2)] * 2


@pytest.mark.parametrize(("looks", "status"), [(False, "budget_limited"), (True, "achieved")])
async def test_a_checker_whose_budget_leaves_it_no_turn_to_look_passes_nothing(looks, status):
    """In the last turn of a budget a model has no tools; only a checker that has looked before can judge in it."""

    def judge(request):
        look = Reply(calls=(call("look"),), usage=Usage(6_000, 100))
        return look if looks and request.tools else verdict("1", "2")

    used = Usage(4_000 if looks else 13_000, 500)
    roles = ScriptedRoles(maker=[Reply(text="All is done.", usage=used)], checker=[judge])
    maker = build_maker(roles)
    record = await pursue_goal(Goal("Do it.", token_budget=20_000), maker, goal_id="goal-b")
    assert [bool(each.tools) for each in roles.requests["checker"]] == ([True, False] if looks else [False])
    assert record.status == status
    assert [each.done for each in record.items] == [looks, looks]
    if not looks:
        assert (await resume_goal("goal-b", maker, token_budget=10**6)).status == "achieved"


async def spend(clock, *, grader=None, **limits):
    """What a new process counts of a goal that was pursued for three replies of 15 tokens, and perhaps a grade."""
    maker = build_maker(ScriptedRoles(checker=[verdict("1", "2")]), model_options=PRICED, clock=clock)
    record = await pursue_goal("Do it.", maker, goal_id="goal-p", grader=grader)
    spending = GoalSpending(Goal("Do it.", **limits), record, maker.store, clock)
    await spending.count_past(maker)
    return spending, maker


async def test_a_budget_has_what_the_agents_and_graders_of_earlier_processes_left_of_it():
    def judge(_evidence):
        return Grade(passed=True, usage=Usage(3, 2), cost_usd=0.25)

    spending, maker = await spend(FakeClock(), token_budget=100, max_cost_usd=1.0)
    assert spending.budget is not None
    assert spending.budget.remaining() == (55, pytest.approx(1 - 45e-6))
    spending, maker = await spend(FakeClock(), grader=judge, token_budget=100, max_cost_usd=1.0)
    assert spending.budget is not None
    assert spending.budget.remaining() == (50, pytest.approx(0.75 - 45e-6))
    assert (await spending.measure_usage(maker))[0].total_tokens == 50
    spending.count_grade(Usage(), None)
    spending.count_grade(Usage(4, 6), 0.5)
    assert spending.budget.remaining() == (40, pytest.approx(0.25 - 45e-6))
    usage, cost = await spending.measure_usage(maker)
    assert (usage.total_tokens, cost) == (60, pytest.approx(0.75 + 45e-6))
    spending.count_grade(Usage(1, 0), None)
    assert (await spending.measure_usage(maker))[1] is None


@pytest.mark.parametrize(
    ("limits", "reached"),
    [
        ({}, ""),
        ({"token_budget": 45}, "token_budget"),
        ({"token_budget": 46}, ""),
        ({"max_cost_usd": 45e-6}, "max_cost_usd"),
        ({"max_cost_usd": 46e-6}, ""),
        ({"max_seconds": 10.0}, "max_seconds"),
        ({"max_seconds": 10.5}, ""),
        ({"token_budget": 45, "max_seconds": 5.0}, "max_seconds"),
        ({"token_budget": 45, "max_cost_usd": 45e-6}, "token_budget"),
    ],
)
async def test_the_limit_that_a_goal_has_reached_is_named(limits, reached):
    clock = FakeClock()
    spending, _ = await spend(clock, **limits)
    await clock.advance(10)
    assert spending.find_reached_limit() == reached


async def test_the_time_that_is_left_is_without_that_of_earlier_pursuits_and_never_below_0():
    clock = FakeClock()
    spending = GoalSpending(
        Goal("Do it.", max_seconds=100.0), GoalRecord(goal_id="goal-x", seconds=60.0), open_store("memory:"), clock
    )
    assert (spending.seconds, spending.find_remaining_seconds()) == (60.0, 40.0)
    await clock.advance(15)
    assert (spending.seconds, spending.find_remaining_seconds()) == (75.0, 25.0)
    await clock.advance(50)
    assert spending.find_remaining_seconds() == 0.0
    free = GoalSpending(Goal("Do it."), GoalRecord(goal_id="goal-x"), open_store("memory:"), clock)
    assert (free.find_remaining_seconds(), free.budget, free.find_reached_limit()) == (None, None, "")


async def test_a_grader_that_costs_nothing_uses_up_no_budget_in_dollars_also_after_a_pause() -> None:
    def grade(evidence: Evidence) -> Grade:
        return Grade(passed=evidence.round == 3, usage=Usage(5, 5), cost_usd=0.0)

    roles = ScriptedRoles(checker=[verdict(progress=10), verdict(progress=20), verdict("1", "2")])
    maker = build_maker(roles, model_options={"price": Price(input_usd=0.01, output_usd=0.01)})
    goal = Goal("Make it ready.", max_cost_usd=0.5, max_iterations=2)
    first = await pursue_goal(goal, maker, grader=grade)
    assert (first.status, len(first.iterations)) == ("max_iterations", 2)
    again = await resume_goal(first.goal_id, maker, grader=grade)
    assert (again.status, len(again.iterations)) == ("achieved", 3)
    assert again.cost_usd is not None
    assert again.cost_usd < 0.001
