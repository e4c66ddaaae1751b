"""Turns: what the model is asked, what it says, and when the run ends."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from perdure import (
    Agent,
    AllModelsFailed,
    EmptyReply,
    Extension,
    Limits,
    Message,
    ModelError,
    Outcome,
    Permissions,
    ProviderDown,
    RateLimited,
    ReplyCutOff,
    Retry,
    Session,
    Settings,
    StopReason,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolOutput,
    Usage,
    UsageError,
    tool,
    user,
)
from perdure.engines import (
    Accepted,
    Halt,
    Nudge,
    Run,
    Step,
    act,
    auto_continue,
    max_turns,
    react,
    repeated_calls,
    run_turn,
    when_tool_called,
)
from perdure.events import (
    AutoContinued,
    Custom,
    Entry,
    ErrorRaised,
    FailedOver,
    GuardrailTripped,
    Lagged,
    MessageAdded,
    ModelEvent,
    ModelRequested,
    ReplyDiscarded,
    ReplyFinished,
    RetryScheduled,
    RunEnded,
    RunWaiting,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    TurnEnded,
    UsageReported,
)
from perdure.models import ModelInfo, Request, failover, retried
from perdure.permissions import later
from perdure.testing import FakeClock, Recorder, Reply, ScriptedModel, call, calls, pause, thinking
from tests.doubles import SECONDS, NotedStore, kind, log_of, of
from tests.transcript import assert_valid

pytestmark = pytest.mark.resumed


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@tool
async def fail() -> str:
    """Fails."""
    raise ValueError("no luck")


async def nothing(run: Run) -> None:
    """An engine that forgets to say how it ended."""


def sent(model: ScriptedModel, request: int = -1) -> list[tuple[str, str]]:
    """The messages of a request: who said what."""
    return [(message.role, message.text or message.origin) for message in model.requests[request].messages]


# -- turns and the order of events -------------------------------------------------------------------------------------


async def test_an_answer_is_stored_as_a_run_with_one_turn():
    recorder = Recorder()
    outcome = await Agent(ScriptedModel("Hello."), watchers=[recorder]).run("Hi")
    assert (outcome.status, outcome.reason, outcome.text, outcome.turns) == ("done", "", "Hello.", 1)
    assert recorder.kinds == [
        "session_opened",
        "run_started",
        "message_added",
        "turn_started",
        "model_requested",
        "text_delta",
        "message_added",
        "turn_ended",
        "run_ended",
    ]
    assert {event.run_id for event in recorder.events} == {outcome.run_id}


async def test_a_turn_with_a_call_is_stored_as_reply_intent_and_result():
    recorder = Recorder()
    model = ScriptedModel(call("add", a=2, b=3), "Five.")
    outcome = await Agent(model, tools=[add], watchers=[recorder]).run("2 + 3?")
    assert (outcome.status, outcome.text, outcome.turns) == ("done", "Five.", 2)
    assert recorder.kinds == [
        "session_opened",
        "run_started",
        "message_added",
        "turn_started",
        "model_requested",
        "tool_call_delta",
        "message_added",
        "tool_started",
        "tool_finished",
        "turn_ended",
        "turn_started",
        "model_requested",
        "text_delta",
        "message_added",
        "turn_ended",
        "run_ended",
    ]
    assert [entry.seq for entry in recorder.entries if entry.seq] == [*range(1, 10)]


async def test_the_model_sees_the_call_and_its_result():
    model = ScriptedModel(call("add", a=2, b=3), "Five.")
    outcome = await Agent(model, tools=[add]).run("2 + 3?")
    assert_valid(outcome.messages)
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "tool"]
    (result,) = model.requests[1].messages[-1].tool_results
    assert (result.call_id, result.name, result.text) == ("call_1", "add", "5")


async def test_a_request_says_everything_that_the_agent_was_given():
    model = ScriptedModel("Hello.")
    settings = Settings(temperature=0.5)
    agent = Agent(model, instructions="Be brief.", tools=[add], settings=settings)
    outcome = await agent.session("s").run("Hi")
    (request,) = model.requests
    assert (request.instructions, request.settings, request.session_id) == ("Be brief.", settings, "s")
    assert [spec.name for spec in request.tools] == ["add"]
    (requested,) = of(await log_of(agent.store, "s"), ModelRequested)
    assert (requested.turn, requested.attempt, requested.model, requested.provider) == (1, 1, "scripted", "scripted")
    assert (requested.settings, requested.messages, requested.run_id) == ({"temperature": 0.5}, 1, outcome.run_id)
    assert requested.prefix


async def test_a_request_does_not_change_when_the_conversation_grows():
    model = ScriptedModel(call("add", a=1, b=1), "Two.")
    await Agent(model, tools=[add]).run("1 + 1?")
    assert [len(request.messages) for request in model.requests] == [1, 3]


async def test_usage_is_summed_over_the_turns():
    recorder = Recorder()
    model = ScriptedModel(call("add", a=1, b=1), Reply("Two.", usage=Usage(100, 1)), Reply("x", usage=None))
    outcome = await Agent(model, tools=[add], watchers=[recorder]).run("1 + 1?")
    assert outcome.usage == Usage(110, 6)
    assert [ended.usage for ended in recorder.of(TurnEnded)] == [Usage(10, 5), Usage(110, 6)]
    assert recorder.of(RunEnded)[0].usage == Usage(110, 6)


async def test_a_provider_that_does_not_tell_its_usage_costs_nothing():
    outcome = await Agent(ScriptedModel(Reply("Hello.", usage=None))).run("Hi")
    assert outcome.usage == Usage()


async def test_thinking_is_kept_and_shown():
    recorder = Recorder()
    outcome = await Agent(ScriptedModel(thinking("Hmm.", "Yes.")), watchers=[recorder]).run("Is it?")
    assert outcome.message is not None
    assert (outcome.text, outcome.message.thinking) == ("Yes.", "Hmm.")
    assert [delta.text for delta in recorder.of(ThinkingDelta)] == ["Hmm."]


async def test_a_shape_decides_what_is_sent_and_not_what_is_kept():
    async def last_only(messages: Sequence[Message]) -> Sequence[Message]:
        return messages[-1:]

    model = ScriptedModel("One.", "Two.")
    session = Agent(model, history_processor=last_only).session()
    await session.run("First")
    outcome = await session.run("Second")
    assert sent(model) == [("user", "Second")]
    assert [message.text for message in outcome.messages] == ["First", "One.", "Second", "Two."]


async def test_a_model_that_never_waits_lets_others_run():
    told, deltas, begun = 0, 1000, asyncio.Event()

    class Chatty:
        async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            nonlocal told
            begun.set()
            for _ in range(deltas):
                told += 1
                yield TextDelta("x")
            yield ReplyFinished()

    task = asyncio.ensure_future(Agent(Chatty()).run("Talk"))
    async with asyncio.timeout(SECONDS):
        await begun.wait()
        assert 0 < told < deltas
        outcome = await task
    assert outcome.text == "x" * deltas


async def test_a_watcher_of_a_run_that_never_waits_misses_nothing():
    seen: list[Entry] = []

    async def watch(entry: Entry) -> None:
        seen.append(entry)

    calls = [call("add", a=turn, b=1) for turn in range(300)]
    agent = Agent(ScriptedModel(*calls, "Done."), tools=[add], limits=Limits(max_turns=None), watchers=[watch])
    outcome = await agent.run("Add often.")
    assert [entry for entry in seen if isinstance(entry.event, Lagged)] == []
    assert [entry for entry in seen if entry.event.durable] == list(outcome.entries)


# -- replies that are no good ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [Reply(""), Reply(" \n"), thinking("Only thoughts."), [ReplyFinished()], Message("assistant", ())],
    ids=["nothing", "blanks", "thoughts", "no event", "no part"],
)
async def test_a_reply_without_words_or_calls_fails_the_run_and_is_not_kept(reply):
    agent = Agent(ScriptedModel(reply))
    outcome = await agent.session("s").run("Hi")
    assert (outcome.status, outcome.reason) == ("failed", "EmptyReply")
    assert isinstance(outcome.error, EmptyReply)
    assert "scripted answered with neither text nor calls" in str(outcome.error)
    assert [message.role for message in outcome.messages] == ["user"]
    log = await log_of(agent.store, "s")
    assert [discarded.reason for discarded in of(log, ReplyDiscarded)] == ["empty"]
    assert (log[-1].__class__, of(log, RunEnded)[0].error) == (RunEnded, str(outcome.error))


@pytest.mark.parametrize("stop", [StopReason.LENGTH, StopReason.CONTENT_FILTER, StopReason.STOP_SEQUENCE])
@pytest.mark.parametrize("parts", [(), (Thinking("Hm."),), (Text(" \n"),)], ids=["nothing", "thoughts", "blanks"])
async def test_a_reply_without_words_that_ended_for_a_stated_reason_stops_the_run_and_is_kept(stop, parts):
    reply = Message("assistant", parts, stop=stop, usage=Usage(10, 3))
    model = ScriptedModel(reply, "Here I am.")
    session = Agent(retried(model, clock=FakeClock(auto=True))).session("s")
    outcome = await session.run("Hi")
    assert (outcome.status, outcome.reason, outcome.text.strip()) == ("stopped", str(stop), "")
    assert (len(model.requests), outcome.usage, outcome.turns) == (1, Usage(10, 3), 1)
    assert outcome.messages[-1].stop is stop
    again = await session.run("Are you there?")
    assert (again.status, again.text) == ("done", "Here I am.")


async def test_an_empty_reply_to_a_request_with_stop_sequences_has_ended_at_one_of_them():
    settings = Settings(stop_sequences=("END",))
    outcome = await Agent(ScriptedModel([ReplyFinished(StopReason.STOP)]), settings=settings).run("Hi")
    assert (outcome.status, outcome.reason) == ("stopped", "stop_sequence")
    assert outcome.messages[-1].stop is StopReason.STOP_SEQUENCE


async def test_a_reply_with_words_that_ended_at_a_stop_sequence_is_an_answer():
    outcome = await Agent(ScriptedModel(Reply("Half of it", stop=StopReason.STOP_SEQUENCE))).run("Hi")
    assert (outcome.status, outcome.text) == ("done", "Half of it")


async def test_the_tokens_of_empty_replies_that_are_asked_for_again_are_counted():
    model = ScriptedModel(*[[ReplyFinished(usage=Usage(10, 3))]] * 2, Reply("Here.", usage=Usage(20, 5)))
    outcome = await Agent(retried(model, clock=FakeClock(auto=True))).run("Hi")
    assert (outcome.status, outcome.text) == ("done", "Here.")
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (40, 11)


async def test_a_stream_that_ends_without_its_end_is_a_reply_cut_off():
    agent = Agent(ScriptedModel([TextDelta("Half of "), TextDelta("it")]))
    outcome = await agent.session("s").run("Hi")
    assert (outcome.status, outcome.reason, outcome.text) == ("failed", "ReplyCutOff", "Half of it")
    assert isinstance(outcome.error, ReplyCutOff)
    assert [message.role for message in outcome.messages] == ["user"]
    (discarded,) = of(await log_of(agent.store, "s"), ReplyDiscarded)
    assert discarded.partial is not None
    assert (discarded.reason, discarded.partial.text) == ("ReplyCutOff", "Half of it")


async def test_a_stream_that_says_nothing_at_all_is_a_reply_cut_off_with_nothing_to_discard():
    agent = Agent(ScriptedModel([]))
    outcome = await agent.session("s").run("Hi")
    assert isinstance(outcome.error, ReplyCutOff)
    assert (outcome.text, outcome.message) == ("", None)
    assert not of(await log_of(agent.store, "s"), ReplyDiscarded)


async def test_calls_of_a_reply_that_was_cut_off_are_never_made():
    made: list[int] = []

    @tool
    async def act() -> None:
        """Acts."""
        made.append(1)

    outcome = await Agent(ScriptedModel([ToolCallDelta("c1", "act", "{}")]), tools=[act]).run("Go")
    assert isinstance(outcome.error, ReplyCutOff)
    assert not made


@pytest.mark.parametrize("error", [ProviderDown("gone"), ValueError("a bug"), RecursionError("deep")])
async def test_whatever_a_model_raises_is_a_failed_outcome_that_keeps_the_work(error):
    model = ScriptedModel(call("add", a=1, b=1), [TextDelta("Tw"), error])
    outcome = await Agent(model, tools=[add]).run("1 + 1?")
    assert (outcome.status, outcome.reason, outcome.error) == ("failed", type(error).__name__, error)
    assert outcome.text == "Tw"
    assert [message.role for message in outcome.messages] == ["user", "assistant", "tool"]
    assert_valid(outcome.messages)
    with pytest.raises(type(error)):
        outcome.unwrap()


async def test_a_cancel_that_nobody_here_asked_for_fails_the_run():
    outcome = await Agent(ScriptedModel(asyncio.CancelledError())).run("Go")
    assert (outcome.status, outcome.reason) == ("failed", "ModelError")
    assert "something other than this run" in str(outcome.error)


async def test_a_model_that_does_not_stream_is_a_failed_outcome():
    class Plain:
        def stream(self, request: Request) -> Any:
            return "Hello."

    outcome = await Agent(Plain()).run("Hi")
    assert isinstance(outcome.error, TypeError)


@pytest.mark.parametrize("watchers", [[], [Recorder()]], ids=["unwatched", "watched"])
async def test_a_model_that_says_something_else_than_events_is_told_off(watchers):
    class Wrong:
        async def stream(self, request: Request) -> AsyncIterator[Any]:
            yield "Hello."
            yield ReplyFinished()

    outcome = await Agent(Wrong(), watchers=watchers).run("Hi")
    assert isinstance(outcome.error, ModelError)
    assert "Wrong yielded 'Hello.', which is not an event" in str(outcome.error)


async def test_a_stream_that_is_left_early_is_closed():
    closed: list[str] = []

    class Careful:
        async def stream(self, request: Request) -> AsyncIterator[Any]:
            try:
                yield "no event"
            finally:
                closed.append("closed")

    await Agent(Careful()).run("Hi")
    assert closed == ["closed"]


async def test_a_stream_that_cannot_be_closed_is_left_as_it_is():
    class Bare:
        info = ModelInfo("bare")

        def stream(self, request: Request) -> "Bare":
            return self

        def __aiter__(self) -> "Bare":
            return self

        async def __anext__(self) -> ModelEvent:
            raise ProviderDown("gone")

    outcome = await Agent(Bare()).run("Hi")
    assert isinstance(outcome.error, ProviderDown)


async def test_words_shown_before_a_retry_are_told_as_discarded():
    recorder = Recorder()
    model = ScriptedModel([TextDelta("It is ra"), ProviderDown("gone")], "It is sunny.")
    agent = Agent(retried(model, clock=FakeClock(auto=True)), watchers=[recorder])
    outcome = await agent.run("Weather?")
    assert (outcome.status, outcome.text) == ("done", "It is sunny.")
    kinds = [each for each in recorder.kinds if each in {"text_delta", "reply_discarded", "retry_scheduled"}]
    assert kinds == ["text_delta", "reply_discarded", "retry_scheduled", "text_delta"]
    (discarded,) = recorder.of(ReplyDiscarded)
    assert discarded.partial is not None
    assert (discarded.reason, discarded.partial.text) == ("RetryScheduled", "It is ra")
    (scheduled,) = recorder.of(RetryScheduled)
    assert (scheduled.attempt, scheduled.error, scheduled.run_id) == (1, "ProviderDown", outcome.run_id)


async def test_a_retry_before_the_first_word_discards_nothing():
    recorder = Recorder()
    model = ScriptedModel(RateLimited("slow down"), "Hello.")
    outcome = await Agent(retried(model, clock=FakeClock(auto=True)), watchers=[recorder]).run("Hi")
    assert outcome.text == "Hello."
    assert not recorder.of(ReplyDiscarded)
    assert len(recorder.of(RetryScheduled)) == 1


async def test_a_failover_is_told_and_the_run_goes_on():
    recorder = Recorder()
    down, up = ScriptedModel(ProviderDown("gone"), name="down"), ScriptedModel("Hello.", name="up")
    outcome = await Agent(failover(down, up), watchers=[recorder]).run("Hi")
    assert outcome.text == "Hello."
    (event,) = recorder.of(FailedOver)
    assert (event.failed, event.next, event.error, event.run_id) == ("down", "up", "ProviderDown", outcome.run_id)


async def test_when_all_models_fail_the_outcome_names_each():
    models = [ScriptedModel(ProviderDown("gone"), name=name) for name in ("one", "two")]
    outcome = await Agent(failover(*models)).run("Hi")
    assert isinstance(outcome.error, AllModelsFailed)
    assert [name for name, _ in outcome.error.attempts] == ["one", "two"]


async def test_lone_surrogates_in_a_reply_are_replaced_before_it_is_kept():
    outcome = await Agent(ScriptedModel("broken \ud800 text")).run("Hi")
    assert outcome.text == "broken \ufffd text"


@pytest.mark.parametrize("call_id", ["", "with space", "x" * 65, "dots.and/slashes", "ümlaut"])
async def test_a_malformed_call_id_is_replaced_and_the_providers_kept(call_id):
    reply = Message("assistant", (ToolCall(call_id, "add", '{"a":1,"b":1}'),), stop=StopReason.TOOL_USE)
    events = [ReplyFinished(StopReason.TOOL_USE, message=reply)]
    outcome = await Agent(ScriptedModel(events, "Two."), tools=[add]).run("1 + 1?")
    assert_valid(outcome.messages)
    (made,) = outcome.messages[1].tool_calls
    assert (made.call_id, made.provider_call_id) == ("call_1", call_id)


async def test_a_call_id_that_was_used_before_is_replaced():
    one = ToolCall("same", "add", '{"a":1,"b":1}')
    model = ScriptedModel(calls(one, one), calls(one), "Six.")
    outcome = await Agent(model, tools=[add]).run("Add")
    assert_valid(outcome.messages)
    made = [each for message in outcome.messages for each in message.tool_calls]
    assert [each.provider_call_id for each in made] == ["", "same", "same"]
    assert len({each.call_id for each in made}) == 3


# -- how a run ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [StopReason.LENGTH, StopReason.CONTENT_FILTER])
async def test_an_answer_that_was_cut_short_is_stopped_and_says_why(stop):
    model = ScriptedModel(Reply("Once upon a", stop=stop))
    session = Agent(model).session()
    await session.follow_up("Go on")
    outcome = await session.run("Tell")
    assert (outcome.status, outcome.reason, outcome.text) == ("stopped", str(stop), "Once upon a")


@tool(terminate=True)
async def finish() -> str:
    """Ends the run."""
    return "finished"


@tool
async def maybe(end: bool) -> ToolOutput:
    """Ends the run if told to."""
    return ToolOutput("well", terminate=end)


@tool(terminate=True)
async def break_down() -> str:
    """Would end the run if it worked."""
    raise ValueError("broken")


@tool(terminate=True, permission=True)
async def forbidden() -> str:
    """Would end the run if it were allowed."""
    return "never"


@pytest.mark.parametrize(
    ("asked", "ends"),
    [
        ([call("finish")], True),
        ([call("finish"), call("maybe", end=True)], True),
        ([call("maybe", end=False)], False),
        ([call("finish"), call("maybe", end=False)], False),
        ([call("finish"), call("forbidden")], True),
        ([call("forbidden")], False),
        ([call("break_down")], False),
        ([call("finish"), call("break_down")], False),
        ([call("finish"), call("nowhere")], False),
    ],
    ids=["one", "all", "none", "some", "rest denied", "all denied", "error", "one error", "unknown"],
)
async def test_a_run_is_terminated_when_every_call_that_ran_asks_for_it_and_none_failed(asked, ends):
    model = ScriptedModel(calls(*asked), "Still here.")
    tools: list[Tool[..., Any]] = [finish, maybe, break_down, forbidden]
    outcome = await Agent(model, tools=tools).run("Go")
    assert_valid(outcome.messages)
    if ends:
        assert (outcome.status, outcome.reason, model.remaining) == ("stopped", "terminated", 1)
    else:
        assert (outcome.status, outcome.text) == ("done", "Still here.")


async def test_a_stop_condition_ends_the_run_after_the_turn():
    model = ScriptedModel(call("add", a=1, b=1), "Two.")
    outcome = await Agent(model, tools=[add], stop=when_tool_called("add")).run("1 + 1?")
    assert (outcome.status, outcome.reason, outcome.turns) == ("stopped", "stop_condition", 1)
    assert_valid(outcome.messages)


async def test_a_stop_condition_that_does_not_hold_changes_nothing():
    model = ScriptedModel(call("add", a=1, b=1), "Two.")
    outcome = await Agent(model, tools=[add], stop=max_turns(2)).run("1 + 1?")
    assert (outcome.status, outcome.text) == ("done", "Two.")


async def test_an_async_stop_condition_is_told_the_whole_step():
    steps: list[Step] = []

    async def look(step: Step) -> bool:
        steps.append(step)
        return True

    model = ScriptedModel(calls(call("add", a=1, b=1), call("add", a=2, b=2)))
    await Agent(model, tools=[add], stop=look).run("Add")
    (step,) = steps
    assert (step.turn, [result.text for result in step.results], len(step.messages)) == (1, ["2", "4"], 3)
    assert [each.call_id for each in step.calls] == [result.call_id for result in step.results]
    assert step.reply.tool_calls == tuple(step.calls)


async def test_a_stop_condition_is_asked_after_an_answer_too():
    steps: list[Step] = []

    def look(step: Step) -> bool:
        steps.append(step)
        return False

    model = ScriptedModel(call("add", a=1, b=1), "Two.")
    outcome = await Agent(model, tools=[add], stop=look).run("1 + 1?")
    assert (outcome.status, [(step.turn, len(step.calls)) for step in steps]) == ("done", [(1, 1), (2, 0)])
    assert (steps[1].reply.text, steps[1].results, len(steps[1].messages)) == ("Two.", (), 4)


async def test_a_stop_condition_is_not_asked_after_a_reply_that_ends_the_run():
    steps: list[Step] = []

    def look(step: Step) -> bool:
        steps.append(step)
        return True

    outcome = await Agent(ScriptedModel(Reply("One", stop=StopReason.LENGTH)), stop=look).run("Count.")
    assert (outcome.status, outcome.reason, steps) == ("stopped", "length", [])


# -- replies that the provider interrupts ------------------------------------------------------------------------------

PAUSED = Reply("Let me look.", stop=StopReason.PAUSE)


async def test_a_paused_reply_is_sent_back_as_it_is_and_the_run_goes_on():
    model = ScriptedModel(PAUSED, PAUSED, "Found.")
    agent = Agent(model, extensions=[Extension(name="clock", reminders=[lambda _: "It is noon."])])
    session = agent.session()
    outcome = await session.run("Look.")
    assert (outcome.status, outcome.text, outcome.turns) == ("done", "Found.", 3)
    assert sent(model) == [("user", "Look."), ("assistant", "Let me look."), ("assistant", "Let me look.")]
    assert_valid(outcome.messages)


async def test_turns_that_are_paused_for_ever_reach_the_limit():
    model = ScriptedModel(*[PAUSED] * 9)
    outcome = await Agent(model, limits=Limits(max_turns=3)).run("Look.")
    assert (outcome.status, outcome.reason, len(model.requests)) == ("limit", "max_turns", 3)
    again = await Agent(ScriptedModel(*[PAUSED] * 9), stop=lambda step: step.turn == 2).run("Look.")
    assert (again.status, again.reason, again.turns) == ("stopped", "stop_condition", 2)


async def test_what_is_said_to_a_run_whose_turn_is_paused_waits_for_the_end_of_that_turn():
    async def paused(_: Request) -> Reply:
        await session.steer("Hurry.")
        return PAUSED

    model = ScriptedModel(paused, "Found.", "Hurrying.")
    session = Agent(model).session()
    outcome = await session.run("Look.")
    assert (outcome.status, outcome.text) == ("done", "Hurrying.")
    assert sent(model, 1) == [("user", "Look."), ("assistant", "Let me look.")]
    assert sent(model, 2)[2:] == [("assistant", "Found."), ("user", "Hurry.")]


async def test_a_model_that_did_not_write_a_paused_reply_is_told_to_go_on():
    elsewhere = Message("assistant", (Text("Hm."),), provider="another", model="m", stop=StopReason.PAUSE)
    model = ScriptedModel(elsewhere, "Found.")
    assert (await Agent(model).run("Look.")).text == "Found."
    assert sent(model)[-2:] == [("assistant", "Hm."), ("user", "Go on from here.")]


async def test_a_stop_condition_ends_a_run_whose_answers_are_sent_back():
    model = ScriptedModel("One.", "Two.", "Three.", "Four.")
    again = [lambda _run, _reply: Retry("Again.")]
    outcome = await Agent(model, output_validators=again, stop=max_turns(3)).run("Go")
    assert (outcome.status, outcome.reason, outcome.turns) == ("stopped", "stop_condition", 3)
    assert outcome.text == "Three."


async def test_an_answer_that_ends_the_run_is_done_whatever_the_stop_condition_says():
    outcome = await Agent(ScriptedModel("One."), stop=lambda _: True).run("Go")
    assert (outcome.status, outcome.text) == ("done", "One.")


async def test_follow_ups_wait_when_the_stop_condition_is_true():
    session = Agent(ScriptedModel("One."), stop=lambda _: True).session()
    await session.follow_up("And then?")
    assert (await session.run("Go")).text == "One."
    assert len(await session.store.posts(session.session_id)) == 1


async def test_a_stop_condition_that_raises_fails_the_run_and_keeps_the_results():
    def broken(step: Step) -> bool:
        raise KeyError("oops")

    outcome = await Agent(ScriptedModel(call("add", a=1, b=1)), tools=[add], stop=broken).run("Add")
    assert (outcome.status, outcome.reason) == ("failed", "KeyError")
    assert outcome.messages[-1].tool_results[0].text == "2"


# -- what is said while it runs ----------------------------------------------------------------------------------------


def steering(session_of: list[Session], *words: str):
    @tool
    async def meddle() -> str:
        """Somebody talks while this runs."""
        for word in words:
            await session_of[0].steer(word)
        return "done"

    return meddle


async def test_steering_comes_after_the_results_of_the_turn():
    sessions: list[Session] = []
    model = ScriptedModel(call("meddle"), "Left it is.")
    sessions.append(Agent(model, tools=[steering(sessions, "Left!")]).session())
    outcome = await sessions[0].run("Go")
    assert outcome.status == "done"
    assert sent(model) == [("user", "Go"), ("assistant", ""), ("tool", ""), ("user", "Left!")]
    assert outcome.messages[3].origin == "steering"
    assert_valid(outcome.messages)


@pytest.mark.parametrize(("mode", "heard"), [("one", [["a"], ["a", "b"], ["a", "b", "c"]]), ("all", [["a", "b", "c"]])])
async def test_steering_is_handed_over_one_at_a_time_or_all_at_once(mode, heard):
    sessions: list[Session] = []
    model = ScriptedModel(call("meddle"), "1", "2", "3")
    sessions.append(Agent(model, tools=[steering(sessions, "a", "b", "c")], steering_mode=mode).session())
    outcome = await sessions[0].run("Go")
    said = [[each.text for each in request.messages if each.origin == "steering"] for request in model.requests[1:]]
    assert (said, outcome.status) == (heard, "done")


@pytest.mark.parametrize("option", [{"stop": when_tool_called("meddle")}, {}], ids=["stop", "terminate"])
async def test_steering_outranks_reasons_to_stop(option):
    sessions: list[Session] = []
    meddle = steering(sessions, "Wait!")
    if not option:
        meddle = tool(name="meddle", description="Ends.", terminate=True)(meddle.function)
    model = ScriptedModel(call("meddle"), "I wait.")
    sessions.append(Agent(model, tools=[meddle], **option).session())
    outcome = await sessions[0].run("Go")
    assert (outcome.status, outcome.text) == ("done", "I wait.")


async def test_steering_stays_where_it_is_when_the_limits_are_exhausted():
    sessions: list[Session] = []
    model = ScriptedModel(call("meddle"), "Hello again.", "Left it is.")
    agent = Agent(model, tools=[steering(sessions, "Left!")], limits=Limits(max_turns=1))
    sessions.append(agent.session())
    outcome = await sessions[0].run("Go")
    assert (outcome.status, outcome.reason) == ("limit", "max_turns")
    (waiting,) = await agent.store.posts(sessions[0].session_id)
    assert (waiting.kind, msgspec.convert(waiting.body, Message).text) == ("steer", "Left!")


async def test_steering_during_an_answer_makes_the_run_go_on():
    held = pause()
    model = ScriptedModel([TextDelta("Right"), held, ReplyFinished()], "Left it is.")
    session = Agent(model).session()
    run = asyncio.ensure_future(session.run("Where?"))
    async with asyncio.timeout(SECONDS):
        await held.wait_reached()
        await session.steer("Left!")
        held.release()
        outcome = await run
    assert [message.text for message in outcome.messages] == ["Where?", "Right", "Left!", "Left it is."]


async def test_steering_without_a_run_comes_at_the_beginning_of_the_next_one():
    model = ScriptedModel("I keep left.")
    session = Agent(model).session()
    await session.steer("Keep left.")
    outcome = await session.run("Go")
    assert sent(model) == [("user", "Go"), ("user", "Keep left.")]
    assert outcome.text == "I keep left."


@pytest.mark.parametrize(("mode", "heard"), [("one", [[], ["a"], ["a", "b"]]), ("all", [[], ["a", "b"]])])
async def test_follow_ups_come_when_the_run_would_end(mode, heard):
    model = ScriptedModel(call("add", a=1, b=1), "0", "1", "2")
    session = Agent(model, tools=[add], follow_up_mode=mode).session()
    await session.follow_up("a")
    await session.follow_up("b")
    outcome = await session.run("Go")
    said = [[each.text for each in request.messages if each.origin == "follow_up"] for request in model.requests]
    assert (said[1:], outcome.status) == (heard, "done")
    assert_valid(outcome.messages)


async def test_follow_ups_do_not_prolong_a_run_that_was_stopped():
    model = ScriptedModel(call("finish"))
    session = Agent(model, tools=[finish]).session()
    await session.follow_up("And then?")
    outcome = await session.run("Go")
    assert outcome.reason == "terminated"
    assert len(await session.store.posts(session.session_id)) == 1


async def test_follow_ups_wait_when_the_limits_are_exhausted():
    session = Agent(ScriptedModel("One."), limits=Limits(max_turns=1)).session()
    await session.follow_up("And then?")
    outcome = await session.run("Go")
    assert (outcome.status, outcome.text) == ("done", "One.")
    assert len(await session.store.posts(session.session_id)) == 1


# -- is this the end? --------------------------------------------------------------------------------------------------


async def test_a_reply_that_is_not_accepted_goes_back_with_the_feedback():
    def accept(run: Run, reply: Message) -> Accepted | Retry:
        return Accepted() if reply.text.isupper() else Retry("Louder!", event=Custom("louder", 1))

    agent = Agent(ScriptedModel("hello", "HELLO"), output_validators=[accept])
    outcome = await agent.session("s").run("Shout")
    assert [(each.text, each.origin) for each in outcome.messages][2] == ("Louder!", "feedback")
    assert outcome.text == "HELLO"
    (custom,) = of(await log_of(agent.store, "s"), Custom)
    assert (custom.name, custom.run_id) == ("louder", outcome.run_id)


async def test_a_reply_that_is_not_accepted_when_a_limit_is_reached_hits_the_limit():
    agent = Agent(
        ScriptedModel("No."), output_validators=[lambda _run, _reply: Retry("Say yes.")], limits=Limits(max_turns=1)
    )
    outcome = await agent.run("Go")
    assert (outcome.status, outcome.reason, outcome.text) == ("limit", "max_turns", "No.")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"output_validators": [lambda _run, _reply: True]},
            "output_validators function .* returned True: .* Accepted\\(\\) or Retry",
        ),
        (
            {"history_processor": lambda _messages: "words"},
            "history_processor function .* returned None: .* a list of messages",
        ),
        ({"engine": nothing}, "engine function .* returned None: .* an Outcome"),
    ],
)
async def test_a_function_that_returns_something_else_is_named(options, words):
    agent = Agent(ScriptedModel("Yes."), **options)
    outcome = await agent.session("s").run("Go")
    assert (outcome.status, outcome.reason) == ("failed", "ConfigError")
    assert re.search(words, str(outcome.error))
    assert len(of(await log_of(agent.store, "s"), RunEnded)) == 1


async def test_a_shape_may_be_a_plain_function():
    model = ScriptedModel("Yes.")
    await Agent(model, history_processor=lambda messages: messages[-1:]).run("Go")
    assert sent(model) == [("user", "Go")]


async def test_what_broke_off_is_forgotten_once_there_is_an_answer():
    async def stubborn(run: Run) -> Outcome[Any]:
        try:
            return await react(run)
        except ModelError:
            return await react(run)

    model = ScriptedModel([TextDelta("half"), ProviderDown("gone")], "whole")
    outcome = await Agent(model, engine=stubborn).run("Go")
    assert (outcome.status, outcome.text) == ("done", "whole")


async def test_what_was_thrown_away_has_been_paid_for():
    cut: list[Any] = [TextDelta("half"), UsageReported(Usage(70, 5)), ProviderDown("gone")]
    model = ScriptedModel(cut, Reply("whole", usage=Usage(10, 1)))
    outcome = await Agent(retried(model, clock=FakeClock(auto=True))).run("Go")
    assert outcome.usage == Usage(80, 6, precision="partial")


async def test_all_who_are_asked_have_to_accept():
    asked: list[str] = []

    async def first(run: Run, reply: Message) -> Accepted:
        asked.append("first")
        return Accepted()

    def second(run: Run, reply: Message) -> Accepted | Retry:
        asked.append("second")
        return Retry("Once more.") if len(run.messages) < 4 else Accepted()

    outcome = await Agent(ScriptedModel("a", "b"), output_validators=[first, second]).run("Go")
    assert (outcome.text, asked) == ("b", ["first", "second"] * 2)


async def test_a_model_that_announces_and_stops_is_told_to_go_on_at_most_twice():
    agent = Agent(ScriptedModel("Let me look.", repeat_last=True), tools=[add], output_validators=[auto_continue()])
    outcome = await agent.session("s").run("Look")
    assert (outcome.status, outcome.turns) == ("done", 3)
    assert [each.text for each in outcome.messages if each.origin == "auto_continue"] == ["Please continue."] * 2
    assert [event.count for event in of(await log_of(agent.store, "s"), AutoContinued)] == [1, 2]


async def test_without_tools_nobody_is_told_to_go_on():
    outcome = await Agent(ScriptedModel("Let me look."), output_validators=[auto_continue()]).run("Look")
    assert outcome.turns == 1


# -- going in circles --------------------------------------------------------------------------------------------------


async def test_the_same_call_again_and_again_is_nudged_and_then_halted():
    agent = Agent(ScriptedModel(call("add", a=1, b=1), repeat_last=True), tools=[add])
    outcome = await agent.session("s").run("1 + 1?")
    assert (outcome.status, outcome.reason, outcome.turns) == ("stopped", "repeat", 5)
    log = await log_of(agent.store, "s")
    assert [(event.guardrail, event.count, event.action) for event in of(log, GuardrailTripped)] == [
        ("repeat", 3, "nudge"),
        ("repeat", 5, "halt"),
    ]
    (nudge,) = [each for each in outcome.messages if each.origin == "guardrail"]
    assert "the same call 3 times" in nudge.text
    assert_valid(outcome.messages)


async def test_turns_in_which_everything_fails_are_nudged_and_then_halted():
    numbers = iter(range(100))
    model = ScriptedModel(lambda _: calls(call("fail"), call("nowhere", n=next(numbers))), repeat_last=True)
    agent = Agent(model, tools=[fail])
    outcome = await agent.session("s").run("Try")
    assert (outcome.status, outcome.reason, outcome.turns) == ("stopped", "mistakes", 6)
    assert [event.count for event in of(await log_of(agent.store, "s"), GuardrailTripped)] == [3, 6]


async def test_a_halt_comes_before_any_nudge():
    def start_nudging():
        def nudging(step: Step) -> Nudge:
            return Nudge("Careful.", 1)

        return nudging

    def start_halting():
        def halting(step: Step) -> Halt:
            return Halt(1)

        return halting

    model = ScriptedModel(call("add", a=1, b=1))
    agent = Agent(model, tools=[add], guardrails=[start_nudging, start_halting])
    outcome = await agent.run("Go")
    assert (outcome.status, outcome.reason) == ("stopped", "halting")
    assert not [each for each in outcome.messages if each.origin == "guardrail"]


async def test_a_guardrail_may_be_any_callable():
    class Watchful:
        def __call__(self, step: Step) -> Halt:
            return Halt(1)

    outcome = await Agent(ScriptedModel(call("add", a=1, b=1)), tools=[add], guardrails=[Watchful]).run("Go")
    assert (outcome.status, outcome.reason) == ("stopped", "Watchful")


@pytest.mark.parametrize("said", ["careful", True, Halt])
async def test_a_guardrail_that_says_anything_but_nudge_or_halt_fails_the_run(said):
    def start_odd():
        def odd(step: Step) -> Any:
            return said

        return odd

    model = ScriptedModel(call("add", a=1, b=1), "Two.")
    outcome = await Agent(model, tools=[add], guardrails=[start_odd]).run("Go")
    assert (outcome.status, outcome.reason, len(model.requests)) == ("failed", "ConfigError", 1)


async def test_a_guardrail_may_be_async():
    def start():
        async def patient(step: Step) -> Halt | None:
            return Halt(1) if step.turn == 2 else None

        return patient

    model = ScriptedModel(*[call("add", a=each, b=1) for each in range(3)])
    outcome = await Agent(model, tools=[add], guardrails=[start]).run("Go")
    assert (outcome.status, outcome.reason, outcome.turns) == ("stopped", "patient", 2)


async def test_guardrails_count_anew_in_each_run():
    twice = [call("add", a=1, b=1)] * 2
    model = ScriptedModel(*twice, "Two.", *twice, "Two.")
    session = Agent(model, tools=[add], guardrails=[repeated_calls()]).session("s")
    await session.run("1 + 1?")
    await session.run("Again?")
    assert not of(await log_of(session.store, "s"), GuardrailTripped)


# -- engines of others -------------------------------------------------------------------------------------------------


async def test_an_engine_may_be_any_function_of_a_run():
    async def echo(run: Run) -> Outcome[Any]:
        await run.emit(MessageAdded(Message("assistant", (Text("Echo."),)), run_id=run.run_id))
        return run.outcome("done")

    outcome = await Agent(ScriptedModel(), engine=echo).run("Hi")
    assert (outcome.status, outcome.text) == ("done", "Echo.")


async def test_an_event_of_an_engine_is_stored_with_those_given_beside_it_or_not_at_all():
    store = NotedStore()

    async def quiet(run: Run) -> Outcome[Any]:
        await run.emit()
        await run.emit(Custom("a"), Custom("b"))
        return run.outcome("done")

    await Agent(ScriptedModel(), engine=quiet, store=store).run("Hi")
    assert [append.kinds for append in store.appends if append.events][1] == ["custom", "custom"]


async def test_every_event_is_one_of_its_run():
    recorder = Recorder()
    model = ScriptedModel(call("add", a=1, b=1), "Two.")
    outcome = await Agent(model, tools=[add], watchers=[recorder]).run(user("1 + 1?"))
    assert {kind(event) for event in recorder.events if event.run_id != outcome.run_id} == set()


async def test_a_warning_of_a_model_is_shown_and_is_no_part_of_its_reply():
    class Careful:
        async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            yield ErrorRaised("BadRequest", "the tool 'x' is left out", "model")
            yield RetryScheduled(1, 2, 0.0, "ProviderDown", "down")
            yield TextDelta("hello")
            yield ReplyFinished(StopReason.STOP)

    recorder = Recorder()
    outcome = await Agent(Careful(), watchers=[recorder]).run("go")
    assert outcome.text == "hello"
    assert "error_raised" in recorder.kinds
    assert "reply_discarded" not in recorder.kinds


async def test_an_engine_has_to_carry_out_the_calls_of_a_reply_before_it_asks_again() -> None:
    told: list[str] = []

    async def hasty(run: Run) -> Outcome[Any]:
        reply = await run_turn(run)
        with pytest.raises(UsageError) as refused:
            await run_turn(run)
        told.append(str(refused.value))
        await act(run, reply)
        return await react(run)

    model = ScriptedModel(call("add", a=1, b=1), "Two.")
    outcome = await Agent(model, tools=[add], engine=hasty).run("1 + 1?")
    assert (outcome.status, outcome.text, outcome.turns) == ("done", "Two.", 2)
    assert told == ["the calls of the last reply have no results yet: await act(run, reply) before the next turn"]


async def test_an_engine_cannot_ask_twice_at_once() -> None:
    told: list[str] = []

    async def twice(run: Run) -> Outcome[Any]:
        first = asyncio.ensure_future(run_turn(run))
        while not model.requests:  # noqa: ASYNC110 - the thing waited for has no event of its own
            await asyncio.sleep(0)
        with pytest.raises(UsageError) as refused:
            await run_turn(run)
        told.append(str(refused.value))
        free.set()
        await first
        return run.outcome("done")

    free = asyncio.Event()
    model = ScriptedModel([free, TextDelta("Hi"), ReplyFinished()])
    outcome = await Agent(model, engine=twice).run("Hello")
    assert (outcome.status, outcome.text, len(model.requests)) == ("done", "Hi", 1)
    assert told == ["this run waits for a reply already: await run_turn(run) before you call it again"]


# -- waiting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [None, 60.0])
async def test_a_run_that_waits_says_for_which_questions_and_until_when_and_loses_nothing(
    seconds: float | None,
) -> None:
    @tool(permission=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    store, clock = NotedStore(), FakeClock()
    gate = Permissions(handler=later, expires_seconds=seconds)
    model = ScriptedModel(calls(call("pay", amount=1), call("pay", amount=2)), "Never mind.")
    session = Agent(model, tools=[pay], store=store, clock=clock, permission=gate).session("s")
    outcome = await session.run("Pay")
    assert (outcome.status, outcome.reason) == ("waiting", "question")
    (waiting,) = of(await log_of(store, "s"), RunWaiting)
    due_at = None if seconds is None else clock.now() + seconds
    assert waiting == RunWaiting(
        tuple(each.ask_id for each in outcome.questions), due_at, "question", run_id=outcome.run_id
    )
    assert len(outcome.questions) == 1
    assert [each.sync for each in store.appends if waiting in each.events] == [True]
    await session.aclose()


@pytest.mark.parametrize(("effect", "sync"), [("read", False), ("at_most_once", True)])
async def test_the_intent_of_a_call_that_only_reads_is_not_synced(effect: Any, sync: bool) -> None:
    @tool(effect=effect)
    async def look() -> str:
        """Look."""
        return "seen"

    store = NotedStore()
    await Agent(ScriptedModel(call("look"), "Done."), tools=[look], store=store).run("Go")
    assert [each.sync for each in store.appends if "tool_started" in each.kinds] == [sync]
    assert [each.sync for each in store.appends if "run_ended" in each.kinds] == [True]


async def test_a_run_that_ends_by_a_model_that_says_no_event_names_what_it_said() -> None:
    class Odd:
        info = ModelInfo("odd")

        async def stream(self, request: Request) -> AsyncIterator[Any]:
            yield TextDelta("Hel")
            yield "lo"

    recorder = Recorder()
    outcome = await Agent(Odd(), watchers=[recorder]).run("Hi")
    assert (outcome.status, outcome.reason, str(outcome.error)) == (
        "failed",
        "ModelError",
        "odd yielded 'lo', which is not an event: a model yields deltas and one ReplyFinished",
    )
    (discarded,) = recorder.of(ReplyDiscarded)
    assert (discarded.turn, discarded.reason) == (1, "ModelError")
    assert discarded.partial is not None
    assert discarded.partial.text == "Hel"
