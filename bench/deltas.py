"""What it costs to hand each piece of a reply to somebody. Below: `hand_loop.py`, which does it without a loop.

The model never waits, so it is as fast as a stream can be; a watcher that cannot keep up gets fewer and larger pieces.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from perdure import Agent, StopReason, Usage
from perdure.events import Entry, Event, ModelEvent, ReplyFinished, TextDelta
from perdure.models import Request

from . import hand_loop
from .measure import Effort, Figure, cpu_ns

PIECE = "word "
BUDGET_US = 3.0


class Talker:
    """A model that says a lot."""

    def __init__(self, deltas: int) -> None:
        self.deltas = deltas

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:  # noqa: ARG002 - whatever it is asked
        for _ in range(self.deltas):
            yield TextDelta(PIECE)
        yield ReplyFinished(StopReason.STOP, Usage(1, self.deltas))


class Listener:
    """Counts what reaches a handler."""

    def __init__(self) -> None:
        self.events = 0
        self.characters = 0

    def hear(self, event: Event) -> None:
        if type(event) is TextDelta:
            self.events += 1
            self.characters += len(event.text)

    async def watch(self, entry: Entry) -> None:
        self.hear(entry.event)

    def watch_on_a_thread(self, entry: Entry) -> None:
        self.hear(entry.event)

    async def handle(self, event: Event) -> None:
        self.hear(event)


async def by_hand(talker: Talker, listener: Listener) -> None:
    await hand_loop.deliver(talker.stream(Request(messages=())), listener.handle)


async def unwatched(talker: Talker, listener: Listener) -> None:
    outcome = await Agent(talker).run("talk")
    listener.characters = len(outcome.text)


async def by_async_watcher(talker: Talker, listener: Listener) -> None:
    await Agent(talker, watchers=[listener.watch]).run("talk")


async def by_thread_watcher(talker: Talker, listener: Listener) -> None:
    await Agent(talker, watchers=[listener.watch_on_a_thread]).run("talk")


async def by_iteration(talker: Talker, listener: Listener) -> None:
    async for event in Agent(talker).stream("talk"):
        listener.hear(event)


Way = Callable[[Talker, Listener], Awaitable[None]]

WAYS: tuple[tuple[str, Way, str, float | None], ...] = (
    ("a delta to an async watcher", by_async_watcher, "`Agent(watchers=[async function])`", BUDGET_US),
    ("a delta through `stream()`", by_iteration, "`async for event in agent.stream(…)`", BUDGET_US),
    ("a delta to a watcher on a thread", by_thread_watcher, "`Agent(watchers=[plain function])`", BUDGET_US),
    ("a delta without a watcher", unwatched, "deltas are only joined to the reply", None),
)


async def best(way: Way, deltas: int, rounds: int) -> tuple[float, Listener]:
    """Microseconds of CPU for each delta in the best round, and what was heard in the last."""
    readings: list[int] = []
    listener = Listener()
    for _ in range(rounds):
        gc.collect()  # so that no round pays for the garbage of another
        listener = Listener()
        readings.append(await cpu_ns(way(Talker(deltas), listener)))
    return min(readings) / deltas / 1000, listener


def figures(effort: Effort) -> Iterator[Figure]:
    """All ways to hear a reply of many pieces."""
    rounds = 5 if effort.rounds > 5 else 1
    hand, _ = asyncio.run(best(by_hand, effort.deltas, rounds))
    for name, way, explanation, budget in WAYS:
        took, listener = asyncio.run(best(way, effort.deltas, rounds))
        missing = effort.deltas * len(PIECE) - listener.characters
        heard = f"{listener.events:,} of {effort.deltas:,} apart, the rest merged"
        if missing:
            heard += f", {missing:,} characters lost"
        yield Figure(
            name,
            took,
            "us",
            f"CPU for each of {effort.deltas:,} pieces of one reply, all threads: {explanation}",
            budget=budget,
            ratio=took / hand,
            compared_to="hand-written delivery",
            detail=heard if listener.events else "",
        )
    yield Figure(
        "a delta by hand",
        hand,
        "us",
        "`async for delta in model: await handler(delta)`",
    )
