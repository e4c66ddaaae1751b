"""A cancel at every suspension of every kind of run: nothing finished is lost, nothing is left open, nothing leaks.

Each scenario is played again and again, cancelled at its first suspension, its second, and so on until it ends before
the cancel comes. After each time the log is held against the ledger of what the tools have really done.
"""

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import pytest

from perdure import Outcome, Status, ToolResult
from perdure.engines import fold_entries
from perdure.events import Entry, RunResumed, ToolFinished
from perdure.stores import SqliteStore
from tests.faults.scenarios import KEPT_SCENARIOS, SCENARIOS, Scenario, Stage
from tests.faults.suspension import Complaints, Suspensions, assert_nothing_is_left, at_once, own_task
from tests.transcript import assert_valid

ENOUGH_SECONDS = 10.0
"""Within this every run has ended, however it was cancelled."""

Strike: TypeAlias = Callable[[Stage, asyncio.Task], object]


def cancel_the_caller(stage: Stage, caller: asyncio.Task) -> None:
    caller.cancel()


def cancelled(stage: Stage, mode: Any) -> bool:
    """Cancel the run of this process, if there is one. Without one, `cancel` would look for one elsewhere, and wait."""
    return stage.session._driver.command is not None and at_once(stage.session.cancel(mode))


def cancel_the_run(stage: Stage, caller: asyncio.Task) -> bool:
    return cancelled(stage, "now")


def cancel_after_tools(stage: Stage, caller: asyncio.Task) -> bool:
    return cancelled(stage, "after_tools")


def cancel_after_the_turn(stage: Stage, caller: asyncio.Task) -> bool:
    return cancelled(stage, "after_turn")


def cancel_everything(stage: Stage, caller: asyncio.Task) -> None:
    """As `asyncio.run` does with whatever is left when its main function has ended."""
    for task in asyncio.all_tasks():
        if task is not stage.director and task not in stage.beside:
            task.cancel()


class Way(NamedTuple):
    """A way to cancel."""

    strike: Strike
    times: int = 1
    """At so many suspensions in a row."""

    @property
    def name(self) -> str:
        return f"{self.strike.__name__}{'' if self.times == 1 else f'_{self.times}_times'}"


WAYS: Sequence[Way] = (
    Way(cancel_the_caller),
    Way(cancel_the_caller, 2),
    Way(cancel_the_caller, 3),
    Way(cancel_the_run),
    Way(cancel_after_tools),
    Way(cancel_after_the_turn),
    Way(cancel_everything),
)
FEWER_WAYS: Sequence[Way] = (
    Way(cancel_the_caller),
    Way(cancel_the_caller, 3),
    Way(cancel_the_run),
    Way(cancel_everything),
)
"""Where each run costs a hundred times as much: in a file."""
MORE_WAYS: Sequence[Way] = (Way(cancel_the_run, 2), Way(cancel_the_run, 3), Way(cancel_everything, 2))
"""Only in the long form of the search."""


class Played(NamedTuple):
    """One time that a scenario was played."""

    struck: int
    suspensions: int
    asked_after: int
    """How often the model was asked after the first strike."""
    ending: Any
    """What the caller got: an outcome, a result, or an error."""


async def play(stage: Stage, scenario: Scenario, way: Way, at: int) -> Played:
    """Play a scenario and strike at its suspension number `at`."""
    asked: list[int] = []

    def strike() -> None:
        asked.append(stage.model.asked)
        has_effect = way.strike(stage, caller) is not False
        stage.hurried |= has_effect and way.strike not in {cancel_after_tools, cancel_after_the_turn}

    suspensions = Suspensions(range(at, at + way.times), strike)
    stage.director = asyncio.current_task()
    work = scenario(stage)
    if stage.before is not None:
        await stage.before
    with suspensions.watching():
        caller = asyncio.ensure_future(work)
        ending = await ending_of(caller)
        if way.strike is cancel_everything:
            await the_end_of_everything(stage)
        elif stage.survives is not None:
            ending = await ending_of(own_task(awaited(stage.survives())))
    for task in stage.beside:
        await ending_of(task)
    asked_after = stage.model.asked - asked[0] if asked else 0
    return Played(suspensions.struck, suspensions.count, asked_after, ending)


async def awaited(work: Any) -> Any:
    return await work


async def the_end_of_everything(stage: Stage) -> None:
    """As `asyncio.run` waits for the tasks that it has cancelled."""
    if tasks := asyncio.all_tasks() - {asyncio.current_task(), *stage.beside}:
        _, pending = await asyncio.wait(tasks, timeout=ENOUGH_SECONDS)
        assert not pending, f"they do not end: {pending}"
        await asyncio.gather(*tasks, return_exceptions=True)


async def ending_of(task: asyncio.Task) -> Any:
    """What a task returns or raises, within a bounded time."""
    done, _ = await asyncio.wait([task], timeout=ENOUGH_SECONDS)
    assert done, f"it does not end: {task}"
    if task.cancelled():
        return asyncio.CancelledError()
    return task.exception() or task.result()


# -- what must hold afterwards -----------------------------------------------------------------------------------------


def audit(entries: Sequence[Entry], stage: Stage, *, closed: bool) -> None:
    """The log is in order, its conversation is valid, and it says what the ledger says.

    It is closed: each call has its result, and the run its end; unless it was crashed before, and not even resumed.
    """
    assert [entry.seq for entry in entries] == [*range(1, len(entries) + 1)]
    closed = closed and (stage.before is None or any(isinstance(entry.event, RunResumed) for entry in entries))
    state = fold_entries(entries)
    assert_valid(state.messages)
    if closed:
        assert not state.unsettled_calls
        assert not state.started_calls
        assert not state.is_interrupted
    results = results_in(entries)
    by_call = {result.call_id: result for result in results}
    assert len(by_call) == len(results), "a call has two results"
    for result in results:
        audit_result(result, stage)
    if "doubt" in by_call:
        assert by_call["doubt"].status is Status.UNKNOWN, "nobody knows what became of it"
    if closed:
        assert set(stage.ledger.begun) <= set(by_call), "an effect has no result"


def results_in(entries: Sequence[Entry]) -> list[ToolResult]:
    return [entry.event.result for entry in entries if isinstance(entry.event, ToolFinished)]


def audit_result(result: ToolResult, stage: Stage) -> None:
    begun, done = stage.ledger.begun[result.call_id], stage.ledger.done[result.call_id]
    assert begun <= 1, f"{result.call_id} happened {begun} times"
    if result.status is Status.OK:
        assert done == 1, f"{result} says that it was done, and it was not"
    if result.status in {Status.CANCELLED_BEFORE_START, Status.DENIED}:
        assert begun == 0, f"{result} says that it was not begun, and it was"
    if done and not stage.loose_results:
        assert result.status is Status.OK, f"{result} was done, and its result does not say so"


def audit_certainty(stage: Stage, entries: Sequence[Entry]) -> None:
    """A cancel leaves nobody in doubt whether a call was begun: only a crash does."""
    unknown = {result.call_id for result in results_in(entries) if result.status is Status.UNKNOWN}
    assert unknown <= stage.crashed, f"{unknown} are unknown, and nothing has crashed"


CANCELLED = ("cancelled", "cancelled_before_start", "UsageError")
"""How a run ends that was cancelled, and how a call without a model does: before it has begun, there is no result."""


def audit_ending(stage: Stage, played: Played, way: Way, plain_ending: Any) -> None:
    """The caller got what it was promised."""
    ending = played.ending
    if not played.struck:
        assert kind_of(ending) == kind_of(plain_ending)
        return
    if way.strike in {cancel_the_caller, cancel_everything}:
        assert isinstance(ending, asyncio.CancelledError) or kind_of(ending) == kind_of(plain_ending), ending
    else:
        assert kind_of(ending) in {kind_of(plain_ending), *CANCELLED}, ending
    if way.strike is cancel_the_run and kind_of(ending) == "cancelled" and stage.alone:
        assert played.asked_after == 0, "the model was asked after the cancel"


def kind_of(ending: Any) -> str:
    if isinstance(ending, Outcome | ToolResult):
        return str(ending.status)
    return type(ending).__name__


async def audit_next_turn(stage: Stage, at: int) -> None:
    """The conversation goes on, in the same session object or in another one."""
    stage.model.over = True
    session = stage.session if at % 2 else stage.agent.session(stage.session.session_id)
    outcome = await session.run("again")
    assert (outcome.status, outcome.text) == ("done", "Fine."), outcome
    assert_valid(outcome.messages)
    await session.aclose()


# -- the search --------------------------------------------------------------------------------------------------------

EACH = 30
"""In the ordinary form of the search, every suspension up to this one is struck, and of the later ones a few."""
STRIDE = 37


def places(*, long: bool) -> Iterator[int]:
    """The suspensions at which to strike."""
    return itertools.count(1) if long else itertools.chain(range(1, EACH + 1), itertools.count(EACH + 1, STRIDE))


async def search_all(scenario: Scenario, store: SqliteStore | None = None, *, long: bool) -> int:
    """Strike in every way; says how often the scenario was played."""
    ways = (*WAYS, *MORE_WAYS) if long else WAYS if store is None else FEWER_WAYS
    return sum([await search(scenario, way, store, long=long) for way in ways])


async def search(scenario: Scenario, way: Way, store: SqliteStore | None = None, *, long: bool) -> int:
    """Strike at every suspension of a scenario, until it ends before the strike; says how often it was played."""
    threads = threading.enumerate()
    with Complaints().expected_none():
        plain = await play(Stage(store), scenario, Way(cancel_the_caller, 0), 0)
        for count, at in enumerate(places(long=long), 1):
            stage = Stage(store)
            try:
                played = await play(stage, scenario, way, at)
                await check(stage, played, way, plain.ending, at)
                assert_nothing_is_left(threads)
            except BaseException as error:
                error.add_note(f"{scenario.__name__}, {way.name}, at suspension {at}")
                raise
            if not played.struck:
                return count
    raise AssertionError("a scenario that never ends")


async def check(stage: Stage, played: Played, way: Way, plain_ending: Any, at: int) -> None:
    """Everything that must hold after a scenario was played."""
    closed = way.strike is not cancel_everything
    session_id = stage.session.session_id
    audit(await stage.store.read(session_id), stage, closed=closed)
    if closed:
        audit_ending(stage, played, way, plain_ending)
        audit_certainty(stage, await stage.store.read(session_id))
    await stage.session.aclose()
    await audit_next_turn(stage, at)
    audit(await stage.store.read(session_id), stage, closed=True)


@pytest.fixture(scope="module")
def tally(report):
    """How often each scenario was played; told at the end, and not too few when all of them were."""
    played: dict[str, int] = {}
    yield played
    total = sum(played.values())
    report.append(f"cancellation: {total} runs of {len(played)} scenarios, each cancelled somewhere else")
    if len(played) == len(SCENARIOS) + len(KEPT_SCENARIOS):
        assert total >= 2500  # a run that waits for little has few suspensions; each of them is struck


@pytest.mark.faults
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_run_can_be_cancelled_anywhere(scenario, tally, long):
    tally[scenario.__name__] = await search_all(scenario, long=long)


@pytest.mark.faults
@pytest.mark.parametrize("scenario", KEPT_SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_run_that_is_kept_in_a_file_can_be_cancelled_anywhere(scenario, tally, long, tmp_path):
    store = SqliteStore(tmp_path / "sessions.db")
    tally[f"{scenario.__name__} in a file"] = await search_all(scenario, store, long=long)
    await store.aclose()
