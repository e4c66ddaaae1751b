"""What a run did is in its outcome and in the evidence of graders, whichever engine did it and whoever asked for it."""

from collections import Counter
from typing import Any

import pytest

from perdure import Agent, Outcome, Permissions, deny
from perdure.engines import Run, planner, until
from perdure.evals import Evidence, model_grader
from perdure.events import ToolFinished
from perdure.permissions import later
from perdure.testing import ScriptedModel, call
from perdure.tools import code_mode
from tests.doubles import log_of, of
from tests.engines.roles import ENGINES, World, build_agent, play
from tests.runtime.subagents.family import left_behind


def list_made(outcome: Outcome[Any]) -> list[tuple[str, str, str]]:
    """Return each call of an outcome with its arguments and result."""
    return [(each.name, each.arguments, "" if each.result is None else each.result.text) for each in outcome.tool_calls]


async def test_a_judge_sees_the_calls_of_the_tasks_of_a_plan() -> None:
    judge = ScriptedModel('{"score": 10, "passed": true, "feedback": ""}', repeat_last=True)
    world = World()
    outcome = await build_agent(until(model_grader(judge), engine=planner()), world).run("Do it")
    assert world.effects == Counter({"note one": 1, "note two": 1, "join them": 1})
    asked = judge.requests[0].messages[-1].text
    for text in world.effects:
        assert f'note({{"text":"{text}"}}) -> ok\nnoted {text}' in asked
    assert [each.name for each in outcome.tool_calls] == ["note"] * 3


@pytest.mark.parametrize("engine", ENGINES)
async def test_every_effect_of_an_engine_is_in_its_outcome_also_later_and_after_a_crash(engine: str) -> None:
    world = World()
    session = build_agent(engine, world).session("s")
    outcome = await session.run("Do it", input_id="once")
    made = list_made(outcome)
    results = of(await log_of(session.store, "s"), ToolFinished)
    assert sorted(text for _, _, text in made) == sorted(each.result.text for each in results)
    assert world.effects == Counter([text.removeprefix("noted ") for name, _, text in made if name == "note"])
    assert len(Evidence.from_outcome(outcome, goal="").tool_calls) == len(made)
    again = await session.run("Do it", input_id="once")
    assert (again.steps, again.entries) == (outcome.steps, outcome.entries)
    entries = await session.store.read("s")
    for cut in range(2, len(entries)):
        store = await left_behind(entries[:cut])
        resumed = await build_agent(engine, store=store).session("s").run("Do it", input_id="once")
        stored = of(await log_of(store, "s"), ToolFinished)
        assert sorted(text for _, _, text in list_made(resumed)) == sorted(each.result.text for each in stored), cut
        assert (await build_agent(store=store, engine=engine).session("s").run("Do it", input_id="once")).steps == (
            resumed.steps
        )


async def test_turns_of_private_runs_say_where_they_were_made() -> None:
    outcome = await build_agent("planner").run("Do it")
    assert [(each.path, each.turn) for each in outcome.steps if "task" not in each.path] == [
        ("plan:0:0", 1),
        ("", 6 + 2),
    ]
    tasks = {each.path: [made.name for made in each.tool_calls] for each in outcome.steps if each.tool_calls}
    assert tasks == {f"task:0:{number}": ["note"] for number in (1, 2, 3)}
    assert outcome.started_at <= outcome.steps[0].requested_at <= outcome.finished_at


async def test_calls_of_an_engine_of_ones_own_are_there_with_their_arguments() -> None:
    async def engine(run: Run) -> Outcome[Any]:
        await run.call_tool("note", {"text": "one"})
        await run.call_tools([("note", {"text": "two"}), ("publish", {"text": "three"})])
        return run.outcome("done")

    session = build_agent(engine, permission=Permissions(deny("publish"))).session("s")
    outcome = await session.run("Go", input_id="once")
    made = sorted(list_made(outcome))
    assert made[:2] == [("note", '{"text":"one"}', "noted one"), ("note", '{"text":"two"}', "noted two")]
    denied = next(each for each in outcome.tool_calls if each.name == "publish")
    assert (denied.name, denied.arguments, denied.started_at) == ("publish", "", 0.0)
    assert denied.result is not None
    assert denied.result.status == "denied"
    assert {each.caller for each in outcome.tool_calls} == {"engine"}
    assert [each.turn for each in outcome.steps] == [0]
    assert (await session.run("Go", input_id="once")).steps == outcome.steps


async def test_of_a_subagent_the_call_that_gave_it_its_task_is_there() -> None:
    world = World()
    scout = Agent(ScriptedModel(call("note", text="a"), "Noted."), name="scout", tools=world.tools())
    boss = Agent(ScriptedModel(call("scout", task="Note."), "Fine."), tools=[scout.as_tool()])
    outcome = await boss.run("Go")
    assert [(name, text) for name, _, text in list_made(outcome)] == [("scout", "Noted.")]
    assert {each.event.path for each in outcome.entries} == {""}


@pytest.mark.packages("pydantic_monty")
async def test_calls_of_a_program_are_there_beside_the_call_that_ran_it() -> None:
    world = World()
    code = "for word in ['a', 'b']:\n    await note(text=word)\n'ok'"
    model = ScriptedModel(call("run_program", code=code), "Done.")
    agent = Agent(model, tools=world.tools()[:1], extensions=[code_mode()])
    outcome = await agent.run("Go")
    assert [(each.caller, each.name) for each in outcome.tool_calls] == [
        ("model", "run_program"),
        ("program", "note"),
        ("program", "note"),
    ]
    assert [each.arguments for each in outcome.tool_calls][1:] == ['{"text":"a"}', '{"text":"b"}']


async def test_a_run_that_waits_in_a_private_run_shows_the_open_call() -> None:
    def publish(request: Any) -> Any:
        return "Done." if request.messages[-1].role == "tool" else call("publish", text="x")

    agent = build_agent("planner", model=play(plan='["one"]', task=publish), permission=Permissions(handler=later))
    session = agent.session("s")
    waiting = await session.run("Do it")
    (made,) = waiting.tool_calls
    assert (made.name, made.result) == ("publish", None)
    await session.answer(waiting.questions[0].ask_id, True)
    (made,) = (await session.resume()).tool_calls
    assert made.result is not None
    assert made.result.text == "published x"
