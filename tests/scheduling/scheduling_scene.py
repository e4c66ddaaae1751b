"""What the tests of schedules share: an agent with a fake clock, and steps of a scheduler."""

import asyncio
from contextlib import aclosing
from typing import Any

from perdure import Agent, tool
from perdure.background import ScheduleJournalRecord, Scheduler
from perdure.stores import open_store
from perdure.testing import FakeClock, ScriptedModel

START = 1_700_000_000.0
"""2023-11-14 22:13:20 UTC, a Tuesday."""


HANG = object()
"""A reply that takes very long."""


class Scene:
    """A store with a fake clock, and agents of several processes, as it were, that share both."""

    def __init__(self, *replies: Any, **options: Any) -> None:
        self.clock = FakeClock(START)
        self.store = open_store("memory:")
        self.model = ScriptedModel(*[self.hang if each is HANG else each for each in replies])
        self.sent: list[str] = []
        self.asked = asyncio.Event()
        """Set once the model was asked to `hang`."""

        @tool(effect="at_most_once")
        def send(text: str) -> str:
            """Send a text."""
            self.sent.append(text)
            return "sent"

        given = {"tools": [send], **options}
        self.agent: Agent[Any] = Agent(self.model, store=self.store, clock=self.clock, **given)

    async def hang(self, _request: Any) -> str:
        """A reply that takes very long."""
        self.asked.set()
        await self.clock.sleep(1e6)
        return "At last."

    def scheduler(self, *schedules: Any, **options: Any) -> Scheduler:
        """A scheduler of one process."""
        return Scheduler(self.agent, schedules, **options)


async def serve_once(scheduler: Scheduler) -> list[ScheduleJournalRecord]:
    """Do everything that is to be done now, and return the records."""
    async with asyncio.timeout(60), aclosing(scheduler.serve(once=True)) as records:
        return [record async for record in records]


def kinds(records: list[ScheduleJournalRecord]) -> list[str]:
    """The kinds of records."""
    return [record.kind for record in records]
