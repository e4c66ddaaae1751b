"""What a tool shows and asks: in the log, answered from anywhere, and the same again when the call is made again."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from perdure import Agent, ConfigError, Message, Session, Status, StopReason, ToolCall, ToolContext, tool, user
from perdure.events import (
    MessageAdded,
    QuestionAnswered,
    QuestionAsked,
    QuestionWithdrawn,
    RunEnded,
    RunStarted,
    SlotClosed,
    SlotOpened,
    SlotUpdated,
    ToolFinished,
    ToolStarted,
)
from perdure.people import Askable, Choice, Confirm, CustomSlot, PlainText, Progress, Showable, TextQuestion
from perdure.stores import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call
from tests.doubles import SECONDS, crashed, log_of, of, until
from tests.transcript import assert_valid

pytestmark = pytest.mark.resumed

done: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done():
    done.clear()


@tool(asks_first=True)
async def book(context: ToolContext[Any]) -> str:
    """Book a berth."""
    await context.display.push(PlainText("Two berths are free."), until="call")
    which = await context.ask(Choice("Which berth?", ["north", "south"]))
    really = await context.ask(Confirm(f"Really {which}?"))
    await context.begin()
    done.append(f"{which} {really}")
    return f"{which}: {really}"


@tool
async def stop_and_ask(context: ToolContext[Any]) -> str:
    """Ask when it is too late to begin again."""
    done.append("begun")
    return await context.ask("What now?", timeout_seconds=60)


def session_of(*replies: Any, store: MemoryStore | None = None, session_id: str = "s", **options: Any) -> Session:
    tools = options.pop("tools", [book, stop_and_ask])
    return Agent(ScriptedModel(*replies), tools=tools, store=store or MemoryStore(), **options).session(session_id)


async def one_question(session: Session) -> QuestionAsked:
    (question,) = await session.questions()
    return question


async def asked(session: Session) -> QuestionAsked:
    """The question that a run that goes on has asked."""
    async with asyncio.timeout(SECONDS):
        while not (questions := await session.questions()):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
    return questions[0]


def result_of(outcome: Any) -> tuple[Status, str]:
    (result,) = outcome.messages[2].tool_results
    return result.status, result.text


# -- a tool that asks first --------------------------------------------------------------------------------------------


async def test_a_tool_that_asks_first_is_put_aside_and_gets_its_answers_in_order():
    store = MemoryStore()
    first = await session_of(call("book"), store=store).run("A berth, please.")
    assert (first.status, first.questions[0].text, first.questions[0].renderer) == ("waiting", "Which berth?", "choice")
    assert await session_of(store=store).answer(first.questions[0].ask_id, "south")
    second = await session_of(store=store).resume()
    assert (second.status, second.questions[0].text) == ("waiting", "Really south?")
    assert await session_of(store=store).answer(second.questions[0].ask_id, answer=True)
    last = await session_of("Booked.", store=store).resume()
    assert (last.text, result_of(last), done) == ("Booked.", (Status.OK, "south: True"), ["south True"])
    log = await log_of(store, "s")
    assert [each.text for each in of(log, QuestionAsked)] == ["Which berth?", "Really south?"]
    assert len(of(log, ToolStarted)) == 1
    assert_valid(last.messages)


async def test_what_it_shows_is_shown_once_however_often_it_begins():
    store = MemoryStore()
    outcome = await session_of(call("book"), store=store).run("A berth, please.")
    await session_of(store=store).answer(outcome.questions[0].ask_id, "north")
    await session_of(store=store).resume()
    (slot,) = of(await log_of(store, "s"), SlotOpened)
    assert (slot.renderer, slot.input, slot.until) == ("text", {"text": "Two berths are free."}, "call")


async def test_an_answer_that_does_not_fit_is_refused_with_every_problem():
    session = session_of(call("book"))
    await session.run("A berth, please.")
    with pytest.raises(ConfigError, match="'west' does not answer 'Which berth\\?': expected one of 'north', 'south'"):
        await session.answer((await one_question(session)).ask_id, "west")
    assert (await session.resume()).status == "waiting"


async def test_an_answer_of_a_process_while_another_one_waits_patiently():
    store = MemoryStore()
    session = session_of(call("book"), "Booked.", store=store, answer_timeout_seconds=SECONDS)
    run = asyncio.ensure_future(session.run("A berth, please."))
    await session_of(store=store).answer((await asked(session)).ask_id, "north")
    await until(lambda: session._driver.run is None or "Really north?" in [each.text for each in _open(session)])
    await session_of(store=store).answer((await asked(session)).ask_id, answer=False)
    async with asyncio.timeout(SECONDS):
        outcome = await run
    assert result_of(outcome) == (Status.OK, "north: False")


def _open(session: Session) -> list[QuestionAsked]:
    run = session._driver.run
    return [] if run is None else run.state.open_questions


async def test_a_question_that_expires_is_not_answered():
    clock = FakeClock()

    @tool(asks_first=True)
    async def hurry(context: ToolContext[Any]) -> str:
        """Ask, and wait an hour."""
        return await context.ask("Now?", timeout_seconds=3600)

    session = session_of(call("hurry"), "Too late.", tools=[hurry], clock=clock)
    outcome = await session.run("Hurry.")
    (question,) = outcome.questions
    assert question.expires_at == pytest.approx(clock.now() + 3600)
    await clock.advance(3601)
    assert not await session.answer(question.ask_id, "yes")
    outcome = await session.resume()
    assert (outcome.text, result_of(outcome)) == ("Too late.", (Status.ERROR, "no answer in time: Now?"))


async def test_a_question_that_does_not_say_what_it_wants_takes_anything():
    @tool(asks_first=True)
    async def anything(context: ToolContext[Any]) -> Any:
        """Ask for anything."""
        return await context.ask(CustomSlot("map", question="Where?"))

    session = session_of(call("anything"), "There.", tools=[anything])
    await session.run("Go.")
    assert await session.answer((await one_question(session)).ask_id, {"at": [1, 2]})
    assert result_of(await session.resume()) == (Status.OK, '{"at":[1,2]}')


# -- a tool that does not ----------------------------------------------------------------------------------------------


async def test_a_tool_that_has_begun_waits_where_it_is():
    session = session_of(call("stop_and_ask"), "Going on.", answer_timeout_seconds=0)
    run = asyncio.ensure_future(session.run("Go."))
    question = await asked(session)
    assert (question.renderer, question.output) == ("line", {"type": "string"})
    await session.answer(question.ask_id, "go on")
    async with asyncio.timeout(SECONDS):
        outcome = await run
    assert (result_of(outcome), done) == ((Status.OK, "go on"), ["begun"])


async def test_nobody_answers_a_tool_in_time():
    clock = FakeClock()
    session = session_of(call("stop_and_ask"), "Too late.", clock=clock)
    run = asyncio.ensure_future(session.run("Go."))
    await asked(session)
    await clock.advance(61)
    async with asyncio.timeout(SECONDS):
        outcome = await run
    assert result_of(outcome) == (Status.ERROR, "no answer in time: What now?")
    (answered,) = of(await log_of(session.store, "s"), QuestionAnswered)
    assert answered.source == "expired"


async def test_after_a_restart_its_question_is_withdrawn_and_the_call_is_unknown():
    store = MemoryStore()
    reply = Message("assistant", (ToolCall("call_1", "stop_and_ask", "{}"),), stop=StopReason.TOOL_USE)
    await crashed(
        store,
        "s",
        RunStarted(run_id="r"),
        MessageAdded(user("Go."), run_id="r"),
        MessageAdded(reply, run_id="r"),
        ToolStarted("call_1", "stop_and_ask", "at_most_once", "s/r/call_1", run_id="r"),
        QuestionAsked("ask", "slot", "What now?", ({"call_id": "call_1", "place": 1},), renderer="line", run_id="r"),
    )
    session = session_of("I do not know.", store=store)
    outcome = await session.resume()
    assert result_of(outcome)[0] is Status.UNKNOWN
    (withdrawn,) = of(await log_of(store, "s"), QuestionWithdrawn)
    assert withdrawn.reason == "the call that asked is over (unknown): no answer is needed any more"
    assert not done
    assert await session.questions() == []


async def test_a_shutdown_does_not_keep_it_waiting():
    session = session_of(call("stop_and_ask"), "Going on.")
    run = asyncio.ensure_future(session.run("Go."))
    await asked(session)
    assert session._driver.run is not None
    session._driver.run.mailbox.stop_waiting()
    async with asyncio.timeout(SECONDS):
        outcome = await run
    assert result_of(outcome) == (Status.ERROR, "the process is about to end, and there is no answer yet")


async def test_where_nobody_can_be_asked_the_tool_is_told_so():
    outcome = await session_of(call("stop_and_ask"), "Alone.", interactive=False).run("Go.")
    assert result_of(outcome) == (Status.ERROR, "no questions can be asked in this run: it is not interactive")


# -- what is only shown ------------------------------------------------------------------------------------------------


def showing(work: Callable[[ToolContext[Any]], Any]) -> Any:
    @tool(effect="read")
    async def show(context: ToolContext[Any]) -> str:
        """Show something."""
        await work(context)
        return "shown"

    return show


async def slots_after(work: Callable[[ToolContext[Any]], Any]) -> tuple[list[Any], MemoryStore]:
    store = MemoryStore()
    session = session_of(call("show"), "Done.", tools=[showing(work)], store=store)
    outcome = await session.run("Show.")
    assert result_of(outcome) == (Status.OK, "shown")
    return await session.display.slots(), store


async def test_something_is_shown_changed_and_removed():
    async def work(context: ToolContext[Any]) -> None:
        slot_id = await context.display.push(Progress("copying", 1, 2))
        await context.display.update(slot_id, Progress("copying", 2, 2))
        await context.display.remove(slot_id, "copied")

    slots, store = await slots_after(work)
    log = await log_of(store, "s")
    assert slots == []
    assert [each.input["done"] for each in of(log, SlotUpdated)] == [2]
    assert [each.reason for each in of(log, SlotClosed)] == ["copied"]


@pytest.mark.parametrize("name", ["update", "remove"])
async def test_what_nobody_is_shown_cannot_be_changed_or_removed(name):
    async def work(context: ToolContext[Any]) -> None:
        await context.display.push(PlainText("here"))
        await getattr(context.display, name)("nope", PlainText("x") if name == "update" else "")

    outcome = await session_of(call("show"), "Done.", tools=[showing(work)]).run("Show.")
    status, text = result_of(outcome)
    assert status is Status.ERROR
    assert f"display.{name}(slot_id='nope'): no such slot; give the id that push() returned (open slots: '" in text


async def test_what_a_call_has_shown_can_be_changed_though_somebody_has_closed_it_meanwhile():
    async def work(context: ToolContext[Any]) -> None:
        slot_id = await context.display.push(Progress("copying", 1, 2))
        await context.record(SlotClosed(slot_id, "enough"))
        await context.display.update(slot_id, Progress("copying", 2, 2))
        await context.display.remove(slot_id)

    slots, store = await slots_after(work)
    assert slots == []
    assert len(of(await log_of(store, "s"), SlotClosed)) == 2


async def test_something_is_shown_until_the_call_or_the_run_is_over_or_it_is_closed():
    async def work(context: ToolContext[Any]) -> None:
        await context.display.push(PlainText("call"), until="call")
        await context.display.push(PlainText("run"), until="run")
        await context.display.push(PlainText("closed"))

    slots, store = await slots_after(work)
    assert [each.input["text"] for each in slots] == ["closed"]
    assert of(await log_of(store, "s"), RunEnded)[0].status == "done"


class Chart(Showable, frozen=True):
    """A kind of somebody's own."""

    renderer = "chart"
    values: tuple[int, ...]


async def test_a_kind_of_your_own_is_a_class():
    slots, _ = await slots_after(lambda context: context.display.push(Chart((1, 2))))
    assert [(each.renderer, each.input) for each in slots] == [("chart", {"values": [1, 2]})]


async def test_secrets_that_a_tool_was_given_are_not_shown():
    async def work(context: ToolContext[Any]) -> None:
        context.redact_secrets = lambda data: {"text": "•••"} if data == {"text": "secret"} else data
        slot_id = await context.display.push(PlainText("secret"))
        await context.display.update(slot_id, PlainText("secret"))

    slots, store = await slots_after(work)
    assert [each.input for each in slots] == [{"text": "•••"}]
    assert [each.input for each in of(await log_of(store, "s"), SlotUpdated)] == [{"text": "•••"}]


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (lambda context: context.display.push("words"), "display.push(shown='words'): give something such as Table(…)"),
        (
            lambda context: context.display.push(PlainText("x"), until="noon"),
            "display.push(until='noon'): use 'closed'",
        ),
        (lambda context: context.display.update("x", 5), "display.update(shown=5): give something such as Table(…)"),
        (lambda context: context.display.update("", PlainText("x")), "display.update(slot_id=''): give non-empty text"),
        (lambda context: context.display.remove(""), "display.remove(slot_id=''): give non-empty text"),
        (lambda context: context.display.remove("x", 5), "display.remove(reason=5): give text"),
        (lambda context: context.ask(5), "ask(question=5): give a question in words, or one such as Confirm(…)"),
        (lambda context: context.ask(PlainText("x")), "give a question in words, or one such as Confirm(…)"),
        (lambda context: context.ask(" "), "ask(question=' '): give non-empty text"),
        (lambda context: context.ask("x", timeout_seconds=-1), "ask(timeout_seconds=-1): give a number from 0 on"),
    ],
)
async def test_what_cannot_be_shown_or_asked_is_told_to_the_tool(work, told):
    session = session_of(call("show"), "Done.", tools=[showing(work)])
    outcome = await session.run("Show.")
    status, text = result_of(outcome)
    assert status is Status.ERROR
    assert text.startswith(f"ConfigError: {told}") or told in text


def test_a_question_says_what_it_asks_and_takes_any_answer_unless_it_says_otherwise():
    class Anything(Askable[Any], frozen=True):
        """A question that forgets to say anything."""

        renderer = "anything"

    assert (Anything().output, Anything().read({"x": 1})) == (None, {"x": 1})
    assert Anything().text == "an answer is required (anything)"
    assert (TextQuestion("Who?").text, TextQuestion("Who?").output) == ("Who?", {"type": "string"})


async def test_a_result_that_comes_without_an_answer_withdraws_the_question():
    session = session_of(call("book"), "Never mind.")
    await session.run("A berth, please.")
    question = await one_question(session)
    await session.run("Forget it.")
    log = await log_of(session.store, "s")
    assert [each.ask_id for each in of(log, QuestionWithdrawn)] == [question.ask_id]
    assert of(log, ToolFinished)[0].result.status is Status.CANCELLED_BEFORE_START
