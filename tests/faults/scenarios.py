"""Runs of every shape, small enough to be cancelled at each of their suspensions. For `test_cancellation.py`.

A scenario is a function of a `Stage` that returns what the caller awaits. Whatever its tools do goes into a ledger, so
that afterwards the log can be held against what has really happened.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeAlias

import msgspec

from perdure import (
    Agent,
    EffectNotStarted,
    Limits,
    Message,
    Outcome,
    Permissions,
    ProviderDown,
    RateLimited,
    Session,
    StopReason,
    Text,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    assistant,
    tool,
    user,
)
from perdure._core.values.clock import new_id
from perdure.engines import Accepted
from perdure.events import (
    Entry,
    Event,
    MessageAdded,
    ModelEvent,
    ModelRequested,
    ReplyFinished,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from perdure.models import Model, Request, failover, retried
from perdure.permissions import Verdict
from perdure.stores import MemoryStore, Store
from perdure.testing import FakeClock, Reply, ScriptedModel, call, calls
from perdure.tools import Skip, after, around, before
from tests.faults.suspension import own_task

Work: TypeAlias = Coroutine[Any, Any, Any]
Scenario: TypeAlias = Callable[["Stage"], Work]


class Ledger:
    """What has really happened, by call."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        """Effects that have begun."""
        self.done: Counter[str] = Counter()
        """Effects that have come to their end, whose tools have nothing more to do than to return."""


class Conversation:
    """A model that follows a script, and once the test has its result says the same thing for ever."""

    def __init__(self, script: Model) -> None:
        self.over = False
        self.asked = 0
        self._script = script
        self._last = ScriptedModel("Fine.", repeat_last=True)

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        self.asked += 1
        return (self._last if self.over else self._script).stream(request)


class Stage:
    """Where one scenario is played once."""

    def __init__(self, store: Store | None = None) -> None:
        self.store: Store = store or MemoryStore()
        self.clock = FakeClock(auto=True)
        self.ledger = Ledger()
        self.loose_results = False
        """Whether a call may be done and still have another result than ok: hooks and threads come after the effect."""
        self.survives: Callable[[], Awaitable[Outcome[Any]]] | None = None
        """How to get the outcome of a run that goes on when its caller is cancelled."""
        self.alone = True
        """Whether there is only one run."""
        self.before: Work | None = None
        """What has to be done before the curtain rises."""
        self.director: asyncio.Task[Any] | None = None
        """The task of the test itself."""
        self.beside: list[asyncio.Task[Any]] = []
        """Tasks that play no part, and end by themselves."""
        self.hurried = False
        """Whether the run was told to end at once."""
        self.crashed: set[str] = set()
        """Calls that a crash has left in doubt."""
        self.model: Conversation
        self.agent: Agent[Any]
        self.session: Session

    # -- tools ---------------------------------------------------------------------------------------------------------

    def tool(self, name: str = "act", *, steps: int = 2, **options: Any) -> Tool[..., Any]:
        """A tool that suspends a few times while it acts."""

        @tool(name=name, description="Acts.", **options)
        async def act(context: ToolContext) -> str:
            self.ledger.begun[context.call_id] += 1
            for _ in range(steps):
                await asyncio.sleep(0)
            self.ledger.done[context.call_id] += 1
            return "acted"

        return act

    def thread_tool(self, name: str = "act", **options: Any) -> Tool[..., Any]:
        """A plain function, which runs on a thread."""
        self.loose_results = True

        @tool(name=name, description="Acts.", **options)
        def act(context: ToolContext) -> str:
            self.ledger.begun[context.call_id] += 1
            time.sleep(0.0005)  # a thread that gives the event loop time to be somewhere else
            self.ledger.done[context.call_id] += 1
            return "acted"

        return act

    # -- the rest ------------------------------------------------------------------------------------------------------

    def cast(self, model: Model, tools: Sequence[Tool[..., Any]] = (), **options: Any) -> Session:
        """The agent and the session of this stage."""
        self.model = Conversation(model)
        self.agent = Agent(self.model, tools=tools, store=self.store, clock=self.clock, **options)
        self.session = self.agent.session(new_id())
        return self.session

    def run(self, *script: Any, tools: Sequence[Tool[..., Any]] = (), **options: Any) -> Work:
        """The usual scenario: one prompt to an agent whose model follows a script."""
        return self.cast(ScriptedModel(*script), tools, **options).run("go")


# -- the scenarios -----------------------------------------------------------------------------------------------------


def a_plain_answer(stage: Stage) -> Work:
    return stage.run("Hello.")


def one_tool(stage: Stage) -> Work:
    return stage.run(call("act"), "Done.", tools=[stage.tool()])


def tools_at_the_same_time(stage: Stage) -> Work:
    tools = [stage.tool("quick", steps=0), stage.tool("act", steps=2), stage.tool("slow", steps=5)]
    return stage.run(calls(call("slow"), call("quick"), call("act")), "Done.", tools=tools)


def a_tool_that_must_be_alone(stage: Stage) -> Work:
    tools = [stage.tool("act"), stage.tool("alone", parallel=False)]
    return stage.run(calls(call("act"), call("act"), call("alone"), call("act")), "Done.", tools=tools)


def more_calls_than_places(stage: Stage) -> Work:
    tools = [stage.tool("act", steps=1), stage.tool("slow", steps=3)]
    many = calls(call("slow"), call("act"), call("act"), call("slow"), call("act"))
    return stage.run(many, "Done.", tools=tools, limits=Limits(max_parallel_tools=2))


def a_tool_that_must_not_be_aborted(stage: Stage) -> Work:
    tools = [stage.tool("firm", steps=4, abortable=False), stage.tool("act")]
    return stage.run(calls(call("firm"), call("act")), call("firm"), "Done.", tools=tools)


def functions_on_threads(stage: Stage) -> Work:
    tools = [stage.thread_tool(), stage.thread_tool("firm", abortable=False)]
    return stage.run(calls(call("act"), call("firm")), call("act"), "Done.", tools=tools)


def tools_with_a_timeout(stage: Stage) -> Work:
    tools = [stage.tool("act", timeout_seconds=5), stage.tool("firm", timeout_seconds=5, abortable=False)]
    return stage.run(calls(call("act"), call("firm")), call("act"), "Done.", tools=tools)


def a_tool_that_tries_again(stage: Stage) -> Work:
    failures = iter([EffectNotStarted("the line is busy"), EffectNotStarted("still busy")])

    @tool(retries=2)
    async def act(context: ToolContext) -> str:
        """Acts at the third attempt."""
        await asyncio.sleep(0)
        if (failure := next(failures, None)) is not None:
            raise failure
        stage.ledger.begun[context.call_id] += 1
        await asyncio.sleep(0)
        stage.ledger.done[context.call_id] += 1
        return "acted"

    return stage.run(call("act"), "Done.", tools=[act])


def a_tool_that_does_not_listen(stage: Stage) -> Work:
    @tool
    async def deaf(context: ToolContext) -> str:
        """Goes on when it is cancelled."""
        stage.ledger.begun[context.call_id] += 1
        for _ in range(4):
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                continue
        stage.ledger.done[context.call_id] += 1
        return "acted"

    return stage.run(calls(call("deaf"), call("act")), "Done.", tools=[deaf, stage.tool()])


def tools_that_wait_for_something(stage: Stage) -> Work:
    """It comes after a while; but not when the run has to end at once: then only a cancel ends the waiting."""
    come = asyncio.Event()

    async def let_it_come() -> None:
        for _ in range(40):
            await asyncio.sleep(0)
        if not stage.hurried:
            come.set()

    @tool(timeout_seconds=5)
    async def wait(context: ToolContext) -> str:
        """Waits."""
        stage.ledger.begun[context.call_id] += 1
        await come.wait()
        stage.ledger.done[context.call_id] += 1
        return "it has come"

    unsupervised = msgspec.structs.replace(wait, name="wait_alone", timeout_seconds=None)
    stage.beside.append(own_task(let_it_come()))
    replies = (calls(call("wait"), call("wait_alone"), call("act")), call("wait_alone"), "Done.")
    return stage.run(*replies, tools=[wait, unsupervised, stage.tool()])


def a_tool_that_is_cancelled_by_somebody_else(stage: Stage) -> Work:
    @tool
    async def dropped() -> str:
        """Waits for something that is cancelled."""
        gone = asyncio.ensure_future(asyncio.sleep(0, "slept"))
        gone.cancel()
        return await gone

    return stage.run(calls(call("dropped"), call("act")), call("dropped"), "Done.", tools=[dropped, stage.tool()])


def a_person_who_thinks_before_answering(stage: Stage) -> Work:
    async def person(requests):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return [Verdict(allow=request.tool != "no", reason="not today") for request in requests]

    tools = [stage.tool("act", permission=True), stage.tool("no", permission=True)]
    replies = (calls(call("act"), call("no"), call("act")), "Done.")
    return stage.run(*replies, tools=tools, permission=Permissions(handler=person))


def hooks_that_wait(stage: Stage) -> Work:
    stage.loose_results = True

    async def look_before(_call, arguments):
        await asyncio.sleep(0)
        return Skip("not this one") if arguments else None

    async def look_after(_call, _result):
        await asyncio.sleep(0)

    async def look_around(call_next, _arguments, _context):
        await asyncio.sleep(0)
        answer = await call_next()
        await asyncio.sleep(0)
        return answer

    hooked = after(before(around(stage.tool(), look_around), look_before), look_after)
    return stage.run(calls(call("act"), call("act", no=1)), call("act"), "Done.", tools=[hooked])


def a_model_that_is_asked_again(stage: Stage) -> Work:
    model = ScriptedModel(
        RateLimited("slow down", retry_after_seconds=1),
        [TextDelta("It be"), ProviderDown("gone")],
        call("act"),
        ProviderDown("gone"),
        "Done.",
    )
    return stage.cast(retried(model, clock=stage.clock), [stage.tool()]).run("go")


def a_model_that_is_replaced(stage: Stage) -> Work:
    first = ScriptedModel(ProviderDown("gone"), repeat_last=True)
    second = ScriptedModel(call("act"), "Done.", chunk=2)
    return stage.cast(failover(first, second), [stage.tool()]).run("go")


def a_model_that_takes_its_time(stage: Stage) -> Work:
    class Slow:
        """Suspends before each delta, and when it is closed."""

        async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            try:
                for letter in "Hello, you there.":
                    await asyncio.sleep(0)
                    yield TextDelta(letter)
                yield ReplyFinished()
            finally:
                await asyncio.sleep(0)

    return stage.cast(Slow()).run("go")


def a_model_that_never_waits(stage: Stage) -> Work:
    return stage.run([*(TextDelta("x") for _ in range(200)), ReplyFinished()])


def a_model_that_fails(stage: Stage) -> Work:
    return stage.run(call("act"), ProviderDown("gone"), tools=[stage.tool()])


def a_reply_that_is_cut_off(stage: Stage) -> Work:
    return stage.run(Reply(calls=(call("act"), call("act")), stop=StopReason.LENGTH), "Done.", tools=[stage.tool()])


def calls_that_make_no_sense(stage: Stage) -> Work:
    wrong = calls(call("nothing"), call("act", "{"), call("act", unknown=1), call("act"))
    return stage.run(wrong, "Done.", tools=[stage.tool()])


def steering_and_follow_ups(stage: Stage) -> Work:
    @tool
    async def meddle(context: ToolContext) -> str:
        """Somebody talks while this runs."""
        stage.ledger.begun[context.call_id] += 1
        await stage.session.steer("Left, please.")
        await stage.session.follow_up("And then?")
        await asyncio.sleep(0)
        stage.ledger.done[context.call_id] += 1
        return "met"

    return stage.run(call("meddle"), call("act"), "Left.", "Then right.", tools=[meddle, stage.tool()])


def everybody_is_asked(stage: Stage) -> Work:
    async def shape(messages: Sequence[Message]) -> Sequence[Message]:
        await asyncio.sleep(0)
        return messages

    async def stop(_step) -> bool:
        await asyncio.sleep(0)
        return False

    async def accept(_run, _reply):
        await asyncio.sleep(0)
        return Accepted()

    return stage.run(
        call("act"), "Done.", tools=[stage.tool()], history_processor=shape, stop=stop, output_validators=[accept]
    )


def watchers_that_dawdle(stage: Stage) -> Work:
    async def watch(_entry: Entry) -> None:
        await asyncio.sleep(0)

    return stage.run(calls(call("act"), call("act")), "Done.", tools=[stage.tool()], watchers=[watch])


def a_call_without_a_model(stage: Stage) -> Work:
    session = stage.cast(ScriptedModel(), [stage.tool(permission=True)], permission=Permissions(handler=_yes))
    return session.call("act", {})


async def _yes(requests):
    await asyncio.sleep(0)
    return [Verdict(allow=True)] * len(requests)


def a_reader_of_the_stream(stage: Stage) -> Work:
    session = stage.cast(ScriptedModel(calls(call("act"), call("act")), "Done.", chunk=1), [stage.tool()])
    return _read(stage, session, backpressure=False)


def a_reader_who_holds_the_run_back(stage: Stage) -> Work:
    session = stage.cast(ScriptedModel(call("act"), "Done. " * 400, chunk=2), [stage.tool()])
    return _read(stage, session, backpressure=True)


async def _read(stage: Stage, session: Session, *, backpressure: bool) -> Outcome[Any]:
    stream = session.stream("go", backpressure=backpressure)
    stage.survives = stream.outcome
    async for _ in stream:
        if backpressure:
            await asyncio.sleep(0)  # slower than the model, so that its buffer is full in the end
    return await stream.outcome()


async def two_who_talk_at_once(stage: Stage) -> Outcome[Any]:
    """The first one's run is not the caller's to cancel: it is a task of its own, and has to end well."""
    stage.alone = False
    session = stage.cast(ScriptedModel(call("act"), "One.", "Two."), [stage.tool()])
    first = asyncio.ensure_future(session.run("one"))
    stage.survives = lambda: asyncio.shield(first)
    await asyncio.sleep(0)
    return await session.run("two")


def a_run_that_a_crash_cut_off(stage: Stage) -> Work:
    async def look_before(_call, _arguments):
        await asyncio.sleep(0)

    tools = [stage.tool("act"), stage.tool("look", effect="read"), stage.tool("put", effect="idempotent")]
    session = stage.cast(ScriptedModel("Done."), [before(each, look_before) for each in tools])
    stage.ledger.begun["done"] = stage.ledger.done["done"] = 1
    stage.crashed = {"doubt", "seen", "sent"}
    stage.before = _leave_behind(stage.store, session.session_id, crashed_log())
    return session.resume()


def crashed_log() -> list[Event]:
    """Of five calls one is finished, three have begun, and one has not; then the process died."""
    names = {"done": "act", "doubt": "act", "seen": "look", "sent": "put", "planned": "act"}
    started = {"doubt": "at_most_once", "seen": "read", "sent": "idempotent"}
    reply = assistant([ToolCall(call_id, name) for call_id, name in names.items()], stop=StopReason.TOOL_USE)
    return [
        RunStarted("agent", run_id="r"),
        MessageAdded(user("go"), run_id="r"),
        ModelRequested(1, run_id="r"),
        MessageAdded(reply, run_id="r"),
        *(ToolStarted(each, names[each], effect, f"key/{each}", run_id="r") for each, effect in started.items()),
        ToolFinished("done", "act", ToolResult("done", "act", (Text("acted"),)), run_id="r"),
    ]


async def _leave_behind(store: Store, session_id: str, events: Sequence[Event]) -> None:
    lease = await store.acquire(session_id)
    entries = [Entry(place, 0.0, event, f"crashed-{place}") for place, event in enumerate(events, 1)]
    await store.append(lease, entries, sync=True)
    await store.release(lease)


def nothing_to_resume(stage: Stage) -> Work:
    return stage.cast(ScriptedModel()).resume()


SCENARIOS: Sequence[Scenario] = (
    a_plain_answer,
    one_tool,
    tools_at_the_same_time,
    a_tool_that_must_be_alone,
    more_calls_than_places,
    a_tool_that_must_not_be_aborted,
    functions_on_threads,
    tools_with_a_timeout,
    a_tool_that_tries_again,
    a_tool_that_does_not_listen,
    tools_that_wait_for_something,
    a_tool_that_is_cancelled_by_somebody_else,
    a_person_who_thinks_before_answering,
    hooks_that_wait,
    a_model_that_is_asked_again,
    a_model_that_is_replaced,
    a_model_that_takes_its_time,
    a_model_that_never_waits,
    a_model_that_fails,
    a_reply_that_is_cut_off,
    calls_that_make_no_sense,
    steering_and_follow_ups,
    everybody_is_asked,
    watchers_that_dawdle,
    a_call_without_a_model,
    a_reader_of_the_stream,
    a_reader_who_holds_the_run_back,
    two_who_talk_at_once,
    a_run_that_a_crash_cut_off,
    nothing_to_resume,
)

KEPT_SCENARIOS: Sequence[Scenario] = (
    one_tool,
    tools_at_the_same_time,
    more_calls_than_places,
    functions_on_threads,
    a_person_who_thinks_before_answering,
    two_who_talk_at_once,
    a_run_that_a_crash_cut_off,
)
"""Those that are also played with a file, where a barrier is a suspension."""
