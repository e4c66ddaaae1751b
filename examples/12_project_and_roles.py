"""What an agent is told: its own words, the files of a project, a role, and prompts in versions."""

import asyncio
import tempfile
from pathlib import Path

from perdure import Agent
from perdure.context import Project, Prompts, load_roles
from perdure.models import Request
from perdure.testing import ScriptedModel

FILES = {
    "ship/.git/HEAD": "",
    "ship/AGENTS.md": "Lengths are in metres.",
    "ship/deck/CLAUDE.md": "Nobody stands under the load.",
    "ship/roles/inspector.md": "---\ndescription: Looks for what is worn\n---\nDoubt every rope.",
    "ship/prompts/v1.md": "You look after the ship.",
    "ship/prompts/v2.md": "You look after the ship, and answer in one sentence.\n\n",
}


def told(request: Request) -> str:
    """A model that repeats what it was told."""
    return request.instructions


async def main(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")

    prompts = Prompts(folder / "ship" / "prompts", default="v1")
    project = Project(folder / "ship" / "deck", home=folder)
    roles = load_roles(folder / "ship" / "roles")
    agent = Agent(
        ScriptedModel(told, repeat_last=True),
        instructions=prompts.get("v2"),
        project=project,
        roles=roles,
        role="inspector",
    )
    print(f"versions {prompts.versions}, roles {[role.name for role in roles]}\n")
    print((await agent.run("What were you told?")).text)

    (folder / "ship" / "AGENTS.md").write_text("Lengths are in fathoms.", encoding="utf-8")
    print("\nThe file has changed, and so has what is told:", "fathoms" in (await agent.run("And now?")).text)


with tempfile.TemporaryDirectory() as temporary:
    asyncio.run(main(Path(temporary)))
