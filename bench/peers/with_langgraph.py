"""The agent with LangGraph and LangChain's `create_agent`, streamed; sessions are threads of its checkpointers."""

import contextlib
import functools
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from bench.peers.contestant import MOST, PROMPT, Contestant, add, hear


async def prepare(base_url: str, folder: Path) -> Contestant:
    """Prepare an agent for each model and checkpointer."""
    closing = contextlib.AsyncExitStack()
    in_memory = InMemorySaver()
    on_disk: list[Any] = []

    @functools.cache
    def build(model: str, saver: Any = None) -> Any:
        chat = ChatOpenAI(model=model, base_url=base_url, api_key="none", streaming=True)
        return create_agent(chat, tools=[add], checkpointer=saver)

    async def run(model: str, session: str = "", saver: Any = None) -> None:
        config: dict[str, Any] = {"recursion_limit": MOST}
        if session:
            config["configurable"] = {"thread_id": session}
        asked = {"messages": [{"role": "user", "content": PROMPT}]}
        async for _ in build(model, saver).astream(asked, config, stream_mode="messages"):
            hear()

    async def store(model: str, session: str) -> None:
        if not on_disk:
            from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

            saver = AsyncSqliteSaver.from_conn_string(str(folder / "langgraph.db"))
            on_disk.append(await closing.enter_async_context(saver))
        await run(model, session, on_disk[0])

    return Contestant(
        ask=run,
        keep=lambda model, session: run(model, session, in_memory),
        store=store,
        store_kind="AsyncSqliteSaver",
        close=closing.aclose,
    )
