"""The agent with openai-agents, streamed; sessions are its `SQLiteSession`, in memory or in a file."""

import functools
from pathlib import Path
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, Runner, SQLiteSession, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from bench.peers.contestant import MOST, PROMPT, Contestant, add, hear


async def prepare(base_url: str, folder: Path) -> Contestant:
    """Prepare an agent for each model, with one client."""
    set_tracing_disabled(True)
    client, tool = AsyncOpenAI(base_url=base_url, api_key="none"), function_tool(add)
    sessions: dict[str, Any] = {}

    @functools.cache
    def build(model: str) -> Any:
        return Agent(name="a", tools=[tool], model=OpenAIChatCompletionsModel(model, client))

    async def run(model: str, session: Any = None) -> object:
        result = Runner.run_streamed(build(model), PROMPT, max_turns=MOST, session=session)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                hear()
        return result.final_output

    async def keep(model: str, session: str) -> object:
        kept = sessions.get(session) or sessions.setdefault(session, SQLiteSession(session))
        return await run(model, kept)

    async def store(model: str, session: str) -> object:
        opened = SQLiteSession(session, folder / "openai-agents.db")
        try:
            return await run(model, opened)
        finally:
            opened.close()

    return Contestant(run, keep, store, "SQLiteSession", client.close)
