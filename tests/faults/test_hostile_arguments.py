"""Ten thousand hostile calls and results: nothing crashes, every call is answered, and all of it can be stored and sent.

One example is a reply with many calls. Afterwards the conversation is valid, no tool has been given what its schema
does not allow, every entry of the log survives its way through JSON, and the next request can be written as UTF-8.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.faults import hostile
from tests.transcript import assert_valid
from windlass import Agent, Limits, Outcome, ToolCall, ToolContext, tool, tool_from_schema
from windlass.core.codec import decode_entry, encode_entry
from windlass.core.event import Entry
from windlass.core.fold import fold
from windlass.core.message import Message, Status
from windlass.core.store import Store
from windlass.stores.memory import MemoryStore
from windlass.stores.sqlite import SqliteStore
from windlass.testing import Reply, ScriptedModel, call

CASES = 10_000
CALLS_PER_REPLY = 40


@pytest.fixture(autouse=True)
def quiet():
    """Ten thousand errors of tools are logged with their tracebacks, which takes longer than all the rest."""
    logging.getLogger("windlass").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("windlass").setLevel(logging.NOTSET)


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
        raw = [tool_from_schema("strict", "One number.", schema, strict), tool_from_schema("anything", "", {}, anything)]
        return [self.count, self.order, self.hidden, self.give, *raw]


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
    assert fold(entries).messages == outcome.messages
    _, reply, results, _ = outcome.messages
    assert len(reply.tool_calls) == len(results.tool_results) == len(calls)
    assert [each.arguments for each in reply.tool_calls] == [clean(each.arguments) for each in calls]
    assert_storable(entries)


def clean(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# -- the search --------------------------------------------------------------------------------------------------------

argument_cases = st.builds(ToolCall, st.sampled_from(hostile.CALL_IDS), hostile.names, hostile.argument_texts)
result_cases = hostile.result_values | hostile.result_errors


@st.composite
def replies(draw: st.DrawFn) -> tuple[list[ToolCall], list[Any]]:
    """Hostile calls, and calls of a tool whose results are hostile, mixed."""
    results = draw(st.lists(result_cases, min_size=CALLS_PER_REPLY // 2, max_size=CALLS_PER_REPLY // 2))
    calls = draw(st.lists(argument_cases, min_size=CALLS_PER_REPLY // 2, max_size=CALLS_PER_REPLY // 2))
    calls += [call("give", place=place) for place in range(len(results))]
    return draw(st.permutations(calls)), results


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_ten_thousand_hostile_calls_and_results(report):
    seen: list[int] = []

    @settings(
        max_examples=CASES // CALLS_PER_REPLY + 10,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(replies())
    def search(drawn):
        calls, results = drawn
        stage = Stage(results)
        with asyncio.Runner() as runner:
            outcome, entries = runner.run(play(stage, calls))
        check(stage, calls, outcome, entries)
        seen.append(len(calls))

    search()
    report.append(f"hostile calls and results: {sum(seen)} cases in {len(seen)} runs")
    assert sum(seen) >= CASES
