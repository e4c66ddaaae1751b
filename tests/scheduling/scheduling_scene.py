"""What the tests of schedules share: an agent with a fake clock, and steps of a scheduler."""

import asyncio
from contextlib import aclosing

from perdure import Agent, tool
from perdure.scheduling import Scheduler
from perdure.stores import open_store
from perdure.testing import FakeClock, ScriptedModel, call

START = 1_700_000_000.0
"""2023-11-14 22:13:20 UTC, a Tuesday."""


class Scene:
    """A store with a fake clock, and agents of several processes, as it were, that share both."""

    def __init__(self, *replies, store="memory:", **options):
        self.clock = FakeClock(START)
        self.store = open_store(store) if isinstance(store, str) else store
        self.model = ScriptedModel(*replies)
        self.agent = Agent(self.model, store=self.store, clock=self.clock, **options)

    def scheduler(self, *schedules, **options) -> Scheduler:
        return Scheduler(self.agent, schedules, **options)


async def serve_once(scheduler) -> list:
    """Do everything that is to be done now, and return the records."""
    async with asyncio.timeout(30), aclosing(scheduler.serve(once=True)) as records:
        return [record async for record in records]


def kinds(records) -> list[str]:
    return [record.kind for record in records]


@tool(effect="at_most_once")
def send(text: str) -> str:
    """Send a text."""
    send_calls.append(text)
    return "sent"


send_calls: list[str] = []

__all__ = ["START", "Scene", "call", "kinds", "send", "send_calls", "serve_once"]
