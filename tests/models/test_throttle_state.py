"""The sums behind a throttle."""

import pytest

from perdure._models.endpoint.throttle_state import (
    ASSUME_ACCEPTED_SECONDS,
    MAX_PAUSE_SECONDS,
    ThrottleState,
    TokenBucket,
    WaitReason,
)


def limited(**limits: float) -> ThrottleState:
    flow = ThrottleState()
    flow.concurrency = int(limits["concurrency"]) if "concurrency" in limits else None
    flow.requests = TokenBucket(limits["requests"], 0.0) if "requests" in limits else None
    flow.tokens = TokenBucket(limits["tokens"], 0.0) if "tokens" in limits else None
    return flow


def wait(flow: ThrottleState, tokens: int = 0, now: float = 0.0) -> float | None:
    """For how long: 0 not at all, `None` until something happens."""
    obstacle = flow.find_wait_reason(tokens, now)
    return 0.0 if obstacle is None else obstacle.seconds


def test_a_bucket_lets_a_minutes_worth_through_at_once_and_then_fills_evenly():
    bucket = TokenBucket(60, 0.0)
    bucket.take(60, 0.0)
    assert bucket.seconds_until_available(1, 0.0) == pytest.approx(1.0)
    assert bucket.seconds_until_available(5, 1.0) == pytest.approx(4.0)
    assert bucket.seconds_until_available(1, 1.0) == 0.0


def test_a_bucket_never_holds_more_than_a_minute_allows():
    bucket = TokenBucket(60, 0.0)
    bucket.take(60, 10_000.0)
    assert bucket.seconds_until_available(1, 10_000.0) == pytest.approx(1.0)


def test_what_is_more_than_a_minute_allows_needs_a_full_bucket_and_leaves_a_debt():
    bucket = TokenBucket(100, 0.0)
    assert bucket.seconds_until_available(250, 0.0) == 0.0
    bucket.take(250, 0.0)
    assert bucket.seconds_until_available(250, 0.0) == pytest.approx(150.0)


def test_without_limits_there_is_no_obstacle():
    flow = ThrottleState()
    assert flow.is_unlimited
    for _ in range(1000):
        assert wait(flow, 10**9) == 0.0
        flow.take_slot(10**9, 0.0)


def test_requests_under_way_are_counted():
    flow = limited(concurrency=2)
    first, _ = flow.take_slot(0, 0.0), flow.take_slot(0, 0.0)
    assert wait(flow) is None
    flow.release_slot(first, None, 0.0)
    assert wait(flow) == 0.0


def test_the_tokens_that_were_expected_are_corrected_by_those_that_were_used():
    flow = limited(tokens=100)
    slot = flow.take_slot(10, 0.0)
    slot.accepted = True
    flow.release_slot(slot, 90, 0.0)
    assert wait(flow, 10) == 0.0
    assert wait(flow, 11) == pytest.approx(0.6)


def test_tokens_of_an_answer_that_never_began_are_given_back():
    flow = limited(tokens=100)
    flow.release_slot(flow.take_slot(90, 0.0), None, 0.0)
    assert wait(flow, 100) == 0.0


def test_tokens_of_an_answer_that_did_not_tell_stay_as_expected():
    flow = limited(tokens=100)
    slot = flow.take_slot(90, 0.0)
    slot.accepted = True
    flow.release_slot(slot, None, 0.0)
    assert wait(flow, 11) == pytest.approx(0.6)


def test_a_pause_is_as_long_as_the_provider_says():
    flow = ThrottleState()
    flow.start_pause(7.0, 0.0, jitter_factor=1.0)
    assert wait(flow) == 7.0
    assert not flow.is_unlimited
    assert wait(flow, now=7.0) == 0.0


def test_a_shorter_pause_does_not_end_a_longer_one():
    flow = ThrottleState()
    flow.start_pause(20.0, 0.0, jitter_factor=1.0)
    flow.start_pause(1.0, 0.0, jitter_factor=1.0)
    assert wait(flow) == 20.0


def test_pauses_of_unknown_length_double_up_to_a_limit():
    flow = ThrottleState()
    now, waits = 0.0, []
    for _ in range(9):
        flow.start_pause(None, now, jitter_factor=1.0)
        waits.append(wait(flow, now=now))
        now += MAX_PAUSE_SECONDS
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_refusals_of_what_was_sent_together_are_one_pause_as_long_as_the_longest_of_them():
    flow = ThrottleState()
    flow.start_pause(2.0, 0.0, jitter_factor=1.0)
    for seconds in (5.0, 3.0, 1.0):
        flow.start_pause(seconds, 0.0, jitter_factor=1.0, is_late=True)
    assert wait(flow) == pytest.approx(5.0)
    assert flow.epoch == 1
    flow.start_pause(None, 10.0, jitter_factor=1.0)
    assert wait(flow, now=10.0) == pytest.approx(2.0)


def test_a_late_refusal_when_all_is_well_again_is_a_pause_of_its_own():
    flow = ThrottleState()
    flow.start_pause(2.0, 0.0, jitter_factor=1.0)
    flow.record_accepted(flow.take_slot(0, 3.0), has_queue=False)
    flow.start_pause(4.0, 3.0, jitter_factor=1.0, is_late=True)
    assert wait(flow, now=3.0) == pytest.approx(4.0)
    assert not flow.is_unlimited


def test_no_pause_is_longer_than_the_longest():
    flow = ThrottleState()
    flow.start_pause(86_400.0, 0.0, jitter_factor=1.0)
    assert wait(flow) == MAX_PAUSE_SECONDS


def test_after_a_pause_one_goes_first_and_each_answer_lets_two_more_go():
    flow = ThrottleState()
    flow.start_pause(1.0, 0.0, jitter_factor=1.0)
    going, sent = [flow.take_slot(0, 1.0)], [1]
    assert wait(flow, now=1.0) == ASSUME_ACCEPTED_SECONDS
    for _ in range(4):
        for slot in going:
            flow.record_accepted(slot, has_queue=True)
        going = []
        while wait(flow, now=1.0) == 0.0:
            going.append(flow.take_slot(0, 1.0))
        sent.append(len(going))
    assert sent == [1, 2, 4, 8, 16]


def test_all_is_well_when_nobody_waits_any_more():
    flow = ThrottleState()
    flow.start_pause(1.0, 0.0, jitter_factor=1.0)
    flow.record_accepted(flow.take_slot(0, 1.0), has_queue=False)
    assert flow.is_unlimited
    flow.start_pause(None, 1.0, jitter_factor=1.0)
    assert wait(flow, now=1.0) == 1.0  # counted from the beginning again


def test_one_that_fails_for_another_reason_lets_the_next_one_try():
    flow = ThrottleState()
    flow.start_pause(1.0, 0.0, jitter_factor=1.0)
    flow.release_slot(flow.take_slot(0, 1.0), None, 1.0)
    assert wait(flow, now=1.0) == 0.0


def test_an_answer_that_takes_its_time_holds_the_others_for_a_moment_only():
    flow = ThrottleState()
    flow.start_pause(1.0, 0.0, jitter_factor=1.0)
    flow.take_slot(0, 1.0)
    assert wait(flow, now=1.0 + ASSUME_ACCEPTED_SECONDS) == 0.0


def test_what_was_sent_before_a_pause_says_nothing_about_the_time_after():
    flow = limited(concurrency=10)
    early = flow.take_slot(0, 0.0)
    flow.start_pause(1.0, 0.0, jitter_factor=1.0)
    flow.record_accepted(early, has_queue=True)
    flow.take_slot(0, 1.0)
    assert wait(flow, now=1.0) == ASSUME_ACCEPTED_SECONDS
    flow.release_slot(early, None, 1.0)
    assert wait(flow, now=1.0) == ASSUME_ACCEPTED_SECONDS


def test_the_reason_to_wait_is_told():
    flow = limited(concurrency=1, requests=2, tokens=100)
    assert flow.find_wait_reason(50, 0.0) is None
    slot = flow.take_slot(60, 0.0)
    assert flow.find_wait_reason(0, 0.0) == WaitReason(
        None, "1 requests with the same key are in flight, which is the limit"
    )
    flow.release_slot(slot, 60, 0.0)
    assert flow.find_wait_reason(50, 0.0) == WaitReason(6.0, "the limit of 100 tokens a minute is reached")
    flow.release_slot(flow.take_slot(0, 0.0), 0, 0.0)
    assert flow.find_wait_reason(0, 0.0) == WaitReason(30.0, "the limit of 2 requests a minute is reached")
    flow.start_pause(5.0, 0.0, jitter_factor=1.5)
    assert flow.find_wait_reason(0, 0.0) == WaitReason(7.5, "the provider asked for a pause")
    after = ThrottleState()
    after.start_pause(5.0, 0.0, jitter_factor=1.0)
    after.take_slot(0, 6.0)
    assert after.find_wait_reason(0, 7.0) == WaitReason(2.0, "after a pause, another request is sent first")


def test_a_thousand_pauses_in_a_row_are_still_of_the_longest():
    flow = ThrottleState()
    for number in range(1100):
        flow.start_pause(None, number * 100.0, jitter_factor=1.0)
    assert wait(flow, now=109_900.0) == MAX_PAUSE_SECONDS


def test_one_that_counts_as_accepted_lets_one_more_go_at_a_time():
    flow = ThrottleState()
    flow.start_pause(1.0, 0.0, jitter_factor=1.0)
    flow.take_slot(0, 1.0)
    assert wait(flow, now=4.0) == 0.0
    flow.take_slot(0, 4.0)
    assert wait(flow, now=4.0) == ASSUME_ACCEPTED_SECONDS
    assert wait(flow, now=6.5) == pytest.approx(0.5)
    assert wait(flow, now=7.0) == 0.0
    for _ in range(2):
        flow.take_slot(0, 7.0)
    assert wait(flow, now=7.0) == ASSUME_ACCEPTED_SECONDS


def test_a_slot_knows_its_tokens_and_whether_it_has_to_be_given_back():
    flow = limited(concurrency=1)
    slot = flow.take_slot(7, 0.0)
    assert (slot.tokens, slot.counted, slot.accepted, slot.epoch) == (7, True, False, 0)
    flow.release_slot(slot, None, 0.0)
    assert not slot.counted


def test_an_answer_to_a_slot_that_was_given_back_changes_nothing():
    flow = ThrottleState()
    flow.start_pause(1.0, 0.0, jitter_factor=1.0)
    slot = flow.take_slot(0, 1.0)
    flow.release_slot(slot, None, 1.0)
    flow.record_accepted(slot, has_queue=False)
    assert flow.is_recovering
