"""Private runs of an engine: what counts for the run above, and what they have of it."""

import asyncio
from typing import Any

import pytest

from perdure import Agent, Budget, Limits, Middleware, Outcome, ToolResult, UsageError, tool, user
from perdure._core.log.fold import fold_events
from perdure._core.values.engine_event import PlannedTask
from perdure.context import Compaction
from perdure.engines import PrivateRunResult, PrivateRunTask, Run, react, run_privately
from perdure.events import (
    AnswerReviewed,
    MessageAdded,
    ModelRequested,
    PlanMade,
    RunEnded,
    RunStarted,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
)
from perdure.testing import ScriptedModel, call, calls
from tests.doubles import SECONDS


@tool(effect="read", labels=("untrusted",))
async def read(page: str) -> str:
    """Read a page."""
    return f"page {page}"


def ask(number: int = 1, *, max_turns: int = 5, offers_tools: bool = True) -> PrivateRunTask:
    """Return a task."""
    return PrivateRunTask(name=f"aside:{number}", prompt="Look.", max_turns=max_turns, offers_tools=offers_tools)


def asking(*tasks: PrivateRunTask, answers: list[PrivateRunResult] | None = None) -> Any:
    """Return an engine that does tasks in private, at the same time, and then runs `react`."""

    async def engine(run: Run) -> Outcome[Any]:
        found = await asyncio.gather(*[run_privately(run, each) for each in tasks])
        if answers is not None:
            answers.extend(found)
        return await react(run)

    return engine


async def test_turns_tool_calls_labels_and_usage_of_a_private_run_count_for_the_run() -> None:
    model = ScriptedModel(call("read", page="1"), "Read.", "Done.")
    answers: list[PrivateRunResult] = []
    session = Agent(model, tools=[read], engine=asking(ask(), answers=answers)).session("s")
    outcome = await session.run("Go")
    assert (outcome.turns, outcome.usage.total_tokens, outcome.text) == (3, 45, "Done.")
    assert [(each.status, each.text, each.is_new, each.is_done) for each in answers] == [("done", "Read.", True, True)]
    state = fold_events([each.event for each in await session.store.read("s")])
    assert (state.tool_calls, state.turns, list(state.labels)) == (1, 3, ["untrusted"])
    assert not state.child_paths_by_call
    assert [each.text for each in outcome.messages] == ["Go", "Done."]


@pytest.mark.parametrize("most", [1, 2, 3])
async def test_private_runs_at_the_same_time_cannot_pass_the_limit_of_turns(most: int) -> None:
    model = ScriptedModel("One.", repeat_last=True)
    engine = asking(*[ask(number) for number in range(5)])
    outcome = await Agent(model, engine=engine, limits=Limits(max_turns=most)).run("Go")
    assert (outcome.status, outcome.reason, outcome.turns, len(model.requests)) == ("limit", "max_turns", most, most)


async def test_the_limit_of_tool_calls_is_that_of_the_run() -> None:
    model = ScriptedModel(calls(call("read", page="1"), call("read", page="2")), call("read", page="3"), "Done.")
    answers: list[PrivateRunResult] = []
    agent = Agent(model, tools=[read], engine=asking(ask(), answers=answers), limits=Limits(max_tool_calls=1))
    assert (await agent.run("Go")).status == "done"
    assert (answers[0].status, answers[0].reason) == ("limit", "max_tool_calls")


async def test_a_private_run_has_turns_of_its_own_and_no_timeout() -> None:
    model = ScriptedModel(call("read", page="1"), "Done.")
    answers: list[PrivateRunResult] = []
    engine = asking(ask(max_turns=1), answers=answers)
    outcome = await Agent(model, tools=[read], engine=engine, limits=Limits(timeout_seconds=SECONDS)).run("Go")
    assert (answers[0].reason, outcome.text) == ("max_turns", "Done.")


async def test_allowed_tools_and_handoffs_apply_in_private() -> None:
    other = Agent(ScriptedModel("Here."), name="other")

    def look(request: Any) -> Any:
        return ", ".join(each.name for each in request.tools) or "none"

    @tool
    async def write() -> str:
        """Write."""
        return "written"

    answers: list[PrivateRunResult] = []
    agent = Agent(
        ScriptedModel(look, repeat_last=True),
        tools=[read, write],
        handoffs=[other],
        engine=asking(ask(), ask(2, offers_tools=False), answers=answers),
        limits=Limits(allowed_tools=("read", "hand_over_to_other")),
    )
    outcome = await agent.run("Go")
    assert ([each.text for each in answers], outcome.text) == (["read", "none"], "read, hand_over_to_other")


async def test_budgets_middleware_and_compaction_are_those_of_the_agent() -> None:
    turns: list[str] = []

    async def note(call_next: Any, run: Run) -> Any:
        turns.append(run.path)
        return await call_next()

    budget = Budget(token_budget=100_000)
    agent = Agent(
        ScriptedModel("One.", "Two."),
        engine=asking(ask()),
        budget=budget,
        compaction=Compaction(),
        middleware=[Middleware(name="noted", turn=note)],
        history_processor=lambda messages: messages,
    )
    assert (await agent.run("Go", instructions="Be brief.")).text == "Two."
    assert (turns, budget.spent_tokens) == (["aside:1", ""], 30)


async def test_an_output_type_is_that_of_the_answer_alone() -> None:
    answers: list[PrivateRunResult] = []
    model = ScriptedModel("Words.", call("final_answer", value=5))
    outcome = await Agent(model, engine=asking(ask(), answers=answers)).run("Go", output=int)
    assert (answers[0].text, outcome.output, model.requests[0].tools) == ("Words.", 5, ())


async def test_a_run_without_a_builder_is_refused() -> None:
    from msgspec.structs import replace

    async def engine(run: Run) -> Outcome[Any]:
        run.switch_spec(replace(run.spec, private_run_builder=None))
        await run_privately(run, ask())
        return run.outcome("done")

    outcome = await Agent(ScriptedModel(), engine=engine).run("Go")
    assert isinstance(outcome.error, UsageError)


def test_plans_and_reviews_are_found_by_a_search() -> None:
    assert PlanMade((PlannedTask("a", "note one"), PlannedTask("b", "note two"))).search_text() == (
        "plan",
        "note one\nnote two",
    )
    assert PlanMade().search_text() is None
    assert AnswerReviewed("too short").search_text() == ("review", "too short")


def test_the_state_counts_what_a_private_run_does() -> None:
    first = [
        RunStarted("a", run_id="r"),
        MessageAdded(user("Go"), run_id="r"),
        PlanMade(run_id="r"),
        AnswerReviewed("fine", run_id="r"),
        RunStarted("a", input_id="p", private=True, run_id="r/p", path="p"),
        ModelRequested(1, run_id="r/p", path="p"),
        ModelRequested(1, 2, run_id="r/p", path="p"),
        ToolStarted("c", "read", "read", "key", run_id="r/p", path="p"),
        ToolFinished("c", "read", ToolResult("c", "read"), run_id="r/p", path="p"),
        SubagentStarted("d", "helper", "help", "p/d", run_id="r/p", path="p"),
    ]
    state = fold_events(first)
    assert (state.turns, state.tool_calls, len(state.engine_steps)) == (1, 2, 2)
    assert state.get_child("p").is_private
    assert not state.is_private
    state.apply_all([RunEnded("done", run_id="r"), RunStarted("a", run_id="r2")])
    assert (state.turns, state.engine_steps) == (0, [])
