"""Evaluations: the grid of cases and agents, errors as results, resumption, comparisons."""

import asyncio
from collections.abc import Sequence
from typing import Self

import pytest
from msgspec.structs import replace

from perdure import Agent, ConfigError, Limits, SessionBusy, ShuttingDown, StoreError, ToolContext, Usage, tool
from perdure._work.judging.evals.sessions import EvaluationStore, get_run_session_id
from perdure.background import Shutdown
from perdure.evals import Case, Dataset, Evaluation, EvaluationProgress, Evidence, Grade, all_of
from perdure.events import Entry
from perdure.stores import Lease, MemoryStore, open_store
from perdure.testing import FakeClock, Reply, ScriptedModel, call
from tests.evaluating.quizzes import PATIENCE, answering, asked, echo, evaluate, quiz

# -- the grid ----------------------------------------------------------------------------------------------------------


async def test_each_agent_runs_each_case_as_often_as_it_is_repeated():
    agents = {"right": echo(), "wrong": answering(lambda _: "no")}
    dataset = Dataset("d", [*quiz("a").cases, *quiz("b", repeat=2).cases])
    report = await evaluate(Evaluation(dataset, agents))
    listed = [(each.case_id, each.agent, each.repetition, each.verdict) for each in report.results]
    assert listed == [
        ("a", "right", 1, "passed"),
        ("a", "wrong", 1, "failed"),
        ("b", "right", 1, "passed"),
        ("b", "right", 2, "passed"),
        ("b", "wrong", 1, "failed"),
        ("b", "wrong", 2, "failed"),
    ]
    assert len({each.session_id for each in report.results}) == 6
    assert [(each.agent, each.passed, each.runs) for each in report.summaries] == [("right", 3, 3), ("wrong", 0, 3)]
    assert (report.pass_rate, report.all_passed) == (0.5, False)


async def test_as_many_cases_run_at_once_as_may():
    together, most, running = asyncio.Barrier(3), 0, 0

    async def answer(prompt):
        nonlocal most, running
        running += 1
        most = max(most, running)
        await together.wait()  # which ends only if three are here at the same time
        running -= 1
        return prompt

    report = await evaluate(Evaluation(quiz(*"abcdef"), answering(answer), parallel=3))
    assert report.all_passed
    assert most == 3


async def test_agents_are_called_after_themselves_or_their_models():
    agents = [echo(name="x"), echo(name="x"), echo(name="agent", model_name="m"), echo(name="agent", model_name="m")]
    assert list(Evaluation(quiz("a"), agents).agents) == ["x", "x #2", "m", "m #2"]
    many = [echo(name="x") for _ in range(4)]
    assert list(Evaluation(quiz("a"), many).agents) == ["x", "x #2", "x #3", "x #4"]


async def test_graders_of_the_evaluation_are_added_to_those_of_a_case():
    def is_short(evidence):
        return 0.25

    report = await evaluate(Evaluation(quiz("a"), echo(), graders=[is_short]))
    result = report.results[0]
    assert [(each.grader, each.score, each.passed) for each in result.grades] == [
        ("equals", 1.0, True),
        ("is_short", 0.25, False),
    ]
    assert (result.verdict, result.score) == ("failed", 0.625)


async def test_cost_and_latency_are_those_of_the_run():
    clock = FakeClock(auto=True)

    async def answer(prompt):
        await clock.sleep(2.5)
        return prompt

    report = await evaluate(Evaluation(quiz("a"), answering(answer, clock=clock)))
    result, summary = report.results[0], report.summaries[0]
    assert (result.latency_seconds, result.cost_usd) == (2.5, pytest.approx(0.02))
    assert (result.input_tokens, result.output_tokens, result.turns) == (10, 5, 1)
    assert (summary.latency_median_seconds, summary.cost_usd) == (2.5, pytest.approx(0.02))


async def test_deps_of_a_case_reach_its_tools():
    @tool
    def price(context: ToolContext[dict[str, int]]) -> str:
        """Return the price."""
        return f"{context.deps['price']} EUR"

    def answer(request):
        return request.messages[-1].tool_results[0].text if request.messages[-1].tool_results else call("price")

    agent = Agent(ScriptedModel(answer, repeat_last=True), tools=[price], deps={"price": 1})
    cases = [
        Case(prompt=f"{each}", expected=f"{each} EUR", deps={"price": each}, graders=["equals"]) for each in (3, 4)
    ]
    report = await evaluate(Evaluation(Dataset("d", cases), agent))
    assert report.all_passed
    assert [each.tool_calls for each in report.results] == [1, 1]

    async def build(case):
        return {"price": case.deps["price"] * 10}

    report = await evaluate(Evaluation(Dataset("d", cases), agent, build_deps=build))
    assert [each.text for each in report.results] == ["30 EUR", "40 EUR"]


async def test_the_output_of_a_case_is_structured():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    case = Case(prompt="x", expected={"a": 1}, output=schema, graders=["equals"])
    report = await evaluate(Evaluation(Dataset("d", [case]), answering(lambda _: '{"a": 1}')))
    assert report.all_passed


# -- errors are results ------------------------------------------------------------------------------------------------


async def test_a_case_that_fails_is_a_result_and_the_others_go_on():
    clock = FakeClock(auto=True)

    async def answer(prompt):
        if prompt == "raises":
            raise RuntimeError("the provider exploded")
        if prompt == "slow":
            await clock.sleep(60)
        return call("look") if prompt == "endless" else prompt

    @tool
    def look() -> str:
        """Look."""
        return "nothing"

    agent = answering(answer, tools=[look], clock=clock, guardrails=())
    limits = {"raises": None, "slow": Limits(timeout_seconds=5), "endless": Limits(max_turns=2), "fine": None}
    cases = [replace(quiz(name).cases[0], limits=each) for name, each in limits.items()]
    cases.append(replace(quiz("bad").cases[0], output={"type": "nonsense"}))
    report = await evaluate(Evaluation(Dataset("d", cases), agent))
    found = {each.case_id: (each.verdict, each.status, each.reason) for each in report.results}
    assert found == {
        "raises": ("error", "failed", "RuntimeError"),
        "slow": ("error", "limit", "timeout"),
        "endless": ("error", "limit", "max_turns"),
        "fine": ("passed", "done", ""),
        "bad": ("error", "raised", "ConfigError"),
    }
    errors = {each.case_id: each.error for each in report.results}
    assert errors["raises"] == "the provider exploded"
    assert errors["slow"] == "the run ended as 'limit': timeout"
    assert report.summaries[0].errors == 4


async def test_a_spent_budget_is_a_result():
    report = await evaluate(Evaluation(quiz(*"abc"), echo(), parallel=1, max_cost_usd=0.0))
    assert [(each.verdict, each.status, each.reason) for each in report.results] == [("error", "limit", "budget")] * 3


async def test_a_grader_that_fails_is_an_error_of_the_case():
    def breaks(evidence):
        raise ValueError("no such file")

    report = await evaluate(Evaluation(quiz("a"), echo(), graders=[breaks]))
    assert report.results[0].verdict == "error"
    assert "the grader 'breaks' could not judge this: no such file" in report.results[0].error


async def test_a_run_that_waits_for_a_person_is_an_error():
    from perdure import Permissions, ask
    from perdure.permissions import later

    @tool(permission=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(ScriptedModel(call("pay"), "paid"), tools=[pay], permission=Permissions(ask(), handler=later))
    report = await evaluate(Evaluation(quiz("a"), agent.replace(answer_timeout_seconds=0.0)))
    assert (report.results[0].verdict, report.results[0].status) == ("error", "waiting")
    assert "waits for an answer" in report.results[0].error


# -- resumption --------------------------------------------------------------------------------------------------------


async def test_finished_cases_are_not_run_again():
    store, agent = open_store("memory:"), echo()
    first = Evaluation(quiz(*"abc"), agent, store=store)
    await evaluate(first)
    seen: list[EvaluationProgress] = []
    again = Evaluation(quiz(*"abcd"), agent, store=store, evaluation_id=first.evaluation_id)
    report = await evaluate(again, on_progress=seen.append)
    assert asked(agent) == ["a", "b", "c", "d"]
    assert report.reused == 3
    assert [(each.done, each.total, each.is_reused) for each in seen] == [
        (1, 4, True),
        (2, 4, True),
        (3, 4, True),
        (4, 4, False),
    ]
    assert seen[-1].passed == 4
    assert seen[-1].cost_usd == pytest.approx(0.08)


async def test_a_cancelled_evaluation_runs_its_cancelled_cases_again():
    store, began = open_store("memory:"), asyncio.Event()
    blocked = True

    async def answer(prompt):
        if prompt == "b" and blocked:
            began.set()
            await asyncio.Event().wait()
        return prompt

    agent = answering(answer)
    evaluation = Evaluation(quiz(*"abc"), agent, store=store, parallel=1)
    async with asyncio.timeout(PATIENCE):
        task = asyncio.ensure_future(evaluation.run())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    blocked = False
    again = Evaluation(quiz(*"abc"), agent, store=store, evaluation_id=evaluation.evaluation_id)
    report = await evaluate(again)
    assert report.all_passed
    assert asked(agent).count("a") == 1
    assert report.results[1].session_id.endswith("-2")


async def test_a_run_that_a_shutdown_left_is_continued():
    store, began, shutdown = open_store("memory:"), asyncio.Event(), Shutdown(signals=())
    release, calls = asyncio.Event(), []

    @tool(effect="at_most_once")
    async def note(text: str) -> str:
        """Note something."""
        calls.append(text)
        return "noted"

    async def reply(request):
        if not request.messages[-1].tool_results:
            return call("note", text=request.messages[-1].text)
        if not release.is_set():
            began.set()
            await release.wait()
        return request.messages[0].text

    agent = Agent(ScriptedModel(reply, repeat_last=True), tools=[note], name="noting")
    evaluation = Evaluation(quiz("a", "b"), shutdown.wrap_agent(agent), store=store, parallel=2)
    async with asyncio.timeout(PATIENCE):
        task = asyncio.ensure_future(evaluation.run())
        await began.wait()
        shutdown.begin()
        with pytest.raises(ShuttingDown):
            await task
    release.set()
    again = Evaluation(quiz("a", "b"), agent, store=store, evaluation_id=evaluation.evaluation_id)
    report = await evaluate(again)
    assert report.all_passed
    assert sorted(calls) == ["a", "b"]  # no call was repeated


async def test_other_graders_judge_the_stored_answers_anew():
    store, agent = open_store("memory:"), echo()
    first = Evaluation(quiz("a", "b"), agent, store=store)
    await evaluate(first)
    again = Evaluation(quiz("a", "b", expected="a"), agent, store=store, evaluation_id=first.evaluation_id)
    report = await evaluate(again)
    assert asked(agent) == ["a", "b"]
    assert [each.verdict for each in report.results] == ["passed", "failed"]


async def test_a_case_that_was_changed_is_run_again():
    store, agent = open_store("memory:"), echo()
    first = Evaluation(quiz("a", "b"), agent, store=store)
    await evaluate(first)
    changed = quiz("a", "b", limits=Limits(max_turns=3))
    await evaluate(Evaluation(changed, agent, store=store, evaluation_id=first.evaluation_id))
    assert sorted(asked(agent)) == ["a", "a", "b", "b"]


async def test_errors_are_retried_if_that_is_wished():
    store, answers = open_store("memory:"), ["error", "error", "fine"]

    def answer(prompt):
        if prompt == "b" and answers.pop(0) == "error":
            raise RuntimeError("down")
        return prompt

    agent = answering(answer)
    first = Evaluation(quiz("a", "b"), agent, store=store)
    verdicts = [[each.verdict for each in (await evaluate(first)).results]]
    for retry in (False, True, True):
        again = Evaluation(quiz("a", "b"), agent, store=store, evaluation_id=first.evaluation_id, retry_errors=retry)
        verdicts.append([each.verdict for each in (await evaluate(again)).results])
    assert verdicts == [["passed", "error"], ["passed", "error"], ["passed", "error"], ["passed", "passed"]]
    assert asked(agent).count("a") == 1


async def test_the_budget_of_a_resumed_evaluation_is_what_is_left():
    store, agent = open_store("memory:"), answering(reply_dearly)
    first = Evaluation(quiz("a"), agent, store=store, max_cost_usd=20.0)
    assert [each.reason for each in (await evaluate(first)).results] == [""]
    again = Evaluation(quiz("a", "b"), agent, store=store, evaluation_id=first.evaluation_id, max_cost_usd=20.0)
    assert [each.reason for each in (await evaluate(again)).results] == ["", "budget"]


def reply_dearly(prompt):
    """A reply for 16 dollars: the budget of 20 dollars is enough for one."""
    return Reply(prompt, usage=Usage(output_tokens=8000))


async def test_the_cost_of_attempts_that_are_run_again_counts_for_the_budget():
    store, agent = open_store("memory:"), answering(reply_dearly)

    def fail(_evidence):
        raise RuntimeError("no judge")

    def build(**options):
        return Evaluation(quiz("a"), agent, graders=[fail], store=store, max_cost_usd=20.0, **options)

    first = build()
    assert [each.reason for each in (await evaluate(first)).results] == [""]
    report = await evaluate(build(evaluation_id=first.evaluation_id, retry_errors=True))
    assert [(each.verdict, each.reason) for each in report.results] == [("error", "budget")]


async def test_the_cost_of_graders_counts_for_the_budget_of_a_resumed_evaluation():
    store, agent = open_store("memory:"), echo()

    def judge(_evidence):
        return Grade(passed=True, usage=Usage(1), cost_usd=15.0)

    def build(*prompts, **options):
        return Evaluation(quiz(*prompts), agent, graders=[judge], store=store, **options)

    first = build("a", max_cost_usd=20.0)
    assert [each.grading_cost_usd for each in (await evaluate(first)).results] == [15.0]
    again = build("a", "b", evaluation_id=first.evaluation_id, max_cost_usd=15.0)
    assert [each.reason for each in (await evaluate(again)).results] == ["", "budget"]


async def test_a_baseline_that_does_not_exist_leaves_no_evaluation_to_resume():
    store = open_store("memory:")
    with pytest.raises(ConfigError, match="no finished evaluation 'nope'"):
        await evaluate(Evaluation(quiz("a"), echo(), store=store), baseline="nope")
    assert await EvaluationStore(store).list_evaluations("quiz", finished=False) == []


async def test_an_evaluation_that_was_resumed_with_some_of_its_cases_is_no_baseline():
    store, whole = open_store("memory:"), quiz("a", "b")
    first = Evaluation(whole, echo(), store=store)
    await evaluate(first)
    part = Evaluation(whole.select(ids=["a"]), echo(), store=store, evaluation_id=first.evaluation_id)
    await evaluate(part)
    assert (await evaluate(Evaluation(whole, echo(), store=store))).comparison is None
    await evaluate(Evaluation(whole, echo(), store=store, evaluation_id=first.evaluation_id))
    report = await evaluate(Evaluation(whole, echo(), store=store), baseline=first.evaluation_id)
    assert report.comparison is not None
    assert report.comparison.compared == 2


async def test_a_grader_that_exits_or_has_much_to_say_does_not_end_the_evaluation():
    def leave(_evidence):
        raise SystemExit(3)

    def say_much(_evidence):
        return Grade(passed=False, feedback="\ud800" + "x" * 100_000)

    report = await evaluate(Evaluation(quiz("a", "b"), echo(), graders=[leave, all_of(say_much)]))
    assert [each.verdict for each in report.results] == ["error", "error"]
    assert len(report.to_json()) < 200_000
    judged = await evaluate(Evaluation(quiz("a"), echo(), graders=[all_of(lambda _: True, leave)]))
    assert judged.results[0].verdict == "error"  # no judgement, and not a bad answer


async def test_an_evaluation_of_another_dataset_is_not_resumed():
    store = open_store("memory:")
    first = Evaluation(quiz("a"), echo(), store=store)
    await evaluate(first)
    with pytest.raises(ConfigError, match="is one of the dataset 'quiz', and not of 'other'"):
        await evaluate(Evaluation(quiz("a", name="other"), echo(), store=store, evaluation_id=first.evaluation_id))


# -- comparisons -------------------------------------------------------------------------------------------------------


async def test_regressions_are_against_the_last_finished_evaluation(tmp_path):
    store = f"sqlite:{tmp_path}/evals.db"
    reports = []
    for wrong in ("", "b", "a"):
        agent = answering(lambda prompt, wrong=wrong: "no" if prompt == wrong else prompt)
        reports.append(await evaluate(Evaluation(quiz("a", "b"), agent, store=store)))
    assert reports[0].comparison is None
    assert [each.case_id for each in reports[1].regressions] == ["b"]
    last = reports[2].comparison
    assert last is not None
    assert (last.baseline_id, last.compared) == (reports[1].evaluation_id, 2)
    assert [each.case_id for each in last.regressions] == ["a"]
    assert [each.case_id for each in last.improvements] == ["b"]
    assert [each.evaluation_id for each in reports[2].history] == [each.evaluation_id for each in reports[:2]]


async def test_a_selection_or_another_agent_is_not_what_the_next_evaluation_is_compared_with():
    store = open_store("memory:")
    whole = await evaluate(Evaluation(quiz("a", "b"), {"one": echo()}, store=store))
    part = await evaluate(Evaluation(quiz("a", "b").select(ids=["a"]), {"one": echo()}, store=store))
    other = await evaluate(Evaluation(quiz("a", "b"), {"two": echo()}, store=store))
    again = await evaluate(Evaluation(quiz("a", "b"), {"one": echo()}, store=store))
    assert [
        None if each.comparison is None else each.comparison.baseline_id for each in (whole, part, other, again)
    ] == [
        None,
        whole.evaluation_id,
        None,
        whole.evaluation_id,
    ]
    assert [each.evaluation_id for each in again.history] == [whole.evaluation_id, other.evaluation_id]


async def test_a_baseline_can_be_named():
    store = open_store("memory:")
    first = await evaluate(Evaluation(quiz("a"), echo(), store=store))
    await evaluate(Evaluation(quiz("a"), answering(lambda _: "no"), store=store))
    now = answering(lambda _: "no")
    by_id = await evaluate(Evaluation(quiz("a"), now, store=store), baseline=first.evaluation_id)
    by_report = await evaluate(Evaluation(quiz("a"), now), baseline=first)
    without = await evaluate(Evaluation(quiz("a"), now, store=store), baseline=None)
    assert [len(each.regressions) for each in (by_id, by_report, without)] == [1, 1, 0]
    with pytest.raises(ConfigError, match="no finished evaluation 'nope'"):
        await evaluate(Evaluation(quiz("a"), now, store=store), baseline="nope")


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parallel": 0}, "parallel=0"),
        ({"repeat": 0}, "repeat=0"),
        ({"max_cost_usd": -1}, "max_cost_usd=-1"),
        ({"build_deps": 3}, "build_deps=3"),
        ({"evaluation_id": 3}, "evaluation_id=3"),
        ({"graders": ["contain"]}, "did you mean 'contains'?"),
        ({"agents": []}, "give an agent"),
        ({"agents": "demo"}, "give an agent"),
        ({"dataset": "cases.toml"}, "load_dataset"),
        ({"dataset": quiz("a", graders=[])}, "case 'a' has no graders"),
    ],
)
def test_wrong_options_are_named_before_anything_is_run(options, message):
    given = {"dataset": quiz("a"), "agents": echo(), **options}
    with pytest.raises(ConfigError) as caught:
        Evaluation(given.pop("dataset"), given.pop("agents"), **given)
    assert message in str(caught.value)


# -- what was spent, and what stops an evaluation ----------------------------------------------------------------------


async def test_what_a_cancelled_run_has_cost_counts_for_the_budget_of_a_resumed_evaluation():
    store, began = open_store("memory:"), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for ever."""
        began.set()
        await asyncio.Event().wait()
        return ""

    def answer(prompt):
        return reply_dearly(prompt) if began.is_set() else Reply(calls=[call("wait")], usage=Usage(output_tokens=8000))

    agent = answering(answer, tools=[wait])
    evaluation = Evaluation(quiz("a"), agent, store=store, max_cost_usd=20.0)
    async with asyncio.timeout(PATIENCE):
        task = asyncio.ensure_future(evaluation.run())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    again = Evaluation(quiz("a"), agent, store=store, evaluation_id=evaluation.evaluation_id, max_cost_usd=20.0)
    (result,) = (await evaluate(again)).results
    assert (result.reason, result.session_id[-2:]) == ("budget", "-2")


async def test_an_evaluation_ends_if_another_process_is_at_a_case():
    store, dataset = open_store("memory:"), quiz("a")
    (case,) = dataset.cases
    await store.acquire(get_run_session_id("e", case.run_digest, "a", "quizzed", 1))
    with pytest.raises(SessionBusy):
        await evaluate(Evaluation(dataset, echo(), store=store, evaluation_id="e"))


async def test_an_evaluation_ends_if_its_store_fails():
    class Full(MemoryStore):
        def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
            if lease.session_id.startswith("eval-"):
                raise StoreError("the disk is full")
            return super().append_now(lease, entries, sync=sync)

    with pytest.raises(StoreError, match="the disk is full"):
        await evaluate(Evaluation(quiz("a"), echo(), store=Full()))


async def test_a_third_attempt_follows_the_second_and_the_last_one_counts():
    store, agent = open_store("memory:"), answering(lambda _: RuntimeError("down"))
    first = Evaluation(quiz("a"), agent, store=store)
    names = [(await evaluate(first)).results[0].session_id]
    for _ in range(2):
        again = Evaluation(quiz("a"), agent, store=store, evaluation_id=first.evaluation_id, retry_errors=True)
        names.append((await evaluate(again)).results[0].session_id)
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3"]
    last = await evaluate(Evaluation(quiz("a"), agent, store=store, evaluation_id=first.evaluation_id))
    assert (last.results[0].session_id, last.reused) == (names[2], 1)


async def test_a_grader_is_told_the_case_the_agent_and_which_time_it_is():
    seen: list[Evidence] = []

    def judge(evidence: Evidence) -> bool:
        seen.append(evidence)
        return True

    dataset = quiz("a", repeat=2, tags=["t"], deps={"x": 1})
    clock = FakeClock(50.0)
    report = await evaluate(Evaluation(dataset, {"one": echo()}, graders=[judge], parallel=1, clock=clock))
    assert [(each.goal, each.expected, each.answer, each.round, each.details) for each in seen] == [
        ("a", "a", "a", number, {"case_id": "a", "agent": "one", "tags": ("t",), "deps": {"x": 1}}) for number in (1, 2)
    ]
    assert {each.finished_at for each in report.results} == {50.0}


async def test_evaluations_that_began_at_the_same_moment_are_compared():
    store, clock = open_store("memory:"), FakeClock()
    first = await evaluate(Evaluation(quiz("a"), echo(), store=store, clock=clock))
    second = await evaluate(Evaluation(quiz("a"), echo(), store=store, clock=clock))
    assert second.comparison is not None
    assert second.comparison.baseline_id == first.evaluation_id
    assert [each.evaluation_id for each in second.history] == [first.evaluation_id]


async def test_an_error_is_told_before_the_end_of_the_process():
    def build(case: Case) -> None:
        raise ShuttingDown("the process ends") if case.id == "a" else StoreError("the disk is full")

    with pytest.raises(StoreError, match="the disk is full"):
        await evaluate(Evaluation(quiz("a", "b"), echo(), build_deps=build, parallel=2))


async def test_an_error_ends_the_other_runs_at_once():
    waiting = asyncio.Event()

    async def build(case: Case) -> None:
        if case.id == "a":
            await waiting.wait()
            raise StoreError("the disk is full")
        waiting.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(5):
        with pytest.raises(StoreError, match="the disk is full"):
            await Evaluation(quiz("a", "b"), echo(), build_deps=build, parallel=2).run()


async def test_agents_are_open_while_their_cases_run_and_closed_afterwards():
    noted: list[str] = []

    class Noting(Agent[None]):
        async def __aenter__(self) -> Self:
            noted.append("opened")
            return self

        async def __aexit__(self, *details: object) -> None:
            noted.append("closed")

    def answer(_request: object) -> str:
        noted.append("asked")
        return "a"

    agent = Noting(ScriptedModel(answer, repeat_last=True), name="noting")
    await evaluate(Evaluation(quiz("a"), agent))
    assert noted == ["opened", "asked", "closed"]
