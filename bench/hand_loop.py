"""The loop that anybody would write by hand: what every turn is compared with. Below: nothing of ours.

A model that streams, arguments in JSON, one async tool, a list of messages. No log, no validation, no limits, no
events, no errors: the least that still is an agent.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

Message = dict[str, Any]
Tool = Callable[..., Awaitable[str]]


async def model(messages: list[Message], turns: int) -> AsyncIterator[Message]:
    """Asks for a tool `turns` times, with other arguments each time, and then answers."""
    turn = len(messages) // 2
    if turn < turns:
        yield {"type": "call", "id": f"call_{turn}", "name": "add", "arguments": f'{{"n":{turn}}}'}
    else:
        yield {"type": "text", "text": "done"}


async def run(turns: int, tools: dict[str, Tool]) -> list[Message]:
    """Reason and act until there is nothing left to do."""
    messages: list[Message] = [{"role": "user", "content": "add"}]
    while True:
        call: Message | None = None
        text = ""
        async for event in model(messages, turns):
            if event["type"] == "call":
                call = event
            else:
                text += event["text"]
        if call is None:
            messages.append({"role": "assistant", "content": text})
            return messages
        messages.append({"role": "assistant", "call": call})
        result = await tools[call["name"]](**json.loads(call["arguments"]))
        messages.append({"role": "tool", "call_id": call["id"], "content": result})


async def deliver(deltas: AsyncIterator[Any], handler: Callable[[Any], Awaitable[None]]) -> None:
    """Hand each piece of a reply to a handler."""
    async for delta in deltas:
        await handler(delta)
