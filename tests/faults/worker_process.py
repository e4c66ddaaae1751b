"""A worker in a process of its own, until it is killed: `python -m tests.faults.worker_process STORE LEDGER`."""

import asyncio
import os
import sys
from typing import Any

from perdure import Agent, ToolContext, tool
from perdure.models import Request
from perdure.stores import Store, open_store
from perdure.testing import ScriptedModel, call

STEPS = 4
"""The calls that each session makes, one after the other."""


def say(request: Request) -> Any:
    """The next call; after the last of them, words. It needs no memory, so any process can go on with it."""
    replies = sum(each.role == "assistant" for each in request.messages)
    return call("act", step=replies + 1) if replies < STEPS else "Done."


def build_worker_agent(store: Store, ledger: str) -> Agent[Any]:
    """An agent whose calls are written down outside, each with a line of its own."""

    @tool
    async def act(step: int, context: ToolContext[Any]) -> str:
        """Act."""
        descriptor = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{context.session_id} {step}\n".encode())
        os.close(descriptor)
        await asyncio.sleep(0.1)  # so that a kill finds it here
        return f"did {step}"

    return Agent(ScriptedModel(say, repeat_last=True), tools=[act], store=store)


async def work(spec: str, ledger: str) -> None:
    agent = build_worker_agent(open_store(spec), ledger)
    print("ready", flush=True)  # noqa: T201 - read by the test
    async for _ in agent.attend_all(most_at_once=3, seconds=0.05):
        pass


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
