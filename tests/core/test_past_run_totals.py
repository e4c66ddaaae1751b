"""What the past runs of a session have taken together."""

import pytest

from perdure import Usage, assistant, user
from perdure._core.log.fold import fold_events
from perdure._core.log.past_runs import PastRunTotals, add_run_cost, estimate_usage
from perdure._core.values.message import NO_USAGE
from perdure.engines import State
from perdure.events import Event, MessageAdded, ModelRequested, RunEnded, RunStarted, SubagentFinished
from tests.random_log import RandomLog, describe_state


def run(number: int, *tokens: int, cost_usd: float | None = None, ends: bool = True) -> list[Event]:
    run_id = f"r{number}"
    events: list[Event] = [RunStarted("agent", run_id=run_id), MessageAdded(user("Hi"), run_id=run_id)]
    for turn, count in enumerate(tokens, 1):
        events.append(ModelRequested(turn, 1, "model", "provider", {}, "hash", 1, run_id=run_id))
        events.append(MessageAdded(assistant("Hello.", usage=Usage(count)), run_id=run_id))
    if ends:
        events.append(RunEnded("done", usage=Usage(sum(tokens)), cost_usd=cost_usd, run_id=run_id))
    return events


def test_past_runs_are_counted_together():
    state = fold_events([*run(1, 10, 20, cost_usd=0.5), *run(2, 5, cost_usd=0.25), *run(3, 7, cost_usd=1.0)])
    assert state.past == PastRunTotals(Usage(35), 3, 0.75)
    assert (state.total_usage, state.total_turns, state.total_usd) == (Usage(42), 4, 1.75)


def test_it_makes_no_difference_how_often_they_are_asked_for():
    asked, unasked = State(), State()
    for event in [*run(1, 10, 20), *run(2, 5, ends=False), *run(3, 7), *run(4)]:
        asked.apply(event)
        assert asked.past.turns + asked.turns == asked.total_turns
        assert asked.own_usage.total_tokens <= asked.total_usage.total_tokens
        unasked.apply(event)
    assert (unasked.past, unasked.total_usage, unasked.total_usd) == (asked.past, asked.total_usage, asked.total_usd)


@pytest.mark.parametrize("seed", range(10))
def test_a_random_log_gives_the_same_state_if_totals_are_asked_for_at_each_event(seed):
    log = RandomLog(f"totals {seed}")
    events = log.insert_anything(log.damage(log.make(12, strangeness=(seed % 5) / 4)))
    asked = State()
    for event in events:
        asked.apply(event)
        assert asked.past.turns + asked.turns == asked.total_turns
        assert asked.total_usage.total_tokens >= asked.own_usage.total_tokens
    assert describe_state(asked) == describe_state(fold_events(events))


@pytest.mark.parametrize(
    ("past_usd", "ended", "cost_usd"),
    [
        (1.0, None, 1.0),
        (None, RunEnded("done", usage=NO_USAGE, cost_usd=1.0), None),
        (1.0, RunEnded("done", usage=Usage(5)), None),
        (1.0, RunEnded("done", usage=NO_USAGE), 1.0),
        (1.0, RunEnded("done", usage=Usage(5), cost_usd=2.0), 3.0),
    ],
)
def test_a_cost_that_is_not_known_makes_the_total_unknown(past_usd, ended, cost_usd):
    assert add_run_cost(past_usd, ended) == cost_usd


def test_what_subagents_used_is_part_of_it():
    finished = SubagentFinished("c", "child", "done", usage=Usage(8), cost_usd=0.1, run_id="r1")
    state = fold_events([*run(1, 1, 2, 4, ends=False), finished, *run(2)])
    assert state.past == PastRunTotals(Usage(15), 3, 0.0)


def test_the_tokens_before_the_first_run_count_for_none():
    events = [MessageAdded(assistant("Hello.", usage=Usage(100))), *run(1, 1), *run(2, 2)]
    assert fold_events(events).total_usage == Usage(3)


def test_events_applied_together_change_what_they_change_one_by_one():
    events = [*run(1, 10), RunStarted("child", run_id="c", path="add:1"), *run(2, 5)]
    together, one_by_one = State(), State()
    together.apply_all(iter(events))
    for event in events:
        one_by_one.apply(event)
    assert together.messages == one_by_one.messages
    assert (together.total_usage, list(together.children)) == (one_by_one.total_usage, ["add:1"])


@pytest.mark.parametrize(("tokens", "usage"), [(0, NO_USAGE), (1, Usage(1, precision="estimated"))])
def test_a_request_without_a_reply_is_counted_by_its_estimate(tokens, usage):
    request = ModelRequested(1, 1, "model", "provider", {}, "hash", 1, estimated_tokens=tokens)
    assert estimate_usage(request) == usage
