"""Whatever a provider sends can be stored: a run ends with an outcome, and its session can be read again."""

import functools
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from perdure import Agent, Budget, Image, Message, StopReason, Text, Usage
from perdure._core.values.message import MAX_TOKENS
from perdure.events import Event, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta, UsageReported
from perdure.models import Request
from perdure.stores import MemoryStore

LONE = "\ud800"
NUL = "\0"
DEEP: Any = 1
for _ in range(500):
    DEEP = [DEEP]


class Sends:
    """A model that sends these events, then an answer."""

    def __init__(self, *events: Any) -> None:
        self._replies = [events, (TextDelta("Done."), ReplyFinished())]

    async def stream(self, _: Request) -> AsyncIterator[Any]:
        for event in self._replies.pop(0) if self._replies else (TextDelta("Done."), ReplyFinished()):
            yield event


def counts(**fields: Any) -> list[Event]:
    return [TextDelta("a"), ReplyFinished(usage=Usage(**fields))]


REPLIES: dict[str, Callable[[], list[Any]]] = {
    **{
        f"{field} of {value}": functools.partial(counts, **{field: value})
        for field in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
        for value in (10**25, -5, 1.5, math.nan, math.inf, -math.inf)
    },
    "an unknown precision": lambda: counts(precision=LONE),
    "a signature of thinking": lambda: [ThinkingDelta("t", signature=LONE + NUL), TextDelta("a"), ReplyFinished()],
    "data of thinking": lambda: [ThinkingDelta(LONE, data=LONE + NUL), TextDelta("a"), ReplyFinished()],
    "details of thinking": lambda: [
        ThinkingDelta("t", details={LONE: [LONE, math.nan, 10**40, NUL, b"\xff", DEEP]}),
        TextDelta("a"),
        ReplyFinished(),
    ],
    "a signature of a call": lambda: [ToolCallDelta("c", "t", "{}", signature=LONE + NUL), ReplyFinished()],
    "the name of a call": lambda: [ToolCallDelta("c", LONE + NUL, LONE), ReplyFinished()],
    "the id of a call": lambda: [ToolCallDelta(LONE + NUL * 9, "f", "{}"), ReplyFinished()],
    "a long id and name": lambda: [ToolCallDelta("i" * 10**6, "n" * 10**6, "{}"), ReplyFinished()],
    "text": lambda: [TextDelta(f"a{NUL}b{LONE}"), ReplyFinished(provider=LONE, model=f"m{NUL}{LONE}")],
    "a stop reason": lambda: [TextDelta("a"), ReplyFinished(stop=LONE)],  # type: ignore[arg-type]
    "a whole message": lambda: [
        ReplyFinished(
            message=Message(
                "assistant",
                (Text("a"), Image(url=LONE, name=NUL), Image(url=5)),  # type: ignore[arg-type]
                origin=LONE,
                usage=Usage(output_tokens=10**25),
                original_text=LONE,
                metadata={LONE: [NUL, math.nan, 10**40, DEEP]},
            )
        )
    ],
    "a reply that is cut off": lambda: [
        ThinkingDelta(LONE, signature=LONE),
        TextDelta("a" + LONE),
        UsageReported(Usage(input_tokens=10**25, cache_read_tokens=-1)),
    ],
}


async def run_through(store: Any) -> None:
    for name, make in REPLIES.items():
        agent = Agent(Sends(*make()), store=store, budget=Budget(token_budget=10**15))
        session = agent.session(f"s-{name}")
        outcome = await session.run("Go")
        expected = "failed" if "cut off" in name else "done"
        assert outcome.status == expected, (name, outcome)
        assert 0 <= outcome.usage.total_tokens <= 2 * MAX_TOKENS, name
        again = Agent(Sends(TextDelta("b"), ReplyFinished()), store=store).session(f"s-{name}")
        assert (await again.run("And?")).status == "done", name


async def test_any_reply_is_stored_in_memory():
    await run_through(MemoryStore())


async def test_any_reply_is_stored_in_files(tmp_path):
    await run_through(f"file:{tmp_path}/sessions")


async def test_any_reply_is_stored_in_sqlite(tmp_path):
    await run_through(f"sqlite:{tmp_path}/sessions.db")


@pytest.mark.needs("postgres")
async def test_any_reply_is_stored_in_postgres(store_of):
    await run_through(store_of())


async def test_numbers_and_stop_reasons_are_brought_into_range():
    outcome = await Agent(Sends(*counts(input_tokens=10**25, output_tokens=-3, cache_read_tokens=2.5))).run("Go")
    assert outcome.usage == Usage(MAX_TOKENS, 0, 2)
    outcome = await Agent(Sends(TextDelta("a"), ReplyFinished(stop="length"))).run("Go")  # type: ignore[arg-type]
    assert outcome.messages[-1].stop is StopReason.LENGTH
