"""The same agent, written with each library: a tool, a stream, a crowd. Run as a program, it measures one of them.

    python contestants.py NAME PORT TURNS DELTAS CROWD      prints JSON

Each is written as its documentation says, streamed, with tracing off where that is a switch. Imports are inside, for
each runs in an environment that has only its own. Nothing of ours is imported but by `perdure`.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

stamps: list[int] = []
"""CPU of this process when the tool was called, in nanoseconds."""
heard = [0]
"""Pieces that have reached the handler."""
closing: list[Callable[[], Awaitable[object]]] = []
"""What has to be closed at the end."""
MOST = 10_000
"""Turns that are allowed, where a library counts them."""


async def add(n: int) -> str:
    """Add a number.

    Args:
        n: the number to add.
    """
    stamps.append(time.process_time_ns())
    return "ok" if n >= 0 else "below zero"


def hear() -> None:
    heard[0] += 1


async def perdure_traced(base_url: str) -> Callable[[str], Awaitable[object]]:
    from perdure.extensions import tracing
    from perdure.tracing.tracer import Tracer

    return await perdure(base_url, extensions=[tracing(Tracer())])


async def perdure_traced_to_a_file(base_url: str) -> Callable[[str], Awaitable[object]]:
    from perdure.extensions import tracing
    from perdure.tracing.tracer import Tracer

    tracer = Tracer(write=tempfile.mkstemp(suffix=".jsonl")[1])
    closing.append(lambda: asyncio.to_thread(tracer.close))
    return await perdure(base_url, extensions=[tracing(tracer)])


async def perdure(base_url: str, **options: Any) -> Callable[[str], Awaitable[object]]:
    from perdure import Agent, Entry, Limits, tool
    from perdure.core.event import TextDelta
    from perdure.models import openai_compatible

    async def watch(entry: Entry) -> None:
        if type(entry.event) is TextDelta:
            hear()

    added, limits = tool(add), Limits(max_turns=None)

    async def ask(model: str) -> object:
        chosen = models.get(model) or models.setdefault(model, openai_compatible(base_url, model, api_key="none"))
        return (await Agent(chosen, tools=[added], limits=limits, watchers=[watch], **options).run("go")).unwrap()

    models: dict[str, Any] = {}
    return ask


async def by_hand(base_url: str) -> Callable[[str], Awaitable[object]]:
    import aiohttp

    session = aiohttp.ClientSession()
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    function = {"name": "add", "description": "Add a number.", "parameters": parameters}
    tools = [{"type": "function", "function": function}]

    async def turn(model: str, messages: list[Any]) -> bool:
        body = {"model": model, "messages": messages, "tools": tools, "stream": True}
        text, calls = "", dict[int, dict[str, str]]()
        async with session.post(f"{base_url}/chat/completions", json=body) as answer:
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
        wire = [{"id": each["id"], "type": "function", "function": each} for each in calls.values()]
        messages.append({"role": "assistant", "content": text or None, **({"tool_calls": wire} if wire else {})})
        for each in calls.values():
            result = await add(**json.loads(each["arguments"]))
            messages.append({"role": "tool", "tool_call_id": each["id"], "content": result})
        return bool(calls)

    async def ask(model: str) -> object:
        messages: list[Any] = [{"role": "user", "content": "go"}]
        while await turn(model, messages):
            pass
        return messages

    closing.append(session.close)
    return ask


async def openai_agents(base_url: str) -> Callable[[str], Awaitable[object]]:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client, tool = AsyncOpenAI(base_url=base_url, api_key="none"), function_tool(add)

    async def ask(model: str) -> object:
        agent = Agent(name="a", tools=[tool], model=OpenAIChatCompletionsModel(model, client))
        result = Runner.run_streamed(agent, "go", max_turns=MOST)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                hear()
        return result.final_output

    return ask


async def pydantic_ai(base_url: str) -> Callable[[str], Awaitable[object]]:
    from pydantic_ai import Agent, PartDeltaEvent, UsageLimits
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=base_url, api_key="none")

    async def watch(_context: Any, events: Any) -> None:
        async for event in events:
            if isinstance(event, PartDeltaEvent):
                hear()

    async def ask(model: str) -> object:
        agent = Agent(OpenAIChatModel(model, provider=provider), tools=[add])
        return await agent.run("go", event_stream_handler=watch, usage_limits=UsageLimits(request_limit=None))

    return ask


async def langchain(base_url: str) -> Callable[[str], Awaitable[object]]:
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    async def ask(model: str) -> object:
        agent = create_agent(ChatOpenAI(model=model, base_url=base_url, api_key="none", streaming=True), tools=[add])
        config = {"recursion_limit": MOST}
        async for _ in agent.astream({"messages": [{"role": "user", "content": "go"}]}, config, stream_mode="messages"):
            hear()
        return None

    return ask


async def agno(base_url: str) -> Callable[[str], Awaitable[object]]:
    from agno.agent import Agent
    from agno.models.openai.like import OpenAILike

    async def ask(model: str) -> object:
        agent = Agent(model=OpenAILike(id=model, base_url=base_url, api_key="none"), tools=[add], telemetry=False)
        async for _ in agent.arun("go", stream=True):
            hear()
        return None

    return ask


async def measured(name: str, port: int, turns: int, deltas: int, crowd: int) -> dict[str, float]:
    """What a turn costs early and late in a run, a piece of a reply, and a crowd."""
    ask = await globals()[name](f"http://127.0.0.1:{port}/v1")
    await ask("turns-3")
    early: list[int] = []
    late: list[int] = []
    for _ in range(5):
        stamps.clear()
        await ask(f"turns-{turns}")
        costs = [later - before for before, later in pairwise(stamps)]
        early += costs[5:14]
        late += costs[-9:]
    pieces: list[float] = []
    for _ in range(3):
        heard[0] = 0
        began = time.process_time_ns()
        await ask(f"talk-{deltas}")
        pieces.append((time.process_time_ns() - began) / deltas)
    began = time.process_time_ns()
    await asyncio.gather(*[ask("turns-5") for _ in range(crowd)])
    together = time.process_time_ns() - began
    for close in closing:
        await close()
    return {
        "early_us": statistics.median(early) / 1e3,
        "late_us": statistics.median(late) / 1e3,
        "delta_us": min(pieces) / 1e3,
        "heard": heard[0],
        "crowd_s": together / 1e9,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured(sys.argv[1], *map(int, sys.argv[2:6])))))
