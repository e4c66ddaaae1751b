"""The agent by hand, with aiohttp: ask, call, append, repeat; messages in a list, or as rows of SQLite."""

import functools
import json
from pathlib import Path
from typing import Any

import aiohttp

from bench.peers.contestant import PROMPT, Contestant, add, hear

PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = [
    {"type": "function", "function": {"name": "add", "description": "Add a number.", "parameters": PARAMETERS}},
]


async def read_reply(answer: aiohttp.ClientResponse) -> tuple[str, list[dict[str, str]]]:
    """Return the text and the calls of a streamed reply."""
    text, calls = "", dict[int, dict[str, str]]()
    async for line in answer.content:
        if not line.startswith(b"data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            delta = choice["delta"]
            if delta.get("content"):
                text += delta["content"]
                hear()
            for piece in delta.get("tool_calls") or ():
                call = calls.setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
                call["id"] = piece.get("id") or call["id"]
                call["name"] = piece["function"].get("name") or call["name"]
                call["arguments"] += piece["function"].get("arguments") or ""
    return text, list(calls.values())


async def prepare(base_url: str, folder: Path) -> Contestant:
    """Prepare the loop, a dictionary of conversations and a table of messages."""
    http = aiohttp.ClientSession()
    conversations: dict[str, list[Any]] = {}

    @functools.cache
    def open_database() -> Any:
        import sqlite3

        database = sqlite3.connect(folder / "hand.db")
        database.execute("PRAGMA journal_mode = wal")
        database.execute("CREATE TABLE message(session TEXT, number INTEGER, body TEXT, PRIMARY KEY(session, number))")
        return database

    async def run_turn(model: str, messages: list[Any]) -> bool:
        body = {"model": model, "messages": messages, "tools": TOOLS, "stream": True}
        async with http.post(f"{base_url}/chat/completions", json=body) as answer:
            text, calls = await read_reply(answer)
        wire = [{"id": each["id"], "type": "function", "function": each} for each in calls]
        messages.append({"role": "assistant", "content": text or None, **({"tool_calls": wire} if wire else {})})
        for each in calls:
            result = await add(**json.loads(each["arguments"]))
            messages.append({"role": "tool", "tool_call_id": each["id"], "content": result})
        return bool(calls)

    async def run(model: str, messages: list[Any]) -> list[Any]:
        messages.append({"role": "user", "content": PROMPT})
        while await run_turn(model, messages):
            pass
        return messages

    async def store(model: str, session: str) -> object:
        database, query = open_database(), "SELECT body FROM message WHERE session = ? ORDER BY number"
        messages = [json.loads(body) for (body,) in database.execute(query, (session,))]
        known = len(messages)
        await run(model, messages)
        rows = [(session, number, json.dumps(messages[number])) for number in range(known, len(messages))]
        database.executemany("INSERT INTO message VALUES(?, ?, ?)", rows)
        database.commit()
        return messages

    async def close() -> None:
        if open_database.cache_info().currsize:
            open_database().close()
        await http.close()

    return Contestant(
        ask=lambda model: run(model, []),
        keep=lambda model, session: run(model, conversations.setdefault(session, [])),
        store=store,
        store_kind="SQLite",
        close=close,
    )
