"""One call, from validated arguments to a result, whatever the tool does."""

import asyncio
import logging
import threading
from typing import Any

import pytest

from perdure import (
    Agent,
    EffectNotStarted,
    EffectUnknown,
    Limits,
    Permissions,
    RunOptions,
    Status,
    Tool,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResult,
    tool,
)
from perdure._core.log.repair import READ_IS_REPEATABLE
from perdure._core.log.store import Log
from perdure._core.run.tool_calls.execution import PreparedCall, run_call
from perdure._core.tools.results import describe_error
from perdure.engines import SYSTEM_CLOCK, Mailbox, Run, RunPlace, RunSpec, State
from perdure.events import ErrorRaised, Fanout, ToolFinished, ToolStarted
from perdure.permissions import allow_all
from perdure.stores import MemoryStore
from perdure.testing import FakeClock, Recorder, ScriptedModel, call, calls
from perdure.tools import after, before
from tests.doubles import SECONDS, Held, deaf_tool, log_of, of, rounds
from tests.transcript import assert_valid

pytestmark = pytest.mark.resumed

CHECK_FIRST = "It may or may not have taken effect: check before repeating."


class Hostile(Exception):
    """An error that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class Rude(Exception):
    """An error that ends the program when it is shown."""

    def __str__(self) -> str:
        raise SystemExit(9)

    __repr__ = __str__


def raising(error: BaseException, **options: Any) -> Tool[..., Any]:
    @tool(name="act", description="Raises.", **options)
    async def act() -> None:
        raise error

    return act


async def result_of(made: Tool[..., Any], **options: Any) -> ToolResult:
    """What becomes of one call of a tool, as the model is told."""
    model = ScriptedModel(call(made.name), "Done.")
    outcome = await Agent(model, tools=[made], **options).run("Go")
    assert outcome.status == "done", outcome
    assert_valid(outcome.messages)
    return outcome.messages[2].tool_results[0]


# -- whatever a tool raises --------------------------------------------------------------------------------------------

ERRORS = [
    (ToolError("the file is gone"), "the file is gone"),
    (ToolError(), "ToolError"),
    (EffectNotStarted("the line is busy"), "the line is busy"),
    (ValueError("no luck"), "ValueError: no luck"),
    (ValueError(), "ValueError"),
    (KeyError("x"), "KeyError: 'x'"),
    (SystemExit(3), "SystemExit: 3"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (GeneratorExit(), "GeneratorExit"),
    (asyncio.CancelledError(), "the tool was cancelled by something other than this run"),
    (RecursionError("too deep"), "RecursionError: too deep"),
    (MemoryError(), "MemoryError"),
    (Hostile(), "Hostile: (no readable message)"),
    (Rude(), "Rude: (no readable message)"),
    (ValueError("lone \ud800"), "ValueError: lone \ufffd"),
    (
        ExceptionGroup("both", [ValueError("one"), ToolError("two")]),
        "ExceptionGroup: both (2 sub-exceptions): ValueError: one; two",
    ),
    (
        BaseExceptionGroup("all", [asyncio.CancelledError(), SystemExit(1)]),
        (
            "BaseExceptionGroup: all (2 sub-exceptions): the tool was cancelled by something other than this run; "
            "SystemExit: 1"
        ),
    ),
]
OPTIONS = [{}, {"timeout_seconds": 60.0}, {"abortable": False}]


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "timed", "not abortable"])
@pytest.mark.parametrize(("error", "told"), ERRORS, ids=lambda value: type(value).__name__)
async def test_whatever_an_async_tool_raises_becomes_an_error_result(error, told, options):
    result = await result_of(raising(error, **options))
    assert (result.status, result.text) == (Status.ERROR, told)


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "timed", "not abortable"])
@pytest.mark.parametrize(("error", "told"), ERRORS, ids=lambda value: type(value).__name__)
async def test_whatever_a_plain_tool_raises_becomes_an_error_result(error, told, options):
    @tool(**options)
    def act() -> None:
        """Raises on a thread."""
        raise error

    result = await result_of(act)
    assert (result.status, result.text) == (Status.ERROR, told)


@pytest.mark.parametrize(("error", "told"), ERRORS, ids=lambda value: type(value).__name__)
async def test_whatever_one_of_several_tools_raises_leaves_the_others_alone(error, told):
    @tool
    async def fine() -> str:
        """Is fine."""
        await rounds(5)
        return "fine"

    model = ScriptedModel(calls(call("fine"), call("act"), call("fine")), "Done.")
    outcome = await Agent(model, tools=[fine, raising(error)]).run("Go")
    assert outcome.status == "done"
    assert [result.text for result in outcome.messages[2].tool_results] == ["fine", told, "fine"]


@pytest.mark.parametrize("plain", [True, False], ids=["on a thread", "async"])
async def test_a_stop_iteration_becomes_an_error_result(plain):
    if plain:

        @tool
        def act() -> None:
            """Raises on a thread."""
            raise StopIteration("over")
    else:

        @tool
        async def act() -> None:
            """Raises."""
            raise StopIteration("over")

    result = await result_of(act)
    assert (result.status, "StopIteration" in result.text) == (Status.ERROR, True)


async def test_real_recursion_becomes_an_error_result():
    @tool
    async def dig() -> None:
        """Digs."""

        def deeper() -> None:
            deeper()

        deeper()

    result = await result_of(dig)
    assert result.text.startswith("RecursionError: maximum recursion depth exceeded")


async def test_a_task_that_somebody_cancelled_inside_a_tool_is_no_cancel_of_the_run():
    @tool
    async def wait_in_vain() -> None:
        """Waits for something that is cancelled."""
        gone = asyncio.ensure_future(asyncio.Event().wait())
        gone.cancel()
        await gone

    result = await result_of(wait_in_vain)
    assert (result.status, "cancelled by something other" in result.text) == (Status.ERROR, True)


async def test_a_timeout_of_the_tools_own_is_an_error_like_any_other():
    @tool
    async def hurry() -> None:
        """Has no time."""
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    assert (await result_of(hurry)).text == "TimeoutError"


async def test_an_unforeseen_error_is_logged_with_the_ids_and_shown(caplog):
    recorder = Recorder()
    agent = Agent(ScriptedModel(call("act"), "Done."), tools=[raising(ValueError("no luck"))], watchers=[recorder])
    outcome = await agent.session("s").run("Go")
    (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert record.name == "perdure"
    assert (record.run_id, record.session_id) == (outcome.run_id, "s")
    assert f"run {outcome.run_id} of session s" in record.getMessage()
    (shown,) = recorder.of(ErrorRaised)
    assert (shown.error, shown.message, shown.where) == ("ValueError", "no luck", "tool 'act'")


async def test_an_error_that_is_meant_for_the_model_is_not_logged(caplog):
    recorder = Recorder()
    await result_of(raising(ToolError("the file is gone")), watchers=[recorder])
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert not recorder.of(ErrorRaised)


def test_a_group_inside_a_group_is_told_in_full():
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [ValueError("x")])])
    assert describe_error(group).endswith("ExceptionGroup: inner (1 sub-exception): ValueError: x")


async def test_a_tool_that_returns_what_cannot_be_shown_still_has_a_result():
    class Sly:
        def __repr__(self) -> str:
            raise ValueError("no")

    @tool
    async def give() -> Any:
        """Gives."""
        return Sly()

    result = await result_of(give)
    assert (result.status, "unserialisable" in result.text) == (Status.OK, True)


# -- threads -----------------------------------------------------------------------------------------------------------


async def test_plain_functions_run_on_threads_several_at_once():
    barrier = threading.Barrier(3)

    @tool
    def meet() -> str:
        """Waits for two others."""
        barrier.wait(SECONDS)
        return threading.current_thread().name

    model = ScriptedModel(calls(call("meet"), call("meet"), call("meet")), "Done.")
    outcome = await Agent(model, tools=[meet]).run("Go")
    names = [result.text for result in outcome.messages[2].tool_results]
    assert all(name.startswith("perdure-tool") for name in names)
    assert threading.current_thread().name not in names


async def test_a_plain_function_does_not_hold_up_the_event_loop():
    released = threading.Event()

    @tool
    def wait() -> str:
        """Waits until the event loop has done something."""
        return "released" if released.wait(SECONDS) else "stuck"

    asyncio.get_running_loop().call_soon(released.set)
    assert (await result_of(wait)).text == "released"


# -- timeouts ----------------------------------------------------------------------------------------------------------


async def timed_out(made: Tool[..., Any], started: asyncio.Event, *moves: float, **options: Any) -> ToolResult:
    """The result of a tool for which the clock is moved while it runs."""
    clock = FakeClock()
    run = asyncio.ensure_future(result_of(made, clock=clock, **options))
    async with asyncio.timeout(SECONDS):
        await started.wait()
        for seconds in moves:
            await clock.advance(seconds)
        return await run


async def test_a_tool_that_takes_too_long_is_told_to_stop_and_timed_out():
    held = Held(timeout_seconds=3.0)
    result = await timed_out(held.tool, held.started, 3)
    assert (result.status, held.cancelled) == (Status.TIMED_OUT, 1)
    assert result.text == f"Timed out after 3 seconds; it may still be running. {CHECK_FIRST}"


@pytest.mark.parametrize(
    ("effect", "advice"),
    [
        ("read", "It only reads, and changes nothing: it can be repeated."),
        ("idempotent", CHECK_FIRST),  # a call that the model makes again has another key
        ("ask", CHECK_FIRST),
    ],
)
async def test_the_model_is_told_to_check_first_unless_the_tool_only_reads(effect, advice):
    held = Held(timeout_seconds=3.0, effect=effect)
    late = await timed_out(held.tool, held.started, 3)
    assert late.text == f"Timed out after 3 seconds; it may still be running. {advice}"


async def test_a_tool_that_ends_in_time_is_not_timed_out():
    held = Held(timeout_seconds=3.0)
    held.released.set()
    clock = FakeClock()
    assert (await result_of(held.tool, clock=clock)).status is Status.OK
    assert clock.pending == []


async def test_the_runs_limit_holds_for_tools_without_a_timeout_of_their_own():
    held = Held()
    result = await timed_out(held.tool, held.started, 2, limits=Limits(tool_timeout_seconds=2))
    assert result.status is Status.TIMED_OUT


async def test_a_timeout_of_its_own_outranks_the_runs_limit():
    held = Held(timeout_seconds=10.0)
    result = await timed_out(held.tool, held.started, 5, 5, limits=Limits(tool_timeout_seconds=2))
    assert "after 10 seconds" in result.text


async def test_a_tool_that_ignores_its_timeout_is_left_behind():
    deaf, started, released = deaf_tool(timeout_seconds=3.0)
    result = await timed_out(deaf, started, 3, 2)
    assert result.status is Status.TIMED_OUT
    released.set()
    await rounds()


async def test_a_tool_that_was_left_behind_and_fails_later_is_not_heard_of_again(caplog):
    started, released = asyncio.Event(), asyncio.Event()

    @tool(timeout_seconds=1.0)
    async def stubborn() -> None:
        """Does not listen, and fails in the end."""
        started.set()
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        raise ValueError("late")

    result = await timed_out(stubborn, started, 1, 2)
    assert result.status is Status.TIMED_OUT
    released.set()
    await rounds()
    assert "late" not in caplog.text


async def test_a_plain_function_is_told_that_nobody_waits_for_it():
    started, go_on, looked = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    told: list[bool] = []

    @tool(timeout_seconds=1.0)
    def look(context: ToolContext) -> None:
        """Looks before and after it was timed out."""
        told.append(context.cancelled)
        loop.call_soon_threadsafe(started.set)
        go_on.wait(SECONDS)
        told.append(context.cancelled)
        looked.set()

    result = await timed_out(look, started, 1)
    assert result.status is Status.TIMED_OUT
    go_on.set()
    assert looked.wait(SECONDS)
    assert told == [False, True]


async def test_what_a_tool_returns_when_it_is_told_to_stop_counts():
    started = asyncio.Event()

    @tool(timeout_seconds=1.0)
    async def tidy() -> str:
        """Tidies up when it is told to stop."""
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "stopped halfway, and tidied up"
        return "never"

    result = await timed_out(tidy, started, 1)
    assert (result.status, result.text) == (Status.OK, "stopped halfway, and tidied up")


async def test_what_a_tool_raises_when_it_is_told_to_stop_counts():
    started = asyncio.Event()

    @tool(timeout_seconds=1.0)
    async def tidy() -> None:
        """Fails to tidy up when it is told to stop."""
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ToolError("half of it is done") from None

    result = await timed_out(tidy, started, 1)
    assert (result.status, result.text) == (Status.ERROR, "half of it is done")


async def test_a_tool_is_not_tried_again_after_a_timeout():
    held = Held(timeout_seconds=1.0, retries=3, effect="read")
    result = await timed_out(held.tool, held.started, 1)
    assert (result.status, held.cancelled) == (Status.TIMED_OUT, 1)


# -- trying again ------------------------------------------------------------------------------------------------------


class Flaky:
    """A tool that fails a few times."""

    def __init__(self, *errors: BaseException, **options: Any) -> None:
        self.tried = 0
        self.keys: set[str] = set()
        failures = iter(errors)

        @tool(name="act", description="Acts.", **options)
        async def act(context: ToolContext) -> str:
            self.tried += 1
            self.keys.add(context.idempotency_key)
            error = next(failures, None)
            if error is not None:
                raise error
            return "done"

        self.tool = act


async def tried(flaky: Flaky) -> tuple[int, Status, list[float]]:
    clock = FakeClock(auto=True)
    result = await result_of(flaky.tool, clock=clock)
    return flaky.tried, result.status, clock.slept


@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_a_tool_that_may_run_twice_is_tried_again_as_often_as_it_allows(effect):
    flaky = Flaky(ValueError(), OSError(), retries=2, effect=effect)
    assert await tried(flaky) == (3, Status.OK, [0.1, 0.2])
    assert len(flaky.keys) == 1


async def test_a_tool_that_fails_too_often_has_failed():
    assert await tried(Flaky(ValueError(), ValueError(), retries=1, effect="read")) == (2, Status.ERROR, [0.1])


@pytest.mark.parametrize("effect", ["at_most_once", "ask"])
async def test_a_tool_that_may_not_run_twice_is_not_tried_again(effect):
    assert await tried(Flaky(ValueError(), retries=3, effect=effect)) == (1, Status.ERROR, [])


async def test_a_tool_that_is_sure_that_nothing_happened_is_tried_again_whatever_its_effect():
    assert await tried(Flaky(EffectNotStarted("busy"), retries=1)) == (2, Status.OK, [0.1])


@pytest.mark.parametrize(
    ("effect", "advice"),
    [("at_most_once", "It may or may not have taken effect: check before repeating."), ("read", READ_IS_REPEATABLE)],
)
async def test_a_tool_that_cannot_know_what_happened_has_an_unknown_result(effect, advice, caplog):
    flaky = Flaky(EffectUnknown("The answer of the bank was lost."), effect=effect)
    result = await result_of(flaky.tool)
    assert (result.status, result.text) == (Status.UNKNOWN, f"The answer of the bank was lost. {advice}")
    assert not caplog.records  # it is said on purpose


async def test_an_effect_that_nobody_knows_of_is_not_tried_again_unless_the_tool_may_run_twice():
    lost = EffectUnknown("the answer was lost")
    assert await tried(Flaky(lost, retries=3)) == (1, Status.UNKNOWN, [])
    assert await tried(Flaky(lost, retries=3, effect="idempotent")) == (2, Status.OK, [0.1])


async def test_retries_are_off_by_default():
    assert await tried(Flaky(EffectNotStarted("busy"), effect="read")) == (1, Status.ERROR, [])


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
async def test_a_tool_that_wants_to_end_everything_is_not_tried_again(error):
    assert await tried(Flaky(error, retries=3, effect="read")) == (1, Status.ERROR, [])


async def test_all_attempts_have_one_intent_and_one_result():
    agent = Agent(
        ScriptedModel(call("act"), "Done."),
        tools=[Flaky(ValueError(), retries=1, effect="read").tool],
        clock=FakeClock(auto=True),
    )
    await agent.session("s").run("Go")
    log = await log_of(agent.store, "s")
    assert (len(of(log, ToolStarted)), len(of(log, ToolFinished))) == (1, 1)


async def test_a_cancel_while_a_tool_waits_to_be_tried_again_keeps_its_last_error():
    clock = FakeClock()
    flaky = Flaky(ValueError("no luck"), retries=3, effect="idempotent")
    session = Agent(ScriptedModel(call("act")), tools=[flaky.tool], clock=clock).session()
    run = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await clock.wait_for_sleepers()
        await session.cancel()
        outcome = await run
    assert (outcome.status, flaky.tried) == ("cancelled", 1)
    result = outcome.messages[2].tool_results[0]
    assert (result.status, result.text) == (Status.ERROR, "ValueError: no luck")
    assert_valid(outcome.messages)


# -- cancelled ---------------------------------------------------------------------------------------------------------


async def cancelled(made: Tool[..., Any], started: asyncio.Event, *releases: asyncio.Event, moves: float = 0) -> Any:
    """The result of a tool whose run is cancelled while it runs, and the status of the run."""
    clock = FakeClock()
    session = Agent(ScriptedModel(call(made.name)), tools=[made], clock=clock).session()
    run = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await started.wait()
        await session.cancel()
        await rounds()
        for release in releases:
            release.set()
        if moves:
            await clock.advance(moves)
        outcome = await run
    assert_valid(outcome.messages)
    return outcome.status, outcome.messages[2].tool_results[0]


@pytest.mark.parametrize("options", [{}, {"timeout_seconds": 60.0}], ids=["plain", "timed"])
async def test_a_cancelled_call_says_that_nobody_knows(options):
    held = Held(**options)
    status, result = await cancelled(held.tool, held.started)
    assert (status, result.status, held.cancelled) == ("cancelled", Status.CANCELLED, 1)
    assert result.text == f"The run was cancelled while this ran. {CHECK_FIRST}"


@pytest.mark.parametrize("options", [{}, {"timeout_seconds": 60.0}], ids=["plain", "timed"])
async def test_a_cancel_waits_for_a_tool_that_must_not_be_aborted(options):
    held = Held(abortable=False, **options)
    status, result = await cancelled(held.tool, held.started, held.released)
    assert (status, result.status, result.text) == ("cancelled", Status.OK, "released")
    assert held.cancelled == 0


async def test_a_tool_that_must_not_be_aborted_may_still_time_out():
    held = Held(abortable=False, timeout_seconds=3.0)
    status, result = await cancelled(held.tool, held.started, moves=3)
    assert (status, result.status) == ("cancelled", Status.TIMED_OUT)


async def test_a_tool_under_supervision_that_ignores_its_cancel_is_left_behind():
    deaf, started, released = deaf_tool(timeout_seconds=60.0)
    status, result = await cancelled(deaf, started, moves=2)
    assert (status, result.status) == ("cancelled", Status.CANCELLED)
    released.set()
    await rounds()


async def test_a_cancel_during_the_grace_of_a_timeout_is_not_lost():
    clock = FakeClock()
    deaf, started, released = deaf_tool(timeout_seconds=3.0)
    model = ScriptedModel(call("deaf"), "Never said.")
    run = asyncio.ensure_future(Agent(model, tools=[deaf], clock=clock, limits=Limits(timeout_seconds=4)).run("Go"))
    async with asyncio.timeout(SECONDS):
        await started.wait()
        await clock.advance(3)
        await clock.advance(1)
        await clock.advance(1)
        outcome = await run
    assert (outcome.status, outcome.reason, model.remaining) == ("limit", "timeout", 1)
    released.set()
    await rounds()


async def test_a_tool_that_swallows_the_cancel_and_returns_keeps_its_result_and_the_run_ends():
    started = asyncio.Event()

    @tool
    async def calm() -> str:
        """Ends in its own way."""
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "calmly"
        return "never"

    status, result = await cancelled(calm, started)
    assert (status, result.status, result.text) == ("cancelled", Status.OK, "calmly")


async def test_a_result_that_a_cancel_catches_in_a_finish_hook_is_not_shown():
    held = Held("wait")

    @tool
    async def act() -> str:
        """Acts."""
        return "a secret"

    async def slow(asked: ToolCall, result: ToolResult) -> None:
        held.started.set()
        await held.released.wait()

    status, result = await cancelled(after(act, slow), held.started)
    assert (status, result.status) == ("cancelled", Status.CANCELLED)
    assert "secret" not in result.text


# -- when the loop itself goes away ------------------------------------------------------------------------------------


def suspended_attempt(made: Tool[..., Any]) -> Any:
    """An attempt at a call that has begun on an event loop which is gone by now."""

    async def begin() -> Any:
        store = MemoryStore()
        log = Log(store, await store.acquire("s"), 0, SYSTEM_CLOCK)
        place = RunPlace(session_id="s", run_id="r", log=log, fanout=Fanout(SYSTEM_CLOCK), mailbox=Mailbox())
        spec = RunSpec(
            options=RunOptions(),
            _model=ScriptedModel(),
            toolbox=Toolbox([made]),
            seal_decision=lambda decision, _: decision,
        )
        run = Run(spec, place, State())
        begun = run_call(run, PreparedCall(ToolCall("c1", made.name), made, {}, {}))
        begun.send(None)
        return begun

    return asyncio.run(begin())


def test_a_call_that_is_thrown_away_with_its_event_loop_makes_no_fuss():
    ended: list[str] = []

    @tool
    async def wait() -> None:
        """Waits."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    suspended_attempt(wait).close()
    assert ended == ["ended"]


# -- what is left of a call --------------------------------------------------------------------------------------------


async def test_a_call_that_has_ended_is_cancelled_for_whatever_still_uses_its_context():
    kept: list[tuple[ToolContext[Any], bool]] = []

    @tool(name="act")
    async def act(context: ToolContext[Any]) -> str:
        """Act."""
        kept.append((context, context.cancelled))
        return "done"

    assert (await result_of(act)).text == "done"
    ((context, before),) = kept
    assert (before, context.cancelled) == (False, True)


async def test_each_attempt_at_an_approved_call_gets_the_arguments_that_were_approved():
    seen: list[list[int]] = []

    @tool(permission=True, retries=1, effect="idempotent")
    async def act(numbers: list[int]) -> str:
        """Act."""
        seen.append([*numbers])
        numbers.append(9)
        if len(seen) == 1:
            raise OSError("busy")
        return "done"

    model = ScriptedModel(call("act", numbers=[1, 2]), "Done.")
    outcome = await Agent(
        model, tools=[act], permission=Permissions(handler=allow_all), clock=FakeClock(auto=True)
    ).run("Go")
    assert outcome.messages[2].tool_results[0].text == "done"
    assert seen == [[1, 2], [1, 2]]


@pytest.mark.in_memory("the list that the hook still holds")
async def test_what_a_hook_still_holds_of_the_arguments_cannot_change_what_is_approved():
    held, shown, seen = [1], [], []

    async def person(requests: Any) -> Any:
        held.append(2)
        shown.extend([each.arguments for each in requests])
        return await allow_all(requests)

    @tool(permission=True)
    async def act(numbers: list[int]) -> str:
        """Act."""
        seen.append(numbers)
        return "done"

    hooked = before(act, lambda _call, _arguments: {"numbers": held})
    model = ScriptedModel(call("act", numbers=[]), "Done.")
    await Agent(model, tools=[hooked], permission=Permissions(handler=person)).run("Go")
    assert (shown, seen, held) == ([{"numbers": [1]}], [[1]], [1, 2])
