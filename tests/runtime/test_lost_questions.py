"""An answer that cannot be used is not accepted: the caller hears so, and the question is not shown any more."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from perdure import Agent, Message, Session, ToolCall, ToolContext, tool, user
from perdure.events import MessageAdded, QuestionAsked, RunStarted, RunWaiting, ToolStarted
from perdure.stores import FileStore, MemoryStore, Post, SqliteStore, Store
from perdure.testing import ScriptedModel, call
from tests.doubles import SECONDS, crashed

STORES = ("memory", "file", "sqlite")


@pytest.fixture
async def store(request, tmp_path):
    kind = getattr(request, "param", "memory")
    paths = {"file": FileStore, "sqlite": SqliteStore}
    opened = MemoryStore() if kind == "memory" else paths[kind](tmp_path / "sessions")
    yield opened
    await opened.aclose()


def asking_tool(effect: Any, **options: Any) -> Any:
    @tool(name="act", effect=effect, **options)
    async def act(context: ToolContext[Any]) -> str:
        """Asks in the middle of its call."""
        return f"got {await context.ask('Who?')}"

    return act


async def die_while_asking(store: Store, effect: str, path: str = "") -> None:
    """Leave the log of a process that died while a tool waited for the answer."""
    where: dict[str, Any] = {"run_id": "r", "path": path}
    reply = Message("assistant", (ToolCall("c1", "act", "{}"),))
    above = [RunStarted(run_id="top"), MessageAdded(user("Go"), run_id="top")] if path else []
    await crashed(
        store,
        "s",
        *above,
        RunStarted(**where),
        MessageAdded(user("Go"), **where),
        MessageAdded(reply, **where),
        ToolStarted("c1", "act", effect, "key", **where),
        QuestionAsked("q1", "slot", "Who?", ({"call_id": "c1", "tool": "act", "place": 1},), renderer="line", **where),
    )


def session_in(store: Store, effect: Any, *replies: Any) -> Session[Any]:
    return Agent(ScriptedModel(*replies), tools=[asking_tool(effect)], store=store).session("s")


async def shown(session: Session[Any]) -> tuple[list[str], list[str]]:
    slots = [each.slot_id for each in await session.display.slots()]
    return slots, [each.ask_id for each in await session.questions()]


@pytest.mark.parametrize("store", STORES, indirect=True)
@pytest.mark.parametrize("effect", ["at_most_once", "ask"])
async def test_a_question_whose_call_died_with_its_process_is_neither_shown_nor_answered(store, effect):
    await die_while_asking(store, effect)
    session = session_in(store, effect)
    assert await shown(session) == ([], [])
    assert [
        await session.answer("q1", "me"),
        await session.display.resolve("q1", "me"),
        await session.display.reject("q1"),
        await session.display.remove("q1"),
    ] == [False] * 4
    assert await store.posts("s") == []


@pytest.mark.parametrize("store", STORES, indirect=True)
@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_the_answer_to_a_call_that_is_made_again_is_used(store, effect):
    await die_while_asking(store, effect)
    session = session_in(store, effect, "Done.")
    assert await shown(session) == (["q1"], ["q1"])
    assert await session.display.resolve("q1", "me")
    outcome = await session.resume()
    assert outcome.messages[2].tool_results[0].text == "got me"


async def test_a_question_of_a_subagent_that_died_is_not_answered(store):
    await die_while_asking(store, "at_most_once", path="child")
    session = session_in(store, "at_most_once")
    assert await shown(session) == ([], [])
    assert not await session.answer("q1", "me")


async def test_a_question_is_hidden_while_a_person_has_to_settle_its_call_and_asked_again_afterwards(store):
    await die_while_asking(store, "ask")
    session = session_in(store, "ask", "Done.")
    outcome = await session.resume()
    assert [question.about for question in outcome.questions if question.ask_id != "q1"] == ["settlement"]
    (settlement,) = await session.questions()
    assert not await session.answer("q1", "me")
    assert await session.answer(settlement.ask_id, "retry")
    running = asyncio.ensure_future(session.resume())
    async with asyncio.timeout(SECONDS):
        async with aclosing(session.display.subscribe()) as changes:
            async for slots in changes:
                if [each.slot_id for each in slots] == ["q1"]:
                    break
        assert await session.answer("q1", "me")
        outcome = await running
    assert outcome.messages[2].tool_results[0].text == "got me"


async def test_a_question_of_a_process_that_lives_is_answered(store):
    await die_while_asking(store, "at_most_once")
    await store.acquire("s")  # by another process, which waits for the answer
    session = session_in(store, "at_most_once")
    assert await shown(session) == (["q1"], ["q1"])
    assert await session.answer("q1", "me")


async def test_a_question_of_a_run_in_this_process_is_answered_through_any_session_object(store):
    agent = Agent(ScriptedModel(call("act"), "Done."), tools=[asking_tool("at_most_once")], store=store)
    running = asyncio.ensure_future(agent.session("s").run("go"))
    other = agent.session("s")
    async with asyncio.timeout(SECONDS):
        async with aclosing(other.display.subscribe()) as changes:
            slots = await anext(each async for each in changes if each)
        assert await other.answer(slots[0].slot_id, "me")
        outcome = await running
    assert outcome.messages[2].tool_results[0].text == "got me"


class SlowPosts(MemoryStore):
    """A store in which something happens between the look at a question and the post of its answer."""

    meanwhile: Any = None

    async def post(self, session_id: str, post: Post) -> bool:
        if self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            await happens()
        return await super().post(session_id, post)


@pytest.mark.parametrize("way", ["answer", "resolve", "reject"])
async def test_an_answer_that_comes_just_after_the_end_of_the_run_is_not_accepted(way):
    store = SlowPosts()
    agent = Agent(
        ScriptedModel(call("act"), "Done."),
        tools=[asking_tool("at_most_once", asks_first=True)],
        store=store,
        answer_timeout_seconds=0,
    )
    session = agent.session("s")
    (question,) = (await session.run("go")).questions

    async def end_the_run() -> None:
        await agent.session("s").run("Something else.")

    store.meanwhile = end_the_run
    if way == "answer":
        assert not await session.answer(question.ask_id, "me")
    elif way == "resolve":
        assert not await session.display.resolve(question.ask_id, "me")
    else:
        assert not await session.display.reject(question.ask_id)


async def test_an_answer_that_is_used_before_the_caller_hears_of_it_is_accepted():
    class Quick(MemoryStore):
        """The run continues, and ends, before the post returns."""

        async def post(self, session_id: str, post: Post) -> bool:
            stored = await super().post(session_id, post)
            if post.kind == "answer":
                assert (await agent.session("s").resume()).status == "done"
            return stored

    asks_first = asking_tool("at_most_once", asks_first=True)
    agent = Agent(ScriptedModel(call("act"), "Done."), tools=[asks_first], store=Quick(), answer_timeout_seconds=0)
    session = agent.session("s")
    (question,) = (await session.run("go")).questions
    assert await session.answer(question.ask_id, "me")


async def test_a_waiting_run_without_begun_calls_loses_nothing(store):
    where: dict[str, Any] = {"run_id": "r"}
    question = QuestionAsked("q1", "slot", "Who?", ({"call_id": "c1", "tool": "act", "place": 1},), **where)
    await crashed(
        store, "s", RunStarted(**where), MessageAdded(user("Go"), **where), question, RunWaiting(("q1",), **where)
    )
    assert await session_in(store, "at_most_once").answer("q1", "me")
