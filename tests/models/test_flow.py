"""The sums behind a throttle."""

import pytest

from perdure.models.flow import LONGEST_PAUSE_SECONDS, PATIENCE_SECONDS, Bucket, Flow


def limited(**limits: float) -> Flow:
    flow = Flow()
    flow.concurrency = int(limits["concurrency"]) if "concurrency" in limits else None
    flow.requests = Bucket(limits["requests"], 0.0) if "requests" in limits else None
    flow.tokens = Bucket(limits["tokens"], 0.0) if "tokens" in limits else None
    return flow


def wait(flow: Flow, tokens: int = 0, now: float = 0.0) -> float | None:
    """For how long: 0 not at all, `None` until something happens."""
    obstacle = flow.obstacle(tokens, now)
    return 0.0 if obstacle is None else obstacle.seconds


def test_a_bucket_lets_a_minutes_worth_through_at_once_and_then_fills_evenly():
    bucket = Bucket(60, 0.0)
    bucket.take(60, 0.0)
    assert bucket.missing(1, 0.0) == pytest.approx(1.0)
    assert bucket.missing(5, 1.0) == pytest.approx(4.0)
    assert bucket.missing(1, 1.0) == 0.0


def test_a_bucket_never_holds_more_than_a_minute_allows():
    bucket = Bucket(60, 0.0)
    bucket.take(60, 10_000.0)
    assert bucket.missing(1, 10_000.0) == pytest.approx(1.0)


def test_what_is_more_than_a_minute_allows_needs_a_full_bucket_and_leaves_a_debt():
    bucket = Bucket(100, 0.0)
    assert bucket.missing(250, 0.0) == 0.0
    bucket.take(250, 0.0)
    assert bucket.missing(250, 0.0) == pytest.approx(150.0)


def test_without_limits_there_is_no_obstacle():
    flow = Flow()
    assert flow.unlimited
    for _ in range(1000):
        assert wait(flow, 10**9) == 0.0
        flow.taken(10**9, 0.0)


def test_requests_under_way_are_counted():
    flow = limited(concurrency=2)
    first, _ = flow.taken(0, 0.0), flow.taken(0, 0.0)
    assert wait(flow) is None
    flow.left(first, None, 0.0)
    assert wait(flow) == 0.0


def test_the_tokens_that_were_expected_are_corrected_by_those_that_were_used():
    flow = limited(tokens=100)
    slot = flow.taken(10, 0.0)
    slot.accepted = True
    flow.left(slot, 90, 0.0)
    assert wait(flow, 10) == 0.0
    assert wait(flow, 11) == pytest.approx(0.6)


def test_tokens_of_an_answer_that_never_began_are_given_back():
    flow = limited(tokens=100)
    flow.left(flow.taken(90, 0.0), None, 0.0)
    assert wait(flow, 100) == 0.0


def test_tokens_of_an_answer_that_did_not_tell_stay_as_expected():
    flow = limited(tokens=100)
    slot = flow.taken(90, 0.0)
    slot.accepted = True
    flow.left(slot, None, 0.0)
    assert wait(flow, 11) == pytest.approx(0.6)


def test_a_pause_is_as_long_as_the_provider_says():
    flow = Flow()
    flow.paused(7.0, 0.0, stretch=1.0)
    assert wait(flow) == 7.0
    assert not flow.unlimited
    assert wait(flow, now=7.0) == 0.0


def test_a_shorter_pause_does_not_end_a_longer_one():
    flow = Flow()
    flow.paused(20.0, 0.0, stretch=1.0)
    flow.paused(1.0, 0.0, stretch=1.0)
    assert wait(flow) == 20.0


def test_pauses_of_unknown_length_double_up_to_a_limit():
    flow = Flow()
    now, waits = 0.0, []
    for _ in range(9):
        flow.paused(None, now, stretch=1.0)
        waits.append(wait(flow, now=now))
        now += LONGEST_PAUSE_SECONDS
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_refusals_of_what_was_sent_together_are_one_pause_as_long_as_the_longest_of_them():
    flow = Flow()
    flow.paused(2.0, 0.0, stretch=1.0)
    for seconds in (5.0, 3.0, 1.0):
        flow.paused(seconds, 0.0, stretch=1.0, is_late=True)
    assert wait(flow) == pytest.approx(5.0)
    assert flow.epoch == 1
    flow.paused(None, 10.0, stretch=1.0)
    assert wait(flow, now=10.0) == pytest.approx(2.0)


def test_a_late_refusal_when_all_is_well_again_is_a_pause_of_its_own():
    flow = Flow()
    flow.paused(2.0, 0.0, stretch=1.0)
    flow.accepted(flow.taken(0, 3.0), others_wait=False)
    flow.paused(4.0, 3.0, stretch=1.0, is_late=True)
    assert wait(flow, now=3.0) == pytest.approx(4.0)
    assert not flow.unlimited


def test_no_pause_is_longer_than_the_longest():
    flow = Flow()
    flow.paused(86_400.0, 0.0, stretch=1.0)
    assert wait(flow) == LONGEST_PAUSE_SECONDS


def test_after_a_pause_one_goes_first_and_each_answer_lets_two_more_go():
    flow = Flow()
    flow.paused(1.0, 0.0, stretch=1.0)
    going, sent = [flow.taken(0, 1.0)], [1]
    assert wait(flow, now=1.0) == PATIENCE_SECONDS
    for _ in range(4):
        for slot in going:
            flow.accepted(slot, others_wait=True)
        going = []
        while wait(flow, now=1.0) == 0.0:
            going.append(flow.taken(0, 1.0))
        sent.append(len(going))
    assert sent == [1, 2, 4, 8, 16]


def test_all_is_well_when_nobody_waits_any_more():
    flow = Flow()
    flow.paused(1.0, 0.0, stretch=1.0)
    flow.accepted(flow.taken(0, 1.0), others_wait=False)
    assert flow.unlimited
    flow.paused(None, 1.0, stretch=1.0)
    assert wait(flow, now=1.0) == 1.0  # counted from the beginning again


def test_one_that_fails_for_another_reason_lets_the_next_one_try():
    flow = Flow()
    flow.paused(1.0, 0.0, stretch=1.0)
    flow.left(flow.taken(0, 1.0), None, 1.0)
    assert wait(flow, now=1.0) == 0.0


def test_an_answer_that_takes_its_time_holds_the_others_for_a_moment_only():
    flow = Flow()
    flow.paused(1.0, 0.0, stretch=1.0)
    flow.taken(0, 1.0)
    assert wait(flow, now=1.0 + PATIENCE_SECONDS) == 0.0


def test_what_was_sent_before_a_pause_says_nothing_about_the_time_after():
    flow = limited(concurrency=10)
    early = flow.taken(0, 0.0)
    flow.paused(1.0, 0.0, stretch=1.0)
    flow.accepted(early, others_wait=True)
    flow.taken(0, 1.0)
    assert wait(flow, now=1.0) == PATIENCE_SECONDS
    flow.left(early, None, 1.0)
    assert wait(flow, now=1.0) == PATIENCE_SECONDS
