"""Agents in the background: the run ends, they go on, and the model is told when they are done."""

import asyncio

from perdure import Agent, tool
from perdure.events import TextDelta
from perdure.models import Request
from perdure.testing import ScriptedModel, call, calls
from perdure.tools import orchestrator


@tool(effect="read")
async def survey(part: str) -> str:
    """Look at a part of the ship, which takes a while."""
    await asyncio.sleep(0.05)
    return f"the {part} is sound"


def surveyor_says(request: Request) -> object:
    """Survey what the task names, and tell what was found."""
    results = request.messages[-1].tool_results
    return results[0].text if results else call("survey", part=request.messages[0].text)


def planner_says(request: Request) -> object:
    """Give two tasks, go on, and sum up when both are done."""
    told = [message.text for message in request.messages if message.origin == "inbox"]
    if told:
        return f"Of the surveyors' answers, {sum(text.count('Response') for text in told)} are here."
    if request.messages[-1].tool_results:
        return "Two surveyors are at work. I will tell you."
    tasks = [call("delegate", agent="surveyor", task=part, background=True) for part in ("hull", "mast")]
    return calls(*tasks)


async def main() -> None:
    surveyor = Agent(ScriptedModel(surveyor_says, repeat_last=True), name="surveyor", tools=[survey])
    planner = Agent(ScriptedModel(planner_says, repeat_last=True))
    async with orchestrator(planner, [surveyor]) as agent:
        session = agent.session("inspection")
        seen = session.subscribe()  # whoever watches the planner sees the surveyors too
        print((await session.run("Can we sail?")).text)
        async for outcome in session.attend(seconds=0.05):
            print(outcome.text)
            if not any(item.status == "pending" for item in await session.inbox()):
                break
        while len(seen):
            event = seen.get_nowait().event
            if event.path and isinstance(event, TextDelta):
                print(f"{event.path.partition('-')[0]}: {event.text}")
        for info in await agent.store.list(prefix="inspection/"):
            print(f"a session of its own, with {info.entries} entries")


asyncio.run(main())
