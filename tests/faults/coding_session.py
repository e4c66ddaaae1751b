"""A coding agent that mends a failing test in a repository, in a process that can be killed anywhere.

    python -m tests.faults.coding_session FOLDER        run the session, or resume it
    python -m tests.faults.coding_session - run …       the command `perdure`, with the same model as `coder:one`

What the model replies depends on how far the conversation is, so that any process can go on with it.
"""

import asyncio
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from perdure import Agent, ToolCall
from perdure.events import ModelEvent
from perdure.hosts import SnapshotFolder
from perdure.models import ModelInfo, Request
from perdure.permissions import allow_all
from perdure.stores import open_store
from perdure.testing import ScriptedModel, call
from perdure.tools import coding

RUN_TESTS = f"{shlex.quote(os.path.realpath(sys.executable))} -B -S test_boat.py"
"""The command that runs the tests of the repository, without leaving files."""
STAYS = os.environ.get("CODING_STAYS", "")
"""A command that is run in the middle, and goes on until its process is killed."""

STEPS: tuple[ToolCall | str, ...] = (
    call("bash", command=f"echo looked >> ledger; {RUN_TESTS}"),
    call("read", path="boat.py"),
    call("edit", path="boat.py", old_string="return crew", new_string="return crew * 2"),
    call("bash", command=f"echo mended >> ledger; {STAYS}"),
    call("write", path="notes/today.md", content="Mended the boat.\n"),
    call("git_commit", message="Mend the boat", paths=["boat.py", "notes/today.md"]),
    call("bash", command=f"echo tested >> ledger; {RUN_TESTS}"),
    call("bash", command=RUN_TESTS),
    "The test passes.",
)
"""The replies of the model. The edit, made twice, would leave another text than made once; so would most commands."""


class Coder:
    """A model that goes on where the conversation is."""

    info = ModelInfo("one", "coder")

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Reply with the step after those that were taken."""
        place = sum(each.role == "assistant" for each in request.messages)
        step = STEPS[min(place, len(STEPS) - 1)]
        reply = step if isinstance(step, str) else replace(step, call_id=f"step_{place}")
        return ScriptedModel(reply).stream(request)


def create_repository(root: Path) -> None:
    """Create a repository with a failing test."""
    root.mkdir()
    (root / "boat.py").write_bytes(b"def oars(crew):\r\n    return crew\r\n")
    (root / "boat.py").chmod(0o755)
    (root / "test_boat.py").write_text(
        "from boat import oars\n\nassert oars(3) == 6, oars(3)\nprint('1 passed')\n", "utf-8"
    )
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "Begin"]):
        subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b.c", *words], cwd=root, check=True)
    for name, value in (("user.name", "A"), ("user.email", "a@b.c")):
        subprocess.run(["git", "config", name, value], cwd=root, check=True)


def build_agent(place: Path) -> Agent[Any]:
    """Return the agent: the bundle `coding` over the repository, with commands in the sandbox."""
    root = place / "repository"
    extension = coding(root, snapshots=SnapshotFolder(place / "snapshots"))
    store = open_store(f"sqlite:{place}/log.db")
    return Agent(Coder(), extensions=[extension], permission=allow_all, store=store)


async def run_or_resume(place: Path) -> None:
    """Run the session to its end, or go on with it."""
    async with build_agent(place) as agent:
        session = agent.session("s")
        outcome = await (session.run("Mend the boat.") if await session.info() is None else session.resume())
        print(outcome.status, outcome.text)  # noqa: T201 - for the test


def main() -> None:
    if sys.argv[1] != "-":
        asyncio.run(run_or_resume(Path(sys.argv[1])))
        return
    from perdure._cli.main import main as run_command
    from perdure.models import register

    register("coder", lambda _: Coder())
    sys.argv[1:] = sys.argv[2:]
    run_command()


if __name__ == "__main__":
    main()
