"""Calls that the program of a tool makes: the checks, the log and the promises of any other call."""

import asyncio
from typing import Any

import pytest

from perdure import (
    Agent,
    Limits,
    Message,
    Permissions,
    Status,
    ToolCall,
    ToolContext,
    ToolOutput,
    ask,
    deny,
    tool,
    user,
)
from perdure._core.run.calling_run import get_run_of_call
from perdure._core.run.tool_calls.direct import ProgramCallExecutor
from perdure._core.values.clock import build_program_call_id, find_program_call_id
from perdure.events import (
    LimitReached,
    MessageAdded,
    PermissionDecided,
    RunStarted,
    RunWaiting,
    ToolFinished,
    ToolStarted,
)
from perdure.permissions import Verdict, later
from perdure.stores import open_store
from perdure.testing import FakeClock, ScriptedModel, call, calls
from tests.doubles import Held, crashed, log_of, of


class Till:
    """A tool with an effect that must not happen twice, and one that reads."""

    def __init__(self, **options: Any) -> None:
        self.paid: list[int] = []

        @tool(**{"effect": "at_most_once", **options})
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        @tool(effect="read", labels=["untrusted"])
        async def look() -> str:
            """Look."""
            return "seen"

        self.tools: list[Any] = [pay, look]


def program(*waves: list[tuple[str, str]], **options: Any):
    """A tool that makes calls, wave after wave, and returns their results."""

    @tool(**{"effect": "idempotent", "parallel": False, **options})
    async def run_them(context: ToolContext[Any]) -> ToolOutput:
        """Make the calls."""
        made = ProgramCallExecutor(context)
        got = [f"{each.status}: {each.text}" for wave in waves for each in await made.make(wave)]
        return ToolOutput("; ".join(got))

    return run_them


def pay(amount: Any) -> tuple[str, str]:
    return "pay", f'{{"amount":{amount}}}'


def agent_of(till: Till, *waves: list[tuple[str, str]], store: Any = "memory:", tools: Any = (), **options: Any):
    model = ScriptedModel(call("run_them"), "Done.")
    return Agent(model, tools=[*till.tools, *(tools or [program(*waves)])], store=store, **options)


def told(outcome: Any) -> str:
    return next(result.text for message in outcome.messages for result in message.tool_results)


async def test_calls_are_made_and_stored_below_the_call_of_the_program():
    till = Till()
    agent = agent_of(till, [pay(1), ("look", "{}")], [pay(2)])
    outcome = await agent.session("s").run("Go")
    assert told(outcome) == "ok: paid 1; ok: seen; ok: paid 2"
    started = of(await log_of(agent.store, "s"), ToolStarted)
    assert [(each.name, each.arguments) for each in started] == [
        ("run_them", ""), ("pay", '{"amount":1}'), ("look", "{}"), ("pay", '{"amount":2}'),
    ]  # fmt: skip
    assert {find_program_call_id(each.call_id) for each in started} == {"", "call_1"}


async def test_a_mistake_is_a_result_of_the_program():
    outcome = await agent_of(Till(), [pay('"x"'), ("steal", "{}")]).session("s").run("Go")
    assert "error: invalid arguments for 'pay'" in told(outcome)
    assert "there is no tool 'steal'" in told(outcome)


async def test_rules_are_asked_about_each_call():
    till = Till()
    agent = agent_of(till, [pay(1), ("look", "{}")], permission=Permissions(deny("pay")))
    assert told(await agent.session("s").run("Go")).startswith("denied: denied by the rule")
    assert [each.tool for each in of(await log_of(agent.store, "s"), PermissionDecided)] == ["run_them", "pay", "look"]
    assert not till.paid


async def test_a_call_that_needs_permission_is_denied_without_a_gate():
    till = Till(permission=True)
    assert "denied" in told(await agent_of(till, [pay(1)]).session("s").run("Go"))
    assert not till.paid


async def test_what_a_program_has_read_counts_for_its_next_calls():
    asked: list[tuple[str, ...]] = []

    def decide(requests):
        asked.extend([each.labels for each in requests])
        return [Verdict(allow=True) for _ in requests]

    till = Till()
    agent = agent_of(till, [("look", "{}")], [pay(1)], permission=Permissions(ask("pay"), handler=decide))
    assert told(await agent.session("s").run("Go")) == "ok: seen; ok: paid 1"
    assert asked == [("untrusted",)]


async def test_what_a_program_has_read_counts_also_if_the_host_runs_it():
    till, sent = Till(), list[str]()

    @tool(sends=True)
    async def send() -> str:
        """Send."""
        sent.append("it")
        return "sent"

    @tool(effect="read", labels=["private"])
    async def mail() -> str:
        """Read mail."""
        return "secret"

    tools = [send, mail, program([("mail", "{}")], [("look", "{}")], [("send", "{}")])]
    result = await agent_of(till, tools=tools).session("s").call("run_them", {})
    assert "denied: permission denied" in result.text
    assert not sent


async def test_a_subagent_of_a_program_that_waits_for_an_answer_goes_on():
    till, store = Till(), open_store("memory:")
    outcome: Any = None
    for step in range(2):
        child_model = ScriptedModel("Child is done.") if step else ScriptedModel(call("pay", amount=7))
        child = Agent(child_model, name="helper", description="Help.", tools=till.tools)
        tools = [child.as_tool(), till.tools[1], program([("look", "{}")], [("helper", '{"task":"Go"}')])]
        model = ScriptedModel("Done.") if step else ScriptedModel(call("run_them"))
        agent = Agent(model, tools=tools, store=store, permission=Permissions(ask("pay"), handler=later))
        session = agent.session("s")
        outcome = await (session.resume() if step else session.run("Go"))
        if not step:
            assert await session.answer(outcome.questions[0].ask_id, True)
    assert told(outcome) == "ok: seen; ok: Child is done."
    assert till.paid == [7]


async def test_calls_count_towards_the_limit_of_the_run():
    till = Till()
    agent = agent_of(till, [pay(1)], [pay(2)], [pay(3)], limits=Limits(max_tool_calls=3))
    outcome = await agent.session("s").run("Go")
    assert (till.paid, outcome.status) == ([1, 2], "done")
    assert "the run may make 3 calls" in told(outcome)
    assert not of(await log_of(agent.store, "s"), LimitReached)


async def test_calls_of_a_program_do_not_take_the_place_of_later_calls_of_the_reply():
    till = Till()
    model = ScriptedModel(calls(call("run_them"), call("pay", amount=3), call("pay", amount=4)), "Done.")
    tools = [*till.tools, program([pay(1)], [pay(2)])]
    agent = Agent(model, tools=tools, store="memory:", limits=Limits(max_tool_calls=4))
    outcome = await agent.session("s").run("Go")
    assert till.paid == [1, 3, 4]
    assert len(of(await log_of(agent.store, "s"), ToolStarted)) == 4
    assert "the run may make 4 calls" in told(outcome)


async def test_a_program_that_waits_for_an_answer_is_run_again_without_repeating_its_calls():
    till = Till()
    store = open_store("memory:")
    gate = Permissions(ask("pay"), handler=later)
    outcome: Any = None
    for step, paid in enumerate([[], [1], [1, 2]]):
        model = ScriptedModel("Done.") if step else ScriptedModel(call("run_them"))
        tools = [*till.tools, program([("look", "{}")], [pay(1)], [pay(2)])]
        agent = Agent(model, tools=tools, store=store, permission=gate)
        session = agent.session("s")
        outcome = await (session.resume() if step else session.run("Go"))
        assert till.paid == paid
        if outcome.status == "waiting":
            assert await session.answer(outcome.questions[0].ask_id, True)
    assert outcome.text == "Done."
    events = await log_of(store, "s")
    assert [each.name for each in of(events, ToolFinished)] == ["look", "pay", "pay", "run_them"]
    assert len(of(events, RunWaiting)) == 2


def begun(*events: Any) -> list[Any]:
    """The log of a process that died while a program ran."""
    reply = Message("assistant", (ToolCall("call_1", "run_them", "{}"),))
    ids: Any = {"run_id": "r"}
    return [
        RunStarted("agent", {}, **ids),
        MessageAdded(user("Go"), **ids),
        MessageAdded(reply, **ids),
        ToolStarted("call_1", "run_them", "idempotent", "k", **ids),
        *events,
    ]


def started(number: int, name: str, arguments: str, effect: str) -> ToolStarted:
    call_id = build_program_call_id("call_1", number, name, arguments)
    return ToolStarted(call_id, name, effect, "key", arguments=arguments, run_id="r")


@pytest.mark.parametrize(
    ("effect", "paid", "text"),
    [("at_most_once", [2], "unknown: The runtime stopped"), ("idempotent", [1, 2], "ok: paid 1; ok: paid 2")],
)
async def test_a_call_that_a_crash_interrupted_is_settled_by_its_effect(effect, paid, text):
    store, till = open_store("memory:"), Till(effect=effect)
    await crashed(store, "s", *begun(started(1, *pay(1), effect)))
    agent = Agent(ScriptedModel("Done."), tools=[*till.tools, program([pay(1)], [pay(2)])], store=store)
    outcome = await agent.session("s").resume()
    assert till.paid == paid
    assert told(outcome).startswith(text)


async def test_a_program_that_makes_other_calls_than_before_is_stopped():
    store, till = open_store("memory:"), Till()
    await crashed(store, "s", *begun(started(1, *pay(7), "at_most_once")))
    agent = Agent(ScriptedModel("Done."), tools=[*till.tools, program([pay(1)])], store=store)
    outcome = await agent.session("s").resume()
    assert "is not the one that it made before" in told(outcome)
    assert not till.paid


async def test_a_new_message_closes_a_program_that_a_crash_interrupted_as_unknown():
    store, till = open_store("memory:"), Till()
    await crashed(store, "s", *begun(started(1, *pay(1), "at_most_once")))
    agent = Agent(ScriptedModel("Done."), tools=[*till.tools, program([pay(1)])], store=store)
    await agent.session("s").run("And now?")
    results = [each.result for each in of(await log_of(store, "s"), ToolFinished)]
    assert {each.name: each.status for each in results} == {"run_them": Status.UNKNOWN, "pay": Status.UNKNOWN}


async def test_a_cancel_stops_the_calls_of_a_program():
    held = Held("wait")

    agent = agent_of(Till(), tools=[held.tool, program([("wait", "{}"), ("wait", "{}")], [("wait", "{}")])])
    session = agent.session("s")
    run = asyncio.ensure_future(session.run("Go"))
    await held.started.wait()
    await session.cancel()
    assert (await run).status == "cancelled"
    results = [each.result for each in of(await log_of(agent.store, "s"), ToolFinished)]
    assert [each.status for each in results] == [Status.CANCELLED] * 3


async def test_a_cancel_after_tools_makes_no_further_call():
    held = Held("wait")

    agent = agent_of(Till(), tools=[held.tool, program([("wait", "{}")], [("wait", "{}")])])
    session = agent.session("s")
    run = asyncio.ensure_future(session.run("Go"))
    await held.started.wait()
    await session.cancel("after_tools")
    held.released.set()
    assert (await run).status == "cancelled"
    results = [each.result for each in of(await log_of(agent.store, "s"), ToolFinished)]
    assert [(each.name, each.status) for each in results] == [("wait", Status.OK), ("run_them", Status.ERROR)]


async def test_a_cancel_after_the_turn_lets_a_program_come_to_its_end():
    held, till = Held("wait"), Till()

    agent = agent_of(till, tools=[held.tool, program([("wait", "{}")], [pay(1)])])
    session = agent.session("s")
    run = asyncio.ensure_future(session.run("Go"))
    await held.started.wait()
    await session.cancel("after_turn")
    held.released.set()
    outcome = await run
    assert (outcome.status, till.paid) == ("cancelled", [1])
    assert told(outcome) == "ok: released; ok: paid 1"


async def test_a_program_whose_time_is_over_leaves_no_call_without_a_result():
    clock, held = FakeClock(), Held("wait")

    agent = agent_of(Till(), tools=[held.tool, program([("wait", "{}")], timeout_seconds=5)], clock=clock)
    run = asyncio.ensure_future(agent.session("s").run("Go"))
    await held.started.wait()
    await clock.advance(6)
    assert (await run).status == "done"
    results = [each.result for each in of(await log_of(agent.store, "s"), ToolFinished)]
    assert [(each.name, each.status) for each in results] == [
        ("wait", Status.CANCELLED), ("run_them", Status.TIMED_OUT),
    ]  # fmt: skip


@pytest.mark.parametrize(("count", "is_interrupted"), [(1, False), (2, False), (1, True)])
async def test_a_program_whose_process_leaves_the_run_is_gone_on_with_elsewhere(count, is_interrupted):
    left: list[str] = []

    @tool(effect="read")
    async def leave(context: ToolContext[Any]) -> str:
        """Leave, the first time."""
        if not left:
            left.append(context.call_id)
            get_run_of_call(context).leave("shutdown")
            if is_interrupted:
                get_run_of_call(context).interrupt("shutdown")
                await asyncio.Event().wait()
        return "here"

    store, waves = open_store("memory:"), [[("leave", "{}")] * count, [("leave", "{}")]]
    tools = [leave, program(*waves)]
    outcome = await Agent(ScriptedModel(call("run_them")), tools=tools, store=store).session("s").run("Go")
    assert outcome.status == "waiting"
    outcome = await Agent(ScriptedModel("Done."), tools=tools, store=store).session("s").resume()
    assert told(outcome) == "; ".join(["ok: here"] * (count + 1))
