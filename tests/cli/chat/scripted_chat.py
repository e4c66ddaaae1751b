"""`perdure` with a model that gives the replies of the file that SCRIPT names, one after another.

A reply is an object: `text`, `calls` (pairs of a name and arguments), and `until`, a file for which it waits after its
text. The number of earlier replies in the request chooses the reply, so that a process that goes on after another
continues the script. `{steered}` in a text stands for the last message of the user, `{said}` for all of them.
"""

import asyncio
import json
import os
from pathlib import Path

from perdure import Usage
from perdure._cli.main import main
from perdure.events import ReplyFinished, TextDelta, ToolCallDelta
from perdure.models import ModelInfo, Price, register

POLL_SECONDS = 0.02


def read_script():
    """The replies of the model."""
    return json.loads(Path(os.environ["SCRIPT"]).read_text(encoding="utf-8"))


def is_released(reply) -> bool:
    """Whether the file for which a reply waits is there."""
    return "until" not in reply or Path(reply["until"]).exists()


class Model:
    """Gives the replies of the script."""

    def __init__(self, name: str) -> None:
        self.info = ModelInfo(name, "scripted", Price(input_usd=3.0, output_usd=15.0))

    async def stream(self, request):
        done = len([each for each in request.messages if each.role == "assistant"])
        replies = read_script()
        reply = replies[min(done, len(replies) - 1)]
        said = [each.text for each in request.messages if each.role == "user"]
        for piece in (
            reply.get("text", "").replace("{steered}", said[-1]).replace("{said}", " / ".join(said)).split("|")
        ):
            yield TextDelta(piece)
            await asyncio.sleep(0)
        while not is_released(reply):  # noqa: ASYNC110 - another process makes the file
            await asyncio.sleep(POLL_SECONDS)
        for place, (name, arguments) in enumerate(reply.get("calls", ())):
            yield ToolCallDelta(f"call-{done}-{place}", name, json.dumps(arguments), index=place)
        yield ReplyFinished(usage=Usage(1200, 34, cache_read_tokens=900))


if __name__ == "__main__":
    register("scripted", Model)
    main()
