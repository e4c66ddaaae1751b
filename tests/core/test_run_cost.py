"""The cost of a run by the prices in its log."""

import pytest

from perdure import Usage, assistant
from perdure._core.log.fold import fold_events
from perdure._core.log.past_runs import find_cost_usd
from perdure.engines import State
from perdure.events import Event, MessageAdded, ModelRequested, RunEnded, RunStarted
from perdure.models import Price

DOLLAR_PER_TOKEN = Price(input_usd=1e6, output_usd=0).to_tuple()


def unfinished(price: tuple[float | None, ...] = DOLLAR_PER_TOKEN, path: str = "") -> list[Event]:
    """A run with one reply of ten tokens, and a request of five that has no reply."""
    return [
        RunStarted(run_id="r", path=path),
        ModelRequested(1, price_usd=price, run_id="r", path=path),
        MessageAdded(assistant("Yes.", usage=Usage(10)), run_id="r", path=path),
        ModelRequested(2, price_usd=price, estimated_tokens=5, run_id="r", path=path),
    ]


def test_a_run_without_requests_costs_nothing():
    assert find_cost_usd(State()) == 0.0
    assert find_cost_usd(fold_events([RunStarted(run_id="r")]), with_unanswered=True) == 0.0


def test_a_run_costs_its_replies_and_after_a_crash_what_it_had_asked():
    state = fold_events(unfinished())
    assert find_cost_usd(state) == 10.0
    assert find_cost_usd(state, with_unanswered=True) == 15.0


@pytest.mark.parametrize("price", [(), (1.0,), (-1.0, 1.0), (1.0, float("nan")), (None, None)])
def test_without_a_valid_price_the_cost_is_not_known(price):
    state = fold_events(unfinished(price))
    assert find_cost_usd(state) is None
    assert find_cost_usd(state, with_unanswered=True) is None
    asked = fold_events([RunStarted(run_id="r"), ModelRequested(1, price_usd=price, estimated_tokens=5, run_id="r")])
    assert (find_cost_usd(asked), find_cost_usd(asked, with_unanswered=True)) == (0.0, None)


def test_what_a_provider_reports_needs_no_price():
    reported = MessageAdded(assistant("Yes.", usage=Usage(10, reported_usd=0.5)), run_id="r")
    assert find_cost_usd(fold_events([RunStarted(run_id="r"), ModelRequested(1, run_id="r"), reported])) == 0.5


def test_subagents_count_whether_they_have_ended_or_not():
    ended = [*unfinished(path="a"), RunEnded("done", cost_usd=3.0, run_id="r", path="a")]
    state = fold_events([*unfinished(), *ended, *unfinished(path="b")])
    assert find_cost_usd(state) == 10.0 + 3.0 + 10.0
    assert find_cost_usd(state, with_unanswered=True) == 15.0 + 3.0 + 15.0
    assert find_cost_usd(fold_events([*unfinished(), *unfinished((), path="b")])) is None


@pytest.mark.parametrize(
    ("reply", "total"),
    [(Usage(10), Usage(30)), (Usage(10, reported_usd=0.5), Usage(30, reported_usd=2.0)), (Usage(30), Usage(30))],
)
def test_tokens_of_graders_of_an_ended_subagent_are_in_the_log_of_the_runs_above_it(reply: Usage, total: Usage):
    paths = ("", "a", "a/b")
    begun: list[Event] = [RunStarted(run_id="r", path=path) for path in paths]
    answered = MessageAdded(assistant("Yes.", usage=reply), run_id="r", path="a/b")
    state = fold_events(
        [*begun, answered, *[RunEnded("done", usage=total, run_id="r", path=each) for each in paths[:0:-1]]]
    )
    assert (state.usage, state.get_child("a").usage) == (total, total)


def test_an_end_that_tells_fewer_tokens_than_the_log_takes_none_away():
    state = fold_events([RunStarted(run_id="r"), *unfinished(path="a"), RunEnded("done", run_id="r", path="a")])
    assert state.usage == Usage(10)


def test_the_price_of_a_run_is_not_that_of_the_next():
    state = fold_events([*unfinished(), RunEnded("done", cost_usd=10.0, usage=Usage(10), run_id="r")])
    assert state.total_usd == 10.0
    state.apply(RunStarted(run_id="s"))
    assert (state.price_usd, state.total_usd) == ((), 10.0)


def test_a_price_is_the_same_after_it_was_stored():
    price = Price(input_usd=1, output_usd=2, cache_write_usd=0.5)
    assert Price.from_tuple(price.to_tuple()) == price
