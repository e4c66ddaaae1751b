"""Ten thousand hostile calls and results: nothing crashes, every call is answered, all of it can be stored and sent.

One example is a reply with many calls. Afterwards the conversation is valid, no tool has been given what its schema
does not allow, every entry of the log survives its way through JSON, and the next request can be written as UTF-8.
"""

import asyncio
import json
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from perdure import (
    Agent,
    Limits,
    Message,
    Outcome,
    Status,
    StoreError,
    Text,
    Thinking,
    ToolCall,
    ToolContext,
    ToolResult,
    Usage,
    tool,
)
from perdure._core.values.jsonable import replace_surrogates
from perdure.engines import fold_entries
from perdure.events import Entry, ReplyFinished, TextDelta
from perdure.permissions import allow_all
from perdure.stores import MemoryStore, SqliteStore, Store, decode_entry, encode_entry
from perdure.testing import Reply, ScriptedModel, call
from perdure.tools import tool_from_schema
from tests.faults import hostile
from tests.seeds import SEED
from tests.transcript import assert_valid

CASES = 2_500
LONG_CASES = 100_000
CALLS_PER_REPLY = 40


@pytest.fixture(autouse=True)
def quiet():
    """Ten thousand errors of tools are logged with their tracebacks, which takes longer than all the rest."""
    logging.getLogger("perdure").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("perdure").setLevel(logging.NOTSET)


# -- the tools ---------------------------------------------------------------------------------------------------------


@dataclass
class Line:
    sku: str
    amount: Annotated[int, msgspec.Meta(ge=1, le=99)] = 1


@dataclass
class Order:
    lines: list[Line]
    note: str | None = None


class Stage:
    """Tools that remember what they were given, and that return what they are told to."""

    def __init__(self, results: Sequence[Any] = ()) -> None:
        self.wrong: list[str] = []
        """Arguments that no tool should have been given."""
        self.results = results

    def expect(self, value: Any, kind: Any) -> None:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            self.wrong.append(f"{value!r} is no {kind}")

    @tool
    async def count(self, number: int, path: str, deep: dict[str, Any] | None = None) -> str:
        """Counts."""
        self.expect(number, int)
        self.expect(path, str)
        self.expect(deep, dict | None)
        return path

    @tool
    async def order(self, order: Order) -> Any:
        """Orders."""
        self.expect(order, Order)
        for line in order.lines:
            self.expect(line.sku, str)
            self.expect(line.amount, int)
        return order

    @tool
    async def hidden(self) -> str:
        """Is not offered."""
        self.wrong.append("a tool that is not offered has run")
        return "ran"

    @tool
    async def give(self, place: int, context: ToolContext) -> Any:
        """Returns or raises one of the results."""
        result = self.results[place]()
        if isinstance(result, BaseException) and result.args != ("returned, not raised",):
            raise result
        return result

    @property
    def tools(self) -> list[Any]:
        """All of them."""

        async def strict(arguments: dict[str, Any]) -> Any:
            self.expect(arguments.get("number"), int | float)
            return arguments

        async def anything(arguments: dict[str, Any]) -> Any:
            return arguments

        schema = {"properties": {"number": {"type": "number"}}, "required": ["number"], "additionalProperties": False}
        raw = tool_from_schema("strict", "One number.", schema, strict)
        return [self.count, self.order, self.hidden, self.give, raw, tool_from_schema("anything", "", {}, anything)]


# -- one example -------------------------------------------------------------------------------------------------------


async def play(stage: Stage, calls: Sequence[ToolCall], store: Store | None = None) -> tuple[Outcome[Any], list[Entry]]:
    """A run whose model makes these calls in one reply."""
    model = ScriptedModel(Reply(calls=calls), "Done.")
    store = store or MemoryStore()
    offered = tuple(each.name for each in stage.tools if each.name != "hidden")
    agent = Agent(model, tools=stage.tools, store=store, limits=Limits(allowed_tools=offered))
    session = agent.session("s")
    outcome = await session.run("go")
    assert outcome.status == "done", outcome.error
    assert_sendable(model.requests[-1].messages)
    return outcome, await store.read("s")


def assert_sendable(messages: Sequence[Message]) -> None:
    """Whatever a provider's wire format makes of it, it can be written."""
    msgspec.json.encode(list(messages))
    json.dumps(msgspec.to_builtins(list(messages)), ensure_ascii=False, allow_nan=False).encode()


def assert_storable(entries: Sequence[Entry]) -> None:
    """What is read is what was written."""
    for entry in entries:
        written = encode_entry(entry)
        again = decode_entry(written)
        assert encode_entry(again) == written
        assert again == entry


def check(stage: Stage, calls: Sequence[ToolCall], outcome: Outcome[Any], entries: Sequence[Entry]) -> None:
    """Every call is answered, and nothing has happened that should not."""
    assert stage.wrong == []
    assert_valid(outcome.messages)
    assert fold_entries(entries).messages == outcome.messages
    _, reply, results, _ = outcome.messages
    assert len(reply.tool_calls) == len(results.tool_results) == len(calls)
    assert [each.arguments for each in reply.tool_calls] == [replace_surrogates(each.arguments) for each in calls]
    assert_storable(entries)


# -- the search --------------------------------------------------------------------------------------------------------

SETTINGS = settings(max_examples=20, database=None, deadline=None, suppress_health_check=list(HealthCheck))
"""A few examples for each of many seeds: hypothesis likes to vary what it has seen, and we want to see more."""

argument_cases = st.builds(ToolCall, st.sampled_from(hostile.CALL_IDS), hostile.names, hostile.argument_texts)


@st.composite
def replies(draw: st.DrawFn) -> tuple[list[ToolCall], list[Any]]:
    """Hostile calls, and calls of a tool whose results are hostile, each in many variations, mixed."""
    calls = draw(st.lists(argument_cases, min_size=1, max_size=4))
    results = draw(st.lists(hostile.result_values, min_size=1, max_size=4))
    chance = random.Random(draw(st.integers(0, 2**32)))
    while len(calls) < CALLS_PER_REPLY // 2:
        model = chance.choice(calls)
        calls.append(ToolCall(model.call_id, model.name, hostile.mangled(model.arguments, chance)))
    while len(results) < CALLS_PER_REPLY // 2:
        results.append(hostile.nested(chance.choice(results), chance))
    calls += [call("give", place=place) for place in range(len(results))]
    chance.shuffle(calls)
    return calls, results


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_thousands_of_hostile_calls_and_results(report, long):
    seen: list[int] = []
    different: set[tuple[str, str]] = set()

    def search(drawn: tuple[list[ToolCall], list[Any]]) -> None:
        calls, results = drawn
        stage = Stage(results)
        outcome, entries = runner.run(play(stage, calls))
        check(stage, calls, outcome, entries)
        seen.append(len(calls))
        different.update([(each.name, each.arguments) for each in calls])

    with asyncio.Runner() as runner:
        while sum(seen) < (LONG_CASES if long else CASES):
            seed(SEED + len(seen))(SETTINGS(given(replies())(search)))()
    report.append(f"hostile calls and results: {sum(seen)} cases in {len(seen)} runs")
    assert len(different) >= CASES // 4, f"the search goes in circles: only {len(different)} calls are different"


# -- what is known to hurt, one by one ---------------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(len(hostile.HOSTILE_VALUES)))
async def test_whatever_a_tool_returns_becomes_a_result(place):
    stage = Stage([hostile.HOSTILE_VALUES[place]])
    for calls in ([call("give", place=0)], [call("give", place=0), call("give", place=0)]):
        check(stage, calls, *await play(stage, calls))


@pytest.mark.parametrize("place", range(len(hostile.HOSTILE_ERRORS)))
async def test_whatever_a_tool_raises_becomes_a_result(place):
    stage = Stage([hostile.HOSTILE_ERRORS[place]])
    for calls in ([call("give", place=0)], [call("give", place=0), call("give", place=0)]):
        outcome, entries = await play(stage, calls)
        check(stage, calls, outcome, entries)
        assert {result.status for result in outcome.messages[2].tool_results} == {Status.ERROR}


@pytest.mark.parametrize("name", hostile.NAMES)
async def test_whatever_arguments_a_model_writes_are_answered(name):
    stage = Stage()
    calls = [ToolCall("", name, raw) for raw in hostile.RAW_ARGUMENTS]
    check(stage, calls, *await play(stage, calls))


async def test_whatever_a_model_says_is_given_to_tools_as_it_is():
    """NUL, bidirectional marks, paths and options are text like any other: to judge them is the tool's business."""
    stage = Stage()
    texts = [text for text in hostile.NASTY_TEXTS if replace_surrogates(text) == text]
    calls = [ToolCall("", "count", json.dumps({"number": 1, "path": text})) for text in texts]
    outcome, entries = await play(stage, calls)
    check(stage, calls, outcome, entries)
    assert [result.text for result in outcome.messages[2].tool_results] == texts


async def test_a_key_that_is_there_twice_is_refused():
    calls = [ToolCall("", "count", '{"number": 1, "path": "ls", "path": "rm"}')]
    outcome, _ = await play(Stage(), calls)
    (result,) = outcome.messages[2].tool_results
    assert result.status is Status.ERROR
    assert "'path' appears twice" in result.text


@pytest.mark.parametrize(
    "arguments",
    [
        json.dumps({"number": 1, "path": "x" * 10_000_000}),
        json.dumps({"number": 1, "path": "x" * 8_000_000}),
        json.dumps({"x" * 8_000_000: 1}),
        '{"number": ' + "9" * 8_000_000,
        "[" * 8_000_000,
        '{"number": 1, "path": ' + '"\\u0000' * 1_000_000,
        "\ud800" * 8_000_000,
    ],
    ids=["too long", "long", "key", "digits", "brackets", "escapes", "surrogates"],
)
async def test_ten_megabytes_of_arguments_are_answered(arguments):
    stage, calls = Stage(), [ToolCall("", "count", arguments)]
    check(stage, calls, *await play(stage, calls))


@pytest.mark.parametrize("make", hostile.ENDLESS)
async def test_a_result_without_end_is_cut(make):
    stage, calls = Stage([make]), [call("give", place=0)]
    check(stage, calls, *await play(stage, calls))


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10_000_000,
        "\ud800" * 3_000_000,
        b"\xff" * 5_000_000,
        ["x" * 1_000] * 10_000,
        {str(number): number for number in range(100_000)},
    ],
    ids=["text", "surrogates", "bytes", "texts", "keys"],
)
async def test_ten_megabytes_of_results_are_kept(value):
    stage, calls = Stage([lambda: value]), [call("give", place=0)]
    check(stage, calls, *await play(stage, calls))


async def test_all_of_it_is_kept_in_a_file(tmp_path):
    """What is read from the file is what the run has seen."""
    results = [*hostile.HOSTILE_VALUES, *hostile.HOSTILE_ERRORS]
    calls = [call("give", place=place) for place in range(len(results))]
    calls += [ToolCall(call_id, "count", "{}") for call_id in hostile.CALL_IDS]
    calls += [ToolCall("", "count", raw) for raw in hostile.RAW_ARGUMENTS]
    store, stage = SqliteStore(tmp_path / "sessions.db"), Stage(results)
    check(stage, calls, *await play(stage, calls, store))
    await store.aclose()


# -- those who stand around the tool -----------------------------------------------------------------------------------

STRANGE = ToolResult("", "", (Text("\ud800"),), render=hostile.Liar())
GARBAGE: Sequence[Any] = (None, 5, "words", [], {}, object(), hostile.Liar(), STRANGE)


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("place", ["prepare", "finish", "summary", "target", "permission"])
async def test_a_hook_that_returns_garbage_does_not_hurt_the_log(garbage, place):
    options: dict[str, Any] = {place: lambda *_: garbage}
    if place in {"prepare", "finish"}:
        options = {place: (options[place],)}
    meddled = msgspec.structs.replace(Stage().count, **options)
    await answered(Agent(scripted(), tools=[meddled], permission=allow_all))


@pytest.mark.parametrize("garbage", [*GARBAGE, [None], [5], [hostile.Liar()]], ids=lambda value: type(value).__name__)
async def test_a_gate_that_answers_garbage_lets_nothing_through(garbage):
    async def gate(_requests: Any) -> Any:
        return garbage

    outcome = await answered(Agent(scripted(), tools=Stage().tools, permission=gate))
    assert outcome.messages[2].tool_results[0].status is Status.DENIED


@pytest.mark.parametrize("make", hostile.HOSTILE_ERRORS[:8])
async def test_a_model_that_raises_anything_fails_the_run_and_nothing_more(make):
    agent = Agent(ScriptedModel(make(), "Fine."))
    session = agent.session("s")
    outcome = await session.run("go")
    assert outcome.status == "failed"
    assert (await session.run("again")).text == "Fine."
    assert_storable(await agent.store.read("s"))


SLOPPY_REPLIES: Sequence[Any] = (
    ReplyFinished(usage=5),  # type: ignore[arg-type] # as are all of these
    ReplyFinished(usage=Usage("5", None)),  # type: ignore[arg-type]
    ReplyFinished(model=5),  # type: ignore[arg-type]
    ReplyFinished(message=Message("robot", (Text("x"),))),  # type: ignore[arg-type]
    ReplyFinished(message=Message("assistant", ("x",))),  # type: ignore[arg-type]
    ReplyFinished(message=Message("assistant", (Text(5),))),  # type: ignore[arg-type]
    ReplyFinished(message=Message("assistant", (ToolCall("c", "count", {"number": 1}),))),  # type: ignore[arg-type]
    ReplyFinished(message=Message("assistant", (Thinking(details=5), Text("x")))),  # type: ignore[arg-type]
    ReplyFinished(message=Message("assistant", (Text("x"),), metadata=hostile.Liar())),  # type: ignore[arg-type]
)
"""What a model says that was written in a hurry."""


@pytest.mark.parametrize("reply", SLOPPY_REPLIES, ids=range(len(SLOPPY_REPLIES)))
async def test_a_reply_that_nobody_could_read_again_is_not_stored(reply, tmp_path):
    """It fails its own run, and not every later one."""
    store = SqliteStore(tmp_path / "sessions.db")
    agent = Agent(ScriptedModel([TextDelta("x"), reply], "Fine."), store=store)
    with suppress(StoreError):
        assert (await agent.session("s").run("go")).status == "failed"
    outcome = await agent.session("s").run("again")
    assert (outcome.status, outcome.text) == ("done", "Fine.")
    assert_valid(outcome.messages)
    await store.aclose()


@pytest.mark.parametrize(
    "reply",
    [
        ReplyFinished(usage=Usage(cache_read_tokens="5")),  # type: ignore[arg-type]
        ReplyFinished(stop="weird"),  # type: ignore[arg-type]
    ],
    ids=["usage", "stop"],
)
async def test_a_reply_whose_numbers_nobody_knows_is_stored_without_them(reply, tmp_path):
    store = SqliteStore(tmp_path / "sessions.db")
    agent = Agent(ScriptedModel([TextDelta("x"), reply], "Fine."), store=store)
    outcome = await agent.session("s").run("go")
    assert (outcome.status, outcome.text) == ("done", "x")
    assert_storable(await store.read("s"))
    assert (await agent.session("s").run("again")).text == "Fine."
    await store.aclose()


def scripted() -> ScriptedModel:
    return ScriptedModel(call("count", number=1, path="x"), "Done.")


async def answered(agent: Agent[Any]) -> Outcome[Any]:
    """A run whose one call gets a result that can be stored and sent."""
    outcome = await agent.session("s").run("go")
    assert outcome.status == "done", outcome.error
    assert_valid(outcome.messages)
    assert_sendable(outcome.messages)
    assert_storable(await agent.store.read("s"))
    return outcome
