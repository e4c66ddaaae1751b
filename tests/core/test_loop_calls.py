"""The calls of a reply: what is wrong with them, in which order they run, and what becomes of them."""

import asyncio
import threading
from typing import Any
from uuid import UUID

import msgspec
import pytest

from perdure import (
    Agent,
    Image,
    Limits,
    Outcome,
    Permissions,
    Status,
    StopReason,
    Text,
    ToolCall,
    ToolContext,
    ToolOutput,
    ToolResult,
    allow,
    tool,
)
from perdure._core.values.message import parts_to_text
from perdure.events import ErrorRaised, MessageAdded, ToolFinished, ToolProgress, ToolsChanged, ToolStarted
from perdure.testing import Recorder, Reply, ScriptedModel, call, calls
from perdure.tools import Skip, after, before, tool_from_schema
from tests.doubles import SECONDS, Held, LineCount, NotedStore, WaitingStore, log_of, of, rounds
from tests.transcript import assert_valid

pytestmark = pytest.mark.resumed


@tool
async def greet(name: str, times: int = 1) -> str:
    """Greets."""
    return f"Hello, {name}! " * times


@tool(effect="read")
async def look() -> str:
    """Looks."""
    return "nothing there"


async def results_of(*asked: ToolCall, tools: Any, **options: Any) -> tuple[ToolResult, ...]:
    """What becomes of calls made in one reply, as the model is told."""
    model = ScriptedModel(calls(*asked), "Done.")
    outcome = await Agent(model, tools=tools, **options).run("Go")
    assert outcome.status == "done", outcome
    assert_valid(outcome.messages)
    return tuple(model.requests[1].messages[-1].tool_results)


def _counter(ran: list[int]) -> Any:
    @tool(effect="read", name="count")
    async def count(number: int) -> None:
        """Counts."""
        ran.append(number)

    return count


async def result_of(asked: ToolCall, *tools: Any, **options: Any) -> ToolResult:
    (result,) = await results_of(asked, tools=tools, **options)
    return result


# -- what the model got wrong ------------------------------------------------------------------------------------------


async def test_an_unknown_tool_is_answered_with_near_names_and_all_there_are():
    result = await result_of(call("greeet", name="Ada"), greet, look)
    assert result.status is Status.ERROR
    assert result.text == "there is no tool 'greeet'; did you mean 'greet'? available: greet, look"


async def test_a_name_like_no_other_is_answered_with_those_there_are():
    result = await result_of(call("xyzzy"), greet, look)
    assert result.text == "there is no tool 'xyzzy'; available: greet, look"


async def test_without_tools_an_unknown_tool_is_told_that_there_are_none():
    result = await result_of(call("greet"))
    assert result.text == "there is no tool 'greet'; there are no tools"


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ('{"name": "Ad', "the arguments end too early"),
        ("{'name': 'Ada'}", "not valid JSON"),
        ("[1, 2]", "must be one JSON object"),
        ('"Ada"', "must be one JSON object"),
        ("null", "must be one JSON object"),
        ('{"name": "a", "name": "b"}', "appears twice"),
    ],
)
async def test_bad_json_goes_back_to_the_model(raw, told):
    result = await result_of(call("greet", raw), greet)
    assert result.status is Status.ERROR
    assert result.text.startswith("invalid arguments for 'greet': ")
    assert told in result.text


async def test_no_arguments_at_all_are_an_empty_object():
    result = await result_of(call("look", ""), look)
    assert (result.status, result.text) == (Status.OK, "nothing there")


async def test_every_schema_error_is_told_with_its_path():
    @tool
    async def plan(days: list[dict[str, int]], city: str, budget: int) -> None:
        """Plans."""

    result = await result_of(call("plan", days=[{"a": 1}, {"b": "x"}], budget="low"), plan)
    assert result.status is Status.ERROR
    assert "days[1].b: expected an integer, got 'x'" in result.text
    assert "city: missing; it is required" in result.text
    assert "budget: expected an integer, got 'low'" in result.text


async def test_errors_of_a_raw_schema_are_told_with_their_paths():
    schema = {
        "type": "object",
        "properties": {"at": {"type": "object", "properties": {"x": {"type": "integer"}}}, "n": {"type": "integer"}},
    }
    raw = tool_from_schema("raw", "Takes anything.", schema, lambda arguments: f"{arguments}")
    result = await result_of(call("raw", at={"x": "here"}, n="many"), raw)
    assert "at.x: expected an integer, got 'here'" in result.text
    assert "n: expected an integer, got 'many'" in result.text


async def test_a_wrong_call_does_not_keep_its_neighbours_from_running():
    results = await results_of(
        call("greet", name="Ada"), call("nope"), call("look", "{"), call("look"), tools=[greet, look]
    )
    assert [result.status for result in results] == [Status.OK, Status.ERROR, Status.ERROR, Status.OK]


async def test_a_wrong_call_has_no_intent():
    agent = Agent(ScriptedModel(calls(call("nope"), call("look")), "Done."), tools=[look])
    await agent.session("s").run("Go")
    assert [event.name for event in of(await log_of(agent.store, "s"), ToolStarted)] == ["look"]


async def test_lone_surrogates_in_a_call_are_replaced_before_it_is_kept():
    model = ScriptedModel(calls(ToolCall("c1", "gr\ud800t", '{"name": "\ud800"}')), "Done.")
    outcome = await Agent(model, tools=[greet]).run("Go")
    (kept,) = outcome.messages[1].tool_calls
    assert (kept.name, kept.arguments) == ("gr\ufffdt", '{"name": "\ufffd"}')
    assert outcome.messages[2].tool_results[0].text.startswith("there is no tool 'gr\ufffdt'")


@pytest.mark.parametrize(
    ("stop", "why"),
    [(StopReason.LENGTH, "cut off by its length limit"), (StopReason.CONTENT_FILTER, "cut off by the provider's")],
)
async def test_calls_of_a_reply_that_was_cut_off_are_never_made_and_say_so(stop, why):
    made: list[str] = []

    @tool
    async def act() -> None:
        """Acts."""
        made.append("act")

    cut = Reply("Now", calls=(call("act"), call("act", '{"x'), call("nope")), stop=stop)
    agent = Agent(ScriptedModel(cut, "I will say less."), tools=[act])
    outcome = await agent.session("s").run("Go")
    assert (outcome.status, outcome.text, made) == ("done", "I will say less.", [])
    results = outcome.messages[2].tool_results
    assert [result.status for result in results] == [Status.ERROR] * 3
    assert all(why in result.text for result in results)
    assert not of(await log_of(agent.store, "s"), ToolStarted)
    assert_valid(outcome.messages)


# -- several at once ---------------------------------------------------------------------------------------------------


class Meter:
    """Notes how many calls run at the same time, and in which order they begin and end."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.steps: list[str] = []

    async def run(self, name: str, rounds_taken: int) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        self.steps.append(f"+{name}")
        await rounds(rounds_taken)
        self.steps.append(f"-{name}")
        self.running -= 1
        return name

    @tool
    async def quick(self, name: str) -> str:
        """Is quick."""
        return await self.run(name, 1)

    @tool
    async def slow(self, name: str) -> str:
        """Is slow."""
        return await self.run(name, 20)

    @tool(parallel=False)
    async def alone(self, name: str) -> str:
        """Wants to be alone."""
        return await self.run(name, 3)

    @property
    def tools(self) -> list[Any]:
        return [self.quick, self.slow, self.alone]


async def test_calls_of_one_reply_run_at_the_same_time():
    meter = Meter()
    await results_of(call("slow", name="a"), call("slow", name="b"), call("slow", name="c"), tools=meter.tools)
    assert meter.steps[:3] == ["+a", "+b", "+c"]


async def test_no_more_calls_run_at_once_than_the_limit_allows():
    meter = Meter()
    many = [call("quick" if number % 3 else "slow", name=str(number)) for number in range(10)]
    results = await results_of(*many, tools=meter.tools, limits=Limits(max_parallel_tools=3))
    assert meter.most == 3
    assert [result.text for result in results] == [str(number) for number in range(10)]


async def test_calls_of_a_reply_above_the_limit_are_answered_without_running():
    ran: list[int] = []
    asked = [call("count", number=number) for number in range(140)]
    results = await results_of(*asked, tools=[_counter(ran)])
    assert sorted(ran) == list(range(128))
    assert {result.status for result in results[:128]} == {Status.OK}
    over = "This call was not made: only the first 128 calls of a reply are. Make it again if it is needed."
    assert {result.text for result in results[128:]} == {over}


async def test_the_limit_of_calls_in_a_reply_may_be_set():
    ran: list[int] = []
    store = NotedStore()
    session = Agent(
        ScriptedModel(calls(*[call("count", number=number) for number in range(6)]), "Done."),
        tools=[_counter(ran)],
        store=store,
        limits=Limits(max_calls_per_reply=3, max_parallel_tools=1),
    ).session("s")
    outcome = await session.run("Go")
    assert [result.status for result in outcome.messages[2].tool_results] == [Status.OK] * 3 + [Status.ERROR] * 3
    assert ran == [0, 1, 2]


@pytest.mark.in_memory("a run that is built anew after every entry reads its log each time")
async def test_many_calls_in_one_reply_take_work_in_proportion():
    async def count_lines(number: int) -> int:
        ran: list[int] = []
        asked = [call("count", number=each) for each in range(number)]
        with LineCount() as counted:
            await results_of(*asked, tools=[_counter(ran)], limits=Limits(max_calls_per_reply=None))
        assert len(ran) == number
        return counted.lines

    few, many = await count_lines(100), await count_lines(400)
    assert many < 4.5 * few


async def test_a_limit_of_one_runs_the_calls_one_after_the_other():
    meter = Meter()
    await results_of(
        call("slow", name="a"), call("quick", name="b"), tools=meter.tools, limits=Limits(max_parallel_tools=1)
    )
    assert meter.steps == ["+a", "-a", "+b", "-b"]


async def test_results_stand_in_the_order_of_the_calls_whatever_finished_first():
    meter = Meter()
    agent = Agent(ScriptedModel(calls(call("slow", name="a"), call("quick", name="b")), "Done."), tools=meter.tools)
    outcome = await agent.session("s").run("Go")
    assert [result.text for result in outcome.messages[2].tool_results] == ["a", "b"]
    log = await log_of(agent.store, "s")
    assert [event.result.text for event in of(log, ToolFinished)] == ["b", "a"]


async def test_a_tool_that_is_not_parallel_is_a_barrier():
    meter = Meter()
    asked = [call("slow", name="a"), call("quick", name="b"), call("alone", name="c"), call("quick", name="d")]
    results = await results_of(*asked, tools=meter.tools)
    assert meter.steps == ["+a", "+b", "-b", "-a", "+c", "-c", "+d", "-d"]
    assert [result.text for result in results] == ["a", "b", "c", "d"]


async def test_two_barriers_in_a_row_run_one_after_the_other():
    meter = Meter()
    await results_of(call("alone", name="a"), call("alone", name="b"), tools=meter.tools)
    assert meter.steps == ["+a", "-a", "+b", "-b"]


# -- intents -----------------------------------------------------------------------------------------------------------


@tool(effect="idempotent")
async def put() -> str:
    """Puts."""
    return "put"


async def waves_of(*asked: ToolCall, tools: Any, **options: Any) -> list[tuple[list[str], bool]]:
    """The appends of intents: which tools, and whether it was a barrier."""
    store = NotedStore()
    await results_of(*asked, tools=tools, store=store, **options)
    return [
        ([event.name for event in append.events if isinstance(event, ToolStarted)], append.sync)
        for append in store.appends
        if "tool_started" in append.kinds
    ]


async def test_the_intents_of_a_wave_are_one_append():
    meter = Meter()
    asked = [call("quick", name="a"), call("slow", name="b"), call("alone", name="c"), call("quick", name="d")]
    waves = await waves_of(*asked, tools=meter.tools)
    assert waves == [(["quick", "slow"], True), (["alone"], True), (["quick"], True)]


async def test_a_wave_that_only_reads_needs_no_barrier():
    assert await waves_of(call("look"), tools=[look]) == [(["look"], False)]
    assert await waves_of(call("look"), call("look"), tools=[look]) == [(["look", "look"], False)]


async def test_one_call_with_an_effect_makes_its_wave_a_barrier():
    assert await waves_of(call("look"), call("put"), tools=[look, put]) == [(["look", "put"], True)]


async def test_a_call_that_waits_for_a_place_has_no_intent_yet():
    first, second = Held("first"), Held("second")
    store = NotedStore()
    model = ScriptedModel(calls(call("first"), call("second")), "Done.")
    agent = Agent(model, tools=[first.tool, second.tool], store=store, limits=Limits(max_parallel_tools=1))
    run = asyncio.ensure_future(agent.run("Go"))
    async with asyncio.timeout(SECONDS):
        await first.started.wait()
        intents = [event.name for append in store.appends for event in append.events if isinstance(event, ToolStarted)]
        assert intents == ["first"]
        first.released.set()
        second.released.set()
        outcome = await run
    assert outcome.status == "done"


async def test_an_intent_says_what_a_crash_would_mean():
    agent = Agent(ScriptedModel(call("put"), "Done."), tools=[put])
    outcome = await agent.session("s").run("Go")
    (intent,) = of(await log_of(agent.store, "s"), ToolStarted)
    assert (intent.call_id, intent.name, intent.effect, intent.attempt) == ("call_1", "put", "idempotent", 1)
    assert intent.idempotency_key == f"s/{outcome.run_id}/call_1"


async def test_a_reply_is_stored_before_its_intents_and_they_before_the_effects():
    store = NotedStore()
    seen: list[list[str]] = []

    @tool
    async def act() -> str:
        """Notes what is stored when it begins."""
        seen.append([name for append in store.appends for name in append.kinds])
        return "done"

    await Agent(ScriptedModel(call("act"), "Done."), tools=[act], store=store).run("Go")
    assert seen == [["run_started", "message_added", "model_requested", "message_added", "tool_started"]]


async def test_parallel_results_are_stored_one_by_one_by_a_store_that_has_to_wait():
    meter = Meter()
    store = WaitingStore()
    many = [call("quick", name=str(number)) for number in range(8)]
    results = await results_of(*many, tools=meter.tools, store=store)
    assert [result.text for result in results] == [str(number) for number in range(8)]


# -- hooks and what tools return ---------------------------------------------------------------------------------------


async def test_a_prepare_hook_may_rewrite_the_arguments():
    def shout(asked: ToolCall, arguments: dict[str, Any]) -> dict[str, Any]:
        return {**arguments, "name": arguments["name"].upper()}

    result = await result_of(call("greet", name="Ada"), before(greet, shout))
    assert result.text == "Hello, ADA! "


async def test_an_async_prepare_hook_may_leave_the_arguments_alone():
    async def nothing(asked: ToolCall, arguments: dict[str, Any]) -> None:
        await asyncio.sleep(0)

    result = await result_of(call("greet", name="Ada"), before(greet, nothing))
    assert result.text == "Hello, Ada! "


async def test_prepare_hooks_see_the_call_in_the_order_of_listing_and_before_it_is_validated():
    seen: list[Any] = []

    def first(asked: ToolCall, arguments: dict[str, Any]) -> dict[str, Any]:
        seen.append((asked.name, dict(arguments)))
        return {"name": "Ada"}

    def second(asked: ToolCall, arguments: dict[str, Any]) -> None:
        seen.append((asked.name, dict(arguments)))

    result = await result_of(call("greet", nome="Ada"), before(before(greet, first), second))
    assert result.status is Status.OK
    assert seen == [("greet", {"nome": "Ada", "times": 1}), ("greet", {"name": "Ada", "times": 1})]


async def test_what_a_prepare_hook_makes_of_the_arguments_is_validated():
    result = await result_of(call("greet", name="Ada"), before(greet, lambda *_: {"name": 5}))
    assert (result.status, "name: expected a string, got 5" in result.text) == (Status.ERROR, True)


async def test_a_prepare_hook_may_skip_the_call_and_say_why():
    made: list[str] = []

    @tool
    async def act() -> None:
        """Acts."""
        made.append("act")

    result = await result_of(call("act"), before(act, lambda *_: Skip("not on Sundays")))
    assert (result.status, result.text, made) == (Status.DENIED, "not on Sundays", [])


@pytest.mark.parametrize("error", [ValueError("oops"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_a_prepare_hook_that_raises_keeps_the_call_from_running(error):
    recorder = Recorder()

    def broken(asked: ToolCall, arguments: dict[str, Any]) -> None:
        raise error

    result = await result_of(call("greet", name="Ada"), before(greet, broken), watchers=[recorder])
    assert result.status is Status.ERROR
    assert result.text.startswith("a hook of 'greet' failed: ")
    assert [event.where for event in recorder.of(ErrorRaised)] == ["a prepare hook of 'greet'"]


async def test_a_finish_hook_may_replace_the_result_but_not_whom_it_answers():
    def redact(asked: ToolCall, result: ToolResult) -> ToolResult:
        return ToolResult("another", "other", (Text(result.text.replace("Ada", "***")),))

    result = await result_of(call("greet", name="Ada"), after(greet, redact))
    assert (result.call_id, result.name, result.text) == ("call_1", "greet", "Hello, ***! ")


async def test_an_async_finish_hook_may_leave_the_result_alone():
    seen: list[str] = []

    async def note(asked: ToolCall, result: ToolResult) -> None:
        await asyncio.sleep(0)
        seen.append(f"{asked.name}: {result.text}")

    result = await result_of(call("look"), after(look, note))
    assert (result.text, seen) == ("nothing there", ["look: nothing there"])


@pytest.mark.parametrize("error", [ValueError("oops"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_a_finish_hook_that_raises_hides_the_result(error):
    recorder = Recorder()

    def broken(asked: ToolCall, result: ToolResult) -> None:
        raise error

    result = await result_of(call("look"), after(look, broken), watchers=[recorder])
    assert result.status is Status.ERROR
    assert result.text.startswith("the tool ran, but its result could not be processed: ")
    assert "nothing there" not in result.text
    assert [event.where for event in recorder.of(ErrorRaised)] == ["a finish hook of 'look'"]


async def test_a_summary_is_made_of_the_result_and_of_no_error():
    @tool(summary=lambda result: f"{len(result.text)} letters")
    async def read(path: str) -> str:
        """Reads."""
        if not path:
            raise ValueError("no path")
        return "x" * 100

    good, bad = await results_of(call("read", path="a"), call("read", path=""), tools=[read])
    assert (good.summary, bad.summary) == ("100 letters", "")


async def test_a_summary_may_be_made_by_an_async_function():
    async def shorten(result: ToolResult) -> str:
        await asyncio.sleep(0)
        return f"{len(result.text)} letters \ud800"

    @tool(summary=shorten)
    async def read() -> str:
        """Reads."""
        return "x" * 100

    assert (await result_of(call("read"), read)).summary == "100 letters \ufffd"


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_summary_that_fails_leaves_the_result_as_it_is_and_is_reported(kind):
    def broken(result: ToolResult) -> str:
        raise ZeroDivisionError("oops")

    async def broken_later(result: ToolResult) -> str:
        raise ZeroDivisionError("oops")

    @tool(summary=broken if kind == "plain" else broken_later)
    async def read() -> str:
        """Reads."""
        return "all of it"

    recorder = Recorder()
    result = await result_of(call("read"), read, watchers=[recorder])
    assert (result.text, result.status, result.summary) == ("all of it", Status.OK, "")
    (told,) = recorder.of(ErrorRaised)
    assert (told.error, told.where) == ("ZeroDivisionError", "the summary of 'read'")


async def test_a_summary_may_decide_that_there_is_none():
    @tool(summary=lambda _: None)  # type: ignore[arg-type, return-value]
    async def read() -> str:
        """Reads."""
        return "short"

    assert (await result_of(call("read"), read)).summary == ""


async def test_a_cancel_while_the_summary_is_made_keeps_the_result():
    begun = asyncio.Event()

    async def endless(result: ToolResult) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    @tool(summary=endless)
    async def read() -> str:
        """Reads."""
        return "all of it"

    agent = Agent(ScriptedModel(call("read"), "Done."), tools=[read])
    session = agent.session("s")
    async with asyncio.timeout(SECONDS):
        running = asyncio.ensure_future(session.run("Go"))
        await begun.wait()
        await session.cancel()
        outcome = await running
    assert outcome.status == "cancelled"
    assert [each.result.text for each in of(await log_of(agent.store, "s"), ToolFinished)] == ["all of it"]


async def test_the_summary_that_a_tool_gives_itself_stands():
    @tool(summary=lambda _: "made")
    async def read() -> ToolOutput:
        """Reads."""
        return ToolOutput("long", summary="given")

    assert (await result_of(call("read"), read)).summary == "given"


async def test_what_is_meant_for_a_screen_is_kept_and_no_model_sees_it():
    @tool
    async def draw() -> ToolOutput:
        """Draws."""
        return ToolOutput("a red square", render={"shape": "square", "colour": (1, 0, 0)})

    model = ScriptedModel(call("draw"), "Done.")
    agent = Agent(model, tools=[draw])
    await agent.session("s").run("Draw")
    (stored,) = of(await log_of(agent.store, "s"), ToolFinished)
    assert stored.result.render == {"shape": "square", "colour": [1, 0, 0]}
    (shown,) = model.requests[1].messages[-1].tool_results
    assert shown.content == (Text("a red square"),)
    assert "colour" not in parts_to_text(model.requests[1].messages[-1].parts)


async def test_a_tool_may_say_itself_that_it_failed():
    @tool
    async def refuse() -> ToolOutput:
        """Refuses."""
        return ToolOutput("no such file", is_error=True)

    result = await result_of(call("refuse"), refuse)
    assert (result.status, result.text) == (Status.ERROR, "no such file")


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", (Text("text"),)),
        (None, (Text("null"),)),
        (12, (Text("12"),)),
        ({"a": [1, None]}, (Text('{"a":[1,null]}'),)),
        ([], (Text("[]"),)),
        (Image(url="https://example.org/a.png"), (Image(url="https://example.org/a.png"),)),
        ([Text("a"), Image(data=b"x")], (Text("a"), Image(data=b"x"))),
        ((Text("a"),), (Text("a"),)),
        ([Text("a"), 1], (Text('[{"type":"text","text":"a","signature":""},1]'),)),
        ("lone \ud800", (Text("lone \ufffd"),)),
        (Text("lone \ud800"), (Text("lone \ufffd"),)),
        ([Text("lone \ud800")], (Text("lone \ufffd"),)),
    ],
)
async def test_whatever_a_tool_returns_becomes_content(value, content):
    @tool
    async def give() -> Any:
        """Gives."""
        return value

    result = await result_of(call("give"), give)
    assert (result.status, result.content) == (Status.OK, content)


async def test_a_tool_may_return_a_whole_result_but_not_choose_whom_it_answers():
    @tool
    async def give() -> ToolResult:
        """Gives."""
        return ToolResult("another", "other", (Text("given"),), Status.ERROR, summary="short")

    result = await result_of(call("give"), give)
    assert (result.call_id, result.name, result.text) == ("call_1", "give", "given")
    assert (result.status, result.summary) == (Status.ERROR, "short")


@pytest.mark.parametrize(
    ("made", "status", "text"),
    [
        (ToolResult("", "", status="odd"), Status.ERROR, ""),  # type: ignore[arg-type]
        (ToolResult("", "", status="denied"), Status.DENIED, ""),  # type: ignore[arg-type]
        (ToolResult("", "", "text"), Status.OK, "text"),  # type: ignore[arg-type]
        (ToolResult("", "", (Text(5),)), Status.OK, '[{"type":"text","text":5,"signature":""}]'),  # type: ignore[arg-type]
    ],
    ids=["unknown status", "status as text", "content as text", "no text"],
)
async def test_a_whole_result_that_is_not_sound_is_made_so(made, status, text):
    @tool
    async def give() -> ToolResult:
        """Gives."""
        return made

    result = await result_of(call("give"), give)
    assert (result.status, result.text) == (status, text)


# -- what a tool can do while it runs ----------------------------------------------------------------------------------


async def test_progress_is_told_from_async_tools_and_from_threads():
    @tool
    async def walk(context: ToolContext) -> str:
        """Walks."""
        context.emit({"done": 1})
        return "there"

    @tool
    def drive(context: ToolContext) -> str:
        """Drives."""
        context.emit("halfway")
        return "there"

    recorder = Recorder()
    model = ScriptedModel(call("walk"), call("drive"), "Done.")
    outcome = await Agent(model, tools=[walk, drive], watchers=[recorder]).run("Go")
    told = [(event.name, event.call_id, event.data, event.run_id) for event in recorder.of(ToolProgress)]
    assert told == [
        ("walk", "call_1", {"done": 1}, outcome.run_id),
        ("drive", "call_2", "halfway", outcome.run_id),
    ]


@pytest.mark.in_memory("what tools leave for each other")
async def test_a_tool_is_given_everything_it_may_ask_for():
    seen: dict[str, Any] = {}

    @tool
    async def ask(context: ToolContext[str]) -> None:
        """Asks."""
        context.state["count"] = context.state.get("count", 0) + 1
        seen.update(
            deps=context.deps,
            session=context.session_id,
            run=context.run_id,
            turn=context.turn,
            key=context.idempotency_key,
            count=context.state["count"],
            cancelled=context.cancelled,
        )

    agent = Agent(ScriptedModel(call("ask"), call("ask"), "Done."), tools=[ask], deps="the deps")
    outcome = await agent.session("s").run("Go")
    assert seen == {
        "deps": "the deps",
        "session": "s",
        "run": outcome.run_id,
        "turn": 2,
        "key": f"s/{outcome.run_id}/call_2",
        "count": 2,
        "cancelled": False,
    }


@tool
async def added() -> str:
    """Was added later."""
    return "I am new"


@pytest.mark.in_memory("tools are code")
async def test_tools_added_during_a_run_are_offered_in_the_next_request_and_logged():
    @tool
    async def fetch(context: ToolContext) -> str:
        """Fetches a tool."""
        context.add_tools(added)
        return "fetched"

    model = ScriptedModel(call("fetch"), call("added"), "Done.")
    agent = Agent(model, tools=[fetch])
    outcome = await agent.session("s").run("Go")
    assert [[spec.name for spec in request.tools] for request in model.requests] == [
        ["fetch"],
        ["fetch", "added"],
        ["fetch", "added"],
    ]
    assert outcome.messages[4].tool_results[0].text == "I am new"
    log = await log_of(agent.store, "s")
    assert [event.added for event in of(log, ToolsChanged)] == [("added",)]


async def test_tools_added_in_one_run_are_not_there_in_the_next():
    @tool
    async def fetch(context: ToolContext) -> str:
        """Fetches a tool."""
        context.add_tools(added)
        return "fetched"

    model = ScriptedModel(call("fetch"), "Done.", "Done.")
    session = Agent(model, tools=[fetch]).session()
    await session.run("Go")
    await session.run("Again")
    assert [spec.name for spec in model.requests[2].tools] == ["fetch"]


@pytest.mark.in_memory("tools are code")
async def test_tools_may_be_added_from_many_threads_at_once():
    barrier = threading.Barrier(8)

    @tool
    def fetch(number: int, context: ToolContext) -> str:
        """Fetches a tool."""
        barrier.wait(SECONDS)
        context.add_tools(msgspec.structs.replace(added, name=f"new_{number}"), scope="process")
        return "fetched"

    model = ScriptedModel(calls(*[call("fetch", number=number) for number in range(8)]), "Done.")
    await Agent(model, tools=[fetch]).run("Go")
    assert {spec.name for spec in model.requests[1].tools} == {"fetch", *(f"new_{number}" for number in range(8))}


async def test_adding_a_tool_twice_is_an_error_of_the_tool_that_does_it():
    @tool
    async def fetch(context: ToolContext) -> None:
        """Fetches itself."""
        context.add_tools(fetch)

    result = await result_of(call("fetch"), fetch)
    assert (result.status, "two tools are called 'fetch'" in result.text) == (Status.ERROR, True)


async def test_a_tool_that_is_not_allowed_cannot_be_added():
    @tool
    async def fetch(context: ToolContext) -> str:
        """Fetches a tool."""
        context.add_tools(added)
        return "fetched"

    model = ScriptedModel(call("fetch"), call("added"), "Done.")
    outcome = await Agent(model, tools=[fetch], limits=Limits(allowed_tools=("fetch",))).run("Go")
    assert [spec.name for spec in model.requests[1].tools] == ["fetch"]
    assert outcome.messages[4].tool_results[0].status is Status.ERROR


async def test_what_a_tool_says_in_a_reply_with_words_keeps_the_words():
    model = ScriptedModel(Reply("I look.", calls=(call("look"),)), "Done.")
    outcome: Outcome[Any] = await Agent(model, tools=[look]).run("Go")
    assert outcome.messages[1].text == "I look."
    assert isinstance(MessageAdded(outcome.messages[1]).message.parts[1], ToolCall)


async def test_a_call_whose_arguments_no_person_could_be_shown_does_not_run_although_nothing_is_left_to_ask():
    ran: list[object] = []

    @tool(permission=True)
    async def sail(speed: float, trip: UUID) -> str:
        """Sail."""
        ran.append((speed, trip))
        return "sailing"

    def spoil(_call, arguments):
        arguments.update(speed=float("nan"), trip=UUID(int=4))  # together, no JSON has them

    model = ScriptedModel(call("sail", speed=4.0, trip=str(UUID(int=4))), "It was refused.")
    outcome = await Agent(model, tools=[before(sail, spoil)], permission=Permissions(allow())).run("Sail.")
    assert ran == []
    (result,) = outcome.messages[2].tool_results
    assert "invalid arguments for 'sail'" in result.text
    assert outcome.text == "It was refused."
