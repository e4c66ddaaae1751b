"""An agent that keeps track of its work: tasks on a screen, todos that may fail, notes that survive a restart."""

import asyncio
import tempfile
from pathlib import Path

from perdure import Agent
from perdure.events import ValueKept
from perdure.testing import ScriptedModel, call
from perdure.tools import parse_tasks, scratchpad_tools, task_tools, todo_tools

TOOLS = [*task_tools(), *todo_tools(), *scratchpad_tools()]
SPLICE = {"content": "Splice the rope", "active_form": "Splicing the rope"}
COIL = {"content": "Coil it", "active_form": "Coiling it"}


async def first_day(store: str) -> None:
    model = ScriptedModel(
        call("update_tasks", tasks=[{**SPLICE, "status": "in_progress"}, {**COIL, "status": "pending"}]),
        call("write_scratchpad", content="The rope lies in the fore peak."),
        call("update_tasks", tasks=[{**SPLICE, "status": "completed"}, {**COIL, "status": "in_progress"}]),
        "The splice is done.",
    )
    async with Agent(model, tools=TOOLS, store=store) as agent:
        async for event in agent.session("rope").stream("Make the rope ready."):
            if isinstance(event, ValueKept) and event.name == "tasks":
                print("on the screen:", " | ".join(task.display_text for task in parse_tasks(event.value)))


async def next_day(store: str) -> None:
    async with Agent("demo", tools=TOOLS, store=store) as agent:
        session = agent.session("rope")
        for task in await session.tasks():
            print(f"still known: {task.id} {task.status}: {task.content}")
        print("the notes:", (await session.call("read_scratchpad", {})).text)
        await session.call("todo_append", {"id": "mast", "content": "Climb the mast"})
        for _ in range(3):
            await session.call("todo_update", {"id": "mast", "status": "failed"})
            await session.call("todo_update", {"id": "mast", "status": "in_progress"})
        print((await session.call("todo_list", {})).text)


with tempfile.TemporaryDirectory() as place:
    path = f"sqlite:{Path(place) / 'sessions.db'}"
    asyncio.run(first_day(path))
    asyncio.run(next_day(path))
