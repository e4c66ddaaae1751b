"""The agent with Agno, streamed; sessions are in its `InMemoryDb` or its `AsyncSqliteDb`."""

import functools
from pathlib import Path
from typing import Any

from agno.agent import Agent
from agno.models.openai.like import OpenAILike

from bench.peers.contestant import PROMPT, Contestant, add, hear


async def prepare(base_url: str, folder: Path) -> Contestant:
    """Prepare an agent for each model and database."""

    @functools.cache
    def open_database(kind: str) -> Any:
        if kind == "memory":
            from agno.db.in_memory import InMemoryDb

            return InMemoryDb()
        from agno.db.sqlite import AsyncSqliteDb

        return AsyncSqliteDb(db_file=str(folder / "agno.db"))

    @functools.cache
    def build(model: str, database: str = "") -> Any:
        chat = OpenAILike(id=model, base_url=base_url, api_key="none")
        stored = {"db": open_database(database), "add_history_to_context": True} if database else {}
        return Agent(model=chat, tools=[add], telemetry=False, **stored)

    async def run(model: str, session: str = "", database: str = "") -> None:
        named = {"session_id": session} if session else {}
        async for _ in build(model, database).arun(PROMPT, stream=True, **named):
            hear()

    return Contestant(
        ask=run,
        keep=lambda model, session: run(model, session, "memory"),
        store=lambda model, session: run(model, session, "disk"),
        store_kind="AsyncSqliteDb",
    )
