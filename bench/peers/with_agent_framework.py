"""The agent with Microsoft's Agent Framework, streamed; sessions are in memory, or in its files of JSON lines."""

import functools
from pathlib import Path
from typing import Any

from agent_framework import Agent, FileHistoryProvider
from agent_framework.openai import OpenAIChatCompletionClient
from openai import AsyncOpenAI

from bench.peers.contestant import MOST, PROMPT, Contestant, add, hear


async def prepare(base_url: str, folder: Path) -> Contestant:
    """Prepare an agent for each model, with and without files, and one HTTP client."""
    client = AsyncOpenAI(base_url=base_url, api_key="none")
    sessions: dict[str, Any] = {}

    @functools.cache
    def build(model: str, *, is_stored: bool = False) -> Any:
        limits = {"max_iterations": MOST}
        chat = OpenAIChatCompletionClient(model, async_client=client, function_invocation_configuration=limits)
        providers = {"context_providers": [FileHistoryProvider(folder / "history")]} if is_stored else {}
        return Agent(client=chat, tools=[add], **providers)

    async def run(model: str, session: Any = None, *, is_stored: bool = False) -> None:
        async for update in build(model, is_stored=is_stored).run(PROMPT, stream=True, session=session):
            if update.text:
                hear()

    async def keep(model: str, session: str) -> None:
        kept = sessions.get(session) or sessions.setdefault(session, build(model).create_session(session_id=session))
        await run(model, kept)

    async def store(model: str, session: str) -> None:
        opened = build(model, is_stored=True).create_session(session_id=session)
        await run(model, opened, is_stored=True)

    return Contestant(run, keep, store, "FileHistoryProvider", client.close)
