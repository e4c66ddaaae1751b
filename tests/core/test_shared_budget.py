"""A budget that several runs share: what is spent and set aside stays below it, and near its end work is concluded."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import (
    Agent,
    Budget,
    ConfigError,
    Image,
    Limits,
    Message,
    OutOfBudget,
    ProviderDown,
    Settings,
    Usage,
    assistant,
    tool,
    user,
)
from perdure._core.model import budget as shared_budget
from perdure._core.model.budget import (
    DEFAULT_OUTPUT_TOKENS,
    MEDIA_TOKENS,
    MIN_OUTPUT_TOKENS,
    OVERHEAD_TOKENS,
    MaxInputTokenEstimate,
    estimate_max_input_tokens,
)
from perdure._core.model.transcript import MessagesSnapshot
from perdure.events import (
    MessageAdded,
    ModelEvent,
    ReplyFinished,
    RunEnded,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from perdure.models import ModelInfo, Price, Request, ToolSpec, budgeted, retried
from perdure.testing import Reply, ScriptedModel, call, replay
from tests.doubles import log_of, of

PRICE = Price(input_usd=1.0, output_usd=10.0)


@tool
async def look() -> str:
    """Look."""
    return "seen"


class Greedy:
    """A model that uses all it may: it reads everything at a token a byte, and writes as long as it is allowed to."""

    info = ModelInfo("greedy", price=PRICE)

    def __init__(self, *, calls: bool = False) -> None:
        self.requests: list[Request] = []
        self.calls = calls
        self.most_at_once = 0
        self.now = 0

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        self.now += 1
        self.most_at_once = max(self.most_at_once, self.now)
        try:
            await asyncio.sleep(0)
            yield TextDelta("Words.")
            usage = Usage(estimate_max_input_tokens(request), request.settings.max_output_tokens or 0)
            if self.calls and request.tools:
                yield ToolCallDelta(f"c{len(self.requests)}", "look", "{}")
            yield ReplyFinished(usage=usage)
        finally:
            self.now -= 1


async def heard(model, request: Request) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


@pytest.mark.parametrize("budget", [{"token_budget": 100_000}, {"max_cost_usd": 0.5}])
async def test_many_runs_at_once_never_spend_more_than_they_share(budget):
    ledger, model = Budget(**budget), Greedy(calls=True)
    agent = Agent(model, tools=[look], budget=ledger, settings=Settings(max_output_tokens=2000))
    outcomes = await asyncio.gather(*[agent.run("Work!", limits=Limits(max_turns=20)) for _ in range(12)])
    assert model.most_at_once > 1
    assert ledger.spent_tokens <= (ledger.token_budget or ledger.spent_tokens)
    assert ledger.spent_usd <= (ledger.max_cost_usd or ledger.spent_usd)
    assert (ledger.reserved_tokens, ledger.reserved_usd) == (0, 0)
    assert {each.status for each in outcomes} <= {"done", "limit"}
    assert "budget" in {each.reason for each in outcomes}


async def test_near_the_end_the_model_concludes_without_tools():
    model = Greedy(calls=True)
    agent = Agent(model, tools=[look], budget=Budget(token_budget=6000), settings=Settings(max_output_tokens=1500))
    outcome = await agent.run("Work!")
    assert (outcome.status, outcome.reason, outcome.text) == ("done", "budget", "Words.")
    *before, last = model.requests
    assert before
    assert all(request.tools for request in before)
    assert not last.tools
    assert "last turn that the budget allows" in last.messages[-1].text
    assert "budget" not in [each.origin for each in outcome.messages]  # a word about it, which is not kept


async def test_the_log_tells_that_the_model_was_told_to_conclude_and_a_replay_agrees():
    model = ScriptedModel(Reply("Enough."), "More.")
    agent = Agent(model, tools=[look], budget=Budget(token_budget=6000), settings=Settings(max_output_tokens=2900))
    session = agent.session("s")
    outcome = await session.run("Work!")
    assert (outcome.status, outcome.reason, len(model.requests[0].tools)) == ("done", "budget", 0)
    log = await log_of(session.store, "s")
    assert [event.message.metadata for event in of(log, MessageAdded)] == [{}, {"concluded_for": "budget"}]
    assert [event.reason for event in of(log, RunEnded)] == ["budget"]
    assert (await replay(agent, await session.store.read("s"))).divergence is None


async def test_the_last_answer_is_as_long_as_can_still_be_paid_for():
    ledger, model = Budget(max_cost_usd=0.01), Greedy()
    await heard(budgeted(model, ledger), Request(messages=[user("Hi")]))
    (request,) = model.requests
    assert request.settings.max_output_tokens is not None
    assert 64 <= request.settings.max_output_tokens < DEFAULT_OUTPUT_TOKENS
    assert ledger.spent_usd <= 0.01
    with pytest.raises(OutOfBudget, match=r"does not allow another request to 'greedy' .*larger Budget"):
        await heard(budgeted(model, ledger), Request(messages=[user("Hi")]))


async def test_the_last_answer_is_asked_for_as_long_as_the_shortest_one_can_be_paid_for():
    model, asked = Greedy(), Request(messages=[user("Hi")])
    await heard(budgeted(model, Budget(token_budget=2000)), asked)
    reading = estimate_max_input_tokens(model.requests.pop())
    with pytest.raises(OutOfBudget):
        await heard(budgeted(model, Budget(token_budget=reading + MIN_OUTPUT_TOKENS - 1)), asked)
    assert model.requests == []
    ledger = Budget(token_budget=reading + MIN_OUTPUT_TOKENS)
    await heard(budgeted(model, ledger), asked)
    assert [request.settings.max_output_tokens for request in model.requests] == [MIN_OUTPUT_TOKENS]
    assert ledger.spent_tokens == ledger.token_budget


async def test_a_run_that_the_budget_does_not_allow_ends_as_a_limit():
    outcome = await Agent(Greedy(), budget=Budget(token_budget=10)).run("Hi")
    assert (outcome.status, outcome.reason) == ("limit", "budget")


async def test_what_is_settled_is_what_was_used():
    ledger = Budget(token_budget=100_000, max_cost_usd=10)
    model = ScriptedModel(Reply("Hello.", usage=Usage(1000, 100)), price=PRICE)
    await Agent(model, budget=ledger).run("Hi")
    assert (ledger.spent_tokens, ledger.spent_usd) == (1100, PRICE.cost_usd(Usage(1000, 100)))
    assert repr(ledger) == "Budget(1100 of 100000 tokens, $0.0020 of $10)"


async def test_a_budget_may_be_given_for_one_run():
    ledger = Budget(token_budget=100_000)
    await Agent(ScriptedModel(Reply("Hello.", usage=Usage(10, 5)))).run("Hi", budget=ledger)
    assert ledger.spent_tokens == 15


async def test_an_answer_whose_use_nobody_tells_is_taken_for_what_was_set_aside():
    class Silent(Greedy):
        async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            self.requests.append(request)
            yield TextDelta("Words.")
            yield ReplyFinished()

    ledger, model = Budget(token_budget=50_000), Silent()
    await heard(budgeted(model, ledger), Request(messages=[user("Hi")]))
    assert ledger.spent_tokens > estimate_max_input_tokens(Request(messages=[user("Hi")])) + DEFAULT_OUTPUT_TOKENS


async def test_an_answer_that_broke_off_costs_what_was_told_of_it():
    class Breaking(Greedy):
        async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            yield UsageReported(Usage(40, 2))
            raise ProviderDown("away")

    ledger = Budget(token_budget=50_000)
    with pytest.raises(ProviderDown):
        await heard(budgeted(Breaking(), ledger), Request(messages=[user("Hi")]))
    assert (ledger.spent_tokens, ledger.reserved_tokens) == (42, 0)


async def test_a_request_that_nobody_answered_costs_nothing():
    class Down(Greedy):
        async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            raise ProviderDown("away")
            yield TextDelta("never")

    ledger = Budget(token_budget=50_000)
    with pytest.raises(ProviderDown):
        await heard(budgeted(Down(), ledger), Request(messages=[user("Hi")]))
    assert (ledger.spent_tokens, ledger.reserved_tokens) == (0, 0)


class Flaky:
    """A model that breaks off, after it was paid for, until it is asked for the third time."""

    info = ModelInfo("flaky")

    def __init__(self) -> None:
        self.asked = 0

    async def stream(self, _request: Request) -> AsyncIterator[ModelEvent]:
        self.asked += 1
        yield UsageReported(Usage(3000, 3000))
        if self.asked < 3:
            raise ProviderDown("down")
        yield TextDelta("Here.")
        yield ReplyFinished(usage=Usage(3000, 3000))


@pytest.mark.parametrize(("tokens", "status", "spent"), [(50_000, "done", 18_000), (12_000, "limit", 12_000)])
async def test_each_attempt_of_a_model_that_tries_again_is_paid_for_and_has_to_fit(tokens, status, spent):
    ledger, model = Budget(token_budget=tokens), Flaky()
    outcome = await Agent(retried(model, base_seconds=0.001), budget=ledger).run("Work!")
    assert (outcome.status, ledger.spent_tokens, ledger.reserved_tokens) == (status, spent, 0)
    assert model.asked * 6000 == spent


def test_settling_twice_changes_nothing():
    ledger = Budget(token_budget=100)
    reservation = ledger.reserve(50, 0.0)
    assert reservation is not None
    ledger.settle(reservation, 30, 0.0)
    ledger.settle(reservation, 30, 0.0)
    assert (ledger.spent_tokens, ledger.remaining()[0]) == (30, 70)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60), st.floats(0, 6)), max_size=60))
def test_spent_and_set_aside_never_exceed_the_ceiling(steps):
    ledger = Budget(token_budget=100, max_cost_usd=10.0)
    open_ones = []
    for reserves, tokens, money in steps:
        if reserves:
            reservation = ledger.reserve(tokens, money)
            open_ones += [reservation] if reservation else []
        elif open_ones:
            reservation = open_ones.pop()
            ledger.settle(reservation, min(tokens, reservation.tokens), min(money, reservation.cost_usd))
        assert ledger.spent_tokens + ledger.reserved_tokens <= 100
        assert ledger.spent_usd + ledger.reserved_usd <= 10.0 + 1e-9


def test_what_was_counted_before_is_not_counted_again():
    said = assistant("x" * 5000, usage=Usage(2000, 1000))
    request = Request(messages=[user("y" * 9000), said, user("zz")], instructions="i" * 4000)
    assert 3000 < estimate_max_input_tokens(request) < 3200


def test_no_token_is_shorter_than_a_byte():
    request = Request(messages=[user("é" * 100)], tools=[ToolSpec("look", "Look." * 20, {})], instructions="i" * 50)
    assert estimate_max_input_tokens(request) >= 200 + 100 + 50


def test_an_attachment_is_taken_for_a_number_of_tokens_and_not_for_its_bytes():
    small, large = (Request(messages=[user([Image(data=b"x" * size, media_type="image/png")])]) for size in (10, 10**6))
    assert estimate_max_input_tokens(small) == estimate_max_input_tokens(large) > 5000


def test_an_estimate_is_not_relied_on():
    guessed = assistant("x", usage=Usage(1, 1, precision="estimated"))
    assert estimate_max_input_tokens(Request(messages=[user("y" * 900), guessed])) > 900


async def test_a_budget_in_money_needs_a_price_before_anything_is_asked():
    agent = Agent(ScriptedModel("Hello."), budget=Budget(max_cost_usd=1))
    with pytest.raises(ConfigError, match="price is known"):
        await agent.run("Hi")


@pytest.mark.parametrize(
    "given", [{}, {"token_budget": -1}, {"token_budget": 1.5}, {"max_cost_usd": -0.1}, {"max_cost_usd": True}]
)
def test_a_budget_without_a_ceiling_or_below_nothing_is_refused(given):
    with pytest.raises(ConfigError, match="Budget"):
        Budget(**given)


async def test_what_is_no_ledger_is_refused_where_it_is_given():
    with pytest.raises(ConfigError, match="Budget"):
        Agent(ScriptedModel(), budget=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="budget=5"):
        await Agent(ScriptedModel()).run("Hi", budget=5)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="budgeted"):
        budgeted(ScriptedModel(), 5)  # type: ignore[arg-type]


def test_a_ledger_of_tokens_alone_shows_them_alone():
    assert repr(Budget(token_budget=5)) == "Budget(0 of 5 tokens)"


async def test_a_model_that_calls_in_its_last_turn_is_not_asked_again():
    model = ScriptedModel(Reply(calls=[call("look")], usage=Usage(400, 4096)), "Never said.")
    outcome = await Agent(model, tools=[look], budget=Budget(token_budget=5000)).run("Work!")
    assert (outcome.status, outcome.reason, len(model.requests)) == ("limit", "budget", 1)


def test_what_a_run_used_before_the_budget_knew_it_counts_once():
    budget = Budget(token_budget=100, max_cost_usd=1.0)
    budget.count_past("r1", 40, 0.25)
    budget.count_past("r1", 60, 0.5)
    budget.count_past("r2", 1, 0.0)
    assert (budget.spent_tokens, budget.spent_usd) == (41, 0.25)


@pytest.mark.parametrize(
    ("tokens", "cost_usd", "is_last"),
    [(50, 0.0, False), (51, 0.0, True), (10, 1.0, False), (10, 1.1, True), (100, 2.0, True)],
)
def test_a_request_that_leaves_less_than_it_takes_is_the_last(tokens, cost_usd, is_last):
    budget = Budget(token_budget=100, max_cost_usd=2.0)
    made = budget.reserve(tokens, cost_usd)
    assert made is not None
    assert (made.tokens, made.cost_usd, made.is_last) == (tokens, cost_usd, is_last)
    assert budget.remaining() == (100 - tokens, 2.0 - cost_usd)


@pytest.mark.parametrize(("tokens", "cost_usd"), [(101, 0.0), (1, 2.1)])
def test_what_is_not_left_cannot_be_reserved(tokens, cost_usd):
    budget = Budget(token_budget=100, max_cost_usd=2.0)
    assert budget.reserve(tokens, cost_usd) is None
    assert budget.remaining() == (100, 2.0)


async def test_the_most_that_a_request_can_cost_is_set_aside_while_it_is_answered():
    dear = Price(input_usd=1.0, output_usd=10.0, cache_read_usd=0.1, cache_write_usd=1.25)
    ledger, seen = Budget(token_budget=100_000, max_cost_usd=10), []

    class Looking(Greedy):
        info = ModelInfo("looking", price=dear)

        async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            seen.append((ledger.reserved_tokens, ledger.reserved_usd))
            yield ReplyFinished(usage=Usage(10, 5))

    await heard(budgeted(Looking(), ledger), Request(messages=[user("Hi")], settings=Settings(max_output_tokens=500)))
    ((tokens, cost_usd),) = seen
    assert cost_usd == ((tokens - 500) * 1.25 + 500 * 10.0) / 1_000_000
    assert (ledger.reserved_tokens, ledger.reserved_usd, ledger.spent_tokens) == (0, 0.0, 15)


async def test_the_last_answer_of_a_model_whose_answers_are_free_is_limited_by_tokens():
    class Free(Greedy):
        info = ModelInfo("free", price=Price(input_usd=1.0, output_usd=0.0))

    model = Free()
    await heard(budgeted(model, Budget(token_budget=2_000, max_cost_usd=1)), Request(messages=[user("Hi")]))
    (request,) = model.requests
    assert request.settings.max_output_tokens == 2_000 - estimate_max_input_tokens(request)


def test_input_is_estimated_by_what_was_counted_and_by_the_bytes_since_then():
    said = assistant("x" * 500, usage=Usage(2_000, 1_000))
    assert estimate_max_input_tokens(Request(messages=[user("y" * 900), said])) == 3_000 + OVERHEAD_TOKENS
    one = estimate_max_input_tokens(Request(messages=[said, user("z")]))
    assert estimate_max_input_tokens(Request(messages=[said, user("zz")])) == one + 1
    assert estimate_max_input_tokens(Request(messages=[said, user("z"), user("z")])) - one == one - 3_016
    empty = estimate_max_input_tokens(Request(messages=[]))
    assert estimate_max_input_tokens(Request(messages=[user("z")])) - empty == one - 3_016
    image = Image(data=b"x", media_type="image/png")
    media = [estimate_max_input_tokens(Request(messages=[user([image] * count)])) for count in (1, 2)]
    assert media[1] - media[0] == MEDIA_TOKENS


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.booleans(), st.integers(0, 30)), max_size=8))
def test_an_estimate_that_goes_on_from_the_last_request_is_that_of_the_whole(steps):
    gauge, messages = MaxInputTokenEstimate(), [user("Begin.")]
    for count, is_counted, is_shorter, size in steps:
        if is_shorter:  # a summary has taken the place of the beginning
            messages = messages[-1:]
        usage = Usage(700, 50) if is_counted else None
        messages += [assistant("x" * size, usage=usage), *[user("y" * size)] * (count - 1)]
        sent = MessagesSnapshot(messages)
        for request in (Request(messages=sent), Request(messages=sent.with_passing(user("It is noon.")))):
            assert gauge.estimate(request) == estimate_max_input_tokens(request)


class Silent:
    """A model that calls a tool as often as it is told to, and reports no tokens."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    async def stream(self, _: Request) -> AsyncIterator[ModelEvent]:
        self.calls -= 1
        if self.calls >= 0:
            yield ToolCallDelta(f"call_{self.calls}", "look_at", f'{{"place":{self.calls}}}')
        yield ReplyFinished()


@tool
async def look_at(place: int) -> str:
    """Look at a place."""
    return str(place)


async def test_each_message_is_counted_once_also_if_the_model_reports_no_tokens(monkeypatch):
    counted: list[int] = []
    count = shared_budget._count_bytes

    def note(messages: Sequence[Message]) -> int:
        counted.append(len(messages))
        return count(messages)

    monkeypatch.setattr(shared_budget, "_count_bytes", note)
    calls = 40
    agent = Agent(Silent(calls), tools=[look_at], budget=Budget(token_budget=10**9), limits=Limits(max_turns=None))
    outcome = await agent.run("Look.")
    assert outcome.turns >= calls
    assert sum(counted) <= 4 * calls + 10, "the messages and, for each request, the note that may be its last"
