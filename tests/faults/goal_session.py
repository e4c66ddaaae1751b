"""A process that pursues a goal whose effects are lines of a ledger, by a model that only looks at what it is sent.

python -m tests.faults.goal_session FOLDER start|resume
"""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from perdure import Agent, tool
from perdure.background import Goal, pursue_goal, resume_goal
from perdure.testing import ScriptedModel, call
from tests.goals.roles import role_of

GOAL_ID = "goal-boat"
TITLES = ("The hull is tight.", "The sail is up.", "The flag is set.")
_OPEN = re.compile(r"- \[ \] id (\d)")


def answer(request: Any) -> Any:
    """Reply as planner, maker or checker, from the request alone: any process gives the same reply."""
    role, results = role_of(request), [each for message in request.messages for each in message.tool_results]
    if role == "planner":
        return json.dumps({"items": TITLES})
    if role == "maker":
        part = _OPEN.findall(request.messages[0].text)[0]
        return f"Mended {part}." if results else call("mend", part=part)
    if not results:
        return call("look")
    done = results[-1].text.split()
    items = [{"id": each, "done": each in done, "evidence": f"line {each}"} for each in ("1", "2", "3")]
    return json.dumps({"done": len(done) == len(TITLES), "items": items, "summary": f"{len(done)} parts are mended."})


def build_agent(folder: Path) -> Agent[Any]:
    ledger = folder / "ledger"

    @tool
    def mend(part: str) -> str:
        """Mend a part: an effect that must not happen twice."""
        with os.fdopen(os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "w") as file:
            file.write(f"{part}\n")
        return f"{part} is mended"

    @tool(effect="read")
    def look() -> str:
        """Read the ledger."""
        return ledger.read_text() if ledger.exists() else "none"

    model = ScriptedModel(answer, repeat_last=True)
    return Agent(model, name="boatman", tools=[mend, look], store=f"sqlite:{folder}/sessions.db")


async def main(folder: Path, command: str) -> None:
    agent = build_agent(folder)
    if command == "start":
        record = await pursue_goal(Goal("Make the boat ready."), agent, goal_id=GOAL_ID)
    else:
        record = await resume_goal(GOAL_ID, agent)
    await agent.store.aclose()
    sys.stdout.write(f"{record.status} {len(record.iterations)}\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
