"""Questions that are kept: asked once under one id, answered once from anywhere, and found again after a crash."""

import asyncio
from typing import Any

import pytest

from perdure import (
    Agent,
    ConfigError,
    Message,
    Permissions,
    Session,
    Status,
    StopReason,
    ToolCall,
    ToolContext,
    UsageError,
    tool,
    user,
)
from perdure._core.run.tool_calls.questions import validate_answer
from perdure.events import (
    MessageAdded,
    PermissionDecided,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunStarted,
    RunWaiting,
    ToolFinished,
    ToolStarted,
)
from perdure.permissions import PermissionRequest, Verdict, later
from perdure.stores import MemoryStore, Post
from perdure.testing import FakeClock, Recorder, ScriptedModel, call, calls
from tests.doubles import SECONDS, crashed, log_of, of, until
from tests.transcript import assert_valid

pytestmark = pytest.mark.resumed

done: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done():
    done.clear()


@tool(permission=True)
async def pay(amount: int) -> str:
    """Pay."""
    done.append(f"paid {amount}")
    return f"paid {amount}"


@tool(effect="ask")
async def sign() -> str:
    """Sign."""
    done.append("signed")
    return "signed"


def agent(*replies: Any, store: MemoryStore | None = None, **options: Any) -> Agent[Any]:
    permission = options.pop("permission", None) or Permissions(handler=later)
    tools = options.pop("tools", [pay, sign])
    return Agent(ScriptedModel(*replies), tools=tools, store=store or MemoryStore(), permission=permission, **options)


# -- where nobody can be asked -----------------------------------------------------------------------------------------


async def test_permission_is_denied_where_nobody_can_be_asked_whoever_handles_it():
    asked: list[Any] = []

    def handler(requests: Any) -> Any:
        asked.append(requests)
        return [Verdict(allow=True)]

    for permission in (Permissions(handler=later), Permissions(handler=handler)):
        session = agent(call("pay", amount=5), "Denied.", permission=permission, interactive=False).session("s")
        outcome = await session.run("Pay 5")
        assert (outcome.status, done, asked) == ("done", [], [])
        assert [each.status for each in outcome.messages[2].tool_results] == [Status.DENIED]
        assert not of(await log_of(session.store, "s"), QuestionAsked)


@tool(asks_first=True)
async def ask_first(context: ToolContext[Any]) -> str:
    """Ask."""
    return await context.ask("Who?")


@tool
async def ask_late(context: ToolContext[Any]) -> str:
    """Ask when it is too late to begin again."""
    return await context.ask("Who?")


@pytest.mark.parametrize("asking", [ask_first, ask_late])
async def test_a_call_that_cannot_wait_is_told_when_patience_is_at_an_end(asking):
    clock = FakeClock()
    asker = Agent(ScriptedModel("x"), tools=[asking], answer_timeout_seconds=60, clock=clock)
    async with asyncio.timeout(SECONDS):
        session = asker.session("s")
        calling = asyncio.ensure_future(session.call(asking.name, {}))
        while not await session.questions():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        await clock.advance(59)
        assert not calling.done()
        await clock.advance(1)
        result = await calling
    assert (result.status, result.text) == (
        Status.ERROR,
        "no answer was given, and this run cannot wait any longer for one",
    )


@pytest.mark.parametrize("asking", [ask_first, ask_late])
async def test_a_run_that_nothing_is_left_of_waits_for_nobody(asking):
    async with asyncio.timeout(SECONDS):
        outcome = await Agent(ScriptedModel(call(asking.name), "Nobody knows."), tools=[asking]).run("Ask")
    assert (outcome.status, outcome.text) == ("done", "Nobody knows.")
    assert "no answer was given" in outcome.messages[2].tool_results[0].text


async def test_a_run_that_nothing_is_left_of_has_no_permission_that_somebody_would_give_later():
    forgetful = Agent(ScriptedModel(call("pay", amount=5), "No."), tools=[pay], permission=Permissions(handler=later))
    outcome = await forgetful.run("Pay 5")
    assert (outcome.status, outcome.text, done) == ("done", "No.", [])


async def test_a_run_that_is_kept_waits_also_when_nobody_has_named_it():
    keeping = agent(call("pay", amount=5), "Paid.")
    outcome = await keeping.run("Pay 5")
    assert outcome.status == "waiting"
    session = keeping.session(outcome.session_id)
    assert await session.answer(outcome.questions[0].ask_id, answer=True)
    assert (await session.resume()).text == "Paid."


# -- a run that waits --------------------------------------------------------------------------------------------------


async def test_a_run_that_nobody_can_answer_for_ends_as_waiting_and_lists_its_questions():
    session = agent(call("pay", amount=5)).session("s")
    outcome = await session.run("Pay 5")
    assert (outcome.status, outcome.reason) == ("waiting", "question")
    (question,) = outcome.questions
    assert (question.about, question.calls[0]["tool"], question.calls[0]["arguments"]) == (
        "permission",
        "pay",
        {"amount": 5},
    )
    assert "pay" in question.text
    assert not done
    log = await log_of(session.store, "s")
    assert of(log, RunWaiting) == [RunWaiting((question.ask_id,), reason="question", run_id=outcome.run_id)]
    assert not of(log, RunEnded)
    assert await session.questions() == [question]


async def test_an_answer_in_another_process_lets_the_run_go_on():
    store = MemoryStore()
    waiting = await agent(call("pay", amount=5), store=store).session("s").run("Pay 5")
    (question,) = waiting.questions
    assert await agent(store=store).session("s").answer(question.ask_id, answer=True)
    outcome = await agent("Paid.", store=store).session("s").resume()
    assert (outcome.status, outcome.text, done) == ("done", "Paid.", ["paid 5"])
    assert outcome.run_id == waiting.run_id
    assert_valid(outcome.messages)
    log = await log_of(store, "s")
    assert [each.ask_id for each in of(log, QuestionAsked)] == [question.ask_id]
    assert [(each.ask_id, each.source) for each in of(log, QuestionAnswered)] == [(question.ask_id, "post")]
    assert [each.allow for each in of(log, PermissionDecided)] == [True]
    assert await store.posts("s") == []


async def test_a_no_is_told_to_the_model():
    session = agent(call("pay", amount=5), "As you wish.").session("s")
    (question,) = (await session.run("Pay 5")).questions
    await session.answer(question.ask_id, Verdict(allow=False, reason="too much"))
    outcome = await session.resume()
    assert (outcome.text, done) == ("As you wish.", [])
    assert [(each.status, each.text) for each in outcome.messages[2].tool_results] == [(Status.DENIED, "too much")]


async def test_each_call_of_a_batch_may_have_an_answer_of_its_own():
    session = agent(calls(call("pay", amount=5), call("pay", amount=6), call("pay", amount=7)), "Done.").session("s")
    (question,) = (await session.run("Pay")).questions
    first, second, _ = [each["call_id"] for each in question.calls]
    await session.answer(question.ask_id, {first: True, second: False})
    outcome = await session.resume()
    statuses = [each.status for each in outcome.messages[2].tool_results]
    assert statuses == [Status.OK, Status.DENIED, Status.DENIED]  # no answer is a no
    assert done == ["paid 5"]


async def test_a_question_is_answered_once():
    session = agent(call("pay", amount=5), "Done.").session("s")
    (question,) = (await session.run("Pay 5")).questions
    assert await session.answer(question.ask_id, answer=True)
    assert not await session.answer(question.ask_id, answer=False)
    assert (await session.resume()).status == "done"
    assert done == ["paid 5"]
    assert not await session.answer(question.ask_id, answer=False)
    with pytest.raises(UsageError, match="no open question 'another': open are none"):
        await session.answer("another", answer=False)


async def test_a_question_stays_open_under_its_id_however_often_the_run_is_resumed():
    session = agent(call("pay", amount=5), "Done.").session("s")
    asked = [(await session.run("Pay 5")).questions[0].ask_id]
    for _ in range(5):
        outcome = await session.resume()
        assert outcome.status == "waiting"  # and not parked: waiting is no failure
        asked.append(outcome.questions[0].ask_id)
    assert len(set(asked)) == 1
    assert len(of(await log_of(session.store, "s"), QuestionAsked)) == 1


async def test_an_answer_is_remembered_as_far_as_it_reaches():
    gate = Permissions(handler=later)
    session = agent(call("pay", amount=5), call("pay", amount=6), "Done.", permission=gate).session("s")
    (question,) = (await session.run("Pay")).questions
    await session.answer(question.ask_id, Verdict(allow=True, scope="session", covers="tool"))
    assert (await session.resume()).status == "done"
    assert done == ["paid 5", "paid 6"]
    assert [each.scope for each in gate.grants] == ["session"]


async def test_a_new_message_withdraws_the_question():
    session = agent(call("pay", amount=5), "All right.").session("s")
    (question,) = (await session.run("Pay 5")).questions
    outcome = await session.run("Forget it")
    assert (outcome.text, done) == ("All right.", [])
    assert_valid(outcome.messages)
    ended = of(await log_of(session.store, "s"), RunEnded)[0]
    assert (ended.status, ended.reason) == ("cancelled", "unanswered")
    assert not await session.answer(question.ask_id, answer=True)


async def test_an_answer_that_came_too_late_is_put_away():
    store = MemoryStore()
    session = agent(call("pay", amount=5), "All right.", "Hello.", store=store).session("s")
    (question,) = (await session.run("Pay 5")).questions
    await session.answer(question.ask_id, answer=True)
    await session.run("Forget it")
    assert (done, await store.posts("s")) == ([], [])


@pytest.mark.parametrize("answer", ["yes", 1, None, {"c9": True}, [True]])
async def test_what_is_no_answer_is_refused_and_the_question_stays_open(answer):
    session = agent(call("pay", amount=5)).session("s")
    (question,) = (await session.run("Pay 5")).questions
    with pytest.raises(ConfigError, match="does not answer whether calls may be made"):
        await session.answer(question.ask_id, answer)
    assert await session.questions() == [question]


async def test_an_answer_that_was_garbled_on_its_way_is_a_no():
    store = MemoryStore()
    session = agent(call("pay", amount=5), "Hm.", store=store).session("s")
    (question,) = (await session.run("Pay 5")).questions
    garbled = {question.calls[0]["call_id"]: {"allow": "perhaps"}}
    await store.post("s", Post("p", "answer", {"ask_id": question.ask_id, "answer": garbled}))
    outcome = await session.resume()
    assert (outcome.text, done) == ("Hm.", [])


async def test_a_call_without_a_model_cannot_wait_and_is_denied():
    result = await agent().session("s").call("pay", {"amount": 5})
    assert result.status is Status.DENIED
    assert not done


# -- while the run goes on ---------------------------------------------------------------------------------------------


async def test_a_patient_run_waits_for_an_answer_from_elsewhere():
    store, recorder = MemoryStore(), Recorder()
    driver = agent(call("pay", amount=5), "Paid.", store=store, answer_timeout_seconds=60, watchers=[recorder])
    going = asyncio.ensure_future(driver.session("s").run("Pay 5"))
    async with asyncio.timeout(SECONDS):
        await until(lambda: recorder.of(QuestionAsked))
        other = agent(store=store).session("s")
        (question,) = await other.questions()
        assert await other.answer(question.ask_id, answer=True)
        outcome = await going
    assert (outcome.status, outcome.text, done) == ("done", "Paid.", ["paid 5"])


async def test_when_patience_is_over_the_run_waits_without_a_driver():
    clock = FakeClock()
    session = agent(call("pay", amount=5), clock=clock, answer_timeout_seconds=30).session("s")
    going = asyncio.ensure_future(session.run("Pay 5"))
    async with asyncio.timeout(SECONDS):
        await clock.advance(29)
        assert not going.done()
        await clock.advance(1)
        assert (await going).status == "waiting"


async def test_the_first_answer_counts_whether_it_comes_by_post_or_from_the_handler(caplog):
    store, asked = MemoryStore(), asyncio.Event()
    given_up: list[str] = []

    async def handler(_requests: Any) -> Any:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.append("question taken away")

    session = agent(call("pay", amount=5), "Paid.", store=store, permission=Permissions(handler=handler)).session("s")
    going = asyncio.ensure_future(session.run("Pay 5"))
    async with asyncio.timeout(SECONDS):
        await asked.wait()
        (question,) = await session.questions()
        await session.answer(question.ask_id, answer=True)
        outcome = await going
    assert (outcome.text, done, given_up) == ("Paid.", ["paid 5"], ["question taken away"])
    assert caplog.records == []  # that the handler was not needed is no error


async def test_a_cancel_while_the_handler_asks_ends_the_question():
    asked = asyncio.Event()

    async def handler(_requests: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    session = agent(call("pay", amount=5), permission=Permissions(handler=handler)).session("s")
    going = asyncio.ensure_future(session.run("Pay 5"))
    async with asyncio.timeout(SECONDS):
        await asked.wait()
        await session.cancel()
        outcome = await going
    assert (outcome.status, done) == ("cancelled", [])


async def test_a_handler_that_was_cancelled_by_somebody_else_has_said_no():
    async def handler(_requests: Any) -> Any:
        raise asyncio.CancelledError

    session = agent(call("pay", amount=5), "Hm.", permission=Permissions(handler=handler)).session("s")
    outcome = await session.run("Pay 5")
    assert (outcome.text, done) == ("Hm.", [])
    assert outcome.messages[2].tool_results[0].status is Status.DENIED


async def test_called_by_hand_the_handler_for_later_says_no():
    assert [each.allow for each in await Permissions(handler=later)([request("pay")])] == [False]


def request(name: str) -> PermissionRequest:
    return PermissionRequest("c1", name, name, "", {}, "hash", required=True)


async def test_a_handlers_answer_is_in_the_log():
    async def handler(requests: Any) -> Any:
        return [Verdict(allow=True)] * len(requests)

    session = agent(call("pay", amount=5), "Paid.", permission=Permissions(handler=handler)).session("s")
    await session.run("Pay 5")
    (answered,) = of(await log_of(session.store, "s"), QuestionAnswered)
    assert answered.source == "handler"


async def test_a_handlers_answer_puts_away_one_that_was_posted_meanwhile_and_refuses_later_ones():
    store, asked, decided = MemoryStore(), asyncio.Event(), asyncio.Event()

    async def handler(requests: Any) -> Any:
        asked.set()
        await decided.wait()
        return [Verdict(allow=False)] * len(requests)

    session = agent(call("pay", amount=5), "Hm.", store=store, permission=Permissions(handler=handler)).session("s")
    going = asyncio.ensure_future(session.run("Pay 5"))
    async with asyncio.timeout(SECONDS):
        await asked.wait()
        (question,) = await session.questions()
        late = Post(f"answer-{question.ask_id}", "answer", {"ask_id": question.ask_id, "answer": {}})
        await store.post("s", late)  # as another process does: the run has not heard of it
        decided.set()
        await going
    assert (done, await store.posts("s")) == ([], [])
    assert not await store.post("s", late)


async def test_a_question_that_a_crash_left_open_is_asked_again_under_the_same_id():
    store, seen = MemoryStore(), list[str]()

    async def handler(requests: Any) -> Any:
        seen.append(requests[0].call_id)
        return [Verdict(allow=True)]

    waiting = await agent(call("pay", amount=5), store=store).session("s").run("Pay 5")
    outcome = await agent("Paid.", store=store, permission=Permissions(handler=handler)).session("s").resume()
    assert (outcome.text, len(seen)) == ("Paid.", 1)
    log = await log_of(store, "s")
    assert [each.ask_id for each in of(log, QuestionAsked)] == [each.ask_id for each in waiting.questions]


async def test_an_answer_that_was_stored_before_a_crash_is_not_asked_for_again():
    store = MemoryStore()
    waiting = await agent(call("pay", amount=5), store=store).session("s").run("Pay 5")
    (question,) = waiting.questions
    call_id = question.calls[0]["call_id"]
    answered = QuestionAnswered(question.ask_id, {call_id: {"allow": True}}, "handler", run_id=waiting.run_id)
    await crashed(store, "s", answered)
    outcome = await agent("Paid.", store=store).session("s").resume()
    assert (outcome.text, done) == ("Paid.", ["paid 5"])


async def test_a_cancel_while_somebody_is_asked_leaves_nothing_open():
    recorder = Recorder()
    session = agent(call("pay", amount=5), answer_timeout_seconds=60, watchers=[recorder]).session("s")
    going = asyncio.ensure_future(session.run("Pay 5"))
    async with asyncio.timeout(SECONDS):
        await until(lambda: recorder.of(QuestionAsked))
        await session.cancel()
        outcome = await going
    assert (outcome.status, done, await session.questions()) == ("cancelled", [], [])
    assert_valid(outcome.messages)


# -- too late ----------------------------------------------------------------------------------------------------------


async def test_a_question_that_cannot_be_answered_any_more_is_not_listed():
    clock = FakeClock()
    gate = Permissions(handler=later, expires_seconds=10)
    session = agent(call("pay", amount=5), call("pay", amount=6), clock=clock, permission=gate).session("s")
    (question,) = (await session.run("Pay 5")).questions
    await clock.advance(9)
    assert await session.questions() == [question]
    await clock.advance(1)
    assert (await session.questions(), await session.answer(question.ask_id, True)) == ([], False)
    (question,) = (await session.run("Pay 6")).questions
    assert await session.answer(question.ask_id, True)
    assert (await session.questions(), await session.answer(question.ask_id, True)) == ([], False)


async def test_a_question_that_was_never_asked_cannot_be_answered():
    session = agent(call("pay", amount=5)).session("s")
    await session.run("Pay 5")
    with pytest.raises(UsageError, match="session 's' has no open question 'nope': open are "):
        await session.answer("nope", True)


async def test_a_question_expires_as_a_no():
    clock = FakeClock()
    gate = Permissions(handler=later, expires_seconds=3600)
    session = agent(call("pay", amount=5), "Never mind.", clock=clock, permission=gate).session("s")
    (question,) = (await session.run("Pay 5")).questions
    assert question.expires_at == clock.now() + 3600
    await clock.advance(3599)
    assert (await session.resume()).status == "waiting"
    await clock.advance(1)
    outcome = await session.resume()
    assert (outcome.text, done) == ("Never mind.", [])
    assert outcome.messages[2].tool_results[0].text == "permission denied: the question expired without an answer"
    (answered,) = of(await log_of(session.store, "s"), QuestionAnswered)
    assert answered.source == "expired"


async def test_a_question_expires_while_somebody_is_being_asked():
    clock, asked = FakeClock(), asyncio.Event()

    async def handler(_requests: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    gate = Permissions(handler=handler, expires_seconds=10)
    session = agent(call("pay", amount=5), "Never mind.", clock=clock, permission=gate).session("s")
    going = asyncio.ensure_future(session.run("Pay 5"))
    async with asyncio.timeout(SECONDS):
        await asked.wait()
        await clock.advance(10)
        outcome = await going
    assert (outcome.text, done) == ("Never mind.", [])


async def test_an_answer_that_comes_when_the_question_has_expired_does_not_count():
    clock, store = FakeClock(), MemoryStore()
    gate = Permissions(handler=later, expires_seconds=10)
    session = agent(call("pay", amount=5), "Never mind.", clock=clock, permission=gate, store=store).session("s")
    (question,) = (await session.run("Pay 5")).questions
    await clock.advance(10)
    assert not await session.answer(question.ask_id, answer=True)
    yes = {"ask_id": question.ask_id, "answer": {question.calls[0]["call_id"]: {"allow": True}}}
    await store.post("s", Post("of another program", "answer", yes, clock.now()))
    assert ((await session.resume()).text, done) == ("Never mind.", [])


async def test_an_answer_in_time_counts_whenever_the_run_is_resumed():
    clock = FakeClock()
    gate = Permissions(handler=later, expires_seconds=10)
    session = agent(call("pay", amount=5), "Paid.", clock=clock, permission=gate).session("s")
    (question,) = (await session.run("Pay 5")).questions
    await clock.advance(9)
    assert await session.answer(question.ask_id, answer=True)
    await clock.advance(3600)
    assert ((await session.resume()).text, done) == ("Paid.", ["paid 5"])


@pytest.mark.parametrize("seconds", [0, -1, "an hour"])
def test_a_question_cannot_expire_before_it_is_asked(seconds):
    with pytest.raises(ConfigError, match="expires_seconds"):
        Permissions(handler=later, expires_seconds=seconds)


# -- what became of a call that a crash cut off ------------------------------------------------------------------------


async def cut_off() -> Session:
    """A session in which signing had begun when the process ended."""
    store = MemoryStore()
    reply = Message("assistant", (ToolCall("c1", "sign"),), stop=StopReason.TOOL_USE)
    await crashed(
        store,
        "s",
        RunStarted("agent", run_id="r1"),
        MessageAdded(user("Sign"), run_id="r1"),
        MessageAdded(reply, run_id="r1"),
        ToolStarted("c1", "sign", "ask", "s/r1/c1", run_id="r1"),
    )
    return agent("Done.", store=store).session("s")


@pytest.mark.parametrize(
    ("answer", "status", "text", "effects"),
    [
        ("retry", Status.OK, "signed", ["signed"]),
        ("skip", Status.UNKNOWN, "It may or may not have taken effect", []),
        ("It is signed.", Status.OK, "A person has looked: It is signed.", []),
    ],
)
async def test_a_person_settles_a_call_that_asks_for_it(answer, status, text, effects):
    session = await cut_off()
    outcome = await session.resume()
    assert (outcome.status, done) == ("waiting", [])
    (question,) = outcome.questions
    assert (question.about, question.calls[0]["tool"]) == ("settlement", "sign")
    assert await session.answer(question.ask_id, answer)
    outcome = await session.resume()
    (result,) = outcome.messages[2].tool_results
    assert (outcome.status, result.status, done) == ("done", status, effects)
    assert text in result.text
    assert len(of(await log_of(session.store, "s"), ToolFinished)) == 1
    assert_valid(outcome.messages)


async def test_a_call_that_is_cut_off_again_is_asked_about_again():
    session = await cut_off()
    (first,) = (await session.resume()).questions
    run_id = first.run_id
    await crashed(
        session.store,
        "s",
        QuestionAnswered(first.ask_id, "retry", "post", run_id=run_id),
        ToolStarted("c1", "sign", "ask", "s/r1/c1", "", 2, run_id=run_id),
    )
    outcome = await session.resume()
    assert (outcome.status, done) == ("waiting", [])
    (second,) = outcome.questions
    assert second.ask_id != first.ask_id
    await session.answer(second.ask_id, "skip")
    assert ((await session.resume()).status, done) == ("done", [])


# -- when the process is about to end ----------------------------------------------------------------------------------


@pytest.mark.parametrize("asks_somebody", [True, False])
async def test_a_question_stays_open_when_nobody_can_wait_for_it_any_more(asks_somebody):
    asked = asyncio.Event()

    async def handler(_requests: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    store, recorder = MemoryStore(), Recorder()
    gate = Permissions(handler=handler if asks_somebody else later)
    driver = agent(call("pay", amount=5), store=store, permission=gate, answer_timeout_seconds=60, watchers=[recorder])
    session = driver.session("s")
    going = asyncio.ensure_future(session.run("Pay 5"))
    async with asyncio.timeout(SECONDS):
        await until(lambda: recorder.of(QuestionAsked) and (asked.is_set() or not asks_somebody))
        assert session._driver.run is not None
        session._driver.run.mailbox.stop_waiting()
        outcome = await going
    assert outcome.status == "waiting"
    (question,) = outcome.questions
    await session.answer(question.ask_id, answer=True)
    assert (await agent("Paid.", store=store).session("s").resume()).text == "Paid."
    assert done == ["paid 5"]


async def test_a_run_that_waits_can_be_cancelled_and_ends_when_it_is_woken():
    session = agent(call("pay", amount=5)).session("s")
    await session.run("Pay 5")
    assert await session.wake() is None
    assert await session.cancel()
    outcome = await session.wake()
    assert outcome is not None
    assert (outcome.status, done, await session.questions()) == ("cancelled", [], [])


async def test_a_question_that_has_expired_wakes_the_session():
    clock = FakeClock()
    gate = Permissions(handler=later, expires_seconds=10)
    session = agent(call("pay", amount=5), "Never mind.", clock=clock, permission=gate).session("s")
    await session.run("Pay 5")
    heard: list[str] = []

    async def attend() -> None:
        async for outcome in session.attend():
            heard.append(outcome.text)  # noqa: PERF401 - looked at before it ends, which it never does

    attending = asyncio.ensure_future(attend())
    async with asyncio.timeout(SECONDS):
        await clock.wait_for_sleepers()
        await clock.advance(9)
        assert heard == []
        await clock.advance(1)
        assert heard == ["Never mind."]
    attending.cancel()
    await asyncio.wait((attending,))


async def test_no_tool_is_called_by_hand_while_an_answer_is_waited_for():
    session = agent(call("pay", amount=5)).session("s")
    (question,) = (await session.run("Pay 5")).questions
    with pytest.raises(UsageError, match="waits for an answer"):
        await session.call("sign", {})
    assert await session.questions() == [question]


# -- verdicts as other surfaces send them ------------------------------------------------------------------------------


async def test_a_verdict_may_come_as_json_for_all_calls_or_for_each():
    session = agent(calls(call("pay", amount=5), call("pay", amount=6)), "Done.").session("s")
    (question,) = (await session.run("Pay")).questions
    first, second = [each["call_id"] for each in question.calls]
    assert validate_answer(question, {"allow": False, "reason": "no"}) == {
        name: {"allow": False, "reason": "no", "scope": "once", "covers": "arguments", "by": ""}
        for name in (first, second)
    }
    await session.answer(question.ask_id, {first: {"allow": True, "scope": "session"}, second: False})
    outcome = await session.resume()
    assert [each.status for each in outcome.messages[2].tool_results] == [Status.OK, Status.DENIED]


@pytest.mark.parametrize("answer", [{"allow": "yes"}, {"allow": True, "scope": "always"}, {"other": True}, None])
async def test_json_that_is_no_verdict_is_refused(answer):
    session = agent(call("pay", amount=5)).session("s")
    (question,) = (await session.run("Pay")).questions
    with pytest.raises(ConfigError, match="does not answer whether calls may be made"):
        await session.answer(question.ask_id, answer)


async def test_the_refusal_of_an_answer_names_the_part_that_is_wrong():
    session = agent(call("pay", amount=5)).session("s")
    (question,) = (await session.run("Pay")).questions
    with pytest.raises(ConfigError, match="'alow' is none of the calls, and a verdict as JSON has the field 'allow'"):
        await session.answer(question.ask_id, {"alow": True})
    with pytest.raises(ConfigError, match=r"\$\.scope`: the scopes are 'once', 'run', 'session' and 'forever'"):
        await session.answer(question.ask_id, {"allow": True, "scope": "century"})
    with pytest.raises(ConfigError, match=r"Invalid enum value 'sesion' - at `\$\.scope`"):
        await session.answer(question.ask_id, {"allow": True, "scope": "sesion"})
    assert await session.questions() == [question]


async def test_a_question_about_permission_offers_the_widths_with_the_rule_that_each_would_make():
    (question,) = (await agent(call("pay", amount=5)).session("s").run("Pay")).questions
    rule = "allow('pay', action='pay', target='{\"amount\":5}')"
    assert question.calls[0]["offers"] == [
        {
            "covers": "arguments",
            "rule": f"{rule} with exactly these arguments",
            "matches": "'pay' with exactly these arguments",
        },
        {"covers": "target", "rule": rule, "matches": "'pay' on exactly {\"amount\":5}"},
        {"covers": "tool", "rule": "allow('pay', action='pay')", "matches": "every call of 'pay'"},
    ]


# -- what an answer is bound to ----------------------------------------------------------------------------------------


async def test_an_open_question_is_withdrawn_when_the_tool_is_another_one():
    store = MemoryStore()
    (question,) = (await agent(call("pay", amount=5), store=store).session("s").run("Pay")).questions

    @tool(name="pay", permission=True)
    async def refund(amount: int) -> str:
        """Pay back."""
        done.append(f"refunded {amount}")
        return "refunded"

    changed = agent("Done.", store=store, tools=[refund]).session("s")
    (anew,) = (await changed.resume()).questions
    assert anew.ask_id != question.ask_id
    assert [each.ask_id for each in await changed.questions()] == [anew.ask_id]
    await changed.answer(anew.ask_id, answer=True, by="ann")
    assert (await changed.resume()).status == "done"
    assert done == ["refunded 5"]


async def test_an_answer_that_lasts_is_given_for_each_call():
    session = agent(calls(call("pay", amount=5), call("pay", amount=6)), "Done.").session("s")
    (question,) = (await session.run("Pay")).questions
    with pytest.raises(ConfigError, match="is to be remembered, and would be for each of 2 calls"):
        await session.answer(question.ask_id, Verdict(allow=True, scope="session"))
    with pytest.raises(ConfigError, match="does not match the call of 'pay'"):
        await session.answer(
            question.ask_id, {question.calls[0]["call_id"]: Verdict(allow=True, scope="run", covers="cake")}
        )
    first, second = [each["call_id"] for each in question.calls]
    lasting = {first: Verdict(allow=True, scope="session", covers="*5*"), second: False}
    assert await session.answer(question.ask_id, lasting, by="ann")
    assert (await session.resume()).status == "done"
    (grant,) = await session.grants()
    assert (grant.by, grant.covers, done) == ("ann", "pattern", ["paid 5"])


async def test_a_pattern_of_a_handler_that_does_not_match_the_call_is_a_no():
    gate = Permissions(handler=lambda _: [Verdict(allow=True, scope="session", covers="cake")])
    await agent(call("pay", amount=5), "Done.", permission=gate).session("s").run("Pay")
    assert (done, [*gate.grants]) == ([], [])


async def test_once_a_question_is_answered_its_time_does_not_run_on():
    store, recorder, clock = MemoryStore(), Recorder(), FakeClock()
    options: dict[str, Any] = {"answer_timeout_seconds": 5_000, "watchers": [recorder], "clock": clock}
    session = agent(call("pay", amount=5), "Paid.", store=store, **options).session("s")
    going = asyncio.ensure_future(session.run("Pay 5"))
    async with asyncio.timeout(SECONDS):
        await until(lambda: recorder.of(QuestionAsked))
        await until(lambda: 5_000 in clock.pending)
        (question,) = await session.questions()
        assert await session.answer(question.ask_id, answer=True)
        assert (await going).text == "Paid."
    assert 5_000 not in clock.pending
