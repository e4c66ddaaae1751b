"""An agent, its options and its tools, as Glove's reference describes `Glove`, `GloveConfig` and `GloveFoldArgs`."""

import asyncio
import json
from typing import Annotated, Any

import pydantic
import pytest
from msgspec import Struct

from perdure import (
    Agent,
    BadConfig,
    Extension,
    Image,
    Limits,
    Permissions,
    Session,
    Status,
    Text,
    ToolContext,
    ToolError,
    ToolOutput,
    allow,
    deny,
    load_config,
    tool,
)
from perdure.context import (
    Command,
    Compaction,
    Rewrite,
    ShortCircuit,
    Skill,
    Skills,
    load_skills_from,
    summarize_old_results,
)
from perdure.events import Compacted, ViewChanged
from perdure.people import Confirm, PlainText
from perdure.permissions import allow_all, later
from perdure.testing import FakeClock, Recorder, ScriptedModel, call, calls
from perdure.tools import subagent, tool_from_schema
from tests.coming_from.glove.slots import wait_for_slots
from tests.coming_from.outcomes import results_of
from tests.coming_from.shows import shows
from tests.doubles import SECONDS, Held


@tool(effect="read")
async def get_weather(city: str) -> str:
    """Get weather for a city."""
    return f"Rain in {city}."


@shows(
    "glove",
    "Glove",
    "IGloveRunnable",
    "Glove.config",
    "Glove.processRequest",
    "Glove.model",
    "GloveConfig",
    "GloveConfig.store",
    "GloveConfig.model",
    "GloveConfig.systemPrompt",
    "glove-core",
)
async def test_a_request_is_sent_to_an_agent_and_answered(disk_store):
    model = ScriptedModel(call("get_weather", city="Tokyo"), "Take an umbrella.", "A cat.", "Hello.")
    agent = Agent(model, instructions="You are helpful.", tools=[get_weather], store=disk_store)
    session = agent.session("session-1")
    outcome = await session.run("What is the weather in Tokyo?")
    assert (outcome.text, agent.model) == ("Take an umbrella.", model)
    assert [request.instructions for request in model.requests] == ["You are helpful."] * 2
    picture = Image(data=b"\x89PNG", media_type="image/png")
    assert (await session.run([Text("What is this?"), picture])).text == "A cat."
    assert model.requests[2].messages[-1].parts == (Text("What is this?"), picture)
    await agent.session("session-2").run("Hi")
    assert [len(request.messages) for request in model.requests] == [1, 3, 5, 1]
    assert {info.session_id for info in await disk_store.list()} == {"session-1", "session-2"}


@shows("glove", "GloveConfig.store")
@pytest.mark.parametrize("scheme", ["file", "sqlite"])
async def test_a_store_on_disk_keeps_a_session_for_the_next_process(scheme, tmp_path):
    address = f"{scheme}:{tmp_path / 'kept'}"
    first = Agent(ScriptedModel("One."), store=address)
    await first.session("s").run("Hello")
    await first.store.aclose()
    second = Agent(ScriptedModel(), store=address)
    assert [each.text for each in await second.session("s").messages()] == ["Hello", "One."]
    await second.store.aclose()


@shows("glove", "IGloveRunnable", "StoreAdapter.identifier")
async def test_a_conversation_is_forked_and_searched(disk_store):
    session = Agent(ScriptedModel("Rain in Tokyo."), store=disk_store).session("session-1")
    await session.run("Weather?")
    copy = Agent(ScriptedModel("Then stay."), store=disk_store).session((await session.fork("session-2")).session_id)
    await copy.run("I have no umbrella.")
    assert [len(await each.messages()) for each in (session, copy)] == [2, 4]
    assert [hit.session_id for hit in await session.search("tokyo")] == ["session-1"]
    assert [hit.session_id for hit in await copy.agent.search("umbrella")] == ["session-2"]


@shows("glove", "GloveConfig.store", "Glove.processRequest")
async def test_without_a_store_a_session_is_in_memory_and_a_repeated_request_is_answered_once():
    model = ScriptedModel("One.", "Two.")
    session = Agent(model).session("s")
    first = await session.run("Count.", input_id="message-1")
    again = await session.run("Count.", input_id="message-1")
    assert (first.text, again.text, len(model.requests)) == ("One.", "One.", 1)
    assert [event async for event in session.stream("Count on.")]
    assert [each.text for each in await session.messages()] == ["Count.", "One.", "Count on.", "Two."]


@shows("glove", "GloveConfig")
def test_options_are_read_from_a_file_with_errors_that_name_the_line(tmp_path):
    file = tmp_path / "perdure.toml"
    file.write_text('model = "demo"\ninstructions = "Be brief."\n')
    assert load_config(file, trusted=True).agent().instructions == "Be brief."
    file.write_text('model = "demo"\ninstrutcions = "Be brief."\n')
    with pytest.raises(BadConfig, match=r"perdure\.toml:2"):
        load_config(file, trusted=True).agent()


@shows("glove", "Glove.fold", "GloveFoldArgs.do")
async def test_tools_are_folded_at_any_time():
    @tool(effect="read")
    async def unlock(context: ToolContext[Any]) -> str:
        """Unlock the others."""
        context.add_tools("vault")
        return "unlocked"

    vault = tool_from_schema("vault", "The vault.", {"type": "object"}, lambda _: "gold", effect="read")
    model = ScriptedModel(call("unlock"), call("vault"), "Rich.", "Plain.", "More.", "Less.")
    session = Agent(model, tools=[unlock], spare_tools=[vault]).session("s")
    outcome = await session.run("Open it.")
    assert [each.text for each in results_of(outcome)] == ["unlocked", "gold"]
    session.extend(Extension(name="weather", tools=[get_weather]))
    await session.run("And now?")
    extra = tool_from_schema("extra", "Once.", {"type": "object"}, lambda _: "", effect="read")
    await session.run("And now?", tools=[extra])
    assert session.remove_extension("weather")
    await session.run("And now?")
    offered = [[each.name for each in request.tools] for request in model.requests]
    assert offered == [
        ["unlock"],
        ["unlock", "vault"],
        ["unlock", "vault"],
        ["unlock", "get_weather"],
        ["extra"],
        ["unlock"],
    ]


async def be_loud(context) -> Rewrite:
    return Rewrite(context.text.replace("[/loud]", "").strip().upper())


@shows("glove", "Glove.defineHook", "AgentControls", "AgentControls.forceCompaction")
async def test_a_hook_runs_before_the_model_and_controls_the_session():
    seen: dict[str, Any] = {}

    async def compact(context) -> ShortCircuit:
        seen["session"] = context.controls
        return ShortCircuit(f"Compacted: {await context.controls.compact()}.")

    model = ScriptedModel("Long. " * 2_000, "A summary.", "HELLO.")
    agent = Agent(model, commands=[Command("compact", compact)], compaction=Compaction(keep_recent_messages=0))
    session = agent.session("s")
    watched = Recorder()
    session.add_watcher(watched)
    await session.run("Tell me. " * 1_000)
    assert (await session.run("/compact")).text == "Compacted: True."
    assert isinstance(seen["session"], Session)
    assert seen["session"].session_id == "s"
    assert len(watched.of(Compacted)) == 1
    session.extend(Extension(name="loud", commands=[Command("loud", be_loud)]))
    await session.run("/loud hello")
    assert model.requests[-1].messages[-1].text == "HELLO"


@shows("glove", "Glove.defineSkill", "Glove.defineSubAgent")
async def test_skills_and_subagents_are_defined_on_the_agent_or_on_a_live_session():
    rhyme = Skill(name="rhyme", description="Rhymes.", body="Answer in rhyme.")
    brief = Skill(name="brief", description="Brevity.", body="Answer in one word.")
    helper = Agent(ScriptedModel("Helped.", "Helped twice."), name="helper", description="Helps.")
    model = ScriptedModel(
        "A rhyme.", "Word.", call("helper", task="Help."), "Done.", call("late", task="Help."), "Done."
    )
    session = Agent(model, skills=Skills([rhyme]), tools=[helper.as_tool()]).session("s")
    await session.run("/rhyme about rain")
    assert "Answer in rhyme." in "".join(each.text for each in model.requests[0].messages)
    session.extend(
        Extension(name="more", skills=[brief], tools=[subagent("late", "Helps late.", lambda _: helper)]),
    )
    await session.run("/brief about rain")
    assert "Answer in one word." in "".join(each.text for each in model.requests[1].messages)
    assert results_of(await session.run("Ask for help."))[0].text == "Helped."
    assert results_of(await session.run("Ask for help late."))[0].text == "Helped twice."


class Order(Struct):
    """What a shop is asked for."""

    item: str
    count: int = 1


@shows("glove", "Glove.defineSubAgent", "glove_invoke_subagent")
async def test_a_subagent_has_typed_input_and_output_and_inherits_permission_and_budget():
    @tool(permission=True)
    async def charge() -> str:
        """Charge a card."""
        return "charged"

    inner = ScriptedModel(call("charge"), call("final_answer", item="rope", count=3))
    shop = Agent(inner, tools=[charge], permission=allow_all)
    order = shop.as_tool(name="shop", description="Sells.", input=Order, output=Order)
    assert set(order.parameters.json_schema["properties"]) == {"item", "count"}
    model = ScriptedModel(call("shop", item=5), call("shop", item="rope", count=3), "Bought.")
    outcome = await Agent(model, tools=[order], permission=Permissions(deny("charge"), allow())).run("Buy rope.")
    wrong, bought = results_of(outcome)
    assert wrong.is_error
    assert json.loads(bought.text) == {"item": "rope", "count": 3}
    assert inner.requests[1].messages[-1].tool_results[0].status is Status.DENIED
    spender = Agent(ScriptedModel(*[call("get_weather", city=f"{number}") for number in range(9)]), tools=[get_weather])
    outer = ScriptedModel(call("spend", task="Spend."), "Done.")
    limited = Agent(outer, tools=[spender.as_tool(name="spend")], limits=Limits(token_budget=60))
    stopped = await limited.run("Go")
    assert (stopped.status, stopped.reason) == ("limit", "token_budget")
    assert stopped.usage.total_tokens < 90


@shows("glove", "Glove.addSubscriber", "Glove.removeSubscriber", "UnsubscribeFn")
async def test_a_subscriber_gets_every_event_until_it_is_removed_and_cannot_break_a_run():
    own, live, once = Recorder(), Recorder(), Recorder()

    def broken(entry) -> None:
        raise RuntimeError("the screen is gone")

    session = Agent(ScriptedModel("One.", "Two."), watchers=[own, broken]).session("s")
    remove = session.add_watcher(live)
    subscription = session.subscribe()
    assert (await session.run("Go", watchers=[once])).status == "done"
    remove()
    async with asyncio.timeout(SECONDS):
        assert (await anext(aiter(subscription))).event.run_id
    subscription.close()
    assert (await session.run("Go")).text == "Two."
    await session.aclose()
    assert [each.kinds.count("run_ended") for each in (own, live, once)] == [2, 1, 1]


@shows("glove", "Glove.setModel", "Glove.setSystemPrompt", "Glove.getSystemPrompt")
async def test_the_model_and_the_system_prompt_are_changed_for_a_session_or_for_one_run():
    first, second, third = ScriptedModel("1", "1 again"), ScriptedModel("2"), ScriptedModel("3")
    agent = Agent(first, instructions="Be brief.", extensions=[Extension(name="pirate", instructions="Say arr.")])
    session = agent.session("s")
    assert (await session.run("Go")).text == "1"
    await session.configure(model=second, instructions="Be long.")
    assert await session.instructions() == "Be long.\n\nSay arr."
    assert (await session.run("Go")).text == "2"
    assert second.requests[0].instructions == await agent.session("s").instructions()
    assert (await session.run("Go", model=third, instructions="Be kind.")).text == "3"
    assert third.requests[0].instructions.startswith("Be kind.")
    await session.configure(model="", instructions="")
    assert (await session.run("Go")).text == "1 again"
    assert first.requests[-1].instructions == "Be brief.\n\nSay arr."


@tool(permission=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@shows("glove", "Glove.serverMode", "GloveConfig.serverMode")
async def test_without_people_nobody_is_asked_and_what_needs_permission_is_denied():
    asked = Agent(ScriptedModel(call("pay", amount=5), "Paid."), tools=[pay], permission=Permissions(handler=later))
    assert asked.interactive
    assert (await asked.session("s").run("Pay.")).status == "waiting"
    alone = asked.replace(model=ScriptedModel(call("pay", amount=5), "Not paid."), interactive=False)
    assert not alone.interactive
    outcome = await alone.session("t").run("Pay.")
    assert (outcome.status, results_of(outcome)[0].status) == ("done", Status.DENIED)


@shows("glove", "GloveConfig.maxRetries", "Executor.MAX_RETRIES")
async def test_a_failing_tool_is_retried_only_if_it_may_run_twice():
    attempts: list[str] = []

    @tool(effect="read", retries=2)
    async def flaky() -> str:
        """Fail twice."""
        attempts.append("read")
        if len(attempts) < 3:
            raise ToolError("not yet")
        return "now"

    @tool(effect="at_most_once", retries=2)
    async def charge() -> str:
        """Charge a card."""
        attempts.append("charge")
        raise ToolError("declined")

    model = ScriptedModel(call("flaky"), call("charge"), "Done.")
    outcome = await Agent(model, tools=[flaky, charge], clock=FakeClock(auto=True)).run("Go")
    assert [each.text for each in results_of(outcome)] == ["now", "declined"]
    assert attempts == ["read", "read", "read", "charge"]


@shows("glove", "GloveConfig.compaction_config")
async def test_compaction_is_configured_on_the_agent_and_is_optional():
    model = ScriptedModel("Long. " * 500, "The summary.", "Short.")
    session = Agent(model, compaction=Compaction(at_turns=1, instructions="Sum it up.")).session("s")
    await session.run("Tell me. " * 500)
    assert (await session.run("Go on.")).text == "Short."
    assert "Sum it up." in str(model.requests[1])
    assert "The summary." in model.requests[2].messages[0].text
    assert Agent(model).compaction is None


@shows(
    "glove",
    "GloveConfig.enableToolResultSummary",
    "GloveFoldArgs.generateToolSummary",
    "PromptMachine.enableToolResultSummary",
    "PromptMachine.summarizeOlderToolResults",
    "ToolResultData.summary",
    "Tool.generateSummary",
)
async def test_older_results_are_sent_as_their_summaries_and_stay_whole_in_the_log():
    async def describe(result) -> str:
        return f"Read {result.text.count('line')} lines."

    @tool(effect="read", summary=describe)
    async def read_file(path: str) -> str:
        """Read a file."""
        return "line\n" * 500

    @tool(effect="read")
    async def read_page(url: str) -> ToolOutput:
        """Read a page."""
        return ToolOutput("word " * 500, summary=f"Read {url}.")

    model = ScriptedModel(
        call("read_file", path="a"), call("read_page", url="b"), "Read.", call("read_file", path="c"), "Read again."
    )
    short = Extension(name="short", between_turns=[summarize_old_results(min_tokens=1, min_fraction=0)])
    session = Agent(model, tools=[read_file, read_page], extensions=[short]).session("s")
    await session.run("Read a and b.")
    await session.run("Read c.")

    def sent(number: int) -> list[str]:
        return [result.text for message in model.requests[number].messages for result in message.tool_results]

    assert sent(2) == ["line\n" * 500, "word " * 500]
    assert sent(4) == ["Read 500 lines.", "Read b.", "line\n" * 500]
    changes = [entry.event for entry in await session.store.read("s") if isinstance(entry.event, ViewChanged)]
    assert [(each.cause, each.upto) for each in changes] == [("summaries", 6)]
    stored = [result for message in await session.messages() for result in message.tool_results]
    assert [len(result.text) for result in stored] == [2500, 2500, 2500]
    assert [result.summary for result in stored] == ["Read 500 lines.", "Read b.", "Read 500 lines."]
    plain = Agent(ScriptedModel("Fine."), tools=[read_file, read_page], store=session.store).session("s")
    assert read_file.summary is describe
    assert (await plain.run("And?")).text == "Fine."


@shows(
    "glove",
    "GloveFoldArgs",
    "GloveFoldArgs.name",
    "GloveFoldArgs.description",
    "GloveFoldArgs.inputSchema",
    "GloveFoldArgs.jsonSchema",
    "Tool",
    "Tool.name",
    "Tool.description",
    "Tool.input_schema",
    "Tool.jsonSchema",
    "Tool.run",
    "Executor.tools",
    "Executor.registerTool",
)
async def test_a_tool_has_a_name_a_description_and_a_schema_that_its_arguments_are_checked_against():
    @tool(name="read_lines", description="Read a slice.", effect="read")
    async def read(path: str, start: Annotated[int, "The first line."] = 1) -> str:
        return f"{path} from {start}"

    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    bridged = tool_from_schema("search", "Search.", schema, lambda arguments: f"found {arguments['q']}", effect="read")
    assert (get_weather.name, get_weather.description) == ("get_weather", "Get weather for a city.")
    assert (read.name, read.description) == ("read_lines", "Read a slice.")
    assert read.parameters.json_schema["properties"]["start"]["description"] == "The first line."
    assert bridged.parameters.json_schema == schema
    model = ScriptedModel(
        call("read_lines", path=1, start="x"), call("read_lines", path="a"), call("search"), call("search", q="b"), "."
    )
    agent = Agent(model, tools=[read, bridged])
    assert [each.name for each in agent.toolbox] == ["read_lines", "search"]
    assert agent.toolbox.with_tools([get_weather]).get("get_weather") is get_weather
    wrong, right, empty, found = results_of(await agent.run("Go"))
    assert (wrong.is_error, "path" in wrong.text, "start" in wrong.text) == (True, True, True)
    assert right.text == "a from 1"
    assert (empty.is_error, "q" in empty.text) == (True, True)
    assert found.text == "found b"


@shows("glove", "GloveFoldArgs.requiresPermission", "Tool.requiresPermission")
async def test_a_tool_that_needs_permission_is_asked_about_first():
    @tool(permission=lambda arguments: arguments["amount"] > 10)
    async def spend(amount: int) -> str:
        """Spend money."""
        return f"spent {amount}"

    assert (pay.permission, get_weather.permission) == (True, False)
    model = ScriptedModel(call("spend", amount=5), call("spend", amount=50), call("pay", amount=1), "Done.")
    outcome = await Agent(model, tools=[spend, pay]).run("Go")
    assert [each.status for each in results_of(outcome)] == [Status.OK, Status.DENIED, Status.DENIED]


class Stay(pydantic.BaseModel):
    """A stay in a city."""

    city: str
    nights: int = pydantic.Field(gt=0)


@shows("glove", "GloveFoldArgs.inputSchema", "GloveFoldArgs.requiresPermission")
async def test_parameters_may_be_pydantic_models_and_rules_see_the_target_of_a_call():
    @tool(effect="read", action="book", target="hotel")
    async def book(hotel: str, stay: Stay) -> str:
        """Book a hotel."""
        return f"{stay.nights} nights at {hotel}"

    good, bad = {"city": "Oslo", "nights": 2}, {"city": 5, "nights": 0}
    model = ScriptedModel(
        call("book", hotel="Ritz", stay=bad),
        call("book", hotel="Ritz", stay=good),
        call("book", hotel="Inn", stay=good),
        ".",
    )
    gate = Permissions(deny(action="book", target="Ritz*", reason="too dear"), allow())
    wrong, dear, booked = results_of(await Agent(model, tools=[book], permission=gate).run("Go"))
    assert (wrong.status, "city" in wrong.text, "nights" in wrong.text) == (Status.ERROR, True, True)
    assert (dear.status, "too dear" in dear.text) == (Status.DENIED, True)
    assert booked.text == "2 nights at Inn"


@shows("glove", 'ToolResultData."aborted"', "ToolResultData.status")
async def test_a_call_that_never_began_and_one_that_took_too_long_have_results_of_their_own():
    held = Held(effect="read", parallel=False)
    session = Agent(ScriptedModel(calls(call("held"), call("held"))), tools=[held.tool]).session("s")
    running = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        await session.cancel()
        outcome = await running
    assert [each.status for each in results_of(outcome)] == [Status.CANCELLED, Status.CANCELLED_BEFORE_START]
    clock, slow = FakeClock(), Held("slow", effect="read", timeout_seconds=30)
    timed = Agent(ScriptedModel(call("slow"), "Too slow."), tools=[slow.tool], clock=clock)
    running = asyncio.ensure_future(timed.run("Go"))
    async with asyncio.timeout(SECONDS):
        await slow.started.wait()
        await clock.advance(30)
        outcome = await running
    assert (outcome.text, results_of(outcome)[0].status) == ("Too slow.", Status.TIMED_OUT)


@shows("glove", "Glove.defineSkill")
async def test_skills_are_read_from_folders(tmp_path):
    folder = tmp_path / "skills" / "rhyme"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: rhyme\ndescription: How to rhyme.\n---\nAnswer in rhyme.\n")
    model = ScriptedModel("A rhyme.")
    await Agent(model, skills=load_skills_from(str(tmp_path / "skills"))).run("/rhyme about rain")
    assert "Answer in rhyme." in "".join(each.text for each in model.requests[0].messages)


@shows("glove", "GloveFoldArgs.unAbortable", "Tool.unAbortable", 'ToolResultData."aborted"', "Tool.run")
async def test_a_cancel_waits_for_a_tool_that_must_not_be_aborted_and_aborts_others():
    for abortable in (True, False):
        held = Held(effect="at_most_once", abortable=abortable)
        assert held.tool.abortable is abortable
        session = Agent(ScriptedModel(call("held"), "Done."), tools=[held.tool]).session("s")
        running = asyncio.ensure_future(session.run("Go"))
        async with asyncio.timeout(SECONDS):
            await held.started.wait()
            assert await session.cancel()
            if not abortable:
                held.released.set()
            outcome = await running
        assert outcome.status == "cancelled"
        assert results_of(outcome)[0].status is (Status.CANCELLED if abortable else Status.OK)
        assert held.cancelled == (1 if abortable else 0)


@shows("glove", "GloveFoldArgs.do", "HandOverFunction", "Tool.run")
async def test_a_tool_shows_and_asks_through_its_context_and_learns_of_a_cancel():
    begun, noticed = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def book(city: str, context: ToolContext[Any]) -> str:
        """Book a flight."""
        await context.display.push(PlainText(f"Flights to {city}"))
        if not await context.ask(Confirm("Book it?")):
            return "not booked"
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            noticed.set()
            raise
        return "booked"

    session = Agent(ScriptedModel(call("book", city="Oslo"), "Done."), tools=[book], answer_timeout_seconds=60).session(
        "s"
    )
    running = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        shown = await wait_for_slots(session, 2)
        assert [(slot.renderer, slot.waits) for slot in shown] == [("text", False), ("confirm", True)]
        assert await session.display.resolve(shown[1].slot_id, True)
        await begun.wait()
        await session.cancel()
        assert (await running).status == "cancelled"
        await noticed.wait()
