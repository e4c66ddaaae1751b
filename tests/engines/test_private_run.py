"""Private runs: what the conversation is before the first of them, which turns they leave, and how a stop lasts."""

import asyncio
from typing import Any

import pytest

from perdure import Agent, Limits, Permissions, ask, tool
from perdure.background import Shutdown
from perdure.context import Compaction
from perdure.events import Compacted, PlanMade, RunEnded, ThinkingDelta, ToolStarted
from perdure.permissions import later
from perdure.stores import MemoryStore
from perdure.testing import Recorder, call
from tests.doubles import SECONDS, log_of, of
from tests.engines.roles import ENGINES, GOOD, POOR, World, build_agent, find_part, find_task, play
from tests.replaying.replays import agreeing, agreeing_wherever_it_is_cut
from tests.runtime.subagents.family import left_behind

ASKING_FIRST = ("planner", "chain_of_thought")
"""Engines that ask in private before the first turn of a run."""


@pytest.mark.parametrize("engine", ASKING_FIRST)
async def test_messages_that_wake_a_session_are_there_before_the_engine_asks_in_private(engine: str) -> None:
    model = play(answer="An answer.")
    agent = build_agent(engine, model=model)
    session = agent.session("s")
    await session.run("First")
    await session.follow_up("Second")
    before = len(model.requests)
    outcome = await session.wake()
    assert outcome is not None
    assert outcome.status == "done"
    asked = model.requests[before]
    assert find_part(asked) in {"plan", "thought"}
    assert [each.text for each in asked.messages if each.role == "user"][:2] == ["First", "Second"]
    assert [each.text for each in outcome.new_messages if each.role == "user"] == ["Second"]
    await agreeing(agent)


@pytest.mark.parametrize("engine", ASKING_FIRST)
async def test_a_run_that_messages_woke_is_resumed_from_anywhere(engine: str) -> None:
    session = build_agent(engine).session("s")
    await session.run("First")
    known = len(await session.store.read("s"))
    await session.follow_up("Second")
    whole = await session.wake()
    assert whole is not None
    entries = await session.store.read("s")
    told = next(seq for seq, each in enumerate(entries, 1) if seq > known and "Second" in str(each.event))
    for cut in range(told, len(entries)):
        world = World()
        again = build_agent(engine, world, store=await left_behind(entries[:cut])).session("s")
        outcome = await again.resume()
        assert (cut, outcome.status, outcome.text) == (cut, whole.status, whole.text)
        assert [each.text for each in outcome.messages if each.role == "user"] == ["First", "Second"], cut


@pytest.mark.parametrize("engine", ASKING_FIRST)
async def test_a_conversation_that_is_too_long_is_compacted_before_the_engine_asks_in_private(engine: str) -> None:
    model = play(answer="An answer.")
    agent = build_agent("react", model=model, compaction=Compaction(at_turns=3, keep_recent_messages=1))
    session = agent.session("s")
    for _ in range(3):
        await session.run("words " * 400)
    before = len(model.requests)
    assert (await session.run("Do it", engine=engine)).status == "done"
    asked = [each for each in model.requests[before:] if find_part(each) in {"plan", "task", "thought"}]
    assert asked
    assert all(each.messages[0].origin == "compaction" for each in asked)
    assert len(of(await log_of(agent.store, "s"), Compacted)) == 1
    await agreeing(agent)
    await agreeing_wherever_it_is_cut(agent, first=12)  # from the second run on


async def test_a_message_that_comes_between_a_call_and_its_result_is_delivered_after_the_result() -> None:
    whole = build_agent("chain_of_thought").session("s")
    await whole.run("First")
    entries = await whole.store.read("s")
    called = [seq for seq, each in enumerate(entries, 1) if isinstance(each.event, ToolStarted)]
    for cut in (called[0] - 1, called[1] - 1):
        agent = build_agent("chain_of_thought", store=await left_behind(entries[:cut]))
        session = agent.session("s")
        await session.steer("Also this")
        outcome = await session.resume()
        assert outcome.status == "done"
        roles = [each.role for each in outcome.messages]
        told = [each.text for each in outcome.messages].index("Also this")
        assert (cut, roles[told - 2 : told + 1]) == (cut, ["assistant", "tool", "user"])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("max_turns", [1, 2, 3])
async def test_a_turn_is_kept_for_the_answer(engine: str, max_turns: int) -> None:
    model = play(plan="I have none", thought=lambda _: call("unknown"), answer="An answer.")
    outcome = await build_agent(engine, model=model, limits=Limits(max_turns=max_turns)).run("Do it")
    if engine != "autonomous" or max_turns == 3:  # which asks the model twice to go on
        assert outcome.text
    assert len(model.requests) == outcome.turns <= max_turns


@pytest.mark.parametrize("engine", ENGINES)
async def test_without_a_limit_of_turns_every_engine_answers(engine: str) -> None:
    outcome = await build_agent(engine, limits=Limits(max_turns=None)).run("Do it")
    assert (outcome.status, bool(outcome.text)) == ("done", True)


async def test_a_turn_is_kept_for_the_answer_when_tasks_have_failed() -> None:
    seen = Recorder()
    model = play(plan='["one"]', task=lambda _: call("unknown"), replan="I have none")
    agent = build_agent("planner", model=model, limits=Limits(max_turns=4), watchers=[seen])
    outcome = await agent.run("Do it")
    assert outcome.text == "Both are noted."
    assert len(model.requests) == outcome.turns == 4
    assert "the last turn is for the answer" in seen.of(PlanMade)[-1].problems[0]


async def test_a_run_that_a_stop_condition_has_stopped_in_private_stays_stopped_after_a_crash() -> None:
    def stop(step: Any) -> bool:
        return any(each.name == "note" for each in step.calls)

    session = build_agent("planner", stop=stop).session("s")
    whole = await session.run("Do it", input_id="once")
    assert (whole.status, whole.reason) == ("stopped", "stop_condition")
    entries = await session.store.read("s")
    ended = next(
        seq for seq, each in enumerate(entries, 1) if isinstance(each.event, RunEnded) and "task" in each.event.path
    )
    for cut in range(ended, len(entries)):
        again = build_agent("planner", stop=stop, store=await left_behind(entries[:cut])).session("s")
        outcome = await again.run("Do it", input_id="once")
        assert (cut, outcome.status, outcome.reason) == (cut, "stopped", "stop_condition")


@pytest.mark.parametrize("engine", ["planner", "chain_of_thought", "reflect"])
async def test_what_was_found_in_private_is_not_sent_with_a_message_that_follows_the_answer(engine: str) -> None:
    waiting = ["Also this"]

    async def answer(words: str) -> str:
        while waiting:
            await session.follow_up(waiting.pop())
        return words

    model = play(
        plan='["one"]',
        task="a result",
        answer=lambda _: "A draft." if engine == "reflect" else answer("An answer."),
        report=lambda _: answer("A report."),
        revision=lambda _: answer("A revision."),
        review=lambda request: POOR if request.messages[-2].text == "A draft." else GOOD,
    )
    session = build_agent(engine, model=model).session("s")
    outcome = await session.run("Do it")
    assert outcome.status == "done"
    [last] = [each for each in model.requests if each.messages[-1].text == "Also this"]
    assert find_part(last) == "answer"


async def test_a_question_in_a_task_names_the_source_of_what_another_task_has_read() -> None:
    @tool(effect="read", labels=("untrusted",))
    async def fetch(text: str) -> str:
        """Read a page."""
        return text

    def work(request: Any) -> Any:
        if request.messages[-1].role == "tool":
            return "done"
        return call("fetch", text="page") if find_task(request) == "read" else call("note", text="page")

    plan = '[{"id": "a", "description": "read"}, {"id": "b", "description": "write", "depends_on": ["a"]}]'
    agent = Agent(
        play(plan=plan, task=work),
        tools=[fetch, *World().tools()],
        engine="planner",
        permission=Permissions(ask("note", when="untrusted"), handler=later),
    )
    [question] = (await agent.session("s").run("Do it")).questions
    assert "tool:fetch" in question.text


@pytest.mark.parametrize(
    ("engine", "part", "asked"), [("chain_of_thought", "thought", 1), ("reflect", "review", 2), ("planner", "plan", 1)]
)
async def test_a_stop_condition_ends_the_run_from_within_a_private_run(engine: str, part: str, asked: int) -> None:
    parts: dict[str, Any] = {"answer": "A draft.", part: lambda _: call("unknown")}
    model = play(**parts)
    outcome = await build_agent(engine, model=model, stop=lambda _: True).run("Do it")
    assert (outcome.status, outcome.reason, len(model.requests)) == ("stopped", "stop_condition", asked)


@pytest.mark.parametrize(
    ("engine", "part", "asked"), [("chain_of_thought", "thought", 1), ("reflect", "review", 2), ("planner", "plan", 1)]
)
@pytest.mark.parametrize("mode", ["now", "after_tools", "after_turn"])
async def test_a_cancel_during_a_private_run_is_the_end_of_the_run(
    engine: str, part: str, asked: int, mode: Any
) -> None:
    async def cancel(_request: Any) -> str:
        await session.cancel(mode)
        return GOOD

    parts: dict[str, Any] = {"answer": "A draft.", part: cancel}
    model = play(**parts)
    session = build_agent(engine, model=model).session("s")
    async with asyncio.timeout(SECONDS):
        outcome = await asyncio.create_task(session.run("Do it"))
    assert (outcome.status, outcome.reason, len(model.requests)) == ("cancelled", "cancelled", asked)


@pytest.mark.parametrize(("engine", "part"), [("chain_of_thought", "thought"), ("reflect", "review")])
async def test_a_shutdown_leaves_a_private_run_to_the_next_process(engine: str, part: str) -> None:
    def leave(request: Any) -> str:
        shutdown.begin()
        return "A draft."

    store = MemoryStore()
    async with asyncio.timeout(SECONDS):
        async with Shutdown(signals=()) as shutdown:
            parts: dict[str, Any] = {"answer": "A draft.", part: leave} if engine != "reflect" else {"answer": leave}
            agent = shutdown.wrap_agent(build_agent(engine, model=play(**parts), store=store))
            outcome = await agent.session("s").run("Do it")
            assert (outcome.status, outcome.reason) == ("waiting", "shutdown")
        resumed = await build_agent(engine, model=play(answer="A draft."), store=store).session("s").resume()
    assert (resumed.status, resumed.text) == ("done", "A better answer." if engine == "reflect" else "A draft.")


async def test_tasks_that_were_done_before_a_crash_need_no_more_turns() -> None:
    parts: dict[str, Any] = {"plan": '["one", "two"]', "task": "a result"}
    session = build_agent("planner", model=play(**parts), limits=Limits(max_turns=4)).session("s")
    assert (await session.run("Do it")).status == "done"
    entries = await session.store.read("s")
    ended = [
        seq for seq, each in enumerate(entries, 1) if isinstance(each.event, RunEnded) and "task" in each.event.path
    ]
    assert len(ended) == 2
    model = play(**parts)
    store = await left_behind(entries[: ended[1]])
    outcome = await build_agent("planner", model=model, limits=Limits(max_turns=4), store=store).session("s").resume()
    assert (outcome.status, outcome.text) == ("done", "Both are noted.")
    [report] = model.requests
    assert report.messages[-1].text.count("Done. Result:\na result") == 2


async def test_a_thought_from_before_a_crash_is_used_and_not_published_again() -> None:
    seen = Recorder()
    session = build_agent("chain_of_thought", model=play(answer="An answer."), watchers=[seen]).session("s")
    await session.run("Do it")
    assert [each.text for each in seen.of(ThinkingDelta)] == ["First I note, then I answer."]
    entries = await session.store.read("s")
    ended = next(seq for seq, each in enumerate(entries, 1) if isinstance(each.event, RunEnded))
    again, model = Recorder(), play(answer="An answer.")
    store = await left_behind(entries[:ended])
    outcome = await build_agent("chain_of_thought", model=model, watchers=[again], store=store).session("s").resume()
    assert (outcome.status, outcome.text, again.of(ThinkingDelta)) == ("done", "An answer.", [])
    [asked] = model.requests
    assert "First I note, then I answer." in asked.messages[-1].text


async def test_tasks_have_the_tools_that_the_run_allows_and_no_others() -> None:
    world, model = World(), play(plan='["one"]')
    outcome = await build_agent("planner", world, model=model, limits=Limits(allowed_tools=("note",))).run("Do it")
    assert (outcome.status, world.effects) == ("done", {"one": 1})
    asked = [each for each in model.requests if find_task(each) == "one"]
    assert [[each.name for each in request.tools] for request in asked] == [["note"], ["note"]]
    publish = call("publish", text="x")
    refused = play(plan='["one"]', task=lambda request: "left" if request.messages[-1].role == "tool" else publish)
    await build_agent("planner", world, model=refused, limits=Limits(allowed_tools=("note",))).run("Do it")
    assert world.effects == {"one": 1}
