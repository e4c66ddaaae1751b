"""A turn of a run that has had 10,000 turns, in each of the ways in which a run can be had.

One run of each kind; the tool notes the CPU time at each call, and the turns up to the 50th, the 200th, the 1,000th
and the 10,000th are compared. Many models report no tokens, so each kind is run with such a model too.
"""

import asyncio
import gc
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from perdure import Agent, Budget, Extension, Limits, Permissions, StopReason, Usage, allow, tool
from perdure.context import BufferMemory, Compaction, WindowMemory
from perdure.events import Entry, ModelEvent, ReplyFinished, TextDelta, ToolCallDelta
from perdure.models import ModelInfo, Price, Request
from perdure.tracing import Tracer

from .measure import Effort, Figure

AT = (50, 200, 1_000, 10_000)
"""The turns that are compared."""
AROUND = 20
"""So many turns up to each of them count: by the 30th, the windows of the newest messages are full."""


class Model:
    """A model that asks for the tool as often as it is told to, each time with another number."""

    def __init__(self, turns: int, usage: Usage | None, *, has_info: bool = True) -> None:
        self._turns = turns
        self._usage = usage
        self._asked = 0
        if has_info:
            price = Price(input_usd=0.001, output_usd=0.001)
            self.info = ModelInfo("counting", "bench", price, context_tokens=10_000_000)

    async def stream(self, _: Request) -> AsyncIterator[ModelEvent]:
        """One more call, or the end."""
        self._asked += 1
        number = self._asked
        if number > self._turns:
            yield TextDelta("done")
            yield ReplyFinished(StopReason.STOP, self._usage)
            return
        yield ToolCallDelta(f"call_{number}", "add", f'{{"n":{number}}}')
        yield ReplyFinished(StopReason.TOOL_USE, self._usage)


stamps: list[int] = []
"""The CPU time of each call, in nanoseconds."""


async def add(n: int) -> str:
    """Add a number.

    Args:
        n: the number to add.
    """
    stamps.append(time.process_time_ns())
    return "ok" if n >= 0 else "below zero"


def watch(_: Entry) -> None:
    """A watcher that has nothing to do."""


FREE = Limits(max_turns=None)
BOUNDED = Limits(max_turns=1_000_000, token_budget=10**12, max_cost_usd=1e9, timeout_seconds=3600.0)


class Kind(NamedTuple):
    """One way to have a run."""

    name: str
    options: Callable[[Path], dict[str, Any]]
    has_info: bool = True


KINDS = (
    Kind("plain", lambda _: {}),
    Kind("a model without info", lambda _: {}, has_info=False),
    Kind("limits", lambda _: {"limits": BOUNDED}),
    Kind("a budget", lambda _: {"budget": Budget(token_budget=10**12)}),
    Kind("a watcher", lambda _: {"watchers": [watch]}),
    Kind("a trace", lambda _: {"watchers": [Tracer()]}),
    Kind("a gate", lambda _: {"permission": Permissions(allow("add"))}),
    Kind("a reminder", lambda _: {"extensions": [Extension(name="clock", reminders=[lambda _: "It is noon."])]}),
    Kind("compaction", lambda _: {"compaction": Compaction()}),
    Kind("newest messages", lambda _: {"history_processor": BufferMemory(20)}),
    Kind("newest turns", lambda _: {"history_processor": WindowMemory(max_tokens=400)}),
    Kind("a file", lambda folder: {"store": f"sqlite:{folder / 'sessions.db'}"}),
)


async def turn_us(kind: Kind, usage: Usage | None, turns: int) -> list[float]:
    """Microseconds of CPU for a turn around each place of `AT`, in one run."""
    gc.collect()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        options = {"limits": FREE, **kind.options(Path(folder))}
        model = Model(turns, usage, has_info=kind.has_info)
        stamps.clear()
        async with Agent(model, tools=[tool(effect="read")(add)], **options) as agent:
            outcome = await agent.run("add")
    assert outcome.status == "done", outcome
    return [quiet_us(at) for at in AT if at <= turns]


def quiet_us(at: int) -> float:
    """The quickest of the turns up to this one: other programs disturb the rest."""
    return min([later - earlier for earlier, later in pairwise(stamps[at - AROUND : at])]) / 1000


def figures(effort: Effort) -> Iterator[Figure]:
    """How a turn grows with the history, for each kind of run, also with a model that reports no tokens."""
    turns = AT[-1] if effort.long_run >= 1_000 else AT[1]
    for usage, told in ((Usage(1_000, 10), "tokens reported"), (None, "no tokens reported")):
        for kind in KINDS:
            found = asyncio.run(turn_us(kind, usage, turns))
            yield Figure(
                f"turn {turns:,} against turn {AT[0]}: {kind.name}, {told}",
                (found[-1] / found[0] - 1) * 100,
                "%",
                f"CPU of the turns around both, in one run with {kind.name}",
                budget=10,
                at_most=25,
                detail=", ".join([f"{us:.0f}" for us in found])
                + " us at "
                + ", ".join(f"{at:,}" for at in AT if at <= turns),
            )
