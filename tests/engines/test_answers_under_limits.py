"""What was paid for is returned: something is kept for the answer, and a revision that fails leaves the answer."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import Limits, Outcome, Permissions, ProviderDown
from perdure._engines.reflect import NOT_REVISED_REASON
from perdure.engines import PrivateRunTask, Run, reflect, run_privately
from perdure.events import ErrorRaised, TextDelta
from perdure.models import Price
from perdure.permissions import later
from perdure.testing import FakeClock, Recorder, Reply, call
from tests.doubles import SECONDS, Held
from tests.engines.roles import ENGINES, POOR, World, build_agent, find_task, play

PRICE = Price(input_usd=1.0, output_usd=1.0)
"""A reply takes 15 tokens, which cost 15 millionths."""


def priced(model: Any) -> Any:
    model.info = replace(model.info, price=PRICE)
    return model


# -- plan --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(token_budget=90), "token_budget"),
        (Limits(max_cost_usd=90e-6), "max_cost"),
    ],
)
async def test_a_planner_that_reaches_a_limit_answers_from_what_was_done(limits: Limits, reason: str) -> None:
    outcome = await build_agent("planner", model=priced(play()), limits=limits).run("Do it")
    assert (outcome.status, outcome.reason, outcome.text) == ("limit", reason, "Both are noted.")
    assert [each.name for each in outcome.tool_calls].count("note") >= 1


async def test_a_planner_has_time_for_its_answer() -> None:
    clock, held = FakeClock(), Held()

    def work(request: Any) -> Any:
        return "one is done" if find_task(request) == "one" else call("held")

    agent = build_agent(
        "planner",
        model=play(plan='["one", "two"]', task=work),
        limits=Limits(timeout_seconds=100, max_parallel_tools=1),
        clock=clock,
    )
    agent = agent.replace(tools=[*agent.tools, held.tool])
    running = asyncio.ensure_future(agent.run("Do it"))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    await clock.advance(81)
    outcome = await asyncio.wait_for(running, SECONDS)
    assert (outcome.status, outcome.reason, outcome.text) == ("limit", "timeout", "Both are noted.")
    model: Any = agent.model
    report = model.requests[-1].messages[-1].text
    assert "one is done" in report
    assert "Failed (limit timeout)" in report


@pytest.mark.parametrize(
    ("limits", "report", "status"),
    [
        (Limits(token_budget=60), "x", ("limit", "token_budget")),
        (Limits(), ProviderDown("no line"), ("failed", "ProviderDown")),
        (Limits(), "", ("failed", "EmptyReply")),
    ],
)
async def test_without_an_answer_the_results_of_the_tasks_are_the_text(
    limits: Limits, report: Any, status: Any
) -> None:
    model = play(report=lambda _: report)
    outcome = await build_agent("planner", model=model, limits=limits).run("Do it")
    assert (outcome.status, outcome.reason) == status
    assert "Task a: note one\nDone. Result:\nresult of note one" in outcome.text


async def test_tasks_that_want_more_calls_than_are_left_are_answered_from_what_was_done() -> None:
    def work(request: Any) -> Any:
        return call("note", text=find_task(request))

    outcome = await build_agent("planner", model=play(task=work), limits=Limits(max_tool_calls=2)).run("Do it")
    assert (outcome.status, outcome.reason, outcome.text) == ("limit", "max_tool_calls", "Both are noted.")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("most", [1, 2])
async def test_a_call_too_many_leaves_a_turn_for_the_answer(engine: str, most: int) -> None:
    outcome = await build_agent(engine, limits=Limits(max_tool_calls=most)).run("Do it")
    assert outcome.status == "done"
    assert outcome.text in {"A draft.", "A better answer.", "Both are noted.", "All is done."}


# -- reflect -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["", ProviderDown("no line"), Reply("", calls=(call("note", text="more"),))])
async def test_a_revision_that_fails_leaves_the_answer(revision: Any) -> None:
    seen, world = Recorder(), World()
    asked: list[Any] = []

    def revise(request: Any) -> Any:
        asked.append(request)
        return revision if len(asked) == 1 else ProviderDown("no line")

    agent = build_agent("reflect", world, model=play(revision=revise), watchers=[seen])
    session = agent.session("s")
    outcome = await session.run("Do it", input_id="1")
    assert (outcome.status, outcome.reason, outcome.text) == ("done", NOT_REVISED_REASON, "A draft.")
    assert outcome.message is not None
    assert outcome.error is None
    assert [each.where for each in seen.of(ErrorRaised)] == ["the revision of an answer"]
    again = await session.run("Do it", input_id="1")
    assert (again.status, again.reason) == ("done", NOT_REVISED_REASON)


async def test_a_revision_that_was_cut_off_is_not_the_answer() -> None:
    cut = [TextDelta("A bet"), ProviderDown("no line")]
    outcome = await build_agent("reflect", model=play(revision=lambda _: cut)).run("Do it")
    assert (outcome.status, outcome.text) == ("done", "A draft.")


@pytest.mark.parametrize("turns", [4, 5])
async def test_a_revision_that_reaches_a_limit_leaves_the_answer(turns: int) -> None:
    model = play(revision=lambda _: call("note", text="more"))
    outcome = await build_agent("reflect", model=model, limits=Limits(max_turns=turns)).run("Do it")
    assert (outcome.status, outcome.reason, outcome.text) == ("done", NOT_REVISED_REASON, "A draft.")
    assert outcome.turns == turns


@pytest.mark.parametrize("revision", ["", ProviderDown("no line"), "no number", call("note", text="more")])
async def test_a_value_whose_revision_fails_is_still_the_output(revision: Any) -> None:
    def answer(request: Any) -> Any:
        return call("final_answer", value=7) if any(each.name == "final_answer" for each in request.tools) else "7"

    model = play(answer=answer, review=POOR, revision=lambda _: revision)
    outcome = await build_agent(reflect(max_reflections=1), model=model, limits=Limits(max_turns=6)).run(
        "Do it", output=int
    )
    assert (outcome.status, outcome.value) == ("done", 7)


async def test_a_private_run_of_another_engine_with_such_a_name_is_none_of_its_reviews() -> None:
    async def drafting(run: Run) -> Outcome[Any]:
        await run_privately(run, PrivateRunTask(name="review:draft", prompt="Think.", max_turns=1))
        return run.outcome("done")

    session = build_agent("reflect", model=play(answer="A draft.")).session("s")
    await session.run("Go", engine=drafting)
    outcome = await session.run("Do it")
    assert (outcome.status, outcome.text) == ("done", "A better answer.")


async def test_a_first_answer_that_fails_is_a_failure() -> None:
    outcome = await build_agent("reflect", model=play(answer=lambda _: ProviderDown("no line"))).run("Do it")
    assert (outcome.status, outcome.reason) == ("failed", "ProviderDown")


# -- the others --------------------------------------------------------------------------------------------------------


async def test_a_thought_leaves_tokens_for_the_answer() -> None:
    model = play(thought="I think.", answer="An answer.")
    outcome = await build_agent("chain_of_thought", model=model, limits=Limits(token_budget=16)).run("Do it")
    assert (outcome.status, outcome.text) == ("done", "An answer.")


@pytest.mark.parametrize("output", [None, str])
async def test_the_tool_that_ends_the_work_needs_no_call_of_the_limit(output: Any) -> None:
    def answer(request: Any) -> Any:
        made = [each for message in request.messages for each in message.tool_results]
        if not made:
            return call("note", text="one")
        named = [each.name for each in request.tools]
        return call("final_answer", value="Done.") if "final_answer" in named else call("finish", result="Done.")

    agent = build_agent("autonomous", model=play(answer=answer), limits=Limits(max_tool_calls=1))
    outcome = await agent.run("Do it", output=output)
    assert (outcome.status, outcome.text or outcome.output) == ("done", "Done.")


async def test_a_question_in_a_task_stops_the_time_of_the_task() -> None:
    clock = FakeClock()

    def publish(request: Any) -> Any:
        return "Done." if request.messages[-1].role == "tool" else call("publish", text="x")

    agent = build_agent(
        "planner",
        model=play(plan='["one"]', task=publish),
        permission=Permissions(handler=later),
        limits=Limits(timeout_seconds=10),
        clock=clock,
    )
    session = agent.session("s")
    waiting = await session.run("Do it")
    await clock.advance(100)
    await session.answer(waiting.questions[0].ask_id, True)
    outcome = await session.resume()
    assert (outcome.status, outcome.text) == ("done", "Both are noted.")
