"""The agent with pydantic-ai, streamed. It has no store: its user keeps the messages of a conversation."""

import functools
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, PartDeltaEvent, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from bench.peers.contestant import PROMPT, Contestant, add, hear


async def watch(_context: Any, events: Any) -> None:
    """Count streamed pieces."""
    async for event in events:
        if isinstance(event, PartDeltaEvent):
            hear()


async def prepare(base_url: str, _folder: Path) -> Contestant:
    """Prepare an agent for each model, with one provider."""
    provider = OpenAIProvider(base_url=base_url, api_key="none")
    limits = UsageLimits(request_limit=None)
    conversations: dict[str, Any] = {}

    @functools.cache
    def build(model: str) -> Any:
        return Agent(OpenAIChatModel(model, provider=provider), tools=[add])

    async def run(model: str, history: Any = None) -> Any:
        options = {"event_stream_handler": watch, "usage_limits": limits, "message_history": history}
        return await build(model).run(PROMPT, **options)

    async def keep(model: str, session: str) -> object:
        result = await run(model, conversations.get(session))
        conversations[session] = result.all_messages()
        return result.output

    return Contestant(run, keep)
