"""An extension that owns something: a logbook is opened once, its tool writes to it, and it is closed at the end."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from perdure import Agent, Extension, tool
from perdure.testing import ScriptedModel, call


def logbook(path: str) -> Extension:
    """A logbook that the agent writes and reads."""
    opened: list[sqlite3.Connection] = []

    @asynccontextmanager
    async def lifespan(_agent: Agent) -> AsyncGenerator[None]:
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE IF NOT EXISTS line (text TEXT)")
        opened.append(connection)
        print("the logbook is open")
        try:
            yield
        finally:
            opened.pop().close()
            print("the logbook is closed")

    @tool
    async def log_line(text: str) -> str:
        """Write a line into the logbook."""
        opened[-1].execute("INSERT INTO line VALUES (?)", (text,))
        (lines,) = opened[-1].execute("SELECT count(*) FROM line").fetchone()
        return f"line {lines}"

    return Extension(
        name="logbook",
        instructions="Write down what happens on deck.",
        tools=[log_line],
        lifespan=lifespan,
    )


async def main() -> None:
    model = ScriptedModel(call("log_line", text="set sail"), "Logged.", call("log_line", text="fair wind"), "Logged.")
    agent = Agent(model, extensions=[logbook(":memory:")])
    async with agent:  # without this block it would be opened and closed for each run
        for prompt in ("We have set sail.", "The wind is fair."):
            outcome = await agent.run(prompt)
            print(outcome.text, [result.text for each in outcome.new_messages for result in each.tool_results])


asyncio.run(main())
