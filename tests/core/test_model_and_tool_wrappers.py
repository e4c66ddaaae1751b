"""Wrappers: a model from a model, a tool from a tool."""

import asyncio
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure import (
    Agent,
    AllModelsFailed,
    AuthFailed,
    Budget,
    ConfigError,
    ContextOverflow,
    EffectUnknown,
    Image,
    ModelError,
    Permissions,
    ProviderDown,
    RateLimited,
    ReplyCutOff,
    Settings,
    Status,
    StopReason,
    Text,
    ToolCall,
    ToolError,
    ToolOutput,
    ToolResult,
    Usage,
    UsageError,
    allow,
    assistant,
    tool,
    user,
)
from perdure._core.tools.wrappers import labelled, shorten_text
from perdure.events import (
    ErrorRaised,
    FailedOver,
    ReplyDiscarded,
    ReplyFinished,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReported,
)
from perdure.models import ModelInfo, Price, Request, compacted, failover, gated, model_info, observed, retried
from perdure.testing import FakeClock, Recorder, ScriptedModel, call, check_model, pause
from perdure.tools import Skip, after, around, before, timed, tool_from_schema, truncated

ASKED = Request(messages=(user("Hello"),))


async def listen(model, request=ASKED):
    return [event async for event in model.stream(request)]


async def said(model, request=ASKED):
    """The words of an answer."""
    return "".join([event.text async for event in model.stream(request) if isinstance(event, TextDelta)])


class Closing:
    """A model that never ends its answer, and tells when it is let go."""

    def __init__(self):
        self.closed = False

    async def stream(self, request):
        try:
            while True:
                yield TextDelta("more")
        finally:
            self.closed = True


def at_once(model, **options):
    """Retried without chance, on a clock that does not wait."""
    clock = FakeClock(auto=True)
    return retried(model, clock=clock, jitter=lambda: 1.0, **options), clock


# -- every wrapper of models -------------------------------------------------------------------------------------------


def nothing(*_):
    """A hook that leaves everything as it is."""


async def same(request):
    """A gate that lets every request through as it is."""


WRAPPERS = {
    "observed": lambda model: observed(model, nothing),
    "gated": lambda model: gated(model, same),
    "retried": retried,
    "failover": lambda model: failover(model, ScriptedModel("never asked")),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
async def test_a_wrapped_model_is_a_model(wrap):
    await check_model(lambda: wrap(ScriptedModel("Hello there", repeat_last=True, chunk=3)))


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
async def test_a_wrapped_model_says_the_same_and_tells_about_the_model_inside(wrap):
    model = wrap(ScriptedModel("Hello there", name="m-1", chunk=3))
    assert await listen(model) == await listen(ScriptedModel("Hello there", name="m-1", chunk=3))
    assert model_info(model).name == "m-1"
    assert repr(model) == "WrappedModel('m-1')"


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
async def test_a_wrapper_closes_what_it_wraps(wrap):
    inner = Closing()
    stream = wrap(inner).stream(ASKED)
    assert await anext(stream) == TextDelta("more")
    await stream.aclose()
    assert inner.closed


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
async def test_a_wrapper_closes_what_it_wraps_when_it_is_cancelled(wrap):
    held = pause()
    model = wrap(ScriptedModel([TextDelta("a"), held, ReplyFinished()]))
    task = asyncio.ensure_future(listen(model))
    async with asyncio.timeout(30):
        await held.wait_reached()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("error", [ConfigError("no such tool"), UsageError("not now")])
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
async def test_a_mistake_of_the_caller_passes_through(wrap, error):
    inner = ScriptedModel(error, "never asked")
    with pytest.raises(type(error)):
        await listen(wrap(inner))
    assert len(inner.requests) == 1


async def test_wrappers_stack():
    seen: list[Any] = []
    inner, clock = at_once(ScriptedModel(RateLimited("slow down"), "Hello", name="b"))
    model = observed(failover(ScriptedModel(AuthFailed("no key")), inner), lambda _, event: seen.append(type(event)))
    assert await said(model) == "Hello"
    assert seen == [FailedOver, RetryScheduled, TextDelta, ReplyFinished]
    assert clock.slept == [2.0]


@pytest.mark.parametrize(
    "model", ["openai:gpt", None, ScriptedModel, object()], ids=["name", "none", "class", "object"]
)
@pytest.mark.parametrize(
    ("name", "wrap"),
    [
        ("observed", lambda model: observed(model, print)),
        ("gated", lambda model: gated(model, same)),
        ("retried", retried),
        ("failover", lambda model: failover(ScriptedModel("a"), model)),
    ],
)
def test_only_models_can_be_wrapped_as_models(name, wrap, model):
    with pytest.raises(ConfigError, match=rf"{name}\(.*give a model object; perdure.*open_model"):
        wrap(model)


# -- observed ----------------------------------------------------------------------------------------------------------


async def test_an_observer_sees_each_event_with_its_request():
    seen: list[Any] = []
    events = await listen(observed(ScriptedModel("Hi"), lambda request, event: seen.append((request, event))))
    assert seen == [(ASKED, event) for event in events]


async def test_an_observer_that_raises_ends_the_answer_and_lets_the_model_go():
    inner = Closing()

    def watch(request, event):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await listen(observed(inner, watch))
    assert inner.closed


@pytest.mark.parametrize("error", [AuthFailed("no key"), ConnectionError("reset"), ZeroDivisionError("bug")])
async def test_an_observer_sees_a_request_that_failed_with_its_error(error):
    seen: list[Any] = []
    model = observed(ScriptedModel([TextDelta("Hel"), error]), lambda request, event: seen.append((request, event)))
    with pytest.raises(type(error)) as raised:
        await listen(model)
    assert raised.value is error
    assert seen == [(ASKED, TextDelta("Hel")), (ASKED, ErrorRaised(type(error).__name__, str(error), "model"))]


async def test_an_observer_sees_a_model_that_raises_before_it_streams():
    class Refusing:
        def stream(self, request):
            raise ProviderDown("closed on Mondays")

    seen: list[Any] = []
    with pytest.raises(ProviderDown):
        await listen(observed(Refusing(), lambda _, event: seen.append(event)))
    assert seen == [ErrorRaised("ProviderDown", "closed on Mondays", "model")]


async def test_an_observer_inside_retries_sees_every_attempt():
    seen: list[Any] = []
    inner = ScriptedModel(RateLimited("slow down"), [TextDelta("Hel")], "Hello")
    model, _ = at_once(observed(inner, lambda _, event: seen.append(event)))
    assert await said(model) == "HelHello"
    cut_off = ErrorRaised("ReplyCutOff", "the reply of scripted broke off before it was finished", "model")
    assert seen[:3] == [ErrorRaised("RateLimited", "slow down", "model"), TextDelta("Hel"), cut_off]
    assert [type(event) for event in seen[3:]] == [TextDelta, ReplyFinished]


async def test_an_observer_around_retries_sees_every_attempt_and_the_last_error():
    seen: list[Any] = []
    model, _ = at_once(ScriptedModel(RateLimited("slow down"), AuthFailed("no key")))
    with pytest.raises(AuthFailed):
        await listen(observed(model, lambda _, event: seen.append(event)))
    assert [(type(event), event.error) for event in seen] == [
        (RetryScheduled, "RateLimited"),
        (ErrorRaised, "AuthFailed"),
    ]


# -- gated -------------------------------------------------------------------------------------------------------------


async def test_a_gate_may_hold_a_request_back():
    opened, model = asyncio.Event(), ScriptedModel("Hi")

    async def gate(request):
        await opened.wait()

    task = asyncio.ensure_future(said(gated(model, gate)))
    await asyncio.sleep(0)
    assert model.requests == []
    opened.set()
    assert await task == "Hi"
    assert model.requests == [ASKED]


async def test_a_gate_may_change_a_request():
    model, other = ScriptedModel("Hi"), Request(messages=(user("Other"),))

    async def gate(request):
        return other

    await listen(gated(model, gate))
    assert model.requests == [other]


async def test_a_gate_may_be_a_plain_function():
    seen: list[Request] = []
    model, other = ScriptedModel("Hi", "Hi"), Request(messages=(user("Other"),))
    assert await said(gated(model, seen.append)) == "Hi"
    assert seen == [ASKED]
    await listen(gated(model, lambda _: other))
    assert model.requests == [ASKED, other]


async def test_what_shortens_a_request_may_be_a_plain_function():
    model = compacted(
        ScriptedModel(ContextOverflow("too long"), "Hi"), lambda request, _: Request(messages=request.messages[-1:])
    )
    assert await said(model) == "Hi"


async def test_a_gate_may_refuse_a_request():
    model = ScriptedModel("Hi")

    async def gate(request):
        message = "the budget is spent"
        raise ModelError(message)

    with pytest.raises(ModelError, match="the budget is spent"):
        await listen(gated(model, gate))
    assert model.requests == []


# -- retried -----------------------------------------------------------------------------------------------------------


async def test_an_error_that_may_pass_is_waited_out_and_the_waiting_is_shown():
    model, clock = at_once(ScriptedModel(RateLimited("slow down"), ProviderDown("gone"), "Hello"))
    assert await listen(model) == [
        RetryScheduled(1, 4, 2.0, "RateLimited", "slow down"),
        RetryScheduled(2, 4, 4.0, "ProviderDown", "gone"),
        *await listen(ScriptedModel("Hello")),
    ]
    assert clock.slept == [2.0, 4.0]


async def test_the_waiting_is_told_before_it_begins():
    clock = FakeClock()
    model = retried(ScriptedModel(RateLimited("slow down"), "Hello"), jitter=lambda: 1.0, clock=clock)
    stream = model.stream(ASKED)
    assert isinstance(await anext(stream), RetryScheduled)
    following = asyncio.ensure_future(anext(stream))
    await clock.wait_for_sleepers()
    await clock.advance(1.9)
    assert not following.done()
    await clock.advance(0.1)
    assert await following == TextDelta("Hello")


async def test_the_waits_double_up_to_the_maximum():
    model, clock = at_once(ScriptedModel(ProviderDown("gone"), repeat_last=True), attempts=7)
    with pytest.raises(ProviderDown):
        await listen(model)
    assert clock.slept == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


@given(
    st.integers(1, 8),
    st.floats(0, 10),
    st.floats(0, 100),
    st.floats(0, 1, exclude_max=True),
    st.none() | st.floats(0, 1000),
)
def test_every_wait_is_between_half_and_all_of_its_length_unless_the_provider_asks_for_more(
    attempts, base, more, chance, asked
):
    most = base + more
    inner = ScriptedModel(RateLimited("slow down", retry_after_seconds=asked), repeat_last=True)
    clock = FakeClock(auto=True)
    model = retried(inner, attempts=attempts, base_seconds=base, max_seconds=most, jitter=lambda: chance, clock=clock)
    with pytest.raises(RateLimited):
        asyncio.run(listen(model))
    assert len(inner.requests) == attempts
    assert len(clock.slept) == attempts - 1
    for place, wait in enumerate(clock.slept):
        longest = min(base * 2**place, most)
        assert min(max(longest / 2, asked or 0.0), most) <= wait <= min(max(longest, asked or 0.0), most)


@pytest.mark.parametrize(
    ("asked", "waited"), [(7.0, 7.0), (0.5, 2.0), (120.0, 30.0)], ids=["longer", "shorter", "most"]
)
async def test_a_provider_that_asks_for_a_longer_wait_gets_it_up_to_the_maximum(asked, waited):
    model, clock = at_once(ScriptedModel(RateLimited("slow down", retry_after_seconds=asked), "Hello"))
    assert await said(model) == "Hello"
    assert clock.slept == [waited]


async def test_chance_shortens_the_wait():
    clock = FakeClock(auto=True)
    model = retried(ScriptedModel(ProviderDown("gone"), "Hello"), jitter=lambda: 0.0, clock=clock)
    await listen(model)
    assert clock.slept == [1.0]


async def test_an_error_that_will_not_pass_is_raised_at_once():
    inner = ScriptedModel(AuthFailed("no key"))
    model, clock = at_once(inner)
    with pytest.raises(AuthFailed):
        await listen(model)
    assert (len(inner.requests), clock.slept) == (1, [])


async def test_the_last_error_is_raised_when_all_attempts_have_failed():
    model, clock = at_once(ScriptedModel(ProviderDown("one"), ProviderDown("two"), "never asked"), attempts=2)
    with pytest.raises(ProviderDown, match="two"):
        await listen(model)
    assert clock.slept == [2.0]


@pytest.mark.parametrize(
    "empty",
    [
        [ReplyFinished()],
        [TextDelta(" \n"), ReplyFinished()],
        [UsageReported(Usage(1, 0)), ReplyFinished()],
        [ReplyFinished(message=assistant(" "))],
    ],
)
async def test_an_empty_answer_is_asked_for_again(empty):
    model = ScriptedModel(empty, "Here I am.")
    events = await listen(retried(model, clock=FakeClock(auto=True)))
    assert [event.error for event in events if isinstance(event, RetryScheduled)] == ["EmptyReply"]
    assert events[-2].text == "Here I am."


@pytest.mark.parametrize("answer", [call("look"), [ReplyFinished(message=assistant("Yes."))], "Yes."])
async def test_an_answer_of_any_kind_is_not_asked_for_again(answer):
    events = await listen(retried(ScriptedModel(answer), clock=FakeClock(auto=True)))
    assert not [event for event in events if isinstance(event, RetryScheduled)]


@pytest.mark.parametrize("stop", [StopReason.LENGTH, StopReason.CONTENT_FILTER, StopReason.STOP_SEQUENCE])
@pytest.mark.parametrize("message", [None, assistant(" ")], ids=["deltas", "message"])
async def test_an_empty_answer_that_ended_for_a_stated_reason_is_not_asked_for_again(stop, message):
    finished = ReplyFinished(None if message else stop, Usage(9, 1), message=message and replace(message, stop=stop))
    model = ScriptedModel([ThinkingDelta("Hm"), finished], "never asked")
    events = await listen(retried(model, clock=FakeClock(auto=True)))
    assert [type(event) for event in events] == [ThinkingDelta, ReplyFinished]
    assert len(model.requests) == 1


async def test_an_empty_answer_to_a_request_with_stop_sequences_is_not_asked_for_again():
    model = ScriptedModel([ReplyFinished(StopReason.STOP)], "never asked")
    request = Request(messages=(user("Hello"),), settings=Settings(stop_sequences=("END",)))
    assert await listen(retried(model, clock=FakeClock(auto=True)), request) == [ReplyFinished(StopReason.STOP)]


async def test_the_tokens_of_an_empty_answer_are_told_before_it_is_asked_for_again():
    empty = [ReplyFinished(StopReason.STOP, Usage(9, 1))]
    events = await listen(at_once(ScriptedModel(empty, "Hello"))[0])
    assert events[0] == UsageReported(Usage(9, 1))
    assert type(events[1]) is RetryScheduled


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), TimeoutError("too late")])
async def test_a_broken_connection_of_a_model_of_ones_own_is_retried(error):
    model, clock = at_once(ScriptedModel(error, "Hello"))
    events = await listen(model)
    assert events[0] == RetryScheduled(1, 4, 2.0, type(error).__name__, str(error))
    assert events[-2].text == "Hello"
    assert clock.slept == [2.0]


async def test_a_bug_of_a_model_of_ones_own_is_raised_at_once():
    model, clock = at_once(ScriptedModel(ZeroDivisionError("bug"), "never asked"))
    with pytest.raises(ZeroDivisionError):
        await listen(model)
    assert clock.slept == []


async def test_one_attempt_is_no_retry():
    model, clock = at_once(ScriptedModel(ProviderDown("one")), attempts=1)
    with pytest.raises(ProviderDown):
        await listen(model)
    assert clock.slept == []


@pytest.mark.parametrize("events", [[], [TextDelta("Hel")]], ids=["nothing", "half"])
async def test_an_answer_that_breaks_off_is_asked_for_again(events):
    model, clock = at_once(ScriptedModel(events, "Hello"))
    told = await listen(model)
    assert RetryScheduled(1, 4, 2.0, "ReplyCutOff", "the reply of scripted broke off before it was finished") in told
    assert told[-2:] == await listen(ScriptedModel("Hello"))
    assert clock.slept == [2.0]


async def test_what_was_shown_of_a_failed_attempt_is_told_as_discarded_and_not_kept():
    recorder = Recorder()
    model, _ = at_once(ScriptedModel([TextDelta("Hel"), ProviderDown("gone")], "Good day"))
    outcome = await Agent(model, watchers=[recorder]).run("Hello")
    assert outcome.text == "Good day"
    (discarded,) = recorder.of(ReplyDiscarded)
    assert discarded.partial is not None
    assert discarded.partial.text == "Hel"
    assert [message.text for message in outcome.messages] == ["Hello", "Good day"]


async def test_a_retry_may_be_cancelled_while_it_waits():
    clock = FakeClock()
    inner = ScriptedModel(ProviderDown("gone"), "never asked")
    task = asyncio.ensure_future(listen(retried(inner, clock=clock)))
    await clock.wait_for_sleepers()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(inner.requests) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": 1.5},
        {"base_seconds": -1.0},
        {"base_seconds": 5.0, "max_seconds": 4.0},
        {"base_seconds": math.nan},
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused(options):
    with pytest.raises(ConfigError, match=r"retried\(attempts=.*give at least one attempt"):
        retried(ScriptedModel("a"), **options)


# -- failover ----------------------------------------------------------------------------------------------------------


async def test_the_next_model_is_asked_when_one_fails_before_it_has_said_anything():
    first, second = ScriptedModel(AuthFailed("no key"), name="a"), ScriptedModel("Hello", name="b")
    assert await listen(failover(first, second)) == [
        FailedOver("a", "b", "AuthFailed", "no key"),
        *await listen(ScriptedModel("Hello", name="b")),
    ]
    assert (first.requests, second.requests) == ([replace(ASKED, may_wait=False)], [ASKED])


async def test_a_model_that_answers_is_the_only_one_asked():
    second = ScriptedModel("never asked")
    assert await said(failover(ScriptedModel("Hello"), second)) == "Hello"
    assert second.requests == []


async def test_every_request_begins_with_the_first_model_again():
    first = ScriptedModel(ProviderDown("gone"), "I am back", name="a")
    model = failover(first, ScriptedModel("In the meantime"))
    assert [await said(model), await said(model)] == ["In the meantime", "I am back"]


@pytest.mark.parametrize("error", [ConnectionError("reset"), TimeoutError("too late"), ZeroDivisionError("bug")])
async def test_any_error_of_a_model_asks_the_next_one(error):
    first, second = ScriptedModel(error, name="a"), ScriptedModel("Hello", name="b")
    assert await listen(failover(first, second)) == [
        FailedOver("a", "b", type(error).__name__, str(error)),
        *await listen(ScriptedModel("Hello", name="b")),
    ]


async def test_an_error_of_any_kind_after_the_first_words_is_raised():
    with pytest.raises(ConnectionError):
        await listen(
            failover(ScriptedModel([TextDelta("Hel"), ConnectionError("reset")]), ScriptedModel("never asked"))
        )


async def test_a_count_of_tokens_is_no_beginning():
    first = ScriptedModel([UsageReported(Usage(1, 0)), ProviderDown("gone")])
    assert await said(failover(first, ScriptedModel("Hello"))) == "Hello"


@pytest.mark.parametrize("event", [TextDelta("Hel"), ThinkingDelta("Hm")], ids=["text", "thinking"])
async def test_a_model_that_has_begun_is_never_replaced(event):
    second = ScriptedModel("never asked")
    stream = failover(ScriptedModel([event, ProviderDown("gone")]), second).stream(ASKED)
    assert await anext(stream) == event
    with pytest.raises(ProviderDown):
        await anext(stream)
    assert second.requests == []


async def test_a_model_that_breaks_off_half_way_is_not_replaced_either():
    with pytest.raises(ReplyCutOff):
        await listen(failover(ScriptedModel([TextDelta("Hel")]), ScriptedModel("never asked")))


async def test_a_stream_that_ends_without_a_word_is_a_failure():
    model = failover(ScriptedModel([], name="a"), ScriptedModel("Hello", name="b"))
    first, *_ = await listen(model)
    assert first == FailedOver("a", "b", "ReplyCutOff", "the reply of a broke off before it was finished")


def test_a_failover_costs_what_the_dearest_of_its_models_costs():
    cheap = Price(input_usd=1, output_usd=9, cache_write_usd=4)
    dear = Price(input_usd=5, output_usd=2, cache_read_usd=3)
    both = failover(ScriptedModel(price=cheap), ScriptedModel(price=dear))
    assert model_info(both).price == Price(input_usd=5, output_usd=9, cache_read_usd=3, cache_write_usd=5)
    assert model_info(failover(ScriptedModel(price=cheap), ScriptedModel())).price is None


async def test_word_of_retries_and_errors_is_no_beginning():
    troubled = ScriptedModel([ErrorRaised("E", "m", "model"), ProviderDown("gone")])
    assert await said(failover(troubled, ScriptedModel("Hello"))) == "Hello"
    waiting, _ = at_once(ScriptedModel(ProviderDown("gone"), repeat_last=True))
    assert await said(failover(waiting, ScriptedModel("Hello"))) == "Hello"


async def test_a_failover_in_a_failover_is_replaced_as_a_whole():
    inner = failover(ScriptedModel(ProviderDown("one")), ScriptedModel(ProviderDown("two")))
    assert await said(failover(inner, ScriptedModel("Hello"))) == "Hello"


async def test_when_all_fail_the_error_has_every_attempt():
    one, two = RateLimited("slow down"), AuthFailed("no key")
    model = failover(ScriptedModel(one, name="a"), ScriptedModel(two, name="b"))
    with pytest.raises(
        AllModelsFailed, match="all 2 models failed: a: RateLimited: slow down; b: AuthFailed: no key"
    ) as e:
        await listen(model)
    assert e.value.attempts == (("a", one), ("b", two))
    assert e.value.__cause__ is two


async def test_a_failover_of_one_model_is_that_model():
    assert await said(failover(ScriptedModel("Hello"))) == "Hello"
    with pytest.raises(AllModelsFailed):
        await listen(failover(ScriptedModel(ProviderDown("gone"))))


def test_a_failover_of_no_model_is_refused():
    with pytest.raises(ConfigError, match=r"failover\(\) needs at least one model"):
        failover()


# -- tools -------------------------------------------------------------------------------------------------------------


@tool(effect="read")
async def echo(text: str, times: int = 1) -> str:
    """Say it again."""
    return text * times


async def call_once(tool, **arguments):
    """The result of one call, by way of an agent."""
    model = ScriptedModel(call(tool.name, **arguments), "done")
    outcome = await Agent(model, tools=[tool]).run("go")
    return outcome.messages[2].tool_results[0]


async def test_a_hook_before_a_call_may_look_rewrite_or_skip():
    seen: list[Any] = []

    async def rewrite(call, arguments):
        return {**arguments, "times": 2}

    hooked = before(before(echo, lambda call, arguments: seen.append((call.name, arguments))), rewrite)
    assert (await call_once(hooked, text="a")).text == "aa"
    assert seen == [("echo", {"text": "a", "times": 1})]
    skipped = await call_once(before(hooked, lambda *_: Skip("not on Sundays")), text="a")
    assert (skipped.status, skipped.text) == (Status.DENIED, "not on Sundays")


async def test_hooks_before_a_call_see_what_those_before_them_made_of_it():
    def add(number):
        return lambda _, arguments: {"text": f"{arguments['text']}{number}"}

    assert (await call_once(before(before(echo, add(1)), add(2)), text="a")).text == "a12"


async def test_a_hook_after_a_call_may_look_or_return_another_result():
    seen: list[Any] = []

    async def shout(call, result):
        return ToolResult(call.call_id, call.name, (Text(result.text.upper()),))

    hooked = after(after(echo, lambda _, result: seen.append(result.text)), shout)
    assert (await call_once(hooked, text="a")).text == "A"
    assert seen == ["a"]


@pytest.mark.parametrize(
    ("made", "labels", "expected"),
    [
        ("text", ["untrusted"], ("text", Status.OK, ("untrusted",))),
        (ToolOutput("text", labels=["mail"]), ["untrusted"], ("text", Status.OK, ("mail", "untrusted"))),
        (ToolResult("", "", (Text("text"),)), ["untrusted"], ("text", Status.OK, ("untrusted",))),
        (ToolError("no"), ["untrusted"], ("no", Status.ERROR, ("untrusted",))),
        (ToolError("no"), [], ("no", Status.ERROR, ())),
        ("text", [], ("text", Status.OK, ())),
    ],
)
async def test_labels_are_added_to_whatever_a_tool_returns_or_raises(made, labels, expected):
    @tool
    def look() -> Any:
        """Look."""
        if isinstance(made, Exception):
            raise made
        return made

    result = await call_once(labelled(look, lambda context: labels if context.name == "look" else ()))
    assert (result.text, result.status, result.labels) == expected


async def test_an_error_that_says_what_became_of_the_effect_stays_what_it_is():
    @tool
    def send() -> str:
        """Send."""
        raise EffectUnknown("the connection broke")

    assert (await call_once(labelled(send, lambda _: ["untrusted"]))).status == Status.UNKNOWN


async def test_a_wrapper_may_be_a_plain_function():
    assert (await call_once(around(echo, lambda call_next, _arguments, _context: call_next()), text="a")).text == "a"
    assert (await call_once(around(echo, lambda *_: "instead"), text="a")).text == "instead"


async def test_a_wrapper_stands_around_the_effect_and_cannot_change_the_arguments():
    log: list[str] = []

    def named(name):
        async def wrapper(call_next, arguments, context):
            log.append(f"{name} before {arguments} {context.name}")
            arguments["text"] = "changed"
            result = await call_next()
            log.append(f"{name} after {result}")
            return f"<{result}>"

        return wrapper

    wrapped = around(around(echo, named("inner")), named("outer"))
    assert (await call_once(wrapped, text="a")).text == "<<a>>"
    assert log == [
        "outer before {'text': 'a', 'times': 1} echo",
        "inner before {'text': 'a', 'times': 1} echo",
        "inner after a",
        "outer after <a>",
    ]


async def test_a_wrapper_may_answer_in_the_place_of_the_tool():
    async def cached(call_next, arguments, context):
        return "from the cache"

    assert (await call_once(around(echo, cached), text="a")).text == "from the cache"


async def test_a_wrapper_is_still_there_when_a_method_is_bound_and_does_not_see_its_object():
    seen: list[Any] = []

    async def wrapper(call_next, arguments, context):
        seen.append(arguments)
        return await call_next()

    class Greeter:
        def __init__(self, word):
            self.word = word

        async def greet(self, name: str) -> str:
            return f"{self.word} {name}"

        wrapped = around(tool(greet), wrapper)

    assert (await call_once(Greeter("Hello").wrapped, name="Ada")).text == "Hello Ada"
    assert seen == [{"name": "Ada"}]


def test_a_wrapped_tool_is_another_tool_and_the_first_stays_as_it_was():
    wrapped = timed(echo, 5)
    assert (wrapped.timeout_seconds, echo.timeout_seconds) == (5, None)
    assert (wrapped.name, wrapped.effect, wrapped.spec) == (echo.name, "read", echo.spec)
    assert before(echo, nothing).prepare
    assert not echo.prepare


async def test_a_timed_tool_is_given_up_on():
    clock = FakeClock()
    never = timed(tool_from_schema("never", "", {}, lambda _: asyncio.Event().wait()), 5)
    model = ScriptedModel(call("never"), "done")
    run = asyncio.ensure_future(Agent(model, tools=[never], clock=clock).run("go"))
    async with asyncio.timeout(30):
        while not clock.pending:  # noqa: ASYNC110 - the clock tells of sleepers only
            await asyncio.sleep(0)
    await clock.advance(5)
    result = (await run).messages[2].tool_results[0]
    assert (result.status, result.text.partition(";")[0]) == (Status.TIMED_OUT, "Timed out after 5 seconds")


async def test_a_truncated_result_keeps_its_beginning_and_its_end():
    result = await call_once(truncated(echo, 5), text="abc", times=4)
    assert result.text == "abc\n[… 7 characters left out …]\nbc"


def test_truncation_leaves_short_texts_and_media_alone():
    (cut,) = truncated(echo, 5).finish
    result = ToolResult("c", "echo", (Text("abcde", "sig"), Image(data=b"123456789"), Text("abcdef")), Status.ERROR)
    kept = cut(ToolCall("c", "echo"), result)
    assert isinstance(kept, ToolResult)
    assert kept.content[:2] == result.content[:2]
    assert kept.content[2] == Text("abc\n[… 1 characters left out …]\nef")
    assert kept.status is Status.ERROR


@given(st.text(max_size=50), st.integers(2, 40))
def test_a_shortened_text_has_so_many_characters_of_the_original_and_tells_how_many_it_lacks(text, most):
    short = shorten_text(text, most)
    if len(text) <= most:
        assert short is text
        return
    note = f"\n[… {len(text) - most} characters left out …]\n"
    assert len(short) == most + len(note)
    head = short[: most - most // 2]
    assert short == f"{head}{note}{text[len(text) - most // 2 :]}"
    assert text.startswith(head)


@pytest.mark.parametrize(
    ("wrap", "given", "message"),
    [
        (before, [len, nothing], r"before\(<built-in function len>, …\): give a tool; @tool makes one"),
        (after, ["echo", nothing], r"after\('echo', …\): give a tool"),
        (around, [None, nothing], r"around\(None, …\): give a tool"),
        (timed, [len, 5], r"timed\(<built-in function len>, …\): give a tool"),
        (truncated, [len, 5], r"truncated\(<built-in function len>, …\): give a tool"),
        (before, [echo, "hook"], r"before\(Tool\('echo'\), 'hook'\): give a function"),
        (after, [echo, None], r"after\(Tool\('echo'\), None\): give a function"),
        (around, [echo, 5], r"around\(Tool\('echo'\), 5\): give a function"),
        (timed, [echo, 0], r"tool 'echo' cannot have timeout_seconds=0: give a number above zero"),
        (timed, [echo, math.nan], r"tool 'echo' cannot have timeout_seconds=nan"),
        (timed, [echo, "5"], r"tool 'echo' cannot have timeout_seconds='5'"),
        (truncated, [echo, 1], r"truncated\(Tool\('echo'\), 1\): keep at least 2 characters"),
        (truncated, [echo, "5"], r"truncated\(Tool\('echo'\), '5'\): keep at least 2 characters"),
    ],
)
def test_a_tool_is_not_wrapped_by_what_makes_no_sense(wrap, given, message):
    with pytest.raises(ConfigError, match=message):
        wrap(*given)


def test_what_a_model_learns_about_itself_is_known_through_its_wrappers():
    model = ScriptedModel("a")
    wrapped = retried(model)
    model.info = ModelInfo("scripted", context_tokens=8192)
    assert model_info(wrapped).context_tokens == 8192


# -- what was too long -------------------------------------------------------------------------------------------------


async def last_message_alone(request: Request, _error: ContextOverflow) -> Request | None:
    return msgspec.structs.replace(request, messages=request.messages[-1:])


async def test_a_request_that_is_too_long_is_made_shorter_once_and_sent_again():
    model, recorder = ScriptedModel("before", ContextOverflow("too long"), "after"), Recorder()
    session = Agent(compacted(model, last_message_alone), watchers=[recorder]).session()
    await session.run("one")
    outcome = await session.run("two")
    assert (outcome.status, outcome.text, outcome.turns) == ("done", "after", 1)
    assert [message.text for message in model.requests[-1].messages] == ["two"]
    assert [event.error for event in recorder.of(RetryScheduled)] == ["ContextOverflow"]
    await session.aclose()


async def test_what_does_not_fit_after_that_never_will():
    model = compacted(ScriptedModel(ContextOverflow("too long"), ContextOverflow("still too long")), last_message_alone)
    outcome = await Agent(model).run("one")
    assert (outcome.status, outcome.reason) == ("failed", "ContextOverflow")
    assert "still" in str(outcome.error)


async def test_what_cannot_be_made_shorter_fails_as_it_is():
    async def in_vain(request: Request, error: ContextOverflow) -> None:
        return None

    alone = ScriptedModel(ContextOverflow("too long"))
    for model in (alone, compacted(ScriptedModel(ContextOverflow("too long")), in_vain)):
        outcome = await Agent(model).run("one")
        assert outcome.reason == "ContextOverflow"


async def test_a_budget_counts_both_requests():
    ledger = Budget(token_budget=100_000)
    model = ScriptedModel(ContextOverflow("too long"), "after")
    outcome = await Agent(compacted(model, last_message_alone), budget=ledger).run("one")
    assert outcome.text == "after"
    assert ledger.reserved_tokens == 0


async def test_a_model_that_is_compacted_keeps_the_contract():
    await check_model(lambda: compacted(ScriptedModel("Hello there", repeat_last=True, chunk=3), last_message_alone))


async def test_a_shorter_request_is_told_as_the_second_of_two_attempts() -> None:
    model = compacted(ScriptedModel(ContextOverflow("too long"), "after"), last_message_alone)
    assert await listen(model) == [
        RetryScheduled(1, 2, 0.0, "ContextOverflow", "too long"),
        *await listen(ScriptedModel("after")),
    ]


# -- whole answers and limits ------------------------------------------------------------------------------------------


def test_a_wrapped_model_is_shown_by_the_name_of_the_model_inside() -> None:
    assert repr(retried(gated(ScriptedModel(name="deep"), nothing))) == "WrappedModel('deep')"


async def test_an_observer_is_told_of_an_answer_that_breaks_off() -> None:
    seen: list[Any] = []
    model = observed(ScriptedModel([TextDelta("Hel")], name="m"), lambda _, event: seen.append(event))
    assert await listen(model) == [TextDelta("Hel")]
    cut_off = ErrorRaised("ReplyCutOff", "the reply of m broke off before it was finished", "model")
    assert seen == [TextDelta("Hel"), cut_off]
    seen.clear()
    answer = await listen(observed(ScriptedModel("Hi"), lambda _, event: seen.append(event)))
    assert seen == answer


@pytest.mark.parametrize(("attempts", "base", "most"), [(1, 0, 0), (1, 0.0, 0.0), (2, 4.0, 4.0), (True, 0, 1)], ids=str)
async def test_a_policy_at_its_bounds_is_accepted(attempts: int, base: float, most: float) -> None:
    model = retried(ScriptedModel("Hi"), attempts=attempts, base_seconds=base, max_seconds=most)
    assert await said(model) == "Hi"


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({"attempts": 0}, "attempts=0, base_seconds=2.0, max_seconds=30.0"),
        ({"attempts": "4"}, "attempts='4', base_seconds=2.0, max_seconds=30.0"),
        ({"base_seconds": "2"}, "attempts=4, base_seconds='2', max_seconds=30.0"),
        ({"max_seconds": None}, "attempts=4, base_seconds=2.0, max_seconds=None"),
        ({"max_seconds": 1.0}, "attempts=4, base_seconds=2.0, max_seconds=1.0"),
    ],
    ids=str,
)
def test_a_policy_that_is_refused_is_shown_whole(options: dict[str, Any], given: str) -> None:
    with pytest.raises(ConfigError) as refused:
        retried(ScriptedModel("a"), **options)
    assert str(refused.value) == f"retried({given}): give at least one attempt, and a base from 0 to the maximum"


async def test_the_waits_are_as_long_as_chance_and_the_provider_say() -> None:
    model = ScriptedModel(*[ProviderDown("gone") for _ in range(4)], "Hi")
    clock = FakeClock(auto=True)
    patient = retried(model, attempts=5, base_seconds=1.0, max_seconds=6.0, jitter=lambda: 0.5, clock=clock)
    told = [event for event in await listen(patient) if isinstance(event, RetryScheduled)]
    assert told == [
        RetryScheduled(attempt, 5, wait, "ProviderDown", "gone")
        for attempt, wait in ((1, 0.75), (2, 1.5), (3, 3.0), (4, 4.5))
    ]


async def test_chance_has_to_be_a_number() -> None:
    model = retried(ScriptedModel(ProviderDown("gone"), "Hi"), jitter=lambda: "much")  # type: ignore[arg-type,return-value]
    with pytest.raises(ConfigError, match="a number from 0 to 1"):
        await listen(model)


@pytest.mark.parametrize(
    ("pieces", "is_answer"),
    [
        ([TextDelta(" \n")], False),
        ([TextDelta("a")], True),
        ([TextDelta("a"), TextDelta(" ")], True),
        ([ThinkingDelta("Hm")], False),
        ([ThinkingDelta("", is_item=True)], True),
        ([ToolCallDelta("c", "f", "{}")], True),
        ([UsageReported(Usage(1, 1))], False),
    ],
    ids=str,
)
async def test_blank_text_and_mere_thoughts_are_no_answer(pieces: list[Any], is_answer: bool) -> None:
    model, _ = at_once(ScriptedModel([*pieces, ReplyFinished()], "Hello", name="m"))
    told = [event for event in await listen(model) if isinstance(event, RetryScheduled)]
    empty = RetryScheduled(1, 4, 2.0, "EmptyReply", "m answered with neither text nor calls")
    assert told == ([] if is_answer else [empty])


async def test_a_failover_tells_about_the_first_of_its_models() -> None:
    both = failover(ScriptedModel(name="a"), ScriptedModel(name="b"))
    assert model_info(both) == model_info(ScriptedModel(name="a"))
    three = failover(*[ScriptedModel(ProviderDown(each), name=each) for each in "ab"], ScriptedModel("Hi", name="c"))
    told = [event for event in await listen(three) if isinstance(event, FailedOver)]
    assert told == [FailedOver("a", "b", "ProviderDown", "a"), FailedOver("b", "c", "ProviderDown", "b")]


@pytest.mark.parametrize(
    ("most", "short"),
    [
        (6, "abcdef"),
        (5, "abc\n[… 1 characters left out …]\nef"),
        (4, "ab\n[… 2 characters left out …]\nef"),
        (2, "a\n[… 4 characters left out …]\nf"),
    ],
)
def test_a_text_is_shortened_in_its_middle(most: int, short: str) -> None:
    assert shorten_text("abcdef", most) == short


async def test_two_characters_are_the_least_that_truncation_keeps() -> None:
    signed = ToolResult("c", "echo", (Text("abcdef", "sig"), Text("ab")))
    cut = truncated(echo, 2).finish[-1](ToolCall("c", "echo"), signed)
    assert cut == ToolResult("c", "echo", (Text("a\n[… 4 characters left out …]\nf", "sig"), Text("ab")))


async def test_the_result_of_a_wrapper_around_an_approved_call_is_the_result() -> None:
    @tool(permission=True)
    async def pay(amounts: list[int]) -> str:
        """Pay."""
        return f"paid {amounts}"

    async def twice(call_next: Any, arguments: Any, context: Any) -> str:
        arguments["amounts"].append(100)
        return f"<{await call_next()} {await call_next()}>"

    def instead(call_next: Any, arguments: Any, context: Any) -> str:
        return f"instead of {arguments['amounts']}"

    for wrapper, text in ((twice, "<paid [5] paid [5]>"), (instead, "instead of [5]")):
        model = ScriptedModel(call("pay", amounts=[5]), "done")
        outcome = await Agent(model, tools=[around(pay, wrapper)], permission=Permissions(allow("pay"))).run("go")
        assert outcome.messages[2].tool_results[0].text == text


async def test_an_async_observer_is_waited_for_before_the_event_goes_on() -> None:
    seen: list[Any] = []

    async def watch(_request: Request, event: Any) -> None:
        await asyncio.sleep(0)
        seen.append(event)

    async for event in observed(ScriptedModel("Hi"), watch).stream(ASKED):
        assert seen[-1] == event


@pytest.mark.parametrize(
    ("wrap", "start"),
    [
        (lambda: observed(ScriptedModel(), None), "observed(watch=None)"),  # type: ignore[arg-type]
        (lambda: gated(ScriptedModel(), "gate"), "gated(gate='gate')"),  # type: ignore[arg-type]
        (lambda: compacted(ScriptedModel(), 5), "compacted(compact=5)"),  # type: ignore[arg-type]
        (lambda: retried(ScriptedModel(), jitter=0.5), "retried(jitter=0.5)"),  # type: ignore[arg-type]
    ],
)
def test_a_model_is_not_wrapped_by_what_is_no_function(wrap: Any, start: str) -> None:
    with pytest.raises(ConfigError) as refused:
        wrap()
    assert str(refused.value).startswith(start)


async def test_a_gate_that_returns_something_else_is_named() -> None:
    def gate(_request: Request) -> Any:
        return "request"

    with pytest.raises(ConfigError, match="a request, or None to leave it as it is"):
        await listen(gated(ScriptedModel("Hi"), gate))
