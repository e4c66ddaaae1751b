"""Orders inside a message: commands that rewrite or answer, skills, files, and what is never read."""

import asyncio
import tempfile
from pathlib import Path

from perdure import Agent, CommandContext
from perdure.context import Command, MentionSettings, Rewrite, ShortCircuit, Skill, Skills
from perdure.testing import ScriptedModel

BRIEF = Skill(name="brief", description="How to brief a crew.", body="Say what, where and when, in three lines.")


def knots(context: CommandContext) -> Rewrite:
    return Rewrite(f"{context.text}\nGive speeds in knots.")


async def said(context: CommandContext) -> ShortCircuit:
    messages = await context.controls.messages()
    return ShortCircuit(f"{len(messages)} messages so far in {context.controls.session_id!r}.")


async def main(folder: Path) -> None:
    (folder / "log.txt").write_text("06:00 calm, 4 knots\n", encoding="utf-8")
    (folder / ".env").write_text("KEY=hunter2\n", encoding="utf-8")
    (folder / "elsewhere").symlink_to("/etc")
    model = ScriptedModel("Six knots, from Oslo, at noon.")
    agent = Agent(
        model,
        skills=Skills([BRIEF]),
        commands=[Command("knots", knots), Command("said", said, "How much was said.")],
        mentions=MentionSettings(folder),
    )
    session = agent.session("trip")
    outcome = await session.run("/brief the crew /knots\nSee @log.txt, @.env and @elsewhere/passwd.")
    for message in outcome.messages:
        print(f"--> {message.role} {message.origin}".rstrip())
        print(message.text)
    print("typed was:", repr(outcome.messages[1].original_text))
    print("for people:", *outcome.messages[1].metadata["not_attached"], sep="\n  ")
    outcome = await session.run("/said")
    print("without the model:", outcome.text, f"({len(model.requests)} request)")


with tempfile.TemporaryDirectory() as place:
    asyncio.run(main(Path(place)))
