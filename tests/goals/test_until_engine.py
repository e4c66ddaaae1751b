"""`until`: rounds in one run of one session, each with a grade in the log."""

import json
from dataclasses import dataclass

import pytest

from perdure import Agent, ConfigError, Limits, Output, StoreError, Usage, tool
from perdure._work.goals.until import list_grades
from perdure.engines import read_grades, until
from perdure.evals import Evidence, Grade, contains, model_grader
from perdure.events import Custom, Entry
from perdure.models import Price
from perdure.stores import open_store
from perdure.testing import Reply, ScriptedModel, call
from tests.doubles import FailingStore, NotedStore
from tests.grading.failures import failure_of
from tests.runtime.subagents.family import left_behind


def build_agent(*replies, **options):
    return Agent(ScriptedModel(*replies), store=open_store("memory:"), **options)


async def test_the_work_is_repeated_in_the_same_session_until_the_grader_passes_it():
    agent = build_agent("Oslo", "Bergen and Oslo")
    session = agent.session("s")
    outcome = await session.run("Name two towns.", engine=until(contains("Bergen", "Oslo")))
    assert (outcome.status, outcome.text) == ("done", "Bergen and Oslo")
    assert [each.text for each in outcome.messages] == [
        "Name two towns.", "Oslo", "the answer does not contain 'Bergen'", "Bergen and Oslo",
    ]  # fmt: skip
    grades = await read_grades(session)
    assert [(each.round, each.grade.passed, each.grade.score) for each in grades] == [(1, False, 0.5), (2, True, 1.0)]
    assert {each.run_id for each in grades} == {outcome.run_id}


async def test_after_the_last_round_the_run_is_stopped_with_the_last_answer():
    outcome = await build_agent("no").run("Go.", engine=until(lambda _: False, max_rounds=1))
    assert (outcome.status, outcome.reason, outcome.text) == ("stopped", "max_rounds", "no")


async def test_without_feedback_the_next_round_begins_with_the_prompt():
    outcome = await build_agent("no", "yes").run("Say yes.", engine=until(lambda each: each.answer == "yes"))
    assert [each.text for each in outcome.messages] == ["Say yes.", "no", "Say yes.", "yes"]


async def test_the_grader_sees_the_tool_calls_of_the_run_and_the_number_of_the_round():
    seen = []

    @tool
    def look() -> str:
        """Look."""
        return "a ship"

    def grade(evidence):
        seen.append((evidence.round, [each.result.text for each in evidence.tool_calls]))
        return evidence.round == 2

    await build_agent(call("look"), "I looked.", "Done.", tools=[look]).run("Look.", engine=until(grade))
    assert seen == [(1, ["a ship"]), (2, ["a ship"])]


async def test_a_grader_that_raises_ends_the_run_with_its_work_kept():
    def capsize(_evidence):
        raise RuntimeError("full of water")

    agent = build_agent("The answer.")
    session = agent.session("s")
    outcome = await session.run("Go.", engine=until(capsize))
    assert (outcome.status, outcome.reason, outcome.text) == ("stopped", "grader_failed", "The answer.")
    ((given),) = await read_grades(session)
    assert (failure_of(given.grade).kind, failure_of(given.grade).error) == ("raised", "RuntimeError")


async def test_the_limits_of_the_run_hold_for_all_rounds_together():
    agent = build_agent(*["no"] * 9, limits=Limits(max_turns=3))
    outcome = await agent.run("Go.", engine=until(lambda _: False, max_rounds=9))
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit", "max_turns", 3)


async def test_the_tokens_and_the_cost_of_a_model_that_grades_are_counted_and_limited():
    judge = ScriptedModel('{"passed": false, "score": 0}', repeat_last=True, price=Price(input_usd=1, output_usd=1))
    model = ScriptedModel("no", repeat_last=True, price=Price(input_usd=1, output_usd=1))
    outcome = await Agent(model, limits=Limits(token_budget=50)).run("Go.", engine=until(model_grader(judge)))
    assert (outcome.status, outcome.reason) == ("limit", "token_budget")
    assert outcome.usage.total_tokens == 60  # two answers and two grades
    assert outcome.cost_usd == pytest.approx(60 / 1_000_000)


async def test_a_limit_that_the_answers_and_grades_have_just_reached_ends_the_run():
    price = Price(input_usd=1, output_usd=1)

    async def run(price_of_judge=price, **limits):
        judge = ScriptedModel('{"passed": false, "score": 0}', repeat_last=True, price=price_of_judge)
        agent = Agent(ScriptedModel("no", repeat_last=True, price=price), limits=Limits(**limits))
        outcome = await agent.run("Go.", engine=until(model_grader(judge), max_rounds=4))
        return (outcome.status, outcome.reason, outcome.turns, outcome.usage.total_tokens), outcome.cost_usd

    assert await run(token_budget=60) == (("limit", "token_budget", 2, 60), pytest.approx(60e-6))
    assert (await run(token_budget=61))[0] == ("limit", "token_budget", 3, 90)
    assert (await run(max_cost_usd=60e-6))[0] == ("limit", "max_cost", 2, 60)
    assert (await run(max_cost_usd=61e-6))[0] == ("limit", "max_cost", 3, 90)
    assert await run(price_of_judge=None) == (("stopped", "max_rounds", 4, 120), None)


async def test_grades_are_read_with_their_times_and_other_events_of_that_name_are_not():
    entries = [
        Entry(1, 5.0, Custom("grade", {"round": 1, "grade": {"passed": True}}, run_id="r")),
        Entry(2, 6.0, Custom("grade", {"mark": "A"}, run_id="r")),
        Entry(3, 7.0, Custom("other", {"round": 1, "grade": {"passed": True}}, run_id="r")),
        Entry(4, 8.0, Custom("grade", {"round": 1, "grade": {"passed": True}}, run_id="r", path="child")),
        Entry(5, 9.0, Custom("grade", {"round": 2, "grade": {"passed": False}}, run_id="r")),
    ]
    assert [(each.round, each.grade.passed, each.run_id, each.at) for each in list_grades(entries)] == [
        (1, True, "r", 5.0),
        (2, False, "r", 9.0),
    ]


@dataclass
class Town:
    name: str


@pytest.mark.parametrize("mode", ["prompted", "tool", "native"])
async def test_a_structured_output_is_graded_in_every_mode(mode):
    from perdure import Output

    def reply(name):
        return call("final_answer", name=name) if mode == "tool" else json.dumps({"name": name})

    def grade(evidence):
        found = json.loads(evidence.answer)["name"]
        return Grade(passed=found == "Bergen", feedback=f"not {found}")

    agent = build_agent(reply("Oslo"), reply("Bergen"))
    outcome = await agent.run("Name a town.", output=Output(Town, mode=mode), engine=until(grade))
    assert (outcome.status, outcome.value) == ("done", Town("Bergen"))


async def test_after_a_crash_the_rounds_go_on_and_no_grade_is_given_twice():
    """The store fails at every append in turn; the run is then resumed until it is done."""
    expected = None
    for place in range(1, 40):
        graded: list[int] = []
        inner = open_store("memory:")
        store = FailingStore(inner, place)

        def grade(evidence, graded=graded):
            graded.append(evidence.round)
            return evidence.answer == "three"

        agent = Agent(ScriptedModel("one", "two", "three", "three", repeat_last=True), store=store)
        engine = until(grade)
        try:
            outcome = await agent.session("s").run("Count.", engine=engine, input_id="i")
        except StoreError:
            outcome = await agent.session("s").run("Count.", engine=engine, input_id="i")
        rounds = [each.round for each in await read_grades(agent.session("s"))]
        assert outcome.status == "done"
        assert rounds == [*range(1, len(rounds) + 1)]
        if not store.has_failed:
            expected = rounds
            break
    assert expected == [1, 2, 3]
    assert place > 6  # appends have failed before that


async def test_a_tool_that_ends_the_run_ends_a_round_whose_answer_is_the_text_of_the_model():
    seen = []

    @tool(terminate=True)
    def hand_in() -> str:
        """Hand it in."""
        return "handed in"

    def grade(evidence: Evidence) -> bool:
        seen.append((evidence.answer, evidence.status))
        return True

    agent = build_agent(Reply("It is done.", calls=[call("hand_in")]), tools=[hand_in])
    outcome = await agent.run("Go.", engine=until(grade))
    assert (outcome.status, outcome.reason) == ("stopped", "terminated")
    assert seen == [("It is done.", "stopped")]


async def test_a_model_that_costs_nothing_reaches_no_limit_in_dollars():
    def grade(evidence: Evidence) -> Grade:
        return Grade(passed=evidence.round == 2, usage=Usage(5, 5), cost_usd=0.1)

    model = ScriptedModel("no", "yes", price=Price(input_usd=0, output_usd=0))
    agent = Agent(model, store=open_store("memory:"), limits=Limits(max_cost_usd=0.5))
    outcome = await agent.run("Go.", engine=until(grade))
    assert outcome.status == "done"
    assert outcome.cost_usd == pytest.approx(0.2)


async def test_a_run_that_reaches_a_limit_in_a_later_round_has_the_cost_of_the_grades_before():
    @tool
    def look() -> str:
        """Look."""
        return "a ship"

    def grade(_evidence):
        return Grade(passed=False, usage=Usage(100, 10), feedback="More.")

    agent = build_agent("no", call("look"), tools=[look], limits=Limits(max_turns=2))
    outcome = await agent.run("Go.", engine=until(grade))
    assert (outcome.status, outcome.reason) == ("limit", "max_turns")
    assert outcome.usage.total_tokens == 2 * 15 + 110


def reject_for_a_dollar(_evidence: Evidence) -> Grade:
    return Grade(passed=False, usage=Usage(100, 10), cost_usd=1.0, feedback="More.")


PRICE = Price(input_usd=1000, output_usd=1000)  # 0.015 dollars for a reply


@pytest.mark.parametrize("first", ["no", call("final_answer", value=1)], ids=["text", "answer tool"])
@pytest.mark.parametrize("ending", ["failed", "cancelled"])
async def test_a_run_that_ends_early_in_a_later_round_has_the_cost_of_the_grades_before(ending, first):
    @tool
    async def stop() -> str:
        """Stop."""
        await session.cancel()
        return "stopped"

    later = RuntimeError("down") if ending == "failed" else call("stop")
    agent = Agent(ScriptedModel(first, later, price=PRICE), tools=[stop], store=open_store("memory:"))
    session = agent.session("s")
    output = None if first == "no" else Output(int, mode="tool")
    outcome = await session.run("Go.", engine=until(reject_for_a_dollar), output=output)
    assert outcome.status == ending
    assert outcome.cost_usd == pytest.approx(1.0, abs=0.05)
    assert outcome.usage.total_tokens >= 110 + 15
    assert (await session.usage()).cost_usd == pytest.approx(outcome.cost_usd)


async def test_grades_count_for_the_limits_in_the_middle_of_a_round_too():
    @tool
    def look() -> str:
        """Look."""
        return "a ship"

    model = ScriptedModel("no", *[call("look")] * 10, price=PRICE)
    agent = Agent(model, tools=[look], store=open_store("memory:"), limits=Limits(max_cost_usd=1.04))
    outcome = await agent.run("Go.", engine=until(reject_for_a_dollar))
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit", "max_cost", 3)
    model = ScriptedModel("no", *[call("look")] * 10)
    agent = Agent(model, tools=[look], store=open_store("memory:"), limits=Limits(token_budget=150))
    outcome = await agent.run("Go.", engine=until(reject_for_a_dollar))
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit", "token_budget", 3)


async def test_grades_of_a_subagent_count_for_the_agent_above_it():
    engine = until(reject_for_a_dollar, max_rounds=2)
    scout = Agent(ScriptedModel("one", "two", price=PRICE), name="scout", engine=engine)
    boss = Agent(ScriptedModel(call("scout", task="Count."), "Done.", price=PRICE), tools=[scout.as_tool()])
    outcome = await boss.run("Go.")
    assert outcome.usage.total_tokens > 2 * 110
    assert outcome.cost_usd == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize(
    ("price", "cost_of_grade", "cost_usd"),
    [
        (Price(input_usd=1000, output_usd=1000), 0.5, 0.515),
        (Price(input_usd=1000, output_usd=1000), None, None),
        (None, 0.5, None),
    ],
)
async def test_the_cost_of_a_graded_run_is_known_if_that_of_all_its_parts_is(
    price: Price | None, cost_of_grade: float | None, cost_usd: float | None
) -> None:
    def grade(_evidence: Evidence) -> Grade:
        return Grade(passed=True, usage=Usage(100, 10), cost_usd=cost_of_grade)

    agent = Agent(ScriptedModel("yes", price=price), store=open_store("memory:"))
    outcome = await agent.run("Go.", engine=until(grade))
    assert outcome.usage.total_tokens == 125
    assert outcome.cost_usd == (None if cost_usd is None else pytest.approx(cost_usd))


@pytest.mark.parametrize("options", [{"max_rounds": 0}, {"engine": "react"}, {"timeout_seconds": -1}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError):
        until(lambda _: True, **options)
    with pytest.raises(ConfigError):
        until(options)


async def test_after_a_crash_the_rounds_of_a_subagent_go_on_and_no_grade_is_given_twice():
    """The process dies after every append in turn, and another one resumes the run."""

    def build(store, graded):
        def grade(evidence):
            graded.append(evidence.round)
            return evidence.answer == "three"

        def count(request):
            said = sum(each.role == "assistant" for each in request.messages)
            return ["one", "two", "three"][said]

        scout = Agent(ScriptedModel(count, repeat_last=True), name="scout", engine=until(grade))

        def ask(request):
            return "Done." if request.messages[-1].tool_results else call("scout", task="Count.")

        boss = Agent(ScriptedModel(ask, repeat_last=True), tools=[scout.as_tool()], store=store)
        return boss.session("s")

    store = NotedStore()
    graded: list[int] = []
    await build(store, graded).run("Go.", input_id="i")
    assert graded == [1, 2, 3]
    entries, end = await store.read("s"), 0
    for each in store.appends[:-1]:
        end += len(each.events)
        stored = len(list_grades(entries[:end], "scout-call_1"))
        graded.clear()
        outcome = await build(await left_behind(entries[:end]), graded).run("Go.", input_id="i")
        assert outcome.status == "done"
        if end > 3:
            assert graded == [1, 2, 3][stored:], end
