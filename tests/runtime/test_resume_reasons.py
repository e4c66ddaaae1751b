"""Why a session goes on by itself, and what is no reason to: nobody who attends one goes in circles."""

import asyncio
from typing import Any

import pytest

from perdure import (
    Agent,
    CommandContext,
    ConfigError,
    Extension,
    Message,
    Outcome,
    Permissions,
    Session,
    SessionBusy,
    StopReason,
    ToolCall,
    ToolContext,
    UsageError,
    tool,
    user,
)
from perdure.context import Command, Rewrite, Role
from perdure.events import MessageAdded, QuestionAsked, RunEnded, RunResumed, RunStarted, ToolStarted
from perdure.permissions import later
from perdure.stores import MemoryStore, Post, Store
from perdure.testing import FakeClock, ScriptedModel, call
from tests.doubles import SECONDS, Held, WaitingStore, crashed, elsewhere, log_of, of, rounds


@tool(asks_first=True)
async def ask(context: ToolContext[Any]) -> str:
    """Ask."""
    return f"{await context.ask('Who?', timeout_seconds=3600)} {context.deps}"


@tool(permission=True)
async def pay() -> str:
    """Pay."""
    return "paid"


@tool(effect="ask")
async def sign() -> str:
    """Sign."""
    return "signed"


def session_of(*replies: Any, store: Store | None = None, **options: Any) -> Session[Any]:
    options.setdefault("permission", Permissions(handler=later))
    tools = options.pop("tools", [ask, pay, sign])
    role = options.pop("session_role", "")
    agent = Agent(ScriptedModel(*replies), tools=tools, store=store or MemoryStore(), **options)
    return agent.session("s", role=role)


async def attended(session: Session[Any], seconds: int = 5, **overrides: Any) -> list[str]:
    """How the runs ended that somebody sees who attends the session for a while."""
    seen: list[str] = []

    async def attend() -> None:
        async for outcome in session.attend(**overrides):
            seen.append(outcome.status)  # noqa: PERF401 - looked at before it ends, which it never does

    clock = session.agent.clock
    assert isinstance(clock, FakeClock)
    attending = asyncio.ensure_future(attend())
    async with asyncio.timeout(SECONDS):
        for _ in range(seconds):
            await clock.wait_for_sleepers()
            await clock.advance(1)
    attending.cancel()
    await asyncio.wait((attending,))
    return seen


async def length(session: Session[Any]) -> int:
    return len(await session.store.read("s"))


def begun(*calls_: ToolCall) -> tuple[Any, ...]:
    """The log of a run that a crash has cut off when its model had spoken."""
    reply = Message("assistant", calls_, stop=StopReason.TOOL_USE)
    return RunStarted("agent", run_id="r"), MessageAdded(user("Go"), run_id="r"), MessageAdded(reply, run_id="r")


# -- what ends the waiting ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["now", "after_tools", "after_turn"])
async def test_a_cancel_ends_a_run_that_waits_in_any_mode_and_once(mode):
    session = session_of(call("ask"), clock=FakeClock())
    await session.run("Go")
    await session.cancel(mode)
    assert await attended(session) == ["cancelled"]
    assert len(of(await log_of(session.store, "s"), RunResumed)) == 1


async def test_a_cancel_that_names_no_known_mode_ends_it_too():
    session = session_of(call("ask"), clock=FakeClock())
    run_id = (await session.run("Go")).run_id
    await session.store.post("s", Post("mine", "cancel", {"run_id": run_id}))
    assert await attended(session) == ["cancelled"]


async def test_a_cancel_ends_a_run_that_waits_to_hear_what_became_of_a_call():
    store = MemoryStore()
    started = ToolStarted("c", "sign", "ask", "s/r/c", run_id="r")
    await crashed(store, "s", *begun(ToolCall("c", "sign", "{}")), started)
    session = session_of(store=store, clock=FakeClock())
    assert (await session.resume()).status == "waiting"
    await session.cancel("after_tools")
    assert await attended(session) == ["cancelled"]


async def test_a_question_without_its_words_is_answered_like_any_other():
    session = session_of(call("ask"), "Done.", clock=FakeClock())
    (question,) = (await session.run("Go")).questions
    (entry,) = [each for each in await session.store.read("s") if isinstance(each.event, QuestionAsked)]
    await session.redact(entry.seq)
    assert await session.answer(question.ask_id, "me")
    assert await attended(session) == ["done"]
    assert (await session.messages())[2].tool_results[0].text == "me None"


async def test_a_question_that_has_expired_is_a_reason():
    clock = FakeClock()
    session = session_of(call("ask"), "Nobody.", clock=clock)
    await session.run("Go")
    assert await session.wake() is None
    await clock.advance(3600)
    assert await attended(session) == ["done"]


async def test_an_answer_to_a_question_that_nobody_asks_any_more_is_a_reason_once():
    store = MemoryStore()
    session = session_of(call("ask"), "Done.", store=store, clock=FakeClock())
    outcome = await session.run("Go")
    stray = QuestionAsked("stray", "settlement", "What of it?", ({"call_id": "x"},), run_id=outcome.run_id)
    await crashed(store, "s", stray)
    assert await session.answer("stray", "skip")
    assert await attended(session) == ["waiting"]
    before = await length(session)
    assert await attended(session) == []
    assert await length(session) == before
    assert await session.answer(outcome.questions[0].ask_id, "me")
    assert await attended(session) == ["done"]


async def test_an_answer_that_cannot_be_understood_is_no_reason():
    session = session_of(call("ask"), clock=FakeClock())
    (question,) = (await session.run("Go")).questions
    await session.store.post("s", Post("mine", "answer", {"ask_id": question.ask_id}))
    assert await attended(session) == []
    assert await session.wake() is None


# -- a run that was cut off --------------------------------------------------------------------------------------------


async def test_a_run_that_a_crash_cut_off_goes_on_by_itself():
    for going_on in (Session.wake, lambda session: anext(session.attend())):
        store = MemoryStore()
        await crashed(store, "s", *begun(ToolCall("c", "ask", "{}"))[:2])
        outcome = await going_on(session_of("Here.", store=store))
        assert outcome is not None
        assert (outcome.status, outcome.text, outcome.run_id) == ("done", "Here.", "r")


async def test_a_run_that_crashes_again_and_again_is_parked_and_left_alone():
    store = MemoryStore()
    resumed = [RunResumed(run_id="r")] * 3
    await crashed(store, "s", *begun()[:2], *resumed)
    session = session_of(store=store, clock=FakeClock())
    assert await attended(session) == ["parked"]


async def test_a_run_that_somebody_drives_is_not_cut_off():
    store, held = MemoryStore(), Held()
    driving = session_of(call("held"), "Done.", store=store, tools=[held.tool])
    other = session_of(store=store, clock=FakeClock())
    running = asyncio.ensure_future(driving.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        assert await other.wake() is None
        assert await attended(other) == []
        assert await driving.wake() is None  # the same, in the session that drives it
        held.released.set()
        await running
    assert len(of(await log_of(store, "s"), RunStarted)) == 1


async def test_a_call_that_was_cut_off_is_settled_when_there_is_something_to_tell():
    store = MemoryStore()
    await crashed(store, "s", RunStarted("agent", {"call": "pay"}, run_id="r"))
    session = session_of("Aye.", store=store, clock=FakeClock())
    assert await attended(session) == []
    await session.follow_up("Are you there?")
    assert await attended(session) == ["done"]
    assert [each.reason for each in of(await log_of(store, "s"), RunEnded)] == ["interrupted", ""]


async def test_of_two_who_attend_a_session_one_is_quicker_and_the_other_goes_on_attending():
    store = MemoryStore()
    first, second = session_of(call("ask"), "Done.", store=store), session_of("Done.", store=store)
    (question,) = (await first.run("Go")).questions
    await first.answer(question.ask_id, "me")
    posts = store.posts

    async def overtaken(session_id: str) -> Any:
        store.posts = posts  # type: ignore[method-assign]
        before = await posts(session_id)
        assert (await first.resume()).status == "done"
        return before

    store.posts = overtaken  # type: ignore[method-assign]
    assert await second.wake() is None


async def test_somebody_who_drives_the_session_is_told_of_when_it_is_to_tell_something():
    store = MemoryStore()
    session = session_of(store=store)
    await session.follow_up("Are you there?")
    lease = await store.acquire("s")
    with pytest.raises(SessionBusy):
        await session.wake()
    await store.release(lease)


async def test_attending_goes_on_after_an_error_which_is_told_once():
    store = MemoryStore()
    session = session_of("One.", clock=(clock := FakeClock()), store=store)
    await crashed(store, "s", RunStarted(options={"code": ["engine"]}, run_id="r"), MessageAdded(user("Go")))
    outcomes = session.attend()
    async with asyncio.timeout(SECONDS):
        first = await anext(outcomes)
        assert (first.status, first.reason, type(first.error)) == ("failed", "UsageError", UsageError)
        following = asyncio.ensure_future(anext(outcomes))
        await clock.wait_for_sleepers()
        await clock.advance(10)
        assert not following.done(), "the same error is not told again"
        await Agent(ScriptedModel("Two."), store=store).session("s").run("Another way.")
        await session.follow_up("And now?")
        await clock.advance(1)
        assert (await following).text == "One."
    await outcomes.aclose()


@pytest.mark.parametrize("everybody", [False, True], ids=["attend", "attend_all"])
async def test_a_session_that_another_process_takes_over_is_no_error_for_whoever_attends_to_it(everybody):
    store, held, clock = MemoryStore(), Held(), FakeClock()
    agent = Agent(ScriptedModel(call("held"), "Never said."), tools=[held.tool], clock=clock, store=store)
    session = agent.session("s")
    await session.follow_up("Go")
    outcomes = agent.attend_all() if everybody else session.attend()
    following = asyncio.ensure_future(anext(outcomes))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        other = Agent(ScriptedModel("Mine."), store=store).session("s")
        assert (await elsewhere(lambda: other.run("Hello?", take_over=True))).text == "Mine."
        held.released.set()
        await clock.wait_for_sleepers()
        await clock.advance(10)
    assert not following.done()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_attending_can_be_cancelled_while_it_is_tried_again():
    """Wherever the cancel comes: also while the lease is given back after an error."""
    for count in range(1, 40):
        store = WaitingStore()
        session = session_of("One.", clock=FakeClock(auto=True), store=store)
        await crashed(store, "s", RunStarted(options={"code": ["engine"]}, run_id="r"), MessageAdded(user("Go")))
        outcomes = session.attend()
        await anext(outcomes)
        following = asyncio.ensure_future(anext(outcomes))
        for _ in range(count):
            await asyncio.sleep(0)
        following.cancel()
        async with asyncio.timeout(SECONDS):
            with pytest.raises(asyncio.CancelledError):
                await following
        await outcomes.aclose()


async def test_attending_refuses_what_cannot_be_given_at_once():
    with pytest.raises(ConfigError):
        await anext(session_of("One.").attend(limits="none"))  # type: ignore[call-overload]


# -- how it goes on ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_itself", [True, False])
async def test_what_a_run_was_begun_with_is_given_again(by_itself):
    session = session_of(call("ask"), "Done.", clock=FakeClock())
    (question,) = (await session.run("Go", deps="ship")).questions
    await session.answer(question.ask_id, "me")
    if by_itself:
        assert await attended(session, deps="ship") == ["done"]
    else:
        outcome = await session.wake(deps="ship")
        assert outcome is not None
        assert outcome.status == "done"
    assert (await session.messages())[2].tool_results[0].text == "me ship"


async def test_what_a_run_does_not_take_is_refused():
    with pytest.raises(ConfigError, match="has no override 'speed'"):
        await session_of().wake(speed=6)  # type: ignore[call-overload] # wrong on purpose


async def test_a_session_has_its_role_also_when_it_wakes():
    def told(request: Any) -> str:
        return request.instructions

    options: Any = {"roles": [Role("mate", "Be brief."), Role("cook", "Be kind.")], "session_role": "mate"}
    session = session_of(told, told, told, **options)
    assert "Be brief." in (await session.run("Hi")).text
    await session.follow_up("And?")
    woken = await session.wake()
    await session.follow_up("And?")
    again = await session.wake(role="cook")
    assert woken is not None
    assert again is not None
    assert ("Be brief." in woken.text, "Be kind." in again.text) == (True, True)


# -- how it begins -----------------------------------------------------------------------------------------------------


class _Noted(MemoryStore):
    """Notes who reads a log without driving the session."""

    driven = False
    looked = 0

    async def acquire(self, session_id: str, *, take_over: bool = False) -> Any:
        lease = await super().acquire(session_id, take_over=take_over)
        self.driven = True
        return lease

    async def release(self, lease: Any) -> None:
        await super().release(lease)
        self.driven = False

    async def read(self, session_id: str, *, after: int = 0) -> Any:
        self.looked += not self.driven
        return await super().read(session_id, after=after)


def shout(context: CommandContext) -> Rewrite:
    """Say it louder."""
    return Rewrite(context.text.upper())


@pytest.mark.parametrize(
    "options",
    [
        {"extensions": [Extension(name="e", instructions="Be brief.")]},
        {"extensions": [Extension(name="e", commands=[Command("shout", shout)])]},
        {"commands": [Command("shout", shout)]},
    ],
)
async def test_no_run_reads_the_whole_log_for_what_a_message_may_ask_for(options):
    store = _Noted()
    session = session_of("One.", "Two.", "Three.", store=store, **options)
    await session.run("/shout Hi")
    await session.run("And?")
    assert store.looked == 0
    said = (await session.messages())[0].text
    assert said == ("[/SHOUT] HI" if "commands" in options or options["extensions"][0].commands else "/shout Hi")


async def test_an_input_that_is_sent_several_times_at_once_has_its_hooks_run_once():
    ran: list[str] = []

    async def note(context: CommandContext) -> None:
        ran.append(context.text)
        await rounds(3)

    store = MemoryStore()
    agent = Agent(ScriptedModel("Aye.", repeat_last=True), commands=[Command("note", note)], store=store)
    sessions = [agent.session("s"), agent.session("s")]
    async with asyncio.timeout(SECONDS):
        sending = [each.run("/note this", input_id="m1") for each in (*sessions, sessions[0])]
        outcomes = await asyncio.gather(*sending)
        await sessions[0].run("/note that", input_id="m2")
    assert ([each.text for each in outcomes], len(ran)) == (["Aye."] * 3, 2)
    assert len({each.run_id for each in outcomes}) == 1


async def test_an_input_whose_hook_failed_may_be_sent_again():
    failures = [ConnectionError("oops")]

    def fragile(_: CommandContext) -> None:
        if failures:
            raise failures.pop()

    session = session_of("Aye.", commands=[Command("note", fragile)])
    sending = [session.run("/note", input_id="m1"), session.run("/note", input_id="m1")]
    first, second = await asyncio.gather(*sending, return_exceptions=True)
    assert "oops" in str(first)
    assert isinstance(second, Outcome)
    assert second.text == "Aye."
