"""The agent with Strands, streamed. An agent of it has one conversation, so each session has an agent of its own."""

from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from strands import Agent, tool
from strands.models.openai import OpenAIModel

from bench.peers.contestant import PROMPT, Contestant, add, hear


async def prepare(base_url: str, folder: Path) -> Contestant:
    """Prepare what builds an agent for a session, with one HTTP client."""
    client, decorated = AsyncOpenAI(base_url=base_url, api_key="none"), tool(add)
    agents: dict[str, Any] = {}

    def build(model: str, **options: Any) -> Any:
        chat = OpenAIModel(client=client, model_id=model)
        return Agent(model=chat, tools=[decorated], callback_handler=None, **options)

    async def run(agent: Any) -> None:
        async for event in agent.stream_async(PROMPT):
            if "data" in event:
                hear()

    async def keep(model: str, session: str) -> None:
        await run(agents.get(session) or agents.setdefault(session, build(model)))

    async def store(model: str, session: str) -> None:
        from strands.session.file_session_manager import FileSessionManager

        manager = FileSessionManager(session_id=session, storage_dir=str(folder / "strands"))
        await run(build(model, session_manager=manager))

    return Contestant(lambda model: run(build(model)), keep, store, "FileSessionManager", client.close)
