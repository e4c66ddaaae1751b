"""Streaming: words as they come, a tool that tells how far it is, and a person who speaks up in between."""

import asyncio

from perdure import Agent, ToolContext, tool
from perdure.events import MessageAdded, ReplyFinished, TextDelta, ToolFinished, ToolProgress
from perdure.testing import ScriptedModel, call, pause


@tool(effect="read")
async def survey(harbour: str, context: ToolContext) -> str:
    """Measure the depth of a harbour."""
    for metre in (3, 7, 12):
        context.emit({"metre": metre})
        await asyncio.sleep(0)
    return f"{harbour} is 12 metres deep."


async def main() -> None:
    listening = pause()  # the scripted model stands still here, so that the person below is always in time
    model = ScriptedModel(
        call("survey", harbour="Bergen"),
        [TextDelta("It is 12 "), TextDelta("metres "), listening, TextDelta("deep."), ReplyFinished()],
        "That is 39 feet.",
    )
    session = Agent(model, tools=[survey]).session()
    stream = session.stream("How deep is the harbour of Bergen?")
    async for event in stream:
        match event:
            case TextDelta(text=text):
                print(f"words: {text!r}")
                if "metres" in text:
                    await session.steer("In feet, please.")
                    listening.release()
            case ToolProgress(data=data):
                print("progress:", data)
            case ToolFinished(result=result):
                print("result:", result.text)
            case MessageAdded(message=message) if message.origin:
                print(f"{message.origin}: {message.text}")
    print("outcome:", (await stream.outcome()).status)


asyncio.run(main())
