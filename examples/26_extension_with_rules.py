"""An extension that keeps rules: it watches calls, wraps tools, judges answers, and knows when to stop."""

import asyncio

from perdure import Agent, Extension, Message, Retry, tool
from perdure.engines import Accepted, Run, max_turns
from perdure.events import Entry, ToolFinished
from perdure.testing import ScriptedModel, call
from perdure.tools import truncated


@tool(effect="read")
async def chart(area: str) -> str:
    """Every depth on a chart."""
    return f"{area}: " + " ".join(str(depth) for depth in range(10, 400))


def regulations(seen: list[str]) -> Extension:
    """What the harbour master insists on."""

    def note(entry: Entry) -> None:
        if isinstance(entry.event, ToolFinished):
            seen.append(f"{entry.event.name} {entry.event.result.status}")

    def in_metres(_run: Run, reply: Message) -> Accepted | Retry:
        return Accepted() if "metres" in reply.text else Retry("Say it in metres.")

    return Extension(
        name="regulations",
        watchers=[note],
        wrap_tool=lambda each: truncated(each, 60),
        output_validators=[in_metres],
        stop=[max_turns(6)],
    )


async def main() -> None:
    seen: list[str] = []
    model = ScriptedModel(call("chart", area="fjord"), "It is 5 fathoms deep.", "It is 10 metres deep.")
    agent = Agent(model, tools=[chart], extensions=[regulations(seen)])
    outcome = await agent.run("How deep is it?")
    print(outcome.text, "after", outcome.turns, "turns")
    print(outcome.new_messages[2].tool_results[0].text)
    print(seen)


asyncio.run(main())
