"""A child's run in the log of its parent: cut off anywhere it goes on, nothing happens twice, and all of it is told."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import (
    Agent,
    Budget,
    Extension,
    Limits,
    Permissions,
    Session,
    Status,
    ToolContext,
    Usage,
    allow,
    ask,
    deny,
    tool,
)
from perdure._core.log.fold import fold_events
from perdure._core.log.repair import build_repair_events
from perdure._core.run.run import CANCEL_GRACE_SECONDS
from perdure.engines import fold_entries
from perdure.engines import until as until_graded
from perdure.evals import Grade
from perdure.events import (
    CancelRequested,
    QuestionAsked,
    RunEnded,
    RunResumed,
    RunStarted,
    RunWaiting,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
)
from perdure.models import Price
from perdure.permissions import PermissionRequest, Rule, Verdict, allow_all, later
from perdure.stores import MemoryStore
from perdure.testing import FakeClock, Recorder, Reply, ScriptedModel, call, calls
from perdure.tools import delegation
from tests.doubles import SECONDS, Held, NotedStore, WaitingStore, deaf_tool, log_of, of, rounds
from tests.runtime.subagents.family import act_tool, below, family, following, left_behind
from tests.transcript import assert_valid

pytestmark = pytest.mark.resumed

PRICE = Price(input_usd=1.0, output_usd=1.0)


def parent_of(*children: Agent[Any], says: Any = None, **options: Any) -> Agent[Any]:
    """An agent that gives one task to its first child, and is done."""
    first = children[0].name
    model = following(call(first, task="Go."), "All done.") if says is None else says
    return Agent(model, name="parent", tools=[child.as_tool() for child in children], **options)


# -- in one log --------------------------------------------------------------------------------------------------------


async def test_the_events_of_a_child_are_in_the_log_of_its_parent_under_a_path():
    child = Agent(following(call("act", what="x"), "It is x."), name="scout", tools=[act_tool([])])
    session = parent_of(child).session("s")
    outcome = await session.run("Go")
    events = await log_of(session.store, "s")
    state = fold_events(events)
    assert outcome.text == "All done."
    assert [message.text for message in state.children["scout-call_1"].messages][0::3] == ["Go.", "It is x."]
    started, finished = of(events, SubagentStarted), of(events, SubagentFinished)
    assert [(each.name, each.child, each.prompt, each.path) for each in started] == [
        ("scout", "scout-call_1", "Go.", "")
    ]
    assert [(each.call_id, each.status, each.message) for each in finished] == [("call_1", "done", "It is x.")]
    assert [type(event) for event in below(events, "scout-call_1") if isinstance(event, (RunStarted, RunEnded))] == [
        RunStarted,
        RunEnded,
    ]


async def test_watchers_and_streams_of_the_parent_see_what_a_child_does():
    child = Agent(ScriptedModel("It is x."), name="scout")
    recorder = Recorder()
    stream = parent_of(child, watchers=[recorder]).session("s").stream("Go")
    streamed = [event async for event in stream]
    words = [event.text for event in streamed if event.path == "scout-call_1" and hasattr(event, "text")]
    assert words == ["It is x."]
    assert "agent scout-call_1: done" in recorder.tree()


async def test_an_output_that_is_being_written_has_nothing_of_a_child_in_it():
    child = Agent(ScriptedModel('{"wrong": 1}'), name="scout")
    model = ScriptedModel(call("scout", task="Go."), call("final_answer", value=[1, 2]))
    stream = parent_of(child, says=model).session("s").stream("Go", output=list[int])
    assert [each async for each in stream.partials()][-1] == [1, 2]


async def test_what_a_child_uses_and_costs_counts_for_its_parents():
    grandchild = Agent(ScriptedModel("Deep.", price=PRICE), name="deep")
    child = Agent(
        ScriptedModel(call("deep", task="Go."), "Mid.", price=PRICE), name="scout", tools=[grandchild.as_tool()]
    )
    model = ScriptedModel(call("scout", task="Go."), "Top.", price=PRICE)
    outcome = await parent_of(child, says=model).run("Go")
    assert outcome.usage.total_tokens == 5 * 15
    assert outcome.cost_usd == pytest.approx(5 * 15 / 1e6)


# -- cut off anywhere --------------------------------------------------------------------------------------------------


async def whole_log() -> tuple[list[Any], list[str]]:
    done: list[str] = []
    agent = family(done)
    outcome = await agent.session("s").run("Go")
    assert outcome.text == "All is done."
    return await agent.store.read("s"), done


def assert_sound(state: Any) -> None:
    for each in (state, *state.children.values()):
        assert_valid(each.messages)
        assert each.unsettled_reply is None
        assert not each.open_calls


async def test_all_transcripts_are_valid_at_any_cut_of_the_log():
    entries, _ = await whole_log()
    for cut in range(len(entries) + 1):
        state = fold_entries(entries[:cut])
        for event in build_repair_events(state):
            state.apply(event)
        assert_sound(state)
        assert not state.subagents
        assert build_repair_events(state) == []


async def test_the_beginning_of_a_child_run_is_on_the_disk_before_its_model_is_asked():
    noted = NotedStore()
    await family([], noted).session("s").run("Go")
    begun = [each for each in noted.appends if any(isinstance(one, RunStarted) and one.path for one in each.events)]
    assert len(begun) > 1
    assert all(each.sync for each in begun)


async def test_a_run_that_was_cut_off_anywhere_goes_on_and_does_nothing_twice():
    done: list[str] = []
    noted = NotedStore()
    await family(done, noted).session("s").run("Go")
    assert len(done) == len(set(done)) == 1 + 2 * 2 + 2
    entries = await noted.read("s")
    cuts = [*itertools.accumulate(len(each.events) for each in noted.appends)]  # an append is whole, or not there
    assert cuts[-1] == len(entries)
    for cut in cuts[:-1]:
        before = [entry.event for entry in entries[:cut]]
        again: list[str] = []
        store = await left_behind(entries[:cut])
        outcome = await family(again, store).session("s").resume()
        assert outcome.text == "All is done.", cut
        begun = {event.idempotency_key.partition("/")[2].rpartition("/")[0] for event in of(before, ToolStarted)}
        assert not {each.partition(" ")[0] for each in again} & begun, f"done again after a cut at {cut}"
        assert_family_sound(await log_of(store, "s"))


def assert_family_sound(events: list[Any]) -> None:
    """Each task was given once and ended once, and each transcript is valid."""
    started = Counter((each.path, each.call_id) for each in of(events, SubagentStarted))
    assert len(started) == 6
    assert started == Counter((each.path, each.call_id) for each in of(events, SubagentFinished))
    for kind in (RunStarted, RunEnded):
        assert max(Counter(each.run_id for each in of(events, kind)).values()) == 1
    assert max(Counter((each.path, each.call_id) for each in of(events, ToolFinished)).values()) == 1
    state = fold_events(events)
    assert_sound(state)
    assert all(not each.is_interrupted for each in state.children.values())


async def test_a_new_prompt_after_a_crash_closes_the_children_too():
    entries, _ = await whole_log()
    for cut in range(2, len(entries), 3):
        store = await left_behind(entries[:cut])
        session = Agent(ScriptedModel("Hello."), store=store).session("s")
        assert (await session.run("Anybody here?")).text == "Hello."
        events = await log_of(store, "s")
        assert_sound(fold_events(events))
        assert len(of(events, SubagentStarted)) == len(of(events, SubagentFinished))


async def test_a_child_that_gets_on_between_crashes_does_not_park_its_parent():
    store = MemoryStore()
    works = [call("act", what=str(number)) for number in range(5)]
    done: list[str] = []

    def made() -> Session[Any]:
        child = Agent(following(*works, "Done."), name="scout", tools=[act_tool(done)])
        return parent_of(child, store=store).session("s")

    outcome = await made().run("Go")
    for crash in range(5):
        entries = await store.read("s")
        places = [place for place, entry in enumerate(entries, 1) if isinstance(entry.event, ToolFinished)]
        store = await left_behind(entries[: places[crash]])
        outcome = await made().resume()
    assert outcome.status == "done"
    assert [each[-1] for each in done][-1] == "4"


async def test_a_call_that_is_made_again_when_its_child_was_done_tells_the_end_again():
    child = Agent(ScriptedModel("It is x."), name="scout")
    session = parent_of(child).session("s")
    await session.run("Go")
    entries = await session.store.read("s")
    for kind in (RunEnded, SubagentFinished):
        cut = next(place for place, entry in enumerate(entries, 1) if isinstance(entry.event, kind))
        store = await left_behind(entries[:cut])
        again = Agent(ScriptedModel(), name="scout")  # it is not asked
        outcome = await parent_of(again, store=store).session("s").resume()
        assert outcome.messages[2].tool_results[0].text == "It is x."
        assert len(of(await log_of(store, "s"), SubagentFinished)) == 1


# -- questions ---------------------------------------------------------------------------------------------------------


def asking_family(store: MemoryStore) -> Session[Any]:
    """A child with a tool that needs permission and one that asks; nobody is here."""

    @tool(permission=True)
    async def risky() -> str:
        """Needs permission."""
        return "risked"

    @tool(asks_first=True)
    async def which(context: ToolContext[Any]) -> str:
        """Asks which."""
        chosen = await context.ask("Which one?")
        await context.begin()
        return f"took {chosen}"

    child = Agent(following(call("risky"), call("which"), "Child done."), name="scout", tools=[risky, which])
    middle = Agent(following(call("scout", task="Deep."), "Middle done."), name="middle", tools=[child.as_tool()])
    return parent_of(middle, store=store, permission=Permissions(handler=later)).session("s")


async def test_questions_of_a_child_are_asked_on_the_session_and_answered_days_later():
    store = MemoryStore()
    outcome = await asking_family(store).run("Go")
    assert (outcome.status, [each.about for each in outcome.questions]) == ("waiting", ["permission"])
    session = asking_family(store)
    (question,) = await session.questions()
    path = question.path
    assert [each.partition("-")[0] for each in path.split("/")] == ["middle", "scout"]
    assert await session.answer(question.ask_id, answer=True)
    outcome = await asking_family(store).resume()
    assert outcome.status == "waiting"
    (question,) = await session.questions()
    assert (question.about, question.text) == ("slot", "Which one?")
    await session.answer(question.ask_id, "the left one")
    outcome = await asking_family(store).resume()
    assert outcome.text == "All done."
    events = await log_of(store, "s")
    deep = fold_events(events).children[path].messages
    assert [each.text for message in deep for each in message.tool_results] == ["risked", "took the left one"]
    assert len(of(events, RunWaiting)) == 2 * 3
    assert len(of(events, SubagentStarted)) == len(of(events, SubagentFinished)) == 2


async def test_a_run_that_is_cancelled_while_its_child_waits_ends_the_child_too():
    store = MemoryStore()
    await asking_family(store).run("Go")
    session = asking_family(store)
    await session.cancel()
    assert (await session.resume()).status == "cancelled"
    events = await log_of(store, "s")
    assert [each.status for each in of(events, SubagentFinished)] == ["cancelled", "cancelled"]
    assert [each.reason for each in of(events, RunEnded)] == ["left_alone", "left_alone", "cancelled"]
    assert_sound(fold_events(events))
    assert await session.questions() == []


async def test_an_answer_reaches_a_child_that_is_waiting_for_it_here():
    child = Agent(following(call("act", what="x"), "Child done."), name="scout", tools=[needing_permission([])])
    parent = parent_of(child, permission=Permissions(handler=later), answer_timeout_seconds=60.0)
    session = parent.session("s")
    run = asyncio.ensure_future(session.run("Go"))
    await rounds(60)
    (question,) = await session.questions()
    await session.answer(question.ask_id, answer=True)
    assert (await asyncio.wait_for(run, SECONDS)).text == "All done."


def needing_permission(done: list[str]) -> Any:
    @tool(permission=True, name="act")
    async def act(what: str) -> str:
        """Acts."""
        done.append(what)
        return "acted"

    return act


async def test_a_question_of_a_child_is_no_question_of_its_parent_with_a_call_of_the_same_name():
    """Both calls are called `call_1`: what is answered about one says nothing about the other."""
    done: list[str] = []
    child = Agent(following(call("act", what="x"), "Child done."), name="scout", tools=[needing_permission(done)])
    asked: list[str] = []

    async def person(requests: Any) -> list[Verdict]:
        asked.extend(each.tool for each in requests)
        return [Verdict(allow=each.tool != "act") for each in requests]

    parent = Agent(
        following(call("scout", task="Go."), "Done."), tools=[child.as_tool()], permission=Permissions(handler=person)
    )
    await parent.run("Go")
    assert (asked, done) == (["act"], [])


async def test_a_second_task_for_a_durable_child_that_waits_waits_too():
    store = MemoryStore()

    def made() -> Session[Any]:
        child = Agent(following(call("act", what="x"), "Child done."), name="scout", tools=[needing_permission([])])
        two = calls(call("scout", task="One."), call("scout", task="Two."))
        return Agent(
            following(two, "All done."),
            tools=[child.as_tool(durable=True)],
            permission=Permissions(handler=later),
            store=store,
        ).session("s")

    outcome = await made().run("Go")
    for _ in range(2):
        assert outcome.status == "waiting"
        (question,) = await made().questions()
        await made().answer(question.ask_id, answer=True)
        outcome = await made().resume()
    assert outcome.text == "All done."
    child = fold_events(await log_of(store, "s")).children["scout"]
    assert [message.text for message in child.messages if message.role == "user"] == ["One.", "Two."]


# -- rules from above --------------------------------------------------------------------------------------------------


async def test_a_child_without_a_gate_has_its_parents():
    done: list[str] = []
    child = Agent(following(call("act", what="x"), "Child done."), name="scout", tools=[act_tool(done)])
    await parent_of(child, permission=Permissions(deny("act"))).run("Go")
    assert done == []


@pytest.mark.parametrize(
    "way", ["tool", "trusted tool", "delegate", "trusted delegate", "background", "trusted background", "handoff"]
)
@pytest.mark.parametrize(
    ("rules", "gate", "expected"),
    [
        ([ask("other")], Permissions(allow("act")), "ok"),
        ([ask("other")], allow_all, "ok"),
        ([ask("other")], lambda requests: [Verdict(allow=True)] * len(requests), "ok"),
        ([ask("other")], Permissions(handler=later), "asked"),
        ([ask("act")], Permissions(allow("act"), handler=later), "asked"),
        ([ask("act")], Permissions(allow("act")), "denied"),
        ([allow("act")], Permissions(handler=later), "asked"),
        ([allow("act")], Permissions(deny("act")), "denied"),
        ([allow("act"), ask("*")], Permissions(allow("act")), "ok"),
        ([deny("act")], Permissions(allow("act")), "denied"),
        ([deny("act")], allow_all, "denied"),
        ([deny("act")], lambda requests: [Verdict(allow=True)] * len(requests), "denied"),
    ],
)
async def test_the_rules_of_a_childs_extension_only_narrow_the_gate_that_it_has_from_its_parent(
    rules: list[Rule], gate: Any, expected: str, way: str
):
    done: list[str] = []
    child = Agent(
        ScriptedModel(call("act", what="x"), "Child done."),
        name="scout",
        tools=[needing_permission(done)],
        extensions=[Extension(name="rules", rules=rules)],
    )
    session = boss_of(child, way, gate).session("s")
    await session.run("Go")
    if "background" in way:
        await until_idle(session)
    questions = await session.questions()
    assert (len(done), len(questions)) == {"ok": (1, 0), "asked": (0, 1), "denied": (0, 0)}[expected]


def boss_of(child: Agent[Any], way: str, gate: Any) -> Agent[Any]:
    """An agent that gives its child one task, in one of the ways in which an agent can work for another."""
    narrow = "trusted" not in way
    if way == "handoff":
        return Agent(ScriptedModel(call("hand_over_to_scout")), handoffs=[child], permission=gate)
    if way.endswith("tool"):
        tools = [child.as_tool(narrow_permission=narrow)]
        return Agent(following(call("scout", task="Go."), "All done."), tools=tools, permission=gate)
    given = call("delegate", agent=child.name, task="Go.", background="background" in way)
    team = [delegation([child], narrow_permission=narrow)]
    return Agent(following(given, "All done."), extensions=team, permission=gate)


async def until_idle(session: Session[Any]) -> None:
    """Wait until the background agent has ended, or asks."""
    async with asyncio.timeout(SECONDS):
        while not (await session.questions() or await session.store.posts("s")):
            await rounds()


YES = Verdict(allow=True)


@pytest.mark.parametrize("own", [allow_all, Permissions(), Permissions(handler=later)])
async def test_a_child_with_a_gate_of_its_own_cannot_do_what_its_parent_denies(own):
    done: list[str] = []
    child = Agent(following(call("act", what="x"), "Done."), name="scout", tools=[act_tool(done)], permission=own)
    await parent_of(child, permission=Permissions(deny("act"))).run("Go")
    await parent_of(child, permission=deny_but_scout).run("Go")
    await parent_of(child, permission=Permissions(ask("act"))).run("Go")
    assert done == []
    await parent_of(child, permission=allow_all).run("Go")
    assert len(done) == 1


@pytest.mark.parametrize("own", [allow_all, Permissions(allow("act")), Permissions(handler=lambda _: [YES])])
async def test_what_the_parent_asks_about_is_answered_by_the_parents_handler(own):
    done: list[str] = []
    child = Agent(following(call("act", what="x"), "Done."), name="scout", tools=[act_tool(done)], permission=own)
    for answer in (False, True):
        asked: list[PermissionRequest] = []

        def person(requests: Sequence[PermissionRequest], asked: Any = asked, answer: bool = answer) -> list[Verdict]:
            asked += requests
            return [Verdict(allow=answer)]

        await parent_of(child, permission=Permissions(ask("act"), handler=person)).run("Go")
        assert [each.tool for each in asked] == ["act"]
    assert len(done) == 1


async def test_the_author_of_the_parent_may_leave_the_decision_to_the_child():
    done: list[str] = []
    child = Agent(following(call("act", what="x"), "Done."), name="scout", tools=[act_tool(done)], permission=allow_all)
    trusting = child.as_tool(narrow_permission=False)
    gate = Permissions(deny("act"))
    await Agent(ScriptedModel(call("scout", task="t"), "Done."), tools=[trusting], permission=gate).run("Go")
    assert len(done) == 1
    without = Agent(following(call("act", what="x"), "Done."), name="scout", tools=[act_tool(done)])
    trusting = without.as_tool(narrow_permission=False)  # it has no gate of its own to decide by
    await Agent(ScriptedModel(call("scout", task="t"), "Done."), tools=[trusting], permission=gate).run("Go")
    assert len(done) == 1


def deny_but_scout(requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    """A gate of somebody's own."""
    return [Verdict(allow=each.tool == "scout") for each in requests]


async def test_a_gate_above_that_fails_lets_nothing_pass():
    def broken(requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
        if requests[0].tool == "act":
            raise RuntimeError("no idea")
        return [Verdict(allow=True)]

    for own in (allow_all, Permissions(handler=later)):
        done: list[str] = []
        child = Agent(following(call("act", what="x"), "Done."), name="scout", tools=[act_tool(done)], permission=own)
        outcome = await parent_of(child, permission=broken).run("Go")
        assert (outcome.status, done) == ("done", [])


async def test_a_token_budget_of_the_parent_ends_a_child():
    child = Agent(ScriptedModel(call("act", what="x"), repeat_last=True), name="scout", tools=[act_tool([])])
    outcome = await parent_of(child, limits=Limits(token_budget=60)).run("Go")
    assert (outcome.status, outcome.reason) == ("limit", "token_budget")
    assert outcome.usage.total_tokens == 60
    (result,) = outcome.messages[-1].tool_results
    assert "reached a limit (token_budget)" in result.text


async def test_a_limit_in_money_holds_for_children_and_needs_their_price():
    child = Agent(
        ScriptedModel(call("act", what="x"), repeat_last=True, price=PRICE), name="scout", tools=[act_tool([])]
    )
    model = ScriptedModel(call("scout", task="Go."), "Top.", price=PRICE)
    outcome = await parent_of(child, says=model, limits=Limits(max_cost_usd=50 / 1e6)).run("Go")
    assert (outcome.status, outcome.reason) == ("limit", "max_cost")
    free = Agent(ScriptedModel("Free."), name="scout")
    model = ScriptedModel(call("scout", task="Go."), "Top.", price=PRICE)
    outcome = await parent_of(free, says=model, limits=Limits(max_cost_usd=1.0)).run("Go")
    assert "max_cost_usd needs models whose price is known" in outcome.messages[2].tool_results[0].text


async def test_the_ledger_of_the_parent_is_the_childs_too():
    ledger, own = Budget(token_budget=100_000), Budget(token_budget=100_000)
    child = Agent(ScriptedModel("Child."), name="scout", budget=own)
    await parent_of(child, budget=ledger).run("Go")
    assert (ledger.spent_tokens, own.spent_tokens) == (45, 15)
    child = Agent(ScriptedModel("Child."), name="scout", budget=ledger)
    await parent_of(child, budget=ledger).run("Go")
    assert ledger.spent_tokens == 90


async def test_calls_of_subagents_count_as_calls():
    child = Agent(ScriptedModel("Child.", repeat_last=True), name="scout")
    model = ScriptedModel(*[call("scout", task=text) for text in ("One.", "Two.", "Three.")], "Top.")
    outcome = await parent_of(child, says=model, limits=Limits(max_tool_calls=1)).run("Go")
    assert (outcome.status, outcome.reason) == ("limit", "max_tool_calls")


async def test_a_child_is_given_its_parents_deps_unless_it_has_its_own():
    seen: list[Any] = []

    @tool
    async def look(context: ToolContext[Any]) -> str:
        """Looks."""
        seen.append(context.deps)
        return "seen"

    child = Agent(following(call("look"), "Child."), name="scout", tools=[look])
    await parent_of(child, deps="above").run("Go")
    await parent_of(child.replace(deps="own"), deps="above").run("Go")
    assert seen == ["above", "own"]


async def test_a_child_that_nobody_looks_after_cannot_ask():
    @tool(asks_first=True)
    async def which(context: ToolContext[Any]) -> str:
        """Asks."""
        return await context.ask("Which?")

    child = Agent(following(call("which"), "Child."), name="scout", tools=[which])
    store = MemoryStore()
    outcome = await parent_of(child, interactive=False, store=store).session("s").run("Go")
    assert outcome.status == "done"
    asked = [each.result.text for each in of(await log_of(store, "s"), ToolFinished) if each.name == "which"]
    assert asked == ["no questions can be asked in this run: it is not interactive"]


# -- how it ends -------------------------------------------------------------------------------------------------------


async def test_a_child_that_fails_is_told_with_what_it_had_said():
    broken = ScriptedModel(Reply("I will look.", calls=(call("act", what="x"),)), RuntimeError("lost"))
    child = Agent(broken, name="scout", tools=[act_tool([])])
    outcome = await parent_of(child).run("Go")
    (result,) = outcome.messages[2].tool_results
    assert (result.status, outcome.text) == (Status.ERROR, "All done.")
    assert result.text == "scout failed (lost). Its output until then:\nI will look."


async def test_a_child_that_reaches_its_limit_is_an_error_that_says_so():
    child = Agent(ScriptedModel(call("act", what="x")), name="scout", tools=[act_tool([])], limits=Limits(max_turns=1))
    session = parent_of(child).session("s")
    outcome = await session.run("Go")
    (result,) = outcome.messages[2].tool_results
    assert result.text == "scout reached a limit (max_turns) before it was done. It had produced no output."
    assert result.render["steps"] == 1
    (finished,) = of(await log_of(session.store, "s"), SubagentFinished)
    assert finished.status == "limit"


async def test_a_child_that_goes_in_circles_is_an_error_that_says_so():
    child = Agent(ScriptedModel(call("act", what="x"), repeat_last=True), name="scout", tools=[act_tool([])])
    outcome = await parent_of(child).run("Go")
    assert "scout was stopped (repeat) before it was done." in outcome.messages[2].tool_results[0].text


async def test_a_timeout_of_a_child_ends_the_child_alone():
    clock, held = FakeClock(), Held()
    child = Agent(
        following(call("held"), "Child."),
        name="scout",
        tools=[held.tool],
        limits=Limits(timeout_seconds=5),
        clock=clock,
    )
    run = asyncio.ensure_future(parent_of(child, clock=clock).run("Go"))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    await clock.advance(6)
    outcome = await asyncio.wait_for(run, SECONDS)
    assert (outcome.status, outcome.text) == ("done", "All done.")
    assert "reached a limit (timeout)" in outcome.messages[2].tool_results[0].text


async def test_a_child_that_does_not_end_when_its_time_is_up_is_left_behind():
    clock = FakeClock()
    deaf, started, released = deaf_tool()
    child = Agent(
        following(call("deaf"), "Child."), name="scout", tools=[deaf], limits=Limits(timeout_seconds=5), clock=clock
    )
    session = parent_of(child, clock=clock).session("s")
    run = asyncio.ensure_future(session.run("Go"))
    await asyncio.wait_for(started.wait(), SECONDS)
    await clock.advance(6)
    await clock.advance(CANCEL_GRACE_SECONDS + 1)
    outcome = await asyncio.wait_for(run, SECONDS)
    assert "did not end; it may still be running" in outcome.messages[2].tool_results[0].text
    released.set()
    await rounds()
    events = await log_of(session.store, "s")
    assert_sound(fold_events(events))
    (finished,) = of(events, SubagentFinished)
    assert finished.status == "failed"


async def test_a_child_is_cancelled_with_its_parent():
    held = Held()
    child = Agent(following(call("held"), "Child."), name="scout", tools=[held.tool])
    session = parent_of(child).session("s")
    run = asyncio.ensure_future(session.run("Go"))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    await session.cancel()
    outcome = await asyncio.wait_for(run, SECONDS)
    assert (outcome.status, held.cancelled) == ("cancelled", 1)
    events = await log_of(session.store, "s")
    assert [(each.path, each.status) for each in of(events, RunEnded)] == [
        ("scout-call_1", "cancelled"),
        ("", "cancelled"),
    ]
    assert [each.status for each in of(events, SubagentFinished)] == ["cancelled"]
    assert_sound(fold_events(events))


@pytest.mark.parametrize("mode", ["after_tools", "after_turn"])
async def test_a_cancel_that_waits_is_handed_down(mode):
    held = Held()
    recorder = Recorder()
    child = Agent(following(call("held"), "Child."), name="scout", tools=[held.tool])
    session = parent_of(child, watchers=[recorder]).session("s")
    run = asyncio.ensure_future(session.run("Go"))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    await session.cancel(mode)
    await rounds()
    assert not run.done()
    held.released.set()
    outcome = await asyncio.wait_for(run, SECONDS)
    assert (outcome.status, held.cancelled) == ("cancelled", 0)
    events = await log_of(session.store, "s")
    assert [each.status for each in of(events, SubagentFinished)] == ["cancelled"]
    assert "released" in [each.result.text for each in of(events, ToolFinished)]
    assert [each.path for each in of(recorder.events, CancelRequested)] == ["", "scout-call_1"]


async def test_a_cancel_waits_for_what_a_child_must_not_abort():
    clock, held = FakeClock(), Held(abortable=False)
    child = Agent(following(call("held"), "Child."), name="scout", tools=[held.tool], clock=clock)
    session = parent_of(child, clock=clock).session("s")
    run = asyncio.ensure_future(session.run("Go"))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    await session.cancel()
    await clock.advance(3 * CANCEL_GRACE_SECONDS)
    assert not run.done()
    held.released.set()
    assert (await asyncio.wait_for(run, SECONDS)).status == "cancelled"


async def test_a_parent_whose_child_ignores_the_cancel_is_left_behind_with_it():
    clock = FakeClock()
    deaf, started, released = deaf_tool()
    child = Agent(following(call("deaf"), "Child."), name="scout", tools=[deaf], clock=clock)
    session = parent_of(child, clock=clock).session("s")
    run = asyncio.ensure_future(session.run("Go"))
    await asyncio.wait_for(started.wait(), SECONDS)
    await session.cancel()
    await clock.advance(CANCEL_GRACE_SECONDS + 1)
    assert (await asyncio.wait_for(run, SECONDS)).status == "cancelled"
    released.set()
    await rounds()
    events = await log_of(session.store, "s")
    assert_sound(fold_events(events))
    assert len(of(events, SubagentFinished)) == 1


@pytest.mark.in_memory("what graders of a child have used that did not end")
@pytest.mark.parametrize(("seconds", "status"), [(5, "done"), (None, "cancelled")], ids=["alone", "with its parent"])
async def test_grades_of_a_child_that_is_left_behind_count_for_its_parent(seconds, status):
    clock = FakeClock()
    deaf, started, released = deaf_tool()
    engine = until_graded(lambda _: Grade(passed=False, usage=Usage(900, 100), feedback="More."))
    limits = Limits(timeout_seconds=seconds)
    model = ScriptedModel("One.", call("deaf"))
    child = Agent(model, name="scout", tools=[deaf], engine=engine, limits=limits, clock=clock)
    session = parent_of(child, clock=clock).session("s")
    run = asyncio.ensure_future(session.run("Go"))
    await asyncio.wait_for(started.wait(), SECONDS)
    await (session.cancel() if seconds is None else clock.advance(6))
    await clock.advance(CANCEL_GRACE_SECONDS + 1)
    outcome = await asyncio.wait_for(run, SECONDS)
    released.set()
    await rounds()
    assert outcome.status == status
    assert 1000 < outcome.usage.total_tokens < 2000


async def test_a_cancel_while_a_child_is_being_begun_leaves_nothing_open():
    store = WaitingStore()
    store.holds_back = SubagentStarted
    store.open.clear()
    child = Agent(ScriptedModel("Child."), name="scout")
    session = parent_of(child, store=store).session("s")
    run = asyncio.ensure_future(session.run("Go"))
    await asyncio.wait_for(store.waiting.wait(), SECONDS)
    await session.cancel()
    store.open.set()
    assert (await asyncio.wait_for(run, SECONDS)).status == "cancelled"
    events = await log_of(store, "s")
    assert [each.status for each in of(events, SubagentFinished)] == ["cancelled"]
    assert_sound(fold_events(events))


# -- durable -----------------------------------------------------------------------------------------------------------


async def test_a_durable_child_remembers_and_does_one_task_after_the_other():
    model = ScriptedModel("One.", "Two.", "Three.")
    child = Agent(model, name="scout").as_tool(durable=True)
    two = calls(call("scout", task="First."), call("scout", task="Second."))
    session = Agent(ScriptedModel(two, "Top.", call("scout", task="Third."), "Top."), tools=[child]).session("s")
    await session.run("Go")
    await session.run("Go on")
    assert [message.text for message in model.requests[2].messages] == [
        *("First.", "One.", "Second.", "Two.", "Third."),
    ]
    assert [each.child for each in of(await log_of(session.store, "s"), SubagentStarted)] == ["scout"] * 3


async def test_a_fresh_child_knows_its_task_alone():
    model = ScriptedModel("One.", "Two.")
    child = Agent(model, name="scout").as_tool()
    two = ScriptedModel(call("scout", task="First."), call("scout", task="Second."), "Top.")
    await Agent(two, tools=[child]).run("Go")
    assert [message.text for message in model.requests[1].messages] == ["Second."]


async def test_a_resumed_child_says_so():
    entries, _ = await whole_log()
    cut = next(
        place for place, entry in enumerate(entries, 1) if isinstance(entry.event, ToolFinished) and entry.event.path
    )
    store = await left_behind(entries[:cut])
    await family([], store).session("s").resume()
    resumed = {event.path for event in of(await log_of(store, "s"), RunResumed)}
    assert "" in resumed
    assert any(path.startswith("scout-") for path in resumed)


async def test_the_question_of_a_permission_names_its_path():
    store = MemoryStore()
    await asking_family(store).run("Go")
    (question,) = of(await log_of(store, "s"), QuestionAsked)
    assert question.run_id.count("/") == 2


async def test_the_calls_of_a_child_are_counted_by_its_own_limit():
    def child_of(**limits: Any) -> Agent[Any]:
        steps = (*[call("act", what=what) for what in "xyz"], "Done.")
        return Agent(following(*steps), name="child", tools=[act_tool([])], limits=Limits(**limits))

    def parent(child: Agent[Any], **limits: Any) -> Agent[Any]:
        return Agent(ScriptedModel(call("child", task="Go."), "Top."), tools=[child.as_tool()], limits=Limits(**limits))

    outcome = await parent(child_of(), max_tool_calls=1).run("Go")
    assert outcome.messages[2].tool_results[0].text == "Done."
    outcome = await parent(child_of(max_tool_calls=1)).run("Go")
    assert outcome.messages[2].tool_results[0].text != "Done."
