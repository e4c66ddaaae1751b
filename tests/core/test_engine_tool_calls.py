"""Tool calls that engines make by themselves: the same checks, log and promises as those of a model."""

import asyncio
from functools import partial
from typing import Any

import msgspec
import pytest

from perdure import (
    Agent,
    ConfigError,
    LimitExceeded,
    Limits,
    Outcome,
    Permissions,
    Status,
    ToolContext,
    UsageError,
    ask,
    deny,
    tool,
)
from perdure._core.run.calling_run import get_run_of_call
from perdure._core.run.spec import get_engine_name
from perdure.engines import Run, run_turn
from perdure.events import (
    LimitReached,
    PermissionDecided,
    QuestionAsked,
    RunEnded,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from perdure.permissions import later
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call, calls
from tests.coming_from.shows import shows
from tests.doubles import SECONDS, Held, crashed, log_of, of


class Till:
    """A tool with an effect that must not happen twice."""

    def __init__(self, **options: Any) -> None:
        self.paid: list[int] = []

        @tool(**{"effect": "at_most_once", **options})
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        self.tool = pay


def paying(*amounts: int):
    """An engine that pays, one after the other, and says what it got."""

    async def engine(run: Run) -> Outcome[Any]:
        got = [(await run.call_tool("pay", {"amount": each})).text for each in amounts]
        return run.outcome("done", "; ".join(got))

    return engine


async def test_an_engine_calls_a_tool_and_gets_its_result():
    till = Till()
    agent = Agent(ScriptedModel(), tools=[till.tool], engine=paying(5, 7))
    outcome = await agent.session("s").run("Go")
    assert (outcome.reason, till.paid) == ("paid 5; paid 7", [5, 7])
    log = await log_of(agent.store, "s")
    kinds = [PermissionDecided, ToolStarted, ToolFinished]
    assert [type(each) for each in log[2:]] == [*kinds, *kinds, RunEnded]
    assert len({each.call_id for each in of(log, ToolStarted)}) == 2
    assert len(outcome.messages) == 1  # the conversation does not have them


async def test_a_tool_without_parameters_is_called_with_its_name():
    @tool
    async def look() -> str:
        """Look."""
        return "there"

    async def engine(run: Run) -> Outcome[Any]:
        return run.outcome("done", (await run.call_tool("look")).text)

    assert (await Agent(ScriptedModel(), tools=[look], engine=engine).run("Go")).reason == "there"


async def test_the_same_call_twice_is_made_twice():
    till = Till()
    outcome = await Agent(ScriptedModel(), tools=[till.tool], engine=paying(5, 5)).run("Go")
    assert (outcome.reason, till.paid) == ("paid 5; paid 5", [5, 5])


async def test_mistakes_are_told_as_they_are_to_a_model():
    async def engine(run: Run) -> Outcome[Any]:
        results = [await run.call_tool("pai", {}), await run.call_tool("pay", {"amount": "much"})]
        return run.outcome("done", "; ".join([each.text for each in results]))

    reason = (await Agent(ScriptedModel(), tools=[Till().tool], engine=engine).run("Go")).reason
    assert "there is no tool 'pai'" in reason
    assert "invalid arguments for 'pay'" in reason


@pytest.mark.parametrize(("name", "arguments"), [("", {}), (5, {}), ("pay", "5")])
async def test_what_is_no_call_is_refused(name, arguments):
    async def engine(run: Run) -> Outcome[Any]:
        with pytest.raises(ConfigError, match=r"run\.call_tool"):
            await run.call_tool(name, arguments)
        return run.outcome("done")

    assert (await Agent(ScriptedModel(), engine=engine).run("Go")).status == "done"


@shows("agentlib", "ReasoningContext.callTool")
async def test_permissions_hold_for_the_calls_of_an_engine():
    till = Till()
    agent = Agent(ScriptedModel(), tools=[till.tool], engine=paying(5), permission=Permissions(deny("pay")))
    outcome = await agent.session("s").run("Go")
    assert till.paid == []
    assert of(await log_of(agent.store, "s"), PermissionDecided)[0].allow is False
    assert "denied" in outcome.reason or "not allowed" in outcome.reason


async def test_a_call_that_waits_for_an_answer_suspends_the_run_and_goes_on_with_it():
    till = Till()
    agent = Agent(
        ScriptedModel(), tools=[till.tool], engine=paying(5, 7), permission=Permissions(ask("pay"), handler=later)
    )
    session = agent.session("s")
    for expected in ([], [5]):
        outcome = await (session.resume() if expected else session.run("Go"))
        assert (outcome.status, till.paid) == ("waiting", expected)
        (question,) = outcome.questions
        assert await session.answer(question.ask_id, True)
    outcome = await session.resume()
    assert (outcome.reason, till.paid) == ("paid 5; paid 7", [5, 7])
    assert len(of(await log_of(agent.store, "s"), QuestionAsked)) == 2


async def test_the_limit_of_tool_calls_holds_for_engines():
    till = Till()

    async def engine(run: Run) -> Outcome[Any]:
        await asyncio.gather(*[run.call_tool("pay", {"amount": each}) for each in range(4)])
        with pytest.raises(LimitExceeded, match="max_tool_calls"):
            await run_turn(run)
        return run.outcome("done")

    store = open_store("memory:")
    agent = Agent(ScriptedModel("Hi."), tools=[till.tool], engine=engine, limits=Limits(max_tool_calls=2), store=store)
    assert (await agent.session("s").run("Go")).status == "done"
    assert till.paid == [0, 1]
    assert of(await log_of(store, "s"), LimitReached)


@shows("agentlib", "AgentPolicy.maxParallelTools", "ReasoningContext.callTool")
async def test_several_calls_run_at_once_up_to_the_limit_and_come_back_in_order():
    most = now = 0

    @tool(effect="read")
    async def wait(number: int) -> str:
        """Wait."""
        nonlocal most, now
        now += 1
        most = max(most, now)
        for _ in range(5 - number):
            await asyncio.sleep(0)
        now -= 1
        return str(number)

    async def engine(run: Run) -> Outcome[Any]:
        results = await run.call_tools([("wait", {"number": each}) for each in range(5)])
        return run.outcome("done", "".join([each.text for each in results]))

    agent = Agent(ScriptedModel(), tools=[wait], engine=engine, limits=Limits(max_parallel_tools=2))
    assert ((await agent.run("Go")).reason, most) == ("01234", 2)


async def test_a_tool_called_by_an_engine_cannot_call_tools_through_the_run():
    told: list[str] = []

    @tool
    async def outer(context: ToolContext) -> str:
        """Call another."""
        with pytest.raises(UsageError, match="call the function") as caught:
            await get_run_of_call(context).call_tool("outer")
        told.append(str(caught.value))
        return "done"

    async def engine(run: Run) -> Outcome[Any]:
        return run.outcome("done", (await run.call_tool("outer")).text)

    async with asyncio.timeout(SECONDS):
        outcome = await Agent(ScriptedModel(), tools=[outer], engine=engine).run("Go")
    assert (outcome.reason, len(told)) == ("done", 1)


async def test_a_call_between_a_reply_and_its_calls_is_not_one_of_the_reply():
    till = Till()

    async def engine(run: Run) -> Outcome[Any]:
        await run_turn(run)
        return run.outcome("done", (await run.call_tool("pay", {"amount": 9})).text)

    two = calls(call("pay", amount=1), call("pay", amount=2))
    agent = Agent(ScriptedModel(two), tools=[till.tool], engine=engine, limits=Limits(max_calls_per_reply=1))
    outcome = await agent.run("Go")
    assert (outcome.reason, till.paid) == ("paid 9", [9])


# -- crashes and cancels -----------------------------------------------------------------------------------------------


async def first_part(till: Till, *amounts: int) -> list[Any]:
    """The log of a run that has made these calls, up to its last result."""
    agent = Agent(ScriptedModel(), tools=[till.tool], engine=paying(*amounts))
    await agent.session("s").run("Go")
    return (await log_of(agent.store, "s"))[:-1]


async def resumed_after(events: list[Any], till: Till, *amounts: int) -> tuple[Outcome[Any], list[Any]]:
    store = open_store("memory:")
    await crashed(store, "s", *events)
    agent = Agent(ScriptedModel(), tools=[till.tool], engine=paying(*amounts), store=store)
    return await agent.session("s").resume(), await log_of(store, "s")


@shows("agentlib", "ReasoningContext.callTool")
async def test_what_was_done_before_a_crash_is_not_done_again():
    before, after = Till(), Till()
    outcome, _ = await resumed_after(await first_part(before, 5), after, 5, 7)
    assert (outcome.reason, before.paid, after.paid) == ("paid 5; paid 7", [5], [7])


@shows("glove", "ToolResultData.status")
async def test_a_call_that_a_crash_cut_off_is_unknown_and_not_repeated():
    before, after = Till(), Till()
    outcome, log = await resumed_after((await first_part(before, 5))[:-1], after, 5, 7)
    assert (before.paid, after.paid) == ([5], [7])
    assert [each.result.status for each in of(log, ToolFinished)] == [Status.UNKNOWN, Status.OK]
    assert "may or may not" in outcome.reason


async def test_a_call_that_only_reads_is_made_again_after_a_crash():
    before, after = Till(effect="read"), Till(effect="read")
    outcome, _ = await resumed_after((await first_part(before, 5))[:-1], after, 5)
    assert (outcome.reason, after.paid) == ("paid 5", [5])


async def test_a_cut_off_call_that_the_engine_does_not_repeat_is_settled_when_the_run_ends():
    before, after = Till(), Till()
    _, log = await resumed_after((await first_part(before, 5))[:-1], after, 7)
    statuses = {each.call_id: each.result.status for each in of(log, ToolFinished)}
    assert sorted(statuses.values()) == [Status.OK, Status.UNKNOWN]
    assert isinstance(log[-1], RunEnded)


@pytest.mark.parametrize(("mode", "status"), [("now", Status.CANCELLED), ("after_tools", Status.OK)])
async def test_a_cancelled_call_has_one_result(mode, status):
    held = Held(abortable=True)

    async def engine(run: Run) -> Outcome[Any]:
        await run.call_tools([("held", {}), ("pay", {"amount": 1})])
        return run.outcome("done")

    till = Till()
    agent = Agent(ScriptedModel(), tools=[held.tool, till.tool], engine=engine, limits=Limits(max_parallel_tools=1))
    session = agent.session("s")
    async with asyncio.timeout(SECONDS):
        running = asyncio.ensure_future(session.run("Go"))
        await held.started.wait()
        await session.cancel(mode)
        held.released.set()
        await running
    results = [each.result.status for each in of(await log_of(agent.store, "s"), ToolFinished)]
    assert (results, till.paid) == ([status, Status.CANCELLED_BEFORE_START], [])


# -- names -------------------------------------------------------------------------------------------------------------


async def test_the_log_names_the_engine():
    agent = Agent(ScriptedModel("Hi."), engine=paying())
    await agent.session("s").run("Go")
    assert of(await log_of(agent.store, "s"), RunStarted)[0].engine == "engine"


class Planner:
    """An engine that is an object."""

    def __init__(self, name: Any = "") -> None:
        self.name = name

    async def __call__(self, run: Run) -> Outcome[Any]:
        raise ZeroDivisionError("oops")


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        (Planner("plan first"), "plan first"),
        (Planner(), "Planner"),
        (Planner(5), "Planner"),
        (partial(paying()), "engine"),
    ],
)
async def test_an_engine_is_named_by_its_name_its_function_or_its_class(engine, name):
    assert get_engine_name(engine) == name


async def test_an_error_of_an_engine_names_it(caplog):
    outcome = await Agent(ScriptedModel(), engine=Planner("plan first")).run("Go")
    assert outcome.error is not None
    assert "the engine 'plan first'" in outcome.error.__notes__[0]
    assert "failed in the engine 'plan first'" in caplog.text


async def test_a_run_that_was_built_without_a_way_to_call_tools_says_so():
    async def engine(run: Run) -> Outcome[Any]:
        run.spec = msgspec.structs.replace(run.spec, tool_caller=None)
        with pytest.raises(UsageError, match="tool_caller"):
            await run.call_tool("pay")
        return run.outcome("done")

    assert (await Agent(ScriptedModel(), engine=engine).run("Go")).status == "done"
