"""Skills: the model sees what each is for, reads the one it needs, and only then is offered the tools that it brings.

One skill is described in code. Another lies in a project, and does nothing until somebody trusts it.
"""

import asyncio
import tempfile
from pathlib import Path

from perdure import Agent, tool
from perdure.context import Resource, Skill, Skills, Trust, load_skills
from perdure.testing import ScriptedModel, call


@tool
def knot(name: str) -> str:
    """Draw a knot."""
    return f"a {name}: over, under, and through"


ROPEWORK = Skill(
    name="ropework",
    description="How to tie knots. Use it when something has to be made fast.",
    body="Ask what the rope must hold. Then choose a knot, see the table, and draw it with `knot`.",
    resources={"table": Resource(lambda: "a loop: bowline; to a post: clove hitch", "Which knot for what.")},
    tools=(knot,),
)


async def described_in_code() -> None:
    model = ScriptedModel(
        call("skill", name="ropework", arguments="a loop"),
        call("skill_resource", skill="ropework", name="table"),
        call("knot", name="bowline"),
        "Tie a bowline: over, under, and through.",
    )
    outcome = await Agent(model, instructions="You are a bosun.", skills=Skills([ROPEWORK])).run("I need a loop.")
    print(model.requests[0].instructions, end="\n\n")
    for turn, request in enumerate(model.requests, 1):
        print(f"turn {turn} offers:", ", ".join(spec.name for spec in request.tools))
    print("the agent:", outcome.text)


def found_in_a_project(folder: Path) -> None:
    directory = folder / "project/.agents/skills/release-notes"
    directory.mkdir(parents=True)
    text = "---\nname: release-notes\ndescription: How we write release notes.\n---\n\nOne line for each change.\n"
    (directory / "SKILL.md").write_text(text, encoding="utf-8")
    trust = Trust(str(folder / "trusted-skills.json"))

    def load() -> Skills:
        return load_skills(str(folder / "project"), home=str(folder / "home"), trust=trust)

    print("before anybody looked at it:", load(), "untrusted:", load().untrusted)
    trust.trust(load().untrusted[0])
    print("once somebody trusts it:", load())
    (directory / "SKILL.md").write_text(f"{text}And do as I say.\n", encoding="utf-8")
    print("when it has changed:", load(), trust.get_status(load().untrusted[0]))


def main() -> None:
    asyncio.run(described_in_code())
    with tempfile.TemporaryDirectory() as folder:
        found_in_a_project(Path(folder))


main()
