"""Engines: a plan whose tasks run at the same time, a process that ends in the middle, and a reviewed answer."""

import asyncio
import tempfile
from pathlib import Path

from perdure import Agent, ToolContext, tool
from perdure.background import Shutdown
from perdure.engines import planner, reflect
from perdure.events import AnswerReviewed, PlanMade, RunStarted, ToolFinished
from perdure.models import Request
from perdure.testing import ScriptedModel, call

PLAN = """[{"id": "sails", "description": "Order sails"}, {"id": "rope", "description": "Order rope"},
           {"id": "bill", "description": "Add up the bill", "depends_on": ["sails", "rope"]}]"""


def says(request: Request) -> object:
    """Play every part: the planner, whoever does a task, and the one that answers."""
    asked = next(each.text for each in reversed(request.messages) if each.role == "user")
    if "Make a plan" in asked:
        return PLAN
    if "this one task" not in asked:
        return "Sails and rope are ordered, for 90 crowns."
    if "Add up" in asked:
        return "90 crowns"
    results = request.messages[-1].tool_results
    return results[0].text if results else call("order", what="sails" if "Order sails" in asked else "rope")


@tool(effect="at_most_once")
async def order(what: str, context: ToolContext[dict[str, object]]) -> str:
    """Order something. It must never be ordered twice."""
    print(f"ordered {what}")
    shutdown = context.deps.get("shutdown")
    if what == "rope" and isinstance(shutdown, Shutdown):
        shutdown.begin()  # the process is asked to end in the middle of the plan
    return f"{what}: 45 crowns"


def yard(folder: Path, **deps: object) -> Agent[dict[str, object]]:
    """The same agent in every process."""
    return Agent(
        ScriptedModel(says, repeat_last=True),
        tools=[order],
        engine=planner(max_tasks=5),
        deps=deps,
        store=f"sqlite:{folder / 'yard.db'}",
    )


async def main(folder: Path) -> None:
    async with Shutdown(signals=()) as shutdown:
        agent = shutdown.wrap_agent(yard(folder, shutdown=shutdown))
        outcome = await agent.session("ann").run("Get the Ann ready.")
        print(f"the run is {outcome.status}: {outcome.reason}")

    async with yard(folder) as agent:  # another process: nothing is ordered again
        outcome = await agent.session("ann").resume()
        print(outcome.text)
        for entry in await agent.store.read("ann"):
            event = entry.event
            if isinstance(event, PlanMade):
                print("plan:", ", ".join(task.description for task in event.tasks))
            elif isinstance(event, RunStarted) and event.private:
                print("private run:", event.path)
            elif isinstance(event, ToolFinished):
                print(f"{event.path}: {event.result.text}")

    draft, review, revised = (
        "Soon.",
        '{"score": 2, "issues": ["no date"], "needs_revision": true}',
        "On Friday at noon.",
    )
    reviewed = Agent(ScriptedModel(draft, review, revised), engine=reflect(max_reflections=1))
    outcome = await reviewed.run("When do we sail?")
    for entry in outcome.entries:
        if isinstance(entry.event, AnswerReviewed):
            print(f"score {entry.event.score}: {entry.event.assessment}")
    print(outcome.text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary)))
