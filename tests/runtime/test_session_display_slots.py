"""What people are shown and asked in a session: seen by anybody, settled from anywhere, and nobody is left waiting."""

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
from perdure.events import (
    MessageAdded,
    QuestionAnswered,
    QuestionAsked,
    RunStarted,
    SlotClosed,
    SlotOpened,
    ToolStarted,
)
from perdure.people import Confirm, Form, PlainText, Progress, SlotView
from perdure.permissions import later
from perdure.stores import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call, calls
from tests.doubles import SECONDS, Held, crashed, log_of, of, until

pytestmark = pytest.mark.resumed


@tool(effect="read")
async def show(text: str, context: ToolContext[Any]) -> str:
    """Show something."""
    return await context.display.push(PlainText(text))


@tool(asks_first=True)
async def confirm(question: str, context: ToolContext[Any]) -> str:
    """Ask."""
    return f"{await context.ask(Confirm(question), timeout_seconds=3600)}"


@tool
async def wait_for(question: str, context: ToolContext[Any]) -> str:
    """Ask when it is too late to begin again."""
    return f"{await context.ask(Confirm(question))}"


@tool(permission=True, action="spend", target="what")
async def pay(what: str) -> str:
    """Pay."""
    return f"paid {what}"


def session_of(*replies: Any, store: MemoryStore | None = None, **options: Any) -> Session:
    options.setdefault("permission", Permissions(handler=later))
    tools = options.pop("tools", [show, confirm, wait_for, pay])
    return Agent(ScriptedModel(*replies), tools=tools, store=store or MemoryStore(), **options).session("s")


async def one(session: Session) -> SlotView:
    (view,) = await session.display.slots()
    return view


def results(outcome: Any) -> list[tuple[Status, str]]:
    return [(each.status, each.text) for message in outcome.messages for each in message.tool_results]


# -- looking -----------------------------------------------------------------------------------------------------------


async def test_a_session_that_is_not_there_shows_nothing():
    assert await session_of().display.slots() == []


async def test_everything_that_is_shown_or_asked_is_a_slot():
    store, clock = MemoryStore(), FakeClock()
    made = calls(call("show", text="hello"), call("confirm", question="Really?"))
    outcome = await session_of(made, store=store, clock=clock).run("Go.")
    shown, asked = await session_of(store=store, clock=clock).display.slots()
    assert (shown.renderer, shown.input, shown.waits) == ("text", {"text": "hello"}, False)
    (question,) = outcome.questions
    assert asked == SlotView(
        question.ask_id,
        "confirm",
        {"question": "Really?", "yes": "Yes", "no": "No"},
        "Really?",
        waits=True,
        output={"type": "boolean"},
        tool="confirm",
        call_id=question.calls[0]["call_id"],
        expires_at=question.expires_at,
    )


async def test_a_question_about_permission_is_a_slot_that_shows_the_rules():
    session = session_of(call("pay", what="tea"))
    await session.run("Go.")
    view = await one(session)
    assert (view.renderer, view.waits, view.tool) == ("permission", True, "pay")
    (asked,) = view.input["calls"]
    assert (asked["tool"], asked["arguments"]) == ("pay", {"what": "tea"})
    assert asked["offers"][1]["rule"] == "allow('pay', action='spend', target='tea')"


async def test_a_question_about_a_call_that_a_crash_cut_off_is_a_slot():
    @tool(effect="ask")
    async def sign() -> str:
        """Sign."""
        return "signed"

    store = MemoryStore()
    reply = Message("assistant", (ToolCall("call_1", "sign", "{}"),), stop=StopReason.TOOL_USE)
    await crashed(
        store,
        "s",
        RunStarted(run_id="r"),
        MessageAdded(user("Sign."), run_id="r"),
        MessageAdded(reply, run_id="r"),
        ToolStarted("call_1", "sign", "ask", "s/r/call_1", run_id="r"),
    )
    session = session_of("I left it.", store=store, tools=[sign])
    assert (await session.resume()).status == "waiting"
    view = await one(session)
    assert (view.renderer, view.output, view.tool) == ("settlement", None, "sign")
    assert await session.display.reject(view.slot_id, "let it be")
    assert results(await session.resume())[0][0] is Status.UNKNOWN


async def test_what_is_answered_or_has_expired_is_shown_no_more():
    clock = FakeClock()
    session = session_of(call("confirm", question="Really?"), clock=clock)
    await session.run("Go.")
    view = await one(session)
    fork = await session.fork()
    assert await session.display.resolve(view.slot_id, value=True)
    assert await session.display.slots() == []
    assert [each.slot_id for each in await fork.display.slots()] == [view.slot_id]
    await clock.advance(3601)
    assert await fork.display.slots() == []
    assert not await fork.display.resolve(view.slot_id, value=True)
    assert not await fork.display.reject(view.slot_id, "late")


# -- settling ----------------------------------------------------------------------------------------------------------


async def test_a_slot_is_resolved_from_another_process():
    store = MemoryStore()
    await session_of(call("confirm", question="Really?"), store=store).run("Go.")
    elsewhere = session_of(store=store)
    view = await one(elsewhere)
    assert await elsewhere.display.resolve(view.slot_id, value=False)
    assert not await elsewhere.display.resolve(view.slot_id, value=True)
    assert not await elsewhere.display.reject(view.slot_id)
    outcome = await session_of("As you wish.", store=store).resume()
    assert results(outcome) == [(Status.OK, "False")]


async def test_an_answer_that_does_not_fit_is_refused():
    session = session_of(call("confirm", question="Really?"))
    await session.run("Go.")
    with pytest.raises(ConfigError, match=r"'yes' does not answer 'Really\?': expected a boolean, got 'yes'"):
        await session.display.resolve((await one(session)).slot_id, "yes")


async def test_every_problem_of_a_form_is_told():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b"]}

    @tool(asks_first=True)
    async def fill(context: ToolContext[Any]) -> str:
        """Ask for details."""
        return f"{await context.ask(Form('Details', schema))}"

    session = session_of(call("fill"), "Filled.", tools=[fill])
    await session.run("Go.")
    view = await one(session)
    with pytest.raises(ConfigError) as refused:
        await session.display.resolve(view.slot_id, {"a": "x"})
    assert "a: expected an integer, got 'x'" in str(refused.value)
    assert "b: missing; it is required" in str(refused.value)
    assert await session.display.resolve(view.slot_id, {"a": 1, "b": "two"})
    assert results(await session.resume()) == [(Status.OK, "{'a': 1, 'b': 'two'}")]


async def test_a_rejection_is_told_to_the_tool_and_why():
    session = session_of(call("confirm", question="Really?"), "Pity.")
    await session.run("Go.")
    assert await session.display.reject((await one(session)).slot_id, "none of your business")
    assert results(await session.resume()) == [(Status.ERROR, "none of your business")]
    (answered,) = of(await log_of(session.store, "s"), QuestionAnswered)
    assert (answered.rejected, answered.answer, answered.source) == ("none of your business", None, "post")


async def test_a_rejected_permission_is_a_no():
    session = session_of(call("pay", what="tea"), "Pity.")
    await session.run("Go.")
    assert await session.display.reject((await one(session)).slot_id, "too dear")
    assert results(await session.resume()) == [(Status.DENIED, "too dear")]


async def test_what_is_only_shown_is_closed_and_cannot_be_answered():
    store = MemoryStore()
    await session_of(call("show", text="hello"), "Shown.", store=store).run("Go.")
    elsewhere = session_of(store=store)
    view = await one(elsewhere)
    for settle in (elsewhere.display.resolve(view.slot_id, 1), elsewhere.display.reject(view.slot_id)):
        with pytest.raises(UsageError, match="waits for no answer: it is only shown"):
            await settle
    assert await elsewhere.display.remove(view.slot_id, "seen")
    assert await elsewhere.display.slots() == []
    assert of(await log_of(store, "s"), SlotClosed) == [SlotClosed(view.slot_id, "seen")]


@pytest.mark.parametrize(
    ("settle", "error", "told"),
    [
        (lambda display: display.resolve("x", 1), UsageError, "session 's' has no slot 'x': open are '"),
        (lambda display: display.reject("x"), UsageError, "session 's' has no slot 'x': open are '"),
        (lambda display: display.remove("x"), UsageError, "session 's' has no slot 'x': open are '"),
        (lambda display: display.resolve("", 1), ConfigError, "display.resolve(slot_id=''): give non-empty text"),
        (lambda display: display.reject("x", ""), ConfigError, "display.reject(reason=''): give non-empty text"),
        (lambda display: display.remove("x", 5), ConfigError, "display.remove(reason=5): give non-empty text"),
        (lambda display: display.clear(""), ConfigError, "display.clear(reason=''): give non-empty text"),
    ],
)
async def test_what_cannot_be_settled_is_refused(settle, error, told):
    session = session_of(call("confirm", question="Really?"))
    await session.run("Go.")
    with pytest.raises(error) as refused:
        await settle(session.display)
    assert told in str(refused.value)


# -- while somebody drives ---------------------------------------------------------------------------------------------


async def shown(session: Session, count: int = 1) -> list[SlotView]:
    """The slots, once there are so many."""
    async with asyncio.timeout(SECONDS):
        while len(views := await session.display.slots()) < count:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
    return views


async def test_what_is_removed_while_somebody_drives_is_closed_at_the_next_safe_point():
    held = Held()
    store = MemoryStore()
    session = session_of(call("show", text="hello"), call("held"), "Done.", store=store, tools=[show, held.tool])
    run = asyncio.ensure_future(session.run("Go."))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    elsewhere = session_of(store=store)
    view = await one(elsewhere)
    assert await elsewhere.display.remove(view.slot_id, "seen")
    assert not await elsewhere.display.remove(view.slot_id, "seen")
    assert await elsewhere.display.slots() == []
    assert not of(await log_of(store, "s"), SlotClosed)
    held.released.set()
    outcome = await asyncio.wait_for(run, SECONDS)
    assert outcome.text == "Done."
    (closed,) = of(await log_of(store, "s"), SlotClosed)
    assert (closed.slot_id, closed.reason, closed.run_id) == (view.slot_id, "seen", outcome.run_id)
    assert await store.posts("s") == []


async def test_what_comes_when_a_run_is_cancelled_is_closed_with_its_end():
    held = Held()
    store = MemoryStore()
    session = session_of(
        calls(call("show", text="hello"), call("held")), "Done.", "Again.", store=store, tools=[show, held.tool]
    )
    run = asyncio.ensure_future(session.run("Go.", limits=session.agent.limits))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    (view,) = await shown(session)
    await session.cancel("after_tools")
    assert await session.display.remove(view.slot_id)
    held.released.set()
    outcome = await asyncio.wait_for(run, SECONDS)
    assert await session.display.slots() == []
    (closed,) = of(await log_of(store, "s"), SlotClosed)
    assert (closed.slot_id, closed.run_id) == (view.slot_id, outcome.run_id)


async def test_to_clear_the_display_releases_everybody_who_waits():
    made = calls(call("wait_for", question="One?"), call("wait_for", question="Two?"), call("show", text="hello"))
    session = session_of(made, "Done.")
    run = asyncio.ensure_future(session.run("Go."))
    await shown(session, 3)
    assert await session.display.clear("enough") == 3
    outcome = await asyncio.wait_for(run, SECONDS)
    assert results(outcome)[:2] == [(Status.ERROR, "enough"), (Status.ERROR, "enough")]
    assert await session.display.slots() == []


async def test_to_clear_the_display_of_a_session_that_waits_lets_it_go_on():
    session = session_of(calls(call("pay", what="tea"), call("confirm", question="Really?")), "Done.")
    assert (await session.run("Go.")).status == "waiting"
    assert await session.display.clear() == 1
    assert (await session.resume()).status == "waiting"
    assert await session.display.clear() == 1
    cleared = "the display was cleared"
    assert results(await session.resume()) == [(Status.DENIED, cleared), (Status.ERROR, cleared)]


# -- subscribing -------------------------------------------------------------------------------------------------------


async def test_a_newcomer_sees_what_there_is_and_then_every_change():
    held = Held()

    @tool(effect="read")
    async def copy(context: ToolContext[Any]) -> str:
        """Copy something."""
        slot_id = await context.display.push(Progress("copying", 1, 2))
        await context.display.update(slot_id, Progress("copying", 2, 2))
        await context.display.remove(slot_id)
        return "copied"

    session = session_of(call("show", text="hello"), call("held"), call("copy"), "Done.", tools=[show, held.tool, copy])
    run = asyncio.ensure_future(session.run("Go."))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    changes = session.display.subscribe()
    assert [each.input for each in await anext(changes)] == [{"text": "hello"}]
    held.released.set()
    seen = [[each.input.get("done") for each in await asyncio.wait_for(anext(changes), SECONDS)] for _ in range(3)]
    assert seen == [[None, 1], [None, 2], [None]]
    await asyncio.wait_for(run, SECONDS)
    await changes.aclose()


async def test_a_subscriber_sees_what_is_settled_while_nobody_drives(monkeypatch):
    monkeypatch.setattr("perdure._runtime.session.slots.POLL_SECONDS", 0.01)
    monkeypatch.setattr("perdure._runtime.session.stored.WATCH_POLL_SECONDS", 0.01)
    store = MemoryStore()
    session = session_of(calls(call("show", text="hello"), call("confirm", question="Really?")), store=store)
    await session.run("Go.")
    changes = session_of(store=store).display.subscribe()
    first, second = await anext(changes)
    await session.display.resolve(second.slot_id, value=True)
    assert await asyncio.wait_for(anext(changes), SECONDS) == [first]
    await session.display.remove(first.slot_id)
    assert await asyncio.wait_for(anext(changes), SECONDS) == []
    await changes.aclose()


async def test_a_subscription_ends_with_its_session():
    session = session_of("Hello.")
    await session.run("Hello?")
    changes = session.display.subscribe()
    assert await anext(changes) == []
    rest = asyncio.ensure_future(anext(changes, None))
    await until(lambda: session._driver.attach_to_loop().fanout.is_watched)
    await session.aclose()
    assert await asyncio.wait_for(rest, SECONDS) is None


async def test_slots_of_a_child_are_slots_of_the_session():
    store = MemoryStore()
    question = QuestionAsked(
        "ask", "slot", "Really?", ({"call_id": "c", "tool": "t", "place": 1},), renderer="confirm", path="child"
    )
    await crashed(store, "s", RunStarted(run_id="r"), SlotOpened("slot", "text", {"text": "x"}, path="child"), question)
    shown, asked = await session_of(store=store).display.slots()
    assert (shown.path, asked.path, asked.slot_id) == ("child", "child", "ask")


# -- too late ----------------------------------------------------------------------------------------------------------


async def test_what_was_settled_before_is_said_to_be_so_and_what_never_was_is_an_error():
    session = session_of(call("confirm", question="Sail?"), call("show", text="Sailing"), "Done.")
    await session.run("Go")
    asked = await one(session)
    assert await session.display.resolve(asked.slot_id, value=True)
    assert (await session.resume()).status == "done"
    shown = of(await log_of(session.store, "s"), SlotOpened)[0].slot_id
    for settle in (session.display.remove, session.display.reject):
        assert not await settle(asked.slot_id)
        with pytest.raises(UsageError, match="has no slot 'another': open are"):
            await settle("another")
    assert not await session.display.resolve(asked.slot_id, value=False)
    assert not await session.answer(asked.slot_id, answer=False)
    await session.display.remove(shown)
    assert not await session.display.remove(shown)


@pytest.mark.parametrize("mode", ["now", "after_tools", "after_turn"])
async def test_a_run_that_was_cancelled_while_it_waited_shows_nothing_and_takes_no_answer(mode):
    session = session_of(call("confirm", question="Sail?"), "Done.")
    (question,) = (await session.run("Go")).questions
    assert await session.cancel(mode)
    assert (await session.display.slots(), await session.questions()) == ([], [])
    assert not await session.answer(question.ask_id, answer=True)
    assert not await session.display.reject(question.ask_id)
    outcome = await session.resume()
    assert (outcome.status, outcome.reason) == ("cancelled", "cancelled")
    assert results(outcome)[0][0] is Status.CANCELLED_BEFORE_START
