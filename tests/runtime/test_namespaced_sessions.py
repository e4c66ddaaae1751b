"""A session that one program opens through a part of a store, and another through the whole of it, is one session."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest

from perdure import Agent, Permissions, Session, ToolContext, tool
from perdure.events import RunStarted, ToolStarted
from perdure.permissions import Verdict, allow_all
from perdure.stores import MemoryStore, Store, namespaced
from perdure.testing import ScriptedModel, call
from perdure.tools import delegation, set_tool_threads
from tests.doubles import SECONDS, Held, crashed, log_of, of

pytestmark = pytest.mark.resumed


def part_of(store: Store) -> Store:
    return namespaced(namespaced(store, "acme"), "ann")


WHOLE_ID = "acme/ann/k"
VIEWS = pytest.mark.parametrize("begun_in_part", [True, False], ids=["part-then-whole", "whole-then-part"])


def open_both(agent: Agent[Any], store: Store, *, begun_in_part: bool = True) -> tuple[Session[Any], Session[Any]]:
    """The same session, through a part of its store and through the whole; the one that begins it first."""
    part, whole = agent.session("k", store=part_of(store)), agent.session(WHOLE_ID, store=store)
    return (part, whole) if begun_in_part else (whole, part)


# -- idempotency keys --------------------------------------------------------------------------------------------------


async def copy_log(source: Store, target: Store) -> None:
    """Leave the log of the session behind in another store, as a process does that dies now."""
    await crashed(target, WHOLE_ID, *await log_of(source, WHOLE_ID))


@VIEWS
@pytest.mark.parametrize("asks_first", [False, True])
async def test_an_idempotency_key_stays_the_same_when_a_worker_continues_the_session(begun_in_part, asks_first):
    before, after, keys = MemoryStore(), MemoryStore(), list[str]()

    @tool(effect="idempotent", asks_first=asks_first)
    async def pay(context: ToolContext) -> str:
        """Pay."""
        keys.append(context.idempotency_key)
        if len(keys) == 1:
            await copy_log(before, after)
        return "paid"

    agent = Agent(ScriptedModel(call("pay"), "Paid.", "Paid."), tools=[pay])
    first, _ = open_both(agent, before, begun_in_part=begun_in_part)
    await first.run("Go")
    _, second = open_both(agent, after, begun_in_part=begun_in_part)
    outcome = await second.resume()
    assert (outcome.status, len(keys), len(set(keys))) == ("done", 2, 1)
    assert keys[0].startswith(f"{WHOLE_ID}/")


async def test_a_call_that_an_older_version_began_keeps_the_key_that_is_stored():
    store, keys = MemoryStore(), list[str]()

    @tool(effect="idempotent")
    async def pay(context: ToolContext) -> str:
        """Pay."""
        keys.append(context.idempotency_key)
        return "paid"

    model = ScriptedModel(call("pay"), "Paid.", "Paid.")
    await Agent(model, tools=[pay]).session("s", store=store).run("Go")
    events = await log_of(store, "s")
    end = next(place for place, each in enumerate(events) if isinstance(each, ToolStarted))
    started = of(events, ToolStarted)[0]
    old = ToolStarted(started.call_id, "pay", "idempotent", "k/r1/c1", run_id=started.run_id)
    await crashed(part_of(store), "k", *events[:end], old)
    _, whole = open_both(Agent(model, tools=[pay]), store)
    await whole.resume()
    assert keys[1] == "k/r1/c1"


async def test_requests_to_the_model_name_the_session_alike_in_both():
    store, model = MemoryStore(), ScriptedModel("One.", "Two.")
    for session in open_both(Agent(model), store):
        await session.run("Go")
    assert [each.session_id for each in model.requests] == [WHOLE_ID, WHOLE_ID]


async def test_a_tool_is_told_both_ids_of_its_session():
    store, seen = MemoryStore(), list[tuple[str, str]]()

    @tool
    def look(context: ToolContext) -> str:
        """Look."""
        seen.append((context.session_id, context.full_session_id))
        return "seen"

    agent = Agent(ScriptedModel(call("look"), "Seen.", call("look"), "Seen."), tools=[look])
    for session in open_both(agent, store):
        await session.run("Go")
    assert seen == [("k", WHOLE_ID), (WHOLE_ID, WHOLE_ID)]


async def test_tenants_with_equal_session_ids_do_not_share_the_threads_of_a_session():
    store, started, release = MemoryStore(), threading.Semaphore(0), threading.Event()

    @tool
    def block() -> str:
        """Block."""
        started.release()
        release.wait(SECONDS)
        return "done"

    agent = Agent(ScriptedModel(call("block"), "Done."), tools=[block])
    try:
        set_tool_threads(per_session=1)
        runs = [
            asyncio.ensure_future(
                agent.replace(model=ScriptedModel(call("block"), "Done.")).session("k", store=each).run("Go")
            )
            for each in (namespaced(store, "ann"), namespaced(store, "bob"))
        ]
        for _ in runs:
            assert await asyncio.to_thread(started.acquire, timeout=SECONDS)
    finally:
        release.set()
        set_tool_threads()
    assert [each.status for each in await asyncio.gather(*runs)] == ["done", "done"]


# -- approvals ---------------------------------------------------------------------------------------------------------


@tool(permission=True)
async def buy(what: str) -> str:
    """Buy."""
    return f"bought {what}"


class Person:
    """Someone who gives the same answer to everything, and counts the questions."""

    def __init__(self, scope: Any, *, allow: bool = True) -> None:
        self.asked = 0
        self.verdict = Verdict(allow=allow, scope=scope, covers="tool")

    async def __call__(self, requests: Sequence[Any]) -> list[Verdict]:
        self.asked += len(requests)
        return [self.verdict] * len(requests)


def buyer(person: Person) -> Agent[Any]:
    replies: list[Any] = [call("buy", what="tea"), "Done."] * 4
    model = ScriptedModel(*replies)
    return Agent(model, tools=[buy], permission=Permissions(handler=person))


@VIEWS
@pytest.mark.parametrize("allow", [True, False])
@pytest.mark.parametrize("is_same_process", [True, False])
async def test_an_answer_for_the_session_is_remembered_in_both(begun_in_part, allow, is_same_process):
    store, person, other = MemoryStore(), Person("session", allow=allow), Person("session", allow=allow)
    agent = buyer(person)
    first, second = open_both(agent, store, begun_in_part=begun_in_part)
    await first.run("Go")
    if not is_same_process:
        _, second = open_both(buyer(other), store, begun_in_part=begun_in_part)
    await second.run("Go")
    assert (person.asked, other.asked) == (1, 0)


@VIEWS
async def test_a_grant_has_one_id_in_both_and_is_revoked_in_both(begun_in_part):
    store, person, other = MemoryStore(), Person("session"), Person("session")
    first, _ = open_both(buyer(person), store, begun_in_part=begun_in_part)
    _, second = open_both(buyer(other), store, begun_in_part=begun_in_part)
    await first.run("Go")
    (mine,), (theirs,) = await first.grants(), await second.grants()
    assert mine.grant_id == theirs.grant_id
    assert await second.revoke(theirs.grant_id)
    assert (await first.grants(), await second.grants()) == ([], [])
    await first.run("Go")
    assert person.asked == 2


async def test_an_approval_for_ever_in_a_part_holds_there_and_for_its_sessions_in_the_whole_store():
    store, person = MemoryStore(), Person("forever")
    agent = buyer(person)
    part, whole = open_both(agent, store)
    await part.run("Go")
    await whole.run("Go")
    assert person.asked == 1
    await agent.session("acme/bob/k", store=store).run("Go")
    assert person.asked == 2


async def test_an_approval_for_ever_in_the_whole_store_holds_for_that_tenant_alone():
    store, person = MemoryStore(), Person("forever")
    gate = Permissions(handler=person)

    async def count_questions(name: str, place: Store) -> int:
        before = person.asked
        await buyer(person).replace(permission=gate).session(name, store=place).run("Go")
        return person.asked - before

    assert await count_questions(WHOLE_ID, store) == 1
    assert await count_questions("acme/ann/other", store) == 0
    assert await count_questions("other", part_of(store)) == 0
    for name in ("acme/bob/k", "acme/annabel/k", "acme/k", "k", "evil/ann/k"):
        assert await count_questions(name, store) == 1
    for place in (namespaced(store, "mallory"), part_of(MemoryStore())):
        assert await count_questions("k", place) == 1


async def test_an_approval_for_ever_without_a_tenant_is_not_one_of_a_tenant():
    store, person = MemoryStore(), Person("forever")
    agent = buyer(person)
    await agent.session("k", store=store).run("Go")
    await agent.session("l", store=store).run("Go")
    assert person.asked == 1
    await agent.session("acme/k", store=store).run("Go")
    assert person.asked == 2


async def test_a_denial_for_ever_without_a_tenant_holds_for_every_session_of_the_store():
    store, person = MemoryStore(), Person("forever", allow=False)
    agent = buyer(person)
    await agent.session("k", store=store).run("Go")
    await agent.session("acme/k", store=store).run("Go")
    assert person.asked == 1
    assert [each.allow for each in await agent.session("acme/k", store=store).grants()] == [False]
    tenant = Person("forever", allow=False)
    agent = buyer(tenant)
    await agent.session("acme/l", store=store).run("Go")
    await agent.session("acme/m", store=store).run("Go")
    assert tenant.asked == 1
    await agent.session("evil/k", store=store).run("Go")
    assert tenant.asked == 2


async def test_a_worker_asks_each_tenant_for_an_approval_for_ever():
    store, asked = MemoryStore(), []

    async def once_for_ever(requests: Sequence[Any]) -> list[Verdict]:
        asked.extend([each.session_id for each in requests])
        return [Verdict(allow=True, scope="forever", covers="tool") for _ in requests]

    agent = buyer(Person("once")).replace(permission=Permissions(handler=once_for_ever), store=store)
    for name in ("acme/a", "acme/b", "evil/a"):
        await agent.session(name).follow_up("Go")
    done = 0
    async with asyncio.timeout(SECONDS), aclosing(agent.attend_all(most_at_once=1, seconds=0.01)) as outcomes:
        async for _ in outcomes:
            done += 1
            if done == 3:
                break
    assert sorted(each.partition("/")[0] for each in asked) == ["acme", "evil"]


@VIEWS
async def test_a_fork_through_the_other_keeps_the_grants(begun_in_part):
    store, person, other = MemoryStore(), Person("session"), Person("session")
    first, second = open_both(buyer(person), store, begun_in_part=begun_in_part)
    await first.run("Go")
    fork = await second.fork("acme/ann/copy" if begun_in_part else "copy", keep_grants=True)
    reopened = buyer(other).session(fork.session_id, store=fork.store)
    await reopened.run("Go")
    assert other.asked == 0


async def test_what_was_revoked_before_a_fork_is_not_kept_by_it():
    store, person = MemoryStore(), Person("session")
    session = buyer(person).session("s", store=store)
    await session.run("Go")
    (grant,) = await session.grants()
    await session.revoke(grant.grant_id)
    other = Person("session")
    fork = await buyer(other).session("s", store=store).fork("fork", keep_grants=True)
    assert await fork.grants() == []
    await fork.run("Go")
    assert other.asked == 1


# -- agents in the background ------------------------------------------------------------------------------------------


@VIEWS
async def test_a_background_agent_is_resumed_in_its_own_session_through_the_other(begun_in_part):
    before, after = MemoryStore(), MemoryStore()

    @tool
    async def note() -> str:
        """Note."""
        await copy_log(before, after)
        return "noted"

    scout = Agent(ScriptedModel("Found x."), name="scout")
    replies = (call("delegate", agent="scout", task="Find x.", background=True), call("note"), "Given.")
    agent = Agent(ScriptedModel(*replies), tools=[note], extensions=[delegation([scout])], permission=allow_all)
    first, _ = open_both(agent, before, begun_in_part=begun_in_part)
    async with agent:
        await first.run("Go")

    scout = Agent(ScriptedModel("Found x."), name="scout")
    agent = Agent(ScriptedModel("Given.", "Told."), tools=[note], extensions=[delegation([scout])])
    _, second = open_both(agent, after, begun_in_part=begun_in_part)
    async with agent, asyncio.timeout(SECONDS):
        await second.resume()
        async for outcome in second.attend(seconds=0.01):
            assert outcome.text == "Told."
            break
    ids = sorted([each.session_id for each in await after.list()])
    assert [each.rpartition("-")[0] or each for each in ids] == [WHOLE_ID, f"{WHOLE_ID}/scout"]


async def test_a_worker_resumes_a_background_agent_whose_session_was_begun_in_a_part():
    store = MemoryStore()
    held = Held("look")
    replies = (call("delegate", agent="scout", task="Find x.", background=True), "Given.")
    scout = Agent(ScriptedModel(call("look")), name="scout", tools=[held.tool])
    agent = Agent(ScriptedModel(*replies), extensions=[delegation([scout])], permission=allow_all)
    after = MemoryStore()
    async with agent, asyncio.timeout(SECONDS):
        await agent.session("k", store=part_of(store)).run("Go")
        await held.started.wait()
        for info in await store.list():
            await crashed(after, info.session_id, *await log_of(store, info.session_id))

    scout = Agent(ScriptedModel("Found x."), name="scout", tools=[held.tool])
    agent = Agent(ScriptedModel("Told."), extensions=[delegation([scout])], permission=allow_all, store=after)
    async with agent, asyncio.timeout(SECONDS):
        async for outcome in agent.attend_all(seconds=0.01):
            assert (outcome.session_id, outcome.text) == (WHOLE_ID, "Told.")
            break
    assert len(await after.list()) == 2


# -- log lines ---------------------------------------------------------------------------------------------------------


async def test_log_lines_name_the_session_with_its_tenant(caplog):
    """Sessions of two tenants may have the same id."""
    caplog.set_level("INFO", "perdure")

    @tool
    async def fail() -> str:
        """Fail."""
        raise RuntimeError("no")

    async def broken(_: Any) -> Any:
        raise RuntimeError("no engine")

    store = MemoryStore()
    session = Agent(ScriptedModel(call("fail"), "Done."), tools=[fail], name="clerk").session("k", store=part_of(store))
    await session.run("One.", input_id="1")
    await session.run("Other.", input_id="1")
    await session.run("Two.", engine=broken)
    lines = [each.getMessage() for each in caplog.records]
    assert [line for line in lines if "session" in line and WHOLE_ID not in line] == []
    assert {getattr(each, "session_id", WHOLE_ID) for each in caplog.records} == {WHOLE_ID}
    said = "".join(lines)
    for words in ("begins", ": done", "failed in run", "sent before with another prompt", "failed in the engine"):
        assert words in said


async def test_a_worker_of_a_part_of_a_store_names_sessions_with_their_tenant(caplog):
    store = MemoryStore()
    await crashed(store, WHOLE_ID, RunStarted("clerk", {"engine": "gone"}, run_id="r"))

    async def refuse(_: str) -> Any:
        raise RuntimeError("not now")

    agent = Agent(ScriptedModel(), name="clerk")
    async for outcome in agent.attend_all(store=part_of(store), overrides_for=refuse):
        assert outcome.session_id == "k"
        break
    assert f"session {WHOLE_ID} cannot be continued" in caplog.text
    assert [getattr(each, "session_id", "") for each in caplog.records] == [WHOLE_ID]
