"""Permissions: rules, one question for all the calls of a reply, and an answer that is remembered."""

import asyncio
from collections.abc import Sequence

from perdure import Agent, Permissions, allow, deny, tool
from perdure.permissions import PermissionRequest, Verdict
from perdure.testing import ScriptedModel, call, calls


@tool(permission=True, action="write", target="path")
async def write(path: str, text: str) -> str:
    """Write a file."""
    return f"{len(text)} characters written to {path}"


@tool(permission=True, target="path")
async def remove(path: str) -> str:
    """Remove a file."""
    return f"{path} removed"


async def person(requests: Sequence[PermissionRequest]) -> Sequence[Verdict]:
    """Stands for a dialogue: it is asked once about everything that no rule settles."""
    print("asked about:", ", ".join(f"{each.action} {each.target}" for each in requests))
    return [
        Verdict(allow=each.tool == "write", reason="only writing is fine today", scope="session") for each in requests
    ]


async def main() -> None:
    rules = Permissions(allow(action="write", target="notes/*"), deny(target="*.key"), handler=person)
    model = ScriptedModel(
        calls(
            call("write", path="notes/plan.md", text="Cast off at six."),  # allowed by a rule
            call("remove", path="master.key"),  # denied by a rule
            call("write", path="log.txt", text="Calm."),  # asked about
            call("remove", path="old.txt"),  # asked about, in the same question
        ),
        call("write", path="log.txt", text="Wind from the west."),  # remembered for the session: not asked again
        "Done.",
    )
    outcome = await Agent(model, tools=[write, remove], permission=rules).run("Tidy up, and keep the log.")
    for message in outcome.new_messages:
        for result in message.tool_results:
            print(f"{result.status:7} {result.text}")


asyncio.run(main())
