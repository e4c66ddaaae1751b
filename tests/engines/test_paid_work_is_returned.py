"""Whatever strikes a run, and wherever: its outcome has what was paid for, agrees with the log, and is found again."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import BadRequest, Budget, Limits, Outcome, ProviderDown, Session, StopReason, Usage
from perdure.engines import until
from perdure.events import (
    Entry,
    MessageAdded,
    ModelReplied,
    ReplyDiscarded,
    RunEnded,
    TextDelta,
    ToolFinished,
)
from perdure.models import Price
from perdure.testing import FakeClock, Reply, call, replay
from tests.doubles import SECONDS, NotedStore, deaf_tool
from tests.engines.roles import ENGINES, POOR, build_agent, do_task, find_part, find_task, play
from tests.runtime.subagents.family import left_behind

TOKENS = 15
"""What a scripted reply uses."""
PRICE = Price(input_usd=1.0, output_usd=1.0)

FAULTS: dict[str, Any] = {
    "down": ProviderDown("no line"),
    "rejected": BadRequest("not this"),
    "empty": "",
    "cut off": [TextDelta("Half an")],
    "too long": Reply("Half an", stop=StopReason.LENGTH),
    "filtered": Reply("", stop=StopReason.CONTENT_FILTER),
    "calls": call("missing"),
}
"""What the model says instead of what is due, each time."""


def build_engine(name: str) -> Any:
    """Return an engine of this name; `until` has a second round."""
    return until(lambda evidence: evidence.answer == "A better answer.") if name == "until" else name


def find_place(request: Any) -> str:
    """Return the part of the model, and where in the work it plays it."""
    part = find_part(request)
    if part == "task":
        return "last task" if find_task(request) == "join them" else "task"
    if part == "answer" and any(each.origin == "grade" for each in request.messages):
        return "second round"
    return "nudged" if part == "answer" and any(each.origin == "autonomous" for each in request.messages) else part


def play_until(place: str, fault: Any) -> Any:
    """Return a model that plays all parts, and from a place of the work on only the fault."""

    def strike(usual: Any) -> Callable[[Any], Any]:
        def reply(request: Any) -> Any:
            if find_place(request) == place:
                return fault(request) if callable(fault) else fault
            return usual(request) if callable(usual) else usual

        return reply

    def answer(request: Any) -> Any:
        return "A better answer." if find_place(request) == "second round" else "A draft."

    usual = {"report": "Both are noted.", "review": POOR, "revision": "A better answer.", "plan": PLAN, "replan": "[]"}
    parts = {**usual, "task": do_task, "thought": "I think.", "answer": answer}
    return play(**{name: strike(part) for name, part in parts.items()})


PLAN = '[{"id": "a", "description": "one"}, {"id": "b", "description": "join them", "depends_on": ["a"]}]'


async def read_entries(session: Session[Any]) -> Sequence[Entry]:
    return await session.store.read(session.session_id)


def list_append_ends(store: NotedStore) -> list[int]:
    """Return the numbers of the entries after which a process can die: the last of each append but one."""
    return list(accumulate(len(each.events) for each in store.appends))[:-1]


def count_usage(entries: Sequence[Entry]) -> Usage:
    """Return the tokens of all replies in a log, wherever they were made."""
    used = Usage()
    for each in entries:
        match each.event:
            case MessageAdded(message=message) | ModelReplied(message=message) | ReplyDiscarded(partial=message) if (
                message
            ):
                used += message.usage or Usage()
            case _:
                pass
    return used


async def check_outcome(session: Session[Any], outcome: Outcome[Any], usable: str) -> None:
    """Check that an outcome has what is usable, agrees with the log and is found again, and the session goes on."""
    assert usable in outcome.text, outcome
    entries = await read_entries(session)
    assert outcome.usage.total_tokens == count_usage(entries).total_tokens
    finished = [each.event.result.call_id for each in entries if isinstance(each.event, ToolFinished)]
    assert sorted(each.call_id for each in outcome.tool_calls) == sorted(finished)
    ended = [each.event for each in entries if isinstance(each.event, RunEnded) and not each.event.path]
    assert [(each.status, each.reason) for each in ended] == [(outcome.status, outcome.reason)]
    assert ended[0].usage == outcome.usage
    again = await session.run("Do it", input_id="once")
    assert (again.status, again.reason) == (outcome.status, outcome.reason)
    if usable:
        assert (again.text, again.output) == (outcome.text, outcome.output)
        assert outcome.messages[-1].text == outcome.text
        assert [str(each.role) for each in again.new_messages] == [str(each.role) for each in outcome.new_messages]
    following = await session.run("And now?", engine="passthrough", limits=Limits(max_turns=1))
    assert following.status in {"done", "failed", "stopped"}  # as the model answers, not because of what is stored


# -- what the model or its provider does -------------------------------------------------------------------------------

STRUCK = [
    ("react", "answer", "", None),
    ("passthrough", "answer", "", None),
    ("autonomous", "answer", "", None),
    ("autonomous", "nudged", "A draft.", None),
    ("chain_of_thought", "thought", "A draft.", ("done", "")),
    ("chain_of_thought", "answer", "", None),
    ("planner", "plan", "A draft.", ("done", "")),
    ("planner", "task", "Both are noted.", ("done", "")),
    ("planner", "last task", "Both are noted.", ("done", "")),
    ("planner", "report", "result of join them", None),
    ("reflect", "answer", "", None),
    ("reflect", "review", "A draft.", ("done", "")),
    ("reflect", "revision", "A draft.", ("done", "not_revised")),
    ("until", "answer", "", None),
    ("until", "second round", "A draft.", None),
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("engine", "place", "usable", "ending"), STRUCK)
async def test_a_model_that_fails_takes_nothing_away(
    engine: str, place: str, usable: str, ending: tuple[str, str] | None, fault: str
) -> None:
    model = play_until(place, FAULTS[fault])
    session = build_agent(build_engine(engine), model=model, limits=Limits(max_turns=40)).session("s")
    outcome = await session.run("Do it", input_id="once")
    if fault == "too long" and place in {"report", "second round", "nudged"}:
        usable = "Half an"  # the answer, as far as it goes: the reason says so
    if ending is not None:
        assert (outcome.status, outcome.reason) == ending
    else:
        assert outcome.status != "done" or place == "nudged"
    await check_outcome(session, outcome, usable)


# -- cancels and the time limit ----------------------------------------------------------------------------------------

SECONDS_OF_RUN = 100.0


class StandingModel:
    """A model that stands still where it is to play a part for the first time."""

    def __init__(self, place: str) -> None:
        self.stands = asyncio.Event()
        self.model = play_until(place, self._stand)

    async def _stand(self, _request: Any) -> str:
        if not self.stands.is_set():
            self.stands.set()
            await asyncio.Event().wait()
        return "Later."


INTERRUPTED = [
    ("react", "answer", ""),
    ("autonomous", "nudged", "A draft."),
    ("chain_of_thought", "thought", ""),
    ("planner", "task", ""),
    ("planner", "last task", "result of one"),
    ("planner", "report", "result of join them"),
    ("reflect", "review", "A draft."),
    ("reflect", "revision", "A draft."),
    ("until", "second round", "A draft."),
]


@pytest.mark.parametrize("mode", ["now", "after_tools", "after_turn"])
@pytest.mark.parametrize(("engine", "place", "usable"), INTERRUPTED)
async def test_a_cancel_takes_nothing_away(engine: str, place: str, usable: str, mode: Any) -> None:
    standing = StandingModel(place)
    session = build_agent(build_engine(engine), model=standing.model).session("s")
    running = asyncio.ensure_future(session.run("Do it", input_id="once"))
    await asyncio.wait_for(standing.stands.wait(), SECONDS)
    await session.cancel(mode)
    if mode != "now":
        await session.cancel("now")  # the reply never comes
    outcome = await asyncio.wait_for(running, SECONDS)
    assert (outcome.status, outcome.reason) == ("cancelled", "cancelled")
    await check_outcome(session, outcome, usable)


@pytest.mark.parametrize(("engine", "place", "usable"), INTERRUPTED)
async def test_a_run_out_of_time_returns_what_it_has(engine: str, place: str, usable: str) -> None:
    clock, standing = FakeClock(), StandingModel(place)
    limits = Limits(timeout_seconds=SECONDS_OF_RUN)
    session = build_agent(build_engine(engine), model=standing.model, clock=clock, limits=limits).session("s")
    running = asyncio.ensure_future(session.run("Do it", input_id="once"))
    await asyncio.wait_for(standing.stands.wait(), SECONDS)
    while not running.done() and clock.now() < FakeClock().now() + SECONDS_OF_RUN:
        await clock.advance(SECONDS_OF_RUN / 10)
    outcome = await asyncio.wait_for(running, SECONDS)
    expected = {
        "review": ("done", "not_reviewed", "A draft."),
        "revision": ("done", "not_revised", "A draft."),
        "thought": ("done", "", "A draft."),
        "task": ("limit", "timeout", "Both are noted."),
        "last task": ("limit", "timeout", "Both are noted."),
    }.get(place, ("limit", "timeout", outcome.text))
    assert (outcome.status, outcome.reason, outcome.text) == expected
    await check_outcome(session, outcome, "" if "task" in place else usable)


async def test_a_tool_that_ignores_a_cancel_takes_nothing_away() -> None:
    clock = FakeClock()
    deaf, started, released = deaf_tool()

    def work(request: Any) -> Any:
        return call("deaf") if find_task(request) == "two" else "one is done"

    model = play(plan='["one", {"description": "two", "depends_on": ["1"]}]', task=work)
    agent = build_agent("planner", model=model, clock=clock).replace(tools=[deaf])
    session = agent.session("s")
    running = asyncio.ensure_future(session.run("Do it", input_id="once"))
    await asyncio.wait_for(started.wait(), SECONDS)
    await session.cancel()
    while not running.done():
        await clock.advance(1)
    outcome = await running
    released.set()
    assert (outcome.status, "one is done" in outcome.text) == ("cancelled", True)
    assert (await session.run("Do it", input_id="once")).text == outcome.text


# -- limits ------------------------------------------------------------------------------------------------------------


def list_limits() -> list[Limits]:
    """Return limits of every kind, from the tightest to those that a whole run does not reach."""
    return [
        *[Limits(max_turns=count) for count in range(1, 12)],
        *[Limits(token_budget=TOKENS * count) for count in range(1, 14)],
        *[Limits(max_cost_usd=TOKENS * count * 1e-6) for count in range(1, 14)],
        *[Limits(max_tool_calls=count) for count in range(1, 5)],
    ]


def list_answers(entries: Sequence[Entry]) -> list[str]:
    """Return the answers in the conversation, and the results of tasks."""
    added = [each.event for each in entries if isinstance(each.event, MessageAdded)]
    said = [each for each in added if each.message.role == "assistant" and not each.message.tool_calls]
    return [each.message.text for each in said if not each.path or each.path.startswith("task:")]


@pytest.mark.parametrize("engine", [*ENGINES, "until"])
async def test_within_every_limit_a_run_returns_what_it_has_and_spends_no_more(engine: str) -> None:
    for limits in list_limits():
        model = play_until("nowhere", "")
        model.info = replace(model.info, price=PRICE)
        session = build_agent(build_engine(engine), model=model, limits=limits).session("s")
        outcome = await session.run("Do it", input_id="once")
        answers = list_answers(await read_entries(session))
        assert any(each in outcome.text for each in answers) or not answers, (limits, outcome)
        assert outcome.status in {"done", "limit"}, (limits, outcome)
        assert outcome.turns <= (limits.max_turns or 40)
        # one reply for each task that runs at the same time
        most = TOKENS if engine != "planner" else 2 * TOKENS
        assert limits.token_budget is None or outcome.usage.total_tokens < limits.token_budget + most
        assert outcome.cost_usd is not None
        assert limits.max_cost_usd is None or outcome.cost_usd < limits.max_cost_usd + most * 1e-6
        assert len(outcome.tool_calls) <= (limits.max_tool_calls or 40) + 1
        await check_outcome(session, outcome, "")


@pytest.mark.parametrize("engine", [*ENGINES, "until"])
async def test_a_shared_budget_is_never_exceeded_and_what_it_paid_for_is_returned(engine: str) -> None:
    for tokens in range(0, 30_000, 1500):
        budget = Budget(token_budget=tokens)
        session = build_agent(build_engine(engine), model=play_until("nowhere", ""), budget=budget).session("s")
        outcome = await session.run("Do it", input_id="once")
        answers = list_answers(await read_entries(session))
        assert any(each in outcome.text for each in answers) or not answers, (tokens, outcome)
        assert (budget.spent_tokens, budget.reserved_tokens) == (outcome.usage.total_tokens, 0)
        assert budget.spent_tokens <= tokens
        assert outcome.status in {"done", "limit"}, (tokens, outcome)


async def test_a_part_of_a_shared_budget_is_kept_for_the_answer() -> None:
    budget = Budget(token_budget=9000)
    model = play_until("task", lambda _: Reply("result", usage=Usage(1000, 3000)))
    outcome = await build_agent("planner", model=model, budget=budget).run("Do it")
    assert (outcome.text, outcome.reason) == ("Both are noted.", "budget")


# -- crashes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("engine", "place"),
    [("planner", "report"), ("reflect", "revision"), ("until", "second round"), ("autonomous", "nudged")],
)
async def test_a_run_that_crashed_anywhere_returns_the_same_once_it_is_resumed(
    engine: str, place: str, fault: str
) -> None:
    def build(store: Any) -> Session[Any]:
        model = play_until(place, FAULTS[fault])
        return build_agent(build_engine(engine), model=model, store=store).session("s")

    noted = NotedStore()
    whole = await build(noted).run("Do it", input_id="once")
    entries = await noted.read("s")
    for cut in list_append_ends(noted):
        session = build(await left_behind(entries[:cut]))
        outcome = await session.run("Do it", input_id="once")
        assert (cut, outcome.status, outcome.reason, outcome.text) == (cut, whole.status, whole.reason, whole.text)
        assert outcome.messages[-1].text == whole.messages[-1].text


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("place", ["nudged", "thought", "report", "revision", "second round"])
async def test_a_run_that_ended_with_what_it_had_is_replayed_to_the_same_end(place: str, fault: str) -> None:
    engine = next(each for each, where, _, _ in STRUCK if where == place)
    agent = build_agent(build_engine(engine), model=play_until(place, FAULTS[fault]), limits=Limits(max_turns=40))
    outcome = await agent.session("s").run("Do it")
    replayed = await replay(agent, "s")
    assert replayed.divergence is None, replayed.divergence
    assert [(each.status, each.text) for each in replayed.outcomes] == [(outcome.status, outcome.text)]
