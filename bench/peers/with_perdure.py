"""The agent with Perdure; `prepare_traced` and `prepare_traced_to_a_file` have a tracer too."""

import asyncio
import functools
from pathlib import Path
from typing import Any

from bench.peers.contestant import PROMPT, Contestant, add, hear
from perdure import Agent, Limits, tool
from perdure.events import Entry, TextDelta
from perdure.models import openai_compatible

ADD = tool(add)


async def watch(entry: Entry) -> None:
    """Count streamed text."""
    if type(entry.event) is TextDelta:
        hear()


async def prepare(base_url: str, folder: Path, **options: Any) -> Contestant:
    """Prepare an agent for each model and store."""
    stored: list[Agent[Any]] = []

    @functools.cache
    def build(model: str, store: str = "") -> Agent[Any]:
        more = {"store": store, **options} if store else options
        chosen = openai_compatible(base_url, model, api_key="none")
        return Agent(chosen, tools=[ADD], limits=Limits(max_turns=None), watchers=[watch], **more)

    path = f"sqlite:{folder / 'perdure.db'}"

    async def ask(model: str) -> object:
        return (await build(model).run(PROMPT)).unwrap()

    async def keep(model: str, session: str) -> object:
        return (await build(model, "memory:").session(session).run(PROMPT)).unwrap()

    async def store(model: str, session: str) -> object:
        agent = build(model, path)
        if agent not in stored:
            stored.append(agent)
        return (await agent.session(session).run(PROMPT)).unwrap()

    async def close() -> None:
        for agent in stored:
            await agent.store.aclose()

    return Contestant(ask, keep, store, "SQLite", close)


async def prepare_traced(base_url: str, folder: Path) -> Contestant:
    """Prepare agents with a tracer in memory."""
    from perdure.tools import tracing
    from perdure.tracing import Tracer

    return await prepare(base_url, folder, extensions=[tracing(Tracer())])


async def prepare_traced_to_a_file(base_url: str, folder: Path) -> Contestant:
    """Prepare agents with a tracer that writes lines."""
    from perdure.tools import tracing
    from perdure.tracing import Tracer

    tracer = Tracer(write=str(folder / "trace.jsonl"))
    prepared = await prepare(base_url, folder, extensions=[tracing(tracer)])
    return prepared._replace(close=lambda: asyncio.to_thread(tracer.close))
