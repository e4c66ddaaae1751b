"""`check_model` lets good models pass, and says what is wrong with each kind of bad one."""

import asyncio
import contextlib
import functools

import pytest

from perdure import ConfigError, Message, ProviderDown, Text, ToolCall, Usage, assistant, user
from perdure.events import ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.models import Request
from perdure.testing import ScriptedModel, check_model


def playing(*events):
    """Makes models that always play these events."""
    return lambda: ScriptedModel(list(events), repeat_last=True)


class Good:
    """Suspends as a real model does, and answers what it was asked."""

    async def stream(self, request):
        for word in request.messages[-1].text.split():
            await asyncio.sleep(0)
            yield TextDelta(word)
        yield ReplyFinished()


class Waiting:
    """Never answers, as a provider that hangs."""

    async def stream(self, request):
        yield TextDelta("I ")
        await asyncio.Event().wait()
        yield ReplyFinished()


class Whimsical(Good):
    """Says something else each time, as a model with temperature."""

    said = 0

    async def stream(self, request):
        Whimsical.said += 1
        yield TextDelta(f"number {Whimsical.said}")
        yield ReplyFinished()


class Changing(Good):
    async def stream(self, request):
        request.messages[-1].metadata["seen"] = True
        yield TextDelta("ok")
        yield ReplyFinished()


class Mixing:
    """Keeps on the model what belongs to the stream."""

    async def stream(self, request):
        self.left = ["a", "b", "c"]
        while self.left:
            yield TextDelta(self.left.pop(0))
        yield ReplyFinished()


class Swallowing(Good):
    async def stream(self, request):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        yield TextDelta("nevertheless")
        yield ReplyFinished()


class Translating:
    async def stream(self, request):
        yield TextDelta("I")
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            raise ProviderDown("cancelled") from None
        yield ReplyFinished()


class Leaking(Good):
    tasks: list[asyncio.Task] = []  # noqa: RUF012 - so that the test can end them

    async def stream(self, request):
        self.tasks.append(asyncio.create_task(asyncio.Event().wait(), name="reader"))
        yield TextDelta("ok")
        yield ReplyFinished()


class Stubborn(Good):
    """Goes on after it was closed."""

    def stream(self, request):
        return self.Stream()

    class Stream:
        def __init__(self):
            self.events = iter([TextDelta("a"), TextDelta("b"), ReplyFinished()])

        def __aiter__(self):
            return self

        async def __anext__(self):
            for event in self.events:
                return event
            raise StopAsyncIteration

        async def aclose(self):
            pass


class AnextOnly:
    def __init__(self, stream):
        self.stream = stream

    def __anext__(self):
        return self.stream.__anext__()


class Unclosable(Stubborn):
    def stream(self, request):
        return AnextOnly(self.Stream())


class SlowToClose:
    async def stream(self, request):
        try:
            yield TextDelta("a")
            yield ReplyFinished()
        except GeneratorExit:
            await asyncio.Event().wait()


class Cold:
    """Breaks off its first answer of all, and none after it."""

    def __init__(self, answers):
        self.answers = answers

    async def stream(self, request):
        self.answers.append("hi")
        yield TextDelta("hi")
        if len(self.answers) > 1:
            yield ReplyFinished()


class Superseding:
    """Breaks off a stream as soon as there is another one."""

    latest = 0

    async def stream(self, request):
        self.latest = ours = self.latest + 1
        yield TextDelta("a")
        if self.latest == ours:
            yield ReplyFinished()


class ClosedWhen(Stubborn):
    """Ends when it is closed only before, or only after, it has begun."""

    def __init__(self, *, begun):
        self.begun = begun

    def stream(self, request):
        return self.Closing(self.begun)

    class Closing(Stubborn.Stream):
        def __init__(self, begun):
            super().__init__()
            self.begun, self.has_begun = begun, False

        async def __anext__(self):
            self.has_begun = True
            return await super().__anext__()

        async def aclose(self):
            if self.has_begun == self.begun:
                self.events = iter(())


class SwallowingLater:
    """Ends when it is cancelled before its first event, and not after it."""

    async def stream(self, request):
        await asyncio.sleep(0)
        yield TextDelta("I")
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        yield ReplyFinished()


class Bound:
    """Answers only in the task that made it."""

    def __init__(self):
        self.home = asyncio.current_task()

    async def stream(self, request):
        if asyncio.current_task() is not self.home:
            raise OSError("another task")
        yield ReplyFinished()


@pytest.mark.parametrize(
    "make",
    [
        Good,
        Whimsical,
        playing(TextDelta("a"), TextDelta("b"), ReplyFinished()),
        playing(ThinkingDelta("hm"), ToolCallDelta("1", "add", "{}"), ReplyFinished(usage=Usage(5, 5, 2, 3, 5))),
        playing(TextDelta("a"), TextDelta("b"), ReplyFinished(message=assistant("ab"))),
        playing(ReplyFinished(message=assistant("at once"))),
        playing(
            ToolCallDelta("1", "add", "{}"),
            ToolCallDelta("2", "add", "[]", index=1),
            ReplyFinished(message=assistant([ToolCall("1", "add", "{}"), ToolCall("2", "add", "[]")])),
        ),
        playing(ReplyFinished(usage=Usage(5, 5, 2, 3, 5))),
        playing(ReplyFinished(usage=Usage(0, 0, 0, 0, 0))),
    ],
)
async def test_a_model_that_keeps_the_contract_passes(make):
    await check_model(make)


async def test_a_request_of_ones_own_is_asked():
    asked = []

    def answer(request):
        asked.append(request.messages[0].text)
        return "ok"

    await check_model(lambda: ScriptedModel(answer, repeat_last=True), request=Request(messages=(user("ready?"),)))
    assert set(asked) == {"ready?"}


def call(call_id="1", name="add", arguments="{}", index=0):
    return ToolCallDelta(call_id, name, arguments, index=index)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (playing(TextDelta("a")), "without a ReplyFinished"),
        (playing(), "ended after 0 events without a ReplyFinished"),
        (playing(ReplyFinished(), ReplyFinished()), "2 ReplyFinished: yield exactly one"),
        (playing(ReplyFinished(), TextDelta("late")), r"TextDelta\(.*'late'.*came after ReplyFinished"),
        (playing(TextDelta("a"), ReplyFinished(message=assistant("b"))), "the text of the deltas, 'a', is not that"),
        (playing(ThinkingDelta("a"), ReplyFinished(message=assistant("b"))), "the thinking of the deltas"),
        (playing(call(), ReplyFinished(message=assistant("b"))), "the calls of the deltas"),
        (playing(ReplyFinished(message=Message("user", (Text("b"),)))), "has the role 'user'"),
        (playing(call(name=""), ReplyFinished()), "has no name"),
        (playing(call(""), ReplyFinished()), "has no id"),
        (playing(call(), call(index=1), ReplyFinished()), "two calls have the id '1'"),
        (playing(call(arguments="{'a': 1}"), ReplyFinished()), "no JSON text"),
        (playing(call(arguments=""), ReplyFinished()), "no JSON text"),
        (playing(ReplyFinished(usage=Usage(-1))), "no whole number from 0 on"),
        (playing(ReplyFinished(usage=Usage(5, 5, 4, 4))), "add the cached tokens"),
        (playing(ReplyFinished(usage=Usage(5, 5, reasoning_tokens=6))), "add the reasoning tokens"),
        (playing(ProviderDown("gone")), "needs a request that the model answers"),
        (playing(OSError("reset")), "turn foreign errors into a ModelError"),
        (Changing, "the model changed the request"),
        (Mixing, "mixed: keep what belongs to a stream in local variables"),
        (Swallowing, "never swallow or translate it"),
        (Translating, "never swallow or translate it"),
        (Stubborn, "after it was closed"),
        (Unclosable, "cannot be closed"),
        (functools.partial(Cold, []), "ended after 1 events without a ReplyFinished"),
        (Superseding, "ended after 1 events without a ReplyFinished"),
        (functools.partial(ClosedWhen, begun=True), r"the stream said TextDelta\(.*'a'.* after it was closed"),
        (functools.partial(ClosedWhen, begun=False), r"the stream said TextDelta\(.*'b'.* after it was closed"),
        (SwallowingLater, "never swallow or translate it"),
        (Bound, r"the model raised OSError\('another task'\)"),
    ],
)
async def test_a_broken_promise_is_named_with_what_to_fix(make, complaint):
    with pytest.raises(AssertionError, match=complaint):
        await check_model(make, timeout_seconds=5)


async def test_what_is_no_event_is_named():
    class Plain:
        async def stream(self, request):
            yield "words"

    with pytest.raises(AssertionError, match="the stream yielded 'words'"):
        await check_model(Plain)


async def test_a_task_that_is_left_behind_is_named():
    async with asyncio.timeout(5):
        with pytest.raises(AssertionError, match="left tasks behind: reader"):
            await check_model(Leaking)
    for task in Leaking.tasks:
        task.cancel()
    await asyncio.wait(Leaking.tasks)


@pytest.mark.parametrize("make", [Waiting, SlowToClose])
async def test_a_model_that_does_not_end_is_given_up_on(make):
    with pytest.raises(AssertionError, match=r"not within 0\.05 s"):
        await check_model(make, timeout_seconds=0.05)


@pytest.mark.parametrize("make", [None, Good(), lambda: None])
async def test_what_makes_no_model_is_refused(make):
    with pytest.raises(ConfigError, match="give a function that makes a model"):
        await check_model(make)
