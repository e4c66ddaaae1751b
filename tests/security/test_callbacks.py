"""Every function that a program can give works when it is plain and when it is async, or the wrong one is refused.

None is taken and then not awaited: a gate, a target or a guardrail that is never heard would let everything through.
"""

# ruff: noqa: ARG005, PLW0108 - lambdas show what they are given
import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast
from unittest import mock
from unittest.mock import AsyncMock

import pytest

from perdure import (
    Agent,
    ConfigError,
    ContextOverflow,
    Extension,
    Middleware,
    Permissions,
    Retry,
    allow,
    deny,
    load_config,
    load_mcp_servers,
    tool,
    user,
)
from perdure._context.directives.apply import apply_directives
from perdure._models import registry
from perdure.context import Command, Compaction, Resource, Rewrite, Skill, Skills
from perdure.engines import Accepted, Halt, Nudge, all_of, any_of, none_of
from perdure.models import Throttle, compacted, gated, observed, openai_compatible, register, retried, tapped
from perdure.people import Confirm
from perdure.permissions import Verdict
from perdure.stores import MemoryStore, listened
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.tools import Skip, after, around, before, subagent, tool_from_schema
from perdure.tracing import loop_watchdog
from tests.models.canned import CannedTransport

SECONDS = 20.0

Give = Callable[[Callable[..., Any]], Any]
"""Turns a plain function into the form that is tried."""
Use = Callable[[Give, Path], Awaitable[bool]]
"""Gives an agent a function in that form; returns True if the function was heard."""

CALLBACKS: dict[str, Use] = {}


def callback(use: Use) -> Use:
    CALLBACKS[use.__name__] = use
    return use


def make_async(function: Callable[..., Any]) -> Any:
    @functools.wraps(function)
    async def give(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return give


def make_async_partial(function: Callable[..., Any]) -> Any:
    return functools.partial(make_async(function))


def make_async_object(function: Callable[..., Any]) -> Any:
    class Callback:
        def __init__(self) -> None:
            functools.update_wrapper(self, function)

        async def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

    return Callback()


def make_hidden_async(function: Callable[..., Any]) -> Any:
    """A plain function that returns a coroutine: nobody can tell before it is called."""
    return functools.wraps(function)(lambda *args, **kwargs: make_async(function)(*args, **kwargs))


def make_plain(function: Callable[..., Any]) -> Any:
    return function


@tool
async def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


def looking(**options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(call("look", at="x"), "Done.", "Done."), tools=[options.pop("tool", look)], **options)


# -- options of tools --------------------------------------------------------------------------------------------------


@callback
async def target_of_a_tool(give: Give, _: Path) -> bool:
    ran: list[str] = []

    @tool(permission=True, target=give(lambda arguments: arguments["path"]))
    async def remove(path: str) -> str:
        """Remove."""
        ran.append(path)
        return "gone"

    gate = Permissions(allow("remove"), deny(target="secret*"))
    await Agent(ScriptedModel(call("remove", path="secret/x"), "Done."), tools=[remove], permission=gate).run("Go.")
    return not ran


@callback
async def permission_of_a_tool(give: Give, _: Path) -> bool:
    ran: list[str] = []

    @tool(permission=give(lambda arguments: True))
    async def remove(path: str) -> str:
        """Remove."""
        ran.append(path)
        return "gone"

    await Agent(ScriptedModel(call("remove", path="x"), "Done."), tools=[remove]).run("Go.")
    return not ran


@callback
async def summary_of_a_tool(give: Give, _: Path) -> bool:
    made = tool_from_schema("look", "Look.", {"type": "object"}, lambda a: "long", summary=give(lambda r: "short"))
    outcome = await looking(tool=made).run("Go.")
    return outcome.new_messages[2].tool_results[0].summary == "short"


@callback
async def function_of_a_tool(give: Give, _: Path) -> bool:
    made = tool_from_schema("look", "Look.", {"type": "object"}, give(lambda arguments: "heard"))
    return (await looking(tool=made).run("Go.")).new_messages[2].tool_results[0].text == "heard"


@callback
async def hook_before_a_tool(give: Give, _: Path) -> bool:
    outcome = await looking(tool=before(look, give(lambda _call, _arguments: Skip("heard")))).run("Go.")
    return outcome.new_messages[2].tool_results[0].text == "heard"


@callback
async def hook_after_a_tool(give: Give, _: Path) -> bool:
    heard: list[Any] = []
    await looking(tool=after(look, give(lambda _call, result: heard.append(result)))).run("Go.")
    return len(heard) == 1


@callback
async def wrapper_around_a_tool(give: Give, _: Path) -> bool:
    outcome = await looking(tool=around(look, give(lambda _next, _arguments, _context: "heard"))).run("Go.")
    return outcome.new_messages[2].tool_results[0].text == "heard"


# -- options of agents -------------------------------------------------------------------------------------------------


@callback
async def gate_of_an_agent(give: Give, _: Path) -> bool:
    gate = give(lambda requests: [Verdict(allow=False, reason="heard") for _ in requests])
    return (await looking(permission=gate).run("Go.")).new_messages[2].tool_results[0].text == "heard"


@callback
async def handler_of_permissions(give: Give, _: Path) -> bool:
    handler = give(lambda requests: [Verdict(allow=True) for _ in requests])
    made = tool(permission=True)(cast("Any", look.function))
    gate = Permissions(handler=handler)
    return (await looking(tool=made, permission=gate).run("Go.")).new_messages[2].tool_results[0].text == "seen x"


@callback
async def verdicts_of_a_gate(give: Give, _: Path) -> bool:
    class Own(Permissions):
        pass

    heard = give(lambda requests: [Verdict(allow=False, reason="heard") for _ in requests])
    setattr(Own, "verdicts", staticmethod(heard))  # noqa: B010 - what a subclass in plain Python may do
    gate = Own(handler=lambda requests: [Verdict(allow=True) for _ in requests])
    return (await looking(permission=gate).run("Go.")).new_messages[2].tool_results[0].text == "heard"


@callback
async def stop_condition(give: Give, _: Path) -> bool:
    reasons = {
        (await looking(stop=each).run("Go.")).reason
        for each in (
            give(lambda step: True),
            any_of(give(lambda step: True)),
            all_of(give(lambda step: True)),
            none_of(give(lambda step: False)),
        )
    }
    return reasons == {"stop_condition"}


@callback
async def guardrail(give: Give, _: Path) -> bool:
    return (await looking(guardrails=[lambda: give(lambda step: Halt(1))]).run("Go.")).status == "stopped"


@callback
async def guardrail_that_nudges(give: Give, _: Path) -> bool:
    outcome = await looking(guardrails=[lambda: give(lambda step: Nudge("heard"))]).run("Go.")
    return "heard" in [each.text for each in outcome.messages]


@callback
async def start_of_a_guardrail(give: Give, _: Path) -> bool:
    return (await looking(guardrails=[give(lambda: lambda step: Halt(1))]).run("Go.")).status == "stopped"


@callback
async def output_validator(give: Give, _: Path) -> bool:
    model = ScriptedModel("No.", "Yes.")
    accept = give(lambda run, reply: Accepted() if reply.text == "Yes." else Retry("again"))
    return (await Agent(model, output_validators=[accept]).run("Go.")).text == "Yes."


@callback
async def history_processor(give: Give, _: Path) -> bool:
    model = ScriptedModel("Done.")
    await Agent(model, history_processor=give(lambda messages: [user("heard")])).run("Go.")
    return [each.text for each in model.requests[0].messages] == ["heard"]


@callback
async def watcher(give: Give, _: Path) -> bool:
    heard: list[Any] = []
    agent = Agent(ScriptedModel("Done."), watchers=[give(heard.append)])
    await agent.run("Go.")
    return bool(heard)


@callback
async def watcher_of_a_session(give: Give, _: Path) -> bool:
    heard: list[Any] = []
    session = Agent(ScriptedModel("Done.")).session()
    session.add_watcher(give(heard.append))
    await session.run("Go.")
    return bool(heard)


@callback
async def engine(give: Give, _: Path) -> bool:
    made = give(lambda run: run.outcome("stopped", "heard"))
    plain = await Agent(ScriptedModel("Done."), engine=made).run("Go.")
    layered = await Agent(
        ScriptedModel("Done."), engine=made, middleware=[Middleware(name="m", run=lambda call_next, run: call_next())]
    ).run("Go.")
    typed = await Agent(ScriptedModel("Done."), engine=made).run("Go.", output=str)
    return {each.reason for each in (plain, layered, typed)} == {"heard"}


@callback
async def middleware(give: Give, _: Path) -> bool:
    heard: list[str] = []

    def say(name: str) -> Any:
        def layer(call_next: Callable[[], Any], *rest: Any) -> Any:
            heard.append(name)
            return call_next()

        return layer

    async def settle(layer: Any, *args: Any) -> Any:
        made = layer(*args)
        while hasattr(made, "__await__"):
            made = await made
        return made

    def give_layer(name: str) -> Any:
        if give is make_plain:
            return say(name)
        return lambda *args: settle(give(say(name)), *args)

    layer = Middleware(name="m", run=give_layer("run"), turn=give_layer("turn"), tool=give_layer("tool"))
    outcome = await looking(middleware=[layer]).run("Go.")
    return outcome.status == "done" and set(heard) == {"run", "turn", "tool"}


@callback
async def middleware_that_answers_itself(give: Give, _: Path) -> bool:
    layer = Middleware(name="m", tool=give(lambda _next, _arguments, _context: "heard"))
    return (await looking(middleware=[layer]).run("Go.")).new_messages[2].tool_results[0].text == "heard"


@callback
async def compaction_strategy(give: Give, _: Path) -> bool:
    model = ScriptedModel(*["One."] * 9)
    compaction = Compaction(strategy=give(lambda run, messages: user("heard")))
    session = Agent(model, compaction=compaction).session()
    for prompt in "abcdefgh":
        await session.run(prompt)
    await session.compact()
    await session.run("c")
    return "heard" in [each.text for each in model.requests[-1].messages]


@callback
async def command_handler(give: Give, _: Path) -> bool:
    model = ScriptedModel("Done.")
    await Agent(model, commands=[Command(name="go", handler=give(lambda context: Rewrite("heard")))]).run("/go")
    return model.requests[0].messages[-1].text == "heard"


@callback
async def skill_handler(give: Give, _: Path) -> bool:
    skills = Skills([Skill(name="k", description="d", handler=give(lambda arguments: "heard"))])
    outcome = await Agent(ScriptedModel("Done."), skills=skills).session().skill("k", "x")
    return "heard" in outcome.messages[0].text


@callback
async def skill_resource(give: Give, _: Path) -> bool:
    skill = Skill(name="k", description="d", body="b", resources={"r": Resource(load=give(lambda: "heard"))})
    model = ScriptedModel(call("skill", name="k"), call("skill_resource", skill="k", name="r"), "Done.")
    outcome = await Agent(model, skills=Skills([skill])).run("Go.")
    return any("heard" in result.text for each in outcome.messages for result in each.tool_results)


@callback
async def vault(give: Give, _: Path) -> bool:
    class Own:
        resolve = staticmethod(give(lambda name: "a-secret-value"))

    @tool
    async def measure(key: str) -> str:
        """Measure."""
        return str(len(key))

    model = ScriptedModel(call("measure", key="{{token}}"), "Done.")
    outcome = await Agent(model, tools=[measure], vault=Own()).run("Go.")
    return outcome.new_messages[2].tool_results[0].text == "14"


@callback
async def subagent_factory(give: Give, _: Path) -> bool:
    made = subagent("helper", "d", give(lambda assignment: Agent(ScriptedModel("heard"))))
    model = ScriptedModel(call("helper", task="t"), "Done.")
    outcome = await Agent(model, tools=[made]).run("Go.")
    return outcome.new_messages[2].tool_results[0].text == "heard"


# -- extensions --------------------------------------------------------------------------------------------------------


@callback
async def between_turns(give: Give, _: Path) -> bool:
    heard: list[Any] = []
    await Agent(ScriptedModel("Done."), extensions=[Extension(name="e", between_turns=[give(heard.append)])]).run("Go.")
    return bool(heard)


@callback
async def reminder(give: Give, _: Path) -> bool:
    model = ScriptedModel("Done.")
    errors: list[Any] = []
    agent = Agent(
        model,
        extensions=[Extension(name="e", reminders=[give(lambda run: "heard")])],
        watchers=[lambda entry: errors.append(entry) if "reminder" in str(entry) else None],
    )
    await agent.run("Go.")
    return model.requests[0].messages[-1].text == "heard" or bool(errors)


@callback
async def wrap_model(give: Give, _: Path) -> bool:
    heard: list[Any] = []
    extension = Extension(name="e", wrap_model=give(lambda model: observed(model, lambda *seen: heard.append(seen))))
    await Agent(ScriptedModel("Done."), extensions=[extension]).run("Go.")
    return bool(heard)


@callback
async def wrap_tool(give: Give, _: Path) -> bool:
    extension = Extension(name="e", wrap_tool=give(lambda each: around(each, lambda *args: "heard")))
    return (await looking(extensions=[extension]).run("Go.")).new_messages[2].tool_results[0].text == "heard"


@callback
async def lifespan_of_an_extension(give: Give, _: Path) -> bool:
    heard: list[str] = []

    @contextmanager
    def plain(agent: Any) -> Any:
        heard.append("opened")
        yield
        heard.append("closed")

    @asynccontextmanager
    async def asynchronous(agent: Any) -> Any:
        with plain(agent):
            yield

    for lifespan in (plain, asynchronous):
        await Agent(ScriptedModel("Done."), extensions=[Extension(name="e", lifespan=give(lifespan))]).run("Go.")
    return heard == ["opened", "closed"] * 2


@callback
async def background_of_an_extension(give: Give, _: Path) -> bool:
    class Work:
        has_unfinished_tasks = staticmethod(give(lambda *args: False))
        resume_tasks = staticmethod(give(lambda run: None))
        list_tasks = staticmethod(give(lambda place: ()))
        report_ended_tasks = AsyncMock()

    agent = Agent(ScriptedModel("Done."), extensions=[Extension(name="e", background=Work())])
    return (await agent.run("Go.")).status == "done"


@callback
async def fields_of_an_extension(give: Give, _: Path) -> bool:
    extension = Extension(
        name="e",
        stop=[give(lambda step: False)],
        guardrails=[lambda: give(lambda step: Halt(1))],
        history_processor=give(lambda messages: messages),
    )
    return (await looking(extensions=[extension]).run("Go.")).status == "stopped"


# -- models, stores, displays, configuration ---------------------------------------------------------------------------


@callback
async def observer_of_a_model(give: Give, _: Path) -> bool:
    heard: list[Any] = []
    await Agent(observed(ScriptedModel("Done."), give(lambda request, event: heard.append(event)))).run("Go.")
    failed: list[Any] = []
    await Agent(observed(ScriptedModel(OSError("x")), give(lambda request, event: failed.append(event)))).run("Go.")
    return bool(heard) and bool(failed)


@callback
async def gate_of_a_model(give: Give, _: Path) -> bool:
    heard: list[Any] = []
    await Agent(gated(ScriptedModel("Done."), give(heard.append))).run("Go.")
    return bool(heard)


@callback
async def compaction_of_a_model(give: Give, _: Path) -> bool:
    model = ScriptedModel(ContextOverflow("too long"), "Done.")
    return (await Agent(compacted(model, give(lambda request, error: request))).run("Go.")).status == "done"


@callback
async def jitter_of_retries(give: Give, _: Path) -> bool:
    model = retried(ScriptedModel(ConnectionError("x"), "Done."), jitter=give(lambda: 0.5), clock=FakeClock(auto=True))
    return (await Agent(model).run("Go.")).status in {"done", "failed"}


@callback
async def jitter_of_a_throttle(give: Give, _: Path) -> bool:
    return Throttle(jitter=give(lambda: 0.5)) is not None


@callback
async def provider(give: Give, _: Path) -> bool:
    with mock.patch.dict(registry._factories):
        register("heard", give(lambda name: ScriptedModel("Done.")), replace=True)
        return (await Agent("heard:x").run("Go.")).status == "done"


@callback
async def tap_of_a_transport(give: Give, _: Path) -> bool:
    heard: list[str] = []

    class Tap:
        on_request = staticmethod(give(lambda *args: heard.append("request")))
        on_answer = staticmethod(give(lambda *args: heard.append("answer")))
        on_line = staticmethod(give(lambda *args: heard.append("line")))

    data = b'data: {"choices":[{"delta":{"content":"Rain."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    transport = tapped(CannedTransport(data), Tap())
    model = openai_compatible("http://127.0.0.1:9/v1", "m", api_key="k", transport=transport)
    await Agent(model).run("Go.")
    return set(heard) == {"request", "answer", "line"}


@callback
async def listener_of_a_store(give: Give, _: Path) -> bool:
    heard: set[str] = set()
    names = ("on_append", "on_read", "on_delete", "on_fork")
    listeners = {name: give(lambda *args, name=name: heard.add(name)) for name in names}
    store = listened(MemoryStore(), **listeners)
    session = Agent(ScriptedModel("Done."), store=store).session("s")
    await session.run("Go.")
    await session.fork("t")
    await session.messages()
    await store.delete("t")
    return heard == set(names)


@callback
async def display_adapter(give: Give, _: Path) -> bool:
    heard: list[str] = []

    class Screen:
        show = staticmethod(give(lambda slot: heard.append("show")))
        close = staticmethod(give(lambda slot_id: heard.append("close")))
        ask = staticmethod(give(lambda slot: True))

    session = Agent(ScriptedModel()).session("s")
    async with session.display.connect(Screen()):
        return await session.display.ask(Confirm("Sure?")) is True and "show" in heard


@callback
async def report_of_the_watchdog(give: Give, _: Path) -> bool:
    return (await looking(extensions=[loop_watchdog(report=give(lambda blocked: None))]).run("Go.")).status == "done"


@callback
async def lookup_of_skills(give: Give, _: Path) -> bool:
    applied = await apply_directives(user("/k"), skill_text=lambda *args: "heard", has_skill=give(lambda name: False))
    return "heard" not in str(applied.messages)


@callback
async def trust_of_a_configuration(give: Give, folder: Path) -> bool:
    file = folder / "perdure.toml"
    file.write_text('model = "demo"\n')
    try:
        load_config(file, trusted=give(lambda digest: False))
    except ConfigError:
        return True
    return False


@callback
async def trust_of_mcp_servers(give: Give, folder: Path) -> bool:
    file = folder / "mcp.json"
    file.write_text('{"mcpServers": {"a": {"command": "x"}}}')
    try:
        load_mcp_servers(file, trusted=give(lambda digest: False))
    except ConfigError:
        return True
    return False


@callback
async def overrides_of_a_worker(give: Give, folder: Path) -> bool:
    store = MemoryStore()
    agent = Agent(ScriptedModel("Done."), store=store)
    heard: list[str] = []
    await agent.session("s").follow_up("Go.")

    def choose_overrides(name: str) -> dict[str, Any]:
        heard.append(name)
        return {}

    async with aclosing(agent.attend_all(overrides_for=give(choose_overrides))) as outcomes:
        async for _ in outcomes:
            break
    return heard == ["s"]


@pytest.mark.parametrize("form", [make_plain, make_async, make_async_partial, make_async_object, make_hidden_async])
@pytest.mark.parametrize("use", CALLBACKS.values(), ids=CALLBACKS.keys())
@pytest.mark.filterwarnings("error::RuntimeWarning", "error::pytest.PytestUnraisableExceptionWarning")
async def test_a_function_works_plain_and_async_or_is_refused_at_once(use, form, tmp_path):
    async with asyncio.timeout(SECONDS):
        try:
            assert await use(form, tmp_path), "it was taken, and not heard"
        except ConfigError:
            assert form is not make_plain
