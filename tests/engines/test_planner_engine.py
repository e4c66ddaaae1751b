"""The planner: a graph of tasks, several at a time, planned again where they fail."""

import asyncio
from typing import Any

import pytest

from perdure import Agent, ConfigError, Limits, Status, ToolContext, tool
from perdure.background import Shutdown
from perdure.engines import planner
from perdure.events import ModelRequested, PlanMade, RunStarted, SubagentStarted, ToolFinished
from perdure.stores import MemoryStore
from perdure.testing import Recorder, ScriptedModel, call
from tests.doubles import SECONDS, log_of, of
from tests.engines.roles import PLAN, World, build_agent, find_task, last_question, play

TWO = '["left", "right"]'


def test_options_are_checked() -> None:
    for options in ({"max_tasks": 0}, {"max_parallel_tasks": 0}, {"max_task_turns": 0}, {"max_replans": -1}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            planner(**options)


async def test_a_task_sees_the_conversation_and_the_results_it_depends_on() -> None:
    model = play()
    outcome = await build_agent("planner", model=model).run("Do it")
    join = [each for each in model.requests if "join them" in last_question(each)]
    assert "result of note one" in last_question(join[0])
    assert "result of note two" in last_question(join[0])
    assert join[0].messages[0].text == "Do it"
    report = model.requests[-1].messages[-1].text
    assert report.count("Done. Result:") == 3
    assert (outcome.text, [each.text for each in outcome.new_messages]) == ("Both are noted.", ["Do it", outcome.text])


async def test_tasks_that_do_not_need_one_another_run_at_the_same_time() -> None:
    meeting = asyncio.Barrier(2)

    @tool(effect="read")
    async def meet() -> str:
        """Meet the other one."""
        async with asyncio.timeout(SECONDS):
            await meeting.wait()
        return "met"

    def task(request: Any) -> Any:
        return "met" if request.messages[-1].role == "tool" else call("meet")

    agent = Agent(play(plan=TWO, task=task), tools=[meet], engine="planner")
    assert (await agent.run("Do it")).status == "done"


@pytest.mark.parametrize(
    ("limits", "together", "parallel"),
    [
        (Limits(), True, 4),
        (Limits(max_parallel_tools=2), True, 2),
        (Limits(max_tool_calls=9), True, 1),
        (Limits(), False, 1),
    ],
)
async def test_no_more_tasks_run_at_the_same_time_than_are_allowed(
    limits: Limits, together: bool, parallel: int
) -> None:
    running, most = 0, 0

    @tool(effect="read", parallel=together)
    async def work() -> str:
        """Work."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(20):
            await asyncio.sleep(0)
        running -= 1
        return "worked"

    def task(request: Any) -> Any:
        return "done" if request.messages[-1].role == "tool" else call("work")

    plan = '["1", "2", "3", "4", "5", "6"]'
    outcome = await Agent(play(plan=plan, task=task), tools=[work], engine="planner", limits=limits).run("Do it")
    assert (outcome.status, most) == ("done", parallel)


async def test_no_more_tasks_run_at_the_same_time_than_the_engine_was_given() -> None:
    running, most = 0, 0

    async def task(_request: Any) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(20):
            await asyncio.sleep(0)
        running -= 1
        return "done"

    agent = build_agent(planner(max_parallel_tasks=2), model=play(plan='["1", "2", "3", "4"]', task=task))
    assert ((await agent.run("Do it")).status, most) == ("done", 2)


async def test_a_task_that_takes_all_its_turns_has_failed() -> None:
    model = play(plan='["one"]', task=lambda _: call("note", text="again"))
    outcome = await build_agent(planner(max_task_turns=2, max_replans=0), model=model).run("Do it")
    assert outcome.status == "done"
    assert "Failed (limit max_turns)" in model.requests[-1].messages[-1].text
    assert sum("Do this one task now" in last_question(each) for each in model.requests) == 2


async def test_the_model_is_asked_twice_to_correct_a_plan_and_its_last_one_is_used_as_far_as_it_goes() -> None:
    model = play(plan='[{"id": "a", "description": "x"}, {"id": "b"}]')
    seen = Recorder()
    assert (await build_agent("planner", model=model, watchers=[seen]).run("Do it")).status == "done"
    asked = [last_question(each) for each in model.requests if not each.tools]
    refused = "This plan cannot be used: task 2 has no description"
    assert [each.startswith(refused) for each in asked] == [False, True, True]
    [made] = seen.of(PlanMade)
    assert ([each.id for each in made.tasks], made.problems) == (["a"], ("task 2 has no description",))


async def test_the_result_of_a_task_is_cut_for_others_that_need_it() -> None:
    plan = '[{"id": "a", "description": "x"}, {"id": "b", "description": "y", "depends_on": ["a"]}]'
    model = play(plan=plan, task=lambda request: "word " * 4_000 if find_task(request) == "x" else "short")
    await build_agent("planner", model=model).run("Do it")
    needing = next(each for each in model.requests if find_task(each) == "y")
    assert 7_000 < len(last_question(needing)) < 9_000


async def test_a_failed_task_is_planned_again_with_what_is_done() -> None:
    seen, asked = Recorder(), list[str]()

    def task(request: Any) -> Any:
        asked.append(find_task(request))
        return RuntimeError("broken") if find_task(request) == "note two" else f"result of {find_task(request)}"

    again = '[{"id": "b", "description": "try again", "depends_on": ["a"]}, {"id": "c", "description": "join them"}]'
    model = play(task=task, replan=again)
    outcome = await build_agent("planner", model=model, watchers=[seen]).run("Do it")
    assert outcome.status == "done"
    first, second = seen.of(PlanMade)
    assert ([each.id for each in first.tasks], first.revision) == (["a", "b", "c"], 0)
    assert ([each.id for each in second.tasks], second.revision) == (["b", "c"], 1)
    assert sorted(asked) == ["join them", "note one", "note two", "try again"]
    replanned = next(last_question(each) for each in model.requests if "did not work out" in last_question(each))
    assert "result of note one" in replanned
    assert "Failed (failed RuntimeError)" in replanned
    assert "Not begun. It depends on a, b" in replanned


async def test_what_cannot_be_done_is_reported_after_the_last_plan() -> None:
    model = play(task=lambda _: RuntimeError("broken"), replan='["another way"]')
    outcome = await build_agent(planner(max_replans=1), model=model).run("Do it")
    assert (outcome.status, outcome.text) == ("done", "Both are noted.")
    assert model.requests[-1].messages[-1].text.count("Failed") == 3
    alone = play(task=lambda _: RuntimeError("broken"))
    assert (await build_agent(planner(max_replans=0), model=alone).run("Do it")).status == "done"
    assert not any("did not work out" in last_question(each) for each in alone.requests)


async def test_a_plan_that_cannot_be_used_is_corrected_by_the_model_or_by_the_engine() -> None:
    seen = Recorder()
    plans = iter(["no plan", PLAN])
    outcome = await build_agent("planner", model=play(plan=lambda _: next(plans)), watchers=[seen]).run("Do it")
    assert (outcome.text, len(seen.of(PlanMade)[0].tasks), seen.of(PlanMade)[0].problems) == ("Both are noted.", 3, ())
    seen = Recorder()
    cycle = '[{"id": "a", "description": "x", "depends_on": ["a"]}]'
    await build_agent("planner", model=play(plan=cycle), watchers=[seen]).run("Do it")
    [made] = seen.of(PlanMade)
    assert (made.tasks[0].depends_on, len(made.problems)) == ((), 1)


async def test_without_a_plan_the_model_answers_at_once() -> None:
    for plan in ("[]", "I have none"):
        seen = Recorder()
        outcome = await build_agent("planner", model=play(plan=plan), watchers=[seen]).run("Do it")
        assert (outcome.status, outcome.text, seen.of(PlanMade)[0].tasks) == ("done", "A draft.", ())


async def test_a_turn_is_left_for_the_answer_when_turns_run_out() -> None:
    model = play(plan='["1", "2", "3", "4"]')
    outcome = await build_agent("planner", model=model, limits=Limits(max_turns=5)).run("Do it")
    assert (outcome.status, outcome.reason, outcome.text) == ("limit", "max_turns", "Both are noted.")
    assert len(model.requests) <= 5


def build_note_that_leaves(world: World, shutdown: Shutdown, leaving: str) -> Any:
    """Return a tool in the middle of whose call for one text the process is asked to end."""

    @tool(effect="at_most_once")
    async def note(text: str) -> str:
        """Note a text."""
        world.effects[text] += 1
        if text == leaving:
            shutdown.begin()
        return f"noted {text}"

    return note


async def test_a_shutdown_in_the_middle_of_a_plan_repeats_no_effect() -> None:
    for leaving in ("note one", "note two", "join them"):
        world, store = World(), MemoryStore()
        async with asyncio.timeout(SECONDS):
            async with Shutdown(signals=()) as shutdown:
                note = build_note_that_leaves(world, shutdown, leaving)
                first = shutdown.wrap_agent(Agent(play(), tools=[note], engine="planner", store=store))
                outcome = await first.session("s").run("Do it")
                assert (outcome.status, outcome.reason) == ("waiting", "shutdown")
            resumed = await build_agent("planner", world, store=store).session("s").resume()
        assert (resumed.status, resumed.text) == ("done", "Both are noted.")
        assert world.effects == {"note one": 1, "note two": 1, "join them": 1}
        assert {each.result.status for each in of(await log_of(store, "s"), ToolFinished)} == {Status.OK}


async def test_a_stop_condition_ends_the_run_from_within_a_task() -> None:
    world = World()
    agent = build_agent("planner", world, stop=lambda step: any(each.name == "note" for each in step.calls))
    outcome = await agent.run("Do it")
    assert (outcome.status, outcome.reason) == ("stopped", "stop_condition")
    assert world.effects["join them"] == 0


async def test_labels_of_what_a_task_has_read_are_labels_of_the_run() -> None:
    @tool(effect="read", labels=("untrusted",))
    async def note(text: str) -> str:
        """Read a page."""
        return text

    session = Agent(play(), tools=[note], engine="planner").session("s")
    await session.run("Do it")
    from perdure.engines import fold_entries

    assert "untrusted" in fold_entries(await session.store.read("s")).labels


async def test_a_subagent_can_be_called_in_a_task_at_the_depth_of_the_run() -> None:
    seen = Recorder()
    helper = Agent(ScriptedModel("helped", repeat_last=True), name="helper", engine="chain_of_thought")

    def task(request: Any) -> Any:
        return "done" if request.messages[-1].role == "tool" else call("helper", task="help")

    agent = Agent(
        play(plan='["one"]', task=task), tools=[helper.as_tool(max_depth=1)], engine="planner", watchers=[seen]
    )
    outcome = await agent.run("Do it")
    assert outcome.status == "done"
    [given] = seen.of(SubagentStarted)
    assert given.path == "task:0:1"
    assert any(each.private and each.path.startswith(f"{given.child}/thought") for each in seen.of(RunStarted))


async def test_an_idempotency_key_of_a_task_is_its_own() -> None:
    keys = list[str]()

    @tool(effect="idempotent")
    async def note(text: str, context: ToolContext[Any]) -> str:
        """Note a text."""
        keys.append(context.idempotency_key)
        return text

    await Agent(play(), tools=[note], engine="planner").run("Do it")
    assert len(set(keys)) == 3


async def test_a_tool_of_a_task_that_cancels_the_session_is_the_last_thing_that_happens() -> None:
    @tool(effect="read")
    async def stop() -> str:
        """Stop the session, and await nothing afterwards."""
        await session.cancel("now")
        return "stopped"

    model = play(plan=TWO, task=lambda request: call("stop") if request.messages[-1].role == "user" else "Too late.")
    session = Agent(model, tools=[stop], engine="planner").session()
    async with asyncio.timeout(SECONDS):
        outcome = await asyncio.create_task(session.run("Do it"))
    assert (outcome.status, outcome.reason) == ("cancelled", "cancelled")
    kinds = [type(entry.event) for entry in await session.store.read(session.session_id)]
    assert kinds.count(ToolFinished) == 1
    assert ModelRequested not in kinds[kinds.index(ToolFinished) :]


async def test_a_plan_is_asked_for_with_the_first_lines_of_the_tools_that_there_are() -> None:
    model = play(plan="[]", answer="An answer.")
    await build_agent(planner(max_tasks=3), model=model).run("Do it")
    asked = last_question(model.requests[0])
    assert "At most 3 tasks;" in asked
    tools = "These tools are there for the tasks:\n- note: Note a text.\n- publish: Publish a text."
    assert f"at once.\n\n{tools}\n\nReply with JSON alone: [" in asked
    bare = play(plan="[]", answer="An answer.")
    await Agent(bare, engine="planner").run("Do it")
    assert "at once.\n\nThere are no tools.\n\nReply with JSON alone: [" in last_question(bare.requests[0])


async def test_a_new_plan_is_asked_for_with_what_became_of_the_old_one() -> None:
    model = play(plan='["one"]', task=lambda _: RuntimeError("broken"))
    await build_agent(planner(max_tasks=5), model=model).run("Do it")
    asked = next(last_question(each) for each in model.requests if "did not work out" in last_question(each))
    assert asked.startswith(
        "The plan for the last message above did not work out as a whole:\n\nTask 1: one\nFailed (failed RuntimeError)."
    )
    assert "At most 5 tasks.\n\nThese tools are there for the tasks:\n- note: " in asked


@pytest.mark.parametrize(("max_turns", "done"), [(3, 1), (4, 2), (5, 3), (6, 4), (7, 4)])
async def test_as_many_tasks_are_done_as_there_are_turns_for_beside_the_answer(max_turns: int, done: int) -> None:
    model = play(plan='["1", "2", "3", "4"]', task="a result")
    outcome = await build_agent("planner", model=model, limits=Limits(max_turns=max_turns)).run("Do it")
    ended = ("done", "") if done == 4 else ("limit", "max_turns")
    assert (outcome.status, outcome.reason, outcome.text) == (*ended, "Both are noted.")
    report = model.requests[-1].messages[-1].text
    assert (report.count("Done. Result:"), report.count("Not begun.")) == (done, 4 - done)
    assert len(model.requests) == outcome.turns == done + 2


@pytest.mark.parametrize(
    ("max_turns", "most", "turns"),
    [(10, 12, [4, 4]), (11, 12, [4, 5]), (11, 3, [3, 3]), (None, 3, [3, 3]), (4, 12, [1, 1])],
)
async def test_tasks_that_run_at_the_same_time_share_the_turns_that_are_left(
    max_turns: int | None, most: int, turns: list[int]
) -> None:
    model = play(plan=TWO, task=lambda request: call("note", text=f"step {len(request.messages)}"))
    agent = build_agent(planner(max_task_turns=most, max_replans=0), model=model, limits=Limits(max_turns=max_turns))
    await agent.run("Do it")
    asked = [find_task(each) for each in model.requests]
    assert [asked.count(each) for each in ("left", "right")] == turns
