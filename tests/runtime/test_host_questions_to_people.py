"""A host program asks people: the question is a slot, and the answer is stored, and found again after a crash."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from perdure import Agent, ConfigError, NotAnswered, Session, UsageError
from perdure._runtime.session import slots as session_display_slots
from perdure._runtime.session import stored
from perdure.context import Command
from perdure.events import SlotClosed, SlotOpened, SlotUpdated
from perdure.people import Choice, Confirm, PlainText, Progress
from perdure.stores import MemoryStore, Store
from perdure.testing import FakeClock, ScriptedModel, call
from tests.doubles import SECONDS, Held, log_of, of, rounds


@pytest.fixture(autouse=True)
def _quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_display_slots, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(stored, "WATCH_POLL_SECONDS", 0.01)


def session_of(*replies: Any, store: Store | None = None, **options: Any) -> Session:
    return Agent(ScriptedModel(*replies), store=store or MemoryStore(), **options).session("s")


async def wait_for_slot(session: Session, slot_id: str = "") -> str:
    """Wait until a slot is open, and return its id."""
    async with asyncio.timeout(SECONDS), aclosing(session.display.subscribe()) as changes:
        async for slots in changes:
            for slot in slots:
                if slot_id in {"", slot.slot_id}:
                    return slot.slot_id
    raise AssertionError


# -- shown -------------------------------------------------------------------------------------------------------------


async def test_a_host_shows_something_before_any_run_and_takes_it_away():
    session = session_of()
    slot_id = await session.display.push(PlainText("Welcome."))
    (view,) = await session.display.slots()
    assert (view.slot_id, view.renderer, view.input["text"], view.waits) == (slot_id, "text", "Welcome.", False)
    await session.display.update(slot_id, PlainText("Welcome back."))
    (view,) = await session_of(store=session.store).display.slots()  # any other process sees the same
    assert view.input["text"] == "Welcome back."
    assert await session.display.remove(slot_id)
    assert await session.display.slots() == []
    with pytest.raises(UsageError, match=r"has no open slot .*: push\(\) opens one"):
        await session.display.update(slot_id, PlainText("Too late."))


async def test_a_slot_of_the_callers_own_id_is_opened_once():
    session = session_of()
    assert await session.display.push(Progress("Copying", 1, 3), slot_id="copy") == "copy"
    await session.display.push(Progress("Copying", 2, 3), slot_id="copy")
    assert len(of(await log_of(session.store, "s"), SlotOpened)) == 1


async def test_what_a_host_shows_during_a_run_is_seen_at_once_and_stored_by_the_run():
    held = Held("wait")
    session = session_of(call("wait"), "Done.", tools=[held.tool])
    running = asyncio.ensure_future(session.run("Go."))
    await held.started.wait()
    slot_id = await session.display.push(Progress("Copying", 1, 3))
    await session.display.update(slot_id, Progress("Copying", 2, 3))
    other = await session.display.push(PlainText("Never mind."))
    assert await session.display.remove(other)
    (view,) = await session.display.slots()
    assert (view.slot_id, view.input["done"]) == (slot_id, 2)
    held.released.set()
    await running
    assert await session.display.slots() == [view]
    events = await log_of(session.store, "s")
    assert [len(of(events, kind)) for kind in (SlotOpened, SlotUpdated, SlotClosed)] == [2, 1, 1]
    assert await session.store.posts("s") == []


async def test_what_arrives_in_the_last_moment_of_a_run_is_stored_with_its_end():
    session: Session

    async def last(_run: Any, _reply: Any) -> Any:
        from perdure.engines import Accepted

        await session.display.push(PlainText("Done soon."), slot_id="late")
        return Accepted()

    session = session_of("Done.", output_validators=[last])
    await session.run("Go.")
    assert [each.slot_id for each in of(await log_of(session.store, "s"), SlotOpened)] == ["late"]
    assert await session.store.posts("s") == []


async def test_a_command_can_show_and_ask_while_the_message_waits():
    async def deploy(context: Any) -> Any:
        from perdure.context import ShortCircuit

        await context.controls.display.push(PlainText("Preparing."), slot_id="note")
        sure = await context.controls.display.ask(Confirm("Deploy?"), slot_id="sure")
        return ShortCircuit("Deployed." if sure else "Left alone.")

    session = session_of(commands=[Command("deploy", deploy)])
    running = asyncio.ensure_future(session.run("/deploy"))
    await wait_for_slot(session, "sure")
    await session.display.resolve("sure", value=True)
    assert (await running).text == "Deployed."


@pytest.mark.parametrize("shown", ["text", None, Confirm])
async def test_what_cannot_be_shown_or_asked_is_refused(shown):
    display = session_of().display
    with pytest.raises(ConfigError, match=r"display\.push\(shown=.*give something such as Table"):
        await display.push(shown)
    with pytest.raises(ConfigError, match=r"display\.push\(slot_id=5\)"):
        await display.push(PlainText("x"), slot_id=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="give a question in words"):
        await display.ask(PlainText("x"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"display\.ask\(timeout_seconds=-1\)"):
        await display.ask("Well?", timeout_seconds=-1)


# -- asked -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["display", "answer"])
async def test_a_host_asks_and_gets_the_answer_of_another_process(way):
    session = session_of()
    elsewhere = session_of("Done.", store=session.store)
    asking = asyncio.ensure_future(session.display.ask(Choice("Which?", ["red", "blue"])))
    slot_id = await wait_for_slot(elsewhere)
    (view,) = await elsewhere.display.slots()
    assert (view.waits, view.text, view.renderer) == (True, "Which?", "choice")
    with pytest.raises(ConfigError, match="'green' does not answer 'Which\\?'"):
        await elsewhere.display.resolve(slot_id, "green")
    if way == "display":
        assert await elsewhere.display.resolve(slot_id, "blue")
    else:
        assert await elsewhere.answer(slot_id, "blue", by="ada")
    async with asyncio.timeout(SECONDS):
        assert await asking == "blue"
    assert not await elsewhere.answer(slot_id, "red")
    await elsewhere.run("Go.")  # if the answer was posted, it is stored now
    (closed,) = of(await log_of(session.store, "s"), SlotClosed)
    assert (closed.is_answered, closed.answer, closed.by) == (True, "blue", "ada" if way == "answer" else "")


async def test_a_question_of_the_host_is_answered_while_the_session_runs():
    held = Held("wait")
    session = session_of(call("wait"), "Done.", tools=[held.tool])
    running = asyncio.ensure_future(session.run("Go."))
    await held.started.wait()
    asking = asyncio.ensure_future(session.display.ask("Your name?", slot_id="name"))
    await wait_for_slot(session)
    assert await session.answer("name", "Ada")
    assert not await session.answer("name", "Eve")
    async with asyncio.timeout(SECONDS):
        assert await asking == "Ada"
    held.released.set()
    assert (await running).status == "done"
    assert [each.answer for each in of(await log_of(session.store, "s"), SlotClosed)] == ["Ada"]


async def test_a_run_neither_waits_for_a_question_of_the_host_nor_ends_it():
    session = session_of("Done.")
    asking = asyncio.ensure_future(session.display.ask("Your name?", slot_id="name"))
    await wait_for_slot(session)
    assert (await session.run("Go.")).status == "done"
    assert await session.questions() == []
    await session.display.resolve("name", "Ada")
    async with asyncio.timeout(SECONDS):
        assert await asking == "Ada"


async def test_an_answer_given_while_the_host_was_dead_is_found_under_the_same_id():
    store = MemoryStore()
    asking = asyncio.ensure_future(session_of(store=store).display.ask(Confirm("Deploy?"), slot_id="deploy-7"))
    await wait_for_slot(session_of(store=store))
    asking.cancel()
    await asyncio.wait((asking,))
    await session_of(store=store).display.resolve("deploy-7", value=False)
    assert await session_of(store=store).display.ask(Confirm("Deploy?"), slot_id="deploy-7") is False
    assert len(of(await log_of(store, "s"), SlotOpened)) == 1


@pytest.mark.parametrize("way", ["reject", "remove"])
async def test_a_question_that_is_declined_raises_the_reason(way):
    session = session_of()
    asking = asyncio.ensure_future(session.display.ask("Your name?", slot_id="name"))
    await wait_for_slot(session)
    assert await getattr(session.display, way)("name", "none of your business")
    with pytest.raises(NotAnswered, match="none of your business"):
        async with asyncio.timeout(SECONDS):
            await asking


async def test_a_question_without_an_answer_in_time_is_closed():
    clock = FakeClock()
    session = session_of(clock=clock)
    asking = asyncio.ensure_future(session.display.ask("Your name?", slot_id="name", timeout_seconds=60))
    await wait_for_slot(session)
    await clock.advance(61)
    assert not await session.answer("name", "Ada")
    assert await session.display.slots() == []
    with pytest.raises(NotAnswered, match=r"no answer in time: Your name\?"):
        async with asyncio.timeout(SECONDS):
            await asking


async def test_a_slot_that_waits_for_nothing_takes_no_answer():
    session = session_of()
    await session.display.push(PlainText("x"), slot_id="x")
    for way in (session.display.resolve("x", 1), session.display.reject("x")):
        with pytest.raises(UsageError, match="waits for no answer: it is only shown"):
            await way
    assert not await session.answer("x", 1)


async def test_a_session_that_is_closed_gives_no_answer():
    session = session_of()
    asking = asyncio.ensure_future(session.display.ask("Your name?"))
    await wait_for_slot(session)
    await rounds()
    await session.aclose()
    with pytest.raises(NotAnswered, match="the session was closed"):
        async with asyncio.timeout(SECONDS):
            await asking
