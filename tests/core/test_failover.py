"""Failover: a model that fails is replaced at once, rests, and is tried again."""

import asyncio

import pytest

from perdure import Agent, AllModelsFailed, BadRequest, ConfigError, ProviderDown, QuotaSpent, RateLimited, user
from perdure.events import FailedOver, ReplyFinished, TextDelta
from perdure.models import ModelInfo, Request, failover, retried
from perdure.testing import FakeClock, ScriptedModel

ASKED = Request(messages=(user("Hello"),))


class Failing:
    """A model that raises its errors one after another, then the last one for good, and notes each request."""

    def __init__(self, name, *errors):
        self.info = ModelInfo(name=name)
        self.errors = list(errors)
        self.requests = []

    async def stream(self, request):
        self.requests.append(request)
        if self.errors:
            raise self.errors.pop(0) if len(self.errors) > 1 else self.errors[0]
        yield TextDelta(self.info.name)
        yield ReplyFinished()


async def listen(model, request=ASKED):
    return [event async for event in model.stream(request)]


async def said(model, request=ASKED):
    return "".join([event.text for event in await listen(model, request) if isinstance(event, TextDelta)])


@pytest.fixture
def clock():
    return FakeClock()


async def test_a_model_that_would_have_to_wait_is_replaced_at_once(clock):
    dead = Failing("dead", ProviderDown("503"))
    model = failover(retried(dead, clock=clock), Failing("well"), clock=clock)
    assert await said(model) == "well"
    assert clock.slept == []


async def test_a_model_that_failed_rests_and_later_requests_say_so(clock):
    dead = Failing("dead", ProviderDown("503"))
    model = failover(dead, Failing("well"), clock=clock)
    await listen(model)
    await clock.advance(4)
    assert (await listen(model))[0] == FailedOver(
        "dead", "well", "ProviderDown", "not asked for 6 s, since it failed before"
    )
    assert len(dead.requests) == 1


class Hanging:
    """A model that fails after a while, and notes each request."""

    def __init__(self, clock, seconds):
        self.info = ModelInfo(name="hanging")
        self.clock, self.seconds, self.requests = clock, seconds, []

    async def stream(self, request):
        self.requests.append(request)
        await self.clock.sleep(self.seconds)
        raise ProviderDown("no answer")
        yield


@pytest.mark.parametrize(("hangs", "rests"), [(0.1, 10), (2, 20), (30, 300), (300, 3000), (600, 3600)])
async def test_a_model_that_hangs_rests_ten_times_as_long_as_it_hung_up_to_an_hour(hangs, rests):
    clock = FakeClock(auto=True)
    dead = Hanging(clock, hangs)
    model = failover(dead, Failing("well"), clock=clock)
    assert await said(model) == "well"
    await clock.advance(rests - 0.01)
    assert await said(model) == "well"
    assert len(dead.requests) == 1
    await clock.advance(0.02)
    await said(model)
    assert len(dead.requests) == 2


async def test_the_last_model_which_is_waited_for_does_not_count_as_hanging():
    clock = FakeClock(auto=True)
    last = Hanging(clock, 60)
    model = failover(Failing("first", BadRequest("no")), last, clock=clock)
    for asked in (1, 2):
        with pytest.raises(AllModelsFailed):
            await listen(model)
        assert len(last.requests) == asked
        await clock.advance(10.01)


async def test_after_its_rest_a_model_is_tried_and_rests_twice_as_long_each_time_up_to_five_minutes(clock):
    dead = Failing("dead", ProviderDown("503"))
    model = failover(dead, Failing("well"), clock=clock)
    for rest in (10, 20, 40, 80, 160, 300, 300):
        asked = len(dead.requests)
        await listen(model)
        await clock.advance(rest - 1)
        await listen(model)
        assert len(dead.requests) == asked + 1
        await clock.advance(1)


async def test_a_model_that_answers_after_its_rest_is_asked_first_again(clock):
    first = Failing("first", ProviderDown("503"))
    model = failover(first, Failing("second"), clock=clock)
    await listen(model)
    first.errors.clear()
    await clock.advance(10)
    assert [await said(model), await said(model)] == ["first", "first"]


async def test_a_model_rests_as_long_as_its_provider_asks(clock):
    limited = Failing("limited", RateLimited("429", retry_after_seconds=20))
    model = failover(retried(limited, clock=clock), Failing("well"), clock=clock)
    await listen(model)
    await clock.advance(19)
    await listen(model)
    assert len(limited.requests) == 1
    await clock.advance(1)
    await listen(model)
    assert len(limited.requests) == 2


async def test_a_quota_that_is_used_up_for_hours_is_not_tried_every_few_minutes(clock):
    spent = Failing("spent", QuotaSpent("tomorrow", retry_after_seconds=7200))
    model = failover(spent, Failing("well"), clock=clock)
    for _ in range(5):
        await listen(model)
        await clock.advance(1000)
    assert len(spent.requests) == 1


async def test_a_model_that_the_provider_does_not_know_rests(clock):
    retired = BadRequest("there is no such model")
    retired.is_unknown_model = True
    gone = Failing("gone", retired)
    model = failover(gone, Failing("well"), clock=clock)
    for _ in range(3):
        await listen(model)
    assert len(gone.requests) == 1


async def test_an_error_about_one_request_lets_the_model_answer_the_next_one(clock):
    picky = Failing("picky", BadRequest("no images"))
    model = failover(picky, Failing("well"), clock=clock)
    await listen(model)
    await listen(model)
    assert len(picky.requests) == 2


async def test_an_error_of_a_models_own_code_makes_it_rest_too(clock):
    broken = Failing("broken", KeyError("reply"))
    model = failover(broken, Failing("well"), clock=clock)
    await listen(model)
    await listen(model)
    assert len(broken.requests) == 1


async def test_one_request_at_a_time_tries_a_model_again(clock):
    class Slow(Failing):
        async def stream(self, request):
            self.requests.append(request)
            if len(self.requests) == 1:
                raise ProviderDown("503")
            await clock.sleep(5)
            yield TextDelta("slow")
            yield ReplyFinished()

    slow = Slow("slow")
    model = failover(slow, Failing("well"), clock=clock)
    await listen(model)
    await clock.advance(10)
    trial = asyncio.ensure_future(said(model))
    await clock.wait_for_sleepers(1)
    other = await listen(model)
    assert other[0] == FailedOver("slow", "well", "ProviderDown", "not asked: another request is trying it again")
    await clock.advance(5)
    assert await trial == "slow"
    assert len(slow.requests) == 2


async def test_a_trial_that_is_cancelled_leaves_the_model_to_the_next_request(clock):
    class Slow(Failing):
        async def stream(self, request):
            self.requests.append(request)
            if len(self.requests) == 1:
                raise ProviderDown("503")
            if len(self.requests) == 2:
                await clock.sleep(5)
            yield TextDelta("slow")
            yield ReplyFinished()

    slow = Slow("slow")
    model = failover(slow, Failing("well"), clock=clock)
    await listen(model)
    await clock.advance(10)
    trial = asyncio.ensure_future(said(model))
    await clock.wait_for_sleepers(1)
    trial.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trial
    assert await said(model) == "slow"


async def test_failures_of_requests_that_were_sent_together_count_once(clock):
    class Slow(Failing):
        async def stream(self, request):
            self.requests.append(request)
            await clock.sleep(1)
            raise ProviderDown("503")
            yield

    slow = Slow("slow")
    model = failover(slow, Failing("well"), clock=clock)
    together = [asyncio.ensure_future(said(model)) for _ in range(5)]
    await clock.wait_for_sleepers(5)
    await clock.advance(1)
    assert await asyncio.gather(*together) == ["well"] * 5
    await clock.advance(10)
    trial = asyncio.ensure_future(said(model))
    await clock.wait_for_sleepers(1)
    assert len(slow.requests) == 6
    await clock.advance(1)
    await trial


async def test_only_the_last_model_is_waited_for(clock):
    waiting = FakeClock(auto=True)
    first, last = Failing("first", ProviderDown("1")), Failing("last", ProviderDown("2"), ProviderDown("3"))
    with pytest.raises(AllModelsFailed):
        await listen(failover(retried(first, clock=waiting), retried(last, clock=waiting), clock=clock))
    assert (len(first.requests), len(last.requests)) == (1, 4)


async def test_when_the_others_fail_a_resting_model_is_asked_after_all(clock):
    first, second = Failing("first", ProviderDown("503")), Failing("second")
    model = failover(first, second, clock=clock)
    await listen(model)
    first.errors.clear()
    second.errors.append(ProviderDown("503"))
    assert await said(model) == "first"


async def test_when_all_models_rest_all_are_asked_in_order(clock):
    first, second = Failing("first", ProviderDown("1")), Failing("second", ProviderDown("2"))
    model = failover(first, second, clock=clock)
    for turn in (1, 2):
        with pytest.raises(AllModelsFailed) as raised:
            await listen(model)
        assert [name for name, _ in raised.value.attempts] == ["first", "second"]
        assert (len(first.requests), len(second.requests)) == (turn, turn)


async def test_in_a_failover_of_failovers_only_the_very_last_model_is_waited_for(clock):
    inner = [Failing(name, ProviderDown(name)) for name in "ab"]
    last = Failing("c")
    model = failover(failover(*inner, clock=clock), last, clock=clock)
    assert await said(model) == "c"
    assert [each.requests[0].may_wait for each in (*inner, last)] == [False, False, True]


async def test_a_mistake_of_the_caller_lets_no_model_rest(clock):
    first = Failing("first", ConfigError("no such option"))
    model = failover(first, Failing("second"), clock=clock)
    for _ in range(2):
        with pytest.raises(ConfigError):
            await listen(model)
    assert len(first.requests) == 2


async def test_each_turn_of_a_run_says_which_model_was_not_asked(clock):
    first, seen = Failing("first", ProviderDown("503")), []
    second = ScriptedModel("One.", "Two.", name="second")
    session = Agent(failover(first, second, clock=clock), watchers=[lambda entry: seen.append(entry.event)]).session()
    await session.run("1")
    await session.run("2")
    told = [each for each in seen if isinstance(each, FailedOver)]
    assert [(each.failed, each.next) for each in told] == [("first", "second")] * 2
