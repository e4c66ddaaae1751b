"""A kept session, run again: what agrees, what does not, and what was served from the log."""

import asyncio

import msgspec
import pytest

from perdure import (
    Agent,
    Image,
    Limits,
    Outcome,
    Permissions,
    ProviderDown,
    RateLimited,
    Retry,
    SessionNotFound,
    Settings,
    Status,
    StoreError,
    Text,
    Thinking,
    ToolContext,
    Usage,
    UsageError,
    allow,
    assistant,
    deny,
    tool,
    user,
)
from perdure._work.replay.differences import describe_event
from perdure.engines import auto_continue, max_turns, react, run_turn
from perdure.events import (
    AutoContinued,
    Compacted,
    CompactionStarted,
    Entry,
    GuardrailTripped,
    InboxResolved,
    MessageAdded,
    ModelEvent,
    ModelRequested,
    PermissionDecided,
    ReplyDiscarded,
    ReplyFinished,
    RunEnded,
    RunStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolFinished,
    ToolsChanged,
    UsageReported,
    ViewChanged,
)
from perdure.models import failover, retried
from perdure.permissions import Grants, Verdict, later
from perdure.stores import MemoryStore
from perdure.testing import Divergence, FakeClock, Reply, ScriptedModel, Source, call, calls, pause, replay
from perdure.tools import around, before, truncated

pytestmark = pytest.mark.resumed

DONE: list[str] = []
"""What tools have really done."""


@pytest.fixture(autouse=True)
def _nothing_done():
    DONE.clear()


@tool(effect="read")
async def depth(harbour: str) -> int:
    """The depth of a harbour in metres."""
    DONE.append(harbour)
    return {"Bergen": 12}[harbour]


@tool(permission=True)
async def moor(place: str) -> str:
    """Moor the boat."""
    DONE.append(place)
    return f"moored at {place}"


def two_turns() -> ScriptedModel:
    return ScriptedModel(call("depth", harbour="Bergen"), "12 metres.")


async def recorded(agent: Agent, *prompts: str) -> Agent:
    """The agent, whose session `s` has been run."""
    for prompt in prompts or ("How deep is Bergen?",):
        await agent.session("s").run(prompt)
    DONE.clear()
    return agent


async def agreeing(agent: Agent, **given):
    """Replay session `s`, which has to agree, and make sure that nothing was really done."""
    entries = await agent.store.read("s")
    replayed = await replay(agent, "s", **given)
    assert replayed.divergence is None, str(replayed.divergence)
    assert DONE == []
    assert await agent.store.read("s") == entries
    return replayed


async def diverging(agent: Agent, source: Source = "s") -> Divergence:
    """Replay a session, which must not agree, and make sure that nothing was really done."""
    replayed = await replay(agent, source)
    assert replayed.divergence is not None
    assert not replayed.agrees
    assert DONE == []
    return replayed.divergence


async def branching(agent: Agent, **given) -> Outcome:
    """Replay session `s` up to an entry, go on live, and say how that ended."""
    replayed = await replay(agent, "s", **given)
    assert replayed.branch is not None
    return replayed.branch


# -- what agrees -------------------------------------------------------------------------------------------------------


async def test_a_session_is_replayed_without_asking_a_model_or_calling_a_tool():
    model = ScriptedModel(call("depth", harbour="Bergen"), "12 metres.", "Yes.")
    agent = await recorded(Agent(model, tools=[depth]), "How deep is Bergen?", "Sure?")
    replayed = await agreeing(agent)
    assert (replayed.runs, replayed.turns, replayed.skipped) == (2, 3, 0)
    assert [outcome.text for outcome in replayed.outcomes] == ["12 metres.", "Yes."]
    assert len(model.requests) == 3


async def test_entries_can_be_replayed_without_a_store():
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    assert (await replay(agent, await agent.store.read("s"))).agrees


async def test_calls_that_ended_in_another_order_agree():
    first, second = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def slow() -> str:
        """Wait for the other one."""
        await first.wait()
        second.set()
        return "late"

    @tool(effect="read")
    async def quick() -> str:
        """Go first."""
        first.set()
        return "early"

    agent = Agent(ScriptedModel(calls(call("slow"), call("quick")), "Both."), tools=[slow, quick])
    agent = await recorded(agent)
    finished = [entry.event.name for entry in await agent.store.read("s") if isinstance(entry.event, ToolFinished)]
    assert finished == ["quick", "slow"]
    await agreeing(agent)


async def test_what_a_model_got_wrong_is_answered_again():
    model = ScriptedModel(
        calls(call("deep"), call("depth", harbour=3), call("depth", '{"harb'), call("depth", harbour="Atlantis")), "Hm."
    )
    await agreeing(await recorded(Agent(model, tools=[depth])))


async def test_a_result_is_not_shortened_twice():
    @tool(effect="read")
    async def tell() -> str:
        """Tell a lot."""
        return "word " * 100

    agent = Agent(ScriptedModel(call("tell"), "Long."), tools=[truncated(tell, 20)])
    await agreeing(await recorded(agent))


async def test_steering_and_follow_ups_come_at_the_same_places():
    @tool(effect="read")
    async def think(context: ToolContext[None]) -> str:
        """Let somebody say something."""
        await session.steer("Be quick.")
        await session.steer("And brief.")
        return "thought"

    agent = Agent(ScriptedModel(call("think"), "One.", "Two.", "Three."), tools=[think], steering_mode="all")
    session = agent.session("s")
    await session.steer("Hello before.")
    await session.follow_up("Anything else?")
    await session.follow_up("Really?")
    await session.run("Think.")
    replayed = await agreeing(agent)
    said = [message.text for message in replayed.outcomes[0].messages if message.role == "user"]
    assert said == ["Think.", "Hello before.", "Be quick.", "And brief.", "Anything else?", "Really?"]


async def test_what_the_runtime_says_by_itself_is_said_again():
    model = ScriptedModel("I will look.", call("depth", harbour="x"), call("depth", harbour="x"), repeat_last=True)
    agent = await recorded(Agent(model, tools=[depth], output_validators=[auto_continue()]))
    replayed = await agreeing(agent)
    assert (replayed.outcomes[0].status, replayed.outcomes[0].reason) == ("stopped", "repeat")


async def test_a_model_that_failed_fails_again():
    agent = await recorded(Agent(ScriptedModel(ProviderDown("no line"))))
    replayed = await agreeing(agent)
    assert isinstance(replayed.outcomes[0].error, ProviderDown)


async def test_an_error_of_a_class_that_is_not_ours_has_its_name_again():
    broken: list[TextDelta | Exception] = [TextDelta("Well"), ValueError("odd")]
    agent = await recorded(Agent(ScriptedModel(broken)))
    replayed = await agreeing(agent)
    assert (replayed.outcomes[0].reason, str(replayed.outcomes[0].error)) == ("ValueError", "odd")


@pytest.mark.parametrize("reply", [Reply(""), [TextDelta("And th")], [RateLimited("slow down")]])
async def test_replies_that_came_to_nothing_come_to_nothing_again(reply):
    await agreeing(await recorded(Agent(ScriptedModel(reply))))


async def test_attempts_that_were_discarded_are_discarded_again():
    broken: list[TextDelta | Exception] = [TextDelta("And th"), RateLimited("slow down")]
    model = retried(ScriptedModel(broken, "And there."), clock=FakeClock(auto=True))
    replayed = await agreeing(await recorded(Agent(model)))
    assert replayed.outcomes[0].text == "And there."


async def test_what_had_come_of_a_reply_comes_again_whole():
    said: list[ModelEvent | Exception] = [
        ThinkingDelta("Hm", "signed"),
        TextDelta("And th"),
        ToolCallDelta("a", "depth", '{"harb'),
        UsageReported(Usage(input_tokens=7)),
        ProviderDown("no line"),
    ]
    model = failover(
        ScriptedModel(RateLimited("not now")), retried(ScriptedModel(said, "So."), clock=FakeClock(auto=True))
    )
    agent = await recorded(Agent(model, tools=[depth]))
    replayed = await agreeing(agent)
    events = [entry.event for entry in await agent.store.read("s")]
    assert [event.reason for event in events if isinstance(event, ReplyDiscarded)] == ["RetryScheduled"]
    assert replayed.outcomes[0].usage.input_tokens == 7 + 10


async def test_a_limit_ends_the_run_again():
    model = ScriptedModel(call("depth", harbour="Bergen"), repeat_last=True)
    agent = Agent(model, tools=[depth], limits=Limits(max_turns=2))
    replayed = await agreeing(await recorded(agent))
    assert replayed.outcomes[0].reason == "max_turns"


async def test_what_was_asked_of_a_run_in_particular_is_asked_again():
    agent = Agent(ScriptedModel("One.", "Two."))
    settings, limits = Settings(temperature=0.5), Limits(max_turns=1)
    await agent.session("s").run("One?", instructions="Be brief.", settings=settings, limits=limits)
    await agent.session("s").run("Two?")
    await agreeing(agent)


async def test_a_call_without_a_model_is_skipped():
    agent = Agent(two_turns(), tools=[depth])
    await agent.session("s").call("depth", {"harbour": "Bergen"})
    replayed = await agreeing(await recorded(agent))
    assert (replayed.runs, replayed.skipped) == (1, 1)


async def test_a_run_that_was_woken_is_woken_again():
    agent = Agent(ScriptedModel("One.", "Two."))
    await agent.session("s").run("One?")
    await agent.session("s").follow_up("And two?")
    await agent.session("s").wake()
    replayed = await agreeing(agent)
    assert [outcome.text for outcome in replayed.outcomes] == ["One.", "Two."]


async def test_what_the_inbox_brought_is_brought_again():
    @tool(effect="read")
    async def order(context: ToolContext[None]) -> str:
        """Order something that takes a while."""
        items.append(await context.add_to_inbox("shop", "a rope", blocking=True))
        if len(items) == 1:
            await session.resolve(items[0], "on its way")
        return "ordered"

    items: list[str] = []
    agent = Agent(ScriptedModel(call("order"), call("order"), "Waiting.", "It is here."), tools=[order])
    session = agent.session("s")
    await session.run("Order ropes.")
    await session.resolve(items[1], "here")
    await session.run("Well?")
    await agreeing(agent)


@pytest.mark.in_memory("a tool that came while a run was going")
async def test_tools_that_came_while_it_ran_come_again():
    @tool(effect="read")
    async def learn(context: ToolContext[None]) -> str:
        """Learn something."""
        context.add_tools(depth)
        return "learnt"

    agent = Agent(ScriptedModel(call("learn"), call("depth", harbour="Bergen"), "12."), tools=[learn])
    agent = await recorded(agent)
    with pytest.raises(UsageError, match=r"tools that other tools have added \(depth\): give added="):
        await replay(agent, "s")
    await agreeing(agent, added=[depth])


# -- what people decided -----------------------------------------------------------------------------------------------


async def test_somebody_who_was_asked_is_not_asked_again():
    asked: list[str] = []

    def ask(requests):
        asked.extend(each.target for each in requests)
        return [Verdict(allow="Oslo" not in each.target, reason="not there") for each in requests]

    model = ScriptedModel(calls(call("moor", place="Bergen"), call("moor", place="Oslo")), "Moored.")
    agent = await recorded(Agent(model, tools=[moor], permission=Permissions(handler=ask)))
    assert len(asked) == 2
    await agreeing(agent)
    assert len(asked) == 2


@pytest.mark.parametrize("scope", ["session", "forever"])
async def test_a_verdict_that_was_remembered_is_remembered_again_and_not_shared(scope):
    permission = Permissions(handler=lambda requests: [Verdict(True, scope=scope)] * len(requests), grants=Grants())
    model = ScriptedModel(call("moor", place="Bergen"), call("moor", place="Bergen"), "Moored.")
    agent = await recorded(Agent(model, tools=[moor], permission=permission))
    grants = list(permission.grants)
    await agreeing(agent)
    assert list(permission.grants) == grants


async def test_a_run_that_waited_for_an_answer_does_not_wait_again():
    model = ScriptedModel(call("moor", place="Bergen"), "Moored.")
    agent = Agent(model, tools=[moor], permission=Permissions(handler=later))
    session = agent.session("s")
    outcome = await session.run("Moor.")
    assert outcome.status == "waiting"
    assert (await agreeing(agent)).outcomes == ()
    await session.answer(outcome.questions[0].ask_id, answer=True)
    await session.resume()
    DONE.clear()
    assert [outcome.status for outcome in (await agreeing(agent)).outcomes] == ["done"]


async def test_a_question_that_nobody_answered_is_left_open_again():
    model = ScriptedModel(call("moor", place="Bergen"), "Never mind.")
    agent = Agent(model, tools=[moor], permission=Permissions(handler=later))
    await recorded(agent, "Moor.", "Forget it.")
    assert [outcome.text for outcome in (await agreeing(agent)).outcomes] == ["Never mind."]


async def test_a_denial_that_is_gone_is_a_divergence():
    model = ScriptedModel(call("moor", place="Bergen"), "No.")
    agent = await recorded(Agent(model, tools=[moor], permission=Permissions(deny("moor"))))
    divergence = await diverging(agent.replace(permission=Permissions(allow("moor"))))
    assert (divergence.about, divergence.what) == ("permission", "the call of 'moor' is not denied any more")


async def test_a_denial_that_is_new_is_a_divergence():
    model = ScriptedModel(call("moor", place="Bergen"), "Moored.")
    agent = await recorded(Agent(model, tools=[moor], permission=Permissions(allow("moor"))))
    divergence = await diverging(agent.replace(permission=Permissions(deny("moor"))))
    assert (divergence.about, divergence.what) == ("permission", "the call of 'moor' is denied now")
    assert '+call of moor on {"place":"Bergen"}: denied' in divergence.diff.splitlines()


async def test_a_question_that_is_not_asked_any_more_is_a_divergence():
    def ask(requests):
        return [Verdict(True)] * len(requests)

    model = ScriptedModel(call("moor", place="Bergen"), "Moored.")
    agent = await recorded(Agent(model, tools=[moor], permission=Permissions(handler=ask)))
    divergence = await diverging(agent.replace(permission=Permissions(allow("moor"))))
    assert divergence.what == "the call of 'moor' is made without approval"


async def test_a_question_that_is_new_is_a_divergence():
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    asking = msgspec.structs.replace(depth, permission=True)
    divergence = await diverging(agent.replace(tools=[asking], permission=Permissions()))
    assert divergence.what == "approval is requested for the call of 'depth', and was not then"


# -- what does not agree -----------------------------------------------------------------------------------------------


async def test_other_instructions_are_a_divergence_at_the_first_request():
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    divergence = await diverging(agent.replace(instructions="Be brief."))
    assert (divergence.seq, divergence.about) == (3, "request")
    assert divergence.what == "the request of turn 1 is another one: the instructions"


async def test_a_document_that_tells_the_instructions_shows_what_has_changed_in_them():
    from perdure.stores import export_session

    agent = await recorded(Agent(two_turns(), tools=[depth], instructions="Be brief.\nBe kind."))
    document = await export_session(agent.store, "s", prefixes=(await replay(agent, "s")).prefixes)

    @tool(name="depth", effect="read")
    async def deeper(harbour: str, *, unit: str = "m") -> int:
        """The depth of a harbour in metres."""
        return 12

    changed = agent.replace(instructions="Be brief.\nBe bold.", tools=[deeper])
    diff = (await diverging(changed, document)).diff.splitlines()
    assert "-  Be kind." in diff
    assert "+  Be bold." in diff
    assert '+      "unit": {' in diff


async def test_a_tool_that_is_gone_is_named():
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    divergence = await diverging(agent.replace(tools=[]))
    assert "+tool depth is not offered" in divergence.diff


async def test_other_settings_are_a_divergence():
    agent = await recorded(Agent(ScriptedModel("Hi.")))
    divergence = await diverging(agent.replace(settings=Settings(temperature=0.1)))
    assert divergence.what == "the request of turn 1 is another one: its settings"
    assert '+settings: {"temperature":0.1}' in divergence.diff


async def test_other_messages_are_shown_one_by_one():
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    divergence = await diverging(agent.replace(history_processor=lambda messages: messages[:1]))
    assert divergence.what == "the request of turn 2 is another one: the messages"
    assert "-result of depth: ok" in divergence.diff
    assert str(divergence).startswith(
        "entry 7: the request of turn 2 is another one: the messages\n--- recorded\n+++ now"
    )


async def test_arguments_that_are_refused_now_are_a_divergence():
    @tool(effect="read", name="depth", description=depth.description)
    async def strict(harbour: int) -> int:
        """The depth of a harbour in metres."""
        return harbour

    agent = await recorded(Agent(two_turns(), tools=[depth]))
    spec = msgspec.structs.replace(strict, parameters=_with_schema_of(depth, strict))
    divergence = await diverging(agent.replace(tools=[spec]))
    assert (divergence.about, divergence.what) == ("call", "the call of 'depth' is not made any more")
    assert '-call depth {"harbour":"Bergen"}' in divergence.diff
    assert "+result of depth: error" in divergence.diff


def _with_schema_of(shown, checking):
    """Parameters that tell the model what one tool takes, and take what another does."""
    import copy

    parameters = copy.copy(checking.parameters)
    object.__setattr__(parameters, "json_schema", shown.parameters.json_schema)
    return parameters


async def test_a_call_that_was_refused_and_is_made_now_is_a_divergence():
    model = ScriptedModel(call("depth", harbour="Bergen"), "Hm.")
    agent = await recorded(Agent(model, tools=[before(depth, _refuse)]))
    divergence = await diverging(agent.replace(tools=[depth]))
    assert divergence.what == "the call of 'depth' is made now"


def _refuse(_call, arguments):
    return {"harbour": 3}


async def test_a_hook_that_changes_the_arguments_is_a_divergence():
    model = ScriptedModel(call("moor", place="Bergen"), "Moored.")
    agent = await recorded(Agent(model, tools=[moor], permission=Permissions(allow("moor"))))
    hooked = before(moor, lambda _call, arguments: {"place": arguments["place"].upper()})
    divergence = await diverging(agent.replace(tools=[hooked]))
    assert divergence.what == "the call of 'moor' is made with other arguments"
    assert '+call moor {"place":"BERGEN"}' in divergence.diff


async def test_a_result_that_is_made_otherwise_is_a_divergence():
    agent = await recorded(Agent(ScriptedModel(call("deep"), "Hm."), tools=[depth]))
    entries = list(await agent.store.read("s"))
    place = next(place for place, entry in enumerate(entries) if isinstance(entry.event, ToolFinished))
    event = entries[place].event
    assert isinstance(event, ToolFinished)
    result = msgspec.structs.replace(event.result, status=Status.UNKNOWN)
    entries[place] = msgspec.structs.replace(entries[place], event=msgspec.structs.replace(event, result=result))
    divergence = await diverging(agent, entries)
    assert (divergence.seq, divergence.what) == (place + 1, "the call of 'deep' ends otherwise")


async def test_of_two_calls_that_ended_in_another_order_the_one_that_differs_is_named():
    model = ScriptedModel(calls(call("depth", harbour="Bergen"), call("deep")), "Hm.")
    agent = await recorded(Agent(model, tools=[depth]))
    entries = list(await agent.store.read("s"))
    first, second = (place for place, entry in enumerate(entries) if isinstance(entry.event, ToolFinished))
    finished = {entry.event.name: entry.event for entry in entries if isinstance(entry.event, ToolFinished)}
    unlike = msgspec.structs.replace(finished["deep"].result, status=Status.UNKNOWN)
    entries[first] = msgspec.structs.replace(entries[first], event=finished["depth"])
    entries[second] = msgspec.structs.replace(
        entries[second], event=msgspec.structs.replace(finished["deep"], result=unlike)
    )
    divergence = await diverging(agent, entries)
    assert (divergence.seq, divergence.what) == (second + 1, "the call of 'deep' ends otherwise")


async def test_a_call_that_only_an_engine_of_now_makes_is_a_divergence():
    async def diligent(run):
        outcome = await react(run)
        await run.call_tool("depth", {"harbour": "Bergen"})
        return outcome

    agent = await recorded(Agent(ScriptedModel("Hi."), tools=[depth]))
    divergence = await diverging(agent.replace(engine=diligent))
    assert (divergence.seq, divergence.about) == (5, "call")


async def test_another_ending_is_a_divergence():
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    divergence = await diverging(agent.replace(stop=max_turns(1)))
    assert (divergence.about, divergence.what) == ("ending", "the run ends here now")
    assert "+the run ends: stopped (stop_condition)" in divergence.diff


async def test_a_model_that_is_asked_once_more_is_a_divergence():
    agent = await recorded(Agent(two_turns(), tools=[depth], stop=max_turns(1)))
    divergence = await diverging(agent.replace(stop=None))
    assert (divergence.about, divergence.what) == ("request", "the model is asked once more than recorded")
    assert divergence.seq == 7


async def test_a_reason_that_differs_is_a_divergence():
    looping = ScriptedModel(call("depth", harbour="Bergen"), repeat_last=True)
    agent = await recorded(Agent(looping, tools=[depth], limits=Limits(max_turns=2)))
    divergence = await diverging(agent.replace(limits=Limits(max_turns=50, token_budget=30)))
    assert divergence.what == "the run ends otherwise"


async def test_a_message_that_the_runtime_does_not_say_any_more_is_a_divergence():
    agent = await recorded(
        Agent(ScriptedModel("I will look.", "Done."), tools=[depth], output_validators=[auto_continue()])
    )
    divergence = await diverging(agent.replace(output_validators=[]))
    assert divergence.about == "ending"
    divergence = await diverging(agent.replace(output_validators=[auto_continue(text="Go on!")]))
    assert (divergence.about, divergence.what) == ("message", "another message is added to the conversation")


async def test_an_engine_that_asks_the_model_beside_the_conversation_is_told_when_the_log_has_no_such_request():
    async def curious(run):
        async for _ in run.model.stream(run.build_request(run.messages)):
            pass
        return run.outcome("done")

    agent = await recorded(Agent(ScriptedModel("Hi.")))
    divergence = await diverging(agent.replace(engine=curious))
    assert divergence.what == "the request of turn 1 is another one: it is beside the conversation"


async def test_what_an_engine_asked_beside_the_conversation_and_called_is_replayed():
    async def engine(run):
        request = run.build_request([user("What next?")])
        texts = [event.text async for event in run.model.stream(request) if isinstance(event, TextDelta)]
        texts.append((await run.ask_model(request)).text)
        found = await run.call_tool("depth", {"harbour": "Bergen"})
        await run_turn(run)
        return run.outcome("done", f"{texts}{found.text}")

    agent = await recorded(Agent(ScriptedModel("Look.", "Look again.", "Done."), tools=[depth], engine=engine))
    told = await agreeing(agent)
    assert told.turns == 3
    other = await diverging(agent.replace(engine=react))
    assert other.what == "the request of turn 1 is another one: it is part of the conversation"


# -- what was interrupted ----------------------------------------------------------------------------------------------


async def cancelled_run(agent, mode, *, when):
    session = agent.session("s")
    async with asyncio.timeout(30):
        running = asyncio.ensure_future(session.run("Go."))
        await when.wait()
        await session.cancel(mode)
        return await running


async def test_a_reply_that_was_cancelled_is_cancelled_again():
    held = pause()
    agent = Agent(ScriptedModel([TextDelta("Well, "), held, ReplyFinished()]))
    async with asyncio.timeout(30):
        running = asyncio.ensure_future(agent.session("s").run("Go."))
        await held.wait_reached()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    replayed = await agreeing(agent)
    assert replayed.outcomes[0].status == "cancelled"


@pytest.mark.parametrize("mode", ["now", "after_tools", "after_turn"])
async def test_a_cancel_is_replayed_in_each_of_its_modes(mode):
    begun = asyncio.Event()

    @tool(effect="read", parallel=False)
    async def work() -> str:
        """Work until somebody says something."""
        begun.set()
        await asyncio.sleep(0 if mode == "after_turn" else 0.01)
        return "worked"

    agent = Agent(ScriptedModel(calls(call("work"), call("work")), "Done."), tools=[work])
    assert (await cancelled_run(agent, mode, when=begun)).status == "cancelled"
    replayed = await agreeing(agent)
    assert replayed.outcomes[0].status == "cancelled"


async def test_calls_that_ended_before_a_cancel_keep_their_results():
    begun = asyncio.Event()

    @tool(effect="read")
    async def stuck() -> str:
        """Never end."""
        await asyncio.Event().wait()
        return "never"

    @tool(effect="read")
    async def quick() -> str:
        """End at once."""
        begun.set()
        return "done"

    agent = Agent(ScriptedModel(calls(call("stuck"), call("quick"))), tools=[stuck, quick])
    await cancelled_run(agent, "now", when=begun)
    await agreeing(agent)


async def test_a_run_that_was_cancelled_before_its_first_call_is_cancelled_there_again():
    begun = asyncio.Event()

    async def ask(requests):
        begun.set()
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel(call("moor", place="x")), tools=[moor], permission=Permissions(handler=ask))
    outcome = await cancelled_run(agent, "now", when=begun)
    assert outcome.messages[-1].tool_results[0].status is Status.CANCELLED_BEFORE_START
    await agreeing(agent)


async def test_a_run_that_was_cancelled_before_it_began_is_not_begun():
    agent = Agent(ScriptedModel("One.", "Two."))
    session = agent.session("s")
    await session.run("One?")
    stream = session.stream("Two?")
    ending = asyncio.ensure_future(stream.outcome())
    await asyncio.sleep(0)
    await stream.cancel()
    assert (await ending).status == "cancelled"
    replayed = await agreeing(agent)
    assert [outcome.status for outcome in replayed.outcomes] == ["done", "cancelled"]


@pytest.mark.parametrize("slow", ["model", "tool"])
async def test_a_run_whose_time_was_up_is_interrupted_again(slow):
    clock, held = FakeClock(), pause()
    begun = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    replies = {"tool": ScriptedModel(call("wait")), "model": ScriptedModel([TextDelta("Well"), held, ReplyFinished()])}
    agent = Agent(replies[slow], tools=[wait], limits=Limits(timeout_seconds=30), clock=clock)
    async with asyncio.timeout(30):
        running = asyncio.ensure_future(agent.session("s").run("Go."))
        await (begun.wait() if slow == "tool" else held.wait_reached())
        await clock.advance(31)
        assert (await running).reason == "timeout"
    replayed = await agreeing(agent)
    assert replayed.outcomes[0].reason == "timeout"
    divergence = await diverging(agent.replace(limits=Limits()))
    assert divergence.what == "nothing interrupts the run here any more"
    assert divergence.seq == (await agent.store.read("s"))[-1].seq


# -- what was cut off --------------------------------------------------------------------------------------------------


async def begun_with(store, entries):
    """Make a session that breaks off after these entries."""
    lease = await store.acquire("s")
    await store.append(lease, entries, sync=True)
    await store.release(lease)


@pytest.mark.parametrize("effect", ["read", "at_most_once"])
async def test_a_log_that_breaks_off_anywhere_agrees_and_so_does_what_is_resumed_or_begun_after_it(effect):
    look = msgspec.structs.replace(depth, effect=effect)
    script = (calls(call("depth", harbour="Bergen"), call("depth", harbour="x")), "12 metres.")
    agent = await recorded(Agent(ScriptedModel(*script), tools=[look]))
    entries = await agent.store.read("s")
    for count in range(2, len(entries)):
        for again in ("resume", "run"):
            store = MemoryStore()
            await begun_with(store, entries[:count])
            asked = len([entry for entry in entries[:count] if _is_reply(entry)])
            rest = ScriptedModel(*script[asked:], "Well.", "Well.")
            session = agent.replace(model=rest, store=store).session("s")
            await (session.resume() if again == "resume" else session.run("Again?"))
            DONE.clear()
            replayed = await replay(agent, "s", store=store)
            assert replayed.divergence is None, f"cut after {count}, {again}: {replayed.divergence}"
            assert DONE == []


def _is_reply(entry):
    message = getattr(entry.event, "message", None)
    return message is not None and message.role == "assistant"


async def test_a_run_that_was_parked_is_parked_again():
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    store = MemoryStore()
    await begun_with(store, (await agent.store.read("s"))[:3])
    deadly = agent.replace(model=ScriptedModel(StoreError("the machine is gone"), repeat_last=True), store=store)
    for _ in range(3):
        with pytest.raises(StoreError):
            await deadly.session("s").resume()
    assert (await deadly.session("s").resume()).status == "parked"
    replayed = await replay(agent, "s", store=store)
    assert replayed.divergence is None, str(replayed.divergence)
    assert [outcome.status for outcome in replayed.outcomes] == ["parked"]


async def test_a_run_that_was_parked_and_taken_up_again_is_replayed_to_its_end():
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    store = MemoryStore()
    await begun_with(store, (await agent.store.read("s"))[:3])
    deadly = agent.replace(model=ScriptedModel(StoreError("the machine is gone"), repeat_last=True), store=store)
    for _ in range(3):
        with pytest.raises(StoreError):
            await deadly.session("s").resume()
    assert (await deadly.session("s").resume()).status == "parked"
    assert (await agent.replace(model=two_turns(), store=store).session("s").resume(unpark=True)).status == "done"
    replayed = await replay(agent, "s", store=store)
    assert replayed.divergence is None, str(replayed.divergence)
    assert [outcome.status for outcome in replayed.outcomes] == ["parked", "done"]


async def test_a_settlement_by_a_person_is_settled_again():
    tidy = msgspec.structs.replace(depth, effect="ask")
    agent = await recorded(Agent(two_turns(), tools=[tidy]))
    entries = await agent.store.read("s")
    begun = next(entry.seq for entry in entries if isinstance(entry.event, ToolFinished)) - 1
    store = MemoryStore()
    await begun_with(store, entries[:begun])
    session = agent.replace(model=ScriptedModel("Fine."), store=store).session("s")
    outcome = await session.resume()
    assert outcome.status == "waiting"
    await session.answer(outcome.questions[0].ask_id, "it was done")
    await session.resume()
    replayed = await replay(agent, "s", store=store)
    assert replayed.divergence is None, str(replayed.divergence)
    assert [outcome.text for outcome in replayed.outcomes] == ["Fine."]


# -- what cannot be replayed -------------------------------------------------------------------------------------------


async def test_a_session_that_is_not_there_is_told():
    with pytest.raises(SessionNotFound, match="there is no session 'nobody' to replay"):
        await replay(Agent(ScriptedModel()), "nobody")


async def test_a_session_that_never_asked_a_model_is_told():
    agent = Agent(ScriptedModel(), tools=[depth])
    await agent.session("s").call("depth", {"harbour": "Bergen"})
    with pytest.raises(UsageError, match="session 's' has never asked a model"):
        await replay(agent, "s")


async def test_a_log_with_a_gap_is_told():
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    entries = await agent.store.read("s")
    with pytest.raises(StoreError, match="the recording is damaged: entry 2 has the number 3"):
        await replay(agent, [entries[0], *entries[2:]])


async def test_code_that_no_log_can_keep_has_to_be_given_again():
    agent = Agent(ScriptedModel("Bye."))
    await agent.session("s").run("Go.", model=two_turns(), tools=[depth], deps="harbours", permission=Permissions())
    DONE.clear()
    with pytest.raises(UsageError, match="give permission=…, tools=…"):
        await replay(agent, "s")
    replayed = await agreeing(agent, tools=[depth], permission=Permissions())
    assert replayed.turns == 2


async def test_a_log_of_nothing_but_a_beginning_breaks_off():
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    live = agent.replace(model=ScriptedModel("Hello."))
    assert (await branching(live, from_seq=1, prompt="Hello?")).text == "Hello."


# -- going on live -----------------------------------------------------------------------------------------------------


async def test_a_replay_goes_on_live_in_a_fork():
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    entries = await agent.store.read("s")
    live = agent.replace(model=ScriptedModel("About twelve."))
    branch = await branching(live, from_seq=6, fork_id="fork")
    assert (branch.text, branch.session_id) == ("About twelve.", "fork")
    assert DONE == []
    assert await agent.store.read("s") == entries
    fork = await agent.store.info("fork")
    assert fork is not None
    assert (fork.parent, fork.at) == ("s", 6)


async def test_a_replay_goes_on_live_with_an_agent_of_another_name():
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    other = agent.replace(name="other", model=ScriptedModel("Some twelve."))
    assert (await branching(other, from_seq=6)).text == "Some twelve."


async def test_a_fork_before_its_calls_makes_them():
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    assert (await branching(agent.replace(model=ScriptedModel("Twelve.")), from_seq=4)).text == "Twelve."
    assert DONE == ["Bergen"]


async def test_a_divergence_before_the_fork_is_told_and_does_not_keep_it_from_going_on():
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    other = agent.replace(model=ScriptedModel("Twelve!", "Twelve!"), instructions="Shout.")
    assert (await branching(other, from_seq=6)).text == "Twelve!"
    assert not (await replay(other, "s", from_seq=6)).agrees


async def test_between_two_runs_a_prompt_is_needed():
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    last = len(await agent.store.read("s"))
    with pytest.raises(UsageError, match=f"entry {last} of session 's' is between two runs: give a prompt"):
        await replay(agent, "s", from_seq=last)
    live = agent.replace(model=ScriptedModel("Yes."))
    branch = await branching(live, from_seq=last, prompt="Sure?")
    assert [message.text for message in branch.messages[-2:]] == ["Sure?", "Yes."]


async def test_a_live_run_asks_the_model_of_the_agent_when_the_run_had_one_of_its_own():
    agent = Agent(ScriptedModel("From the agent."))
    await agent.session("s").run("Go.", model=ScriptedModel("From the run."))
    assert (await branching(agent, from_seq=3)).text == "From the agent."


@pytest.mark.parametrize(("seq", "words"), [(99, "has 9 entries: it cannot be replayed up to 99"), (0, "from_seq")])
async def test_a_place_that_is_not_there_is_told(seq, words):
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    with pytest.raises((UsageError, ValueError), match=words):
        await replay(agent, "s", from_seq=seq)


async def test_entries_alone_cannot_be_forked():
    agent = await recorded(Agent(two_turns(), tools=[depth]))
    with pytest.raises(UsageError, match="from_seq goes on in a fork of a kept session"):
        await replay(agent, await agent.store.read("s"), from_seq=3)


async def test_wrappers_around_a_tool_are_not_called():
    async def guard(call_next, arguments, context):
        DONE.append("wrapper")
        return await call_next()

    agent = await recorded(Agent(two_turns(), tools=[around(depth, guard)]))
    await agreeing(agent)


async def test_a_long_session_is_replayed_in_one_go():
    model = ScriptedModel("Yes.", repeat_last=True)
    agent = await recorded(Agent(model), *[f"Question {number}?" for number in range(50)])
    replayed = await agreeing(agent)
    assert (replayed.runs, len(replayed.outcomes[-1].messages)) == (50, 100)


async def test_a_run_that_ended_while_nobody_looked_is_compared_too():
    agent = await recorded(Agent(ScriptedModel("Hi.")))
    entries = list(await agent.store.read("s"))
    assert isinstance(entries[-1].event, RunEnded)
    longer = msgspec.structs.replace(entries[-1], event=msgspec.structs.replace(entries[-1].event, status="limit"))
    assert (await diverging(agent, [*entries[:-1], longer])).what == "the run ends otherwise"


async def test_a_record_that_goes_on_where_nothing_happens_now_is_a_divergence():
    woken = [
        Entry(1, 0.0, RunStarted(run_id="r"), "z"),
        Entry(2, 0.0, InboxResolved("gone", "here"), "a"),
        Entry(3, 0.0, MessageAdded(user("[Inbox: 1 resolved]", origin="inbox")), "b"),
        Entry(4, 0.0, ModelRequested(1, messages=1), "c"),
        Entry(5, 0.0, RunEnded("done"), "d"),
    ]
    divergence = await diverging(Agent(ScriptedModel()), woken)
    assert (divergence.seq, divergence.what, divergence.now) == (3, "nothing more happens here", "(nothing)")


async def test_a_prompt_with_an_origin_is_a_prompt():
    agent = Agent(ScriptedModel("Hi."))
    await agent.session("s").run(user("Hello.", origin="mail"))
    await agreeing(agent)


# -- in words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (ModelRequested(2, 3, messages=4), "request of turn 2, attempt 3, of 4 messages"),
        (ReplyDiscarded(1, "empty"), "the reply is discarded: empty"),
        (GuardrailTripped("repeat", 3, "nudge"), "the guardrail repeat trips: nudge"),
        (ToolsChanged(("depth",)), "tools are added: depth"),
        (RunEnded("failed", "ValueError", "odd"), "the run ends: failed (ValueError)\n  odd"),
        (AutoContinued(2), '{"kind":"auto_continued","count":2}'),
        (CompactionStarted("tokens"), "the conversation is summed up (tokens)"),
        (Compacted(user("So far:\nnothing."), 4), "a summary stands for the first 4 messages:\n  So far:\n  nothing."),
        (ViewChanged("summaries", 4), "results in the first 4 messages are sent in their short form"),
        (
            MessageAdded(assistant([Thinking("Hm."), Text("Look:\nthere."), Image(url="a.png")])),
            "assistant:\n  [thinking] Hm.\n  Look:\n  there.\n  [image: a.png]",
        ),
    ],
)
def test_an_event_is_told_in_words(event, words):
    assert describe_event(event, {}) == words


async def test_what_differs_is_named():
    agent = await recorded(
        Agent(ScriptedModel("I will look.", "Done."), tools=[depth], output_validators=[auto_continue()])
    )
    divergence = await diverging(agent.replace(output_validators=[lambda _run, _reply: Retry("Go on.")]))
    assert (divergence.about, divergence.what) == ("message", "something else happens")


async def test_of_two_calls_the_one_that_is_made_with_other_arguments_is_named_by_its_entry():
    model = ScriptedModel(calls(call("depth", harbour="Bergen"), call("moor", place="Oslo")), "Moored.")
    agent = await recorded(Agent(model, tools=[depth, moor], permission=Permissions(allow("moor"))))
    entries = await agent.store.read("s")
    about = [entry.seq for entry in entries if getattr(entry.event, "tool", getattr(entry.event, "name", "")) == "moor"]
    hooked = before(moor, lambda _call, arguments: {"place": arguments["place"].upper()})
    divergence = await diverging(agent.replace(tools=[depth, hooked]))
    assert divergence == Divergence(
        next(seq for seq in about if not isinstance(entries[seq - 1].event, PermissionDecided)),
        "call",
        "the call of 'moor' is made with other arguments",
        'call moor {"place":"Oslo"}',
        'call moor {"place":"OSLO"}',
    )
