"""A coding agent mends a failing test: it runs the test in a sandbox, reads and edits the file, and is undone."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from perdure import Agent, Permissions, allow
from perdure.hosts import SnapshotFolder
from perdure.permissions import command, path
from perdure.testing import ScriptedModel, call
from perdure.tools import FileHistory, coding

TEST = f"{os.path.realpath(sys.executable)} -B -S test_boat.py"  # in the sandbox, /tmp is another folder


async def main(place: Path) -> None:
    project = place / "project"
    project.mkdir()
    (project / "boat.py").write_text("def oars(crew):\n    return crew\n")
    (project / "test_boat.py").write_text("from boat import oars\nassert oars(3) == 6\nprint('1 passed')\n")

    snapshots = SnapshotFolder(place / "snapshots")
    model = ScriptedModel(
        call("bash", command=TEST),
        call("grep", pattern="def oars"),
        call("read", path="boat.py"),
        call("edit", path="boat.py", old_string="return crew", new_string="return crew * 2"),
        call("bash", command=TEST),
        call("bash", command="rm -rf boat.py"),
        "Each of the crew has two oars now.",
    )
    rules = Permissions(allow("bash", target=command(TEST)), allow("edit", target=path(f"{project}/*.py")))
    async with Agent(model, extensions=[coding(project, snapshots=snapshots)], permission=rules) as agent:
        session = agent.session()
        outcome = await session.run("Mend the boat.")
        for message in outcome.new_messages:
            for result in message.tool_results:
                lines = result.text.splitlines()
                print(f"{result.name:5} {result.status:6} {lines[-1 if result.name == 'bash' else 0][:70]}")
        print(outcome.text)

        history = FileHistory(session, snapshots)
        print("changed:", [change.path for change in await history.changes()])
        print("may have changed more:", len(await history.commands()), "commands")
        await history.undo()
        print("undone:", (project / "boat.py").read_text().splitlines()[1].strip())


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder).resolve()))
