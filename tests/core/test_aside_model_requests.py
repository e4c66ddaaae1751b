"""Limits, usage and the log in engines that others write: whichever way they ask the model."""

import asyncio
import pickle
from typing import Any

import pytest

from perdure import (
    Agent,
    Budget,
    LimitExceeded,
    Limits,
    Outcome,
    ProviderDown,
    ReplyCutOff,
    ToolContext,
    Usage,
    UsageError,
    tool,
    user,
)
from perdure._core.log.fold import fold_events
from perdure._core.model.wrappers import WrappedModel
from perdure._core.run.calling_run import get_run_of_call
from perdure._core.run.requests import AsideModel
from perdure.engines import Run, act, react, run_turn
from perdure.events import (
    ErrorRaised,
    FailedOver,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    ReplyDiscarded,
    ReplyFinished,
    RetryScheduled,
    RunEnded,
    RunResumed,
    RunStarted,
    TextDelta,
    UsageReported,
)
from perdure.models import Price, Request, budgeted, failover, retried
from perdure.testing import FakeClock, Recorder, Reply, ScriptedModel, call, calls, pause
from tests.doubles import SECONDS, log_of, of

USED = Usage(60, 40)
PRICE = Price(input_usd=1.0, output_usd=1.0)


def question(text: str = "What next?") -> Request:
    return Request(messages=[user(text)])


async def ask(run: Run, text: str = "What next?") -> str:
    """Ask the model beside the conversation, and return its text."""
    return "".join([event.text async for event in run.model.stream(question(text)) if isinstance(event, TextDelta)])


async def five_turns(run: Run) -> Outcome[Any]:
    for _ in range(5):
        await run_turn(run)
    return run.outcome("done")


async def five_questions(run: Run) -> Outcome[Any]:
    for _ in range(5):
        await ask(run)
    return run.outcome("done")


async def questions_at_once(run: Run) -> Outcome[Any]:
    await asyncio.gather(*[ask(run) for _ in range(5)])
    return run.outcome("done")


def model(*replies: Any) -> ScriptedModel:
    return ScriptedModel(*(replies or [Reply("Hm.", usage=USED)] * 5), price=PRICE)


# -- limits ------------------------------------------------------------------------------------------------------------

LIMITS = [
    (Limits(max_turns=2), "max_turns", 2),
    (Limits(token_budget=150), "token_budget", 2),
    (Limits(max_cost_usd=0.00015), "max_cost", 2),
    (Limits(max_turns=1, token_budget=1, max_cost_usd=0.01), "max_turns", 1),
]


@pytest.mark.parametrize("engine", [five_turns, five_questions])
@pytest.mark.parametrize(("limits", "reason", "requests"), LIMITS)
async def test_an_engine_of_ones_own_cannot_pass_a_limit(engine, limits, reason, requests):
    scripted = model()
    outcome = await Agent(scripted, engine=engine, limits=limits).run("Go")
    assert (outcome.status, outcome.reason) == ("limit", reason)
    assert (len(scripted.requests), outcome.turns) == (requests, requests)
    assert outcome.usage.total_tokens == requests * USED.total_tokens


def list_models(place: Any, path: str = "run", depth: int = 4) -> list[str]:
    """The public ways from an object to a model that can be asked, other than by its limits."""
    found: list[str] = []
    for name in [name for name in dir(place) if not name.startswith("_")]:
        try:
            value = getattr(place, name)
        except (AttributeError, RuntimeError):
            continue
        if callable(getattr(value, "stream", None)) and type(value) is not AsideModel:
            found.append(f"{path}.{name}")
        elif depth and type(value).__module__.startswith("perdure.") and not isinstance(value, Run):
            found += list_models(value, f"{path}.{name}", depth - 1)
    return found


async def test_no_public_attribute_of_a_run_is_its_bare_model():
    ways: list[str] = []

    async def engine(run: Run) -> Outcome[Any]:
        ways.extend(list_models(run))
        assert type(run.model) is AsideModel
        return run.outcome("done")

    for budget in (None, Budget(max_cost_usd=1.0)):
        assert (await Agent(model(), engine=engine, budget=budget).run("Go")).status == "done"
    assert ways == []


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_questions_that_are_asked_at_once_cannot_pass_a_limit_either(kind, tmp_path):
    scripted = model()
    store = "memory:" if kind == "memory" else f"sqlite:{tmp_path / 'sessions.db'}"
    agent = Agent(scripted, engine=questions_at_once, limits=Limits(max_turns=3), store=store)
    outcome = await agent.session("s").run("Go")
    assert (outcome.status, outcome.reason, len(scripted.requests)) == ("limit", "max_turns", 3)
    asked = of(await log_of(agent.store, "s"), ModelRequested)
    assert [each.turn for each in asked] == [1, 2, 3]


async def test_a_turn_that_failed_leaves_no_room_for_questions_beside_it():
    async def engine(run: Run) -> Outcome[Any]:
        with pytest.raises(ProviderDown):
            await run_turn(run)
        with pytest.raises(LimitExceeded, match="max_turns") as caught:
            await ask(run)
        assert caught.value.limit == "max_turns"
        return run.outcome("done", (await run_turn(run)).text)

    outcome = await Agent(model(ProviderDown("gone"), "Hello."), engine=engine, limits=Limits(max_turns=1)).run("Go")
    assert (outcome.reason, outcome.turns) == ("Hello.", 1)


async def test_an_engine_that_catches_the_limit_may_say_how_it_ends_and_gets_no_further():
    async def stubborn(run: Run) -> Outcome[Any]:
        for _ in range(5):
            try:
                await run_turn(run)
            except LimitExceeded:
                continue
        return run.outcome("done")

    scripted = model()
    outcome = await Agent(scripted, engine=stubborn, limits=Limits(max_turns=2)).run("Go")
    assert (outcome.status, len(scripted.requests)) == ("done", 2)


async def test_two_turns_at_once_are_a_mistake_of_the_engine():
    async def hasty(run: Run) -> Outcome[Any]:
        first = asyncio.ensure_future(run_turn(run))
        await held.wait_reached()
        with pytest.raises(UsageError, match="await run_turn"):
            await run_turn(run)
        held.release()
        return run.outcome("done", (await first).text)

    held = pause()
    scripted = model([held, TextDelta("One."), ReplyFinished()], "Two.")
    async with asyncio.timeout(SECONDS):
        outcome = await Agent(scripted, engine=hasty).run("Go")
    assert (outcome.reason, len(scripted.requests)) == ("One.", 1)


async def test_a_turn_before_the_calls_of_the_last_one_are_settled_is_a_mistake_of_the_engine():
    @tool
    async def look() -> str:
        """Look."""
        return "there"

    async def forgetful(run: Run) -> Outcome[Any]:
        await run_turn(run)
        await run_turn(run)
        return run.outcome("done")

    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], engine=forgetful)
    outcome = await agent.run("Go")
    assert (outcome.status, outcome.reason) == ("failed", "UsageError")
    assert "act(run, reply)" in str(outcome.error)
    assert outcome.messages[-1].tool_results[0].status == "cancelled_before_start"


async def test_budgets_and_other_wrappers_of_the_model_work_on_what_a_run_offers():
    budget = Budget(token_budget=100_000)

    async def careful(run: Run) -> Outcome[Any]:
        wrapped = budgeted(retried(run.model, clock=run.clock), budget)
        async for _ in wrapped.stream(question()):
            pass
        return run.outcome("done")

    outcome = await Agent(model(), engine=careful).run("Go")
    assert (outcome.status, outcome.usage.total_tokens, budget.spent_tokens) == ("done", 100, 100)


async def test_a_limit_is_no_reason_to_ask_another_model():
    other = model()

    async def sly(run: Run) -> Outcome[Any]:
        async for _ in failover(run.model, other).stream(question()):
            pass
        await ask(run)
        async for _ in failover(run.model, other).stream(question()):
            pass
        return run.outcome("done")

    outcome = await Agent(model(), engine=sly, limits=Limits(max_turns=2)).run("Go")
    assert (outcome.status, outcome.reason, other.requests) == ("limit", "max_turns", [])


async def test_an_engine_around_react_gets_an_outcome_at_a_limit():
    seen: list[str] = []

    async def around(run: Run) -> Outcome[Any]:
        outcome = await react(run)
        seen.append(outcome.reason)
        return outcome

    @tool
    async def look() -> str:
        """Look."""
        return "there"

    scripted = ScriptedModel(*[call("look") for _ in range(5)])
    await Agent(scripted, tools=[look], engine=around, limits=Limits(max_turns=2)).run("Go")
    assert seen == ["max_turns"]


async def test_a_tool_that_asks_the_model_of_its_run_is_counted_too():
    @tool
    async def think(context: ToolContext) -> str:
        """Think."""
        return await ask(get_run_of_call(context))

    scripted = model(calls(call("think"), call("think")), Reply("A", usage=USED), Reply("B", usage=USED), "C")
    outcome = await Agent(scripted, tools=[think], limits=Limits(max_turns=3)).run("Go")
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit", "max_turns", 3)
    assert [each.text for each in outcome.messages[-1].tool_results] == ["A", "B"]


async def test_steering_reaches_an_engine_of_ones_own():
    async def engine(run: Run) -> Outcome[Any]:
        await run_turn(run)
        await session.steer("Faster!")
        await asyncio.sleep(0)
        await run_turn(run)
        return run.outcome("done")

    scripted = ScriptedModel("One.", "Two.")
    session = Agent(scripted, engine=engine).session()
    async with asyncio.timeout(SECONDS):
        await session.run("Go")
    assert scripted.requests[1].messages[-1].text == "Faster!"


# -- the log and usage -------------------------------------------------------------------------------------------------


async def test_a_question_beside_the_conversation_is_in_the_log_and_not_in_the_conversation():
    async def engine(run: Run) -> Outcome[Any]:
        plan = await ask(run, "What is the plan?")
        await run_turn(run)
        return run.outcome("done", plan)

    recorder = Recorder()
    scripted = model(Reply("First, rest.", usage=USED), Reply("Done.", usage=USED))
    agent = Agent(scripted, engine=engine, watchers=[recorder])
    outcome = await agent.session("s").run("Go")
    assert (outcome.reason, outcome.text, len(outcome.messages)) == ("First, rest.", "Done.", 2)
    assert (outcome.usage.total_tokens, outcome.turns) == (200, 2)
    log = await log_of(agent.store, "s")
    assert [type(each) for each in log[2:]] == [ModelRequested, ModelReplied, ModelRequested, MessageAdded, RunEnded]
    (said,) = of(log, ModelReplied)
    asked = of(log, ModelRequested)[0]
    assert (asked.aside, asked.turn, asked.messages, asked.model) == (True, 1, 1, "scripted")
    assert asked.estimated_tokens > 0
    assert (said.turn, said.message.text, said.message.usage) == (1, "First, rest.", USED)
    assert [each.text for each in recorder.of(TextDelta)] == ["Done."]  # what is said aside is not shown as the answer
    assert [each.aside for each in of(log, ModelRequested)] == [True, False]


async def test_a_question_that_nobody_hears_to_its_end_is_counted():
    async def impatient(run: Run) -> Outcome[Any]:
        async for event in run.model.stream(question()):
            if isinstance(event, TextDelta):
                break
        return run.outcome("done")

    agent = Agent(model(), engine=impatient)
    outcome = await agent.session("s").run("Go")
    assert (outcome.usage.precision, outcome.usage.input_tokens > 0) == ("estimated", True)
    assert isinstance((await log_of(agent.store, "s"))[-1], RunEnded)


async def test_a_question_whose_stream_is_closed_is_discarded_with_what_was_said():
    async def tidy(run: Run) -> Outcome[Any]:
        stream: Any = run.model.stream(question())
        async for event in stream:
            if isinstance(event, UsageReported):
                await stream.aclose()
        return run.outcome("done")

    agent = Agent(ScriptedModel([TextDelta("Well"), UsageReported(USED), ReplyFinished()]), engine=tidy)
    outcome = await agent.session("s").run("Go")
    (discarded,) = of(await log_of(agent.store, "s"), ReplyDiscarded)
    assert discarded.partial is not None
    assert (discarded.reason, discarded.partial.text) == ("GeneratorExit", "Well")
    assert outcome.usage.total_tokens == USED.total_tokens


async def test_a_listener_that_leaves_after_the_end_has_had_a_whole_reply():
    async def prompt(run: Run) -> Outcome[Any]:
        async for event in run.model.stream(question()):
            if isinstance(event, ReplyFinished):
                break
        return run.outcome("done")

    agent = Agent(model(), engine=prompt)
    outcome = await agent.session("s").run("Go")
    log = await log_of(agent.store, "s")
    assert (outcome.usage, len(of(log, ModelReplied)), of(log, ReplyDiscarded)) == (USED, 1, [])


@pytest.mark.parametrize(
    ("reply", "error"), [(ProviderDown("gone"), "ProviderDown"), ([TextDelta("Half")], "ReplyCutOff")]
)
async def test_a_question_that_fails_is_discarded_and_may_be_asked_again(reply, error):
    async def engine(run: Run) -> Outcome[Any]:
        with pytest.raises((ProviderDown, ReplyCutOff)):
            await ask(run)
        return run.outcome("done", await ask(run))

    agent = Agent(model(reply, "Whole."), engine=engine)
    outcome = await agent.session("s").run("Go")
    log = await log_of(agent.store, "s")
    assert (outcome.reason, outcome.turns) == ("Whole.", 2)
    assert [each.reason for each in of(log, ReplyDiscarded)] == [error]
    assert [each.turn for each in of(log, ModelRequested)] == [1, 2]
    assert not fold_events(log).aside_requests


async def test_retries_of_a_question_are_shown_and_what_they_threw_away_is_counted():
    first = [TextDelta("Half"), UsageReported(USED), ProviderDown("gone")]
    clock, recorder = FakeClock(), Recorder()

    async def engine(run: Run) -> Outcome[Any]:
        return run.outcome("done", await ask(run))

    wrapped = retried(model(first, Reply("Whole.", usage=USED)), base_seconds=0.0, clock=clock)
    agent = Agent(wrapped, engine=engine, watchers=[recorder])
    outcome = await agent.session("s").run("Go")
    assert outcome.usage.total_tokens == 200
    assert [each.reason for each in of(await log_of(agent.store, "s"), ReplyDiscarded)] == ["RetryScheduled"]
    assert len(recorder.of(RetryScheduled)) == 1


async def test_warnings_and_failovers_of_a_question_are_shown():
    recorder = Recorder()

    async def engine(run: Run) -> Outcome[Any]:
        return run.outcome("done", await ask(run))

    second = model([ErrorRaised("Deprecated", "soon gone"), TextDelta("Hi."), ReplyFinished()])
    agent = Agent(failover(model(ProviderDown("gone")), second), engine=engine, watchers=[recorder])
    assert (await agent.run("Go")).reason == "Hi."
    assert (len(recorder.of(FailedOver)), [each.error for each in recorder.of(ErrorRaised)]) == (1, ["Deprecated"])


async def test_a_question_after_the_run_is_over_is_refused():
    runs: list[Run] = []

    async def engine(run: Run) -> Outcome[Any]:
        runs.append(run)
        return run.outcome("done")

    await Agent(model(), engine=engine).run("Go")
    with pytest.raises(UsageError, match="is over"):
        await ask(runs[0])


async def test_a_stream_that_outlives_its_run_adds_nothing_to_the_log():
    streams: list[Any] = []

    async def engine(run: Run) -> Outcome[Any]:
        stream = run.model.stream(question())
        streams.append(stream)
        await anext(stream)
        return run.outcome("done")

    agent = Agent(model(), engine=engine)
    await agent.session("s").run("Go")
    before = await log_of(agent.store, "s")
    await streams[0].aclose()
    assert await log_of(agent.store, "s") == before
    assert [each.reason for each in of(before, ReplyDiscarded)] == ["left_open"]


async def test_what_a_question_in_flight_will_cost_counts_for_others():
    started, free = asyncio.Event(), asyncio.Event()

    async def held(_request: Request) -> Any:
        started.set()
        await free.wait()
        yield TextDelta("Hm.")
        yield ReplyFinished(usage=USED)

    async def engine(run: Run) -> Outcome[Any]:
        first = asyncio.ensure_future(ask(run, "long " * 2000))
        await started.wait()
        told = run.find_reached_limit()
        free.set()
        await first
        return run.outcome("done", told)

    for limits, reason in ((Limits(token_budget=1000), "token_budget"), (Limits(max_cost_usd=0.001), "max_cost")):
        started.clear()
        free.clear()
        async with asyncio.timeout(SECONDS):
            outcome = await Agent(WrappedModel(model(), held), engine=engine, limits=limits).run("Go")
        assert outcome.reason == reason


async def test_an_answer_that_a_crash_cut_off_counts_as_its_estimate():
    request = ModelRequested(1, aside=True, estimated_tokens=70, run_id="r")
    state = fold_events([RunStarted(run_id="r"), request, RunResumed(run_id="r")])
    assert (state.usage.input_tokens, state.turns, state.attempts, state.aside_requests) == (70, 1, 0, {})
    state = fold_events([RunStarted(run_id="r"), ModelRequested(1, aside=True, run_id="r"), RunEnded("failed", "x")])
    assert (state.usage.input_tokens, state.aside_requests) == (0, {})


async def test_a_reply_with_calls_may_be_acted_on_after_a_question_beside_it():
    @tool
    async def look() -> str:
        """Look."""
        return "there"

    async def engine(run: Run) -> Outcome[Any]:
        reply = await run_turn(run)
        doubt = await ask(run, "Is that wise?")
        results = await act(run, reply)
        return run.outcome("done", f"{doubt} {results[0].text}")

    scripted = ScriptedModel(call("look"), "Yes.")
    assert (await Agent(scripted, tools=[look], engine=engine).run("Go")).reason == "Yes. there"


async def test_the_whole_reply_can_be_had_without_its_stream():
    async def engine(run: Run) -> Outcome[Any]:
        return run.outcome("done", (await run.ask_model(question())).text)

    assert (await Agent(model("Hm."), engine=engine).run("Go")).reason == "Hm."


async def test_what_a_run_offers_says_which_model_it_is():
    async def engine(run: Run) -> Outcome[Any]:
        return run.outcome("done", repr(run.model))

    assert (await Agent(model(), engine=engine).run("Go")).reason == "AsideModel('scripted')"


async def test_a_model_whose_stream_cannot_be_closed_may_fail_too():
    class Plain:
        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> Any:
            raise ProviderDown("gone")

    async def engine(run: Run) -> Outcome[Any]:
        with pytest.raises(ProviderDown):
            await run.ask_model(question())
        return run.outcome("done")

    assert (await Agent(WrappedModel(model(), lambda _: Plain()), engine=engine).run("Go")).status == "done"


def test_the_error_at_a_limit_can_be_copied():
    error = pickle.loads(pickle.dumps(LimitExceeded("max_cost")))
    assert (error.limit, str(error)) == ("max_cost", str(LimitExceeded("max_cost")))
