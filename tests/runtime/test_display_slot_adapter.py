"""A display of the host's own gets every slot, asks its questions, and cannot break anything."""

import asyncio
import logging
from typing import Any

import pytest

from perdure import Agent, ConfigError, NotAnswered, Session, ToolContext, tool
from perdure._runtime.session import slots, stored
from perdure.people import Confirm, PlainText, SlotView
from perdure.testing import ScriptedModel, call
from tests.doubles import SECONDS, until


@pytest.fixture(autouse=True)
def _quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(stored, "WATCH_POLL_SECONDS", 0.01)


class Screen:
    """A display that notes what it is given."""

    def __init__(self, *answers: Any) -> None:
        self.shown: list[str] = []
        self.closed: list[str] = []
        self.answers = list(answers)
        self.cancelled = 0

    async def show(self, slot: SlotView) -> None:
        self.shown.append(slot.text or slot.input["text"])

    async def close(self, slot_id: str) -> None:
        self.closed.append(slot_id)

    async def ask(self, slot: SlotView) -> Any:
        if not self.answers:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@tool
async def confirm(question: str, context: ToolContext[Any]) -> str:
    """Asks."""
    await context.display.push(PlainText("A question."), until="call")
    try:
        return f"{await context.ask(Confirm(question))}"
    except NotAnswered as error:
        return f"declined: {error}"


def session_of(*replies: Any) -> Session:
    return Agent(ScriptedModel(*replies), tools=[confirm]).session("s")


async def test_an_adapter_shows_the_slots_of_tools_and_answers_their_questions():
    screen, session = Screen(True), session_of(call("confirm", question="Sure?"), "Done.")
    async with session.display.connect(screen), asyncio.timeout(SECONDS):
        outcome = await session.run("Go.")
        assert outcome.tool_calls[0].result is not None
        assert outcome.tool_calls[0].result.text == "True"
        await until(lambda: len(screen.closed) == 2)
    assert screen.shown == ["A question.", "Sure?"]


async def test_an_adapter_gets_what_the_host_pushes_and_its_changes():
    screen, session = Screen(), session_of()
    async with session.display.connect(screen), asyncio.timeout(SECONDS):
        await session.display.push(PlainText("One."), slot_id="a")
        await until(lambda: screen.shown == ["One."])
        await session.display.update("a", PlainText("Two."))
        await until(lambda: screen.shown == ["One.", "Two."])
        await session.display.remove("a")
        await until(lambda: screen.closed == ["a"])


async def test_an_adapter_can_decline_a_question():
    screen, session = Screen(NotAnswered("not today")), session_of(call("confirm", question="Sure?"), "Done.")
    async with session.display.connect(screen), asyncio.timeout(SECONDS):
        outcome = await session.run("Go.")
    (made,) = outcome.tool_calls
    assert made.result is not None
    assert made.result.text == "declined: not today"


@pytest.mark.parametrize("answer", ["maybe", RuntimeError("no screen")])
async def test_errors_of_an_adapter_are_logged_and_the_question_stays_open(answer, caplog):
    screen, session = Screen(answer), session_of(call("confirm", question="Sure?"), "Done.")
    with caplog.at_level(logging.WARNING, "perdure"):
        async with session.display.connect(screen), asyncio.timeout(SECONDS):
            running = asyncio.ensure_future(session.run("Go."))
            await until(lambda: caplog.records)
            (question,) = await session.questions()
            await session.answer(question.ask_id, answer=False)
            assert (await running).status == "done"
    assert "display" in caplog.records[0].getMessage()


async def test_a_question_that_is_settled_elsewhere_is_taken_from_the_adapter():
    screen, session = Screen(), session_of()
    async with session.display.connect(screen), asyncio.timeout(SECONDS):
        asking = asyncio.ensure_future(session.display.ask("Name?", slot_id="name"))
        await until(lambda: screen.shown == ["Name?"])
        await session.display.resolve("name", "Ada")
        assert await asking == "Ada"
        await until(lambda: screen.cancelled)
        still_open = asyncio.ensure_future(session.display.ask("Age?", slot_id="age"))
        await until(lambda: screen.shown == ["Name?", "Age?"])
    assert screen.cancelled == 2  # the block is over: it asks nothing any more
    still_open.cancel()
    await asyncio.wait((still_open,))


@pytest.mark.parametrize("adapter", [None, object(), Screen.show])
async def test_an_object_without_the_methods_is_no_adapter(adapter):
    with pytest.raises(ConfigError, match=r"give an object with show\(slot\), close\(slot_id\) and ask\(slot\)"):
        async with session_of().display.connect(adapter):
            pass
