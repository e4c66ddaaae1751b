"""A conversation that is kept: one run after the other, resumed after a crash, watched without a gap."""

import asyncio
import logging
from typing import Any

import pytest

from perdure import (
    Agent,
    ConfigError,
    Image,
    Limits,
    Message,
    Outcome,
    Permissions,
    Session,
    SessionBusy,
    SessionNotFound,
    Settings,
    Status,
    StopReason,
    Text,
    ToolCall,
    ToolContext,
    ToolResult,
    UsageError,
    ask,
    assistant,
    tool,
    user,
)
from perdure._core.log.repair import INTERRUPTED_CALL_TEXT
from perdure._core.run.run import CANCEL_GRACE_SECONDS
from perdure._core.schema.parsing import arguments_hash
from perdure._core.tools.binding import identify_tool
from perdure.events import (
    Entry,
    Event,
    MessageAdded,
    ModelRequested,
    PermissionDecided,
    ReplyFinished,
    RunEnded,
    RunResumed,
    RunStarted,
    SessionOpened,
    TextDelta,
    ToolFinished,
    ToolStarted,
    WatcherDropped,
)
from perdure.permissions import PermissionRequest, Verdict, allow_all, later
from perdure.stores import Lease, MemoryStore
from perdure.testing import FakeClock, Recorder, ScriptedModel, call, calls, pause
from perdure.tools import before
from tests.doubles import SECONDS, Held, NotedStore, WaitingStore, crashed, deaf_tool, elsewhere, log_of, of, rounds
from tests.transcript import assert_valid

pytestmark = pytest.mark.resumed


@tool(effect="read")
async def look() -> str:
    """Looks."""
    return "there"


# -- one run after the other -------------------------------------------------------------------------------------------


async def test_a_second_run_goes_on_with_the_conversation():
    model = ScriptedModel("Hello, Ada.", "Your name is Ada.")
    session = Agent(model).session("s")
    await session.run("I am Ada.")
    outcome = await session.run("Who am I?")
    said = [message.text for message in model.requests[1].messages]
    assert said == ["I am Ada.", "Hello, Ada.", "Who am I?"]
    assert outcome.text == "Your name is Ada."
    assert [message.text for message in await session.messages()] == [*said, "Your name is Ada."]


async def test_another_session_object_goes_on_with_the_same_conversation():
    agent = Agent(ScriptedModel("One.", "Two.", "Three."))
    first, second = agent.session("s"), agent.session("s")
    await first.run("a")
    await second.run("b")
    outcome = await first.run("c")
    assert [message.text for message in outcome.messages] == ["a", "One.", "b", "Two.", "c", "Three."]


async def test_sessions_of_other_names_know_nothing_of_each_other():
    agent = Agent(ScriptedModel("One.", "Two."))
    await agent.session("a").run("first")
    outcome = await agent.session("b").run("second")
    assert len(outcome.messages) == 2


async def test_two_runs_at_once_go_one_after_the_other():
    held = pause()
    model = ScriptedModel([held, TextDelta("One."), ReplyFinished()], "Two.")
    session = Agent(model).session()
    first = asyncio.ensure_future(session.run("a"))
    second = asyncio.ensure_future(session.run("b"))
    async with asyncio.timeout(SECONDS):
        await held.wait_reached()
        await rounds()
        assert len(model.requests) == 1
        held.release()
        await first
        outcome = await second
    assert [message.text for message in outcome.messages] == ["a", "One.", "b", "Two."]


async def test_two_event_loops_cannot_drive_the_same_session_at_once():
    held = Held()
    agent = Agent(ScriptedModel(call("held"), "Done.", "Again."), tools=[held.tool])
    task = asyncio.ensure_future(agent.session("s").run("a"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        with pytest.raises(SessionBusy):
            await elsewhere(lambda: agent.session("s").run("b"))
        held.released.set()
        await task
    assert (await elsewhere(lambda: agent.session("s").run("c"))).status == "done"


async def test_a_tool_that_runs_its_own_session_gets_an_error_and_no_deadlock():
    sessions: list[Session] = []

    @tool
    async def recurse() -> str:
        """Runs its own session."""
        return (await sessions[0].run("again")).text

    @tool
    def recurse_on_a_thread() -> str:
        """Runs its own session by way of a thread."""
        return asyncio.run(sessions[0].agent.session("s").call("look", {})).text

    model = ScriptedModel(call("recurse"), call("recurse_on_a_thread"), "Done.")
    sessions.append(Agent(model, tools=[recurse, recurse_on_a_thread, look]).session("s"))
    async with asyncio.timeout(SECONDS):
        outcome = await sessions[0].run("Go")
    for place in (2, 4):
        result = outcome.messages[place].tool_results[0]
        assert result.status is Status.ERROR
        assert "a tool of session 's' cannot run its own session" in result.text


async def test_a_tool_may_run_another_session():
    inner = Agent(ScriptedModel("From inside."))

    @tool
    async def ask_another() -> str:
        """Asks another agent."""
        return (await inner.session("t").run("Hello?")).text

    outcome = await Agent(ScriptedModel(call("ask_another"), "Done."), tools=[ask_another]).session("s").run("Go")
    assert outcome.messages[2].tool_results[0].text == "From inside."


# -- what can be said to it --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "parts"),
    [
        ("Hi", (Text("Hi"),)),
        (Text("Hi"), (Text("Hi"),)),
        (["Look:", Image(data=b"x")], (Text("Look:"), Image(data=b"x"))),
        (Image(url="https://example.org/a.png"), (Image(url="https://example.org/a.png"),)),
        ((part for part in ("a", "b")), (Text("a"), Text("b"))),
        ("lone \ud800", (Text("lone \ufffd"),)),
        (user("lone \ud800"), (Text("lone \ufffd"),)),
    ],
    ids=["text", "a part", "a list", "an image", "a generator", "surrogates", "surrogates in a message"],
)
async def test_a_prompt_is_text_parts_or_a_message(prompt, parts):
    model = ScriptedModel("Hello.")
    await Agent(model).run(prompt)
    assert model.requests[0].messages[0].parts == parts


async def test_a_message_is_kept_with_everything_it_carries():
    prompt = user("Hi", origin="mail", metadata={"id": 7})
    outcome = await Agent(ScriptedModel("Hello.")).run(prompt)
    assert outcome.messages[0] == prompt


async def say(session: Session, way: str, prompt: Any) -> None:
    said = getattr(session, way)(prompt)
    await (said.outcome() if way == "stream" else said)


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ("", "the prompt is empty"),
        (" \n\t", "the prompt is empty"),
        (["", Text(" ")], "the prompt is empty"),
        (user(""), "the prompt is empty"),
        ([], "cannot be sent to an agent"),
        (Message("user"), "cannot be sent to an agent"),
        (None, "None cannot be put into a message: give text, a part such as Image"),
        (5, "5 cannot be put into a message"),
        (b"bytes", "cannot be put into a message"),
        ({"role": "user", "content": "Hi"}, "cannot be put into a message"),
        ([1, "a"], "cannot be put into a message"),
        (ToolCall("c1", "look"), "cannot be sent to an agent"),
        (ToolResult("c1", "look"), "cannot be sent to an agent"),
        (Settings(), "cannot be put into a message"),
    ],
    ids=lambda value: repr(value)[:30],
)
@pytest.mark.parametrize("way", ["run", "stream", "steer", "follow_up"])
async def test_anything_else_is_refused_with_a_word_on_what_to_give(way, prompt, told):
    model = ScriptedModel("Never said.")
    session = Agent(model).session("s")
    with pytest.raises(ConfigError, match=told):
        await say(session, way, prompt)
    assert (model.requests, await log_of(session.store, "s")) == ([], [])


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ({"seed": 0}, "a run has no override 'seed': use one of model, role, instructions, tools"),
        ({"limits": 5}, "limits=5 cannot be used for a run: give a Limits"),
        ({"settings": object()}, "cannot be used for a run: give a Settings"),
        ({"instructions": 5}, "instructions=5 cannot be used for a run: give a str"),
        ({"engine": "reakt"}, "there is no engine 'reakt'"),
        ({"permission": "yes"}, "permission='yes' cannot be used for a run: give a function"),
        ({"tools": [print]}, "is not a tool yet: mark it with @tool"),
        ({"model": 5}, "5"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
async def test_an_override_that_cannot_work_is_refused_before_anything_is_stored(overrides, told):
    session = Agent(ScriptedModel("Hello.")).session("s")
    with pytest.raises(ConfigError, match=told):
        await session.run("Hi", **overrides)
    assert await log_of(session.store, "s") == []
    assert (await session.run("Hi")).status == "done"


async def test_everything_that_may_differ_for_one_run_does():
    @tool
    async def tell(context: ToolContext) -> str:
        """Tells its deps."""
        return str(context.deps)

    other = ScriptedModel(call("tell"), "From the other.")
    session = Agent(ScriptedModel("From the first."), tools=[look], deps="own").session()
    outcome = await session.run(
        "Hi", model=other, instructions="Shout.", tools=[tell], settings=Settings(seed=1), deps="other", permission=None
    )
    assert outcome.text == "From the other."
    assert outcome.messages[2].tool_results[0].text == "other"
    request = other.requests[0]
    assert (request.instructions, request.settings.seed) == ("Shout.", 1)
    assert [spec.name for spec in request.tools] == ["tell"]
    assert (await session.run("Hi")).text == "From the first."


async def test_a_model_may_be_named_for_one_run():
    outcome = await Agent(ScriptedModel()).session().run("Hello there", model="demo")
    assert outcome.message is not None
    assert outcome.message.provider == "demo"


# -- the log -----------------------------------------------------------------------------------------------------------


@pytest.mark.in_memory("appends are counted")
async def test_the_start_of_a_run_and_its_prompt_are_one_barrier_and_so_is_its_end():
    store = NotedStore()
    await Agent(ScriptedModel("Hello."), store=store).run("Hi")
    assert [(append.kinds, append.sync) for append in store.appends] == [
        (["run_started", "message_added"], True),
        (["model_requested"], False),
        (["message_added", "run_ended"], True),
    ]


async def test_the_start_of_a_run_keeps_what_was_asked_of_it_as_data():
    agent = Agent(ScriptedModel("Hello."), name="ada")
    code: Any = {"permission": allow_all, "model": ScriptedModel("x"), "tools": [look]}
    await agent.session("s").run("Hi", limits=Limits(max_turns=3), instructions="Shout.", **code)
    (started,) = of(await log_of(agent.store, "s"), RunStarted)
    assert started.agent == "ada"
    assert set(started.options) == {"limits", "instructions", "code"}
    assert (started.options["instructions"], started.options["limits"]["max_turns"]) == ("Shout.", 3)
    assert started.options["code"] == ["model", "permission", "tools"]


async def test_the_end_of_a_run_tells_how_it_went():
    agent = Agent(ScriptedModel("Hello."))
    outcome = await agent.session("s").run("Hi")
    (ended,) = of(await log_of(agent.store, "s"), RunEnded)
    assert (ended.status, ended.reason, ended.error, ended.turns) == ("done", "", "", 1)
    assert (ended.usage, ended.run_id) == (outcome.usage, outcome.run_id)


async def test_opening_a_session_is_shown():
    recorder = Recorder()
    session = Agent(ScriptedModel("One.", "Two."), watchers=[recorder]).session("s")
    await session.run("a")
    await session.run("b")
    assert [(event.session_id, event.entries) for event in recorder.of(SessionOpened)] == [("s", 0), ("s", 5)]


async def test_runs_are_logged_with_the_ids_of_session_and_run(caplog):
    caplog.set_level(logging.INFO, "perdure")
    outcome = await Agent(ScriptedModel("Hello.")).session("s").run("Hi")
    records = [each for each in caplog.records if each.name == "perdure"]
    assert [(each.session_id, each.run_id) for each in records] == [("s", outcome.run_id)] * 2
    assert [each.getMessage().split(" of ")[1] for each in records] == ["session s begins", "session s: done "]


# -- cancelling the one who waits --------------------------------------------------------------------------------------


async def test_cancelling_whoever_awaits_a_run_ends_it_in_good_order_first():
    held = Held()
    agent = Agent(ScriptedModel(calls(call("held"), call("look")), "Done."), tools=[held.tool, look])
    session = agent.session("s")
    task = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    log = await log_of(agent.store, "s")
    (ended,) = of(log, RunEnded)
    assert (ended.status, held.cancelled) == ("cancelled", 1)
    assert_valid(await session.messages())
    assert (await session.run("Again")).status == "done"


async def test_cancelling_a_run_that_waits_for_its_turn_leaves_the_other_alone():
    held = pause()
    model = ScriptedModel([held, TextDelta("One."), ReplyFinished()], "Three.")
    session = Agent(model).session("s")
    first = asyncio.ensure_future(session.run("a"))
    async with asyncio.timeout(SECONDS):
        await held.wait_reached()
        second = asyncio.ensure_future(session.run("b"))
        await rounds()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        held.release()
        assert (await first).text == "One."
    outcome = await session.run("c")
    assert [message.text for message in outcome.messages] == ["a", "One.", "c", "Three."]


async def test_cancelling_whoever_awaits_a_run_that_cannot_be_stored_makes_no_noise(caplog):
    store = WaitingStore()
    store.open.clear()
    session = Agent(ScriptedModel("Hello."), store=store).session("s")
    task = asyncio.ensure_future(session.run("Hi"))
    async with asyncio.timeout(SECONDS):
        await store.waiting.wait()
        store.error = SessionNotFound("the disk is gone")
        task.cancel()
        store.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    await rounds()
    assert "never retrieved" not in caplog.text


def test_a_run_that_is_going_when_its_event_loop_ends_is_closed_in_good_order():
    held = Held()
    session = Agent(ScriptedModel(call("held"), "Again."), tools=[held.tool]).session("s")

    async def leave() -> None:
        task = asyncio.ensure_future(session.run("Go"))
        async with asyncio.timeout(SECONDS):
            await held.started.wait()
        assert not task.done()

    asyncio.run(leave())
    (ended,) = of(asyncio.run(log_of(session.store, "s")), RunEnded)
    assert (ended.status, held.cancelled) == ("cancelled", 1)
    outcome = asyncio.run(session.run("Again?"))
    assert (outcome.status, outcome.text) == ("done", "Again.")
    assert_valid(outcome.messages)


async def test_there_is_nothing_to_cancel_between_runs():
    session = Agent(ScriptedModel("Hello.")).session()
    assert not await session.cancel()
    await session.run("Hi")
    assert not await session.cancel()


async def test_an_unknown_way_to_cancel_is_refused():
    held = Held()
    session = Agent(ScriptedModel(call("held")), tools=[held.tool]).session()
    task = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        with pytest.raises(ConfigError, match="cancel mode 'soon' is not known: use 'now', 'after_tools'"):
            await session.cancel("soon")  # type: ignore[arg-type]
        await session.cancel()
        await task


# -- a call without a model --------------------------------------------------------------------------------------------


@tool(permission=True, target="path")
async def delete(path: str) -> str:
    """Deletes."""
    return f"{path} is gone"


async def test_a_tool_can_be_called_without_a_model_and_is_logged():
    agent = Agent(ScriptedModel(), tools=[look])
    result = await agent.session("s").call("look", {})
    assert (result.status, result.text) == (Status.OK, "there")
    log = await log_of(agent.store, "s")
    kinds = [type(event) for event in log]
    assert kinds == [RunStarted, PermissionDecided, ToolStarted, ToolFinished, RunEnded]
    assert len({event.run_id for event in log}) == 1
    assert await agent.session("s").messages() == []


async def test_a_call_without_a_model_is_gated():
    asked: list[PermissionRequest] = []

    async def person(requests: Any) -> list[Verdict]:
        asked.extend(requests)
        return [Verdict(allow=True)] * len(requests)

    agent = Agent(ScriptedModel(), tools=[delete])
    denied = await agent.session().call("delete", {"path": "a"})
    assert (denied.status, "there is no one to ask" in denied.text) == (Status.DENIED, True)
    allowed = await agent.session().call("delete", {"path": "a"}, permission=Permissions(handler=person))
    assert (allowed.text, [request.target for request in asked]) == ("a is gone", ["a"])


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("lok", {}, "there is no tool 'lok'; did you mean 'look'?"),
        ("delete", {}, "path: missing; it is required"),
        ("delete", {"path": 5}, "path: expected a string, got 5"),
    ],
)
async def test_a_call_that_makes_no_sense_has_an_error_result(name, arguments, told):
    result = await Agent(ScriptedModel(), tools=[look, delete]).session().call(name, arguments)
    assert (result.status, told in result.text) == (Status.ERROR, True)


@pytest.mark.parametrize(("name", "arguments"), [(5, {}), ("look", []), ("look", "{}"), ("look", None)], ids=repr)
async def test_a_call_needs_a_name_and_a_dict(name, arguments):
    session = Agent(ScriptedModel(), tools=[look]).session("s")
    with pytest.raises(ConfigError):
        await session.call(name, arguments)
    assert await log_of(session.store, "s") == []


async def test_a_message_that_is_none_in_truth_is_refused():
    session = Agent(ScriptedModel()).session("s")
    with pytest.raises(ConfigError, match="is not a valid message"):
        await session.run(Message("user", (Text("Hi"),), origin=5))  # type: ignore[arg-type]
    assert await log_of(session.store, "s") == []


async def test_a_call_without_a_model_has_hooks_and_overrides_like_any_other():
    renamed = before(delete, lambda _, arguments: {"path": arguments["path"].upper()})
    result = await Agent(ScriptedModel()).session().call("delete", {"path": "a"}, tools=[renamed], permission=allow_all)
    assert result.text == "A is gone"


async def test_calls_at_the_same_time_go_one_after_the_other_and_each_gets_its_own_result():
    @tool
    async def double(number: int) -> int:
        """Doubles."""
        return 2 * number

    session = Agent(ScriptedModel(), tools=[double]).session()
    async with asyncio.timeout(SECONDS):
        results = await asyncio.gather(*[session.call("double", {"number": number}) for number in range(5)])
    assert [result.text for result in results] == ["0", "2", "4", "6", "8"]


async def test_a_call_counts_for_itself():
    session = Agent(ScriptedModel(call("look"), "There."), tools=[look], limits=Limits(max_tool_calls=1)).session("s")
    assert (await session.run("Go")).status == "done"
    assert (await session.call("look", {})).status is Status.OK
    assert [ended.usage.total_tokens for ended in of(await log_of(session.store, "s"), RunEnded)] == [30, 0]


async def test_a_call_that_worked_is_over_and_done_in_the_log():
    session = Agent(ScriptedModel(), tools=[look]).session("s")
    await session.call("look", {})
    (ended,) = of(await log_of(session.store, "s"), RunEnded)
    assert (ended.status, ended.reason, ended.error) == ("done", "", "")


async def test_a_call_that_is_cancelled_says_so():
    held = Held()
    session = Agent(ScriptedModel(), tools=[held.tool]).session()
    task = asyncio.ensure_future(session.call("held", {}))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        await session.cancel()
        result = await task
    assert result.status is Status.CANCELLED


async def test_a_call_that_is_cancelled_while_somebody_is_asked_says_that_it_never_began():
    asked = asyncio.Event()

    async def slow_person(requests: Any) -> list[Verdict]:
        asked.set()
        await asyncio.Event().wait()
        return []

    session = Agent(ScriptedModel(), tools=[look], permission=slow_person).session()
    task = asyncio.ensure_future(session.call("look", {}))
    async with asyncio.timeout(SECONDS):
        await asked.wait()
        await session.cancel()
        result = await task
    assert result.status is Status.CANCELLED_BEFORE_START


async def test_a_call_that_ignores_its_cancel_is_left_behind():
    clock = FakeClock()
    deaf, started, released = deaf_tool()
    session = Agent(ScriptedModel("Hello."), tools=[deaf], clock=clock).session()
    task = asyncio.ensure_future(session.call("deaf", {}))
    async with asyncio.timeout(SECONDS):
        await started.wait()
        await session.cancel()
        await clock.advance(CANCEL_GRACE_SECONDS)
        result = await task
    assert (result.status, "may still be running" in result.text) == (Status.CANCELLED, True)
    released.set()
    await rounds()
    assert (await session.run("Hi")).status == "done"


async def test_the_end_of_a_run_that_is_left_behind_is_on_the_disk_before_it_is_told():
    clock, store = FakeClock(), NotedStore()
    deaf, started, released = deaf_tool()
    session = Agent(ScriptedModel(call("deaf")), tools=[deaf], clock=clock, store=store).session("s")
    task = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await started.wait()
        await session.cancel()
        await clock.advance(CANCEL_GRACE_SECONDS)
        assert (await task).status == "cancelled"
        released.set()
        await rounds()
    assert [append.sync for append in store.appends if "run_ended" in append.kinds] == [True]


async def test_a_call_that_was_cancelled_before_it_began_has_no_result():
    store = WaitingStore()
    store.open.clear()
    session = Agent(ScriptedModel(), tools=[look], store=store).session("s")
    task = asyncio.ensure_future(session.call("look", {}))
    async with asyncio.timeout(SECONDS):
        await store.waiting.wait()
        await session.cancel()
        store.open.set()
        with pytest.raises(UsageError, match="the call of 'look' was cancelled before it began"):
            await task


async def test_a_call_whose_engine_fails_raises_what_went_wrong():
    gate = Permissions(ask("look"), handler=later)
    gate.expires_seconds = "soon"  # type: ignore[assignment] # nobody looks at it before somebody is asked
    with pytest.raises(TypeError, match="unsupported operand"):
        await Agent(ScriptedModel(), tools=[look], permission=gate).session().call("look", {})


async def test_rules_that_fail_let_nothing_pass():
    class Broken(Permissions):
        def decide_without_asking(self, request: Any) -> Any:
            raise ZeroDivisionError("oops")

    result = await Agent(ScriptedModel(), tools=[look], permission=Broken(handler=later)).session().call("look", {})
    assert (result.status, "asking failed" in result.text, "oops" in result.text) == (Status.DENIED, True, True)


# -- after a crash -----------------------------------------------------------------------------------------------------


class Ledger:
    """Tools of each effect that note how they are called."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    async def note(self, context: ToolContext) -> str:
        self.seen.append((context.name, context.idempotency_key))
        return f"{context.name} done"

    @tool(effect="read")
    async def read(self, context: ToolContext) -> str:
        """Reads."""
        return await self.note(context)

    @tool(effect="idempotent")
    async def put(self, context: ToolContext) -> str:
        """Puts."""
        return await self.note(context)

    @tool
    async def pay(self, context: ToolContext) -> str:
        """Pays."""
        return await self.note(context)

    @tool(effect="ask")
    async def sign(self, context: ToolContext) -> str:
        """Signs."""
        return await self.note(context)

    @property
    def tools(self) -> list[Any]:
        return [self.read, self.put, self.pay, self.sign]


def began(options: dict[str, Any] | None = None) -> tuple[Event, ...]:
    return (RunStarted("agent", options or {}, run_id="r1"), MessageAdded(user("Go"), run_id="r1"))


def requested(turn: int = 1, attempt: int = 1) -> ModelRequested:
    return ModelRequested(turn, attempt, run_id="r1")


def replied(*names: str, **fields: Any) -> MessageAdded:
    parts = tuple(ToolCall(f"c{place}", name) for place, name in enumerate(names, 1))
    return MessageAdded(Message("assistant", parts, stop=StopReason.TOOL_USE, **fields), run_id="r1")


def begun(place: int, name: str, effect: str) -> ToolStarted:
    return ToolStarted(f"c{place}", name, effect, "", f"s/r1/c{place}", run_id="r1")


def done(place: int, name: str) -> ToolFinished:
    return ToolFinished(f"c{place}", name, ToolResult(f"c{place}", name, (Text("before"),)), run_id="r1")


ALL = ("read", "put", "pay", "sign", "pay", "read")
CRASH = (
    *began(),
    requested(),
    replied(*ALL),
    begun(1, "read", "read"),
    begun(2, "put", "idempotent"),
    begun(3, "pay", "at_most_once"),
    begun(4, "sign", "ask"),
    begun(5, "pay", "at_most_once"),
    done(5, "pay"),
)
"""All effects begun, one done, and one call that had not begun."""


async def resumed_and_skipped(session: Session) -> Outcome[Any]:
    """Somebody says that the call which asks is to be left alone."""
    (question,) = (await session.resume()).questions
    assert (question.about, question.calls[0]["call_id"]) == ("settlement", "c4")
    await session.answer(question.ask_id, "skip")
    return await session.resume()


async def test_resuming_settles_each_call_by_its_effect():
    store, ledger = MemoryStore(), Ledger()
    await crashed(store, "s", *CRASH)
    session = Agent(ScriptedModel("Done."), tools=ledger.tools, store=store).session("s")
    outcome = await resumed_and_skipped(session)
    assert (outcome.status, outcome.text, outcome.run_id) == ("done", "Done.", "r1")
    assert_valid(outcome.messages)
    assert [(result.status, result.text) for result in outcome.messages[2].tool_results] == [
        (Status.OK, "read done"),
        (Status.OK, "put done"),
        (Status.UNKNOWN, INTERRUPTED_CALL_TEXT),
        (Status.UNKNOWN, INTERRUPTED_CALL_TEXT),
        (Status.OK, "before"),
        (Status.OK, "read done"),
    ]
    assert ledger.seen == [("read", "s/r1/c1"), ("put", "s/r1/c2"), ("read", "s/r1/c6")]


async def test_what_is_run_again_keeps_its_key_and_counts_its_attempts():
    store, ledger = MemoryStore(), Ledger()
    await crashed(store, "s", *CRASH)
    await resumed_and_skipped(Agent(ScriptedModel("Done."), tools=ledger.tools, store=store).session("s"))
    again = of(await log_of(store, "s"), ToolStarted)[5:]
    assert [(event.name, event.attempt, event.idempotency_key) for event in again] == [
        ("read", 2, "s/r1/c1"),
        ("put", 2, "s/r1/c2"),
        ("read", 1, "s/r1/c6"),
    ]


async def test_resuming_is_logged_and_the_run_ends_once():
    store = MemoryStore()
    await crashed(store, "s", *CRASH)
    await resumed_and_skipped(Agent(ScriptedModel("Done."), tools=Ledger().tools, store=store).session("s"))
    log = await log_of(store, "s")
    assert log[len(CRASH)] == RunResumed(run_id="r1")
    assert len(of(log, RunEnded)) == len(of(log, RunStarted)) == 1


async def test_a_request_that_was_cut_off_is_sent_again():
    store = MemoryStore()
    await crashed(store, "s", *began(), requested())
    outcome = await Agent(ScriptedModel("Done."), store=store).session("s").resume()
    assert (outcome.status, outcome.turns) == ("done", 1)
    assert [(each.turn, each.attempt) for each in of(await log_of(store, "s"), ModelRequested)] == [(1, 1), (1, 2)]


async def test_a_run_that_had_only_begun_is_resumed_from_its_prompt():
    store = MemoryStore()
    await crashed(store, "s", *began())
    model = ScriptedModel("Done.")
    outcome = await Agent(model, store=store).session("s").resume()
    assert (outcome.text, [message.text for message in model.requests[0].messages]) == ("Done.", ["Go"])


async def test_an_answer_that_was_stored_before_the_crash_is_not_asked_for_again():
    store = MemoryStore()
    await crashed(store, "s", *began(), requested(), MessageAdded(assistant("Hello."), run_id="r1"))
    model = ScriptedModel("Never said.")
    outcome = await Agent(model, store=store).session("s").resume()
    assert (outcome.status, outcome.text, model.requests) == ("done", "Hello.", [])


async def test_steering_and_follow_ups_reach_a_run_that_is_resumed():
    store = MemoryStore()
    await crashed(store, "s", *began(), requested(), MessageAdded(assistant("Hello."), run_id="r1"))
    session = Agent(ScriptedModel("Left.", "And right."), store=store).session("s")
    await session.steer("Left!")
    await session.follow_up("And then?")
    outcome = await session.resume()
    said = [message.text for message in outcome.messages]
    assert said == ["Go", "Hello.", "Left!", "Left.", "And then?", "And right."]


async def test_what_was_allowed_before_the_crash_is_not_asked_about_again():
    store, questions = MemoryStore(), []

    async def person(requests: Any) -> list[Verdict]:
        questions.append([request.call_id for request in requests])
        return [Verdict(allow=True)] * len(requests)

    async def resumed(*hashes: str, tool_identity: str = identify_tool(delete)) -> list[Any]:
        questions.clear()
        decisions = [
            PermissionDecided(
                f"c{place}", "delete", "delete", "a", value, allow=True, run_id="r1", tool_identity=tool_identity
            )
            for place, value in enumerate(hashes, 1)
        ]
        parts = tuple(ToolCall(f"c{place}", "delete", '{"path":"a"}') for place in (1, 2))
        reply = MessageAdded(Message("assistant", parts, stop=StopReason.TOOL_USE), run_id="r1")
        await store.delete("s")
        await crashed(store, "s", *began(), requested(), reply, *decisions)
        gate = Permissions(handler=person)
        agent = Agent(ScriptedModel("Done."), tools=[delete], store=store, permission=gate)
        outcome = await agent.session("s").resume()
        assert [result.text for result in outcome.messages[2].tool_results] == ["a is gone"] * 2
        return questions

    right, wrong = arguments_hash({"path": "a"}), arguments_hash({"path": "b"})
    assert await resumed() == [["c1", "c2"]]
    assert await resumed(right, wrong) == [["c2"]]
    assert await resumed(right, right) == []
    for another in ("that of another tool", ""):
        assert await resumed(right, right, tool_identity=another) == [["c1", "c2"]]


async def test_a_call_whose_tool_is_gone_is_unknown_if_it_may_have_happened():
    store = MemoryStore()
    await crashed(store, "s", *CRASH)
    outcome = await resumed_and_skipped(Agent(ScriptedModel("Done."), store=store).session("s"))
    statuses = [result.status for result in outcome.messages[2].tool_results]
    assert statuses == [Status.ERROR, Status.ERROR, Status.UNKNOWN, Status.UNKNOWN, Status.OK, Status.ERROR]


async def test_a_call_that_is_run_again_has_its_place_among_the_allowed_calls_already():
    store, ledger = MemoryStore(), Ledger()
    await crashed(store, "s", *began(), requested(), replied("read"), begun(1, "read", "read"))
    limits = Limits(max_tool_calls=1)
    outcome = await Agent(ScriptedModel("Done."), tools=ledger.tools, store=store, limits=limits).session("s").resume()
    assert outcome.messages[2].tool_results[0].text == "read done"


async def test_a_resumed_run_has_the_options_it_was_begun_with():
    store = MemoryStore()
    options = {"instructions": "Shout.", "limits": {"max_turns": 1}, "settings": {"seed": 3}}
    await crashed(store, "s", *began(options), requested())
    model = ScriptedModel(call("look"))
    outcome = await Agent(model, tools=[look], store=store).session("s").resume()
    assert (outcome.status, outcome.reason) == ("limit", "max_turns")
    assert (model.requests[0].instructions, model.requests[0].settings.seed) == ("Shout.", 3)


async def test_a_resumed_run_may_be_given_other_options():
    store = MemoryStore()
    await crashed(store, "s", *began({"instructions": "Shout."}), requested())
    model = ScriptedModel("hush")
    await Agent(ScriptedModel(), store=store).session("s").resume(model=model, instructions="Whisper.")
    assert model.requests[0].instructions == "Whisper."


async def test_a_resumed_run_remembers_a_model_by_its_name():
    store = MemoryStore()
    await crashed(store, "s", *began({"model": "demo"}), requested())
    outcome = await Agent(ScriptedModel(), store=store).session("s").resume()
    assert outcome.message is not None
    assert outcome.message.provider == "demo"


async def test_a_session_that_is_not_there_cannot_be_resumed():
    with pytest.raises(SessionNotFound, match="there is no session 's' to resume: use run\\(\\) to begin it"):
        await Agent(ScriptedModel()).session("s").resume()


async def test_a_run_that_has_ended_cannot_be_resumed():
    session = Agent(ScriptedModel("Hello.")).session("s")
    await session.run("Hi")
    with pytest.raises(UsageError, match="nothing to resume: its last run ended with status 'done'"):
        await session.resume()


async def test_a_call_that_was_cut_off_cannot_be_resumed_but_settled():
    store = MemoryStore()
    call_began = RunStarted("agent", {"call": "pay"}, run_id="r1")
    await crashed(store, "s", call_began, begun(1, "pay", "at_most_once"))
    session = Agent(ScriptedModel("Hello."), tools=Ledger().tools, store=store).session("s")
    with pytest.raises(UsageError, match="nothing to resume: it was calling a tool"):
        await session.resume()
    await session.run("Hi")
    (finished,) = of(await log_of(store, "s"), ToolFinished)
    assert finished.result.status is Status.UNKNOWN


async def test_a_new_prompt_to_a_crashed_session_repairs_it_first_in_the_same_append():
    store = NotedStore()
    await crashed(store, "s", *CRASH)
    store.appends.clear()
    ledger = Ledger()
    outcome = await Agent(ScriptedModel("Done."), tools=ledger.tools, store=store).session("s").run("Never mind.")
    first = store.appends[0]
    assert first.kinds == [*["tool_finished"] * 5, "run_ended", "run_started", "message_added"]
    assert first.sync
    assert isinstance(first.events[5], RunEnded)
    assert (first.events[5].status, first.events[5].reason) == ("failed", "interrupted")
    assert (outcome.status, ledger.seen) == ("done", [])
    assert_valid(outcome.messages)
    statuses = [result.status for result in outcome.messages[2].tool_results]
    assert statuses == [*[Status.UNKNOWN] * 4, Status.OK, Status.CANCELLED_BEFORE_START]


async def test_a_session_that_was_repaired_needs_no_repair():
    store = NotedStore()
    await crashed(store, "s", *CRASH)
    session = Agent(ScriptedModel("One.", "Two."), store=store).session("s")
    await session.run("a")
    store.appends.clear()
    await session.run("b")
    assert store.appends[0].kinds == ["run_started", "message_added"]


# -- watching ----------------------------------------------------------------------------------------------------------


async def watched(session: Session, until: int, after: int = 0) -> list[Entry]:
    """What a watcher is told, up to an entry of the log."""
    entries: list[Entry] = []
    async with asyncio.timeout(SECONDS):
        async for entry in session.watch(after=after):
            entries.append(entry)
            if entry.seq == until:
                break
    return entries


@pytest.mark.parametrize("after", [0, 3, 5])
async def test_a_watcher_is_told_the_log_and_then_what_happens_without_gap_or_double(after):
    session = Agent(ScriptedModel("One.", "Two.")).session("s")
    await session.run("a")
    watching = asyncio.ensure_future(watched(session, 10, after))
    await rounds()
    await session.run("b")
    entries = await watching
    assert [entry.seq for entry in entries if entry.seq] == [*range(after + 1, 11)]
    assert [entry.event.text for entry in entries if isinstance(entry.event, TextDelta)] == ["Two."]


@pytest.mark.parametrize(("after", "has"), [(6, "entries up to 5"), (100, "entries up to 5")])
async def test_a_watcher_that_names_an_entry_beyond_the_end_of_the_log_is_refused(after, has):
    session = Agent(ScriptedModel("One.")).session("s")
    await session.run("a")
    with pytest.raises(UsageError, match=rf"after={after}.*{has}.*watch\(after=0\)"):
        await watched(session, 10, after)


async def test_a_watcher_of_a_session_that_was_deleted_is_told_to_start_over():
    session = Agent(ScriptedModel("One.")).session("s")
    await session.run("a")
    await session.store.delete("s")
    with pytest.raises(UsageError, match=r"after=5.*no entries"):
        await watched(session, 10, 5)


async def test_a_watcher_that_comes_during_a_run_misses_nothing_that_lasts():
    held = pause()
    session = Agent(ScriptedModel([TextDelta("Hel"), held, TextDelta("lo."), ReplyFinished()])).session("s")
    run = asyncio.ensure_future(session.run("Hi"))
    async with asyncio.timeout(SECONDS):
        await held.wait_reached()
        watching = asyncio.ensure_future(watched(session, 5))
        await rounds()
        held.release()
        await run
        entries = await watching
    assert [entry.seq for entry in entries if entry.seq] == [1, 2, 3, 4, 5]


async def test_entries_that_come_while_the_log_is_read_are_told_once():
    class Slow(MemoryStore):
        """Reads slowly, once it is told to."""

        slow = False

        async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
            if self.slow:
                self.slow = False
                await session.run("b")
            return await super().read(session_id, after=after)

    store = Slow()
    session = Agent(ScriptedModel("One.", "Two.", "Three."), store=store).session("s")
    await session.run("a")
    store.slow = True
    watching = asyncio.ensure_future(watched(session, 15))
    await rounds()
    await session.run("c")
    assert [entry.seq for entry in await watching if entry.seq] == [*range(1, 16)]


@pytest.mark.parametrize("session_id", ["a\nb", "a\x1b[2Jb", "a\u2028b"])
async def test_a_session_whose_id_would_garble_lists_is_not_begun_and_one_that_exists_is_opened(session_id):
    store = MemoryStore()
    session = Agent(ScriptedModel("Hello."), tools=[Ledger().tools[0]], store=store).session(session_id)
    beginnings = (
        lambda: session.run("Hi"),
        lambda: session.stream("Hi").outcome(),
        lambda: session.call("read", {}),
        lambda: session.skill("sail"),
        lambda: session.keep("note", 1),
    )
    for begin in beginnings:
        with pytest.raises(ConfigError, match="without line breaks and other control characters"):
            await begin()
    assert await store.list() == []
    await crashed(store, session_id, RunStarted(run_id="r1"), RunEnded("done", run_id="r1"))
    assert (await session.run("Hi")).status == "done"
    with pytest.raises(ConfigError, match="without line breaks"):
        await session.fork("c\nd")


async def test_an_input_id_that_cannot_be_encoded_is_refused():
    session = Agent(ScriptedModel("Never said.")).session("s")
    with pytest.raises(ConfigError) as caught:
        await session.run("Hi", input_id="a\ud800")
    assert str(caught.value) == ("session.run(input_id='a\\ud800'): give text that can be encoded as UTF-8")
    assert await session.info() is None


async def test_a_run_that_is_cancelled_twice_was_there_both_times():
    held = Held()
    session = Agent(ScriptedModel(call("held")), tools=[held.tool]).session()
    async with asyncio.timeout(SECONDS):
        running = asyncio.ensure_future(session.run("Go."))
        await held.started.wait()
        assert [await session.cancel(), await session.cancel()] == [True, True]
        assert (await running).status == "cancelled"
    assert await session.cancel() is False
    store = MemoryStore()
    await crashed(store, "s", RunStarted(run_id="r1"))
    elsewhere = Agent(ScriptedModel(), store=store).session("s")
    assert [await elsewhere.cancel(), await elsewhere.cancel()] == [True, True]


async def test_a_watch_ends_when_the_session_is_closed():
    session = Agent(ScriptedModel("Hello.")).session()
    await session.run("Hi")

    async def watch() -> list[int]:
        return [entry.seq async for entry in session.watch()]

    watching = asyncio.ensure_future(watch())
    async with asyncio.timeout(SECONDS):
        await rounds()
        await session.aclose()
        assert await watching == [1, 2, 3, 4, 5]


async def test_a_watcher_that_raises_is_dropped_and_the_run_goes_on():
    recorder = Recorder()

    async def broken(entry: Entry) -> None:
        raise ValueError("no luck")

    outcome = await Agent(ScriptedModel("Hello."), watchers=[broken, recorder]).run("Hi")
    assert outcome.status == "done"
    (dropped,) = recorder.of(WatcherDropped)
    assert dropped.error == "ValueError: no luck"
    assert "broken" in dropped.name


async def test_a_watcher_that_never_returns_does_not_hold_up_the_run(monkeypatch):
    monkeypatch.setattr("perdure._runtime.session.channel.DRAIN_SECONDS", 0.01)
    handled: list[Entry] = []

    async def stuck(entry: Entry) -> None:
        handled.append(entry)
        await asyncio.Event().wait()

    session = Agent(ScriptedModel("One.", "Two."), watchers=[stuck]).session()
    async with asyncio.timeout(SECONDS):
        assert (await session.run("a")).status == "done"
        assert (await session.run("b")).status == "done"
        await session.aclose()
    assert handled


async def test_a_session_can_be_closed_before_it_was_used_and_used_after_it_was_closed():
    session = Agent(ScriptedModel("One.", "Two.")).session()
    await session.aclose()
    await session.run("a")
    await session.aclose()
    assert (await session.run("b")).status == "done"


def test_a_session_may_be_used_on_one_event_loop_after_the_other():
    recorder = Recorder()
    session = Agent(ScriptedModel("One.", "Two."), watchers=[recorder]).session("s")
    assert asyncio.run(session.run("a")).text == "One."
    assert asyncio.run(session.run("b")).text == "Two."
    assert len(recorder.of(RunEnded)) == 2


def test_a_session_shows_its_name():
    assert repr(Agent(ScriptedModel()).session("trip")) == "Session('trip')"


async def test_a_run_that_is_still_being_opened_can_be_cancelled():
    class SlowToOpen(MemoryStore):
        opened = asyncio.Event()

        async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
            await self.opened.wait()
            return await super().acquire(session_id, take_over=take_over)

    store = SlowToOpen()
    session = Agent(ScriptedModel("Never said."), store=store).session("s")
    assert not await session.cancel()
    going = asyncio.ensure_future(session.run("Go"))
    await rounds()
    assert await session.cancel()
    store.opened.set()
    async with asyncio.timeout(SECONDS):
        outcome = await going
    assert (outcome.status, outcome.text) == ("cancelled", "")
    assert not await session.cancel()


async def test_a_run_with_tools_of_its_own_is_resumed_with_the_same_tools():
    store = MemoryStore()
    await crashed(store, "s", *began({"code": ["permission", "tools"]}), requested())
    session = Agent(ScriptedModel(call("look"), "Seen."), store=store).session("s")
    with pytest.raises(UsageError, match="pass permission=…, tools=… again"):
        await session.resume()
    outcome = await session.resume(tools=[look], permission=None)
    assert (outcome.status, outcome.text) == ("done", "Seen.")


async def test_a_grant_that_was_revoked_is_asked_about_again_in_the_same_session():
    asked: list[str] = []

    async def person(requests: Any) -> list[Verdict]:
        asked.extend(each.tool for each in requests)
        return [Verdict(allow=True, scope="session")] * len(requests)

    permissions = Permissions(ask("look"), handler=person)
    model = ScriptedModel(call("look"), "One.", call("look"), "Two.", call("look"), "Three.")
    session = Agent(model, tools=[look], permission=permissions).session("s")
    await session.run("Go")
    await session.run("Go")
    (grant,) = permissions.grants
    permissions.grants.revoke(grant.grant_id)
    await session.run("Go")
    assert asked == ["look", "look"]
