"""A provider of your own: a model that no catalogue knows, opened by name like any other, and checked by its contract.

The provider here is a clerk who looks things up in a ledger. Yours may be a gateway in your company, a queue, or a
library that runs a model; all it has to do is to answer a request with events.
"""

import asyncio
import json
from collections.abc import AsyncIterator

from perdure import Agent, ConfigError, StopReason, Usage, tool
from perdure.events import ModelEvent, ReplyFinished, TextDelta, ToolCallDelta
from perdure.models import ModelInfo, Price, Request, list_provider_statuses, open_model, register
from perdure.testing import check_model


class Clerk:
    """Asks the first tool it is given about the last word it hears, and reads out what came back."""

    def __init__(self, manner: str) -> None:
        self.info = ModelInfo(manner, "clerk", Price(input_usd=0.0, output_usd=0.0))

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        last = request.messages[-1]
        usage = Usage(input_tokens=len(request.messages), output_tokens=1)
        if request.tools and last.role == "user":
            spec = request.tools[0]
            arguments = {name: last.text.strip("?.! ").split()[-1] for name in spec.parameters["properties"]}
            yield ToolCallDelta(f"call_{len(request.messages)}", spec.name, json.dumps(arguments))
            yield ReplyFinished(StopReason.TOOL_USE, usage)
            return
        found = last.tool_results[0].text if last.tool_results else "Nothing to look up."
        for word in (found.upper() if self.info.name == "loud" else found).split():
            yield TextDelta(f"{word} ")
            await asyncio.sleep(0)  # where a real one waits for the next piece: it can be cancelled here
        yield ReplyFinished(StopReason.STOP, usage)


def clerk(name: str) -> Clerk:
    """What `clerk:…` opens. What cannot work is told here, where the model is named."""
    if name not in {"", "quiet", "loud"}:
        raise ConfigError(f"there is no clerk {name!r}; use 'clerk:quiet' or 'clerk:loud'")
    return Clerk(name or "quiet")


@tool(effect="read")
async def ledger(ship: str) -> str:
    """What the ledger says about a ship."""
    return {"Fram": "three masts, built in 1892"}.get(ship, "no such ship")


async def main() -> None:
    register("clerk", clerk)
    for name in ("clerk", "clerk/loud"):
        outcome = await Agent(name, tools=[ledger]).run("What do you know about the Fram?")
        print(f"{name}: {outcome.text.strip()} ({outcome.cost_usd:.2f} dollars)")
    try:
        open_model("clerk:rude")
    except ConfigError as error:
        print(f"clerk:rude: {error}")
    await check_model(lambda: Clerk("quiet"))
    print("the contract of a model is kept")
    print("among the providers:", [status.name for status in list_provider_statuses() if status.why == "registered"])


asyncio.run(main())
