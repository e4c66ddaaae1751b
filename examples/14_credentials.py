"""Credentials: the model writes `{{name}}`, the tool gets the value, and nothing that is kept or shown has it."""

import asyncio
import base64

from perdure import Agent, ToolContext, tool
from perdure.events import ToolFinished, ToolProgress
from perdure.permissions import MemoryVault, Redactor, credentialed, redacted_model
from perdure.testing import Recorder, ScriptedModel, call

VALUE = "harbour-7f3a91c2"


@tool
async def fetch(url: str, headers: dict[str, str], context: ToolContext) -> str:
    """Fetch a page (a pretended one, which gives everything away that it is sent)."""
    sent = headers["Authorization"]
    for piece in (f"sending {sent[:10]}", sent[10:]):
        context.emit(piece)
    encoded = base64.b64encode(f"user:{VALUE}".encode()).decode()
    return f"401 for {url}: {sent!r} is not valid, nor is Basic {encoded}"


async def main() -> None:
    redactor, recorder = Redactor(), Recorder()
    vault = MemoryVault({"harbour_token": VALUE})
    script = ScriptedModel(
        call("fetch", url="https://harbour.example/berths", headers={"Authorization": "Bearer {{harbour_token}}"}),
        call("fetch", url="https://harbour.example/berths", headers={"Authorization": "Bearer {{harbor_token}}"}),
        "The token is not valid.",
    )
    tools = [credentialed(fetch, vault, redactor=redactor)]
    agent = Agent(redacted_model(script, redactor), tools=tools, watchers=[recorder])
    await agent.run("Which berths are free?")
    for event in recorder.events:
        if isinstance(event, ToolProgress):
            print("progress:", event.data)
        elif isinstance(event, ToolFinished):
            print("result:  ", event.result.text)
    print("told the model:", VALUE in repr([list(request.messages) for request in script.requests]))


asyncio.run(main())
