"""Tools that other tools add: how long they last, and where they are found again."""

import sys
from typing import Any

import msgspec
import pytest

from perdure import Agent, ConfigError, Extension, Limits, Permissions, Status, Tool, ToolContext, tool
from perdure._core.values.event import ADDED_TOOLS_NAME
from perdure.events import ToolFinished, ValueKept
from perdure.permissions import later
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call, calls
from perdure.tools import after
from tests.doubles import crashed, log_of, of

pytestmark = pytest.mark.resumed

DONE: list[str] = []


@tool(permission=True, effect="at_most_once")
async def deploy(place: str) -> str:
    """Deploy."""
    DONE.append(place)
    return f"deployed to {place}"


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


@pytest.fixture(autouse=True)
def _nothing_done():
    DONE.clear()


def unlocking(*tools: Tool[..., Any] | str, **options: Any) -> Tool[..., Any]:
    """A tool that adds these."""

    @tool
    async def unlock(context: ToolContext) -> str:
        """Unlock more tools."""
        context.add_tools(*tools, **options)
        return "unlocked"

    return unlock


def offered(model: ScriptedModel, number: int = -1) -> list[str]:
    return [spec.name for spec in model.requests[number].tools]


def results(log: list[Any]) -> list[tuple[str, Status]]:
    return [(each.name, each.result.status) for each in of(log, ToolFinished)]


async def test_an_added_tool_is_there_after_a_question():
    model = ScriptedModel(call("unlock"), call("deploy", place="prod"), "Done.")
    agent = Agent(model, tools=[unlocking(deploy)], permission=Permissions(handler=later))
    session = agent.session("s")
    outcome = await session.run("Deploy.")
    assert (outcome.status, DONE) == ("waiting", [])
    assert await session.answer(outcome.questions[0].ask_id, True)
    outcome = await agent.session("s").resume()
    assert (outcome.status, DONE) == ("done", ["prod"])


async def test_an_added_tool_is_there_when_its_reply_had_a_question_beside_it():
    model = ScriptedModel(calls(call("unlock"), call("guarded")), call("look"), "Done.")

    @tool(permission=True)
    async def guarded() -> str:
        """Needs permission."""
        return "fine"

    agent = Agent(model, tools=[unlocking(look), guarded], permission=Permissions(handler=later))
    outcome = await agent.session("s").run("Go")
    await agent.session("s").answer(outcome.questions[0].ask_id, True)
    assert (await agent.session("s").resume()).status == "done"
    assert offered(model) == ["unlock", "guarded", "look"]


async def test_an_added_tool_is_there_in_another_process_after_a_crash():
    first = Agent(ScriptedModel(call("unlock"), "Done."), tools=[unlocking(look)])
    await first.session("s").run("Go")
    log = await log_of(first.store, "s")
    place = next(number for number, event in enumerate(log) if isinstance(event, ToolFinished))
    assert isinstance(log[place - 1], ValueKept)  # in the same append as the result of the call that added it
    store = open_store("memory:")
    await crashed(store, "s", *log[: place + 1])
    model = ScriptedModel(call("look"), "Done.")
    agent = Agent(model, tools=[unlocking(look)], store=store)
    assert (await agent.session("s").resume()).status == "done"
    assert results(await log_of(store, "s"))[-1] == ("look", Status.OK)


@pytest.mark.parametrize(("scope", "names"), [("run", ["unlock"]), ("session", ["unlock", "look"])])
async def test_an_added_tool_lasts_for_the_run_or_for_the_session(scope, names):
    model = ScriptedModel(call("unlock"), "Done.", "Done.")
    agent = Agent(model, tools=[unlocking(look, scope=scope)])
    await agent.session("s").run("Go")
    await agent.session("s").run("Again")
    assert (offered(model, 1), offered(model)) == (["unlock", "look"], names)


async def test_tools_of_a_session_stay_when_a_later_run_adds_another():
    @tool
    async def more(context: ToolContext) -> str:
        """Adds another."""
        context.add_tools(deploy, scope="session")
        return "more"

    model = ScriptedModel(call("unlock"), "Done.", call("more"), "Done.", "Done.")
    agent = Agent(model, tools=[unlocking(look, scope="session"), more])
    for _ in range(3):
        await agent.session("s").run("Go")
    assert offered(model) == ["unlock", "more", "look", "deploy"]


async def test_spare_tools_are_added_by_name_whatever_they_are_made_of():
    port = 8080

    @tool
    async def connect() -> str:
        """Connects."""
        return f"port {port}"

    def build(model: ScriptedModel, store: Any) -> Agent[Any]:
        return Agent(model, tools=[unlocking("connect", scope="session")], spare_tools=[connect], store=store)

    first = ScriptedModel(call("unlock"), call("connect"), "Done.")
    agent = build(first, "memory:")
    outcome = await agent.session("s").run("Go")
    assert (offered(first, 0), outcome.messages[4].tool_results[0].text) == (["unlock"], "port 8080")
    second = ScriptedModel("Done.")
    await build(second, agent.store).session("s").run("Again")
    assert offered(second) == ["unlock", "connect"]


async def test_a_tool_that_could_not_be_found_again_is_refused_when_it_is_added():
    @tool
    async def local() -> str:
        """Exists here only."""
        return "here"

    for lost in (local, after(look, lambda _, result: result), msgspec.structs.replace(look, name="other")):
        model = ScriptedModel(call("unlock"), "Done.")
        outcome = await Agent(model, tools=[unlocking(lost)]).run("Go")
        (result,) = outcome.messages[2].tool_results
        assert result.status is Status.ERROR
        assert "could not be found again after a restart" in result.text
        assert "spare_tools" in result.text
        assert offered(model) == ["unlock"]


@pytest.mark.in_memory("a tool that lasts as long as the process")
async def test_a_tool_may_be_added_for_as_long_as_the_process_has_the_run():
    @tool
    async def local() -> str:
        """Exists here only."""
        return "here"

    model = ScriptedModel(call("unlock"), call("local"), "Done.", "Done.")
    agent = Agent(model, tools=[unlocking(local, scope="process")])
    outcome = await agent.session("s").run("Go")
    assert outcome.messages[4].tool_results[0].text == "here"
    await agent.session("s").run("Again")
    assert offered(model) == ["unlock"]
    assert not of(await log_of(agent.store, "s"), ValueKept)


@pytest.mark.parametrize(
    ("tools", "options", "said"),
    [
        (("lok",), {}, "no spare tool has this name; did you mean 'look'"),
        ((look,), {"scope": "day"}, "scope='day'"),
    ],
)
async def test_what_cannot_be_added_is_told(tools, options, said):
    outcome = await Agent(
        ScriptedModel(call("unlock"), "Done."), tools=[unlocking(*tools, **options)], spare_tools=[look]
    ).run("Go")
    assert said in outcome.messages[2].tool_results[0].text


def test_a_spare_tool_cannot_have_the_name_of_one_that_is_offered():
    with pytest.raises(ConfigError, match="two tools are called 'look'"):
        Agent("demo", tools=[look], spare_tools=[look])
    with pytest.raises(ConfigError, match="is not a tool"):
        Agent("demo", spare_tools=[5])  # type: ignore[list-item]


async def test_limits_may_allow_a_spare_tool_and_forbid_another():
    model = ScriptedModel(call("unlock"), "Done.")
    limits = Limits(allowed_tools=("unlock", "look"))
    agent = Agent(model, tools=[unlocking("look", "deploy")], spare_tools=[look, deploy], limits=limits)
    await agent.run("Go")
    assert offered(model) == ["unlock", "look"]


async def test_an_added_tool_is_wrapped_again_like_any_other():
    def loud(each: Tool[..., Any]) -> Tool[..., Any]:
        return after(each, lambda _, result: msgspec.structs.replace(result, summary="loud"))

    model = ScriptedModel(call("unlock"), "Done.", call("look"), "Done.")
    extension = Extension(name="loud", wrap_tool=loud)
    agent = Agent(model, tools=[unlocking(look, scope="session")], extensions=[extension])
    await agent.session("s").run("Go")
    await agent.session("s").run("Again")
    log = await log_of(agent.store, "s")
    assert [each.result.summary for each in of(log, ToolFinished) if each.name == "look"] == ["loud"]


async def test_a_tool_that_is_gone_from_the_code_is_left_out_with_a_warning(caplog, monkeypatch):
    model = ScriptedModel(call("unlock"), "Done.", "Done.")
    agent = Agent(model, tools=[unlocking(look, scope="session")])
    await agent.session("s").run("Go")
    monkeypatch.delattr(sys.modules[__name__], "look")
    await agent.session("s").run("Again")
    assert offered(model) == ["unlock"]
    assert "the tool 'look' that was added to the session is not there any more" in caplog.text


async def test_a_tool_that_the_agent_has_got_since_is_not_offered_twice():
    model = ScriptedModel(call("unlock"), "Done.", "Done.")
    agent = Agent(model, tools=[unlocking(look, scope="session")])
    await agent.session("s").run("Go")
    await agent.replace(tools=[look]).session("s").run("Again")
    assert offered(model) == ["look"]


async def test_what_was_erased_on_request_is_no_tool():
    model = ScriptedModel("Done.")
    agent = Agent(model, tools=[look])
    await crashed(agent.store, "s", ValueKept(ADDED_TOOLS_NAME, [{"name": 5}]))
    await agent.session("s").run("Go")
    assert offered(model) == ["look"]
