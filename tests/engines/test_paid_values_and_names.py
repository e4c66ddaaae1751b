"""What was paid for is returned with a type of output, in later rounds, to streams, and beside runs of that name."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import Agent, Limits, Outcome, Output, ProviderDown, Retry, StopReason, assistant, tool
from perdure.engines import (
    Accepted,
    PrivateRunTask,
    Run,
    Step,
    any_of,
    chain_of_thought,
    planner,
    reflect,
    run_privately,
    until,
)
from perdure.evals import Grade
from perdure.events import AnswerReviewed, MessageAdded, PlanMade, RunStarted, TextDelta
from perdure.testing import Recorder, Reply, ScriptedModel, call
from tests.doubles import NotedStore, log_of, of
from tests.engines.roles import POOR, build_agent, do_task, play
from tests.engines.test_paid_work_is_returned import PLAN, list_append_ends
from tests.runtime.subagents.family import left_behind

# -- types of output ---------------------------------------------------------------------------------------------------


def answer_with(value: int, mode: str) -> Any:
    """Return a reply with a value, as it is given in a mode."""
    return call("final_answer", value=value) if mode == "tool" else json.dumps({"value": value})


BAD_REVISIONS: dict[str, Any] = {
    "down": ProviderDown("no line"),
    "empty": "",
    "cut off": [TextDelta('{"value": 9')],
    "too long": Reply('{"value": 9', stop=StopReason.LENGTH),
    "no value": "I am not sure.",
    "another type": '{"value": "nine"}',
    "calls": call("note", text="more"),
}


@pytest.mark.parametrize("fault", BAD_REVISIONS)
@pytest.mark.parametrize("mode", ["tool", "native", "prompted"])
async def test_a_value_whose_revision_fails_is_the_output_now_later_and_after_a_crash(mode: Any, fault: str) -> None:
    def build(store: Any) -> Agent[Any]:
        model = play(
            answer=lambda _: answer_with(7, mode), review=lambda _: POOR, revision=lambda _: BAD_REVISIONS[fault]
        )
        return build_agent("reflect", model=model, store=store)

    store, output = NotedStore(), Output(int, mode=mode)
    session = build(store).session("s")
    outcome = await session.run("Do it", output=output, input_id="once")
    assert (outcome.status, outcome.reason, outcome.output) == ("done", "not_revised", 7)
    again = await session.run("Do it", output=output, input_id="once")
    assert (again.status, again.reason, again.output, again.text) == ("done", "not_revised", 7, outcome.text)
    entries = await store.read("s")
    for cut in list_append_ends(store):
        resumed = build(await left_behind(entries[:cut])).session("s")
        outcome = await resumed.run("Do it", output=output, input_id="once")
        assert (cut, outcome.status, outcome.reason, outcome.output) == (cut, "done", "not_revised", 7)


@pytest.mark.parametrize("mode", ["tool", "native", "prompted"])
async def test_a_value_that_could_not_be_reviewed_says_so(mode: Any) -> None:
    model = play(answer=lambda _: answer_with(7, mode))
    agent = build_agent("reflect", model=model, limits=Limits(max_turns=1))
    outcome = await agent.run("Do it", output=Output(int, mode=mode))
    assert (outcome.status, outcome.reason, outcome.output) == ("done", "not_reviewed", 7)


async def test_a_revised_value_that_a_validator_refuses_is_not_the_output() -> None:
    def accept(run: Run, reply: Any) -> Any:
        return Accepted() if "7" in reply.text else Retry("No.")

    replies = iter(['{"value": 8}', ProviderDown("no line")])
    model = play(answer='{"value": 7}', review=lambda _: POOR, revision=lambda _: next(replies))
    agent = build_agent("reflect", model=model, output_validators=[accept])
    outcome = await agent.run("Do it", output=Output(int, mode="native"))
    assert (outcome.status, outcome.reason, outcome.text, outcome.output) == ("done", "not_revised", '{"value": 7}', 7)


# -- rounds ------------------------------------------------------------------------------------------------------------


def grade_second(evidence: Any) -> Grade:
    return Grade(passed=evidence.round == 2, feedback="Again, please.")


async def test_each_round_has_a_plan_and_tasks_of_its_own() -> None:
    session = build_agent(until(grade_second, engine=planner()), model=play(plan='["one"]', task=do_task)).session("s")
    outcome = await session.run("Do it")
    assert outcome.status == "done"
    plans = of(await log_of(session.store, "s"), PlanMade)
    assert [(each.revision, each.work_index) for each in plans] == [(0, 0), (0, 2)]
    assert [each.name for each in outcome.tool_calls] == ["note", "note"]


async def test_each_round_is_reviewed_and_thought_about() -> None:
    seen, model = Recorder(), play(answer="A draft.", review='{"score": 9, "needs_revision": false}', thought="Hm.")
    agent = build_agent(until(grade_second, engine=reflect(max_reflections=1)), model=model, watchers=[seen])
    assert (await agent.run("Do it")).status == "done"
    assert [each.message_index for each in seen.of(AnswerReviewed)] == [1, 3]
    session = build_agent("react", model=model).session("t")
    await session.run("Do it", engine=until(grade_second, engine=chain_of_thought()))
    paths = {each.path for each in of(await log_of(session.store, "t"), MessageAdded)}
    assert paths == {"", "thought:0", "thought:2"}


async def test_a_request_has_one_report_of_the_tasks_also_in_a_later_round() -> None:
    model = play(plan='["one"]', task="done", report="An answer.")
    await build_agent(until(grade_second, engine=planner()), model=model).run("Do it")
    said = "\n".join(each.text for each in model.requests[-1].messages)
    assert said.count("which have been carried out") == 1


# -- names -------------------------------------------------------------------------------------------------------------

NAMES = [
    "review:draft",
    "review:3",
    "review:\u0663",
    "review:",
    "review:-1",
    "draft",
    "1",
    "thought:2",
    "plan:2:0",
    "task:2:1",
    "\u00fc",
]


def ask_privately(name: str) -> Any:
    """Return an engine that has a private run of this name, and answers with what it says."""

    async def asking(run: Run) -> Outcome[Any]:
        answer = await run_privately(run, PrivateRunTask(name=name, prompt="Think.", max_turns=1))
        return replace(run.outcome("done"), text=answer.text)

    return asking


@pytest.mark.parametrize(
    ("engine", "text"),
    [("reflect", "A better answer."), ("planner", "Both are noted."), ("chain_of_thought", "A draft.")],
)
@pytest.mark.parametrize("name", NAMES)
async def test_a_private_run_of_another_engine_changes_nothing(name: str, engine: str, text: str) -> None:
    def answer(request: Any) -> str:
        return "7" if request.messages[-1].text == "Think." else "A draft."

    model = play(answer=answer, plan='["one"]', task="one is done", thought="Hm.")
    session = build_agent(engine, model=model).session("s")
    assert (await session.run("Go", engine=ask_privately(name))).text == "7"
    await session.import_messages([assistant("Seven.")])
    outcome = await session.run("Do it")
    assert (outcome.status, outcome.reason, outcome.text) == ("done", "", text)


async def test_an_engine_that_gives_its_private_run_the_same_name_each_time_gets_an_answer_each_time() -> None:
    answers = iter(["one", "two", "three"])
    session = build_agent(ask_privately("translation"), model=play(answer=lambda _: next(answers))).session("s")
    assert [(await session.run(each)).text for each in ("a", "b", "c")] == ["one", "two", "three"]
    paths = [each.path for each in of(await log_of(session.store, "s"), RunStarted)]
    assert paths == ["", "translation", "", "translation.2", "", "translation.3"]


# -- what else ends a run ----------------------------------------------------------------------------------------------


async def test_a_stop_condition_in_a_task_leaves_the_results_of_the_others() -> None:
    def is_joining(step: Step) -> bool:
        return any("join" in each.arguments for each in step.calls)

    agent = build_agent("planner", model=play(plan=PLAN), stop=any_of(is_joining))
    outcome = await agent.run("Do it")
    assert (outcome.status, outcome.reason) == ("stopped", "stop_condition")
    assert "result of one" in outcome.text


async def test_a_message_that_arrives_after_the_draft_is_not_answered_by_it() -> None:
    """A steering message during the revision asks for something else: a failure is one."""

    @tool
    async def wait() -> str:
        """Wait."""
        await session.steer("Rather in French.")
        return "waited"

    replies = iter([call("wait"), ProviderDown("no line")])
    model = play(answer="A draft.", revision=lambda _: next(replies))
    session = build_agent("reflect", model=model).replace(tools=[wait]).session("s")
    outcome = await session.run("Do it")
    assert (outcome.status, outcome.reason) == ("failed", "ProviderDown")


async def test_the_text_of_a_fallback_answer_is_streamed() -> None:
    model = play(plan='["one"]', task="one is found", report=lambda _: ProviderDown("no line"))
    stream = build_agent("planner", model=model).session("s").stream("Do it")
    texts = [each.text async for each in stream if isinstance(each, TextDelta) and not each.path]
    assert "one is found" in "".join(texts)


async def test_a_subagent_that_ends_without_an_answer_reports_the_results_of_its_tasks() -> None:
    scout = build_agent(
        "planner", model=play(plan='["one"]', task="one is found", report=lambda _: ProviderDown("no line"))
    )
    scout = scout.replace(name="scout")
    boss = Agent(ScriptedModel(call("scout", task="Look."), "Fine."), tools=[scout.as_tool()])
    outcome = await boss.run("Go")
    (made,) = outcome.tool_calls
    assert made.result is not None
    assert "one is found" in made.result.text


@pytest.mark.parametrize("mode", ["tool", "native", "prompted"])
async def test_a_value_from_a_part_of_the_tasks_says_so_now_and_later(mode: Any) -> None:
    model = play(plan='["one", "two"]', task="done", report=lambda _: answer_with(7, mode))
    session = build_agent("planner", model=model, limits=Limits(max_turns=3)).session("s")
    output = Output(int, mode=mode)
    for _ in range(2):
        outcome = await session.run("Do it", output=output, input_id="once")
        assert (outcome.status, outcome.reason, outcome.output) == ("limit", "max_turns", 7)


@pytest.mark.parametrize("mode", ["tool", "native", "prompted"])
async def test_a_prompt_that_looks_like_a_value_is_none(mode: Any) -> None:
    session = build_agent("react", model=play(answer=lambda _: ProviderDown("no line"))).session("s")
    output = Output(int, mode=mode)
    for _ in range(2):
        outcome = await session.run('{"value": 5}', output=output, input_id="once", limits=Limits(token_budget=1))
        assert (outcome.status, outcome.output) == ("failed", None)
