"""`perdure` with a model that makes the calls of the file that CALLS names, and tools that need permission."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

from perdure import tool
from perdure._cli.main import main
from perdure._cli.run import assembly
from perdure.events import ReplyFinished, TextDelta, ToolCallDelta
from perdure.models import register
from perdure.tools import basic_tools


@tool(permission=True, target="what")
async def act(what: str, more: Any = None) -> str:
    """Do something that needs permission."""
    await asyncio.sleep(0)
    return "done"


def read_script():
    """What the model says, and the calls that it makes."""
    return json.loads(Path(os.environ["CALLS"]).read_text(encoding="utf-8"))


class Model:
    """Makes its calls, all in one reply, and then says that it is over."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def stream(self, request):
        if request.messages[-1].role == "user":
            script = read_script()
            if script["text"]:
                yield TextDelta(script["text"])
            for place, (name, arguments) in enumerate(script["calls"]):
                yield ToolCallDelta(f"call-{place}", name, json.dumps(arguments), index=place)
        else:
            yield TextDelta("over")
        yield ReplyFinished()


if __name__ == "__main__":
    register("scripted", Model)
    with mock.patch.object(assembly, "basic_tools", return_value=[*basic_tools(), act]):
        main()
