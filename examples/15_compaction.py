"""Longer than the window: old turns are summed up, long results become previews, and everything can still be found."""

import asyncio

from perdure import Agent, Extension, ToolCall, tool
from perdure.context import Compaction, history_tools, large_results
from perdure.models import Request
from perdure.testing import ScriptedModel, call

PORTS = ["Bergen", "Stavanger", "Kristiansand", "Skagen", "Gothenburg", "Helsingor", "Kiel", "Rostock"]


@tool(effect="read")
def read_log(port: str) -> str:
    """Read the ship's log of the days in a port."""
    days = [f"day {day}: nothing happened in {port}." for day in range(400)]
    days[250] = f"day 250: in {port} we took on {len(port)} barrels."
    return "\n".join(days)


class Clerk:
    """Stands in for a model: looks for the barrels of each port, then looks back to the first one."""

    def __init__(self) -> None:
        self.steps = [
            step
            for number, port in enumerate(PORTS)
            for step in (
                call("read_log", port=port),
                call("grep_result", call_id=f"call_{2 * number + 1}", pattern="barrels"),
            )
        ]
        self.steps.append(call("search_history", query="barrels Bergen"))

    def __call__(self, request: Request) -> str | ToolCall:
        if request.instructions.startswith("You keep the state"):
            return "## Goal\nCount the barrels.\n## Progress\n### Done\nSome ports.\n## Next steps\nThe other ports."
        return self.steps.pop(0) if self.steps else "Six barrels in Bergen, and more elsewhere."


async def main() -> None:
    model = ScriptedModel(Clerk(), repeat_last=True)
    pieces = large_results(max_characters=1_200)
    agent = Agent(
        model,
        tools=[read_log],
        extensions=[
            Extension(name="context", tools=[*pieces.tools, *history_tools()], wrap_tool=pieces.wrap_tool),
        ],
        compaction=Compaction(at_tokens=4_000, keep_recent_messages=4),
    )
    session = agent.session("voyage")
    outcome = await session.run("How many barrels did we take on in Bergen?")

    print("the answer: ", outcome.text)
    print("in the log: ", len(outcome.messages), "messages")
    print("sent last:  ", len(model.requests[-1].messages), "messages, the first of them a summary:")
    for line in model.requests[-1].messages[0].text.splitlines()[2:6]:
        print("   ", line)
    found = outcome.messages[-2].tool_results[0].text
    print("looked back:", next(line for line in found.splitlines() if "6 barrels" in line)[:90])


asyncio.run(main())
