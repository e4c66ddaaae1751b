"""What a tool is given while it carries out a call."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from perdure import Agent, ConfigError, Grant, NotAnswered, Permissions, ToolContext, allow, ask, deny, tool
from perdure._core.permission.inherited import restrict_gate
from perdure.events import Custom, ToolProgress, ToolStarted, ValueKept
from perdure.permissions import Grants, PathTarget, TextTarget, Verdict, allow_all, path
from perdure.stores import MemoryStore
from perdure.testing import Recorder, ScriptedModel, call
from tests.doubles import log_of, of

pytestmark = pytest.mark.resumed


async def inside(body: Callable[[ToolContext[Any]], Awaitable[Any]], *before: Any, **options: Any) -> Any:
    """What a function returns that is given the context of a call."""
    returned: list[Any] = []

    @tool
    async def act(context: ToolContext[Any]) -> str:
        """Act."""
        returned.append(await body(context))
        return "done"

    tools = [act, *options.pop("tools", ())]
    outcome = await Agent(ScriptedModel(*before, call("act"), "Done."), tools=tools, **options).session("s").run("Go")
    assert outcome.status == "done", outcome
    return returned[0] if returned else outcome.new_messages[-2].tool_results[0].text


async def test_a_tool_can_put_an_event_of_its_own_into_the_log():
    store = MemoryStore()
    await inside(lambda context: context.record(Custom("tide", {"at": "16:40"})), store=store)
    (event,) = of(await log_of(store, "s"), Custom)
    assert (event.name, event.data, bool(event.run_id)) == ("tide", {"at": "16:40"}, True)


async def test_what_is_no_event_is_refused():
    async def body(context: ToolContext[Any]) -> str:
        with pytest.raises(ConfigError, match="give an event"):
            await context.record("tide")  # type: ignore[arg-type] # wrong on purpose
        return "refused"

    assert await inside(body) == "refused"


async def test_what_a_tool_keeps_is_there_for_later_calls_and_for_others():
    async def body(context: ToolContext[Any]) -> list[Any]:
        before = context.kept("log", "nothing")
        await context.keep("log", ["set sail"])
        with pytest.raises(ConfigError, match="name=''"):
            await context.keep("", 1)
        return [before, context.kept("log")]

    store = MemoryStore()
    assert await inside(body, store=store) == ["nothing", ["set sail"]]
    assert [each.value for each in of(await log_of(store, "s"), ValueKept)] == [["set sail"]]
    assert await Agent("demo", store=store).session("s").kept("log") == ["set sail"]


async def test_the_result_of_an_earlier_call_can_be_read():
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "land"

    async def body(context: ToolContext[Any]) -> list[Any]:
        found = [context.result_of(call_id) for call_id in ("call_1", "call_2", "nobody")]
        return [each and each.text for each in found]

    assert await inside(body, call("look"), call("look"), tools=[look]) == ["land", "land", None]


async def test_a_tool_that_does_not_ask_first_has_begun_already():
    store = MemoryStore()

    async def body(context: ToolContext[Any]) -> bool:
        await context.begin()
        return context.can_restart

    assert await inside(body, store=store) is False
    assert len(of(await log_of(store, "s"), ToolStarted)) == 1


async def test_without_a_compaction_nothing_is_summed_up():
    assert await inside(lambda context: context.compact()) is False


async def test_whatever_it_shows_or_keeps_passes_its_scrubber():
    recorder = Recorder()

    async def body(context: ToolContext[Any]) -> Any:
        context.redact_secrets = lambda value: str(value).replace("secret", "***")
        context.emit("a secret")
        await context.keep("note", "my secret")
        return context.kept("note")

    assert await inside(body, watchers=[recorder]) == "my ***"
    assert [each.data for each in recorder.of(ToolProgress)] == ["a ***"]


async def test_names_of_the_runtime_itself_are_refused():
    async def body(context: ToolContext[Any]) -> str:
        await context.keep("agent:mood", "fine")
        with pytest.raises(ConfigError, match="begin with 'perdure:' are the runtime's"):
            await context.keep("perdure:agent:scout", "mine")
        return str(context.kept("agent:mood"))

    assert await inside(body) == "fine"


def hidden_by(*rules: Any, **options: Any) -> Any:
    async def body(context: ToolContext[Any]) -> list[bool]:
        paths = [PathTarget(f"/p/{name}", "/p") for name in ("src/a", "private/b", "c.key")]
        return [context.hides_paths, *[context.may_show(each) for each in paths]]

    return inside(body, permission=Permissions(*rules, **options))


async def test_a_tool_learns_which_paths_rules_deny_or_ask_about():
    async def without_gate(context: ToolContext[Any]) -> list[bool]:
        return [context.hides_paths, context.may_show(PathTarget("/p/a", "/p"))]

    assert await inside(without_gate) == [False, True]
    assert await hidden_by(allow("*"), ask("other")) == [False, True, True, True]
    assert await hidden_by(deny(target=path("private/**"))) == [True, True, False, True]
    assert await hidden_by(deny(target="*.key"), ask(target=path("private/**"))) == [True, True, False, False]
    assert await hidden_by(deny("other", target=path("private/**"))) == [True, True, True, True]

    def person(requests: Any) -> Any:
        return [Verdict(allow=True) for _ in requests]

    asked = ask("act"), deny(target=path("private/**"))
    assert await hidden_by(*asked, handler=person) == [True, True, False, True]
    grants = Grants([Grant("forever", allow=False, tool="act", target="*.key", target_kind="path")])
    assert await hidden_by(allow("*"), grants=grants) == [True, True, True, False]


async def test_a_gate_that_is_a_function_hides_no_path_and_one_above_does():
    async def body(context: ToolContext[Any]) -> list[bool]:
        return [context.hides_paths, context.may_show(PathTarget("/p/private/b", "/p"))]

    assert await inside(body, permission=allow_all) == [False, True]
    above = restrict_gate(allow_all, Permissions(deny(target=path("private/**"))))
    assert await inside(body, permission=above) == [True, False]


async def test_a_tool_that_asks_first_can_be_made_again_until_it_begins():
    seen: list[bool] = []

    @tool(asks_first=True)
    async def act(context: ToolContext[Any]) -> str:
        """Act."""
        seen.append(context.can_restart)
        await context.begin()
        seen.append(context.can_restart)
        return "done"

    await Agent(ScriptedModel(call("act"), "Done."), tools=[act]).run("Go")
    assert seen == [True, False]


async def test_a_tool_knows_its_target_and_whether_exactly_this_call_was_allowed():
    seen: list[tuple[Any, bool]] = []

    @tool(target="to", permission=lambda arguments: arguments["to"] == "a")
    async def send(to: str, context: ToolContext[Any]) -> str:
        """Send."""
        seen.append((context.target, context.is_approved))
        return to

    @tool
    async def note(context: ToolContext[Any]) -> str:
        """Note."""
        seen.append((context.target, context.is_approved))
        return "noted"

    script = (call("send", to="a"), call("send", to="b"), call("note"), "Done.")
    await Agent(ScriptedModel(*script), tools=[send, note], permission=Permissions(handler=allow_all)).run("Go")
    assert [(str(target), approved) for target, approved in seen] == [("a", True), ("b", True), ("None", True)]
    seen.clear()
    await Agent(ScriptedModel(call("note"), call("send", to="b"), "Done."), tools=[send, note]).run("Go")
    assert seen == [(None, False), (TextTarget("b"), False)]


async def test_a_context_without_a_call_has_nobody_to_ask():
    alone: ToolContext[Any] = ToolContext(cast("Any", None), "c", "t")
    with pytest.raises(NotAnswered, match="while a run carries out the call"):
        await alone.ask("Which port?")
